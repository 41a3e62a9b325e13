"""A space that the server's statistics do not know yet is searched as fast as one that they do."""

import os
from dataclasses import replace
from pathlib import Path

import psycopg
from tests.store_contract import examples

from recollect.adapters.stores.postgres.store import PostgresFleet
from recollect.core.ports import Store
from recollect.core.values.batch import Batch
from recollect.core.values.recall import CandidateQuery
from recollect.core.values.segment import NewSegment
from recollect_bench.postgres_server import TestDatabase

MESSAGES = 3_000
AT_ONCE = 500
QUERY = CandidateQuery(words=("deploy", "crane"), lexical_limit=40)


async def fill(store: Store, messages: int) -> None:
    """Messages that all score alike: the store has to choose the first of them."""
    for start in range(0, messages, AT_ONCE):
        await store.write(Batch(at=1.0, segments=said(start)))


def said(start: int) -> tuple[NewSegment, ...]:
    numbers = range(start, start + AT_ONCE)
    return tuple(examples.worded(("deploy", "crane", "berth"), number=n) for n in numbers)


async def quickest(
    database: TestDatabase, store: Store, query: CandidateQuery
) -> tuple[float, list[str]]:
    """What the query costs the server, and what it finds."""
    best, found = 60.0, list[str]()
    for _ in range(3):
        before = cpu_seconds(database)
        answer = await store.candidates(query)
        best = min(best, cpu_seconds(database) - before)
        found = [one.segment for one in answer.passages]
    return best, found


def cpu_seconds(database: TestDatabase) -> float:
    """What the server's processes for the store have computed: other load does not count."""
    with psycopg.connect(database.admin_url, autocommit=True) as admin:
        sessions = admin.execute(
            "SELECT pid FROM pg_stat_activity"
            " WHERE datname = current_database() AND usename != current_user"
            " AND backend_type = 'client backend'"  # others come and go
        ).fetchall()
    stats = [Path(f"/proc/{pid}/stat").read_text(encoding="utf-8") for (pid,) in sessions]
    assert stats, "the store is connected"
    ticks = [sum(map(int, stat.rpartition(")")[2].split()[11:13])) for stat in stats]
    return sum(ticks) / os.sysconf("SC_CLK_TCK")


def on_tables(database: TestDatabase, statement: str) -> None:
    with psycopg.connect(database.admin_url, autocommit=True) as admin:
        tables = admin.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'recollect'")
        for (table,) in tables.fetchall():
            admin.execute(statement.format(f"recollect.{table}").encode())


async def test_a_new_space_is_searched_in_time_before_its_first_analyze(
    database: TestDatabase,
) -> None:
    on_tables(database, "ALTER TABLE {} SET (autovacuum_enabled = false)")
    fleet = await PostgresFleet.open(database.app_url)
    await fill(await fleet.space("known"), MESSAGES)
    on_tables(database, "ANALYZE {}")
    store = await fleet.space("new")
    await fill(store, MESSAGES)
    in_view = replace(QUERY, leave_out=frozenset(one.segment.id for one in said(0)))
    unknown = [await quickest(database, store, query) for query in (QUERY, in_view)]
    on_tables(database, "ANALYZE {}")
    known = [await quickest(database, store, query) for query in (QUERY, in_view)]
    await fleet.close()
    for (seconds, found), (analysed, found_again) in zip(unknown, known, strict=True):
        assert len(found) == 40
        assert set(found) == set(found_again)
        assert seconds < 5 * analysed + 0.1, (seconds, analysed)
