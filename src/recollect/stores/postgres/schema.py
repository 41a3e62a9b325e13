"""The schema's versions: runs migrations, and says plainly when code and database differ.

Version 1 is `schema.sql`. What came later are numbered files in `migrations/`: `NNN_pre_*.sql` only
adds, and runs before the code that needs it; `NNN_post_*.sql` takes away, and runs when no older
code is left. Always holds: each runs
once, in order, in one transaction with its record; opening never changes a schema by itself.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from importlib import resources
from typing import Final, Literal, TypeAlias, cast

from recollect.errors import StoreCorrupt, StoreError
from recollect.stores.postgres.driver import MIGRATE_COMMAND, driver_errors, psycopg, sql_errors
from recollect.stores.postgres.forget import OUT_OF_REACH
from recollect.stores.postgres.pool import Connection, connect
from recollect.values.upkeep import ScrubResult

Phase: TypeAlias = Literal["pre", "post", "all"]
VERSION: Final = 2
APP_ROLE: Final = "recollect_app"
_NAME: Final = re.compile(r"(\d{3})_(pre|post)_(\w+)\.sql")
_LOCK: Final = 7_261_941_203
"""Names the advisory lock that keeps two migrations apart; it ends with the transaction."""

_TAKE_LOCK: Final = "SELECT pg_advisory_xact_lock(%s)"
_APPLIED: Final = """
    SELECT version, phase, name FROM recollect.schema_versions ORDER BY version, phase
"""
_RECORD: Final = """
    INSERT INTO recollect.schema_versions (version, phase, name, applied_at)
    VALUES (%s, %s, %s, %s)
"""
_ROLE: Final = """
    SELECT r.rolsuper OR r.rolbypassrls, EXISTS (
        SELECT FROM pg_class c WHERE c.relnamespace = 'recollect'::regnamespace
        AND c.relkind = 'r' AND c.relowner = r.oid
    ), (SELECT oid::int8 FROM pg_type WHERE oid = to_regtype('vector')), version()
    FROM pg_roles r WHERE r.rolname = current_user
"""
_APP_ROLE: Final = "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = %s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One numbered SQL file."""

    version: int
    phase: Literal["pre", "post"]
    name: str
    sql: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What a fleet has to know of the database it is connected to."""

    engine: str
    vector_oid: int
    bypasses: bool
    """The URL's role is above row-level security."""
    owns: bool = False
    """It owns the tables; row-level security is forced on their owner too."""


def migrations() -> tuple[Migration, ...]:
    """All of them in order: by number, and for each number first pre."""
    package = resources.files("recollect.stores.postgres")
    first = (package / "schema.sql").read_text("utf-8")
    found_migrations = [Migration(version=1, phase="pre", name="schema", sql=first)]
    for path in (package / "migrations").iterdir():
        if (named := _NAME.fullmatch(path.name)) is not None:
            number, phase, name = named.groups()
            found_migrations.append(
                Migration(
                    version=int(number),
                    phase=cast(Literal["pre", "post"], phase),
                    name=name,
                    sql=path.read_text("utf-8"),
                )
            )
    return tuple(
        sorted(found_migrations, key=lambda step: (step.version, step.phase == "post", step.name))
    )


async def migrate(
    admin_url: str,
    *,
    phase: Phase = "all",
    app_role: str = APP_ROLE,
    app_password: str | None = None,
) -> tuple[str, ...]:
    """Bring a database to this version as its owner; the names of what ran.

    The application's role is made where it is missing: with a password it may log in, without
    one it is a group to grant to roles of your own. It owns nothing and is under row security.
    """
    with driver_errors():
        async with await connect(admin_url) as connection, connection.transaction():
            await connection.execute(_TAKE_LOCK, (_LOCK,))
            await _extension(connection)
            done = await _applied(connection)
            ran = []
            for migration in migrations():
                if (migration.version, migration.phase) in done or phase not in (
                    "all",
                    migration.phase,
                ):
                    continue
                await connection.execute(migration.sql.encode())
                await connection.execute(
                    _RECORD, (migration.version, migration.phase, migration.name, time.time())
                )
                ran.append(f"{migration.version:03}_{migration.phase}_{migration.name}")
            await _grant(connection, app_role, app_password)
    return tuple(ran)


async def _extension(connection: Connection) -> None:
    try:
        await connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    except sql_errors.InsufficientPrivilege:
        raise StoreError(
            "the URL's role may not create the extension pgvector: "
            "have a superuser run `CREATE EXTENSION vector` in this database"
        ) from None
    except sql_errors.FeatureNotSupported:
        raise StoreError("the server has no pgvector: install it there first") from None


async def inspect_server(connection: Connection) -> Server:
    """Look at the database once; raises when its schema is not one this code works on."""
    with driver_errors():
        try:
            done = await _applied(connection)
        except sql_errors.InsufficientPrivilege:
            raise StoreError(
                f"the URL's role may not use the schema: run `{MIGRATE_COMMAND}` as its owner"
            ) from None
        before = max((version for version, phase in done if phase == "pre"), default=0)
        after = max((version for version, phase in done if phase == "post"), default=0)
        if before < VERSION:
            have = f"version {before}" if before else "no schema of ours"
            raise StoreError(
                f"the database has {have}, this is version {VERSION}: run `{MIGRATE_COMMAND}`"
            )
        if after > VERSION:
            raise StoreCorrupt(
                f"the database has version {after}, this code knows {VERSION}: upgrade recollect"
            )
        row = await (await connection.execute(_ROLE)).fetchone()
        assert row is not None
        if row[2] is None:
            raise StoreError("the extension pgvector is not on the role's search_path")
        return Server(
            engine=" ".join(str(row[3]).split()[:2]),
            vector_oid=int(row[2]),
            bypasses=bool(row[0]),
            owns=bool(row[1]),
        )


async def require_bound(connection: Connection, role: str) -> None:
    """Raise unless this role exists and is under row-level security."""
    row = await (await connection.execute(_APP_ROLE, (role,))).fetchone()
    if row is None:
        raise StoreError(f"there is no role {role!r} to act as: run `{MIGRATE_COMMAND}`")
    if row[0]:
        raise StoreError(
            f"the role {role!r} is a superuser or has BYPASSRLS, so it would see every space: "
            "name another one"
        )


async def _applied(connection: Connection) -> AbstractSet[tuple[int, str]]:
    """What ran, by number and phase; raises where it is not what has these numbers here."""
    exists = "SELECT to_regclass('recollect.schema_versions') IS NOT NULL"
    row = await (await connection.execute(exists)).fetchone()
    if row is None or not row[0]:
        return set()
    done = {
        (version, phase): name
        for version, phase, name in await (await connection.execute(_APPLIED)).fetchall()
    }
    ours = {(step.version, step.phase): step.name for step in migrations()}
    if any(name != ours.get(step) for step, name in done.items() if step[0] <= VERSION):
        raise StoreCorrupt(
            "the database was made by an earlier development version: make it anew; what is in it "
            "comes along by `recollect export` of that version and `recollect import` of this one"
        )
    return done.keys()


async def _grant(connection: Connection, role: str, password: str | None) -> None:
    """Make the role where it is missing; rights on everything but the record of versions."""
    name = psycopg.sql.Identifier(role)
    known = await (
        await connection.execute("SELECT FROM pg_roles WHERE rolname = %s", (role,))
    ).fetchone()
    if known is None:
        try:
            await connection.execute(
                psycopg.sql.SQL("CREATE ROLE {} NOLOGIN NOSUPERUSER NOBYPASSRLS").format(name)
            )
        except sql_errors.InsufficientPrivilege:
            raise StoreError(
                f"the URL's role may not make the role {role!r}: have it made, or grant CREATEROLE"
            ) from None
    await require_bound(connection, role)
    if password is not None:
        await connection.execute(
            psycopg.sql.SQL("ALTER ROLE {} LOGIN PASSWORD {}").format(name, password)
        )
    with contextlib.suppress(sql_errors.InsufficientPrivilege):  # made by somebody else
        async with connection.transaction():
            plans = psycopg.sql.SQL("ALTER ROLE {} SET plan_cache_mode = force_custom_plan")
            await connection.execute(plans.format(name))
    for statement in (
        psycopg.sql.SQL("GRANT USAGE ON SCHEMA recollect TO {}"),
        psycopg.sql.SQL(
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA recollect TO {}"
        ),
        psycopg.sql.SQL("REVOKE INSERT, UPDATE, DELETE ON recollect.schema_versions FROM {}"),
    ):
        await connection.execute(statement.format(name))


_OUR_TABLES: Final = """
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
    """Rewrite every table of ours, then ask for a checkpoint and a new WAL file.

    A plain VACUUM leaves most removed bytes where they are (measured: 197 of 200 rows). Rewriting
    locks a table meanwhile, for all spaces. WAL that others hold is out of reach.
    """
    if admin_url is None:
        return ScrubResult(done=(), cannot=(*NO_ADMIN, *OUT_OF_REACH))
    done: list[str] = []
    cannot: list[str] = []
    with driver_errors():
        async with await connect(admin_url) as connection:
            tables = [row[0] for row in await (await connection.execute(_OUR_TABLES)).fetchall()]
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
