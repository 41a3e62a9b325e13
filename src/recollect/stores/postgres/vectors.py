"""Finds passages by vector: every warm one exactly in a small space, by signs in a large one.

Never decides what a similarity is worth. Beyond `EXACT_NUMBERS` the signs of the vectors are
compared first (`signs`), and those that are the most alike are compared exactly; what that
misses is printed by `recollect bench store` as agreement. Always holds: which of those at the
last place are chosen is decided in double precision, then by segment id and ordinal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from recollect.errors import StoreError
from recollect.stores.postgres import signs
from recollect.stores.postgres.driver import big_endian, escaped, floats_of, int8s, plain, vector
from recollect.stores.postgres.filters import (
    ALLOWED,
    FILTERS,
    InFiles,
    filtered,
    filters,
    with_files,
)
from recollect.stores.postgres.pool import Statement, Transaction
from recollect.stores.postgres.postings import Floats, Ints
from recollect.values.recall import AskedVector, CandidateQuery

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
    SELECT embedder_no, dimensions, vectors FROM recollect.embedders
    WHERE space_id = %s AND name = %s
"""
# A vector of length zero has no direction: its distance is that of what has nothing in common.
_COMPARED: Final = """
    WITH compared AS MATERIALIZED (
        SELECT passage_no, coalesce(nullif(v <=> %(asked)s::vector, 'NaN'), 1) AS distance
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
_TIED: Final = """
    SELECT n.passage_no, s.id, p.ordinal, v.v
    FROM unnest(%(numbers)s::bigint[]) AS n (passage_no)
    CROSS JOIN LATERAL (
        SELECT v FROM recollect.vectors
        WHERE space_id = %(space)s AND embedder_no = %(embedder)s
            AND passage_no = n.passage_no OFFSET 0
    ) AS v
    CROSS JOIN LATERAL (
        SELECT sequence, ordinal FROM recollect.passages
        WHERE space_id = %(space)s AND passage_no = n.passage_no OFFSET 0
    ) AS p
    CROSS JOIN LATERAL (
        SELECT id FROM recollect.segments
        WHERE space_id = %(space)s AND sequence = p.sequence OFFSET 0
    ) AS s
"""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What an embedder was seen as."""

    number: int
    dimensions: int
    count: int

    def by_signs(self, query: CandidateQuery) -> bool:
        """Whether its vectors are too many to compare them all; cold ones have no signs."""
        return not query.cold and self.count * self.dimensions > EXACT_NUMBERS


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
    asking = await work.send(EMBEDDER, (work.space_id, escaped(asked.embedder)))
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


class _Search:
    """One search by one vector, in as few round trips as what is known of the embedder allows."""

    __slots__ = (
        "_allowing", "_asked", "_found", "_given", "_in_files", "_left_out", "_query", "_seen",
        "_work",
    )  # fmt: skip

    def __init__(
        self,
        work: Transaction,
        query: CandidateQuery,
        asked: AskedVector,
        left_out: Ints,
        in_files: InFiles | None,
    ) -> None:
        self._work = work
        self._query = query
        self._asked = asked
        self._left_out = left_out
        self._in_files = in_files
        self._given: dict[str, Any] = {}
        self._seen: _Seen | None = None
        self._found: Statement | None = None
        self._allowing: Statement | None = None

    async def begin(self, seen: _Seen) -> None:
        """Queue the first question."""
        self._seen = seen
        self._given = {
            **filters(self._work, self._query),
            "asked": vector(self._asked.values),
            "embedder": seen.number,
            "left_out": int8s(self._left_out),
            "limit": self._query.vector_limit,
            "near": _NEAR,
        }
        narrowed = filtered(self._query)
        if seen.by_signs(self._query):
            self._found = await self._work.send(signs.ALL, (self._work.space_id, seen.number))
            if narrowed:
                given = filters(self._work, self._query, self._in_files)
                self._allowing = await self._work.send(ALLOWED, given)
        else:
            self._found = await self._work.send(_FILTERED if narrowed else _EXACT, self._given)

    def began_with(self, seen: _Seen) -> bool:
        """Whether what was queued is what this asks for."""
        begun = self._seen
        self._seen = seen
        return (
            begun is not None
            and begun.number == seen.number
            and begun.by_signs(self._query) == seen.by_signs(self._query)
        )

    async def finish(self) -> list[int]:
        """The nearest passages."""
        assert self._found is not None and self._seen is not None
        if self._seen.by_signs(self._query):
            numbers = await self._by_signs(self._seen)
            packed = await self._work.row(_RERANK, {**self._given, "numbers": int8s(numbers)})
        else:
            packed = await self._found.fetchone()
        assert packed is not None
        return await self._choose(big_endian(packed[0], "i8"), big_endian(packed[1], "f8"))

    async def _by_signs(self, seen: _Seen) -> Ints:
        """Those to compare exactly: whose signs are the most alike."""
        assert self._found is not None
        rerank = max(_RERANK_LEAST, min(_RERANK_MOST, int(seen.count * _RERANK_SHARE)))
        limit = max(rerank, _RERANK_EACH * self._query.vector_limit)
        allowed: Ints | None = None
        blocks = await self._found.fetchall()
        if self._allowing is not None:
            packed, _ = await self._allowing.fetchone() or (None, 0)
            allowed = with_files(big_endian(packed, "i8"), self._in_files, cold=False)
            if len(allowed) <= limit:
                return np.setdiff1d(allowed, self._left_out)
        return signs.nearest_by_signs(
            blocks,
            seen.dimensions,
            np.frombuffer(self._asked.values, "<f4"),
            limit=limit,
            allowed=allowed,
            left_out=self._left_out,
        )

    async def _choose(self, numbers: Ints, distances: Floats) -> list[int]:
        """As many as were asked for, of these that are near enough."""
        limit = self._query.vector_limit
        if len(numbers) <= limit:
            return [int(one) for one in numbers]
        edge = np.partition(distances, limit - 1)[limit - 1]
        sure = [int(one) for one in numbers[distances < edge - _NEAR]]
        near = numbers[distances >= edge - _NEAR]
        rows = await self._work.rows(_TIED, {**self._given, "numbers": int8s(near)})
        if not rows:
            return sure
        alike = cosines(self._asked, [row[3] for row in rows])
        order = sorted(
            (-cosine, plain(row[1]), row[2], row[0])
            for cosine, row in zip(alike.tolist(), rows, strict=True)
        )
        return sure + [row[3] for row in order[: limit - len(sure)]]


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
