"""Forgets: removes segments and all that quotes them, and sees to it that no byte stays.

Everything goes in one transaction, tombstones included. The bytes go with it, because deleted
cells are overwritten (`secure_delete`, and FTS5's own); the log, which still has older pages, is
emptied after. Always holds: whatever could not be reached is told, one sentence each.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from recollect.stores.sqlite.database import Database
from recollect.stores.sqlite.jobs import forget_jobs
from recollect.stores.sqlite.lanes import checkpoint
from recollect.stores.sqlite.ledger import forget_pieces
from recollect.stores.sqlite.packing import json_list, pack_text
from recollect.stores.sqlite.passages import INDEXES, bags_of, passages_of, rebuild, remove_passages
from recollect.stores.sqlite.sessions import forget_quotes
from recollect.stores.sqlite.vectors import remove_vectors
from recollect.stores.sqlite.write import forget_facts
from recollect.values.message import MessageId
from recollect.values.segment import FactId, SegmentId
from recollect.values.upkeep import ForgetOrder, Forgotten, ScrubResult

_BY_SEGMENT: Final = """
SELECT message_id FROM segment WHERE id IN (SELECT value FROM json_each(?))
"""
_BY_SESSION: Final = """
SELECT message_id FROM segment WHERE session = (SELECT number FROM session WHERE name = ?)
"""
_BY_TIME: Final = "SELECT message_id FROM segment WHERE said_at < ?"
_SEGMENTS: Final = """
SELECT sequence, id, cold, noise IS NOT NULL, tokens FROM segment
WHERE message_id IN (SELECT value FROM json_each(?)) ORDER BY sequence
"""
_DELETE_SEGMENTS: Final = "DELETE FROM segment WHERE sequence IN (SELECT value FROM json_each(?))"
_COUNT_GONE: Final = """
UPDATE totals SET segments = segments - ?, cold = cold - ?, noise = noise - ?,
  tokens = tokens - ?
"""
_FACTS: Final = "SELECT id FROM fact WHERE id IN (SELECT value FROM json_each(?))"
_DELETE_FACTS: Final = "DELETE FROM fact WHERE id IN (SELECT value FROM json_each(?))"
_PUT_TOMBSTONE: Final = "INSERT OR IGNORE INTO tombstone (message_id, at) VALUES (?, ?)"
_PUT_GONE: Final = "INSERT OR IGNORE INTO gone_segment (id) VALUES (?)"
_SEPARATORS: Final = "SELECT term FROM {name}_idx"
_STILL_SAID: Final = "SELECT 1 FROM {name}_at WHERE term >= ? AND term < ? LIMIT 1"

LOG_IN_USE: Final = (
    "The write-ahead log still holds older pages, because another connection is reading: "
    "run scrub when nobody does."
)
COPIES: Final = "Copies of the file (backups, snapshots) are out of reach."
# A shorter beginning of a word tells nothing of it.
_TELLING_BYTES: Final = 5


def forget(db: Database, order: ForgetOrder) -> Forgotten:
    """Remove what the order names, within the caller's transaction."""
    identities = _identities(db, order)
    rows = db.rows(_SEGMENTS, (json_list(identities),))
    warm = passages_of(db, [row[0] for row in rows if not row[2]])
    cold = passages_of(db, [row[0] for row in rows if row[2]])
    said = _words_of(db, warm, cold)
    vectors = remove_vectors(db, [*warm, *cold])
    if warm or cold:
        remove_passages(db, warm=warm, cold=cold)
    _remove_segments(db, rows)
    db.run_many(_PUT_TOMBSTONE, [(one, order.at) for one in sorted(identities)])
    db.run_many(_PUT_GONE, [(row[1],) for row in rows])
    facts = [*_named_facts(db, order.facts), *(forget_facts(db) if rows else [])]
    pieces, jobs = forget_pieces(db, identities), forget_jobs(db, identities)
    states = forget_quotes(db, identities)
    _clear_separators(db, said)
    return Forgotten(
        segments=tuple(SegmentId(row[1]) for row in rows),
        message_ids=tuple(map(MessageId, sorted(identities))),
        passages=len(warm) + len(cold),
        vectors=vectors,
        facts=tuple(map(FactId, sorted(facts))),
        pieces=pieces,
        jobs=jobs,
        session_states=states,
        cannot=(COPIES,),
    )


def _identities(db: Database, order: ForgetOrder) -> set[str]:
    found: set[str] = set(order.message_ids)
    found.update(one for (one,) in db.rows(_BY_SEGMENT, (json_list(order.segments),)))
    for session in order.sessions:
        found.update(one for (one,) in db.rows(_BY_SESSION, (pack_text(session),)))
    if order.said_before is not None:
        found.update(one for (one,) in db.rows(_BY_TIME, (order.said_before,)))
    return found


def _named_facts(db: Database, ids: tuple[FactId, ...]) -> list[str]:
    if not ids:
        return []
    named = (json_list(ids),)
    found = [one for (one,) in db.rows(_FACTS, named)]
    db.run(_DELETE_FACTS, named)
    return found


def _remove_segments(db: Database, rows: list[tuple[Any, ...]]) -> None:
    db.run(_DELETE_SEGMENTS, (json_list(row[0] for row in rows),))
    gone = (len(rows), sum(row[2] for row in rows), sum(row[3] for row in rows))
    db.run(_COUNT_GONE, (*gone, sum(row[4] for row in rows)))


def _words_of(db: Database, warm: Iterable[int], cold: Iterable[int]) -> set[bytes]:
    words: set[bytes] = set()
    for _, bag in (*bags_of(db, "words", warm), *bags_of(db, "cold_words", cold)):
        words.update(bag.encode().split(b" "))
    return words


def _clear_separators(db: Database, said: set[bytes]) -> None:
    """Rebuild an index whose inner pages still show the beginning of a word nobody said.

    FTS5 overwrites the entries of a word, but not the marks that say where its pages begin. A
    mark is as short as can be, so this is rare.
    """
    beginnings = {word[:end] for word in said for end in range(_TELLING_BYTES, len(word) + 1)}
    for name in INDEXES:
        marks = (bytes(mark)[1:] for (mark,) in db.rows(_SEPARATORS.format(name=name)))
        if any(mark in beginnings and not _still_said(db, name, mark) for mark in marks):
            rebuild(db, name)


def _still_said(db: Database, name: str, beginning: bytes) -> bool:
    first = beginning.decode("utf-8", "ignore")
    query = _STILL_SAID.format(name=name)
    return bool(db.rows(query, (first, first + "\U0010ffff")))


def told_of_log(db: Database, forgotten: Forgotten) -> Forgotten:
    """Empty the log after the transaction; what was forgotten, and whether that worked."""
    if empty_log(db):
        return forgotten
    return replace(forgotten, cannot=(LOG_IN_USE, *forgotten.cannot))


def empty_log(db: Database) -> bool:
    """Move the log into the file and empty it; False when others did not let it."""
    return checkpoint(db, "TRUNCATE")


def scrub(db: Database) -> ScrubResult:
    """Write the whole file anew, so that nothing that was removed is in it."""
    done = []
    for name in INDEXES:
        rebuild(db, name)
    done.append("the word index was written anew")
    db.run("VACUUM")
    done.append("the file was written anew")
    if not empty_log(db):
        return ScrubResult(done=tuple(done), cannot=(LOG_IN_USE, COPIES))
    done.append("the write-ahead log was emptied")
    return ScrubResult(done=tuple(done), cannot=(COPIES,))
