"""A client that resends its whole history, and a model that summarises it: what the tests of
compaction through the whole engine share."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from tests.property.test_every_request import refused

from recollect import Context, Engine, open_memory
from recollect.adapters.wiring import open_store
from recollect.core.compaction.ask import REQUIRED_HEADINGS
from recollect.core.values.compaction import CompactionResult, Spent
from recollect.core.values.model import Answer, Prompt
from recollect.testing.scripted_model import ScriptedModel

WINDOW = 8_000
LIMIT = 6_000
"""The window without its reserve, a quarter: no request may be larger."""
SESSION = "s"
WORDS = "the crane moves cargo over the quay while the tide comes in "
LINES = (
    "unload the freighter before the tide turns",
    "the north quay is used first",
    "weigh what is left in the hold",
    "nobody lifts without a code",
    "which crane is free",
    "berth-17",
)


def notes(prompt: Prompt) -> str:
    """A short summary as it was asked for; another one for each prompt, as a model's would be."""
    page = zlib.crc32(prompt.text.encode())
    pairs = zip(REQUIRED_HEADINGS, LINES, strict=True)
    written = "\n".join(f"{heading}\n- {line}" for heading, line in pairs)
    return f"{written}\n- page {page} of the log"


class Clock:
    """Stands still until it is moved."""

    def __init__(self, seconds: float = 1_800_000_000.0) -> None:
        self.seconds = seconds

    def now(self) -> float:
        return self.seconds


class Talk:
    """One conversation as its client keeps it: every request holds all of it."""

    def __init__(self, *, long_questions: bool = False) -> None:
        self.messages: list[dict[str, Any]] = []
        self._detail = f" I mean this: {WORDS * 20}" if long_questions else ""
        self.exchanges = 0

    def ask(self, text: str) -> Talk:
        """The user says something."""
        self.messages.append({"role": "user", "content": text})
        return self

    def answer(self, text: str) -> Talk:
        """The model said something."""
        self.messages.append({"role": "assistant", "content": text})
        return self

    def exchange(self, count: int = 1, *, repeats: int = 40) -> Talk:
        """So many questions with long answers; about 13 tokens for each repeat."""
        for _ in range(count):
            self.exchanges += 1
            number = self.exchanges
            self.ask(f"Question {number}: what happens at berth {number}?{self._detail}")
            self.answer(f"Answer {self.exchanges}: " + WORDS * repeats)
        return self

    def call(self, name: str, result: str, **given: Any) -> Talk:
        """The model ran a tool."""
        made = f"t{len(self.messages)}"
        call = {"type": "tool_use", "id": made, "name": name, "input": given}
        told = {"type": "tool_result", "tool_use_id": made, "content": result}
        self.messages.append({"role": "assistant", "content": [call]})
        self.messages.append({"role": "user", "content": [told]})
        return self

    def body(self, asked: str = "", **more: Any) -> dict[str, Any]:
        """The request, with a question of the user's behind it."""
        held = [*self.messages, *([{"role": "user", "content": asked}] if asked else [])]
        return {"model": "claude-x", "max_tokens": 100, "messages": held, **more}


def opened(store: Path | str, model: Any, **settings: Any) -> Engine:
    """A memory with a window that fills soon; `a__b` is the setting `a.b`.

    `background`, `clock`, `workspace` and `window_tokens` are those of `open_memory`, `reader` is
    its `extraction_model`.
    """
    reader = settings.pop("reader", None)
    background = settings.pop("background", False)
    clock = settings.pop("clock", None)
    workspace = settings.pop("workspace", None)
    window = settings.pop("window_tokens", WINDOW)
    chosen = {"recall.embedder": "none", "jobs.in_process": False}
    chosen |= {name.replace("__", "."): value for name, value in settings.items()}
    return open_memory(
        store=store,
        model=model,
        extraction_model=reader,
        window_tokens=window,
        compact_in_background=background,
        clock=clock,
        workspace=workspace,
        settings=chosen,
    )


async def grown(memory: Engine, talk: Talk, exchanges: int) -> Context:
    """The conversation goes on, a request for each exchange; the last one."""
    contexts = [
        await memory.prepare(SESSION, talk.exchange().body("go on")) for _ in range(exchanges)
    ]
    return contexts[-1]


def scribe(say: Callable[[Prompt], Any] = notes, **more: Any) -> ScriptedModel:
    """A model that summarises; `say` may give a text, an answer or an exception."""
    return ScriptedModel(say, **more)


def shown(context: Context) -> str:
    """All that a request says."""
    return json.dumps(context.request, ensure_ascii=False)


def sound(context: Context, *, limit: int = LIMIT) -> Context:
    """The request is one that its provider takes, and within its limit."""
    assert refused("anthropic", context.request) == []
    assert context.report.tokens_after <= limit
    return context


async def stored(url: Path | str) -> list[str]:
    """The texts of all messages in the store, in order."""
    store = await open_store(str(url), space="default")
    try:
        assert (await store.check()).problems == ()
        return [one.segment.text for one in await store.page(limit=10_000)]
    finally:
        await store.close()


def said(messages: list[dict[str, Any]]) -> list[str]:
    """The plain texts of a client's messages."""
    return [one["content"] for one in messages if isinstance(one["content"], str)]


def within(spent: Spent) -> bool:
    """What a compaction cost is what it said it could cost at most."""
    return spent.calls <= spent.max_calls


def honest(done: CompactionResult) -> None:
    """A result says what happened: a success shrank the view, anything else left it."""
    assert str(done.reason)
    assert within(done.spent)
    if done.compacted:
        assert done.summary
        assert done.tokens_after < done.tokens_before
        assert done.number > 0
    else:
        assert (done.summary, done.number, done.compacted_messages) == ("", 0, 0)
        assert done.tokens_after == done.tokens_before


def answered(text: str, **more: Any) -> Answer:
    """One answer of a model."""
    return Answer(text=text, **more)


def reply(
    text: str, *, used_tokens: int | None = None, written_tokens: int = 10
) -> Mapping[str, Any]:
    """What a provider answers, with what it counted."""
    held: dict[str, Any] = {"role": "assistant", "content": [{"type": "text", "text": text}]}
    if used_tokens is not None:
        held["usage"] = {"input_tokens": used_tokens, "output_tokens": written_tokens}
    return held


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


async def soon(work: Awaitable[Any]) -> Any:
    """What does not wait for a model is done by then, on any machine."""
    return await asyncio.wait_for(work, 5)
