"""`recollect facts …` on a real store: what people see, change, ask and forget."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from recollect.adapters.wiring import open_store
from recollect.cli import main
from recollect.core.rules.identity import segment_id
from recollect.core.search.tokenize import tokenize
from recollect.core.values.batch import Batch
from recollect.core.values.fact import EvidenceSpan, Fact, FactId, fact_id
from recollect.core.values.message import EntryKey, MessageId
from recollect.core.values.segment import NewSegment, Segment, SegmentId

MARKER = "zanzibarquetzal"
DAY = 86_400.0
MONDAY = 1_767_571_200.0  # 2026-01-05 00:00 UTC
SESSION = "0b7f3b7e-6a54-4c8b-9d5a-1f2e3d4c5b6a"
SECRET = "ghp_" + "Zq8vT3xW5yB7nM2kL9jH4gF6dS1aP0oIuYtR"


class Facts:
    """The commands, on one memory in one folder."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.url = str(home / "memory.db")

    def run(self, *arguments: str | Path, stdin: str = "") -> Result:
        given = ["facts", *map(str, arguments), "--store", self.url]
        return CliRunner().invoke(main, given, input=stdin, catch_exceptions=False)

    def text(self, *arguments: str | Path, stdin: str = "") -> str:
        done = self.run(*arguments, stdin=stdin)
        assert done.exit_code == 0, done.output
        return done.stdout

    def json(self, *arguments: str | Path, code: int = 0) -> dict[str, Any]:
        done = self.run(*arguments, "--json")
        assert done.exit_code == code, done.output
        told = json.loads(done.stdout)
        assert isinstance(told, dict)
        return told

    def refused(self, *arguments: str | Path) -> str:
        """The one line that says what to do, of a call that cannot work."""
        done = self.run(*arguments)
        assert done.exit_code == 2, done.output
        assert done.stdout == ""
        lines = done.stderr.strip().splitlines()
        assert len(lines) == 1, lines
        return lines[0]

    def statements(self, *arguments: str) -> list[str]:
        return [one["content"] for one in self.json("list", *arguments)["facts"]]

    def write(self, facts: Sequence[Fact] = (), segments: Sequence[Segment] = ()) -> None:
        async def run() -> None:
            store = await open_store(self.url, space="default", create=True)
            try:
                new = tuple(NewSegment(segment=one) for one in segments)
                await store.write(Batch(at=MONDAY, facts=tuple(facts), segments=new))
            finally:
                await store.close()

        asyncio.run(run())

    def holds(self, marker: str) -> bool:
        return any(
            marker.encode() in path.read_bytes() for path in self.home.rglob("*") if path.is_file()
        )


@pytest.fixture
def facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Facts:
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "home"))
    return Facts(tmp_path)


def fact(content: str, **changes: Any) -> Fact:
    made = Fact(
        id=fact_id((), content),
        type="config",
        content=content,
        at=MONDAY,
        recorded_at=MONDAY,
        words=tuple(tokenize(content)),
        made_by="rules",
        trust="high",
    )
    return replace(made, **changes)


def segment(text: str, name: str = "one", **changes: Any) -> Segment:
    key = EntryKey(name)
    made = Segment(
        id=segment_id(SESSION, key),
        session=SESSION,
        key=key,
        message_id=MessageId(f"{name:0>32}"),
        role="user",
        text=text,
        tokens=9,
        said_at=MONDAY,
        source="request",
        trust="high",
    )
    return replace(made, **changes)


def resting(content: str, on: Segment, **changes: Any) -> Fact:
    """A fact whose words stand in a message."""
    start = on.text.index(content)
    span = EvidenceSpan(segment=on.id, start=start, end=start + len(content))
    return fact(content, sources=(on.id,), evidence=(span,), session=on.session, **changes)


def test_the_table_says_who_said_it_and_how_it_was_found(facts: Facts) -> None:
    facts.write(
        [
            fact("the port is 8000", id=FactId("aaaaaaaa11")),
            fact("deploys run on Fly", id=FactId("aaaaaaaa22"), type="decision", trust="medium"),
            fact("disk is full", id=FactId("bbbbbbbb"), type="issue", trust="low", made_by="model"),
            fact("a page said so", id=FactId("cccccccc"), trust="outside", made_by="model"),
            fact("tabs, please", id=FactId("dddddddd"), type="preference", pinned=True),
        ]
    )
    shown = facts.text("list").splitlines()
    assert shown[0].split() == ["id", "since", "type", "said", "by", "made", "statement"]
    assert shown[1].split()[:2] == ["*", "dddddddd"]
    by_id = {line.split()[0]: line for line in shown[2:]}
    assert set(by_id) == {"aaaaaaaa1", "aaaaaaaa2", "bbbbbbbb", "cccccccc"}
    assert "you" in by_id["aaaaaaaa1"]
    assert "rules" in by_id["aaaaaaaa1"]
    assert "2026-01-05" in by_id["aaaaaaaa1"]
    assert "the assistant" in by_id["aaaaaaaa2"]
    assert " ".join(by_id["bbbbbbbb"].split()[1:]) == (
        "2026-01-05 issue a tool (low) model disk is full"
    )
    assert "fetched" in by_id["cccccccc"]


def test_conditions_narrow_the_list(facts: Facts) -> None:
    facts.write(
        [
            fact("the port is 8000", session="work"),
            fact("deploys run on Fly", type="decision", trust="medium", at=MONDAY + 1),
            fact("用户喜欢深色主题", type="preference", made_by="model", at=MONDAY + 2),
        ]
    )
    assert facts.statements("--type", "decision") == ["deploys run on Fly"]
    short = facts.text("list", "--type", "decision").splitlines()[1].split()[0]
    assert facts.json("why", short)["fact"]["type"] == "decision"
    assert facts.statements("--session", "work") == ["the port is 8000"]
    assert facts.statements("--search", "PORT 8000") == ["the port is 8000"]
    assert facts.statements("--search", "深色") == ["用户喜欢深色主题"]
    assert "No fact matches" in facts.text("list", "--search", "nowhere")


def test_as_of_tells_what_held_then(facts: Facts) -> None:
    old = fact("the port is 8000", superseded_by=FactId("new"), valid_to=MONDAY + 2 * DAY)
    new = fact("the port is 9000", id=FactId("new"), at=MONDAY + 2 * DAY, change="supersede")
    facts.write([old, new])
    assert facts.statements() == ["the port is 9000"]
    assert facts.statements("--as-of", "2026-01-06") == ["the port is 8000"]
    assert facts.statements("--as-of", "2026-01-08") == ["the port is 9000"]
    assert facts.statements("--as-of", "2026-01-04") == []
    assert facts.statements("--all") == ["the port is 8000", "the port is 9000"]
    assert "the port is 8000  (until 2026-01-07)" in facts.text("list", "--all")
    assert "give a date" in facts.refused("list", "--as-of", "yesterday-ish")


def test_what_people_add_is_theirs_and_replaces_what_it_corrects(facts: Facts) -> None:
    assert "memory.db" in facts.refused("list")
    first = facts.json("add", "The server port is 8000", "--type", "config")
    assert first["outcome"] == "added"
    assert (first["fact"]["trust"], first["fact"]["made_by"]) == ("high", "user")
    assert facts.json("add", "the server port is 8000.")["outcome"] == "known"
    second = facts.json("add", "The server port is 9000", "--type", "config")
    assert second["outcome"] == "replaced"
    assert second["replaced"] == [first["fact"]["id"]]
    back = facts.json("add", "The server port is 8000", "--type", "config")
    assert back["outcome"] == "replaced"
    assert facts.statements() == ["The server port is 8000"]
    versions = facts.json("why", back["fact"]["id"])["versions"]
    assert [one["content"][-4:] for one in versions] == ["8000", "9000", "8000"]
    shown = facts.text("add", "Deploys go through Fly", "--type", "decision")
    assert shown.startswith("added ")
    assert "said by you (high)" in shown
    assert "you (high)" in facts.text("list")


def test_no_secret_is_written(facts: Facts) -> None:
    done = facts.run("add", f"the key is {SECRET}")
    assert done.exit_code == 0, done.output
    assert "masked" in done.stderr
    (said,) = facts.json("list")["facts"]
    facts.run("edit", said["id"], f"the new key is {SECRET} now")
    assert not facts.holds(SECRET)
    assert len(facts.statements("--all")) == 2


def test_an_edit_is_a_new_version(facts: Facts) -> None:
    said = segment("please note: the prot is 8000")
    facts.write([resting("the prot is 8000", said, trust="low", pinned=True)], [said])
    (old,) = facts.json("list")["facts"]
    done = facts.json("edit", old["id"][:6], "the port is 8000")
    new = done["fact"]
    assert (new["change"], new["trust"], new["made_by"]) == ("update", "high", "user")
    assert new["pinned"]
    assert new["session"] == SESSION
    assert facts.statements() == ["the port is 8000"]
    assert new["id"] in facts.refused("edit", old["id"], "something else")
    assert facts.json("edit", new["id"], "the port is 8000")["outcome"] == "known"
    shown = facts.text("why", old["id"])
    assert "the prot is 8000" in shown
    asked = facts.json("why", new["id"])
    assert asked["rests_on"]["id"] == old["id"]
    assert [one["there"] for one in asked["sources"]] == [True]


def test_a_person_confirms_what_a_tool_said(facts: Facts) -> None:
    facts.write([fact("the disk is full", id=FactId("t1"), type="issue", trust="low")])
    done = facts.json("add", "The disk is full")
    assert (done["outcome"], done["replaced"]) == ("replaced", ["t1"])
    assert (done["fact"]["trust"], done["fact"]["type"]) == ("high", "issue")
    assert len(facts.statements()) == 1
    assert facts.json("add", "The disk is full")["outcome"] == "known"


def test_pins(facts: Facts) -> None:
    facts.json("add", "tabs, never spaces", "--type", "preference")
    (one,) = facts.json("list")["facts"]
    assert "pinned: " in facts.text("pin", one["id"])
    assert facts.json("list")["facts"][0]["pinned"]
    assert facts.json("pin", one["id"])["changed"] is False
    assert facts.json("pin", one["id"], "--off")["changed"] is True
    assert not facts.json("list")["facts"][0]["pinned"]


def test_a_person_replaces_what_is_pinned(facts: Facts) -> None:
    first = facts.json("add", "The server port is 8000", "--type", "config")["fact"]
    facts.text("pin", first["id"])
    done = facts.json("add", "The server port is 9000", "--type", "config")
    assert done["replaced"] == [first["id"]]
    assert done["fact"]["pinned"]
    assert facts.statements() == ["The server port is 9000"]


def test_ids_are_given_by_a_beginning_that_one_fact_has(facts: Facts) -> None:
    facts.write([fact("one", id=FactId("abc1")), fact("two", id=FactId("abc2"))])
    assert "abc1, abc2" in facts.refused("pin", "abc")
    assert "no fact's id" in facts.refused("why", "zzz")
    assert facts.json("pin", "abc2")["fact"]["content"] == "two"


def test_why_shows_the_words_in_their_sentence_and_the_line(facts: Facts) -> None:
    own = segment("We talked. After all, the port is 9000 now. Fine.")
    imported = segment("log: the port is 9000", "two", origin="work.jsonl:17", trust="low")
    heard = segment("the port is 9000, I hear", "three", session="elsewhere")
    heard = replace(heard, id=segment_id("elsewhere", heard.key))
    gone = SegmentId("f" * 32)
    rest = resting("the port is 9000", own)
    spans = (
        *rest.evidence,
        EvidenceSpan(segment=imported.id, start=5, end=21),
        EvidenceSpan(segment=heard.id, start=0, end=4_000),
    )
    rest = replace(rest, sources=(own.id, imported.id, heard.id, gone), evidence=spans)
    facts.write([rest], [own, imported, heard])
    shown = facts.text("why", rest.id)
    assert "After all, »the port is 9000« now." in shown
    assert "work.jsonl:17" in shown
    assert "said by a tool" in shown
    assert "masked later" in shown
    assert f"{gone}  is no longer stored" in shown
    told = facts.json("why", rest.id)["sources"]
    assert [one.get("origin") for one in told] == [None, "work.jsonl:17", None, None]
    assert told[0]["spans"][0]["text"] == "the port is 9000"


def test_forgetting_a_fact_leaves_a_gap_and_a_certificate(facts: Facts) -> None:
    said = segment(f"so, {MARKER} is the codename")
    first = resting(
        f"{MARKER} is the codename",
        said,
        id=FactId("v1"),
        subject="project",
        attribute="codename",
        superseded_by=FactId("v2"),
        valid_to=MONDAY + DAY,
    )
    second = fact(
        "falcon is the codename",
        id=FactId("v2"),
        at=MONDAY + DAY,
        subject="project",
        attribute="codename",
        change="supersede",
        superseded_by=FactId("v3"),
        valid_to=MONDAY + 2 * DAY,
    )
    third = replace(
        second,
        id=FactId("v3"),
        content="heron is the codename",
        at=MONDAY + 2 * DAY,
        superseded_by=None,
        valid_to=None,
    )
    facts.write([first, second, third], [said])
    unanswered = facts.run("forget", "v2")
    assert unanswered.exit_code == 2
    assert "1 fact would be forgotten" in unanswered.stderr
    assert "--yes" in unanswered.stderr
    assert second.content in unanswered.stdout
    assert "--yes" in facts.refused("forget", "v2", "--json")
    shown = facts.text("forget", "v2", "--yes")
    assert "Certificate of forgetting" in shown
    assert "falcon" not in shown
    assert facts.statements("--all") == [first.content, "heron is the codename"]
    assert "forgotten" in facts.refused("why", "v2")
    for asked in ("v1", "v3"):
        versions = facts.json("why", asked)["versions"]
        assert [one["forgotten"] for one in versions] == [False, True, False]
    assert "a version that was forgotten" in facts.text("why", "v3")
    told = facts.json("forget", "v3", "--versions", "--sources", "--yes")
    assert told["counts"]["segments"] == 1
    assert told["counts"]["facts"] == 2
    assert facts.statements("--all") == []
    CliRunner().invoke(main, ["memory", "scrub", "--store", facts.url])
    assert not facts.holds(MARKER)


def test_every_command_and_option_has_its_place_in_the_page() -> None:
    import click

    page = (Path(__file__).parents[2] / "docs/guides/facts.md").read_text()
    group = main.get_command(click.Context(main), "facts")
    assert isinstance(group, click.Group)
    for name in group.list_commands(click.Context(group)):
        assert f"recollect facts {name}" in page, name
        command = group.get_command(click.Context(group), name)
        assert command is not None
        for parameter in command.params:
            for option in parameter.opts if isinstance(parameter, click.Option) else ():
                assert option in page, f"{name} {option}"


def test_a_type_is_given_as_the_list_shows_it(tmp_path: Path) -> None:
    facts = Facts(tmp_path)
    facts.text("add", "The refund logic is not done yet", "--type", "task state")
    shown = facts.text("list")
    assert "task state" in shown
    for name in ("task state", "task_state"):
        assert facts.text("list", "--type", name) == shown
    assert "'task_state'" in facts.run("list", "--type", "tasks").output
