"""pi sessions: what the model was shown at each call, through versions, branches, compactions."""

import json
from typing import Any

import pytest

from recollect.core.formats.transcripts import read_transcript
from recollect.core.values.model import Usage
from recollect.core.values.transcript import RecordedSession

HEADER_V1 = {"type": "session", "id": "s", "timestamp": "2026-01-01T00:00:00.000Z", "cwd": "/w"}
CAME_BACK = (
    "The following is a summary of a branch that this conversation came back from:"
    "\n\n<summary>\nwent left</summary>"
)
BAD_UTF8 = b'{"type":"message","message":{"role":"user","content":"\xff"}}'
NO_USAGE = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}


def jsonl(*entries: dict[str, Any]) -> bytes:
    return b"".join(
        json.dumps(e, separators=(",", ":"), ensure_ascii=False).encode() + b"\n" for e in entries
    )


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}], "timestamp": 1}


def assistant(text: str, **more: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return {"role": "assistant", "content": content, "stopReason": "stop", "timestamp": 2, **more}


def old(message: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "timestamp": "2026-01-01T00:00:01.000Z", "message": message}


def entry(entry_id: str, parent: str | None, message: dict[str, Any]) -> dict[str, Any]:
    return {**old(message), "id": entry_id, "parentId": parent}


def header(version: int) -> dict[str, Any]:
    return {**HEADER_V1, "version": version}


def said(transcript: RecordedSession, indexes: Any) -> list[str]:
    """The words of items, to compare histories by what a reader would see."""
    words = []
    for index in indexes:
        message = json.loads(transcript.items[index].raw)
        content = message.get("content")
        words.append(content[0]["text"] if isinstance(content, list) else message["role"])
    return words


def test_messages_keep_the_files_bytes_spaces_and_key_order_included() -> None:
    message = '{"timestamp" : 1.50,  "content":"caf\\u00e9 \u2028 é", "role":"user"}'
    line = '{"type":"message", "message": ' + message + ' , "timestamp":"2026-01-01T00:00:00Z"}'
    data = jsonl(HEADER_V1) + line.encode() + b"\n"
    transcript = read_transcript(data)
    (item,) = transcript.items
    assert item.raw == message.encode()
    assert not item.derived
    assert item.line == 2
    assert item.timestamp == 1767225600.0


def compacted(entry_id: str, parent: str, summary: str, **more: Any) -> dict[str, Any]:
    at = "2026-01-01T00:00:02.000Z"
    return {
        "type": "compaction", "id": entry_id, "parentId": parent, "timestamp": at,
        "summary": summary, **more,
    }  # fmt: skip


def test_only_the_last_compaction_counts_and_what_it_kept_may_reach_before_the_one_before() -> None:
    data = jsonl(
        header(3),
        entry("1", None, user("one")),
        entry("2", "1", assistant("two")),
        entry("3", "2", user("three")),
        entry("4", "3", assistant("four")),
        compacted("5", "4", "first", firstKeptEntryId="3"),
        entry("6", "5", user("six")),
        entry("7", "6", assistant("seven")),
        compacted("8", "7", "second", firstKeptEntryId="4"),
        entry("9", "8", user("nine")),
        entry("10", "9", assistant("ten")),
    )
    transcript = read_transcript(data)
    words = said(transcript, transcript.requests[-1].shown)
    assert "<summary>\nsecond\n</summary>" in words[0]
    assert words[1:] == ["four", "six", "seven", "nine"]
    assert transcript.compactions == 2


def test_a_first_kept_entry_that_is_gone_leaves_the_summary_alone_and_is_told() -> None:
    data = jsonl(
        header(3),
        entry("1", None, user("one")),
        compacted("2", "1", "S", firstKeptEntryId="nowhere"),
        entry("3", "2", assistant("a")),
    )
    transcript = read_transcript(data)
    assert len(transcript.requests[0].shown) == 1
    assert "line 3" in transcript.passed_over[0]


def test_every_branch_has_its_requests_in_the_order_of_the_file() -> None:
    data = jsonl(
        header(3),
        entry("1", None, user("root")),
        entry("2", "1", assistant("left")),
        entry("3", "2", user("left on")),
        entry("4", "3", assistant("left end")),
        {
            "type": "branch_summary", "id": "5", "parentId": "1", "fromId": "4",
            "timestamp": "2026-01-01T00:00:02.000Z", "summary": "went left",
        },
        entry("6", "5", user("right")),
        entry("7", "6", assistant("right end")),
    )  # fmt: skip
    transcript = read_transcript(data)
    histories = [said(transcript, r.shown) for r in transcript.requests]
    assert histories[:2] == [["root"], ["root", "left", "left on"]]
    assert histories[2] == ["root", CAME_BACK, "right"]


def test_custom_messages_are_shown_and_other_entries_are_not() -> None:
    def other(entry_id: str, parent: str, kind: str, **more: Any) -> dict[str, Any]:
        at = "2026-01-01T00:00:02.000Z"
        return {"type": kind, "id": entry_id, "parentId": parent, "timestamp": at, **more}

    data = jsonl(
        header(3),
        entry("1", None, user("one")),
        other("2", "1", "custom", customType="state", data={"n": 1}),
        other("3", "2", "custom_message", customType="note", content="look", display=True),
        other("4", "3", "thinking_level_change", thinkingLevel="high"),
        other("5", "4", "model_change", provider="p", modelId="m-2"),
        other("6", "5", "label", targetId="1", label="x"),
        other("7", "6", "session_info", name="n"),
        entry("8", "7", assistant("a")),
    )
    transcript = read_transcript(data)
    assert said(transcript, transcript.requests[0].shown) == ["one", "look"]
    assert transcript.model == "m-2"
    assert transcript.passed_over == ()


def test_a_bash_run_is_shown_unless_the_user_kept_it_out() -> None:
    run = {"role": "bashExecution", "command": "ls", "output": "x", "exitCode": 0, "timestamp": 3}
    data = jsonl(
        header(3),
        entry("1", None, run),
        entry("2", "1", {**run, "excludeFromContext": True}),
        entry("3", "2", assistant("a")),
    )
    transcript = read_transcript(data)
    assert len(transcript.items) == 3
    assert tuple(transcript.requests[0].shown) == (0,)


def test_usage_counts_cached_input_and_a_call_that_reported_nothing_has_none() -> None:
    used = {"input": 10, "output": 5, "cacheRead": 100, "cacheWrite": 20, "totalTokens": 135}
    aborted = {**assistant("", usage=NO_USAGE), "content": [], "stopReason": "aborted"}
    data = jsonl(
        HEADER_V1, old(user("a")), old(aborted), old(user("b")), old(assistant("c", usage=used))
    )
    transcript = read_transcript(data)
    assert [r.usage for r in transcript.requests] == [
        None,
        Usage(input_tokens=130, output_tokens=5, cache_read_tokens=100, cache_write_tokens=20),
    ]
    assert tuple(transcript.requests[1].shown) == (0, 1, 2)
    assert json.loads(transcript.items[1].raw)["stopReason"] == "aborted"


def test_a_missing_parent_cuts_the_history_there_and_is_told() -> None:
    data = jsonl(
        header(3),
        entry("1", None, user("lost")),
        entry("3", "2", user("kept")),
        entry("4", "3", assistant("a")),
    )
    transcript = read_transcript(data)
    assert said(transcript, transcript.requests[0].shown) == ["kept"]
    assert "'2' is not in the file" in transcript.passed_over[0]


def test_a_ring_of_parents_ends() -> None:
    data = jsonl(header(3), entry("1", "2", user("a")), entry("2", "1", assistant("b")))
    transcript = read_transcript(data)
    assert len(transcript.requests) == 1


@pytest.mark.parametrize(
    "broken", [b'{"type":"message"', b"[1]", b"nonsense", b"\xff\xfe", BAD_UTF8, b"{}{}"]
)
def test_a_broken_line_is_told_and_not_counted(broken: bytes) -> None:
    data = jsonl(HEADER_V1, old(user("a"))) + broken + b"\n" + jsonl(old(assistant("b")))
    transcript = read_transcript(data)
    assert len(transcript.items) == 2
    assert [note.startswith("line 3: ") for note in transcript.passed_over] == [True]
