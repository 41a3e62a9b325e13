"""Writes a batch: all of it in the caller's transaction, or nothing.

Must never read a clock: times come with the batch. Always holds: writing a batch again changes
nothing, and nothing is written of what a tombstone stands for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from recollect.stores.limits import require_storable
from recollect.stores.outcome import SessionOutcome
from recollect.stores.sqlite.compactions import add_compactions, covers_forgotten
from recollect.stores.sqlite.database import Database, Row
from recollect.stores.sqlite.fact_vectors import write_fact_vectors
from recollect.stores.sqlite.facts import read_to, require_revision, write_facts
from recollect.stores.sqlite.jobs import add_jobs
from recollect.stores.sqlite.ledger import add_pieces, add_turns
from recollect.stores.sqlite.marks import put_gone, tombstoned
from recollect.stores.sqlite.packing import json_list
from recollect.stores.sqlite.passages import add_passages, index_words
from recollect.stores.sqlite.rows import INSERT_SEGMENT, segment_row
from recollect.stores.sqlite.sessions import session_number, write_session
from recollect.stores.sqlite.vectors import write_vectors
from recollect.values.batch import Batch, Written
from recollect.values.fact import fact_identity
from recollect.values.segment import NewSegment, SegmentId

_KNOWN: Final = "SELECT id FROM segment WHERE id IN (SELECT value FROM json_each(?))"
_IS_KNOWN: Final = "SELECT 1 FROM segment WHERE id = ?"
# Asked for one by one: making and reading a list takes longer.
_FEW: Final = 5
_NEXT: Final = "SELECT next_sequence, next_passage FROM totals"
_COUNT_ADDED: Final = """
UPDATE totals SET next_sequence = ?, segments = segments + ?, noise = noise + ?,
  tokens = tokens + ?
"""


def write_batch(db: Database, batch: Batch) -> Written:
    """Write everything the batch holds."""
    require_storable(batch)
    require_revision(db, batch.facts_revision)
    tombstones = tombstoned(db, _identities(batch))
    refused, said = _identities_met(batch.segments, tombstones)
    forgotten = tombstones | refused
    # A compaction's record and the state with its cut are refused for the same messages.
    unquoted = forgotten | covers_forgotten(db, batch.compactions, said)
    kept, stale = SessionOutcome(), None
    if batch.session is not None:
        kept = write_session(db, batch.session, unquoted, said)
        stale = batch.session.session if kept.stale else None
    told, new = _sorted_out(db, batch.segments, tombstones)
    bags = _insert(db, new) if new else []
    for vectors in batch.vectors:
        write_vectors(db, vectors)
    if batch.facts:
        write_facts(db, batch.facts, tombstones)
    for fact_vectors in batch.fact_vectors:
        write_fact_vectors(db, fact_vectors)
    if batch.extracted:
        read_to(db, batch.extracted)
    if new or not batch.segments:  # else they were enqueued with the segments, perhaps done
        add_jobs(db, batch.jobs, forgotten)
    add_pieces(db, batch.pieces, forgotten)
    add_turns(db, batch.turns, but_of=stale)
    add_compactions(db, batch.compactions, unquoted, but_of=stale)
    index_words(db, bags)
    return Written(
        stored=tuple(told["stored"]),
        known=tuple(told["known"]),
        forgotten=tuple(told["forgotten"]),
        session_stale=kept.stale,
        session_cleaned=kept.cleaned,
    )


def known_segments(db: Database, ids: Iterable[str]) -> set[str]:
    """Which of these segments are stored."""
    asked = set(ids)
    if len(asked) <= _FEW:
        return {id_ for id_ in asked if db.rows(_IS_KNOWN, (id_,))}
    return {row[0] for row in db.rows(_KNOWN, (json_list(asked),))}


def _identities(batch: Batch) -> set[str]:
    ids: set[str] = {new.segment.message_id for new in batch.segments}
    ids.update(new.segment.id for new in batch.segments)
    ids.update(fact_identity(fact.id) for fact in batch.facts)
    for job in batch.jobs:
        ids.update(job.about)
    for piece in batch.pieces:
        ids.update((piece.hash, *piece.about))
    return ids


def _identities_met(
    segments: tuple[NewSegment, ...], tombstones: set[str]
) -> tuple[set[str], set[str]]:
    """What was said where it was forgotten, so that nothing of this batch may quote it; and what
    is said where it may be."""
    refused: set[str] = set()
    said: set[str] = set()
    for new in segments:
        gone = not tombstones.isdisjoint((new.segment.id, new.segment.message_id))
        (refused if gone else said).add(new.segment.message_id)
    return refused, said


def _sorted_out(
    db: Database, segments: tuple[NewSegment, ...], tombstones: set[str]
) -> tuple[dict[str, dict[SegmentId, None]], list[NewSegment]]:
    """What is to be told of the segments, and those that are new."""
    known = known_segments(db, (new.segment.id for new in segments)) if segments else set()
    told: dict[str, dict[SegmentId, None]] = {"stored": {}, "known": {}, "forgotten": {}}
    new_ones = []
    for new in segments:
        id_ = new.segment.id
        if not tombstones.isdisjoint((id_, new.segment.message_id)):
            told["forgotten"][id_] = None
        elif id_ in known:
            if id_ not in told["stored"]:
                told["known"][id_] = None
        else:
            known.add(id_)
            told["stored"][id_] = None
            new_ones.append(new)
    if told["forgotten"]:
        gone = (new.segment for new in segments if new.segment.id in told["forgotten"])
        put_gone(db, [(one.id, one.message_id) for one in gone])
    return told, new_ones


def _insert(db: Database, segments: list[NewSegment]) -> list[Row]:
    """Keep new segments and their passages; returns the words that are to be indexed."""
    sessions: dict[str, int] = {}
    first, passage = db.row(_NEXT)
    rows = []
    for sequence, new in enumerate(segments, first):
        name = new.segment.session
        if name not in sessions:
            sessions[name] = session_number(db, name)
        rows.append(segment_row(new.segment, sequence, sessions[name]))
    db.run_many(INSERT_SEGMENT, rows)
    noise = sum(new.segment.noise is not None for new in segments)
    tokens = sum(new.segment.tokens for new in segments)
    db.run(_COUNT_ADDED, (first + len(rows), len(rows), noise, tokens))
    indexed = (
        (sequence, new.passages)
        for sequence, new in enumerate(segments, first)
        if new.segment.noise is None
    )
    return add_passages(db, indexed, passage)
