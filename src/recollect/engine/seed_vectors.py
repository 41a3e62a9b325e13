"""The vectors of a `vectors.bin`, found by the ids of the segments they belong to.

Owns what is told about vectors that are left out. Never copies the file: a vector is sliced
from it when its segment asks.
"""

from __future__ import annotations

import math
from mmap import mmap

from recollect.formats.js_json import well_formed
from recollect.formats.vmem import VmemEntry, VmemReading


class SeedVectors:
    """The vectors of a `vectors.bin`, found by the ids of its segments."""

    def __init__(self, reading: VmemReading, data: bytes | mmap) -> None:
        self.dimensions = reading.dimensions
        self.embedder = f"vmem-{reading.dimensions}"
        self._data = data
        self._entries: dict[str, tuple[int, VmemEntry]] = {}
        for rank, entry in enumerate(reading.entries):
            self._entries[entry.id] = (rank, entry)
        self._named: set[str] = set()
        self.passed_over = list(reading.passed_over)
        doubled = len(reading.entries) - len(self._entries)
        if doubled:
            self.passed_over.append(f"{doubled:,} vectors are there twice: the last one is kept")

    def __len__(self) -> int:
        return len(self._entries)

    def claim(self, name: str) -> None:
        """There is a segment of this id."""
        self._named.add(well_formed(name))

    def find(self, name: str) -> tuple[int, bytes] | None:
        """The place in the file and the values of a segment's vector."""
        found = self._entries.get(well_formed(name))
        if found is None:
            return None
        rank, entry = found
        values = bytes(self._data[entry.start : entry.end])
        if not math.isfinite(sum(memoryview(values).cast("f"))):
            self.passed_over.append(f"vector {rank + 1:,} holds what is no number: kept out")
            return None
        return rank, values

    def told(self) -> tuple[str, ...]:
        """What was left out, once every segment was named."""
        orphans = len(self._entries.keys() - self._named)
        if orphans:
            return (*self.passed_over, f"{orphans:,} vectors name no segment: kept out")
        return tuple(self.passed_over)
