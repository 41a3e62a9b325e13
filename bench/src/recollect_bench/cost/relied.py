"""Whether a request tells about a thing that a message names, or only names it.

A message that names something again relies on what was said about it. Owns how that is measured:

- *What it relies on*: of the lines of all earlier messages that hold the name, the one that shares
  most content words with the message; of those that share as many, the earliest, which brought it
  up. Of a long line `LINE_CHARS` around the name are read.
- *Content words*: words of three or more characters, in any case, a path or a name in code as one
  word, without numbers, words that say nothing in English or in code, and those that hold the name.
- *Counts*: a reference whose line has at least `LEAST_WORDS` content words, one of them in the
  message, too. Where nothing was said about a name there is nothing to tell.
- *Useful*: at least half of the line's content words stand within `NEAR_CHARS` of the name, in one
  stretch of one summary or recalled block of the request.

Must never look at what a strategy does to choose a line. Always pure; what was said stays here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from recollect_bench.cost.names import Naming

LINE_CHARS: Final = 300
NEAR_CHARS: Final = 300
LEAST_WORDS: Final = 3
USEFUL_SHARE: Final = 0.5
_LEAST_CHARS: Final = 3
_WORD: Final = re.compile(r"[\w$@](?:[\w$@./:-]*[\w$])?")
_EMPTY_LINES: Final = """
the and for are was were has have had not but you your our their his her its they them this that
these those with from into onto over under than then when where which while what who how why all
any some each both more most can could will would should may might must shall been being does did
done also just only very here there about let const var def import export return function class
new null true false none undefined async await public private static void type interface string
number boolean self else elif try catch except finally throw raise print end
"""
_EMPTY: Final = frozenset(_EMPTY_LINES.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliedLine:
    """What a message relies on when it names something."""

    name: str = field(repr=False)
    text: str = field(repr=False)
    words: frozenset[str] = field(repr=False)
    row: int

    def told_in(self, texts: Sequence[str]) -> bool:
        """Whether one stretch of one of these texts says enough of it."""
        return any(
            len(self.words & content_words(stretch)) >= USEFUL_SHARE * len(self.words)
            for text in texts
            for stretch in _around(text, self.name, NEAR_CHARS)
        )


def content_words(text: str) -> frozenset[str]:
    """The words of a text that say something."""
    words = frozenset(_WORD.findall(text.casefold())) - _EMPTY
    return frozenset(word for word in words if len(word) >= _LEAST_CHARS and not word.isdigit())


class ReliedLines:
    """The lines of one conversation, by the names that they hold."""

    def __init__(self, texts: Sequence[str], naming: Naming) -> None:
        """`texts` are what the rows of the conversation say, in order."""
        self._texts = texts
        self._naming = naming
        self._read = 0
        self._lines: dict[str, list[tuple[int, str]]] = {}
        self._known: dict[tuple[int, int, str], ReliedLine | None] = {}

    def __reduce__(self) -> tuple[type[ReliedLines], tuple[Sequence[str], Naming]]:
        return ReliedLines, (self._texts, self._naming)

    def of(self, name: str, first: int, end: int) -> ReliedLine | None:
        """What the message of rows `first` to `end` relies on when it names this."""
        asked = (first, end, name)
        if asked not in self._known:
            self._known[asked] = self._chosen(name, first, end)
        return self._known[asked]

    def _chosen(self, name: str, first: int, end: int) -> ReliedLine | None:
        self._grow(first)
        own = name.casefold()
        said = content_words("\n".join(map(self._naming.without_folder, self._texts[first:end])))
        best: ReliedLine | None = None
        most = 0
        for row, line in self._lines.get(name, ()):
            words = frozenset(word for word in content_words(line) if own not in word)
            shared = len(words & said)
            if row < first and len(words) >= LEAST_WORDS and shared > most:
                best, most = ReliedLine(name=name, text=line, words=words, row=row), shared
        return best

    def _grow(self, until: int) -> None:
        """Rows are read in their order, each once."""
        for row in range(self._read, until):
            for line in self._naming.without_folder(self._texts[row]).splitlines():
                for name in self._naming.read(line):
                    for around in _around(line, name, (LINE_CHARS - len(name)) // 2):
                        self._lines.setdefault(name, []).append((row, around))
                        break
        self._read = max(self._read, until)


def _around(text: str, name: str, chars: int) -> Iterator[str]:
    """The text around each place where a name stands."""
    at = text.find(name)
    while at >= 0:
        yield text[max(0, at - chars) : at + len(name) + chars]
        at = text.find(name, at + len(name))
