"""How the engine runs compactions: beside the turns, one at a time, told as they were."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.integration.long_talk import (
    SESSION,
    WINDOW,
    Held,
    Talk,
    grown,
    honest,
    opened,
    reply,
    scribe,
    shown,
    soon,
    sound,
)

from recollect.core.formats.summaries import PI_OPENING
from recollect.errors import ModelUnavailable

OPENING = PI_OPENING.split("\n", 1)[0]


def test_a_compaction_ahead_of_need_holds_up_nobody_and_is_picked_up(tmp_path: Path) -> None:
    async def run() -> None:
        talk, model = Talk(), Held()
        async with opened(tmp_path / "m.db", model, background=True) as memory:
            used = (await grown(memory, talk, 9)).report.tokens_after
            long = reply("yes", used_tokens=used, written_tokens=WINDOW)  # a reply that fills it
            seen = await memory.observe(SESSION, long)
            assert seen.due == "compaction"
            await asyncio.wait_for(model.asked.wait(), 5)
            for _ in range(2):
                context = await soon(memory.prepare(SESSION, talk.body("a short one")))
                assert OPENING not in shown(context)
                assert context.compaction is None
                await soon(memory.observe(SESSION, reply("yes")))
            running = memory.session(SESSION).compacting
            assert running is not None
            assert not running.done()
            model.answer.set()
            done = await running
            assert done.compacted, done.reason
            context = sound(await memory.prepare(SESSION, talk.body("a short one")))
            assert OPENING in shown(context)
            assert len(model.prompts) == done.spent.calls

    asyncio.run(run())


def test_a_turn_over_the_limit_waits_for_the_one_that_runs(tmp_path: Path) -> None:
    async def run() -> None:
        talk, model = Talk(), Held()
        async with opened(tmp_path / "m.db", model, background=True) as memory:
            await grown(memory, talk, 9)
            await memory.observe(SESSION, reply("yes", used_tokens=WINDOW))
            await asyncio.wait_for(model.asked.wait(), 5)
            turn = asyncio.create_task(memory.prepare(SESSION, talk.exchange(4).body("and now?")))
            await asyncio.sleep(0.2)
            assert not turn.done(), "it is over the limit and waits"
            model.answer.set()
            context = sound(await turn)
            assert context.compaction is not None
            assert context.compaction.compacted
            assert context.compaction.number == 1, "one compaction for both"
            assert OPENING in shown(context)

    asyncio.run(run())


def test_a_compaction_that_failed_in_the_background_is_told(tmp_path: Path) -> None:
    async def run() -> None:
        talk = Talk()
        model = scribe(lambda _: ModelUnavailable("away"))
        async with opened(tmp_path / "m.db", model, background=True) as memory:
            used = (await grown(memory, talk, 9)).report.tokens_after
            long = reply("yes", used_tokens=used, written_tokens=WINDOW)
            await memory.observe(SESSION, long)
            running = memory.session(SESSION).compacting
            assert running is not None
            assert not (await running).ok
            context = sound(await memory.prepare(SESSION, talk.body("a short one")))
            told = [line for line in context.report.failures if line.stage == "compact"]
            assert told
            assert "the model is unavailable" in told[0].said
            again = await memory.prepare(SESSION, talk.body("a short one"))
            assert not [one for one in again.report.failures if one.stage == "compact"], "once"

    asyncio.run(run())


def test_an_undone_session_compacts_by_itself_again_once_it_was_asked_to(tmp_path: Path) -> None:
    async def run() -> None:
        talk, model = Talk(), scribe()
        async with opened(tmp_path / "m.db", model) as memory:
            await grown(memory, talk, 9)
            assert (await memory.compact(SESSION)).compacted
            assert (await memory.undo(SESSION)).undone is not None
            context = sound(await memory.prepare(SESSION, talk.exchange(6).body("so?")))
            assert context.compaction is None
            told = [line.said for line in context.report.lines if line.stage == "compact"]
            assert any("undone" in one for one in told), "and says why"
            assert (await memory.compact(SESSION)).compacted
            context = sound(await memory.prepare(SESSION, talk.exchange(9).body("so?")))
            assert context.compaction is not None
            assert context.compaction.compacted

    asyncio.run(run())


def test_what_continues_at_the_provider_is_never_compacted(tmp_path: Path) -> None:
    async def run() -> None:
        model = scribe()
        items = [{"role": "user", "content": f"{n}: " + "cargo " * 1_500} for n in range(9)]
        body = {"model": "gpt-5", "input": items, "previous_response_id": "resp_1"}
        async with opened(tmp_path / "m.db", model) as memory:
            context = await memory.prepare(SESSION, body)
            assert context.compaction is None
            assert context.request["previous_response_id"] == "resp_1"
            done = await memory.compact(SESSION)
            honest(done)
            assert done.convergence == "irreducible"
            assert model.prompts == []

    asyncio.run(run())


def test_a_session_that_took_another_way_meanwhile_is_left_alone(tmp_path: Path) -> None:
    """The user goes back and edits an early message while the summary is written."""

    async def run() -> None:
        talk, model = Talk(), Held()
        async with opened(tmp_path / "m.db", model) as memory:
            await grown(memory, talk, 9)
            running = asyncio.create_task(memory.compact(SESSION))
            await asyncio.wait_for(model.asked.wait(), 5)
            branch = Talk().ask("Let us begin differently").answer("As you like")
            other = branch.exchange(3).body("go on")
            await memory.prepare(SESSION, other)
            model.answer.set()
            done = await running
            honest(done)
            assert done.convergence == "failed"
            context = sound(await memory.prepare(SESSION, other))
            assert context.request["messages"] == other["messages"], "not a word of it changed"

    asyncio.run(run())
