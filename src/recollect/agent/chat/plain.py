"""Runs turns: one per line of a pipe, or for a program, with every event as a line of JSON.

In a pipe, replies go to standard output, and all other lines to standard error."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO

from recollect.agent.chat.opening import ChatOrder, open_chat_agent
from recollect.errors import RecollectError

if TYPE_CHECKING:
    from recollect.agent.chat.view import LineView
    from recollect.agent.events import AgentEvent
    from recollect.agent.loop import Agent


def event_dict(event: AgentEvent) -> dict[str, Any]:
    """Convert an event for JSON: its `type`, and its fields under their own names."""
    from recollect.agent.events import Compacted, Flushed, Prepared

    kind = {"type": re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(event).__name__).lower()}
    if isinstance(event, Prepared):
        return {**kind, "step": event.step, "report": event.report.to_dict()}
    if isinstance(event, Compacted):
        return {**kind, "entry_id": event.entry_id, "result": event.result.to_dict()}
    if isinstance(event, Flushed):
        result = {**asdict(event.result), "bytes_written": event.result.bytes_written}
        return {**kind, "result": result}
    return {**kind, **asdict(event)}


def read_order(line: str) -> tuple[str, bool]:
    """Parse an input line. Return the line's message, and True if the line stops the turn. A JSON
    object has `message` or `abort`; any other line is itself the message."""
    try:
        value = json.loads(line)
    except ValueError:
        return line, False
    if isinstance(value, dict) and ("message" in value or "abort" in value):
        return str(value.get("message") or ""), value.get("abort") is True
    return line, False


async def talk_plain(
    order: ChatOrder, lines: AsyncIterator[str], out: TextIO, notes: TextIO
) -> int:
    """Run one turn per input line. Return 1 if the last turn failed."""
    from recollect.agent.chat.view import LineView

    view, exit_code = LineView(out, notes), 0
    async with open_chat_agent(order) as agent:
        async for line in lines:
            if line.strip():
                exit_code = await run_turn(agent, view, line)
    return exit_code


async def run_turn(agent: Agent, view: LineView, text: str) -> int:
    """Run one turn or command, print its events and the status line, and return its exit code."""
    exit_code = await _show_events(agent, view.on, text)
    await print_status(agent, view)
    return exit_code


async def _show_events(agent: Agent, show: Callable[[AgentEvent], None], text: str) -> int:
    """Run one turn or command, and show its events. Return 1 if it failed or was stopped."""
    from recollect.agent.events import Ended

    exit_code = 1
    async with aclosing(agent.run(text)) as events:
        async for event in events:
            show(event)
            if isinstance(event, Ended) and event.reason in ("done", "command"):
                exit_code = 0
    return exit_code


async def print_status(agent: Agent, view: LineView) -> None:
    with suppress(RecollectError):
        view.print_status(await agent.status())


async def talk_json(order: ChatOrder, lines: AsyncIterator[str], out: TextIO) -> int:
    """Run one turn per line, and print each event as a line. `{"abort": true}` stops a turn."""
    exit_code = 0
    waiting: asyncio.Queue[str | None] = asyncio.Queue()
    async with open_chat_agent(order) as agent:
        opened = {
            "type": "opened",
            "session": agent.conversation.session_id,
            "key": order.key,
            "space": order.space_name,
            "model": agent.model_name,
            "messages": len(agent.conversation.history()),
        }
        _write_line(out, opened)

        async def listen() -> None:
            async for line in lines:
                text, abort = read_order(line)
                if abort:
                    agent.abort()
                    while not waiting.empty():  # drop the messages that were sent before the abort
                        waiting.get_nowait()
                if text.strip():
                    waiting.put_nowait(text)

        listening = asyncio.create_task(listen())
        listening.add_done_callback(lambda _: waiting.put_nowait(None))
        try:
            while (text := await waiting.get()) is not None:
                exit_code = await _show_events(
                    agent, lambda event: _write_line(out, event_dict(event)), text
                )
            await listening  # raises the task's exception
        finally:
            listening.cancel()
    return exit_code


def _write_line(out: TextIO, value: dict[str, Any]) -> None:
    print(json.dumps(value, default=str), file=out, flush=True)  # ASCII: no control characters


async def lines_from(texts: Iterable[str]) -> AsyncIterator[str]:
    for text in texts:
        yield text


async def lines_of(read: Callable[[], str]) -> AsyncIterator[str]:
    """Yield lines from a thread that cannot be cancelled, and so ends with the process."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[str | OSError | ValueError] = asyncio.Queue()

    def work() -> None:
        line: str | OSError | ValueError = "\n"
        while line and isinstance(line, str):
            try:
                line = read()
            except (OSError, ValueError) as error:
                line = error
            try:
                loop.call_soon_threadsafe(queue.put_nowait, line)
            except RuntimeError:  # the event loop has ended meanwhile
                return

    threading.Thread(target=work, daemon=True).start()
    while line := await queue.get():
        if not isinstance(line, str):
            raise RecollectError(f"cannot read more messages: {line}")
        yield line.rstrip("\r\n")
