"""The counters of a space, which writers lock in turn, and what a batch meets there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from recollect.adapters.stores.postgres.pool import Transaction


@dataclass(slots=True, kw_only=True)
class SpaceCounters:
    """The next numbers of a space, and what a batch meets there and adds to it."""

    next_sequence: int
    next_passage: int
    next_embedder: int
    next_job: int
    packed_to: int
    facts_revision: int
    known: frozenset[str] = frozenset()
    tombstoned: frozenset[str] = frozenset()
    """Identities and segments that a tombstone stands for."""
    documents: int = 0
    """Added to the warm index."""
    total_length: int = 0
    places: dict[tuple[str, int], tuple[int, int, int]] = field(default_factory=dict)
    """Number, start and end of passages written in this batch, by segment and ordinal."""
    embedders: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Number and dimensions of embedders that this batch brought."""
    vectored: set[tuple[int, int]] = field(default_factory=set)
    """Embedder and passage of vectors written in this batch."""

    @property
    def tail(self) -> int:
        return self.next_passage - 1 - self.packed_to


COUNTERS: Final = """
    SELECT next_sequence, next_passage, next_embedder, next_job, packed_to, facts_revision
    FROM recollect.counters WHERE space_id = %s FOR UPDATE
"""
_NEW_SPACE: Final = """
    INSERT INTO recollect.spaces (space_id, name) VALUES (%s, %s) ON CONFLICT DO NOTHING
"""
_NEW_COUNTERS: Final = """
    INSERT INTO recollect.counters (space_id) VALUES (%s) ON CONFLICT DO NOTHING
"""
_ADVANCE: Final = """
    UPDATE recollect.counters SET next_sequence = %s, next_passage = %s, next_embedder = %s,
        next_job = %s, documents = documents + %s, total_length = total_length + %s
    WHERE space_id = %s
"""


async def take_turn(work: Transaction) -> bool:
    """Take the space's turn where there is such a space; whether there is."""
    return await work.row(COUNTERS, (work.space_id,)) is not None


async def lock_space(work: Transaction) -> SpaceCounters:
    """Take the space's turn; make the space if it is missing."""
    row = await work.row(COUNTERS, (work.space_id,))
    if row is None:
        await work.send(_NEW_SPACE, (work.space_id, work.space))
        await work.send(_NEW_COUNTERS, (work.space_id,))
        row = await work.row(COUNTERS, (work.space_id,))
    assert row is not None
    return space_counters(row)


def space_counters(row: tuple[Any, ...]) -> SpaceCounters:
    """A row of `COUNTERS`."""
    return SpaceCounters(
        next_sequence=row[0], next_passage=row[1], next_embedder=row[2], next_job=row[3],
        packed_to=row[4], facts_revision=row[5],
    )  # fmt: skip


async def advance(work: Transaction, counters: SpaceCounters) -> None:
    await work.send(
        _ADVANCE,
        (counters.next_sequence, counters.next_passage, counters.next_embedder, counters.next_job,
         counters.documents, counters.total_length, work.space_id),
    )  # fmt: skip


_EVERYTHING: Final = (
    "counters", "segments", "passages", "passage_terms", "runs", "postings", "embedders",
    "vectors", "sign_blocks", "facts", "fact_terms", "fact_vectors", "extracted", "sessions",
    "session_paths", "session_quotes", "tombstones", "forgotten_segments", "jobs", "job_pauses",
    "job_budgets", "model_use", "pieces", "turns", "compactions", "spaces",
)  # fmt: skip
"""Every table of spaces; its own row goes last."""


async def delete_space(work: Transaction) -> dict[str, int]:
    """Remove everything that a space holds, its tombstones too; how many rows, by table.

    Its writers wait meanwhile, and find no space then: what is written later makes a new one.
    """
    await take_turn(work)
    sent = {
        table: await work.send(
            f"WITH gone AS (DELETE FROM recollect.{table} WHERE space_id = %s RETURNING 1) "  # noqa: S608
            "SELECT count(*) FROM gone",
            (work.space_id,),
        )
        for table in _EVERYTHING
    }
    rows = {table: await statement.fetchone() for table, statement in sent.items()}
    return {table: int(row[0]) for table, row in rows.items() if row is not None and row[0]}
