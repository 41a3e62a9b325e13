"""Run one long session, and measure it turn by turn."""

from __future__ import annotations

import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil
from tests.harness.long_session.talk import Kind, Talk

from recollect import Engine, open_memory
from recollect.values.reason import Cause
from recollect.wiring import open_store

SESSION: Final = "long"
SETTLE_SECONDS: Final = 120.0
_UNDURABLE: Final = frozenset({Cause.NOT_DURABLE, Cause.GIVEN_UP, Cause.STILL_OVER_NOT_DURABLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A session after so many turns."""

    turn: int
    archived_bytes: int
    """The text of all messages that the store holds."""
    folder_bytes: int
    """Every file of the data folder."""
    rss_bytes: int


@dataclass(slots=True, kw_only=True)
class Measured:
    """One session."""

    window_tokens: int
    turns: int
    over_limit: int = 0
    undurable: int = 0
    """Requests whose report names messages that are not durable."""
    failures: Counter[str] = field(default_factory=Counter)
    """Stages that failed or were late, by stage and cause."""
    messages: int = 0
    lost: int = 0
    """Messages of the history that the store does not hold."""
    cpu_ms: list[float] = field(default_factory=list)
    """Per turn: CPU of `prepare` and of all that it writes, in all threads of the process."""
    pace_ms: list[float] = field(default_factory=list)
    """Per turn: CPU of a fixed piece of work, which takes longer on a busy machine, too."""
    samples: list[Sample] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON; CPU times as the median of each stretch between two samples."""
        every = max(1, self.turns // max(1, len(self.samples)))
        stretches = [self.cpu_ms[at : at + every] for at in range(0, len(self.cpu_ms), every)]
        return {
            "window_tokens": self.window_tokens,
            "turns": self.turns,
            "messages": self.messages,
            "failures": dict(self.failures),
            "samples": [asdict(sample) for sample in self.samples],
            "cpu_p50_ms": [round(statistics.median(some), 2) for some in stretches if some],
            "figures": self.figures(),
        }

    def figures(self) -> dict[str, float]:
        """What is asked of a long session, as numbers."""
        last = self.samples[-1]
        early, late = (self._at_pace(span) for span in spans(self.turns))
        grown = _at_half(self.samples)
        return {
            "over_limit": self.over_limit,
            "undurable": self.undurable,
            "lost": self.lost,
            "folder_to_text": round(last.folder_bytes / last.archived_bytes, 3),
            "folder_growth_to_text_growth": round(
                (last.folder_bytes - grown.folder_bytes)
                / max(1, last.archived_bytes - grown.archived_bytes),
                3,
            ),
            "cpu_p50_ms": round(statistics.median(self._at_pace(slice(None))), 2),
            "cpu_p95_early_ms": round(percentile(early, 0.95), 2),
            "cpu_p95_late_ms": round(percentile(late, 0.95), 2),
            "cpu_p95_ratio": round(percentile(late, 0.95) / percentile(early, 0.95), 3),
            "cpu_p50_as_measured_ms": round(statistics.median(self.cpu_ms), 2),
            "rss_mb": round(last.rss_bytes / 1e6, 1),
            "rss_growth_to_history": round(
                (last.rss_bytes - grown.rss_bytes)
                / max(1, last.archived_bytes - grown.archived_bytes),
                3,
            ),
        }

    def _at_pace(self, span: slice) -> list[float]:
        """CPU times of some turns as on a quiet core: there the fixed work takes what it took at
        its quickest."""
        busy = statistics.median(self.pace_ms[span]) / percentile(self.pace_ms, 0.01)
        return [taken / busy for taken in self.cpu_ms[span]]


def spans(turns: int) -> tuple[slice, slice]:
    """Which turns are the early and the late ones: of 3,000 the 150th to 450th, and the last 300.
    The first turns, with nothing left out yet, are neither."""
    tenth = max(10, turns // 10)
    return slice(tenth // 2, tenth + tenth // 2), slice(turns - tenth, turns)


def percentile(values: Sequence[float], share: float) -> float:
    """The value that a share of them does not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def _at_half(samples: Sequence[Sample]) -> Sample:
    return samples[len(samples) // 2]


async def run_session(
    folder: Path,
    *,
    turns: int,
    window_tokens: int,
    kind: Kind = "agent",
    samples: int = 30,
    settings: dict[str, Any] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Measured:
    """A session of so many requests, each followed by its reply."""
    measured = Measured(window_tokens=window_tokens, turns=turns)
    talk = Talk(kind)
    every = max(1, turns // samples)
    count = _ArchivedBytes(folder / "memory.db")
    async with open_memory(
        store=folder / "memory.db", window_tokens=window_tokens, settings=settings or {}
    ) as memory:
        for turn in range(1, turns + 1):
            await _take_turn(memory, talk, measured)
            if turn % every == 0 or turn == turns:
                sample = Sample(
                    turn=turn,
                    archived_bytes=await count.now(),
                    folder_bytes=_bytes_in(folder),
                    rss_bytes=psutil.Process(os.getpid()).memory_info().rss,
                )
                measured.samples.append(sample)
                progress(f"{sample} {statistics.median(measured.cpu_ms[-every:]):.1f} ms")
        said = await memory._last_messages(SESSION)
    measured.messages = len(talk.messages)
    kept = await count.identities()
    measured.lost = len(talk.messages) - len(said) + sum(one not in kept for one in said)
    return measured


def _bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


async def _take_turn(memory: Engine, talk: Talk, measured: Measured) -> None:
    request = talk.request()
    begun = time.process_time()
    context = await memory.prepare(SESSION, request)
    await memory.settle(SETTLE_SECONDS)  # all that it writes
    measured.cpu_ms.append(1_000 * (time.process_time() - begun))
    measured.pace_ms.append(_pace_ms())
    report = context.report
    causes = {reason.cause for line in report.lines for reason in line.reasons}
    measured.over_limit += report.over_limit
    measured.undurable += not causes.isdisjoint(_UNDURABLE)
    measured.failures.update(f"{line.stage}: {line.cause.name}" for line in report.failures)
    await memory.observe(SESSION, talk.reply())
    await memory.settle(SETTLE_SECONDS, jobs=True)  # as while a model answers and a user reads


def _pace_ms() -> float:
    begun, total = time.process_time(), 0
    for number in range(20_000):
        total += number * number % 7
    return 1_000 * (time.process_time() - begun)


class _ArchivedBytes:
    """Counts the text that the store holds; of what was counted before nothing is read again."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._after = 0
        self._bytes = 0
        self._ids: set[str] = set()

    async def now(self) -> int:
        store = await open_store(str(self._file), space="default")
        try:
            while page := await store.page(after=self._after, limit=500):
                self._after = page[-1].sequence
                self._bytes += sum(len(one.segment.text.encode()) for one in page)
                self._ids.update(one.segment.message_id for one in page)
        finally:
            await store.close()
        return self._bytes

    async def identities(self) -> set[str]:
        await self.now()
        return self._ids
