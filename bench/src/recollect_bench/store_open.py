"""Opens a SQLite memory in a fresh process and asks one query: what a command waits for.

Run as a module by the store bench: `python -m recollect_bench.store_open WHICH PATH`, which is
"measured" or "baseline". It prints how long it took to the first answer. Always holds: the
interpreter's start and the imports are over when the clock starts, and the page cache is warm.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

from recollect.adapters.stores.sqlite import SQLiteStore
from recollect.core.values.recall import CandidateQuery
from recollect_bench.store_data import Corpus
from recollect_bench.store_sqlite_baseline import SqliteBaseline

SPACE = "measured"


async def _ours(path: Path, query: CandidateQuery) -> dict[str, float]:
    started = _clocks()
    store = await SQLiteStore.open(path, space=SPACE)
    answer = await store.candidates(query)
    taken = _since(started)
    assert answer.passages, "the query is made of words that stand in a passage"
    await store.close()
    return taken


def _theirs(path: Path, query: CandidateQuery) -> dict[str, float]:
    started = _clocks()
    baseline = SqliteBaseline(path)
    rows, _ = baseline.candidates(query)
    taken = _since(started)
    assert rows, "the query is made of words that stand in a passage"
    baseline.close()
    return taken


def _clocks() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def _since(started: tuple[float, float]) -> dict[str, float]:
    wall, processor = (now - then for now, then in zip(_clocks(), started, strict=True))
    return {"open_ms": wall * 1000, "open_cpu_ms": processor * 1000}


def main() -> None:
    """Print the figures as one JSON object."""
    which, path = sys.argv[1], Path(sys.argv[2])
    corpus = Corpus()
    (query,) = corpus.queries([corpus.segment(17)], 1)
    ours = which == SPACE
    taken = asyncio.run(_ours(path, query)) if ours else _theirs(path, query)
    sys.stdout.write(json.dumps(taken))


if __name__ == "__main__":
    main()
