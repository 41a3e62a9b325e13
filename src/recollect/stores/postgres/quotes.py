"""Whom a session's state quotes: identities at 16 bytes each, in chunks.

A state whose past was cut stands for thousands of messages and is written every turn; only
chunks that changed are looked at and written. Always holds: an identity that stands here was not
forgotten when it was written, and forgetting takes it out, so a chunk that has not changed needs
no second look.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from recollect.stores.postgres.compactions import UNQUOTABLE, look_at_quoted, unquotable
from recollect.stores.postgres.pool import Cursor, Transaction
from recollect.stores.postgres.wire import escaped, plain, texts, uuids

CHUNK: Final = 256

_HELD: Final = """
    SELECT chunk, digest FROM recollect.session_quotes WHERE space_id = %s AND session = %s
"""
_PUT: Final = """
    INSERT INTO recollect.session_quotes (space_id, session, chunk, digest, ids)
    VALUES (%s, %s, %s, %s, %s::uuid[])
    ON CONFLICT (space_id, session, chunk) DO UPDATE
    SET digest = excluded.digest, ids = excluded.ids
"""
_DROP_FROM: Final = """
    DELETE FROM recollect.session_quotes WHERE space_id = %s AND session = %s AND chunk >= %s
"""
DROP_QUOTES: Final = """
    DELETE FROM recollect.session_quotes WHERE space_id = %s AND session = ANY(%s::text[])
"""
_TAKE_OUT: Final = """
    UPDATE recollect.session_quotes SET digest = NULL, ids = ARRAY(
        SELECT u.id FROM unnest(ids) WITH ORDINALITY AS u (id, place)
        WHERE u.id <> ALL(%(gone)s::uuid[]) ORDER BY u.place
    ) WHERE space_id = %(space)s AND session = ANY(%(sessions)s::text[])
        AND ids && %(gone)s::uuid[]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """Questions that were sent ahead: the chunks that are kept, and whom the last may not quote."""

    held: Cursor
    newest: Cursor


async def look(work: Transaction, session: str, about: Sequence[str]) -> Meeting:
    """Queue the questions about a state that quotes these; the last chunk is the likely one."""
    last = about[max(0, len(about) - 1) // CHUNK * CHUNK :]
    return Meeting(
        held=await work.send(_HELD, (work.space_id, escaped(session))),
        newest=await look_at_quoted(work, last),
    )


async def may_not_quote(
    work: Transaction, about: Sequence[str], meeting: Meeting, said: AbstractSet[str]
) -> set[str]:
    """Whom of these a state may not quote any more; `said` are those that this batch stores."""
    held = dict(await meeting.held.fetchall())
    chunks = _chunks(about)
    doubtful = [
        one
        for number, some in enumerate(chunks[:-1])
        if held.get(number) != _digest(some)
        for one in some
    ]
    found = await unquotable(meeting.newest, said)
    if doubtful:
        asked = {"space": work.space_id, "about": texts(doubtful)}
        rows = await work.rows(UNQUOTABLE, asked)
        found |= {plain(one) for (one,) in rows} - said
    return found


async def write(work: Transaction, session: str, about: Sequence[str], meeting: Meeting) -> None:
    """Keep whom a state quotes: the chunks that changed."""
    held = dict(await meeting.held.fetchall())
    chunks = _chunks(about)
    for number, some in enumerate(chunks):
        digest = _digest(some)
        if held.get(number) != digest:
            given = (work.space_id, escaped(session), number, digest, uuids(some))
            await work.send(_PUT, given)
    if any(number >= len(chunks) for number in held):
        await work.send(_DROP_FROM, (work.space_id, escaped(session), len(chunks)))


async def take_out(work: Transaction, sessions: Sequence[str], gone: AbstractSet[str]) -> None:
    """States of these sessions quote those who are gone no more."""
    given = {"space": work.space_id, "sessions": texts(sessions), "gone": uuids(gone)}
    await work.send(_TAKE_OUT, given)


def _chunks(about: Sequence[str]) -> list[Sequence[str]]:
    return [about[at : at + CHUNK] for at in range(0, len(about), CHUNK)]


def _digest(ids: Sequence[str]) -> bytes:
    joined = "\0".join(ids).encode("utf-8", "surrogatepass")
    return blake2b(joined, digest_size=16).digest()
