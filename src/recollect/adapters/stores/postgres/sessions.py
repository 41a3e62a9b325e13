"""Stores session state: the state itself, the session's path, and the messages that the state
quotes.

Path and quotes are stored in chunks, and a turn writes only changed chunks, because a state may
cover thousands of messages. An older write never replaces a newer one. A state that quotes a
forgotten message is stored without the quote, or not at all if it cannot be read. Forgetting a
message also removes it from `session_quotes`, so an unchanged chunk needs no second query."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import msgspec

from recollect.adapters.stores.invariants import SessionOutcome
from recollect.adapters.stores.postgres.driver import RowInsert, delete, texts, uuids
from recollect.adapters.stores.postgres.ledger import UNQUOTABLE
from recollect.adapters.stores.postgres.pool import Transaction
from recollect.core.formats.stored_records import without_quotes
from recollect.core.values.batch import SessionWrite
from recollect.core.values.message import EntryKey, MessageId
from recollect.errors import FormatError

CHUNK: Final = 256
"""Not measured; bounds what a turn rewrites to 8 kB of keys and ids."""
_HEX: Final = b"H"
_ANY: Final = b"J"
_DIGITS: Final = 32
"""Length of an id of 16 bytes in hexadecimal digits."""


def encode_chunk(keys: Sequence[str], ids: Sequence[str]) -> bytes:
    """Encode keys and message ids of up to `CHUNK` entries. Hexadecimal ids take half the space."""
    digits = "".join((*keys, *ids))
    if all(len(text) == _DIGITS for text in (*keys, *ids)):
        try:
            raw = bytes.fromhex(digits)
        except ValueError:
            raw = b""
        if raw.hex() == digits:
            return _HEX + raw
    return _ANY + msgspec.msgpack.encode((list(keys), list(ids)))


def decode_chunk(raw: bytes) -> tuple[list[str], list[str]]:
    if raw[:1] == _HEX:
        text = raw[1:].hex()
        hex_ids = [text[start : start + _DIGITS] for start in range(0, len(text), _DIGITS)]
        return hex_ids[: len(hex_ids) // 2], hex_ids[len(hex_ids) // 2 :]
    keys, ids = msgspec.msgpack.decode(raw[1:], type=tuple[list[str], list[str]])
    return keys, ids


def join_chunks(chunks: Iterable[bytes]) -> tuple[tuple[EntryKey, ...], tuple[MessageId, ...]]:
    keys: list[EntryKey] = []
    ids: list[MessageId] = []
    for raw in chunks:
        some_keys, some_ids = decode_chunk(raw)
        keys.extend(map(EntryKey, some_keys))
        ids.extend(map(MessageId, some_ids))
    return tuple(keys), tuple(ids)


def chunks_from(first: int, keys: Sequence[str], ids: Sequence[str]) -> list[tuple[int, bytes]]:
    """Split entries into numbered chunks, from chunk `first` on."""
    return [
        (
            first + start // CHUNK,
            encode_chunk(keys[start : start + CHUNK], ids[start : start + CHUNK]),
        )
        for start in range(0, len(keys), CHUNK)
    ]


_PUT_QUOTES: Final = """
    INSERT INTO recollect.session_quotes (space_id, session, chunk, digest, ids)
    VALUES (%s, %s, %s, %s, %s::uuid[])
    ON CONFLICT (space_id, session, chunk) DO UPDATE
    SET digest = excluded.digest, ids = excluded.ids
"""
_DROP_QUOTES_FROM: Final = """
    DELETE FROM recollect.session_quotes WHERE space_id = %s AND session = %s AND chunk >= %s
"""
DROP_QUOTES: Final = delete("session_quotes", "session", "text")
_TAKE_OUT: Final = """
    UPDATE recollect.session_quotes SET digest = NULL, ids = ARRAY(
        SELECT u.id FROM unnest(ids) WITH ORDINALITY AS u (id, place)
        WHERE u.id <> ALL(%(gone)s::uuid[]) ORDER BY u.place
    ) WHERE space_id = %(space)s AND session = ANY(%(sessions)s::text[])
        AND ids && %(gone)s::uuid[]
"""


async def _find_unquotable(
    work: Transaction, quoted_ids: Sequence[str], lookup: SessionLookup, said_ids: AbstractSet[str]
) -> set[str]:
    """Look up the quotes in all chunks but the last, unless the chunk is stored as it is."""
    stored_digests = dict(enumerate(lookup.digests))
    doubtful_ids = [
        message_id
        for number, chunk in enumerate(_split_ids(quoted_ids)[:-1])
        if stored_digests.get(number) != _digest(chunk)
        for message_id in chunk
    ]
    if not doubtful_ids:
        return set()
    rows = await work.rows(UNQUOTABLE, {"space": work.space_id, "about": texts(doubtful_ids)})
    return {value for (value,) in rows} - said_ids


async def _write_quotes(
    work: Transaction, session: str, quoted_ids: Sequence[str], lookup: SessionLookup
) -> None:
    stored_digests = dict(enumerate(lookup.digests))
    chunks = _split_ids(quoted_ids)
    for number, chunk in enumerate(chunks):
        digest = _digest(chunk)
        if stored_digests.get(number) != digest:
            await work.send(_PUT_QUOTES, (work.space_id, session, number, digest, uuids(chunk)))
    if len(stored_digests) > len(chunks):
        await work.send(_DROP_QUOTES_FROM, (work.space_id, session, len(chunks)))


async def remove_quotes_of(
    work: Transaction, sessions: Sequence[str], gone_ids: AbstractSet[str]
) -> None:
    arguments = {"space": work.space_id, "sessions": texts(sessions), "gone": uuids(gone_ids)}
    await work.send(_TAKE_OUT, arguments)


def _split_ids(ids: Sequence[str]) -> list[Sequence[str]]:
    return [ids[index : index + CHUNK] for index in range(0, len(ids), CHUNK)]


def _digest(ids: Sequence[str]) -> bytes:
    return blake2b("\0".join(ids).encode("utf-8", "surrogatepass"), digest_size=16).digest()


LOOKUP: Final = """
    s.turn, s.path_length, CASE WHEN s.turn = %(turn)s THEN s.state END, (
        SELECT entries FROM recollect.session_paths
        WHERE space_id = %(space)s AND session = %(session)s AND chunk = %(chunk)s
    ), ARRAY(
        SELECT digest FROM recollect.session_quotes
        WHERE space_id = %(space)s AND session = %(session)s ORDER BY chunk
    )
"""
"""SQL for the fields of `SessionLookup`."""
_WHOLE_PATH: Final = """
    SELECT entries FROM recollect.session_paths
    WHERE space_id = %s AND session = %s ORDER BY chunk
"""
_SESSION: Final = """
    INSERT INTO recollect.sessions (space_id, session, turn, path_length, state)
    VALUES (%s, %s, %s, %s, %s)
    ON CONFLICT (space_id, session) DO UPDATE SET turn = excluded.turn,
        path_length = excluded.path_length, state = excluded.state
"""
_CUT_PATH: Final = """
    DELETE FROM recollect.session_paths WHERE space_id = %s AND session = %s AND chunk >= %s
"""
_PATH: Final = RowInsert(
    "session_paths",
    "session text, chunk integer, entries bytea",
    "(space_id, session, chunk) DO UPDATE SET entries = excluded.entries",
)
_DROP_SESSIONS: Final = f"{delete('sessions', 'session', 'text')} RETURNING 1"
_DROP_PATHS: Final = delete("session_paths", "session", "text")


@dataclass(frozen=True, slots=True)
class SessionLookup:
    """What is stored of a session before its write."""

    turn: int | None
    """None if the session is new."""
    path_length: int | None
    state: bytes | None
    """None unless the stored turn is the one to write."""
    chunk: bytes | None
    """The chunk in which the new path begins."""
    digests: Sequence[bytes | None]
    """Hashes of the stored chunks of quotes."""


def lookup_arguments(session_write: SessionWrite | None) -> dict[str, Any]:
    """Return the parameters of `LOOKUP`. Without a session, it finds none; Citus refuses NULL."""
    if session_write is None:
        return {"session": "", "turn": -1, "chunk": -1}
    chunk = session_write.path_from // CHUNK
    return {"session": session_write.session, "turn": session_write.turn, "chunk": chunk}


def newest_quotes(session_write: SessionWrite | None) -> Sequence[str]:
    """Return the quotes in the last chunk, the one most likely to change."""
    return (
        _split_ids(session_write.about)[-1]
        if session_write is not None and session_write.about
        else ()
    )


async def write_session(
    work: Transaction,
    session_write: SessionWrite,
    lookup: SessionLookup,
    forgotten_ids: frozenset[str],
    said_ids: frozenset[str],
) -> SessionOutcome:
    """Write the session. The result is stale if a newer state is stored. The state must quote no
    message in `forgotten_ids`. `said_ids` are the messages that this batch stores."""
    if lookup.turn is not None and lookup.turn > session_write.turn:
        return SessionOutcome(stale=True)
    forbidden_ids = await _find_unquotable(work, session_write.about, lookup, said_ids)
    quoted_ids = (forgotten_ids | forbidden_ids).intersection(session_write.about)
    if lookup.state is not None:
        return await _compare_repeated(work, session_write, lookup.state, quoted_ids)
    chunk, length = lookup.chunk, lookup.path_length or 0
    start, offset = session_write.path_from, session_write.path_from % CHUNK
    if start > length:  # the messages in between were never written, but a path must have no gap
        return SessionOutcome(stale=True)
    try:
        kept_keys, kept_ids = decode_chunk(chunk) if chunk is not None and offset else ([], [])
    except ValueError:  # the path is damaged: start the session again
        return SessionOutcome(stale=True)
    keys = [*kept_keys[:offset], *session_write.path]
    ids = [*kept_ids[:offset], *session_write.ids]
    state = await _remove_quotes(work, session_write, (keys, ids), quoted_ids)
    if state is None:  # the state's quotes are unknown
        await forget_sessions(work, [session_write.session])
        return SessionOutcome(stale=True, cleaned=True)
    session, new_length = session_write.session, start + len(session_write.path)
    remaining_ids = [
        message_id for message_id in session_write.about if message_id not in quoted_ids
    ]
    await work.send(_SESSION, (work.space_id, session, session_write.turn, new_length, state))
    await _write_quotes(work, session_write.session, remaining_ids, lookup)
    if start != length or session_write.path:
        rows = [(session, number, raw) for number, raw in chunks_from(start // CHUNK, keys, ids)]
        await work.insert(_PATH, rows)
        if (chunk_count := -(-new_length // CHUNK)) < -(-length // CHUNK):
            await work.send(_CUT_PATH, (work.space_id, session, chunk_count))
    return SessionOutcome(cleaned=state != session_write.state)


async def _compare_repeated(
    work: Transaction, session_write: SessionWrite, stored_state: bytes, quoted_ids: Collection[str]
) -> SessionOutcome:
    """Recognize a repeated write of the stored turn. A repeated write is not stale, even if its
    quotes were removed meanwhile."""
    if stored_state == session_write.state:
        return SessionOutcome()
    is_repeat = bool(quoted_ids) and stored_state == state_without(
        session_write.state, await path_of(work, session_write.session), ((), ()), quoted_ids
    )
    return SessionOutcome(stale=not is_repeat, cleaned=is_repeat)


async def _remove_quotes(
    work: Transaction,
    session_write: SessionWrite,
    path_end: tuple[Sequence[str], Sequence[str]],
    quoted_ids: Collection[str],
) -> bytes | None:
    """Return the state without these quotes. `path_end` is the path from the first chunk to
    write."""
    if not quoted_ids:
        return session_write.state
    chunks = (await path_of(work, session_write.session))[: session_write.path_from // CHUNK]
    return state_without(session_write.state, chunks, path_end, quoted_ids)


async def path_of(work: Transaction, session: str) -> list[bytes]:
    return [raw for (raw,) in await work.rows(_WHOLE_PATH, (work.space_id, session))]


def state_without(
    state: bytes,
    chunks: Sequence[bytes],
    path_end: tuple[Sequence[str], Sequence[str]],
    quoted_ids: Collection[str],
) -> bytes | None:
    """Remove quotes of these messages from the state; None if the state cannot be read. The whole
    path is needed, because a state also quotes old messages."""
    try:
        keys, ids = join_chunks(chunks)
        pairs = zip((*keys, *path_end[0]), (*ids, *path_end[1]), strict=True)
        return without_quotes(
            state, frozenset(EntryKey(key) for key, id_ in pairs if id_ in quoted_ids)
        )
    except (ValueError, FormatError):
        return None


async def forget_sessions(work: Transaction, sessions: Sequence[str]) -> int:
    names = texts(sessions)
    await work.send(_DROP_PATHS, (work.space_id, names))
    await work.send(DROP_QUOTES, (work.space_id, names))
    return len(await work.rows(_DROP_SESSIONS, (work.space_id, names)))
