"""The scripted model: what it says, what it remembers, and that it tells what went otherwise."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.harness.model_server import ModelServer

from recollect import open_memory
from recollect.core.formats.replies import read_reply
from recollect.core.ports import ChatModel
from recollect.core.values.model import Answer, Prompt, ReplyDone, ReplyEvent, TextDelta
from recollect.errors import ModelUnavailable
from recollect.testing.scripted_model import Says, ScriptedCall, ScriptedModel, WireName


async def ask(model: ChatModel, text: str = "hi") -> Answer:
    return await model.ask(Prompt(text=text))


async def stream(model: ChatModel, request: dict[str, Any]) -> list[ReplyEvent]:
    return [event async for event in model.stream(request)]


async def test_every_kind_of_step_is_given_in_order() -> None:
    model = ScriptedModel(
        [
            "plain",
            Answer(text="cut", stop="length"),
            ModelUnavailable("away"),
            lambda prompt: prompt.text.upper(),
            lambda _: ModelUnavailable("away again"),
        ],
        window_tokens=4096,
    )
    assert (await ask(model)).text == "plain"
    assert await ask(model) == Answer(text="cut", stop="length")
    with pytest.raises(ModelUnavailable, match="away"):
        await ask(model)
    assert (await ask(model, "loud")).text == "LOUD"
    with pytest.raises(ModelUnavailable, match="again"):
        await ask(model)
    model.check()
    assert [prompt.text for prompt in model.prompts] == ["hi", "hi", "hi", "loud", "hi"]
    assert (model.name, model.window_tokens, model.format) == ("scripted", 4096, "anthropic")


async def test_a_call_too_many_and_a_step_that_nobody_asked_for_are_told() -> None:
    model = ScriptedModel([])
    with pytest.raises(AssertionError, match="no step for this call"):
        await ask(model)
    with pytest.raises(AssertionError, match="1 calls"):
        model.check()
    model = ScriptedModel(["one", "two"])
    await ask(model)
    with pytest.raises(AssertionError, match="1 steps"):
        model.check()


@pytest.mark.parametrize("wire", ["anthropic", "openai-chat", "openai-responses"])
async def test_a_streamed_reply_is_one_of_its_wire(wire: WireName) -> None:
    says = Says(text="On it.", calls=(ScriptedCall(id="c1", name="read", input={"path": "a"}),))
    model = ScriptedModel([says], format=wire)
    *words, done = await stream(model, {"model": "x"})
    assert TextDelta(text="On it.") in words
    assert isinstance(done, ReplyDone)
    assert done.stop == "tool-calls"
    assert read_reply(wire, done.reply)
    assert model.requests == [{"model": "x"}]


async def test_one_function_may_answer_everything_and_take_its_time() -> None:
    model = ScriptedModel(lambda prompt: f"[{prompt.text}]", delay_seconds=5.0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await model.ask(Prompt(text="hi"))
    model.check()


def test_the_server_tells_what_its_script_did_not_foresee() -> None:
    with ModelServer([Says(text="left over")]) as server, pytest.raises(AssertionError):
        server.check()


async def test_a_report_says_that_a_script_has_no_step_left(tmp_path: Path) -> None:
    """A compaction whose summary the script does not have, as in a test with one summary."""
    model = ScriptedModel([])
    settings = {"window_tokens": 4_000, "recall.embedder": "none"}
    messages: list[dict[str, Any]] = []
    for number in range(40):
        messages += [
            {"role": "user", "content": f"Question {number}: " + "how deep is the harbor? " * 10},
            {"role": "assistant", "content": f"Answer {number}: " + "nine fathoms. " * 10},
        ]
    async with open_memory(store=tmp_path / "m.db", settings=settings, model=model) as memory:
        body = {"model": "claude-x", "max_tokens": 100, "messages": messages[:-1]}
        result = await memory.compact("s", body)
    assert "add one, or pass a function, which answers every call" in str(result.reason)
    assert model.prompts
