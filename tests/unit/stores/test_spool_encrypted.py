"""The spool of an encrypted space: the same promises, and nothing in the clear."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from recollect.adapters.stores.spool import FileSpool
from recollect.adapters.stores.sqlite.connection import EncryptionKey
from recollect.errors import StoreUnavailable, WrongKey

KEY = EncryptionKey(b"\x07" * 32)
KILLS = int(os.environ.get("RECOLLECT_SPOOL_KILLS", "5"))
MARKER = b"what was said and must not be read by others"


def taking(into: list[bytes]) -> Callable[[bytes], Awaitable[None]]:
    async def take(record: bytes) -> None:
        into.append(record)

    return take


async def opened(folder: Path, *, space: str = "alice", key: EncryptionKey = KEY) -> FileSpool:
    return await FileSpool.open(folder, space=space, key=key)


def bytes_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))


def test_records_come_back_in_order_and_nothing_lies_in_the_clear(tmp_path: Path) -> None:
    records = [MARKER + str(number).encode() for number in range(5)] + [b""]

    async def run() -> None:
        spool = await opened(tmp_path / "spool")
        assert await spool.waiting() == 0
        assert await spool.drain(taking([])) == 0
        assert not (tmp_path / "spool").exists()
        for record in records:
            await spool.append(record)
        assert MARKER[:16] not in bytes_of(tmp_path / "spool")
        await spool.close()
        spool = await opened(tmp_path / "spool")
        got: list[bytes] = []
        assert await spool.drain(taking(got)) == 6
        assert got == records
        assert await spool.waiting() == 0
        await spool.close()
        assert MARKER[:16] not in bytes_of(tmp_path / "spool")

    asyncio.run(run())


def test_another_key_is_told_as_such(tmp_path: Path) -> None:
    async def run() -> None:
        spool = await opened(tmp_path)
        await spool.append(b"x")
        await spool.close()
        with pytest.raises(WrongKey):
            await opened(tmp_path, key=EncryptionKey(b"\x08" * 32))
        again = await opened(tmp_path)
        assert await again.waiting() == 1
        await again.close()

    asyncio.run(run())


def test_a_drain_stops_where_the_store_refuses_and_goes_on_there(tmp_path: Path) -> None:
    async def run() -> None:
        spool = await opened(tmp_path)
        for number in range(5):
            await spool.append(str(number).encode())
        got: list[bytes] = []

        async def take(record: bytes) -> None:
            if record == b"2" and len(got) == 2:
                got.append(b"failed")
                raise StoreUnavailable("away again")
            got.append(record)

        with pytest.raises(StoreUnavailable):
            await spool.drain(take)
        await spool.append(b"5")
        assert await spool.drain(take) == 4
        assert got == [b"0", b"1", b"failed", b"2", b"3", b"4", b"5"]
        await spool.close()

    asyncio.run(run())


def test_the_living_keep_their_own_and_the_dead_are_taken_over(tmp_path: Path) -> None:
    async def run() -> None:
        first, second = await opened(tmp_path), await opened(tmp_path)
        await first.append(b"1")
        await second.append(b"2")
        got: list[bytes] = []
        assert await second.waiting() == 1
        await first.close()
        assert await second.waiting() == 2
        await second.drain(taking(got))
        assert got == [b"1", b"2"]
        await second.close()

    asyncio.run(run())
    assert not list(tmp_path.glob("*.owner"))


def test_rewrite_and_set_aside(tmp_path: Path) -> None:
    async def run() -> None:
        living, other = await opened(tmp_path), await opened(tmp_path)
        await living.append(b"a")
        await living.append(b"secret")
        await living.set_aside(b"refused secret", reason="FormatError")
        assert await living.refused() == 1
        assert await living.waiting() == 2
        assert await other.rewrite(lambda record: None if b"secret" in record else b"A") == 3
        assert await living.refused() == 0
        got: list[bytes] = []
        await living.drain(taking(got))
        assert got == [b"A"]
        await living.close()
        await other.close()

    asyncio.run(run())
    assert all(path.stat().st_size == 0 for path in tmp_path.glob("*-wal"))


APPENDS = """
import asyncio, sys
from pathlib import Path
from recollect.adapters.stores.spool import FileSpool
from recollect.adapters.stores.sqlite.connection import EncryptionKey

async def main():
    key = EncryptionKey(b"\\x07" * 32)
    spool = await FileSpool.open(Path(sys.argv[1]), space="alice", key=key)
    for number in range(100_000):
        await spool.append(f"{sys.argv[2]}:{number}".encode())
        print(number, flush=True)

asyncio.run(main())
"""


def test_every_acknowledged_record_survives_a_kill(tmp_path: Path) -> None:
    chance = random.Random(3)
    promised: dict[int, int] = {}
    for writer in range(KILLS):
        child = subprocess.Popen(
            [sys.executable, "-c", APPENDS, str(tmp_path), str(writer)], stdout=subprocess.PIPE
        )
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(chance.uniform(0.0, 0.2))
        child.send_signal(signal.SIGKILL)
        promised[writer] = 1 + len(child.communicate()[0].decode().split("\n")[:-1])
    got: list[bytes] = []

    async def drain() -> None:
        spool = await opened(tmp_path)
        await spool.drain(taking(got))
        await spool.close()

    asyncio.run(drain())
    for writer, count in promised.items():
        mine = [record for record in got if record.startswith(f"{writer}:".encode())]
        assert mine == [f"{writer}:{number}".encode() for number in range(len(mine))]
        assert count <= len(mine) <= count + 1


def test_refused_records_are_set_aside_once_and_can_be_put_back(tmp_path: Path) -> None:
    async def run() -> list[bytes]:
        spool = await opened(tmp_path)
        assert (await spool.state()).waiting == 0
        assert await spool.retry_refused() == 0
        await spool.set_aside(b"bad", reason="refused")
        await spool.set_aside(b"bad", reason="refused")
        await spool.append(b"waits")
        state = await spool.state()
        assert (state.waiting, state.refused) == (1, 1)
        assert len(state.refused_files) == 1
        assert await spool.retry_refused() == 1
        got: list[bytes] = []

        async def take(record: bytes) -> None:
            got.append(record)

        await spool.drain(take)
        await spool.close()
        return got

    assert asyncio.run(run()) == [b"waits", b"bad"]
