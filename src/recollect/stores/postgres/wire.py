"""Values in PostgreSQL's binary form: arrays without a detour over text, and any text at all.

Pure. Vectors as text cost 14 times as much to write (measured), so arrays are laid out
here as the server reads them. PostgreSQL's text holds neither U+0000 nor lone surrogates, and
messages do: they are written with an escape, and `plain` takes it away again. Always holds:
`plain(escaped(x)) == x` for every string.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from recollect.errors import BatchRefused
from recollect.stores.postgres.driver import Raw

_INT4, _INT8, _TEXT, _BYTEA, _FLOAT8, _BOOL, _UUID = 23, 20, 25, 17, 701, 16, 2950
_ID_BYTES: Final = 16
_INT4_MAX: Final = 2**31 - 1
_NULL: Final = b"\xff\xff\xff\xff"
_LENGTH: Final = struct.Struct(">i")

_ESCAPE: Final = "\x1a"
_ODD: Final = re.compile("[\x00\x1a\ud800-\udfff]")
_ESCAPED: Final = re.compile("\x1a([0-9a-f]{4})")


def escaped(text: str) -> str:
    """The text in a form that PostgreSQL can hold."""
    return _ODD.sub(lambda odd: f"{_ESCAPE}{ord(odd.group()):04x}", text)


def plain(text: str) -> str:
    """What `escaped` was given."""
    if _ESCAPE not in text:
        return text
    return _ESCAPED.sub(lambda found: chr(int(found.group(1), 16)), text)


def maybe_plain(text: str | None) -> str | None:
    """`plain`, or None."""
    return None if text is None else plain(text)


def maybe_escaped(text: str | None) -> str | None:
    """`escaped`, or None."""
    return None if text is None else escaped(text)


def _header(count: int, oid: int) -> bytes:
    if not count:
        return struct.pack(">iii", 0, 0, oid)
    return struct.pack(">iiiii", 1, 1, oid, count, 1)


def _fixed(values: Any, oid: int, kind: str) -> Raw:
    given = np.asarray(values)
    if kind[1:] == "i4" and len(given) and (given.max() > _INT4_MAX or given.min() < -_INT4_MAX):
        raise BatchRefused("a number of this batch does not fit 32 bits: it cannot be stored")
    laid = np.empty(len(given), np.dtype([("length", ">i4"), ("value", kind)]))
    laid["length"] = laid.dtype["value"].itemsize
    laid["value"] = given
    return Raw(_header(len(given), oid) + laid.tobytes())


def int8s(values: Sequence[int] | NDArray[Any]) -> Raw:
    """`bigint[]`."""
    return _fixed(values, _INT8, ">i8")


def int4s(values: Sequence[int] | NDArray[Any]) -> Raw:
    """`integer[]`."""
    return _fixed(values, _INT4, ">i4")


def float8s(values: Sequence[float]) -> Raw:
    """`double precision[]`."""
    return _fixed(values, _FLOAT8, ">f8")


def bools(values: Sequence[bool]) -> Raw:
    """`boolean[]`."""
    return _fixed(values, _BOOL, "u1")


def texts(values: Iterable[str | None]) -> Raw:
    """`text[]`, escaped."""
    return _ragged([None if value is None else escaped(value).encode() for value in values], _TEXT)


def byteas(values: Iterable[bytes]) -> Raw:
    """`bytea[]`."""
    return _ragged(list(values), _BYTEA)


def id_bytes(identity: str) -> bytes:
    """An identity in 16 bytes: its own where it is 32 hexadecimal digits, else those of a hash."""
    if len(identity) == 2 * _ID_BYTES:
        try:
            packed = bytes.fromhex(identity)
        except ValueError:
            packed = b""
        if packed.hex() == identity:
            return packed
    named = identity.encode("utf-8", "surrogatepass")
    return blake2b(named, digest_size=_ID_BYTES, person=b"recollect-id").digest()


def uuids(identities: Iterable[str]) -> Raw:
    """`uuid[]` of identities, which are told apart by them; `ids_of` gives back the digits."""
    packed = np.frombuffer(b"".join(map(id_bytes, identities)), f"V{_ID_BYTES}")
    return _fixed(packed, _UUID, f"V{_ID_BYTES}")


def ids_of(packed: bytes | None) -> list[str]:
    """Identities of 32 hexadecimal digits, from what `string_agg(uuid_send(…))` made."""
    digits = (packed or b"").hex()
    return [digits[at : at + 2 * _ID_BYTES] for at in range(0, len(digits), 2 * _ID_BYTES)]


def _ragged(values: list[bytes | None] | list[bytes], oid: int) -> Raw:
    laid = [_header(len(values), oid)]
    for value in values:
        if value is None:
            laid.append(_NULL)
        else:
            laid.append(_LENGTH.pack(len(value)))
            laid.append(value)
    return Raw(b"".join(laid))


def vectors(values: NDArray[np.float32], oid: int) -> Raw:
    """`vector[]` from rows of one length; `oid` is the type's number in this database."""
    count, dimensions = values.shape
    laid = np.empty(
        count,
        np.dtype(
            [("length", ">i4"), ("dimensions", ">i2"), ("unused", ">i2"),
             ("values", ">f4", (dimensions,))]
        ),
    )  # fmt: skip
    laid["length"] = 4 + 4 * dimensions
    laid["dimensions"] = dimensions
    laid["unused"] = 0
    laid["values"] = values
    return Raw(_header(count, oid) + laid.tobytes())


def vector(values: bytes) -> Raw:
    """One `vector` from little-endian float32."""
    numbers = np.frombuffer(values, "<f4")
    return Raw(struct.pack(">hh", len(numbers), 0) + numbers.astype(">f4").tobytes())


def floats_of(raw: bytes) -> bytes:
    """Little-endian float32 from a `vector` in binary form."""
    return np.frombuffer(raw, ">f4", offset=4).astype("<f4").tobytes()


def big_endian(raw: bytes | None, kind: str) -> NDArray[Any]:
    """Numbers from what `string_agg(int8send(…))` and the like made; none for NULL."""
    return np.frombuffer(raw or b"", f">{kind}").astype(kind)
