"""Who speaks last, whose a recalled block is, and roles of other formats."""

import asyncio
import json
from typing import Any

import pytest
from tests.harness.faithful import unfaithful
from tests.unit.compaction.histories import entries_of

from recollect.core.engine import Engine, Session
from recollect.core.formats.codec import CODECS
from recollect.core.formats.stored_records import read_state, write_state
from recollect.core.rules.repairs import settle
from recollect.core.values.history import OwnText, Row, Slot
from recollect.core.values.model import FormatName
from recollect.core.values.reason import Cause
from recollect.core.values.recall import (
    BLOCK_CLOSING,
    BLOCK_OPENING,
    Recalled,
    RecalledPassage,
    RecallRequest,
)
from recollect.system.config import build
from recollect.testing.provider_rules import violations

SETTINGS = build({"window_tokens": 100_000})
THINKING = {"type": "enabled", "budget_tokens": 1024}
LOOKALIKE = f"{BLOCK_OPENING}\n\nNothing that we ever said.\n\n{BLOCK_CLOSING}"
FORMATS: tuple[FormatName, ...] = ("anthropic", "openai-chat", "openai-responses", "pi")


class Remembers:
    """A memory that always has one thing to say."""

    async def recall(self, request: RecallRequest) -> Recalled:
        said = "The crane stands at berth 7."
        one = RecalledPassage(text=said, role="user", said_at="2026-02-10 14:31", score=1.0)
        return Recalled(passages=(one,))


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def result(call_id: str) -> dict[str, Any]:
    return user([{"type": "tool_result", "tool_use_id": call_id, "content": "done"}])


def body_of(messages: list[Any], format_name: FormatName = "anthropic") -> dict[str, Any]:
    if format_name == "openai-responses":
        return {"model": "m", "input": messages}
    thinking = {"thinking": THINKING} if format_name == "anthropic" else {}
    return {"model": "m", "max_tokens": 2048, **thinking, "messages": messages}


def prepared(messages: list[Any], format_name: FormatName = "anthropic") -> tuple[Any, Any]:
    body = body_of(messages, format_name)
    context = asyncio.run(Engine(SETTINGS).prepare(Session("s"), body, format=format_name))
    out = context.request
    assert violations(format_name, out) == []
    assert unfaithful(format_name, body, out) == []
    return out, context


CALL = {"type": "tool_use", "id": "t1", "name": "read", "input": {}}
GHOST = {
    "anthropic": result("ghost"),
    "openai-chat": {"role": "tool", "tool_call_id": "ghost", "content": "done"},
    "openai-responses": {"type": "function_call_output", "call_id": "ghost", "output": "done"},
    "pi": {
        "role": "toolResult",
        "toolCallId": "ghost",
        "toolName": "f",
        "content": [{"type": "text", "text": "x"}],
        "isError": False,
        "timestamp": 0,
    },
}


@pytest.mark.parametrize("format_name", FORMATS)
def test_an_orphan_at_the_end_does_not_leave_the_assistant_last(format_name: FormatName) -> None:
    said = "Here it is." if format_name != "pi" else [{"type": "text", "text": "Here it is."}]
    out, context = prepared([user("Hi"), assistant(said), GHOST[format_name]], format_name)
    messages = out.get("messages") or out["input"]
    assert messages[-1]["role"] == "user"
    assert "nothing further to send" in json.dumps(messages[-1])
    causes = [one.reason.cause for one in context.report.repairs]
    assert Cause.ASSISTANT_LAST_BY_REPAIR in causes


@pytest.mark.parametrize("ends", [True, False])
def test_a_row_of_ours_is_no_message_that_went_missing(ends: bool) -> None:
    first, second = entries_of([assistant("One."), assistant("Two.")], "anthropic")
    ours = Slot(role="user", pieces=(OwnText(text="a note of ours", note="opening"),))
    given: list[Row] = [first, second, ours] if ends else [first, ours, second]
    settled = settle(
        [first, second], CODECS["anthropic"].rules, original_rows=given, continued=True
    )
    assert [row.role for row in settled.rows] == ["assistant"]


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_prefill_of_the_clients_stays(format_name: FormatName) -> None:
    said = "{" if format_name != "pi" else [{"type": "text", "text": "{"}]
    given = [user("JSON, please."), assistant(said)]
    out, _ = prepared(given, format_name)
    assert (out.get("messages") or out["input"]) == given


def with_memory(messages: list[Any], session: Session, format_name: FormatName) -> list[Any]:
    engine = Engine(SETTINGS, recaller=Remembers())
    body = body_of(messages, format_name)
    out = asyncio.run(engine.prepare(session, body, format=format_name)).request
    assert violations(format_name, out) == []
    return list(out.get("messages") or out["input"])


@pytest.mark.parametrize("format_name", ["anthropic", "openai-chat", "openai-responses"])
def test_a_block_that_comes_back_is_recognised(format_name: FormatName) -> None:
    """A client that keeps what we shaped does not gather blocks, also after a restart."""
    session = Session("s")
    went = with_memory([user("Where is the crane?")], session, format_name)
    assert json.dumps(went).count(BLOCK_CLOSING) == 1
    session = Session("s", state=read_state(write_state(session.state)))
    kept = [*went, assistant("At berth 7."), user("And the winch?")]
    again = with_memory(kept, session, format_name)
    assert json.dumps(again).count(BLOCK_CLOSING) == 1, "only the new one"
    assert "Where is the crane?" in json.dumps(again)


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_text_that_looks_like_a_block_is_the_users(format_name: FormatName) -> None:
    said: list[Any] = ["Hi", "Yes?", LOOKALIKE]
    if format_name == "pi":
        said = [[{"type": "text", "text": text}] for text in said]
    given = [user(said[0]), assistant(said[1]), user(said[2])]
    out, context = prepared(given, format_name)
    assert (out.get("messages") or out["input"]) == given
    assert context.report.repairs == ()


def test_roles_of_other_formats_are_mapped_and_told() -> None:
    out, context = prepared(
        [
            {"role": "developer", "content": "Be brief."},
            user("Read it."),
            assistant([CALL]),
            {"role": "tool", "tool_call_id": "t1", "content": "crane"},
            assistant("A crane."),
            {"role": "critic", "content": "Is it?"},
        ]
    )
    first, _, answered, _, last = out["messages"]
    assert [block["text"] for block in first["content"]] == ["Be brief.", "Read it."]
    assert answered["content"][0]["tool_use_id"] == "t1"
    assert answered["content"][0]["content"] == "crane"
    assert (last["role"], last["content"][0]["text"]) == ("user", "Is it?")
    causes = [one.reason.cause for one in context.report.repairs]
    assert causes.count(Cause.ROLE_FOREIGN) == 3


def function_call(call_id: str, arguments: str = "{}", **more: Any) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": call_id,
        "name": "f",
        "arguments": arguments,
        **more,
    }


def test_a_call_told_again_after_its_result_did_run() -> None:
    output = {"type": "function_call_output", "call_id": "c1", "output": "done"}
    reasoning = {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "E"}
    given = [user("Go"), function_call("c1"), output, reasoning, function_call("c1"), user("So?")]
    out, context = prepared(given, "openai-responses")
    assert out["input"] == [given[0], given[1], given[2], given[5]]
    assert "may not have run" not in json.dumps(out)
    assert Cause.CALL_TOLD_AGAIN in [one.reason.cause for one in context.report.repairs]
