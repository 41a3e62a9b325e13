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
"""The columns that `readable_facts` reads, in order."""
_PUT: Final = f"""
    INSERT INTO recollect.facts (space_id, {COLUMNS})
    VALUES (%s, {", ".join(["%s"] * len(_STORED))})
    ON CONFLICT (space_id, id)
    DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in _STORED)}
"""  # noqa: S608


def _row(fact: Fact, number: int) -> tuple[Any, ...]:
    spans = [
        replace(span, segment=SegmentId(driver.escaped(span.segment))) for span in fact.evidence
    ]
    return (
        fact.id, fact.type, fact.content, fact.context, fact.at, fact.superseded_by,
        driver.texts(fact.sources), fact.trust, driver.texts(fact.words), fact.foreign,
        fact.valid_to, fact.recorded_at, fact.subject, fact.attribute,
        invariants.pack_evidence(spans), fact.made_by, fact.change, fact.session, fact.pinned,
        fact.joint, number,
    )  # fmt: skip


def readable_facts(rows: Iterable[Mapping[str, Any]]) -> list[tuple[int, Fact]]:
    found = []
    for row in rows:
        with contextlib.suppress(ValueError, TypeError):
            found.append((row["fact_no"], _fact(**row)))
    return found


def _fact(**row: Any) -> Fact:
    """Decode a row as a fact. Raise ValueError or TypeError if the row is damaged."""
    del row["fact_no"]
    row["foreign"] = row.pop("foreign_line")
    row["evidence"] = tuple(
        replace(span, segment=SegmentId(driver.plain(span.segment)))
        for span in invariants.unpack_evidence(row["evidence"])
    )
    row["sources"], row["words"] = tuple(row["sources"]), tuple(row["words"])
    return Fact(**row)


def _names(row: Mapping[str, Any], segments: Iterable[str]) -> bool:
    sources, evidence = row["sources"] or (), row["evidence"] or ""
    return any(segment in sources or driver.escaped(segment) in evidence for segment in segments)


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
        given = {
            "space": work.space_id,
            "superseded": superseded,
            "about_all": subjects is None,
            "subjects": driver.texts(subjects or ()),
        }
        return tuple(fact for _, fact in readable_facts(await work.records(_ALL_FACTS, given)))
    rows = await work.records(BY_ID, (work.space_id, driver.texts(ids)))
    found = (fact for _, fact in readable_facts(rows))
    return invariants.select_facts(found, ids, superseded=superseded, subjects=subjects)


async def unembedded_facts(work: Transaction, embedder: str, *, limit: int) -> tuple[FactText, ...]:
    given = {"space": work.space_id, "name": embedder, "limit": limit}
    rows = await work.rows(_UNEMBEDDED, given)
    return tuple(FactText(fact=FactId(id_), text=content) for id_, content in rows)


async def facts_revision(work: Transaction) -> int:
    row = await work.row(_REVISION, (work.space_id,))
    return 0 if row is None else int(row[0])


async def extracted_to(work: Transaction, session: str) -> int:
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

    gone: Statement
    held: Statement
    embedders: tuple[Statement, ...]


async def look_up_facts(work: Transaction, batch: Batch) -> FactLookup | None:
    """Queue the queries about a batch's facts; return None if the batch has none."""
    if not (batch.facts or batch.fact_vectors or batch.extracted):
        return None
    ids = {fact.id for fact in batch.facts}
    ids.update(vector.fact for given in batch.fact_vectors for vector in given.vectors)
    return FactLookup(
        gone=await work.send(_FORGOTTEN, (work.space_id, driver.texts(all_rest_on(batch.facts)))),
        held=await work.send(BY_ID, (work.space_id, driver.texts(ids))),
        embedders=tuple(
            [
                await work.send(vectors.EMBEDDER, (work.space_id, one.embedder))
                for one in batch.fact_vectors
            ]
        ),
    )


async def write_facts(
    work: Transaction,
    batch: Batch,
    lookup: FactLookup,
    counters: SpaceCounters,
    refused: frozenset[str],
) -> None:
    """Write a batch's facts. `refused` are the batch's segments that were forgotten before."""
    removed = refused | {id_ for (id_,) in await lookup.gone.fetchall()}
    rows = await lookup.held.records()
    facts = {fact.id: fact for _, fact in readable_facts(rows)}
    changed = invariants.writable(batch.facts, facts, tombstones=counters.tombstoned, gone=removed)
    written = await _put(work, changed, {row["id"]: row["fact_no"] for row in rows})
    numbers = {
        row["id"]: row["fact_no"]
        for row in rows
        if row["superseded_by"] is None and row["valid_to"] is None
    }
    for id_, (number, fact) in written.items():
        numbers.pop(id_, None)
        if fact.current:
            numbers[id_] = number
    for given, asking in zip(batch.fact_vectors, lookup.embedders, strict=True):
        stored = await asking.fetchone()
        await _write_vectors(work, given, stored, numbers, counters)
    for read_to in batch.extracted:
        given_ = (work.space_id, invariants.session_mark(read_to.session), read_to.sequence)
        await work.send(_READ_TO, given_)


async def forget_facts(
    work: Transaction, named: Sequence[FactId], gone: Mapping[str, str | None]
) -> tuple[FactId, ...]:
    """Remove the facts that the request names, or whose sources were all removed. A fact with other
    sources loses only the removed sources. `gone` maps each forgotten segment to one with the same
    words, or None. An unreadable fact is removed together with any segment that it names."""
    rows = await work.records(BY_ID, (work.space_id, driver.texts(named))) if named else []
    if gone:
        rows += await work.records(_RESTING, {"space": work.space_id, "gone": driver.texts(gone)})
    numbers = {row["id"]: row["fact_no"] for row in rows}
    facts = {fact.id: fact for _, fact in readable_facts(rows)}
    twins = {segment: twin for segment, twin in gone.items() if twin is not None}
    left = {
        id_: None if id_ in named else still_supported(fact, gone.keys(), twins)
        for id_, fact in facts.items()
    }
    removed = {id_ for id_, fact in left.items() if fact is None}
    unread = (row for row in rows if row["id"] not in facts)
    removed.update(row["id"] for row in unread if row["id"] in named or _names(row, gone))
    await _drop_index(work, (numbers[id_] for id_ in sorted(removed)))
    if removed:
        await work.send(_DROP, (work.space_id, driver.texts(sorted(removed))))
    changed = [fact for id_, fact in left.items() if fact is not None and fact != facts[id_]]
    await _put(work, changed, numbers)
    if removed or gone:
        await raise_revision(work)
    return tuple(sorted(removed))


async def leave_sessions(work: Transaction, sessions: Sequence[str]) -> None:
    if sessions and await work.rows(_LEAVE_SESSIONS, (work.space_id, driver.texts(sessions))):
        await raise_revision(work)


async def raise_revision(work: Transaction, count: int = 0) -> int:
    """Increase the revision. Return the first of `count` new numbers for facts."""
    row = await work.row(_RAISE_REVISION, {"space": work.space_id, "count": count})
    assert row is not None
    return int(row[0])


async def _put(
    work: Transaction, facts: Sequence[Fact], held: Mapping[FactId, int]
) -> dict[FactId, tuple[int, Fact]]:
    if not facts:
        return {}
    await _drop_index(work, (held[fact.id] for fact in facts if fact.id in held))
    first = await raise_revision(work, len(facts))
    numbered = {fact.id: (number, fact) for number, fact in enumerate(facts, first)}
    places: list[tuple[int, int]] = []
    for number, fact in numbered.values():
        await work.send(_PUT, (work.space_id, *_row(fact, number)))
        if fact.current:
            places += ((word, number) for word in invariants.word_numbers(fact.words))
    await work.insert(_TERMS, places)
    return numbered


async def _drop_index(work: Transaction, numbers: Iterable[int]) -> None:
    if dropped := list(numbers):
        known = driver.int8s(dropped)
        await work.send(_DROP_TERMS, (work.space_id, known))
        await work.send(_DROP_VECTORS, {"space": work.space_id, "numbers": known})


async def _write_vectors(
    work: Transaction,
    given: FactVectorSet,
    stored: tuple[Any, ...] | None,
    numbers: Mapping[FactId, int],
    counters: SpaceCounters,
) -> None:
    known = vectors.known_embedder(given, stored, counters)
    new: dict[int, bytes] = {}
    for one in given.vectors:
        if one.fact in numbers:
            new.setdefault(numbers[one.fact], one.values)
    if not new:
        return
    if known is None:
        known = await vectors.new_embedder(work, given, counters)
    rows = np.frombuffer(b"".join(new.values()), "<f4").reshape(len(new), given.dimensions)
    encoded = driver.vectors(rows, work.vector_oid)
    exact = driver.bools(vectors.exact_as_halves(rows).tolist())
    given_rows = (driver.int8s(list(new)), encoded, exact)
    await work.send(_VECTORS, (work.space_id, *given_rows, work.space_id, known))


_NEAR: Final = 2e-6
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


async def find(work: Transaction, query: FactQuery) -> FactCandidates:
    stored = await look_up_space(work)
    words = tuple(dict.fromkeys(query.words))
    if not stored.has_facts:
        return FactCandidates(document_frequencies=dict.fromkeys(words, 0))
    space = work.space_id
    embedders: list[int | None] = []
    for one in query.vectors:
        vectors.require_dimensions(one, known := stored.embedders.get(one.embedder))
        whole = invariants.direction_of(one.values) is not None
        embedders.append(known[0] if known is not None and whole else None)
    terms = [invariants.word_number(word) for word in words]
    given = {
        "space": space,
        "anywhere": query.session is None,
        "session": query.session or "",
        "types": driver.texts(query.types),
        "limit": max(0, query.limit),
        "near": _NEAR,
    }
    counting = await work.send(_CURRENT, given)
    holding = await work.send(_HOLDING, (space, driver.int8s(terms)))
    typed = await work.send(_OF_TYPES, given)
    nearing = [
        None
        if number is None
        else await work.send_planned(
            _NEAREST, {**given, "embedder": number, "asked": driver.vector(one.values)}
        )
        for one, number in zip(query.vectors, embedders, strict=True)
    ]
    documents, allowed, pinned = await counting.fetchone() or (0, None, None)
    found = {term: driver.big_endian(packed, "i8") for term, packed in await holding.fetchall()}
    postings = [np.sort(found.get(term, invariants.NO_NUMBERS)) for term in terms]
    by_words = invariants.among(
        *invariants.scores_by_words(postings, documents), driver.big_endian(allowed, "i8")
    )
    (of_types,) = await typed.fetchone() or (None,)
    chosen = [driver.big_endian(pinned, "i8"), driver.big_endian(of_types, "i8")]
    chosen.append(await _best(work, *by_words, query.limit))
    for one, near in zip(query.vectors, nearing, strict=True):
        if near is not None:
            similar = _cosines_of(one, await near.fetchall())
            numbers = np.array(list(similar), np.int64)
            scores = np.array(list(similar.values()), np.float64)
            chosen.append(await _best(work, numbers, scores, query.limit))
    numbers = np.unique(np.concatenate(chosen))
    facts = await _describe(work, numbers, query.vectors, embedders)
    return FactCandidates(
        facts=facts,
        documents=documents,
        document_frequencies={word: len(held) for word, held in zip(words, postings, strict=True)},
    )


def _cosines_of(asked: AskedVector, rows: Sequence[tuple[Any, ...]]) -> dict[int, float]:
    if not rows:
        return {}
    alike = vectors.compare(asked, [raw for _, raw in rows])
    return dict(zip([number for number, _ in rows], alike.tolist(), strict=True))


async def _best(
    work: Transaction, facts: invariants.Numbers, scores: invariants.Scores, limit: int
) -> invariants.Numbers:
    chosen, tied, wanted = invariants.best_of(facts, scores, limit)
    rows = sorted(await work.rows(_IDS, (work.space_id, driver.int8s(tied)))) if wanted else []
    return np.array([*chosen.tolist(), *(number for _, number in rows[:wanted])], np.int64)


async def _describe(
    work: Transaction,
    facts: invariants.Numbers,
    asked: Sequence[AskedVector],
    embedders: Sequence[int | None],
) -> tuple[FactCandidate, ...]:
    if not len(facts):
        return ()
    reading = await work.send(_CHOSEN, (work.space_id, driver.int8s(facts)))
    comparing = [
        None
        if embedder is None
        else await work.send(_FACT_VECTORS, (work.space_id, embedder, driver.int8s(facts)))
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
