"""How the engine runs compactions: beside the turns, one at a time, never without durability."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
from tests.crash.broken_stores import Broken
from tests.integration.long_talk import (
    SESSION,
    WINDOW,
    Talk,
    honest,
    notes,
    opened,
    reply,
    said,
    scribe,
    shown,
    sound,
    stored,
)

from recollect import BlockingEngine, Context, Engine
from recollect.config import build
from recollect.engine.archive import DurableArchive
from recollect.errors import StoreUnavailable
from recollect.formats.summaries import PI_OPENING
from recollect.stores.sqlite import SQLiteStore
from recollect.testing.scripted_model import ScriptedModel
from recollect.values.batch import Batch, Written
from recollect.values.compaction import CompactionResult
from recollect.values.edit import Cut
from recollect.values.model import Answer, Prompt

OPENING = PI_OPENING.split("\n", 1)[0]
KEY = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


class Held:
    """A model that answers when it is told to."""

    name = "held"
    window_tokens = None

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.answer = asyncio.Event()
        self.prompts: list[Prompt] = []

    async def ask(self, prompt: Prompt) -> Answer:
        self.prompts.append(prompt)
        self.asked.set()
        await self.answer.wait()
        return Answer(text=notes(prompt))

    async def close(self) -> None:
        pass


async def grown(memory: Engine, talk: Talk, exchanges: int) -> Context:
    for _ in range(exchanges):
        context = await memory.prepare(SESSION, talk.exchange().body("go on"))
    return context


async def soon(work: Awaitable[Any]) -> Any:
    """What does not wait for a model is done by then, on any machine."""
    return await asyncio.wait_for(work, 5)


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


def test_what_one_was_asked_for_is_made_behind_the_one_that_runs(tmp_path: Path) -> None:
    async def run() -> None:
        talk, model = Talk(), Held()
        async with opened(tmp_path / "m.db", model) as memory:
            await grown(memory, talk, 10)
            first = asyncio.create_task(memory.compact(SESSION))
            await asyncio.wait_for(model.asked.wait(), 5)
            second = asyncio.create_task(memory.compact(SESSION, instructions="mind the tide"))
            await asyncio.sleep(0.05)
            model.answer.set()
            results = [await first, await second]
            assert results[0].compacted
            honest(results[1])
            assert memory.session(SESSION).state.compactions == sum(r.compacted for r in results)

    asyncio.run(run())


def test_instructions_are_used_once(tmp_path: Path) -> None:
    wish = "look after the tide tables of the northern harbour"

    async def run() -> None:
        talk, model = Talk(), scribe()
        async with opened(tmp_path / "m.db", model) as memory:
            await grown(memory, talk, 9)
            done = await memory.compact(SESSION, instructions=wish)
            assert done.compacted, done.reason
            assert all(prompt.text.count(wish) == 1 for prompt in model.prompts)
            assert wish not in shown(await memory.prepare(SESSION, talk.body("so?")))
            asked = len(model.prompts)
            await grown(memory, talk, 6)
            assert (await memory.compact(SESSION)).compacted
            assert not any(wish in prompt.text for prompt in model.prompts[asked:])

    asyncio.run(run())
    for path in tmp_path.iterdir():
        assert wish.encode() not in path.read_bytes(), "nor is it kept"


def test_hooks_are_told_what_the_seeds_tell_them(tmp_path: Path) -> None:
    told: dict[str, tuple[Any, Any]] = {}

    async def run() -> None:
        talk = Talk()
        async with opened(tmp_path / "m.db", scribe(), workspace=tmp_path) as memory:
            for name in ("before_compaction", "after_compaction", "session_before_compact"):

                async def hear(event: Any, context: Any, name: str = name) -> None:
                    told[name] = (event, context)

                memory.on(name, hear)  # type: ignore[arg-type]
            await grown(memory, talk, 9)
            body = talk.body("go on")
            done = await memory.compact(SESSION, body, instructions="mind the tide")
            assert done.compacted, done.reason
            context = await memory.prepare(SESSION, body)
            count = len(body["messages"])
            who = {
                "agentId": "default",
                "sessionKey": SESSION,
                "workspaceDir": str(tmp_path),
                "messageProvider": None,
            }
            before, after = told["before_compaction"], told["after_compaction"]
            assert before == ({"messageCount": count, "tokenCount": done.tokens_before}, who)
            assert after[0] == {
                "messageCount": count - done.compacted_messages,
                "tokenCount": done.tokens_after,
                "compactedCount": done.compacted_messages,
            }
            assert after[1] == who
            assert context.report.tokens_after == done.tokens_after, "what was said is so"
            event, told_who = told["session_before_compact"]
            assert told_who == who
            assert event["customInstructions"] == "mind the tide"
            prepared = event["preparation"]
            cut = [*prepared["messagesToSummarize"], *prepared["turnPrefixMessages"]]
            assert cut == body["messages"][: done.compacted_messages]
            assert prepared["isSplitTurn"] is bool(prepared["turnPrefixMessages"])
            assert prepared["firstKeptEntryId"] == done.first_kept
            assert prepared["tokensBefore"] == done.tokens_before
            assert prepared["settings"] == {"reserveTokens": WINDOW // 4}
            assert set(prepared["fileOps"]) == {"read", "edited"}
            assert "previousSummary" not in prepared
            await grown(memory, talk, 6)
            await memory.compact(SESSION)
            assert told["session_before_compact"][0]["preparation"]["previousSummary"]

    asyncio.run(run())


def test_hooks_run_together_and_a_bad_one_costs_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recollect.engine.hooks import Hooks

    monkeypatch.setitem(Hooks.fire.__kwdefaults__, "seconds", 0.3)

    async def run() -> None:
        talk = Talk()
        met = [asyncio.Event(), asyncio.Event()]

        async def one(event: Any, context: Any) -> None:
            met[0].set()
            await met[1].wait()

        async def other(event: Any, context: Any) -> None:
            met[1].set()
            await met[0].wait()

        def raises(event: Any, context: Any) -> None:
            raise ValueError("what the user said")

        async def hangs(event: Any, context: Any) -> None:
            await asyncio.sleep(60)

        async with opened(tmp_path / "m.db", scribe()) as memory:
            for hook in (one, other, raises, hangs):
                memory.on("before_compaction", hook)
            stop = memory.on("after_compaction", raises)
            await grown(memory, talk, 9)
            done = await memory.compact(SESSION)
            honest(done)
            assert done.compacted, done.reason
            assert [note for note in done.notes if "hook" in note] == [
                "a before_compaction hook failed: ValueError",
                "a before_compaction hook failed: TimeoutError",
                "a after_compaction hook failed: ValueError",
            ]
            stop()
            await grown(memory, talk, 6)
            again = await memory.compact(SESSION)
            assert not any("after_compaction" in note for note in again.notes)

    asyncio.run(run())


def test_a_hook_supplies_the_summary_in_place_of_a_model(tmp_path: Path) -> None:
    async def run() -> None:
        talk = Talk()
        async with opened(tmp_path / "m.db", None) as memory:
            memory.on(
                "session_before_compact",
                lambda event, context: {"compaction": {"summary": "The hook knows the harbour."}},
            )
            context = await grown(memory, talk, 12)
            assert "The hook knows the harbour." in shown(sound(context))
            assert memory.session(SESSION).state.compactions == 1

    asyncio.run(run())


def test_a_hook_says_no(tmp_path: Path) -> None:
    async def run() -> None:
        talk, model = Talk(), scribe()
        async with opened(tmp_path / "m.db", model) as memory:
            memory.on("session_before_compact", lambda event, context: {"cancel": True})
            await grown(memory, talk, 9)
            done = await memory.compact(SESSION)
            honest(done)
            assert not done.compacted
            assert "hook" in done.reason
            assert model.prompts == []

    asyncio.run(run())


def test_a_hook_with_nonsense_is_as_none(tmp_path: Path) -> None:
    async def run() -> None:
        talk, model = Talk(), scribe()
        async with opened(tmp_path / "m.db", model) as memory:
            for nonsense in ("yes", 7, {"compaction": {"summary": "  "}}, {"compaction": "text"}):
                memory.on("session_before_compact", lambda event, context, it=nonsense: it)
            await grown(memory, talk, 9)
            assert (await memory.compact(SESSION)).compacted
            assert model.prompts, "the model made it"

    asyncio.run(run())


class Away(Broken):
    """A real store that takes nothing while it is away."""

    away = False

    async def write(self, batch: Batch) -> Written:
        if self.away:
            raise StoreUnavailable("the disk is full; make room")
        written: Written = await self.real.write(batch)
        return written


async def without_spool(tmp: Path, model: Any) -> tuple[Engine, Away]:
    store = Away(await SQLiteStore.open(tmp / "m.db", space="default"))

    async def opened_store() -> Any:
        return store

    async def no_spool() -> Any:
        raise OSError("no disk for a spool, either")

    archive = DurableArchive(opened_store, no_spool, deadline_seconds=0.2)
    settings = build({"window_tokens": WINDOW, "turn.deadline_seconds": 0.5})
    return Engine(settings, archive=archive, model=model, compact_in_background=False), store


def test_what_is_not_durable_is_not_cut(tmp_path: Path) -> None:
    async def run() -> None:
        talk, model = Talk(), scribe()
        memory, store = await without_spool(tmp_path, model)
        await grown(memory, talk, 2)
        await memory.settle()
        store.away = True
        body = talk.exchange(14).body("which berth?")
        context = await memory.prepare(SESSION, body)
        missing = [text for text in said(body["messages"])[4:] if text not in shown(context)]
        assert missing == [], "what is nowhere else may not leave the view"
        done = await memory.compact(SESSION, body)
        honest(done)
        assert done.convergence == "failed"
        assert "durable" in done.reason
        assert model.prompts == [], "nothing is spent on it"
        store.away = False
        await asyncio.sleep(0.3)  # how long a store that failed is left in peace
        done = await memory.compact(SESSION, body)
        assert done.compacted, done.reason
        await memory.close()
        assert [text for text in said(body["messages"]) if text not in await texts()] == []

    async def texts() -> list[str]:
        return await stored(tmp_path / "m.db")

    asyncio.run(run())


def test_a_cut_that_cannot_be_kept_is_not_made(tmp_path: Path) -> None:
    async def run() -> None:
        talk = Talk()
        places: list[Away] = []

        def say(prompt: Prompt) -> str:
            places[0].away = True  # it goes away while the model is asked
            return notes(prompt)

        memory, store = await without_spool(tmp_path, ScriptedModel(say))
        places.append(store)
        await grown(memory, talk, 9)
        before = (await memory.prepare(SESSION, talk.body("so?"))).request
        done = await memory.compact(SESSION)
        honest(done)
        assert done.convergence == "failed"
        assert "could not be kept" in done.reason
        assert (await memory.prepare(SESSION, talk.body("so?"))).request == before
        await memory.close()

    asyncio.run(run())


def test_all_that_is_cut_is_stored_before_the_model_is_asked(tmp_path: Path) -> None:
    async def run() -> None:
        talk = Talk()
        kept: list[list[str]] = []

        class Looks(Held):
            async def ask(self, prompt: Prompt) -> Answer:
                kept.append(await stored(tmp_path / "m.db"))
                return Answer(text=notes(prompt))

        async with opened(tmp_path / "m.db", Looks()) as memory:
            body = talk.exchange(14).body("which berth?")
            context = sound(await memory.prepare(SESSION, body))
            assert context.compaction is not None
            assert context.compaction.compacted, context.compaction.reason
        texts = said(body["messages"])[: context.compaction.compacted_messages]
        assert [text for text in texts if text not in kept[0]] == []

    asyncio.run(run())


def test_a_long_history_is_compacted_when_it_is_first_seen(tmp_path: Path) -> None:
    """A session that is resumed: nothing of it was known before this request."""

    async def run() -> None:
        talk, model = Talk(), scribe()
        async with opened(tmp_path / "m.db", model) as memory:
            context = sound(await memory.prepare(SESSION, talk.exchange(20).body("so?")))
            assert context.compaction is not None
            assert context.compaction.compacted, context.compaction.reason
            assert OPENING in shown(context)
            again = sound(await memory.prepare(SESSION, talk.body("so?")))
            assert again.request == context.request, "and stays so"
            assert again.compaction is None

    asyncio.run(run())


def test_compact_needs_something_to_start_from(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path / "m.db", scribe()) as memory:
            done = await memory.compact("nobody")
            honest(done)
            assert done.convergence == "irreducible"
            assert "prepare" in done.reason
            talk = Talk().exchange(9)
            assert (await memory.compact(SESSION, talk.body("so?"))).compacted
            unreadable = await memory.compact("other", {"messages": "no list"}, format="anthropic")
            assert unreadable.convergence == "irreducible"

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


def test_a_secret_in_a_summary_stays_off_the_disk(tmp_path: Path) -> None:
    def tells(prompt: Prompt) -> str:
        return f"{notes(prompt)}\n- export GITHUB_TOKEN={KEY}"

    async def run() -> None:
        talk = Talk()
        talk.ask(f"use GITHUB_TOKEN={KEY} for it").answer("I shall")
        async with opened(tmp_path / "m.db", scribe(tells)) as memory:
            await grown(memory, talk, 9)
            done = await memory.compact(SESSION)
            assert done.compacted, done.reason
            await memory.prepare(SESSION, talk.body("so?"))
        async with opened(tmp_path / "m.db", scribe(tells)) as memory:
            context = sound(await memory.prepare(SESSION, talk.body("so?")))
            assert OPENING in shown(context)

    asyncio.run(run())
    folders = (tmp_path, Path(os.environ["RECOLLECT_HOME"]))
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert files
    assert [path.name for path in files if KEY.encode() in path.read_bytes()] == []


def test_closing_stops_a_compaction_and_leaves_the_history(tmp_path: Path) -> None:
    async def run() -> None:
        talk, model = Talk(), Held()
        memory = opened(tmp_path / "m.db", model)
        await grown(memory, talk, 9)
        running = asyncio.create_task(memory.compact(SESSION))
        await asyncio.wait_for(model.asked.wait(), 5)
        await soon(memory.close())
        done: CompactionResult = await soon(running)
        honest(done)
        assert done.convergence == "failed"
        async with opened(tmp_path / "m.db", scribe()) as memory:
            context = sound(await memory.prepare(SESSION, talk.body("so?")))
            assert not [edit for edit in context.edits if isinstance(edit, Cut)]
        assert len(await stored(tmp_path / "m.db")) >= len(talk.messages)

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


def test_two_processes_do_not_both_cut(tmp_path: Path) -> None:
    async def run() -> None:
        talk = Talk()
        one, two = Held(), scribe()
        first = opened(tmp_path / "m.db", one)
        await grown(first, talk, 9)
        await first.settle()
        running = asyncio.create_task(first.compact(SESSION))
        await asyncio.wait_for(one.asked.wait(), 5)
        async with opened(tmp_path / "m.db", two) as second:
            await second.prepare(SESSION, talk.body("go on"))
            made = await second.compact(SESSION)
            assert made.compacted, made.reason
            await second.settle()
        one.answer.set()
        lost = await running
        honest(lost)
        assert not lost.compacted, "the other process was first"
        context = sound(await first.prepare(SESSION, talk.body("go on")))
        await first.settle()
        context = sound(await first.prepare(SESSION, talk.body("go on")))
        assert [edit.summary for edit in context.edits if isinstance(edit, Cut)] == [made.summary]
        await first.close()

    asyncio.run(run())


def test_the_blocking_engine_does_the_same(tmp_path: Path) -> None:
    talk = Talk().exchange(9)
    heard: list[Any] = []
    with BlockingEngine(opened(tmp_path / "m.db", scribe())) as memory:
        memory.on("after_compaction", lambda event, context: heard.append(event))
        before = memory.prepare(SESSION, talk.body("so?")).request
        done = memory.compact(SESSION, instructions="mind the tide")
        honest(done)
        assert done.compacted
        assert len(heard) == 1
        assert OPENING in shown(memory.prepare(SESSION, talk.body("so?")))
        memory.flushed(SESSION)
        assert memory.session(SESSION).state.flushed_in == 1
        assert memory.undo(SESSION).undone is not None
        assert memory.prepare(SESSION, talk.body("so?")).request == before


def test_a_result_reads_as_the_seeds_want_it(tmp_path: Path) -> None:
    async def run() -> None:
        talk = Talk()
        async with opened(tmp_path / "m.db", scribe()) as memory:
            talk.ask("read it").call("read", "cargo " * 300, path="src/crane.py")
            talk.call("edit", "done", path="src/winch.py").answer("both done")
            talk.messages.append({"role": "user", "content": "thanks"})
            talk.answer("welcome")
            await grown(memory, talk, 8)
            done = await memory.compact(SESSION)
            told = json.loads(json.dumps(done.as_seeds()))
            assert (told["ok"], told["compacted"]) == (True, True)
            assert told["convergence"] == "reduced"
            result = told["result"]
            assert set(result) == {
                "summary",
                "firstKeptEntryId",
                "tokensBefore",
                "tokensAfter",
                "details",
            }
            assert result["details"]["readFiles"] == ["src/crane.py"]
            assert result["details"]["modifiedFiles"] == ["src/winch.py"]
            assert "src/crane.py" in result["summary"]

    asyncio.run(run())
