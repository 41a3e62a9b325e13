"""Facts as a space keeps them: written, replaced, forgotten; the revision they are at.

Owns `fact`, `fact_word` and `extracted`. A fact that changes is another row under a new number:
its words are indexed anew and its vectors go. Always holds: only current facts have words in the
index; the revision grows with every transaction that changes facts, or segments that a fact may
be read from, and with no other; no fact is written that a tombstone stands for, or that rests on
forgotten segments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from recollect.errors import StaleFacts
from recollect.stores.fact_scores import word_numbers
from recollect.stores.fact_support import all_rest_on, still_supported, writable
from recollect.stores.marks import session_mark
from recollect.stores.sqlite.database import Database
from recollect.stores.sqlite.fact_rows import (
    INSERT_FACT,
    SELECT_FACT,
    fact_row,
    named_in,
    numbered_fact,
)
from recollect.stores.sqlite.marks import gone_segments, put_tombstones
from recollect.stores.sqlite.packing import json_list, pack_text
from recollect.stores.sqlite.rows import readable
from recollect.values.fact import ExtractedTo, Fact, FactId, fact_identity

_REVISION: Final = "SELECT facts_revision FROM totals"
_MOVE_ON: Final = "UPDATE totals SET facts_revision = facts_revision + 1"
_NEXT: Final = "UPDATE totals SET next_fact = next_fact + ?1 RETURNING next_fact - ?1"
_NAMED: Final = SELECT_FACT + "WHERE id IN (SELECT value FROM json_each(?))"  # noqa: S608
_NUMBERS: Final = "SELECT number, id FROM fact WHERE id IN (SELECT value FROM json_each(?))"
_RESTING: Final = SELECT_FACT + "WHERE sources IS NOT NULL OR evidence IS NOT NULL"
_PUT_WORD: Final = "INSERT INTO fact_word (word, fact) VALUES (?, ?)"
_DROP_WORDS: Final = "DELETE FROM fact_word WHERE fact IN (SELECT value FROM json_each(?))"
_DROP_VECTORS: Final = "DELETE FROM fact_vector WHERE fact IN (SELECT value FROM json_each(?))"
_DROP: Final = "DELETE FROM fact WHERE number IN (SELECT value FROM json_each(?))"
_LEAVE_SESSION: Final = "UPDATE fact SET session = NULL WHERE session = ?"
_READ_TO: Final = """
INSERT INTO extracted (session, sequence) VALUES (?, ?)
ON CONFLICT (session) DO UPDATE SET sequence = max(sequence, excluded.sequence)
"""
_READ: Final = "SELECT sequence FROM extracted WHERE session = ?"


def facts_revision(db: Database) -> int:
    """How often the facts of the space have changed."""
    revision: int = db.value(_REVISION)
    return revision


def require_revision(db: Database, revision: int | None) -> None:
    """Raise StaleFacts where facts have changed since this revision; None asks for none."""
    if revision is not None and facts_revision(db) != revision:
        raise StaleFacts("other facts were written meanwhile: read them and decide again")


def move_on(db: Database) -> None:
    """Say that what was decided about facts until now was decided upon something else."""
    db.run(_MOVE_ON)


def write_facts(db: Database, facts: Sequence[Fact], tombstones: AbstractSet[str]) -> None:
    """Keep facts, or replace those whose id is known; the same ones again change nothing."""
    gone = gone_segments(db, all_rest_on(facts))
    held = dict(_held(db, {fact.id for fact in facts}))
    _replace(db, writable(facts, held, tombstones=tombstones, gone=gone))


def forget_facts(db: Database, forgotten: Iterable[str], twins: Mapping[str, str]) -> list[str]:
    """Remove the facts that can no longer stand without forgotten segments; others lose these.

    A fact of a segment whose words are said elsewhere still rests on its twin there. One that
    cannot be read goes with any segment that it names.
    """
    rows = db.rows(_RESTING)
    resting = [fact for _, fact in readable(rows, numbered_fact)]
    known = {fact.id for fact in resting}
    names = [one.encode("utf-8", "surrogatepass") for one in forgotten]
    unread = [row for row in rows if row[0] not in known]
    removed = [row[0] for row in unread if named_in(row, names)]
    gone = gone_segments(db, all_rest_on(resting))
    left = [(fact, still_supported(fact, gone, twins)) for fact in resting]
    removed += [fact.id for fact, now in left if now is None]
    _remove(db, removed)
    _replace(db, [now for fact, now in left if now is not None and now is not fact])
    return sorted(removed)


def leave_sessions(db: Database, sessions: Iterable[str]) -> None:
    """Let no fact name these sessions: those that are left belong to the whole space."""
    changed = 0
    for session in sessions:
        db.run(_LEAVE_SESSION, (pack_text(session),))
        changed += db.changed()
    if changed:
        move_on(db)


def forget_named_facts(db: Database, ids: Sequence[FactId], at: float) -> list[str]:
    """Remove these facts and keep them out from now on; which of them were there."""
    if not ids:
        return []
    put_tombstones(db, map(fact_identity, ids), at)
    found = _remove(db, ids)
    if found:
        move_on(db)
    return found


def read_to(db: Database, extracted: Iterable[ExtractedTo]) -> None:
    """Note how far sessions were read for facts; never back."""
    db.run_many(_READ_TO, [(session_mark(one.session), one.sequence) for one in extracted])


def extracted_to(db: Database, session: str) -> int:
    """How far a session was read for facts; 0 for not at all."""
    return db.value(_READ, (session_mark(session),)) or 0


def _held(db: Database, ids: Iterable[str]) -> Iterable[tuple[FactId, Fact]]:
    rows = db.rows(_NAMED, (json_list(ids),))
    return ((fact.id, fact) for _, fact in readable(rows, numbered_fact))


def _remove(db: Database, ids: Iterable[str]) -> list[str]:
    """Remove facts with their words and vectors; which were there."""
    rows = db.rows(_NUMBERS, (json_list(ids),))
    numbers = (json_list(number for number, _ in rows),)
    for drop in (_DROP_WORDS, _DROP_VECTORS, _DROP):
        db.run(drop, numbers)
    return [id_ for _, id_ in rows]


def _replace(db: Database, facts: Sequence[Fact]) -> None:
    """Write facts in the place of those with their ids."""
    if not facts:
        return
    _remove(db, [fact.id for fact in facts])
    first: int = db.value(_NEXT, (len(facts),))
    db.run_many(INSERT_FACT, [fact_row(fact, number) for number, fact in enumerate(facts, first)])
    words = (
        (word, number)
        for number, fact in enumerate(facts, first)
        if fact.current
        for word in word_numbers(fact.words)
    )
    db.run_many(_PUT_WORD, list(words))
    move_on(db)
