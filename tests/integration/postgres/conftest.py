"""A fresh database where a test asks for one; the contract suite runs on PostgreSQL 16 too."""

from __future__ import annotations

import asyncio

import pytest

from recollect_bench.postgres_server import PostgresServer, TestDatabase


@pytest.fixture
def database(server: PostgresServer) -> TestDatabase:
    """A migrated database of the test's own."""
    return asyncio.run(server.migrated_database())
