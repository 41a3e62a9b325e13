"""How ids, texts and lists stand in columns: small, and each readable by itself.

Ids of 32 hexadecimal digits are packed to 16 bytes each; others are kept as JSON. Text that
UTF-8 cannot hold (a lone surrogate) is kept as bytes. Always holds: what was packed comes back
equal, or `ValueError` is raised for the one record that cannot be read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

_ID_CHARS = 32
_ID_BYTES = 16


def pack_ids(ids: Sequence[str]) -> bytes | str | None:
    """Ids as one value; None for none."""
    if not ids:
        return None
    joined = "".join(ids)
    if all(len(one) == _ID_CHARS for one in ids):
        try:
            packed = bytes.fromhex(joined)
        except ValueError:
            return json.dumps(list(ids))
        if packed.hex() == joined:  # so no capital letters, which would not come back
            return packed
    return json.dumps(list(ids))


def unpack_ids(packed: bytes | str | None) -> list[str]:
    """What `pack_ids` made."""
    if packed is None:
        return []
    if isinstance(packed, bytes):
        if len(packed) % _ID_BYTES:
            raise ValueError("ids are torn")
        digits = packed.hex()
        return [digits[at : at + _ID_CHARS] for at in range(0, len(digits), _ID_CHARS)]
    return unpack_list(packed)


def pack_list(items: Sequence[str]) -> str | None:
    """A list of texts as JSON; None for none."""
    return json.dumps(list(items)) if items else None


def unpack_list(packed: str | bytes | None) -> list[str]:
    """What `pack_list` made."""
    if packed is None:
        return []
    items = json.loads(packed)
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise ValueError("not a list of texts")
    return items


def pack_text(text: str | None) -> str | bytes | None:
    """A text as a column holds it."""
    if text is None or text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def unpack_text(packed: str | bytes | None) -> str | None:
    """What `pack_text` made; columns of free text are read as bytes."""
    if packed is None or isinstance(packed, str):
        return packed
    return packed.decode("utf-8", "surrogatepass")


def text_of(packed: Any) -> str:
    """A text that must be there."""
    text = unpack_text(packed)
    if text is None:
        raise ValueError("a text is missing")
    return text


def json_list(items: Iterable[Any]) -> str:
    """Values for `IN (SELECT value FROM json_each(?))`."""
    return json.dumps(list(items))
