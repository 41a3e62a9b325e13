"""Writes a batch: first looks at what it meets, then writes all of it in one transaction.

Two round trips and one fsync, however large the batch. The row of `counters` is locked first, so
writers of one space take turns and what was looked at stays true. Never writes what a tombstone
stands for, nor what rests on it alone. Always holds: writing a batch again changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from recollect.adapters.stores.invariants import SessionOutcome, compaction_mark, require_storable
from recollect.adapters.stores.postgres import facts, jobs, ledger, sessions
from recollect.adapters.stores.postgres.driver import (
    Kind,
    bools,
    byteas,
    columns,
    float8s,
    int4s,
    int8s,
    texts,
)
from recollect.adapters.stores.postgres.pool import Statement, Transaction
from recollect.adapters.stores.postgres.postings import PACK_AFTER, forward
from recollect.adapters.stores.postgres.space import (
    COUNTERS,
    SpaceCounters,
    advance,
    lock_space,
    space_counters,
)
from recollect.adapters.stores.postgres.vectors import VectorLookup, look_up_vectors, write_vectors
from recollect.core.values.batch import Batch, NewJob, WriteResult
from recollect.core.values.fact import fact_identity
from recollect.core.values.message import MessageId
from recollect.core.values.segment import NewSegment, SegmentId
from recollect.errors import StaleFacts

_KNOWN: Final = """
    SELECT id FROM recollect.segments WHERE space_id = %s AND id = ANY(%s::text[])
"""
_TOMBSTONED: Final = """
    SELECT message_id FROM recollect.tombstones
    WHERE space_id = %s AND message_id = ANY(%s::text[])
"""
GONE: Final = """
    INSERT INTO recollect.forgotten_segments (space_id, id, message_id)
    SELECT c.space_id, u.*
    FROM (SELECT space_id FROM recollect.counters WHERE space_id = %s) AS c
    CROSS JOIN unnest(%s::text[], %s::text[]) AS u ON CONFLICT DO NOTHING
"""
_SEGMENTS: Final = """
    INSERT INTO recollect.segments
        (space_id, sequence, id, session, key, message_id, role, body, tokens, said_at, source,
         trust, noise, tool, origin, foreign_line)
    SELECT c.space_id, u.*
    FROM (SELECT space_id FROM recollect.counters WHERE space_id = %s) AS c
    CROSS JOIN unnest(
        %s::bigint[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[],
        %s::bigint[], %s::float8[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[],
        %s::text[]) AS u
"""
PASSAGES: Final = """
    INSERT INTO recollect.passages
        (space_id, passage_no, sequence, ordinal, start_char, end_char, said_at, embedded, cold)
    SELECT c.space_id, u.*
    FROM (SELECT space_id FROM recollect.counters WHERE space_id = %s) AS c
    CROSS JOIN unnest(
        %s::bigint[], %s::bigint[], %s::integer[], %s::integer[], %s::integer[], %s::float8[],
        %s::boolean[], %s::boolean[]) AS u
"""
TERMS: Final = """
    INSERT INTO recollect.passage_terms (space_id, passage_no, length, terms, counts, cold)
    SELECT c.space_id, u.*
    FROM (SELECT space_id FROM recollect.counters WHERE space_id = %s) AS c
    CROSS JOIN unnest(
        %s::bigint[], %s::integer[], %s::bytea[], %s::bytea[], %s::boolean[]) AS u
"""


class NothingTaken(Exception):  # noqa: N818 - rolls a transaction back
    """The statement that a batch depends on had no row."""


async def write_batch(
    work: Transaction, batch: Batch, name: str, *, only_if: Statement | None = None
) -> tuple[WriteResult, int]:
    """Write a batch in this transaction; also how many passages wait to be packed.

    `only_if` was queued before: where it turns out to have no row, NothingTaken is raised.
    """
    require_storable(batch)
    counters, looked = await _meet(work, batch, name)
    if only_if is not None and await only_if.fetchone() is None:
        raise NothingTaken
    if batch.facts_revision not in (None, counters.facts_revision):
        raise StaleFacts("other facts were written meanwhile: read them and decide again")
    before = counters.tail
    stored, known, forgotten = _sort_out(batch.segments, counters)
    if forgotten:  # what rests on one alone may come in a later batch
        await work.send(GONE, (work.space_id, texts(forgotten), texts(forgotten.values())))
    unquotable = counters.tombstoned.union(forgotten.values())
    if stored:
        await _insert_segments(work, stored, counters)
    for given, lookup in zip(batch.vectors, looked.vectors, strict=True):
        await write_vectors(work, given, lookup, counters)
    message_ids = frozenset(new.segment.message_id for new in stored)
    refused = unquotable
    if looked.compacted is not None:
        # A compaction's record and the state with its cut are refused for the same messages.
        refused |= await ledger.unquotable(looked.compacted, message_ids)
    kept, stale = SessionOutcome(), None
    if batch.session is not None and looked.session is not None:
        kept = await sessions.write_session(
            work, batch.session, looked.session, refused, message_ids
        )
        stale = batch.session.session if kept.stale else None
    if looked.facts is not None:
        await facts.write_facts(work, batch, looked.facts, counters, frozenset(forgotten))
    # Of a batch that is written again the jobs were enqueued, and perhaps done, the first time.
    new_jobs = list(batch.jobs) if stored or not batch.segments else []
    if counters.tail // PACK_AFTER > before // PACK_AFTER:
        new_jobs.append(NewJob(kind="pack", key="pack", run_at=batch.at))
    counters.next_job = await jobs.add_jobs(work, new_jobs, counters.next_job, unquotable)
    await ledger.add_pieces(work, batch.pieces, unquotable)
    await ledger.add_turns(work, [turn for turn in batch.turns if turn.session != stale])
    current = [compaction for compaction in batch.compactions if compaction.session != stale]
    await ledger.add_compactions(work, current, refused)
    await advance(work, counters)
    return WriteResult(
        stored=tuple(new.segment.id for new in stored),
        known=tuple(known),
        forgotten=tuple(forgotten),
        session_stale=kept.stale,
        session_cleaned=kept.cleaned,
        due_at=min((job.run_at for job in new_jobs), default=None),
    ), counters.tail


async def _meet(work: Transaction, batch: Batch, name: str) -> tuple[SpaceCounters, _BatchLookup]:
    """Take the space's turn and look at what the batch meets, in one round trip."""
    locking = await work.send(COUNTERS, (work.space_id,))
    looked = await _look(work, batch)
    row = await locking.fetchone()
    if row is None:
        counters = await lock_space(work, name)
        looked = await _look(work, batch)
    else:
        counters = space_counters(row)
    counters.known = frozenset([other for (other,) in await looked.known.fetchall()])
    counters.tombstoned = frozenset([value for (value,) in await looked.tombstoned.fetchall()])
    return counters, looked


@dataclass(frozen=True, slots=True, kw_only=True)
class _BatchLookup:
    known: Statement
    tombstoned: Statement
    facts: facts.FactLookup | None
    session: sessions.SessionLookup | None
    vectors: tuple[VectorLookup, ...]
    compacted: Statement | None


async def _look(work: Transaction, batch: Batch) -> _BatchLookup:
    """Queue every question about what the batch meets."""
    identities: set[str] = {new.segment.message_id for new in batch.segments}
    identities.update(new.segment.id for new in batch.segments)
    identities.update(message_id for job in batch.jobs for message_id in job.about)
    identities.update(text for piece in batch.pieces for text in (piece.hash, *piece.about))
    identities.update(map(compaction_mark, batch.compactions))
    identities.update(fact_identity(fact.id) for fact in batch.facts)
    return _BatchLookup(
        known=await work.send(
            _KNOWN, (work.space_id, texts(new.segment.id for new in batch.segments))
        ),
        tombstoned=await work.send(_TOMBSTONED, (work.space_id, texts(identities))),
        facts=await facts.look_up_facts(work, batch),
        session=(
            await sessions.look_up_session(work, batch.session)
            if batch.session is not None
            else None
        ),
        vectors=tuple([await look_up_vectors(work, given) for given in batch.vectors]),
        compacted=(
            await ledger.look_up_unquotable(
                work, {message_id for record in batch.compactions for message_id in record.about}
            )
            if batch.compactions
            else None
        ),
    )


def _sort_out(
    given: Sequence[NewSegment], counters: SpaceCounters
) -> tuple[list[NewSegment], list[SegmentId], dict[SegmentId, MessageId]]:
    """Which segments are new, which known, and for which, with their identity, a tombstone
    stands."""
    stored: dict[SegmentId, NewSegment] = {}
    known: dict[SegmentId, None] = {}
    forgotten: dict[SegmentId, MessageId] = {}
    for new in given:
        if not counters.tombstoned.isdisjoint((new.segment.id, new.segment.message_id)):
            forgotten[new.segment.id] = new.segment.message_id
        elif new.segment.id in counters.known:
            known[new.segment.id] = None
        else:
            stored.setdefault(new.segment.id, new)
    return list(stored.values()), list(known), forgotten


async def _insert_segments(
    work: Transaction, new: Sequence[NewSegment], counters: SpaceCounters
) -> None:
    sequences = range(counters.next_sequence, counters.next_sequence + len(new))
    counters.next_sequence += len(new)
    numbered = list(zip(sequences, new, strict=True))
    rows = [
        (sequence, segment.id, segment.session, segment.key, segment.message_id, segment.role,
         segment.text, segment.tokens, segment.said_at, segment.source, segment.trust,
         segment.noise, segment.tool, segment.origin, segment.foreign)
        for sequence, segment in ((sequence, given.segment) for sequence, given in numbered)
    ]  # fmt: skip
    kinds: tuple[Kind, ...] = (int8s, *[texts] * 6, int8s, float8s, *[texts] * 6)
    await work.send(_SEGMENTS, (work.space_id, *columns(rows, *kinds)))
    indexed = [(sequence, given, False) for sequence, given in numbered if given.passages]
    await insert_passages(work, indexed, counters)


async def insert_passages(
    work: Transaction, given: Sequence[tuple[int, NewSegment, bool]], counters: SpaceCounters
) -> None:
    """Index the passages of segments, each with its sequence and whether it is cold."""
    passages: list[tuple[Any, ...]] = []
    terms: list[tuple[Any, ...]] = []
    for sequence, new, cold in given:
        for ordinal, passage in enumerate(new.passages):
            number = counters.next_passage
            counters.next_passage += 1
            counters.places[new.segment.id, ordinal] = (number, passage.start, passage.end)
            words = forward(work.space_id, passage.words)
            if not cold:
                counters.documents += 1
                counters.total_length += words.length
            passages.append(
                (number, sequence, ordinal, passage.start, passage.end, new.segment.said_at,
                 passage.embedded, cold)
            )  # fmt: skip
            terms.append((number, words.length, words.terms, words.counts, cold))
    if passages:
        kinds = (int8s, int8s, int4s, int4s, int4s, float8s, bools, bools)
        await work.send(PASSAGES, (work.space_id, *columns(passages, *kinds)))
        laid = columns(terms, int8s, int4s, byteas, byteas, bools)
        await work.send(TERMS, (work.space_id, *laid))
