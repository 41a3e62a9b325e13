"""What is left of a secret that was copied not quite whole: cut by a character or two.

Rules know a token by its prefix and length, so a copy that lost its first or last sign passes
them. Owns which remains are looked for. Pure; keeps what it is given only as long as its result
is kept, which must never be stored or told.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

LEAST_CHARS: Final = 12
"""A shorter remain is likely a word of its own; as `session.forget_search.LEAST_CHARS`."""
_MOST_CUT: Final = 2
_MOST_SECRETS: Final = 500
"""All of them are looked for at every place of a text."""
_MOST_CHARS: Final = 400
"""Longer ones, as private keys, are not copied by hand."""


def remains_of(secrets: Iterable[str]) -> re.Pattern[str] | None:
    """What finds these secrets cut by one or two characters at an end; None for none."""
    found = sorted({cut for one in _few(secrets) for cut in _cuts(one)}, key=lambda one: -len(one))
    return re.compile("|".join(map(re.escape, found))) if found else None


def _few(secrets: Iterable[str]) -> list[str]:
    telling = {one for one in secrets if LEAST_CHARS < len(one) <= _MOST_CHARS}
    return sorted(telling, key=lambda one: (-len(one), one))[:_MOST_SECRETS]


def _cuts(secret: str) -> Iterator[str]:
    for cut in range(1, _MOST_CUT + 1):
        for left in (secret[cut:], secret[:-cut]):
            # a part with spaces at its end is a sentence's, and matches what nobody meant
            if len(left) >= LEAST_CHARS and left == left.strip():
                yield left
