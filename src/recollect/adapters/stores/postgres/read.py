"""Reads the archive: segments, sessions, passages, vectors. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from recollect.adapters.stores.postgres.driver import floats_of, texts
from recollect.adapters.stores.postgres.pool import Transaction
from recollect.adapters.stores.postgres.sessions import join_chunks
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
from recollect.core.values.upkeep import SessionSummary

_WORTH_NOTING: Final = 1_000
_MOST: Final = 9_223_372_036_854_775_807

_SEGMENT: Final = """
    SELECT sequence, id, session, key, message_id, role, body AS text, tokens, said_at, source,
           trust, noise, tool, origin, foreign_line AS "foreign", cold
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
    WHERE space_id = %s AND message_id = ANY(%s::text[])
"""
_SESSION: Final = """
    SELECT turn, state FROM recollect.sessions WHERE space_id = %s AND session = %s
"""
_PATH: Final = """
    SELECT entries FROM recollect.session_paths WHERE space_id = %s AND session = %s
    ORDER BY chunk
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
_EMBEDDER: Final = """
    SELECT embedder_no, complete_to FROM recollect.embedders WHERE space_id = %s AND name = %s
"""
_NEWEST: Final = "SELECT next_passage - 1 FROM recollect.counters WHERE space_id = %s"
_COMPLETE: Final = """
    UPDATE recollect.embedders SET complete_to = greatest(complete_to, %s)
    WHERE space_id = %s AND name = %s
"""
_UNEMBEDDED: Final = """
    SELECT s.id, p.ordinal, p.start_char, p.end_char, s.body, p.passage_no
    FROM recollect.passages AS p
    JOIN recollect.segments AS s ON s.space_id = %(space)s AND s.sequence = p.sequence
    WHERE p.space_id = %(space)s AND p.passage_no > %(after)s AND p.embedded AND NOT p.cold
        AND NOT EXISTS (
            SELECT FROM recollect.vectors AS v WHERE v.space_id = %(space)s
            AND v.embedder_no = %(embedder)s AND v.passage_no = p.passage_no
        )
    ORDER BY p.passage_no LIMIT %(limit)s
"""
_VECTORS: Final = """
    SELECT s.id, p.ordinal, coalesce(v.half::vector, v.v)
    FROM recollect.segments AS s
    JOIN recollect.passages AS p ON p.space_id = %(space)s AND p.sequence = s.sequence
    JOIN recollect.vectors AS v ON v.space_id = %(space)s AND v.passage_no = p.passage_no
        AND v.embedder_no = %(embedder)s
    WHERE s.space_id = %(space)s
        AND (s.id > %(id)s OR (s.id = %(id)s AND p.ordinal > %(ordinal)s))
    ORDER BY s.id, p.ordinal LIMIT %(limit)s
"""


async def segments(work: Transaction, ids: Sequence[SegmentId]) -> tuple[StoredSegment, ...]:
    """These segments, in this order."""
    rows = await work.records(_SEGMENTS, {"space": work.space_id, "ids": texts(ids)})
    by_id = {stored.segment.id: stored for stored in _stored(rows)}
    return tuple(by_id[id_] for id_ in ids if id_ in by_id)


async def page(
    work: Transaction, *, after: int, limit: int, session: str | None, descending: bool
) -> tuple[StoredSegment, ...]:
    """Segments in the order of arrival."""
    given = {
        "space": work.space_id,
        "after": (after or _MOST) if descending else after,
        "limit": limit,
        "session": session,
    }
    return tuple(_stored(await work.records(_PAGE_DOWN if descending else _PAGE, given)))


async def known(work: Transaction, ids: Iterable[SegmentId]) -> frozenset[SegmentId]:
    """Which of these are stored."""
    rows = await work.rows(_KNOWN, (work.space_id, texts(ids)))
    return frozenset(SegmentId(value) for (value,) in rows)


async def tombstoned(work: Transaction, ids: Iterable[MessageId]) -> frozenset[MessageId]:
    """Which of these identities were forgotten."""
    rows = await work.rows(_TOMBSTONED, (work.space_id, texts(ids)))
    return frozenset(MessageId(value) for (value,) in rows)


async def session(work: Transaction, named: str) -> StoredSession | None:
    """What is remembered of a session."""
    given = (work.space_id, named)
    stored = await work.send(_SESSION, given)
    chunks = await work.send(_PATH, given)
    row = await stored.fetchone()
    if row is None:
        return None
    try:
        path, ids = join_chunks([raw for (raw,) in await chunks.fetchall()])
    except ValueError:  # its path is damaged, which `check` tells; the session begins anew
        return None
    return StoredSession(session=named, turn=row[0], state=row[1], path=path, ids=ids)


async def sessions(work: Transaction) -> tuple[SessionSummary, ...]:
    """The sessions that have segments, oldest first."""
    rows = await work.records(_SESSIONS, (work.space_id,))
    return tuple(SessionSummary(**row) for row in rows)


async def passages(work: Transaction, id_: SegmentId) -> tuple[NewPassage, ...]:
    """The spans of a segment; the words themselves are not kept."""
    rows = await work.records(_PASSAGES, {"space": work.space_id, "id": id_})
    return tuple(NewPassage(words=(), **row) for row in rows)


async def unembedded(
    work: Transaction, embedder: str, *, limit: int
) -> tuple[tuple[PassageText, ...], int]:
    """Warm passages that are to have a vector and have none, oldest first.

    Also up to which passage none is missing, where that is worth writing down; else 0.
    """
    row = await work.row(_EMBEDDER, (work.space_id, embedder))
    number, complete_to = row if row is not None else (0, 0)
    newest = await work.send(_NEWEST, (work.space_id,))
    passage_texts: list[PassageText] = []
    first, after = 0, complete_to
    while (wanted := limit - len(passage_texts)) > 0:  # what cannot be read does not count
        rows = await work.rows(
            _UNEMBEDDED,
            {"space": work.space_id, "after": after, "embedder": number, "limit": wanted},
        )
        passage_texts += _texts_of(rows)
        if rows:
            first, after = first or rows[0][5], rows[-1][5]
        if len(rows) < wanted:
            break
    last = await newest.fetchone()
    # Numbers are committed in their order: what this snapshot has up to here stays complete.
    upto = first - 1 if first else (last[0] if last is not None and limit > 0 else 0)
    worth = row is not None and upto - complete_to >= _WORTH_NOTING
    return tuple(passage_texts), upto if worth else 0


def _texts_of(rows: Iterable[tuple[Any, ...]]) -> Iterator[PassageText]:
    for id_, ordinal, start, end, body, _ in rows:
        yield PassageText(
            segment=SegmentId(id_), ordinal=ordinal, text=body[start:end], start=start, end=end
        )


async def note_complete(work: Transaction, embedder: str, upto: int) -> None:
    """Write down up to which passage no vector is missing: the next search for one starts there."""
    await work.send(_COMPLETE, (upto, work.space_id, embedder))


async def vectors(
    work: Transaction, embedder: str, *, after: tuple[SegmentId, int] | None, limit: int
) -> tuple[Vector, ...]:
    """The vectors of an embedder, ordered by segment and ordinal."""
    row = await work.row(_EMBEDDER, (work.space_id, embedder))
    if row is None:
        return ()
    from_id, from_ordinal = after if after is not None else ("", -1)
    rows = await work.rows(
        _VECTORS,
        {"space": work.space_id, "embedder": row[0], "id": from_id,
         "ordinal": from_ordinal, "limit": limit},
    )  # fmt: skip
    return tuple(
        Vector(segment=SegmentId(id_), ordinal=ordinal, values=floats_of(raw))
        for id_, ordinal, raw in rows
    )


def _stored(rows: Iterable[dict[str, Any]]) -> Iterator[StoredSegment]:
    for row in rows:
        sequence, cold = row.pop("sequence"), row.pop("cold")
        yield StoredSegment(segment=Segment(**row), sequence=sequence, cold=cold)
