"""Writes a batch, and indexes segments again.

A write is one transaction that first reads the rows that the batch affects: two round trips and one
fsync, however large the batch. The transaction locks the row of `counters` first, so writers of one
space wait for each other. A forgotten message is never written again, and writing a batch twice
changes nothing. Indexing a passage again gives it a new number, and marks the old number as dead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from recollect.adapters.stores.invariants import (
    SessionOutcome,
    SortedSegments,
    identities_of,
    require_storable,
)
from recollect.adapters.stores.postgres import driver, facts, jobs, ledger, sessions, space, vectors
from recollect.adapters.stores.postgres.link import Statement
from recollect.adapters.stores.postgres.pool import Transaction
from recollect.adapters.stores.postgres.words import encode_passages
from recollect.core.values.batch import Batch, NewJob, WriteResult
from recollect.core.values.segment import NewPassage, NewSegment, SegmentId
from recollect.errors import StaleFacts

FORGOTTEN_SEGMENTS: Final = driver.RowInsert("forgotten_segments", "id text, message_id text")
_SEGMENTS: Final = driver.RowInsert(
    "segments",
    "sequence bigint, id text, session text, key text, message_id text, role text, body text, "
    "tokens bigint, said_at float8, source text, trust text, noise text, tool text, origin text, "
    "foreign_line text",
    "",
)
_PASSAGES: Final = driver.RowInsert(
    "passages",
    "passage_no bigint, sequence bigint, ordinal integer, start_char integer, end_char integer, "
    "said_at float8, embedded boolean",
    "",
)
_TERMS: Final = driver.RowInsert(
    "passage_terms", "passage_no bigint, length integer, terms bytea, counts bytea", ""
)
_MANY_PASSAGES: Final = 100
"""The words of more passages are counted in a thread, to let the event loop serve others."""


class NothingTaken(Exception):  # noqa: N818 - rolls a transaction back
    """Raised if the statement on which a batch depends returned no row."""


async def write_batch(
    work: Transaction, batch: Batch, *, only_if: Statement | None = None
) -> tuple[WriteResult, int]:
    """Write a batch in this transaction. Also return how many passages wait to be packed. If the
    queued statement `only_if` returns no row, raise NothingTaken."""
    require_storable(batch)
    counters, lookups = await _lock_and_look_up(work, batch)
    if only_if is not None and await only_if.fetchone() is None:
        raise NothingTaken
    if batch.facts_revision not in (None, counters.facts_revision):
        raise StaleFacts("other facts were written in the meantime: read the facts and try again")
    before = counters.tail
    segments = SortedSegments.of(batch, known_ids=lookups.known_ids, tombstones=counters.tombstones)
    forgotten_messages = segments.forgotten_messages
    # a later batch may contain facts that depend only on a forgotten segment
    await work.insert(FORGOTTEN_SEGMENTS, forgotten_messages.items())
    unquotable = counters.tombstones.union(forgotten_messages.values())
    if segments.new_segments:
        await _insert_segments(work, segments.new_segments, counters)
    for vector_set in batch.vectors:
        await vectors.write_vectors(
            work, vector_set, lookups.embedders.get(vector_set.embedder), counters
        )
    # The same messages forbid the record of a compaction and the state with its cut.
    refused_ids = unquotable | (lookups.unquotable - segments.message_ids)
    outcome, stale = SessionOutcome(), None
    if batch.session is not None:
        outcome = await sessions.write_session(
            work, batch.session, lookups.session, refused_ids, segments.message_ids
        )
        stale = batch.session.session if outcome.stale else None
    if lookups.facts is not None:
        await facts.write_facts(work, batch, lookups.facts, counters, frozenset(forgotten_messages))
    new_jobs = list(segments.jobs_of(batch))
    if counters.tail // space.PACK_AFTER > before // space.PACK_AFTER:
        new_jobs.append(NewJob(kind="pack", key="pack", run_at=batch.at))
    counters.next_job = await jobs.add_jobs(work, new_jobs, counters.next_job, unquotable)
    await ledger.add_pieces(work, batch.pieces, unquotable)
    await ledger.add_turns(work, [turn for turn in batch.turns if turn.session != stale])
    current = [record for record in batch.compactions if record.session != stale]
    await ledger.add_compactions(work, current, refused_ids)
    await space.store_counters(work, counters)
    return segments.to_result(outcome, new_jobs), counters.tail


async def _lock_and_look_up(
    work: Transaction, batch: Batch
) -> tuple[space.SpaceCounters, _BatchLookup]:
    lock_query = await work.send(space.COUNTERS, (work.space_id,))
    about_facts = await facts.look_up_facts(work, batch)
    lookup_query = await work.send(_LOOKUP, _lookup_arguments(work, batch))
    row = await lock_query.fetchone()
    if row is None:
        await space.lock_space(work)
        return await _lock_and_look_up(work, batch)
    counters = space.SpaceCounters(*row)
    rows = await lookup_query.fetchall()
    known_ids, tombstones, forgotten_ids, *session = rows[0][:-5]
    counters.tombstones = frozenset(tombstones)
    return counters, _BatchLookup(
        known_ids=frozenset(known_ids),
        unquotable=frozenset([*tombstones, *forgotten_ids]),
        facts=about_facts,
        session=sessions.SessionLookup(*session),
        embedders={row[-1]: row[-5:-1] for row in rows if row[-1] is not None},
    )


_LOOKUP: Final = f"""
    SELECT
        ARRAY(
            SELECT id FROM recollect.segments
            WHERE space_id = %(space)s AND id = ANY((SELECT %(ids)s::text[])::text[])
        ), ARRAY(
            SELECT message_id FROM recollect.tombstones
            WHERE space_id = %(space)s AND message_id = ANY((SELECT %(identities)s::text[])::text[])
        ), ARRAY({ledger.FORGOTTEN}), {sessions.LOOKUP},
        e.embedder_no, e.dimensions, e.vectors, e.signed, e.name
    FROM recollect.counters AS c
    LEFT JOIN recollect.sessions AS s ON s.space_id = %(space)s AND s.session = %(session)s
    LEFT JOIN recollect.embedders AS e
        ON e.space_id = %(space)s AND e.name = ANY((SELECT %(embedders)s::text[])::text[])
    WHERE c.space_id = %(space)s
"""  # noqa: S608
"""SQL for everything that a batch without facts needs to know: one row per embedder. The planner
cannot see the lengths of arrays that come from a SELECT, so it keeps one plan for all batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _BatchLookup:
    known_ids: frozenset[str]
    unquotable: frozenset[str]
    facts: facts.FactLookup | None
    session: sessions.SessionLookup
    embedders: Mapping[str, tuple[Any, ...]]


def _lookup_arguments(work: Transaction, batch: Batch) -> dict[str, Any]:
    quoted_ids: set[str] = {
        message_id for record in batch.compactions for message_id in record.about
    }
    quoted_ids.update(sessions.newest_quotes(batch.session))
    return {
        "space": work.space_id,
        "ids": driver.texts(new_segment.segment.id for new_segment in batch.segments),
        "identities": driver.texts(identities_of(batch) | quoted_ids),
        "about": driver.texts(quoted_ids),
        "embedders": driver.texts(vector_set.embedder for vector_set in batch.vectors),
        **sessions.lookup_arguments(batch.session),
    }


async def _insert_segments(
    work: Transaction, new_segments: Sequence[NewSegment], counters: space.SpaceCounters
) -> None:
    numbered_segments = [
        (sequence, new_segment.segment, new_segment.passages)
        for sequence, new_segment in enumerate(new_segments, counters.next_sequence)
    ]
    counters.next_sequence += len(new_segments)
    rows = [
        (sequence, segment.id, segment.session, segment.key, segment.message_id, segment.role,
         segment.text, segment.tokens, segment.said_at, segment.source, segment.trust,
         segment.noise, segment.tool, segment.origin, segment.foreign)
        for sequence, segment, _ in numbered_segments
    ]  # fmt: skip
    await work.insert(_SEGMENTS, rows)
    segment_rows = [
        (number, segment.id, segment.said_at, passages)
        for number, segment, passages in numbered_segments
    ]
    await insert_passages(work, segment_rows, counters)


async def insert_passages(
    work: Transaction,
    segment_rows: Sequence[tuple[int, SegmentId, float, Sequence[NewPassage]]],
    counters: space.SpaceCounters,
) -> None:
    """Index segments, each given by sequence, id, time and passages."""
    words = [passage.words for *_, new_passages in segment_rows for passage in new_passages]
    if len(words) > _MANY_PASSAGES:
        forwards = iter(await asyncio.to_thread(encode_passages, work.space_id, words))
    else:
        forwards = iter(encode_passages(work.space_id, words))
    passages: list[tuple[Any, ...]] = []
    terms: list[tuple[Any, ...]] = []
    for sequence, segment, said_at, new_passages in segment_rows:
        for ordinal, passage in enumerate(new_passages):
            number = counters.next_passage
            counters.next_passage += 1
            counters.places[segment, ordinal] = (number, passage.start, passage.end)
            length, *packed_terms = next(forwards)
            counters.documents += 1
            counters.total_length += length
            passages.append(
                (number, sequence, ordinal, passage.start, passage.end, said_at, passage.embedded)
            )
            terms.append((number, length, *packed_terms))
    await work.insert(_PASSAGES, passages)
    await work.insert(_TERMS, terms)


_RENUMBER_VECTORS: Final = """
    UPDATE recollect.vectors AS v SET passage_no = u.new_no
    FROM unnest(%s::bigint[], %s::bigint[]) AS u (old_no, new_no)
    WHERE v.space_id = %s AND v.passage_no = u.old_no
        AND v.embedder_no IN (SELECT embedder_no FROM recollect.embedders WHERE space_id = %s)
"""
_SPANS: Final = """
    SELECT s.id, s.sequence, s.said_at, p.passage_no, p.ordinal, p.start_char, p.end_char
    FROM recollect.segments AS s
    LEFT JOIN recollect.passages AS p ON p.space_id = %(space)s AND p.sequence = s.sequence
    WHERE s.space_id = %(space)s AND s.id = ANY(%(ids)s::text[])
"""
_DROP_PASSAGES: Final = driver.delete("passages", "passage_no", "bigint")
_DROP_TERMS: Final = (
    f"{driver.delete('passage_terms', 'passage_no', 'bigint')} RETURNING length, cold, terms"
)
_DROP_VECTORS: Final = """
    DELETE FROM recollect.vectors
    WHERE space_id = %s AND passage_no = ANY(%s::bigint[])
        AND embedder_no IN (SELECT embedder_no FROM recollect.embedders WHERE space_id = %s)
    RETURNING embedder_no
"""
_COUNT_LESS: Final = """
    UPDATE recollect.embedders SET vectors = vectors - %s
    WHERE space_id = %s AND embedder_no = %s AND signed
"""
NEW_EPOCH: Final = """
    UPDATE recollect.counters SET index_epoch = index_epoch + 1 WHERE space_id = %s
"""


async def replace_passages(
    work: Transaction, passages: Mapping[SegmentId, tuple[NewPassage, ...]]
) -> None:
    """Index segments again. A passage keeps its vector if its span is unchanged."""
    counters = await space.lock_space(work)
    rows = await work.rows(_SPANS, {"space": work.space_id, "ids": driver.texts(passages)})
    spans = {(row[0], row[4], row[5], row[6]): row[3] for row in rows if row[3] is not None}
    if not rows:
        return
    old_numbers = np.array(sorted(spans.values()), np.int64)
    await drop_index(work, old_numbers, counters)
    await space.mark_dead(work, old_numbers[old_numbers <= counters.packed_to])
    segments = {row[0]: (row[1], row[2]) for row in rows}
    await insert_passages(
        work,
        [
            (sequence, SegmentId(id_), said_at, passages[SegmentId(id_)])
            for id_, (sequence, said_at) in segments.items()
        ],
        counters,
    )
    moved: dict[int, int] = {}
    for (id_, ordinal), (number, start, end) in counters.places.items():
        if (old_number := spans.pop((id_, ordinal, start, end), None)) is not None:
            moved[old_number] = number
    if moved:
        new_numbers = driver.int8s(list(moved.values()))
        arguments = (driver.int8s(list(moved)), new_numbers, work.space_id, work.space_id)
        await work.send(_RENUMBER_VECTORS, arguments)
        await vectors.sign_again(work, new_numbers)
    await drop_vectors(work, np.array(sorted(spans.values()), np.int64))
    await space.store_counters(work, counters)
    await work.send(NEW_EPOCH, (work.space_id,))


async def drop_index(
    work: Transaction, numbers: NDArray[np.int64], counters: space.SpaceCounters
) -> NDArray[Any]:
    """Remove passages, their words and signs. Return the removed terms. Vectors and runs stay."""
    number_array = driver.int8s(numbers)
    await work.send(_DROP_PASSAGES, (work.space_id, number_array))
    await vectors.clear_signs(work, numbers)
    rows = await work.rows(_DROP_TERMS, (work.space_id, number_array))
    # until 009_post has run, cold rows are not counted
    counters.documents -= sum(not cold for _, cold, _ in rows)
    counters.total_length -= sum(length for length, cold, _ in rows if not cold)
    return np.unique(np.frombuffer(b"".join(terms for _, _, terms in rows), "<u4"))


async def drop_vectors(work: Transaction, numbers: NDArray[np.int64]) -> int:
    """Remove all vectors of these passages. Return the number of removed vectors."""
    if not len(numbers):
        return 0
    arguments = (work.space_id, driver.int8s(numbers), work.space_id)
    embedder_numbers = [row[0] for row in await work.rows(_DROP_VECTORS, arguments)]
    for embedder in sorted(set(embedder_numbers)):
        await work.send(_COUNT_LESS, (embedder_numbers.count(embedder), work.space_id, embedder))
    return len(embedder_numbers)
