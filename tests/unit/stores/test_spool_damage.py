"""Damage to a spool costs only what cannot be read, also while other processes use the file."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw
import pytest
from tests.unit.stores.test_spool import drained, left, spooled, taking

from recollect.adapters.stores.spool import FileSpool

RECORDS = [b"record %04d " % number + b"x" * 300 for number in range(60)]
PAGE = 4096
OPENERS = 6


def left_files(folder: Path) -> list[Path]:
    return list(folder.glob("*.db"))


def damage_one_page(file: Path) -> None:
    """Overwrite the head of the page that holds record 20."""
    content = bytearray(file.read_bytes())
    at = content.index(b"record 0020 ") // PAGE * PAGE
    content[at : at + 40] = b"\xa5" * 40
    file.write_bytes(content)


def test_one_damaged_page_costs_only_its_own_records(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    damage_one_page(spooled(tmp_path, RECORDS))
    got: list[bytes] = []

    async def run() -> None:
        spool = await FileSpool.open(tmp_path, space="alice")
        assert len(spool.unreadable_files()) == 1
        await spool.append(b"after")
        await spool.drain(taking(got))
        await spool.close()

    asyncio.run(run())
    assert got.pop() == b"after"
    lost = [record for record in RECORDS if record not in got]
    assert got == [record for record in RECORDS if record not in lost], "in order"
    assert 0 < len(lost) < 20
    assert f"{len(lost)} records could not be read" in caplog.text


async def test_a_process_that_has_the_damaged_file_open_keeps_its_records(tmp_path: Path) -> None:
    living = FileSpool(tmp_path, space="alice")
    for record in RECORDS:
        await living.append(record)
    (file,) = left_files(tmp_path)
    database = apsw.Connection(str(file))
    database.pragma("wal_checkpoint", "TRUNCATE")
    damage_one_page(file)
    other = await FileSpool.open(tmp_path, space="alice")
    assert await other.waiting() == 0, "their owner is alive"
    await living.append(b"after")
    got: list[bytes] = []
    await living.drain(taking(got))
    assert got[-1] == b"after"
    assert got[:-1] == [record for record in RECORDS if record in got]
    assert len(got) > 40
    await living.close()
    await other.close()
    database.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    database.close()


def test_processes_that_find_the_damage_at_once_set_one_file_aside(tmp_path: Path) -> None:
    """A second one must not rename the new file, which holds acknowledged records."""

    async def find() -> FileSpool:
        spool = await FileSpool.open(tmp_path, space="alice")
        await spool.append(b"acknowledged")
        return spool

    async def run() -> None:
        spools = await asyncio.gather(*(find() for _ in range(OPENERS)))
        assert len(spools[0].unreadable_files()) == 1
        for spool in spools:
            await spool.close()

    damage_one_page(spooled(tmp_path, RECORDS))
    asyncio.run(run())
    assert drained(tmp_path)[0].count(b"acknowledged") == OPENERS


@pytest.mark.parametrize("call", ["waiting", "scan", "drain", "state", "rewrite", "retry_refused"])
async def test_every_call_goes_to_file_that_replaced_open_one(tmp_path: Path, call: str) -> None:
    spool = FileSpool(tmp_path, space="alice")
    await spool.append(b"gone")
    for path in left(tmp_path):
        path.unlink()
    other = FileSpool(tmp_path, space="alice")
    await other.append(b"new")
    await other.close()
    got: list[bytes] = []
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "waiting": spool.waiting,
        "scan": lambda: spool.scan(lambda record: record),
        "drain": lambda: spool.drain(taking([])),
        "state": spool.state,
        "rewrite": lambda: spool.rewrite(lambda record: record),
        "retry_refused": spool.retry_refused,
    }
    await calls[call]()
    await spool.append(b"more")
    await spool.drain(taking(got))
    assert got == ([b"more"] if call == "drain" else [b"new", b"more"])
    await spool.close()


async def test_a_drain_removes_nothing_from_a_file_that_came_meanwhile(tmp_path: Path) -> None:
    """The new file counts its records from one again: the number means another record there."""
    spool = FileSpool(tmp_path, space="alice")
    await spool.append(b"old")
    got: list[bytes] = []

    async def take(record: bytes) -> None:
        got.append(record)
        if record == b"old":
            for path in left(tmp_path):
                path.unlink()
            await spool.append(b"new")

    await spool.drain(take)
    assert got == [b"old", b"new"]
    await spool.close()
