"""The spool of an encrypted space: the same promises, and nothing in the clear."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from recollect.adapters.stores.spool import FileSpool
from recollect.adapters.stores.sqlite.connection import EncryptionKey
from recollect.errors import WrongKey

KEY = EncryptionKey(b"\x07" * 32)
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
