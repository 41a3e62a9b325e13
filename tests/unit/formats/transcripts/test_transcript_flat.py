"""OpenClaw's flat log: ids made, results paired by order and name, never wrongly."""

import json
from typing import Any

from recollect.core.formats.transcripts import read_transcript
from recollect.core.values.transcript import RecordedSession

AT = "2026-01-26T10:00:00Z"


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text, "timestamp": AT}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text, "timestamp": AT}


def call(name: str, **params: Any) -> dict[str, Any]:
    return {"role": "tool_call", "name": name, "params": params, "timestamp": AT}


def result(name: str, content: Any) -> dict[str, Any]:
    return {"role": "tool_result", "name": name, "content": content, "timestamp": AT}


def read(*lines: dict[str, Any]) -> RecordedSession:
    return read_transcript("\n".join(json.dumps(line) for line in lines).encode())


def pairs(transcript: RecordedSession) -> dict[str, str | None]:
    """Each result's words with the arguments of the call it answers."""
    messages = [json.loads(item.raw) for item in transcript.items]
    arguments = {
        made["id"]: made["function"]["arguments"]
        for message in messages
        for made in message.get("tool_calls") or []
    }
    return {
        message["content"]: arguments.get(message["tool_call_id"])
        for message in messages
        if message["role"] == "tool"
    }


def test_openclaws_own_example() -> None:
    transcript = read(
        user("Hello"), said("Hi there!"), call("read", path="file.txt"), result("read", "words")
    )
    assert transcript.kind == "flat"
    assert transcript.format == "openai-chat"
    messages = [json.loads(item.raw) for item in transcript.items]
    assert messages[0] == {"role": "user", "content": "Hello"}
    assert messages[1]["content"] == "Hi there!"
    (made,) = messages[1]["tool_calls"]
    assert made["function"] == {"name": "read", "arguments": '{"path": "file.txt"}'}
    assert messages[2] == {"role": "tool", "tool_call_id": made["id"], "content": "words"}
    assert [tuple(r.shown) for r in transcript.requests] == [(0,)]
    assert transcript.requests[0].answered == (1,)
    assert transcript.items[0].timestamp == 1769421600.0


def test_a_line_that_is_a_chat_message_keeps_its_bytes() -> None:
    line = '{"role" : "user", "content":"a\u2028b"}'
    transcript = read_transcript(line.encode())
    assert transcript.items[0].raw == line.encode()
    assert not transcript.items[0].derived


def test_parallel_calls_of_one_name_are_answered_in_order() -> None:
    transcript = read(
        user("x"),
        call("read", n=1),
        call("read", n=2),
        call("sh", n=3),
        result("read", "one"),
        result("sh", "three"),
        result("read", "two"),
    )
    assert pairs(transcript) == {"one": '{"n": 1}', "three": '{"n": 3}', "two": '{"n": 2}'}
    assert len(transcript.requests) == 1


def test_a_lost_result_does_not_shift_the_next_one_after_somebody_spoke() -> None:
    transcript = read(
        user("x"), call("read", n=1), user("y"), call("read", n=2), result("read", "two")
    )
    assert pairs(transcript) == {"two": '{"n": 2}'}


def test_a_late_result_finds_its_call_when_no_newer_one_has_its_name() -> None:
    transcript = read(user("x"), call("read", n=1), user("hurry"), result("read", "one"))
    assert pairs(transcript) == {"one": '{"n": 1}'}


def test_a_result_without_call_answers_none() -> None:
    transcript = read(
        user("x"),
        call("sh", n=1),
        result("read", "stray"),
        result("sh", "one"),
        result("sh", "more"),
    )
    assert pairs(transcript) == {"stray": None, "one": '{"n": 1}', "more": None}


def test_ids_the_log_gives_are_kept_and_a_lines_own_id_is_not_mistaken_for_one() -> None:
    transcript = read(
        {**user("x"), "id": "m1"},
        {**call("read", n=1), "tool_call_id": "c1"},
        {**call("read", n=2), "id": "m3"},
        {**result("read", "two"), "id": "m4"},
        {**result("read", "one"), "toolCallId": "c1"},
    )
    assert pairs(transcript) == {"one": '{"n": 1}', "two": '{"n": 2}'}
    ids = [made["id"] for made in json.loads(transcript.items[1].raw)["tool_calls"]]
    assert ids == ["c1", "m3"]


def test_chat_messages_among_the_lines_are_left_alone() -> None:
    made = {"id": "w1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    assistant = {"role": "assistant", "content": None, "tool_calls": [made]}
    answer = {"role": "tool", "tool_call_id": "w1", "content": "wire"}
    transcript = read(user("x"), assistant, answer, call("read", n=2), result("read", "flat"))
    assert transcript.items[1].raw == json.dumps(assistant).encode()
    assert transcript.items[2].raw == json.dumps(answer).encode()
    assert pairs(transcript) == {"wire": "{}", "flat": '{"n": 2}'}


def test_an_unknown_role_is_told() -> None:
    transcript = read(user("x"), {"role": "narrator", "content": "meanwhile"}, said("y"))
    assert len(transcript.items) == 2
    assert transcript.passed_over == ("line 2: unknown role 'narrator'",)
