"""The form of a rule of redaction: a row of a table, and how a row is looked for in a text.

A row says by which keywords its rule starts, what stands there, and which question a value has to
pass. `find_by_rows` runs the rows whose keywords a text holds, each only at the places of its
keywords. Never decides by itself what a secret is. Always linear: every search goes forward from
a keyword, and what a pattern reads is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from recollect.core.rules.secret_keywords import Keywords, SearchedText

COMMAND_CHARS = 2000
LINE_CHARS = 400


class SecretMatch(NamedTuple):
    """A secret at [start, end), and the whole of what was read to know it, [first, last)."""

    rule: str
    start: int
    end: int
    first: int
    last: int


class RowPlace(Enum):
    """Where a row's pattern is read."""

    AT = auto()  # from the first character of the keyword
    BEHIND = auto()  # from behind its last
    LINE = auto()  # from the start of its line
    COMMAND = auto()  # searched from the keyword to the end of its command
    BEFORE = auto()  # searched in what stands before the keyword, so far as `back`
    TEXT = auto()  # searched everywhere


@dataclass(frozen=True, slots=True)
class Row:
    """One rule: the name of its mask, its keywords, its pattern, and its questions."""

    name: str
    keywords: str
    """In lower case, with bars between them. The text holds one of them."""
    written: str
    """The pattern. The last group that it names is the secret."""
    judge: Callable[[str], bool] | None = None
    """Whether a value is a secret."""
    place: RowPlace = RowPlace.AT
    check: Callable[[re.Match[str], str], bool] | None = None
    """Whether a match is one, by more than its value."""
    at: str = ""
    """Where to look, unless at the keywords."""
    back: int = 0
    """`BEFORE`: how many characters."""
    near: re.Pattern[str] | None = None
    """What the text in lower case holds between so many characters around the match, too."""
    around: tuple[int, int] = (0, 0)
    trim: str = ""
    """Signs that end a sentence, not a value."""
    whole: bool = False
    """The keyword begins a word."""
    pattern: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "pattern", re.compile(self.written))

    def find(self, reading: SearchedText, keyword: str) -> Iterator[SecretMatch]:
        """Every secret that the rule knows by this keyword."""
        if self.place is RowPlace.TEXT:
            for match in self.pattern.finditer(reading.text):
                yield from self._judged(reading, match.start(), match)
            return
        for literal in keys(self.at) if self.at else (keyword,):
            for at in reading.places(literal):
                found = self._match_at(reading, at, at + len(literal))
                if found is not None:
                    yield from self._judged(reading, at, found)

    def _match_at(self, reading: SearchedText, at: int, end: int) -> re.Match[str] | None:
        text, place = reading.text, self.place
        if self.whole and not begins_word(reading.lowered, at):
            return None
        if place is RowPlace.AT:
            return self.pattern.match(text, at)
        if place is RowPlace.BEHIND:
            return self.pattern.match(text, end)
        if place is RowPlace.COMMAND:
            return self.pattern.search(text, at, min(command_end(text, at), at + LINE_CHARS))
        if place is RowPlace.BEFORE:
            return self.pattern.search(text, max(0, at - self.back), at)
        start = line_start(text, at)
        if start and text[start - 1] != "\n":
            return None
        return self.pattern.match(text, start)

    def _judged(
        self, reading: SearchedText, at: int, match: re.Match[str]
    ) -> Iterator[SecretMatch]:
        group = match.lastgroup or 0
        start, value = match.start(group), match[group]
        if self.trim:
            value = value.rstrip(self.trim)
        if self.judge is not None and not self.judge(value):
            return
        if self.check is not None and not self.check(match, value):
            return
        if self.near is not None:
            since, until = self._around(reading.text, at, match)
            if self.near.search(reading.lowered, since, until) is None:
                return
        end = start + len(value)
        yield SecretMatch(self.name, start, end, match.start(), max(end, match.end()))

    def _around(self, text: str, at: int, match: re.Match[str]) -> tuple[int, int]:
        if self.around == ON_LINE:
            end = match.end()
            return command_start(text, at), min(command_end(text, end), end + LINE_CHARS)
        if self.around == BEFORE_ON_LINE:
            return command_start(text, at), at
        return max(0, at - self.around[0]), match.end() + self.around[1]


ON_LINE, BEFORE_ON_LINE = (-1, -1), (-1, 0)


def find_by_rows(rows: Keywords[Row], reading: SearchedText) -> Iterator[SecretMatch]:
    """What these rows find in a text."""
    done: Row | None = None
    for keyword, row in rows.held(reading.found):
        if row.at or row.place is RowPlace.TEXT:
            if row is done or keyword not in reading.lowered:
                continue
            done = row
        elif not reading.places(keyword):
            continue
        yield from row.find(reading, keyword)


def by_keywords(rows: Iterable[Row]) -> Keywords[Row]:
    """The rows, each under all of its keywords."""
    return Keywords((keyword, row) for row in rows for keyword in keys(row.keywords))


def keys(text: str) -> tuple[str, ...]:
    """Keywords, written as one text with bars between them."""
    return tuple(text.split("|"))


def begins_word(lowered: str, at: int) -> bool:
    """Whether a word or a name begins there."""
    return at == 0 or not (lowered[at - 1].isalnum() or lowered[at - 1] in "_-.$/+\\=&?")


def line_start(text: str, at: int) -> int:
    """Where the line begins, or how far back is looked."""
    since = max(0, at - LINE_CHARS)
    return max(text.rfind("\n", since, at) + 1, since)


def command_start(text: str, at: int) -> int:
    """Where the command begins: at the line's start, unless the line before it goes on."""
    since = line_start(text, at)
    while since > 1 and text[since - 2 : since] == "\\\n" and at - since < LINE_CHARS:
        since = line_start(text, since - 2)
    return since


def command_end(text: str, start: int) -> int:
    """Where a command ends: at the line's end, unless that is escaped."""
    limit = min(len(text), start + COMMAND_CHARS)
    end = start
    while True:
        end = text.find("\n", end, limit)
        if end < 0:
            return limit
        if text[end - 1 : end] != "\\":
            return end
        end += 1
