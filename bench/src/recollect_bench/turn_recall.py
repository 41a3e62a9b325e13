"""`recollect bench turn --recall`: what a turn waits for memory, beside the same work bare.

Recall as a turn asks for it, on a real store of 20,000 and of 200,000 passages with the vectors
of two embedders (384 and 256 dimensions), all in memory: half of the questions are a turn's
behind the gate, with a view of 100 messages and 2,000 tokens to fill; half are asked outright,
with 4,000. `recall_ratio` is the whole of recall over all the SQL statements and products of
vectors that it issued, run bare in the same run (see `turn_recall_bare.py` for what is bare):
each question at the best of its rounds, the median over the questions, the worse of the sizes.
Times are over all questions and rounds. Making the question's vector is shown apart.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from recollect.config import build
from recollect.errors import RecollectError
from recollect.ports import Store
from recollect.stores.sqlite import SQLiteStore
from recollect_bench.recall.embedders import opened_embedders
from recollect_bench.result import BenchResult
from recollect_bench.store_measure import milliseconds
from recollect_bench.store_target import open_target
from recollect_bench.turn_recall_bare import Bare, Recorder
from recollect_bench.turn_recall_data import SPACE, Talk, fill
from recollect_bench.turn_recall_measure import Timed, time_recalls, wall_seconds

Progress = Callable[[str], None]

EMBEDDERS: Final = {"hash": "hash", "static": "static", "onnx": "minilm"}
"""Those whose questions are timed, where they are installed, by the names of `bench recall`."""
KINDS: Final = {"gated": True, "asked": False}
SETTINGS: Final = build({}).recall
_SIZES: Final = {"20k": 20_000, "200k": 200_000}
_NOTES: Final = (
    "recall_ratio: the whole of recall over its SQL and its products of vectors, run bare in the",
    "  same run; each question at the best of its rounds, the median, the worse of the sizes",
    "recall_ratio_cpu: the same in processor time, which other work on the machine hardly changes",
    "recall_p50_ms, recall_p99_ms: of 20,000 passages, all questions and rounds",
    "share.*: of a recall's time, over both sizes; gate is with the choice of segments to look",
    "  around, pack is with the explaining of hits",
    "embed_p50_ms_*: making a question's vector, which is not part of recall's times",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How much is stored and asked."""

    sizes: dict[str, int]
    questions: int = 200
    """Of each kind."""
    rounds: int = 3


FULL: Final = Extent(sizes=_SIZES)
QUICK: Final = Extent(sizes={"20k": 1_500}, questions=8, rounds=2)


def run(
    progress: Progress = lambda _: None, *, store: str = "sqlite:", quick: bool = False
) -> BenchResult:
    """Measure recall on the store that the URL names; bare only on SQLite."""
    return asyncio.run(_run(progress, store, QUICK if quick else FULL, quick=quick))


async def _run(progress: Progress, url: str, extent: Extent, *, quick: bool) -> BenchResult:
    figures: dict[str, float] = {}
    baselines: dict[str, float] = {}
    notes = list(_NOTES)
    all_sizes = Timed()
    for size, passages in extent.sizes.items():
        async with _opened(url) as memory:
            both = await _at_size(memory, size, passages, extent, progress, figures)
        if both.bare:
            baselines[f"bare_p50_ms_{size}"] = milliseconds(wall_seconds(both.bare))
        all_sizes += both
    first = next(iter(extent.sizes))
    for name in ("recall_p50_ms", "recall_p99_ms"):
        figures[name] = figures[f"{name}_{first}"]
    if all_sizes.bare:
        for name in ("recall_ratio", "recall_ratio_cpu"):
            figures[name] = max(figures[f"{name}_{size}"] for size in extent.sizes)
    else:
        notes.append("what is issued is run bare on SQLite alone: no ratios here")
    whole = sum(all_sizes.steps.values())
    figures |= {f"share.{step}": taken / whole for step, taken in all_sizes.steps.items()}
    progress("making vectors of questions")
    embedding, lacking = await _embedding(extent.questions)
    figures |= embedding
    notes += lacking
    if quick:
        notes.append("a quick run, of a small memory in place of all: not to be quoted")
    return BenchResult(bench="turn", figures=figures, baselines=baselines, notes=tuple(notes))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Memory:
    """A store to fill, and its file; None where what it is asked is not run bare."""

    store: Store
    path: Path | None = None


@asynccontextmanager
async def _opened(url: str) -> AsyncIterator[_Memory]:
    """A new memory, removed at the end."""
    if not url.startswith("sqlite:"):
        async with open_target(url) as target:
            store = await target.open(SPACE)
            try:
                yield _Memory(store=store)
            finally:
                await store.close()
        return
    where = url.removeprefix("sqlite:").removeprefix("//") or None
    with TemporaryDirectory(prefix="recollect-bench-", dir=where) as folder:
        path = Path(folder) / "memory.db"
        async with await SQLiteStore.open(path, space=SPACE) as store:
            yield _Memory(store=store, path=path)


async def _at_size(
    memory: _Memory,
    size: str,
    passages: int,
    extent: Extent,
    progress: Progress,
    figures: dict[str, float],
) -> Timed:
    """Fill a memory and time both kinds of questions; figures go into `figures`."""
    talk = Talk()
    messages = await fill(memory.store, talk, passages, progress)
    async with _beside(memory) as (store, recorder, bare):
        kinds: dict[str, Timed] = {}
        for kind, gated in KINDS.items():
            questions = talk.asked(messages, extent.questions, gated=gated)
            progress(f"asking {len(questions)} questions at {passages:,} passages, {kind}")
            kinds[kind] = await time_recalls(
                store, questions, SETTINGS, rounds=extent.rounds, recorder=recorder, bare=bare
            )
            figures[f"gate_open_{size}_{kind}"] = kinds[kind].opened / len(questions)
            figures[f"recall_p50_ms_{size}_{kind}"] = milliseconds(wall_seconds(kinds[kind].whole))
            if bare is not None:
                figures[f"recall_ratio_{size}_{kind}"] = kinds[kind].ratio
    both = sum(kinds.values(), Timed())
    figures[f"recall_p50_ms_{size}"] = milliseconds(wall_seconds(both.whole))
    figures[f"recall_p99_ms_{size}"] = milliseconds(wall_seconds(both.whole), share=0.99)
    if both.bare:
        figures[f"recall_ratio_{size}"] = both.ratio
        figures[f"recall_ratio_cpu_{size}"] = both.processor_ratio
        figures[f"statements_{size}"] = both.statements / len(both.whole)
    return both


@asynccontextmanager
async def _beside(memory: _Memory) -> AsyncIterator[tuple[Store, Recorder | None, Bare | None]]:
    """The store, opened anew where its connections are to be watched, and what runs bare."""
    if memory.path is None:
        yield memory.store, None, None
        return
    recorder = Recorder()
    with recorder.watching_connections():
        store = await SQLiteStore.open(memory.path, space=SPACE, create=False)
        await store.known([])  # the lane that reads opens with its first question
    bare = Bare(memory.path, space=SPACE, connections=len(recorder))
    try:
        async with store:
            yield store, recorder, bare
    finally:
        bare.close()


async def _embedding(questions: int) -> tuple[dict[str, float], list[str]]:
    """How long the vector of one question takes, of each embedder; and why some are missing."""
    texts = [one.request.query for one in Talk().asked(1_000, questions, gated=False)]
    figures: dict[str, float] = {}
    lacking: list[str] = []
    for name, called in EMBEDDERS.items():
        taken: list[float] = []
        try:
            async with opened_embedders(called, cached=False) as (embedder,):
                for text in texts:
                    started = time.perf_counter()
                    await embedder.embed([text])
                    taken.append(time.perf_counter() - started)
        except RecollectError as error:
            lacking.append(f"embed_p50_ms_{name} is missing: {error}")
            continue
        figures[f"embed_p50_ms_{name}"] = milliseconds(taken)
    return figures, lacking
