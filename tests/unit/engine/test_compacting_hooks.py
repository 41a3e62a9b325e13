"""Hooks around a compaction: what they are told, what they may decide, what they cannot break."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.integration.long_talk import (
    SESSION,
    WINDOW,
    Talk,
    grown,
    honest,
    opened,
    reply,
    scribe,
    shown,
    sound,
)


def test_hooks_are_told_what_openclaw_tells_them(tmp_path: Path) -> None:
    told: dict[str, tuple[Any, Any]] = {}

    async def run() -> None:
        talk = Talk()
        settings = {"workspace": tmp_path, "recall__standing_tokens": 0}
        async with opened(tmp_path / "m.db", scribe(), **settings) as memory:
            for name in ("before_compaction", "after_compaction", "session_before_compact"):

                async def hear(event: Any, context: Any, name: str = name) -> None:
                    told[name] = (event, context)

                memory.on(name, hear)
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
    from recollect.core.engine.summary import Hooks

    usual = dict(Hooks.fire.__kwdefaults__ or {})
    monkeypatch.setattr(Hooks.fire, "__kwdefaults__", {**usual, "seconds": 0.3})

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


def test_who_listens_is_told_once_a_cycle_that_notes_are_due(tmp_path: Path) -> None:
    async def run() -> None:
        talk = Talk()
        told: list[Any] = []
        async with opened(tmp_path / "m.db", scribe(), background=True) as memory:
            memory.on("flush_due", lambda event, context: told.append((event, context)))
            used = (await grown(memory, talk, 10)).report.tokens_after
            for _ in range(3):
                near = reply("yes", used_tokens=used, written_tokens=5_700 - used)
                assert (await memory.observe(SESSION, near)).due in ("flush", "nothing")
                running = memory.session(SESSION).compacting
                assert running is not None
                await running
            assert len(told) == 1
            event, who = told[0]
            assert event["compactionCount"] == 0
            assert event["tokenCount"] > 0
            assert who["sessionKey"] == SESSION
            assert memory.session(SESSION).state.flushed_in == 0

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
            assert "hook" in str(done.reason)
            assert model.prompts == []

    asyncio.run(run())


def test_a_hook_with_nonsense_is_as_none(tmp_path: Path) -> None:
    def answering(it: Any, event: Any, context: Any) -> Any:
        return it

    async def run() -> None:
        talk, model = Talk(), scribe()
        async with opened(tmp_path / "m.db", model) as memory:
            for nonsense in ("yes", 7, {"compaction": {"summary": "  "}}, {"compaction": "text"}):
                memory.on("session_before_compact", partial(answering, nonsense))
            await grown(memory, talk, 9)
            assert (await memory.compact(SESSION)).compacted
            assert model.prompts, "the model made it"

    asyncio.run(run())
