"""The contract on PostgreSQL 18 and 16, and on a Citus where one is at hand, through a pool that
the stores of a check share."""

import os

import psycopg
import pytest
from tests.contract.conftest import CITUS_VARIABLE
from tests.store_contract import StoreContract

from recollect.adapters.stores.postgres.store import PostgresFleet, space_uuid
from recollect.core.ports import Store
from recollect.core.values.fact import FactId
from recollect_bench.postgres_server import TestDatabase


class PostgresContract(StoreContract):
    database: TestDatabase
    fleet: PostgresFleet | None = None

    async def open_store(self, space: str) -> Store:
        if self.fleet is None:
            self.fleet = await PostgresFleet.open(self.database.app_url)
        return await self.fleet.space(space)

    async def damage_fact(self, space: str, fact: FactId) -> None:
        with psycopg.connect(self.database.admin_url) as connection:
            changed = connection.execute(
                "UPDATE recollect.facts SET evidence = 'not json' WHERE space_id = %s AND id = %s",
                (space_uuid(space), fact),
            ).rowcount
        assert changed == 1

    async def close_shared(self) -> None:
        if self.fleet is not None:
            await self.fleet.close()
            self.fleet = None


class TestPostgres18(PostgresContract):
    @pytest.fixture(autouse=True)
    def on_server(self, postgres_18: TestDatabase) -> None:
        self.database = postgres_18


class TestPostgres16(PostgresContract):
    @pytest.fixture(autouse=True)
    def on_server(self, postgres_16: TestDatabase) -> None:
        self.database = postgres_16


if CITUS_VARIABLE in os.environ:

    class TestCitus(PostgresContract):
        @pytest.fixture(autouse=True)
        def on_server(self, citus: TestDatabase) -> None:
            self.database = citus
