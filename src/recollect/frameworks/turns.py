"""Lets a memory choose the messages of a framework's model calls. If memory fails, the framework
continues with its own messages and gets no exception. A memory has its own thread, so blocking and
asynchronous code can share it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from recollect.core.blocking import BlockingEngine
from recollect.core.boundary import Component, Failure, attempted, guarded
from recollect.core.engine.session import Context, check_session_name
from recollect.core.values.history import Entry
from recollect.core.values.model import FormatName
from recollect.errors import FormatError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRow:
    """A message of the view, in the request's wire format."""

    wire: Mapping[str, Any] = field(repr=False)
    place: int | None
    """Index among the framework's messages; None if Recollect added or joined this message."""
    touched: bool


class Turns:
    """The turns of a framework's sessions in one memory."""

    def __init__(self, memory: BlockingEngine, framework: str, format: FormatName) -> None:  # noqa: A002
        """Check the memory. `framework` is a name for logs, `format` the requests' wire format."""
        if not isinstance(memory, BlockingEngine):
            raise TypeError(
                f"the memory of {framework} must come from `recollect.open_blocking_memory()`, "
                f"which serves blocking and asynchronous code; it is a {type(memory).__name__}"
            )
        self.memory = memory
        self._component = Component(framework)
        self._format: FormatName = format

    def shape(
        self,
        session: str,
        ask: Callable[[], Mapping[str, Any]],
        show: Callable[[Sequence[ShownRow]], T],
    ) -> T | None:
        """Prepare the request that `ask` returns, and pass the view to `show`. Return the result of
        `show`; None if the framework must send its own messages unchanged."""
        check_session_name(session)

        def work() -> T | None:
            return _show_view(self.memory.prepare(session, ask(), format=self._format), show)

        return self._report(session, guarded(work))

    async def ashape(
        self,
        session: str,
        ask: Callable[[], Mapping[str, Any]],
        show: Callable[[Sequence[ShownRow]], T],
    ) -> T | None:
        """Prepare a request as `shape` does, in asynchronous code."""
        check_session_name(session)

        async def work() -> T | None:
            preparation = self.memory.engine.prepare(session, ask(), format=self._format)
            return _show_view(await self._in_memory(preparation), show)

        return self._report(session, await attempted(work()))

    def learn(self, session: str, reply: Callable[[], Any]) -> None:
        """Store a reply, or learn the window from the error that `reply` raises."""
        self._report(session, guarded(lambda: self.memory.observe(session, reply())))

    async def alearn(self, session: str, reply: Callable[[], Any]) -> None:
        """Store a reply as `learn` does, in asynchronous code."""

        async def work() -> Any:
            return await self._in_memory(self.memory.engine.observe(session, reply()))

        self._report(session, await attempted(work()))

    async def _in_memory(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(self.memory.submit(work))

    def _report(self, session: str, result: T | Failure) -> T | None:
        if isinstance(result, Failure):
            self._component.fail(result.said, whose=session)
            return None
        self._component.recover(whose=session)
        return result


def chat_reply(message: Mapping[str, Any], usage: Mapping[str, int] | None) -> dict[str, Any]:
    """Build a Chat Completions reply. `usage` counts `input`, `output` and maybe `cache_read`."""
    reply: dict[str, Any] = {"object": "chat.completion", "choices": [{"message": message}]}
    if usage:
        counts: dict[str, Any] = {
            "prompt_tokens": usage.get("input", 0),
            "completion_tokens": usage.get("output", 0),
        }
        if "cache_read" in usage:
            counts["prompt_tokens_details"] = {"cached_tokens": usage["cache_read"]}
        reply["usage"] = counts
    return reply


def _show_view(context: Context, show: Callable[[Sequence[ShownRow]], T]) -> T | None:
    """Return None if the request needs no change. Raise FormatError for an unreadable request."""
    unread_lines = [line for line in context.report.failures if line.stage == "read"]
    if unread_lines:
        raise FormatError(unread_lines[0].said)
    rows = tuple(_rows(context))
    if not any(row.touched for row in rows) and len(rows) == len(context.report.entries):
        return None
    return show(rows)


def _rows(context: Context) -> Iterator[ShownRow]:
    report = context.report
    if not report.view.rows:
        return
    field_name = "input" if report.format == "openai-responses" else "messages"
    places = {id(entry): index for index, entry in enumerate(report.entries)}
    keys = {entry.key: index for index, entry in enumerate(report.entries)}
    wires = context.request[field_name]
    for row, wire in zip(report.view.rows, wires, strict=True):
        if isinstance(row, Entry):
            yield ShownRow(wire=wire, place=places[id(row)], touched=False)
        else:
            sources = {keys[key] for key in row.sources if key in keys}
            place = sources.pop() if len(sources) == 1 else None
            yield ShownRow(wire=wire, place=place, touched=True)
