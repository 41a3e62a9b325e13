"""A model that remembers what it was asked: the requests that really went out, and how it went.

Changes nothing of a request or a reply. What was said is in it, so it has no repr of its own.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from recollect.adapters.providers.openai import OpenAIChatModel
from recollect.core.formats.summaries import PI_OPENING
from recollect.core.values.model import Answer, Prompt, ReplyDone, ReplyEvent, TextDelta
from recollect.core.values.recall import BLOCK_CLOSING, BLOCK_OPENING
from recollect.errors import ModelOverflow

Place: TypeAlias = Literal["summary", "recalled", "kept", "nowhere"]


@dataclass(slots=True, kw_only=True)
class Watched:
    """Counts of one conversation."""

    requests: int = 0
    overflows: int = 0
    """Requests that the server refused for their size."""
    pieces: int = 0
    """Stretches of replies as they streamed in."""
    input_tokens: int = 0
    output_tokens: int = 0
    asked: int = 0
    """Calls that summarise."""


class WatchedModel:
    """A `ChatModel` that is looked at."""

    def __init__(self, model: OpenAIChatModel) -> None:
        self._model = model
        self.seen = Watched()
        self.name = model.name
        """As requests name it; under another name nobody knows its window yet."""
        self.last: Mapping[str, Any] = {}

    @property
    def format(self) -> Literal["openai-chat"]:
        """The model's own."""
        return self._model.format

    @property
    def window_tokens(self) -> int | None:
        """The model's own."""
        return self._model.window_tokens

    async def ask(self, prompt: Prompt) -> Answer:
        """Ask, and count it."""
        self.seen.asked += 1
        return await self._model.ask(prompt)

    async def stream(self, request: Mapping[str, Any]) -> AsyncGenerator[ReplyEvent, None]:
        """Send, and remember what was sent."""
        self.seen.requests += 1
        self.last = request
        try:
            async with aclosing(self._model.stream(request)) as events:
                async for event in events:
                    self._count(event)
                    yield event
        except ModelOverflow:
            self.seen.overflows += 1
            raise

    async def close(self) -> None:
        """Give back connections."""
        await self._model.close()

    def place_of(self, exact: str) -> Place:
        """Where something stands in the last request, what stands for the past first."""
        found: list[Place] = []
        for message in self.last.get("messages", ()):
            text = _text(message.get("content"))
            if exact not in text:
                continue
            if text.startswith(PI_OPENING[:60]):
                found.append("summary")
            else:
                found.append("recalled" if _recalled(text, exact) else "kept")
        order: tuple[Place, ...] = ("kept", "summary", "recalled")
        return next((place for place in order if place in found), "nowhere")

    def _count(self, event: ReplyEvent) -> None:
        if isinstance(event, TextDelta):
            self.seen.pieces += 1
        elif isinstance(event, ReplyDone) and event.usage is not None:
            self.seen.input_tokens += event.usage.input_tokens
            self.seen.output_tokens += event.usage.output_tokens


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "\n".join(str(block.get("text", "")) for block in blocks if isinstance(block, dict))


def _recalled(text: str, exact: str) -> bool:
    """Whether all of it stands in a recalled block; one may be merged into a message."""
    return BLOCK_OPENING in text and exact not in text.rpartition(BLOCK_CLOSING)[2]
