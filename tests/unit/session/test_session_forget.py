"""Forgetting in transcripts and daily notes: the words are gone, the file still holds together."""

import os
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sizes import at_size
from tests.unit.session.node_pi import assert_node_agrees

from recollect.adapters.session.clean_files import (
    FilesChanged,
    FilesOrder,
    forget_in_files,
    resolve_sessions,
)
from recollect.adapters.session.entries import (
    FORGOTTEN,
    UNDONE_SUMMARY,
    WITHDRAWN,
    EntrySearch,
    forget_entries,
)
from recollect.adapters.session.files import SessionIndex, transcript_file
from recollect.adapters.session.transcript import (
    SessionTranscript,
    open_transcript,
    read_session_file,
)
from recollect.agent.chat.terminal import TypedHistory
from recollect.agent.conversation import COMMAND_KIND
from recollect.core.formats.pi_session import (
    PiEntry,
    PiSession,
    build_context,
    entry_line,
    read_session,
)
from recollect.core.values.upkeep import ForgetOrder
from recollect.system.config.settings import Redaction

MARKER = "zanzibarquokka"
SPACE = "me"
USAGE = {"input": 1, "output": 1, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 2}


class Ticking:
    """A minute passes with every entry."""

    def __init__(self) -> None:
        self.at = 1_771_000_000.0

    def now(self) -> float:
        self.at += 60
        return self.at


def begun(session_id: str = "one", *, redaction: Redaction | None = None) -> SessionTranscript:
    return open_transcript(
        transcript_file(SPACE, session_id),
        session_id=session_id,
        redaction=redaction or Redaction(),
        cwd=Path("/w"),
        clock=Ticking(),
    )


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}], "timestamp": 1}


def reply(*blocks: dict[str, Any], said: str = "") -> dict[str, Any]:
    content = [*([{"type": "text", "text": said}] if said else []), *blocks]
    return {
        "role": "assistant",
        "content": content,
        "api": "anthropic-messages",
        "provider": "anthropic",
        "model": "claude-x",
        "usage": USAGE,
        "stopReason": "toolUse" if blocks else "stop",
        "timestamp": 2,
    }


def call(id: str, arguments: dict[str, Any]) -> dict[str, Any]:  # noqa: A002
    return {"type": "toolCall", "id": id, "name": "bash", "arguments": arguments}


def result(id: str, text: str, **more: Any) -> dict[str, Any]:  # noqa: A002
    return {
        "role": "toolResult",
        "toolCallId": id,
        "toolName": "bash",
        "content": [{"type": "text", "text": text}],
        **more,
        "isError": False,
        "timestamp": 3,
    }


def forget(*, only_look: bool = False, workspace: Path | None = None, **order: Any) -> FilesChanged:
    said = order.pop("said", ())
    files = FilesOrder(
        order=ForgetOrder(at=1.0, **order), said=said, all_said=said, workspace=workspace
    )
    return forget_in_files(SPACE, files, only_look=only_look)


def texts(session: PiSession) -> list[str]:
    found = []
    for message in build_context(session.entries).messages:
        content = message["content"]
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
        found.append(" ".join(block.get("text", "-") for block in blocks))
    return found


def assert_whole(before: PiSession, after: PiSession, data: bytes) -> None:
    """The tree is the same one, and calls have their results, for pi as well."""

    def frame(entry: PiEntry) -> tuple[Any, ...]:
        value = entry.value
        return (entry.kind, entry.id, entry.parent_id, value.get("timestamp"), entry.role)

    assert list(map(frame, after.entries)) == list(map(frame, before.entries))
    ids = [entry.id for entry in after.entries]
    assert len(set(ids)) == len(ids)
    assert all(entry.parent_id in {None, *ids} for entry in after.entries)
    calls, results = [], []
    for entry in after.entries:
        message = entry.message or {}
        if entry.role == "assistant":
            calls += [one["id"] for one in message["content"] if one["type"] == "toolCall"]
        if entry.role == "toolResult":
            results.append(message["toolCallId"])
    assert results == calls
    assert_node_agrees(data, build_context(after.entries))


def test_a_text_goes_from_everything_that_an_agent_writes() -> None:
    with begun() as transcript:
        transcript.append_message(user("hello"))
        transcript.append_message(user(f"about {MARKER.upper()}, please"))
        transcript.append_message(
            reply(call("c1", {"command": f"grep {MARKER}"}), call("c2", {"path": "x"}))
        )
        transcript.append_message(result("c1", f"a line with {MARKER}", details={"full": MARKER}))
        transcript.append_message(result("c2", "fine", details={MARKER: 1}))
        transcript.append_message(reply(said="nothing to see"))
        transcript.append_custom("recollect.command", {"command": "compact", "argument": MARKER})
        note = {"type": "custom_message", "customType": "note", "content": f"{MARKER} again"}
        transcript._add(lambda stamp: {**note, **stamp.fields()})
        last = transcript.append_name(f"the {MARKER} session")
        transcript.append_compaction(
            summary=f"They spoke of {MARKER}.",
            first_kept_entry_id=last.id,
            tokens_before=9,
            details={"readFiles": [f"/{MARKER}"], "recollect": {"number": 4}},
        )
        transcript.append_message(user("and goodbye"))
        path = transcript.path
    before = read_session_file(path)
    lines = path.read_bytes().split(b"\n")
    would = forget(matching=MARKER, only_look=True)
    assert path.read_bytes().split(b"\n") == lines, "looking changes nothing"
    done = forget(matching=MARKER)
    assert done.counts == would.counts
    assert done.counts["entries of transcripts"] == 8
    assert done.counts["transcripts changed"] == 1
    data = path.read_bytes()
    assert MARKER not in data.decode().casefold()
    after = read_session_file(path)
    assert_whole(before, after, data)
    assert [data.split(b"\n")[at] for at in (0, 1, 6, -2)] == [lines[at] for at in (0, 1, 6, -2)]
    compaction = after.entries[-2]
    assert compaction.text("summary") == WITHDRAWN
    assert compaction.value["details"] == {"recollect": {"number": 4}}
    assert path.stat().st_mode & 0o777 == 0o600
    assert MARKER not in repr(done)
    assert not any(forget(matching=MARKER).counts.values()), "the second time nothing is left"
    with begun() as again:
        assert again.notes == ()
        assert again.append_message(user("go on")).parent_id == after.entries[-1].id


def test_summaries_that_stood_for_it_are_withdrawn_and_others_stay() -> None:
    with begun() as transcript:
        first = transcript.append_message(user("one"))
        transcript.append_message(user(f"two {MARKER}"))
        third = transcript.append_message(user("three"))
        transcript.append_compaction(summary="of one", first_kept_entry_id=None, tokens_before=1)
        transcript.append_undo()
        keeps_it = transcript.append_compaction(
            summary="keeps all", first_kept_entry_id=first.id, tokens_before=1
        )
        transcript.append_undo()
        stands_for_it = transcript.append_compaction(
            summary="in other words", first_kept_entry_id=third.id, tokens_before=1
        )
        transcript.append_message(user("four"))
    done = forget(matching=MARKER)
    assert done.counts["summaries in transcripts, withdrawn"] == 3
    after = {entry.id: entry for entry in read_session_file(transcript.path).entries}
    assert after[stands_for_it.id].text("summary") == WITHDRAWN
    summaries = [one.text("summary") for one in after.values() if one.kind == "compaction"]
    assert summaries.count(UNDONE_SUMMARY) == 2, "our own sentence says nothing of anybody"
    # what was made after a withdrawn summary may have been made from it
    assert after[keeps_it.id].text("summary") == WITHDRAWN
    with begun() as again:
        again.append_undo()
        assert "one" in texts(read_session_file(again.path))


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("the plan is to leave", [FORGOTTEN, "go", "go on", f"{FORGOTTEN} -"]),
        ("go", ["well, the plan is to leave now", FORGOTTEN, "go on", "thinking: go -"]),
        ("plan", ["well, the plan is to leave now", "go", "go on", "thinking: go -"]),
    ],
)
def test_a_message_is_found_by_what_the_archive_kept_of_it(said: str, left: list[str]) -> None:
    with begun() as transcript:
        transcript.append_message(user("well, the plan is to leave now"))
        transcript.append_message(user("go"))
        transcript.append_message(user("go on"))
        transcript.append_message(
            reply(call("c", {"why": "the plan is to leave"}), said="thinking: go")
        )
        transcript.append_message(result("c", "ok"))
    forget(segments=("any",), said=(said,))
    assert texts(read_session_file(transcript.path))[:4] == left


def test_results_that_were_one_message_for_a_provider_go_together() -> None:
    with begun() as transcript:
        transcript.append_message(reply(call("c1", {}), call("c2", {})))
        transcript.append_message(result("c1", "ok"))
        transcript.append_message(result("c2", "the second one is longer"))
        transcript.append_message(user("ok"))
        transcript.append_message(user("the second one is longer"))
    before = read_session_file(transcript.path)
    forget(segments=("any",), said=("ok\nthe second one is longer",))
    after = read_session_file(transcript.path)
    assert texts(after)[1:] == [FORGOTTEN, FORGOTTEN, "ok", "the second one is longer"]
    assert_whole(before, after, transcript.path.read_bytes())


def test_a_message_with_a_secret_is_found_though_it_is_masked_differently() -> None:
    secret = "ghp_" + "Ab3dE6gH9j" * 3 + "Kl2nO4"
    with begun(redaction=Redaction(enabled=False)) as transcript:
        transcript.append_message(user(f"the token is {secret} as ever"))
    from recollect.core.rules.redaction import redact

    masked = redact(f"the token is {secret} as ever", pii=False).text
    assert secret not in masked
    forget(segments=("any",), said=(masked,))
    assert secret not in transcript.path.read_text()


def test_by_age_in_all_sessions_or_in_those_named() -> None:
    times = []
    for name in ("one", "two"):
        with begun(name) as transcript:
            times.append(transcript.append_message(user("old words")).milliseconds)
            transcript.append_compaction(summary="of", first_kept_entry_id=None, tokens_before=1)
            transcript.append_message(user("new words"))
    before = max(times) / 1000 + 90
    done = forget(said_before=before, sessions=("two",))
    assert done.counts["transcripts changed"] == 1
    assert "old words" in transcript_file(SPACE, "one").read_text()
    assert texts(read_session_file(transcript_file(SPACE, "two")))[1:] == ["new words"]
    assert forget(said_before=before).counts["transcripts changed"] == 1
    assert "old words" not in transcript_file(SPACE, "one").read_text()
    assert transcript_file(SPACE, "two").exists()


def test_a_session_goes_with_its_file_and_its_row_by_key_or_id() -> None:
    index = SessionIndex.of_space(SPACE)
    main, other = index.open("main"), index.open("other")
    for record in (main, other):
        with begun(record.session_id) as transcript:
            transcript.append_message(user("hello"))
    assert resolve_sessions(SPACE, ("main", "elsewhere")) == ("main", "elsewhere", main.session_id)
    done = forget(sessions=("main",))
    assert done.counts["transcripts deleted"] == 1
    assert done.counts["rows of the index of sessions"] == 1
    assert not transcript_file(SPACE, main.session_id).exists()
    assert list(index.sessions()) == ["other"]
    forget(sessions=(other.session_id,))
    assert index.sessions() == {}
    with begun("a name") as transcript:
        transcript.append_message(user("hello"))
    assert forget(sessions=("a name",)).counts["transcripts deleted"] == 1
    assert not transcript.path.exists()


def test_a_transcript_that_is_open_is_told_and_left_and_one_that_is_not_meant_is_not() -> None:
    with begun("busy") as busy, begun("bystander") as bystander:
        busy.append_message(user(f"about {MARKER}"))
        bystander.append_message(user("about nothing"))
        before = busy.path.read_bytes()
        for order in ({"matching": MARKER}, {"sessions": ("busy",)}):
            told = [line for line in forget(**order).cannot if "running agent" in line]
            assert len(told) == 1
            assert busy.path.name in told[0]
            assert told[0].endswith("end that agent, then forget again")
        told = [line for line in forget(said=(f"about {MARKER}",)).cannot if "running" in line]
        assert "with --matching" in told[0], "who named a segment cannot name it again"
        assert busy.path.read_bytes() == before
        busy.append_message(user("it still works"))
    assert forget(matching=MARKER).counts["transcripts changed"] == 1


def test_lines_that_nobody_can_read_go_where_they_hold_it() -> None:
    with begun() as transcript:
        transcript.append_message(user("hello"))
    path = transcript.path
    whole = path.read_bytes()
    escaped = "".join(f"\\u{ord(sign):04x}" for sign in MARKER)
    path.write_bytes(
        whole + b"no json at all\n" + f'{{"broken {escaped}"\n{{"torn": "{MARKER}'.encode()
    )
    assert forget(matching=MARKER).counts["entries of transcripts"] == 2
    assert path.read_bytes() == whole + b"no json at all\n"
    assert forget(said_before=4e9).counts["entries of transcripts"] == 2
    assert b"no json" not in path.read_bytes()


def test_where_it_stands_in_a_name_that_is_told() -> None:
    with open_transcript(
        transcript_file(SPACE, "one"),
        session_id="one",
        redaction=Redaction(),
        cwd=Path(f"/home/{MARKER}"),
    ) as transcript:
        transcript.append_message(user("hello"))
        transcript.append_message(reply({**call("c", {}), "name": MARKER}))
    SessionIndex.of_space(SPACE).open(f"about {MARKER}")
    done = forget(matching=MARKER)
    assert MARKER not in transcript.path.read_text().splitlines()[0], "the folder it began in"
    told = "\n".join(done.cannot)
    assert "names of models and tools" in told
    assert "sessions.json" in told
    assert MARKER not in told
    with begun() as again:
        assert again.session_id == "one"


def test_what_a_killed_forgetting_left_goes() -> None:
    with begun() as transcript:
        transcript.append_message(user("hello"))
    folder = transcript.path.parent
    ours = [f".{name[:40]}.0badcafe" for name in ("one.jsonl", "sessions.json", f"{uuid4()}.jsonl")]
    others = [".DS_Store", ".nfs000000000123", ".notes.settings"]
    for name in (*ours, *others):
        (folder / name).write_text(MARKER)
        os.utime(folder / name, (0, 0))
    (folder / ".stfolder").mkdir()
    forget(matching=MARKER, only_look=True)
    assert all((folder / name).exists() for name in ours)
    forget(matching=MARKER)
    assert not any((folder / name).exists() for name in ours)
    assert all((folder / name).exists() for name in (*others, ".stfolder"))


def test_a_copy_that_cannot_be_deleted_is_named() -> None:
    with begun() as transcript:
        transcript.append_message(user(MARKER))
    left = transcript.path.with_name(".chat_history.0badcafe")
    left.mkdir()  # a folder cannot be unlinked, whoever runs this
    os.utime(left, (0, 0))
    done = forget(matching=MARKER)
    assert done.counts["transcripts changed"] == 1
    assert sum(line.startswith(f"{left}, ") for line in done.cannot) == 1


_TEXT = st.sampled_from(["hello", "ok", f"a {MARKER} b", f'{{"x": "{MARKER}"}}', "ünïcödé \u2028"])
_BLOCKS = st.lists(
    st.one_of(
        st.builds(lambda text: {"type": "text", "text": text}, _TEXT),
        st.builds(lambda text: {"type": "thinking", "thinking": text}, _TEXT),
        st.builds(lambda text: call("c", {"deep": [{"er": text}], "n": 0.000045}), _TEXT),
        st.builds(lambda text: {"type": "unheard of", "words": {text: text}}, _TEXT),
    ),
    max_size=3,
)
_MESSAGE = st.one_of(
    st.builds(lambda content: {**reply(), "content": content}, _BLOCKS),
    st.builds(lambda text: {"role": "user", "content": text, "timestamp": 1}, _TEXT),
    st.builds(lambda text: result("c", text, details={"of": text}), _TEXT),
    st.builds(lambda text: {"role": "bashExecution", "command": text, "output": text}, _TEXT),
    st.builds(lambda text: {**reply(), "errorMessage": text}, _TEXT),
)
_ENTRY = st.one_of(
    st.builds(lambda message: {"type": "message", "message": message}, _MESSAGE),
    st.builds(
        lambda text, tail: {"type": "compaction", "summary": text, "retainedTail": tail},
        _TEXT,
        st.lists(_MESSAGE, max_size=2),
    ),
    st.builds(lambda text: {"type": "branch_summary", "fromId": "0", "summary": text}, _TEXT),
    st.builds(lambda text: {"type": "custom", "customType": "x", "data": {text: [text]}}, _TEXT),
    st.builds(lambda text: {"type": "of tomorrow", "field": {"in": text}}, _TEXT),
    st.builds(lambda text: {"type": "label", "targetId": "0", "label": text}, _TEXT),
)


@settings(max_examples=at_size(ci=50, full=150), deadline=None)
@given(st.lists(_ENTRY, max_size=8), st.data())
def test_whatever_a_transcript_holds(entries: list[dict[str, Any]], data: st.DataObject) -> None:
    lines = [entry_line({"type": "session", "version": 3, "id": "s", "cwd": "/w"})]
    for at, value in enumerate(entries):
        parent = data.draw(st.one_of(st.none(), st.integers(0, at - 1))) if at else None
        own = {"id": str(at), "parentId": None if parent is None else str(parent)}
        lines.append(entry_line({**value, **own, "timestamp": "2026-02-13T16:26:40.125Z"}))
    before = b"\n".join([*lines, b""])
    marked = EntrySearch(ForgetOrder(at=1.0, matching=MARKER))
    done = forget_entries(before, marked)
    assert MARKER.encode() not in done.data
    assert (done.data != before) == (MARKER.encode() in before)
    assert not done.left_in_names
    was, now = read_session(before).entries, read_session(done.data).entries
    assert [(e.id, e.parent_id, e.kind, e.role) for e in now] == [
        (e.id, e.parent_id, e.kind, e.role) for e in was
    ]
    again = forget_entries(done.data, marked)
    assert (again.data, again.entries, again.summaries) == (done.data, 0, 0)
    aged = forget_entries(before, EntrySearch(ForgetOrder(at=1.0, said_before=4e9)))
    assert b"hello" not in aged.data
    assert MARKER.encode() not in aged.data


def test_lines_of_daily_notes_go_and_no_other_file_of_the_user(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    folder.mkdir()
    note = folder / "2026-02-13.md"
    note.write_bytes(
        f"# Friday\n- about {MARKER.upper()}\n- stays \xff\n- first half\nsecond half\n".encode(
            "latin-1"
        )
    )
    note.chmod(0o640)
    mine = dict.fromkeys(("MEMORY.md", "memory/people.md", "notes.md"), f"{MARKER} is mine\n")
    for name, text in mine.items():
        (tmp_path / name).write_text(text)
    outside = tmp_path.parent / f"{tmp_path.name}-outside.md"
    outside.write_text(MARKER)
    (folder / "2026-02-14.md").symlink_to(outside)
    seen = forget(matching=MARKER, workspace=tmp_path, only_look=True)
    assert seen.counts["lines of daily notes"] == 1
    assert MARKER.upper().encode() in note.read_bytes()
    done = forget(matching=MARKER, workspace=tmp_path, said=("first half\nsecond half", "stays"))
    assert (done.counts["daily notes changed"], done.counts["lines of daily notes"]) == (1, 3)
    assert note.read_bytes() == b"# Friday\n- stays \xff\n", "a short message takes no line along"
    assert note.stat().st_mode & 0o777 == 0o640
    assert {name: (tmp_path / name).read_text() for name in mine} == mine
    assert outside.read_text() == MARKER
    told = "\n".join(done.cannot)
    assert "MEMORY.md" in told
    assert "memory/people.md" in told
    assert "memory/2026-02-14.md" in told
    assert "notes.md in" not in told, "what is no memory file is not looked at"
    assert MARKER not in told


def test_notes_are_left_alone_where_no_workspace_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    folder.mkdir()
    (folder / "2026-02-13.md").write_text(MARKER)
    assert any("--workspace" in line for line in forget(matching=MARKER).cannot)
    assert (folder / "2026-02-13.md").read_text() == MARKER
    done = forget(matching=MARKER, workspace=tmp_path)
    assert done.counts["lines of daily notes"] == 1
    assert (folder / "2026-02-13.md").read_text() == ""
    gone = forget(matching=MARKER, workspace=tmp_path / "gone")
    assert any("could not be read" in line for line in gone.cannot)


@pytest.mark.parametrize("way", ["matching", "said", "sessions", "time", "another session"])
def test_the_prompt_of_a_chat_offers_nothing_that_was_forgotten(way: str) -> None:
    token = "ghp_" + "Zq7LmT2xVb9KsR4wYd1NcF6hJp3QaE8uGi5o"
    texts = (MARKER, f"two lines,\n{MARKER} in one", "water")
    with begun() as transcript:
        for text in texts:
            transcript.append_message(user(text))
        transcript.append_custom(COMMAND_KIND, {"command": "name", "argument": "Bakery"})
        transcript.append_custom(COMMAND_KIND, {"command": "status"})
    with begun("two") as transcript:
        transcript.append_message(user(f"my key is {token}"))

    def offered() -> list[str]:
        return list(TypedHistory(SPACE).load_history_strings())

    assert list(TypedHistory("another").load_history_strings()) == []
    own = ["/status", "/name Bakery", *reversed(texts)]
    assert [line for line in offered() if "my key" not in line] == own
    assert token not in "".join(offered())
    orders: dict[str, dict[str, Any]] = {
        "matching": {"matching": MARKER.upper()},
        "said": {"said": (MARKER,)},
        "sessions": {"sessions": ("one",)},
        "time": {"said_after": 1.0},
        "another session": {"sessions": ("two",)},
    }
    left = {"time": [], "sessions": [], "another session": own}
    forget(**orders[way])
    assert [line for line in offered() if "my key" not in line] == left.get(way, own[:3])


def test_typed_lines_that_an_earlier_version_kept_are_deleted() -> None:
    with begun() as transcript:
        transcript.append_message(user("water"))
    kept = transcript_file(SPACE, "one").parent / "chat_history"
    kept.write_text(f"\n# 2026-02-13\n+{MARKER}\n")
    os.utime(kept, (1.0, 1.0))
    forget(only_look=True, matching="nothing of this")
    assert kept.exists()
    forget(matching="nothing of this")
    assert not kept.exists()
