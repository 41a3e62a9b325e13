"""What a session is remembered as: its state, and the chunks of its path that changed.

Older writes never replace newer ones. A state that quotes a forgotten message is stored without
the quotes; one that cannot be read is not stored at all then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from recollect.errors import FormatError
from recollect.formats.session_state import without_quotes
from recollect.stores.postgres.paths import CHUNK, chunks_from, decode_chunk
from recollect.stores.postgres.pool import Cursor, Transaction
from recollect.stores.postgres.wire import byteas, escaped, int4s, plain, texts
from recollect.values.batch import SessionWrite
from recollect.values.message import EntryKey

_STORED: Final = """
    SELECT turn, path_length, state FROM recollect.sessions
    WHERE space_id = %s AND session = %s
"""
_CHUNK: Final = """
    SELECT entries FROM recollect.session_paths
    WHERE space_id = %s AND session = %s AND chunk = %s
"""
_FORGOTTEN_KEYS: Final = """
    SELECT key FROM recollect.forgotten_segments
    WHERE space_id = %s AND message_id = ANY(%s::text[])
"""
_SESSION: Final = """
    INSERT INTO recollect.sessions (space_id, session, turn, path_length, about, state)
    VALUES (%s, %s, %s, %s, %s::text[], %s)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """Questions that were sent ahead: the stored turn, and the chunk the new path begins in."""

    stored: Cursor
    chunk: Cursor
    keys: Cursor


async def look(work: Transaction, given: SessionWrite) -> Meeting:
    """Queue the questions about the session."""
    session = escaped(given.session)
    return Meeting(
        stored=await work.send(_STORED, (work.space_id, session)),
        chunk=await work.send(_CHUNK, (work.space_id, session, given.path_from // CHUNK)),
        keys=await work.send(_FORGOTTEN_KEYS, (work.space_id, texts(given.about))),
    )


async def write(
    work: Transaction, given: SessionWrite, meeting: Meeting, tombstoned: frozenset[str]
) -> bool:
    """Write the session; whether it was left out because it has moved on."""
    stored = await meeting.stored.fetchone()
    if stored is not None and stored[0] >= given.turn:
        return not (stored[0] == given.turn and bytes(stored[2]) == given.state)
    length = stored[1] if stored is not None else 0
    if given.path_from > length:  # what lies between was never written: no path with a hole
        return True
    chunk = await meeting.chunk.fetchone()
    session = escaped(given.session)
    start = given.path_from
    state = await _unquoted(given, meeting, tombstoned)
    if state is None:
        return False
    about = [one for one in given.about if one not in tombstoned]
    await work.send(
        _SESSION,
        (work.space_id, session, given.turn, start + len(given.path), texts(about), state),
    )
    if start == length and not given.path:
        return False
    kept_keys, kept_ids = decode_chunk(chunk[0]) if chunk is not None else ([], [])
    within = start % CHUNK
    keys = [*kept_keys[:within], *given.path]
    ids = [*kept_ids[:within], *given.ids]
    await work.send(_CUT_PATH, (work.space_id, session, start // CHUNK))
    if chunks := chunks_from(start // CHUNK, keys, ids):
        await work.send(
            _PATH,
            (work.space_id, session, int4s([number for number, _ in chunks]),
             byteas([raw for _, raw in chunks])),
        )  # fmt: skip
    return False


async def _unquoted(
    given: SessionWrite, meeting: Meeting, tombstoned: frozenset[str]
) -> bytes | None:
    if tombstoned.isdisjoint(given.about):
        return given.state
    keys = {EntryKey(plain(key)) for (key,) in await meeting.keys.fetchall()}
    keys.update(key for key, id_ in zip(given.path, given.ids, strict=True) if id_ in tombstoned)
    try:
        return without_quotes(given.state, frozenset(keys))
    except FormatError:
        return None
