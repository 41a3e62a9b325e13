"""The archive as OpenClaw's files: lines in the order of arrival, vectors in their file's.

Owns what is exported and in which order; the formats own the spelling. Reads the store page by
page. What was imported comes out as the bytes it came as. Never opens a file by name: it is given
what to write to.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import BinaryIO, Final

from recollect.errors import FormatError
from recollect.formats.openclaw_files import (
    FLOAT_BYTES,
    exported_id,
    in_order,
    vmem_entry,
    vmem_header,
    write_knowledge_line,
    write_segment_line,
)
from recollect.ports import Store
from recollect.upkeep.chores import VECTOR_ORIGIN
from recollect.values.segment import Segment, SegmentId

PAGE_SEGMENTS: Final = 500
IMPORTED: Final = "vmem-"
"""What the names of imported vectors begin with; their dimensions follow."""
_RANK: Final = re.compile(re.escape(VECTOR_ORIGIN) + r"(\d{1,12})$")


@dataclass(slots=True)
class ExportedNames:
    """The ids that segments have in the export, and the place of their vectors."""

    names: dict[SegmentId, str] = field(default_factory=dict, repr=False)
    places: dict[SegmentId, tuple[int, int]] = field(default_factory=dict, repr=False)

    def add(self, segment: Segment) -> None:
        """Remember one."""
        self.names[segment.id] = exported_id(segment)
        rank = _RANK.search(segment.origin or "")
        arrival = len(self.places)
        self.places[segment.id] = (1, arrival) if rank is None else (0, int(rank[1]))


async def export_segments(
    store: Store, file: BinaryIO, progress: Callable[[int], None] | None = None
) -> ExportedNames:
    """Write `segments.jsonl`."""
    names = ExportedNames()

    async def lines() -> AsyncIterator[str]:
        after = 0
        while page := await store.page(after=after, limit=PAGE_SEGMENTS):
            for stored in page:
                names.add(stored.segment)
                yield write_segment_line(stored.segment)
            after = page[-1].sequence
            if progress is not None:
                progress(len(names.names))

    await _write_lines(lines(), file)
    return names


async def export_facts(store: Store, file: BinaryIO) -> int:
    """Write `knowledge.jsonl`; returns how many facts, superseded ones included."""
    facts = in_order(await store.facts(superseded=True))

    async def lines() -> AsyncIterator[str]:
        for fact in facts:
            yield write_knowledge_line(fact)

    await _write_lines(lines(), file)
    return len(facts)


async def export_vectors(
    store: Store, embedder: str, names: ExportedNames, *, spill: BinaryIO, file: BinaryIO
) -> int:
    """Write `vectors.bin` with the first vector of each segment; returns how many.

    A store gives vectors by segment; `spill` holds them until they can be put in order.
    """
    found: list[tuple[tuple[int, int], SegmentId, int]] = []
    dimensions = 0
    after: tuple[SegmentId, int] | None = None
    while page := await store.vectors(embedder, after=after, limit=PAGE_SEGMENTS):
        after = (page[-1].segment, page[-1].ordinal)
        for vector in page:
            if vector.ordinal != 0 or vector.segment not in names.names:
                continue
            size = len(vector.values) // FLOAT_BYTES
            if dimensions and size != dimensions:
                raise FormatError(f"the vectors of {embedder} are of several lengths")
            dimensions = size
            found.append((names.places[vector.segment], vector.segment, len(found)))
            spill.write(vector.values)
    file.write(vmem_header(dimensions=dimensions, count=len(found)))
    for _, segment, at in sorted(found):
        spill.seek(at * dimensions * FLOAT_BYTES)
        values = spill.read(dimensions * FLOAT_BYTES)
        file.write(vmem_entry(names.names[segment], values, dimensions=dimensions))
    return len(found)


async def exported_embedder(store: Store) -> tuple[str | None, tuple[str, ...]]:
    """Whose vectors an export holds, and whose it leaves out: a file has one kind.

    Imported ones go first, since they came as such a file; then the most numerous.
    """
    counts = (await store.stats()).vectors
    ranked = sorted(counts, key=lambda name: (not name.startswith(IMPORTED), -counts[name], name))
    present = [name for name in ranked if counts[name]]
    return (present[0], tuple(present[1:])) if present else (None, ())


async def _write_lines(lines: AsyncIterator[str], file: BinaryIO) -> None:
    """Lines as they are; a last line without its end gets one when others follow."""
    torn = False
    async for line in lines:
        file.write((("\n" if torn else "") + line).encode())
        torn = not line.endswith("\n")
