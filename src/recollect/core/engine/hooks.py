"""Hooks around a compaction, with OpenClaw's events. A hook that raises, hangs or returns an
unusable answer only adds a note."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from recollect.core.boundary import Failure, attempted
from recollect.core.formats.json_text import decode
from recollect.core.values.compaction import Carried, CutPlan

HookName: TypeAlias = Literal[
    "before_compaction", "after_compaction", "session_before_compact", "flush_due"
]
Hook: TypeAlias = Callable[[Mapping[str, Any], Mapping[str, Any]], Any]
HOOK_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HookAnswers:
    """The answers of hooks, and a note on each that failed."""

    answers: tuple[Any, ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = ()

    @property
    def cancelled(self) -> bool:
        """True if a hook vetoes the compaction."""
        return any(isinstance(one, Mapping) and one.get("cancel") is True for one in self.answers)


class Hooks:
    """The listeners of one engine."""

    def __init__(self) -> None:
        self._listening: dict[HookName, list[Hook]] = {}

    def on(self, name: HookName, hook: Hook) -> Callable[[], None]:
        """Add a listener; the returned function removes it."""
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
        """True if a hook listens to this event."""
        return bool(self._listening.get(name))

    async def fire(
        self,
        name: HookName,
        event: Mapping[str, Any],
        context: Mapping[str, Any],
        *,
        seconds: float = HOOK_SECONDS,
    ) -> HookAnswers:
        """Call all listeners at once, and wait at most this long for each."""
        answers = await asyncio.gather(
            *[
                attempted(_called(hook, event, context, seconds))
                for hook in self._listening.get(name, ())
            ],
            return_exceptions=True,  # a cancelled hook cancels no other
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
    """The record that `session_before_compact` gets, in the shape of OpenClaw."""
    record: dict[str, Any] = {
        "messagesToSummarize": [decode(entry.raw) for entry in plan.history],
        "turnPrefixMessages": [decode(entry.raw) for entry in plan.turn_prefix],
        "firstKeptEntryId": plan.anchor,
        "cutEntryIds": [entry.key for entry in plan.summarized],
        "keptEntryIds": [entry.key for entry in plan.kept],
        "tokensBefore": tokens_before,
        "fileOps": {"read": list(carried.read_files), "edited": list(carried.modified_files)},
        "settings": {"reserveTokens": reserve_tokens},
        "isSplitTurn": plan.splits_a_turn,
    }
    if previous_summary:
        record["previousSummary"] = previous_summary
    return record


@dataclass(frozen=True, slots=True, kw_only=True)
class SuppliedSummary:
    """A summary that a hook supplies in place of the model's."""

    text: str = field(repr=False)
    details: Mapping[str, Any] = field(default_factory=dict, repr=False)
    first_kept: str | None = None


def supplied_summary(answers: HookAnswers) -> SuppliedSummary | None:
    """The first summary that a hook supplied; an empty one is none."""
    for answer in answers.answers:
        compaction = answer.get("compaction") if isinstance(answer, Mapping) else None
        summary = compaction.get("summary") if isinstance(compaction, Mapping) else None
        if isinstance(compaction, Mapping) and isinstance(summary, str) and summary.strip():
            details, kept = compaction.get("details"), compaction.get("firstKeptEntryId")
            return SuppliedSummary(
                text=summary,
                details=_as_json(details) if isinstance(details, Mapping) else {},
                first_kept=kept if isinstance(kept, str) and kept else None,
            )
    return None


def _as_json(details: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return dict(json.loads(json.dumps({str(key): value for key, value in details.items()})))
    except (TypeError, ValueError, RecursionError):
        return {}
