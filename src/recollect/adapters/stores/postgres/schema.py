"""The schema's versions: runs migrations, and says plainly when code and database differ.

Version 1 is `schema.sql`. What came later are numbered files in `migrations/`: `NNN_pre_*.sql` only
adds, and runs before the code that needs it; `NNN_post_*.sql` takes away, and runs when no older
code is left. Always holds: steps run in order, each statement on its own, each step in one
transaction with its record (one that builds an index concurrently cannot be in a transaction: its
statements may run again); no step waits for a lock longer than `LOCK_SECONDS`, because whoever
comes behind it waits too: it gives up, and tries again; opening never changes a schema by itself.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib import resources
from typing import Final, Literal, TypeAlias, cast

from recollect.adapters.stores.postgres.driver import (
    MIGRATE_COMMAND,
    driver_errors,
    psycopg,
    sql_errors,
)
from recollect.adapters.stores.postgres.pool import Connection, connect
from recollect.adapters.stores.postgres.roles import (
    APP_ROLE,
    CITUS_SETTINGS,
    LoginRole,
    apply_setting,
    grant_rights,
    login_roles,
    mend_of,
    missing_settings,
)
from recollect.errors import SchemaMismatch, StoreCorrupt, StoreError, StoreUnavailable

Phase: TypeAlias = Literal["pre", "post", "all"]
VERSION: Final = 8
SERVER_VERSION: Final = 16
"""The oldest PostgreSQL that the schema can be made on."""
LOCK_SECONDS: Final = 3.0
"""How long one statement of a migration waits for a lock before it lets the others go first."""
WAIT_SECONDS: Final = 300.0
"""How long a migration tries again before it gives up."""
_NAME: Final = re.compile(r"(\d{3})_(pre|post)_(\w+)\.sql")
_LOCK: Final = 7_261_941_203
"""Names the advisory lock that keeps two migrations apart; it ends with the connection."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 8.0
_EACH_SPACE: Final = "-- For each space"
"""Statements of a file behind this run once in every space, in a transaction each."""
_SPLIT: Final = re.compile(
    r"""--[^\n]* | '(?:[^']|'')*' | "[^"]*" | \$(\w*)\$.*?\$\1\$ | (?P<end>;)""", re.S | re.X
)
_CONCURRENTLY: Final = re.compile(r"^\s*CREATE\s+(?:UNIQUE\s+)?INDEX\s+CONCURRENTLY\b", re.I)
_INDEX_NAME: Final = re.compile(r"CONCURRENTLY\s+IF\s+NOT\s+EXISTS\s+(\w+)\s", re.I)
_STATISTICS: Final = re.compile(r"\bSET\s+STATISTICS\b", re.I)

_TAKE_LOCK: Final = "SELECT pg_try_advisory_lock(%s)"
_APPLIED: Final = """
    SELECT version, phase, name FROM recollect.schema_versions ORDER BY version, phase
"""
_RECORD: Final = """
    INSERT INTO recollect.schema_versions (version, phase, name, applied_at)
    VALUES (%s, %s, %s, %s)
"""
_INVALID: Final = """
    SELECT FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
    WHERE c.relnamespace = 'recollect'::regnamespace AND c.relname = %s AND NOT i.indisvalid
"""
_SPACE_IDS: Final = """
    SELECT space_id FROM recollect.spaces WHERE space_id > %s ORDER BY space_id LIMIT 500
"""
_SERVER: Final = """
    SELECT current_setting('server_version_num')::int / 10000, current_setting('server_version')
"""
_CITUS: Final = "SELECT extversion FROM pg_extension WHERE extname = 'citus'"
_ROLE: Final = """
    SELECT r.rolsuper OR r.rolbypassrls, EXISTS (
        SELECT FROM pg_class c WHERE c.relnamespace = 'recollect'::regnamespace
        AND c.relkind = 'r' AND c.relowner = r.oid
    ), (SELECT oid::int8 FROM pg_type WHERE oid = to_regtype('vector')), version(),
    (SELECT extversion FROM pg_extension WHERE extname = 'citus'),
    current_setting('citus.propagate_set_commands', true), session_user::text
    FROM pg_roles r WHERE r.rolname = current_user
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One numbered SQL file."""

    version: int
    phase: Literal["pre", "post"]
    name: str
    sql: str

    @property
    def file(self) -> str:
        """Its name without the ending, as it is told."""
        return f"{self.version:03}_{self.phase}_{self.name}"

    @property
    def statements(self) -> tuple[str, ...]:
        """What it runs, one by one: Citus takes no several at once."""
        return tuple(_statements(self.sql.partition(_EACH_SPACE)[0]))

    @property
    def in_each_space(self) -> tuple[str, ...]:
        """What it then runs once in every space."""
        return tuple(_statements(_EACH_SPACE + self.sql.partition(_EACH_SPACE)[2]))

    @property
    def concurrent(self) -> bool:
        """Whether it builds an index without stopping writers, which no transaction can."""
        return any(_CONCURRENTLY.match(statement) for statement in self.statements)


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What a fleet has to know of the database it is connected to."""

    engine: str
    vector_oid: int
    bypasses: bool
    """The URL's role is above row-level security."""
    owns: bool = False
    """It owns the tables; row-level security is forced on their owner too."""
    citus: str | None = None
    """The version of Citus, where it is installed in this database."""


def _statements(sql: str) -> Iterator[str]:
    """The statements of a file: parted at semicolons that stand in no string or comment."""
    begin = 0
    for found in _SPLIT.finditer(sql):
        if found.group("end"):
            yield sql[begin : found.start()].strip()
            begin = found.end()
    rest = re.sub(r"--[^\n]*", "", sql[begin:]).strip()
    if rest:
        yield rest


def migrations() -> tuple[Migration, ...]:
    """All of them in order: by number, and for each number first pre."""
    package = resources.files("recollect.adapters.stores.postgres")
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
    wait_seconds: float = WAIT_SECONDS,
    waiting: Callable[[str], None] = lambda _: None,
) -> tuple[str, ...]:
    """Bring a database to this version as its owner; the names of what ran.

    The application's role is made where it is missing: with a password it may log in, without
    one it is a group to grant to roles of your own. It owns nothing and is under row security.
    `waiting` is told when others hold what a step needs. Give the URL of the server itself: a
    pooler would part the lock from the steps.
    """
    with driver_errors():
        async with await connect(admin_url) as connection, _alone(connection, wait_seconds):
            await require_server(connection)
            await _extension(connection)
            locks = LockRetries(wait_seconds, waiting)
            ran = []
            for migration in _pending(await applied_steps(connection), phase):
                await _run(connection, migration, locks)
                ran.append(migration.file)
            grant = partial(_in_transaction, connection, app_role, app_password)
            await locks.run("rights", grant)
    return tuple(ran)


async def pending(admin_url: str, *, phase: Phase = "all") -> tuple[Migration, ...]:
    """What `migrate` would run; changes nothing."""
    with driver_errors():
        async with await connect(admin_url) as connection:
            await require_server(connection)
            return tuple(_pending(await applied_steps(connection), phase))


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What `initialize` did, or would do."""

    applied: tuple[str, ...]
    settings: tuple[str, ...]
    """Statements that set what the application's roles lacked."""
    cannot: tuple[str, ...] = ()
    """Those that the URL's role may not run: somebody who may has to."""


async def initialize(
    admin_url: str,
    *,
    app_role: str = APP_ROLE,
    app_password: str | None = None,
    settings: Mapping[str, str] | None = None,
    dry_run: bool = False,
    waiting: Callable[[str], None] = lambda _: None,
) -> Setup:
    """Make schema and role, and set timeouts and logging on every role of the application that
    logs in. `settings` are other values for what is set; run again, it sets what is missing."""
    if dry_run:
        applied = tuple(step.file for step in await pending(admin_url))
    else:
        applied = await migrate(
            admin_url, app_role=app_role, app_password=app_password, waiting=waiting
        )
    done: list[str] = []
    cannot: list[str] = []
    with driver_errors():
        async with await connect(admin_url) as connection:
            citus = await citus_version(connection) is not None
            roles = await login_roles(connection, app_role)
            if not roles and app_password is not None:  # a dry run has made none
                roles = (LoginRole(app_role, {}),)
            for role in roles:
                lacking = missing_settings(role, citus=citus)
                for name, value in {**lacking, **(settings or {})}.items():
                    if role.settings.get(name) != value:
                        set_now = dry_run or await apply_setting(connection, role.name, name, value)
                        (done if set_now else cannot).append(mend_of(role.name, name, value))
    return Setup(applied=applied, settings=tuple(done), cannot=tuple(cannot))


def _pending(done: AbstractSet[tuple[int, str]], phase: Phase) -> Iterator[Migration]:
    for migration in migrations():
        if (migration.version, migration.phase) not in done and phase in ("all", migration.phase):
            yield migration


async def _in_transaction(connection: Connection, role: str, password: str | None) -> None:
    async with connection.transaction():
        await grant_rights(connection, role, password)


@asynccontextmanager
async def _alone(connection: Connection, wait_seconds: float) -> AsyncIterator[None]:
    """No other migration runs meanwhile; the lock goes with the connection, too."""
    until = time.monotonic() + wait_seconds
    while True:
        row = await (await connection.execute(_TAKE_LOCK, (_LOCK,))).fetchone()
        if row is not None and row[0]:
            break
        if time.monotonic() > until:
            raise StoreUnavailable("another migration of this database runs: wait for its end")
        await asyncio.sleep(_FIRST_PAUSE)
    try:
        yield
    finally:
        if not connection.closed:
            await connection.execute("SELECT pg_advisory_unlock(%s)", (_LOCK,))


class LockRetries:
    """Runs a step again while others hold the locks it needs, with growing pauses."""

    def __init__(self, seconds: float, waiting: Callable[[str], None]) -> None:
        self._until = time.monotonic() + seconds
        self._waiting = waiting

    async def run(self, name: str, step: Callable[[], Awaitable[None]]) -> None:
        """Run a step until it gets its locks, or the time is over."""
        pause = _FIRST_PAUSE
        while True:
            try:
                await step()
            except (sql_errors.LockNotAvailable, sql_errors.DeadlockDetected):
                if time.monotonic() + pause > self._until:
                    raise StoreUnavailable(
                        f"{name}: others held a lock on its tables all the time; look for long "
                        "transactions in pg_stat_activity, end them, and run it again: what is "
                        "done stays done"
                    ) from None
            except psycopg.Error as error:
                if error.sqlstate is None:
                    raise
                raise StoreError(f"{name}: {str(error).splitlines()[0]}") from error
            else:
                return
            self._waiting(name)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
            pause = min(2 * pause, _LONGEST_PAUSE)


async def _run(connection: Connection, migration: Migration, locks: LockRetries) -> None:
    """Run one step, and note that it ran."""
    note = (migration.version, migration.phase, migration.name)
    apart = bool(migration.in_each_space) or migration.concurrent

    async def whole() -> None:
        async with connection.transaction():
            await limit_waiting(connection)
            for statement in migration.statements:
                await _execute(connection, statement)
            if not apart:
                await connection.execute(_RECORD, (*note, time.time()))

    if migration.concurrent:
        for statement in migration.statements:
            await locks.run(migration.file, partial(_alone_standing, connection, statement))
    else:
        await locks.run(migration.file, whole)
    if apart:
        await _run_in_spaces(connection, migration, locks)
        await connection.execute(_RECORD, (*note, time.time()))


async def _execute(connection: Connection, statement: str) -> None:
    if _STATISTICS.search(statement):
        # Citus refuses it on distributed tables; `db check` says where content is sampled
        try:
            async with connection.transaction():
                await connection.execute(statement.encode())
        except sql_errors.FeatureNotSupported:
            return
    else:
        await connection.execute(statement.encode())


async def limit_waiting(connection: Connection) -> None:
    """Wait for no lock longer than `LOCK_SECONDS` in this transaction."""
    await connection.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS:g}s'".encode())


async def _alone_standing(connection: Connection, statement: str) -> None:
    """A statement in no transaction of ours; an index that was left half built goes first."""
    if not _CONCURRENTLY.match(statement):
        async with connection.transaction():
            await limit_waiting(connection)
            await connection.execute(statement.encode())
        return
    # It waits for transactions to end while others go on: nobody queues behind it.
    await connection.execute(b"SET lock_timeout = 0")
    if (named := _INDEX_NAME.search(statement)) is not None:
        index = named.group(1)
        if await (await connection.execute(_INVALID, (index,))).fetchone() is not None:
            drop = psycopg.sql.SQL("DROP INDEX CONCURRENTLY {}")
            await connection.execute(drop.format(psycopg.sql.Identifier("recollect", index)))
    await connection.execute(statement.encode())


async def _run_in_spaces(connection: Connection, migration: Migration, locks: LockRetries) -> None:
    """Run the statements in every space, a transaction each: safe to interrupt and to repeat."""
    last = "00000000-0000-0000-0000-000000000000"
    while migration.in_each_space:
        async with connection.transaction():
            await connection.execute(b"SET LOCAL app.worker = 'on'")
            rows = await (await connection.execute(_SPACE_IDS, (last,))).fetchall()
        if not rows:
            return
        for (space_id,) in rows:

            async def one_space(space: object = space_id) -> None:
                async with connection.transaction():
                    await limit_waiting(connection)
                    await connection.execute(f"SET LOCAL app.space_id = '{space}'".encode())
                    for statement in migration.in_each_space:
                        await connection.execute(statement.encode(), {"space": space})

            await locks.run(migration.file, one_space)
        last = str(rows[-1][0])


async def require_server(connection: Connection) -> None:
    """Raise unless the server is one that the schema can be made on."""
    row = await (await connection.execute(_SERVER)).fetchone()
    assert row is not None
    if row[0] < SERVER_VERSION:
        raise StoreError(
            f"the server is PostgreSQL {row[1]}: this needs {SERVER_VERSION} or newer; upgrade it"
        )


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


async def citus_version(connection: Connection) -> str | None:
    """The version of Citus in this database; None where it is not installed."""
    row = await (await connection.execute(_CITUS)).fetchone()
    return None if row is None else str(row[0])


async def inspect_server(connection: Connection) -> Server:
    """Look at the database once; raises when its schema is not one this code works on."""
    with driver_errors():
        await require_server(connection)
        await require_schema(connection)
        row = await (await connection.execute(_ROLE)).fetchone()
        assert row is not None
        if row[2] is None:
            raise StoreError("the extension pgvector is not on the role's search_path")
        bypasses, owns, vector_oid, version, citus, propagates, user = row
        for name, wanted in CITUS_SETTINGS.items() if citus is not None else ():
            if propagates != wanted:
                raise StoreError(
                    f"the database is on Citus, and without {name} = {wanted!r} reads would be "
                    f"silently empty: run `{mend_of(user, name, wanted)}` and connect anew"
                )
        return Server(
            engine=" ".join(str(version).split()[:2]),
            vector_oid=int(vector_oid),
            bypasses=bool(bypasses),
            owns=bool(owns),
            citus=citus,
        )


async def require_schema(connection: Connection) -> None:
    """Raise unless the schema is one that this code works on."""
    try:
        done = await applied_steps(connection)
    except sql_errors.InsufficientPrivilege:
        raise StoreError(
            f"the URL's role may not use the schema: run `{MIGRATE_COMMAND}` as its owner"
        ) from None
    before = max((version for version, phase in done if phase == "pre"), default=0)
    after = max((version for version, phase in done if phase == "post"), default=0)
    if before < VERSION:
        have = f"version {before}" if before else "no schema of ours"
        raise SchemaMismatch(
            f"the database has {have}, this is version {VERSION}: run `{MIGRATE_COMMAND}`",
            state="old" if before else "missing",
        )
    if after > VERSION:
        raise SchemaMismatch(
            f"the database has version {after}, this code knows {VERSION}: upgrade recollect",
            state="new",
        )


async def applied_steps(connection: Connection) -> AbstractSet[tuple[int, str]]:
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
