"""One database a module, shared by its tests."""

import asyncio

import pytest

from recollect_bench.postgres_server import PostgresServer, TestDatabase


@pytest.fixture(scope="module")
def database(server: PostgresServer) -> TestDatabase:
    """A migrated database of the module's own."""
    return asyncio.run(server.migrated_database())
