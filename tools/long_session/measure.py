"""Run one long session, and measure it turn by turn."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

from recollect import Engine, open_memory
from recollect.adapters.wiring import open_store
from recollect.core.values.history import newest_cut
from recollect.core.values.reason import Cause
from recollect_bench.live.run import Summarizer
from tools.long_session.talk import Kind, Talk

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
    compactions: int = 0
    """Requests whose past was replaced by another summary than that of the request before."""
    cut_turn: int | None = None
    """When the newest summary was put in."""
    messages: int = 0
    lost: int = 0
    """Messages of the history that the store does not hold."""
    cpu_ms: list[float] = field(default_factory=list)
    """Per turn: CPU of `prepare` and of all that it writes, in all threads of the process."""
    pace_ms: list[float] = field(default_factory=list)
    """Per turn: CPU of a fixed piece of work, which takes longer on a busy machine, too."""
    samples: list[Sample] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON; CPU times of each stretch between two samples."""
        every = max(1, self.turns // max(1, len(self.samples)))
        stretches = [self.cpu_ms[at : at + every] for at in range(0, len(self.cpu_ms), every)]
        return {
            "window_tokens": self.window_tokens,
            "turns": self.turns,
            "messages": self.messages,
            "failures": dict(self.failures),
            "samples": [asdict(sample) for sample in self.samples],
            "cpu_p50_ms": [round(statistics.median(some), 2) for some in stretches if some],
            "cpu_p95_ms": [round(percentile(some, 0.95), 2) for some in stretches if some],
            "figures": self.figures(),
            "as_measured": self.as_measured(),
        }

    def figures(self) -> dict[str, float]:
        """What is asked of a long session, as numbers; CPU times as on a quiet core."""
        last, third = self.samples[-1], self.samples[max(0, len(self.samples) // 3 - 1)]
        early, late = (percentile(self._at_pace(span), 0.95) for span in spans(self.turns))
        return {
            "over_limit": self.over_limit,
            "undurable": self.undurable,
            "lost": self.lost,
            "compactions": self.compactions,
            "folder_to_text": round(last.folder_bytes / last.archived_bytes, 3),
            "cpu_p50_ms": round(statistics.median(self._at_pace(slice(None))), 2),
            "cpu_p95_ratio": round(late / early, 3),
            "rss_to_rss_at_a_third": round(last.rss_bytes / third.rss_bytes, 3),
        }

    def as_measured(self) -> dict[str, float]:
        """What the CPU times were on this machine, with all that ran on it, and how much longer
        than at its quickest the fixed work took."""
        figures = {"cpu_p50_ms": round(statistics.median(self.cpu_ms), 2)}
        for name, span in zip(("early", "late"), spans(self.turns), strict=True):
            figures[f"cpu_p50_{name}_ms"] = round(statistics.median(self.cpu_ms[span]), 2)
            figures[f"cpu_p95_{name}_ms"] = round(percentile(self.cpu_ms[span], 0.95), 2)
            figures[f"slowed_{name}"] = round(self._slowed(span), 3)
        return figures

    def of_last(self, turns: int) -> str:
        """A line on the last turns."""
        taken, pace = self.cpu_ms[-turns:], statistics.median(self.pace_ms[-turns:])
        return (
            f"cpu p50 {statistics.median(taken):.1f} p95 {percentile(taken, 0.95):.1f} ms,"
            f" pace {pace:.2f} ms, {self.compactions} compactions,"
            f" {self.over_limit} over the limit, {self.undurable} not durable,"
            f" {dict(self.failures)}"
        )

    def _at_pace(self, span: slice) -> list[float]:
        slowed = self._slowed(span)
        return [taken / slowed for taken in self.cpu_ms[span]]

    def _slowed(self, span: slice) -> float:
        return statistics.median(self.pace_ms[span]) / percentile(self.pace_ms, 0.01)


def spans(turns: int) -> tuple[slice, slice]:
    """Which turns are the early and the late ones: of 3,000 the 150th to 450th, and the last 300.
    The first turns, with nothing left out yet, are neither."""
    tenth = max(10, turns // 10)
    return slice(tenth // 2, tenth + tenth // 2), slice(turns - tenth, turns)


def percentile(values: Sequence[float], share: float) -> float:
    """The value that a share of them does not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


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
        store=folder / "memory.db",
        window_tokens=window_tokens,
        model=Summarizer("junk"),
        settings=settings or {},
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
                progress(f"{json.dumps(asdict(sample))} {measured.of_last(every)}")
        said = (await memory.parts.sessions.load_state(SESSION)).ids
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
    cut = newest_cut(report.edits)
    if cut is not None and cut.turn != measured.cut_turn:
        measured.cut_turn = cut.turn
        measured.compactions += 1
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
