"""Cuts what was said into sentences: for probes, for what stands around them, and for facts.

Owns where a sentence ends: at a line's end, or behind its mark. Must never change a character:
a sentence is a span of its text. What always holds: spans come in order and do not overlap; none
is blank; the time is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

SENTENCE_CHARS: Final = 300
"""As much of a sentence as is kept: what the model would have at hand to ask memory by."""

_LINES: Final = re.compile(r"\S(?:[^\n]*\S)?")
# A mark ends a sentence only before white space, so that no path or number is cut in two.
_ENDS: Final = re.compile(
    r"(?<=[.!?…])\s+(?=[\"'“‘(\[*_`]?[^\Wa-z])|(?<=[!?…])\s+|(?<=[。！？])\s*(?=\S)"
)
# As `_ENDS`, and before a small letter too.
_CHAT_ENDS: Final = re.compile(r"\.\s+(?=[a-z`\"'(])|;\s+|；\s*(?=\S)")
_ABBREVIATION_CHARS: Final = 12
_ABBREVIATION: Final = re.compile(
    r"\b(?:e\.g|i\.e|etc|vs|approx|incl|resp|nr|mr|mrs|ms|dr|st|ca|cf|fig|min|max|ver|a\.m|p\.m"
    r"|[a-z])\.\s+$",
    re.IGNORECASE,
)
_LIST_MARK: Final = re.compile(r"(?:[-*+•>#]+|\d{1,3}[.)])\s+")


def sentence_spans(text: str) -> Iterator[tuple[int, int]]:
    """Where the sentences of a text stand."""
    for line in _LINES.finditer(text):
        start, end = line.span()
        mark = _LIST_MARK.match(text, start, end)  # the dot of "1." ends nothing
        for gap in _ENDS.finditer(text, mark.end() if mark else start, end):
            if start < gap.start():
                yield start, gap.start()
            start = gap.end()
        if start < end:
            yield start, end


def statement_spans(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Where the statements of a stretch of text stand: sentences as people type them in a chat,
    which begin small, and what a semicolon parts."""
    for first, last in sentence_spans(text[start:end]):
        at, stop = start + first, start + last
        mark = _LIST_MARK.match(text, at, stop)
        for gap in _CHAT_ENDS.finditer(text, mark.end() if mark else at, stop):
            if gap[0][0] == "." and _ABBREVIATION.search(
                text, max(at, gap.start() - _ABBREVIATION_CHARS), gap.end()
            ):
                continue
            cut = gap.start() + 1
            if at < cut:
                yield at, cut
            at = gap.end()
        if at < stop:
            yield at, stop


def one_line(text: str) -> str:
    """A text on one line, without the mark of a list before it."""
    joined = " ".join(text.split())
    mark = _LIST_MARK.match(joined)
    return joined[mark.end() :] if mark else joined


def bounded(text: str, at: int, length: int, most: int = SENTENCE_CHARS) -> str:
    """Not more than `most` characters of a text around a stretch of it, cut between words."""
    if len(text) <= most:
        return text
    room = max(most - length, 0)
    start = max(0, min(at - room // 2, len(text) - most))
    end = min(len(text), start + most)
    if 0 < start <= at:
        space = text.find(" ", start, at)
        start = space + 1 if space >= 0 else start
    if at + length <= end < len(text):
        space = text.rfind(" ", at + length, end)
        end = space if space >= 0 else end
    return text[start:end]
