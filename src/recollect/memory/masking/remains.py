"""What is left of a secret that is masked where it was said: copies without label, cut copies.

Rules know a token by its prefix and length, so a copy that lost its first or last sign passes
them; and they know a password by its label, so a name that was taken from a message before it was
masked passes them, too. Owns which remains are looked for. Pure; keeps what it is given only as
long as its result is kept, which must never be stored or told.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from recollect.rules.redaction import told_apart
from recollect.rules.secret_values import MASK_OPENING, is_password_value, is_token_value

LEAST_CHARS: Final = 12
"""A shorter remain is likely a word of its own; as `session.forget_search.LEAST_CHARS`."""
_LEAST_COPY_CHARS: Final = 8
_MOST_CUT: Final = 2
_MOST_SECRETS: Final = 500
"""All of them are looked for at every place of a text."""
_MOST_CHARS: Final = 400
"""Longer ones, as private keys, are not copied by hand."""


_MOST_COPIES: Final = 2000
_WORD: Final = re.compile(r"[^\s,;\"'`()<>\[\]{}]{8,400}")
_UNESCAPED: Final = (("\\\\", "\\"), ('\\"', '"'), ("\\n", "\n"), ("\\t", "\t"), ("\\/", "/"))
"""What stands in the arguments of a call, as a name was read from them."""


@dataclass(slots=True)
class Copies:
    """Finds names in summaries, receipts and tags that nobody said, beside messages that hold a
    mask: they were taken from such a message while the secret still stood in it."""

    _written: dict[str, set[str]] = field(default_factory=dict, repr=False)
    """By session, what may be one."""
    _masked: set[str] = field(default_factory=set, repr=False)
    """The sessions in which something is masked."""
    _tags: set[str] = field(default_factory=set, repr=False)
    _said: set[str] = field(default_factory=set, repr=False)
    """What looks like one, and somebody said, in whatever session: blocks quote others."""

    def read(self, session: str, text: str) -> None:
        """A text that code took, or a model made, from the session's messages."""
        self._written.setdefault(session, set()).update(_words(text))

    def heard(self, session: str, text: str, tags: Iterable[str]) -> None:
        """A message of the session: what it says was said."""
        self._said.update(_words(text))
        if MASK_OPENING in text:
            self._masked.add(session)
            self._tags.update(tag for tag in tags if _looks_made(tag) and tag not in text)
        if written := self._written.get(session):
            plain = text
            for escaped, meant in _UNESCAPED if "\\" in text else ():
                plain = plain.replace(escaped, meant)
            written.difference_update([word for word in written if word in text or word in plain])

    def found(self) -> set[str]:
        """What is left. Never to be stored or told."""
        written = (self._written.get(one, set()) for one in self._masked)
        return self._tags.union(*written) - self._said


def copies_of(secrets: Iterable[str]) -> re.Pattern[str] | None:
    """What finds these secrets where they stand without a label; None for none."""
    known = sorted(told_apart(secrets), key=lambda one: (-len(one), one))
    found = [one for one in known if len(one) <= _MOST_CHARS][:_MOST_COPIES]
    return re.compile("|".join(map(re.escape, found))) if found else None


def _words(text: str) -> Iterator[str]:
    words = (word.strip(".:!?*-=") for word in _WORD.findall(text))
    return (word for word in words if _looks_made(word))


def _looks_made(word: str) -> bool:
    if len(word) < _LEAST_COPY_CHARS or MASK_OPENING in word or word.isalpha() or word.isdigit():
        return False
    return is_token_value(word, quoted=True, least_chars=_LEAST_COPY_CHARS) or is_password_value(
        word, quoted=True
    )


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
