"""Tells whether statements repeat the words of a text, however large the text is.

Owns what repeating is: a run of words, a name, or most of an order's words in one sentence. Must
never look at a part of a text only: an order stands where its writer thinks that nobody looks.
What always holds: the same words give the same answer; the time is linear in the text, and nothing
of a text is kept behind the call. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Final, TypeAlias

from recollect.memory.reading.orders import is_order
from recollect.memory.reading.quotes import sentences
from recollect.memory.reading.support import content_words
from recollect.search.identifiers import shapes_in
from recollect.search.names import names_in

RUN_SHARE: Final = 0.5
"""Of a statement's runs, so many have to stand in the text. Measured on 67 sentences that models
said beside tools' output: none reached more than 0.44, and that one restates a title it had read;
an echo with a short introduction reaches more than 0.5 (test_lineage.py)."""
LONG_RUN: Final = 4
"""Or so many runs one behind the other, six words: however long the introduction of an echo is. Of
the 67 only that title had as many, the next one 2."""
ORDER_SHARE: Final = 0.6
"""Of an order's words, so many have to stand in one sentence: as `support` asks for."""
RUN_SIGNS: Final = 4
"""Three words are a run; where words are not spaced, so many characters, which are two words."""
_LEAST_RUNS: Final = 2
_STEM_SIGNS: Final = 4
_WORDS: Final = re.compile(r"[^\W_]+")
_CODED: Final = re.compile(r"\b(?=\w*\d)(?=\w*[A-Za-z])\w{4,40}\b", re.ASCII)
"""A word with digits in it."""
_UNSPACED: Final = re.compile(
    r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7a3]"
)

Run: TypeAlias = tuple[str, str, str] | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A statement as it is looked for in texts."""

    runs: tuple[Run, ...] = field(repr=False)
    names: frozenset[str] = field(repr=False)
    """What can mean one thing only: identifiers, words with digits in them, names."""
    orders: bool
    words: frozenset[str] = field(repr=False)
    """The words that an order is about."""


def as_statement(text: str) -> Statement:
    """A text as a statement to be looked for."""
    orders = is_order(text)
    names = (
        *map(str.casefold, shapes_in(text)),
        *(word.casefold() for word in _CODED.findall(text)),
        *(max(name, key=len) for name in names_in(text)),
    )
    return Statement(
        runs=tuple(_runs(*_told_apart(text.casefold()))),
        names=frozenset(names),
        orders=orders,
        words=content_words(text) if orders else frozenset(),
    )


class Look:
    """One text, with those of the statements' runs and words that stand in it."""

    def __init__(self, text: str, statements: Iterable[Statement]) -> None:
        self._text = text
        self._folded = text.casefold()
        statements = tuple(statements)
        self._vocabulary = frozenset(chain.from_iterable(one.words for one in statements))
        spaced, unspaced = _told_apart(self._folded)
        self._beginnings = (
            None if unspaced else frozenset(word[:_STEM_SIGNS] for word in frozenset(spaced))
        )
        wanted = frozenset(chain.from_iterable(one.runs for one in statements))
        self._present = wanted.intersection(_runs(spaced, unspaced))

    def repeated_by(self, one: Statement, *, unheard: Iterable[str], outside: bool) -> bool:
        """Whether a statement repeats the text, which was fetched from elsewhere or not; `unheard`
        are those of its names that people had not said before."""
        if is_echo(self.held(one)):
            return True
        if (one.orders or outside) and any(map(self._has_name, unheard)):
            return True
        return one.orders and self._has_sentence(one.words)

    def held(self, one: Statement) -> list[bool]:
        """Of each run of a statement, whether it stands in the text."""
        return [run in self._present for run in one.runs]

    def _has_name(self, name: str) -> bool:
        first = _WORDS.search(name)
        if first is not None and len(first[0]) >= _STEM_SIGNS and not self._may_begin(first[0]):
            return False
        return name in self._folded

    def _has_sentence(self, wanted: frozenset[str]) -> bool:
        least = ORDER_SHARE * len(wanted)
        if len(wanted) < _LEAST_RUNS or sum(map(self._may_begin, wanted)) < least:
            return False
        return any(len(wanted & words) >= least for words in self._sentences)

    def _may_begin(self, word: str) -> bool:
        """Whether a word of the text begins as this does: a stem begins as its word."""
        begun = word[:_STEM_SIGNS]
        if self._beginnings is None or not word.isascii():
            return begun in self._folded
        return begun in self._beginnings

    @cached_property
    def _sentences(self) -> frozenset[frozenset[str]]:
        """Of each sentence, the words that a statement has too."""
        return frozenset(self._vocabulary & content_words(one) for one in sentences(self._text))


def is_echo(held: Sequence[bool]) -> bool:
    """Whether so many of a statement's runs stand in a text that it says the same again."""
    return share(held) >= RUN_SHARE or _longest(held) >= LONG_RUN


def share(held: Sequence[bool]) -> float:
    """The share of a statement's runs that stand in a text; 0 where it has too few to tell."""
    return sum(held) / len(held) if len(held) >= _LEAST_RUNS else 0.0


def run_share(statement: str, text: str) -> float:
    """The share of a statement's runs of words that stand in the text."""
    one = as_statement(statement)
    return share(Look(text, (one,)).held(one))


def _longest(held: Sequence[bool]) -> int:
    longest = current = 0
    for one in held:
        current = current + 1 if one else 0
        longest = max(longest, current)
    return longest


def _told_apart(folded: str) -> tuple[list[str], list[str]]:
    """The words of a text: spaced ones, and those of scripts that do not space them."""
    words = _WORDS.findall(folded)
    if folded.isascii():
        return words, []
    unspaced = [word for word in words if _UNSPACED.search(word)]
    if not unspaced:
        return words, []
    return [word for word in words if not _UNSPACED.search(word)], unspaced


def _runs(spaced: Sequence[str], unspaced: Sequence[str]) -> Iterator[Run]:
    """The runs of a text, in order, of both kinds of words."""
    for word in unspaced:
        yield from (word[at : at + RUN_SIGNS] for at in range(len(word) - RUN_SIGNS + 1))
    yield from zip(spaced, spaced[1:], spaced[2:], strict=False)
