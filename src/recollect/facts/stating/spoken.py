"""Finds the words of a message that its speaker said, and not brought along.

Owns what is no speech: tool calls and results, thinking, recalled blocks, fenced and indented
code, block quotes, tables, tagged documents, log and config lines, diffs, and what stands behind
"the docs say:". Must never let words of a tool through: where they cannot be told apart, nothing
was said. What always holds: spans come in order, lie in the text, each within one line; the time
is linear in the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from recollect.facts.stating.machine_sent import machine_sent
from recollect.facts.stating.pasted import (
    ANNOUNCED,
    ANNOUNCED_CHINESE,
    ASKED_ABOUT,
    HEADING,
    INDENTED,
    INJECTED,
    LISTED,
    MACHINE,
    OWN_HEADING,
    PAGE,
    PASSED_ON,
    QUOTED_ON,
    RESUMED,
    RULE,
    SALUTATION,
    SUMMARY,
)
from recollect.rules.text import thinking_spans
from recollect.values.recall import BLOCK_CLOSING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recollect.values.segment import Segment


MOST_SPOKEN_CHARS: Final = 16_000
"""More than a person types or a model says in one message: the middle of it was pasted."""
_EDGE_CHARS: Final = MOST_SPOKEN_CHARS // 2

_LEAST_PASTED_CHARS: Final = 200
"""Shorter messages are no pastes with a comment."""
_OWN_SHARE: Final = 0.4
"""Of a message's characters: below, what is said is a comment on what was brought along."""

_RECALLED: Final = re.compile(r"<recalled-context\b")
_FENCE: Final = re.compile(r"[ \t]{0,12}(?:[-*+>][ \t]+)?(`{3,}|~{3,}|\"{3}$|'{3}$)")
_TAG: Final = re.compile(r"\s{0,8}<([A-Za-z][\w.:-]{1,40})(?:\s[^<>\n]{0,200})?>")

_LEAST_HEADINGS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """Where a message's own words stand, line by line, and why others were left out."""

    lines: tuple[tuple[int, int], ...] = field(default=())
    refused: tuple[str, ...] = ()
    beside_paste: bool = False
    """Most of the message was brought along."""


def spoken(segment: Segment) -> Spoken:
    """The lines of a segment that its speaker said."""
    why = _no_speech(segment)
    if why:
        return Spoken(refused=(why,))
    text = segment.text
    end = _before_calls(segment)
    if end is None:
        return Spoken(refused=("a tool's words cannot be told apart",))
    gaps = _gaps(text[:end], thinking=segment.role == "assistant")
    lines: list[tuple[int, int]] = []
    reasons: list[str] = []
    for start, stop in _between(gaps, end):
        _Reader(text, lines, reasons, by_user=segment.role == "user").read(start, stop)
    if segment.role == "user":
        lines = _before_document(text, end, lines, reasons)
    if INJECTED.search(text[: min(end, MOST_SPOKEN_CHARS)]):
        lines, injected = _without_injected(text, lines)
        if injected:
            reasons.append("an injected instruction")
    said = sum(last - first for first, last in lines)
    return Spoken(
        lines=tuple(lines),
        refused=tuple(dict.fromkeys(reasons)),
        beside_paste=end > _LEAST_PASTED_CHARS and said < _OWN_SHARE * end,
    )


def _no_speech(segment: Segment) -> str:
    if segment.role == "tool":
        return "a tool's words"
    if segment.role == "system":
        return "a system prompt"
    if segment.trust in ("low", "outside"):
        return "not trusted enough"
    if segment.noise is not None:
        return "noise"
    if segment.role == "user" and segment.trust != "high":
        return "a summary"
    if SUMMARY.match(segment.text):
        return "a summary"
    if segment.role == "user" and machine_sent(segment.text):
        return "a machine's message"
    return ""


def _before_calls(segment: Segment) -> int | None:
    """Where the words before the first tool call end; None where that cannot be told."""
    if segment.tool is None:
        return len(segment.text)
    if segment.role != "assistant":
        return None
    call = re.search(rf"^{re.escape(segment.tool)}[^\s(]{{0,200}}\(", segment.text, re.MULTILINE)
    return call.start() if call else None


def _gaps(text: str, *, thinking: bool) -> list[tuple[int, int]]:
    """Stretches of several lines that were not said: thinking, recalled blocks, the middle of
    what is too long."""
    gaps = list(thinking_spans(text)) if thinking else []
    if len(text) > MOST_SPOKEN_CHARS:
        gaps.append((_EDGE_CHARS, len(text) - _EDGE_CHARS))
    at = 0
    while (begun := _RECALLED.search(text, at)) is not None:
        closed = text.find(BLOCK_CLOSING, begun.end())
        at = len(text) if closed < 0 else closed + len(BLOCK_CLOSING)
        gaps.append((begun.start(), at))
    return sorted(gaps)


def _between(gaps: list[tuple[int, int]], end: int) -> Iterator[tuple[int, int]]:
    at = 0
    for first, last in gaps:
        if at < first:
            yield at, first
        at = max(at, last)
    if at < end:
        yield at, end


class _Reader:
    """Reads a stretch line by line and keeps what was said."""

    __slots__ = (
        "_by_user",
        "_fence",
        "_lines",
        "_pasted",
        "_pasted_lines",
        "_reasons",
        "_ruled",
        "_tag",
        "_text",
    )

    def __init__(
        self, text: str, lines: list[tuple[int, int]], reasons: list[str], *, by_user: bool
    ) -> None:
        self._text = text
        self._by_user = by_user
        self._ruled = False
        self._lines = lines
        self._reasons = reasons
        self._fence = ""
        self._tag = ""
        self._pasted = False
        self._pasted_lines = 0

    def read(self, start: int, stop: int) -> None:
        """Go through the lines of one stretch."""
        text = self._text
        after_blank = True
        while start < stop:
            end = text.find("\n", start, stop)
            end = stop if end < 0 else end
            line = text[start:end]
            blank = not line.strip()
            if not blank and not self._inside(line, start, stop):
                why = self._refused(line, after_blank=after_blank)
                if why:
                    self._reasons.append(why)
                else:
                    quoted = QUOTED_ON.search(line) if self._by_user else None
                    if quoted is not None and not OWN_HEADING.search(line, 0, quoted.end()):
                        end_of_own, self._pasted = start + quoted.end(), True
                    else:
                        end_of_own, self._pasted = end, self._announces(line)
                    self._lines.append((start, end_of_own))
                    self._pasted_lines = 0
            after_blank = blank
            start = end + 1

    def _inside(self, line: str, start: int, stop: int) -> bool:
        """Whether the line belongs to fenced code or to a tagged document."""
        if self._fence:
            marked = _FENCE.match(line)
            if marked is not None and marked[1].startswith(self._fence):
                self._fence = ""
                self._pasted = False
            return True
        if self._tag:
            if self._tag in line:
                self._tag = ""
            return True
        fence = _FENCE.match(line)
        if fence is not None:
            closed = line.find(fence[1], fence.end()) >= 0
            self._fence = "" if closed else fence[1]
            self._reasons.append("code")
            return True
        tag = _TAG.match(line)
        if tag is not None:
            closing = f"</{tag[1]}>"
            if closing not in line and self._text.find(closing, start, stop) >= 0:
                self._tag = closing
            self._reasons.append("a document")
            return True
        return False

    def _refused(self, line: str, *, after_blank: bool) -> str:
        if self._by_user and RULE.match(line):
            # A person draws a line around what is somebody else's.
            self._ruled = self._pasted = not self._ruled
            self._pasted_lines = 0
            return "a rule between parts"
        if self._by_user and SALUTATION.match(line):
            self._pasted = True
            return "a letter"
        if self._pasted:
            if not (after_blank and self._pasted_lines and RESUMED.match(line)):
                self._pasted_lines += 1
                return "pasted text"
            self._pasted = self._ruled = False
        if RULE.match(line):
            return "a rule between parts"
        if INDENTED.match(line) and not LISTED.match(line):
            return "code"
        if self._by_user and PAGE.search(line):
            return "a document"
        if MACHINE.match(line):
            return "what a machine wrote"
        return ""

    def _announces(self, line: str) -> bool:
        tail = line[-200:]
        if OWN_HEADING.search(tail):
            return False
        announcing = (ASKED_ABOUT, ANNOUNCED, ANNOUNCED_CHINESE, *((PASSED_ON,) * self._by_user))
        return any(pattern.search(tail) for pattern in announcing)


def _before_document(
    text: str, end: int, lines: list[tuple[int, int]], reasons: list[str]
) -> list[tuple[int, int]]:
    """The lines before a document with headings: nobody types those to a model."""
    headings = [found.start() for found in HEADING.finditer(text, 0, end)]
    if len(headings) < _LEAST_HEADINGS:
        return lines
    reasons.append("a document")
    return [line for line in lines if line[1] <= headings[0]]


def _without_injected(
    text: str, lines: list[tuple[int, int]]
) -> tuple[list[tuple[int, int]], bool]:
    """The lines before the first that tries to give orders to a model: what follows is its."""
    for at, (start, end) in enumerate(lines):
        if INJECTED.search(text, start, min(end, start + MOST_SPOKEN_CHARS)):
            return lines[:at], True
    return lines, False
