"""Memory files through the engine's own way to its store: the spool, and no look past it."""

import os
import time
from pathlib import Path

from tests.harness.waiting import eventually

from recollect.adapters.wiring import open_spool, open_store
from recollect.core.boundary import Failure, SystemClock
from recollect.core.engine.archive import DurableArchive
from recollect.core.ports import Store
from recollect.core.rules.identity import space_secret
from recollect.core.rules.tokens import Weigher
from recollect.core.transfer.file_sections import FileRules
from recollect.core.transfer.memory_files import Following, MemoryFiles
from recollect.core.values.batch import Batch
from recollect.core.values.upkeep import MemoryFilesResult
from recollect.errors import StoreUnavailable
from recollect.system.config.settings import Redaction


async def test_what_a_store_cannot_take_waits_in_the_spool_and_arrives_once(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    note = tmp_path / "memory/note.md"
    note.write_text("# Quay\nThe crane lifts cargo.\n\n# Garden\nRoses need water.\n")
    os.utime(note, (time.time() - 60,) * 2)
    url = str(tmp_path / "memory.db")
    refusing = [True]

    async def open_refusing() -> Store:
        store = await open_store(url, space="default")
        write = store.write

        async def refuse(batch: Batch) -> object:
            if refusing[0]:
                raise StoreUnavailable("away")
            return await write(batch)

        store.write = refuse  # type: ignore[method-assign, assignment]
        return store

    archive = DurableArchive(open_refusing, lambda: open_spool(url, space="default"))

    async def opened() -> Store:
        if await archive.settle(0.0):
            raise StoreUnavailable("batches wait in the spool")
        return await archive.store()

    async def write(batch: Batch) -> None:
        kept = await archive.write(batch)
        if kept.location == "nowhere":
            raise StoreUnavailable(kept.problem)

    files = MemoryFiles(
        tmp_path,
        open_archive=opened,
        write=write,
        clock=SystemClock(),
        rules=FileRules(secret=space_secret("default"), redaction=Redaction(), weigher=Weigher()),
    )
    following = Following(files.look, interval_seconds=0.1)
    following.wake()
    await eventually(lambda: isinstance(following.last, Failure))
    assert "spool" in str(following.trouble())
    refusing[0] = False
    await eventually(
        lambda: isinstance(following.last, MemoryFilesResult) and following.last.count("unchanged")
    )
    await following.close()
    store = await archive.store()
    assert (await store.stats()).segments == 2
    assert (await store.check()).problems == ()
    await archive.close()
