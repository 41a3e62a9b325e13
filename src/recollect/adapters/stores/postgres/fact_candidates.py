"""Finds the current facts that may answer: pinned ones, those that share words, the nearest.

Must never score for the caller, and never read facts that it does not hand over. Who is chosen is
decided as on SQLite: by words in `stores/fact_scores.py`, by vector in double precision wherever
that could change it. Always holds: ties go by id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from recollect.adapters.stores.postgres.driver import big_endian, int8s, texts, vector
from recollect.adapters.stores.postgres.facts import COLUMNS, readable_facts
from recollect.adapters.stores.postgres.pool import Statement, Transaction
from recollect.adapters.stores.postgres.vectors import EMBEDDER, cosines, require_dimensions, usable
from recollect.adapters.stores.scoring import (
    NO_NUMBERS,
    Numbers,
    Scores,
    among,
    best_of,
    scores_by_words,
    word_number,
)
from recollect.core.values.recall import AskedVector, FactCandidate, FactCandidates, FactQuery

_NEAR: Final = 2e-6
"""The server sums in single precision: what is so near the last place is compared again."""

_CURRENT: Final = """
    SELECT count(*) FROM recollect.facts
    WHERE space_id = %s AND superseded_by IS NULL AND valid_to IS NULL
"""
_HOLDING: Final = """
    SELECT term, string_agg(int8send(fact_no), ''::bytea) FROM recollect.fact_terms
    WHERE space_id = %s AND term = ANY(%s::bigint[]) GROUP BY term
"""
_IN_SESSION: Final = """
    SELECT string_agg(int8send(fact_no), ''::bytea) FROM recollect.facts
    WHERE space_id = %s AND superseded_by IS NULL AND valid_to IS NULL
        AND (session IS NULL OR session = %s)
"""
_PINNED: Final = """
    SELECT string_agg(int8send(fact_no), ''::bytea) FROM recollect.facts
    WHERE space_id = %s AND pinned AND superseded_by IS NULL AND valid_to IS NULL
"""
_OF_TYPES: Final = """
    SELECT string_agg(int8send(fact_no), ''::bytea) FROM (
        SELECT fact_no FROM recollect.facts
        WHERE space_id = %(space)s AND superseded_by IS NULL AND valid_to IS NULL
            AND type = ANY(%(types)s::text[])
            AND (%(anywhere)s OR session IS NULL OR session = %(session)s)
        ORDER BY at DESC, id LIMIT %(limit)s
    ) AS newest
"""
_IDS: Final = """
    SELECT id, fact_no FROM recollect.facts
    WHERE space_id = %s AND fact_no = ANY(%s::bigint[])
"""
# A vector of length zero has no direction: its distance is that of what has nothing in common.
# The embedder is looked up here, so that nothing has to be known before this is asked.
_NEAREST: Final = """
    WITH compared AS MATERIALIZED (
        SELECT fact_no, coalesce(half::vector, v) AS v,
            coalesce(nullif(coalesce(half::vector, v) <=> %(asked)s::vector, 'NaN'), 1) AS distance
        FROM recollect.fact_vectors
        WHERE space_id = %(space)s AND embedder_no = (
            SELECT embedder_no FROM recollect.embedders
            WHERE space_id = %(space)s AND name = %(embedder)s AND dimensions = %(dimensions)s
        ) AND (%(anywhere)s OR fact_no IN (
            SELECT fact_no FROM recollect.facts
            WHERE space_id = %(space)s AND superseded_by IS NULL AND valid_to IS NULL
                AND (session IS NULL OR session = %(session)s)
        ))
    )
    SELECT c.fact_no, c.v FROM compared AS c
    WHERE c.distance <= %(near)s + coalesce((
        SELECT e.distance FROM compared AS e ORDER BY e.distance OFFSET %(limit)s - 1 LIMIT 1
    ), 2)
"""
_VECTORS: Final = """
    SELECT fact_no, coalesce(half::vector, v) FROM recollect.fact_vectors
    WHERE space_id = %s AND embedder_no = %s AND fact_no = ANY(%s::bigint[])
"""
_CHOSEN: Final = f"""
    SELECT {COLUMNS} FROM recollect.facts
    WHERE space_id = %s AND fact_no = ANY(%s::bigint[]) ORDER BY id
"""  # noqa: S608


async def find(work: Transaction, query: FactQuery) -> FactCandidates:
    """What may answer the query."""
    space = work.space_id
    words = tuple(dict.fromkeys(query.words))
    terms = [word_number(word) for word in words]
    counting = await work.send(_CURRENT, (space,))
    holding = await work.send(_HOLDING, (space, int8s(terms)))
    pinning = await work.send(_PINNED, (space,))
    allowing = None
    if query.session is not None:
        allowing = await work.send(_IN_SESSION, (space, query.session))
    typed = await _ask_of_types(work, query) if query.types else None
    asking = [await work.send(EMBEDDER, (space, vector.embedder)) for vector in query.vectors]
    nearing = [await _ask_nearest(work, query, one) for one in query.vectors]
    (documents,) = await counting.fetchone() or (0,)
    allowed = None if allowing is None else _numbers(await allowing.fetchone())
    found = {term: big_endian(packed, "i8") for term, packed in await holding.fetchall()}
    postings = [np.sort(found.get(term, NO_NUMBERS)) for term in terms]
    by_words = among(*scores_by_words(postings, documents), allowed)
    pinned = _numbers(await pinning.fetchone())
    if allowed is not None:
        pinned = pinned[np.isin(pinned, allowed)]
    chosen = [pinned, await _best(work, *by_words, query.limit)]
    if typed is not None:
        chosen.append(_numbers(await typed.fetchone()))
    embedders: list[int | None] = []
    for one, known, near in zip(query.vectors, asking, nearing, strict=True):
        row = await known.fetchone()
        require_dimensions(one, row)
        embedders.append(None if row is None or near is None else row[0])
        if near is not None:
            similar = _cosines_of(one, await near.fetchall())
            numbers, scores = list(similar), list(similar.values())
            best = _best(
                work, np.array(numbers, np.int64), np.array(scores, np.float64), query.limit
            )
            chosen.append(await best)
    facts = await _described(work, np.unique(np.concatenate(chosen)), query.vectors, embedders)
    return FactCandidates(
        facts=facts,
        documents=documents,
        document_frequencies={word: len(held) for word, held in zip(words, postings, strict=True)},
    )


async def _ask_of_types(work: Transaction, query: FactQuery) -> Statement:
    """Ask for the newest facts of these types."""
    given = {
        "space": work.space_id,
        "types": texts(query.types),
        "anywhere": query.session is None,
        "session": query.session or "",
        "limit": max(0, query.limit),
    }
    return await work.send(_OF_TYPES, given)


async def _ask_nearest(work: Transaction, query: FactQuery, asked: AskedVector) -> Statement | None:
    """Ask for the facts nearest to a vector, and their own; None where it has no direction."""
    if not usable(asked):
        return None
    given = {
        "space": work.space_id,
        "embedder": asked.embedder,
        "dimensions": len(asked.values) // 4,
        "asked": vector(asked.values),
        "anywhere": query.session is None,
        "session": query.session or "",
        "near": _NEAR,
        "limit": max(1, query.limit),
    }
    return await work.send(_NEAREST, given)


def _numbers(row: tuple[Any, ...] | None) -> Numbers:
    return NO_NUMBERS if row is None else np.sort(big_endian(row[0], "i8"))


def _cosines_of(asked: AskedVector, rows: Sequence[tuple[Any, ...]]) -> dict[int, float]:
    """The cosine of each of these facts, given with their vectors."""
    if not rows:
        return {}
    alike = cosines(asked, [raw for _, raw in rows])
    return dict(zip([number for number, _ in rows], alike.tolist(), strict=True))


async def _best(work: Transaction, facts: Numbers, scores: Scores, limit: int) -> Numbers:
    """The facts with the highest scores; ties by id."""
    best = best_of(facts, scores, limit)
    if best.settled:
        return np.concatenate([best.sure, best.tied])
    rows = await work.rows(_IDS, (work.space_id, int8s(best.tied)))
    tied = sorted(rows)
    taken = np.array([number for _, number in tied[: best.wanted]], np.int64)
    return np.concatenate([best.sure, taken])


async def _described(
    work: Transaction, facts: Numbers, asked: Sequence[AskedVector], embedders: Sequence[int | None]
) -> tuple[FactCandidate, ...]:
    """What is to be said of these facts, by id."""
    if not len(facts):
        return ()
    reading = await work.send(_CHOSEN, (work.space_id, int8s(facts)))
    comparing = [
        None
        if embedder is None
        else await work.send(_VECTORS, (work.space_id, embedder, int8s(facts)))
        for embedder in embedders
    ]
    similar = [
        {} if compared is None else _cosines_of(vector, await compared.fetchall())
        for vector, compared in zip(asked, comparing, strict=True)
    ]
    return tuple(
        FactCandidate(fact=fact, similarities=tuple(near.get(number) for near in similar))
        for number, fact in readable_facts(await reading.records())
    )
