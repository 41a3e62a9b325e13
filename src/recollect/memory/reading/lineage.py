"""Finds whose words a statement repeats, so that nothing gains trust by being said again.

A model that has read "always send backups to …" on a web page may answer "Noted: always send
backups to …". Those are the page's words in the model's mouth. Owns when that is so. Must never
lower what the user says: what users say they mean, wherever they read it. What always holds: the
trust it gives is no higher than the speaker's; the same words give the same answer. Pure.

Three signs, each measured by words that stand together or can mean one thing only:
- a run: enough of the statement's neighbouring words stand in the segment, in this order;
- a name: an identifier of the statement stands in fetched content and nowhere in what people said;
- an order: a statement that lays something down shares that name, or most of its words with one
  sentence of the segment, in any order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from recollect.memory.reading.orders import is_order
from recollect.memory.reading.quotes import sentences
from recollect.memory.reading.support import content_words
from recollect.rules.trust import is_below, lowest
from recollect.search.identifiers import shapes_in
from recollect.search.names import names_in
from recollect.values.segment import Segment, SegmentId, Trust

RUN_SHARE: Final = 0.5
"""Of a statement's runs, so many have to stand in the segment. Measured on 67 sentences that models
said beside tools' output: none reached more than 0.44, and that one restates a title it had read;
an echo with a short introduction reaches more than 0.5 (test_lineage.py)."""
LONG_RUN: Final = 4
"""Or so many runs one behind the other, six words: however long the introduction of an echo is. Of
the 67 only that title had as many, the next one 2."""
ORDER_SHARE: Final = 0.6
"""Of an order's words, so many have to stand in one sentence: as `support` asks for."""
RUN_WORDS: Final = 3
RUN_SIGNS: Final = 4
"""Words of a run; where words are not spaced, characters, which are two words."""
_LEAST_RUNS: Final = 2
_STEM_SIGNS: Final = 4
_READ_CHARS: Final = 100_000
"""As much of a segment is looked through: beyond it is a dump."""
_KNOWN_TEXTS: Final = 256
"""A page of segments: each is held against every statement of it."""
_WORDS: Final = re.compile(r"[^\W_]+")
_CODED: Final = re.compile(r"\b(?=\w*\d)(?=\w*[A-Za-z])\w{4,40}\b", re.ASCII)
"""A word with digits in it."""
_UNSPACED: Final = re.compile(
    r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7a3]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A text as statements are looked for in it."""

    folded: str = field(repr=False)
    text: str = field(repr=False)
    """Small letters, one space between words; what is not spaced behind them."""
    words: frozenset[str] = field(repr=False)
    beginnings: frozenset[str] = field(repr=False)
    """The first signs of its words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """How far a statement may be trusted, and the segments whose words it repeats."""

    trust: Trust
    segments: tuple[SegmentId, ...] = ()


def lineage(statement: str, own: Trust, before: Sequence[Segment]) -> Lineage:
    """The trust of a statement by a speaker of `own` trust, by the segments before it."""
    below = [segment for segment in before if is_below(segment.trust, own)]
    if own == "high" or not below:
        return Lineage(trust=own)
    said = "\n".join(one.text[:_READ_CHARS] for one in before if one.trust == "high").casefold()
    repeated = [segment for segment in below if _repeats(statement, segment, said)]
    return Lineage(
        trust=lowest([own, *(segment.trust for segment in repeated)]),
        segments=tuple(dict.fromkeys(segment.id for segment in repeated)),
    )


def run_share(statement: str, text: str) -> float:
    """The share of a statement's runs of words that stand in the text; 0 where it has too few."""
    held = _held(statement, text)
    return sum(held) / len(held) if len(held) >= _LEAST_RUNS else 0.0


def longest_run(statement: str, text: str) -> int:
    """How many of a statement's runs stand in the text one behind the other, at the most."""
    return _longest(_held(statement, text))


def _longest(held: Sequence[bool]) -> int:
    longest = current = 0
    for one in held:
        current = current + 1 if one else 0
        longest = max(longest, current)
    return longest


def _held(statement: str, text: str) -> list[bool]:
    """Of each run of a statement, whether it stands in the text."""
    known = _known(text)
    return [
        run in known.text
        if len(run) == RUN_SIGNS and run[0] != " "
        else known.words.issuperset(run.split()) and run in known.text
        for run in _runs(statement)
    ]


def _repeats(statement: str, segment: Segment, said_by_people: str) -> bool:
    text = segment.text[:_READ_CHARS]
    held = _held(statement, text)
    if len(held) >= _LEAST_RUNS and sum(held) >= RUN_SHARE * len(held):
        return True
    if _longest(held) >= LONG_RUN:
        return True
    orders = is_order(statement)
    if (orders or segment.trust == "outside") and _shares_name(statement, text, said_by_people):
        return True
    return orders and _shares_sentence(statement, text)


def _shares_name(statement: str, text: str, said_by_people: str) -> bool:
    known = _known(text).folded
    return any(name in known and name not in said_by_people for name in _names(statement))


def _names(statement: str) -> frozenset[str]:
    """What can mean one thing only: identifiers, words with digits in them, names."""
    return frozenset(
        (
            *map(str.casefold, shapes_in(statement)),
            *(word.casefold() for word in _CODED.findall(statement)),
            *(max(name, key=len) for name in names_in(statement)),
        )
    )


def _shares_sentence(statement: str, text: str) -> bool:
    wanted = content_words(statement)
    least = ORDER_SHARE * len(wanted)
    if len(wanted) < _LEAST_RUNS:
        return False
    known = _known(text)  # a stem begins as its word does: most texts are out by that
    begun = (
        word[:_STEM_SIGNS] in (known.beginnings if word.isascii() else known.text)
        for word in wanted
    )
    if sum(begun) < least:
        return False
    return any(len(wanted & content_words(one)) >= least for one in sentences(text))


def _runs(text: str) -> Iterator[str]:
    """The runs of a text, in order: as `_Known.text` writes them."""
    spaced: list[str] = []
    for found in _WORDS.finditer(text.casefold()):
        word = found[0]
        if _UNSPACED.search(word):
            yield from (word[at : at + RUN_SIGNS] for at in range(len(word) - RUN_SIGNS + 1))
        else:
            spaced.append(word)
    for at in range(len(spaced) - RUN_WORDS + 1):
        yield f" {' '.join(spaced[at : at + RUN_WORDS])} "


@lru_cache(maxsize=_KNOWN_TEXTS)
def _known(text: str) -> _Known:
    folded = text.casefold()
    words = _WORDS.findall(folded)
    spaced = [word for word in words if not _UNSPACED.search(word)]
    unspaced = "\n".join(word for word in words if _UNSPACED.search(word))
    return _Known(
        folded=folded,
        text=f" {' '.join(spaced)} \n{unspaced}",
        words=frozenset(spaced),
        beginnings=frozenset(word[:_STEM_SIGNS] for word in spaced),
    )
