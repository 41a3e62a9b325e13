"""VMEM v1, OpenClaw's `vectors.bin`: a header, then one id and one vector an entry.

All little-endian: u32 magic, u32 version, u32 dimensions, u32 count; an entry is u16 length, the
id in UTF-8, and the vector in float32. Owns that layout both ways. Pure: bytes, or a mapped
file, in; where each vector stands, out, so that a large file is never held twice. A torn end
is told and what stands before it is kept; another magic or version is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from mmap import mmap
from typing import Final

from recollect.errors import FormatError

MAGIC: Final = 0x4D454D56
"""The bytes `VMEM` in the file."""
VERSION: Final = 1
HEADER_BYTES: Final = 16
FLOAT_BYTES: Final = 4
_HEADER: Final = struct.Struct("<IIII")
_ID_LENGTH: Final = struct.Struct("<H")
_LONGEST_ID_BYTES: Final = 0xFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class VmemEntry:
    """One entry: whose vector it is and where its floats stand in the file."""

    id: str
    """Bytes that are not UTF-8 are kept as surrogates, so that they are written as they were."""
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VmemReading:
    """What a file holds."""

    dimensions: int
    entries: tuple[VmemEntry, ...] = field(repr=False)
    passed_over: tuple[str, ...] = ()
    """What could not be read, one sentence each."""


def read_vmem(data: bytes | mmap) -> VmemReading:
    """Find the entries of a file; FormatError where it is not VMEM version 1."""
    if len(data) < HEADER_BYTES:
        raise FormatError(f"not a VMEM file: {len(data)} bytes are less than its header")
    magic, version, dimensions, count = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise FormatError("not a VMEM file: it does not begin with VMEM")
    if version != VERSION:
        raise FormatError(f"VMEM version {version} is not known; this reads version {VERSION}")
    if not dimensions:
        raise FormatError("a VMEM file of 0 dimensions holds no vectors")
    entries: list[VmemEntry] = []
    at, size = HEADER_BYTES, len(data)
    floats = dimensions * FLOAT_BYTES
    for _ in range(count):
        if at + _ID_LENGTH.size > size:
            break
        start = at + _ID_LENGTH.size + _ID_LENGTH.unpack_from(data, at)[0]
        if start + floats > size:
            break
        name = bytes(data[at + _ID_LENGTH.size : start]).decode("utf-8", "surrogateescape")
        at = start + floats
        entries.append(VmemEntry(id=name, start=start, end=at))
    return VmemReading(
        dimensions=dimensions,
        entries=tuple(entries),
        passed_over=_complaints(found=len(entries), count=count, left=size - at),
    )


def _complaints(*, found: int, count: int, left: int) -> tuple[str, ...]:
    if found < count:
        return (f"cut off after {found:,} of {count:,} vectors; {left:,} bytes passed over",)
    if left:
        return (f"{left:,} bytes behind the last vector passed over",)
    return ()


def vmem_header(*, dimensions: int, count: int) -> bytes:
    """What a file of so many vectors begins with."""
    return _HEADER.pack(MAGIC, VERSION, dimensions, count)


def vmem_entry(name: str, values: bytes, *, dimensions: int) -> bytes:
    """One entry; `values` are little-endian float32, as they are to stand in the file."""
    if len(values) != dimensions * FLOAT_BYTES:
        raise FormatError(f"a vector of {len(values)} bytes in a file of {dimensions} dimensions")
    encoded = name.encode("utf-8", "surrogateescape")
    if len(encoded) > _LONGEST_ID_BYTES:
        raise FormatError(f"an id of {len(encoded):,} bytes does not fit a VMEM file")
    return _ID_LENGTH.pack(len(encoded)) + encoded + values


def write_vmem(entries: Iterable[tuple[str, bytes]], *, dimensions: int) -> bytes:
    """A whole file, for those that fit memory."""
    written = [vmem_entry(name, values, dimensions=dimensions) for name, values in entries]
    return vmem_header(dimensions=dimensions, count=len(written)) + b"".join(written)
