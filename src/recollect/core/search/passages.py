"""Cuts a message into passages, the indexed and recalled pieces, and packs the best. A text is cut
at line ends, else sentences, else spaces. Passages are in order, do not overlap and lose only white
space. A larger budget never spends less."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator


WHOLE_MAX_CHARS: Final = 585
"""Up to this length a text is one passage; no passage is longer."""
TARGET_CHARS: Final = 450
"""Pieces of a longer text are packed up to this length."""
TAIL_MIN_CHARS: Final = 90
"""A last passage shorter than this joins the one before it."""

_LINES: Final = re.compile(r"\S(?:[^\n]*\S)?")
_NEXT_WORD: Final = re.compile(r"\S")
# End of a sentence: white space after its mark, which a quote or bracket may follow; Chinese and
# Japanese marks need no white space. Only looking back keeps the search linear.
_AFTER_SENTENCES: Final = re.compile(
    r"(?<=[.!?…])\s+|(?<=[.!?…][\"'”’)\]])\s+"
    r"|(?<=[。！？])(?![。！？」』”’）】])\s*|(?<=[。！？][」』”’）】])\s*"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A span of a text: `text` is the source from `start` up to `end`, in characters."""

    start: int
    end: int
    text: str


def split_passages(text: str) -> tuple[Passage, ...]:
    """Split a text into passages; none for white space."""
    start = len(text) - len(text.lstrip())
    end = len(text.rstrip())
    if start >= end:
        return ()
    whole = end - start <= WHOLE_MAX_CHARS
    spans = [(start, end)] if whole else _packed(_units(text, start, end))
    return tuple(Passage(start=first, end=last, text=text[first:last]) for first, last in spans)


def _packed(units: Iterator[tuple[int, int]]) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    for start, end in units:
        if spans and end - spans[-1][0] <= TARGET_CHARS:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((start, end))
    if len(spans) > 1:
        (before, _), (start, end) = spans[-2:]
        if end - start < TAIL_MIN_CHARS and end - before <= WHOLE_MAX_CHARS:
            spans[-2:] = [(before, end)]
    return spans


def _units(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    for line in _LINES.finditer(text, start, end):
        if line.end() - line.start() <= TARGET_CHARS:
            yield line.span()
            continue
        for sentence_start, sentence_end in _sentences(text, line.start(), line.end()):
            yield from _stretches(text, sentence_start, sentence_end)


def _sentences(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    for gap in _AFTER_SENTENCES.finditer(text, start, end):
        if start < gap.start():
            yield start, gap.start()
        start = gap.end()
    if start < end:
        yield start, end


def _stretches(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    while end - start > TARGET_CHARS:
        space = text.rfind(" ", start + TARGET_CHARS // 2, start + TARGET_CHARS + 1)
        cut = space if space >= 0 else start + TARGET_CHARS
        yield start, start + len(text[start:cut].rstrip())
        next_word = _NEXT_WORD.search(text, cut, end)
        assert next_word is not None, "a sentence ends with a character that is not white space"
        start = next_word.start()
    yield start, end


Ranked = TypeVar("Ranked")

MOST_OF_ONE: Final = 2
"""Passages per message in a block (docs/contributing/sources.md)."""
MOST_OF_RESULT: Final = 4
"""The same for a relevant tool output, because words do not show which line answers."""
_NEARLY_FULL_TOKENS: Final = 8
_MOST_MISFITS: Final = 200
"""After this many that did not fit, the rest of the budget is too small for any."""


def pack(
    ranked: Sequence[Ranked],
    *,
    budget_tokens: int,
    cost: Callable[[Ranked], int],
    source: Callable[[Ranked], Hashable],
    sitting: Callable[[Ranked], Hashable],
    heading_cost: Callable[[Ranked], int],
    most: int | None = None,
    most_of: Callable[[Ranked], int] = lambda _: MOST_OF_ONE,
) -> list[Ranked]:
    """Return the passages that fit, in order of rank. `source` names their origin, `most_of` the
    limit per origin; `heading_cost` is charged once per `sitting`, for its date line."""
    chosen: list[Ranked] = []
    headed: set[Hashable] = set()
    taken: Counter[Hashable] = Counter()
    left = budget_tokens
    misfits = 0
    for one in ranked:
        if left < _NEARLY_FULL_TOKENS or misfits > _MOST_MISFITS or len(chosen) == most:
            break
        if taken[source(one)] >= most_of(one):
            continue
        needs = cost(one)
        if sitting(one) not in headed:
            needs += heading_cost(one)
        if needs > left:
            misfits += 1
            continue
        left -= needs
        taken[source(one)] += 1
        headed.add(sitting(one))
        chosen.append(one)
    return chosen
