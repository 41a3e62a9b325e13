"""What a fleet lets go of: deleted spaces, idle ledgers, budgets of days past, old bytes."""

import time
from pathlib import Path

import psycopg
import pytest
from tests.acceptance.recollect_cli import Recollect
from tests.store_contract import examples

from recollect.adapters.stores.postgres import vectors
from recollect.adapters.stores.postgres.store import PostgresFleet, space_uuid
from recollect.core.values.batch import Batch
from recollect.core.values.recall import CandidateQuery
from recollect.core.values.upkeep import ForgetOrder
from recollect_bench.postgres_server import TestDatabase


def count(database: TestDatabase, table: str, space: str) -> int:
    with psycopg.connect(database.admin_url) as connection:
        row = connection.execute(
            f"SELECT count(*) FROM recollect.{table} WHERE space_id = %s".encode(),
            (space_uuid(space),),
        ).fetchone()
    assert row is not None
    return int(row[0])


async def test_a_space_is_deleted_with_a_certificate_and_others_stay(
    database: TestDatabase, tmp_path: Path
) -> None:
    fleet = await PostgresFleet.open(database.app_url)
    for name in ("goes", "stays"):
        await (await fleet.space(name)).write(examples.full_batch(0))
    await fleet.close()
    owner = Recollect(tmp_path, database.admin_url)
    listed = [one["space"] for one in owner.json("space", "list")["spaces"]]
    assert sorted(listed) == ["goes", "stays"]
    assert "--yes" in owner.refused("space", "delete", "goes")
    told = owner.json("space", "delete", "goes", "--yes")
    assert told["counts"]["segments"] > 0
    assert told["asked"]["whole_space"] is True
    assert told["checksum"]
    assert any("scrub" in line for line in told["cannot"])
    for table in ("segments", "vectors", "tombstones", "spaces", "jobs", "pieces"):
        assert count(database, table, "goes") == 0, table
    assert count(database, "segments", "stays") > 0
    assert [one["space"] for one in owner.json("space", "list")["spaces"]] == ["stays"]
    scrubbed = owner.json("memory", "scrub", space="goes")
    assert any("rewrote the" in line for line in scrubbed["done"])


def test_a_space_in_a_file_is_deleted_with_its_file(tmp_path: Path) -> None:
    memory = Recollect(tmp_path)
    memory.text("memory", "add", "the gate code is 4471")
    file = tmp_path / "memory.db"
    assert file.exists()
    told = memory.json("space", "delete", "default", "--yes")
    assert told["counts"]["segments"] == 1
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("memory.db")]


async def test_a_scrub_rewrites_the_tables_with_content_once(database: TestDatabase) -> None:
    def files() -> dict[str, int]:
        with psycopg.connect(database.admin_url) as connection:
            return dict(
                connection.execute(
                    "SELECT relname, relfilenode::int8 FROM pg_class"
                    " WHERE relnamespace = 'recollect'::regnamespace AND relkind = 'r'"
                ).fetchall()
            )

    fleet = await PostgresFleet.open(database.app_url)
    mine, theirs = await fleet.space("mine"), await fleet.space("theirs")
    for store in (mine, theirs):
        await store.write(examples.full_batch(0))
    first = files()
    await theirs.scrub(database.admin_url)
    assert files() == first, "it removed nothing"
    segment = examples.full_batch(0).segments[0].segment.id
    await mine.forget(ForgetOrder(at=time.time(), segments=(segment,)))
    await mine.scrub(database.admin_url)
    changed = {table for table, node in files().items() if node != first[table]}
    assert {"segments", "vectors", "sessions", "pieces"} <= changed
    assert not changed & {"spaces", "counters", "turns", "tenants", "api_keys", "tombstones"}
    with psycopg.connect(database.admin_url) as connection:  # it was long ago
        connection.execute("UPDATE recollect.unscrubbed SET at = at - 1000")
    second = files()
    again = await mine.scrub(database.admin_url)
    assert files() == second
    assert again.done == ("no tables contain the data that this space removed",)
    await fleet.close()


async def test_signs_are_kept_once_a_search_needs_them(
    database: TestDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small space does without; when it has grown, every vector of before has its sign too."""
    monkeypatch.setattr(vectors, "EXACT_NUMBERS", 30 * examples.DIMENSIONS)
    fleet = await PostgresFleet.open(database.app_url)
    store = await fleet.space("one")
    query = CandidateQuery(vectors=(examples.asked("q"),), vector_limit=5)
    for first, blocks in ((0, 0), (100, 1), (200, 1)):
        new = examples.segments(20, first=first)
        await store.write(Batch(at=1.0, segments=new, vectors=(examples.vectors(new),)))
        assert bool(count(database, "sign_blocks", "one")) == bool(blocks)
        assert (await store.check()).problems == ()
        found = await store.candidates(query)
        with monkeypatch.context() as exactly:
            exactly.setattr(vectors, "EXACT_NUMBERS", 10**9)
            assert found == await store.candidates(query)
    await fleet.close()
