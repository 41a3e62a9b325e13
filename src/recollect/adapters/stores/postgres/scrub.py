"""Sees to it that removed bytes are in no data file: rewrites tables as their owner.

A plain VACUUM leaves most removed bytes where they are (measured: 197 of 200 rows), so tables are
rewritten, which locks each meanwhile, for all spaces. Therefore only those are rewritten that the
space removed something from since they were rewritten last: whoever removes notes the tables
(`note_removed`). On Citus every node is asked to begin a new log and to write a checkpoint; WAL
that others hold is out of reach.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from typing import Final

from recollect.adapters.stores.postgres.citus import run_on_nodes
from recollect.adapters.stores.postgres.driver import driver_errors, psycopg, sql_errors
from recollect.adapters.stores.postgres.pool import Connection, Transaction, connect
from recollect.adapters.stores.postgres.schema import citus_version
from recollect.core.values.upkeep import ScrubResult

OUT_OF_REACH: Final = (
    "write-ahead log of PostgreSQL that is not yet overwritten, and its archives",
    "replicas, backups and snapshots of the database",
)
NO_ADMIN: Final = (
    "data files of PostgreSQL: rewriting tables needs their owner, give `--admin-url URL`",
)
_LOCK_SECONDS: Final = 60
"""How long a table may be in use before it is left as it is."""
_CLOCKS_APART: Final = 300.0
"""Clocks of machines may differ by this much: what was noted so shortly before counts as later."""
_OUR_TABLES: Final = """
    SELECT c.relname FROM pg_class c
    WHERE c.relnamespace = 'recollect'::regnamespace AND c.relkind = 'r'
        AND c.relname <> 'schema_versions'
    ORDER BY c.relname
"""
_REMOVED: Final = "SELECT table_name, at FROM recollect.unscrubbed WHERE space_id = %s"
_REWRITES: Final = "SELECT table_name, at FROM recollect.rewritten"
_REWRITTEN: Final = """
    INSERT INTO recollect.rewritten (table_name, at) VALUES (%s, %s)
    ON CONFLICT (table_name) DO UPDATE SET at = excluded.at
"""
_OLDER: Final = """
    SELECT count(*) FROM pg_stat_activity
    WHERE backend_type = 'client backend' AND datname = current_database()
        AND pid <> pg_backend_pid() AND backend_xmin IS NOT NULL
        AND xact_start < clock_timestamp() - interval '1 second'
"""
_STEPS: Final = (
    ("SELECT pg_switch_wal()", "began a new WAL file"),
    ("CHECKPOINT", "wrote a checkpoint, which removes the old files"),
)


async def tables_to_scrub(work: Transaction) -> tuple[str, ...]:
    """Tables that still hold bytes which this space removed."""
    rewriting = await work.send(_REWRITES)
    removed = await work.rows(_REMOVED, (work.space_id,))
    rewritten = dict(await rewriting.fetchall())
    return tuple(
        sorted(table for table, at in removed if at > rewritten.get(table, 0.0) - _CLOCKS_APART)
    )


async def scrub(admin_url: str | None, tables: Collection[str] | None = None) -> ScrubResult:
    """Rewrite these tables, or all of ours, then ask for a checkpoint and a new WAL file."""
    if admin_url is None:
        return ScrubResult(done=(), cannot=(*NO_ADMIN, *OUT_OF_REACH))
    done: list[str] = []
    cannot: list[str] = []
    with driver_errors():
        async with await connect(admin_url) as connection:
            rows = await (await connection.execute(_OUR_TABLES)).fetchall()
            wanted = [name for (name,) in rows if tables is None or name in tables]
            rewritten = await _rewrite(connection, wanted, cannot)
            if rewritten == len(rows):
                done.append(f"rewrote all {rewritten} tables and their indexes")
            elif rewritten:
                done.append(f"rewrote the {rewritten} tables that hold what was removed")
            elif not wanted:
                done.append("no tables hold what this space removed")
            if rewritten:
                await _renew_log(connection, done, cannot)
    return ScrubResult(done=tuple(done), cannot=(*cannot, *OUT_OF_REACH))


async def _rewrite(connection: Connection, tables: Iterable[str], cannot: list[str]) -> int:
    rewritten = 0
    await connection.execute(f"SET lock_timeout = '{_LOCK_SECONDS}s'".encode())
    for table in tables:
        named = psycopg.sql.Identifier("recollect", table)
        began = time.time()
        older = await (await connection.execute(_OLDER)).fetchone()
        try:
            await connection.execute(psycopg.sql.SQL("VACUUM (FULL) {}").format(named))
        except sql_errors.LockNotAvailable:
            cannot.append(f"the table {table}: it was in use all the time, scrub again")
        except psycopg.OperationalError as error:
            if error.sqlstate is None:
                raise
            why = str(error).splitlines()[0]
            cannot.append(f"the table {table}: not every node could be reached, scrub again: {why}")
        else:
            rewritten += 1
            if older is not None and older[0]:
                # What an open transaction may still see is kept through a rewrite.
                cannot.append(f"the table {table}: a transaction was open all along, scrub again")
            else:
                await connection.execute(_REWRITTEN, (table, began))
    return rewritten


async def _renew_log(connection: Connection, done: list[str], cannot: list[str]) -> None:
    """Begin a new log and write a checkpoint, on every node there is."""
    citus = await citus_version(connection) is not None
    for statement, what in _STEPS:
        try:
            await connection.execute(statement.encode())
            done.append(what)
        except sql_errors.InsufficientPrivilege:
            cannot.append(f"{what.split(',')[0]}: the role may not; old files go later")
        if not citus:
            continue
        failed = {
            node: why
            for node, why in (await run_on_nodes(connection, statement)).items()
            if why is not None
        }
        cannot += [
            f"{what.split(',')[0]} on the node {node}: {why}; scrub again when it is back"
            for node, why in failed.items()
        ]
