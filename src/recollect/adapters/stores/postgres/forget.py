"""Removes segments and all that quotes them, in one transaction, and leaves tombstones.

By content an identity goes wherever it was said; by place single segments go, and what quotes
their words stays while these are said elsewhere: a fact then rests on the twin there. Withdrawing
is the lesser thing: segments go with index and vectors, what quotes them stays, and nothing keeps
them from coming back. What always holds when it commits: no row of the space holds a text that is
said nowhere any more, a word of it in the index, its vector, or a quote of it; it cannot be written
again; whatever cannot be read is taken to quote. The bytes stay in the data files until they are
scrubbed, and `cannot` says so.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from recollect.adapters.stores.invariants import KINDS, jobs_of_sessions, marks_of
from recollect.adapters.stores.postgres import facts, ledger
from recollect.adapters.stores.postgres import ledger as compactions
from recollect.adapters.stores.postgres import sessions as quotes
from recollect.adapters.stores.postgres.driver import Raw, int8s, texts, uuids
from recollect.adapters.stores.postgres.facts import segments_changed
from recollect.adapters.stores.postgres.jobs import settle
from recollect.adapters.stores.postgres.moves import NEW_EPOCH, drop_index, drop_vectors
from recollect.adapters.stores.postgres.pool import Transaction
from recollect.adapters.stores.postgres.postings import Ints, erase, mark_dead, purge_dead
from recollect.adapters.stores.postgres.sessions import forget_sessions, path_of, state_without
from recollect.adapters.stores.postgres.space import SpaceCounters, advance, lock_space
from recollect.adapters.stores.postgres.write import GONE
from recollect.core.formats.stored_records import SoughtText
from recollect.core.values.fact import FactId, fact_identity
from recollect.core.values.message import MessageId
from recollect.core.values.segment import SegmentId
from recollect.core.values.upkeep import ForgetOrder, Forgotten

_ROWS_AT_ONCE: Final = 200

TOMBSTONES: Final = """
    INSERT INTO recollect.tombstones (space_id, message_id, at)
    SELECT c.space_id, u.message_id, %s
    FROM (SELECT space_id FROM recollect.counters WHERE space_id = %s) AS c
    CROSS JOIN unnest(%s::text[]) AS u (message_id)
    ON CONFLICT DO NOTHING
"""
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
_PIECES: Final = """
    SELECT hash, body FROM recollect.pieces WHERE space_id = %s AND hash > %s
    ORDER BY hash LIMIT %s
"""
_DROP_PIECES_BY_HASH: Final = """
    DELETE FROM recollect.pieces WHERE space_id = %s AND hash = ANY(%s::text[])
"""
_JOBS: Final = """
    SELECT job_no, payload, reason FROM recollect.jobs WHERE space_id = %s AND job_no > %s
    ORDER BY job_no LIMIT %s
"""
_DROP_JOBS_BY_NUMBER: Final = """
    DELETE FROM recollect.jobs WHERE space_id = %s AND job_no = ANY(%s::bigint[])
"""
_JOBS_OF_KINDS: Final = """
    SELECT job_no, key, payload FROM recollect.jobs
    WHERE space_id = %s AND kind = ANY(%s::text[])
"""
_SAID_IN: Final = """
    SELECT DISTINCT session FROM recollect.segments
    WHERE space_id = %s AND session = ANY(%s::text[])
"""
_STATES: Final = """
    SELECT session, state FROM recollect.sessions WHERE space_id = %s AND session > %s
    ORDER BY session LIMIT %s FOR UPDATE
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """What was removed beside segments."""

    facts: tuple[FactId, ...]
    pieces: int
    jobs: int
    states: int
    compactions: int = 0

    @property
    def anything(self) -> bool:
        """Whether there was something."""
        return bool(self.facts or self.pieces or self.jobs or self.states or self.compactions)


async def remove_quotes(
    work: Transaction,
    order: ForgetOrder,
    *,
    unsaid: set[str],
    gone: Mapping[str, str | None],
    places: Collection[str],
) -> Removed:
    """Remove what quotes the `unsaid`, and what rests on segments that are `gone`, each with the
    twin that says the same elsewhere. `places` are sessions that lost segments by place."""
    if order.facts:
        marks = texts(map(fact_identity, order.facts))
        await work.send(TOMBSTONES, (order.at, work.space_id, marks))
    removed = await facts.forget_facts(work, order.facts, gone)
    messages = texts(unsaid)
    pieces = len(await work.rows(_DROP_PIECES, (work.space_id, messages)))
    jobs = len(await work.rows(_DROP_JOBS, (work.space_id, messages)))
    emptied = await _emptied(work, order, places)
    jobs += await _forget_jobs_of_sessions(work, emptied)
    await facts.leave_sessions(work, emptied)
    states = 0
    if order.sessions and not order.by_time:  # these go as a whole
        pieces += await ledger.forget_turns(work, order.sessions)
        states += await forget_sessions(work, order.sessions)
    states += await _unquote(work, unsaid)
    if order.matching:
        text = SoughtText(order.matching)
        pieces += await _forget_text_in_pieces(work, text, at=order.at)
        jobs += await _forget_text_in_jobs(work, text)
        states += await _forget_text_in_states(work, text)
    return Removed(facts=removed, pieces=pieces, jobs=jobs, states=states)


async def _emptied(work: Transaction, order: ForgetOrder, places: Collection[str]) -> list[str]:
    """The sessions that went as a whole, or have no segment left at any of their places."""
    said = {value for (value,) in await work.rows(_SAID_IN, (work.space_id, texts(places)))}
    whole = () if order.by_time else order.sessions
    return list(dict.fromkeys([*whole, *(place for place in places if place not in said)]))


async def _forget_jobs_of_sessions(work: Transaction, sessions: Sequence[str]) -> int:
    """Drop the jobs that name these sessions, leased ones too."""
    if not sessions:
        return 0
    rows = await work.rows(_JOBS_OF_KINDS, (work.space_id, texts(KINDS)))
    gone = jobs_of_sessions(rows, sessions)
    if gone:
        await work.send(_DROP_JOBS_BY_NUMBER, (work.space_id, int8s(gone)))
    return len(gone)


async def _unquote(work: Transaction, unsaid: set[str]) -> int:
    """Take quotes of these messages out of session states; one that cannot be read goes."""
    quoting = await work.rows(_QUOTING, {"space": work.space_id, "ids": uuids(unsaid)})
    for session, state in quoting:
        left = state_without(state, await path_of(work, session), ((), ()), unsaid)
        if left is None:
            await forget_sessions(work, [session])
        else:
            await work.send(_PUT_STATE, (left, work.space_id, session))
    if quoting:
        await quotes.remove_quotes_of(work, [session for session, _ in quoting], unsaid)
    return len(quoting)


async def _forget_text_in_pieces(work: Transaction, text: SoughtText, *, at: float) -> int:
    """Remove pieces that hold the text, for good: a system prompt comes with each request."""
    gone: list[str] = []
    last = ""
    while rows := await work.rows(_PIECES, (work.space_id, last, _ROWS_AT_ONCE)):
        gone += [hash_ for hash_, body in rows if text.stands_in(body)]
        last = rows[-1][0]
    if gone:
        await work.send(_DROP_PIECES_BY_HASH, (work.space_id, texts(gone)))
        await work.send(TOMBSTONES, (at, work.space_id, texts(gone)))
    return len(gone)


async def _forget_text_in_jobs(work: Transaction, text: SoughtText) -> int:
    gone: list[int] = []
    last = 0
    while rows := await work.rows(_JOBS, (work.space_id, last, _ROWS_AT_ONCE)):
        for number, payload, reason in rows:
            if text.stands_in(payload) or text.stands_in(reason or ""):
                gone.append(number)
        last = rows[-1][0]
    if gone:
        await work.send(_DROP_JOBS_BY_NUMBER, (work.space_id, int8s(gone)))
    return len(gone)


async def _forget_text_in_states(work: Transaction, text: SoughtText) -> int:
    changed, last = 0, ""
    while rows := await work.rows(_STATES, (work.space_id, last, _ROWS_AT_ONCE)):
        for session, state in rows:
            left = text.taken_out_of(state)
            if left == state:
                continue
            changed += 1
            if left is None:
                await forget_sessions(work, [session])
            else:
                await work.send(_PUT_STATE, (left, work.space_id, session))
                await work.send(quotes.DROP_QUOTES, (work.space_id, texts([session])))
        last = rows[-1][0]
    return changed


UNTIL_SCRUBBED: Final = "data files and indexes of PostgreSQL, until `recollect memory scrub`"
UNTIL_OVERWRITTEN: Final = "write-ahead log of PostgreSQL that is not yet overwritten"
"""Its archives, replicas and backups stand in every certificate."""

HOLD_CONTENT: Final = (
    "segments", "passages", "passage_terms", "runs", "postings", "vectors", "sign_blocks",
    "facts", "fact_terms", "fact_vectors", "sessions", "session_quotes", "compactions", "jobs",
    "pieces",
)  # fmt: skip
"""Tables whose files may hold what was said: rows that were removed, and older versions of rows."""
_NOTE_REMOVED: Final = """
    INSERT INTO recollect.unscrubbed (space_id, table_name, at)
    SELECT c.space_id, u.table_name, %s
    FROM (SELECT space_id FROM recollect.counters WHERE space_id = %s) AS c
    CROSS JOIN unnest(%s::text[]) AS u (table_name)
    ON CONFLICT (space_id, table_name) DO UPDATE SET at = excluded.at
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
    SELECT sequence FROM recollect.segments
    WHERE space_id = %s AND id = ANY(%s::text[]) ORDER BY sequence
"""
_PASSAGES: Final = """
    SELECT passage_no FROM recollect.passages
    WHERE space_id = %s AND sequence = ANY(%s::bigint[]) ORDER BY passage_no
"""
_DROP_SEGMENTS: Final = """
    DELETE FROM recollect.segments WHERE space_id = %s AND sequence = ANY(%s::bigint[])
"""
_TWINS: Final = """
    SELECT DISTINCT ON (message_id) message_id, id FROM recollect.segments
    WHERE space_id = %s AND message_id = ANY(%s::text[]) ORDER BY message_id, sequence
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ForgetTargets:
    """What an order means here."""

    identities: tuple[MessageId, ...]
    """By content: wherever it was said."""
    rows: tuple[tuple[int, SegmentId, MessageId], ...]
    """Sequence, id and identity of every segment that goes."""
    places: tuple[tuple[int, SegmentId, MessageId], ...]
    """Those of them that go by place alone."""
    sessions: tuple[str, ...]
    """The session of each of the `places`."""


async def forget(work: Transaction, name: str, order: ForgetOrder) -> Forgotten:
    """Carry out an order."""
    counters = await lock_space(work, name)
    meant = await _meant(work, order)
    passages, vectors = await _remove_segments(work, meant, counters)
    marks = [*meant.identities, *(id_ for _, id_, _ in meant.places)]
    await work.send(TOMBSTONES, (order.at, work.space_id, texts(dict.fromkeys(marks))))
    removed = await _remove_what_rests(work, order, meant)
    await advance(work, counters)
    await work.send(NEW_EPOCH, (work.space_id,))
    await settle(work)
    if meant.rows or removed.anything:
        await note_removed(work)
    return Forgotten(
        segments=tuple(id_ for _, id_, _ in meant.rows),
        message_ids=meant.identities,
        passages=passages,
        vectors=vectors,
        facts=removed.facts,
        pieces=removed.pieces,
        jobs=removed.jobs,
        session_states=removed.states,
        compactions=removed.compactions,
        cannot=(UNTIL_SCRUBBED, UNTIL_OVERWRITTEN) if meant.rows or removed.anything else (),
    )


async def note_removed(work: Transaction) -> None:
    """Note that data files hold what was removed, until they are scrubbed.

    By the time of this machine, not of the order: it is compared with when tables were rewritten.
    """
    await work.send(_NOTE_REMOVED, (time.time(), work.space_id, texts(HOLD_CONTENT)))


async def withdraw(
    work: Transaction, name: str, ids: Sequence[SegmentId], up_to: int | None
) -> int:
    """Remove segments with their passages, words and vectors, and leave no mark; how many went."""
    counters = await lock_space(work, name)
    rows = await work.rows(_BY_ID, (work.space_id, texts(ids)))
    found = [sequence for (sequence,) in rows if up_to is None or sequence <= up_to]
    if not found:
        return 0
    sequences = int8s(found)
    numbers = await passages_of(work, sequences)
    await drop_index(work, numbers, counters)
    await drop_vectors(work, numbers)
    # Nobody asked for these words to be gone for good: the next merge takes them out of the runs.
    await mark_dead(work, numbers[numbers <= counters.packed_to])
    await work.send(_DROP_SEGMENTS, (work.space_id, sequences))
    await segments_changed(work)
    await advance(work, counters)
    await work.send(NEW_EPOCH, (work.space_id,))
    return len(found)


async def passages_of(work: Transaction, sequences: Raw) -> Ints:
    """The numbers of the passages of these segments."""
    rows = await work.rows(_PASSAGES, (work.space_id, sequences))
    return np.array([number for (number,) in rows], np.int64)


async def _meant(work: Transaction, order: ForgetOrder) -> _ForgetTargets:
    """Which segments go, and which identities get a tombstone."""
    by_content = _named(
        await work.rows(
            _BY_CONTENT,
            {
                "space": work.space_id,
                "ids": texts(order.segments),
                "messages": texts(order.message_ids),
            },
        )
    )
    rows: list[tuple[Any, ...]] = []
    if order.sessions or order.by_time:
        given = {
            "space": work.space_id,
            "anywhere": not order.sessions,
            "sessions": texts(order.sessions),
            "before": order.said_before,
            "after": order.said_after,
        }
        known = {sequence for sequence, _, _ in by_content}
        rows = [row for row in await work.rows(_BY_PLACE, given) if row[0] not in known]
    by_place = _named([row[:3] for row in rows])
    identities = dict.fromkeys([*order.message_ids, *(identity for _, _, identity in by_content)])
    return _ForgetTargets(
        identities=tuple(sorted(identities)),
        rows=tuple(sorted([*by_content, *by_place])),
        places=tuple(by_place),
        sessions=tuple(row[3] for row in rows),
    )


def _named(rows: list[tuple[Any, ...]]) -> list[tuple[int, SegmentId, MessageId]]:
    return [(sequence, SegmentId(id_), MessageId(identity)) for sequence, id_, identity in rows]


async def _remove_segments(
    work: Transaction, meant: _ForgetTargets, counters: SpaceCounters
) -> tuple[int, int]:
    """Remove the segments, their passages, words and vectors; how many passages and vectors."""
    if not meant.rows:
        return 0, 0
    sequences = int8s([sequence for sequence, _, _ in meant.rows])
    numbers = await passages_of(work, sequences)
    terms = await drop_index(work, numbers, counters)
    vectors = await drop_vectors(work, numbers)
    await erase(work, numbers[numbers <= counters.packed_to], terms)
    # Under numbers they had before they were cold, or indexed otherwise, they may stand there too.
    await purge_dead(work)
    await work.send(_DROP_SEGMENTS, (work.space_id, sequences))
    await work.send(
        GONE,
        (work.space_id, texts(id_ for _, id_, _ in meant.rows),
         texts(identity for _, _, identity in meant.rows)),
    )  # fmt: skip
    return len(numbers), vectors


async def _remove_what_rests(
    work: Transaction, order: ForgetOrder, meant: _ForgetTargets
) -> Removed:
    """Remove what rests on segments that are gone; quotes only of what is said nowhere else."""
    message_ids = {identity for _, _, identity in meant.places}
    twins = {
        identity: SegmentId(twin)
        for identity, twin in await work.rows(_TWINS, (work.space_id, texts(message_ids)))
    }
    gone: dict[str, str | None] = {id_: twins.get(identity) for _, id_, identity in meant.rows}
    unsaid: set[str] = {*meant.identities, *(message_ids - set(twins))}
    removed = await remove_quotes(
        work, order, unsaid=unsaid, gone=gone, places=dict.fromkeys(meant.sessions)
    )
    return replace(removed, compactions=await _remove_compactions(work, order, meant, unsaid))


async def _remove_compactions(
    work: Transaction, order: ForgetOrder, meant: _ForgetTargets, unsaid: set[str]
) -> int:
    """Remove what stands for forgotten messages, or for places of its session that went."""
    went = zip(meant.sessions, (identity for _, _, identity in meant.places), strict=True)
    whole = () if order.by_time else order.sessions
    gone = await compactions.forget_compactions(work, unsaid=unsaid, places=list(went), whole=whole)
    if order.matching:
        gone += await compactions.forget_compactions_with(work, SoughtText(order.matching))
    if marks := marks_of(gone, but_about=set(meant.identities)):
        await work.send(TOMBSTONES, (order.at, work.space_id, texts(marks)))
    return len(gone)
