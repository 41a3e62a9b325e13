"""Requests in and out: which format, what is spliced, what usage a reply reports."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.core.engine import Engine, Session
from recollect.core.formats.json_text import (
    array_spans,
    decode,
    encode,
    object_spans,
    value_positions,
)
from recollect.core.formats.replies import read_usage
from recollect.core.formats.request import split_request
from recollect.errors import FormatError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"input": "hi"}, "openai-responses"),
        ({"input": [user("hi")]}, "openai-responses"),
        ({"system": "s", "messages": [user("hi")]}, "anthropic"),
        ({"messages": [{"role": "system", "content": "s"}]}, "openai-chat"),
        (
            {"messages": [user("x"), {"role": "tool", "tool_call_id": "c", "content": "1"}]},
            "openai-chat",
        ),
        (
            {
                "messages": [
                    {
                        "role": "assistant",
                        "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}],
                    }
                ]
            },
            "anthropic",
        ),
        ({"model": "gpt-4o", "messages": [user("hi")]}, "openai-chat"),
        ({"model": "claude-sonnet", "messages": [user("hi")]}, "anthropic"),
        ({"messages": [user("hi")]}, "anthropic"),
        ({"messages": [{"role": "toolResult", "toolCallId": "c", "content": []}]}, "pi"),
        ({"systemPrompt": "s", "messages": [user("hi")]}, "pi"),
    ],
)
def test_the_format_is_found_by_content(body: dict[str, Any], expected: str) -> None:
    for style in ((",", ":"), (", ", ": ")):
        assert split_request(json.dumps(body, separators=style).encode()).format == expected
    assert split_request(body).format == expected


def test_a_touched_body_keeps_everything_else_byte_for_byte() -> None:
    body = (
        b'{ "temperature" : 1.0e0,\n "messages": [ {"role":"assistant","content":"hi"},'
        b' {"role":"user" , "content":"go \\u00e9"} ],\n  "metadata":{"messages":[1 , 2]} }'
    )
    out = asyncio.run(Engine().prepare(Session("s"), body)).request
    assert out.startswith(b'{ "temperature" : 1.0e0,\n "messages": [{"role":"user"')
    assert b'{"role":"user" , "content":"go \\u00e9"}' in out
    assert out.endswith(b',\n  "metadata":{"messages":[1 , 2]} }')


def test_what_only_javascript_writes_goes_through() -> None:
    body = b'{"messages":[{"role":"user","content":"half \\ud83d a face"}],"x":NaN}'
    context = asyncio.run(Engine().prepare(Session("s"), body))
    assert context.request is body
    assert context.report.failures == ()
    user = b'{"role":"user","content":"go"}'
    broken = b'{"messages":[{"role":"assistant","content":"half \\ud83d"},' + user + b"]}"
    out = asyncio.run(Engine().prepare(Session("s"), broken)).request
    assert b'{"role":"assistant","content":"half \\ud83d"}' in out


def test_repeated_and_escaped_keys_do_not_confuse_the_splice() -> None:
    held = b'[{"role":"assistant","content":"hi"},{"role":"user","content":"go"}]'
    body = b'{"mess\\u0061ges":' + held + b',"a":1}'
    out = json.loads(asyncio.run(Engine().prepare(Session("s"), body)).request)
    assert [m["role"] for m in out["messages"]] == ["user", "assistant", "user"]
    assert out["a"] == 1


@given(st.dictionaries(st.text(), JSON, max_size=5))
def test_spans_are_exact_slices(fields: dict[str, Any]) -> None:
    for style in ((",", ":"), (", ", ": ")):
        raw = json.dumps(fields, separators=style).encode()
        spans = object_spans(raw)
        assert {key: json.loads(span) for key, span in spans.items()} == fields
        positions = value_positions(raw, spans)
        if positions is not None:
            assert {k: raw[a:b] for k, (a, b) in positions.items()} == spans


@pytest.mark.parametrize("bad", [b"{", b"[1,]", b'{"a":1}x', b"[1 2]", b'{"a" 1}', b"\xff", b""])
def test_what_is_no_json_is_refused(bad: bytes) -> None:
    for cut in (object_spans, array_spans, decode):
        with pytest.raises(FormatError):
            cut(bad)


def test_deep_nesting_is_refused_not_fatal() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    with pytest.raises(FormatError):
        decode(deep)


def test_client_objects_are_sent_as_their_library_would() -> None:
    class Block:
        def model_dump(self, **_: Any) -> dict[str, Any]:
            return {"type": "text", "text": "from an object"}

    reply = SimpleNamespace(role="assistant", content=[Block()])
    given_ = {"messages": [user("go"), reply, user("on")]}
    context = asyncio.run(Engine().prepare(Session("s"), given_))
    assert context.request["messages"][1] is reply
    assert context.report.entries[1].raw == encode(
        {"role": "assistant", "content": [{"type": "text", "text": "from an object"}]}
    )


def test_a_message_that_a_client_changes_in_place_is_read_again() -> None:
    class Block:
        text = "as an object"

    call = {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": [1, {"b": None}]}}
    deep: Any = "end"
    for _ in range(300):
        deep = [deep]
    messages: list[Any] = [
        user("go"),
        {"role": "assistant", "content": [{"type": "text", "text": "so"}, call]},
        {"role": "assistant", "content": [Block()]},
        user([{"type": "text", "text": "on", "meta": deep}]),
    ]
    before = split_request({"messages": messages})
    assert split_request({"messages": messages}, before=before).messages == before.messages
    call["input"]["a"][1]["b"] = "other"  # type: ignore[index]
    messages[2]["content"][0].text = "changed"
    messages[3]["content"][0]["text"] = "off"
    now = split_request({"messages": [*messages, user("new")]}, before=before)
    assert now.messages[0] is before.messages[0], "it was not encoded again"
    again = split_request({"messages": [*messages, user("new")]})
    assert now.messages == again.messages
    assert b"other" in now.messages[1]
    fewer = split_request({"messages": messages[:1]}, before=now)
    assert fewer.messages == now.messages[:1]
    assert split_request({"input": messages[:1]}, before=now).messages == now.messages[:1]


def test_a_number_of_another_type_is_encoded_again() -> None:
    call = {"type": "tool_use", "id": "t1", "name": "f", "input": {"deep": 1}}
    messages = [user("go"), {"role": "assistant", "content": [call]}]
    before = split_request({"messages": messages})
    for other in (True, 1.0):
        call["input"] = {"deep": other}
        assert split_request({"messages": messages}, before=before).messages[1] == encode(
            messages[1]
        )


@pytest.mark.parametrize(
    ("reply", "whole"),
    [
        (
            {
                "usage": {
                    "input_tokens": 10,
                    "cache_read_input_tokens": 90,
                    "cache_creation_input_tokens": 5,
                }
            },
            105,
        ),
        (
            {
                "usage": {
                    "prompt_tokens": 100,
                    "completion_tokens": 3,
                    "prompt_tokens_details": {"cached_tokens": 64},
                }
            },
            100,
        ),
        (
            {
                "usage": {
                    "input_tokens": 100,
                    "input_tokens_details": {"cached_tokens": 80},
                    "output_tokens": 1,
                }
            },
            100,
        ),
        ({"response": {"usage": {"input_tokens": 7, "input_tokens_details": {}}}}, 7),
        (
            {
                "usage": {
                    "input": 3,
                    "output": 4,
                    "cacheRead": 20,
                    "cacheWrite": 7,
                    "totalTokens": 34,
                }
            },
            30,
        ),
        (b'{"usage":{"prompt_tokens":12}}', 12),
        (SimpleNamespace(usage=SimpleNamespace(input_tokens=11, output_tokens=2)), 11),
        ({"usage": {"input_tokens": 0}}, None),
        ({"usage": None}, None),
        ({}, None),
        ("not a reply", None),
        (None, None),
        (b"{", None),
    ],
)
def test_usage_counts_the_input_whole(reply: Any, whole: int | None) -> None:
    usage = read_usage(reply)
    assert (usage.input_tokens if usage else None) == whole
