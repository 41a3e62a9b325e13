"""`recollect bench store`: what a store costs beside hand-written SQL, on the same data.

Owns the course of a run and the names of its figures. Both sides write the same batches with
the same durability and answer the same queries in one process, turn and turn about. It must
never touch data of yours: SQLite gets a temporary file, PostgreSQL a database of its own that
is dropped. Always holds: a figure is measured in this run, and one that was not is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, repeat
from statistics import mean, median

from recollect.core.values.batch import Batch
from recollect.core.values.segment import NewSegment
from recollect_bench.result import BenchResult, Parts
from recollect_bench.store_data import vector_batches
from recollect_bench.store_measure import (
    Paired,
    ask_both,
    milliseconds,
    write_to_baseline,
    write_to_both,
)
from recollect_bench.store_target import Loaded, PostgresTarget, SqliteTarget, open_target

Progress = Callable[[str], None]

TURN_SIZES = (1, 2, 3)
IMPORT_SIZE = 50
VECTOR_SEGMENTS = 64
WARM_BATCHES = 10
WARM_QUERIES = 30
DEFAULT_SPACES = 20_000
NOTES = (
    "ratios are against hand-written SQL on the same engine, data and run; both take turns",
    "ingest_ratio: throughput over all of the mix: half of the messages in batches of a turn",
    "  (1 to 3 messages), half in those of an import (50), each with its job and session",
    "query: lexical top 50 + vector top 50 of 384 dimensions, with counts and similarities",
    "agreement: the share of the baseline's candidates that the store finds too; the baseline",
    "  ranks by its engine's own formula (SQLite) or by vectors of half precision (PostgreSQL)",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much is written and asked."""

    small: int = 2_000
    """Passages at the first measurement of queries."""
    large: int | None = 20_000
    """And at the second; None leaves it out."""
    turn_segments: int = 560
    """How many of the first segments come in batches of a turn; the others as an import's."""
    queries: int = 300
    opens: int = 7


QUICK = Scale(large=None, turn_segments=60, queries=40, opens=1)


def run(
    progress: Progress = lambda _: None,
    *,
    store: str = "sqlite:",
    quick: bool = False,
    large: bool = False,
    spaces: int = DEFAULT_SPACES,
) -> BenchResult:
    """Measure the store that the URL names against hand-written SQL on the same engine."""
    if not quick:
        return asyncio.run(_run(progress, store, Scale(), large=large, spaces=spaces))
    result = asyncio.run(_run(progress, store, QUICK, large=False, spaces=0))
    note = "a quick run: fewer batches of a turn, fewer queries; its figures are not to be quoted"
    return replace(result, notes=(*result.notes, note))


async def _run(
    progress: Progress, url: str, scale: Scale, *, large: bool, spaces: int
) -> BenchResult:
    async with open_target(url) as target:
        baseline = target.baseline()
        store = await target.open("measured")
        loaded = Loaded(target=target, store=store, baseline=baseline)
        parts = Parts()
        try:
            await _first_passages(loaded, scale, progress)
            if scale.large is not None:
                with parts.part("more passages"):
                    await _more_passages(loaded, scale, progress)
            if isinstance(target, SqliteTarget):
                with parts.part("opening"):
                    await _opening(loaded, target, scale, progress)
            elif isinstance(target, PostgresTarget) and scale.large is not None:
                from recollect_bench import store_fleet

                if spaces:
                    with parts.part("many spaces"):
                        await store_fleet.flatness(loaded, target, spaces=spaces, progress=progress)
                if large:
                    with parts.part("a large space"):
                        await store_fleet.large_space(loaded, target, progress=progress)
        finally:
            await store.close()
            baseline.close()
        return BenchResult(
            bench="store",
            figures=loaded.figures,
            baselines=loaded.baselines,
            notes=(*NOTES, *target.notes),
            failures=tuple(parts.failures),
        )


async def _first_passages(loaded: Loaded, scale: Scale, progress: Progress) -> None:
    """Write to empty stores in batches of a turn and of an import, then ask."""
    progress("writing in batches of a turn and of an import")
    segments = loaded.corpus.until(scale.small)
    turn_batches = loaded.turns.batches(segments[: scale.turn_segments], cycle(TURN_SIZES))
    import_batches = loaded.turns.batches(segments[scale.turn_segments :], repeat(IMPORT_SIZE))
    by_turns = await write_to_both(loaded.store, loaded.baseline, turn_batches, warm=WARM_BATCHES)
    imported = await write_to_both(loaded.store, loaded.baseline, import_batches)
    loaded.segments = segments
    loaded.figures |= {
        "ingest_ratio": (by_turns + imported).throughput_ratio,
        "ingest_ratio_turn": by_turns.throughput_ratio,
        "ingest_ratio_import": imported.throughput_ratio,
        "write_p50_ms_turn": milliseconds(by_turns.ours),
        "write_p50_ms_import": milliseconds(imported.ours),
    }
    loaded.baselines |= {
        "write_p50_ms_turn": milliseconds(by_turns.theirs),
        "write_p50_ms_import": milliseconds(imported.theirs),
    }
    _unindexed(loaded, by_turns + imported, [*turn_batches[WARM_BATCHES:], *import_batches])
    await _vectors_and_queries(loaded, segments, scale, "2k", progress)


def _unindexed(loaded: Loaded, indexed: Paired, batches: Sequence[Batch]) -> None:
    """The same batches by hand-written SQL that leaves the index of words to later."""
    baseline = loaded.target.unindexed_baseline()
    if baseline is not None:
        taken = write_to_baseline(baseline, batches)
        baseline.close()
        loaded.figures["ingest_ratio_unindexed"] = sum(taken) / sum(indexed.ours)


async def _more_passages(loaded: Loaded, scale: Scale, progress: Progress) -> None:
    """Fill both up as an import does, and ask again."""
    assert scale.large is not None
    progress("importing up to 20,000 passages")
    more = loaded.corpus.until(scale.large - scale.small, first=len(loaded.segments))
    batches = loaded.turns.batches(more, repeat(IMPORT_SIZE))
    filled = await write_to_both(loaded.store, loaded.baseline, batches)
    loaded.segments = loaded.segments + more
    loaded.figures["ingest_ratio_import_20k"] = filled.throughput_ratio
    await _vectors_and_queries(loaded, more, scale, "20k", progress)
    if isinstance(loaded.target, PostgresTarget):
        loaded.figures["hybrid_p50_ms_20k"] = loaded.figures["query_p50_ms_20k"]


async def _vectors_and_queries(
    loaded: Loaded, new: Sequence[NewSegment], scale: Scale, size: str, progress: Progress
) -> None:
    progress("writing vectors")
    batches = vector_batches(loaded.corpus, new, size=VECTOR_SEGMENTS)
    embedded = await write_to_both(loaded.store, loaded.baseline, batches)
    loaded.figures[f"vector_ingest_ratio_{size}"] = embedded.throughput_ratio
    progress("settling")
    loaded.figures |= await loaded.target.settle(loaded.store, size=size)
    loaded.baseline.settle()
    progress(f"asking {scale.queries} hybrid queries at {size}")
    queries = loaded.corpus.queries(loaded.segments, scale.queries + WARM_QUERIES)
    asked = await ask_both(loaded.store, loaded.baseline, queries, warm=WARM_QUERIES)
    loaded.figures |= {f"query_ratio_{size}": asked.time_ratio, **_query_figures(asked.ours, size)}
    loaded.baselines |= _query_figures(asked.theirs, size)
    loaded.figures[f"agreement_{size}"] = mean(asked.agreements)


def _query_figures(seconds: Sequence[float], size: str) -> dict[str, float]:
    return {
        f"query_p50_ms_{size}": milliseconds(seconds),
        f"query_p99_ms_{size}": milliseconds(seconds, share=0.99),
    }


async def _opening(loaded: Loaded, target: SqliteTarget, scale: Scale, progress: Progress) -> None:
    progress("opening in fresh processes")
    await loaded.store.close()
    ours, theirs = target.open_in_fresh_processes(scale.opens)
    loaded.figures |= {name: median(values) for name, values in ours.items()}
    loaded.baselines |= {name: median(values) for name, values in theirs.items()}
