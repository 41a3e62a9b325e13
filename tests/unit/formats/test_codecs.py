"""Each wire format: what is read, what is refused, and what a changed message looks like."""

import asyncio
import json
from typing import Any

import pytest

from recollect.core.engine import Context, Engine, Session
from recollect.core.formats.codec import CODECS
from recollect.core.rules.identity import identify
from recollect.core.rules.pairing import STAND_IN
from recollect.core.values.message import (
    Image,
    Message,
    Other,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from recollect.core.values.model import FormatName


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def read(format_name: FormatName, wire: Any) -> Message:
    return CODECS[format_name].read(json.dumps(wire).encode())


def prepare(format_name: FormatName, messages: list[Any], **fields: Any) -> Context:
    field = "input" if format_name == "openai-responses" else "messages"
    body = json.dumps({**fields, field: messages}).encode()
    return asyncio.run(Engine().prepare(Session("s"), body, format=format_name))


def sent(format_name: FormatName, messages: list[Any], **fields: Any) -> list[Any]:
    field = "input" if format_name == "openai-responses" else "messages"
    held = json.loads(prepare(format_name, messages, **fields).request)[field]
    assert isinstance(held, list)
    return held


@pytest.mark.parametrize("kind", ["tool_use", "toolUse", "toolCall", "functionCall", "tool_call"])
@pytest.mark.parametrize("arguments", ["input", "arguments", "args", "params"])
def test_every_spelling_of_a_tool_call(kind: str, arguments: str) -> None:
    block = {"type": kind, "id": "c1", "name": "read", arguments: {"b": 1, "a": [2]}}
    for format_name in ("anthropic", "pi"):
        (part,) = read(format_name, assistant([block])).parts
        assert part == ToolCall(id="c1", name="read", arguments='{"a":[2],"b":1}', variant=kind)  # type: ignore[arg-type]


def test_blocks_of_all_kinds() -> None:
    parts = read(
        "anthropic",
        assistant(
            [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "redacted_thinking", "data": "xyz"},
                {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}},
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": "QQ"},
                },
                {"type": "document", "source": {}, "cache_control": {"type": "ephemeral"}},
            ]
        ),
    ).parts
    assert parts[0] == Thinking(text="hm", sealed="s")
    assert parts[1] == Thinking(text="", sealed="xyz")
    assert parts[2] == Text(text="hi")
    assert parts[3] == Image(media_type="image/png", data="QQ")
    assert parts[4] == Other(kind="document", payload='{"source":{},"type":"document"}')


def test_images_by_address_and_as_data() -> None:
    by_url = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    as_data = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}
    parts = read("openai-chat", user([by_url, as_data])).parts
    assert parts[0] == Image(media_type=None, data=None, address="https://example.org/a.png")
    assert parts[1] == Image(media_type="image/png", data="QUJD")


@pytest.mark.parametrize("wire", ["plain words", 7, None, [], ["a"], {"role": 5}, {}, True])
@pytest.mark.parametrize("format_name", list(CODECS))
def test_reading_never_raises(format_name: FormatName, wire: Any) -> None:
    assert isinstance(read(format_name, wire), Message)


def test_identity_ignores_marks_spelling_and_empty_text() -> None:
    secret = b"k" * 32
    same: list[Any] = [
        user("hello"),
        user([text("hello")]),
        {
            "content": [{"text": "hello", "cache_control": {"type": "ephemeral"}, "type": "text"}],
            "role": "user",
        },
        user([text("hello"), text("")]),
    ]
    assert len({identify(read("anthropic", wire), secret) for wire in same}) == 1
    other = identify(read("anthropic", assistant("hello")), secret)
    assert other != identify(read("anthropic", same[0]), secret)
    assert identify(read("anthropic", same[0]), b"q" * 32) != identify(
        read("anthropic", same[0]), secret
    ), "another space, another identity"


def test_identity_tells_parts_apart() -> None:
    secret = b"k" * 32
    one = user([text("ab")])
    two = user([text("a"), text("b")])
    assert identify(read("anthropic", one), secret) != identify(read("anthropic", two), secret)


class TestAnthropic:
    def test_a_missing_result_is_synthesised_with_a_marker(self) -> None:
        call = {"type": "tool_use", "id": "t1", "name": "read", "input": {}}
        out = sent("anthropic", [user("go"), assistant([call]), user("never mind")])
        assert out[2]["content"] == [
            {"type": "tool_result", "tool_use_id": "t1", "content": STAND_IN, "is_error": True},
            text("never mind"),
        ]

    def test_a_late_result_replaces_its_stand_in(self) -> None:
        call = {"type": "tool_use", "id": "t1", "name": "read", "input": {}}
        result = {"type": "tool_result", "tool_use_id": "t1", "content": "late"}
        held: list[Any] = [user("go"), assistant([call]), user("still there?"), assistant("yes")]
        engine, session = Engine(), Session("s")
        first = asyncio.run(engine.prepare(session, {"messages": [*held, user("well?")]}))
        assert STAND_IN in json.dumps(first.request)
        second = asyncio.run(engine.prepare(session, {"messages": [*held, user([result])]}))
        assert STAND_IN not in json.dumps(second.request)
        assert second.request["messages"][2]["content"][0] == result
        assert any(r.kind == "moved" for r in second.report.repairs)

    def test_parallel_results_are_gathered_in_one_message_results_first(self) -> None:
        calls = [{"type": "tool_use", "id": f"t{n}", "name": "f", "input": {}} for n in (1, 2)]
        results = [{"type": "tool_result", "tool_use_id": f"t{n}", "content": "ok"} for n in (1, 2)]
        out = sent(
            "anthropic",
            [user("go"), assistant(calls), user([results[1], text("first")]), user([results[0]])],
        )
        assert [b.get("tool_use_id") for b in out[2]["content"]] == ["t2", "t1", None]
        assert len(out) == 3

    def test_thinking_keeps_its_signature_when_the_message_changes(self) -> None:
        thinking = {"type": "thinking", "thinking": "hm", "signature": "sig=="}
        blank = text(" ")
        call = {"type": "tool_use", "id": "t1", "name": "f", "input": {"z": 1, "a": 2}}
        out = sent(
            "anthropic",
            [
                user("go"),
                {"role": "assistant", "content": [thinking, blank, call], "id": "msg_1"},
                user([{"type": "tool_result", "tool_use_id": "t1"}]),
            ],
        )
        assert out[1] == {"role": "assistant", "content": [thinking, call], "id": "msg_1"}

    def test_the_assistant_cannot_begin(self) -> None:
        out = sent("anthropic", [assistant("hi"), user("go")])
        assert [m["role"] for m in out] == ["user", "assistant", "user"]

    def test_nothing_at_all_goes_out_as_it_came_and_is_told(self) -> None:
        for messages in ([], [assistant("")]):
            context = prepare("anthropic", messages)
            assert json.loads(context.request)["messages"] == messages
            assert "has content" in context.report.lines[-1].said

    def test_an_id_used_twice_is_given_anew_with_its_result(self) -> None:
        def turn(text: str) -> list[Any]:
            call = {"type": "tool_use", "id": "call_0", "name": "f", "input": {}}
            result = {"type": "tool_result", "tool_use_id": "call_0", "content": text}
            return [user(f"go {text}"), assistant([call]), user([result]), assistant("done")]

        out = sent("anthropic", [*turn("1"), *turn("2"), user("well?")])
        assert out[1]["content"][0]["id"] == out[2]["content"][0]["tool_use_id"] == "call_0"
        assert out[5]["content"][0]["id"] == out[6]["content"][0]["tool_use_id"] == "call_0_2"
        assert out[6]["content"][0]["content"] == "2"

    def test_signs_that_a_host_refuses_in_ids_are_replaced(self) -> None:
        out = sent(
            "anthropic",
            [
                user("go"),
                assistant([{"type": "tool_use", "id": "a|b", "name": "f", "input": {}}]),
                user([{"type": "tool_result", "tool_use_id": "a|b", "content": "1"}]),
            ],
        )
        assert out[1]["content"][0]["id"] == out[2]["content"][0]["tool_use_id"] == "a_b"


class TestOpenAIChat:
    def test_results_follow_their_call_and_duplicates_go(self) -> None:
        call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        held = [
            {"role": "system", "content": "be brief"},
            user("go"),
            {"role": "assistant", "content": None, "tool_calls": [call]},
            user("hurry"),
            {"role": "tool", "tool_call_id": "c1", "content": "1"},
            {"role": "tool", "tool_call_id": "c1", "content": "2"},
        ]
        out = sent("openai-chat", held)
        assert [m["role"] for m in out] == ["system", "user", "assistant", "tool", "user"]
        assert out[3] == held[4]

    def test_one_of_two_calls_without_id_goes_and_the_other_stays(self) -> None:
        calls = [
            {"id": "", "type": "function", "function": {"name": "a", "arguments": "{}"}},
            {"id": "c2", "type": "function", "function": {"name": "b", "arguments": "{}"}},
        ]
        out = sent(
            "openai-chat",
            [
                user("go"),
                {"role": "assistant", "content": "on it", "tool_calls": calls, "name": "bot"},
                {"role": "tool", "tool_call_id": "c2", "content": "2"},
            ],
        )
        assert out[1] == {
            "role": "assistant",
            "content": "on it",
            "tool_calls": [calls[1]],
            "name": "bot",
        }

    def test_the_older_function_pair(self) -> None:
        held = [
            user("go"),
            {
                "role": "assistant",
                "content": None,
                "function_call": {"name": "f", "arguments": "{}"},
            },
        ]
        out = sent("openai-chat", [*held, user("well?")])
        assert out[2] == {"role": "function", "name": "f", "content": STAND_IN}
        answered = [*held, {"role": "function", "name": "f", "content": "1"}]
        assert sent("openai-chat", answered) == answered


class TestOpenAIResponses:
    def test_reasoning_goes_with_the_item_it_led_to(self) -> None:
        out = sent(
            "openai-responses",
            [
                user("go"),
                {"type": "reasoning", "id": "rs_1", "summary": []},
                {"type": "computer_call", "id": "cc", "call_id": "c1", "action": {}},
                user("stop"),
            ],
        )
        assert [item.get("role") for item in out] == ["user", "user"]

    def test_outputs_of_what_the_server_holds_stay(self) -> None:
        items = [{"type": "function_call_output", "call_id": "c9", "output": "1"}, user("go on")]
        assert sent("openai-responses", items, previous_response_id="resp_1") == items
        assert sent("openai-responses", items) != items

    def test_each_kind_of_call_is_answered_in_kind(self) -> None:
        out = sent(
            "openai-responses",
            [
                user("go"),
                {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": "x"},
            ],
        )
        assert out[2] == {"type": "custom_tool_call_output", "call_id": "c1", "output": STAND_IN}

    def test_plain_input_stays_a_string(self) -> None:
        body = b'{"model": "gpt-5", "input": "hello"}'
        context = asyncio.run(Engine().prepare(Session("s"), body))
        assert context.request is body
        assert context.report.format == "openai-responses"


class TestPi:
    def test_unfinished_turns_and_their_results_do_not_go_out(self) -> None:
        call = {"type": "toolCall", "id": "c1", "name": "read", "arguments": {}}
        out = sent(
            "pi",
            [
                {"role": "user", "content": "go", "timestamp": 1},
                {"role": "assistant", "content": [call], "stopReason": "aborted", "timestamp": 2},
                {"role": "toolResult", "toolCallId": "c1", "content": [], "timestamp": 3},
                {"role": "user", "content": "again", "timestamp": 4},
            ],
        )
        assert [m["timestamp"] for m in out] == [1, 4]

    def test_output_of_a_users_command_is_not_the_users_text(self) -> None:
        wire = {"role": "bashExecution", "command": "ls", "output": "a.py", "exitCode": 0}
        message = read("pi", wire)
        shown = Other(kind="bash_output", payload='"$ ls\\na.py"')
        assert (message.role, message.parts) == ("user", (shown,))

    def test_summaries_are_marked(self) -> None:
        assert read("pi", {"role": "compactionSummary", "summary": "before"}).summary
        wrapped = (
            "The conversation history before this point was compacted into the following summary:"
        )
        assert read("pi", user(wrapped + "\n\n<summary>\nx\n</summary>")).summary
        assert not read("pi", user("a summary, please")).summary


def test_results_are_reworded_with_their_other_blocks_kept() -> None:
    image = {"type": "image", "source": {"type": "url", "url": "https://example.org/x.png"}}
    wire = user(
        [
            {
                "type": "tool_result",
                "tool_use_id": "t1",
                "content": [text("long"), image, text("more")],
            }
        ]
    )
    (part,) = read("anthropic", wire).parts
    assert isinstance(part, ToolResult)
    assert part.text == "long\nmore"
    assert part.has_images
