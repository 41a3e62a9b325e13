"""One server for the tests of this folder, and a fresh database where a test asks for one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from recollect_bench.postgres_server import PostgresServer, TestDatabase


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    """PostgreSQL 18; the contract suite runs on 16 too."""
    with PostgresServer(18) as running:
        yield running


@pytest.fixture
def database(server: PostgresServer) -> TestDatabase:
    """A migrated database of the test's own."""
    return asyncio.run(server.migrated_database())
