"""Rewrites our tables so that removed rows are in no data file either. Needs their owner.

A plain VACUUM leaves most removed bytes where they are (measured: 197 of 200 rows), so every
table is rewritten; that locks it meanwhile, for all spaces. WAL that others hold is out of reach.
"""

from __future__ import annotations

from typing import Final

from recollect.stores.postgres.driver import driver_errors, psycopg, sql_errors
from recollect.stores.postgres.forget import OUT_OF_REACH
from recollect.stores.postgres.pool import connect
from recollect.values.upkeep import ScrubResult

_TABLES: Final = """
    SELECT c.relname FROM pg_class c
    WHERE c.relnamespace = 'recollect'::regnamespace AND c.relkind = 'r'
        AND c.relname <> 'schema_versions'
    ORDER BY c.relname
"""
NO_ADMIN: Final = (
    "data files of PostgreSQL: rewriting tables needs their owner, give `--admin-url URL`",
)
_LOCK_SECONDS: Final = 60
"""How long a table may be in use before it is left as it is."""


async def scrub(admin_url: str | None) -> ScrubResult:
    """Rewrite every table of ours, then ask for a checkpoint and a new WAL file."""
    if admin_url is None:
        return ScrubResult(done=(), cannot=(*NO_ADMIN, *OUT_OF_REACH))
    done: list[str] = []
    cannot: list[str] = []
    with driver_errors():
        async with await connect(admin_url) as connection:
            tables = [row[0] for row in await (await connection.execute(_TABLES)).fetchall()]
            rewritten = 0
            await connection.execute(f"SET lock_timeout = '{_LOCK_SECONDS}s'".encode())
            for table in tables:
                named = psycopg.sql.Identifier("recollect", table)
                try:
                    await connection.execute(psycopg.sql.SQL("VACUUM (FULL) {}").format(named))
                    rewritten += 1
                except sql_errors.LockNotAvailable:
                    cannot.append(f"the table {table}: it was in use all the time, scrub again")
            done.append(f"rewrote {rewritten} tables and their indexes")
            for statement, what in (
                (b"SELECT pg_switch_wal()", "began a new WAL file"),
                (b"CHECKPOINT", "wrote a checkpoint, which removes the old files"),
            ):
                try:
                    await connection.execute(statement)
                    done.append(what)
                except sql_errors.InsufficientPrivilege:
                    cannot.append(f"{what.split(',')[0]}: the role may not; old files go later")
    return ScrubResult(done=tuple(done), cannot=(*cannot, *OUT_OF_REACH))
