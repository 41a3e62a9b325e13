"""The vectors of passages: written, and found exactly in a small space, by signs in a large one.

Never decides what a similarity is worth. Beyond `EXACT_NUMBERS` the signs of the vectors are
compared first (`signs`), and those that are the most alike are compared exactly; what that
misses is printed by `recollect bench store` as agreement. Vectors of passages that are not stored,
or have another span than the vector was made of, are left out. Always holds: which of those at the
last place are chosen is decided in double precision, then by segment id and ordinal; the first
vector of a passage stays, whatever is written later.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from recollect.adapters.stores.postgres import signs
from recollect.adapters.stores.postgres.driver import (
    Raw,
    big_endian,
    bools,
    float8s,
    floats_of,
    int8s,
    look_up,
    texts,
    vector,
    vectors,
)
from recollect.adapters.stores.postgres.filters import (
    ALLOWED,
    FILTERS,
    InFiles,
    filtered,
    filters,
    with_files,
)
from recollect.adapters.stores.postgres.pool import Statement, Transaction
from recollect.adapters.stores.postgres.postings import Floats, Ints
from recollect.adapters.stores.postgres.space import SpaceCounters
from recollect.core.values.fact import FactVectorSet
from recollect.core.values.recall import AskedVector, CandidateQuery
from recollect.core.values.segment import VectorSet
from recollect.errors import BatchRefused, StoreError

EXACT_NUMBERS: Final = 4_000 * 384
"""Vectors times dimensions up to which all are compared exactly."""
_RERANK_LEAST, _RERANK_SHARE, _RERANK_MOST = 500, 0.005, 1_000
_RERANK_EACH: Final = 10
"""How many are compared exactly for one that is asked for: 0.998 of the best 50 and 0.985 of the
best 150 are among them at 16,180 passages of a static model."""
_MEMO_KEPT: Final = 10_000
_NEAR: Final = 2e-6
"""The server sums in single precision: what is so near the last place is compared again."""
_DECIMALS: Final = 9
"""Beyond these, cosines in double precision are taken to be alike."""

EMBEDDER: Final = """
    SELECT embedder_no, dimensions, vectors, signed FROM recollect.embedders
    WHERE space_id = %s AND name = %s
"""
# A vector of length zero has no direction: its distance is that of what has nothing in common.
# Halves are compared as they are, with the asked vector in two parts, each of which is halves too:
# to make floats of them first takes twice as long, and the asked vector rounded is not exact.
_COMPARED: Final = """
    WITH compared AS MATERIALIZED (
        SELECT passage_no, coalesce(CASE
            WHEN half IS NULL THEN nullif(v <=> %(asked)s::vector, 'NaN')
            ELSE 1 + ((half <#> %(high)s::halfvec) + (half <#> %(low)s::halfvec))
                / nullif(length::float8, 0)
        END, 1) AS distance
        FROM recollect.vectors
        WHERE space_id = %(space)s AND embedder_no = %(embedder)s
"""
_NEAREST: Final = """
    )
    SELECT string_agg(int8send(c.passage_no), ''), string_agg(float8send(c.distance), '')
    FROM compared AS c
    WHERE c.distance <= %(near)s + coalesce((
        SELECT e.distance FROM compared AS e ORDER BY e.distance OFFSET %(limit)s - 1 LIMIT 1
    ), 2)
"""
_WARM: Final = "AND (%(cold)s OR NOT cold) AND NOT passage_no = ANY(%(left_out)s::bigint[])"
_EXACT: Final = f"{_COMPARED} {_WARM} {_NEAREST}"
_FILTERED: Final = (
    f"{_COMPARED} {_WARM} AND passage_no IN ({FILTERS.format(columns='p.passage_no')}) {_NEAREST}"
)
_RERANK: Final = f"{_COMPARED} {_WARM} AND passage_no = ANY(%(numbers)s::bigint[]) {_NEAREST}"
_TIED: Final = f"""
    SELECT n.passage_no, s.id, p.ordinal, v.numbers
    FROM unnest(%(numbers)s::bigint[]) AS n (passage_no)
    CROSS JOIN LATERAL (
        SELECT coalesce(half::vector, v) AS numbers FROM recollect.vectors
        WHERE space_id = %(space)s AND embedder_no = %(embedder)s
            AND passage_no = n.passage_no OFFSET 0
    ) AS v
    CROSS JOIN LATERAL (
        {look_up("passages", "sequence, ordinal", "passage_no", "n.passage_no")}
    ) AS p
    CROSS JOIN LATERAL ({look_up("segments", "id", "sequence", "p.sequence")}) AS s
"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class _Seen:
    """What an embedder was seen as."""

    number: int
    dimensions: int
    count: int
    signed: bool

    def by_signs(self, query: CandidateQuery) -> bool:
        """Whether its vectors are too many to compare them all; cold ones have no signs."""
        return self.signed and not query.cold and self.count * self.dimensions > EXACT_NUMBERS


class EmbedderMemo:
    """What embedders were last seen as, so that a search need not wait to be told their number.

    Only a guess: what the database says in the same round trip decides.
    """

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[tuple[UUID, str], _Seen] = {}

    def guess(self, space_id: UUID, asked: AskedVector) -> _Seen | None:
        """What it was seen as, if the asked vector fits that."""
        seen = self._seen.get((space_id, asked.embedder))
        return seen if seen is not None and 4 * seen.dimensions == len(asked.values) else None

    def keep(self, space_id: UUID, embedder: str, seen: _Seen) -> None:
        """Remember what was seen; begins anew when it grows too large."""
        if len(self._seen) >= _MEMO_KEPT:
            self._seen.clear()
        self._seen[space_id, embedder] = seen


async def nearest(
    work: Transaction,
    query: CandidateQuery,
    asked: AskedVector,
    memo: EmbedderMemo,
    left_out: Ints,
    in_files: InFiles | None,
) -> list[int]:
    """The nearest passages; none where the embedder has no vectors here."""
    search = _Search(work, query, asked, left_out, in_files)
    asking = await work.send(EMBEDDER, (work.space_id, asked.embedder))
    sought = query.vector_limit > 0 and usable(asked)
    guessed = memo.guess(work.space_id, asked) if sought else None
    if guessed is not None:
        await search.begin(guessed)
    known = await asking.fetchone()
    require_dimensions(asked, known)
    if known is None or not sought:
        return []
    seen = _Seen(*known)
    memo.keep(work.space_id, asked.embedder, seen)
    if not search.began_with(seen):
        await search.begin(seen)
    return await search.finish()


@dataclass(slots=True)
class _Search:
    """One search by one vector, in as few round trips as what is known of the embedder allows."""

    work: Transaction
    query: CandidateQuery
    asked: AskedVector
    left_out: Ints
    in_files: InFiles | None
    given: dict[str, Any] = field(default_factory=dict)
    seen: _Seen | None = None
    found: Statement | None = None
    allowing: Statement | None = None

    async def begin(self, seen: _Seen) -> None:
        """Queue the first question."""
        self.seen = seen
        self.given = {
            **filters(self.work, self.query),
            "asked": vector(self.asked.values),
            **_parts(self.asked),
            "embedder": seen.number,
            "left_out": int8s(self.left_out),
            "limit": self.query.vector_limit,
            "near": _NEAR,
        }
        narrowed = filtered(self.query)
        if seen.by_signs(self.query):
            self.found = await self.work.send(signs.ALL, (self.work.space_id, seen.number))
            if narrowed:
                given = filters(self.work, self.query, self.in_files)
                self.allowing = await self.work.send(ALLOWED, given)
        else:
            self.found = await self.work.send(_FILTERED if narrowed else _EXACT, self.given)

    def began_with(self, seen: _Seen) -> bool:
        """Whether what was queued is what this asks for."""
        begun = self.seen
        self.seen = seen
        return (
            begun is not None
            and begun.number == seen.number
            and begun.by_signs(self.query) == seen.by_signs(self.query)
        )

    async def finish(self) -> list[int]:
        """The nearest passages."""
        assert self.found is not None and self.seen is not None
        if self.seen.by_signs(self.query):
            numbers = await self._by_signs(self.seen)
            packed = await self.work.row(_RERANK, {**self.given, "numbers": int8s(numbers)})
        else:
            packed = await self.found.fetchone()
        assert packed is not None
        return await self._choose(big_endian(packed[0], "i8"), big_endian(packed[1], "f8"))

    async def _by_signs(self, seen: _Seen) -> Ints:
        """Those to compare exactly: whose signs are the most alike."""
        assert self.found is not None
        rerank = max(_RERANK_LEAST, min(_RERANK_MOST, int(seen.count * _RERANK_SHARE)))
        limit = max(rerank, _RERANK_EACH * self.query.vector_limit)
        allowed: Ints | None = None
        blocks = await self.found.fetchall()
        if self.allowing is not None:
            packed, _ = await self.allowing.fetchone() or (None, 0)
            allowed = with_files(big_endian(packed, "i8"), self.in_files, cold=False)
            if len(allowed) <= limit:
                return np.setdiff1d(allowed, self.left_out)
        return signs.nearest_by_signs(
            blocks,
            seen.dimensions,
            np.frombuffer(self.asked.values, "<f4"),
            limit=limit,
            allowed=allowed,
            left_out=self.left_out,
        )

    async def _choose(self, numbers: Ints, distances: Floats) -> list[int]:
        """As many as were asked for, of these that are near enough."""
        limit = self.query.vector_limit
        if len(numbers) <= limit:
            return [int(number) for number in numbers]
        edge = np.partition(distances, limit - 1)[limit - 1]
        sure = [int(row) for row in numbers[distances < edge - _NEAR]]
        near = numbers[distances >= edge - _NEAR]
        rows = await self.work.rows(_TIED, {**self.given, "numbers": int8s(near)})
        if not rows:
            return sure
        alike = cosines(self.asked, [row[3] for row in rows])
        order = sorted(
            (-cosine, row[1], row[2], row[0])
            for cosine, row in zip(alike.tolist(), rows, strict=True)
        )
        return sure + [row[3] for row in order[: limit - len(sure)]]


def _parts(asked: AskedVector) -> dict[str, Raw]:
    """The asked direction as a sum of two vectors of halves, exact to about 22 bits."""
    numbers = np.frombuffer(asked.values, "<f4").astype(np.float64)
    numbers /= np.sqrt(np.einsum("i,i->", numbers, numbers))
    high = numbers.astype(np.float16)
    return {"high": _halves(high), "low": _halves((numbers - high).astype(np.float16))}


def _halves(numbers: NDArray[np.float16]) -> Raw:
    """One `halfvec`."""
    return Raw(struct.pack(">hh", len(numbers), 0) + numbers.astype(">f2").tobytes())


def exact_as_halves(rows: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Which of these vectors 16 bits a number hold exactly."""
    with np.errstate(over="ignore"):
        same: NDArray[np.bool_] = np.equal(rows.astype(np.float16), rows)
    return np.asarray(same.all(axis=1))


def cosines(asked: AskedVector, raw: list[bytes]) -> Floats:
    """The cosines of vectors, as the server sends them, with the asked one."""
    direction = np.frombuffer(asked.values, "<f4").astype(np.float64)
    direction /= np.sqrt(np.einsum("i,i->", direction, direction))
    held: NDArray[Any] = np.frombuffer(b"".join(map(floats_of, raw)), "<f4")
    values = held.reshape(len(raw), len(direction)).astype(np.float64)
    lengths = np.sqrt(np.einsum("ij,ij->i", values, values))
    found: Floats = np.zeros(len(raw))
    np.divide(np.einsum("ij,j->i", values, direction), lengths, out=found, where=lengths > 0)
    return found.round(_DECIMALS)


def usable(asked: AskedVector) -> bool:
    """Whether it has a direction; an embedder that failed may give zeros or no numbers at all."""
    if len(asked.values) % 4:
        return False
    values = np.frombuffer(asked.values, "<f4")
    return bool(np.isfinite(values).all() and values.any())


def require_dimensions(asked: AskedVector, known: tuple[Any, ...] | None) -> None:
    """Raise unless the asked vector is as long as its embedder's, given as `EMBEDDER` has it."""
    if known is not None and 4 * known[1] != len(asked.values):
        raise StoreError(
            f"embedder {asked.embedder!r} has {known[1]} dimensions here, "
            f"the asked vector {len(asked.values) // 4}"
        )


_KNOWN_EMBEDDER: Final = """
    SELECT embedder_no, dimensions FROM recollect.embedders WHERE space_id = %s AND name = %s
"""
# Look-ups by key for each segment, as in `candidates`: no plan turns them into scans.
_PLACES: Final = f"""
    SELECT u.id, p.ordinal, p.passage_no, p.start_char, p.end_char, p.cold, v.there IS NOT NULL
    FROM unnest(%(ids)s::text[]) AS u (id)
    CROSS JOIN LATERAL ({look_up("segments", "sequence", "id", "u.id")}) AS s
    CROSS JOIN LATERAL (
        SELECT ordinal, passage_no, start_char, end_char, cold FROM recollect.passages
        WHERE space_id = %(space)s AND sequence = s.sequence ORDER BY ordinal
    ) AS p
    LEFT JOIN LATERAL (
        SELECT true AS there FROM recollect.vectors
        WHERE space_id = %(space)s AND passage_no = p.passage_no AND embedder_no = (
            SELECT embedder_no FROM recollect.embedders
            WHERE space_id = %(space)s AND name = %(name)s
        ) OFFSET 0
    ) AS v ON true
"""  # noqa: S608
_NEW_EMBEDDER: Final = """
    INSERT INTO recollect.embedders (space_id, embedder_no, name, dimensions)
    VALUES (%s, %s, %s, %s)
"""
_VECTORS: Final = """
    INSERT INTO recollect.vectors (space_id, embedder_no, passage_no, cold, v, half, length)
    SELECT c.space_id, e.embedder_no, u.passage_no, u.cold,
        CASE WHEN e.half AND u.exact THEN NULL ELSE u.v END,
        CASE WHEN e.half AND u.exact THEN u.v::halfvec END, u.length::real
    FROM (SELECT space_id FROM recollect.counters WHERE space_id = %s) AS c
    CROSS JOIN unnest(%s::bigint[], %s::boolean[], %s::vector[], %s::boolean[], %s::float8[])
        AS u (passage_no, cold, v, exact, length)
    JOIN recollect.embedders AS e ON e.space_id = %s AND e.embedder_no = %s
    ON CONFLICT DO NOTHING
"""
_COUNTED: Final = """
    UPDATE recollect.embedders SET vectors = vectors + %s WHERE space_id = %s AND embedder_no = %s
    RETURNING vectors, signed
"""
_SIGNED: Final = """
    UPDATE recollect.embedders SET signed = true WHERE space_id = %s AND embedder_no = %s
"""
_WARM_VECTORS: Final = """
    SELECT passage_no, coalesce(half::vector, v) FROM recollect.vectors
    WHERE space_id = %s AND embedder_no = %s AND NOT cold
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorLookup:
    """Questions that were sent ahead: the embedder, and where the passages stand."""

    embedder: Statement
    places: Statement


async def look_up_vectors(work: Transaction, given: VectorSet) -> VectorLookup:
    """Queue the questions about one set."""
    name = given.embedder
    segments = {vector.segment for vector in given.vectors}
    return VectorLookup(
        embedder=await look_up_embedder(work, given.embedder),
        places=await work.send(
            _PLACES, {"space": work.space_id, "name": name, "ids": texts(segments)}
        ),
    )


async def write_vectors(
    work: Transaction, given: VectorSet, lookup: VectorLookup, counters: SpaceCounters
) -> None:
    """Write one set of vectors."""
    known = known_embedder(given, await lookup.embedder.fetchone(), counters)
    chosen = _chosen(given, await lookup.places.fetchall(), counters)
    if not chosen:
        return
    number = await new_embedder(work, given, counters) if known is None else known
    new = {
        place: values
        for place, values in chosen.items()
        if (number, place[0]) not in counters.vectored
    }
    if new:
        counters.vectored.update((number, passage) for passage, _ in new)
        await _insert(work, number, given.dimensions, new)


async def look_up_embedder(work: Transaction, name: str) -> Statement:
    """Queue the question what an embedder is known as."""
    return await work.send(_KNOWN_EMBEDDER, (work.space_id, name))


def known_embedder(
    given: VectorSet | FactVectorSet, stored: tuple[Any, ...] | None, counters: SpaceCounters
) -> int | None:
    """The number of a set's embedder, given as it is stored; None where it is new."""
    known = counters.embedders.get(given.embedder) if stored is None else (stored[0], stored[1])
    if known is None:
        return None
    if known[1] != given.dimensions:
        raise BatchRefused(
            f"embedder {given.embedder!r} has {known[1]} dimensions here, not {given.dimensions}"
        )
    return known[0]


async def new_embedder(
    work: Transaction, given: VectorSet | FactVectorSet, counters: SpaceCounters
) -> int:
    """Note a new embedder; its number."""
    number = counters.next_embedder
    counters.next_embedder += 1
    counters.embedders[given.embedder] = (number, given.dimensions)
    await work.send(_NEW_EMBEDDER, (work.space_id, number, given.embedder, given.dimensions))
    return number


def _chosen(
    given: VectorSet, rows: Sequence[tuple[Any, ...]], counters: SpaceCounters
) -> dict[tuple[int, bool], bytes]:
    """Vectors of passages that have none, by the passage's number and whether it is cold."""
    places: dict[tuple[str, int], tuple[int, tuple[int, int], bool]] = {
        (segment, ordinal): (number, (start, end), cold)
        for segment, ordinal, number, start, end, cold, there in rows
        if not there
    }
    places.update(
        (place, (number, (start, end), False))
        for place, (number, start, end) in counters.places.items()
    )
    chosen: dict[tuple[int, bool], bytes] = {}
    for one in given.vectors:
        if len(one.values) != 4 * given.dimensions:
            raise BatchRefused(f"a vector does not have {given.dimensions} dimensions")
        place = places.get((one.segment, one.ordinal))
        if place is not None and one.span in (None, place[1]):
            chosen.setdefault((place[0], place[2]), one.values)
    return chosen


async def _insert(
    work: Transaction, embedder: int, dimensions: int, new: dict[tuple[int, bool], bytes]
) -> None:
    rows = np.frombuffer(b"".join(new.values()), "<f4").reshape(len(new), dimensions)
    cold = np.array([is_cold for _, is_cold in new])
    numbers = np.array([number for number, _ in new], np.int64)
    await work.send(
        _VECTORS,
        (
            work.space_id,
            int8s(numbers),
            bools(cold.tolist()),
            vectors(rows, work.vector_oid),
            bools(exact_as_halves(rows).tolist()),
            float8s(np.linalg.norm(rows.astype(np.float64), axis=1).tolist()),
            work.space_id,
            embedder,
        ),
    )
    counted = await work.row(_COUNTED, (len(new), work.space_id, embedder))
    count, signed = counted or (0, False)
    if signed:
        await signs.put(work, embedder, dimensions, numbers[~cold], rows[~cold])
    elif count * dimensions > EXACT_NUMBERS:  # from now on a search needs them
        stored = await work.rows(_WARM_VECTORS, (work.space_id, embedder))
        values = np.frombuffer(b"".join(floats_of(raw) for _, raw in stored), "<f4")
        places = np.array([number for number, _ in stored], np.int64)
        await signs.put(work, embedder, dimensions, places, values.reshape(-1, dimensions))
        await work.send(_SIGNED, (work.space_id, embedder))
