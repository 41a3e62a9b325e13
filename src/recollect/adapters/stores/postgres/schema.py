"""The schema's versions, and the application's role with its rights and settings.

`schema.sql` has version 7; later versions are numbered files in `migrations/`. `NNN_pre_*.sql` only
adds objects, and runs before the code that needs them is deployed. `NNN_post_*.sql` removes
objects, and runs when no older code is in use. A migration runs and records each step in one
transaction. A step waits for a lock at most `LOCK_SECONDS`, then retries. Opening a store never
changes the schema. Each login role gets its own settings, because members of a role do not inherit
them, and a transaction pooler would lose settings of a connection."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib import resources
from typing import Any, Final, Literal, LiteralString, TypeAlias, cast

from recollect.adapters.stores.postgres.driver import (
    MIGRATE_COMMAND,
    driver_errors,
    psycopg,
    sql_errors,
)
from recollect.adapters.stores.postgres.link import Connection, connect
from recollect.errors import SchemaMismatch, StoreCorrupt, StoreError, StoreUnavailable

APP_ROLE: Final = "recollect_app"
TIMEOUTS: Final[Mapping[str, str]] = {
    "statement_timeout": "60s",
    "lock_timeout": "30s",
    "idle_in_transaction_session_timeout": "60s",
}
"""PostgreSQL's limits, which apply only if the store cannot cancel a statement after 60 seconds."""
LOGGING: Final[Mapping[str, str]] = {
    "log_min_error_statement": "panic",
    "log_parameter_max_length": "0",
}
"""Settings that keep content out of the server's log; only a superuser may set them. Citus workers
get parameters as literals, which only the first setting keeps out of the log."""
CITUS_SETTINGS: Final[Mapping[str, str]] = {"citus.propagate_set_commands": "local"}
"""Row security reads app.space_id, set in each transaction, so Citus must pass it to workers."""

_APP_ROLE: Final = "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = %s"
_LOGIN_ROLES: Final = """
    SELECT r.rolname, coalesce((
        SELECT array_agg(setting ORDER BY s.setdatabase)
        FROM pg_db_role_setting s CROSS JOIN unnest(s.setconfig) AS setting
        WHERE s.setrole = r.oid AND s.setdatabase IN (0, (
            SELECT oid FROM pg_database WHERE datname = current_database()))
    ), '{}')
    FROM pg_roles r
    WHERE r.rolcanlogin AND NOT r.rolsuper AND (r.rolname = %(role)s OR pg_has_role(
        r.oid, (SELECT oid FROM pg_roles WHERE rolname = %(role)s), 'MEMBER'))
    ORDER BY r.rolname
"""
_KEPT_FROM_THE_ROLE: Final = {
    "schema_versions": psycopg.sql.SQL("INSERT, UPDATE, DELETE"),
    "rewritten": psycopg.sql.SQL("INSERT, UPDATE, DELETE"),
    "audit_log": psycopg.sql.SQL("UPDATE, DELETE"),
}
"""Rights that the application's role must not have. Later migrations add some of these tables."""

PLAN_CACHE_MODE: Final = "auto"
"""With `auto`, PostgreSQL keeps one plan of a prepared statement if new plans are no better.
Statements that compare vectors are prepared in small spaces only: see `PREPARED_PASSAGES`."""


def missing_settings(settings: Mapping[str, str], *, citus: bool) -> dict[str, str]:
    """Return the settings that a role lacks. A timeout may differ, but must not be off."""
    required_settings = {
        "plan_cache_mode": PLAN_CACHE_MODE,
        **LOGGING,
        **(CITUS_SETTINGS if citus else {}),
    }
    off_timeouts = {
        name: value for name, value in TIMEOUTS.items() if settings.get(name) in (None, "0")
    }
    return off_timeouts | {
        name: value for name, value in required_settings.items() if settings.get(name) != value
    }


def alter_role(role: str, name: str, value: str) -> str:
    quoted_role = role.replace('"', '""')
    return f"ALTER ROLE \"{quoted_role}\" SET {name} = '{value}'"


async def login_roles(connection: Connection, role: str) -> dict[str, dict[str, str]]:
    """Return the settings of each login role among the application's role and its members."""
    rows = await (await connection.execute(_LOGIN_ROLES, {"role": role})).fetchall()
    return {name: dict(setting.split("=", 1) for setting in settings) for name, settings in rows}


async def apply_missing(
    connection: Connection, app_role: str, *, citus: bool, only: Collection[str] | None = None
) -> tuple[list[str], list[str]]:
    """Add the settings that the login roles lack, or just those named in `only`. Return the
    statements that ran, and those that the URL's role may not run."""
    statements: list[str] = []
    cannot: list[str] = []
    for role, settings in (await login_roles(connection, app_role)).items():
        for name, value in missing_settings(settings, citus=citus).items():
            if only is not None and name not in only:
                continue
            statement = alter_role(role, name, value)
            try:
                async with connection.transaction():
                    await connection.execute(statement.encode())
                statements.append(statement)
            except sql_errors.InsufficientPrivilege:
                cannot.append(statement)
    return statements, cannot


async def require_bound(connection: Connection, role: str) -> None:
    """Raise an error unless this role exists and row-level security applies to it."""
    row = await (await connection.execute(_APP_ROLE, (role,))).fetchone()
    if row is None:
        raise StoreError(f"the role {role!r} does not exist: run `{MIGRATE_COMMAND}`")
    if row[0]:
        raise StoreError(
            f"the role {role!r} is a superuser or has BYPASSRLS, so it would see every space: "
            "name another role"
        )


async def _grant_rights(connection: Connection, role: str, password: str | None) -> None:
    name = psycopg.sql.Identifier(role)

    async def run(statement: LiteralString, *parts: Any) -> None:
        await connection.execute(psycopg.sql.SQL(statement).format(*parts))

    async with connection.transaction():
        cursor = await connection.execute("SELECT FROM pg_roles WHERE rolname = %s", (role,))
        if await cursor.fetchone() is None:
            try:
                await run("CREATE ROLE {} NOLOGIN NOSUPERUSER NOBYPASSRLS", name)
            except sql_errors.InsufficientPrivilege:
                raise StoreError(
                    f"the URL's role may not create the role {role!r}: have a superuser create "
                    "it, or grant CREATEROLE"
                ) from None
        await require_bound(connection, role)
        if password is not None:
            # Statements that change roles may be logged, so send the verifier, not the password.
            verifier = connection.pgconn.encrypt_password(
                password.encode(), role.encode(), b"scram-sha-256"
            )
            await run("ALTER ROLE {} LOGIN PASSWORD {}", name, verifier.decode())
        with contextlib.suppress(sql_errors.InsufficientPrivilege):  # another role created it
            async with connection.transaction():
                await run("ALTER ROLE {} SET plan_cache_mode = {}", name, PLAN_CACHE_MODE)
        await run("GRANT USAGE ON SCHEMA recollect TO {}", name)
        await run(
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA recollect TO {}", name
        )
        for table, rights in _KEPT_FROM_THE_ROLE.items():
            exists = "SELECT FROM pg_tables WHERE schemaname = 'recollect' AND tablename = %s"
            if await (await connection.execute(exists, (table,))).fetchone() is not None:
                table_name = psycopg.sql.Identifier("recollect", table)
                await run("REVOKE {} ON {} FROM {}", rights, table_name, name)


Phase: TypeAlias = Literal["pre", "post", "all"]
VERSION: Final = 11
"""The number of the newest migration. Stores open only databases with its `pre` step."""
_OLDEST: Final = 7
"""The version of `schema.sql`. Databases with older versions cannot be migrated."""
SERVER_VERSION: Final = 16
"""The oldest PostgreSQL that supports the schema."""
LOCK_SECONDS: Final = 3.0
"""A statement waits this long for a lock, and then lets other sessions go first."""
WAIT_SECONDS: Final = 300.0
"""A migration gives up after this long."""
_NAME: Final = re.compile(r"(\d{3})_(pre|post)_(\w+)\.sql")
_LOCK: Final = 7_261_941_203
"""The advisory lock of migrations. PostgreSQL releases this lock when the connection ends."""
_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.2, 8.0
_EACH_SPACE: Final = "-- For each space"
"""Statements after this line of a file run once per space, in one transaction each."""
_SPLIT: Final = re.compile(
    r"""--[^\n]* | '(?:[^']|'')*' | "[^"]*" | \$(\w*)\$.*?\$\1\$ | (?P<end>;)""", re.S | re.X
)

_TAKE_LOCK: Final = "SELECT pg_try_advisory_lock(%s)"
_APPLIED: Final = """
    SELECT version, phase, name FROM recollect.schema_versions ORDER BY version, phase
"""
_RECORD: Final = """
    INSERT INTO recollect.schema_versions (version, phase, name, applied_at)
    VALUES (%s, %s, %s, %s)
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
        return f"{self.version:03}_{self.phase}_{self.name}"

    @property
    def statements(self) -> tuple[str, ...]:
        """Return the file's statements one by one, as Citus needs them."""
        return tuple(_split_statements(self.sql.partition(_EACH_SPACE)[0]))

    @property
    def in_each_space(self) -> tuple[str, ...]:
        """Return the statements to run once per space, after the other statements."""
        return tuple(_split_statements(_EACH_SPACE + self.sql.partition(_EACH_SPACE)[2]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Properties of a database that a fleet needs."""

    engine: str
    vector_oid: int
    bypasses: bool
    """True if row-level security does not apply to the URL's role."""
    owns: bool
    """True if the URL's role owns the tables."""
    citus: str | None = None


def _split_statements(sql: str) -> Iterator[str]:
    begin = 0
    for match in _SPLIT.finditer(sql):
        if match.group("end"):
            yield sql[begin : match.start()].strip()
            begin = match.end()
    last_statement = re.sub(r"--[^\n]*", "", sql[begin:]).strip()
    if last_statement:
        yield last_statement


def migrations() -> tuple[Migration, ...]:
    """List all migrations by number, each `pre` before its `post`."""
    package = resources.files("recollect.adapters.stores.postgres")
    first = (package / "schema.sql").read_text("utf-8")
    steps = [Migration(version=_OLDEST, phase="pre", name="outcomes", sql=first)]
    for path in (package / "migrations").iterdir():
        if (match := _NAME.fullmatch(path.name)) is not None:
            number, phase, name = match.groups()
            steps.append(
                Migration(
                    version=int(number),
                    phase=cast(Literal["pre", "post"], phase),
                    name=name,
                    sql=path.read_text("utf-8"),
                )
            )
    return tuple(sorted(steps, key=lambda step: (step.version, step.phase == "post", step.name)))


async def migrate(
    admin_url: str,
    *,
    phase: Phase = "all",
    app_role: str = APP_ROLE,
    app_password: str | None = None,
    wait_seconds: float = WAIT_SECONDS,
    waiting: Callable[[str], None] = lambda _: None,
) -> tuple[str, ...]:
    """Migrate a database as its owner. Return the names of the steps that ran. The application's
    role is created if it is missing. With a password, the role may log in; otherwise, grant it to
    other roles. The application's role owns nothing, and row security applies to it. A step calls
    `waiting` while it waits for a lock. Pass the server's own URL: a pooler would separate the lock
    from the steps."""
    with driver_errors():
        async with (
            await connect(admin_url) as connection,
            _lock_migrations(connection, wait_seconds),
        ):
            await require_server(connection)
            await _create_extension(connection)
            locks = LockRetries(wait_seconds, waiting)
            ran = []
            for migration in _pending_steps(await read_applied_steps(connection), phase):
                await _run_migration(connection, migration, locks)
                ran.append(migration.file)
            await locks.run("rights", partial(_grant_rights, connection, app_role, app_password))
    return tuple(ran)


async def pending(admin_url: str, *, phase: Phase = "all") -> tuple[Migration, ...]:
    """List the steps that `migrate` would run, without running them."""
    with driver_errors():
        async with await connect(admin_url) as connection:
            await require_server(connection)
            return tuple(_pending_steps(await read_applied_steps(connection), phase))


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The changes that `initialize` made, and those that it could not make."""

    applied: tuple[str, ...]
    settings: tuple[str, ...]
    """Statements that ran, to add settings that the application's roles lacked."""
    cannot: tuple[str, ...] = ()
    """Statements that only a superuser may run, so that they did not run."""


async def initialize(
    admin_url: str,
    *,
    app_role: str = APP_ROLE,
    app_password: str | None = None,
    waiting: Callable[[str], None] = lambda _: None,
) -> Setup:
    """Create schema and role, and set timeouts and logging on every login role of the application.
    A second run adds only missing parts."""
    file_names = await migrate(
        admin_url, app_role=app_role, app_password=app_password, waiting=waiting
    )
    with driver_errors():
        async with await connect(admin_url) as connection:
            citus = await citus_version(connection) is not None
            statements, cannot = await apply_missing(connection, app_role, citus=citus)
    return Setup(applied=file_names, settings=tuple(statements), cannot=tuple(cannot))


def _pending_steps(applied_keys: AbstractSet[tuple[int, str]], phase: Phase) -> Iterator[Migration]:
    for migration in migrations():
        if (migration.version, migration.phase) not in applied_keys and phase in (
            "all",
            migration.phase,
        ):
            yield migration


@asynccontextmanager
async def _lock_migrations(connection: Connection, wait_seconds: float) -> AsyncIterator[None]:
    """Prevent other migrations. PostgreSQL also releases the lock when the connection ends."""
    deadline = time.monotonic() + wait_seconds
    while True:
        row = await (await connection.execute(_TAKE_LOCK, (_LOCK,))).fetchone()
        if row is not None and row[0]:
            break
        if time.monotonic() > deadline:
            raise StoreUnavailable(
                "another migration of this database is running: wait until it has finished"
            )
        await asyncio.sleep(_MIN_PAUSE_SECONDS)
    try:
        yield
    finally:
        if not connection.closed:
            await connection.execute("SELECT pg_advisory_unlock(%s)", (_LOCK,))


class LockRetries:
    """Repeats a step, with growing pauses, while other sessions hold locks that the step needs."""

    def __init__(self, seconds: float, waiting: Callable[[str], None]) -> None:
        self._deadline = time.monotonic() + seconds
        self._waiting = waiting

    async def run(self, name: str, step: Callable[[], Awaitable[None]]) -> None:
        pause = _MIN_PAUSE_SECONDS
        while True:
            try:
                await step()
            except (sql_errors.LockNotAvailable, sql_errors.DeadlockDetected):
                if time.monotonic() + pause > self._deadline:
                    raise StoreUnavailable(
                        f"{name}: other transactions held locks on its tables. Find long "
                        "transactions in pg_stat_activity, end them, and run the command "
                        "again: finished steps are kept"
                    ) from None
            except psycopg.Error as error:
                if error.sqlstate is None:
                    raise
                raise StoreError(f"{name}: {str(error).splitlines()[0]}") from error
            else:
                return
            self._waiting(name)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
            pause = min(2 * pause, _MAX_PAUSE_SECONDS)


async def _run_migration(connection: Connection, migration: Migration, locks: LockRetries) -> None:
    record = (migration.version, migration.phase, migration.name)

    async def run_statements() -> None:
        async with connection.transaction():
            await limit_waiting(connection)
            for statement in migration.statements:
                await connection.execute(statement.encode())
            if not migration.in_each_space:
                await connection.execute(_RECORD, (*record, time.time()))

    await locks.run(migration.file, run_statements)
    if migration.in_each_space:
        await _run_in_spaces(connection, migration, locks)
        await connection.execute(_RECORD, (*record, time.time()))


async def limit_waiting(connection: Connection) -> None:
    """Limit how long this transaction waits for any lock to `LOCK_SECONDS`."""
    await connection.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS:g}s'".encode())


async def _run_in_spaces(connection: Connection, migration: Migration, locks: LockRetries) -> None:
    last = "00000000-0000-0000-0000-000000000000"
    while True:
        async with connection.transaction():
            await connection.execute(b"SET LOCAL app.worker = 'on'")
            rows = await (await connection.execute(_SPACE_IDS, (last,))).fetchall()
        if not rows:
            return
        for (space_id,) in rows:

            async def run_in_space(space: object = space_id) -> None:
                async with connection.transaction():
                    await limit_waiting(connection)
                    await connection.execute(f"SET LOCAL app.space_id = '{space}'".encode())
                    for statement in migration.in_each_space:
                        await connection.execute(statement.encode(), {"space": space})

            await locks.run(migration.file, run_in_space)
        last = str(rows[-1][0])


async def require_server(connection: Connection) -> None:
    row = await (await connection.execute(_SERVER)).fetchone()
    assert row is not None
    if row[0] < SERVER_VERSION:
        raise StoreError(f"the server is PostgreSQL {row[1]}: upgrade to {SERVER_VERSION} or newer")


async def _create_extension(connection: Connection) -> None:
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
    row = await (await connection.execute(_CITUS)).fetchone()
    return None if row is None else str(row[0])


async def inspect_server(connection: Connection) -> Server:
    """Read the properties of the database. Raise an error if this code cannot use its schema."""
    with driver_errors():
        await require_server(connection)
        await require_schema(connection)
        row = await (await connection.execute(_ROLE)).fetchone()
        assert row is not None
        if row[2] is None:
            raise StoreError("the extension pgvector is not on the role's search_path")
        bypasses, owns, vector_oid, version, citus, propagates, user = row
        for name, value in CITUS_SETTINGS.items() if citus is not None else ():
            if propagates != value:
                raise StoreError(
                    f"the database is on Citus, and without {name} = {value!r} queries would "
                    f"silently return nothing: run `{alter_role(user, name, value)}` and connect "
                    "again"
                )
        return Server(
            engine=" ".join(str(version).split()[:2]),
            vector_oid=int(vector_oid),
            bypasses=bool(bypasses),
            owns=bool(owns),
            citus=citus,
        )


async def require_schema(connection: Connection) -> None:
    try:
        step_keys = await read_applied_steps(connection)
    except sql_errors.InsufficientPrivilege:
        raise StoreError(
            f"the URL's role may not use the schema: run `{MIGRATE_COMMAND}` as its owner"
        ) from None
    pre_version = max((version for version, phase in step_keys if phase == "pre"), default=0)
    post_version = max((version for version, phase in step_keys if phase == "post"), default=0)
    if pre_version < VERSION:
        have = f"version {pre_version}" if pre_version else "no schema of Recollect"
        raise SchemaMismatch(
            f"the database has {have}, but this Recollect needs version {VERSION}: run "
            f"`{MIGRATE_COMMAND}`",
            state="old" if pre_version else "missing",
        )
    if post_version > VERSION:
        raise SchemaMismatch(
            f"the database has version {post_version}, but this Recollect supports only up to "
            f"{VERSION}: upgrade Recollect",
            state="new",
        )


async def read_applied_steps(connection: Connection) -> AbstractSet[tuple[int, str]]:
    """Read the steps that ran, by number and phase. Raise an error if a step is unknown."""
    exists = "SELECT to_regclass('recollect.schema_versions') IS NOT NULL"
    row = await (await connection.execute(exists)).fetchone()
    if row is None or not row[0]:
        return set()
    name_by_step = {
        (version, phase): name
        for version, phase, name in await (await connection.execute(_APPLIED)).fetchall()
    }
    our_steps = {(step.version, step.phase): step.name for step in migrations()}
    if any(
        name != our_steps.get(step)
        for step, name in name_by_step.items()
        if _OLDEST <= step[0] <= VERSION
    ) or (name_by_step and (_OLDEST, "pre") not in name_by_step):
        raise StoreCorrupt(
            "the database was made by an earlier development version: export its content with "
            "that version (`recollect export`), create the database again, and import the "
            "content (`recollect import`)"
        )
    return name_by_step.keys()
