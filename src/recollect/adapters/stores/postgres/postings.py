"""The inverted index of a space: words as numbers, posting blocks, packed, merged and emptied.

A word is a 32-bit hash that its space keys: words that were chosen to share a number in one space
do not in another. A passage has a forward row: its terms, sorted, with their counts. A run turns
the forward rows of a range of passages around: postings by term, cut into blocks that fit a page.
Packing works from the forward rows alone, so a merged run never holds what has left the index.
Never tokenizes, and never orders: see `words`. Always holds: a passage stands in the tail (its
number is above `packed_to`) or in exactly one run; its number in a block is relative to the first
of the run, below 65,536; a pack that meets another `index_epoch` is thrown away whole.
"""

from __future__ import annotations

import secrets
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

from recollect.adapters.stores.postgres.driver import (
    Columns,
    arrays,
    big_endian,
    byteas,
    insert,
    int4s,
    int8s,
)
from recollect.adapters.stores.postgres.pool import Transaction

RUN_SPAN: Final = 65_536
"""How many passage numbers a run covers at most: relative numbers are 16 bits."""
_BLOCK_BYTES: Final = 6_500
"""A block stands in its row, and a row has to fit a page of 8 kB."""
_POSTING_BYTES, _TERM_BYTES = 5, 6
_BUCKET_POSTINGS: Final = 400
"""Postings of a bucket on average: fewer make more rows, more make longer reads."""
_COUNT_MOST: Final = 65_535
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
    return _TERMS[space_id, word]


@dataclass(frozen=True, slots=True)
class Forward:
    """A passage's words: sorted terms and their counts, as stored."""

    terms: bytes
    counts: bytes
    length: int


def forward(space_id: UUID, words: Sequence[str]) -> Forward:
    counted = Counter(words)
    terms = np.array([_TERMS[space_id, word] for word in counted], "<u4")
    counts = np.array(list(counted.values()), np.int64)
    order = np.argsort(terms)
    terms, counts = terms[order], counts[order]
    if len(terms) > 1 and (terms[1:] == terms[:-1]).any():  # two words with one number
        firsts = np.flatnonzero(np.concatenate(([True], terms[1:] != terms[:-1])))
        terms, counts = terms[firsts], np.add.reduceat(counts, firsts)
    return Forward(
        terms.tobytes(), np.minimum(counts, _COUNT_MOST).astype("<u2").tobytes(), len(words)
    )


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
    lengths = np.minimum(rows.lengths[start:end], _COUNT_MOST).astype("<u2")
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


PACK_AFTER: Final = 512
"""A tail of so many passages is due to be packed; scanning it takes about a millisecond."""
PACK_NOW: Final = 4_096
"""A tail of so many is packed by whoever writes next: nobody runs the jobs."""
_FANOUT: Final = 8
_SMALLEST: Final = 512
_DEAD_SHARE: Final = 0.25

_STATE: Final = """
    SELECT next_passage, packed_to, index_epoch FROM recollect.counters WHERE space_id = %s
"""
_LOCK_STATE: Final = """
    SELECT next_passage, packed_to, index_epoch FROM recollect.counters WHERE space_id = %s
    FOR UPDATE
"""
_RUNS: Final = """
    SELECT run, first_passage, last_passage, passages, coalesce(octet_length(dead), 0) / 2
    FROM recollect.runs WHERE space_id = %s ORDER BY first_passage, run
"""
FORWARDS: Final = """
    SELECT string_agg(int8send(passage_no), ''), string_agg(int4send(length), ''),
           string_agg(int4send(octet_length(terms) / 4), ''),
           string_agg(terms, ''), string_agg(counts, '')
    FROM (
        SELECT passage_no, length, terms, counts FROM recollect.passage_terms
        WHERE space_id = %s AND passage_no > %s AND passage_no <= %s AND NOT cold
            AND octet_length(terms) = 2 * octet_length(counts)
        ORDER BY passage_no
    ) AS row
"""
_RUN_COLUMNS: Final[Columns] = {
    "run": int8s, "first_passage": int8s, "last_passage": int8s, "passages": int8s, "shift": int8s,
}  # fmt: skip
_INSERT_RUN: Final = insert("runs", _RUN_COLUMNS, "")
_BLOCK_COLUMNS: Final[Columns] = {
    "run": int8s, "bucket": int4s, "part": int4s, "first_term": int8s, "last_term": int8s,
    "block": byteas,
}  # fmt: skip
_INSERT_BLOCKS: Final = insert("postings", _BLOCK_COLUMNS, "")
_DROP_POSTINGS: Final = """
    DELETE FROM recollect.postings WHERE space_id = %s AND run = ANY(%s::bigint[])
"""
_DROP_RUNS: Final = "DELETE FROM recollect.runs WHERE space_id = %s AND run = ANY(%s::bigint[])"
_PACKED: Final = """
    UPDATE recollect.counters SET packed_to = %s, index_epoch = index_epoch + 1
    WHERE space_id = %s
"""
_COVERING: Final = """
    SELECT run, first_passage, last_passage, shift, dead FROM recollect.runs
    WHERE space_id = %s AND first_passage <= %s AND last_passage >= %s
"""
_SET_DEAD: Final = "UPDATE recollect.runs SET dead = %s WHERE space_id = %s AND run = %s"
_BLOCKS: Final = """
    SELECT bucket, part, block FROM recollect.postings
    WHERE space_id = %s AND run = %s AND bucket = ANY(%s::integer[])
"""
_UPDATE_BLOCKS: Final = """
    UPDATE recollect.postings AS p
    SET first_term = u.first_term, last_term = u.last_term, block = u.block
    FROM unnest(%s::integer[], %s::integer[], %s::bigint[], %s::bigint[], %s::bytea[])
        AS u (bucket, part, first_term, last_term, block)
    WHERE p.space_id = %s AND p.run = %s AND p.bucket = u.bucket AND p.part = u.part
"""
_DROP_BLOCKS: Final = """
    DELETE FROM recollect.postings AS p
    USING unnest(%s::integer[], %s::integer[]) AS u (bucket, part)
    WHERE p.space_id = %s AND p.run = %s AND p.bucket = u.bucket AND p.part = u.part
"""
_SHRINK_RUN: Final = """
    UPDATE recollect.runs SET passages = passages - %s, dead = %s WHERE space_id = %s AND run = %s
"""
_WITH_DEAD: Final = """
    SELECT run, dead FROM recollect.runs WHERE space_id = %s AND dead IS NOT NULL
"""
_BUCKETS: Final = """
    SELECT DISTINCT bucket FROM recollect.postings WHERE space_id = %s AND run = %s
"""
_BLOCKS_AT_ONCE: Final = 2_000


class IndexMoved(Exception):  # noqa: N818 - caught by whoever packs, never seen outside
    """The index changed while a run was built; the transaction is to be rolled back."""


def forwards_of(row: Sequence[Any] | None) -> Forwards:
    """Forward rows as `FORWARDS` returns them."""
    numbers, lengths, sizes, terms, counts = row if row is not None else (None,) * 5
    return Forwards(
        numbers=big_endian(numbers, "i8"),
        lengths=big_endian(lengths, "i4").astype(np.int64),
        sizes=big_endian(sizes, "i4").astype(np.int64),
        terms=np.frombuffer(terms or b"", "<u4"),
        counts=np.frombuffer(counts or b"", "<u2"),
    )


async def pack_tail(work: Transaction, *, least: int) -> bool:
    """Pack the tail when it has at least so many passages; whether something was packed."""
    state = await work.row(_STATE, (work.space_id,))
    if state is None or state[0] - 1 - state[1] < max(1, least):
        return False
    upto = min(state[0] - 1, state[1] + RUN_SPAN)
    await _swap(work, state, after=state[1], upto=upto, drop=(), packed_to=upto)
    return True


async def merge_runs(work: Transaction) -> bool:
    """Merge one group of runs where there are too many, or too many dead ones in one."""
    state = await work.row(_STATE, (work.space_id,))
    runs = await work.rows(_RUNS, (work.space_id,))
    group = choose_merge([(row[1], row[2], row[3], row[4]) for row in runs])
    if state is None or group is None:
        return False
    chosen = runs[group[0] : group[1]]
    await _swap(
        work,
        state,
        after=chosen[0][1] - 1,
        upto=max(row[2] for row in chosen),
        drop=[row[0] for row in chosen],
        packed_to=state[1],
    )
    return True


def choose_merge(runs: Sequence[tuple[int, int, int, int]]) -> tuple[int, int] | None:
    """Which neighbours to merge, given first, last, passages and dead of each, in order."""
    levels = [_level(passages) for _, _, passages, _ in runs]
    for start in range(len(runs)):
        end = start
        while (
            end < len(runs)
            and levels[end] <= levels[start]
            and runs[end][1] - runs[start][0] < RUN_SPAN
        ):
            end += 1
        alike = sum(level == levels[start] for level in levels[start:end])
        if alike >= _FANOUT:
            return start, end
    for place, (_, _, passages, dead) in enumerate(runs):
        if dead > _DEAD_SHARE * passages:
            return place, place + 1
    return None


def _level(passages: int) -> int:
    level = 0
    while passages >= _SMALLEST * _FANOUT ** (level + 1):
        level += 1
    return level


async def _swap(
    work: Transaction,
    state: tuple[Any, ...],
    *,
    after: int,
    upto: int,
    drop: Sequence[int],
    packed_to: int,
) -> None:
    rows = forwards_of(await work.row(FORWARDS, (work.space_id, after, upto)))
    # Written before the lock is taken: writers of the space wait only for the exchange.
    for run in build_runs(rows):
        await _insert_run(work, run)
    if await work.row(_LOCK_STATE, (work.space_id,)) is None:
        raise IndexMoved
    locked = await work.row(_STATE, (work.space_id,))
    if locked is None or locked[1:] != state[1:]:
        raise IndexMoved
    if drop:
        await work.send(_DROP_POSTINGS, (work.space_id, int8s(drop)))
        await work.send(_DROP_RUNS, (work.space_id, int8s(drop)))
    await work.send(_PACKED, (packed_to, work.space_id))


async def _insert_run(work: Transaction, run: Run) -> None:
    named = secrets.randbits(62)
    row = (named, run.first, run.last, run.passages, run.shift)
    await work.send(_INSERT_RUN, (work.space_id, *arrays(_RUN_COLUMNS, [row])))
    for start in range(0, len(run.blocks), _BLOCKS_AT_ONCE):
        rows = [
            (named, block.bucket, block.part, block.first_term, block.last_term, block.raw)
            for block in run.blocks[start : start + _BLOCKS_AT_ONCE]
        ]
        await work.send(_INSERT_BLOCKS, (work.space_id, *arrays(_BLOCK_COLUMNS, rows)))


async def mark_dead(work: Transaction, numbers: NDArray[np.int64]) -> None:
    """Let runs leave out passages that left the index but not the archive."""
    if not len(numbers):
        return
    for run, first, last, _, dead in await work.rows(
        _COVERING, (work.space_id, int(numbers.max()), int(numbers.min()))
    ):
        mine = numbers[(numbers >= first) & (numbers <= last)] - first
        if len(mine):
            held = np.frombuffer(dead or b"", "<u2")
            merged = np.union1d(held, mine.astype("<u2")).astype("<u2")
            await work.send(_SET_DEAD, (merged.tobytes(), work.space_id, run))


async def erase(work: Transaction, numbers: NDArray[np.int64], terms: NDArray[Any]) -> None:
    if not len(numbers):
        return
    for run, first, last, shift, dead in await work.rows(
        _COVERING, (work.space_id, int(numbers.max()), int(numbers.min()))
    ):
        mine = (numbers[(numbers >= first) & (numbers <= last)] - first).astype("<u2")
        if not len(mine):
            continue
        buckets = np.unique(terms.astype(np.int64) >> shift)
        await _rewrite(work, run, buckets, mine)
        held = np.frombuffer(dead or b"", "<u2")
        left = np.setdiff1d(held, mine).astype("<u2").tobytes() or None
        await work.send(_SHRINK_RUN, (len(mine), left, work.space_id, run))


async def purge_dead(work: Transaction) -> None:
    """Remove dead numbers from the runs that hold them: their words may be forgotten by now."""
    for run, dead in await work.rows(_WITH_DEAD, (work.space_id,)):
        rows = await work.rows(_BUCKETS, (work.space_id, run))
        gone = np.frombuffer(dead, "<u2")
        await _rewrite(work, run, np.array([bucket for (bucket,) in rows], np.int64), gone)
        await work.send(_SHRINK_RUN, (len(gone), None, work.space_id, run))


async def _rewrite(
    work: Transaction, run: int, buckets: NDArray[np.int64], gone: NDArray[Any]
) -> None:
    """Rewrite the blocks of these buckets without the passages that are gone."""
    for start in range(0, len(buckets), _BLOCKS_AT_ONCE):
        some = int4s(buckets[start : start + _BLOCKS_AT_ONCE])
        changed: list[tuple[int, int, int, int, bytes]] = []
        emptied: list[tuple[int, int]] = []
        for bucket, part, block in await work.rows(_BLOCKS, (work.space_id, run, some)):
            made = block_without(block, gone)
            if made is None:
                emptied.append((bucket, part))
            elif len(made[2]) != len(block):
                changed.append((bucket, part, *made))
        if changed:
            columns = list(zip(*changed, strict=True))
            await work.send(
                _UPDATE_BLOCKS,
                (int4s(columns[0]), int4s(columns[1]), int8s(columns[2]), int8s(columns[3]),
                 byteas(columns[4]), work.space_id, run),
            )  # fmt: skip
        if emptied:
            places = list(zip(*emptied, strict=True))
            await work.send(_DROP_BLOCKS, (int4s(places[0]), int4s(places[1]), work.space_id, run))
