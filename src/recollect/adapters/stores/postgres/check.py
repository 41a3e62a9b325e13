"""Holds a space against its invariants, and counts what it has. Changes nothing.

Orphans, counters and the index are compared in one snapshot; a record that cannot be read is
told by its place, never by its content.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from recollect.adapters.stores.postgres.driver import big_endian
from recollect.adapters.stores.postgres.facts import COLUMNS, readable_facts
from recollect.adapters.stores.postgres.pool import Transaction
from recollect.adapters.stores.postgres.postings import FORWARDS, decode_block, forwards_of
from recollect.adapters.stores.postgres.sessions import decode_chunk
from recollect.adapters.stores.postgres.signs import ALL as ALL_SIGNS
from recollect.adapters.stores.postgres.signs import Layout
from recollect.adapters.stores.scoring import word_numbers
from recollect.core.values.upkeep import CheckResult, Stats

_FACT_WORDS: Final = """
    SELECT fact_no, words FROM recollect.facts
    WHERE space_id = %s AND superseded_by IS NULL AND valid_to IS NULL
"""
_FACTS: Final = f"SELECT {COLUMNS} FROM recollect.facts WHERE space_id = %s"  # noqa: S608
_FACT_TERMS: Final = """
    SELECT string_agg(int8send(fact_no), ''::bytea), string_agg(int8send(term), ''::bytea)
    FROM recollect.fact_terms WHERE space_id = %s
"""
_FACT_VECTORS: Final = """
    SELECT string_agg(int8send(fact_no), ''::bytea) FROM recollect.fact_vectors
    WHERE space_id = %s
"""


async def fact_problems(work: Transaction) -> list[str]:
    """What is wrong with facts and their index, a sentence each."""
    rows = await work.records(_FACTS, (work.space_id,))
    unread = len(rows) - len(readable_facts(rows))
    reading = await work.send(_FACT_WORDS, (work.space_id,))
    indexed = await work.send(_FACT_TERMS, (work.space_id,))
    vectored = await work.row(_FACT_VECTORS, (work.space_id,))
    facts, terms = await indexed.fetchone() or (None, None)
    held: dict[int, list[int]] = {}
    for fact, term in zip(
        big_endian(facts, "i8").tolist(), big_endian(terms, "i8").tolist(), strict=True
    ):
        held.setdefault(fact, []).append(term)
    wrong, current = 0, set()
    for fact, words in await reading.fetchall():
        current.add(fact)
        wrong += sorted(held.pop(fact, [])) != word_numbers(words)
    numbers = big_endian(vectored[0] if vectored is not None else None, "i8").tolist()
    stray = sum(fact not in current for fact in numbers)
    return [
        f"{count} {what}"
        for count, what in (
            (unread, "records of kind fact cannot be read"),
            (wrong, "facts are not in the index of words as they are"),
            (len(held), "facts are in the index of words that are not current"),
            (stray, "vectors of facts have no current fact"),
        )
        if count
    ]


_LONG: Final = "SET LOCAL statement_timeout = '1800s'"
SECONDS: Final = 1800.0
"""How long the server may take over one part of it."""

_COUNTERS: Final = """
    SELECT c.documents, c.total_length, c.next_sequence, c.next_passage, c.packed_to,
        (SELECT count(*) FROM recollect.passage_terms t
         WHERE t.space_id = %(space)s AND NOT t.cold),
        (SELECT coalesce(sum(length), 0)::bigint FROM recollect.passage_terms t
         WHERE t.space_id = %(space)s AND NOT t.cold),
        (SELECT coalesce(max(sequence), 0) FROM recollect.segments s WHERE s.space_id = %(space)s),
        (SELECT coalesce(max(passage_no), 0) FROM recollect.passages p
         WHERE p.space_id = %(space)s)
    FROM recollect.counters AS c WHERE c.space_id = %(space)s
"""
_ORPHANS: Final = """
    SELECT 'passages without a segment', count(*) FROM recollect.passages AS p
    WHERE p.space_id = %(space)s AND NOT EXISTS (
        SELECT FROM recollect.segments AS s
        WHERE s.space_id = %(space)s AND s.sequence = p.sequence AND s.cold = p.cold)
    UNION ALL
    SELECT 'passages without words', count(*) FROM recollect.passages AS p
    WHERE p.space_id = %(space)s AND NOT EXISTS (
        SELECT FROM recollect.passage_terms AS t
        WHERE t.space_id = %(space)s AND t.passage_no = p.passage_no AND t.cold = p.cold)
    UNION ALL
    SELECT 'passages whose words are damaged', count(*) FROM recollect.passage_terms AS t
    WHERE t.space_id = %(space)s AND octet_length(t.terms) <> 2 * octet_length(t.counts)
    UNION ALL
    SELECT 'words without a passage', count(*) FROM recollect.passage_terms AS t
    WHERE t.space_id = %(space)s AND NOT EXISTS (
        SELECT FROM recollect.passages AS p
        WHERE p.space_id = %(space)s AND p.passage_no = t.passage_no)
    UNION ALL
    SELECT 'vectors without a passage', count(*) FROM recollect.vectors AS v
    WHERE v.space_id = %(space)s AND NOT EXISTS (
        SELECT FROM recollect.passages AS p
        WHERE p.space_id = %(space)s AND p.passage_no = v.passage_no AND p.cold = v.cold)
    UNION ALL
    SELECT 'embedders that count wrongly', count(*) FROM recollect.embedders AS e
    WHERE e.space_id = %(space)s AND e.vectors <> (
        SELECT count(*) FROM recollect.vectors AS v
        WHERE v.space_id = %(space)s AND v.embedder_no = e.embedder_no)
    UNION ALL
    SELECT 'passages that wait for a vector nobody looks for', count(*)
    FROM recollect.embedders AS e
    JOIN recollect.passages AS p ON p.space_id = %(space)s AND p.passage_no <= e.complete_to
    WHERE e.space_id = %(space)s AND p.embedded AND NOT p.cold AND NOT EXISTS (
        SELECT FROM recollect.vectors AS v WHERE v.space_id = %(space)s
        AND v.embedder_no = e.embedder_no AND v.passage_no = p.passage_no)
    UNION ALL
    SELECT 'segments of a forgotten identity', count(*) FROM recollect.segments AS s
    WHERE s.space_id = %(space)s AND (EXISTS (
        SELECT FROM recollect.forgotten_segments AS f
        WHERE f.space_id = %(space)s AND f.id = s.id
    ) OR EXISTS (
        SELECT FROM recollect.tombstones AS t
        WHERE t.space_id = %(space)s AND t.message_id IN (s.id, s.message_id)
    ))
    UNION ALL
    SELECT 'postings without a run', count(*) FROM recollect.postings AS p
    WHERE p.space_id = %(space)s AND NOT EXISTS (
        SELECT FROM recollect.runs AS r WHERE r.space_id = %(space)s AND r.run = p.run)
    UNION ALL
    SELECT 'sessions without their path', count(*) FROM recollect.sessions AS s
    WHERE s.space_id = %(space)s AND (s.path_length + 255) / 256 <> (
        SELECT count(*) FROM recollect.session_paths AS p
        WHERE p.space_id = %(space)s AND p.session = s.session)
    UNION ALL
    SELECT 'lists of quotes without a session', count(*) FROM recollect.session_quotes AS q
    WHERE q.space_id = %(space)s AND NOT EXISTS (
        SELECT FROM recollect.sessions AS s
        WHERE s.space_id = %(space)s AND s.session = q.session)
    UNION ALL
    SELECT 'compactions that do not say for whom they stand', count(*)
    FROM recollect.compactions AS c
    WHERE c.space_id = %(space)s AND cardinality(c.named) <> cardinality(c.about)
"""
_TURNS: Final = """
    SELECT session, kept_rows, cardinality(row_hashes) FROM recollect.turns
    WHERE space_id = %s ORDER BY session, number
"""
_SESSIONS: Final = """
    SELECT s.session, s.path_length, p.chunk, p.entries FROM recollect.sessions AS s
    JOIN recollect.session_paths AS p ON p.space_id = %(space)s AND p.session = s.session
    WHERE s.space_id = %(space)s ORDER BY s.session, p.chunk
"""
_RUNS: Final = """
    SELECT run, first_passage, last_passage, dead FROM recollect.runs
    WHERE space_id = %s ORDER BY first_passage
"""
_BLOCKS: Final = "SELECT block FROM recollect.postings WHERE space_id = %s AND run = %s"
_STATS: Final = """
    SELECT s.*, j.*,
        (SELECT count(*) FROM recollect.passages WHERE space_id = %(space)s) AS passages,
        (SELECT count(*) FROM recollect.facts WHERE space_id = %(space)s) AS facts,
        (SELECT count(*) FROM recollect.turns WHERE space_id = %(space)s) AS turns,
        (SELECT count(*) FROM recollect.pieces WHERE space_id = %(space)s) AS pieces,
        (SELECT count(*) FROM recollect.tombstones WHERE space_id = %(space)s) AS tombstones,
        (SELECT count(*) FROM recollect.compactions WHERE space_id = %(space)s) AS compactions
    FROM (
        SELECT count(*) AS segments, count(*) FILTER (WHERE cold) AS cold, count(noise) AS noise,
            coalesce(sum(tokens), 0)::bigint AS tokens, count(DISTINCT session) AS sessions
        FROM recollect.segments WHERE space_id = %(space)s
    ) AS s, (
        SELECT count(*) FILTER (WHERE state = 'waiting') AS jobs_waiting,
            count(*) FILTER (WHERE state = 'dead') AS jobs_dead
        FROM recollect.jobs WHERE space_id = %(space)s
    ) AS j
"""
_EMBEDDERS: Final = """
    SELECT embedder_no, dimensions FROM recollect.embedders WHERE space_id = %s AND signed
"""
_WARM_SIGNS: Final = """
    SELECT passage_no, binary_quantize(v)::varbit, binary_quantize(v - v - v)::varbit
    FROM (
        SELECT passage_no, coalesce(half::vector, v) AS v FROM recollect.vectors
        WHERE space_id = %s AND embedder_no = %s AND NOT cold
    ) AS w ORDER BY passage_no
"""
_VECTOR_COUNTS: Final = """
    SELECT name, vectors FROM recollect.embedders WHERE space_id = %s AND vectors > 0
    ORDER BY name
"""


async def check(work: Transaction) -> CheckResult:
    """Look at everything the space has."""
    await work.send(_LONG)  # the role's own limit is that of a turn
    problems: list[str] = []
    given = {"space": work.space_id}
    for what, count in await work.rows(_ORPHANS, given):
        if count:
            problems.append(f"{count} {what}")
    problems += _counter_problems(await work.row(_COUNTERS, given))
    problems += _path_problems(await work.rows(_SESSIONS, given))
    problems += _ledger_problems(await work.rows(_TURNS, (work.space_id,)))
    problems += await _index_problems(work)
    problems += await _sign_problems(work)
    problems += await fact_problems(work)
    return CheckResult(
        checked=(
            "rows without their like",
            "counters",
            "paths of sessions",
            "turns of the ledger",
            "index of words",
            "signs of vectors",
            "facts",
        ),
        problems=tuple(problems),
    )


def _counter_problems(row: tuple[Any, ...] | None) -> list[str]:
    if row is None:
        return []
    documents, length, next_sequence, next_passage, packed, rows, total, last, newest = row
    found = []
    if (documents, length) != (rows, total):
        found.append(f"the index counts {documents} passages of {length} words: {rows} of {total}")
    if next_sequence <= last or next_passage <= newest or packed >= next_passage:
        found.append("a number would be given twice")
    return found


def _path_problems(rows: list[tuple[Any, ...]]) -> list[str]:
    lengths: dict[str, int] = {}
    expected: dict[str, int] = {}
    broken = 0
    for session, path_length, _, raw in rows:
        expected[session] = path_length
        try:
            keys, ids = decode_chunk(raw)
        except ValueError:
            broken += 1
            continue
        broken += len(keys) != len(ids)
        lengths[session] = lengths.get(session, 0) + len(keys)
    wrong = sum(lengths.get(session, 0) != length for session, length in expected.items())
    return [f"{broken + wrong} paths of sessions are damaged"] if broken or wrong else []


def _ledger_problems(rows: Sequence[tuple[Any, ...]]) -> list[str]:
    """A turn keeps no more rows of the one before it than that one has."""
    broken, of_session, length = 0, None, 0
    for session, kept, own in rows:
        length = length if session == of_session else 0
        if kept > length:
            broken += 1
        of_session, length = session, kept + own
    return [f"{broken} turns of the ledger cannot be rebuilt"] if broken else []


async def _index_problems(work: Transaction) -> list[str]:
    """Every run holds the words of its warm passages, and nothing else that is alive."""
    found: list[str] = []
    covered = 0
    for run, first, last, dead in await work.rows(_RUNS, (work.space_id,)):
        if first <= covered:
            found.append("two runs of the index overlap")
        covered = max(covered, last)
        wanted = forwards_of(await work.row(FORWARDS, (work.space_id, first - 1, last)))
        owners = np.repeat(wanted.numbers - first, wanted.sizes)
        expected = _places(wanted.terms, owners, np.minimum(wanted.counts, 255))
        rows = await work.rows(_BLOCKS, (work.space_id, run))
        try:
            blocks = [decode_block(raw) for (raw,) in rows]
            held = _joined(blocks, np.frombuffer(dead or b"", "<u2"))
        except (ValueError, struct.error):
            held = None
        if held is None or not np.array_equal(expected, held):
            found.append("a run of the index does not hold the words of its passages")
    return found


async def _sign_problems(work: Transaction) -> list[str]:
    """The signs are those of the warm vectors, and there are no others.

    Zero has no sign: a number that was rounded to it keeps the one it had.
    """
    wrong = 0
    for embedder, dimensions in await work.rows(_EMBEDDERS, (work.space_id,)):
        layout = Layout(dimensions)
        held: dict[int, bytes] = {}
        for block_no, raw in await work.rows(ALL_SIGNS, (work.space_id, embedder)):
            block = layout.read([raw])
            for slot in np.flatnonzero(layout.used(block)[0]).tolist():
                held[block_no * layout.slots + slot] = block["signs"][0][:, slot].tobytes()
        for number, plus, minus in await work.rows(_WARM_SIGNS, (work.space_id, embedder)):
            signs = held.pop(number, None)
            up, down, bits = (
                int.from_bytes(one.ljust(8 * layout.words, b"\0"))
                for one in (plus[4:], minus[4:], signs or b"")
            )
            wrong += signs is None or bits & up != up or bits & down != 0
        wrong += len(held)
    return [f"{wrong} vectors do not have the signs they should"] if wrong else []


def _joined(blocks: Sequence[tuple[NDArray[Any], ...]], dead: NDArray[Any]) -> NDArray[Any]:
    if not blocks:
        return np.empty((0, 3), np.int64)
    terms, numbers, _, counts = (np.concatenate(column) for column in zip(*blocks, strict=True))
    alive = ~np.isin(numbers, dead)
    return _places(terms[alive], numbers[alive], counts[alive])


def _places(terms: NDArray[Any], numbers: NDArray[Any], counts: NDArray[Any]) -> NDArray[Any]:
    rows = np.stack(
        [terms.astype(np.int64), numbers.astype(np.int64), counts.astype(np.int64)], axis=1
    )
    return rows[np.lexsort((rows[:, 1], rows[:, 0]))]


async def stats(work: Transaction, *, space: str, engine: str) -> Stats:
    """What the space holds."""
    counting = await work.send(_STATS, {"space": work.space_id})
    vectors = dict(await work.rows(_VECTOR_COUNTS, (work.space_id,)))
    (counted,) = await counting.records()
    return Stats(space=space, engine=engine, vectors=vectors, **counted)
