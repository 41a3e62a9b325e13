"""Hooks around a compaction: other people's functions, run in parallel and on their own.

Owns who listens to what, and the events' shapes (OpenClaw's own names, which plugins know). A
hook that raises, hangs or answers nonsense costs a line in the notes and nothing else.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from recollect.boundary import Failure, attempted
from recollect.formats.json_text import decode
from recollect.values.compaction import Carried, CutPlan
from recollect.values.history import Entry

HookName: TypeAlias = Literal[
    "before_compaction", "after_compaction", "session_before_compact", "flush_due"
]
Hook: TypeAlias = Callable[[Mapping[str, Any], Mapping[str, Any]], Any]
"""Called with the event and its context (`agentId`, `sessionKey`, `workspaceDir`); may be async."""
HOOK_SECONDS = 10.0
"""How long a hook that only listens may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookAnswers:
    """What hooks answered, and what went wrong with them."""

    answers: tuple[Any, ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = ()


class Hooks:
    """The listeners of one engine."""

    def __init__(self) -> None:
        self._listening: dict[HookName, list[Hook]] = {}

    def on(self, name: HookName, hook: Hook) -> Callable[[], None]:
        """Listen; what is returned stops it."""
        if name not in get_args(HookName):
            raise ValueError(f"{name!r} is no hook; there are {', '.join(get_args(HookName))}")
        if not callable(hook):
            raise TypeError(f"a hook is a function, not a {type(hook).__name__}")
        listening = self._listening.setdefault(name, [])
        listening.append(hook)

        def stop() -> None:
            if hook in listening:
                listening.remove(hook)

        return stop

    def listens(self, name: HookName) -> bool:
        """Whether anybody does."""
        return bool(self._listening.get(name))

    async def fire(
        self,
        name: HookName,
        event: Mapping[str, Any],
        context: Mapping[str, Any],
        *,
        seconds: float = HOOK_SECONDS,
    ) -> HookAnswers:
        """Tell everybody at once, and wait no longer than this for any of them."""
        listening = tuple(self._listening.get(name, ()))
        if not listening:
            return HookAnswers()
        answers = await asyncio.gather(
            *[attempted(_called(hook, event, context, seconds)) for hook in listening],
            return_exceptions=True,  # a hook that was cancelled cancels nobody else
        )
        failed = [
            answer.error if isinstance(answer, Failure) else type(answer)
            for answer in answers
            if isinstance(answer, Failure | BaseException)
        ]
        return HookAnswers(
            answers=tuple(
                answer for answer in answers if not isinstance(answer, Failure | BaseException)
            ),
            notes=tuple(f"a {name} hook failed: {error.__name__}" for error in failed),
        )


async def _called(
    hook: Hook, event: Mapping[str, Any], context: Mapping[str, Any], seconds: float
) -> Any:
    async with asyncio.timeout(seconds):
        if inspect.iscoroutinefunction(hook):
            return await hook(event, context)
        answer = await asyncio.to_thread(hook, event, context)  # it may block
        return await answer if inspect.isawaitable(answer) else answer


def preparation(
    plan: CutPlan,
    carried: Carried,
    *,
    tokens_before: int,
    previous_summary: str,
    reserve_tokens: int,
) -> dict[str, Any]:
    """What `session_before_compact` is told, in the shape OpenClaw gives it."""
    record: dict[str, Any] = {
        "messagesToSummarize": _messages(plan.history),
        "turnPrefixMessages": _messages(plan.turn_prefix),
        "firstKeptEntryId": plan.anchor,
        "tokensBefore": tokens_before,
        "fileOps": {"read": list(carried.read_files), "edited": list(carried.modified_files)},
        "settings": {"reserveTokens": reserve_tokens},
        "isSplitTurn": plan.splits_a_turn,
    }
    if previous_summary:
        record["previousSummary"] = previous_summary
    return record


def supplied_summary(answers: tuple[Any, ...]) -> str | None:
    """The summary that a hook supplied; the first one counts, an empty one is none."""
    for answer in answers:
        compaction = answer.get("compaction") if isinstance(answer, Mapping) else None
        summary = compaction.get("summary") if isinstance(compaction, Mapping) else None
        if isinstance(summary, str) and summary.strip():
            return summary
    return None


def cancelled(answers: tuple[Any, ...]) -> bool:
    """Whether a hook said that there shall be no compaction now."""
    return any(isinstance(answer, Mapping) and answer.get("cancel") is True for answer in answers)


def _messages(entries: tuple[Entry, ...]) -> list[Any]:
    return [decode(entry.raw) for entry in entries]
