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
from recollect.adapters.stores.sqlite.sessions import find_gone_segments, put_tombstones
from recollect.adapters.stores.sqlite.vectors import (
    FLOAT_BYTES,
    Matrices,
    Matrix,
    embedder_number,
    parse_numbers,
    prepare_searches,
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
    new_vectors = [vector for vector in vectors.vectors if vector.fact in numbers]
    if any(len(vector.values) != size for vector in new_vectors):
        raise StoreError(
            f"a vector of {vectors.embedder} does not have {vectors.dimensions} dimensions"
        )
    db.run_many(_PUT, [(embedder, numbers[vector.fact], vector.values) for vector in new_vectors])


def find_unembedded_facts(db: Database, embedder: str, *, limit: int) -> tuple[FactText, ...]:
    texts: list[FactText] = []
    last = ""
    while len(texts) < limit:  # unreadable rows must not block the others
        row_limit = limit - len(texts)
        rows = db.rows(_WAITING, (last, embedder, row_limit))
        texts += columns.read_rows(
            rows, lambda row: FactText(fact=FactId(row[0]), text=columns.text_of(row[1]))
        )
        if len(rows) < row_limit:
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


def read_revision(db: Database) -> int:
    revision: int = db.value(_REVISION)
    return revision


def require_revision(db: Database, revision: int | None) -> None:
    """Raise StaleFacts if facts have changed since `revision`, unless that is None."""
    if revision is not None and read_revision(db) != revision:
        raise StaleFacts("other facts were written in the meantime: read the facts and try again")


def raise_revision(db: Database) -> None:
    """Increase the revision, so that earlier decisions about facts become stale."""
    db.run(_RAISE_REVISION)


def write_facts(db: Database, facts: Sequence[Fact], tombstones: AbstractSet[str]) -> None:
    gone_ids = find_gone_segments(db, all_rest_on(facts))
    rows = db.rows(_NAMED, (columns.json_list({fact.id for fact in facts}),))
    stored_facts = {fact.id: fact for _, fact in columns.read_rows(rows, columns.read_numbered)}
    _replace(
        db,
        invariants.choose_writable(facts, stored_facts, tombstones=tombstones, gone_ids=gone_ids),
    )


def forget_facts(db: Database, forgotten_ids: Iterable[str], twins: Mapping[str, str]) -> list[str]:
    """Remove the facts whose sources were all forgotten. A fact with other sources loses only the
    forgotten sources. `twins` maps a forgotten segment to another with the same words, the new
    source. An unreadable fact is removed together with any segment that it names."""
    rows = db.rows(_RESTING)
    sourced_facts = [fact for _, fact in columns.read_rows(rows, columns.read_numbered)]
    known_ids = {fact.id for fact in sourced_facts}
    names = [text.encode("utf-8", "surrogatepass") for text in forgotten_ids]
    unread_rows = [row for row in rows if row[1] not in known_ids]
    removed_ids = [row[1] for row in unread_rows if columns.names_segment(row, names)]
    gone_ids = find_gone_segments(db, all_rest_on(sourced_facts))
    updates = [(fact, still_supported(fact, gone_ids, twins)) for fact in sourced_facts]
    removed_ids += [fact.id for fact, update in updates if update is None]
    _remove(db, removed_ids)
    _replace(db, [update for fact, update in updates if update is not None and update is not fact])
    return sorted(removed_ids)


def leave_sessions(db: Database, sessions: Iterable[str]) -> None:
    """Detach facts from these sessions. Facts that remain then belong to the whole space."""
    changed = 0
    for session in sessions:
        db.run(_LEAVE_SESSION, (columns.pack_text(session),))
        changed += db.count_changes()
    if changed:
        raise_revision(db)


def forget_named_facts(db: Database, ids: Sequence[FactId], forgotten_at: float) -> list[str]:
    if not ids:
        return []
    put_tombstones(db, map(fact_identity, ids), forgotten_at)
    removed_ids = _remove(db, ids)
    if removed_ids:
        raise_revision(db)
    return removed_ids


def write_positions(db: Database, ends: Iterable[ExtractedTo]) -> None:
    """Store up to which message facts were extracted from each session."""
    db.run_many(_READ_TO, [(invariants.session_mark(end.session), end.sequence) for end in ends])


def read_position(db: Database, session: str) -> int:
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
    allowed_numbers = _find_allowed(db, query.session)
    words = tuple(dict.fromkeys(query.words))
    postings = [
        parse_numbers(db.value(_HOLDING, (invariants.word_number(word),))) for word in words
    ]
    word_matches = invariants.keep_allowed(
        *invariants.score_by_words(postings, documents), allowed_numbers
    )
    chosen_numbers = [
        _find_pinned(db, allowed_numbers),
        _choose_best(db, *word_matches, query.limit),
    ]
    if query.types:
        session = None if query.session is None else columns.pack_text(query.session)
        values = (columns.json_list(query.types), session is None, session, max(0, query.limit))
        chosen_numbers.append(parse_numbers(db.value(_OF_TYPES, values)))
    searches = prepare_searches(db, matrices, query.vectors)
    for search in searches:
        if search is not None and query.limit > 0:
            nearest = search.find_nearest(
                query.limit, allowed_numbers=allowed_numbers, left_out=invariants.NO_NUMBERS
            )
            chosen_numbers.append(_choose_best(db, *nearest, query.limit))
    numbers = columns.json_list(np.unique(np.concatenate(chosen_numbers)).tolist())
    numbered_facts = columns.read_rows(db.rows(_CHOSEN, (numbers,)), columns.read_numbered)
    fact_numbers = np.array([number for number, _ in numbered_facts], dtype=np.int64)
    cosine_columns = [
        [None] * len(numbered_facts) if search is None else search.cosines(fact_numbers)
        for search in searches
    ]
    similarities = (
        zip(*cosine_columns, strict=True) if cosine_columns else [()] * len(numbered_facts)
    )
    return FactCandidates(
        facts=tuple(
            FactCandidate(fact=fact, similarities=tuple(cosines))
            for (_, fact), cosines in zip(numbered_facts, similarities, strict=True)
        ),
        documents=documents,
        document_frequencies={
            word: len(facts) for word, facts in zip(words, postings, strict=True)
        },
    )


def _find_allowed(db: Database, session: str | None) -> invariants.Numbers | None:
    if session is None:
        return None
    return np.sort(parse_numbers(db.value(_IN_SESSION, (columns.pack_text(session),))))


def _find_pinned(db: Database, allowed_numbers: invariants.Numbers | None) -> invariants.Numbers:
    pinned_numbers = parse_numbers(db.value(_PINNED))
    return (
        pinned_numbers
        if allowed_numbers is None
        else pinned_numbers[np.isin(pinned_numbers, allowed_numbers)]
    )


def _choose_best(
    db: Database, facts: invariants.Numbers, scores: invariants.Scores, limit: int
) -> invariants.Numbers:
    chosen_numbers, tied_numbers, missing_count = invariants.best_of(facts, scores, limit)
    rows = (
        sorted(db.rows(_IDS, (columns.json_list(tied_numbers.tolist()),))) if missing_count else []
    )
    return np.array(
        [*chosen_numbers.tolist(), *(number for _, number in rows[:missing_count])], dtype=np.int64
    )
