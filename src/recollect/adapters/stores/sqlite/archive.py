"""Writes a batch in the caller's transaction, and reads segments, sessions, passages and facts.

Writing a batch twice changes nothing. Content with a tombstone is not written. A passage's number
is never reused. Its low bits are the passage's length in words, so that scoring needs no other
table. Counters change in the same transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np

from recollect.adapters.stores.invariants import SessionOutcome, require_storable
from recollect.adapters.stores.sqlite.database import Database, Row
from recollect.adapters.stores.sqlite.facts import (
    read_to,
    require_revision,
    write_fact_vectors,
    write_facts,
)
from recollect.adapters.stores.sqlite.jobs import add_jobs
from recollect.adapters.stores.sqlite.ledger import (
    add_compactions,
    add_pieces,
    add_turns,
    covers_forgotten,
)
from recollect.adapters.stores.sqlite.rows import (
    INSERT_SEGMENT,
    SELECT_FACT,
    SELECT_SEGMENT,
    bag_of,
    json_list,
    pack_text,
    readable,
    segment_row,
    stored_fact,
    stored_segment,
    text_of,
    unpack_long_text,
)
from recollect.adapters.stores.sqlite.sessions import (
    put_gone,
    session_number,
    tombstoned,
    write_session,
)
from recollect.adapters.stores.sqlite.vectors import (
    WAITING,
    Matrices,
    renumber_vectors,
    write_vectors,
)
from recollect.core.values.batch import Batch, WriteResult
from recollect.core.values.fact import Fact, FactId, fact_identity
from recollect.core.values.message import MessageId
from recollect.core.values.segment import (
    NewPassage,
    NewSegment,
    PassageText,
    SegmentId,
    StoredSegment,
    Vector,
)
from recollect.core.values.upkeep import SessionSummary

LENGTH_BITS: Final = 12
LENGTH_MAX: Final = (1 << LENGTH_BITS) - 1
"""Largest length that fits into a passage's number. Longer passages have their length only in their
row."""

_INSERT_PASSAGE: Final = """
INSERT INTO passage (id, segment, ordinal, start, stop, length, embedded)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_PUT_BAG: Final = "INSERT INTO words_bag (id, bag) VALUES (?, ?)"
_INDEX: Final = "INSERT INTO words (rowid, bag) VALUES (?, ?)"
_BAGS: Final = "SELECT id, bag FROM words_bag WHERE id IN (SELECT value FROM json_each(?))"
_DROP_BAG: Final = "DELETE FROM words_bag WHERE id IN (SELECT value FROM json_each(?))"
_UNINDEX: Final = "INSERT INTO words (words, rowid, bag) VALUES ('delete', ?, ?)"
_COUNT_PASSAGES: Final = """
UPDATE totals SET next_passage = ?, documents = documents + ?, words = words + ?
"""
_OF_SEGMENTS: Final = """
SELECT p.id, p.length FROM passage AS p
WHERE p.segment IN (SELECT value FROM json_each(?))
"""
_DELETE: Final = "DELETE FROM passage WHERE id IN (SELECT value FROM json_each(?))"
_COUNT_REMOVED: Final = """
UPDATE totals SET documents = documents - ?, words = words - ?, removals = removals + 1
"""

# Removing a passage without a trace takes about as long as indexing twenty (measured).
_REBUILD_FROM: Final = 500
_REBUILD_SHARE: Final = 20

NewRows: TypeAlias = Iterable[tuple[int, Sequence[NewPassage]]]
"""Segments by their sequence, with their passages."""


def add_passages(db: Database, segments: NewRows, number: int | None = None) -> list[Row]:
    """Store new passages without indexing them: pass the result to `index_words`.

    FTS5 flushes its buffer whenever another statement needs a savepoint, so words are written last
    in a transaction. `number` is the number of the first passage, if known.
    """
    if number is None:
        number = db.value("SELECT next_passage FROM totals")
    rows: list[Row] = []
    bags: list[Row] = []
    words = 0
    for segment, passages in segments:
        for ordinal, passage in enumerate(passages):
            length = len(passage.words)
            id_ = number << LENGTH_BITS | min(length, LENGTH_MAX)
            embedded = int(passage.embedded)
            rows.append((id_, segment, ordinal, passage.start, passage.end, length, embedded))
            bags.append((id_, bag_of(passage.words)))
            number += 1
            words += length
    if rows:
        db.run_many(_INSERT_PASSAGE, rows)
        db.run_many(_PUT_BAG, bags)
        db.run(_COUNT_PASSAGES, (number, len(rows), words))
    return bags


def index_words(db: Database, bags: list[Row]) -> None:
    if bags:
        db.run_many(_INDEX, bags)


def passages_of(db: Database, sequences: Iterable[int]) -> dict[int, int]:
    return dict(db.rows(_OF_SEGMENTS, (json_list(sequences),)))


def remove_passages(db: Database, passages: dict[int, int]) -> None:
    """Remove passages and their words. The caller removes their vectors."""
    if passages:
        numbers = json_list(passages)
        bags = bags_of(db, passages)
        many = len(bags) >= _REBUILD_FROM
        if many and len(bags) * _REBUILD_SHARE >= db.value("SELECT count(*) FROM words_bag"):
            db.run(_DROP_BAG, (numbers,))
            rebuild(db)
        else:
            db.run_many(_UNINDEX, bags)
            db.run(_DROP_BAG, (numbers,))
        db.run(_DELETE, (numbers,))
        db.run(_COUNT_REMOVED, (len(passages), sum(passages.values())))


def bags_of(db: Database, passages: Iterable[int]) -> list[Row]:
    return db.rows(_BAGS, (json_list(passages),))


def rebuild(db: Database) -> None:
    db.run("INSERT INTO words (words) VALUES ('rebuild')")


_FIND: Final = "SELECT id, sequence FROM segment WHERE id IN (SELECT value FROM json_each(?))"
_SPANS: Final = """
SELECT id, segment, start, stop, length FROM passage
WHERE segment IN (SELECT value FROM json_each(?))
"""


def replace_passages(
    db: Database,
    passages: Mapping[SegmentId, tuple[NewPassage, ...]],
    *,
    at: float,  # noqa: ARG001 - the file keeps no time of indexing
) -> None:
    known = db.rows(_FIND, (json_list(passages),))
    sequences = [sequence for _, sequence in known]
    before = _spans(db, sequences)
    remove_passages(db, dict(before.values()))
    new = [(sequence, passages[SegmentId(id_)]) for id_, sequence in known]
    index_words(db, add_passages(db, new))
    after = _spans(db, sequences)
    renumber_vectors(
        db, {old: after[span][0] if span in after else None for span, (old, _) in before.items()}
    )


def _spans(db: Database, sequences: list[int]) -> dict[tuple[int, int, int], tuple[int, int]]:
    rows = db.rows(_SPANS, (json_list(sequences),))
    return {
        (segment, start, stop): (passage, length) for passage, segment, start, stop, length in rows
    }


_KNOWN: Final = "SELECT id FROM segment WHERE id IN (SELECT value FROM json_each(?))"
_IS_KNOWN: Final = "SELECT 1 FROM segment WHERE id = ?"
# one query per value: building and reading a list takes longer
_FEW: Final = 5
_NEXT: Final = "SELECT next_sequence, next_passage FROM totals"
_COUNT_ADDED: Final = """
UPDATE totals SET next_sequence = ?, segments = segments + ?, noise = noise + ?,
  tokens = tokens + ?
"""


def write_batch(db: Database, batch: Batch) -> WriteResult:
    require_storable(batch)
    require_revision(db, batch.facts_revision)
    tombstones = tombstoned(db, _identities(batch))
    refused, said = _identities_met(batch.segments, tombstones)
    forgotten = tombstones | refused
    # A compaction's record and the state with its cut are refused because of the same messages.
    unquoted = forgotten | covers_forgotten(db, batch.compactions, said)
    kept, stale = SessionOutcome(), None
    if batch.session is not None:
        kept = write_session(db, batch.session, unquoted, said)
        stale = batch.session.session if kept.stale else None
    fates, new = _sorted_out(db, batch.segments, tombstones)
    bags = _insert(db, new) if new else []
    for vectors in batch.vectors:
        write_vectors(db, vectors)
    if batch.facts:
        write_facts(db, batch.facts, tombstones)
    for fact_vectors in batch.fact_vectors:
        write_fact_vectors(db, fact_vectors)
    if batch.extracted:
        read_to(db, batch.extracted)
    # if the batch was written before, its jobs were enqueued then, and may be done
    jobs = batch.jobs if new or not batch.segments else ()
    add_jobs(db, jobs, forgotten)
    add_pieces(db, batch.pieces, forgotten)
    add_turns(db, batch.turns, but_of=stale)
    add_compactions(db, batch.compactions, unquoted, but_of=stale)
    index_words(db, bags)
    return WriteResult(
        stored=tuple(fates["stored"]),
        known=tuple(fates["known"]),
        forgotten=tuple(fates["forgotten"]),
        session_stale=kept.stale,
        session_cleaned=kept.cleaned,
        due_at=min((job.run_at for job in jobs), default=None),
    )


def known(db: Database, ids: Iterable[SegmentId]) -> frozenset[SegmentId]:
    asked = set(ids)
    if len(asked) <= _FEW:
        return frozenset(id_ for id_ in asked if db.rows(_IS_KNOWN, (id_,)))
    return frozenset(SegmentId(id_) for (id_,) in db.rows(_KNOWN, (json_list(asked),)))


def forgotten_ids(db: Database, ids: Iterable[MessageId]) -> frozenset[MessageId]:
    return frozenset(map(MessageId, tombstoned(db, ids)))


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
    """Return two sets of messages: those that this batch has at a forgotten place and may not
    quote, and those that it has at an allowed place."""
    refused: set[str] = set()
    said: set[str] = set()
    for new in segments:
        gone = not tombstones.isdisjoint((new.segment.id, new.segment.message_id))
        (refused if gone else said).add(new.segment.message_id)
    return refused, said


def _sorted_out(
    db: Database, segments: tuple[NewSegment, ...], tombstones: set[str]
) -> tuple[dict[str, dict[SegmentId, None]], list[NewSegment]]:
    stored = set(known(db, (new.segment.id for new in segments))) if segments else set()
    fates: dict[str, dict[SegmentId, None]] = {"stored": {}, "known": {}, "forgotten": {}}
    new_ones = []
    gone = []
    for new in segments:
        id_, identity = new.segment.id, new.segment.message_id
        if not tombstones.isdisjoint((id_, identity)):
            fates["forgotten"][id_] = None
            gone.append((id_, identity))
        elif id_ not in stored:
            stored.add(id_)
            fates["stored"][id_] = None
            new_ones.append(new)
        elif id_ not in fates["stored"]:
            fates["known"][id_] = None
    put_gone(db, gone)
    return fates, new_ones


def _insert(db: Database, segments: list[NewSegment]) -> list[Row]:
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


_SEGMENTS: Final = SELECT_SEGMENT + "WHERE g.id IN (SELECT value FROM json_each(?))"  # noqa: S608
_PAGE: Final = (
    SELECT_SEGMENT + "WHERE {which} AND g.sequence {beyond} ? ORDER BY g.sequence {order} LIMIT ?"
)
_IN_SESSION: Final = "g.session = (SELECT number FROM session WHERE name = ?)"
_SESSIONS: Final = """
SELECT CAST(s.name AS BLOB), count(*), min(g.said_at), max(g.said_at), min(g.sequence)
FROM segment AS g JOIN session AS s ON s.number = g.session
GROUP BY g.session ORDER BY 3, 5
"""
_PASSAGES: Final = """
SELECT p.start, p.stop, p.embedded FROM segment AS g JOIN passage AS p ON p.segment = g.sequence
WHERE g.id = ? ORDER BY p.ordinal
"""
_EMBEDDER: Final = "SELECT number, complete_to FROM embedder WHERE name = ?"
_TEXT: Final = "SELECT id, CAST(text AS BLOB) FROM segment WHERE sequence = ?"
_VECTORS: Final = """
SELECT p.id, g.id, p.ordinal
FROM segment AS g CROSS JOIN passage AS p ON p.segment = g.sequence
CROSS JOIN vector_at AS v ON v.embedder = ? AND v.passage = p.id
WHERE (g.id, p.ordinal) > (?, ?) ORDER BY g.id, p.ordinal LIMIT ?
"""
_FACTS: Final = SELECT_FACT + "WHERE ? OR current ORDER BY at, id"
_FACTS_ABOUT: Final = SELECT_FACT + "WHERE (? OR current) AND subject IN ({marks})"
_SOME_FACTS: Final = SELECT_FACT + "WHERE id IN (SELECT value FROM json_each(?))"  # noqa: S608

_SUBJECTS_AT_ONCE: Final = 500
_BEYOND_ALL: Final = (1 << 63) - 1


def segments(db: Database, ids: Sequence[SegmentId]) -> tuple[StoredSegment, ...]:
    rows = db.rows(_SEGMENTS, (json_list(ids),))
    stored_segments = {segment.segment.id: segment for segment in readable(rows, stored_segment)}
    return tuple(stored_segments[id_] for id_ in ids if id_ in stored_segments)


def page(
    db: Database,
    *,
    after: int = 0,
    limit: int = 500,
    session: str | None = None,
    descending: bool = False,
) -> tuple[StoredSegment, ...]:
    edge = (after or _BEYOND_ALL) if descending else after
    which, named = ("1", ()) if session is None else (_IN_SESSION, (pack_text(session),))
    beyond, order = ("<", "DESC") if descending else (">", "ASC")
    query = _PAGE.format(which=which, beyond=beyond, order=order)
    stored_segments: list[StoredSegment] = []
    while len(stored_segments) < limit:  # an unreadable row must not end the page early
        wanted = limit - len(stored_segments)
        rows = db.rows(query, (*named, edge, wanted))
        stored_segments += readable(rows, stored_segment)
        if len(rows) < wanted:
            break
        edge = rows[-1][0]
    return tuple(stored_segments)


def sessions(db: Database) -> tuple[SessionSummary, ...]:
    return tuple(readable(db.rows(_SESSIONS), _summary))


def _summary(row: Row) -> SessionSummary:
    name, count, first, last, _ = row
    return SessionSummary(
        session=text_of(name), segments=count, first_said_at=first, last_said_at=last
    )


def passages(db: Database, id: SegmentId) -> tuple[NewPassage, ...]:  # noqa: A002
    return tuple(
        NewPassage(start=start, end=stop, words=(), embedded=bool(embedded))
        for start, stop, embedded in db.rows(_PASSAGES, (id,))
    )


def unembedded(db: Database, embedder: str, *, limit: int) -> tuple[PassageText, ...]:
    (number, complete), *_ = (*db.rows(_EMBEDDER, (embedder,)), (None, 0))
    passage_texts: list[PassageText] = []
    texts: dict[int, tuple[SegmentId, str] | None] = {}
    while len(passage_texts) < limit:  # unreadable rows must not block the others
        wanted = limit - len(passage_texts)
        rows = db.rows(WAITING, (complete, number, wanted))
        for _, segment, ordinal, start, stop in rows:
            if segment not in texts:
                texts = {segment: _text(db, segment)}
            held = texts[segment]
            if held is not None:
                id_, text = held
                passage_texts.append(
                    PassageText(
                        segment=id_, ordinal=ordinal, text=text[start:stop], start=start, end=stop
                    )
                )
        if len(rows) < wanted:
            break
        complete = rows[-1][0]
    return tuple(passage_texts)


def _text(db: Database, sequence: int) -> tuple[SegmentId, str] | None:
    held = readable(
        db.rows(_TEXT, (sequence,)), lambda row: (SegmentId(row[0]), unpack_long_text(row[1]))
    )
    return held[0] if held else None


def vectors(
    db: Database,
    matrices: Matrices,
    embedder: str,
    *,
    after: tuple[SegmentId, int] | None,
    limit: int,
) -> tuple[Vector, ...]:
    matrix = matrices.fresh(db, embedder)
    if matrix is None:
        return ()
    places = db.rows(_VECTORS, (matrix.embedder, *(after or ("", -1)), limit))
    rows = matrix.find(np.array([place[0] for place in places], dtype=np.int64))
    return tuple(
        Vector(segment=SegmentId(id_), ordinal=ordinal, values=matrix.values[row].tobytes())
        for (_, id_, ordinal), row in zip(places, rows.tolist(), strict=True)
        if row >= 0
    )


def facts(
    db: Database,
    ids: Sequence[FactId] | None = None,
    *,
    superseded: bool = False,
    subjects: Collection[str] | None = None,
) -> tuple[Fact, ...]:
    if ids is not None:
        rows = db.rows(_SOME_FACTS, (json_list(ids),))
        found_facts: dict[str, Fact] = {fact.id: fact for fact in readable(rows, stored_fact)}
        wanted = (found_facts[id_] for id_ in ids if id_ in found_facts)
        return tuple(
            fact
            for fact in wanted
            if (superseded or fact.current) and (subjects is None or fact.subject in subjects)
        )
    if subjects is None:
        return tuple(readable(db.rows(_FACTS, (superseded,)), stored_fact))
    about = _facts_about(db, list(dict.fromkeys(subjects)), superseded=superseded)
    return tuple(sorted(about, key=lambda fact: (fact.at, fact.id)))


def _facts_about(db: Database, subjects: Sequence[str], *, superseded: bool) -> Iterator[Fact]:
    for first in range(0, len(subjects), _SUBJECTS_AT_ONCE):
        some = [pack_text(subject) for subject in subjects[first : first + _SUBJECTS_AT_ONCE]]
        query = _FACTS_ABOUT.format(marks=", ".join("?" * len(some)))
        yield from readable(db.rows(query, (superseded, *some)), stored_fact)
