"""Answers a search: the best passages by words and by vector, each with what scoring needs.

The two halves run on two connections at the same time; the passages they name are then read
with counts and similarities of their own. Never scores for good: `search` does. Always holds:
the statistics are those of the space's warm index, at the moment the words were looked up.
"""

from __future__ import annotations

import asyncio
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from recollect.stores.postgres.lexical import (
    Forwards,
    Hit,
    hits_in,
    order_candidates,
    postings_of,
    term_of,
)
from recollect.stores.postgres.packing import forwards_of
from recollect.stores.postgres.pool import Transaction
from recollect.stores.postgres.vectors import ALLOWED, filtered, filters, nearest
from recollect.stores.postgres.wire import (
    big_endian,
    int8s,
    maybe_plain,
    plain,
    vector,
)
from recollect.values.lookup import Candidate, CandidateQuery, Candidates
from recollect.values.message import EntryKey
from recollect.values.segment import SegmentId

if TYPE_CHECKING:
    from uuid import UUID

    from recollect.stores.postgres.fleet import PostgresFleet

_COLD_AT_ONCE: Final = 4_000

_STATISTICS: Final = """
    SELECT documents, total_length FROM recollect.counters WHERE space_id = %s
"""
_RUNS: Final = """
    SELECT run, first_passage, dead FROM recollect.runs WHERE space_id = %s
"""
# Each LATERAL … OFFSET 0 is a look-up by key that no plan turns into a scan, whatever share of a
# table the space is: the planner knows tables, not spaces.
_POSTINGS: Final = """
    SELECT r.run, t.term, p.block
    FROM unnest(%(terms)s::bigint[]) AS t (term)
    CROSS JOIN recollect.runs AS r
    CROSS JOIN LATERAL (
        SELECT block FROM recollect.postings
        WHERE space_id = %(space)s AND run = r.run
            AND bucket = (t.term >> r.shift)::integer
            AND first_term <= t.term AND last_term >= t.term
        OFFSET 0
    ) AS p
    WHERE r.space_id = %(space)s
"""
_TAIL: Final = """
    SELECT string_agg(int8send(t.passage_no), ''), string_agg(int4send(t.length), ''),
           string_agg(int4send(octet_length(t.terms) / 4), ''),
           string_agg(t.terms, ''), string_agg(t.counts, '')
    FROM recollect.counters AS c
    CROSS JOIN LATERAL (
        SELECT passage_no, length, terms, counts FROM recollect.passage_terms
        WHERE space_id = %(space)s AND NOT cold
            AND octet_length(terms) = 2 * octet_length(counts)
            AND passage_no > c.packed_to AND passage_no < c.next_passage
        ORDER BY passage_no OFFSET 0
    ) AS t
    WHERE c.space_id = %(space)s
"""
_COLD: Final = """
    SELECT string_agg(int8send(passage_no), ''), string_agg(int4send(length), ''),
           string_agg(int4send(octet_length(terms) / 4), ''),
           string_agg(terms, ''), string_agg(counts, '')
    FROM (
        SELECT passage_no, length, terms, counts FROM recollect.passage_terms
        WHERE space_id = %s AND cold AND passage_no > %s
            AND octet_length(terms) = 2 * octet_length(counts)
        ORDER BY passage_no LIMIT %s
    ) AS row
"""
_COLD_COUNT: Final = """
    SELECT count(*) FROM recollect.passage_terms WHERE space_id = %s AND cold
"""
_FIRST_OF: Final = """
    SELECT n.passage_no FROM unnest(%(numbers)s::bigint[]) AS n (passage_no)
    CROSS JOIN LATERAL (
        SELECT sequence, ordinal FROM recollect.passages
        WHERE space_id = %(space)s AND passage_no = n.passage_no OFFSET 0
    ) AS p
    CROSS JOIN LATERAL (
        SELECT id FROM recollect.segments
        WHERE space_id = %(space)s AND sequence = p.sequence OFFSET 0
    ) AS s
    ORDER BY s.id, p.ordinal LIMIT %(limit)s
"""
_DETAILS: Final = """
    SELECT s.id, p.ordinal, s.key, s.session, s.sequence, s.role, s.said_at, s.trust,
           p.start_char, p.end_char, s.tool, p.cold, t.length, t.terms, t.counts,
           1 - (v.v <=> %(asked)s::vector)
    FROM unnest(%(numbers)s::bigint[]) AS n (passage_no)
    CROSS JOIN LATERAL (
        SELECT sequence, ordinal, start_char, end_char, cold FROM recollect.passages
        WHERE space_id = %(space)s AND passage_no = n.passage_no OFFSET 0
    ) AS p
    CROSS JOIN LATERAL (
        SELECT id, key, session, sequence, role, said_at, trust, tool FROM recollect.segments
        WHERE space_id = %(space)s AND sequence = p.sequence OFFSET 0
    ) AS s
    CROSS JOIN LATERAL (
        SELECT length, terms, counts FROM recollect.passage_terms
        WHERE space_id = %(space)s AND passage_no = n.passage_no OFFSET 0
    ) AS t
    LEFT JOIN LATERAL (
        SELECT v FROM recollect.vectors
        WHERE space_id = %(space)s AND embedder_no = %(embedder)s
            AND passage_no = n.passage_no OFFSET 0
    ) AS v ON true
"""


@dataclass(frozen=True, slots=True)
class _Lexical:
    """What the words found."""

    numbers: Sequence[int] = ()
    documents: int = 0
    total_length: int = 0
    frequencies: dict[int, int] | None = None
    cold_searched: int = 0


async def find(fleet: PostgresFleet, space_id: UUID, query: CandidateQuery) -> Candidates:
    """What may answer the query."""
    words = await _halves(fleet, space_id, query)
    lexical, (embedder, near) = words
    numbers = sorted({*lexical.numbers, *near})
    passages: tuple[Candidate, ...] = ()
    if numbers:
        async with fleet.transaction(space_id, read=True) as work:
            passages = await _details(work, query, numbers, embedder)
    held = lexical.frequencies or {}
    average = lexical.total_length / lexical.documents if lexical.documents else 0.0
    return Candidates(
        passages=passages,
        documents=lexical.documents,
        average_length=average,
        document_frequencies={word: held.get(term_of(space_id, word), 0) for word in query.words},
        cold_searched=lexical.cold_searched,
    )


async def _halves(
    fleet: PostgresFleet, space_id: UUID, query: CandidateQuery
) -> tuple[_Lexical, tuple[int | None, list[int]]]:
    async def by_words() -> _Lexical:
        async with fleet.transaction(space_id, read=True) as work:
            return await _lexical(work, query)

    async def by_vector() -> tuple[int | None, list[int]]:
        if query.vector is None:
            return None, []
        async with fleet.transaction(space_id, read=True) as work:
            return await nearest(work, query, query.vector, fleet.embedders)

    if query.vector is None:
        return await by_words(), (None, [])
    found = asyncio.create_task(by_vector())
    try:
        lexical = await by_words()
    except BaseException:
        found.cancel()
        await asyncio.gather(found, return_exceptions=True)
        raise
    return lexical, await found


async def _lexical(work: Transaction, query: CandidateQuery) -> _Lexical:
    terms = sorted({term_of(work.space_id, word) for word in query.words})
    space = {"space": work.space_id}
    statistics = await work.send(_STATISTICS, (work.space_id,))
    cold_count = await work.send(_COLD_COUNT, (work.space_id,)) if query.cold else None
    allowing = await work.send(ALLOWED, filters(work, query)) if filtered(query) else None
    runs = blocks = tail = None
    if terms:
        runs = await work.send(_RUNS, (work.space_id,))
        blocks = await work.send(_POSTINGS, {**space, "terms": int8s(terms)})
        tail = await work.send(_TAIL, space)
    counted = await statistics.fetchone()
    documents, total_length = counted if counted is not None else (0, 0)
    cold_searched = (await cold_count.fetchone() or (0,))[0] if cold_count is not None else 0
    allowed: NDArray[np.int64] | None = None
    if allowing is not None:
        packed, cold_allowed = await allowing.fetchone() or (None, 0)
        allowed = big_endian(packed, "i8")
        cold_searched = min(cold_searched, cold_allowed)
    if runs is None or blocks is None or tail is None:
        return _Lexical((), documents, total_length, {}, cold_searched)
    known = {run: (first, dead) for run, first, dead in await runs.fetchall()}
    hits = list(_block_hits(await blocks.fetchall(), known))
    hits.extend(hits_in(forwards_of(await tail.fetchone()), terms))
    frequencies: dict[int, int] = {}
    for hit in hits:
        frequencies[hit.term] = frequencies.get(hit.term, 0) + len(hit.numbers)
    if query.cold:
        hits.extend(await _cold_hits(work, terms))
        frequencies = {term: frequencies.get(term, 0) for term in terms}
    best, alike = order_candidates(
        hits,
        frequencies=frequencies,
        documents=documents,
        average_length=total_length / documents if documents else 0.0,
        limit=query.lexical_limit,
        allowed=allowed,
    )
    chosen = best.tolist() + await _first_of(work, alike, query.lexical_limit - len(best))
    return _Lexical(chosen, documents, total_length, frequencies, cold_searched)


async def _first_of(work: Transaction, alike: NDArray[np.int64], limit: int) -> list[int]:
    """The first of passages that score alike, in the order of their segments' ids."""
    if len(alike) <= limit:
        return [int(one) for one in alike]
    given = {"space": work.space_id, "numbers": int8s(alike), "limit": limit}
    return [number for (number,) in await work.rows(_FIRST_OF, given)]


def _block_hits(
    rows: Sequence[tuple[Any, ...]], runs: dict[int, tuple[int, bytes | None]]
) -> Iterator[Hit]:
    masks = {run: np.frombuffer(dead, "<u2") for run, (_, dead) in runs.items() if dead}
    for run, term, block in rows:
        try:
            found = postings_of(block, term)
        except (ValueError, struct.error):  # a damaged block hides no other; `check` tells of it
            continue
        if found is None:
            continue
        numbers, lengths, counts = found
        if run in masks:
            alive = ~np.isin(numbers, masks[run])
            numbers, lengths, counts = numbers[alive], lengths[alive], counts[alive]
        if len(numbers):
            yield Hit(term, runs[run][0], numbers, lengths, counts)


async def _cold_hits(work: Transaction, terms: Sequence[int]) -> list[Hit]:
    """Look through every cold passage's words, some thousand at a time."""
    hits: list[Hit] = []
    after = 0
    while True:
        rows: Forwards = forwards_of(await work.row(_COLD, (work.space_id, after, _COLD_AT_ONCE)))
        hits.extend(hits_in(rows, terms))
        if len(rows.numbers) < _COLD_AT_ONCE:
            return hits
        after = int(rows.numbers[-1])


async def _details(
    work: Transaction, query: CandidateQuery, numbers: Sequence[int], embedder: int | None
) -> tuple[Candidate, ...]:
    asked = vector(query.vector.values) if query.vector is not None and embedder else None
    rows = await work.rows(
        _DETAILS,
        {
            "space": work.space_id,
            "numbers": int8s(numbers),
            "embedder": embedder or 0,
            "asked": asked,
        },
    )
    named = {word: term_of(work.space_id, word) for word in query.words}
    counts = _counts(named, [row[13] for row in rows], [row[14] for row in rows])
    return tuple(_candidate(row, held) for row, held in zip(rows, counts, strict=True))


def _candidate(row: tuple[Any, ...], counts: dict[str, int]) -> Candidate:
    similarity = row[15]
    return Candidate(
        segment=SegmentId(plain(row[0])),
        ordinal=row[1],
        key=EntryKey(plain(row[2])),
        session=plain(row[3]),
        sequence=row[4],
        role=row[5],
        said_at=row[6],
        trust=row[7],
        start=row[8],
        end=row[9],
        length=row[12],
        counts=counts,
        similarity=0.0 if similarity is not None and math.isnan(similarity) else similarity,
        tool=maybe_plain(row[10]),
        cold=row[11],
    )


def _counts(
    words: Mapping[str, int], terms: Sequence[bytes], counts: Sequence[bytes]
) -> list[dict[str, int]]:
    """How often each of these passages holds each asked word, given with its number."""
    made: list[dict[str, int]] = [{} for _ in terms]
    if not words or not terms:
        return made
    asked = {term: word for word, term in words.items()}
    alike = [
        word for word, term in words.items() if asked[term] != word
    ]  # two words with one number
    held = np.frombuffer(b"".join(terms), "<u4")
    found = np.flatnonzero(np.isin(held, np.fromiter(asked, np.uint32, len(asked))))
    ends = np.cumsum([len(raw) // 4 for raw in terms])
    owners = np.searchsorted(ends, found, side="right").tolist()
    times = np.frombuffer(b"".join(counts), "<u2")[found].tolist()
    for owner, term, count in zip(owners, held[found].tolist(), times, strict=True):
        made[owner][asked[term]] = count
    for word in alike:
        for one in made:
            if (shared := asked[words[word]]) in one:
                one[word] = one[shared]
    return made
