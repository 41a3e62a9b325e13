"""The memory tools among the agent's own.

Their definitions are sent with every request, so a small window gets the search alone, and answers
are bounded by a share of the window. They see all sessions unless `recall.scope = "session"`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from recollect.agent.tools.outcome import Tool, ToolOutcome
from recollect.core.engine.engine import Engine
from recollect.core.engine.lookup import MemoryLookup
from recollect.core.values.history import SessionId
from recollect.hosts.tools.handler import ANSWER_TOKENS, Confirm, memory_tools

SMALL_WINDOW_TOKENS: Final = 16_000
"""Below it all five would take more than a tenth of the window."""
_ANSWER_SHARE: Final = 8
"""An answer takes at most this part of the window: an eighth."""


def memory_agent_tools(
    engine: Engine,
    session: Callable[[], SessionId],
    *,
    window_tokens: int | None,
    confirm: Confirm | None = None,
) -> tuple[Tool, ...]:
    """Create the memory tools for a window, none without a store; `session` returns the session."""
    if not MemoryLookup(engine).is_stored:
        return ()
    answer_tokens = ANSWER_TOKENS
    if window_tokens is not None:
        answer_tokens = min(answer_tokens, window_tokens // _ANSWER_SHARE)
    small = window_tokens is not None and window_tokens < SMALL_WINDOW_TOKENS

    def bound(name: str) -> Callable[[Mapping[str, Any]], Any]:
        async def run(arguments: Mapping[str, Any]) -> ToolOutcome:
            own = session() if engine.settings.recall.scope == "session" else None
            tools = memory_tools(engine, session=own, confirm=confirm, answer_tokens=answer_tokens)
            answer = await tools.call(name, arguments)
            return ToolOutcome(text=answer.text, is_error=answer.is_error)

        return run

    return tuple(
        Tool(
            name=one["name"],
            description=one["description"],
            parameters=one["inputSchema"],
            run=bound(one["name"]),
        )
        for one in memory_tools(engine).definitions("mcp")
        if not small or one["name"] == "memory_search"
    )
