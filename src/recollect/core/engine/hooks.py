"""Hooks around a compaction: other people's functions, run in parallel and on their own.

Owns who listens to what, and the events' shapes (OpenClaw's own names, which plugins know). A
hook that raises, hangs or answers nonsense costs a line in the notes and nothing else.
"""

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
from recollect.core.values.history import Entry
from recollect.core.values.message import EntryKey

HookName: TypeAlias = Literal[
    "before_compaction", "after_compaction", "session_before_compact", "flush_due"
]
Hook: TypeAlias = Callable[[Mapping[str, Any], Mapping[str, Any]], Any]
"""Called with the event and its context (`agentId`, `sessionKey`, `workspaceDir`,
`messageProvider`); may be async."""
HOOK_SECONDS = 10.0
"""How long a hook that only listens may take."""


class AbortSignal:
    """Tells a hook that nobody waits for it any more; plain functions read `aborted`."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.reason = ""

    @property
    def aborted(self) -> bool:
        """The compaction was ended, or the hook's time is over."""
        return self._event.is_set()

    async def wait(self) -> None:
        """Until it is aborted."""
        await self._event.wait()

    def abort(self, reason: str) -> None:
        """Tell everybody who has it; the first reason counts."""
        if not self.aborted:
            self.reason = reason
            self._event.set()


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
        signal = event.get("signal")
        try:
            answers = await asyncio.gather(
                *[attempted(_called(hook, event, context, seconds)) for hook in listening],
                return_exceptions=True,  # a hook that was cancelled cancels nobody else
            )
        except asyncio.CancelledError:
            if isinstance(signal, AbortSignal):
                signal.abort("the compaction was ended")
            raise
        late = any(isinstance(one, Failure) and one.error is TimeoutError for one in answers)
        if late and isinstance(signal, AbortSignal):
            signal.abort("its time is over")
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
class SuppliedCompaction:
    """What a hook supplies in place of a summary of the model's."""

    summary: str = field(repr=False)
    first_kept: EntryKey | None = None
    """The first message to keep, by its id in `preparation`; None: as planned."""
    details: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What goes into the result's `details`; `readFiles` and `modifiedFiles` are carried on."""

    def files(self, name: str) -> tuple[str, ...] | None:
        """A list of paths in the details; None where there is none."""
        listed = self.details.get(name)
        if not isinstance(listed, list | tuple):
            return None
        return tuple(dict.fromkeys(path for path in listed if isinstance(path, str) and path))


def supplied_compaction(answers: tuple[Any, ...]) -> SuppliedCompaction | None:
    """What a hook supplied; the first one counts, one with an empty summary is none."""
    for answer in answers:
        compaction = answer.get("compaction") if isinstance(answer, Mapping) else None
        if not isinstance(compaction, Mapping):
            continue
        summary, kept = compaction.get("summary"), compaction.get("firstKeptEntryId")
        details = compaction.get("details")
        if isinstance(summary, str) and summary.strip():
            return SuppliedCompaction(
                summary=summary,
                first_kept=EntryKey(kept) if isinstance(kept, str) and kept else None,
                details=_as_json(details) if isinstance(details, Mapping) else {},
            )
    return None


def _as_json(details: Mapping[str, Any]) -> dict[str, Any]:
    kept = {str(key): value for key, value in details.items()}
    try:
        plain = json.loads(json.dumps(kept))
    except (TypeError, ValueError, RecursionError):
        plain = {key: value for key, value in kept.items() if isinstance(value, str | int | float)}
    return dict(plain)


def cancelled(answers: tuple[Any, ...]) -> bool:
    """Whether a hook said that there shall be no compaction now."""
    return any(isinstance(answer, Mapping) and answer.get("cancel") is True for answer in answers)


def _messages(entries: tuple[Entry, ...]) -> list[Any]:
    return [decode(entry.raw) for entry in entries]
