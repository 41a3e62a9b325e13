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
_HEX: Final = b"H"
_ANY: Final = b"J"
_DIGITS: Final = 32


def encode_chunk(keys: Sequence[str], ids: Sequence[str]) -> bytes:
    """Encode keys and message ids of up to `CHUNK` entries. Hexadecimal ids take half the space."""
    joined = "".join((*keys, *ids))
    if all(len(text) == _DIGITS for text in (*keys, *ids)):
        try:
            packed = bytes.fromhex(joined)
        except ValueError:
            packed = b""
        if packed.hex() == joined:
            return _HEX + packed
    return _ANY + msgspec.msgpack.encode((list(keys), list(ids)))


def decode_chunk(raw: bytes) -> tuple[list[str], list[str]]:
    if raw[:1] == _HEX:
        text = raw[1:].hex()
        named = [text[start : start + _DIGITS] for start in range(0, len(text), _DIGITS)]
        return named[: len(named) // 2], named[len(named) // 2 :]
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


async def _may_not_quote(
    work: Transaction, about: Sequence[str], lookup: SessionLookup, said: AbstractSet[str]
) -> set[str]:
    """Look up the quotes in all chunks but the last, unless the chunk is stored as it is."""
    stored = dict(enumerate(lookup.digests))
    doubtful = [
        text
        for number, some in enumerate(_chunks(about)[:-1])
        if stored.get(number) != _digest(some)
        for text in some
    ]
    if not doubtful:
        return set()
    rows = await work.rows(UNQUOTABLE, {"space": work.space_id, "about": texts(doubtful)})
    return {value for (value,) in rows} - said


async def _write_quotes(
    work: Transaction, session: str, about: Sequence[str], lookup: SessionLookup
) -> None:
    stored = dict(enumerate(lookup.digests))
    chunks = _chunks(about)
    for number, some in enumerate(chunks):
        digest = _digest(some)
        if stored.get(number) != digest:
            given = (work.space_id, session, number, digest, uuids(some))
            await work.send(_PUT_QUOTES, given)
    if len(stored) > len(chunks):
        await work.send(_DROP_QUOTES_FROM, (work.space_id, session, len(chunks)))


async def remove_quotes_of(
    work: Transaction, sessions: Sequence[str], gone: AbstractSet[str]
) -> None:
    given = {"space": work.space_id, "sessions": texts(sessions), "gone": uuids(gone)}
    await work.send(_TAKE_OUT, given)


def _chunks(about: Sequence[str]) -> list[Sequence[str]]:
    return [about[at : at + CHUNK] for at in range(0, len(about), CHUNK)]


def _digest(ids: Sequence[str]) -> bytes:
    joined = "\0".join(ids).encode("utf-8", "surrogatepass")
    return blake2b(joined, digest_size=16).digest()


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


def asked(given: SessionWrite | None) -> dict[str, Any]:
    """Return the parameters of `LOOKUP`. Without a session, it finds none; Citus refuses NULL."""
    if given is None:
        return {"session": "", "turn": -1, "chunk": -1}
    chunk = given.path_from // CHUNK
    return {"session": given.session, "turn": given.turn, "chunk": chunk}


def newest_quotes(given: SessionWrite | None) -> Sequence[str]:
    """Return the quotes in the last chunk, the one most likely to change."""
    return _chunks(given.about)[-1] if given is not None and given.about else ()


async def write_session(
    work: Transaction,
    given: SessionWrite,
    lookup: SessionLookup,
    forgotten: frozenset[str],
    said: frozenset[str],
) -> SessionOutcome:
    """Write the session. The result is stale if a newer state is stored. The state must quote no
    message in `forgotten`. `said` are the messages that this batch stores."""
    if lookup.turn is not None and lookup.turn > given.turn:
        return SessionOutcome(stale=True)
    forbidden = await _may_not_quote(work, given.about, lookup, said)
    quoted = (forgotten | forbidden).intersection(given.about)
    if lookup.state is not None:
        return await _is_repeated(work, given, lookup.state, quoted)
    chunk, length = lookup.chunk, lookup.path_length or 0
    start, within = given.path_from, given.path_from % CHUNK
    if start > length:  # the messages in between were never written, but a path must have no gap
        return SessionOutcome(stale=True)
    try:
        kept_keys, kept_ids = decode_chunk(chunk) if chunk is not None and within else ([], [])
    except ValueError:  # the path is damaged: start the session again
        return SessionOutcome(stale=True)
    keys = [*kept_keys[:within], *given.path]
    ids = [*kept_ids[:within], *given.ids]
    state = await _remove_quotes(work, given, (keys, ids), quoted)
    if state is None:  # the state's quotes are unknown
        await forget_sessions(work, [given.session])
        return SessionOutcome(stale=True, cleaned=True)
    session, now = given.session, start + len(given.path)
    about = [message_id for message_id in given.about if message_id not in quoted]
    await work.send(_SESSION, (work.space_id, session, given.turn, now, state))
    await _write_quotes(work, given.session, about, lookup)
    if start != length or given.path:
        rows = [(session, number, raw) for number, raw in chunks_from(start // CHUNK, keys, ids)]
        await work.insert(_PATH, rows)
        if (chunks := -(-now // CHUNK)) < -(-length // CHUNK):
            await work.send(_CUT_PATH, (work.space_id, session, chunks))
    return SessionOutcome(cleaned=state != given.state)


async def _is_repeated(
    work: Transaction, given: SessionWrite, stored: bytes, quoted: Collection[str]
) -> SessionOutcome:
    """Recognize a repeated write of the stored turn. A repeated write is not stale, even if its
    quotes were removed meanwhile."""
    if stored == given.state:
        return SessionOutcome()
    again = bool(quoted) and stored == state_without(
        given.state, await path_of(work, given.session), ((), ()), quoted
    )
    return SessionOutcome(stale=not again, cleaned=again)


async def _remove_quotes(
    work: Transaction,
    given: SessionWrite,
    rest: tuple[Sequence[str], Sequence[str]],
    quoted: Collection[str],
) -> bytes | None:
    """Return the state without these quotes. `rest` is the path from the first chunk to write."""
    if not quoted:
        return given.state
    before = (await path_of(work, given.session))[: given.path_from // CHUNK]
    return state_without(given.state, before, rest, quoted)


async def path_of(work: Transaction, session: str) -> list[bytes]:
    return [raw for (raw,) in await work.rows(_WHOLE_PATH, (work.space_id, session))]


def state_without(
    state: bytes,
    chunks: Sequence[bytes],
    rest: tuple[Sequence[str], Sequence[str]],
    quoted: Collection[str],
) -> bytes | None:
    """Remove quotes of these messages from the state; None if the state cannot be read. The whole
    path is needed, because a state also quotes old messages."""
    try:
        keys, ids = join_chunks(chunks)
        pairs = zip((*keys, *rest[0]), (*ids, *rest[1]), strict=True)
        return without_quotes(
            state, frozenset(EntryKey(key) for key, id_ in pairs if id_ in quoted)
        )
    except (ValueError, FormatError):
        return None


async def forget_sessions(work: Transaction, sessions: Sequence[str]) -> int:
    named = texts(sessions)
    await work.send(_DROP_PATHS, (work.space_id, named))
    await work.send(DROP_QUOTES, (work.space_id, named))
    return len(await work.rows(_DROP_SESSIONS, (work.space_id, named)))
