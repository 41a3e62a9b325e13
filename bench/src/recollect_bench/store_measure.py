"""Times a store beside hand-written SQL: the same work, turn and turn about, in one loop.

Owns the pairing: every batch and query goes to both, and who is first changes each time, so
that what else the machine does hits both alike. It must never time the making of the data.
Always holds: times are wall clock as the caller of `await` sees them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from recollect.core.ports import Store
from recollect.core.values.batch import Batch
from recollect.core.values.recall import CandidateQuery


class Baseline(Protocol):
    """The same work by hand-written SQL."""

    def write(self, batch: Batch) -> None:
        """All of a batch in one durable transaction."""
        ...

    def candidates(self, query: CandidateQuery) -> tuple[list[tuple[Any, ...]], Mapping[str, int]]:
        """Rows that begin with segment and ordinal; in how many passages each word stands."""
        ...

    def settle(self) -> None:
        """What an operator would let happen between loading and asking."""
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """Seconds of the same pieces of work, done by the store and by the baseline."""

    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    agreements: list[float] = field(default_factory=list)
    """Of each query: the share of the baseline's candidates that the store found as well."""

    def __add__(self, other: Paired) -> Paired:
        return Paired(
            ours=self.ours + other.ours,
            theirs=self.theirs + other.theirs,
            agreements=self.agreements + other.agreements,
        )

    @property
    def throughput_ratio(self) -> float:
        """Ours over theirs; above 1 the store is faster."""
        return sum(self.theirs) / sum(self.ours)

    @property
    def time_ratio(self) -> float:
        """Ours over theirs at the median; below 1 the store is faster."""
        return statistics.median(self.ours) / statistics.median(self.theirs)


def milliseconds(seconds: Sequence[float], *, share: float = 0.5) -> float:
    """The median or another quantile, in milliseconds."""
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000


async def write_to_both(
    store: Store, baseline: Baseline, batches: Sequence[Batch], *, warm: int = 0
) -> Paired:
    """Write every batch to both; the first `warm` ones are not counted."""
    paired = Paired()
    for turn, batch in enumerate(batches):
        for ours in (turn % 2 == 0, turn % 2 == 1):
            started = time.perf_counter()
            if ours:
                await store.write(batch)
            else:
                baseline.write(batch)
            if turn >= warm:
                (paired.ours if ours else paired.theirs).append(time.perf_counter() - started)
    return paired


def write_to_baseline(baseline: Baseline, batches: Sequence[Batch]) -> list[float]:
    """Seconds of each batch, written to hand-written SQL alone."""
    taken: list[float] = []
    for batch in batches:
        started = time.perf_counter()
        baseline.write(batch)
        taken.append(time.perf_counter() - started)
    return taken


async def ask_both(
    store: Store, baseline: Baseline, queries: Sequence[CandidateQuery], *, warm: int
) -> Paired:
    """Ask both every query; the first `warm` ones are not counted."""
    paired = Paired()
    for turn, query in enumerate(queries):
        found: set[tuple[str, int]] = set()
        expected: set[tuple[str, int]] = set()
        for ours in (turn % 2 == 0, turn % 2 == 1):
            started = time.perf_counter()
            if ours:
                answer = await store.candidates(query)
                taken = time.perf_counter() - started
                found = {(passage.segment, passage.ordinal) for passage in answer.passages}
            else:
                rows, _ = baseline.candidates(query)
                taken = time.perf_counter() - started
                expected = {(row[0], row[1]) for row in rows}
            if turn >= warm:
                (paired.ours if ours else paired.theirs).append(taken)
        if turn >= warm and expected:
            paired.agreements.append(len(found & expected) / len(expected))
    return paired


async def ask_each(
    store: Store, other: Store, queries: Sequence[CandidateQuery], *, warm: int
) -> tuple[list[float], list[float]]:
    """Seconds of each query of two stores, turn and turn about."""
    taken: tuple[list[float], list[float]] = ([], [])
    for turn, query in enumerate(queries):
        for which in (turn % 2, 1 - turn % 2):
            started = time.perf_counter()
            await (store, other)[which].candidates(query)
            taken[which].append(time.perf_counter() - started)
    return taken[0][warm:], taken[1][warm:]


async def ask(store: Store, queries: Sequence[CandidateQuery], *, warm: int) -> list[float]:
    """Seconds of each query of the store alone; the first `warm` ones are not counted."""
    taken: list[float] = []
    for query in queries:
        started = time.perf_counter()
        await store.candidates(query)
        taken.append(time.perf_counter() - started)
    return taken[warm:]


async def write(
    store: Store, batches: Sequence[Batch], progress: Callable[[str], None] = lambda _: None
) -> None:
    """Load a store without timing it."""
    for done, batch in enumerate(batches):
        if done % 50 == 0:
            progress(f"{done:,} of {len(batches):,} batches")
        await store.write(batch)
