"""Request bodies and lists of messages, in the format they are in."""

import json

import pytest

from recollect.core.formats.transcripts import read_transcript, read_transcripts
from recollect.errors import FormatError

USER = {"role": "user", "content": "hi"}
ANSWER = {"role": "assistant", "content": "hello"}
CHAT_CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
CHAT_RESULT = {"role": "tool", "tool_call_id": "c", "content": "ok"}


def test_a_request_body_is_read_with_its_own_call_as_the_last() -> None:
    body = {
        "model": "claude-x",
        "system": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}],
        "tools": [{"name": "f", "input_schema": {}}],
        "messages": [USER, ANSWER, USER],
    }
    transcript = read_transcript(json.dumps(body, indent=2).encode())
    assert transcript.kind == "request"
    assert transcript.format == "anthropic"
    assert [(tuple(r.shown), r.answered) for r in transcript.requests] == [
        ((0,), (1,)),
        ((0, 1, 2), ()),
    ]
    assert transcript.model == "claude-x"
    assert transcript.system == "Be brief.\nBe kind."
    assert json.loads(transcript.tools or "") == body["tools"]


def test_a_responses_request_with_one_plain_string() -> None:
    body = {"model": "gpt", "input": "hi", "instructions": "Be brief."}
    transcript = read_transcript(json.dumps(body).encode())
    assert transcript.format == "openai-responses"
    assert json.loads(transcript.items[0].raw) == USER
    assert transcript.items[0].derived
    assert transcript.system == "Be brief."


FLAT = [
    {"role": "user", "content": "Hello", "timestamp": "2026-01-26T10:00:00Z"},
    {"role": "assistant", "content": "Hi there!", "timestamp": "2026-01-26T10:00:01Z"},
    {"role": "tool_call", "name": "read", "params": {"path": "a.txt"}, "timestamp": "…"},
    {"role": "tool_call", "name": "exec", "params": {"command": "ls"}},
    {"role": "tool_call", "name": "read", "params": {"path": "b.txt"}},
    {"role": "tool_result", "name": "exec", "content": ["a.txt"]},
    {"role": "tool_result", "name": "read", "content": "of a"},
    {"role": "tool_result", "name": "read", "content": "of b", "timestamp": "2026-01-26T10:00:09Z"},
    {"role": "tool_result", "name": "write", "content": "without a call"},
    {"role": "tool_call"},
]


def test_a_flat_logs_tool_lines_are_calls_and_their_results() -> None:
    data = "".join(json.dumps(line) + "\n" for line in FLAT).encode()
    transcript = read_transcript(data)
    assert (transcript.format, transcript.passed_over) == ("openai-chat", ())
    read = [json.loads(item.raw) for item in transcript.items]
    assert [item.derived for item in transcript.items] == [False, False, *[True] * 8]
    calls = {
        call["id"]: (call["function"]["name"], json.loads(call["function"]["arguments"]))
        for message in read
        for call in message.get("tool_calls", ())
    }
    results = {
        message["tool_call_id"]: message["content"] for message in read if message["role"] == "tool"
    }
    answered = [(*calls[id_], results[id_]) for id_ in calls if id_ in results]
    assert answered == [
        ("read", {"path": "a.txt"}, "of a"),
        ("exec", {"command": "ls"}, '["a.txt"]'),
        ("read", {"path": "b.txt"}, "of b"),
    ]
    assert results.keys() - calls.keys(), "a result without a call has an id of its own"
    assert transcript.items[7].timestamp is not None


def test_items_of_one_answer_are_one_call_in_responses() -> None:
    messages = [
        {"type": "compaction", "encrypted_content": "e"},
        {"role": "user", "content": [{"type": "input_text", "text": "x"}]},
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "ok"},
        {"type": "message", "role": "assistant", "content": []},
    ]
    transcript = read_transcript(json.dumps(messages).encode())
    assert [r.answered for r in transcript.requests] == [(2, 3), (5,)]


def test_messages_on_lines_and_what_is_none_is_told() -> None:
    stranger = {"role": "narrator", "content": "I am the user"}
    lines = [{"id": "old header"}, USER, CHAT_CALL, CHAT_RESULT, ANSWER, stranger]
    transcript = read_transcript("\n".join(map(json.dumps, lines)).encode())
    assert transcript.kind == "messages"
    assert [tuple(r.shown) for r in transcript.requests] == [(0,), (0, 1, 2)]
    assert [item.line for item in transcript.items] == [2, 3, 4, 5]
    assert len(transcript.passed_over) == 2
    assert "unknown role" in transcript.passed_over[1]


def test_an_array_of_arrays_holds_many_sessions() -> None:
    data = json.dumps([[USER, ANSWER], [USER, ANSWER]], indent=2).encode()
    first, second = read_transcripts(data)
    assert (first.kind, len(first.requests), len(second.requests)) == ("messages", 1, 1)
    with pytest.raises(FormatError, match="contains 2 sessions"):
        read_transcript(data)
