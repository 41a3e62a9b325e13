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

from recollect.adapters.stores.invariants import marks_of
from recollect.adapters.stores.postgres import driver, facts, ledger, sessions, space, write
from recollect.adapters.stores.postgres.jobs import DROP as DROP_JOBS
from recollect.adapters.stores.postgres.jobs import store_due_at
from recollect.adapters.stores.postgres.pool import Transaction
from recollect.adapters.stores.postgres.words import Ints
from recollect.core.formats.stored_records import SoughtText
from recollect.core.values.batch import EXTRACT_JOB, Batch, extract_keys
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
"""Not measured; bounds the bodies in RAM while a request to forget searches all of them."""
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
    targets = await _find_targets(work, order)
    passages = vectors = 0
    if targets.rows:
        sequences = driver.int8s([sequence for sequence, _, _ in targets.rows])
        passages, vectors = await _erase_passages(work, sequences, counters)
        await work.send(_DROP_SEGMENTS, (work.space_id, sequences))
        await work.insert(write.FORGOTTEN_SEGMENTS, [row[1:] for row in targets.rows])
    await _put_tombstones(work, order, [*targets.identities, *(row[1] for row in targets.places)])
    removed_counts = await _remove_dependents(work, order, targets)
    await space.store_counters(work, counters)
    await work.send(write.NEW_EPOCH, (work.space_id,))
    await store_due_at(work)
    has_removed = bool(targets.rows) or any(removed_counts.values())
    if has_removed:
        await space.note_removal(work)
    return Forgotten(
        segments=tuple(SegmentId(row[1]) for row in targets.rows),
        message_ids=targets.identities,
        passages=passages,
        vectors=vectors,
        cannot=(UNTIL_SCRUBBED, UNTIL_OVERWRITTEN) if has_removed else (),
        **removed_counts,
    )


async def _find_targets(work: Transaction, order: ForgetOrder) -> _Targets:
    parameters: dict[str, Any] = {
        "space": work.space_id,
        "ids": driver.texts(order.segments),
        "messages": driver.texts(order.message_ids),
        "anywhere": not order.sessions,
        "sessions": driver.texts(order.sessions),
        "before": order.said_before,
        "after": order.said_after,
    }
    by_content = await work.rows(_BY_CONTENT, parameters)
    places: list[tuple[Any, ...]] = []
    if order.sessions or order.by_time:
        known_sequences = {row[0] for row in by_content}
        places = [
            row for row in await work.rows(_BY_PLACE, parameters) if row[0] not in known_sequences
        ]
    return _Targets(
        identities=tuple(sorted({*order.message_ids, *(MessageId(row[2]) for row in by_content)})),
        rows=sorted([*by_content, *(row[:3] for row in places)]),
        places=places,
    )


async def _erase_passages(
    work: Transaction, sequences: driver.Raw, counters: space.SpaceCounters
) -> tuple[int, int]:
    numbers = await _passages_of(work, sequences)
    terms = await write.drop_index(work, numbers, counters)
    vectors = await write.drop_vectors(work, numbers)
    await space.erase_from_runs(work, numbers[numbers <= counters.packed_to], terms)
    # Runs may still contain these segments under numbers from before they were indexed again.
    await space.purge_dead(work)
    return len(numbers), vectors


async def _passages_of(work: Transaction, sequences: driver.Raw) -> Ints:
    rows = await work.rows(_PASSAGES, (work.space_id, sequences))
    return np.array([number for (number,) in rows], np.int64)


async def _put_tombstones(work: Transaction, order: ForgetOrder, marks: Sequence[str]) -> None:
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
    twin_by_segment: dict[str, str | None] = {
        id_: twins.get(identity) for _, id_, identity in targets.rows
    }
    unsaid_ids: set[str] = {*targets.identities, *(identities - set(twins))}
    await _put_tombstones(work, order, [fact_identity(id_) for id_ in order.facts])
    removed_facts = await facts.forget_facts(work, order.facts, twin_by_segment)
    messages = driver.texts(unsaid_ids)
    pieces = len(await work.rows(_DROP_PIECES, (work.space_id, messages)))
    jobs = len(await work.rows(_DROP_JOBS, (work.space_id, messages)))
    # these sessions are removed as a whole
    whole_sessions = () if order.by_time else order.sessions
    empty_sessions = await _find_empty_sessions(
        work, whole_sessions, dict.fromkeys(row[3] for row in targets.places)
    )
    jobs += await _forget_jobs_of_sessions(work, empty_sessions)
    await facts.leave_sessions(work, empty_sessions)
    states = 0
    if whole_sessions:
        pieces += await ledger.forget_turns(work, whole_sessions)
        states += await sessions.forget_sessions(work, whole_sessions)
    states += await _unquote(work, unsaid_ids)
    places = [(row[3], row[2]) for row in targets.places]
    dropped_records = await ledger.forget_compactions(
        work, unsaid_ids=unsaid_ids, places=places, whole_sessions=whole_sessions
    )
    if order.matching:
        text = SoughtText(order.matching)
        hashes = await _ids_with(work, text, "pieces")
        await work.send(_DROP_PIECES_BY_HASH, (work.space_id, driver.texts(hashes)))
        await _put_tombstones(work, order, hashes)  # each request sends the system prompt again
        numbers = {int(id_) for id_ in await _ids_with(work, text, "jobs", "job reasons")}
        await work.send(DROP_JOBS, (work.space_id, driver.int8s(sorted(numbers))))
        pieces, jobs = pieces + len(hashes), jobs + len(numbers)
        states += await _forget_text_in_states(work, text)
        keys = [_key("compactions", id_) for id_ in await _ids_with(work, text, "compactions")]
        dropped_records += await ledger.drop_compactions(work, keys)
    await _put_tombstones(work, order, marks_of(dropped_records, but_about=set(targets.identities)))
    return {
        "facts": removed_facts,
        "pieces": pieces,
        "jobs": jobs,
        "session_states": states,
        "compactions": len(dropped_records),
    }


async def _find_empty_sessions(
    work: Transaction, whole_sessions: Sequence[str], places: Collection[str]
) -> list[str]:
    filled_sessions = {
        value for (value,) in await work.rows(_SAID_IN, (work.space_id, driver.texts(places)))
    }
    return list(
        dict.fromkeys(
            [*whole_sessions, *(place for place in places if place not in filled_sessions)]
        )
    )


async def _forget_jobs_of_sessions(work: Transaction, session_names: Sequence[str]) -> int:
    if not session_names:
        return 0
    keys = driver.texts(extract_keys(session_names))
    rows = await work.rows(_JOBS_OF_SESSIONS, (work.space_id, EXTRACT_JOB, keys))
    numbers = [number for (number,) in rows]
    if numbers:
        await work.send(DROP_JOBS, (work.space_id, driver.int8s(numbers)))
    return len(numbers)


async def _unquote(work: Transaction, unsaid_ids: set[str]) -> int:
    quoting_rows = await work.rows(
        _QUOTING, {"space": work.space_id, "ids": driver.uuids(unsaid_ids)}
    )
    for session, state in quoting_rows:
        path = await sessions.path_of(work, session)
        await _put_state(work, session, sessions.state_without(state, path, ((), ()), unsaid_ids))
    if quoting_rows:
        await sessions.remove_quotes_of(work, [session for session, _ in quoting_rows], unsaid_ids)
    return len(quoting_rows)


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
    changed_states = [
        (body.id, state)
        async for body in _bodies(work, "states")
        if (state := text.remove_from(body.body)) != body.body
    ]
    for session, state in changed_states:
        await _put_state(work, session, state)
        await work.send(sessions.DROP_QUOTES, (work.space_id, driver.texts([session])))
    return len(changed_states)


async def withdraw(work: Transaction, ids: Sequence[SegmentId], *, up_to: int | None = None) -> int:
    counters = await space.lock_space(work)
    rows = await work.rows(_BY_ID, (work.space_id, driver.texts(ids)))
    found_sequences = [sequence for _, sequence in rows if up_to is None or sequence <= up_to]
    if not found_sequences:
        return 0
    sequences = driver.int8s(found_sequences)
    numbers = await _passages_of(work, sequences)
    await write.drop_index(work, numbers, counters)
    await write.drop_vectors(work, numbers)
    # This call forgot nothing, so the next merge may remove these words from the runs.
    await space.mark_dead(work, numbers[numbers <= counters.packed_to])
    await work.send(_DROP_SEGMENTS, (work.space_id, sequences))
    await facts.raise_revision(work)
    await space.store_counters(work, counters)
    await work.send(write.NEW_EPOCH, (work.space_id,))
    await space.note_removal(work)
    return len(found_sequences)


async def expire(work: Transaction, *, before: float) -> int:
    expired_count = (
        await ledger.expire(work, before=before) if await space.lock_existing_space(work) else 0
    )
    if expired_count:
        await space.note_removal(work)
    return expired_count


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
    after_key = "(%s, %s::bigint)" if kind == "compactions" else "(%s)"
    query = f"""
        SELECT {place.id}, {place.session}, {place.body} FROM recollect.{place.table}
        WHERE space_id = %s AND ({order}) > {after_key} AND {place.body} IS NOT NULL
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
    for new_body in order.bodies:
        bodies += await _replace_body(work, new_body)
    new_by_id = {new_segment.segment.id: new_segment for new_segment in order.segments}
    rows = await work.rows(_BY_ID, (work.space_id, driver.texts(new_by_id)))
    sequence_by_id = {SegmentId(id_): sequence for id_, sequence in rows}
    vectors = 0
    if sequence_by_id:
        sequences = driver.int8s(list(sequence_by_id.values()))
        _, vectors = await _erase_passages(work, sequences, counters)
        segment_rows = [
            (sequence, id_, new_by_id[id_].segment.said_at, new_by_id[id_].passages)
            for id_, sequence in sequence_by_id.items()
        ]
        await write.insert_passages(work, segment_rows, counters)
        for id_, sequence in sequence_by_id.items():
            segment = new_by_id[id_].segment
            columns = (segment.text, segment.tool, segment.foreign, segment.tokens)
            await work.send(_PUT_SEGMENT, (*columns, work.space_id, sequence))
        await facts.raise_revision(work)  # a fact extracted from the old text would bring it back
    await space.store_counters(work, counters)
    await work.send(write.NEW_EPOCH, (work.space_id,))
    has_changed = bool(sequence_by_id or bodies or order.facts)
    if has_changed:
        await space.note_removal(work)
    return Rewritten(
        segments=tuple(id_ for id_ in new_by_id if id_ in sequence_by_id),
        bodies=bodies,
        vectors=vectors,
        cannot=(UNTIL_SCRUBBED, UNTIL_OVERWRITTEN) if has_changed else (),
    )


async def _replace_body(work: Transaction, new_body: NewBody) -> bool:
    place, body, old_body = _PLACES[new_body.kind], new_body.body, new_body.was
    values: tuple[Any, ...] = (body, old_body)
    if new_body.kind == "job reasons":
        values = tuple(text.decode("utf-8", "surrogatepass") for text in values)
    key = "session = %s AND number" if new_body.kind == "compactions" else place.id
    query = f"""
        UPDATE recollect.{place.table}
        SET {place.body} = %s{", exact = false" if new_body.kind == "pieces" else ""}
        WHERE space_id = %s AND {place.body} = %s AND {key} = %s RETURNING 1
    """  # noqa: S608
    arguments = (values[0], work.space_id, values[1], *_key(new_body.kind, new_body.id))
    return bool(await work.rows(query, arguments))
