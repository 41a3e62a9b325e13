"""A model that fails while it summarises: the history stays, the turn goes on, nobody is lied to.

Each fault runs through the whole engine with a real store, most of them over a real HTTP server
as well. Afterwards every message is still stored, the request is valid and within its limit, what
was spent is within what was said, and a session whose model comes back compacts as if nothing
had been."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.harness.model_server import Asked, ModelServer, Step
from tests.harness.waiting import PATIENCE_SECONDS
from tests.integration.long_talk import (
    SESSION,
    Clock,
    Talk,
    answered,
    honest,
    notes,
    opened,
    said,
    scribe,
    shown,
    sound,
    stored,
)

from recollect import Context, Engine
from recollect.adapters.providers.anthropic import AnthropicModel
from recollect.adapters.providers.openai import OpenAIChatModel, OpenAIResponsesModel
from recollect.core.formats.summaries import PI_OPENING
from recollect.core.values.model import Overflow, Prompt
from recollect.errors import ModelOverflow, ModelRefused, ModelUnavailable
from recollect.system.http import Retries
from recollect.testing.scripted_model import Says

OPENING = PI_OPENING.split("\n", 1)[0]
WIRES = ("anthropic", "openai-chat", "openai-responses")
FAULTS: dict[str, Callable[[Prompt], Any]] = {
    "timeout": lambda _: ModelUnavailable("no answer within 120 s"),
    "no such model": lambda _: ModelRefused("the server answered 404"),
    "empty text": lambda _: answered(""),
    "refusal": lambda _: answered("", stop="refusal"),
    "refusal in words": lambda _: answered("I'm sorry, but I can't help with that."),
    "garbage": lambda _: answered("%$#@ 0x00 }}}{{{ ;;;; 1234567890 ---- ==== ****" * 3),
    "a loop": lambda _: answered("and then the crane and then the crane " * 40),
    "the conversation back": lambda prompt: answered(prompt.text.split("\n\n")[0]),
    "longer than its input": lambda prompt: answered("Further notes: " + prompt.text * 2),
    "overflow": lambda _: ModelOverflow("too long"),
    "overflow at any size": lambda _: ModelOverflow(
        "too long", Overflow(pattern_name="test", limit_tokens=10)
    ),
    "a bug": lambda _: ValueError("Question 3: what happens at berth 3?"),
}


async def filled(memory: Engine, talk: Talk) -> Context:
    """A turn for which the window is too small."""
    for _ in range(2):
        await memory.prepare(SESSION, talk.exchange(5).body("go on"))
    return await memory.prepare(SESSION, talk.exchange(4).body("which crane is free?"))


async def unharmed(context: Context, talk: Talk, store: Path) -> None:
    """The history is as it was; the request is shorter, and says what is missing by code."""
    sound(context)
    assert context.compaction is not None
    honest(context.compaction)
    assert context.compaction.convergence == "failed"
    assert not context.compaction.compacted
    assert not context.compaction.ok
    assert any(
        line.stage == "compact" and line.outcome == "failed" for line in context.report.lines
    )
    assert OPENING not in shown(context), "no stock text stands for what was said"
    assert context.request["messages"][-1]["content"].endswith("which crane is free?")
    kept = await stored(store)
    assert [text for text in said(talk.messages) if text not in kept] == []


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_summary_that_fails_costs_no_history(fault: str, tmp_path: Path) -> None:
    away = True

    def say(prompt: Prompt) -> Any:
        return FAULTS[fault](prompt) if away else notes(prompt)

    talk = Talk()
    model = scribe(say)
    async with opened(tmp_path / "m.db", model) as memory:
        context = await filled(memory, talk)
        assert len(model.prompts) > 0
        assert context.compaction is not None
        if fault != "a bug":  # what was spent until then is lost with its result
            assert context.compaction.spent.calls == len(model.prompts)
        assert "berth 3" not in repr(context.report), "errors quote nothing"
        assert "berth 3" not in str(context.compaction.reason)
        await memory.settle()
        await unharmed(context, talk, tmp_path / "m.db")
        away = False
        done = await memory.compact(SESSION)
        honest(done)
        assert done.compacted, done.reason
        again = sound(await memory.prepare(SESSION, talk.body("which crane is free?")))
        assert OPENING in shown(again)


async def test_failures_in_a_row_pause_it_and_the_report_says_so(tmp_path: Path) -> None:
    clock = Clock()
    talk = Talk()
    model = scribe(FAULTS["timeout"])
    async with opened(tmp_path / "m.db", model, clock=clock) as memory:
        turns = 0
        for _ in range(3):
            context = None
            while context is None or context.compaction is None:
                talk.exchange(4)
                context = sound(await memory.prepare(SESSION, talk.body("what next?")))
                turns += 1
            assert context.compaction.convergence == "failed"
        asked = len(model.prompts)
        paused, last = None, ""
        while paused is None:
            context = sound(await memory.prepare(SESSION, talk.exchange(4).body("and now?")))
            assert context.compaction is None
            lines = [line for line in context.report.lines if line.stage == "compact"]
            last = str(context.report).splitlines()[-1]
            paused = next((line for line in lines if line.outcome == "skipped"), None)
        assert last.startswith("Paused: recent compactions failed") and "within 120 s" in last
        assert len(model.prompts) == asked, "nothing is spent while it pauses"
        clock.seconds += 601
        context = None
        while context is None or context.compaction is None:
            context = await memory.prepare(SESSION, talk.exchange(4).body("again?"))
        assert len(model.prompts) > asked, "then it is tried again"


async def test_the_pause_outlives_a_restart(tmp_path: Path) -> None:
    clock = Clock()
    talk = Talk()
    model = scribe(FAULTS["timeout"])
    async with opened(tmp_path / "m.db", model, clock=clock) as memory:
        failed = 0
        while failed < 3:
            context = await memory.prepare(SESSION, talk.exchange(4).body("what next?"))
            failed += context.compaction is not None
    model = scribe()
    async with opened(tmp_path / "m.db", model, clock=clock) as memory:
        for _ in range(3):
            sound(await memory.prepare(SESSION, talk.exchange(4).body("and now?")))
    assert model.prompts == []


async def test_a_model_that_hangs_costs_a_turn_no_more_than_the_deadline(tmp_path: Path) -> None:
    talk = Talk()
    model = scribe(delay_seconds=3_600.0)
    settings = {"compaction__deadline_seconds": 0.3}
    async with opened(tmp_path / "m.db", model, **settings) as memory:
        begun = time.monotonic()
        context = await filled(memory, talk)
        assert time.monotonic() - begun < PATIENCE_SECONDS
        assert context.compaction is not None
        assert "compaction.deadline_seconds" in str(context.compaction.reason)
        assert context.compaction.seconds >= 0.3
        await memory.settle()
        await unharmed(context, talk, tmp_path / "m.db")


def over_http(server: ModelServer, wire: str, **more: Any) -> Any:
    kinds: dict[str, Any] = {
        "anthropic": AnthropicModel,
        "openai-chat": OpenAIChatModel,
        "openai-responses": OpenAIResponsesModel,
    }
    at_once = Retries(first_seconds=0.01, longest_seconds=0.02)
    given = {"model": "scripted", "key": "k", "deadline_seconds": 5.0, "retries": at_once, **more}
    return kinds[wire](base_url=server.url, **given)


@pytest.mark.parametrize("manner", ["error", "silent"])
@pytest.mark.parametrize("wire", WIRES)
async def test_a_provider_whose_window_is_smaller_is_given_less(
    wire: str, manner: Any, tmp_path: Path
) -> None:
    """Told by an error, or not at all: either way it is read in smaller pieces, or it fails."""

    def step(asked: Asked) -> Step:
        return Says(text=notes(Prompt(text=asked.content.decode())))

    with ModelServer(step, window_tokens=1_100, overflow=manner) as server:
        talk = Talk(long_questions=True)
        model = over_http(server, wire)
        async with opened(tmp_path / "m.db", model, recall__standing_tokens=0) as memory:
            context = sound(await filled(memory, talk))
            done = context.compaction
            assert done is not None
            honest(done)
            await memory.settle()
            kept = await stored(tmp_path / "m.db")
            assert [text for text in said(talk.messages) if text not in kept] == []
            if manner == "error":
                assert done.compacted, done.reason
                assert done.notes
        await model.close()
        assert len(server.asked) > 1
