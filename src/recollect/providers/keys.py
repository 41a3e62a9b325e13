"""A key into the headers of a call.

Never shows a key. Always holds: what cannot be a key is refused before the driver sees it, for
the driver quotes a header that it cannot send.
"""

from __future__ import annotations

from collections.abc import Mapping

from recollect.errors import ModelRefused


def bearer(key: str | None) -> dict[str, str]:
    """The header that OpenAI and servers of its wires take; none without a key."""
    return {"Authorization": f"Bearer {checked(key)}"} if key and key.strip() else {}


def checked(key: str) -> str:
    """The key without the blanks around it; ModelRefused where it can be none."""
    key = key.strip()
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ModelRefused("the model's key holds characters that no key has: set it anew")
    return key


def sendable(headers: Mapping[str, str] | None) -> dict[str, str]:
    """Headers of the caller's own; ModelRefused where one cannot be sent."""
    for name, value in (headers or {}).items():
        if not (name.isascii() and value.isascii() and value.isprintable()):
            raise ModelRefused(f"the header {name!r} holds characters that none may hold")
    return dict(headers or {})
