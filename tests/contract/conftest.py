"""One server of each version serves all of the contract, on fewer generated cases in CI."""

import asyncio
import os
from collections.abc import Iterator

import pytest
from tests.sizes import at_size
from tests.store_contract import harness

from recollect_bench.postgres_server import PostgresServer, TestDatabase


@pytest.fixture(autouse=True)
def _fewer_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of generated cases, on five stores."""
    monkeypatch.setattr(harness, "_CASES", at_size(ci=6, full=25))


@pytest.fixture(scope="session")
def postgres_18(server: PostgresServer) -> TestDatabase:
    """A database on PostgreSQL 18, one a test process."""
    return asyncio.run(server.migrated_database())


@pytest.fixture(scope="session")
def postgres_16() -> Iterator[TestDatabase]:
    """A database on PostgreSQL 16, one a test process."""
    with PostgresServer(16) as older:
        yield asyncio.run(older.migrated_database())


CITUS_VARIABLE = "RECOLLECT_TEST_CITUS_URL"
"""The URL of a superuser, in an empty database on a coordinator that knows its workers."""


@pytest.fixture(scope="session")
def citus() -> TestDatabase:
    """A distributed database, where a cluster is at hand."""
    return asyncio.run(distributed(os.environ[CITUS_VARIABLE]))


async def distributed(url: str) -> TestDatabase:
    """The database of a cluster with our tables, distributed."""
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    from recollect.adapters.stores.postgres.admin import check_database, distribute
    from recollect.adapters.stores.postgres.schema import initialize
    from recollect_bench.postgres_server import APP_PASSWORD, APP_ROLE

    await initialize(url, app_role=APP_ROLE, app_password=APP_PASSWORD)
    await distribute(url, app_role=APP_ROLE)
    found = await check_database(url)
    assert [each for each in found.findings if each.problem] == []
    app = make_conninfo(url, user=APP_ROLE, password=APP_PASSWORD)
    name = str(conninfo_to_dict(url)["dbname"])
    return TestDatabase(name=name, admin_url=url, app_url=app)
