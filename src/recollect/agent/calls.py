"""Runs the tool calls of a reply, one after the other, each ending in a recorded result.

Always holds: every call of a recorded reply gets exactly one result, in the calls' order, also
when the turn is aborted in between; a tool that breaks is an error result, not the turn's end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from recollect.agent.conversation import Conversation
from recollect.agent.events import CallBegan, CallEnded
from recollect.agent.tools.outcome import Tool, ToolOutcome, failed

ABORTED = "The user stopped the turn while this ran."
NOT_RUN = "Not run: the user stopped the turn before."


class CallRunner:
    """Runs calls with a set of tools."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._task: asyncio.Task[ToolOutcome] | None = None
        self.aborted = False

    def abort(self) -> None:
        """Stop what runs; calls that were not begun are not."""
        self.aborted = True
        if self._task is not None:
            self._task.cancel()

    async def run(
        self, message: Mapping[str, Any], conversation: Conversation
    ) -> AsyncGenerator[CallBegan | CallEnded, None]:
        """Run what a reply asks for, and record the results."""
        waiting = calls_of(message)
        try:
            while waiting:
                call = waiting[0]
                arguments = call.get("arguments") or {}
                yield CallBegan(id=call["id"], name=call["name"], arguments=arguments)
                outcome = failed(NOT_RUN) if self.aborted else await self._outcome(call)
                waiting.pop(0)
                conversation.keep(_result(call, outcome, conversation.milliseconds()))
                yield CallEnded(
                    id=call["id"], name=call["name"], is_error=outcome.is_error, text=outcome.text
                )
        finally:  # whoever listened is gone: what was asked for is answered all the same
            for call in waiting:
                conversation.keep(_result(call, failed(NOT_RUN), conversation.milliseconds()))

    async def _outcome(self, call: Mapping[str, Any]) -> ToolOutcome:
        tool = self._tools.get(call["name"])
        if tool is None:
            return failed(f"There is no such tool; there are {', '.join(self._tools)}.")
        arguments = call.get("arguments")
        given = arguments if isinstance(arguments, Mapping) else {}
        self._task = task = asyncio.ensure_future(_ran(tool, given))
        try:
            await asyncio.wait({task})
        finally:
            self._task = None
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if task.cancelled():
            return failed(ABORTED)
        return task.result()


def calls_of(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The tool calls of an assistant message, in order."""
    return [block for block in message["content"] if block.get("type") == "toolCall"]


async def _ran(tool: Tool, arguments: Mapping[str, Any]) -> ToolOutcome:
    try:
        return await tool.run(arguments)
    except (OSError, ValueError, TypeError, KeyError, RuntimeError) as error:
        return failed(f"{tool.name} broke: {type(error).__name__}. Try it another way.")


def _result(call: Mapping[str, Any], outcome: ToolOutcome, timestamp: int) -> dict[str, Any]:
    message: dict[str, Any] = {
        "role": "toolResult",
        "toolCallId": call["id"],
        "toolName": call["name"],
        "content": outcome.content(),
    }
    if outcome.details is not None:
        message["details"] = dict(outcome.details)
    return {**message, "isError": outcome.is_error, "timestamp": timestamp}
