"""What the store bench runs on: a temporary SQLite file, or a database of its own.

Owns the opening and the removing of both sides. It must never touch a database that was there
before: on a server it was given it makes a database and a role and drops them at the end.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias
from urllib.parse import quote, urlsplit, urlunsplit
from uuid import UUID, uuid4

from recollect.core.ports import Store
from recollect.core.values.segment import NewSegment
from recollect.errors import RecollectError
from recollect_bench.store_data import Corpus, Turns
from recollect_bench.store_measure import Baseline

if TYPE_CHECKING:
    from recollect.adapters.stores.postgres.store import PostgresFleet
    from recollect_bench.postgres_server import PostgresServer


Opened: TypeAlias = dict[str, list[float]]
"""Figures of each opening, by name."""


class Target(Protocol):
    """An engine with room for the store and for the baseline."""

    notes: tuple[str, ...]

    async def open(self, space: str) -> Store:
        """The memory of a space, made where it is missing."""
        ...

    def baseline(self) -> Baseline:
        """Hand-written SQL on the same engine."""
        ...

    def unindexed_baseline(self) -> Baseline | None:
        """Hand-written SQL that leaves the index of words to later, where the store does."""
        ...

    async def settle(self, store: Store, *, size: str) -> dict[str, float]:
        """Do what would happen in the background after loading; figures about it."""
        ...


class SqliteTarget:
    """Files in a temporary folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.notes: tuple[str, ...] = (
            "open_ms: opening and the first query in a fresh process, imports done, cache warm;",
            "  open_cpu_ms is its processor time, which a busy machine does not lengthen",
        )

    async def open(self, space: str) -> Store:
        """The memory of a space, in a file of its own."""
        from recollect.adapters.stores.sqlite import SQLiteStore

        return await SQLiteStore.open(self._folder / f"{space}.db", space=space)

    def baseline(self) -> Baseline:
        """Another file."""
        from recollect_bench.store_sqlite_baseline import SqliteBaseline

        return SqliteBaseline(self._folder / "baseline.db")

    def unindexed_baseline(self) -> Baseline | None:
        """None: the store indexes at once."""
        return None

    async def settle(self, store: Store, *, size: str) -> dict[str, float]:  # noqa: ARG002
        """Nothing runs in the background."""
        return {}

    def open_in_fresh_processes(self, times: int) -> tuple[Opened, Opened]:
        """How long until the first answer, for the store and for the baseline."""
        opened: dict[str, Opened] = {"measured": {}, "baseline": {}}
        for _ in range(times):
            for which, taken in opened.items():
                done = subprocess.run(  # noqa: S603 - this interpreter, our module
                    [sys.executable, "-m", "recollect_bench.store_open", which,
                     str(self._folder / f"{which}.db")],
                    check=True, capture_output=True, text=True,
                )  # fmt: skip
                for name, value in json.loads(done.stdout).items():
                    taken.setdefault(name, []).append(value)
        return opened["measured"], opened["baseline"]


AnotherDatabase: TypeAlias = Callable[[], "AbstractAsyncContextManager[PostgresTarget]"]
"""Makes a second database on the same server."""


class PostgresTarget:
    """A database that is dropped at the end."""

    def __init__(
        self, *, admin_url: str, fleet: PostgresFleet, version: str, another: AnotherDatabase
    ) -> None:
        self.admin_url = admin_url
        self.another = another
        self._fleet = fleet
        self.notes: tuple[str, ...] = (
            f"PostgreSQL {version}; the store as the application's role with row-level security,",
            "  the baseline as owner without; VACUUM ANALYZE before queries, as autovacuum does",
            "the baseline indexes words at once, the store packs them later (pack_ms, and within",
            "  writes when many wait); ingest_ratio_unindexed: against one that never indexes them",
        )

    async def open(self, space: str) -> Store:
        """The memory of a space, through the pool of all of them."""
        return await self._fleet.space(space)

    def space_id(self, space: str) -> UUID:
        """The space's number in the tables."""
        from recollect.adapters.stores.postgres.store import space_uuid

        return space_uuid(space)

    def baseline(self) -> Baseline:
        """Tables of its own in the same database."""
        from recollect_bench.store_postgres_baseline import PostgresBaseline

        return PostgresBaseline(self.admin_url, space=uuid4())

    def unindexed_baseline(self) -> Baseline | None:
        """The same tables again, without a row for each word."""
        from recollect_bench.store_postgres_baseline import PostgresBaseline

        return PostgresBaseline(self.admin_url, space=uuid4(), indexed=False)

    async def settle(self, store: Store, *, size: str) -> dict[str, float]:
        """Run the packing that a worker would run."""
        from recollect.adapters.stores.postgres.store import PostgresStore

        assert isinstance(store, PostgresStore)
        started = time.perf_counter()
        await store.pack()
        return {f"pack_ms_{size}": (time.perf_counter() - started) * 1000}


@asynccontextmanager
async def open_target(url: str) -> AsyncIterator[Target]:
    """Room for a run, removed at the end."""
    with ExitStack() as stack:
        if url.startswith("sqlite:"):
            where = url.removeprefix("sqlite:").removeprefix("//") or None
            folder = tempfile.TemporaryDirectory(prefix="recollect-bench-", dir=where)
            yield SqliteTarget(Path(stack.enter_context(folder)))
        elif url in ("pg16", "pg18"):
            from recollect_bench.postgres_server import PostgresServer

            server = stack.enter_context(PostgresServer(16 if url == "pg16" else 18))
            async with _on_server(server) as started:
                yield started
        elif url.startswith(("postgresql:", "postgres:")):
            async with _own_database(url) as given:
                yield given
        else:
            raise RecollectError(
                f"no store is named {url}: give sqlite:, sqlite:FOLDER, pg18, pg16 or "
                "postgresql://… of a role that may create databases and roles"
            )


@asynccontextmanager
async def _fleet(app_url: str) -> AsyncIterator[PostgresFleet]:
    from recollect.adapters.stores.postgres.store import PostgresFleet

    fleet = await PostgresFleet.open(app_url)
    try:
        yield fleet
    finally:
        await fleet.close()


@asynccontextmanager
async def _on_server(server: PostgresServer) -> AsyncIterator[PostgresTarget]:
    """A database on a server of our own, which goes with it."""
    database = await server.migrated_database()
    async with _fleet(database.app_url) as fleet:
        yield PostgresTarget(
            admin_url=database.admin_url,
            fleet=fleet,
            version=str(server.version),
            another=partial(_on_server, server),
        )


@asynccontextmanager
async def _own_database(url: str) -> AsyncIterator[PostgresTarget]:
    """A database and a role on a server that was given."""
    import psycopg
    from psycopg import sql

    from recollect.adapters.stores.postgres.schema import migrate

    name = f"recollect_bench_{uuid4().hex[:12]}"
    parts = urlsplit(url)
    admin_url = urlunsplit(parts._replace(path=f"/{name}"))
    host = parts.netloc.rpartition("@")[2]
    app_url = urlunsplit(parts._replace(path=f"/{name}", netloc=f"{quote(name)}:{name}@{host}"))
    with psycopg.connect(url, autocommit=True) as connection:
        version = str(connection.info.server_version // 10_000)
        identifier = sql.Identifier(name)
        connection.execute(sql.SQL("CREATE DATABASE {}").format(identifier))
        try:
            await migrate(admin_url, app_role=name, app_password=name)
            async with _fleet(app_url) as fleet:
                yield PostgresTarget(
                    admin_url=admin_url,
                    fleet=fleet,
                    version=version,
                    another=partial(_own_database, url),
                )
        finally:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(identifier))
            connection.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(identifier))


@dataclass(slots=True, kw_only=True)
class Loaded:
    """A store and its baseline, and what both were given so far."""

    target: Target
    store: Store
    baseline: Baseline
    corpus: Corpus = field(default_factory=Corpus)
    turns: Turns = field(default_factory=Turns)
    segments: list[NewSegment] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)
    baselines: dict[str, float] = field(default_factory=dict)
