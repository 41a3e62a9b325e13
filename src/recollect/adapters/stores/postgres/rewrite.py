"""Reads and replaces stored texts in place: what redacting what is stored already is made of.

Runs within one transaction of the space's turn. Always holds: a row is replaced only while it is
what was read; a segment keeps its place, and no passage, word, run or vector of its old text is
left in a row. The old bytes stay in the data files until they are scrubbed, and `cannot` says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, LiteralString

from recollect.adapters.stores.postgres.driver import int8s, texts
from recollect.adapters.stores.postgres.facts import segments_changed
from recollect.adapters.stores.postgres.forget import (
    UNTIL_OVERWRITTEN,
    UNTIL_SCRUBBED,
    note_removed,
    passages_of,
)
from recollect.adapters.stores.postgres.moves import NEW_EPOCH, drop_index, drop_vectors
from recollect.adapters.stores.postgres.pool import Transaction
from recollect.adapters.stores.postgres.postings import erase, purge_dead
from recollect.adapters.stores.postgres.space import SpaceCounters, advance, lock_space
from recollect.adapters.stores.postgres.write import insert_passages, write_batch
from recollect.core.values.batch import Batch
from recollect.core.values.segment import NewSegment, SegmentId
from recollect.core.values.upkeep import BodyKind, NewBody, RewriteOrder, Rewritten, StoredBody

_NUMBER_BEFORE_NAME: Final = ":"

_HELD: Final[Mapping[BodyKind, LiteralString]] = {
    "pieces": """
        SELECT hash, NULL, body FROM recollect.pieces WHERE space_id = %s AND hash > %s
        ORDER BY hash LIMIT %s
    """,
    "jobs": """
        SELECT job_no, NULL, payload FROM recollect.jobs WHERE space_id = %s AND job_no > %s
        ORDER BY job_no LIMIT %s
    """,
    "job reasons": """
        SELECT job_no, NULL, reason FROM recollect.jobs
        WHERE space_id = %s AND job_no > %s AND reason IS NOT NULL ORDER BY job_no LIMIT %s
    """,
    "compactions": """
        SELECT number, session, body FROM recollect.compactions
        WHERE space_id = %s AND (session, number) > (%s, %s::bigint)
        ORDER BY session, number LIMIT %s
    """,
    "states": """
        SELECT session, session, state FROM recollect.sessions
        WHERE space_id = %s AND session > %s ORDER BY session LIMIT %s
    """,
}
_PUT: Final[Mapping[BodyKind, LiteralString]] = {
    "pieces": """
        UPDATE recollect.pieces SET body = %s, exact = false
        WHERE space_id = %s AND hash = %s AND body = %s RETURNING 1
    """,
    "jobs": """
        UPDATE recollect.jobs SET payload = %s
        WHERE space_id = %s AND job_no = %s AND payload = %s RETURNING 1
    """,
    "job reasons": """
        UPDATE recollect.jobs SET reason = %s
        WHERE space_id = %s AND job_no = %s AND reason = %s RETURNING 1
    """,
    "compactions": """
        UPDATE recollect.compactions SET body = %s
        WHERE space_id = %s AND session = %s AND number = %s AND body = %s RETURNING 1
    """,
    "states": """
        UPDATE recollect.sessions SET state = %s
        WHERE space_id = %s AND session = %s AND state = %s RETURNING 1
    """,
}
_FIND: Final = """
    SELECT id, sequence, cold FROM recollect.segments
    WHERE space_id = %s AND id = ANY(%s::text[]) ORDER BY sequence
"""
_PUT_SEGMENT: Final = """
    UPDATE recollect.segments
    SET body = %s, tool = %s, foreign_line = %s, tokens = %s
    WHERE space_id = %s AND sequence = %s
"""


async def held(
    work: Transaction, kind: BodyKind, *, after: str | None, limit: int
) -> tuple[StoredBody, ...]:
    """The bodies of a kind beyond an id."""
    rows = await work.rows(_HELD[kind], (work.space_id, *_key(kind, after or ""), limit))
    return tuple(
        StoredBody(kind=kind, id=_named(kind, id_, name), body=_bytes(body), session=name)
        for id_, name, body in rows
    )


async def rewrite(work: Transaction, name: str, order: RewriteOrder) -> Rewritten:
    """Replace texts."""
    # With the texts they rest on, so that no span is ever of another text.
    if order.facts or order.facts_revision is not None:
        facts = Batch(at=order.at, facts=order.facts, facts_revision=order.facts_revision)
        await write_batch(work, facts, name)
    counters = await lock_space(work, name)
    bodies = 0
    for new in order.bodies:
        bodies += await _put(work, new)
    given = {new.segment.id: new for new in order.segments}
    rows = await work.rows(_FIND, (work.space_id, texts(given)))
    found = {SegmentId(id_): (sequence, cold) for id_, sequence, cold in rows}
    vectors = 0
    if found:
        vectors = await _reindexed(work, given, found, counters)
    for id_, (sequence, _) in found.items():
        await _put_segment(work, given[id_], sequence)
    if found:  # a fact that was read from an old text would bring it back
        await segments_changed(work)
    await advance(work, counters)
    await work.send(NEW_EPOCH, (work.space_id,))
    if found or bodies or order.facts:
        await note_removed(work)
    return Rewritten(
        segments=tuple(id_ for id_ in given if id_ in found),
        bodies=bodies,
        vectors=vectors,
        cannot=(UNTIL_SCRUBBED, UNTIL_OVERWRITTEN) if found or bodies or order.facts else (),
    )


async def _put(work: Transaction, new: NewBody) -> bool:
    body: Any = new.body
    was: Any = new.was
    if new.kind == "job reasons":
        body, was = (row.decode("utf-8", "surrogatepass") for row in (body, was))
    given = (body, work.space_id, *_key(new.kind, new.id), was)
    return bool(await work.rows(_PUT[new.kind], given))


async def _reindexed(
    work: Transaction,
    given: Mapping[SegmentId, NewSegment],
    found: Mapping[SegmentId, tuple[int, bool]],
    counters: SpaceCounters,
) -> int:
    """Take the old passages out to the last posting and index the new; how many vectors went."""
    numbers = await passages_of(work, int8s([sequence for sequence, _ in found.values()]))
    terms = await drop_index(work, numbers, counters)
    vectors = await drop_vectors(work, numbers)
    await erase(work, numbers[numbers <= counters.packed_to], terms)
    # Under numbers they had before they were cold, or indexed otherwise, they may stand there too.
    await purge_dead(work)
    indexed = [
        (sequence, given[id_], cold)
        for id_, (sequence, cold) in found.items()
        if given[id_].passages
    ]
    await insert_passages(work, indexed, counters)
    return vectors


async def _put_segment(work: Transaction, new: NewSegment, sequence: int) -> None:
    segment = new.segment
    await work.send(
        _PUT_SEGMENT,
        (
            segment.text,
            segment.tool,
            segment.foreign,
            segment.tokens,
            work.space_id,
            sequence,
        ),
    )


def _key(kind: BodyKind, id_: str) -> tuple[Any, ...]:
    """An id as the columns have it."""
    if kind in ("jobs", "job reasons"):
        return (int(id_ or 0),)
    if kind == "compactions":
        number, _, session = id_.partition(_NUMBER_BEFORE_NAME)
        return session, int(number or 0)
    return (id_,)


def _named(kind: BodyKind, id_: Any, session: str | None) -> str:
    if kind == "compactions":
        return f"{id_}{_NUMBER_BEFORE_NAME}{session or ''}"
    return str(id_)


def _bytes(body: bytes | str) -> bytes:
    return body if isinstance(body, bytes) else body.encode("utf-8", "surrogatepass")
