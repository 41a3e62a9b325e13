"""One reply of the model, as it streams in, up to its end or to where it broke off.

Owns the task that reads the stream; `abort` ends it at once, and the connection with it. Never
raises for what a model does, nor for what it lacks (an extra): how it ended is a value. A reply
that says NO_REPLY is never shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any

from recollect.agent.events import Said, Thought
from recollect.agent.recover import Trouble, silent_trouble, trouble_of
from recollect.agent.silent import SilentFilter
from recollect.errors import ModelUnavailable, RecollectError
from recollect.ports import ChatModel
from recollect.values.model import ReplyDone, ReplyEvent, TextDelta, ThinkingDelta


@dataclass(slots=True)
class Hearing:
    """How a reply came; filled in while it is listened to."""

    text: str = field(default="", repr=False)
    """The words so far."""
    done: ReplyDone | None = None
    trouble: Trouble | None = None
    aborted: bool = False
    silent: bool = False
    ended: bool = False
    """The stream was listened to until it ended or broke off by itself."""


class Listener:
    """Listens to one stream at a time."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    def abort(self) -> None:
        """Stop listening; what had come stays in the `Hearing`."""
        if self._task is not None:
            self._task.cancel()

    async def listen(
        self, model: ChatModel, request: Mapping[str, Any], hearing: Hearing
    ) -> AsyncGenerator[Said | Thought, None]:
        """What may be shown of the reply, as it comes."""
        queue: asyncio.Queue[ReplyEvent | None] = asyncio.Queue()
        task = self._task = asyncio.create_task(_pump(model, request, queue))
        filtered = SilentFilter()
        try:
            while (event := await queue.get()) is not None:
                if isinstance(event, TextDelta):
                    hearing.text += event.text
                    if shown := filtered.feed(event.text):
                        yield Said(text=shown)
                elif isinstance(event, ThinkingDelta):
                    yield Thought(text=event.text)
                elif isinstance(event, ReplyDone):
                    hearing.done = event
            if rest := filtered.finish():
                yield Said(text=rest)
            await asyncio.wait({task})
            _conclude(task, hearing)
            hearing.silent = filtered.silent
        finally:
            self._task = None
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _pump(
    model: ChatModel, request: Mapping[str, Any], queue: asyncio.Queue[ReplyEvent | None]
) -> None:
    """Read in one task: drivers tie a connection to the task that opened it."""
    stream = model.stream(request)
    try:
        async for event in stream:
            queue.put_nowait(event)
    finally:
        queue.put_nowait(None)
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()


def _conclude(task: asyncio.Task[None], hearing: Hearing) -> None:
    if task.cancelled():
        hearing.ended, hearing.aborted = True, hearing.done is None
        return
    error = task.exception()
    if error is not None and not isinstance(error, RecollectError):
        raise error  # no word of a model's: a fault of the program
    hearing.ended = True
    if isinstance(error, RecollectError):
        hearing.trouble = trouble_of(error)
    elif hearing.done is None:
        hearing.trouble = trouble_of(ModelUnavailable("the reply broke off before its end"))
    elif hearing.done.overflow is not None:
        hearing.trouble = silent_trouble(hearing.done.overflow)
