"""Words as numbers: forward rows and posting blocks. Pure.

A word is a 32-bit hash that its space keys: words that were chosen to share a number in one space
do not in another. A passage has a forward row: its terms, sorted, with their counts. A run
turns the forward rows of a range of passages around: postings sorted by term, cut into blocks
that fit a page. Never tokenizes, and never orders: see `ordering`.
Always holds: a block's postings are sorted by term and passage, and a passage's number in it is
relative to the first of its run, below 65,536.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from typing import Any, Final, TypeAlias
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

RUN_SPAN: Final = 65_536
"""How many passage numbers a run covers at most: relative numbers are 16 bits."""
_BLOCK_BYTES: Final = 6_500
"""A block stands in its row, and a row has to fit a page of 8 kB."""
_POSTING_BYTES, _TERM_BYTES = 5, 6
_BUCKET_POSTINGS: Final = 400
"""Postings of a bucket on average: fewer make more rows, more make longer reads."""
_MOST: Final = 65_535
_TERMS_KEPT: Final = 200_000
_HEAD: Final = struct.Struct("<HH")

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
NONE: Final = np.empty(0, np.int64)


class _Terms(dict[tuple[UUID, str], int]):
    """Numbers of words that were asked for before; begins anew when it grows too large."""

    def __missing__(self, asked: tuple[UUID, str]) -> int:
        if len(self) >= _TERMS_KEPT:
            self.clear()
        named = asked[1].encode("utf-8", "surrogatepass")
        hashed = blake2b(named, digest_size=4, key=asked[0].bytes).digest()
        number = int.from_bytes(hashed, "little")
        self[asked] = number
        return number


_TERMS: Final = _Terms()


def term_of(space_id: UUID, word: str) -> int:
    """A word's number in a space."""
    return _TERMS[space_id, word]


@dataclass(frozen=True, slots=True)
class Forward:
    """A passage's words: sorted terms and their counts, as stored."""

    terms: bytes
    counts: bytes
    length: int


def forward(space_id: UUID, words: Sequence[str]) -> Forward:
    """The forward row of a passage with these words."""
    counted = Counter(words)
    terms = np.array([_TERMS[space_id, word] for word in counted], "<u4")
    counts = np.array(list(counted.values()), np.int64)
    order = np.argsort(terms)
    terms, counts = terms[order], counts[order]
    if len(terms) > 1 and (terms[1:] == terms[:-1]).any():  # two words with one number
        firsts = np.flatnonzero(np.concatenate(([True], terms[1:] != terms[:-1])))
        terms, counts = terms[firsts], np.add.reduceat(counts, firsts)
    return Forward(terms.tobytes(), np.minimum(counts, _MOST).astype("<u2").tobytes(), len(words))


@dataclass(frozen=True, slots=True)
class Forwards:
    """The forward rows of several passages, end to end."""

    numbers: Ints
    lengths: Ints
    sizes: Ints
    """How many terms each has."""
    terms: NDArray[Any]
    counts: NDArray[Any]

    def postings(self) -> tuple[Ints, NDArray[Any], NDArray[Any]]:
        """For every posting: which row it is of, its term and its count."""
        return np.repeat(np.arange(len(self.numbers)), self.sizes), self.terms, self.counts


@dataclass(frozen=True, slots=True)
class Block:
    """Postings of neighbouring terms of one run."""

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
    """Turn forward rows, sorted by passage, into runs."""
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
    lengths = np.minimum(rows.lengths[start:end], _MOST).astype("<u2")
    terms = rows.terms[low:high]
    order = np.argsort(terms, kind="stable")
    of_row = np.repeat(np.arange(end - start), rows.sizes[start:end])[order]
    bits = max(0, int(np.ceil(np.log2(max(1, len(terms)) / _BUCKET_POSTINGS))))
    shift = 32 - bits
    blocks = _cut(
        terms[order],
        numbers[of_row],
        lengths[of_row],
        np.minimum(rows.counts[low:high][order], 255).astype("u1"),
        shift,
    )
    return Run(first, last, end - start, shift, tuple(blocks))


def _cut(
    terms: NDArray[Any],
    numbers: NDArray[Any],
    lengths: NDArray[Any],
    counts: NDArray[Any],
    shift: int,
) -> Iterator[Block]:
    """Cut sorted postings into blocks: by bucket, and a long bucket into parts."""
    if not len(terms):
        return
    buckets = terms.astype(np.int64) >> shift
    opens = np.concatenate(([True], terms[1:] != terms[:-1]))
    costs = np.cumsum(_POSTING_BYTES + _TERM_BYTES * opens)
    starts = np.flatnonzero(np.concatenate(([True], buckets[1:] != buckets[:-1])))
    counted = np.diff(np.append(starts, len(terms)))
    base = np.repeat(np.concatenate(([0], costs))[starts], counted)
    parts = (costs - base) // _BLOCK_BYTES
    changes = (buckets[1:] != buckets[:-1]) | (parts[1:] != parts[:-1])
    edges = np.concatenate(([0], np.flatnonzero(changes) + 1, [len(terms)])).tolist()
    for low, high in pairwise(edges):
        raw = encode_block(terms[low:high], numbers[low:high], lengths[low:high], counts[low:high])
        yield Block(int(buckets[low]), int(parts[low]), int(terms[low]), int(terms[high - 1]), raw)


def encode_block(
    terms: NDArray[Any], numbers: NDArray[Any], lengths: NDArray[Any], counts: NDArray[Any]
) -> bytes:
    """Postings of one block as bytes."""
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
    ends = np.frombuffer(raw, "<u2", kinds, 4 + 4 * kinds)
    return terms, ends, size, 4 + _TERM_BYTES * kinds


Postings: TypeAlias = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]
"""Relative passage numbers, lengths and counts."""


def postings_of(raw: bytes, term: int) -> Postings | None:
    """The postings of a term in a block; None when it has none."""
    terms, ends, size, body = _parts_of(raw)
    place = int(np.searchsorted(terms, np.uint32(term)))
    if place == len(terms) or int(terms[place]) != term:
        return None
    low = int(ends[place - 1]) if place else 0
    count = int(ends[place]) - low
    return (
        np.frombuffer(raw, "<u2", count, body + 2 * low),
        np.frombuffer(raw, "<u2", count, body + 2 * size + 2 * low),
        np.frombuffer(raw, "u1", count, body + 4 * size + low),
    )


def decode_block(raw: bytes) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """All postings of a block: terms, relative numbers, lengths, counts."""
    terms, ends, size, body = _parts_of(raw)
    return (
        np.repeat(terms, np.diff(np.concatenate(([0], ends.astype(np.int64))))),
        np.frombuffer(raw, "<u2", size, body),
        np.frombuffer(raw, "<u2", size, body + 2 * size),
        np.frombuffer(raw, "u1", size, body + 4 * size),
    )


def block_without(raw: bytes, gone: NDArray[Any]) -> tuple[int, int, bytes] | None:
    """The block without these passages, with its first and last term; None when it is empty."""
    terms, numbers, lengths, counts = decode_block(raw)
    stays = ~np.isin(numbers, gone)
    if not stays.any():
        return None
    kept = terms[stays]
    made = encode_block(kept, numbers[stays], lengths[stays], counts[stays])
    return int(kept[0]), int(kept[-1]), made
