"""An embedder that fails in any way: recall goes on by words, and the report says so.

Through the real engine, a real SQLite store and real threads; only the embedder misbehaves."""

import asyncio
import math
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.harness.waiting import PATIENCE_SECONDS, eventually

from recollect.adapters.embedders.local import HashEmbedder
from recollect.adapters.stores.sqlite import SQLiteStore
from recollect.adapters.wiring import open_memory
from recollect.core.boundary import SystemClock
from recollect.core.engine import Engine
from recollect.core.engine.archive import DurableArchive
from recollect.core.engine.background import in_process_jobs
from recollect.core.engine.recaller import MemoryRecaller, QuestionVectors
from recollect.core.engine.session import Context
from recollect.core.ports import Embedder
from recollect.core.upkeep.chores import VectorUpkeep
from recollect.core.values.recall import CandidateQuery, Candidates, EmbedderKind
from recollect.errors import EmbedderError
from recollect.system.config import build

DIMENSIONS = 64
HANG_SECONDS = 3_600.0
SECRET = "the heron is called Balthazar"
ASKED = "what is the heron called, the one at Quillhaven?"


class Embedding:
    """An embedder of words, as good as any until it is told to misbehave."""

    kind: EmbedderKind = "onnx"

    def __init__(self, name: str = "words-64", dimensions: int = DIMENSIONS) -> None:
        self.name = name
        self.dimensions = dimensions
        self.ready = True
        self.asked: list[str] = []
        self.misbehave: Callable[[list[bytes]], Any] | None = None

    async def load(self) -> None:
        self.ready = True

    async def embed(self, texts: Sequence[str]) -> Sequence[bytes]:
        self.asked += texts
        made = [_vector(text, self.dimensions) for text in texts]
        if self.misbehave is None:
            return made
        answer = self.misbehave(made)
        if asyncio.iscoroutine(answer):
            answer = await answer
        assert isinstance(answer, list)
        return answer


def _vector(text: str, dimensions: int) -> bytes:
    numbers = [0.01] * dimensions
    for word in text.lower().split():
        numbers[hash_of(word) % dimensions] += 1.0
    length = math.sqrt(sum(one * one for one in numbers))
    return struct.pack(f"<{dimensions}f", *(one / length for one in numbers))


def hash_of(word: str) -> int:
    return int.from_bytes(word.strip("?,.").encode()[:4].ljust(4, b"\0"), "little")


def engine_with(file: Path, *embedders: Embedder) -> Engine:
    chosen = build({"window_tokens": 6_000})
    clock = SystemClock()
    archive = DurableArchive(lambda: SQLiteStore.open(file, space="t"), None, chosen.store)
    jobs = in_process_jobs(archive, chosen, clock, embedders)
    assert jobs is not None
    upkeep = VectorUpkeep(archive, embedders, clock, on_queued=jobs.wake)
    recaller = MemoryRecaller(archive, chosen, QuestionVectors(embedders, seconds=0.3), upkeep)
    return Engine(
        chosen, space="t", archive=archive, jobs=jobs, recaller=recaller, embedders=embedders
    )


async def talked(engine: Engine, session: str = "s") -> list[dict[str, str]]:
    """A conversation whose middle has left the view, archived."""
    held = [{"role": "user", "content": "we talk about the harbour of Quillhaven"}]
    for number in range(60):
        told = SECRET if number == 8 else f"note {number} on barges, ropes and tide tables " * 16
        held.append({"role": "assistant", "content": f"noted, number {number}"})
        held.append({"role": "user", "content": told})
        await engine.prepare(session, {"model": "gpt-4o", "messages": held})
    await engine.settle()
    return held


async def ask(engine: Engine, held: list[dict[str, str]], words: str = ASKED) -> Context:
    asking = [*held, {"role": "assistant", "content": "yes"}, {"role": "user", "content": words}]
    return await engine.prepare("s", {"model": "gpt-4o", "messages": asking})


def block_of(context: Context) -> str:
    texts = [str(message["content"]) for message in context.request["messages"]]
    return "\n".join(text for text in texts if "<recalled-context" in text)


def recall_line(context: Context) -> str:
    (line,) = [line for line in context.report.lines if line.stage == "recall"]
    assert line.outcome == "done", line
    return line.said


async def throws(_: list[bytes]) -> list[bytes]:
    raise EmbedderError("the model fell over; restart it")


async def hangs(made: list[bytes]) -> list[bytes]:
    await asyncio.sleep(HANG_SECONDS)
    return made


def not_numbers(made: list[bytes]) -> list[bytes]:
    return [struct.pack(f"<{DIMENSIONS}f", *([math.nan] * DIMENSIONS)) for _ in made]


def too_short(made: list[bytes]) -> list[bytes]:
    return [values[:-4] for values in made]


def too_few(made: list[bytes]) -> list[bytes]:
    return made[:-1]


@pytest.mark.parametrize(
    ("misbehave", "said"),
    [
        (throws, "the model fell over"),
        (hangs, "no answer within"),
        (not_numbers, "values that are not numbers"),
        (too_short, "63 dimensions instead of 64"),
        (too_few, "0 vectors for one text"),
    ],
    ids=["throws", "hangs", "nan", "wrong dimension", "too few"],
)
async def test_recall_goes_on_by_words_and_says_so(
    tmp_path: Path, misbehave: Callable[[list[bytes]], Any], said: str
) -> None:
    embedder = Embedding()
    async with engine_with(tmp_path / "m.db", embedder) as engine:
        held = await talked(engine)
        embedder.misbehave = misbehave
        context = await asyncio.wait_for(ask(engine, held), PATIENCE_SECONDS)
        assert SECRET in block_of(context), recall_line(context)
        assert said in recall_line(context)
        again = await ask(engine, held, "and who at Quillhaven is called Balthazar, the heron?")
        assert said in recall_line(again), "while it rests, the reason is still told"


@pytest.mark.parametrize(
    ("deadline", "outcome"),
    [
        ({"recall.deadline_seconds": PATIENCE_SECONDS}, "done"),
        ({"store.read_seconds": 0.2, "recall.deadline_seconds": None}, "failed"),
    ],
)
async def test_a_search_may_take_as_long_as_the_settings_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deadline: dict[str, float | None], outcome: str
) -> None:
    """One look no longer than a read, unless recall is given another time."""
    file = tmp_path / "m.db"
    search = SQLiteStore.candidates

    async def slow(store: SQLiteStore, query: CandidateQuery) -> Candidates:
        await asyncio.sleep(0.4)
        return await search(store, query)

    async with engine_with(file) as engine:
        held = await talked(engine)
    monkeypatch.setattr(SQLiteStore, "candidates", slow)
    chosen = {"window_tokens": 6_000, "recall.standing_tokens": 0, **deadline}
    async with open_memory(store=file, space="t", embedders=[], settings=chosen) as engine:
        context = await ask(engine, held)
    (line,) = [line for line in context.report.lines if line.stage == "recall"]
    assert line.outcome == outcome, line
    assert (SECRET in block_of(context)) == (outcome == "done")


async def test_loading_blocks_no_turn(tmp_path: Path) -> None:
    embedder = Embedding()
    release = asyncio.Event()

    async def load() -> None:
        await release.wait()
        embedder.ready = True

    embedder.load = load  # type: ignore[method-assign]
    embedder.ready = False
    async with engine_with(tmp_path / "m.db", embedder) as engine:
        held = await talked(engine)
        context = await ask(engine, held)
        assert SECRET in block_of(context), recall_line(context)
        assert "the embedding model is loading" in recall_line(context)
        release.set()
        await eventually(lambda: embedder.ready)
        later = await ask(engine, held, "remind me what the heron of Quillhaven is called")
        assert "loading" not in recall_line(later)


async def test_a_change_of_model_embeds_again_in_the_background(tmp_path: Path) -> None:
    file = tmp_path / "m.db"
    old, new = HashEmbedder(), Embedding("another-model", 48)
    async with engine_with(file, old) as engine:
        held = await talked(engine)
        await eventually(lambda: embedded(file, old.name))
    async with engine_with(file, new) as engine:
        await ask(engine, held)
        await eventually(lambda: embedded(file, new.name))


async def embedded(file: Path, embedder: str) -> bool:
    """Whether every passage has a vector of this embedder."""
    store = await SQLiteStore.open(file, space="t")
    try:
        return not await store.unembedded(embedder, limit=1)
    finally:
        await store.close()


async def test_an_embedder_that_hangs_has_a_part_of_the_time_of_recall(tmp_path: Path) -> None:
    """Recall goes on by words in the rest of it. `QuestionVectors` gets 40% of the deadline."""
    file = tmp_path / "m.db"
    embedder = Embedding()
    async with engine_with(file, embedder) as engine:
        held = await talked(engine)
    embedder.misbehave = hangs
    settings = {
        "window_tokens": 6_000,
        "jobs.in_process": False,
        "recall.deadline_seconds": 5.0,
    }
    async with open_memory(
        store=file, space="t", embedders=[embedder], settings=settings
    ) as engine:
        context = await ask(engine, held)
    assert "no answer within 2 s" in recall_line(context)
    assert SECRET in block_of(context), recall_line(context)
