"""Forgets and rewrites stored content, and leaves no byte of it.

By content, a message is removed wherever it is stored. By place, single segments are removed.
Everything is one transaction. `secure_delete` overwrites the bytes, and the log is emptied
afterwards. Copies that could not be deleted are reported.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from recollect.adapters.stores.invariants import marks_of
from recollect.adapters.stores.sqlite.archive import (
    add_passages,
    bags_of,
    index_words,
    passages_of,
    rebuild,
    remove_passages,
    write_batch,
)
from recollect.adapters.stores.sqlite.database import Database, Row, checkpoint
from recollect.adapters.stores.sqlite.facts import (
    forget_facts,
    forget_named_facts,
    leave_sessions,
    move_on,
)
from recollect.adapters.stores.sqlite.jobs import (
    forget_jobs,
    forget_jobs_of_sessions,
    forget_text_in_jobs,
)
from recollect.adapters.stores.sqlite.ledger import (
    SharedIds,
    forget_compactions,
    forget_pieces,
    forget_text_in_compactions,
    forget_text_in_pieces,
    forget_turns,
)
from recollect.adapters.stores.sqlite.rows import (
    json_list,
    pack_body,
    pack_long_text,
    pack_text,
    readable,
    text_of,
    unpack_body,
)
from recollect.adapters.stores.sqlite.sessions import (
    forget_quotes,
    forget_session,
    forget_text_in_states,
    known_session,
    put_gone,
    put_tombstones,
)
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
_OF_SESSIONS: Final = _ROWS + "WHERE session IN (SELECT value FROM json_each(?))"  # noqa: S608
_OF_TIME: Final = _ROWS + "WHERE said_at >= ? AND said_at < ?"
_OF_SESSIONS_AND_TIME: Final = _OF_SESSIONS + " AND said_at >= ? AND said_at < ?"
_TWINS: Final = """
SELECT message_id, id, min(sequence) FROM segment
WHERE message_id IN (SELECT value FROM json_each(?)) GROUP BY message_id
"""
_EMPTY_SESSIONS: Final = """
SELECT CAST(s.name AS BLOB) FROM session AS s WHERE s.number IN (SELECT value FROM json_each(?))
  AND NOT EXISTS (SELECT 1 FROM segment AS g WHERE g.session = s.number)
"""
_DELETE_SEGMENTS: Final = "DELETE FROM segment WHERE sequence IN (SELECT value FROM json_each(?))"
_COUNT_GONE: Final = """
UPDATE totals SET segments = segments - ?, noise = noise - ?, tokens = tokens - ?
"""
_STILL_SAID: Final = "SELECT 1 FROM words_at WHERE term >= ? AND term < ? LIMIT 1"

LOG_IN_USE: Final = (
    "The write-ahead log still contains older pages, because another connection is reading: run "
    "`recollect memory scrub` when no other process uses the memory."
)
COPIES: Final = "Copies of the file (backups, snapshots) are out of reach."
# A shorter prefix reveals nothing about a word.
_TELLING_BYTES: Final = 5
Removed = TypeVar("Removed", Forgotten, Rewritten)


def forget(db: Database, order: ForgetOrder) -> Forgotten:
    meant = _find_targets(db, order)
    rows = meant.rows
    gone = _remove(db, rows)
    marks = sorted({*meant.identities, *(row[1] for row in meant.places)})
    put_tombstones(db, marks, order.at)
    put_gone(db, [(row[1], row[2]) for row in rows])
    removed = _remove_quotes(db, order, meant)
    clear_separators(db, gone.words)
    return replace(
        removed,
        segments=tuple(SegmentId(row[1]) for row in rows),
        message_ids=tuple(map(MessageId, sorted(meant.identities))),
        passages=gone.passages,
        vectors=gone.vectors,
    )


def withdraw(
    db: Database,
    ids: Sequence[SegmentId],
    *,
    at: float,  # noqa: ARG001 - nothing stays that could carry a time
    up_to: int | None = None,
) -> int:
    """Remove segments within the caller's transaction, without tombstones. Return their number.
    Quotes of them stay."""
    found = db.rows(_OF_IDS, (json_list(ids),))
    rows = [row for row in found if up_to is None or row[0] <= up_to]
    if rows:
        clear_separators(db, _remove(db, rows).words)
        move_on(db)
    return len(rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Removed:
    passages: int
    vectors: int
    words: set[bytes] = field(repr=False)
    """The words of the segments, as indexed."""


def _remove(db: Database, rows: list[Row]) -> _Removed:
    sequences = [row[0] for row in rows]
    gone = _remove_passages(db, sequences)
    db.run(_DELETE_SEGMENTS, (json_list(sequences),))
    counts = (len(rows), *(sum(row[at] for row in rows) for at in (3, 4)))
    db.run(_COUNT_GONE, counts)
    return gone


def _remove_passages(db: Database, sequences: Sequence[int]) -> _Removed:
    passages = passages_of(db, sequences)
    words: set[bytes] = set()
    for _, bag in bags_of(db, passages):
        words.update(bag.encode().split(b" "))
    vectors = remove_vectors(db, passages)
    remove_passages(db, passages)
    return _Removed(passages=len(passages), vectors=vectors, words=words)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Targets:
    identities: set[str]
    """Messages that are removed wherever they are stored."""
    rows: list[Row]
    """Every segment that is removed."""
    places: list[Row]
    """Those of the rows that are removed by place alone."""
    sessions: list[int]
    """Sessions that are removed as a whole."""


def _find_targets(db: Database, order: ForgetOrder) -> _Targets:
    identities: set[str] = set(order.message_ids)
    identities.update(value for (value,) in db.rows(_BY_SEGMENT, (json_list(order.segments),)))
    named = (known_session(db, session) for session in dict.fromkeys(order.sessions))
    sessions = [number for number in named if number is not None]
    rows = {row[0]: row for row in db.rows(_OF_IDENTITIES, (json_list(identities),))}
    places = [row for row in _at_places(db, order, sessions) if row[0] not in rows]
    rows.update((row[0], row) for row in places)
    return _Targets(
        identities=identities,
        rows=[rows[sequence] for sequence in sorted(rows)],
        places=places,
        sessions=[] if order.by_time else sessions,
    )


def _at_places(db: Database, order: ForgetOrder, sessions: list[int]) -> list[Row]:
    if not order.by_time:
        return db.rows(_OF_SESSIONS, (json_list(sessions),))
    first = -math.inf if order.said_after is None else order.said_after
    end = math.inf if order.said_before is None else order.said_before
    if order.sessions:
        return db.rows(_OF_SESSIONS_AND_TIME, (json_list(sessions), first, end))
    return db.rows(_OF_TIME, (first, end))


def _remove_quotes(db: Database, order: ForgetOrder, meant: _Targets) -> Forgotten:
    asked = json_list({row[2] for row in meant.places})
    twins: dict[str, str] = {other: twin for other, twin, _ in db.rows(_TWINS, (asked,))}
    unsaid = meant.identities | {row[2] for row in meant.places if row[2] not in twins}
    resting = {row[1]: twins[row[2]] for row in meant.places if row[2] in twins}
    facts = forget_named_facts(db, order.facts, order.at)
    if meant.rows:
        facts += forget_facts(db, [row[1] for row in meant.rows], resting)
        move_on(db)
    pieces, jobs = forget_pieces(db, unsaid), forget_jobs(db, unsaid)
    emptied = _find_emptied(db, order, meant)
    jobs += forget_jobs_of_sessions(db, emptied)
    leave_sessions(db, emptied)
    compactions = _remove_compactions(db, order, meant, unsaid)
    states = 0
    for session in meant.sessions:
        pieces += forget_turns(db, session)
        states += forget_session(db, session)
    states += forget_quotes(db, unsaid)
    if order.matching:
        text = SoughtText(order.matching)
        gone = forget_text_in_pieces(db, text)  # a system prompt is sent again with each request
        put_tombstones(db, gone, order.at)
        pieces += len(gone)
        jobs += forget_text_in_jobs(db, text)
        states += forget_text_in_states(db, text)
    SharedIds(db).drop_unused()
    return Forgotten(
        facts=tuple(map(FactId, sorted(facts))),
        pieces=pieces,
        jobs=jobs,
        session_states=states,
        compactions=compactions,
    )


def _find_emptied(db: Database, order: ForgetOrder, meant: _Targets) -> list[str]:
    numbers = json_list({row[5] for row in meant.places})
    left = readable(db.rows(_EMPTY_SESSIONS, (numbers,)), lambda row: text_of(row[0]))
    return list(dict.fromkeys([*(() if order.by_time else order.sessions), *left]))


def _remove_compactions(db: Database, order: ForgetOrder, meant: _Targets, unsaid: set[str]) -> int:
    places: dict[int, set[str]] = {}
    for row in meant.places:
        places.setdefault(row[5], set()).add(row[2])
    gone = forget_compactions(db, unsaid, places, set(meant.sessions))
    if order.matching:
        gone += forget_text_in_compactions(db, SoughtText(order.matching))
    put_tombstones(db, marks_of(gone, but_about=meant.identities), order.at)
    return len(gone)


def clear_separators(db: Database, said: set[bytes]) -> None:
    """Rebuild the index if its inner pages still show a prefix of a forgotten word.

    FTS5 overwrites the entries of a word, but not the separators between its pages. Separators are
    as short as possible, so this is rare.
    """
    beginnings = {word[:end] for word in said for end in range(_TELLING_BYTES, len(word) + 1)}
    marks = (bytes(mark)[1:] for (mark,) in db.rows("SELECT term FROM words_idx"))
    if any(mark in beginnings and not _still_said(db, mark) for mark in marks):
        rebuild(db)


def _still_said(db: Database, beginning: bytes) -> bool:
    first = beginning.decode("utf-8", "ignore")
    return bool(db.rows(_STILL_SAID, (first, first + "\U0010ffff")))


def after_change(db: Database, done: Removed) -> Removed:
    return done if empty_log(db) else replace(done, cannot=(LOG_IN_USE, *done.cannot))


def after_withdrawing(db: Database, went: int) -> int:
    if went:
        empty_log(db)
    return went


def empty_log(db: Database) -> bool:
    return checkpoint(db, "TRUNCATE")


def scrub(db: Database) -> ScrubResult:
    rebuild(db)
    db.run("VACUUM")
    done = "the word index was rewritten", "the file was rewritten"
    if not empty_log(db):
        return ScrubResult(done=done, cannot=(LOG_IN_USE, COPIES))
    return ScrubResult(done=(*done, "the write-ahead log was emptied"), cannot=(COPIES,))


_HELD: Final[dict[BodyKind, str]] = {
    "pieces": """
        SELECT hash, NULL, body FROM piece WHERE hash > ? ORDER BY hash LIMIT ?
    """,
    "jobs": """
        SELECT number, NULL, payload FROM job WHERE number > ? ORDER BY number LIMIT ?
    """,
    "job reasons": """
        SELECT number, NULL, CAST(reason AS BLOB) FROM job
        WHERE reason IS NOT NULL AND number > ? ORDER BY number LIMIT ?
    """,
    "compactions": """
        SELECT c.id, CAST(s.name AS BLOB), c.body
        FROM compaction AS c JOIN session AS s ON s.number = c.session
        WHERE c.id > ? ORDER BY c.id LIMIT ?
    """,
    "states": """
        SELECT number, CAST(name AS BLOB), state FROM session
        WHERE state IS NOT NULL AND number > ? ORDER BY number LIMIT ?
    """,
}
_PUT: Final[dict[BodyKind, str]] = {
    "pieces": "UPDATE piece SET body = ?, exact = 0 WHERE hash = ? AND body = ?",
    "jobs": "UPDATE job SET payload = ? WHERE number = ? AND payload = ?",
    "job reasons": """
        UPDATE job SET reason = ? WHERE number = ? AND CAST(reason AS BLOB) = ?
    """,
    "compactions": "UPDATE compaction SET body = ? WHERE id = ? AND body = ?",
    "states": "UPDATE session SET state = ? WHERE number = ? AND state = ?",
}
_PACKED: Final[dict[BodyKind, str]] = {
    "pieces": "SELECT body FROM piece WHERE hash = ?",
    "compactions": "SELECT body FROM compaction WHERE id = ?",
}
"""Statements that read the kinds of bodies stored packed, by id."""
_FIND: Final = """
SELECT id, sequence, tokens FROM segment WHERE id IN (SELECT value FROM json_each(?))
"""
_PUT_SEGMENT: Final = """
UPDATE segment SET text = ?, tool = ?, foreign_line = ?, tokens = ?
WHERE sequence = ?
"""
_COUNT_TOKENS: Final = "UPDATE totals SET tokens = tokens + ?"


def stored_bodies(
    db: Database, kind: BodyKind, *, after: str | None = None, limit: int = 100
) -> tuple[StoredBody, ...]:
    """Return the bodies of a kind after an id. An unreadable one is marked as torn."""
    first: Any = (after or "") if kind == "pieces" else int(after or 0)
    return tuple([_stored_body(kind, row) for row in db.rows(_HELD[kind], (first, limit))])


def _stored_body(kind: BodyKind, row: Row) -> StoredBody:
    id_, name, stored = row
    raw = stored if isinstance(stored, bytes) else str(stored).encode("utf-8", "surrogatepass")
    body, torn = raw, not isinstance(stored, bytes)
    session: str | None = None
    try:
        body = unpack_body(raw) if kind in _PACKED else raw
        session = None if name is None else text_of(name)
    except (ValueError, TypeError):
        torn = True
    return StoredBody(kind=kind, id=str(id_), body=body, session=session, torn=torn)


def rewrite(db: Database, order: RewriteOrder) -> Rewritten:
    # Facts are rewritten with their source texts, so that a span always refers to the right text.
    if order.facts or order.facts_revision is not None:
        write_batch(db, Batch(at=order.at, facts=order.facts, facts_revision=order.facts_revision))
    bodies = sum(_put(db, new) for new in order.bodies)
    given = {new.segment.id: new for new in order.segments}
    found = {
        SegmentId(id_): (sequence, tokens)
        for id_, sequence, tokens in db.rows(_FIND, (json_list(given),))
    }
    vectors = _reindex(db, [(found[id_][0], given[id_]) for id_ in given if id_ in found])
    for id_, (sequence, tokens) in found.items():
        _put_segment(db, given[id_].segment, sequence)
        db.run(_COUNT_TOKENS, (given[id_].segment.tokens - tokens,))
    if found:  # a fact extracted from the old text would bring it back
        move_on(db)
    return Rewritten(
        segments=tuple(id_ for id_ in given if id_ in found),
        bodies=bodies,
        vectors=vectors,
    )


def _put(db: Database, new: NewBody) -> bool:
    id_: Any = new.id if new.kind == "pieces" else int(new.id)
    body: Any = new.body
    if new.kind in _PACKED:
        return _put_packed(db, new, id_)
    if new.kind == "job reasons":
        body = pack_text(new.body.decode("utf-8", "surrogatepass"))
    db.run(_PUT[new.kind], (body, id_, new.was))
    return db.changed() == 1


def _put_packed(db: Database, new: NewBody, id_: str | int) -> bool:
    """Replace a body that has not changed. It is compared unpacked, because the same body can be
    packed in several ways."""
    for (stored,) in db.rows(_PACKED[new.kind], (id_,)):
        if unpack_body(stored) == new.was:
            db.run(_PUT[new.kind], (pack_body(new.body), id_, stored))
            return True
    return False


def _reindex(db: Database, given: Sequence[tuple[int, NewSegment]]) -> int:
    gone = _remove_passages(db, [sequence for sequence, _ in given])
    new_ones = [(at, new.passages) for at, new in given if new.segment.noise is None]
    index_words(db, add_passages(db, new_ones))
    clear_separators(db, gone.words)
    return gone.vectors


def _put_segment(db: Database, segment: Segment, sequence: int) -> None:
    text, tool, foreign = (
        pack_long_text(segment.text),
        pack_text(segment.tool),
        pack_text(segment.foreign),
    )
    db.run(_PUT_SEGMENT, (text, tool, foreign, segment.tokens, sequence))
