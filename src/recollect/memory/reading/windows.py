"""Cuts what a session said into the windows that are read for facts, one after the other.

Owns how much is read at a time and what stands before it for understanding. Must never leave out
words of people or the model: a message larger than a window is read in parts. A tool's output is
raw content and shown by its head and tail. What always holds: every segment that is read is new in
exactly one stretch, or in parts of it in consecutive ones; parts are spans of what is readable, in
order, without a gap but white space. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from recollect.memory.reading.readable import readable
from recollect.rules.text import statement_spans
from recollect.rules.tokens import count_text
from recollect.search.passages import split_passages
from recollect.values.segment import Segment, SegmentId

WINDOW_TOKENS: Final = 2400
"""What is read at once: a small model loses the middle of more, and a window of 4,096 tokens, the
smallest in use, holds it with the task and a short answer."""
TOOL_HEAD_CHARS: Final = 400
TOOL_TAIL_CHARS: Final = 200
"""Of a tool's output, so much is shown: enough to understand what is said about it."""
_LEFT_OUT: Final = " […] "
LINE_TOKENS: Final = 8
"""What a line, which is a sentence, takes beside its words: its number and role."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A segment, or a part of a long one, as a window shows it."""

    segment: Segment
    start: int
    end: int
    """The span of the segment's text that it stands for."""
    shown: str = field(repr=False)
    text: str = field(repr=False)
    """What is readable of the whole segment, as long as its text."""
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """What is read at once: what is new, and what stands before it."""

    new: tuple[Piece, ...]
    before: tuple[Piece, ...] = ()

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments that are new in it, whole or in part."""
        return tuple({piece.segment.id: piece.segment for piece in self.new}.values())

    @property
    def tokens(self) -> int:
        """What it takes of a prompt."""
        return sum(piece.tokens for piece in (*self.before, *self.new))


def windows(
    segments: Sequence[Segment],
    *,
    tokens: int,
    overlap_tokens: int,
    before: Sequence[Segment] = (),
    texts: Mapping[SegmentId, str] | None = None,
) -> tuple[Stretch, ...]:
    """The stretches of these segments, in order; none where nothing of them can be read.

    `tokens` bounds what is new in a stretch, `overlap_tokens` what stands before it; `before` are
    the segments in front of the first. A message larger than `tokens` has stretches of its own.
    `texts` are what is readable of segments, where that is known already.
    """
    texts = texts or {}
    earlier = _last_of(before, overlap_tokens)
    groups = _groups(segments, max(tokens, 1), texts)
    stretches: list[Stretch] = []
    for group in groups:
        stretches.append(Stretch(new=group, before=_overlap(earlier, overlap_tokens)))
        earlier.extend(group)
    return tuple(stretches)


def _last_of(before: Sequence[Segment], tokens: int) -> list[Piece]:
    """The last segments as pieces, in order, until they are more than so many tokens."""
    pieces: list[Piece] = []
    for segment in reversed(before):
        pieces += _whole(segment, readable(segment))
        if sum(piece.tokens for piece in pieces) > tokens:
            break
    return pieces[::-1]


def _groups(
    segments: Sequence[Segment], tokens: int, texts: Mapping[SegmentId, str]
) -> list[tuple[Piece, ...]]:
    groups: list[tuple[Piece, ...]] = []
    filling: list[Piece] = []
    taken = 0
    for segment in segments:
        text = texts.get(segment.id)
        for piece in _whole(segment, readable(segment) if text is None else text):
            if taken + piece.tokens > tokens and filling:
                groups.append(tuple(filling))
                filling, taken = [], 0
            if piece.tokens > tokens:
                groups.extend((part,) for part in _parts(piece, tokens))
            else:
                filling.append(piece)
                taken += piece.tokens
    if filling:
        groups.append(tuple(filling))
    return groups


def _whole(segment: Segment, text: str) -> tuple[Piece, ...]:
    """The segment as one piece; none where nothing of its text can be read."""
    start, end = len(text) - len(text.lstrip()), len(text.rstrip())
    if start >= end:
        return ()
    shown = text[start:end]
    if segment.role == "tool" and len(shown) > TOOL_HEAD_CHARS + TOOL_TAIL_CHARS:
        shown = shown[:TOOL_HEAD_CHARS] + _LEFT_OUT + shown[-TOOL_TAIL_CHARS:]
    return (_piece(segment, start, end, shown, text),)


def _piece(segment: Segment, start: int, end: int, shown: str, text: str) -> Piece:
    line = " ".join(shown.split())
    tokens = count_text(line) + LINE_TOKENS * line_count(segment, shown)
    return Piece(segment=segment, start=start, end=end, shown=line, text=text, tokens=tokens)


def line_count(segment: Segment, shown: str) -> int:
    """As how many lines a prompt shows it: a sentence is one, a tool's output another."""
    return 1 if segment.role == "tool" else sum(1 for _ in statement_spans(shown, 0, len(shown)))


def _parts(piece: Piece, tokens: int) -> list[Piece]:
    """A piece that is too large, cut where passages end."""
    text = piece.text
    if piece.segment.role == "tool":
        return [piece]
    parts: list[tuple[int, int, int]] = []
    for start, end, size in _units(piece, tokens):
        if parts and parts[-1][2] + size <= tokens:
            parts[-1] = (parts[-1][0], end, parts[-1][2] + size)
        else:
            parts.append((start, end, size))
    return [_piece(piece.segment, at, end, text[at:end], text) for at, end, _ in parts]


def _units(piece: Piece, tokens: int) -> Iterator[tuple[int, int, int]]:
    """Passages, and the sentences of one that is too large by itself, with what they take."""
    for passage in split_passages(piece.text[piece.start : piece.end]):
        start, end = piece.start + passage.start, piece.start + passage.end
        size = count_text(passage.text) + LINE_TOKENS * line_count(piece.segment, passage.text)
        if size <= tokens:
            yield start, end, size
            continue
        for first, last in statement_spans(piece.text, start, end):
            yield first, last, count_text(piece.text[first:last]) + LINE_TOKENS


def _overlap(earlier: Sequence[Piece], tokens: int) -> tuple[Piece, ...]:
    """The last pieces that fit; where not even the last does, its end."""
    kept: list[Piece] = []
    left = tokens
    for piece in reversed(earlier):
        if piece.tokens > left:
            if not kept and left > LINE_TOKENS:
                kept.append(_ending(piece, left))
            break
        kept.append(piece)
        left -= piece.tokens
    return tuple(reversed(kept))


def _ending(piece: Piece, tokens: int) -> Piece:
    words = piece.shown
    while count_text(words) + LINE_TOKENS > tokens and words:
        words = words[len(words) // 4 + 1 :]
    shown = _LEFT_OUT.lstrip() + words
    return replace(piece, shown=shown, tokens=count_text(words) + LINE_TOKENS)
