"""Records that the version before left in files of its own format: read once, and taken over.

A frame is a mark of 16 bytes (`RSP1` and the token of the file's name), number and length with a
checksum of their own, a digest of the payload, a byte of state, and the payload. A record is kept
here before its file is removed: who dies in between has it twice, and a store takes it once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
import zlib
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from pathlib import Path
from typing import Final

from recollect.system.durable import LifeLock

LOG = logging.getLogger("recollect.spool")
_HEAD: Final = struct.Struct(">16sQII16sc")
_TAKEN: Final = b"\xaa"


async def records_before(
    folder: Path, prefix: str, keep: Callable[[bytes, str | None], Awaitable[None]]
) -> None:
    """Keep what waits in the files of processes that died, the oldest first, and what was refused.

    A file with a damaged part stays, with the ending `.damaged`. A last record that is cut off is
    no damage: its process was killed before it was acknowledged.
    """
    for suffix, refused in ((".spool1", None), (".refused1", "refused before")):
        for path in await asyncio.to_thread(lambda: sorted(folder.glob(f"{prefix}-*{suffix}"))):  # noqa: B023
            try:
                token = bytes.fromhex(path.stem.rpartition("-")[2])
            except ValueError:
                continue  # not a name that a spool gave
            life = await asyncio.to_thread(LifeLock.take, path.with_suffix(".alive"))
            if life is None:
                continue  # a process of the version before still writes to it
            try:
                records, whole = await asyncio.to_thread(_read, path, token)
                for record in records:
                    await keep(record, refused)
                with contextlib.suppress(FileNotFoundError):
                    if whole:
                        path.unlink()
                    else:
                        LOG.warning("spool: a part of %s could not be read", path.name)
                        path.rename(path.with_suffix(".damaged"))
            finally:
                life.release(remove=True)


def _read(path: Path, token: bytes) -> tuple[list[bytes], bool]:
    """The records that wait in a file, and whether there is nothing else in it."""
    mark, content = b"RSP1" + token, path.read_bytes()
    records: list[bytes] = []
    end, whole = 0, True
    while (at := content.find(mark, end)) >= 0 and at + _HEAD.size <= len(content):
        _, number, length, crc, digest, state = _HEAD.unpack_from(content, at)
        payload = content[at + _HEAD.size : at + _HEAD.size + length]
        hashed = blake2b(struct.pack(">QI", number, length) + payload, digest_size=16, key=token)
        right = crc == zlib.crc32(content[at : at + 28])
        if right and len(payload) < length:
            return records, whole and at == end
        if right and state != _TAKEN and hashed.digest() == digest:
            records.append(payload)
        elif not right or state != _TAKEN:
            whole, end = False, at + 1
            continue
        whole, end = whole and at == end, at + _HEAD.size + length
    tail = content[end:]
    return records, whole and len(tail) < _HEAD.size and mark.startswith(tail[: len(mark)])
