"""What only a fleet shows: many spaces beside the measured one, and one large space.

Owns the figures `flatness` and `hybrid_p50_ms_200k` of PostgreSQL. The many spaces are copies
of one small space that was written through the store: every table with a `space_id` gets the
rows again under new ids, in the server, because 20,000 writes would take longer than all the
rest. Always holds: few and many spaces stand in two databases of one server, and are asked turn
and turn about, so that what else the machine does hits both alike.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import TYPE_CHECKING, Final

import psycopg
from psycopg import sql

from recollect.core.ports import Store
from recollect_bench.store_data import SMALL_WORDS_PER_PASSAGE, Corpus, Turns, vector_batches
from recollect_bench.store_measure import ask, ask_each, milliseconds, write

if TYPE_CHECKING:
    from recollect_bench.store_target import Loaded, PostgresTarget

FEW_SPACES: Final = 100
MEASURED_PASSAGES: Final = {"2k": 2_000, "20k": 20_000}
SMALL_SPACE_PASSAGES: Final = 20
LARGE_PASSAGES: Final = 200_000
LARGE_BATCH_SEGMENTS: Final = 400
QUERIES: Final = 230
WARM: Final = 30
_COPY_STEP: Final = 500

Progress = Callable[[str], None]


async def flatness(
    loaded: Loaded, target: PostgresTarget, *, spaces: int, progress: Progress
) -> None:
    """The same queries in a database of 100 spaces and in one of many, turn and turn about."""
    async with target.another() as other:
        taken: dict[str, tuple[list[float], list[float]]] = {}
        for place, count in ((target, FEW_SPACES), (other, spaces)):
            await _fill_spaces(place, count, progress)
        for name, passages in MEASURED_PASSAGES.items():
            corpus = Corpus(seed=2)
            few = await _filled(target, f"flat-{name}", corpus, passages, progress)
            many = await _filled(other, f"flat-{name}", corpus, passages, progress)
            _vacuum(target)
            _vacuum(other)
            progress(f"asking {name} beside {FEW_SPACES} and beside {spaces:,} spaces")
            queries = corpus.queries(corpus.until(2_000), QUERIES)
            taken[name] = await ask_each(few, many, queries, warm=WARM)
            await few.close()
            await many.close()
    for name, (beside_few, beside_many) in taken.items():
        loaded.baselines[f"flat_p50_ms_{name}"] = milliseconds(beside_few)
        loaded.figures[f"flat_p50_ms_{name}"] = milliseconds(beside_many)
        loaded.figures[f"flatness_{name}"] = milliseconds(beside_many) / milliseconds(beside_few)
    loaded.figures["flatness"] = max(loaded.figures[f"flatness_{name}"] for name in taken)
    loaded.figures["flatness_spaces"] = float(spaces)


async def _fill_spaces(target: PostgresTarget, spaces: int, progress: Progress) -> None:
    corpus = Corpus(seed=3, words_per_passage=SMALL_WORDS_PER_PASSAGE)
    template = await _filled(target, "template", corpus, SMALL_SPACE_PASSAGES, progress)
    await template.close()
    _copy_space(target, "template", first=1, last=spaces, progress=progress)


def _vacuum(target: PostgresTarget) -> None:
    with psycopg.connect(target.admin_url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")


async def large_space(loaded: Loaded, target: PostgresTarget, *, progress: Progress) -> None:
    """Queries in a space of 200,000 passages."""
    corpus = Corpus(seed=4)
    store = await _filled(target, "large", corpus, LARGE_PASSAGES, progress)
    progress("settling 200,000 passages")
    loaded.figures |= await target.settle(store, size="200k")
    _vacuum(target)
    progress("asking 200,000 passages")
    taken = await ask(store, corpus.queries(corpus.until(4_000), QUERIES), warm=WARM)
    loaded.figures["hybrid_p50_ms_200k"] = milliseconds(taken)
    loaded.figures["hybrid_p99_ms_200k"] = milliseconds(taken, share=0.99)
    await store.close()


async def _filled(
    target: PostgresTarget, space: str, corpus: Corpus, passages: int, progress: Progress
) -> Store:
    """A space with so many passages and their vectors, written through the store."""
    store = await target.open(space)
    turns = Turns()
    first = held = 0
    while held < passages:
        segments = corpus.until(min(20_000, passages - held), first=first)
        await write(store, turns.batches(segments, repeat(LARGE_BATCH_SEGMENTS)))
        await write(store, vector_batches(corpus, segments, size=LARGE_BATCH_SEGMENTS))
        first += len(segments)
        held += sum(len(new.passages) for new in segments)
        progress(f"{held:,} of {passages:,} passages in {space}")
    await target.settle(store, size=space)
    return store


def _copy_space(
    target: PostgresTarget, space: str, *, first: int, last: int, progress: Progress
) -> None:
    """Copies of a space, numbered from `first` up to `last`, in every table that has spaces."""
    with psycopg.connect(target.admin_url, autocommit=True) as connection:
        template = target.space_id(space)
        tables = connection.execute(
            "SELECT table_name, array_agg(column_name::text ORDER BY ordinal_position)"
            " FROM information_schema.columns WHERE table_schema = 'recollect'"
            " GROUP BY table_name HAVING bool_or(column_name = 'space_id')"
        ).fetchall()
        for start in range(first, last, _COPY_STEP):
            progress(f"{start:,} of {last:,} spaces")
            until = min(last, start + _COPY_STEP) - 1
            for table, columns in tables:
                others = [sql.Identifier(name) for name in columns if name != "space_id"]
                statement = sql.SQL(
                    "INSERT INTO recollect.{table} (space_id, {others})"
                    " SELECT md5('bench' || n)::uuid, {others} FROM recollect.{table},"
                    " generate_series(%s::int, %s) n WHERE space_id = %s ORDER BY n"
                ).format(table=sql.Identifier(table), others=sql.SQL(", ").join(others))
                connection.execute(statement, [start, until, template])
