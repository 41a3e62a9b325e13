"""One server of each version serves all of the contract."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from recollect_bench.postgres_server import PostgresServer, TestDatabase, Version


def _database(version: Version) -> Iterator[TestDatabase]:
    with PostgresServer(version) as server:
        yield asyncio.run(server.migrated_database())


@pytest.fixture(scope="session")
def postgres_18() -> Iterator[TestDatabase]:
    """A database on PostgreSQL 18, one a test process."""
    yield from _database(18)


@pytest.fixture(scope="session")
def postgres_16() -> Iterator[TestDatabase]:
    """A database on PostgreSQL 16, one a test process."""
    yield from _database(16)
