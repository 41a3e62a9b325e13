"""The fleet that the scale bench measures: a database of many spaces, tenants with keys, nodes.

A space of each size is filled through the API of a real node, and is what the store itself wrote.
The others are copies of it, made in the server with INSERT … SELECT over every table that has a
`space_id`: to send two million passages through the API would take longer than all the rest.
Copies are held against the store's own `check`. Always holds: nothing is left behind, neither
servers nor folders.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeAlias
from uuid import UUID

import httpx2
import psycopg
from psycopg import sql

from recollect.adapters.stores.postgres.store import PostgresFleet, space_uuid
from recollect.core.values.tenant import KEY_SCOPES, tenant_space
from recollect.errors import RecollectError
from recollect.hosts.service.keys import make_key, new_tenant
from recollect_bench.gateway.processes import ServerProcess, free_port
from recollect_bench.postgres_server import PostgresServer, TestDatabase
from recollect_bench.store_data import Corpus

Progress: TypeAlias = Callable[[str], None]

WORDS_PER_MESSAGE: Final = (40, 110)
"""So that a message is one passage."""
SERVER_SETTINGS: Final = {"shared_buffers": "1GB", "max_wal_size": "8GB", "jit": "off"}
"""Of the database under test; all else, durability too, is PostgreSQL's own default."""
BYTES_PER_PASSAGE: Final = 4_500
"""At most, with all indexes and the WAL of loading: to tell beforehand whether a disk has room."""
INGEST_MESSAGES: Final = 400
"""Messages of one request to `ingest` while a space is filled."""
COPY_STEP: Final = 250
CHECKED: Final = 5
"""So many copies are held against the store's own check."""
QUIET_SECONDS: Final = 300.0
CORES: Final = os.cpu_count() or 1
_TABLES: Final = """
    SELECT table_name, array_agg(column_name::text ORDER BY ordinal_position)
    FROM information_schema.columns WHERE table_schema = 'recollect'
    GROUP BY table_name HAVING bool_or(column_name = 'space_id')
"""
_SIZES: Final = """
    SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class AS c
    JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = 'space_id'
    WHERE c.relnamespace = 'recollect'::regnamespace AND c.relkind = 'r'
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchTenant:
    """A tenant and its key."""

    id: UUID
    key: str

    def space_id(self, space: str) -> UUID:
        """The number of one of its spaces in the tables."""
        return space_uuid(tenant_space(self.id, space))


def need_room(folder: Path, passages: int) -> None:
    """RecollectError where a disk has no room for so many passages."""
    needed, free = passages * BYTES_PER_PASSAGE, shutil.disk_usage(folder).free
    if free < needed:
        raise RecollectError(
            f"{passages:,} passages take up to {needed / 1e9:.1f} GB and {free / 1e9:.1f} GB are "
            "free: give --data-dir on another disk, or fewer --spaces"
        )


@lru_cache(maxsize=1)
def _corpus() -> Corpus:
    return Corpus(seed=5, words_per_passage=WORDS_PER_MESSAGE)


def messages(count: int, *, first: int = 0) -> list[str]:
    """Texts of so many messages, a passage each; the same in every run."""
    return [
        _corpus().segment(number).segment.text.partition("\n")[0]
        for number in range(first, first + count)
    ]


async def add_tenant(database: TestDatabase, name: str) -> BenchTenant:
    """A tenant without limits."""
    fleet = await PostgresFleet.open(database.app_url)
    try:
        tenant = new_tenant(name, now=time.time())
        await fleet.tenants().add_tenant(tenant, actor="bench")
        key = make_key(tenant.id, name="", scopes=KEY_SCOPES, now=time.time())
        await fleet.tenants().add_key(key.record, actor="bench")
        return BenchTenant(id=tenant.id, key=key.text)
    finally:
        await fleet.close()


def node(
    database: TestDatabase, folder: Path, *, name: str, processes: int = CORES
) -> ServerProcess:
    """`recollect serve` itself, as it is by default, but with a process for each core."""
    command = ["serve", "--processes", str(processes)]
    return _process(database, folder, name, command, "RECOLLECT_SERVE__PORT")


def worker(database: TestDatabase, folder: Path) -> ServerProcess:
    """`recollect worker` itself, as it is by default: it listens for its metrics only."""
    return _process(database, folder, "worker", ["worker"], "RECOLLECT_TELEMETRY__METRICS_PORT")


def _process(
    database: TestDatabase, folder: Path, name: str, command: Sequence[str], port_variable: str
) -> ServerProcess:
    port = free_port()
    home = folder / f"home-{name}"
    home.mkdir(exist_ok=True)
    return ServerProcess(
        [sys.executable, "-m", "recollect", *command, "--store", database.app_url],
        port,
        log=folder / f"{name}.log",
        environment={
            "RECOLLECT_HOME": str(home),
            "RECOLLECT_SECRET": "of the scale bench",
            port_variable: str(port),
            "RECOLLECT_SERVE__DRAIN_SECONDS": "0.1",
        },
    )


@contextmanager
def caller(process: ServerProcess, tenant: BenchTenant) -> Iterator[httpx2.Client]:
    """A plain client of a node, for what is not measured."""
    with httpx2.Client(
        base_url=process.url,
        headers={"authorization": f"Bearer {tenant.key}"},
        timeout=120,
        trust_env=False,
    ) as client:
        yield client


def fill_by_api(
    database: TestDatabase,
    process: ServerProcess,
    tenant: BenchTenant,
    space: str,
    passages: int,
    progress: Progress,
) -> None:
    """A space with so many passages, said yesterday and sent to a node; returns when a worker has
    done all its jobs: what waited would be copied, and be done a thousand times at once."""
    said_at = time.time() - 86_400
    roles = ("user", "assistant")
    with caller(process, tenant) as client:
        for start in range(0, passages, INGEST_MESSAGES):
            progress(f"{start:,} of {passages:,} passages by the API into {space}")
            texts = messages(min(INGEST_MESSAGES, passages - start), first=start)
            body = {
                "batch": f"batch-{start}",
                "said_at": said_at,
                "messages": [
                    {"role": roles[at % 2], "content": text} for at, text in enumerate(texts)
                ],
            }
            path = f"/v1/spaces/{space}/sessions/history-{start // 2_000}/ingest"
            answer = client.post(path, json=body)
            if answer.status_code != httpx2.codes.OK:
                raise RecollectError(f"ingest answered {answer.status_code}: {answer.text[:300]}")
    progress(f"the jobs of {space}")
    _make_due(database, tenant.space_id(space))
    until = time.monotonic() + QUIET_SECONDS
    while time.monotonic() < until:
        if not _due(database, tenant.space_id(space)):
            return
        time.sleep(0.2)
    raise RecollectError(f"the background work of {space} did not end")


def _make_due(database: TestDatabase, space_id: UUID) -> None:
    """What would be done when its sessions are idle, now."""
    with psycopg.connect(database.admin_url, autocommit=True) as connection:
        connection.execute(
            "UPDATE recollect.jobs SET run_at = 0 WHERE space_id = %s AND state = 'waiting'",
            [space_id],
        )
        connection.execute(
            "UPDATE recollect.spaces SET jobs_due_at = 0 WHERE space_id = %s", [space_id]
        )


def _due(database: TestDatabase, space_id: UUID) -> bool:
    """Whether jobs wait that are due within the hour; those of a later day do not count."""
    with psycopg.connect(database.admin_url) as connection:
        (due,) = connection.execute(
            "SELECT EXISTS (SELECT FROM recollect.jobs"
            " WHERE space_id = %s AND state <> 'dead' AND run_at < %s)",
            [space_id, time.time() + 3_600],
        ).fetchone() or (False,)
    return bool(due)


def copy_spaces(
    database: TestDatabase,
    tenant: BenchTenant,
    template: UUID,
    names: Sequence[str],
    progress: Progress,
) -> None:
    """Copies of a space as other spaces of a tenant, in every table that has spaces.

    In the order of their ids, so that indexes grow at their ends.
    """
    if not names:
        return
    ordered = sorted(names, key=lambda name: tenant.space_id(name).bytes)
    with psycopg.connect(database.admin_url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")  # nobody was promised these rows
        tables = connection.execute(_TABLES).fetchall()
        for start in range(0, len(ordered), COPY_STEP):
            progress(f"{start:,} of {len(ordered):,} spaces copied")
            some = ordered[start : start + COPY_STEP]
            ids = [tenant.space_id(name) for name in some]
            for table, columns in tables:
                _copy_rows(connection, table, columns, template, ids, tenant, some)
            connection.execute(
                "INSERT INTO recollect.tenant_spaces (tenant_id, name, created_at)"
                " SELECT %s, unnest(%s::text[]), %s",
                [tenant.id, some, time.time()],
            )


def settle(database: TestDatabase, progress: Progress) -> None:
    """What autovacuum and the checkpointer would do by and by, done before anything is timed."""
    progress("vacuum, analyze and a checkpoint")
    with psycopg.connect(database.admin_url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")


def _copy_rows(
    connection: psycopg.Connection[Any],
    table: str,
    columns: Sequence[str],
    template: UUID,
    ids: Sequence[UUID],
    tenant: BenchTenant,
    names: Sequence[str],
) -> None:
    others = [name for name in columns if name != "space_id"]
    picked = [
        sql.SQL("n.name") if (table, name) == ("spaces", "name") else sql.Identifier("t", name)
        for name in others
    ]
    statement = sql.SQL(
        "INSERT INTO recollect.{table} (space_id, {others}) SELECT n.id, {picked}"
        " FROM unnest(%s::uuid[], %s::text[]) WITH ORDINALITY AS n(id, name, at),"
        " recollect.{table} AS t WHERE t.space_id = %s ORDER BY n.at"
    ).format(
        table=sql.Identifier(table),
        others=sql.SQL(", ").join(map(sql.Identifier, others)),
        picked=sql.SQL(", ").join(picked),
    )
    connection.execute(
        statement, [list(ids), [tenant_space(tenant.id, name) for name in names], template]
    )


async def check_spaces(
    database: TestDatabase, tenant: BenchTenant, names: Sequence[str]
) -> tuple[int, list[str]]:
    """How many passages the first of them holds, and what the store finds wrong with them."""
    fleet = await PostgresFleet.open(database.app_url)
    try:
        problems: list[str] = []
        passages = 0
        for name in names:
            store = await fleet.space(tenant_space(tenant.id, name))
            passages = passages or (await store.stats()).passages
            problems += (await store.check()).problems
        return passages, problems
    finally:
        await fleet.close()


def bytes_of_spaces(database: TestDatabase) -> int:
    """Bytes of all tables of spaces, with their indexes."""
    with psycopg.connect(database.admin_url) as connection:
        (size,) = connection.execute(_SIZES).fetchone() or (0,)
    return int(size)


def clone_database(server: PostgresServer, database: TestDatabase) -> TestDatabase:
    """Another database with the same rows."""
    other = server.new_database()
    copying = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
        sql.Identifier(other.name), sql.Identifier(database.name)
    )
    with psycopg.connect(server.admin_url, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {}").format(sql.Identifier(other.name)))
        until = time.monotonic() + QUIET_SECONDS
        while True:  # a node connects again when it needs to
            connection.execute(
                "SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity WHERE datname = %s",
                [database.name],
            )
            try:
                connection.execute(copying)
            except psycopg.errors.ObjectInUse:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)
            else:
                return other


def machine() -> str:
    """What it ran on, without names: cores, memory, system."""
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    model = "a processor"
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return f"{CORES} cores ({model}), {pages * size / 2**30:.0f} GB of memory"


def dumped(value: Any) -> bytes:
    """JSON as clients send it."""
    return json.dumps(value, separators=(",", ":")).encode()
