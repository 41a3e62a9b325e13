"""Finds the current facts that may answer: pinned ones, those that share words, the nearest.

In one snapshot and one thread. Must never score for the caller, and never read facts that it does
not hand over. Always holds: the same store and query give the same candidates; ties go by id.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from recollect.stores.fact_scores import (
    NO_NUMBERS,
    Numbers,
    Scores,
    among,
    best_of,
    scores_by_words,
    word_number,
)
from recollect.stores.sqlite.database import Database
from recollect.stores.sqlite.fact_rows import SELECT_FACT, numbered_fact
from recollect.stores.sqlite.fact_vectors import FactMatrices
from recollect.stores.sqlite.matrix import number_list
from recollect.stores.sqlite.nearest import asked_vectors
from recollect.stores.sqlite.packing import json_list, pack_text
from recollect.stores.sqlite.rows import readable
from recollect.values.lookup import FactCandidate, FactCandidates, FactQuery

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
_CHOSEN: Final = SELECT_FACT + "WHERE number IN (SELECT value FROM json_each(?)) ORDER BY id"  # noqa: S608


def find_fact_candidates(db: Database, matrices: FactMatrices, query: FactQuery) -> FactCandidates:
    """What may answer the query, with what scoring it needs."""
    documents: int = db.value(_DOCUMENTS)
    allowed = _allowed(db, query.session)
    words = tuple(dict.fromkeys(query.words))
    postings = [number_list(db.value(_HOLDING, (word_number(word),))) for word in words]
    by_words = among(*scores_by_words(postings, documents), allowed)
    chosen = [_pinned(db, allowed), _best(db, *by_words, query.limit)]
    if query.types:
        session = None if query.session is None else pack_text(query.session)
        given = (json_list(query.types), session is None, session, max(0, query.limit))
        chosen.append(number_list(db.value(_OF_TYPES, given)))
    asked = asked_vectors(db, matrices, query.vectors)
    for one in asked:
        if one is not None and query.limit > 0:
            near = one.near(query.limit, allowed=allowed, left_out=NO_NUMBERS, warm=None)
            chosen.append(_best(db, *near, query.limit))
    numbers = json_list(np.unique(np.concatenate(chosen)).tolist())
    found = readable(db.rows(_CHOSEN, (numbers,)), numbered_fact)
    places = np.array([number for number, _ in found], dtype=np.int64)
    near_to = [[None] * len(found) if one is None else one.cosines(places) for one in asked]
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


def _allowed(db: Database, session: str | None) -> Numbers | None:
    """The current facts of a session and of none, ascending; None when all may be chosen."""
    if session is None:
        return None
    return np.sort(number_list(db.value(_IN_SESSION, (pack_text(session),))))


def _pinned(db: Database, allowed: Numbers | None) -> Numbers:
    pinned = number_list(db.value(_PINNED))
    return pinned if allowed is None else pinned[np.isin(pinned, allowed)]


def _best(db: Database, facts: Numbers, scores: Scores, limit: int) -> Numbers:
    """The facts with the highest scores; ties by id."""
    best = best_of(facts, scores, limit)
    if best.settled:
        return np.concatenate([best.sure, best.tied])
    tied = sorted(db.rows(_IDS, (json_list(best.tied.tolist()),)))
    taken = np.array([number for _, number in tied[: best.wanted]], dtype=np.int64)
    return np.concatenate([best.sure, taken])
