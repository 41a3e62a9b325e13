"""Forgets and rewrites stored content, so that no byte of it remains.

A request by content removes a message wherever it is stored; a request by place removes single
segments. Each request runs in one transaction. `secure_delete` overwrites the bytes, and the log is
emptied afterwards. The result lists copies that could not be deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, TypeVar

from recollect.adapters.stores.invariants import marks_of
from recollect.adapters.stores.sqlite import archive, columns, facts, jobs, ledger, sessions
from recollect.adapters.stores.sqlite.database import Database, Row, checkpoint
from recollect.adapters.stores.sqlite.vectors import remove_vectors
from recollect.core.formats.stored_records import SoughtText
from recollect.core.values.batch import Batch
from recollect.core.values.fact import FactId
from recollect.core.values.message import MessageId
from recollect.core.values.segment import NewSegment, Segment, SegmentId
from recollect.core.values.upkeep import (
    BodyKind,
    ForgetOrder,
    Forgotten,
    NewBody,
    RewriteOrder,
    Rewritten,
    ScrubResult,
    StoredBody,
)

_BY_SEGMENT: Final = """
SELECT message_id FROM segment WHERE id IN (SELECT value FROM json_each(?))
"""
_ROWS: Final = "SELECT sequence, id, message_id, noise IS NOT NULL, tokens, session FROM segment "
_OF_IDENTITIES: Final = _ROWS + "WHERE message_id IN (SELECT value FROM json_each(?))"  # noqa: S608
_OF_IDS: Final = _ROWS + "WHERE id IN (SELECT value FROM json_each(?))"  # noqa: S608
_OF_SESSIONS: Final = "session IN (SELECT value FROM json_each(?))"
_TWINS: Final = """
SELECT message_id, id, min(sequence) FROM segment
WHERE message_id IN (SELECT value FROM json_each(?)) GROUP BY message_id
"""
_EMPTY_SESSIONS: Final = """
SELECT CAST(s.name AS BLOB) FROM session AS s WHERE s.number IN (SELECT value FROM json_each(?))
  AND NOT EXISTS (SELECT 1 FROM segment AS g WHERE g.session = s.number)
"""
_DELETE_SEGMENTS: Final = "DELETE FROM segment WHERE sequence IN (SELECT value FROM json_each(?))"
_COUNT_FORGOTTEN: Final = """
UPDATE totals SET segments = segments - ?, noise = noise - ?, tokens = tokens - ?
"""
_STILL_SAID: Final = "SELECT 1 FROM words_at WHERE term >= ? AND term < ? LIMIT 1"

LOG_IN_USE: Final = (
    "The write-ahead log still contains older pages, because another connection is reading: run "
    "`recollect memory scrub` when no other process uses the memory."
)
COPIES: Final = "Copies of the file (backups, snapshots) are out of reach."
# A shorter prefix reveals too little about a word.
_TELLING_BYTES: Final = 5
Removal = TypeVar("Removal", Forgotten, Rewritten)


def forget(db: Database, order: ForgetOrder) -> Forgotten:
    targets = _find_targets(db, order)
    rows = targets.rows
    removed = _remove_segments(db, rows)
    marks = sorted({*targets.identities, *(row[1] for row in targets.places)})
    sessions.put_tombstones(db, marks, order.at)
    sessions.add_forgotten(db, [(row[1], row[2]) for row in rows])
    result = _remove_quotes(db, order, targets)
    clear_separators(db, removed.words)
    return replace(
        result,
        segments=tuple(SegmentId(row[1]) for row in rows),
        message_ids=tuple(map(MessageId, sorted(targets.identities))),
        passages=removed.passages,
        vectors=removed.vectors,
    )


def withdraw(db: Database, ids: Sequence[SegmentId], *, up_to: int | None = None) -> int:
    """Remove segments within the caller's transaction, but keep their quotes, and write no
    tombstones. Return the number of removed segments."""
    found_rows = db.rows(_OF_IDS, (columns.json_list(ids),))
    rows = [row for row in found_rows if up_to is None or row[0] <= up_to]
    if rows:
        clear_separators(db, _remove_segments(db, rows).words)
        facts.raise_revision(db)
    return len(rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Removed:
    passages: int
    vectors: int
    words: set[bytes] = field(repr=False)
    """Words of the segments, as they are in the index."""


def _remove_segments(db: Database, rows: list[Row]) -> _Removed:
    sequences = [row[0] for row in rows]
    removed = _remove_passages(db, sequences)
    db.run(_DELETE_SEGMENTS, (columns.json_list(sequences),))
    counts = (len(rows), *(sum(row[column] for row in rows) for column in (3, 4)))
    db.run(_COUNT_FORGOTTEN, counts)
    return removed


def _remove_passages(db: Database, sequences: Sequence[int]) -> _Removed:
    passages = archive.passages_of(db, sequences)
    words: set[bytes] = set()
    for _, bag in archive.bags_of(db, passages):
        words.update(bag.encode().split(b" "))
    vectors = remove_vectors(db, passages)
    archive.remove_passages(db, passages)
    return _Removed(passages=len(passages), vectors=vectors, words=words)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Targets:
    identities: set[str]
    """Messages to remove wherever they are stored."""
    rows: list[Row]
    """All segments to remove."""
    places: list[Row]
    """Those of `rows` to remove only in one session."""
    sessions: list[int]
    """Sessions to remove as a whole."""


def _find_targets(db: Database, order: ForgetOrder) -> _Targets:
    identities: set[str] = set(order.message_ids)
    identities.update(
        value for (value,) in db.rows(_BY_SEGMENT, (columns.json_list(order.segments),))
    )
    known_numbers = (
        sessions.find_session(db, session) for session in dict.fromkeys(order.sessions)
    )
    numbers = [number for number in known_numbers if number is not None]
    rows = {row[0]: row for row in db.rows(_OF_IDENTITIES, (columns.json_list(identities),))}
    places: list[Row] = []
    conditions: dict[str, object] = {}
    if order.sessions:
        conditions[_OF_SESSIONS] = columns.json_list(numbers)
    if order.said_after is not None:
        conditions["said_at >= ?"] = order.said_after
    if order.said_before is not None:
        conditions["said_at < ?"] = order.said_before
    if conditions:
        query = f"{_ROWS} WHERE {' AND '.join(conditions)}"  # an index serves each condition
        places = [row for row in db.rows(query, tuple(conditions.values())) if row[0] not in rows]
    rows.update((row[0], row) for row in places)
    return _Targets(
        identities=identities,
        rows=[rows[sequence] for sequence in sorted(rows)],
        places=places,
        sessions=[] if order.by_time else numbers,
    )


def _remove_quotes(db: Database, order: ForgetOrder, targets: _Targets) -> Forgotten:
    message_list = columns.json_list({row[2] for row in targets.places})
    twins: dict[str, str] = {
        message_id: twin for message_id, twin, _ in db.rows(_TWINS, (message_list,))
    }
    unsaid_ids = targets.identities | {row[2] for row in targets.places if row[2] not in twins}
    twin_by_segment = {row[1]: twins[row[2]] for row in targets.places if row[2] in twins}
    removed_facts = facts.forget_named_facts(db, order.facts, order.at)
    if targets.rows:
        removed_facts += facts.forget_facts(db, [row[1] for row in targets.rows], twin_by_segment)
        facts.raise_revision(db)
    pieces, dropped_jobs = ledger.forget_pieces(db, unsaid_ids), jobs.forget_jobs(db, unsaid_ids)
    empty_sessions = _find_empty_sessions(db, order, targets)
    dropped_jobs += jobs.forget_jobs_of_sessions(db, empty_sessions)
    facts.leave_sessions(db, empty_sessions)
    compactions = _remove_compactions(db, order, targets, unsaid_ids)
    states = 0
    for session in targets.sessions:
        pieces += ledger.forget_turns(db, session)
        states += sessions.forget_session(db, session)
    states += sessions.forget_quotes(db, unsaid_ids)
    if order.matching:
        text = SoughtText(order.matching)
        removed = ledger.forget_text_in_pieces(db, text)
        sessions.put_tombstones(db, removed, order.at)  # each request sends the system prompt again
        pieces += len(removed)
        dropped_jobs += jobs.forget_text_in_jobs(db, text)
        states += sessions.forget_text_in_states(db, text)
    ledger.SharedIds(db).drop_unused()
    return Forgotten(
        facts=tuple(map(FactId, sorted(removed_facts))),
        pieces=pieces,
        jobs=dropped_jobs,
        session_states=states,
        compactions=compactions,
    )


def _find_empty_sessions(db: Database, order: ForgetOrder, targets: _Targets) -> list[str]:
    numbers = columns.json_list({row[5] for row in targets.places})
    session_names = columns.read_rows(
        db.rows(_EMPTY_SESSIONS, (numbers,)), lambda row: columns.text_of(row[0])
    )
    return list(dict.fromkeys([*(() if order.by_time else order.sessions), *session_names]))


def _remove_compactions(
    db: Database, order: ForgetOrder, targets: _Targets, unsaid_ids: set[str]
) -> int:
    ids_by_session: dict[int, set[str]] = {}
    for row in targets.places:
        ids_by_session.setdefault(row[5], set()).add(row[2])
    removed = ledger.forget_compactions(db, unsaid_ids, ids_by_session, set(targets.sessions))
    if order.matching:
        removed += ledger.forget_text_in_compactions(db, SoughtText(order.matching))
    sessions.put_tombstones(db, marks_of(removed, but_about=targets.identities), order.at)
    return len(removed)


def clear_separators(db: Database, words: set[bytes]) -> None:
    """Rebuild the index if its inner pages still contain a prefix of a forgotten word. FTS5 does
    not overwrite the separators between pages, which rarely contain such a prefix."""
    prefixes = {word[:end] for word in words for end in range(_TELLING_BYTES, len(word) + 1)}
    separators = (bytes(separator)[1:] for (separator,) in db.rows("SELECT term FROM words_idx"))
    if any(
        separator in prefixes and not _is_prefix_used(db, separator) for separator in separators
    ):
        archive.rebuild_index(db)


def _is_prefix_used(db: Database, prefix: bytes) -> bool:
    first = prefix.decode("utf-8", "ignore")
    return bool(db.rows(_STILL_SAID, (first, first + "\U0010ffff")))


def finish_change(db: Database, result: Removal) -> Removal:
    return result if empty_log(db) else replace(result, cannot=(LOG_IN_USE, *result.cannot))


def finish_withdrawal(db: Database, removed: int) -> int:
    if removed:
        empty_log(db)
    return removed


def empty_log(db: Database) -> bool:
    return checkpoint(db, "TRUNCATE")


def scrub(db: Database) -> ScrubResult:
    archive.rebuild_index(db)
    db.run("VACUUM")
    steps = "the word index was rewritten", "the file was rewritten"
    if not empty_log(db):
        return ScrubResult(done=steps, cannot=(LOG_IN_USE, COPIES))
    return ScrubResult(done=(*steps, "the write-ahead log was emptied"), cannot=(COPIES,))


class _Place(NamedTuple):
    """The table and column in which the bodies of a kind are stored."""

    table: str
    id: str
    body: str
    session: str = "NULL"
    """SQL expression for the name of the session to which a body belongs."""
    packed: bool = False


_PLACES: Final[dict[BodyKind, _Place]] = {
    "pieces": _Place("piece", "hash", "body", packed=True),
    "jobs": _Place("job", "number", "payload"),
    "job reasons": _Place("job", "number", "reason"),
    "compactions": _Place(
        "compaction",
        "id",
        "body",
        "(SELECT CAST(s.name AS BLOB) FROM session AS s WHERE s.number = compaction.session)",
        packed=True,
    ),
    "states": _Place("session", "number", "state", "CAST(name AS BLOB)"),
}
_FIND: Final = """
SELECT id, sequence, tokens FROM segment WHERE id IN (SELECT value FROM json_each(?))
"""
_PUT_SEGMENT: Final = """
UPDATE segment SET text = ?, tool = ?, foreign_line = ?, tokens = ?
WHERE sequence = ?
"""
_COUNT_TOKENS: Final = "UPDATE totals SET tokens = tokens + ?"


def read_bodies(
    db: Database, kind: BodyKind, *, after: str | None = None, limit: int = 100
) -> tuple[StoredBody, ...]:
    """Return the stored bodies of a kind, by id, after `after`. Damaged bodies have `torn` set."""
    place = _PLACES[kind]
    query = f"""
        SELECT {place.id}, {place.session}, typeof({place.body}), CAST({place.body} AS BLOB)
        FROM {place.table}
        WHERE {place.body} IS NOT NULL AND {place.id} > ? ORDER BY {place.id} LIMIT ?
    """  # noqa: S608
    first: Any = (after or "") if kind == "pieces" else int(after or 0)
    return tuple(_body_from_row(kind, row) for row in db.rows(query, (first, limit)))


def _body_from_row(kind: BodyKind, row: Row) -> StoredBody:
    id_, name, stored_type, body = row
    torn = kind != "job reasons" and stored_type != "blob"
    session: str | None = None
    try:
        body = columns.unpack_body(body) if _PLACES[kind].packed else body
        session = None if name is None else columns.text_of(name)
    except (ValueError, TypeError):
        torn = True
    return StoredBody(kind=kind, id=str(id_), body=body, session=session, torn=torn)


def rewrite(db: Database, order: RewriteOrder) -> Rewritten:
    # Facts are rewritten with their source texts, so that their evidence always fits the text.
    if order.facts or order.facts_revision is not None:
        batch = Batch(at=order.at, facts=order.facts, facts_revision=order.facts_revision)
        archive.write_batch(db, batch)
    bodies = sum(_replace_body(db, new_body) for new_body in order.bodies)
    new_by_id = {new_segment.segment.id: new_segment for new_segment in order.segments}
    row_by_id = {
        SegmentId(id_): (sequence, tokens)
        for id_, sequence, tokens in db.rows(_FIND, (columns.json_list(new_by_id),))
    }
    vectors = _reindex(
        db, [(row_by_id[id_][0], new_by_id[id_]) for id_ in new_by_id if id_ in row_by_id]
    )
    for id_, (sequence, tokens) in row_by_id.items():
        _put_segment(db, new_by_id[id_].segment, sequence)
        db.run(_COUNT_TOKENS, (new_by_id[id_].segment.tokens - tokens,))
    if row_by_id:  # a fact extracted from the old text would bring it back
        facts.raise_revision(db)
    return Rewritten(
        segments=tuple(id_ for id_ in new_by_id if id_ in row_by_id), bodies=bodies, vectors=vectors
    )


def _replace_body(db: Database, new_body: NewBody) -> bool:
    """Replace a body that has not changed. Compare the unpacked bodies: packing is not unique."""
    place = _PLACES[new_body.kind]
    id_: Any = new_body.id if new_body.kind == "pieces" else int(new_body.id)
    query = f"SELECT CAST({place.body} AS BLOB) FROM {place.table} WHERE {place.id} = ?"  # noqa: S608
    stored_body = db.value(query, (id_,))
    if (
        stored_body is None
        or (columns.unpack_body(stored_body) if place.packed else stored_body) != new_body.was
    ):
        return False
    body: Any = columns.pack_body(new_body.body) if place.packed else new_body.body
    if new_body.kind == "job reasons":
        body = columns.pack_text(new_body.body.decode("utf-8", "surrogatepass"))
    db.run(f"UPDATE {place.table} SET {place.body} = ? WHERE {place.id} = ?", (body, id_))  # noqa: S608
    if new_body.kind == "pieces":
        db.run("UPDATE piece SET exact = 0 WHERE hash = ?", (id_,))
    return True


def _reindex(db: Database, numbered_segments: Sequence[tuple[int, NewSegment]]) -> int:
    removed = _remove_passages(db, [sequence for sequence, _ in numbered_segments])
    new_rows = [
        (sequence, new_segment.passages)
        for sequence, new_segment in numbered_segments
        if new_segment.segment.noise is None
    ]
    archive.index_words(db, archive.add_passages(db, new_rows))
    clear_separators(db, removed.words)
    return removed.vectors


def _put_segment(db: Database, segment: Segment, sequence: int) -> None:
    text, tool, foreign = (
        columns.pack_long_text(segment.text),
        columns.pack_text(segment.tool),
        columns.pack_text(segment.foreign),
    )
    db.run(_PUT_SEGMENT, (text, tool, foreign, segment.tokens, sequence))
