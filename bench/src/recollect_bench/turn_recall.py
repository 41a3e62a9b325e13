"""`recollect bench turn --recall`: what a turn waits for memory, beside the same work bare.

Recall as a turn asks for it, on a real store of 20,000 and of 200,000 passages with the vectors
of two embedders (384 and 256 dimensions), all in memory: half of the questions are a turn's
behind the gate, with a view of 100 messages and 2,000 tokens to fill; half are asked outright,
with 4,000. `recall_ratio` is the whole of recall over all the SQL statements and products of
vectors that it issued, run bare in the same run: each question at the best of its rounds, the
median over the questions, the worse of the sizes. Whole and bare follow upon each other, and who
is first changes, so that what else the machine does hits both alike. Times are wall clock over all
questions and rounds. Making the question's vector is shown apart.

Bare are: every SQL statement that a recall issued, transactions included, with the same values on
plain connections of the same pragmas, all rows fetched and thrown away; and every product of
vectors, of the same matrices or of arrays of the same shape. Not bare, so counted against us:
whatever is made of the rows, the rows of a matrix copied and widened before they are compared
exactly, the ways between threads, and all of `search` and `turn/recall`. Statements are recorded
in a round of their own, never beside a recall that is timed.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias, cast

import apsw
import numpy as np
from numpy.typing import NDArray

from recollect.adapters.stores.sqlite import SQLiteStore
from recollect.adapters.stores.sqlite.connection import BusyWait, connect, space_file
from recollect.core.ports import Archive, Store
from recollect.core.turn.recall import recall
from recollect.core.values.recall import Recalled
from recollect.errors import RecollectError
from recollect.system.config import build
from recollect.system.config.settings import Recall as RecallSettings
from recollect_bench.recall.embedders import opened_embedders
from recollect_bench.result import BenchResult
from recollect_bench.store_measure import milliseconds
from recollect_bench.store_target import open_target
from recollect_bench.turn_recall_data import SPACE, Asked, Talk, fill

# What recall asks of SQLite and numpy, written down and run again bare


_SHARED_ROWS: Final = 1_500
"""A product of more rows is with a whole matrix, which is kept; of fewer, only the shape is."""

Numbers = NDArray[Any]


@dataclass(slots=True, kw_only=True)
class Issued:
    """What one recall issued, in the order it did."""

    statements: list[tuple[int, str, Any]] = field(default_factory=list, repr=False)
    """On which connection, what, and with which values."""
    products: list[tuple[Numbers, Numbers]] = field(default_factory=list, repr=False)


class Recorder:
    """Writes down what recalls issue; made before the store is opened."""

    def __init__(self) -> None:
        self._connections: list[apsw.Connection] = []
        self._alike: dict[tuple[tuple[int, ...], str], Numbers] = {}

    @contextmanager
    def watching_connections(self) -> Iterator[None]:
        """Notice the connections that are opened meanwhile: those of the store's lanes."""
        notice = self._connections.append
        apsw.connection_hooks.append(notice)
        try:
            yield
        finally:
            apsw.connection_hooks.remove(notice)

    @contextmanager
    def writing_down(self, issued: Issued) -> Iterator[None]:
        """Write down what is issued meanwhile; nothing else may run."""
        product = np.vecdot

        def noted(one: Numbers, other: Numbers) -> Any:
            issued.products.append((self._kept(one), self._kept(other)))
            return product(one, other)

        for number, connection in enumerate(self._connections):
            connection.exec_trace = self._tracer(number, issued)
        np.vecdot = noted  # type: ignore[assignment]
        try:
            yield
        finally:
            np.vecdot = product
            for connection in self._connections:
                connection.exec_trace = None

    def _tracer(self, number: int, issued: Issued) -> Any:
        def trace(_: apsw.Cursor, statement: str, values: Any) -> bool:
            issued.statements.append((number, statement, values))
            return True

        return trace

    def _kept(self, array: Numbers) -> Numbers:
        """The array itself where it is a whole matrix, else one of its shape."""
        if array.ndim == 2 and len(array) > _SHARED_ROWS:
            return array
        key = array.shape, array.dtype.str
        if key not in self._alike:
            self._alike[key] = np.ones(array.shape, array.dtype)
        return self._alike[key]

    def __len__(self) -> int:
        return len(self._connections)


class Bare:
    """Runs again what was written down, on connections of its own."""

    def __init__(self, path: Path, *, space: str, connections: int) -> None:
        file = space_file(path, space=space, key=None, create=False, busy_seconds=5.0)
        self._connections = [connect(file, BusyWait(5.0)) for _ in range(connections)]

    def run(self, issued: Issued) -> None:
        """All statements and all products, with nothing made of what they give."""
        connections = self._connections
        for number, statement, values in issued.statements:
            connections[number].execute(statement, values).fetchall()
        for one, other in issued.products:
            np.vecdot(one, other)

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections:
            connection.close()


# Times recalls, whole and bare, question by question, turn and turn about


STEPS: Final = (
    "question", "candidates", "gate", "fact_candidates", "seeds", "around", "rank", "segments",
    "pack",
)  # fmt: skip
"""The steps of a recall, by what is awaited: reading the question before the candidates, the gate
behind them, facts and seeds, ranking behind the surroundings, packing and explaining at the end."""
_AFTER: Final = {
    "candidates": "gate",
    "fact_candidates": "seeds",
    "around": "rank",
    "segments": "pack",
}
"""What recall does itself behind what it awaits."""


Taken: TypeAlias = tuple[float, float]
"""Seconds by the wall clock, and of processor time, which a busy machine hardly lengthens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """How long recalls took: a list for each question, of one entry a round."""

    whole: list[list[Taken]] = field(default_factory=list)
    bare: list[list[Taken]] = field(default_factory=list)
    steps: Mapping[str, float] = field(default_factory=dict)
    """Seconds of each step, over all questions of one round."""
    opened: int = 0
    """How many questions opened the gate."""
    passages: int = 0
    """How many passages were handed on, over all questions."""
    statements: int = 0
    """How many SQL statements were issued, over all questions."""

    def __add__(self, other: Timed) -> Timed:
        return Timed(
            whole=self.whole + other.whole,
            bare=self.bare + other.bare,
            steps={step: self.steps.get(step, 0.0) + other.steps.get(step, 0.0) for step in STEPS},
            opened=self.opened + other.opened,
            passages=self.passages + other.passages,
            statements=self.statements + other.statements,
        )

    @property
    def ratio(self) -> float:
        """Whole over bare by the wall clock."""
        return self._ratio(0)

    @property
    def processor_ratio(self) -> float:
        """Whole over bare in processor time, of all threads."""
        return self._ratio(1)

    def _ratio(self, clock: int) -> float:
        """The median over the questions, each at the best of its rounds."""
        best = [
            [min(taken[clock] for taken in rounds) for rounds in side]
            for side in (self.whole, self.bare)
        ]
        return float(median(whole / bare for whole, bare in zip(*best, strict=True)))


def wall_seconds(side: Sequence[Sequence[Taken]]) -> list[float]:
    """Of every question and round, by the wall clock."""
    return [taken[0] for rounds in side for taken in rounds]


async def time_recalls(
    archive: Archive,
    questions: Sequence[Asked],
    settings: RecallSettings,
    *,
    rounds: int,
    recorder: Recorder | None = None,
    bare: Bare | None = None,
) -> Timed:
    """Ask every question in so many rounds; with `bare`, run what each issued bare beside it."""
    issued = [Issued() for _ in questions]
    opened = passages = 0
    for asked, into in zip(questions, issued, strict=True):  # warms up too
        if recorder is None:
            answer = await recall_one(archive, asked, settings)
        else:
            with recorder.writing_down(into):
                answer = await recall_one(archive, asked, settings)
        opened += answer.gate is not None and answer.gate.open
        passages += len(answer.passages)
    whole: list[list[Taken]] = [[] for _ in questions]
    alone: list[list[Taken]] = [[] for _ in questions if bare is not None]
    for turn in range(rounds):
        gc.collect()
        for at, asked in enumerate(questions):
            for ours in ((turn + at) % 2 == 0, (turn + at) % 2 == 1):
                started = _clocks()
                if ours:
                    await recall_one(archive, asked, settings)
                    whole[at].append(_since(started))
                elif bare is not None:
                    bare.run(issued[at])
                    alone[at].append(_since(started))
    return Timed(
        whole=whole,
        bare=alone,
        steps=await _steps(archive, questions, settings),
        opened=opened,
        passages=passages,
        statements=sum(len(other.statements) for other in issued),
    )


async def recall_one(archive: Archive, asked: Asked, settings: RecallSettings) -> Recalled:
    """One recall as a turn awaits it."""
    return await recall(asked.request, archive=archive, vectors=asked.vectors, settings=settings)


async def _steps(
    archive: Archive, questions: Sequence[Asked], settings: RecallSettings
) -> Mapping[str, float]:
    """Seconds of each step, in a round of its own."""
    taken = dict.fromkeys(STEPS, 0.0)
    for asked in questions:
        watched = _Watched(archive)
        started = time.perf_counter()
        # a stand-in that passes everything on, for which no protocol is worth writing
        await recall_one(cast("Archive", watched), asked, settings)
        ended = time.perf_counter()
        marks = [("question", started), *watched.marks, ("", ended)]
        for (step, begun), (_, over) in pairwise(marks):
            taken[step] += over - begun
    return taken


class _Watched:
    """An archive that notes when it was asked, and what comes after each answer."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self.marks: list[tuple[str, float]] = []

    def __getattr__(self, name: str) -> Any:
        asked = getattr(self._archive, name)
        if name not in _AFTER:  # a small question within a step
            return asked

        async def noted(*given: Any, **named: Any) -> Any:
            self.marks.append((name, time.perf_counter()))
            answer = await asked(*given, **named)
            self.marks.append((_AFTER[name], time.perf_counter()))
            return answer

        return noted


def _clocks() -> Taken:
    return time.perf_counter(), time.process_time()


def _since(started: Taken) -> Taken:
    wall, processor = _clocks()
    return wall - started[0], processor - started[1]


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
    texts = [question.request.query for question in Talk().asked(1_000, questions, gated=False)]
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
