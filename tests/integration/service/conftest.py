"""One database and one node a module, shared by its tests."""

import asyncio
from collections.abc import Iterator

import pytest
from tests.integration.service.nodes import Caller, Node, add_tenant

from recollect.hosts.service.mcp import mcp_for_tenants
from recollect_bench.postgres_server import PostgresServer, TestDatabase


@pytest.fixture(scope="module")
def database(server: PostgresServer) -> TestDatabase:
    """A migrated database of the module's own."""
    return asyncio.run(server.migrated_database())


@pytest.fixture(scope="module")
def node(database: TestDatabase) -> Iterator[Node]:
    """A node that serves MCP, too."""
    with Node(database, mcp=mcp_for_tenants) as running:
        yield running


@pytest.fixture(scope="module")
def caller(database: TestDatabase, node: Node) -> Caller:
    """A user with a key of the tenant `main`."""
    return Caller(node.url, add_tenant(database, "main")[1])
