"""`recollect memory …` as a user runs it: a process, a store, what is on the screen."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.acceptance.recollect_cli import Recollect, environment
from tests.harness.forked_cli import run_forked

from recollect import open_memory
from recollect.adapters.wiring import open_spool
from recollect.cli import main
from recollect.core.formats.stored_records import write_batch
from recollect.core.values.batch import Batch
from recollect.core.values.reason import Cause, Reason
from recollect.core.values.recall import GateVerdict
from recollect.hosts.inspect.searching import SearchResult
from recollect.tools import memory_tools

MARKER = "zanzibarquetzal"


@pytest.fixture
def recollect(tmp_path: Path) -> Recollect:
    return Recollect(tmp_path)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A memory with two sessions; tests work on copies of it."""
    folder = tmp_path_factory.mktemp("written")
    files = []
    for session, about in (("work", "the webhook of the payment service"), ("home", "the garden")):
        turns = [
            {"role": role, "content": f"{role} {turn} speaks about {about} at some length"}
            for turn in range(5)
            for role in ("user", "assistant")
        ]
        files.append(folder / f"{session}.json")
        files[-1].write_text(json.dumps(turns))
    Recollect(folder).text("import", *files)
    return folder


@pytest.fixture
def talked(written: Path, recollect: Recollect, tmp_path: Path) -> Recollect:
    for file in written.glob("memory.db*"):
        shutil.copy(file, tmp_path)
    return recollect


def ids(told: dict[str, Any]) -> list[str]:
    return [one["id"] for one in told["segments"]]


def test_spaces_are_listed_with_what_is_in_them(talked: Recollect, tmp_path: Path) -> None:
    assert "there is no memory at" in Recollect(tmp_path, "none.db").refused("space", "list")
    [of_file] = talked.json("space", "list")["spaces"]
    assert (of_file["space"], of_file["sessions"], of_file["segments"]) == ("default", 2, 20)

    def here(*arguments: str) -> str:
        """Of this machine's own folder."""
        done = run_forked(
            [*arguments], stdin=b"", env=environment(tmp_path), cwd=tmp_path, timeout=60
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    assert here("space", "list") == "There is no memory here yet.\n"
    talk = tmp_path / "talk.json"
    for folder, words in (("/src/app one", "the port is 8088"), ("/src/größe", "it is big")):
        talk.write_text(json.dumps([{"role": "user", "content": words}]))
        here("import", str(talk), "--space", folder)
    (tmp_path / "home" / "spaces" / "locked.db").write_bytes(b"\x07" * 8_192)
    shown = here("space", "list").splitlines()
    assert shown[0].split() == ["last", "used", "sessions", "messages", "size", "space"]
    assert sorted(line.rpartition("  ")[2] for line in shown[1:])[1:] == [
        *("/src/app one", "/src/größe")
    ]
    assert any("is encrypted, or is not a memory" in line for line in shown)
    told = {one["space"]: one for one in json.loads(here("space", "list", "--json"))["spaces"]}
    assert (told["/src/app one"]["sessions"], told["/src/app one"]["segments"]) == (1, 1)
    assert told["/src/app one"]["bytes_on_disk"] > 4_096
    assert told["/src/app one"]["last_said_at"]


def test_stats_tell_what_there_is(talked: Recollect) -> None:
    told = talked.json("memory", "stats")
    assert (told["segments"], told["sessions"], told["noise"]) == (20, 2, 0)
    shown = talked.text("memory", "stats")
    assert "20 indexed" in shown
    sessions = talked.json("memory", "sessions")["sessions"]
    assert {one["session"]: one["segments"] for one in sessions} == {"work": 10, "home": 10}
    assert "work" in talked.text("memory", "sessions")


def test_a_memory_that_is_not_there_is_one_line(recollect: Recollect) -> None:
    for command in ("stats", "sessions", "check"):
        said = recollect.refused("memory", command)
        assert "memory.db" in said
    assert not Path(recollect.url).exists()


async def test_search_and_the_memory_tool_rank_alike_and_leave_out_questions(
    recollect: Recollect, tmp_path: Path
) -> None:
    talk = tmp_path / "boiler.json"
    texts = (
        "Which valve feeds the boiler?",
        "I have to look that up first.",
        "So, which valve feeds the boiler in the cellar?",
        "The plan of the cellar says that valve B-12 feeds the boiler; valve B-14 is the spare.",
        "And which valve of the boiler is open?",
        "None of them: the boiler is off until October.",
    )
    roles = ("user", "assistant")
    talk.write_text(
        json.dumps([{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)])
    )
    recollect.text("import", talk)
    query = "which valve feeds the boiler"
    async with open_memory(store=Path(recollect.url)) as memory:
        tools = memory_tools(memory)
        await tools.call("memory_search", {"query": query})
        await memory.settle(60, jobs=True)  # from now on all rank with the same vectors
        answer = (await tools.call("memory_search", {"query": query})).text
    hits = recollect.json("memory", "search", query)["hits"]
    assert "B-12" in hits[0]["passage"]
    assert not [hit["passage"] for hit in hits if hit["passage"].endswith("?")]
    places = [answer.find(hit["passage"]) for hit in hits]
    assert -1 not in places
    assert places == sorted(places)


def test_search_finds_by_words_and_says_where(talked: Recollect) -> None:
    told = talked.json("memory", "search", "payment", "webhooks", "--limit", "3")
    assert len(told["hits"]) == 3
    scores = [hit["score"] for hit in told["hits"]]
    assert scores == sorted(scores, reverse=True)
    assert all(score > 0 for score in scores)
    assert {hit["session"] for hit in told["hits"]} == {"work"}
    assert "webhook" in told["hits"][0]["passage"]
    shown = talked.text("memory", "search", "webhook")
    assert "speaks about the webhook of the payment service" in shown
    assert told["hits"][0]["id"] in shown or "work" in shown
    assert talked.json("memory", "search", "webhook", "--session", "home")["hits"] == []
    nothing = talked.run("memory", "search", "submarine")
    assert nothing.returncode == 0
    assert nothing.stdout.decode().startswith("Nothing matches")
    assert "no words" in talked.refused("memory", "search", "the of and")


def test_evicted_messages_are_cold_and_found_on_request(
    recollect: Recollect, tmp_path: Path
) -> None:
    """`index.max_segments` and `index.eviction_days` limit OpenClaw's recall, and lose nothing."""
    old = {"role": "user", "content": "the lighthouse keeper is called Ottoline", "timestamp": 1}
    new = [{"role": "user", "content": f"message {n} about the harbor crane"} for n in range(12)]
    (tmp_path / "talk.json").write_text(json.dumps([old, *new]))
    recollect.text("import", tmp_path / "talk.json")
    asked = ("memory", "search", "lighthouse")
    assert "Ottoline" in recollect.text(*asked)
    (tmp_path / "mine.toml").touch()
    env = {"RECOLLECT_CONFIG": str(tmp_path / "mine.toml")}
    preset = 'preset = "openclaw"\n[recall]\nmin_score = 0.1\ndecay_per_day = 1.0\n[index]\n'
    for limit, is_cold in (
        ('eviction_days = "none"', False),
        ("max_segments = 10", True),
        ("eviction_days = 30", True),
    ):
        (tmp_path / "mine.toml").write_text(preset + limit)
        assert ("Nothing matches" in recollect.text(*asked, env=env)) is is_cold
        assert "Ottoline" in recollect.text(*asked, "--cold", env=env)
    recollect.text("export", tmp_path / "out")
    assert "Ottoline" in (tmp_path / "out" / "segments.jsonl").read_text()


def test_a_score_is_explained_part_by_part(talked: Recollect) -> None:
    told = talked.json("memory", "search", "payment webhook", "--limit", "3", "--explain")
    assert len(told["hits"]) == 3
    for hit in told["hits"]:
        parts = {part["name"]: part["points"] for part in hit["parts"]}
        assert sum(parts.values()) == pytest.approx(hit["score"], abs=0.001)
        assert parts["words"] > 0
    assert told["certainty"] > told["needed"], "memory holds something on it"
    shown = talked.text("memory", "search", "payment webhook", "--explain")
    assert "2 of 2 words" in shown
    assert "In a new session, this question would recall" in shown
    assert f"threshold {told['needed']:.2f}" in shown


def test_a_refusal_for_scattered_words_does_not_contradict_its_certainty() -> None:
    """Both conditions are named: the certainty sufficed, and the words did not."""
    reason = Reason(Cause.WORDS_APART, certainty=0.916)
    gate = GateVerdict(open=False, reason=reason, score=0.916, threshold=0.9)
    result = SearchResult(hits=(), facts=(), gate=gate, notes=(), embedders="")
    assert result.verdict.startswith("In a new session, this question would recall nothing: ")
    assert "certainty of 0.91, but no single passage" in result.verdict
    assert result.verdict.endswith("Certainty 0.91, threshold 0.90.")


async def test_search_explains_a_stored_fact_as_a_turn_treats_it(recollect: Recollect) -> None:
    async with open_memory(store=Path(recollect.url)) as memory:
        told = {"text": "The kiln is fired on the first Monday of a month."}
        assert not (await memory_tools(memory).call("memory_store", told)).is_error
    asked = recollect.json("memory", "search", "When is the kiln fired?", "--explain")
    assert asked["facts"][0]["score"] > 0.5
    assert asked["a_turn_would_recall"]
    assert "fact" in asked["reason"]


async def test_a_session_of_wrapped_claude_code_is_listed_by_its_prompt(
    recollect: Recollect,
) -> None:
    """On the wire, Claude Code puts reminders before the first prompt, in the same message."""
    notes = [f"<system-reminder>\nNote {n} of the agent.\n</system-reminder>" for n in (1, 2)]
    parts = [{"type": "text", "text": text} for text in (*notes, "Raise the retry limit to 7.")]
    async with open_memory(store=Path(recollect.url)) as memory:
        request = {"messages": [{"role": "user", "content": parts}]}
        await memory.prepare("wrapped", request)
    (session,) = recollect.json("memory", "sessions")["sessions"]
    assert session["name"] == "Raise the retry limit to 7."


def test_a_segment_is_shown_with_its_neighbours(talked: Recollect) -> None:
    session = talked.json("memory", "show", "work")
    assert len(session["segments"]) == 10
    middle = ids(session)[5]
    told = talked.json("memory", "show", middle)
    assert told["asked"] == middle
    assert ids(told) == ids(session)[3:8]
    shown = talked.text("memory", "show", middle)
    assert "assistant 2 speaks" in shown
    assert "neither a message nor a session" in talked.refused("memory", "show", "nobody")


def test_notes_are_found_and_kept_once(recollect: Recollect) -> None:
    first = recollect.json("memory", "add", "Deploys go through the blue cluster")
    assert first["outcome"] == "stored"
    again = recollect.json("memory", "add", "Deploys go through the blue cluster")
    assert (again["outcome"], again["id"]) == ("known", first["id"])
    recollect.text("memory", "add", "-", "--session", "ops", stdin=b"a note from a pipe, \xff odd")
    (hit,) = recollect.json("memory", "search", "deploy cluster")["hits"]
    assert (hit["id"], hit["source"], hit["trust"]) == (first["id"], "note", "high")
    assert len(recollect.json("memory", "show", "ops")["segments"]) == 1
    noise = recollect.run("memory", "add", "ok")
    assert "stored but not indexed" in noise.stderr.decode()
    assert "is empty" in recollect.refused("memory", "add", "  ")


def test_what_is_printed_cannot_move_the_cursor(recollect: Recollect) -> None:
    recollect.text("memory", "add", "-", stdin=b"red \x1b[31m alert \x1b]0;title\x07 bell\x07 over")
    for shown in (
        recollect.text("memory", "search", "alert"),
        recollect.text("memory", "show", "notes"),
    ):
        assert "\x1b" not in shown
        assert "\x07" not in shown
        assert "alert" in shown


def test_forgetting_is_real_and_certified(talked: Recollect, tmp_path: Path) -> None:
    turns = [{"role": "user", "content": f"the code word is {MARKER} in any case"}]
    turns.append({"role": "assistant", "content": "I will keep it to myself, of course"})
    (tmp_path / "secretive.json").write_text(json.dumps(turns))
    talked.text("import", tmp_path / "secretive.json")
    asked = talked.run("memory", "forget", "--matching", MARKER.upper())
    assert asked.returncode == 2
    assert "1 message would be forgotten" in asked.stderr.decode()
    assert "--yes" in asked.stderr.decode()
    assert f"the code word is {MARKER}" in asked.stdout.decode()
    shown = talked.text("memory", "forget", "--matching", MARKER.upper(), "--yes")
    assert shown.startswith("Certificate of forgetting")
    assert "1  segment\n" in shown
    assert MARKER not in shown
    assert talked.json("memory", "search", MARKER)["hits"] == []
    for path in (tmp_path).glob("memory.db*"):
        assert MARKER.encode() not in path.read_bytes()
    told = talked.json("import", tmp_path / "secretive.json")["totals"]
    assert (told["stored"], told["known"], told["forgotten"]) == (0, 1, 1)
    assert talked.json("memory", "stats")["tombstones"] == 1
    note = talked.run("memory", "add", turns[0]["content"])
    assert note.returncode == 1
    assert "was not stored" in note.stderr.decode()


def said(*texts: str) -> Batch:
    """A batch with these messages."""
    # here, since the contract's conftest wants to be the first to import it
    from tests.store_contract import examples

    return Batch(at=1.0, segments=examples.conversation(texts, session="offline"))


def in_spool(
    recollect: Recollect, monkeypatch: pytest.MonkeyPatch, *batches: Batch, refused: bool = False
) -> None:
    """What an engine leaves that could not reach the store."""
    monkeypatch.setenv("RECOLLECT_HOME", environment(recollect.home)["RECOLLECT_HOME"])

    async def leave() -> None:
        spool = await open_spool(recollect.url, space="default")
        for batch in batches:
            if refused:
                await spool.set_aside(write_batch(batch), reason="refused")
            else:
                await spool.append(write_batch(batch))
        await spool.close()

    asyncio.run(leave())


def test_a_text_is_forgotten_in_spool_and_facts_too(
    talked: Recollect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "openclaw"
    folder.mkdir()
    lines = [
        {
            "id": "f1",
            "type": "decision",
            "content": f"it is {MARKER}",
            "context": "",
            "timestamp": 1,
        },
        {
            "id": "f2",
            "type": "decision",
            "content": "x",
            "context": f"see {MARKER}",
            "timestamp": 2,
        },
        {"id": "f3", "type": "decision", "content": "kept", "context": "", "timestamp": 3},
    ]
    knowledge = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "knowledge.jsonl").write_text(knowledge)
    talked.text("import", folder)
    in_spool(talked, monkeypatch, said(f"tell nobody: {MARKER}", "I will not"))
    asked = talked.refused("memory", "forget", "--matching", MARKER, "--json")
    assert "1 message, 2 facts would be forgotten" in asked
    told = talked.json("memory", "forget", "--matching", MARKER, "--yes")
    assert told["counts"]["facts"] == 2
    assert told["asked"]["matching"] is True
    assert MARKER not in json.dumps(told)
    assert files_with(MARKER, tmp_path / "home", *tmp_path.glob("memory.db*")) == []
    talked.text("export", tmp_path / "out")
    exported = (tmp_path / "out" / "knowledge.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in exported] == ["f3"]
    again = talked.json("import", folder)
    assert again["files"][0]["facts"]["forgotten"] == 2, "and they stay out"
    talked.text("export", tmp_path / "again")
    assert files_with(MARKER, tmp_path / "again") == []


def files_with(marker: str, *places: Path) -> list[Path]:
    files = [path for place in places for path in (place, *place.rglob("*")) if path.is_file()]
    return [path for path in files if marker.encode() in path.read_bytes()]


def test_the_spool_is_shown_checked_and_retried(
    talked: Recollect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "0 batches wait" in talked.text("memory", "check")
    in_spool(talked, monkeypatch, said("one waits"), said("and another one"))
    assert talked.json("memory", "check")["spool"]["waiting"] == 2
    assert "2 batches wait" in talked.text("memory", "check"), "waiting is no problem"
    in_spool(talked, monkeypatch, said("one that is refused"), refused=True)
    told = talked.json("memory", "check", code=1)
    spool = told["spool"]
    assert (spool["waiting"], spool["refused"]) == (2, 1)
    assert (Path(spool["folder"]) / spool["refused_files"][0]).is_file()
    (problem,) = told["problems"]
    assert "refused 1 batch," in problem
    assert "--retry" in problem
    told = talked.json("memory", "check", "--retry")
    assert (told["retried"], told["problems"]) == (1, [])
    assert (told["spool"]["waiting"], told["spool"]["refused"]) == (3, 0)
    (file,) = Path(spool["folder"]).glob("*.db")
    file.write_bytes(file.read_bytes()[:100] + b"\xa5" * 8_000)
    (problem,) = talked.json("memory", "check", code=1)["problems"]
    assert ".damaged" in problem
    assert b"PROBLEM" in talked.run("memory", "check").stdout


def test_the_spool_is_shown_while_the_store_is_away(tmp_path: Path) -> None:
    away = Recollect(tmp_path, "postgresql://nobody@127.0.0.1:1/none")
    told = away.json("memory", "check", code=1)
    assert told["spool"]["waiting"] == 0
    assert told["problems"][0].startswith("store: ")


def test_sessions_segments_and_ages_can_be_forgotten(talked: Recollect) -> None:
    first = ids(talked.json("memory", "show", "home"))[0]
    told = talked.json("memory", "forget", "--segment", first, "--session", "work", "--yes")
    assert told["counts"]["segments"] == 11
    assert talked.json("memory", "stats")["segments"] == 9
    told = talked.json("memory", "forget", "--before", "2100-01-01", "--yes")
    assert told["counts"]["segments"] == 9
    assert "what to forget: --segment" in talked.refused("memory", "forget", "--yes")
    assert "such as 30d" in talked.refused("memory", "forget", "--before", "soon", "--yes")
    assert "give a text" in talked.refused("memory", "forget", "--matching", " ", "--yes")


def test_reindexing_changes_nothing_that_is_found(talked: Recollect) -> None:
    done = talked.json("memory", "reindex")
    assert (done["segments"], done["passages"]) == (20, 20)
    before = talked.json("memory", "search", "webhook", "--limit", "20")
    assert set(talked.json("memory", "reindex")["vectors"].values()) <= {0}
    talked.text("memory", "jobs", "--pause", "expire")
    assert talked.json("memory", "jobs")["queue"]["paused"] == ["expire"]
    assert talked.json("memory", "jobs", "--resume", "expire")["queue"]["paused"] == []
    assert talked.json("memory", "scrub")["done"]
    assert talked.json("memory", "search", "webhook", "--limit", "20") == before
    assert talked.json("memory", "check")["problems"] == []


def test_migrate_is_for_servers(recollect: Recollect) -> None:
    done = CliRunner().invoke(main, ["db", "migrate", recollect.url])
    assert (done.exit_code, "is for PostgreSQL" in done.stderr) == (2, True)


def test_a_session_is_meant_by_the_beginning_of_its_name(recollect: Recollect) -> None:
    """Wherever one is named, and also where an agent's name stands before it; of several that begin
    so none is taken."""
    names = ("5d1c-8a90-first", "5d1c-8a90-second", "claude-code:77fe-1a2b")
    for name in names:
        recollect.text("memory", "add", "--session", name, f"The {name} crane lifts forty tons.")
    shown = recollect.json("memory", "show", "77fe")["segments"]
    assert [one["session"] for one in shown] == ["claude-code:77fe-1a2b"]
    assert recollect.json("memory", "show", "5d1c-8a90-f")["segments"] != shown
    found = recollect.json("memory", "search", "crane tons", "--session", "77fe-1")["hits"]
    assert {one["session"] for one in found} == {"claude-code:77fe-1a2b"}
    commands = (
        ("memory", "show", "5d1c"),
        ("memory", "search", "crane", "--session", "5d1c"),
        ("memory", "forget", "--session", "5d1c", "--yes"),
        ("facts", "list", "--session", "5d1c"),
        ("receipt", "5d1c"),
        ("replay", "5d1c", "--list"),
        ("undo", "5d1c"),
    )
    for command in commands:
        done = recollect.run(*command)
        assert done.returncode != 0, command
        assert "5d1c-8a90-first, 5d1c-8a90-second" in done.stderr.decode(), command
    recollect.text("memory", "forget", "--session", "5d1c-8a90-s", "--yes")
    left = {one["session"] for one in recollect.json("memory", "sessions")["sessions"]}
    assert left == {names[0], names[2]}
