"""Writes a batch in the caller's transaction, and reads segments, sessions, passages and facts.

Writing a batch twice changes nothing. Content with a tombstone is not written. A passage's number
is never used again. The low bits of the number are the passage's length in words, so that scoring
reads no other table. The caller's transaction also changes the counters."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final, TypeAlias

from recollect.adapters.stores import invariants
from recollect.adapters.stores.sqlite import columns, facts, jobs, ledger, sessions, vectors
from recollect.adapters.stores.sqlite.database import Database, Row
from recollect.core.values.batch import Batch, WriteResult
from recollect.core.values.fact import Fact, FactId
from recollect.core.values.message import MessageId
from recollect.core.values.segment import (
    NewPassage,
    NewSegment,
    PassageText,
    SegmentId,
    StoredSegment,
)
from recollect.core.values.upkeep import SessionSummary

LENGTH_BITS: Final = 12
"""Not measured; leaves 51 bits to count passages. Only longer passages need `LENGTH_MAX`."""
LENGTH_MAX: Final = (1 << LENGTH_BITS) - 1
"""Largest length that fits into a passage's number. A greater length is stored in a column."""

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

# Removing one passage without a trace takes about as long as indexing twenty (measured).
_REBUILD_FROM: Final = 500
_REBUILD_SHARE: Final = 20

NewRows: TypeAlias = Iterable[tuple[int, Sequence[NewPassage]]]
"""For each segment, its sequence number and its passages."""


def add_passages(db: Database, segments: NewRows) -> list[Row]:
    """Store new passages without indexing them: pass the result to `index_words`, last in a
    transaction, because FTS5 flushes its buffer whenever another statement needs a savepoint."""
    number = db.value("SELECT next_passage FROM totals")
    rows: list[Row] = []
    bags: list[Row] = []
    words = 0
    for segment, passages in segments:
        for ordinal, passage in enumerate(passages):
            length = len(passage.words)
            id_ = number << LENGTH_BITS | min(length, LENGTH_MAX)
            is_embedded = int(passage.embedded)
            rows.append((id_, segment, ordinal, passage.start, passage.end, length, is_embedded))
            bags.append((id_, columns.bag_of(passage.words)))
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
    return dict(db.rows(_OF_SEGMENTS, (columns.json_list(sequences),)))


def remove_passages(db: Database, passages: dict[int, int]) -> None:
    """Remove passages and their words. The caller removes their vectors."""
    if passages:
        numbers = columns.json_list(passages)
        bags = bags_of(db, passages)
        may_rebuild = len(bags) >= _REBUILD_FROM
        if may_rebuild and len(bags) * _REBUILD_SHARE >= db.value("SELECT count(*) FROM words_bag"):
            db.run(_DROP_BAG, (numbers,))
            rebuild_index(db)
        else:
            db.run_many(_UNINDEX, bags)
            db.run(_DROP_BAG, (numbers,))
        db.run(_DELETE, (numbers,))
        db.run(_COUNT_REMOVED, (len(passages), sum(passages.values())))


def bags_of(db: Database, passages: Iterable[int]) -> list[Row]:
    return db.rows(_BAGS, (columns.json_list(passages),))


def rebuild_index(db: Database) -> None:
    db.run("INSERT INTO words (words) VALUES ('rebuild')")


_FIND: Final = "SELECT id, sequence FROM segment WHERE id IN (SELECT value FROM json_each(?))"
_SPANS: Final = """
SELECT id, segment, start, stop, length FROM passage
WHERE segment IN (SELECT value FROM json_each(?))
"""


def replace_passages(db: Database, passages: Mapping[SegmentId, tuple[NewPassage, ...]]) -> None:
    segment_rows = db.rows(_FIND, (columns.json_list(passages),))
    sequences = [sequence for _, sequence in segment_rows]
    old_spans = _spans(db, sequences)
    remove_passages(db, dict(old_spans.values()))
    new_rows = [(sequence, passages[SegmentId(id_)]) for id_, sequence in segment_rows]
    index_words(db, add_passages(db, new_rows))
    new_spans = _spans(db, sequences)
    vectors.renumber_vectors(
        db,
        {
            passage: new_spans[span][0] if span in new_spans else None
            for span, (passage, _) in old_spans.items()
        },
    )


def _spans(db: Database, sequences: list[int]) -> dict[tuple[int, int, int], tuple[int, int]]:
    rows = db.rows(_SPANS, (columns.json_list(sequences),))
    return {
        (segment, start, stop): (passage, length) for passage, segment, start, stop, length in rows
    }


_KNOWN: Final = "SELECT id FROM segment WHERE id IN (SELECT value FROM json_each(?))"
_IS_KNOWN: Final = "SELECT 1 FROM segment WHERE id = ?"
# One query per value is faster than building and reading a list.
_MAX_SINGLE_QUERIES: Final = 5
_COUNT_ADDED: Final = """
UPDATE totals SET next_sequence = ?, segments = segments + ?, noise = noise + ?,
  tokens = tokens + ?
"""


def write_batch(db: Database, batch: Batch) -> WriteResult:
    invariants.require_storable(batch)
    facts.require_revision(db, batch.facts_revision)
    tombstones = sessions.find_tombstones(db, invariants.identities_of(batch))
    stored_ids = find_known(db, (new_segment.segment.id for new_segment in batch.segments))
    segments = invariants.SortedSegments.of(batch, known_ids=stored_ids, tombstones=tombstones)
    sessions.add_forgotten(db, segments.forgotten_messages.items())
    forgotten_ids = tombstones.union(segments.forgotten_messages.values())
    # The same messages forbid the record of a compaction and the state with its cut.
    covered_ids = {message_id for record in batch.compactions for message_id in record.about}
    unquotable_ids = forgotten_ids | (
        sessions.find_unquotable(db, covered_ids) - segments.message_ids
    )
    outcome, stale = invariants.SessionOutcome(), None
    if batch.session is not None:
        outcome = sessions.write_session(db, batch.session, unquotable_ids, segments.message_ids)
        stale = batch.session.session if outcome.stale else None
    bags = _insert_segments(db, segments.new_segments) if segments.new_segments else []
    for new_vectors in batch.vectors:
        vectors.write_vectors(db, new_vectors)
    if batch.facts:
        facts.write_facts(db, batch.facts, tombstones)
    for fact_vectors in batch.fact_vectors:
        facts.write_fact_vectors(db, fact_vectors)
    facts.write_positions(db, batch.extracted)
    new_jobs = segments.jobs_of(batch)
    jobs.add_jobs(db, new_jobs, forgotten_ids)
    ledger.add_pieces(db, batch.pieces, forgotten_ids)
    ledger.add_turns(db, [turn for turn in batch.turns if turn.session != stale])
    current = [record for record in batch.compactions if record.session != stale]
    ledger.add_compactions(db, current, unquotable_ids)
    index_words(db, bags)
    return segments.to_result(outcome, new_jobs)


def find_known(db: Database, ids: Iterable[SegmentId]) -> frozenset[SegmentId]:
    wanted_ids = set(ids)
    if len(wanted_ids) <= _MAX_SINGLE_QUERIES:
        return frozenset(id_ for id_ in wanted_ids if db.rows(_IS_KNOWN, (id_,)))
    return frozenset(SegmentId(id_) for (id_,) in db.rows(_KNOWN, (columns.json_list(wanted_ids),)))


def find_tombstones(db: Database, ids: Iterable[MessageId] | None = None) -> frozenset[MessageId]:
    return frozenset(map(MessageId, sessions.find_tombstones(db, ids)))


def _insert_segments(db: Database, segments: Sequence[NewSegment]) -> list[Row]:
    numbers = {
        name: sessions.session_number(db, name)
        for name in dict.fromkeys(new_segment.segment.session for new_segment in segments)
    }
    numbered_segments = list(enumerate(segments, db.value("SELECT next_sequence FROM totals")))
    rows = [
        columns.segment_row(new_segment.segment, sequence, numbers[new_segment.segment.session])
        for sequence, new_segment in numbered_segments
    ]
    db.run_many(columns.INSERT_SEGMENT, rows)
    noise = sum(new_segment.segment.noise is not None for new_segment in segments)
    tokens = sum(new_segment.segment.tokens for new_segment in segments)
    db.run(_COUNT_ADDED, (numbered_segments[-1][0] + 1, len(rows), noise, tokens))
    return add_passages(
        db,
        (
            (sequence, new_segment.passages)
            for sequence, new_segment in numbered_segments
            if new_segment.segment.noise is None
        ),
    )


_SEGMENTS: Final = columns.SELECT_SEGMENT + "WHERE g.id IN (SELECT value FROM json_each(?))"  # noqa: S608
_PAGE: Final = (
    columns.SELECT_SEGMENT
    + "WHERE {which} AND g.sequence {beyond} ? ORDER BY g.sequence {order} LIMIT ?"
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
_FACTS: Final = f"""
{columns.SELECT_FACT} WHERE (?1 OR current) AND (
  ?2 IS NULL OR CAST(subject AS BLOB) IN (SELECT CAST(value AS BLOB) FROM json_each(?2))
) ORDER BY at, id
"""  # noqa: S608
_SOME_FACTS: Final = columns.SELECT_FACT + "WHERE id IN (SELECT value FROM json_each(?))"  # noqa: S608

_BEYOND_ALL: Final = (1 << 63) - 1
"""Largest integer of SQLite: a page in descending order begins here if it has no start."""


def read_segments(db: Database, ids: Sequence[SegmentId]) -> tuple[StoredSegment, ...]:
    rows = db.rows(_SEGMENTS, (columns.json_list(ids),))
    segments = columns.read_rows(rows, columns.read_segment)
    by_id = {segment.segment.id: segment for segment in segments}
    return tuple(by_id[id_] for id_ in ids if id_ in by_id)


def read_page(
    db: Database,
    *,
    after: int = 0,
    limit: int = 500,
    session: str | None = None,
    descending: bool = False,
) -> tuple[StoredSegment, ...]:
    edge = (after or _BEYOND_ALL) if descending else after
    condition, values = (
        ("1", ()) if session is None else (_IN_SESSION, (columns.pack_text(session),))
    )
    comparison, order = ("<", "DESC") if descending else (">", "ASC")
    query = _PAGE.format(which=condition, beyond=comparison, order=order)
    stored_segments: list[StoredSegment] = []
    while len(stored_segments) < limit:  # an unreadable row must not end the page early
        row_limit = limit - len(stored_segments)
        rows = db.rows(query, (*values, edge, row_limit))
        stored_segments += columns.read_rows(rows, columns.read_segment)
        if len(rows) < row_limit:
            break
        edge = rows[-1][0]
    return tuple(stored_segments)


def list_sessions(db: Database) -> tuple[SessionSummary, ...]:
    def read(row: Row) -> SessionSummary:
        return SessionSummary(
            session=columns.text_of(row[0]),
            segments=row[1],
            first_said_at=row[2],
            last_said_at=row[3],
        )

    return tuple(columns.read_rows(db.rows(_SESSIONS), read))


def read_passages(db: Database, id: SegmentId) -> tuple[NewPassage, ...]:  # noqa: A002
    return tuple(
        NewPassage(start=start, end=stop, words=(), embedded=bool(is_embedded))
        for start, stop, is_embedded in db.rows(_PASSAGES, (id,))
    )


def find_unembedded(db: Database, embedder: str, *, limit: int) -> tuple[PassageText, ...]:
    (number, complete), *_ = (*db.rows(_EMBEDDER, (embedder,)), (None, 0))
    passage_texts: list[PassageText] = []
    while len(passage_texts) < limit:  # unreadable rows must not block the others
        row_limit = limit - len(passage_texts)
        rows = db.rows(vectors.WAITING, (complete, number, row_limit))
        for sequence, passages in groupby(rows, key=lambda row: row[1]):
            texts = columns.read_rows(
                db.rows(_TEXT, (sequence,)), lambda row: (row[0], columns.unpack_long_text(row[1]))
            )
            passage_texts += (
                PassageText(
                    segment=id_, ordinal=ordinal, text=text[start:stop], start=start, end=stop
                )
                for id_, text in texts
                for _, _, ordinal, start, stop in passages
            )
        if len(rows) < row_limit:
            break
        complete = rows[-1][0]
    return tuple(passage_texts)


def read_facts(
    db: Database,
    ids: Sequence[FactId] | None = None,
    *,
    superseded: bool = False,
    subjects: Collection[str] | None = None,
) -> tuple[Fact, ...]:
    if ids is None:
        subject_list = None if subjects is None else columns.json_list(subjects)
        return tuple(
            columns.read_rows(db.rows(_FACTS, (superseded, subject_list)), columns.read_fact)
        )
    stored_facts = columns.read_rows(
        db.rows(_SOME_FACTS, (columns.json_list(ids),)), columns.read_fact
    )
    return invariants.select_facts(stored_facts, ids, superseded=superseded, subjects=subjects)
