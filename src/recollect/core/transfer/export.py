"""The archive as OpenClaw's files: lines in the order of arrival.

Owns what is exported and in which order; the formats own the spelling. Reads the store page by
page. What was imported comes out as the bytes it came as. Vectors are not exported: an import
makes them again. Never opens a file by name: it is given what to write to.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import BinaryIO, Final

from recollect.core.formats.openclaw_files import (
    in_order,
    write_knowledge_line,
    write_segment_line,
)
from recollect.core.ports import Store

PAGE_SEGMENTS: Final = 500


async def export_segments(
    store: Store, file: BinaryIO, progress: Callable[[int], None] | None = None
) -> int:
    """Write `segments.jsonl`; returns how many segments."""
    written = 0

    async def lines() -> AsyncIterator[str]:
        nonlocal written
        after = 0
        while page := await store.page(after=after, limit=PAGE_SEGMENTS):
            for stored in page:
                yield write_segment_line(stored.segment)
            written += len(page)
            after = page[-1].sequence
            if progress is not None:
                progress(written)

    await _write_lines(lines(), file)
    return written


async def export_facts(store: Store, file: BinaryIO) -> int:
    """Write `knowledge.jsonl`; returns how many facts, superseded ones included."""
    facts = in_order(await store.facts(superseded=True))

    async def lines() -> AsyncIterator[str]:
        for fact in facts:
            yield write_knowledge_line(fact)

    await _write_lines(lines(), file)
    return len(facts)


async def _write_lines(lines: AsyncIterator[str], file: BinaryIO) -> None:
    """Lines as they are; a last line without its end gets one when others follow."""
    torn = False
    async for line in lines:
        file.write((("\n" if torn else "") + line).encode())
        torn = not line.endswith("\n")
