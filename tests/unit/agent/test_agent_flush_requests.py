"""The note-taking turn adds messages to a request that was prepared before: it stays valid."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from recollect.agent.conversation import Shape, messages_field
from recollect.agent.flush import FlushTurn
from recollect.core.engine import Engine
from recollect.core.formats.translate import Speaker, to_wire
from recollect.system.config import build
from recollect.testing.provider_rules import violations
from recollect.testing.scripted_model import Says, ScriptedCall, ScriptedModel, WireName

WIRES: tuple[WireName, ...] = ("anthropic", "openai-chat", "openai-responses")


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def reply(*call_ids: str, text: str = "") -> dict[str, Any]:
    blocks = [{"type": "text", "text": text}] if text else []
    calls = [{"type": "toolCall", "id": id_, "name": "read", "arguments": {}} for id_ in call_ids]
    return {"role": "assistant", "content": [*blocks, *calls], "stopReason": "toolUse"}


def answer(call_id: str, text: str = "it says so") -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return {"role": "toolResult", "toolCallId": call_id, "toolName": "read", "content": content}


READ = [user("read it"), reply("a"), answer("a")]
CASES: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]], tuple[str, ...]]] = {
    "new id": ([user("hi")], [reply(text="hello")], ("n",)),
    "id of the request": (READ, [reply(text="it is read")], ("a",)),
    "id of the reply": ([user("read it")], [reply("a"), answer("a")], ("a",)),
    "id of both": (READ, [reply("a"), answer("a")], ("a",)),
    "id of a renamed call": ([*READ, reply("a"), answer("a")], [reply("a"), answer("a")], ("a_2",)),
    "same id in each step": ([user("hi")], [reply(text="hello")], ("n", "n")),
    "other characters": (READ, [reply("a.b"), answer("a.b")], ("a:b", "a b")),
    "no result": ([user("read it")], [reply("a")], ("a",)),
    "result of another call": ([user("read it")], [reply("a"), answer("b")], ("b",)),
    "no reply": (READ, [], ("a",)),
    "reply without text": (READ, [reply(text=" ")], ("a",)),
}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("case", CASES)
def test_each_request_is_valid_and_extends_the_last(
    tmp_path: Path, wire: WireName, case: str
) -> None:
    before, since, ids = CASES[case]
    steps = [Says(calls=[ScriptedCall(id=id_, name="read", input={})]) for id_ in ids]
    model = ScriptedModel([*steps, "NO_REPLY"], format=wire)
    speaker = Speaker(format=wire, model="m")
    shape = Shape(speaker=speaker, system="Be brief.", tools=())
    field, engine = messages_field(shape), Engine(build({}))
    body: dict[str, Any] = {"model": "m", field: list(to_wire(before, speaker).messages)}
    body |= {"max_tokens": 100} if wire == "anthropic" else {}
    sent = asyncio.run(engine.prepare("s", body, format=wire)).request
    added = to_wire(since, speaker).messages
    turn = FlushTurn(
        last_request=sent, since=added, shape=shape, root=tmp_path, now=1_000_000_000.0
    )
    result = asyncio.run(turn.run(model, engine.settings))
    assert result.steps == len(ids) + 1
    # Without a reply between them, the prompt joins the last message.
    stable = len(sent[field]) - (case in ("no reply", "reply without text"))
    for request in model.requests:
        strict = wire == "anthropic"
        assert violations(wire, request, ids_unique_across_messages=strict) == []
        assert request[field][:stable] == sent[field][:stable], "the prompt cache stays valid"
        assert "You may append to:" in str(request[field])
