"""Which call a tool result answers, where the log has no ids: by order and name.

A result belongs to the oldest open call of its name. Two things close a call without result:
a newer call of its name after somebody spoke, and, where a stretch of the log has fewer
results than calls of that name, a newer call made after other results had come in (a model is
not asked again while results are due). So one lost result never shifts the ones behind it.
Never guesses across names: a result that no open call fits answers none.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEvent:
    """What one line of the log means for pairing."""

    kind: Literal["spoken", "call", "result"]
    name: str | None = None
    id: str | None = None
    """The id the log itself gives, if it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenCall:
    event: int
    stretch: int
    """How many messages were spoken before it."""
    batch: int
    """How often calls had followed results before it."""


def answered_calls(events: Sequence[LogEvent]) -> dict[int, int]:
    """For each result that has one, the position of its call, by the result's position."""
    lossy = _lossy_names(events)
    claimed = {event.id for event in events if event.kind == "result" and event.id is not None}
    open_calls: dict[str | None, deque[_OpenCall]] = {}
    by_id: dict[str, int] = {}
    answered: dict[int, int] = {}
    taken: set[int] = set()
    stretch = batch = 0
    for at, event in enumerate(events):
        if event.kind == "spoken":
            stretch += 1
        elif event.kind == "call" and event.id in claimed:
            by_id[event.id or ""] = at
        elif event.kind == "call":
            if at and events[at - 1].kind == "result":
                batch += 1
            waiting = open_calls.setdefault(event.name, deque())
            while waiting and (
                waiting[0].stretch != stretch
                or (waiting[0].batch != batch and (stretch, event.name) in lossy)
            ):
                waiting.popleft()
            waiting.append(_OpenCall(event=at, stretch=stretch, batch=batch))
        else:
            call = (
                by_id.pop(event.id, None)
                if event.id is not None
                else _oldest_open(event.name, open_calls, taken)
            )
            if call is not None:
                taken.add(call)
                answered[at] = call
    return answered


def _oldest_open(
    name: str | None, open_calls: dict[str | None, deque[_OpenCall]], taken: set[int]
) -> int | None:
    """The call a result without id answers; without a name, the oldest of all."""
    queues = [open_calls[name]] if name in open_calls else []
    if name is None:
        queues = list(open_calls.values())
    heads = []
    for waiting in queues:
        while waiting and waiting[0].event in taken:
            waiting.popleft()
        if waiting:
            heads.append(waiting[0].event)
    return min(heads, default=None)


def _lossy_names(events: Sequence[LogEvent]) -> set[tuple[int, str | None]]:
    """Stretches and names with fewer results than calls: there some result is missing."""
    due: Counter[tuple[int, str | None]] = Counter()
    stretch = 0
    for event in events:
        if event.kind == "spoken":
            stretch += 1
        else:
            due[stretch, event.name] += 1 if event.kind == "call" else -1
    return {key for key, count in due.items() if count > 0}
