"""Forgets, withdraws and rewrites content of a space, each in one transaction.

A request by content removes a message wherever it is stored; a request by place removes single
segments. If another segment has the same words, quotes stay and facts name that segment as their
source. After forgetting, no row contains a forgotten text, a word of it, its vector or a quote, and
the text cannot be written again. An unreadable record is removed as if it quoted forgotten content.
Withdrawing removes segments, but keeps their quotes and lets them be stored again. Rewriting
replaces only rows that are unchanged since they were read. PostgreSQL's data files contain the
bytes until a scrub, and the certificate reports this."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from recollect.adapters.stores.invariants import extract_keys, marks_of
from recollect.adapters.stores.postgres import driver, facts, ledger, sessions, space, write
from recollect.adapters.stores.postgres.jobs import DROP as DROP_JOBS
from recollect.adapters.stores.postgres.jobs import settle
from recollect.adapters.stores.postgres.pool import Transaction
from recollect.adapters.stores.postgres.words import Ints
from recollect.core.formats.stored_records import SoughtText
from recollect.core.values.batch import EXTRACT_JOB, Batch
from recollect.core.values.fact import fact_identity
from recollect.core.values.message import MessageId
from recollect.core.values.segment import SegmentId
from recollect.core.values.upkeep import (
    BodyKind,
    ForgetOrder,
    Forgotten,
    NewBody,
    RewriteOrder,
    Rewritten,
    StoredBody,
)

_PAGE: Final = 200
UNTIL_SCRUBBED: Final = "data files and indexes of PostgreSQL, until `recollect memory scrub`"
UNTIL_OVERWRITTEN: Final = "write-ahead log of PostgreSQL that is not yet overwritten"
"""Copies that every certificate lists as not overwritten: archives, replicas and backups."""
_TOMBSTONES: Final = driver.RowInsert("tombstones", "message_id text, at float8")
_DROP_PIECES: Final = """
    DELETE FROM recollect.pieces WHERE space_id = %s AND about && %s::text[] RETURNING 1
"""
_DROP_JOBS: Final = """
    DELETE FROM recollect.jobs WHERE space_id = %s AND about && %s::text[] RETURNING 1
"""
_QUOTING: Final = """
    SELECT s.session, s.state FROM recollect.sessions AS s
    WHERE s.space_id = %(space)s AND EXISTS (
        SELECT FROM recollect.session_quotes AS q
        WHERE q.space_id = %(space)s AND q.session = s.session AND q.ids && %(ids)s::uuid[]
    ) FOR UPDATE OF s
"""
_PUT_STATE: Final = """
    UPDATE recollect.sessions SET state = %s WHERE space_id = %s AND session = %s
"""
_DROP_PIECES_BY_HASH: Final = driver.delete("pieces", "hash", "text")
_JOBS_OF_SESSIONS: Final = """
    SELECT job_no FROM recollect.jobs WHERE space_id = %s AND kind = %s AND key = ANY(%s::text[])
"""
_SAID_IN: Final = """
    SELECT DISTINCT session FROM recollect.segments
    WHERE space_id = %s AND session = ANY(%s::text[])
"""
_BY_CONTENT: Final = """
    SELECT t.sequence, t.id, t.message_id FROM recollect.segments AS t
    WHERE t.space_id = %(space)s AND t.message_id IN (
        SELECT s.message_id FROM recollect.segments AS s
        WHERE s.space_id = %(space)s AND (
            s.id = ANY(%(ids)s::text[]) OR s.message_id = ANY(%(messages)s::text[])
        )
    ) ORDER BY t.sequence
"""
_BY_PLACE: Final = """
    SELECT sequence, id, message_id, session FROM recollect.segments
    WHERE space_id = %(space)s
        AND (%(anywhere)s OR session = ANY(%(sessions)s::text[]))
        AND (%(before)s::float8 IS NULL OR said_at < %(before)s)
        AND (%(after)s::float8 IS NULL OR said_at >= %(after)s)
    ORDER BY sequence
"""
_BY_ID: Final = """
    SELECT id, sequence FROM recollect.segments
    WHERE space_id = %s AND id = ANY(%s::text[]) ORDER BY sequence
"""
_PASSAGES: Final = """
    SELECT passage_no FROM recollect.passages
    WHERE space_id = %s AND sequence = ANY(%s::bigint[]) ORDER BY passage_no
"""
_DROP_SEGMENTS: Final = driver.delete("segments", "sequence", "bigint")
_TWINS: Final = """
    SELECT DISTINCT ON (message_id) message_id, id FROM recollect.segments
    WHERE space_id = %s AND message_id = ANY(%s::text[]) ORDER BY message_id, sequence
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Targets:
    identities: tuple[MessageId, ...]
    """Messages to forget by content, wherever they are stored."""
    rows: list[tuple[Any, ...]]
    """Sequence, segment id and message id of every segment to remove."""
    places: list[tuple[Any, ...]]
    """The `rows` to remove only in one session, each with that session."""


async def forget(work: Transaction, order: ForgetOrder) -> Forgotten:
    counters = await space.lock_space(work)
    targets = await _targets(work, order)
    passages = vectors = 0
    if targets.rows:
        sequences = driver.int8s([sequence for sequence, _, _ in targets.rows])
        passages, vectors = await _erase_passages(work, sequences, counters)
        await work.send(_DROP_SEGMENTS, (work.space_id, sequences))
        await work.insert(write.FORGOTTEN_SEGMENTS, [row[1:] for row in targets.rows])
    marks = [*targets.identities, *(row[1] for row in targets.places)]
    await _entomb(work, order, marks)
    removed = await _remove_dependents(work, order, targets)
    await space.advance(work, counters)
    await work.send(write.NEW_EPOCH, (work.space_id,))
    await settle(work)
    anything = bool(targets.rows) or any(removed.values())
    if anything:
        await space.note_removed(work)
    return Forgotten(
        segments=tuple(SegmentId(row[1]) for row in targets.rows),
        message_ids=targets.identities,
        passages=passages,
        vectors=vectors,
        cannot=(UNTIL_SCRUBBED, UNTIL_OVERWRITTEN) if anything else (),
        **removed,
    )


async def _targets(work: Transaction, order: ForgetOrder) -> _Targets:
    given: dict[str, Any] = {
        "space": work.space_id,
        "ids": driver.texts(order.segments),
        "messages": driver.texts(order.message_ids),
        "anywhere": not order.sessions,
        "sessions": driver.texts(order.sessions),
        "before": order.said_before,
        "after": order.said_after,
    }
    by_content = await work.rows(_BY_CONTENT, given)
    places: list[tuple[Any, ...]] = []
    if order.sessions or order.by_time:
        known = {row[0] for row in by_content}
        places = [row for row in await work.rows(_BY_PLACE, given) if row[0] not in known]
    identities = {*order.message_ids, *(MessageId(row[2]) for row in by_content)}
    return _Targets(
        identities=tuple(sorted(identities)),
        rows=sorted([*by_content, *(row[:3] for row in places)]),
        places=places,
    )


async def _erase_passages(
    work: Transaction, sequences: driver.Raw, counters: space.SpaceCounters
) -> tuple[int, int]:
    numbers = await _passages_of(work, sequences)
    terms = await write.drop_index(work, numbers, counters)
    vectors = await write.drop_vectors(work, numbers)
    await space.erase(work, numbers[numbers <= counters.packed_to], terms)
    # Runs may still contain these segments under numbers from before they were indexed again.
    await space.purge_dead(work)
    return len(numbers), vectors


async def _passages_of(work: Transaction, sequences: driver.Raw) -> Ints:
    rows = await work.rows(_PASSAGES, (work.space_id, sequences))
    return np.array([number for (number,) in rows], np.int64)


async def _entomb(work: Transaction, order: ForgetOrder, marks: Sequence[str]) -> None:
    await work.insert(_TOMBSTONES, [(mark, order.at) for mark in dict.fromkeys(marks)])


async def _remove_dependents(
    work: Transaction, order: ForgetOrder, targets: _Targets
) -> dict[str, Any]:
    """Remove everything that depends on removed segments, and quotes of content that no other
    segment has. Return counts by the field of `Forgotten`."""
    identities = {row[2] for row in targets.places}
    twins = {
        identity: SegmentId(twin)
        for identity, twin in await work.rows(_TWINS, (work.space_id, driver.texts(identities)))
    }
    gone: dict[str, str | None] = {id_: twins.get(identity) for _, id_, identity in targets.rows}
    unsaid: set[str] = {*targets.identities, *(identities - set(twins))}
    await _entomb(work, order, [fact_identity(id_) for id_ in order.facts])
    removed = await facts.forget_facts(work, order.facts, gone)
    messages = driver.texts(unsaid)
    pieces = len(await work.rows(_DROP_PIECES, (work.space_id, messages)))
    jobs = len(await work.rows(_DROP_JOBS, (work.space_id, messages)))
    whole = () if order.by_time else order.sessions  # these sessions are removed as a whole
    emptied = await _find_emptied(work, whole, dict.fromkeys(row[3] for row in targets.places))
    jobs += await _forget_jobs_of_sessions(work, emptied)
    await facts.leave_sessions(work, emptied)
    states = 0
    if whole:
        pieces += await ledger.forget_turns(work, whole)
        states += await sessions.forget_sessions(work, whole)
    states += await _unquote(work, unsaid)
    places = [(row[3], row[2]) for row in targets.places]
    dropped = await ledger.forget_compactions(work, unsaid=unsaid, places=places, whole=whole)
    if order.matching:
        text = SoughtText(order.matching)
        hashes = await _ids_with(work, text, "pieces")
        await work.send(_DROP_PIECES_BY_HASH, (work.space_id, driver.texts(hashes)))
        await _entomb(work, order, hashes)  # each request sends the system prompt again
        numbers = {int(id_) for id_ in await _ids_with(work, text, "jobs", "job reasons")}
        await work.send(DROP_JOBS, (work.space_id, driver.int8s(sorted(numbers))))
        pieces, jobs = pieces + len(hashes), jobs + len(numbers)
        states += await _forget_text_in_states(work, text)
        named = [_key("compactions", id_) for id_ in await _ids_with(work, text, "compactions")]
        dropped += await ledger.drop_compactions(work, named)
    await _entomb(work, order, marks_of(dropped, but_about=set(targets.identities)))
    return {
        "facts": removed,
        "pieces": pieces,
        "jobs": jobs,
        "session_states": states,
        "compactions": len(dropped),
    }


async def _find_emptied(
    work: Transaction, whole: Sequence[str], places: Collection[str]
) -> list[str]:
    said = {value for (value,) in await work.rows(_SAID_IN, (work.space_id, driver.texts(places)))}
    return list(dict.fromkeys([*whole, *(place for place in places if place not in said)]))


async def _forget_jobs_of_sessions(work: Transaction, emptied: Sequence[str]) -> int:
    if not emptied:
        return 0
    keys = driver.texts(extract_keys(emptied))
    rows = await work.rows(_JOBS_OF_SESSIONS, (work.space_id, EXTRACT_JOB, keys))
    removed = [number for (number,) in rows]
    if removed:
        await work.send(DROP_JOBS, (work.space_id, driver.int8s(removed)))
    return len(removed)


async def _unquote(work: Transaction, unsaid: set[str]) -> int:
    quoting = await work.rows(_QUOTING, {"space": work.space_id, "ids": driver.uuids(unsaid)})
    for session, state in quoting:
        path = await sessions.path_of(work, session)
        await _put_state(work, session, sessions.state_without(state, path, ((), ()), unsaid))
    if quoting:
        await sessions.remove_quotes_of(work, [session for session, _ in quoting], unsaid)
    return len(quoting)


async def _put_state(work: Transaction, session: str, state: bytes | None) -> None:
    if state is None:
        await sessions.forget_sessions(work, [session])
    else:
        await work.send(_PUT_STATE, (state, work.space_id, session))


async def _bodies(work: Transaction, kind: BodyKind) -> AsyncIterator[StoredBody]:
    last: str | None = None
    while page := await read_bodies(work, kind, after=last, limit=_PAGE):
        for body in page:
            yield body
        last = page[-1].id


async def _ids_with(work: Transaction, text: SoughtText, *kinds: BodyKind) -> list[str]:
    return [
        body.id for kind in kinds async for body in _bodies(work, kind) if text.occurs_in(body.body)
    ]


async def _forget_text_in_states(work: Transaction, text: SoughtText) -> int:
    changed = [
        (body.id, left)
        async for body in _bodies(work, "states")
        if (left := text.remove_from(body.body)) != body.body
    ]
    for session, left in changed:
        await _put_state(work, session, left)
        await work.send(sessions.DROP_QUOTES, (work.space_id, driver.texts([session])))
    return len(changed)


async def withdraw(work: Transaction, ids: Sequence[SegmentId], *, up_to: int | None = None) -> int:
    counters = await space.lock_space(work)
    rows = await work.rows(_BY_ID, (work.space_id, driver.texts(ids)))
    found = [sequence for _, sequence in rows if up_to is None or sequence <= up_to]
    if not found:
        return 0
    sequences = driver.int8s(found)
    numbers = await _passages_of(work, sequences)
    await write.drop_index(work, numbers, counters)
    await write.drop_vectors(work, numbers)
    # This call forgot nothing, so the next merge may remove these words from the runs.
    await space.mark_dead(work, numbers[numbers <= counters.packed_to])
    await work.send(_DROP_SEGMENTS, (work.space_id, sequences))
    await facts.raise_revision(work)
    await space.advance(work, counters)
    await work.send(write.NEW_EPOCH, (work.space_id,))
    await space.note_removed(work)
    return len(found)


async def expire(work: Transaction, *, before: float) -> int:
    expired = await ledger.expire(work, before=before) if await space.take_turn(work) else 0
    if expired:
        await space.note_removed(work)
    return expired


class _Place(NamedTuple):
    """The table and column in which the bodies of a kind are stored."""

    table: str
    id: str
    body: str
    session: str = "NULL"


_PLACES: Final[Mapping[BodyKind, _Place]] = {
    "pieces": _Place("pieces", "hash", "body"),
    "jobs": _Place("jobs", "job_no", "payload"),
    "job reasons": _Place("jobs", "job_no", "reason"),
    "compactions": _Place("compactions", "number", "body", "session"),
    "states": _Place("sessions", "session", "state", "session"),
}
_PUT_SEGMENT: Final = """
    UPDATE recollect.segments
    SET body = %s, tool = %s, foreign_line = %s, tokens = %s
    WHERE space_id = %s AND sequence = %s
"""


async def read_bodies(
    work: Transaction, kind: BodyKind, *, after: str | None = None, limit: int = 100
) -> tuple[StoredBody, ...]:
    place = _PLACES[kind]
    order = "session, number" if kind == "compactions" else place.id
    beyond = "(%s, %s::bigint)" if kind == "compactions" else "(%s)"
    query = f"""
        SELECT {place.id}, {place.session}, {place.body} FROM recollect.{place.table}
        WHERE space_id = %s AND ({order}) > {beyond} AND {place.body} IS NOT NULL
        ORDER BY {order} LIMIT %s
    """  # noqa: S608
    rows = await work.rows(query, (work.space_id, *_key(kind, after or ""), limit))
    return tuple(
        StoredBody(
            kind=kind,
            id=f"{id_}:{session}" if kind == "compactions" else str(id_),
            body=body if isinstance(body, bytes) else body.encode("utf-8", "surrogatepass"),
            session=session,
        )
        for id_, session, body in rows
    )


def _key(kind: BodyKind, id_: str) -> tuple[Any, ...]:
    if kind in ("jobs", "job reasons"):
        return (int(id_ or 0),)
    if kind == "compactions":
        number, _, session = id_.partition(":")
        return session, int(number or -(2**62))
    return (id_,)


async def rewrite(work: Transaction, order: RewriteOrder) -> Rewritten:
    # Facts are rewritten with their source texts, so that their evidence always fits the text.
    if order.facts or order.facts_revision is not None:
        batch = Batch(at=order.at, facts=order.facts, facts_revision=order.facts_revision)
        await write.write_batch(work, batch)
    counters = await space.lock_space(work)
    bodies = 0
    for new in order.bodies:
        bodies += await _replace_body(work, new)
    given = {new.segment.id: new for new in order.segments}
    rows = await work.rows(_BY_ID, (work.space_id, driver.texts(given)))
    found = {SegmentId(id_): sequence for id_, sequence in rows}
    vectors = 0
    if found:
        sequences = driver.int8s(list(found.values()))
        _, vectors = await _erase_passages(work, sequences, counters)
        indexed = [
            (sequence, id_, given[id_].segment.said_at, given[id_].passages)
            for id_, sequence in found.items()
        ]
        await write.insert_passages(work, indexed, counters)
        for id_, sequence in found.items():
            segment = given[id_].segment
            texts_ = (segment.text, segment.tool, segment.foreign, segment.tokens)
            await work.send(_PUT_SEGMENT, (*texts_, work.space_id, sequence))
        await facts.raise_revision(work)  # a fact extracted from the old text would bring it back
    await space.advance(work, counters)
    await work.send(write.NEW_EPOCH, (work.space_id,))
    anything = bool(found or bodies or order.facts)
    if anything:
        await space.note_removed(work)
    return Rewritten(
        segments=tuple(id_ for id_ in given if id_ in found),
        bodies=bodies,
        vectors=vectors,
        cannot=(UNTIL_SCRUBBED, UNTIL_OVERWRITTEN) if anything else (),
    )


async def _replace_body(work: Transaction, new: NewBody) -> bool:
    place, body, was = _PLACES[new.kind], new.body, new.was
    values: tuple[Any, ...] = (body, was)
    if new.kind == "job reasons":
        values = tuple(text.decode("utf-8", "surrogatepass") for text in values)
    key = "session = %s AND number" if new.kind == "compactions" else place.id
    query = f"""
        UPDATE recollect.{place.table}
        SET {place.body} = %s{", exact = false" if new.kind == "pieces" else ""}
        WHERE space_id = %s AND {place.body} = %s AND {key} = %s RETURNING 1
    """  # noqa: S608
    given = (values[0], work.space_id, values[1], *_key(new.kind, new.id))
    return bool(await work.rows(query, given))
