"""Writes, replaces, reads, finds and forgets the facts of a space, and counts their revision.

This module owns the tables `facts`, `fact_terms`, `fact_vectors` and `extracted`. Writers lock the
space, so the revision that they read stays valid. Every transaction that changes facts, or segments
from which facts are extracted, increases the revision. A search finds only current facts, chosen as
on SQLite (`stores/invariants.py`). An unreadable row never hides other rows; `check` reports it."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from recollect.adapters.stores import invariants
from recollect.adapters.stores.postgres import driver, vectors
from recollect.adapters.stores.postgres.link import Statement
from recollect.adapters.stores.postgres.pool import Transaction
from recollect.adapters.stores.postgres.space import SpaceCounters
from recollect.adapters.stores.postgres.words import look_up_space
from recollect.core.values.batch import Batch
from recollect.core.values.fact import (
    Fact,
    FactId,
    FactText,
    FactVectorSet,
    all_rest_on,
    still_supported,
)
from recollect.core.values.recall import AskedVector, FactCandidate, FactCandidates, FactQuery
from recollect.core.values.segment import SegmentId

_STORED: Final = (
    "id", "type", "content", "context", "at", "superseded_by", "sources", "trust", "words",
    "foreign_line", "valid_to", "recorded_at", "subject", "attribute", "evidence", "made_by",
    "change", "session", "pinned", "joint", "fact_no",
)  # fmt: skip
COLUMNS: Final = ", ".join(_STORED)
"""The columns that `decode_facts` reads, in order."""
_PUT: Final = f"""
    INSERT INTO recollect.facts (space_id, {COLUMNS})
    VALUES (%s, {", ".join(["%s"] * len(_STORED))})
    ON CONFLICT (space_id, id)
    DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in _STORED)}
"""  # noqa: S608


def _row(fact: Fact, number: int) -> tuple[Any, ...]:
    spans = [
        replace(span, segment=SegmentId(driver.escape(span.segment))) for span in fact.evidence
    ]
    return (
        fact.id, fact.type, fact.content, fact.context, fact.at, fact.superseded_by,
        driver.texts(fact.sources), fact.trust, driver.texts(fact.words), fact.foreign,
        fact.valid_to, fact.recorded_at, fact.subject, fact.attribute,
        invariants.pack_evidence(spans), fact.made_by, fact.change, fact.session, fact.pinned,
        fact.joint, number,
    )  # fmt: skip


def decode_facts(rows: Iterable[Mapping[str, Any]]) -> list[tuple[int, Fact]]:
    facts = []
    for row in rows:
        with contextlib.suppress(ValueError, TypeError):
            facts.append((row["fact_no"], _fact(**row)))
    return facts


def _fact(**row: Any) -> Fact:
    """Decode a row as a fact. Raise ValueError or TypeError if the row is damaged."""
    del row["fact_no"]
    row["foreign"] = row.pop("foreign_line")
    row["evidence"] = tuple(
        replace(span, segment=SegmentId(driver.unescape(span.segment)))
        for span in invariants.unpack_evidence(row["evidence"])
    )
    row["sources"], row["words"] = tuple(row["sources"]), tuple(row["words"])
    return Fact(**row)


def _names_segment(row: Mapping[str, Any], segments: Iterable[str]) -> bool:
    sources, evidence = row["sources"] or (), row["evidence"] or ""
    return any(segment in sources or driver.escape(segment) in evidence for segment in segments)


_ALL_FACTS: Final = f"""
    SELECT {COLUMNS} FROM recollect.facts
    WHERE space_id = %(space)s
        AND (%(superseded)s OR (superseded_by IS NULL AND valid_to IS NULL))
        AND (%(about_all)s OR subject = ANY(%(subjects)s::text[]))
    ORDER BY at, id
"""  # noqa: S608
BY_ID: Final = f"""
    SELECT {COLUMNS} FROM recollect.facts WHERE space_id = %s AND id = ANY(%s::text[])
"""  # noqa: S608
_UNEMBEDDED: Final = """
    SELECT f.id, f.content FROM recollect.facts AS f
    WHERE f.space_id = %(space)s AND f.superseded_by IS NULL AND f.valid_to IS NULL
        AND NOT EXISTS (
            SELECT FROM recollect.fact_vectors AS v
            WHERE v.space_id = %(space)s AND v.fact_no = f.fact_no AND v.embedder_no = (
                SELECT embedder_no FROM recollect.embedders
                WHERE space_id = %(space)s AND name = %(name)s
            )
        )
    ORDER BY f.id LIMIT %(limit)s
"""
_REVISION: Final = "SELECT facts_revision FROM recollect.counters WHERE space_id = %s"
_READ: Final = "SELECT sequence FROM recollect.extracted WHERE space_id = %s AND session = %s"


async def read_facts(
    work: Transaction,
    ids: Sequence[FactId] | None = None,
    *,
    superseded: bool = False,
    subjects: Collection[str] | None = None,
) -> tuple[Fact, ...]:
    if ids is None:
        parameters = {
            "space": work.space_id,
            "superseded": superseded,
            "about_all": subjects is None,
            "subjects": driver.texts(subjects or ()),
        }
        return tuple(fact for _, fact in decode_facts(await work.records(_ALL_FACTS, parameters)))
    rows = await work.records(BY_ID, (work.space_id, driver.texts(ids)))
    facts = (fact for _, fact in decode_facts(rows))
    return invariants.select_facts(facts, ids, superseded=superseded, subjects=subjects)


async def find_unembedded_facts(
    work: Transaction, embedder: str, *, limit: int
) -> tuple[FactText, ...]:
    rows = await work.rows(_UNEMBEDDED, {"space": work.space_id, "name": embedder, "limit": limit})
    return tuple(FactText(fact=FactId(id_), text=content) for id_, content in rows)


async def read_revision(work: Transaction) -> int:
    row = await work.row(_REVISION, (work.space_id,))
    return 0 if row is None else int(row[0])


async def read_position(work: Transaction, session: str) -> int:
    row = await work.row(_READ, (work.space_id, invariants.session_mark(session)))
    return 0 if row is None else int(row[0])


# A fact may depend on a segment by its evidence alone. `forget_facts` reads unclear evidence.
_RESTING: Final = f"""
    SELECT {COLUMNS} FROM recollect.facts
    WHERE space_id = %(space)s AND (
        sources && %(gone)s::text[]
        OR CASE
            WHEN evidence IS NULL THEN false
            WHEN NOT pg_input_is_valid(evidence, 'json') THEN true
            WHEN json_typeof(evidence::json) <> 'array' THEN true
            ELSE EXISTS (
                SELECT FROM json_array_elements(evidence::json) AS e (span)
                WHERE json_typeof(e.span) <> 'array' OR e.span ->> 0 = ANY(%(gone)s::text[])
            )
        END
    )
"""  # noqa: S608
_FORGOTTEN: Final = """
    SELECT id FROM recollect.forgotten_segments WHERE space_id = %s AND id = ANY(%s::text[])
"""
_RAISE_REVISION: Final = """
    UPDATE recollect.counters
    SET next_fact = next_fact + %(count)s, facts_revision = facts_revision + 1
    WHERE space_id = %(space)s RETURNING next_fact - %(count)s
"""
_LEAVE_SESSIONS: Final = """
    UPDATE recollect.facts SET session = NULL
    WHERE space_id = %s AND session = ANY(%s::text[]) RETURNING 1
"""
_TERMS: Final = driver.RowInsert("fact_terms", "term bigint, fact_no bigint")
_DROP: Final = driver.delete("facts", "id", "text")
_DROP_TERMS: Final = driver.delete("fact_terms", "fact_no", "bigint")
_DROP_VECTORS: Final = """
    DELETE FROM recollect.fact_vectors
    WHERE space_id = %(space)s AND fact_no = ANY(%(numbers)s::bigint[]) AND embedder_no IN (
        SELECT embedder_no FROM recollect.embedders WHERE space_id = %(space)s
    )
"""
_VECTORS: Final = """
    INSERT INTO recollect.fact_vectors (space_id, embedder_no, fact_no, v, half)
    SELECT c.space_id, e.embedder_no, u.fact_no,
        CASE WHEN e.half AND u.exact THEN NULL ELSE u.v END,
        CASE WHEN e.half AND u.exact THEN u.v::halfvec END
    FROM (SELECT space_id FROM recollect.counters WHERE space_id = %s) AS c
    CROSS JOIN unnest(%s::bigint[], %s::vector[], %s::boolean[]) AS u (fact_no, v, exact)
    JOIN recollect.embedders AS e ON e.space_id = %s AND e.embedder_no = %s
    ON CONFLICT DO NOTHING
"""
_READ_TO: Final = """
    INSERT INTO recollect.extracted (space_id, session, sequence) VALUES (%s, %s, %s)
    ON CONFLICT (space_id, session) DO UPDATE
    SET sequence = greatest(extracted.sequence, excluded.sequence)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactLookup:
    """Queries that are sent before the write: missing sources, stored facts and their vectors."""

    forgotten_query: Statement
    stored_query: Statement
    embedder_queries: tuple[Statement, ...]


async def look_up_facts(work: Transaction, batch: Batch) -> FactLookup | None:
    """Queue the queries about a batch's facts; return None if the batch has none."""
    if not (batch.facts or batch.fact_vectors or batch.extracted):
        return None
    ids = {fact.id for fact in batch.facts}
    ids.update(vector.fact for vector_set in batch.fact_vectors for vector in vector_set.vectors)
    return FactLookup(
        forgotten_query=await work.send(
            _FORGOTTEN, (work.space_id, driver.texts(all_rest_on(batch.facts)))
        ),
        stored_query=await work.send(BY_ID, (work.space_id, driver.texts(ids))),
        embedder_queries=tuple(
            [
                await work.send(vectors.EMBEDDER, (work.space_id, vector_set.embedder))
                for vector_set in batch.fact_vectors
            ]
        ),
    )


async def write_facts(
    work: Transaction,
    batch: Batch,
    lookup: FactLookup,
    counters: SpaceCounters,
    refused_ids: frozenset[str],
) -> None:
    """Write a batch's facts. `refused_ids` are the batch's segments that were forgotten before."""
    gone_ids = refused_ids | {id_ for (id_,) in await lookup.forgotten_query.fetchall()}
    rows = await lookup.stored_query.records()
    facts = {fact.id: fact for _, fact in decode_facts(rows)}
    changed_facts = invariants.choose_writable(
        batch.facts, facts, tombstones=counters.tombstones, gone_ids=gone_ids
    )
    written_facts = await _put_facts(
        work, changed_facts, {row["id"]: row["fact_no"] for row in rows}
    )
    numbers = {
        row["id"]: row["fact_no"]
        for row in rows
        if row["superseded_by"] is None and row["valid_to"] is None
    }
    for id_, (number, fact) in written_facts.items():
        numbers.pop(id_, None)
        if fact.current:
            numbers[id_] = number
    for vector_set, query in zip(batch.fact_vectors, lookup.embedder_queries, strict=True):
        embedder_row = await query.fetchone()
        await _write_vectors(work, vector_set, embedder_row, numbers, counters)
    for read_to in batch.extracted:
        arguments = (work.space_id, invariants.session_mark(read_to.session), read_to.sequence)
        await work.send(_READ_TO, arguments)


async def forget_facts(
    work: Transaction, named_ids: Sequence[FactId], twin_by_segment: Mapping[str, str | None]
) -> tuple[FactId, ...]:
    """Remove the facts that the request names, or whose sources were all removed. A fact with other
    sources loses only the removed sources. `twin_by_segment` maps each forgotten segment to one
    with the same words, or None. An unreadable fact is removed together with any segment that it
    names."""
    rows = await work.records(BY_ID, (work.space_id, driver.texts(named_ids))) if named_ids else []
    if twin_by_segment:
        rows += await work.records(
            _RESTING, {"space": work.space_id, "gone": driver.texts(twin_by_segment)}
        )
    numbers = {row["id"]: row["fact_no"] for row in rows}
    facts = {fact.id: fact for _, fact in decode_facts(rows)}
    twins = {segment: twin for segment, twin in twin_by_segment.items() if twin is not None}
    updates = {
        id_: None if id_ in named_ids else still_supported(fact, twin_by_segment.keys(), twins)
        for id_, fact in facts.items()
    }
    removed_ids = {id_ for id_, fact in updates.items() if fact is None}
    unread_rows = (row for row in rows if row["id"] not in facts)
    removed_ids.update(
        row["id"]
        for row in unread_rows
        if row["id"] in named_ids or _names_segment(row, twin_by_segment)
    )
    await _drop_index(work, (numbers[id_] for id_ in sorted(removed_ids)))
    if removed_ids:
        await work.send(_DROP, (work.space_id, driver.texts(sorted(removed_ids))))
    changed_facts = [
        fact for id_, fact in updates.items() if fact is not None and fact != facts[id_]
    ]
    await _put_facts(work, changed_facts, numbers)
    if removed_ids or twin_by_segment:
        await raise_revision(work)
    return tuple(sorted(removed_ids))


async def leave_sessions(work: Transaction, sessions: Sequence[str]) -> None:
    if sessions and await work.rows(_LEAVE_SESSIONS, (work.space_id, driver.texts(sessions))):
        await raise_revision(work)


async def raise_revision(work: Transaction, count: int = 0) -> int:
    """Increase the revision. Return the first of `count` new numbers for facts."""
    row = await work.row(_RAISE_REVISION, {"space": work.space_id, "count": count})
    assert row is not None
    return int(row[0])


async def _put_facts(
    work: Transaction, facts: Sequence[Fact], number_by_id: Mapping[FactId, int]
) -> dict[FactId, tuple[int, Fact]]:
    if not facts:
        return {}
    await _drop_index(work, (number_by_id[fact.id] for fact in facts if fact.id in number_by_id))
    first = await raise_revision(work, len(facts))
    numbered_facts = {fact.id: (number, fact) for number, fact in enumerate(facts, first)}
    word_rows: list[tuple[int, int]] = []
    for number, fact in numbered_facts.values():
        await work.send(_PUT, (work.space_id, *_row(fact, number)))
        if fact.current:
            word_rows += ((word, number) for word in invariants.word_numbers(fact.words))
    await work.insert(_TERMS, word_rows)
    return numbered_facts


async def _drop_index(work: Transaction, numbers: Iterable[int]) -> None:
    if dropped_numbers := list(numbers):
        number_array = driver.int8s(dropped_numbers)
        await work.send(_DROP_TERMS, (work.space_id, number_array))
        await work.send(_DROP_VECTORS, {"space": work.space_id, "numbers": number_array})


async def _write_vectors(
    work: Transaction,
    vector_set: FactVectorSet,
    embedder_row: tuple[Any, ...] | None,
    numbers: Mapping[FactId, int],
    counters: SpaceCounters,
) -> None:
    embedder = vectors.find_embedder(vector_set, embedder_row, counters)
    new_values: dict[int, bytes] = {}
    for vector in vector_set.vectors:
        if vector.fact in numbers:
            new_values.setdefault(numbers[vector.fact], vector.values)
    if not new_values:
        return
    if embedder is None:
        embedder = await vectors.add_embedder(work, vector_set, counters)
    rows = np.frombuffer(b"".join(new_values.values()), "<f4").reshape(
        len(new_values), vector_set.dimensions
    )
    vector_array = driver.vectors(rows, work.vector_oid)
    exact = driver.bools(vectors.exact_as_halves(rows).tolist())
    columns = (driver.int8s(list(new_values)), vector_array, exact)
    await work.send(_VECTORS, (work.space_id, *columns, work.space_id, embedder))


_TIE_MARGIN: Final = 2e-6
"""Distances this close to the last chosen one are compared again, more precisely."""

_CURRENT: Final = """
    SELECT count(*), string_agg(int8send(c.fact_no), ''::bytea) FILTER (WHERE c.here),
        string_agg(int8send(c.fact_no), ''::bytea) FILTER (WHERE c.here AND c.pinned)
    FROM (
        SELECT fact_no, pinned,
            %(anywhere)s OR session IS NULL OR session = %(session)s AS here
        FROM recollect.facts
        WHERE space_id = %(space)s AND superseded_by IS NULL AND valid_to IS NULL
    ) AS c
"""
_HOLDING: Final = """
    SELECT term, string_agg(int8send(fact_no), ''::bytea) FROM recollect.fact_terms
    WHERE space_id = %s AND term = ANY(%s::bigint[]) GROUP BY term
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
# A vector of length zero has no direction, so it gets the distance of unrelated vectors.
_NEAREST: Final = """
    WITH compared AS MATERIALIZED (
        SELECT fact_no, coalesce(half::vector, v) AS v,
            coalesce(nullif(coalesce(half::vector, v) <=> %(asked)s::vector, 'NaN'), 1) AS distance
        FROM recollect.fact_vectors
        WHERE space_id = %(space)s AND embedder_no = %(embedder)s AND (%(anywhere)s OR fact_no IN (
            SELECT fact_no FROM recollect.facts
            WHERE space_id = %(space)s AND superseded_by IS NULL AND valid_to IS NULL
                AND (session IS NULL OR session = %(session)s)
        ))
    )
    SELECT c.fact_no, c.v FROM compared AS c
    WHERE c.distance <= %(near)s + coalesce((
        SELECT e.distance FROM compared AS e ORDER BY e.distance
        OFFSET greatest(%(limit)s, 1) - 1 LIMIT 1
    ), 2)
"""
_FACT_VECTORS: Final = """
    SELECT fact_no, coalesce(half::vector, v) FROM recollect.fact_vectors
    WHERE space_id = %s AND embedder_no = %s AND fact_no = ANY(%s::bigint[])
"""
_CHOSEN: Final = f"""
    SELECT {COLUMNS} FROM recollect.facts
    WHERE space_id = %s AND fact_no = ANY(%s::bigint[]) ORDER BY id
"""  # noqa: S608


async def find_fact_candidates(work: Transaction, query: FactQuery) -> FactCandidates:
    space = await look_up_space(work)
    words = tuple(dict.fromkeys(query.words))
    if not space.has_facts:
        return FactCandidates(document_frequencies=dict.fromkeys(words, 0))
    space_id = work.space_id
    embedders: list[int | None] = []
    for vector in query.vectors:
        vectors.require_dimensions(vector, embedder := space.embedders.get(vector.embedder))
        has_direction = invariants.direction_of(vector.values) is not None
        embedders.append(embedder[0] if embedder is not None and has_direction else None)
    terms = [invariants.word_number(word) for word in words]
    parameters = {
        "space": space_id,
        "anywhere": query.session is None,
        "session": query.session or "",
        "types": driver.texts(query.types),
        "limit": max(0, query.limit),
        "near": _TIE_MARGIN,
    }
    current_query = await work.send(_CURRENT, parameters)
    word_query = await work.send(_HOLDING, (space_id, driver.int8s(terms)))
    type_query = await work.send(_OF_TYPES, parameters)
    nearest_queries = [
        None
        if number is None
        else await work.send_planned(
            _NEAREST, {**parameters, "embedder": number, "asked": driver.vector(vector.values)}
        )
        for vector, number in zip(query.vectors, embedders, strict=True)
    ]
    documents, allowed_raw, pinned_raw = await current_query.fetchone() or (0, None, None)
    facts_by_term = {
        term: driver.big_endian(raw, "i8") for term, raw in await word_query.fetchall()
    }
    postings = [np.sort(facts_by_term.get(term, invariants.NO_NUMBERS)) for term in terms]
    word_matches = invariants.keep_allowed(
        *invariants.score_by_words(postings, documents), driver.big_endian(allowed_raw, "i8")
    )
    (of_types,) = await type_query.fetchone() or (None,)
    chosen_numbers = [driver.big_endian(pinned_raw, "i8"), driver.big_endian(of_types, "i8")]
    chosen_numbers.append(await _choose_best(work, *word_matches, query.limit))
    for vector, nearest_query in zip(query.vectors, nearest_queries, strict=True):
        if nearest_query is not None:
            cosines = _cosines_of(vector, await nearest_query.fetchall())
            numbers = np.array(list(cosines), np.int64)
            scores = np.array(list(cosines.values()), np.float64)
            chosen_numbers.append(await _choose_best(work, numbers, scores, query.limit))
    numbers = np.unique(np.concatenate(chosen_numbers))
    facts = await _describe(work, numbers, query.vectors, embedders)
    return FactCandidates(
        facts=facts,
        documents=documents,
        document_frequencies={
            word: len(holders) for word, holders in zip(words, postings, strict=True)
        },
    )


def _cosines_of(vector: AskedVector, rows: Sequence[tuple[Any, ...]]) -> dict[int, float]:
    if not rows:
        return {}
    cosines = vectors.compare(vector, [raw for _, raw in rows])
    return dict(zip([number for number, _ in rows], cosines.tolist(), strict=True))


async def _choose_best(
    work: Transaction, facts: invariants.Numbers, scores: invariants.Scores, limit: int
) -> invariants.Numbers:
    chosen_numbers, tied_numbers, missing_count = invariants.best_of(facts, scores, limit)
    rows = (
        sorted(await work.rows(_IDS, (work.space_id, driver.int8s(tied_numbers))))
        if missing_count
        else []
    )
    return np.array(
        [*chosen_numbers.tolist(), *(number for _, number in rows[:missing_count])], np.int64
    )


async def _describe(
    work: Transaction,
    facts: invariants.Numbers,
    asked_vectors: Sequence[AskedVector],
    embedders: Sequence[int | None],
) -> tuple[FactCandidate, ...]:
    if not len(facts):
        return ()
    fact_query = await work.send(_CHOSEN, (work.space_id, driver.int8s(facts)))
    vector_queries = [
        None
        if embedder is None
        else await work.send(_FACT_VECTORS, (work.space_id, embedder, driver.int8s(facts)))
        for embedder in embedders
    ]
    cosines_by_fact = [
        {} if query is None else _cosines_of(vector, await query.fetchall())
        for vector, query in zip(asked_vectors, vector_queries, strict=True)
    ]
    return tuple(
        FactCandidate(
            fact=fact, similarities=tuple(cosines.get(number) for cosines in cosines_by_fact)
        )
        for number, fact in decode_facts(await fact_query.records())
    )
