"""Writes, replaces, forgets and finds facts, and counts their revision.

A changed fact becomes a new row with a new number. The fact's words are indexed again, and the
fact's vectors removed. Every transaction that changes facts, or segments from which facts are
extracted, increases the revision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

import numpy as np

from recollect.adapters.stores import invariants
from recollect.adapters.stores.sqlite import columns
from recollect.adapters.stores.sqlite.database import Database
from recollect.adapters.stores.sqlite.sessions import gone_segments, put_tombstones
from recollect.adapters.stores.sqlite.vectors import (
    FLOAT_BYTES,
    Matrices,
    Matrix,
    asked_vectors,
    embedder_number,
    number_list,
)
from recollect.core.values.fact import (
    ExtractedTo,
    Fact,
    FactId,
    FactText,
    FactVectorSet,
    all_rest_on,
    fact_identity,
    still_supported,
)
from recollect.core.values.recall import FactCandidate, FactCandidates, FactQuery
from recollect.errors import StaleFacts, StoreError

_CURRENT: Final = """
SELECT id, number FROM fact WHERE current AND id IN (SELECT value FROM json_each(?))
"""
_PUT: Final = "INSERT OR IGNORE INTO fact_vector (embedder, fact, numbers) VALUES (?, ?, ?)"
MEMBERS: Final = """
SELECT coalesce(group_concat(fact), '') FROM (
  SELECT fact FROM fact_vector WHERE embedder = ? ORDER BY fact
)
"""
"""Query for the facts that have a vector. If the result changes, all vectors are loaded again."""
_LOAD: Final = "SELECT fact, numbers FROM fact_vector WHERE embedder = ? ORDER BY fact"
_WAITING: Final = """
SELECT id, CAST(content AS BLOB) FROM fact AS f
WHERE current AND id > ?1 AND NOT EXISTS (
  SELECT 1 FROM fact_vector AS v JOIN embedder AS e ON e.number = v.embedder
  WHERE e.name = ?2 AND v.fact = f.number
)
ORDER BY id LIMIT ?3
"""


def write_fact_vectors(db: Database, vectors: FactVectorSet) -> None:
    if not vectors.vectors:
        return
    embedder = embedder_number(db, vectors)
    size = FLOAT_BYTES * vectors.dimensions
    numbers: dict[str, int] = dict(
        db.rows(_CURRENT, (columns.json_list(vector.fact for vector in vectors.vectors),))
    )
    new = [vector for vector in vectors.vectors if vector.fact in numbers]
    if any(len(vector.values) != size for vector in new):
        raise StoreError(
            f"a vector of {vectors.embedder} does not have {vectors.dimensions} dimensions"
        )
    db.run_many(_PUT, [(embedder, numbers[vector.fact], vector.values) for vector in new])


def unembedded_facts(db: Database, embedder: str, *, limit: int) -> tuple[FactText, ...]:
    texts: list[FactText] = []
    last = ""
    while len(texts) < limit:  # unreadable rows must not block the others
        wanted = limit - len(texts)
        rows = db.rows(_WAITING, (last, embedder, wanted))
        texts += columns.read_rows(
            rows, lambda row: FactText(fact=FactId(row[0]), text=columns.text_of(row[1]))
        )
        if len(rows) < wanted:
            break
        last = rows[-1][0]
    return tuple(texts)


def load_fact_vectors(db: Database, matrix: Matrix) -> None:
    rows = db.rows(_LOAD, (matrix.embedder,))
    matrix.keep(set())
    if rows:
        size = FLOAT_BYTES * matrix.dimensions
        members = np.array([fact for fact, _ in rows], dtype="<i8")
        # A truncated vector is similar to nothing; `check` reports it.
        values = [numbers if len(numbers) == size else bytes(size) for _, numbers in rows]
        matrix.reserve_rows(len(rows))
        matrix.append(0, unit=False, passages=members.tobytes(), numbers=b"".join(values))


_REVISION: Final = "SELECT facts_revision FROM totals"
_RAISE_REVISION: Final = "UPDATE totals SET facts_revision = facts_revision + 1"
_NEXT: Final = "UPDATE totals SET next_fact = next_fact + ?1 RETURNING next_fact - ?1"
_NAMED: Final = columns.SELECT_FACT + "WHERE id IN (SELECT value FROM json_each(?))"  # noqa: S608
_NUMBERS: Final = "SELECT number, id FROM fact WHERE id IN (SELECT value FROM json_each(?))"
_RESTING: Final = columns.SELECT_FACT + "WHERE sources IS NOT NULL OR evidence IS NOT NULL"
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
    revision: int = db.value(_REVISION)
    return revision


def require_revision(db: Database, revision: int | None) -> None:
    """Raise StaleFacts if facts have changed since `revision`, unless that is None."""
    if revision is not None and facts_revision(db) != revision:
        raise StaleFacts("other facts were written in the meantime: read the facts and try again")


def raise_revision(db: Database) -> None:
    """Increase the revision, so that earlier decisions about facts become stale."""
    db.run(_RAISE_REVISION)


def write_facts(db: Database, facts: Sequence[Fact], tombstones: AbstractSet[str]) -> None:
    removed = gone_segments(db, all_rest_on(facts))
    rows = db.rows(_NAMED, (columns.json_list({fact.id for fact in facts}),))
    stored_facts = {fact.id: fact for _, fact in columns.read_rows(rows, columns.numbered_fact)}
    _replace(db, invariants.writable(facts, stored_facts, tombstones=tombstones, gone=removed))


def forget_facts(db: Database, forgotten: Iterable[str], twins: Mapping[str, str]) -> list[str]:
    """Remove the facts whose sources were all forgotten. A fact with other sources loses only the
    forgotten sources. `twins` maps a forgotten segment to another with the same words, the new
    source. An unreadable fact is removed together with any segment that it names."""
    rows = db.rows(_RESTING)
    resting = [fact for _, fact in columns.read_rows(rows, columns.numbered_fact)]
    known = {fact.id for fact in resting}
    names = [text.encode("utf-8", "surrogatepass") for text in forgotten]
    unread = [row for row in rows if row[1] not in known]
    removed = [row[1] for row in unread if columns.named_in(row, names)]
    gone = gone_segments(db, all_rest_on(resting))
    left = [(fact, still_supported(fact, gone, twins)) for fact in resting]
    removed += [fact.id for fact, now in left if now is None]
    _remove(db, removed)
    _replace(db, [now for fact, now in left if now is not None and now is not fact])
    return sorted(removed)


def leave_sessions(db: Database, sessions: Iterable[str]) -> None:
    """Detach facts from these sessions. Facts that remain then belong to the whole space."""
    changed = 0
    for session in sessions:
        db.run(_LEAVE_SESSION, (columns.pack_text(session),))
        changed += db.changed()
    if changed:
        raise_revision(db)


def forget_named_facts(db: Database, ids: Sequence[FactId], at: float) -> list[str]:
    if not ids:
        return []
    put_tombstones(db, map(fact_identity, ids), at)
    found = _remove(db, ids)
    if found:
        raise_revision(db)
    return found


def write_positions(db: Database, extracted: Iterable[ExtractedTo]) -> None:
    """Store up to which message facts were extracted from each session."""
    db.run_many(
        _READ_TO, [(invariants.session_mark(one.session), one.sequence) for one in extracted]
    )


def extracted_to(db: Database, session: str) -> int:
    return db.value(_READ, (invariants.session_mark(session),)) or 0


def _remove(db: Database, ids: Iterable[str]) -> list[str]:
    rows = db.rows(_NUMBERS, (columns.json_list(ids),))
    numbers = (columns.json_list(number for number, _ in rows),)
    for drop in (_DROP_WORDS, _DROP_VECTORS, _DROP):
        db.run(drop, numbers)
    return [id_ for _, id_ in rows]


def _replace(db: Database, facts: Sequence[Fact]) -> None:
    if not facts:
        return
    _remove(db, [fact.id for fact in facts])
    first: int = db.value(_NEXT, (len(facts),))
    db.run_many(
        columns.INSERT_FACT,
        [columns.fact_row(fact, number) for number, fact in enumerate(facts, first)],
    )
    words = (
        (word, number)
        for number, fact in enumerate(facts, first)
        if fact.current
        for word in invariants.word_numbers(fact.words)
    )
    db.run_many(_PUT_WORD, list(words))
    raise_revision(db)


_DOCUMENTS: Final = "SELECT count(*) FROM fact WHERE current"
_HOLDING: Final = "SELECT group_concat(fact) FROM fact_word WHERE word = ?"
_IN_SESSION: Final = """
SELECT group_concat(number) FROM fact INDEXED BY fact_current
WHERE current AND (session IS NULL OR session = ?)
"""
_PINNED: Final = "SELECT group_concat(number) FROM fact WHERE current AND pinned"
_OF_TYPES: Final = """
SELECT group_concat(number) FROM (
  SELECT number FROM fact
  WHERE current AND type IN (SELECT value FROM json_each(?))
    AND (? OR session IS NULL OR session = ?)
  ORDER BY at DESC, id LIMIT ?
)
"""
_IDS: Final = "SELECT id, number FROM fact WHERE number IN (SELECT value FROM json_each(?))"
_CHOSEN: Final = f"""
{columns.SELECT_FACT} WHERE number IN (SELECT value FROM json_each(?)) ORDER BY id
"""  # noqa: S608


def find_fact_candidates(db: Database, matrices: Matrices, query: FactQuery) -> FactCandidates:
    documents: int = db.value(_DOCUMENTS)
    allowed = _find_allowed(db, query.session)
    words = tuple(dict.fromkeys(query.words))
    postings = [number_list(db.value(_HOLDING, (invariants.word_number(word),))) for word in words]
    by_words = invariants.among(*invariants.scores_by_words(postings, documents), allowed)
    chosen = [_find_pinned(db, allowed), _best(db, *by_words, query.limit)]
    if query.types:
        session = None if query.session is None else columns.pack_text(query.session)
        given = (columns.json_list(query.types), session is None, session, max(0, query.limit))
        chosen.append(number_list(db.value(_OF_TYPES, given)))
    asked = asked_vectors(db, matrices, query.vectors)
    for search in asked:
        if search is not None and query.limit > 0:
            near = search.near(query.limit, allowed=allowed, left_out=invariants.NO_NUMBERS)
            chosen.append(_best(db, *near, query.limit))
    numbers = columns.json_list(np.unique(np.concatenate(chosen)).tolist())
    found = columns.read_rows(db.rows(_CHOSEN, (numbers,)), columns.numbered_fact)
    places = np.array([number for number, _ in found], dtype=np.int64)
    near_to = [
        [None] * len(found) if search is None else search.cosines(places) for search in asked
    ]
    similarities = zip(*near_to, strict=True) if near_to else [()] * len(found)
    return FactCandidates(
        facts=tuple(
            FactCandidate(fact=fact, similarities=tuple(near))
            for (_, fact), near in zip(found, similarities, strict=True)
        ),
        documents=documents,
        document_frequencies={
            word: len(facts) for word, facts in zip(words, postings, strict=True)
        },
    )


def _find_allowed(db: Database, session: str | None) -> invariants.Numbers | None:
    if session is None:
        return None
    return np.sort(number_list(db.value(_IN_SESSION, (columns.pack_text(session),))))


def _find_pinned(db: Database, allowed: invariants.Numbers | None) -> invariants.Numbers:
    pinned = number_list(db.value(_PINNED))
    return pinned if allowed is None else pinned[np.isin(pinned, allowed)]


def _best(
    db: Database, facts: invariants.Numbers, scores: invariants.Scores, limit: int
) -> invariants.Numbers:
    chosen, tied, wanted = invariants.best_of(facts, scores, limit)
    rows = sorted(db.rows(_IDS, (columns.json_list(tied.tolist()),))) if wanted else []
    return np.array([*chosen.tolist(), *(number for _, number in rows[:wanted])], dtype=np.int64)
