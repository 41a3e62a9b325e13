"""Writes down the schema as the migrations make it: `just catalogue`, after adding a migration."""

from __future__ import annotations

import asyncio
from pathlib import Path

import recollect.adapters.stores.postgres as package
from recollect.adapters.stores.postgres.database_check import read_catalogue
from recollect.adapters.stores.postgres.pool import connect
from recollect_bench.postgres_server import PostgresServer

RECORDED = Path(package.__path__[0]) / "catalogue.txt"


async def made_by_migrations(server: PostgresServer) -> list[str]:
    """The catalogue of a new database."""
    database = await server.migrated_database()
    async with await connect(database.admin_url) as connection:
        return await read_catalogue(connection)


if __name__ == "__main__":
    with PostgresServer(18) as running:
        RECORDED.write_text("\n".join(asyncio.run(made_by_migrations(running))) + "\n", "utf-8")
