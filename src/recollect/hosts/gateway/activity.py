"""The gateway's newest requests, and the clients that watch them. They are held in memory only,
without message content or keys: sizes, times, names and reasons."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, Final

from recollect.core.values.model import Usage
from recollect.core.values.report import Report

MOST_RECORDS: Final = 1_000
MOST_REPORTS: Final = 64
MOST_BEHIND: Final = 1_000
"""If a watcher has more unread records than this, the oldest are dropped."""


class Handling(Enum):
    """How a request was handled. The value is shown to people."""

    SHAPED = "shaped"
    AS_IT_CAME = "as it came"
    PASSED = "passed through"
    WITHOUT_MEMORY = "without memory"
    """Memory failed, so the best view without memory was sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeRecord:
    """One request, from its arrival to the end of its reply."""

    number: int
    at: float
    method: str
    path: str
    client: str
    kind: str
    space: str | None = None
    session: str | None = None
    turn: int | None = None
    handling: str = Handling.PASSED.value
    why: str = ""
    model: str | None = None
    tokens_came: int | None = None
    tokens_sent: int | None = None
    usage: dict[str, int] | None = None
    dollars: float | None = None
    """Cost at the model's price, including summaries since the last turn; None if price or usage is
    unknown."""
    done: tuple[str, ...] = ()
    not_recalled: str = ""
    """Why recall found nothing."""
    failed: tuple[str, ...] = ()
    overflows: int = 0
    status: int | None = None
    added_ms: float = 0.0
    first_byte_ms: float | None = None
    seconds: float = 0.0
    outcome: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def described(report: Report) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a report's fields for the record, and the whole report, both without content. This is
    slow."""
    lines = {
        "session": report.session,
        "turn": report.turn,
        "model": report.model,
        "tokens_came": report.tokens_before,
        "tokens_sent": report.tokens_after,
        "done": tuple(report.done()),
        "not_recalled": report.not_recalled(),
        "failed": tuple(f"{line.stage}: {line.said}" for line in report.failures),
    }
    return lines, {**report.to_dict(), "summary": report.summary()}


def usage_dict(usage: Usage | None) -> dict[str, int] | None:
    if usage is None:
        return None
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
    }


class Activity:
    """The newest records, and their watchers."""

    def __init__(self) -> None:
        self._records: deque[ExchangeRecord] = deque(maxlen=MOST_RECORDS)
        self._watchers: set[asyncio.Queue[ExchangeRecord]] = set()
        self._reports: OrderedDict[tuple[str, str], dict[str, Any]] = OrderedDict()
        self._number = 0

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def add(self, record: ExchangeRecord) -> None:
        self._records.append(record)
        for queue in self._watchers:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(record)

    def keep_report(self, space: str, report: dict[str, Any]) -> None:
        key = (space, report["session"])
        self._reports[key] = report
        self._reports.move_to_end(key)
        while len(self._reports) > MOST_REPORTS:
            self._reports.popitem(last=False)

    def report(self, name: str) -> dict[str, Any] | None:
        """Return the newest report of the session whose name ends with `name`; None if there is
        none."""
        ending = (key for key in reversed(self._reports) if key[1].endswith(name))
        return self._reports.get(next(ending, ("", "")))

    def newest(self, count: int) -> tuple[ExchangeRecord, ...]:
        return tuple(self._records)[-count:] if count else ()

    async def follow(self, count: int = 0) -> AsyncGenerator[ExchangeRecord]:
        """Yield the newest records, then each new one when its request ends."""
        queue: asyncio.Queue[ExchangeRecord] = asyncio.Queue(MOST_BEHIND)
        self._watchers.add(queue)
        try:
            for record in self.newest(count):
                yield record
            while True:
                yield await queue.get()
        finally:
            self._watchers.discard(queue)
