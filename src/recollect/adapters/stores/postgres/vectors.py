"""Writes the vectors of passages, and finds the nearest: exactly in a small space, by signs (one
bit per number) in a large one.

Above `EXACT_NUMBERS`, a search first compares signs, and then compares the most similar vectors
exactly; `recollect bench store` prints the agreement. Signs are packed in blocks of one page: 48
bytes per passage at 384 dimensions. A slot of a block counts as used only while its passage has a
vector. A second vector of a passage is ignored. A vector is skipped if its passage is missing or
has another span. If passages tie for the last place, double precision decides, then the id."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recollect.adapters.stores.invariants import cosines, direction_of
from recollect.adapters.stores.postgres import driver
from recollect.adapters.stores.postgres.pool import Transaction
from recollect.adapters.stores.postgres.space import SpaceCounters
from recollect.adapters.stores.postgres.words import Floats, Ints, Space
from recollect.core.values.fact import FactVectorSet
from recollect.core.values.recall import AskedVector, CandidateQuery
from recollect.core.values.segment import VectorSet
from recollect.errors import BatchRefused, StoreError

_BLOCK_BYTES: Final = 6_144
"""A block is one row, and a row must fit a page of 8 kB: 128 passages of 384 dimensions."""
_PLANES: Final = 4
"""Number of bits to which each number of the query's vector is quantized."""

_SOME: Final = """
    SELECT block_no, block FROM recollect.sign_blocks
    WHERE space_id = %s AND embedder_no = %s AND block_no = ANY(%s::integer[])
"""
ALL_SIGNS: Final = """
    SELECT block_no, block FROM recollect.sign_blocks WHERE space_id = %s AND embedder_no = %s
"""
_PUT: Final = driver.RowInsert(
    "sign_blocks",
    "embedder_no integer, block_no integer, block bytea",
    "(space_id, embedder_no, block_no) DO UPDATE SET block = excluded.block",
)
_DROP: Final = """
    DELETE FROM recollect.sign_blocks
    WHERE space_id = %s AND embedder_no = %s AND block_no = ANY(%s::integer[])
"""
_SIGNED_VECTORS: Final = """
    SELECT v.embedder_no, e.dimensions, v.passage_no, coalesce(v.half::vector, v.v)
    FROM recollect.vectors AS v
    JOIN recollect.embedders AS e
        ON e.space_id = %(space)s AND e.embedder_no = v.embedder_no AND e.signed
    WHERE v.space_id = %(space)s AND v.passage_no = ANY(%(numbers)s::bigint[])
    ORDER BY v.embedder_no
"""
_EMBEDDERS: Final = "SELECT embedder_no, dimensions FROM recollect.embedders WHERE space_id = %s"


class Layout:
    """The layout of an embedder's blocks: a mask of used slots, then the signs of all slots, 64
    dimensions at a time, so that a search reads memory sequentially."""

    __slots__ = ("_dtype", "slots", "words")

    def __init__(self, dimensions: int) -> None:
        self.words: Final = -(-dimensions // 64)
        self.slots: Final = max(1, _BLOCK_BYTES // (8 * self.words))
        mask = -(-self.slots // 64) * 8
        self._dtype = np.dtype(
            [("used", "u1", (mask,)), ("signs", "<u8", (self.words, self.slots))]
        )

    def empty(self) -> NDArray[Any]:
        return np.zeros(1, self._dtype)

    def read(self, blocks: Sequence[bytes]) -> NDArray[Any]:
        return np.frombuffer(b"".join(blocks), self._dtype)

    def find_used_slots(self, blocks: NDArray[Any]) -> NDArray[np.bool_]:
        return np.unpackbits(blocks["used"], axis=1, count=self.slots).view(bool)

    def mark(self, block: NDArray[Any], slots: Ints, *, used: bool) -> None:
        marks = np.unpackbits(block["used"][0])
        marks[slots] = used
        block["used"][0] = np.packbits(marks)

    def signs(self, vectors: NDArray[Any]) -> NDArray[np.uint64]:
        """Return the signs of vectors, one per row, in the form of `binary_quantize`."""
        packed_signs = np.packbits(vectors > 0, axis=1)
        bits = np.zeros((len(vectors), 8 * self.words), np.uint8)
        bits[:, : packed_signs.shape[1]] = packed_signs
        return bits.view("<u8")


async def put_signs(
    work: Transaction, embedder: int, dimensions: int, numbers: Ints, vectors: NDArray[Any]
) -> None:
    if len(numbers):
        layout = Layout(dimensions)
        await _change_signs(work, embedder, layout, numbers, layout.signs(vectors))


async def clear_signs(work: Transaction, numbers: Ints) -> None:
    if len(numbers):
        for embedder, dimensions in await work.rows(_EMBEDDERS, (work.space_id,)):
            await _change_signs(work, embedder, Layout(dimensions), numbers, None)


async def sign_again(work: Transaction, numbers: driver.Raw) -> None:
    """Write the signs of the stored vectors of these passages, which have new numbers."""
    rows = await work.rows(_SIGNED_VECTORS, {"space": work.space_id, "numbers": numbers})
    for (embedder, dimensions), group in groupby(rows, key=itemgetter(0, 1)):
        passage_numbers, raw_vectors = zip(*(row[2:] for row in group), strict=True)
        values = np.frombuffer(b"".join(map(driver.floats_of, raw_vectors)), "<f4")
        vectors = values.reshape(-1, dimensions)
        await put_signs(work, embedder, dimensions, np.array(passage_numbers, np.int64), vectors)


async def _change_signs(
    work: Transaction,
    embedder: int,
    layout: Layout,
    numbers: Ints,
    signs: NDArray[np.uint64] | None,
) -> None:
    block_of_number = numbers // layout.slots
    block_numbers = np.unique(block_of_number)
    stored_blocks = dict(
        await work.rows(_SOME, (work.space_id, embedder, driver.int4s(block_numbers)))
    )
    changed_blocks: dict[int, bytes] = {}
    empty_blocks: list[int] = []
    for block_no in block_numbers.tolist():
        if signs is None and block_no not in stored_blocks:
            continue
        raw = stored_blocks.get(block_no)
        block = layout.empty() if raw is None else layout.read([raw]).copy()
        is_here = block_of_number == block_no
        slots = numbers[is_here] % layout.slots
        block["signs"][0][:, slots] = 0 if signs is None else signs[is_here].T
        layout.mark(block, slots, used=signs is not None)
        if block["used"].any():
            changed_blocks[block_no] = block.tobytes()
        else:
            empty_blocks.append(block_no)
    await work.insert(_PUT, [(embedder, block_no, raw) for block_no, raw in changed_blocks.items()])
    if empty_blocks:
        await work.send(_DROP, (work.space_id, embedder, driver.int4s(empty_blocks)))


def find_nearest_by_signs(
    rows: Sequence[tuple[int, bytes]],
    query_vector: NDArray[Any],
    *,
    limit: int,
    allowed_numbers: Ints | None,
    left_out: Ints,
) -> Ints:
    if not rows:
        return np.empty(0, np.int64)
    layout = Layout(len(query_vector))
    blocks = layout.read([raw for _, raw in rows])
    scores = _score_agreement(layout, blocks["signs"], query_vector)
    is_wanted = layout.find_used_slots(blocks)
    firsts = np.array([block_no for block_no, _ in rows], np.int64) * layout.slots
    if allowed_numbers is not None or len(left_out):
        numbers = firsts[:, None] + np.arange(layout.slots)
        if allowed_numbers is not None:
            is_wanted = is_wanted & np.isin(numbers, allowed_numbers)
        if len(left_out):
            is_wanted = is_wanted & np.isin(numbers, left_out, invert=True)
    block, slot = np.nonzero(is_wanted)
    numbers = firsts[block] + slot
    if len(numbers) <= limit:
        return numbers
    slot_scores = scores[block, slot]
    return numbers[
        np.argpartition(slot_scores, len(slot_scores) - limit)[len(slot_scores) - limit :]
    ]


def _score_agreement(
    layout: Layout, signs: NDArray[Any], query_vector: NDArray[Any]
) -> NDArray[np.float64]:
    """For each slot, add the query's numbers in the dimensions in which the slot's sign is plus.
    The query's numbers are quantized, and their bits are counted one after the other. Comparing
    only the query's signs finds less: 85% of the 150 nearest of 5,955 passages (static model) are
    among the first 600; this method finds 95%."""
    low = float(query_vector.min())
    step = (float(query_vector.max()) - low) / (2**_PLANES - 1) or 1.0
    steps = np.rint((query_vector - low) / step).astype(np.int64)
    scores = np.zeros((len(signs), layout.slots))
    all_signs = layout.signs(np.ones((1, len(query_vector))))[0]
    weighted_signs = [(low, all_signs)]
    for plane in range(_PLANES):
        row = layout.signs((steps >> plane & 1)[None, :])[0]
        weighted_signs.append((step * 2**plane, row))
    for weight, row in weighted_signs:
        counts = np.zeros(scores.shape, np.uint16)
        for word in range(layout.words):
            counts += np.bitwise_count(signs[:, word, :] & row[word])
        scores += weight * counts
    return scores


EXACT_NUMBERS: Final = 4_000 * 384
"""A search compares all vectors exactly if they have at most this many numbers in total."""
_MIN_RERANK, _RERANK_SHARE, _MAX_RERANK = 500, 0.005, 1_000
_RERANK_EACH: Final = 10
"""Number of exact comparisons per requested passage, which finds 99.8% of the best 50, and 98.5% of
the best 150, at 16,180 passages of a static model."""
_TIE_MARGIN: Final = 2e-6
"""Values this close to the last place are compared again: the server adds in single precision."""

EMBEDDER: Final = """
    SELECT embedder_no, dimensions, vectors, signed, complete_to FROM recollect.embedders
    WHERE space_id = %s AND name = %s
"""
# A vector of length zero has no direction, so it gets the distance of unrelated vectors.
# Half-precision vectors are compared as stored, with the query split into two half-precision parts:
# converting vectors to floats takes twice as long, and rounding the query would not be exact.
_COMPARED: Final = f"""
    compared_{{place}} AS MATERIALIZED (
        SELECT passage_no, coalesce(CASE
            WHEN half IS NULL THEN nullif(v <=> %(asked_{{place}})s::vector, 'NaN')
            ELSE 1 + (
                (half <#> %(high_{{place}})s::halfvec) + (half <#> %(low_{{place}})s::halfvec)
            ) / nullif(length::float8, 0)
        END, 1) AS distance
        FROM recollect.vectors
        WHERE space_id = %(space)s AND embedder_no = %(embedder_{{place}})s
            AND NOT passage_no = ANY(%(left_out)s::bigint[]) {{among}}
    ), near_{{place}} AS (
        SELECT c.passage_no, c.distance FROM compared_{{place}} AS c
        WHERE c.distance <= {_TIE_MARGIN} + coalesce((
            SELECT e.distance FROM compared_{{place}} AS e
            ORDER BY e.distance OFFSET %(limit)s - 1 LIMIT 1
        ), 2)
    )
"""  # noqa: S608
_AMONG: Final = "AND passage_no = ANY(%(among_{place})s::bigint[])"
_TIED: Final = f"""
    SELECT n.passage_no, s.id, p.ordinal, v.numbers
    FROM unnest(%(numbers)s::bigint[]) AS n (passage_no)
    CROSS JOIN LATERAL (
        SELECT coalesce(half::vector, v) AS numbers FROM recollect.vectors
        WHERE space_id = %(space)s AND embedder_no = %(embedder)s
            AND passage_no = n.passage_no OFFSET 0
    ) AS v
    CROSS JOIN LATERAL (
        {driver.look_up("passages", "sequence, ordinal", "passage_no", "n.passage_no")}
    ) AS p
    CROSS JOIN LATERAL ({driver.look_up("segments", "id", "sequence", "p.sequence")}) AS s
"""  # noqa: S608


def comparison_statement(place: int, *, compares_all: bool) -> str:
    """Write SQL for the nearest passages: `near_` and the place of the query's vector. Compare all
    vectors, or only those of the passages in `among_` and the place."""
    return _COMPARED.format(place=place, among="" if compares_all else _AMONG.format(place=place))


class Comparison(NamedTuple):
    """A vector of a query, its embedder's number, and the parameters of `comparison_statement`."""

    vector: AskedVector
    embedder: int
    parameters: dict[str, driver.Raw]


async def prepare_comparison(
    work: Transaction, query: CandidateQuery, vector: AskedVector, space: Space
) -> Comparison | None:
    """Return what to compare with a vector; None if the space has no such vectors."""
    embedder = space.embedders.get(vector.embedder)
    require_dimensions(vector, embedder)
    if embedder is None or query.vector_limit <= 0 or direction_of(vector.values) is None:
        return None
    number, dimensions, count, is_signed = embedder
    allowed_numbers = space.allowed_numbers
    if is_signed and count * dimensions > EXACT_NUMBERS:
        rerank = max(_MIN_RERANK, min(_MAX_RERANK, int(count * _RERANK_SHARE)))
        limit = max(rerank, _RERANK_EACH * query.vector_limit)
        if allowed_numbers is None or len(allowed_numbers) > limit:
            blocks = await work.rows(ALL_SIGNS, (work.space_id, number))
            allowed_numbers = find_nearest_by_signs(
                blocks,
                np.frombuffer(vector.values, "<f4"),
                limit=limit,
                allowed_numbers=allowed_numbers,
                left_out=space.left_out,
            )
    among_parameter = {} if allowed_numbers is None else {"among": driver.int8s(allowed_numbers)}
    return Comparison(vector, number, {**_split_direction(vector), **among_parameter})


async def choose_nearest(
    work: Transaction,
    comparison: Comparison,
    row_distances: Sequence[tuple[int, float]],
    limit: int,
) -> list[int]:
    """Choose the nearest of these passages, which `comparison` found: numbers and distances."""
    if len(row_distances) <= limit:
        return [number for number, _ in row_distances]
    edge = sorted(distance for _, distance in row_distances)[limit - 1]
    sure_numbers = [number for number, distance in row_distances if distance < edge - _TIE_MARGIN]
    tied_numbers = [number for number, distance in row_distances if distance >= edge - _TIE_MARGIN]
    arguments = {
        "space": work.space_id,
        "embedder": comparison.embedder,
        "numbers": driver.int8s(tied_numbers),
    }
    rows = await work.rows(_TIED, arguments)
    if not rows:
        return sure_numbers
    cosines = compare(comparison.vector, [row[3] for row in rows]).tolist()
    order = sorted(
        (-cosine, row[1], row[2], row[0]) for cosine, row in zip(cosines, rows, strict=True)
    )
    return sure_numbers + [row[3] for row in order[: limit - len(sure_numbers)]]


def _split_direction(vector: AskedVector) -> dict[str, driver.Raw]:
    """Split the query's direction into two half-precision vectors, exact to about 22 bits."""
    numbers = direction_of(vector.values)
    assert numbers is not None
    high = numbers.astype(np.float16)
    return {
        "high": _encode_halves(high),
        "low": _encode_halves((numbers - high).astype(np.float16)),
    }


def _encode_halves(numbers: NDArray[np.float16]) -> driver.Raw:
    return driver.Raw(struct.pack(">hh", len(numbers), 0) + numbers.astype(">f2").tobytes())


def exact_as_halves(rows: NDArray[np.float32]) -> NDArray[np.bool_]:
    with np.errstate(over="ignore"):
        is_same: NDArray[np.bool_] = np.equal(rows.astype(np.float16), rows)
    return np.asarray(is_same.all(axis=1))


def compare(vector: AskedVector, raw: list[bytes]) -> Floats:
    """Return the cosine of each stored vector with the query's."""
    direction = direction_of(vector.values)
    assert direction is not None
    stored_values = np.frombuffer(b"".join(map(driver.floats_of, raw)), "<f4")
    return cosines(stored_values.reshape(len(raw), len(direction)), direction)


def require_dimensions(vector: AskedVector, embedder: tuple[Any, ...] | None) -> None:
    """Raise an error unless the query's vector fits the embedder, `embedder` (a row of
    `EMBEDDER`)."""
    if embedder is not None and 4 * embedder[1] != len(vector.values):
        raise StoreError(
            f"embedder {vector.embedder!r} has {embedder[1]} dimensions in this store, but the "
            f"query's vector has {len(vector.values) // 4}"
        )


# Look up each segment by key, as in `candidates`, so that the planner never scans the table.
_PLACES: Final = f"""
    SELECT u.id, p.ordinal, p.passage_no, p.start_char, p.end_char, v.there IS NOT NULL
    FROM unnest(%(ids)s::text[]) AS u (id)
    CROSS JOIN LATERAL ({driver.look_up("segments", "sequence", "id", "u.id")}) AS s
    CROSS JOIN LATERAL (
        SELECT ordinal, passage_no, start_char, end_char FROM recollect.passages
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
    INSERT INTO recollect.vectors (space_id, embedder_no, passage_no, v, half, length)
    SELECT c.space_id, e.embedder_no, u.passage_no,
        CASE WHEN e.half AND u.exact THEN NULL ELSE u.v END,
        CASE WHEN e.half AND u.exact THEN u.v::halfvec END, u.length::real
    FROM (SELECT space_id FROM recollect.counters WHERE space_id = %s) AS c
    CROSS JOIN unnest(%s::bigint[], %s::vector[], %s::boolean[], %s::float8[])
        AS u (passage_no, v, exact, length)
    JOIN recollect.embedders AS e ON e.space_id = %s AND e.embedder_no = %s
    ON CONFLICT DO NOTHING
"""
_COUNTED: Final = """
    UPDATE recollect.embedders SET vectors = vectors + %s WHERE space_id = %s AND embedder_no = %s
"""
_SIGNED: Final = """
    UPDATE recollect.embedders SET signed = true, vectors = %s
    WHERE space_id = %s AND embedder_no = %s
"""
_COUNT: Final = "SELECT count(*) FROM recollect.vectors WHERE space_id = %s AND embedder_no = %s"
_ALL_VECTORS: Final = """
    SELECT passage_no, coalesce(half::vector, v) FROM recollect.vectors
    WHERE space_id = %s AND embedder_no = %s
"""


async def write_vectors(
    work: Transaction,
    vector_set: VectorSet,
    embedder_row: tuple[Any, ...] | None,
    counters: SpaceCounters,
) -> None:
    """Write vectors of passages. `embedder_row` is their embedder's row of `EMBEDDER`."""
    embedder = find_embedder(vector_set, embedder_row, counters)
    written_segments = {segment for segment, _ in counters.places}
    rows: Sequence[tuple[Any, ...]] = ()
    if stored_segments := {vector.segment for vector in vector_set.vectors} - written_segments:
        arguments = {
            "space": work.space_id,
            "name": vector_set.embedder,
            "ids": driver.texts(stored_segments),
        }
        rows = await work.rows(_PLACES, arguments)
    chosen_values = _choose_values(vector_set, rows, counters)
    if not chosen_values:
        return
    number = await add_embedder(work, vector_set, counters) if embedder is None else embedder
    new_values = {
        passage: values
        for passage, values in chosen_values.items()
        if (number, passage) not in counters.vector_keys
    }
    if new_values:
        counters.vector_keys.update((number, passage) for passage in new_values)
        is_signed = embedder_row is not None and embedder_row[3]
        at_most = None if is_signed else counters.next_passage - 1
        await _insert_vectors(work, number, vector_set.dimensions, new_values, at_most)


def find_embedder(
    vector_set: VectorSet | FactVectorSet,
    embedder_row: tuple[Any, ...] | None,
    counters: SpaceCounters,
) -> int | None:
    """Return the stored number of the vectors' embedder; None if it is new. Raise BatchRefused if
    the stored embedder has other dimensions."""
    if any(len(vector.values) != 4 * vector_set.dimensions for vector in vector_set.vectors):
        raise BatchRefused(f"a vector does not have {vector_set.dimensions} dimensions")
    embedder = (
        counters.embedders.get(vector_set.embedder)
        if embedder_row is None
        else (embedder_row[0], embedder_row[1])
    )
    if embedder is None:
        return None
    if embedder[1] != vector_set.dimensions:
        raise BatchRefused(
            f"embedder {vector_set.embedder!r} has {embedder[1]} dimensions in this store, not "
            f"{vector_set.dimensions}"
        )
    return embedder[0]


async def add_embedder(
    work: Transaction, vector_set: VectorSet | FactVectorSet, counters: SpaceCounters
) -> int:
    number = counters.next_embedder
    counters.next_embedder += 1
    counters.embedders[vector_set.embedder] = (number, vector_set.dimensions)
    await work.send(
        _NEW_EMBEDDER, (work.space_id, number, vector_set.embedder, vector_set.dimensions)
    )
    return number


def _choose_values(
    vector_set: VectorSet, rows: Sequence[tuple[Any, ...]], counters: SpaceCounters
) -> dict[int, bytes]:
    places: dict[tuple[str, int], tuple[int, tuple[int, int]]] = {
        (segment, ordinal): (number, (start, end))
        for segment, ordinal, number, start, end, has_vector in rows
        if not has_vector
    }
    places.update(
        (place, (number, (start, end))) for place, (number, start, end) in counters.places.items()
    )
    chosen_values: dict[int, bytes] = {}
    for vector in vector_set.vectors:
        place = places.get((vector.segment, vector.ordinal))
        if place is not None and vector.span in (None, place[1]):
            chosen_values.setdefault(place[0], vector.values)
    return chosen_values


async def _insert_vectors(
    work: Transaction,
    embedder: int,
    dimensions: int,
    new_values: dict[int, bytes],
    at_most: int | None,
) -> None:
    """Insert vectors. They are counted only once they have signs. Before that, `at_most` limits
    their number, and the caller has locked the space."""
    rows = np.frombuffer(b"".join(new_values.values()), "<f4").reshape(len(new_values), dimensions)
    numbers = np.array(list(new_values), np.int64)
    await work.send(
        _VECTORS,
        (work.space_id, driver.int8s(numbers), driver.vectors(rows, work.vector_oid),
         driver.bools(exact_as_halves(rows).tolist()),
         driver.float8s(np.linalg.norm(rows.astype(np.float64), axis=1).tolist()),
         work.space_id, embedder),
    )  # fmt: skip
    key = (work.space_id, embedder)
    if at_most is None:
        await work.send(_COUNTED, (len(new_values), *key))
        await put_signs(work, embedder, dimensions, numbers, rows)
        return
    max_count = EXACT_NUMBERS // dimensions  # above this number, a search needs the signs
    row = await work.row(_COUNT, key) if at_most > max_count else None
    if row is not None and row[0] > max_count:
        stored_rows = await work.rows(_ALL_VECTORS, key)
        values = np.frombuffer(b"".join(driver.floats_of(raw) for _, raw in stored_rows), "<f4")
        places = np.array([number for number, _ in stored_rows], np.int64)
        await put_signs(work, embedder, dimensions, places, values.reshape(-1, dimensions))
        await work.send(_SIGNED, (row[0], *key))
