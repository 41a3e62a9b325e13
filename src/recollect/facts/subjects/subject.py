"""What a statement is about: the value that names it, and the words that make it up.

Always holds: two statements of one thing give the same subject whatever the order of their
words, because a subject is its distinguishing words, sorted; none left is no subject.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from recollect.facts.subjects.values import Token
from recollect.facts.subjects.words import FILLER, IMPLIED_BY

MOST_WORDS: Final = 8
"""A longer subject is a story, and no other statement tells it in the same words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a statement is about; empty strings where code cannot tell."""

    subject: str = field(default="", repr=False)
    attribute: str = field(default="", repr=False)
    value: str = field(default="", repr=False)

    @property
    def told(self) -> bool:
        """Whether code can tell what it is about: only then does it meet another statement."""
        return bool(self.subject and self.attribute)


UNTOLD: Final = Subject()


def name_of(tokens: Iterable[Token], *, leave_out: Collection[str] = FILLER) -> str:
    """The words that tell a subject apart, sorted; empty where there are none, or too many."""
    words: set[str] = set()
    chinese = ""
    named = False
    for token in tokens:
        if token.text in leave_out:
            continue
        if token.kind == "word" and not token.text.isascii():
            chinese += token.text
            continue
        words.add(token.text)
        named = named or token.kind in {"word", "name", "weekday", "version", "path", "host"}
    if chinese:
        words.add(chinese)
    if not (named or chinese) or len(words) > MOST_WORDS:
        return ""
    return " ".join(sorted(words))


def implied(token: Token) -> frozenset[str]:
    """The words that a value of this kind makes needless."""
    return IMPLIED_BY.get(token.kind, frozenset())
