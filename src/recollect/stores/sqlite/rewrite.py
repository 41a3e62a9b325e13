"""Reads and replaces stored texts in place: what redacting what is stored already is made of.

Owns no table: it changes rows of others' and leaves who they are. Everything goes in one
transaction; the old bytes go with it, because freed cells are overwritten (`secure_delete`) and
the log is emptied after. Always holds: a row is replaced only while it is what was read; a
segment keeps its place, and has no passage, word or vector of its old text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from recollect.stores.sqlite.database import Database, Row
from recollect.stores.sqlite.facts import move_on
from recollect.stores.sqlite.forget import (
    COPIES,
    LOG_IN_USE,
    clear_separators,
    empty_log,
    words_of,
)
from recollect.stores.sqlite.packing import json_list, pack_list, pack_text, text_of
from recollect.stores.sqlite.passages import (
    add_passages,
    cool_passages,
    index_words,
    passages_of,
    remove_passages,
)
from recollect.stores.sqlite.vectors import remove_vectors
from recollect.stores.sqlite.write import write_batch
from recollect.values.batch import Batch
from recollect.values.segment import NewSegment, SegmentId
from recollect.values.upkeep import HeldBody, NewBody, RewriteOrder, Rewritten, Room

_HELD: Final[dict[Room, str]] = {
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
_PUT: Final[dict[Room, str]] = {
    "pieces": "UPDATE piece SET body = ?, exact = 0 WHERE hash = ? AND body = ?",
    "jobs": "UPDATE job SET payload = ? WHERE number = ? AND payload = ?",
    "job reasons": """
        UPDATE job SET reason = ? WHERE number = ? AND CAST(reason AS BLOB) = ?
    """,
    "compactions": "UPDATE compaction SET body = ? WHERE id = ? AND body = ?",
    "states": "UPDATE session SET state = ? WHERE number = ? AND state = ?",
}
_FIND: Final = """
SELECT id, sequence, cold, tokens FROM segment WHERE id IN (SELECT value FROM json_each(?))
"""
_PUT_SEGMENT: Final = """
UPDATE segment SET text = ?, tool = ?, topics = ?, entities = ?, foreign_line = ?, tokens = ?
WHERE sequence = ?
"""
_COUNT_TOKENS: Final = "UPDATE totals SET tokens = tokens + ?"


def held(db: Database, room: Room, after: str | None, limit: int) -> tuple[HeldBody, ...]:
    """What a room holds beyond an id."""
    first: Any = (after or "") if room == "pieces" else int(after or 0)
    return tuple(
        HeldBody(
            room=room,
            id=str(id_),
            body=bytes(body),
            session=None if name is None else text_of(name),
        )
        for id_, name, body in db.rows(_HELD[room], (first, limit))
        if isinstance(body, bytes)
    )


def rewrite(db: Database, order: RewriteOrder) -> Rewritten:
    """Replace texts within the caller's transaction."""
    # With the texts they rest on, so that no span is ever of another text.
    if order.facts or order.facts_revision is not None:
        write_batch(db, Batch(at=order.at, facts=order.facts, facts_revision=order.facts_revision))
    bodies = sum(_put(db, new) for new in order.bodies)
    given = {new.segment.id: new for new in order.segments}
    found = {
        SegmentId(id_): (sequence, bool(cold), tokens)
        for id_, sequence, cold, tokens in db.rows(_FIND, (json_list(given),))
    }
    vectors = _reindexed(db, [(*found[id_][:2], given[id_]) for id_ in given if id_ in found])
    for id_, (sequence, _, tokens) in found.items():
        _put_segment(db, given[id_], sequence)
        db.run(_COUNT_TOKENS, (given[id_].segment.tokens - tokens,))
    if found:  # a fact that was read from an old text would bring it back
        move_on(db)
    return Rewritten(
        segments=tuple(id_ for id_ in given if id_ in found),
        bodies=bodies,
        vectors=vectors,
        cannot=(COPIES,) if found or bodies or order.facts else (),
    )


def told_of_log(db: Database, done: Rewritten) -> Rewritten:
    """Empty the log after the transaction; what was done, and whether that worked."""
    if empty_log(db):
        return done
    return replace(done, cannot=(LOG_IN_USE, *done.cannot))


def _put(db: Database, new: NewBody) -> bool:
    id_: Any = new.id if new.room == "pieces" else int(new.id)
    body: Any = new.body
    if new.room == "job reasons":
        body = pack_text(new.body.decode("utf-8", "surrogatepass"))
    db.run(_PUT[new.room], (body, id_, new.was))
    return db.changed() == 1


def _reindexed(db: Database, given: Sequence[tuple[int, bool, NewSegment]]) -> int:
    """Take the old passages out and index the new ones; how many vectors went."""
    warm = passages_of(db, [sequence for sequence, cold, _ in given if not cold])
    cold = passages_of(db, [sequence for sequence, cold, _ in given if cold])
    said = words_of(db, warm, cold)
    vectors = remove_vectors(db, [*warm, *cold])
    if warm or cold:
        remove_passages(db, warm=warm, cold=cold)
    bags: list[Row] = add_passages(
        db, [(at, new.passages) for at, _, new in given if new.segment.noise is None]
    )
    index_words(db, bags)
    was_cold = [sequence for sequence, cold, _ in given if cold]
    if was_cold:
        cool_passages(db, passages_of(db, was_cold))
    clear_separators(db, said)
    return vectors


def _put_segment(db: Database, new: NewSegment, sequence: int) -> None:
    one = new.segment
    db.run(
        _PUT_SEGMENT,
        (
            pack_text(one.text),
            pack_text(one.tool),
            pack_list(one.topics),
            pack_list(one.entities),
            pack_text(one.foreign),
            one.tokens,
            sequence,
        ),
    )
