"""A session's path in chunks: a turn rewrites only its last one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from recollect.values.message import EntryKey, MessageId

CHUNK: Final = 256
_HEX: Final = b"H"
_ANY: Final = b"J"
_DIGITS: Final = 32


def encode_chunk(keys: Sequence[str], ids: Sequence[str]) -> bytes:
    """Keys and identities of up to `CHUNK` entries; hexadecimal ones at half their length."""
    joined = "".join((*keys, *ids))
    if all(len(one) == _DIGITS for one in (*keys, *ids)):
        try:
            packed = bytes.fromhex(joined)
        except ValueError:
            packed = b""
        if packed.hex() == joined:
            return _HEX + packed
    return _ANY + msgspec.msgpack.encode((list(keys), list(ids)))


def decode_chunk(raw: bytes) -> tuple[list[str], list[str]]:
    """What `encode_chunk` was given."""
    if raw[:1] == _HEX:
        text = raw[1:].hex()
        named = [text[start : start + _DIGITS] for start in range(0, len(text), _DIGITS)]
        return named[: len(named) // 2], named[len(named) // 2 :]
    keys, ids = msgspec.msgpack.decode(raw[1:], type=tuple[list[str], list[str]])
    return keys, ids


def join_chunks(
    chunks: Iterable[bytes],
) -> tuple[tuple[EntryKey, ...], tuple[MessageId, ...]]:
    """The whole path of chunks in their order."""
    keys: list[EntryKey] = []
    ids: list[MessageId] = []
    for raw in chunks:
        some_keys, some_ids = decode_chunk(raw)
        keys.extend(map(EntryKey, some_keys))
        ids.extend(map(MessageId, some_ids))
    return tuple(keys), tuple(ids)


def chunks_from(first: int, keys: Sequence[str], ids: Sequence[str]) -> list[tuple[int, bytes]]:
    """Numbered chunks of entries of which the first begins chunk `first`."""
    return [
        (
            first + start // CHUNK,
            encode_chunk(keys[start : start + CHUNK], ids[start : start + CHUNK]),
        )
        for start in range(0, len(keys), CHUNK)
    ]
