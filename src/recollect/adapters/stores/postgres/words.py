"""The inverted index of a space: words as numbers, blocks of postings, and the search by words.

A word's number is a 32-bit hash keyed by its space, so a user cannot cause collisions on purpose.
For each passage, a row contains its sorted terms and their counts. A run holds the postings of a
range of passages by term, in blocks that fit a page; passage numbers are relative to the run's
first (below 65,536). A search reads blocks and the newest passages, and chooses the best passages
by Okapi BM25 with the statistics of the whole space. `core/search` computes the final scores."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby, pairwise
from typing import Any, Final, TypeAlias
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from recollect.adapters.stores.invariants import best_of
from recollect.adapters.stores.postgres.driver import big_endian, int8s, look_up, texts, unescape
from recollect.adapters.stores.postgres.link import Statement
from recollect.adapters.stores.postgres.pool import Transaction
from recollect.core.search.bm25 import inverse_document_frequency, length_damping, saturate
from recollect.core.values.recall import CandidateQuery
from recollect.core.values.segment import SegmentId

RUN_SPAN: Final = 65_536
"""Maximum number of passages in a run, because relative passage numbers have 16 bits."""
_BLOCK_BYTES: Final = 6_500
"""Maximum bytes of a block: a block is one row, and a row must fit a page of 8 kB."""
_POSTING_BYTES, _TERM_BYTES = 5, 6
_BUCKET_POSTINGS: Final = 400
"""Average number of postings per bucket. Small buckets need more rows, large ones longer reads."""
_MAX_COUNT: Final = 65_535
"""Largest count or length that 16 bits hold."""
_MAX_CACHED_TERMS: Final = 200_000
"""Not measured; bounds the RAM that cached words take."""
_HEAD: Final = struct.Struct("<HH")

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
NONE: Final = np.empty(0, np.int64)


class _Terms(dict[tuple[bytes, str], int]):
    """A cache of words' numbers by space, which is cleared when it grows too large."""

    def __missing__(self, key: tuple[bytes, str]) -> int:
        if len(self) >= _MAX_CACHED_TERMS:
            self.clear()
        word_bytes = key[1].encode("utf-8", "surrogatepass")
        number = int.from_bytes(blake2b(word_bytes, digest_size=4, key=key[0]).digest(), "little")
        self[key] = number
        return number


_TERMS: Final = _Terms()


def term_of(space_id: UUID, word: str) -> int:
    return _TERMS[space_id.bytes, word]


def encode_passages(
    space_id: UUID, passages: Sequence[Sequence[str]]
) -> list[tuple[int, bytes, bytes]]:
    """Return what the index stores of each passage: its length, its sorted terms and their counts.
    All passages are sorted together, because numpy calls per passage would take most of the time.
    """
    word_counts, key = list(map(Counter, passages)), space_id.bytes
    terms = np.array([_TERMS[key, word] for words in word_counts for word in words], np.int64)
    counts = np.array([count for words in word_counts for count in words.values()], np.int64)
    bases = np.arange(len(word_counts) + 1) << 32
    terms += np.repeat(bases[:-1], np.array(list(map(len, word_counts)), np.int64))
    order = np.argsort(terms)
    terms, firsts = np.unique(terms[order], return_index=True)  # two words may have one number
    counts = np.minimum(np.add.reduceat(counts[order], firsts), _MAX_COUNT).astype("<u2")
    edges = pairwise(np.searchsorted(terms, bases).tolist())
    terms = terms.astype("<u4")
    return [
        (len(words), terms[low:high].tobytes(), counts[low:high].tobytes())
        for words, (low, high) in zip(passages, edges, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Forwards:
    """The stored terms and counts of several passages, concatenated."""

    numbers: Ints
    lengths: Ints
    sizes: Ints
    """Number of terms of each passage."""
    terms: NDArray[Any]
    counts: NDArray[Any]


@dataclass(frozen=True, slots=True)
class Block:
    """Postings of adjacent terms of one run."""

    bucket: int
    part: int
    first_term: int
    last_term: int
    raw: bytes


@dataclass(frozen=True, slots=True)
class Run:
    """The postings of a range of passages."""

    first: int
    last: int
    passages: int
    shift: int
    blocks: tuple[Block, ...]


def build_runs(rows: Forwards) -> Iterator[Run]:
    start = 0
    while start < len(rows.numbers):
        end = int(np.searchsorted(rows.numbers, rows.numbers[start] + RUN_SPAN))
        yield _build_run(rows, start, end)
        start = end


def _build_run(rows: Forwards, start: int, end: int) -> Run:
    offsets = np.concatenate(([0], np.cumsum(rows.sizes)))
    low, high = int(offsets[start]), int(offsets[end])
    first, last = int(rows.numbers[start]), int(rows.numbers[end - 1])
    numbers = (rows.numbers[start:end] - first).astype("<u2")
    lengths = np.minimum(rows.lengths[start:end], _MAX_COUNT).astype("<u2")
    terms = rows.terms[low:high]
    order = np.argsort(terms, kind="stable")
    of_row = np.repeat(np.arange(end - start), rows.sizes[start:end])[order]
    bits = max(0, int(np.ceil(np.log2(max(1, len(terms)) / _BUCKET_POSTINGS))))
    shift = 32 - bits
    blocks = _cut_into_blocks(
        terms[order],
        numbers[of_row],
        lengths[of_row],
        np.minimum(rows.counts[low:high][order], 255).astype("u1"),
        shift,
    )
    return Run(first, last, end - start, shift, tuple(blocks))


def _cut_into_blocks(
    terms: NDArray[Any],
    numbers: NDArray[Any],
    lengths: NDArray[Any],
    counts: NDArray[Any],
    shift: int,
) -> Iterator[Block]:
    if not len(terms):
        return
    buckets = terms.astype(np.int64) >> shift
    is_new_term = np.concatenate(([True], terms[1:] != terms[:-1]))
    costs = np.cumsum(_POSTING_BYTES + _TERM_BYTES * is_new_term)
    starts = np.flatnonzero(np.concatenate(([True], buckets[1:] != buckets[:-1])))
    bucket_sizes = np.diff(np.append(starts, len(terms)))
    base = np.repeat(np.concatenate(([0], costs))[starts], bucket_sizes)
    parts = (costs - base) // _BLOCK_BYTES
    changes = (buckets[1:] != buckets[:-1]) | (parts[1:] != parts[:-1])
    edges = np.concatenate(([0], np.flatnonzero(changes) + 1, [len(terms)])).tolist()
    for low, high in pairwise(edges):
        raw = encode_block(terms[low:high], numbers[low:high], lengths[low:high], counts[low:high])
        yield Block(int(buckets[low]), int(parts[low]), int(terms[low]), int(terms[high - 1]), raw)


def encode_block(
    terms: NDArray[Any], numbers: NDArray[Any], lengths: NDArray[Any], counts: NDArray[Any]
) -> bytes:
    ends = np.append(np.flatnonzero(terms[1:] != terms[:-1]) + 1, len(terms))
    return b"".join(
        (
            _HEAD.pack(len(ends), len(terms)),
            terms[ends - 1].astype("<u4").tobytes(),
            ends.astype("<u2").tobytes(),
            numbers.tobytes(),
            lengths.tobytes(),
            counts.tobytes(),
        )
    )


def _parts_of(raw: bytes) -> tuple[NDArray[Any], NDArray[Any], int, int]:
    kinds, size = _HEAD.unpack_from(raw)
    terms = np.frombuffer(raw, "<u4", kinds, 4)
    return terms, np.frombuffer(raw, "<u2", kinds, 4 + 4 * kinds), size, 4 + _TERM_BYTES * kinds


Postings: TypeAlias = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]
"""Relative passage numbers, lengths of passages, and counts of the term."""


def postings_of(raw: bytes, term: int) -> Postings | None:
    terms, ends, size, body = _parts_of(raw)
    index = int(np.searchsorted(terms, np.uint32(term)))
    if index == len(terms) or int(terms[index]) != term:
        return None
    low = int(ends[index - 1]) if index else 0
    count = int(ends[index]) - low
    return (
        np.frombuffer(raw, "<u2", count, body + 2 * low),
        np.frombuffer(raw, "<u2", count, body + 2 * size + 2 * low),
        np.frombuffer(raw, "u1", count, body + 4 * size + low),
    )


def decode_block(raw: bytes) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    terms, ends, size, body = _parts_of(raw)
    return (
        np.repeat(terms, np.diff(np.concatenate(([0], ends.astype(np.int64))))),
        np.frombuffer(raw, "<u2", size, body),
        np.frombuffer(raw, "<u2", size, body + 2 * size),
        np.frombuffer(raw, "u1", size, body + 4 * size),
    )


def block_without(raw: bytes, removed_numbers: NDArray[Any]) -> tuple[int, int, bytes] | None:
    terms, numbers, lengths, counts = decode_block(raw)
    remains = ~np.isin(numbers, removed_numbers)
    if not remains.any():
        return None
    remaining = terms[remains]
    new_raw = encode_block(remaining, numbers[remains], lengths[remains], counts[remains])
    return int(remaining[0]), int(remaining[-1]), new_raw


def forwards_of(row: Sequence[Any] | None) -> Forwards:
    numbers, lengths, sizes, terms, counts = row if row is not None else (None,) * 5
    return Forwards(
        numbers=big_endian(numbers, "i8"),
        lengths=big_endian(lengths, "i4").astype(np.int64),
        sizes=big_endian(sizes, "i4").astype(np.int64),
        terms=np.frombuffer(terms or b"", "<u4"),
        counts=np.frombuffer(counts or b"", "<u2"),
    )


@dataclass(frozen=True, slots=True)
class PostingHit:
    """Where a query's term occurs: its postings in one block, or in the passages' own rows."""

    term: int
    base: int
    """Passage number to which the relative numbers are added."""
    numbers: NDArray[Any]
    lengths: NDArray[Any]
    counts: NDArray[Any]


def find_hits(rows: Forwards, query_terms: Iterable[int]) -> Iterator[PostingHit]:
    matches = np.flatnonzero(np.isin(rows.terms, np.array(sorted(query_terms), np.uint32)))
    if not len(matches):
        return
    of_row = np.searchsorted(np.cumsum(rows.sizes), matches, side="right")
    terms = rows.terms[matches]
    for term in np.unique(terms).tolist():
        is_term = terms == term
        owner = of_row[is_term]
        yield PostingHit(
            term, 0, rows.numbers[owner], rows.lengths[owner], rows.counts[matches[is_term]]
        )


def choose_candidates(
    hits: Sequence[PostingHit],
    *,
    frequencies: dict[int, int],
    documents: int,
    average_length: float,
    limit: int,
    allowed_numbers: Ints | None = None,
    left_out: Ints = NONE,
) -> tuple[Ints, Ints]:
    """Choose the best passages by Okapi BM25, and those tied at the limit. If `allowed_numbers` is
    given, choose only passages in it. Never choose passages in `left_out`."""
    if not hits or limit <= 0:
        return NONE, NONE
    matches: list[tuple[Ints, Floats]] = []
    # Add in the order of the terms, so that equal passages have exactly the same score.
    sorted_hits = sorted(hits, key=lambda hit: (hit.base, hit.term))
    for base, group in groupby(sorted_hits, key=lambda hit: hit.base):
        low, totals = _score_hits(list(group), frequencies, documents, average_length)
        first = base + low
        if allowed_numbers is not None:
            is_allowed = np.zeros(len(totals), bool)
            is_allowed[_relative_positions(allowed_numbers, first, len(totals))] = True
            totals[~is_allowed] = 0.0
        if len(left_out):
            totals[_relative_positions(left_out, first, len(totals))] = 0.0
        matching = np.flatnonzero(totals)
        matches.append((matching + first, totals[matching]))
    numbers, scores = (np.concatenate(columns) for columns in zip(*matches, strict=True))
    best, tied, _ = best_of(numbers, scores, limit)
    return best, tied


def _score_hits(
    hits: Sequence[PostingHit], frequencies: dict[int, int], documents: int, average_length: float
) -> tuple[int, Floats]:
    """Return the lowest relative passage number, and the scores of all passages from it on."""
    low = min(int(hit.numbers.min()) for hit in hits)
    high = max(int(hit.numbers.max()) for hit in hits)
    totals = np.zeros(high - low + 1)
    for hit in hits:
        weight = inverse_document_frequency(
            document_frequency=int(frequencies[hit.term]), documents=documents
        )
        damping = length_damping(hit.lengths.astype(np.float64), average_length)
        gains = weight * saturate(hit.counts.astype(np.float64), damping)
        totals[hit.numbers.astype(np.int64) - low] += gains
    return low, totals


def _relative_positions(numbers: Ints, first: int, count: int) -> Ints:
    return numbers[(numbers >= first) & (numbers < first + count)] - first


_LEFT_OUT: Final = f"""
    SELECT p.passage_no FROM unnest(%(ids)s::text[]) AS u (id)
    CROSS JOIN LATERAL ({look_up("segments", "sequence", "id", "u.id")}) AS s
    CROSS JOIN LATERAL (
        SELECT passage_no FROM recollect.passages
        WHERE space_id = %(space)s AND sequence = s.sequence ORDER BY ordinal
    ) AS p
"""  # noqa: S608
_ALLOWED: Final = """
    SELECT string_agg(int8send(p.passage_no), '')
    FROM recollect.segments AS s
    JOIN recollect.passages AS p ON p.space_id = %(space)s AND p.sequence = s.sequence
    WHERE s.space_id = %(space)s
        AND (%(session)s::text IS NULL OR s.session = %(session)s
            OR %(files)s AND s.session >= 'file:' AND s.session < 'file;')
        AND (%(after)s::float8 IS NULL OR p.said_at > %(after)s)
        AND (%(before)s::float8 IS NULL OR p.said_at < %(before)s)
"""
# Each LATERAL … OFFSET 0 forces a look-up by key. The planner knows tables but not spaces, and
# might otherwise scan the table if the space is a large part of it.
_LOOK_UP: Final = f"""
    SELECT c.documents, c.total_length, c.next_fact > 1, (
        SELECT json_object_agg(name, json_build_array(embedder_no, dimensions, vectors, signed))
        FROM recollect.embedders WHERE space_id = %(space)s
    ), (SELECT string_agg(int8send(passage_no), '') FROM ({_LEFT_OUT}) AS p), ARRAY(
        SELECT id FROM recollect.segments WHERE space_id = %(space)s AND id = ANY(%(ids)s::text[])
    ), r.*, b.*, t.*
    FROM recollect.counters AS c
    CROSS JOIN LATERAL (
        SELECT string_agg(int8send(run) || int8send(first_passage)
            || int8send(coalesce(octet_length(dead), 0)), ''), string_agg(dead, '')
        FROM recollect.runs WHERE space_id = %(space)s
    ) AS r
    CROSS JOIN LATERAL (
        SELECT string_agg(int8send(r.run) || int8send(t.term) || int8send(octet_length(p.block)),
            ''), string_agg(p.block, '')
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
    ) AS b
    CROSS JOIN LATERAL (
        SELECT string_agg(int8send(passage_no), ''), string_agg(int4send(length), ''), string_agg(
            int4send(octet_length(terms) / 4), ''), string_agg(terms, ''), string_agg(counts, '')
        FROM (
            SELECT passage_no, length, terms, counts FROM recollect.passage_terms
            WHERE space_id = %(space)s AND NOT cold
                AND octet_length(terms) = 2 * octet_length(counts)
                AND passage_no > c.packed_to AND passage_no < c.next_passage
                AND cardinality(%(terms)s::bigint[]) > 0
            ORDER BY passage_no OFFSET 0
        ) AS newest
    ) AS t
    WHERE c.space_id = %(space)s
"""  # noqa: S608
_FIRST_OF: Final = f"""
    SELECT n.passage_no FROM unnest(%(numbers)s::bigint[]) AS n (passage_no)
    CROSS JOIN LATERAL (
        {look_up("passages", "sequence, ordinal", "passage_no", "n.passage_no")}
    ) AS p
    CROSS JOIN LATERAL ({look_up("segments", "id", "sequence", "p.sequence")}) AS s
    ORDER BY s.id, p.ordinal LIMIT %(limit)s
"""  # noqa: S608


Embedder: TypeAlias = tuple[int, int, int, bool]  # number, dimensions, vectors, are signed


@dataclass(frozen=True, slots=True)
class Space:
    """What a search needs to know about a space before it reads passages."""

    documents: int
    total_length: int
    has_facts: bool
    embedders: Mapping[str, Embedder]
    left_out: Ints
    stored_ids: frozenset[str]
    """Those of the excluded messages that are stored."""
    allowed_numbers: Ints | None
    """Passages to search; None for all."""
    hits: Sequence[PostingHit]
    frequencies: dict[int, int]


@dataclass(slots=True)
class Lookup:
    """The queries with which a search begins. Later searches of the transaction share them."""

    terms: frozenset[int]
    leave_out: frozenset[SegmentId]
    filters: tuple[Any, ...]
    space_query: Statement
    allowed_query: Statement | None = None
    result: Space | None = None

    async def read_space(self) -> Space:
        if self.result is None:
            row = await self.space_query.fetchone() or (0, 0, False, None, None, [], *[None] * 9)
            allowed_row = (
                None if self.allowed_query is None else await self.allowed_query.fetchone()
            )
            hits = [*_read_block_hits(*row[6:10]), *find_hits(forwards_of(row[10:]), self.terms)]
            frequencies: Counter[int] = Counter()
            for hit in hits:
                frequencies[hit.term] += len(hit.numbers)
            self.result = Space(
                documents=row[0], total_length=row[1], has_facts=row[2],
                embedders={unescape(name): embedder for name, embedder in (row[3] or {}).items()},
                left_out=big_endian(row[4], "i8"),
                stored_ids=frozenset(row[5]),
                allowed_numbers=None if allowed_row is None else big_endian(allowed_row[0], "i8"),
                hits=hits, frequencies=frequencies,
            )  # fmt: skip
        return self.result


async def look_up_space(work: Transaction, query: CandidateQuery | None = None) -> Space:
    """Return what a search needs to know first; without a query, as read for any other query."""
    lookup: Lookup | None = work.lookup
    if query is None and lookup is not None:
        return await lookup.read_space()
    query = query or CandidateQuery()
    terms = frozenset([term_of(work.space_id, word) for word in query.words])
    filters = (query.session, query.said_after, query.said_before, query.with_files)
    scope = (query.leave_out, filters)
    if lookup is None or (lookup.leave_out, lookup.filters) != scope or not terms <= lookup.terms:
        arguments = {"space": work.space_id, "terms": int8s(sorted(terms))}
        space_query = await work.send(_LOOK_UP, {**arguments, "ids": texts(query.leave_out)})
        lookup = work.lookup = Lookup(terms, *scope, space_query)
        if filters[:3] != (None, None, None):
            arguments.update(zip(("session", "after", "before", "files"), filters, strict=True))
            lookup.allowed_query = await work.send_planned(_ALLOWED, arguments)
    return await lookup.read_space()


async def find_by_words(work: Transaction, query: CandidateQuery, space: Space) -> list[int]:
    """Find the best passages by words."""
    terms = {term_of(work.space_id, word) for word in query.words}
    best, tied = choose_candidates(
        [hit for hit in space.hits if hit.term in terms],
        frequencies=space.frequencies,
        documents=space.documents,
        average_length=space.total_length / space.documents if space.documents else 0.0,
        limit=query.lexical_limit,
        allowed_numbers=space.allowed_numbers,
        left_out=space.left_out,
    )
    limit = query.lexical_limit - len(best)
    if len(tied) > limit:
        arguments = {"space": work.space_id, "numbers": int8s(tied), "limit": limit}
        tied = np.array([number for (number,) in await work.rows(_FIRST_OF, arguments)], np.int64)
    return [*best.tolist(), *tied.tolist()]


def _read_block_hits(
    runs: bytes | None, dead: bytes | None, places: bytes | None, blocks: bytes | None
) -> Iterator[PostingHit]:
    firsts: dict[int, int] = {}
    masks: dict[int, NDArray[Any]] = {}
    offset = 0
    for run, first, size in big_endian(runs, "i8").reshape(-1, 3).tolist():
        firsts[run] = first
        if size:
            masks[run] = np.frombuffer((dead or b"")[offset : offset + size], "<u2")
            offset += size
    offset = 0
    for run, term, size in big_endian(places, "i8").reshape(-1, 3).tolist():
        offset += size
        try:
            postings = postings_of((blocks or b"")[offset - size : offset], term)
        except (ValueError, struct.error):  # skip a damaged block; `check` reports it
            continue
        if postings is None:
            continue
        numbers, lengths, counts = postings
        if run in masks:
            alive = ~np.isin(numbers, masks[run])
            numbers, lengths, counts = numbers[alive], lengths[alive], counts[alive]
        if len(numbers):
            yield PostingHit(term, firsts[run], numbers, lengths, counts)
