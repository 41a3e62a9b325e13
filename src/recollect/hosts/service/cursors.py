"""Cursors: the name of a list's next page, good for this list of this tenant alone.

Holds a position and a keyed hash over it and the place it belongs to. One of another tenant, space
or list is refused; what it could give away, a position, is checked against the tenant's own rows
in any case.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec

from recollect.hosts.service.problems import Problem, ProblemKind

_MARK_BYTES: Final = 12


class Cursors:
    """Writes and reads them."""

    def __init__(self, secret: bytes) -> None:
        """`secret` is the same on all nodes of a service."""
        self._key = blake2b(secret, digest_size=32, person=b"recollect-page").digest()

    def write(self, position: Any, place: Sequence[str]) -> str:
        """The cursor of the page behind a position."""
        told = msgspec.json.encode(position)
        return urlsafe_b64encode(self._mark(told, place) + told).rstrip(b"=").decode()

    def read(self, text: str, place: Sequence[str], kind: type) -> Any:
        """The position that a cursor names; Problem where it is none of this list."""
        try:
            raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
            mark, told = raw[:_MARK_BYTES], raw[_MARK_BYTES:]
            if hmac.compare_digest(mark, self._mark(told, place)):
                position = msgspec.json.decode(told)
                if isinstance(position, kind):
                    return position
        except (NotBase64, ValueError):
            pass
        raise Problem(ProblemKind.BAD_REQUEST, "cursor: it belongs to another list; begin anew")

    def _mark(self, told: bytes, place: Sequence[str]) -> bytes:
        named = msgspec.json.encode([*place])
        return blake2b(told + b"\0" + named, key=self._key, digest_size=_MARK_BYTES).digest()
