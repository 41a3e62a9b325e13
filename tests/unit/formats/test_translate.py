"""pi messages to a provider's wire and back: deterministic, valid, and the same to the engine."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.core.formats.codec import CODECS
from recollect.core.formats.json_text import encode
from recollect.core.formats.replies import read_reply
from recollect.core.formats.translate import (
    APIS,
    PROVIDERS,
    Speaker,
    as_resent,
    to_pi,
    to_wire,
    write_broken_reply,
)
from recollect.core.rules.identity import identify
from recollect.core.values.model import FormatName, Usage
from recollect.testing.provider_rules import violations
from recollect.testing.scripted_model import Says, ScriptedCall, WireName, whole_reply

WIRES: tuple[WireName, ...] = ("anthropic", "openai-chat", "openai-responses")
PNG = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}


def speaker(wire: FormatName, model: str = "m") -> Speaker:
    return Speaker(format=wire, model=model)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}], "timestamp": 1}


def assistant(wire: FormatName, *blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": list(blocks),
        "api": APIS[wire],
        "provider": PROVIDERS[wire],
        "model": "m",
        "stopReason": "stop",
        **more,
    }


def call(name_of_call: str) -> dict[str, Any]:
    return {"type": "toolCall", "id": name_of_call, "name": "read", "arguments": {"path": "a"}}


def result(name_of_call: str, *blocks: dict[str, Any], is_error: bool = False) -> dict[str, Any]:
    return {
        "role": "toolResult",
        "toolCallId": name_of_call,
        "toolName": "read",
        "content": list(blocks) or [{"type": "text", "text": "done"}],
        "isError": is_error,
    }


def body(wire: FormatName, messages: list[dict[str, Any]]) -> dict[str, Any]:
    field = "input" if wire == "openai-responses" else "messages"
    return {"model": "m", "max_tokens": 9, field: list(to_wire(messages, speaker(wire)).messages)}


@pytest.mark.parametrize("wire", WIRES)
def test_a_round_of_tools_satisfies_the_provider(wire: WireName) -> None:
    messages = [
        user("look at both"),
        assistant(wire, {"type": "text", "text": "I will."}, call("a"), call("b")),
        result("a", PNG),
        result("b", is_error=True),
        assistant(wire, {"type": "text", "text": "Both read."}),
        user("thanks"),
    ]
    assert violations(wire, body(wire, messages)) == []


@pytest.mark.parametrize("wire", WIRES)
@given(
    text=st.text(st.characters(codec="utf-8"), max_size=30),
    thinking=st.sampled_from(["", "let me see"]),
    arguments=st.dictionaries(
        st.text("abc", min_size=1, max_size=3), st.integers() | st.text(max_size=5), max_size=3
    ),
    calls=st.integers(0, 2),
)
def test_a_reply_comes_back_as_the_message_the_engine_saw(
    wire: WireName, text: str, thinking: str, arguments: dict[str, Any], calls: int
) -> None:
    asked = [ScriptedCall(id=f"call_{at}", name="read", input=arguments) for at in range(calls)]
    if not text and not asked:
        return
    says = Says(text=text, thinking=thinking, calls=asked)
    reply = whole_reply(wire, says, model="m")
    observed = as_resent(reply, speaker(wire), stop=says.stop_reason)
    seen = [identify(CODECS[wire].read(raw), b"k") for raw in read_reply(wire, observed)]
    message = to_pi(
        reply, speaker(wire), stop=says.stop_reason, usage=Usage(input_tokens=1), timestamp=5
    )
    sent = to_wire([message], speaker(wire)).messages
    resent = [identify(CODECS[wire].read(encode(one)), b"k") for one in sent]
    assert resent == seen


@pytest.mark.parametrize("wire", WIRES)
def test_a_further_message_changes_nothing_before_it(wire: WireName) -> None:
    messages = [
        user("one"),
        assistant(wire, call("x|fc_1")),
        result("x|fc_1", PNG, {"type": "text", "text": "seen"}),
        assistant(wire, {"type": "text", "text": "ok"}),
        user("two"),
    ]
    whole = [encode(one) for one in to_wire(messages, speaker(wire)).messages]
    for upto in (1, 3, 4, 5):
        part = [encode(one) for one in to_wire(messages[:upto], speaker(wire)).messages]
        assert whole[: len(part)] == part


def test_thinking_goes_only_to_the_model_that_thought_it() -> None:
    thought = {"type": "thinking", "thinking": "hm", "thinkingSignature": "sig"}
    said = {"type": "text", "text": "yes"}
    message = assistant("anthropic", thought, said)
    own = to_wire([message], speaker("anthropic")).messages[0]
    assert own["content"][0] == {"type": "thinking", "thinking": "hm", "signature": "sig"}
    for other in (speaker("anthropic", "another"), speaker("openai-chat")):
        assert "hm" not in str(to_wire([message], other).messages)


def test_reasoning_that_is_sealed_goes_back_with_the_ids_of_its_items() -> None:
    reply = {
        "output": [
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "xyz"},
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "c1",
                "name": "read",
                "arguments": "{}",
            },
        ]
    }
    message = to_pi(reply, speaker("openai-responses"), stop="tool-calls", usage=None, timestamp=1)
    own = to_wire([message], speaker("openai-responses")).messages
    assert [item.get("id") for item in own] == ["rs_1", "fc_1"]
    other = to_wire([message], speaker("openai-responses", "another")).messages
    assert [(item["type"], item.get("id")) for item in other] == [("function_call", None)]


def test_replies_that_broke_off_are_never_sent_again() -> None:
    halves = [
        write_broken_reply("half a", speaker("anthropic"), reason="aborted", timestamp=1),
        write_broken_reply("", speaker("anthropic"), reason="error", timestamp=1, error="away"),
    ]
    wire = to_wire([user("hello"), *halves, user("again")], speaker("anthropic"))
    assert "half" not in str(wire.messages)
    assert wire.sources == (0, 3)


def test_call_ids_are_respelled_alike_on_both_sides_and_never_become_one() -> None:
    ids = ["fine_1", "has space", "has.space", "x" * 200, "x" * 199 + "y", "a|fc_1"]
    messages = [m for i in ids for m in (assistant("anthropic", call(i)), result(i))]
    wire = to_wire(messages, speaker("anthropic")).messages
    called = [one["content"][0]["id"] for one in wire if one["role"] == "assistant"]
    answered = [one["content"][0]["tool_use_id"] for one in wire if one["role"] == "user"]
    assert called == answered
    assert len(set(called)) == len(ids)
    assert called[0] == "fine_1"


def test_other_roles_of_pi_are_the_users_words() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "bashExecution", "command": "ls", "output": "a.txt", "exitCode": 2},
        {"role": "bashExecution", "command": "secret", "output": "", "excludeFromContext": True},
        {"role": "custom", "customType": "x", "content": "note"},
        {"role": "compactionSummary", "summary": "we began"},
        {"role": "branchSummary", "summary": "we tried"},
    ]
    said = [one["content"] for one in to_wire(messages, speaker("openai-chat")).messages]
    assert said[0] == "$ ls\na.txt\n[exit code 2]"
    assert len(said) == 4
    assert "we began" in said[2]
    assert "we tried" in said[3]
