"""Forgetting is real: a marker planted everywhere is in no byte afterwards, and does not return."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.disk import bytes_of
from tests.store_contract import examples

from recollect import open_memory
from recollect.adapters.wiring import open_spool, open_store
from recollect.core.formats.stored_records import write_batch
from recollect.core.ports import Store
from recollect.core.search.tokenize import tokenize
from recollect.core.upkeep.forget import forget
from recollect.core.values.batch import Batch, NewJob
from recollect.core.values.fact import FactId
from recollect.core.values.recall import CandidateQuery
from recollect.core.values.segment import Vector, VectorSet
from recollect.core.values.upkeep import ForgetOrder
from recollect_bench.postgres_server import PostgresServer, TestDatabase

MARKER = "zanzibarquokka"
SECRET_PLAN = f"The plan for {MARKER} is to leave at dawn from the old quay with both cranes."
ONLY_SPOOLED = f"Tell nobody that {MARKER} keeps the second key in the lighthouse."
SETTINGS = {"window_tokens": 16_000, "jobs.in_process": False}


def request(turns: int) -> dict[str, Any]:
    long = "cargo and winch over the quay " * 200
    held: list[dict[str, Any]] = [
        {"role": "user", "content": "Begin with the harbour."},
        {"role": "assistant", "content": "Which one of the two?"},
        {"role": "user", "content": SECRET_PLAN},
    ]
    for n in range(turns):
        held += [
            {"role": "assistant", "content": f"step {n}: {long}"},
            {"role": "user", "content": f"and then number {n}?"},
        ]
    system = f"You know about {MARKER}."
    return {"model": "claude-x", "max_tokens": 100, "system": system, "messages": held}


async def plant(url: str) -> None:
    """Text, index and ledger by talking; a vector, a job, compactions, a spool beside them."""
    async with open_memory(store=url, settings=SETTINGS) as memory:
        await memory.prepare("s", request(1))
        await memory.observe(
            "s", {"role": "assistant", "content": [{"type": "text", "text": "ok"}]}
        )
        assert (await memory.prepare("s", request(9))).edits, "something left the view, too"
    store = await open_store(url, space="default")
    held = next(one for one in await store.page(limit=100) if MARKER in one.segment.text)
    marked = (MARKER * 200).encode()[: 384 * 4]  # the marker's own bytes, as floats
    vector = Vector(segment=held.segment.id, ordinal=0, values=marked)
    job = NewJob(
        kind="extract",
        key="k",
        payload=json.dumps({"text": SECRET_PLAN}).encode(),
        about=(held.segment.message_id,),
        run_at=2e9,
    )
    vectors = (VectorSet(embedder="test-384", dimensions=384, vectors=(vector,)),)
    fact = examples.fact("by hand", content="a note", context=f"about {MARKER}", sources=())
    compactions = (
        examples.compaction(1, (held.segment.message_id,), session="s", body=SECRET_PLAN * 50),
        examples.compaction(2, session="s", body=json.dumps({"summary": f"of {MARKER}"})),
        examples.compaction(3, (held.segment.message_id,), session="s", body="stands for it"),
        examples.compaction(4, session="s", body="stays"),
    )
    await store.write(
        Batch(at=1.0, vectors=vectors, facts=(fact,), jobs=(job,), compactions=compactions)
    )
    spool = await open_spool(url, space="default")
    await spool.append(write_batch(Batch(at=1.0, jobs=(job,), compactions=compactions)))
    await spool.append(write_batch(only_spooled()))
    await spool.close()
    await store.close()


def only_spooled() -> Batch:
    """A message, a row of the ledger and a fact that the store has never seen."""
    new = examples.conversation([ONLY_SPOOLED, "The lighthouse is closed."], session="offline")
    row = examples.piece(ONLY_SPOOLED, about=(new[0].segment.message_id,))
    fact = examples.fact("of the key", content=f"{MARKER} has a key", sources=())
    return Batch(at=1.0, segments=new, pieces=(row,), facts=(fact,))


def recollect(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "recollect", *arguments],
        capture_output=True,
        text=True,
        env=os.environ.copy(),
        check=False,
    )


async def found(store: Store) -> list[str]:
    words = tuple(dict.fromkeys(tokenize(SECRET_PLAN)))
    hits = await store.candidates(CandidateQuery(words=words))
    held = await store.segments([hit.segment for hit in hits.passages])
    return [one.segment.text for one in held if MARKER in one.segment.text]


async def resend(url: str) -> None:
    async with open_memory(store=url, settings=SETTINGS) as memory:
        await memory.prepare("s", request(9))
        context = await memory.prepare("another", request(1))
        assert MARKER in json.dumps(context.request), "the client's own history is the client's"
        seen = await memory.observe("another", {"role": "assistant", "content": "ok"})
        assert seen.archived in ("store", "spool"), "behind what waited when it began"
        assert await memory.settle() == 0, "what waited in the spool is drained"
    store = await open_store(url, space="default")
    assert await found(store) == []
    assert (await store.check()).problems == ()
    kept = [one.segment.text for one in await store.page(limit=100)]
    assert not any(MARKER in text for text in kept)
    assert "The lighthouse is closed." in kept, "what waited beside it was stored"
    assert await store.facts(superseded=True) == ()
    assert [one.number for one in await store.compactions("s")] == [4]
    late = await store.write(only_spooled())  # as the spool of another machine would
    assert len(late.forgotten) == 1
    order = ForgetOrder(at=2.0, facts=(FactId("of the key"),))
    assert (await forget(store, [], order, now=2.0)).counts["facts"] == 0, "it was kept out"
    assert await store.facts(superseded=True) == ()
    await store.close()


def files_with(marker: bytes, *folders: Path) -> list[Path]:
    return [
        path
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if path.is_file() and marker in bytes_of(path)
    ]


def spellings() -> list[bytes]:
    """The marker as text, as an indexed word, and as the bytes of the vector."""
    return [*{word.encode() for word in tokenize(MARKER)}, MARKER.encode(), MARKER.encode()[1:13]]


def test_sqlite_forgets_to_the_last_byte(tmp_path: Path) -> None:
    home = Path(os.environ["RECOLLECT_HOME"])
    url = str(tmp_path / "m.db")
    asyncio.run(plant(url))
    assert files_with(MARKER.encode(), tmp_path, home), "it was planted"
    done = recollect("memory", "forget", "--matching", MARKER, "--yes", "--store", url)
    assert done.returncode == 0, done.stderr
    assert MARKER not in done.stdout
    assert "backups" in done.stdout, "the certificate says what it cannot reach"
    for spelling in spellings():
        assert files_with(spelling, tmp_path, home) == []
    asyncio.run(resend(url))
    for spelling in spellings():
        assert files_with(spelling, tmp_path, home) == []


@pytest.fixture(scope="module")
def database() -> Iterator[tuple[PostgresServer, TestDatabase]]:
    with PostgresServer(18) as server:
        yield server, asyncio.run(server.migrated_database())


def rows_with(database: TestDatabase, marker: bytes) -> list[str]:
    """Every table of the database, each row as text and every bytea by its bytes."""
    import psycopg

    hits: list[str] = []
    with psycopg.connect(database.admin_url) as connection:
        tables = connection.execute(
            "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables "
            "WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        ).fetchall()
        assert len(tables) > 5
        for (table,) in tables:
            rows = connection.execute(f"SELECT t::text FROM {table} t").fetchall()
            for (row,) in rows:
                if marker.decode() in row or marker.hex() in row:
                    hits.append(table)
    return hits


def test_postgres_forgets_every_row_and_after_scrub_every_file(
    database: tuple[PostgresServer, TestDatabase],
) -> None:
    server, place = database
    home = Path(os.environ["RECOLLECT_HOME"])
    url = place.app_url
    asyncio.run(plant(url))
    assert rows_with(place, MARKER.encode()), "it was planted"
    done = recollect("memory", "forget", "--matching", MARKER, "--yes", "--store", url)
    assert done.returncode == 0, done.stderr
    assert MARKER not in done.stdout
    for spelling in spellings():
        assert rows_with(place, spelling) == []
        assert files_with(spelling, home) == []
    scrubbed = recollect("memory", "scrub", "--store", url, "--admin-url", place.admin_url)
    assert scrubbed.returncode == 0, scrubbed.stderr
    for spelling in spellings():
        assert files_with(spelling, server.data / "base") == []
    asyncio.run(resend(url))
    assert rows_with(place, MARKER.encode()) == []
