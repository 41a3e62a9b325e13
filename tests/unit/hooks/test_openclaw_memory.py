"""What OpenClaw's context engine is answered, over conversations as OpenClaw hands them over."""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from recollect.adapters.wiring import open_store
from recollect.core.values.segment import StoredSegment
from recollect.errors import FormatError
from recollect.hosts.hooks.openclaw import OpenClawMemory
from recollect.system.config import load_settings
from recollect.testing.provider_rules import violations

DECISION = "For the billing service we decided to store amounts as integers in cents."
ASKS = "How does the billing service store amounts?"
SUMMARY = "The billing service stores amounts as integers in cents. Harbour reports were read."
Say = Callable[[Mapping[str, Any]], str]


def report(number: int, words: int = 400) -> str:
    """Something long that is not like the others."""
    return f"Harbour report {number}: " + " ".join(f"crate{number}x{at}" for at in range(words))


def summary(question: Mapping[str, Any]) -> str:
    """What a model writes; not the same twice."""
    return f"{SUMMARY} Characters read: {len(question['text'])}."


class Session:
    """A session of OpenClaw: its transcript, and what it hands to its context engine."""

    def __init__(self, memory: OpenClawMemory, folder: Path, budget: int = 60_000) -> None:
        self.id = str(uuid.uuid4())
        self.memory = memory
        self.folder = folder
        self.budget = budget
        self.transcript: list[dict[str, Any]] = []
        self._at = 0

    async def ask(self, call: Any, **more: Any) -> dict[str, Any]:
        whose = {"session": self.id, "folder": str(self.folder)}
        return await self.memory.answer(call, {**whose, **more})

    async def shown(self, prompt: str) -> list[dict[str, Any]]:
        """What the model is sent for a prompt."""
        given = list(self.transcript)
        answer = await self.ask(
            "assemble", messages=given, prompt=prompt, windowTokens=self.budget, model="scripted"
        )
        view = [given[row] if isinstance(row, int) else row for row in answer["messages"]]
        return [*view, self._message("user", prompt)]

    async def turn(self, prompt: str, reply: str = "Noted.") -> list[dict[str, Any]]:
        """One turn to its end; gives what the model was sent."""
        sent = await self.shown(prompt)
        turn = [self._message("user", prompt), self._reply({"type": "text", "text": reply})]
        self.transcript += turn
        await self.ask("commit", messages=turn)
        return sent

    async def tool_turn(self, prompt: str, result: str) -> list[dict[str, Any]]:
        """A turn in which the model calls a tool."""
        sent = await self.shown(prompt)
        call = {"type": "toolCall", "id": f"call{self._at}", "name": "read", "arguments": {}}
        answered = {
            **self._message("toolResult", result),
            "toolCallId": call["id"],
            "toolName": "read",
            "isError": False,
        }
        last = self._reply({"type": "text", "text": "Read."})
        turn = [self._message("user", prompt), self._reply(call), answered, last]
        self.transcript += turn
        await self.ask("commit", messages=turn)
        return sent

    async def compact(self, say: Say | None, **order: Any) -> dict[str, Any]:
        """A compaction whose questions this model answers."""
        step = await self.ask("compact", hostAnswers=say is not None, **order)
        while "ask" in step:
            assert say is not None
            asked = step["ask"]
            told = {"compaction": asked["compaction"], "id": asked["id"], "text": say(asked)}
            step = await self.ask("answer", **told)
        return step

    def _message(self, role: str, text: str) -> dict[str, Any]:
        self._at += 1
        return {"role": role, "content": [{"type": "text", "text": text}], "timestamp": self._at}

    def _reply(self, block: dict[str, Any]) -> dict[str, Any]:
        self._at += 1
        usage = {"input": 20_000, "output": 5, "cacheRead": 0, "cacheWrite": 0}
        return {
            "role": "assistant",
            "content": [block],
            "stopReason": "stop" if block["type"] == "text" else "toolUse",
            "usage": usage,
            "timestamp": self._at,
        }


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "home"))
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


def with_memory(work: Callable[[OpenClawMemory, Path], Awaitable[None]]) -> Callable[[Path], None]:
    """A test that is given a memory, and the workspace that it is of."""

    async def run(workspace: Path) -> None:
        memory = opened()
        try:
            await work(memory, workspace)
        finally:
            await memory.close()

    def test(workspace: Path) -> None:
        asyncio.run(run(workspace))

    test.__doc__ = work.__doc__
    return test


def opened() -> OpenClawMemory:
    return OpenClawMemory(
        load_settings(arguments={"recall.embedder": "none"}, environment={}).settings
    )


async def stored(workspace: Path) -> tuple[StoredSegment, ...]:
    store = await open_store(None, space=str(workspace))
    try:
        return await store.page(limit=1_000)
    finally:
        await store.close()


def texts(messages: list[dict[str, Any]]) -> str:
    return "\n".join(str(message["content"]) for message in messages)


@with_memory
async def test_a_conversation_that_fits_is_given_back_by_its_places(
    memory: OpenClawMemory, workspace: Path
) -> None:
    session = Session(memory, workspace)
    for number in range(3):
        await session.turn(f"Question {number}?")
    given = session.transcript
    answer = await session.ask("assemble", messages=given, prompt="And?", windowTokens=60_000)
    assert answer["messages"] == list(range(6))
    assert 0 < answer["estimatedTokens"] < 1_000


@with_memory
async def test_what_another_session_decided_stands_right_before_the_question(
    memory: OpenClawMemory, workspace: Path
) -> None:
    await Session(memory, workspace).turn(DECISION)
    later = Session(memory, workspace)
    await later.turn("Good morning.")
    sent = await later.shown(ASKS)
    assert "integers in cents" in texts([sent[-2]])
    assert sent[-2]["role"] == "user"
    assert sent[-2]["timestamp"] == pytest.approx(time.time() * 1000, abs=60_000), "the prompt's"
    assert sent[:-2] == later.transcript


@with_memory
async def test_within_a_small_window_every_request_is_valid_and_calls_keep_their_results(
    memory: OpenClawMemory, workspace: Path
) -> None:
    session = Session(memory, workspace, budget=3_000)
    smaller = 0
    for number in range(12):
        sent = await session.tool_turn(f"Read report {number}.", report(number))
        assert violations("pi", {"messages": sent}) == []
        smaller += len(sent) <= len(session.transcript) - 4
    assert smaller > 3
    assert len(session.transcript) == 48


@with_memory
async def test_a_full_window_is_compacted_by_openclaws_model_and_the_decision_stands(
    memory: OpenClawMemory, workspace: Path
) -> None:
    session = Session(memory, workspace, budget=6_000)
    asked: list[str] = []

    def say(question: Mapping[str, Any]) -> str:
        asked.append(question["text"])
        return summary(question)

    await session.turn(DECISION)
    assert await session.compact(say, ifDue=True) == {"compacted": False}
    for number in range(4):
        await session.turn(report(number))
    done = await session.compact(say, ifDue=True)
    assert done["compacted"] is True
    assert done["tokensAfter"] < done["tokensBefore"]
    assert DECISION in "".join(asked)
    assert await session.compact(say, ifDue=True) == {"compacted": False}
    sent = await session.shown("Go on with the harbour.")
    assert "integers in cents" in texts(sent[:1])
    assert DECISION in texts(sent), "what the user stated outlives the compaction"
    assert "crate3x5" in texts(sent), "the newest stays as it was said"
    assert len(sent) < len(session.transcript)


@with_memory
async def test_without_an_answer_of_the_model_nothing_is_cut_and_the_next_turn_tries_again(
    memory: OpenClawMemory, workspace: Path
) -> None:
    session = Session(memory, workspace, budget=6_000)
    for number in range(5):
        await session.turn(report(number))
    assert (await session.compact(lambda _: "", ifDue=True))["compacted"] is False
    assert (await session.compact(summary, ifDue=True))["compacted"] is True


@with_memory
async def test_what_gained_nothing_is_not_tried_at_once_again(
    memory: OpenClawMemory, workspace: Path
) -> None:
    session = Session(memory, workspace, budget=6_000)
    for number in range(5):
        await session.turn(report(number))
    assert (await session.compact(None))["compacted"] is False
    assert await session.compact(summary, ifDue=True) == {"compacted": False}
    assert (await session.compact(summary, instructions="Keep it short."))["compacted"] is True


@with_memory
async def test_of_a_session_that_nobody_showed_nothing_is_compacted(
    memory: OpenClawMemory, workspace: Path
) -> None:
    assert await Session(memory, workspace).compact(summary) == {"compacted": False}


@with_memory
async def test_a_turn_that_comes_twice_or_behind_a_restart_is_kept_once(
    memory: OpenClawMemory, workspace: Path
) -> None:
    session = Session(memory, workspace)
    await session.turn(DECISION)
    turn = session.transcript[-2:]
    again = await session.ask("commit", messages=turn)
    assert again["status"] == "duplicate"
    await memory.close()
    session.memory = opened()
    assert (await session.ask("commit", messages=turn))["status"] == "committed"
    await session.turn("And rounding?")
    assert (await session.ask("commit", messages=turn))["status"] == "duplicate", "late"
    await session.shown("Thank you.")
    await session.memory.close()
    kept = [one.segment.text for one in await stored(workspace)]
    assert sorted(kept) == sorted([DECISION, "Noted.", "And rounding?", "Noted.", "Thank you."])


@with_memory
async def test_a_turn_without_its_conversation_is_kept_also_where_none_is_shown(
    memory: OpenClawMemory, workspace: Path
) -> None:
    session, other = Session(memory, workspace), Session(memory, workspace)
    for one in (session, other):
        await one.ask("commit", messages=[one._message("user", f"It was I, {one.id}.")])
    await other.shown("Hello again.")  # OpenClaw has compacted the turn away by now
    await memory.close()
    kept = [one.segment.text for one in await stored(workspace)]
    said = [f"It was I, {one.id}." for one in (session, other)]
    assert sorted(kept) == sorted([*said, "Hello again."])


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"session": "s"},
        {"session": "s", "folder": "not/absolute"},
        {"session": "s", "space": "x", "messages": "no"},
        {"session": "s", "space": "x", "messages": [1]},
    ],
)
def test_what_is_no_request_of_plugin_is_refused(workspace: Path, payload: dict[str, Any]) -> None:
    async def ask(memory: OpenClawMemory, _: Path) -> None:
        with pytest.raises(FormatError):
            await memory.answer("assemble", payload)

    with_memory(ask)(workspace)
