"""What a session is remembered as: its state, and the chunks of its path that changed.

Older writes never replace newer ones. A state that quotes a forgotten message is stored without
the quotes; one that cannot be read is not stored at all then.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from recollect.errors import FormatError
from recollect.formats.session_state import without_quotes
from recollect.stores.outcome import SessionOutcome
from recollect.stores.postgres import quotes
from recollect.stores.postgres.paths import CHUNK, chunks_from, decode_chunk, join_chunks
from recollect.stores.postgres.pool import Cursor, Transaction
from recollect.stores.postgres.wire import byteas, escaped, int4s, texts
from recollect.values.batch import SessionWrite
from recollect.values.message import EntryKey

_EVERY_CHUNK: Final = 2**31 - 1

_STORED: Final = """
    SELECT turn, path_length, state FROM recollect.sessions
    WHERE space_id = %s AND session = %s
"""
_CHUNK: Final = """
    SELECT entries FROM recollect.session_paths
    WHERE space_id = %s AND session = %s AND chunk = %s
"""
PATH_BEFORE: Final = """
    SELECT entries FROM recollect.session_paths
    WHERE space_id = %s AND session = %s AND chunk < %s ORDER BY chunk
"""
_SESSION: Final = """
    INSERT INTO recollect.sessions (space_id, session, turn, path_length, about, state)
    VALUES (%s, %s, %s, %s, '{}', %s)
    ON CONFLICT (space_id, session) DO UPDATE SET turn = excluded.turn,
        path_length = excluded.path_length, about = excluded.about, state = excluded.state
"""
_CUT_PATH: Final = """
    DELETE FROM recollect.session_paths WHERE space_id = %s AND session = %s AND chunk >= %s
"""
_PATH: Final = """
    INSERT INTO recollect.session_paths (space_id, session, chunk, entries)
    SELECT %s, %s, * FROM unnest(%s::integer[], %s::bytea[])
"""


DROP_SESSIONS: Final = """
    DELETE FROM recollect.sessions WHERE space_id = %s AND session = ANY(%s::text[])
    RETURNING 1
"""
DROP_PATHS: Final = """
    DELETE FROM recollect.session_paths WHERE space_id = %s AND session = ANY(%s::text[])
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """Questions that were sent ahead: the stored turn, and the chunk the new path begins in."""

    stored: Cursor
    chunk: Cursor
    quotes: quotes.Meeting


async def look(work: Transaction, given: SessionWrite) -> Meeting:
    """Queue the questions about the session."""
    session = escaped(given.session)
    return Meeting(
        stored=await work.send(_STORED, (work.space_id, session)),
        chunk=await work.send(_CHUNK, (work.space_id, session, given.path_from // CHUNK)),
        quotes=await quotes.look(work, given.session, given.about),
    )


async def write(
    work: Transaction,
    given: SessionWrite,
    meeting: Meeting,
    forgotten: frozenset[str],
    said: frozenset[str],
) -> SessionOutcome:
    """Write the session; it is stale when it has moved on.

    It may quote none of the `forgotten`; `said` are the identities this batch stores.
    """
    stored = await meeting.stored.fetchone()
    if stored is not None and stored[0] > given.turn:
        return SessionOutcome(stale=True)
    gone = await quotes.may_not_quote(work, given.about, meeting.quotes, said)
    quoted = (forgotten | gone).intersection(given.about)
    if stored is not None and stored[0] == given.turn:
        return await _met_again(work, given, bytes(stored[2]), quoted)
    length = stored[1] if stored is not None else 0
    if given.path_from > length:  # what lies between was never written: no path with a hole
        return SessionOutcome(stale=True)
    chunk = await meeting.chunk.fetchone()
    start, within = given.path_from, given.path_from % CHUNK
    try:
        kept_keys, kept_ids = decode_chunk(chunk[0]) if chunk is not None and within else ([], [])
    except ValueError:  # the path is damaged: the session is to begin anew
        return SessionOutcome(stale=True)
    keys = [*kept_keys[:within], *given.path]
    ids = [*kept_ids[:within], *given.ids]
    state = await _unquoted(work, given, (keys, ids), quoted)
    if state is None:  # it cannot be told what it quotes
        await forget_sessions(work, [given.session])
        return SessionOutcome(stale=True, cleaned=True)
    session = escaped(given.session)
    about = [one for one in given.about if one not in quoted]
    await work.send(_SESSION, (work.space_id, session, given.turn, start + len(given.path), state))
    await quotes.write(work, given.session, about, meeting.quotes)
    if start != length or given.path:
        await _write_path(work, session, start // CHUNK, keys, ids)
    return SessionOutcome(cleaned=state != given.state)


async def _met_again(
    work: Transaction, given: SessionWrite, stored: bytes, quoted: Collection[str]
) -> SessionOutcome:
    """Of a write of the turn that is stored: the very same one is not stale, even where what it
    quoted was taken out meanwhile."""
    if stored == given.state:
        return SessionOutcome()
    again = bool(quoted) and stored == without(
        given.state, await path_of(work, given.session), ((), ()), quoted
    )
    return SessionOutcome(stale=not again, cleaned=again)


async def _unquoted(
    work: Transaction,
    given: SessionWrite,
    rest: tuple[Sequence[str], Sequence[str]],
    quoted: Collection[str],
) -> bytes | None:
    """The state that is written; `rest` is the path from the chunk on that the write begins in."""
    if not quoted:
        return given.state
    before = await path_of(work, given.session, below=given.path_from // CHUNK)
    return without(given.state, before, rest, quoted)


async def _write_path(
    work: Transaction, session: str, first: int, keys: Sequence[str], ids: Sequence[str]
) -> None:
    """Replace the path from this chunk on."""
    await work.send(_CUT_PATH, (work.space_id, session, first))
    if chunks := chunks_from(first, keys, ids):
        await work.send(
            _PATH,
            (work.space_id, session, int4s([number for number, _ in chunks]),
             byteas([raw for _, raw in chunks])),
        )  # fmt: skip


async def path_of(work: Transaction, session: str, *, below: int = _EVERY_CHUNK) -> list[bytes]:
    """The chunks of a session's path, as far as they stand below one."""
    rows = await work.rows(PATH_BEFORE, (work.space_id, escaped(session), below))
    return [raw for (raw,) in rows]


def without(
    state: bytes,
    chunks: Sequence[bytes],
    rest: tuple[Sequence[str], Sequence[str]],
    quoted: Collection[str],
) -> bytes | None:
    """The state without quotes of these messages; None when it cannot be told what it quotes.

    The whole path tells which entries they are: a state quotes what came long before, too.
    """
    try:
        keys, ids = join_chunks(chunks)
        pairs = zip((*keys, *rest[0]), (*ids, *rest[1]), strict=True)
        return without_quotes(
            state, frozenset(EntryKey(key) for key, id_ in pairs if id_ in quoted)
        )
    except (ValueError, FormatError):
        return None


async def forget_sessions(work: Transaction, sessions: Sequence[str]) -> int:
    """Remember nothing of these sessions; how many had a state."""
    named = texts(sessions)
    await work.send(DROP_PATHS, (work.space_id, named))
    await work.send(quotes.DROP_QUOTES, (work.space_id, named))
    return len(await work.rows(DROP_SESSIONS, (work.space_id, named)))
