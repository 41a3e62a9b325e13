"""How the engine runs compactions: beside the turns, one at a time, told as they were."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.integration.long_talk import (
    SESSION,
    WINDOW,
    Held,
    Talk,
    grown,
    honest,
    notes,
    opened,
    reply,
    scribe,
    shown,
    soon,
    sound,
)

from recollect import Engine
from recollect.core.formats.summaries import PI_OPENING
from recollect.core.values.model import Answer, Prompt
from recollect.errors import ModelUnavailable

OPENING = PI_OPENING.split("\n", 1)[0]


async def test_a_compaction_ahead_of_need_holds_up_nobody_and_is_picked_up(tmp_path: Path) -> None:
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


async def test_a_turn_over_the_limit_waits_for_the_one_that_runs(tmp_path: Path) -> None:
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


async def test_a_compaction_that_failed_in_the_background_is_told(tmp_path: Path) -> None:
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


async def test_undone_session_compacts_by_itself_again_once_it_was_asked_to(tmp_path: Path) -> None:
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


async def test_what_continues_at_the_provider_is_never_compacted(tmp_path: Path) -> None:
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


async def test_a_session_that_took_another_way_meanwhile_is_left_alone(tmp_path: Path) -> None:
    """The user goes back and edits an early message while the summary is written."""
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


NEAR = 5_700
"""So many tokens that notes are due, and no compaction yet."""


class Counted(Held):
    """Says how many were asked at once."""

    def __init__(self) -> None:
        super().__init__()
        self.at_once = self.most_at_once = 0

    async def ask(self, prompt: Prompt) -> Answer:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            answer = await super().ask(prompt)
            await asyncio.sleep(0.01)
            return answer
        finally:
            self.at_once -= 1


class Noting:
    """A host that is told to write its notes, and takes as long as it likes."""

    def __init__(self, memory: Engine) -> None:
        self.told: list[int] = []
        self.begun, self.written = asyncio.Event(), asyncio.Event()
        memory.on("flush_due", self.write)

    async def write(self, event: Any, context: Any) -> None:
        self.told.append(event["compactionCount"])
        self.begun.set()
        await self.written.wait()


async def flushing(memory: Engine, talk: Talk) -> Noting:
    """Until notes are being written in the background."""
    noting = Noting(memory)
    used = (await grown(memory, talk, 9)).report.tokens_after
    near = reply("yes", used_tokens=used, written_tokens=NEAR - used)
    assert (await memory.observe(SESSION, near)).due == "flush"
    await soon(noting.begun.wait())
    return noting


async def test_a_full_turn_compacts_while_notes_are_written(tmp_path: Path) -> None:
    talk = Talk()
    async with opened(tmp_path / "m.db", scribe(), background=True) as memory:
        noting = await flushing(memory, talk)
        context = sound(await soon(memory.prepare(SESSION, talk.exchange(6).body("and now?"))))
        assert context.compaction is not None
        assert context.compaction.compacted, context.compaction.reason
        assert OPENING in shown(context)
        noting.written.set()


async def test_compactions_that_were_asked_for_run_one_after_the_other(tmp_path: Path) -> None:
    wishes = ["mind the tide", "mind the crane", "mind the quay"]
    talk, model = Talk(), Counted()
    async with opened(tmp_path / "m.db", model) as memory:
        await grown(memory, talk, 6)
        wanted = [
            asyncio.create_task(memory.compact(SESSION, instructions=wish)) for wish in wishes
        ]
        await soon(model.asked.wait())
        await asyncio.sleep(0.05)
        assert len(model.prompts) == 1
        model.answer.set()
        results = [await soon(one) for one in wanted]
        assert model.most_at_once == 1
        for done in results:
            honest(done)
            assert done.convergence != "failed", done.reason
        numbers = [done.number for done in results if done.compacted]
        assert numbers == list(range(1, len(numbers) + 1)), "in their order"
        asked = [wish for prompt in model.prompts for wish in wishes if wish in prompt.text]
        assert asked == sorted(asked, key=wishes.index)
        assert memory.session(SESSION).state.compactions == len(numbers)


@pytest.mark.parametrize("when", ["in a model", "in a queue", "in a flush", "at once"])
async def test_closing_while_compactions_run_ends_them_quietly(tmp_path: Path, when: str) -> None:
    talk, model, trouble = Talk(), Held(), unheard()
    memory = opened(tmp_path / "m.db", model, background=True)
    waiting: list[Awaitable[Any]] = []
    if when == "in a flush":
        await flushing(memory, talk)
        await memory.observe(SESSION, reply("yes", used_tokens=WINDOW))
    else:
        await grown(memory, talk, 9)
        many = 3 if when == "in a queue" else 1
        waiting = [asyncio.create_task(memory.compact(SESSION)) for _ in range(many)]
        if when != "at once":
            await soon(model.asked.wait())
    edits = memory.session(SESSION).state.edits
    await asyncio.sleep(0)
    await soon(memory.close())
    for one in waiting:
        done = await soon(one)
        honest(done)
        assert "closed" in str(done.reason)
    assert memory.session(SESSION).state.edits == edits
    assert trouble() == []


def unheard() -> Callable[[], list[str]]:
    """What the loop had to complain about, in tasks that nobody asks any more."""
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda loop, context: told.append(context["message"])
    )

    def so_far() -> list[str]:
        gc.collect()
        return told

    return so_far


async def test_hooks_are_told_what_openclaw_tells_them(tmp_path: Path) -> None:
    told: dict[str, tuple[Any, Any]] = {}
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


async def test_hooks_run_together_and_a_bad_one_costs_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recollect.core.engine.summary import Hooks

    usual = dict(Hooks.fire.__kwdefaults__ or {})
    monkeypatch.setattr(Hooks.fire, "__kwdefaults__", {**usual, "seconds": 0.3})
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


async def test_who_listens_is_told_once_a_cycle_that_notes_are_due(tmp_path: Path) -> None:
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


async def test_a_hook_supplies_the_summary_in_place_of_a_model(tmp_path: Path) -> None:
    talk = Talk()
    async with opened(tmp_path / "m.db", None) as memory:
        memory.on(
            "session_before_compact",
            lambda event, context: {"compaction": {"summary": "The hook knows the harbour."}},
        )
        context = await grown(memory, talk, 12)
        assert "The hook knows the harbour." in shown(sound(context))
        assert memory.session(SESSION).state.compactions == 1


async def test_a_hook_says_no(tmp_path: Path) -> None:
    talk, model = Talk(), scribe()
    async with opened(tmp_path / "m.db", model) as memory:
        memory.on("session_before_compact", lambda event, context: {"cancel": True})
        await grown(memory, talk, 9)
        done = await memory.compact(SESSION)
        honest(done)
        assert not done.compacted
        assert "hook" in str(done.reason)
        assert model.prompts == []


async def test_a_hook_with_nonsense_is_as_none(tmp_path: Path) -> None:
    def answering(it: Any, event: Any, context: Any) -> Any:
        return it

    talk, model = Talk(), scribe()
    async with opened(tmp_path / "m.db", model) as memory:
        for nonsense in ("yes", 7, {"compaction": {"summary": "  "}}, {"compaction": "text"}):
            memory.on("session_before_compact", partial(answering, nonsense))
        await grown(memory, talk, 9)
        assert (await memory.compact(SESSION)).compacted
        assert model.prompts, "the model made it"


class OnlyAsks:
    async def ask(self, prompt: Prompt) -> Answer:
        return Answer(text=notes(prompt))


class IsCalled:
    async def __call__(self, prompt: Prompt) -> str:
        return notes(prompt)


async def asked(prompt: Prompt) -> Answer:
    return Answer(text=notes(prompt))


async def asked_with(said: str, prompt: Prompt) -> str:
    return notes(prompt) + said


@pytest.mark.parametrize(
    "model",
    [OnlyAsks(), IsCalled(), asked, partial(asked_with, "\n- by the quay"), scribe()],
    ids=lambda model: type(model).__name__,
)
async def test_whatever_can_be_asked_summarises(tmp_path: Path, model: Any) -> None:
    talk = Talk()
    async with opened(tmp_path / "m.db", model) as memory:
        context = sound(await grown(memory, talk, 12))
        assert memory.session(SESSION).state.compactions == 1
        assert "berth-17" in str(context.request)


SUPPLIED = "The hook knows the harbour."


def answering(told: list[Any], **more: Any) -> Any:
    """A hook that keeps what it was told and supplies a summary with these fields."""

    def hook(event: Any, context: Any) -> Any:
        told.append((event, context))
        chosen = {
            key: value(event["preparation"]) if callable(value) else value
            for key, value in more.items()
        }
        return {"compaction": {"summary": SUPPLIED, **chosen}}

    return hook


def compacted(
    folder: Path, hook: Any, *, provider: str | None = None, said: str = "go on", **settings: Any
) -> tuple[Any, Any, Any]:
    """A compaction with this hook: its result, the cut request, and what it came from."""

    async def run() -> tuple[Any, Any, Any]:
        talk = Talk()
        async with opened(folder / "m.db", scribe(), **settings) as memory:
            memory.on("session_before_compact", hook)
            await grown(memory, talk, 9)
            memory.session(SESSION).message_provider = provider
            body = talk.body(said)
            done = await memory.compact(SESSION, body)
            return done, await memory.prepare(SESSION, body), body

    return asyncio.run(run())


def test_details_that_are_supplied_are_kept(tmp_path: Path) -> None:
    done, context, _ = compacted(tmp_path, answering([], details={"ticket": {"key": "H-7"}}))
    assert done.compacted, done.reason
    assert done.details["ticket"] == {"key": "H-7"}
    assert SUPPLIED in str(context.request)


@pytest.mark.parametrize("files", [["a.py"], []])
def test_the_lists_of_files_that_are_supplied_are_kept(tmp_path: Path, files: list[str]) -> None:
    details = {"readFiles": files, "modifiedFiles": ["b.py"]}
    done, _, _ = compacted(tmp_path, answering([], details=details))
    assert (done.details["readFiles"], done.details["modifiedFiles"]) == (files, ["b.py"])


def test_a_hook_that_takes_too_long_is_signaled(tmp_path: Path) -> None:
    told: list[Any] = []

    def slow(event: Any, _context: Any) -> None:
        told.append(event["signal"].is_set())
        told.append(event["signal"].wait(20.0))

    done, _, _ = compacted(tmp_path, slow, compaction__deadline_seconds=0.4)
    assert any("hook failed" in note for note in done.notes), done.notes
    assert told == [False, True]


def test_secrets_in_supplied_details_are_masked(tmp_path: Path) -> None:
    key = "sk-proj-q8Zt3LmX0vRb7KpWn2YcHd5JfGs9TaUe"
    done, _, _ = compacted(tmp_path, answering([], details={"note": f"OPENAI_API_KEY={key}"}))
    assert key not in str(done.details)
    assert "note" in done.details


def test_a_summary_that_covers_less_than_the_cut_is_not_used(tmp_path: Path) -> None:
    early = answering([], firstKeptEntryId=lambda prepared: prepared["cutEntryIds"][1])
    done, context, _ = compacted(tmp_path, early)
    assert done.compacted, done.reason
    assert any("firstKeptEntryId" in note for note in done.notes)
    assert SUPPLIED not in str(context.request)


@pytest.mark.parametrize(
    ("said", "provider", "channel"),
    [
        ("go on", "slack", "slack"),
        ("[Telegram Anna (@anna) id:123 +5m 2026-02-10 14:31 UTC] go on", None, "telegram"),
        ("System: [2026-02-10 14:31:00 GMT+8] Feishu[main] DM from ou_1: go on", None, "feishu"),
        ("飞书 消息 来自 小明：继续", None, "飞书"),
        ("[Telegram Anna id:123] go on", "slack", "slack"),
        ("[Signal 9] is the strongest", None, None),
        ("Line 42 is wrong", None, None),
    ],
)
def test_the_message_provider_is_the_channel(
    tmp_path: Path, said: str, provider: str | None, channel: str | None
) -> None:
    told: list[Any] = []
    compacted(tmp_path, answering(told), provider=provider, said=said)
    assert told[0][1]["messageProvider"] == channel
