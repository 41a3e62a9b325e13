"""What of a segment may be read for facts: the words of whoever said it, and nothing else.

Owns what is passed over: whole segments (noise, system messages, summaries, notes and memory files)
and stretches of others (recalled blocks however they are spelled, thinking, calls of tools, channel
prefixes, quoted documents, and code and logs as the rules know them). Must never give back what
memory itself once said. What always holds: the result is as long as the text, so that a place in
one is the same place in the other; what may not be read is white space. Pure, linear in the text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from recollect.facts.stating.spoken import MOST_SPOKEN_CHARS, spoken
from recollect.rules.noise import strip_channel_prefix
from recollect.rules.text import thinking_spans
from recollect.rules.trust import is_below

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recollect.values.segment import Segment


LONG_QUOTE_CHARS: Final = 60
"""A user's words between quotation marks of at least this length are a document's, not theirs;
shorter ones are names and terms."""

_RECALLED: Final = re.compile(
    r"<\s{0,4}recalled-context\b.*?(?:<\s{0,4}/\s{0,4}recalled-context\s{0,4}>|\Z)",
    re.IGNORECASE | re.DOTALL,
)
_FENCED: Final = re.compile(r"^[ \t]{0,8}(```|~~~).*?(?:^[ \t]{0,8}\1[^\n]*$|\Z)", re.M | re.S)
_QUOTED_LINE: Final = re.compile(r"^[ \t]{0,8}>[^\n]*$", re.MULTILINE)
_LONG_QUOTE: Final = re.compile(
    rf"“[^“”]{{{LONG_QUOTE_CHARS},20000}}”|「[^「」]{{{LONG_QUOTE_CHARS},20000}}」"
    rf'|(?<![\w"])"[^"\n]{{{LONG_QUOTE_CHARS},5000}}"(?!\w)'
)
_NO_STATEMENTS: Final = frozenset({"note", "file"})


def why_unread(segment: Segment) -> str | None:
    """Why a segment is passed over as a whole; None where it is read."""
    if segment.noise is not None:
        return f"noise: {segment.noise}"
    if segment.role == "system":
        return "system"
    if segment.role == "user" and segment.trust == "medium":
        return "a summary"  # `rules.trust`: the model's words under the user's role
    if segment.source in _NO_STATEMENTS:
        return "a note"
    return None


def readable(segment: Segment) -> str:
    """The segment's text with white space for everything that may not be read."""
    text = segment.text
    if why_unread(segment) is not None:
        return " " * len(text)
    text = _without(text, sorted(_hidden(segment)))
    if segment.role == "tool" or is_below(segment.trust, "medium"):
        return text  # raw content, and shown as such
    return _said_only(segment, text)


def _without(text: str, hidden: list[tuple[int, int]]) -> str:
    """The text with white space for these spans, which come in order and may overlap."""
    if not hidden:
        return text
    kept: list[str] = []
    at = 0
    for start, end in hidden:
        if end > at:
            kept += (text[at:start], " " * (end - max(at, start)))
            at = end
    return "".join([*kept, text[at:]])


def _said_only(segment: Segment, text: str) -> str:
    """The lines that somebody said; of what is too long to be told apart line by line, all."""
    if len(text) > MOST_SPOKEN_CHARS:
        return text
    kept: list[str] = []
    at = 0
    for start, end in spoken(segment).lines:
        kept += (" " * (start - at), text[start:end])
        at = end
    return "".join([*kept, " " * (len(text) - at)])


def _hidden(segment: Segment) -> Iterator[tuple[int, int]]:
    text = segment.text
    if "recalled-context" in text.lower():
        yield from (found.span() for found in _RECALLED.finditer(text))
    if segment.role == "tool":
        return
    if segment.role == "assistant":
        yield from thinking_spans(text)
        yield from _calls(text, segment.tool)
    else:
        yield 0, len(text) - len(strip_channel_prefix(text))
        yield from (found.span() for found in _LONG_QUOTE.finditer(text))
    yield from (found.span() for found in _FENCED.finditer(text))
    yield from (found.span() for found in _QUOTED_LINE.finditer(text))


def _calls(text: str, tool: str | None) -> Iterator[tuple[int, int]]:
    """From the first call on: what follows it in a message are further calls."""
    if tool:
        called = re.search(rf"^{re.escape(tool)}\(", text, re.MULTILINE)
        if called is not None:
            yield called.start(), len(text)
