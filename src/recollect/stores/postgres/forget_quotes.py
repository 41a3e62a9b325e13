"""Removes what rests on forgotten messages: facts, ledger pieces, jobs, quotes in session states.

Runs within the transaction that removed the segments. Always holds: a fact of a segment whose
words are said elsewhere rests on its twin there; whatever cannot be read is taken to quote.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from recollect.formats.held_text import HeldText
from recollect.stores.postgres import facts, ledger, quotes
from recollect.stores.postgres.pool import Transaction
from recollect.stores.postgres.wire import escaped, int8s, plain, texts, uuids
from recollect.stores.postgres.write_session import forget_sessions, path_of, without
from recollect.stores.session_jobs import KINDS, jobs_of_sessions
from recollect.values.fact import FactId, fact_identity
from recollect.values.upkeep import ForgetOrder

_AT_ONCE: Final = 200

TOMBSTONES: Final = """
    INSERT INTO recollect.tombstones (space_id, message_id, at)
    SELECT %s, u.message_id, %s FROM unnest(%s::text[]) AS u (message_id)
    ON CONFLICT DO NOTHING
"""
_DROP_PIECES: Final = """
    DELETE FROM recollect.pieces WHERE space_id = %s AND about && %s::text[] RETURNING 1
"""
_DROP_JOBS: Final = """
    DELETE FROM recollect.jobs WHERE space_id = %s AND about && %s::text[] RETURNING 1
"""
# `about` is what older code wrote.
_QUOTING: Final = """
    SELECT s.session, s.state FROM recollect.sessions AS s
    WHERE s.space_id = %(space)s AND (s.about && %(texts)s::text[] OR EXISTS (
        SELECT FROM recollect.session_quotes AS q
        WHERE q.space_id = %(space)s AND q.session = s.session AND q.ids && %(ids)s::uuid[]
    )) FOR UPDATE OF s
"""
_PUT_STATE: Final = """
    UPDATE recollect.sessions SET state = %s, about = ARRAY(
        SELECT u.one FROM unnest(about) AS u (one) WHERE u.one <> ALL(%s::text[])
    ) WHERE space_id = %s AND session = %s
"""
_PUT_BARE_STATE: Final = """
    UPDATE recollect.sessions SET state = %s, about = '{}' WHERE space_id = %s AND session = %s
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
        await work.send(TOMBSTONES, (work.space_id, order.at, marks))
    removed = await facts.forget(work, order.facts, gone)
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
        text = HeldText(order.matching)
        pieces += await _forget_text_in_pieces(work, text, at=order.at)
        jobs += await _forget_text_in_jobs(work, text)
        states += await _forget_text_in_states(work, text)
    return Removed(facts=removed, pieces=pieces, jobs=jobs, states=states)


async def _emptied(work: Transaction, order: ForgetOrder, places: Collection[str]) -> list[str]:
    """The sessions that went as a whole, or have no segment left at any of their places."""
    said = {plain(one) for (one,) in await work.rows(_SAID_IN, (work.space_id, texts(places)))}
    whole = () if order.by_time else order.sessions
    return list(dict.fromkeys([*whole, *(one for one in places if one not in said)]))


async def _forget_jobs_of_sessions(work: Transaction, sessions: Sequence[str]) -> int:
    """Drop the jobs that name these sessions, leased ones too."""
    if not sessions:
        return 0
    rows = await work.rows(_JOBS_OF_KINDS, (work.space_id, texts(KINDS)))
    gone = jobs_of_sessions(((number, plain(key), raw) for number, key, raw in rows), sessions)
    if gone:
        await work.send(_DROP_JOBS_BY_NUMBER, (work.space_id, int8s(gone)))
    return len(gone)


async def _unquote(work: Transaction, unsaid: set[str]) -> int:
    """Take quotes of these messages out of session states; one that cannot be read goes."""
    gone = texts(unsaid)
    quoting = await work.rows(
        _QUOTING, {"space": work.space_id, "texts": gone, "ids": uuids(unsaid)}
    )
    for session, state in quoting:
        name = plain(session)
        left = without(state, await path_of(work, name), ((), ()), unsaid)
        if left is None:
            await forget_sessions(work, [name])
        else:
            await work.send(_PUT_STATE, (left, gone, work.space_id, session))
    if quoting:
        await quotes.take_out(work, [plain(session) for session, _ in quoting], unsaid)
    return len(quoting)


async def _forget_text_in_pieces(work: Transaction, text: HeldText, *, at: float) -> int:
    """Remove pieces that hold the text, for good: a system prompt comes with each request."""
    gone: list[str] = []
    last = ""
    while rows := await work.rows(_PIECES, (work.space_id, escaped(last), _AT_ONCE)):
        gone += [plain(hash_) for hash_, body in rows if text.stands_in(body)]
        last = plain(rows[-1][0])
    if gone:
        await work.send(_DROP_PIECES_BY_HASH, (work.space_id, texts(gone)))
        await work.send(TOMBSTONES, (work.space_id, at, texts(gone)))
    return len(gone)


async def _forget_text_in_jobs(work: Transaction, text: HeldText) -> int:
    gone: list[int] = []
    last = 0
    while rows := await work.rows(_JOBS, (work.space_id, last, _AT_ONCE)):
        for number, payload, reason in rows:
            if text.stands_in(payload) or text.stands_in(plain(reason or "")):
                gone.append(number)
        last = rows[-1][0]
    if gone:
        await work.send(_DROP_JOBS_BY_NUMBER, (work.space_id, int8s(gone)))
    return len(gone)


async def _forget_text_in_states(work: Transaction, text: HeldText) -> int:
    changed, last = 0, ""
    while rows := await work.rows(_STATES, (work.space_id, escaped(last), _AT_ONCE)):
        for session, state in rows:
            left = text.taken_out_of(state)
            if left == state:
                continue
            changed += 1
            if left is None:
                await forget_sessions(work, [plain(session)])
            else:
                await work.send(_PUT_BARE_STATE, (left, work.space_id, session))
                await work.send(quotes.DROP_QUOTES, (work.space_id, texts([plain(session)])))
        last = plain(rows[-1][0])
    return changed
