"""Reads the archive, counts the contents of a space, and checks its rules, without changing
anything.

A check uses one snapshot, and reports an unreadable record by its kind, never by its content."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from recollect.adapters.stores.postgres.driver import floats_of, look_up, texts
from recollect.adapters.stores.postgres.facts import COLUMNS, decode_facts
from recollect.adapters.stores.postgres.pool import Transaction
from recollect.adapters.stores.postgres.sessions import decode_chunk, join_chunks
from recollect.adapters.stores.postgres.space import FORWARDS
from recollect.adapters.stores.postgres.vectors import EMBEDDER
from recollect.adapters.stores.postgres.words import Space, decode_block, forwards_of
from recollect.core.values.batch import StoredSession
from recollect.core.values.message import MessageId
from recollect.core.values.segment import (
    NewPassage,
    PassageText,
    Segment,
    SegmentId,
    StoredSegment,
    Vector,
)
from recollect.core.values.upkeep import CheckResult, SessionSummary, Stats

_MIN_PROGRESS: Final = 1_000
"""Not measured; storing a smaller progress would cost a write, and save little reading."""
_MAX_SEQUENCE: Final = 9_223_372_036_854_775_807
"""Largest `bigint`: a page in descending order begins here if it has no start."""

_SEGMENT: Final = """
    SELECT sequence, id, session, key, message_id, role, body AS text, tokens, said_at, source,
           trust, noise, tool, origin, foreign_line AS "foreign"
    FROM recollect.segments WHERE space_id = %(space)s
"""
_SEGMENTS: Final = f"{_SEGMENT} AND id = ANY(%(ids)s::text[])"
_IN_SESSION: Final = "AND (%(session)s::text IS NULL OR session = %(session)s)"
_PAGE: Final = f"""
    {_SEGMENT} AND sequence > %(after)s {_IN_SESSION} ORDER BY sequence LIMIT %(limit)s
"""
_PAGE_DOWN: Final = f"""
    {_SEGMENT} AND sequence < %(after)s {_IN_SESSION} ORDER BY sequence DESC LIMIT %(limit)s
"""
_KNOWN: Final = """
    SELECT id FROM recollect.segments WHERE space_id = %s AND id = ANY(%s::text[])
"""
_TOMBSTONED: Final = """
    SELECT message_id FROM recollect.tombstones
    WHERE space_id = %s AND (%s::text[] IS NULL OR message_id = ANY(%s::text[]))
"""
_SESSION: Final = """
    SELECT turn, state, ARRAY(
        SELECT entries FROM recollect.session_paths
        WHERE space_id = %(space)s AND session = %(session)s ORDER BY chunk
    ), ARRAY(
        SELECT key FROM recollect.segments
        WHERE space_id = %(space)s AND session = %(session)s ORDER BY sequence DESC LIMIT 64
    ) FROM recollect.sessions WHERE space_id = %(space)s AND session = %(session)s
"""
_SESSIONS: Final = """
    SELECT session, count(*) AS segments, min(said_at) AS first_said_at,
           max(said_at) AS last_said_at
    FROM recollect.segments WHERE space_id = %s GROUP BY session
    ORDER BY min(said_at), min(sequence)
"""
_PASSAGES: Final = """
    SELECT p.start_char AS start, p.end_char AS "end", p.embedded
    FROM recollect.segments AS s
    JOIN recollect.passages AS p ON p.space_id = %(space)s AND p.sequence = s.sequence
    WHERE s.space_id = %(space)s AND s.id = %(id)s ORDER BY p.ordinal
"""
_NEWEST: Final = "SELECT next_passage - 1 FROM recollect.counters WHERE space_id = %s"
_COMPLETE: Final = """
    UPDATE recollect.embedders SET complete_to = greatest(complete_to, %s)
    WHERE space_id = %s AND name = %s
"""
# A message of thousands of passages is sent with the first of them only. OFFSET 0 forces a look-up
# by key, so that the search ends after the wanted number of passages.
_UNEMBEDDED: Final = f"""
    SELECT s.id, p.ordinal, p.start_char, p.end_char, CASE WHEN p.sequence IS DISTINCT FROM
        lag(p.sequence) OVER (ORDER BY p.passage_no) THEN s.body END, p.passage_no
    FROM (
        SELECT passage_no, sequence, ordinal, start_char, end_char FROM recollect.passages AS one
        WHERE space_id = %(space)s AND passage_no > %(after)s AND embedded AND NOT EXISTS (
            SELECT FROM recollect.vectors WHERE space_id = %(space)s
                AND embedder_no = %(embedder)s AND passage_no = one.passage_no OFFSET 0
        ) ORDER BY passage_no LIMIT %(limit)s
    ) AS p
    CROSS JOIN LATERAL ({look_up("segments", "id, body", "sequence", "p.sequence")}) AS s
    ORDER BY p.passage_no
"""  # noqa: S608
_VECTORS: Final = f"""
    SELECT s.id, p.ordinal, coalesce(v.half::vector, v.v) FROM recollect.vectors AS v
    CROSS JOIN LATERAL (
        {look_up("passages", "sequence, ordinal", "passage_no", "v.passage_no")}
    ) AS p
    CROSS JOIN LATERAL ({look_up("segments", "id", "sequence", "p.sequence")}) AS s
    WHERE v.space_id = %(space)s AND v.embedder_no = (
        SELECT embedder_no FROM recollect.embedders
        WHERE space_id = %(space)s AND name = %(embedder)s
    ) ORDER BY s.id, p.ordinal
"""  # noqa: S608


async def read_segments(work: Transaction, ids: Sequence[SegmentId]) -> tuple[StoredSegment, ...]:
    rows = await work.records(_SEGMENTS, {"space": work.space_id, "ids": texts(ids)})
    by_id = {
        stored_segment.segment.id: stored_segment for stored_segment in _segments_from_rows(rows)
    }
    return tuple(by_id[id_] for id_ in ids if id_ in by_id)


async def read_page(
    work: Transaction,
    *,
    after: int = 0,
    limit: int = 500,
    session: str | None = None,
    descending: bool = False,
) -> tuple[StoredSegment, ...]:
    first = (after or _MAX_SEQUENCE) if descending else after
    parameters = {"space": work.space_id, "after": first, "limit": limit, "session": session}
    return tuple(
        _segments_from_rows(await work.records(_PAGE_DOWN if descending else _PAGE, parameters))
    )


async def find_known(work: Transaction, ids: Iterable[SegmentId]) -> frozenset[SegmentId]:
    wanted_ids = frozenset(ids)
    if work.lookup is not None and wanted_ids <= work.lookup.leave_out:
        space: Space = await work.lookup.read_space()
        return frozenset(map(SegmentId, wanted_ids & space.stored_ids))
    rows = await work.rows(_KNOWN, (work.space_id, texts(wanted_ids)))
    return frozenset(SegmentId(value) for (value,) in rows)


async def find_tombstones(
    work: Transaction, ids: Iterable[MessageId] | None = None
) -> frozenset[MessageId]:
    wanted_ids = None if ids is None else texts(ids)
    rows = await work.rows(_TOMBSTONED, (work.space_id, wanted_ids, wanted_ids))
    return frozenset(MessageId(value) for (value,) in rows)


async def read_session(work: Transaction, session: str) -> StoredSession | None:
    row = await work.row(_SESSION, {"space": work.space_id, "session": session})
    if row is None:
        return None
    try:
        path, ids = join_chunks(row[2])
    except ValueError:  # the path is damaged, which `check` reports: the session starts again
        return None
    turn, state, newest = row[0], row[1], frozenset(row[3])
    return StoredSession(session=session, turn=turn, state=state, path=path, ids=ids, newest=newest)


async def list_sessions(work: Transaction) -> tuple[SessionSummary, ...]:
    return tuple(SessionSummary(**row) for row in await work.records(_SESSIONS, (work.space_id,)))


async def read_passages(
    work: Transaction,
    id: SegmentId,  # noqa: A002 - the port's name
) -> tuple[NewPassage, ...]:
    rows = await work.records(_PASSAGES, {"space": work.space_id, "id": id})
    return tuple(NewPassage(words=(), **row) for row in rows)


async def find_unembedded(
    work: Transaction, embedder: str, *, limit: int
) -> tuple[tuple[PassageText, ...], int]:
    """List passages that lack a vector, oldest first. Also return the number up to which all
    passages have a vector, or 0 if storing the number would save too little work."""
    row = await work.row(EMBEDDER, (work.space_id, embedder))
    number, complete_to = (row[0], row[4]) if row is not None else (0, 0)
    newest = await work.send(_NEWEST, (work.space_id,))
    parameters = {
        "space": work.space_id, "after": complete_to, "embedder": number, "limit": max(0, limit)
    }  # fmt: skip
    rows = await (await work.send_planned(_UNEMBEDDED, parameters)).fetchall()
    (last,) = await newest.fetchone() or (0,)
    # Sequence numbers are committed in order, so no passage before this one can lose its vector.
    upto = rows[0][5] - 1 if rows else (last if limit > 0 else 0)
    is_worth_noting = row is not None and upto - complete_to >= _MIN_PROGRESS
    passage_texts, text = list[PassageText](), ""
    for id_, ordinal, start, end, body, _ in rows:
        text = text if body is None else body
        passage_texts.append(
            PassageText(segment=id_, ordinal=ordinal, text=text[start:end], start=start, end=end)
        )
    return tuple(passage_texts), upto if is_worth_noting else 0


async def note_complete(work: Transaction, embedder: str, upto: int) -> None:
    """Store the number up to which all passages have a vector: `find_unembedded` starts there."""
    await work.send(_COMPLETE, (upto, work.space_id, embedder))


async def read_vectors(work: Transaction, embedder: str) -> tuple[Vector, ...]:
    rows = await work.rows(_VECTORS, {"space": work.space_id, "embedder": embedder})
    return tuple(
        Vector(segment=SegmentId(id_), ordinal=ordinal, values=floats_of(raw))
        for id_, ordinal, raw in rows
    )


def _segments_from_rows(rows: Iterable[dict[str, Any]]) -> Iterator[StoredSegment]:
    for row in rows:
        yield StoredSegment(sequence=row.pop("sequence"), segment=Segment(**row))


_FACTS: Final = f"SELECT {COLUMNS} FROM recollect.facts WHERE space_id = %s"  # noqa: S608
_LONG: Final = "SET LOCAL statement_timeout = '1800s'"
CHECK_SECONDS: Final = 1800.0
"""Time limit for one part of a check."""


def _rows_without(table: str, other: str, key: str) -> str:
    """Write SQL for the rows of a table whose key is missing in the other table."""
    return f"""
        recollect.{table} AS t WHERE t.space_id = %(space)s AND NOT EXISTS (
            SELECT FROM recollect.{other} AS o
            WHERE o.space_id = %(space)s AND o.{key} = t.{key})
    """


_MUST_NOT_EXIST: Final = {
    "passages without a segment": _rows_without("passages", "segments", "sequence"),
    "passages without words": _rows_without("passages", "passage_terms", "passage_no"),
    "words without a passage": _rows_without("passage_terms", "passages", "passage_no"),
    "vectors without a passage": _rows_without("vectors", "passages", "passage_no"),
    "postings without a run": _rows_without("postings", "runs", "run"),
    "lists of quotes without a session": _rows_without("session_quotes", "sessions", "session"),
    "passages whose words are damaged": """
        recollect.passage_terms AS t
        WHERE t.space_id = %(space)s AND octet_length(t.terms) <> 2 * octet_length(t.counts)
    """,
    "embedders whose stored count of vectors is wrong": """
        recollect.embedders AS e WHERE e.space_id = %(space)s AND e.signed AND e.vectors <> (
            SELECT count(*) FROM recollect.vectors AS v
            WHERE v.space_id = %(space)s AND v.embedder_no = e.embedder_no)
    """,
    "passages marked as embedded, but without a vector": """
        recollect.embedders AS e
        JOIN recollect.passages AS p ON p.space_id = %(space)s AND p.passage_no <= e.complete_to
        WHERE e.space_id = %(space)s AND p.embedded AND NOT EXISTS (
            SELECT FROM recollect.vectors AS v WHERE v.space_id = %(space)s
            AND v.embedder_no = e.embedder_no AND v.passage_no = p.passage_no)
    """,
    "segments that were forgotten": """
        recollect.segments AS s WHERE s.space_id = %(space)s AND (EXISTS (
            SELECT FROM recollect.forgotten_segments AS f
            WHERE f.space_id = %(space)s AND f.id = s.id
        ) OR EXISTS (
            SELECT FROM recollect.tombstones AS t
            WHERE t.space_id = %(space)s AND t.message_id IN (s.id, s.message_id)
        ))
    """,
    "sessions without their path": """
        recollect.sessions AS s
        WHERE s.space_id = %(space)s AND (s.path_length + 255) / 256 <> (
            SELECT count(*) FROM recollect.session_paths AS p
            WHERE p.space_id = %(space)s AND p.session = s.session)
    """,
    "word indexes whose stored totals are wrong": """
        recollect.counters AS c
        WHERE c.space_id = %(space)s AND (c.documents, c.total_length) <> (
            SELECT count(*), coalesce(sum(t.length), 0) FROM recollect.passage_terms AS t
            WHERE t.space_id = %(space)s AND NOT t.cold)
    """,
    "counters whose next number is taken": """
        recollect.counters AS c WHERE c.space_id = %(space)s AND (
            c.packed_to >= c.next_passage
            OR EXISTS (SELECT FROM recollect.segments AS s
                WHERE s.space_id = %(space)s AND s.sequence >= c.next_sequence)
            OR EXISTS (SELECT FROM recollect.passages AS p
                WHERE p.space_id = %(space)s AND p.passage_no >= c.next_passage))
    """,
    "turns of the ledger that cannot be rebuilt": """
        (
            SELECT kept_rows, lag(kept_rows + cardinality(row_hashes), 1, 0::bigint) OVER (
                PARTITION BY session ORDER BY number
            ) AS length FROM recollect.turns WHERE space_id = %(space)s
        ) AS t WHERE t.kept_rows > t.length
    """,
}
"""For each problem, SQL for the rows that must not exist."""
_PROBLEMS: Final = " UNION ALL ".join(
    f"SELECT '{problem}', count(*) FROM {rows}"  # noqa: S608
    for problem, rows in _MUST_NOT_EXIST.items()
)
_CHECK_SESSIONS: Final = """
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
        SELECT count(*) AS segments, count(noise) AS noise,
            coalesce(sum(tokens), 0)::bigint AS tokens, count(DISTINCT session) AS sessions
        FROM recollect.segments WHERE space_id = %(space)s
    ) AS s, (
        SELECT count(*) FILTER (WHERE state = 'waiting') AS jobs_waiting,
            count(*) FILTER (WHERE state = 'dead') AS jobs_dead
        FROM recollect.jobs WHERE space_id = %(space)s
    ) AS j
"""
_VECTOR_COUNTS: Final = """
    SELECT e.name, count(*) FROM recollect.embedders AS e
    JOIN recollect.vectors AS v ON v.space_id = %(space)s AND v.embedder_no = e.embedder_no
    WHERE e.space_id = %(space)s GROUP BY e.name ORDER BY e.name
"""


async def check(work: Transaction) -> CheckResult:
    await work.send(_LONG)  # the role's own time limit is meant for a turn
    problems: list[str] = []
    parameters = {"space": work.space_id}
    for problem, count in await work.rows(_PROBLEMS, parameters):
        if count:
            problems.append(f"{count} {problem}")
    problems += _find_path_problems(await work.rows(_CHECK_SESSIONS, parameters))
    problems += await _find_index_problems(work)
    facts = await work.records(_FACTS, (work.space_id,))
    if unread_count := len(facts) - len(decode_facts(facts)):
        problems.append(f"{unread_count} records of kind fact cannot be read")
    return CheckResult(
        checked=(
            "references between rows",
            "counters",
            "paths of sessions",
            "turns of the ledger",
            "index of words",
            "facts",
        ),
        problems=tuple(problems),
    )


def _find_path_problems(rows: list[tuple[Any, ...]]) -> list[str]:
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


async def _find_index_problems(work: Transaction) -> list[str]:
    problems: list[str] = []
    covered = 0
    for run, first, last, dead in await work.rows(_RUNS, (work.space_id,)):
        if first <= covered:
            problems.append("two parts of the word index overlap")
        covered = max(covered, last)
        forwards = forwards_of(await work.row(FORWARDS, (work.space_id, first - 1, last)))
        owners = np.repeat(forwards.numbers - first, forwards.sizes)
        expected = _sort_postings(forwards.terms, owners, np.minimum(forwards.counts, 255))
        rows = await work.rows(_BLOCKS, (work.space_id, run))
        try:
            blocks = [decode_block(raw) for (raw,) in rows]
            present = _join(blocks, np.frombuffer(dead or b"", "<u2"))
        except (ValueError, struct.error):
            present = None
        if present is None or not np.array_equal(expected, present):
            problems.append(
                "a part of the word index lacks words of its passages: run `recollect memory "
                "reindex`"
            )
    return problems


def _join(blocks: Sequence[tuple[NDArray[Any], ...]], dead: NDArray[Any]) -> NDArray[Any]:
    if not blocks:
        return np.empty((0, 3), np.int64)
    terms, numbers, _, counts = (np.concatenate(column) for column in zip(*blocks, strict=True))
    alive = ~np.isin(numbers, dead)
    return _sort_postings(terms[alive], numbers[alive], counts[alive])


def _sort_postings(
    terms: NDArray[Any], numbers: NDArray[Any], counts: NDArray[Any]
) -> NDArray[Any]:
    rows = np.stack(
        [terms.astype(np.int64), numbers.astype(np.int64), counts.astype(np.int64)], axis=1
    )
    return rows[np.lexsort((rows[:, 1], rows[:, 0]))]


async def read_stats(work: Transaction, *, space: str, engine: str) -> Stats:
    parameters = {"space": work.space_id}
    count_query = await work.send(_STATS, parameters)
    vectors = dict(await work.rows(_VECTOR_COUNTS, parameters))
    (counts,) = await count_query.records()
    return Stats(space=space, engine=engine, vectors=vectors, **counts)
