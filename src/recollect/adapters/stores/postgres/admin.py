"""Tasks for a database's owner: distribute tables on Citus, scrub data files, check the database.

Tables of spaces are distributed by space_id and colocated with `spaces`. Tables of other kinds stay
on the coordinator, so that a lost worker holds no tenant's keys. `distribute` can be interrupted
and repeated. `scrub` rewrites tables, and locks each one meanwhile, because a plain VACUUM leaves
most removed bytes in place (197 of 200 rows). WAL on other servers or in archives still contains
the bytes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import msgspec

from recollect.adapters.stores.postgres import schema
from recollect.adapters.stores.postgres.driver import (
    MIGRATE_COMMAND,
    driver_errors,
    psycopg,
    sql_errors,
    unescape,
)
from recollect.adapters.stores.postgres.link import Connection, connect
from recollect.adapters.stores.postgres.pool import Transaction
from recollect.core.values.upkeep import ScrubResult
from recollect.errors import StoreError

LEADER: Final = "spaces"
"""The table to distribute first, because all others are colocated with it."""
DISTRIBUTE_COMMAND: Final = "recollect db distribute URL"

_TABLES: Final = """
    SELECT c.relname FROM pg_class c
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'space_id'
    WHERE c.relnamespace = 'recollect'::regnamespace AND c.relkind = 'r' ORDER BY c.relname
"""
_DISTRIBUTED: Final = """
    SELECT c.relname, pg_relation_size(c.oid)
    FROM pg_dist_partition p JOIN pg_class c ON c.oid = p.logicalrelid
    WHERE c.relnamespace = 'recollect'::regnamespace
"""
_NODES: Final = """
    SELECT nodename, nodeport, isactive, shouldhaveshards FROM pg_dist_node
    WHERE noderole = 'primary' ORDER BY nodename, nodeport
"""
_FIRST: Final = "SELECT create_distributed_table(%s, 'space_id')"
_FIRST_SHARDS: Final = "SELECT create_distributed_table(%s, 'space_id', shard_count => %s::integer)"
_NEXT_TO_SPACES: Final = (
    f"SELECT create_distributed_table(%s, 'space_id', colocate_with => 'recollect.{LEADER}')"
)
_BRING_BACK: Final = "SELECT undistribute_table(%s)"
_TRUNCATE: Final = "SELECT truncate_local_data_after_distributing_table(%s)"
_FUNCTION: Final = "SELECT create_distributed_function(%s)"
_DUE_FUNCTION: Final = "recollect.due_spaces(text, double precision, integer)"
_ON_WORKERS: Final = "SELECT nodename, nodeport, success, result FROM run_command_on_workers(%s)"
_PLACES: Final = """
    SELECT nodename, nodeport, array_agg(shardid) FROM pg_dist_shard_placement
    JOIN pg_dist_shard USING (shardid)
    WHERE pg_dist_shard.logicalrelid = 'recollect.spaces'::regclass GROUP BY 1, 2 ORDER BY 1, 2
"""
_ON_NODE: Final = """
    SELECT success, result FROM master_run_on_worker(%s::text[], %s::int[], %s::text[], false)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Citus's configuration of this database."""

    version: str
    nodes: dict[str, bool]
    """True or false per node: whether the node is active."""
    takes_shards: bool
    """True if an active node accepts shards."""
    tables: tuple[str, ...]
    """The tables to distribute, `spaces` first."""
    distributed: dict[str, int]
    """Bytes of each distributed table that are still in the coordinator's own files."""

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(name for name in self.tables if name not in self.distributed)

    @property
    def misplaced(self) -> tuple[str, ...]:
        """List the tables that are distributed but belong on the coordinator."""
        return tuple(name for name in self.distributed if name not in self.tables)

    @property
    def remains(self) -> tuple[str, ...]:
        return tuple(name for name in self.tables if self.distributed.get(name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """The changes that `distribute` made."""

    distributed: tuple[str, ...] = ()
    returned: tuple[str, ...] = ()
    """Tables that an earlier version distributed; they are now back on the coordinator."""
    truncated: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    """Statements for the operator to run, because the application's roles lack these settings."""
    cannot: tuple[str, ...] = ()


async def look_at_cluster(connection: Connection) -> Cluster | None:
    version = await schema.citus_version(connection)
    if version is None:
        return None
    tables = [name for (name,) in await (await connection.execute(_TABLES)).fetchall()]
    nodes = await (await connection.execute(_NODES)).fetchall()
    return Cluster(
        version=version,
        nodes={f"{name}:{port}": bool(active) for name, port, active, _ in nodes},
        takes_shards=any(active and takes for _, _, active, takes in nodes),
        tables=tuple(sorted(tables, key=lambda name: name != LEADER)),
        distributed=dict(await (await connection.execute(_DISTRIBUTED)).fetchall()),
    )


async def distribute(
    admin_url: str,
    *,
    app_role: str = schema.APP_ROLE,
    shard_count: int | None = None,
    wait_seconds: float = schema.WAIT_SECONDS,
    waiting: Callable[[str], None] = lambda _: None,
) -> Distribution:
    with driver_errors():
        async with await connect(admin_url) as connection:
            await schema.require_server(connection)
            cluster = await look_at_cluster(connection)
            if cluster is None:
                raise StoreError(
                    "this database has no Citus, so there is nothing to distribute. On a cluster, "
                    "run `CREATE EXTENSION citus` and `SELECT citus_add_node(…)` first"
                )
            await schema.require_schema(connection)
            if not cluster.takes_shards:
                raise StoreError(
                    "Citus has no node for shards: run `SELECT citus_add_node('HOST', 5432)` for "
                    "each worker first"
                )
            settings, refused_statements = await schema.apply_missing(
                connection, app_role, citus=True, only=schema.CITUS_SETTINGS
            )
            if refused_statements:
                raise StoreError(
                    "without this setting, queries would silently return nothing: run "
                    f"`{refused_statements[0]}` first"
                )
            locks = schema.LockRetries(wait_seconds, waiting)
            for name in cluster.missing:
                step = partial(_distribute, connection, name, shard_count)
                await locks.run(f"recollect.{name}", step)
            for name in cluster.misplaced:
                await locks.run(f"recollect.{name}", partial(_bring_back, connection, name))
            new_cluster = await look_at_cluster(connection) or cluster
            for name in new_cluster.remains:
                await locks.run(f"recollect.{name}", partial(_truncate, connection, name))
            cannot = await _share_function(connection)
    return Distribution(
        distributed=cluster.missing,
        returned=cluster.misplaced,
        truncated=new_cluster.remains,
        settings=tuple(settings),
        cannot=tuple(cannot),
    )


async def _distribute(connection: Connection, name: str, shard_count: int | None) -> None:
    table = f"recollect.{name}"
    async with connection.transaction():
        await schema.limit_waiting(connection)
        if name != LEADER:
            await connection.execute(_NEXT_TO_SPACES, (table,))
        elif shard_count is not None:
            await connection.execute(_FIRST_SHARDS, (table, shard_count))
        else:
            await connection.execute(_FIRST, (table,))


async def _bring_back(connection: Connection, name: str) -> None:
    table = psycopg.sql.Identifier("recollect", name)
    rule = psycopg.sql.SQL("ALTER TABLE {} {} ROW LEVEL SECURITY")
    async with connection.transaction():
        await schema.limit_waiting(connection)
        # Forced row security would hide the rows from the owner who copies them.
        await connection.execute("SET LOCAL row_security = off")
        await connection.execute(rule.format(table, psycopg.sql.SQL("NO FORCE")))
        await connection.execute(_BRING_BACK, (f"recollect.{name}",))
        await connection.execute(rule.format(table, psycopg.sql.SQL("FORCE")))


async def _truncate(connection: Connection, name: str) -> None:
    async with connection.transaction():
        await schema.limit_waiting(connection)
        await connection.execute(_TRUNCATE, (f"recollect.{name}",))


async def _share_function(connection: Connection) -> list[str]:
    try:
        async with connection.transaction():
            await connection.execute(_FUNCTION, (_DUE_FUNCTION,))
    except psycopg.Error as error:
        reason = str(error).splitlines()[0]
        return [
            (
                f"the function {_DUE_FUNCTION} could not be copied to every node, so workers find "
                f"no jobs while a node is down: {reason}"
            )
        ]
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class DueSpaces:
    """The spaces with due jobs, and the Citus nodes that did not answer."""

    names: tuple[str, ...]
    unreached: tuple[str, ...] = ()
    oldest_due_at: float | None = None
    """Time at which the earliest job of the database became due."""


class DueByNode:
    """Finds due jobs on Citus by asking one node after the other, so that the work of a query does
    not grow with the cluster and a node that is down does not delay others."""

    def __init__(self) -> None:
        self._answers: dict[str, list[tuple[float, str]] | None] = {}
        """Last answer by node (None: no answer). The node that was asked longest ago is first."""

    async def ask(self, view: Transaction, now: float, limit: int, *, all_nodes: bool) -> DueSpaces:
        """Ask the next node, or all nodes if `all_nodes` is true."""
        nodes = {
            f"{name}:{port}": (name, port, ids) for name, port, ids in await view.rows(_PLACES)
        }
        answers = {node: due for node, due in self._answers.items() if node in nodes}
        turns = [*(node for node in nodes if node not in answers), *answers]
        due_jobs: list[tuple[float, str]] = []
        for node in turns if all_nodes else turns[:1]:
            answers.pop(node, None)
            answers[node] = due = await _ask_node(view, *nodes[node], now, limit)
            due_jobs += due or ()
        self._answers = answers
        return DueSpaces(
            names=tuple(unescape(name) for _, name in sorted(due_jobs)[:limit]),
            unreached=tuple(sorted(node for node, due in answers.items() if due is None)),
            oldest_due_at=min((due[0][0] for due in answers.values() if due), default=None),
        )


async def _ask_node(
    view: Transaction, name: str, port: int, shards: list[int], now: float, limit: int
) -> list[tuple[float, str]] | None:
    """Ask one node which of its spaces have due jobs; None if the node does not answer. The node
    sends one JSON array, because Citus returns one value per command."""
    calls = ", ".join(
        f"(recollect.due_spaces('recollect.spaces_{shard}', {now!r}, {int(limit)})::json)"
        for shard in shards
    )
    command = f"SELECT json_agg(due)::text FROM (VALUES {calls}) AS shards (due)"  # noqa: S608
    ((success, result),) = await view.rows(_ON_NODE, ([name], [port], [command]))
    if not success:
        return None
    answers = msgspec.json.decode(result, type=list[list[tuple[float, str]] | None])
    return sorted(due for answer in answers for due in answer or ())


OUT_OF_REACH: Final = (
    "write-ahead log of PostgreSQL that is not yet overwritten, and its archives",
    "replicas, backups and snapshots of the database",
)
NO_ADMIN: Final = (
    "data files of PostgreSQL: rewriting tables needs their owner, give `--admin-url URL`",
)
_LOCK_SECONDS: Final = 60
"""Time that a scrub waits for a table in use, before it skips the table."""
_HOLD_CONTENT: Final = (
    "segments", "passages", "passage_terms", "runs", "postings", "vectors", "sign_blocks",
    "facts", "fact_terms", "fact_vectors", "sessions", "session_quotes", "compactions", "jobs",
    "pieces",
)  # fmt: skip
"""Tables whose files may contain content of removed rows, or of old versions of rows."""
_CLOCK_DIFFERENCE: Final = 300.0
"""Possible difference between the clocks of two machines. If a row was removed this shortly before
a rewrite, the table is rewritten again."""
_REWRITTEN_AT: Final = "SELECT at FROM recollect.rewritten WHERE table_name = 'all'"
_REWRITTEN: Final = """
    INSERT INTO recollect.rewritten (table_name, at) VALUES ('all', %s)
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


async def scrub(admin_url: str | None, removed_at: float | None) -> ScrubResult:
    """Rewrite the tables that may contain content, then request a checkpoint and a new WAL file. Do
    nothing if each table was rewritten after the space last removed something."""
    if admin_url is None:
        return ScrubResult(done=(), cannot=(*NO_ADMIN, *OUT_OF_REACH))
    steps: list[str] = []
    cannot: list[str] = []
    with driver_errors():
        async with await connect(admin_url) as connection:
            began_at = time.time()
            row = await (await connection.execute(_REWRITTEN_AT)).fetchone()
            if removed_at is None or (row is not None and removed_at < row[0] - _CLOCK_DIFFERENCE):
                steps.append("no tables contain the data that this space removed")
            elif rewritten := await _rewrite_tables(connection, cannot):
                if not cannot:
                    await connection.execute(_REWRITTEN, (began_at,))
                steps.append(f"rewrote the {rewritten} tables that may contain content")
                await _renew_log(connection, steps, cannot)
    return ScrubResult(done=tuple(steps), cannot=(*cannot, *OUT_OF_REACH))


async def _rewrite_tables(connection: Connection, cannot: list[str]) -> int:
    rewritten = 0
    await connection.execute(f"SET lock_timeout = '{_LOCK_SECONDS}s'".encode())
    for table in _HOLD_CONTENT:
        table_name = psycopg.sql.Identifier("recollect", table)
        older = await (await connection.execute(_OLDER)).fetchone()
        try:
            await connection.execute(psycopg.sql.SQL("VACUUM (FULL) {}").format(table_name))
        except sql_errors.LockNotAvailable:
            cannot.append(
                f"the table {table}: other transactions used it the whole time, so it was skipped: "
                "scrub again"
            )
        except psycopg.OperationalError as error:
            if error.sqlstate is None:
                raise
            reason = str(error).splitlines()[0]
            cannot.append(
                f"the table {table}: not every node could be reached, scrub again: {reason}"
            )
        else:
            rewritten += 1
            if older is not None and older[0]:
                # A rewrite keeps rows that an open transaction may still see.
                cannot.append(
                    f"the table {table}: a transaction stayed open, so its old rows remain: scrub "
                    "again"
                )
    return rewritten


async def _renew_log(connection: Connection, steps: list[str], cannot: list[str]) -> None:
    citus = await schema.citus_version(connection) is not None
    for statement, step in _STEPS:
        short = step.split(",")[0]
        try:
            await connection.execute(statement.encode())
            steps.append(step)
        except sql_errors.InsufficientPrivilege:
            cannot.append(
                f"{short}: not permitted for this role, so PostgreSQL removes the old files later"
            )
        if citus:
            rows = await (await connection.execute(_ON_WORKERS, (statement,))).fetchall()
            cannot += [
                f"{short} on the node {name}:{port}: {reason}; scrub again when it is back"
                for name, port, success, reason in rows
                if not success
            ]


OLDEST_PGVECTOR: Final = (0, 8)
OLDEST_CITUS: Final = (12, 1)
OLD_TRANSACTION_SECONDS: Final = 600.0
"""Not measured; ten times the limit that `schema.TIMEOUTS` sets for idle transactions."""

_VERSIONS: Final = """
    SELECT current_setting('server_version'), (
        SELECT extversion FROM pg_extension WHERE extname = 'vector'), (
        SELECT extract(epoch FROM max(clock_timestamp() - xact_start))::float8
        FROM pg_stat_activity WHERE state = 'idle in transaction'),
        current_setting('synchronous_commit')
"""
_UNSAFE: Final = """
    SELECT c.relname FROM pg_class c
    WHERE c.relnamespace = 'recollect'::regnamespace AND c.relkind IN ('r', 'p')
        AND NOT (c.relrowsecurity AND c.relforcerowsecurity) ORDER BY c.relname
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem or a note that a check found."""

    what: str
    fix: str
    problem: bool = True


@dataclass(slots=True)
class DatabaseCheck:
    """The result of a check, and the parts that were checked."""

    server: str
    schema_version: int = 0
    citus: str | None = None
    nodes: tuple[str, ...] = ()
    checked: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def problems(self) -> int:
        return sum(finding.problem for finding in self.findings)

    def add(self, what: str, fix: str, *, problem: bool = True) -> None:
        self.findings.append(Finding(what, fix, problem))


async def check_database(admin_url: str, *, app_role: str = schema.APP_ROLE) -> DatabaseCheck:
    """Check versions, roles, row security and Citus, without changing anything."""
    with driver_errors():
        async with await connect(admin_url) as connection:
            row = await (await connection.execute(_VERSIONS)).fetchone()
            assert row is not None
            check = DatabaseCheck(server=f"PostgreSQL {row[0]}")
            try:
                await schema.require_server(connection)
            except StoreError as error:
                check.add(str(error), "upgrade the server")
            _check_server(check, vector=row[1], oldest=row[2], commit=row[3])
            if not await _check_schema(connection, check):
                return check
            cluster = await look_at_cluster(connection)
            await _check_roles(connection, check, app_role, citus=cluster is not None)
            check.checked.append("row-level security")
            for (table,) in await (await connection.execute(_UNSAFE)).fetchall():
                if table not in ("schema_versions", "rewritten", "secrets"):
                    check.add(
                        f"recollect.{table} is not under forced row-level security",
                        f"ALTER TABLE recollect.{table} ENABLE ROW LEVEL SECURITY, "
                        "FORCE ROW LEVEL SECURITY",
                    )
            if cluster is not None:
                _check_cluster(check, cluster)
    return check


def _check_server(
    check: DatabaseCheck, *, vector: str | None, oldest: float | None, commit: str
) -> None:
    check.checked.append("versions of PostgreSQL and pgvector")
    if vector is None:
        check.add("pgvector is not installed here", "CREATE EXTENSION vector")
    elif _parse_version(vector) < OLDEST_PGVECTOR:
        check.add(f"pgvector is {vector}, too old", "ALTER EXTENSION vector UPDATE")
    if oldest is not None and oldest > OLD_TRANSACTION_SECONDS:
        check.add(
            f"a transaction has been idle for {oldest / 60:.0f} minutes: it stops vacuum and "
            "migrations",
            "find it in pg_stat_activity and end it; set idle_in_transaction_session_timeout",
        )
    if commit == "off":
        check.add(
            "synchronous_commit is off: a write that returned may be lost with the server",
            "ALTER DATABASE … SET synchronous_commit = 'on'",
        )


async def _check_schema(connection: Connection, check: DatabaseCheck) -> bool:
    check.checked.append("version of the schema")
    try:
        step_keys = await schema.read_applied_steps(connection)
    except sql_errors.InsufficientPrivilege:
        check.add("the URL's role has no rights on the schema", "pass the URL of the owner")
        return False
    check.schema_version = max((number for number, phase in step_keys if phase == "pre"), default=0)
    missing_steps = [
        step for step in schema.migrations() if (step.version, step.phase) not in step_keys
    ]
    if not step_keys:
        check.add("the database has no schema of Recollect", "recollect db init URL")
    elif any(step.phase == "pre" for step in missing_steps):
        check.add(f"the schema is older than version {schema.VERSION}", MIGRATE_COMMAND)
    elif missing_steps:
        names = ", ".join(step.file for step in missing_steps)
        check.add(
            f"migration steps wait until no older version of Recollect runs: {names}",
            "then run: recollect db migrate --phase post URL",
            problem=False,
        )
    return bool(step_keys)


async def _check_roles(
    connection: Connection, check: DatabaseCheck, app_role: str, *, citus: bool
) -> None:
    check.checked.append("roles and their settings")
    try:
        await schema.require_bound(connection, app_role)
    except StoreError as error:
        check.add(str(error), "recollect db init URL")
        return
    roles = await schema.login_roles(connection, app_role)
    if not roles:
        check.add(
            f"no role may log in as {app_role} or a member of it",
            f"recollect db init URL --app-password-file FILE, or GRANT {app_role} TO a role",
            problem=False,
        )
    for role, settings in roles.items():
        for name, value in schema.missing_settings(settings, citus=citus).items():
            reason = (
                ", which keeps content out of the server's log" if name in schema.LOGGING else ""
            )
            check.add(
                f"the role {role} lacks the setting {name}{reason}",
                schema.alter_role(role, name, value),
            )


def _check_cluster(check: DatabaseCheck, cluster: Cluster) -> None:
    check.citus = cluster.version
    check.nodes = tuple(cluster.nodes)
    check.checked.append("Citus: nodes and distributed tables")
    if _parse_version(cluster.version) < OLDEST_CITUS:
        check.add(f"Citus {cluster.version} was never tested", "upgrade Citus")
    for node, active in cluster.nodes.items():
        if not active:
            check.add(
                f"the node {node} is not active",
                "bring it back, then SELECT citus_activate_node('HOST', PORT)",
            )
    for name in cluster.missing:
        check.add(f"recollect.{name} is not distributed", DISTRIBUTE_COMMAND)
    for name in cluster.misplaced:
        check.add(
            f"recollect.{name} is distributed, so a lost node takes tenants' keys with it",
            DISTRIBUTE_COMMAND,
        )
    for name in cluster.remains:
        check.add(
            f"the coordinator's files still contain old rows of recollect.{name}",
            DISTRIBUTE_COMMAND,
        )


def _parse_version(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("-")[0].split(".") if part.isdigit())
