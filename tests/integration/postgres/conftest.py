"""A fresh database where a test asks for one; the contract suite runs on PostgreSQL 16 too."""

import asyncio

import pytest

from recollect.adapters.stores.postgres.store import PostgresFleet, PostgresStore
from recollect_bench.postgres_server import PostgresServer, TestDatabase


@pytest.fixture
def database(server: PostgresServer) -> TestDatabase:
    """A migrated database of the test's own."""
    return asyncio.run(server.migrated_database())


async def own_store(url: str, *, space: str, pool_size: int = 8) -> PostgresStore:
    """A store with a fleet of its own, as another process has it."""
    fleet = await PostgresFleet.open(url, pool_size=pool_size)
    return PostgresStore(fleet, space, when_closed=fleet.close)
