"""Citus: which tables stand on which nodes, how they are put there, and what every node is asked.

Tables of spaces are distributed by space_id beside `spaces`, those of tenants by tenant_id beside
`api_keys`; `tenants` is on every node; what has neither stays on the coordinator. Always holds:
`distribute` finds out what is left to do, so it may be interrupted, and run again after a
migration that adds tables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from recollect.adapters.stores.postgres.driver import driver_errors, plain, psycopg
from recollect.adapters.stores.postgres.pool import Connection, Transaction, connect
from recollect.adapters.stores.postgres.roles import (
    APP_ROLE,
    CITUS_SETTINGS,
    apply_setting,
    login_roles,
    mend_of,
    missing_settings,
)
from recollect.adapters.stores.postgres.schema import (
    WAIT_SECONDS,
    LockRetries,
    citus_version,
    limit_waiting,
    require_schema,
    require_server,
)
from recollect.errors import StoreError

LEADERS: Final = {"space_id": "spaces", "tenant_id": "api_keys"}
"""What tables are distributed by, and beside which table; that one goes first."""
ON_EVERY_NODE: Final = frozenset({"tenants"})
DISTRIBUTE_COMMAND: Final = "recollect db distribute URL"

_TABLES: Final = """
    SELECT c.relname, (
        SELECT a.attname FROM pg_attribute a WHERE a.attrelid = c.oid
        AND a.attname IN ('space_id', 'tenant_id') ORDER BY a.attnum LIMIT 1
    ) FROM pg_class c
    WHERE c.relnamespace = 'recollect'::regnamespace AND c.relkind = 'r' ORDER BY c.relname
"""
_DISTRIBUTED: Final = """
    SELECT c.relname, p.colocationid::int, p.partmethod::text, pg_relation_size(c.oid)
    FROM pg_dist_partition p JOIN pg_class c ON c.oid = p.logicalrelid
    WHERE c.relnamespace = 'recollect'::regnamespace
"""
_NODES: Final = """
    SELECT nodename, nodeport, isactive, shouldhaveshards FROM pg_dist_node
    WHERE noderole = 'primary' ORDER BY nodename, nodeport
"""
_FIRST: Final = "SELECT create_distributed_table(%s, %s)"
_FIRST_SHARDS: Final = "SELECT create_distributed_table(%s, %s, shard_count => %s)"
_BESIDE: Final = "SELECT create_distributed_table(%s, %s, colocate_with => %s)"
_REFERENCE: Final = "SELECT create_reference_table(%s)"
_TRUNCATE: Final = "SELECT truncate_local_data_after_distributing_table(%s)"
_FUNCTION: Final = "SELECT create_distributed_function(%s)"
_DUE_FUNCTION: Final = "recollect.due_spaces(text, double precision, integer)"
_ON_WORKERS: Final = "SELECT nodename, nodeport, success, result FROM run_command_on_workers(%s)"
_PLACES: Final = "SELECT shardid, nodename, nodeport FROM pg_dist_shard_placement"
_ON_SHARDS: Final = """
    SELECT shardid, success, result FROM run_command_on_shards('recollect.spaces', %s)
"""


@dataclass(frozen=True, slots=True)
class DistributedTable:
    """A table as Citus has it."""

    name: str
    colocation: int
    reference: bool
    local_bytes: int
    """What is left of it in the coordinator's own files."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the cluster."""

    name: str
    active: bool
    takes_shards: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What Citus knows of this database."""

    version: str
    nodes: tuple[Node, ...]
    tables: dict[str, str | None]
    """Every table of ours, with what it is to be distributed by; None where it is not."""
    distributed: dict[str, DistributedTable]

    @property
    def missing(self) -> tuple[str, ...]:
        """Tables that are still to be distributed; those that others stand beside first."""
        left = [
            name
            for name, column in self.tables.items()
            if (column is not None or name in ON_EVERY_NODE) and name not in self.distributed
        ]
        leaders = [name for name in LEADERS.values() if name in left]
        return (*leaders, *(name for name in left if name not in leaders))

    @property
    def apart(self) -> tuple[str, ...]:
        """Tables that are distributed, but not beside the others of their kind."""
        found = []
        for name, table in self.distributed.items():
            leader = self.distributed.get(LEADERS.get(self.tables.get(name) or "", ""))
            if name not in ON_EVERY_NODE and leader and table.colocation != leader.colocation:
                found.append(name)
        return tuple(sorted(found))

    @property
    def remains(self) -> tuple[str, ...]:
        """Tables with rows of before in the coordinator's files."""
        return tuple(name for name, table in self.distributed.items() if table.local_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """What `distribute` did, or would do."""

    distributed: tuple[str, ...] = ()
    truncated: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    """Statements that set what the application's roles lack."""
    cannot: tuple[str, ...] = ()
    """What is left for somebody else to do, one sentence each."""


async def look_at_cluster(connection: Connection) -> Cluster | None:
    """What Citus knows of our tables; None where it is not installed."""
    version = await citus_version(connection)
    if version is None:
        return None
    tables: dict[str, str | None] = dict(await (await connection.execute(_TABLES)).fetchall())
    rows = await (await connection.execute(_DISTRIBUTED)).fetchall()
    nodes = await (await connection.execute(_NODES)).fetchall()
    return Cluster(
        version=version,
        nodes=tuple(
            Node(f"{name}:{port}", bool(active), bool(takes)) for name, port, active, takes in nodes
        ),
        tables={name: None if name in ON_EVERY_NODE else column for name, column in tables.items()},
        distributed={
            name: DistributedTable(name, colocation, method == "n", size)
            for name, colocation, method, size in rows
        },
    )


async def distribute(
    admin_url: str,
    *,
    app_role: str = APP_ROLE,
    shard_count: int | None = None,
    dry_run: bool = False,
    wait_seconds: float = WAIT_SECONDS,
    waiting: Callable[[str], None] = lambda _: None,
) -> Distribution:
    """Distribute what is not yet, and remove what of it is left on the coordinator."""
    with driver_errors():
        async with await connect(admin_url) as connection:
            await require_server(connection)
            cluster = await look_at_cluster(connection)
            if cluster is None:
                raise StoreError(
                    "this database has no Citus, and needs no distributing: on a cluster run "
                    "`CREATE EXTENSION citus` and `SELECT citus_add_node(…)` first"
                )
            await require_schema(connection)
            if not any(node.active and node.takes_shards for node in cluster.nodes):
                raise StoreError(
                    "Citus knows no node that takes shards: run `SELECT citus_add_node('HOST', "
                    "5432)` for each worker first"
                )
            settings, cannot = await _settings(connection, app_role, dry_run=dry_run)
            cannot += [
                f"{name} is distributed apart from the others of its kind: "
                f"`SELECT alter_distributed_table('recollect.{name}', "
                f"colocate_with => 'recollect.{LEADERS[cluster.tables[name] or 'space_id']}')`"
                for name in cluster.apart
            ]
            locks = LockRetries(wait_seconds, waiting)
            for name in () if dry_run else cluster.missing:
                step = partial(_distribute, connection, name, cluster.tables[name], shard_count)
                await locks.run(f"recollect.{name}", step)
            after = cluster if dry_run else await look_at_cluster(connection) or cluster
            for name in () if dry_run else after.remains:
                await locks.run(f"recollect.{name}", partial(_truncate, connection, name))
            if not dry_run:
                cannot += await _share_function(connection)
    return Distribution(
        distributed=cluster.missing,
        truncated=after.remains,
        settings=tuple(settings),
        cannot=tuple(cannot),
    )


async def _settings(
    connection: Connection, app_role: str, *, dry_run: bool
) -> tuple[list[str], list[str]]:
    """Set what the application's roles need before any row is elsewhere; what could not be."""
    done: list[str] = []
    cannot: list[str] = []
    for role in await login_roles(connection, app_role):
        for name, value in missing_settings(role, citus=True).items():
            if name in CITUS_SETTINGS:
                statement = mend_of(role.name, name, value)
                set_now = dry_run or await apply_setting(connection, role.name, name, value)
                (done if set_now else cannot).append(statement)
    if cannot:
        raise StoreError(f"without this reads would be silently empty: run `{cannot[0]}` first")
    return done, cannot


async def _distribute(
    connection: Connection, name: str, column: str | None, shard_count: int | None
) -> None:
    """Distribute one table."""
    table = f"recollect.{name}"
    async with connection.transaction():
        await limit_waiting(connection)
        if column is None:
            await connection.execute(_REFERENCE, (table,))
        elif name != LEADERS[column]:
            await connection.execute(_BESIDE, (table, column, f"recollect.{LEADERS[column]}"))
        elif shard_count is not None:
            await connection.execute(_FIRST_SHARDS, (table, column, shard_count))
        else:
            await connection.execute(_FIRST, (table, column))


async def _truncate(connection: Connection, name: str) -> None:
    """Remove what the coordinator's own files still have of a table."""
    async with connection.transaction():
        await limit_waiting(connection)
        await connection.execute(_TRUNCATE, (f"recollect.{name}",))


async def _share_function(connection: Connection) -> list[str]:
    """See to it that every node has the function which `due_by_shard` calls."""
    try:
        async with connection.transaction():
            await connection.execute(_FUNCTION, (_DUE_FUNCTION,))
    except psycopg.Error as error:
        why = str(error).splitlines()[0]
        told = f"{_DUE_FUNCTION} is not on every node: while one is away no jobs are found: {why}"
        return [told]
    return []


async def run_on_nodes(connection: Connection, statement: str) -> dict[str, str | None]:
    """Run a statement on every worker; why it failed on each, None where it did not."""
    rows = await (await connection.execute(_ON_WORKERS, (statement,))).fetchall()
    return {f"{name}:{port}": None if done else str(why) for name, port, done, why in rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class DueSpaces:
    """Spaces with jobs that may run, and nodes that could not be asked."""

    names: tuple[str, ...]
    unreached: tuple[str, ...] = ()
    oldest_due_at: float | None = None
    """Since when the first of them waits."""


async def due_by_shard(view: Transaction, now: float, limit: int) -> DueSpaces:
    """Ask shard by shard which spaces have due jobs: a node that is away fails alone.

    Each answer is one JSON array, made by a function on the shard's own node.
    """
    command = f"SELECT recollect.due_spaces('%s', {now!r}, {int(limit)})"
    placing = await view.send(_PLACES)
    asked = await view.rows(_ON_SHARDS, (command,))
    nodes = {shard: f"{name}:{port}" for shard, name, port in await placing.fetchall()}
    found: list[tuple[float, str]] = []
    unreached: set[str] = set()
    for shard, success, result in asked:
        if success:
            found += msgspec.json.decode(result or "[]", type=list[tuple[float, str]])
        else:
            unreached.add(nodes.get(shard, f"shard {shard}"))
    found.sort(key=lambda due: due[0])
    return DueSpaces(
        names=tuple(plain(name) for _, name in found[:limit]),
        unreached=tuple(sorted(unreached)),
        oldest_due_at=found[0][0] if found else None,
    )
