"""The counters of a space, which each writer locks first, and the packed index of its words.

Packing reads only the passages' own rows, so a merged run never contains a removed word. A passage
is in the tail (its number is above `packed_to`) or in exactly one run. If another process changes
`index_epoch` during a pack, the pack is rolled back."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from recollect.adapters.stores.postgres import words
from recollect.adapters.stores.postgres.driver import RowInsert, byteas, delete, int4s, int8s
from recollect.adapters.stores.postgres.pool import Transaction


@dataclass(slots=True)
class SpaceCounters:
    """The next free numbers of a space (a row of `COUNTERS`), and the effects of a batch on it."""

    next_sequence: int
    next_passage: int
    next_embedder: int
    next_job: int
    packed_to: int
    facts_revision: int
    tombstones: frozenset[str] = frozenset()
    """Messages and segments of the batch that have a tombstone."""
    documents: int = 0
    """Number of passages that this batch added to the index."""
    total_length: int = 0
    places: dict[tuple[str, int], tuple[int, int, int]] = field(default_factory=dict)
    """Number, start and end of each passage that this batch wrote, by segment and ordinal."""
    embedders: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Number and dimensions of each embedder that is new in this batch."""
    vector_keys: set[tuple[int, int]] = field(default_factory=set)
    """Embedder and passage of each vector that this batch wrote."""

    @property
    def tail(self) -> int:
        return self.next_passage - 1 - self.packed_to


COUNTERS: Final = """
    SELECT next_sequence, next_passage, next_embedder, next_job, packed_to, facts_revision
    FROM recollect.counters WHERE space_id = %s FOR UPDATE
"""
_NEW_SPACE: Final = """
    INSERT INTO recollect.spaces (space_id, name) VALUES (%s, %s) ON CONFLICT DO NOTHING
"""
_NEW_COUNTERS: Final = """
    INSERT INTO recollect.counters (space_id) VALUES (%s) ON CONFLICT DO NOTHING
"""
_ADVANCE: Final = """
    UPDATE recollect.counters SET next_sequence = %s, next_passage = %s, next_embedder = %s,
        next_job = %s, documents = documents + %s, total_length = total_length + %s
    WHERE space_id = %s
"""


async def lock_existing_space(work: Transaction) -> bool:
    """Lock the space. Return False if the space does not exist."""
    return await work.row(COUNTERS, (work.space_id,)) is not None


async def lock_space(work: Transaction) -> SpaceCounters:
    """Lock the space; create it first if it is missing."""
    row = await work.row(COUNTERS, (work.space_id,))
    if row is None:
        work.made_space = True
        await work.send(_NEW_SPACE, (work.space_id, work.space))
        await work.send(_NEW_COUNTERS, (work.space_id,))
        row = await work.row(COUNTERS, (work.space_id,))
    assert row is not None
    return SpaceCounters(*row)


async def store_counters(work: Transaction, counters: SpaceCounters) -> None:
    await work.send(
        _ADVANCE,
        (counters.next_sequence, counters.next_passage, counters.next_embedder, counters.next_job,
         counters.documents, counters.total_length, work.space_id),
    )  # fmt: skip


_EVERYTHING: Final = (
    "counters", "segments", "passages", "passage_terms", "runs", "postings", "embedders",
    "vectors", "sign_blocks", "facts", "fact_terms", "fact_vectors", "extracted", "sessions",
    "session_paths", "session_quotes", "tombstones", "forgotten_segments", "jobs", "job_pauses",
    "job_budgets", "model_use", "pieces", "turns", "compactions", "spaces",
)  # fmt: skip
"""All tables of a space, in the order of removal: the space's own row is removed last."""

_NOTE_REMOVED: Final = """
    INSERT INTO recollect.unscrubbed (space_id, table_name, at) VALUES (%s, 'all', %s)
    ON CONFLICT (space_id, table_name) DO UPDATE SET at = excluded.at
"""
REMOVED_AT: Final = "SELECT max(at) FROM recollect.unscrubbed WHERE space_id = %s"


async def note_removal(work: Transaction) -> None:
    """Record, after a removal, that data files contain removed content until a scrub."""
    await work.send(_NOTE_REMOVED, (work.space_id, time.time()))


async def delete_space(work: Transaction) -> dict[str, int]:
    """Remove all content of a space, and its tombstones. Return the number of rows by table.
    Writers of the space wait meanwhile; later writes create a new space."""
    await lock_existing_space(work)
    statements = {
        table: await work.send(
            f"WITH gone AS (DELETE FROM recollect.{table} WHERE space_id = %s RETURNING 1) "  # noqa: S608
            "SELECT count(*) FROM gone",
            (work.space_id,),
        )
        for table in _EVERYTHING
    }
    rows = {table: await statement.fetchone() for table, statement in statements.items()}
    await note_removal(work)  # the record of the removal stays
    return {table: int(row[0]) for table, row in rows.items() if row is not None and row[0]}


PACK_AFTER: Final = 512
"""Packing is due if the tail has this many passages, which take a millisecond to scan."""
PACK_NOW: Final = 4_096
"""If the tail has this many passages, the next writer packs it, because no worker seems to."""
_FANOUT: Final = 8
"""Not measured; merging eight runs of one level rewrites a passage only once per level."""
_SMALLEST: Final = 512
"""As `PACK_AFTER`: a pack usually writes a run of the lowest level."""
_DEAD_SHARE: Final = 0.25
"""Not measured; bounds the removed passages whose postings a search still reads."""

_STATE: Final = """
    SELECT next_passage, packed_to, index_epoch FROM recollect.counters WHERE space_id = %s
"""
_LOCK_STATE: Final = f"{_STATE} FOR UPDATE"
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
_INSERT_RUN: Final = RowInsert(
    "runs",
    "run bigint, first_passage bigint, last_passage bigint, passages bigint, shift bigint",
    "",
)
_INSERT_BLOCKS: Final = RowInsert(
    "postings",
    "run bigint, bucket integer, part integer, first_term bigint, last_term bigint, block bytea",
    "",
)
_DROP_POSTINGS: Final = delete("postings", "run", "bigint")
_DROP_RUNS: Final = delete("runs", "run", "bigint")
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
"""Not measured; bounds one statement: 2,000 blocks have at most 13 MB."""


class IndexMoved(Exception):  # noqa: N818 - caught by whoever packs, never seen outside
    """Raised if the index changed while a run was built: the transaction must be rolled back."""


async def pack_tail(work: Transaction, *, least: int) -> bool:
    """Pack the tail if it has at least this many passages. Return True if something was packed."""
    state = await work.row(_STATE, (work.space_id,))
    if state is None or state[0] - 1 - state[1] < max(1, least):
        return False
    upto = min(state[0] - 1, state[1] + words.RUN_SPAN)
    await _replace_runs(work, state, after=state[1], upto=upto, drop=(), packed_to=upto)
    return True


async def merge_runs(work: Transaction) -> bool:
    """Merge one group of runs if there are too many runs, or a run has too many dead passages."""
    state = await work.row(_STATE, (work.space_id,))
    runs = await work.rows(_RUNS, (work.space_id,))
    group = choose_merge([(row[1], row[2], row[3], row[4]) for row in runs])
    if state is None or group is None:
        return False
    merged_runs = runs[group[0] : group[1]]
    await _replace_runs(
        work,
        state,
        after=merged_runs[0][1] - 1,
        upto=max(row[2] for row in merged_runs),
        drop=[row[0] for row in merged_runs],
        packed_to=state[1],
    )
    return True


def choose_merge(runs: Sequence[tuple[int, int, int, int]]) -> tuple[int, int] | None:
    """Choose adjacent runs to merge. A run is (first, last, passages, dead passages)."""
    levels = [_level(passages) for _, _, passages, _ in runs]
    for start in range(len(runs)):
        end = start
        while (
            end < len(runs)
            and levels[end] <= levels[start]
            and runs[end][1] - runs[start][0] < words.RUN_SPAN
        ):
            end += 1
        same_level_count = sum(level == levels[start] for level in levels[start:end])
        if same_level_count >= _FANOUT:
            return start, end
    for index, (_, _, passages, dead) in enumerate(runs):
        if dead > _DEAD_SHARE * passages:
            return index, index + 1
    return None


def _level(passages: int) -> int:
    level = 0
    while passages >= _SMALLEST * _FANOUT ** (level + 1):
        level += 1
    return level


async def _replace_runs(
    work: Transaction,
    state: tuple[Any, ...],
    *,
    after: int,
    upto: int,
    drop: Sequence[int],
    packed_to: int,
) -> None:
    rows = words.forwards_of(await work.row(FORWARDS, (work.space_id, after, upto)))
    # Write before taking the lock, so that writers of the space wait only for the exchange.
    for run in await asyncio.to_thread(list, words.build_runs(rows)):
        await _insert_run(work, run)
    locked_state = await work.row(_LOCK_STATE, (work.space_id,))
    if locked_state is None or locked_state[1:] != state[1:]:
        raise IndexMoved
    if drop:
        await work.send(_DROP_POSTINGS, (work.space_id, int8s(drop)))
        await work.send(_DROP_RUNS, (work.space_id, int8s(drop)))
    await work.send(_PACKED, (packed_to, work.space_id))


async def _insert_run(work: Transaction, run: words.Run) -> None:
    run_number = secrets.randbits(62)
    await work.insert(_INSERT_RUN, [(run_number, run.first, run.last, run.passages, run.shift)])
    for start in range(0, len(run.blocks), _BLOCKS_AT_ONCE):
        rows = [
            (run_number, block.bucket, block.part, block.first_term, block.last_term, block.raw)
            for block in run.blocks[start : start + _BLOCKS_AT_ONCE]
        ]
        await work.insert(_INSERT_BLOCKS, rows)


async def mark_dead(work: Transaction, numbers: NDArray[np.int64]) -> None:
    """Exclude passages from runs: they are no longer in the index, but still in the archive."""
    if not len(numbers):
        return
    for run, first, last, _, dead in await work.rows(
        _COVERING, (work.space_id, int(numbers.max()), int(numbers.min()))
    ):
        relative_numbers = numbers[(numbers >= first) & (numbers <= last)] - first
        if len(relative_numbers):
            dead_numbers = np.frombuffer(dead or b"", "<u2")
            merged_numbers = np.union1d(dead_numbers, relative_numbers.astype("<u2")).astype("<u2")
            await work.send(_SET_DEAD, (merged_numbers.tobytes(), work.space_id, run))


async def erase_from_runs(
    work: Transaction, numbers: NDArray[np.int64], terms: NDArray[Any]
) -> None:
    if not len(numbers):
        return
    for run, first, last, shift, dead in await work.rows(
        _COVERING, (work.space_id, int(numbers.max()), int(numbers.min()))
    ):
        relative_numbers = (numbers[(numbers >= first) & (numbers <= last)] - first).astype("<u2")
        if not len(relative_numbers):
            continue
        buckets = np.unique(terms.astype(np.int64) >> shift)
        await _rewrite_blocks(work, run, buckets, relative_numbers)
        dead_numbers = np.frombuffer(dead or b"", "<u2")
        remaining_dead = (
            np.setdiff1d(dead_numbers, relative_numbers).astype("<u2").tobytes() or None
        )
        await work.send(_SHRINK_RUN, (len(relative_numbers), remaining_dead, work.space_id, run))


async def purge_dead(work: Transaction) -> None:
    """Remove the numbers of dead passages from runs: the passages may be forgotten ones."""
    for run, dead in await work.rows(_WITH_DEAD, (work.space_id,)):
        rows = await work.rows(_BUCKETS, (work.space_id, run))
        dead_numbers = np.frombuffer(dead, "<u2")
        await _rewrite_blocks(
            work, run, np.array([bucket for (bucket,) in rows], np.int64), dead_numbers
        )
        await work.send(_SHRINK_RUN, (len(dead_numbers), None, work.space_id, run))


async def _rewrite_blocks(
    work: Transaction, run: int, buckets: NDArray[np.int64], removed_numbers: NDArray[Any]
) -> None:
    for start in range(0, len(buckets), _BLOCKS_AT_ONCE):
        bucket_array = int4s(buckets[start : start + _BLOCKS_AT_ONCE])
        changed_blocks: list[tuple[int, int, int, int, bytes]] = []
        empty_blocks: list[tuple[int, int]] = []
        for bucket, part, block in await work.rows(_BLOCKS, (work.space_id, run, bucket_array)):
            new_block = words.block_without(block, removed_numbers)
            if new_block is None:
                empty_blocks.append((bucket, part))
            elif len(new_block[2]) != len(block):
                changed_blocks.append((bucket, part, *new_block))
        if changed_blocks:
            columns = list(zip(*changed_blocks, strict=True))
            await work.send(
                _UPDATE_BLOCKS,
                (int4s(columns[0]), int4s(columns[1]), int8s(columns[2]), int8s(columns[3]),
                 byteas(columns[4]), work.space_id, run),
            )  # fmt: skip
        if empty_blocks:
            places = list(zip(*empty_blocks, strict=True))
            await work.send(_DROP_BLOCKS, (int4s(places[0]), int4s(places[1]), work.space_id, run))
