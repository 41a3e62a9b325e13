"""Memory files followed into PostgreSQL: what holds in a file holds on a server."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace
from pathlib import Path

from recollect.adapters.stores.postgres import PostgresStore
from recollect.core.boundary import SystemClock
from recollect.core.rules.identity import space_secret
from recollect.core.rules.tokens import Weigher
from recollect.core.transfer.file_sections import FileRules
from recollect.core.transfer.memory_files import MemoryFiles
from recollect.core.values.segment import StoredSegment
from recollect.core.values.upkeep import ForgetOrder
from recollect.system.config.settings import Redaction
from recollect_bench.postgres_server import TestDatabase

NOTES = "# Quay\nThe crane lifts cargo.\n\n# Garden\nRoses need water.\n\n# Lake\nAnna sails.\n"


def test_files_are_added_edited_moved_forgotten_and_withdrawn(
    database: TestDatabase, tmp_path: Path
) -> None:
    file = tmp_path / "memory.md"

    def put(text: str, age: float) -> None:
        file.write_text(text)
        os.utime(file, (time.time() - age,) * 2)

    async def held(store: PostgresStore) -> dict[str, StoredSegment]:
        assert (await store.check()).problems == ()
        return {one.segment.origin or "": one for one in await store.page()}

    async def run() -> None:
        store = await PostgresStore.open(database.app_url, space="notes")

        async def opened() -> PostgresStore:
            return store

        files = MemoryFiles(
            tmp_path,
            open_archive=opened,
            write=store.write,
            clock=SystemClock(),
            rules=FileRules(secret=space_secret("notes"), redaction=Redaction(), weigher=Weigher()),
        )
        try:
            put(NOTES, 90)
            await files.look()
            first = await held(store)
            assert sorted(first) == ["memory.md:1", "memory.md:4", "memory.md:7"]
            put(f"Top.\n\n{NOTES.replace('water', 'rain')}", 60)
            (told,) = (await files.look()).files
            assert (told.added, told.moved, told.withdrawn) == (2, 2, 1)
            second = await held(store)
            was, now = first["memory.md:7"].segment, second["memory.md:9"].segment
            assert now == replace(was, origin="memory.md:9")
            assert (await files.look()).count("unchanged") == 1
            await store.forget(ForgetOrder(at=time.time(), segments=(now.id,)))
            assert (await files.look()).forgotten == ("memory.md:9",)
            file.unlink()
            assert (await files.look()).count("withdrawn") == 1
            assert await held(store) == {}
        finally:
            await store.close()

    asyncio.run(run())
