"""Runs the tool calls of a reply, one after the other, each ending in a recorded result.

Always holds, once `settle` was awaited: every call of a recorded reply has exactly one result, in
the calls' order, however the turn ended; a tool that breaks is an error result, not the turn's
end. A reply that was cut off at the output limit has its calls answered, and none of them run.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from recollect.agent.conversation import Conversation
from recollect.agent.durably import durably
from recollect.agent.events import CallBegan, CallEnded
from recollect.agent.tools.outcome import CUT_OFF, Tool, ToolOutcome, failed
from recollect.boundary import Failure, attempted

ABORTED = "The user stopped the turn while this ran."
NOT_RUN = "Not run: the user stopped the turn before."
_UNFINISHED = frozenset({"error", "aborted"})
"""Replies that are never sent again: nothing has to answer their calls."""


class CallRunner:
    """Runs calls with a set of tools."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._task: asyncio.Task[ToolOutcome] | None = None
        self._begun = 0
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
        cut_off = message.get("stopReason") == "length"
        for call in calls_of(message):
            arguments = call.get("arguments") or {}
            yield CallBegan(id=call["id"], name=call["name"], arguments=arguments)
            if self.aborted:
                outcome = failed(NOT_RUN)
            elif cut_off:
                outcome = failed(CUT_OFF)
            else:
                self._begun += 1
                outcome = await self._outcome(call)
            await durably(conversation.keep, _result(call, outcome, conversation.milliseconds()))
            yield CallEnded(
                id=call["id"], name=call["name"], is_error=outcome.is_error, text=outcome.text
            )

    async def settle(self, conversation: Conversation) -> None:
        """Answer what nobody answered: whoever listened is gone, or something broke."""
        begun, self._begun = self._begun, 0
        asked, answered = _last_calls(conversation)
        for at, call in enumerate(asked[answered:], answered):
            told = failed(ABORTED if at < begun else NOT_RUN)
            await durably(conversation.keep, _result(call, told, conversation.milliseconds()))

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
    """What a tool answers; one of the host's may break in any way."""

    async def work() -> ToolOutcome:
        return await tool.run(arguments)

    outcome = await attempted(work())
    if isinstance(outcome, Failure):
        return failed(f"{tool.name} broke: {outcome.error.__name__}. Try it another way.")
    if not isinstance(outcome, ToolOutcome):
        return failed(f"{tool.name} broke: its answer is no ToolOutcome. Try it another way.")
    return outcome


def _last_calls(conversation: Conversation) -> tuple[list[Mapping[str, Any]], int]:
    """The calls of the newest reply, and how many of them have a result; off the record itself."""
    answered = 0
    for one in reversed(conversation.shown()):
        role = one.message.get("role")
        if role == "toolResult":
            answered += 1
        elif role == "assistant" and one.message.get("stopReason") not in _UNFINISHED:
            return calls_of(one.message), answered
        elif role == "user":
            break
    return [], 0


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
