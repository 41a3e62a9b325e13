"""Adds to a summary, word for word, what would otherwise be lost.

Owns the section that code writes below a summary, and what fits into it. Must never write more
than its tokens, nor let a quoted text close the summary or begin a section of its own: each quote
is one line. What always holds: what is called pinned stands in the text as the receipt's own test
reads it; the most important comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from recollect.compaction.holds import WORDED, holds_literally
from recollect.compaction.render import defuse
from recollect.formats.summaries import PINNED_HEADING, PINNED_NOTE
from recollect.rules.text import bounded
from recollect.values.compaction import Probe

_LINE_CHARS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """The section that is added to a summary, and what stands in it."""

    text: str = field(default="", repr=False)
    """Empty where nothing had to be pinned, or nothing fits."""
    probes: frozenset[Probe] = field(default=frozenset(), repr=False)
    tokens: int = 0


def pin(lost: Sequence[Probe], *, most_tokens: int, count_tokens: Callable[[str], int]) -> Pinned:
    """Quote these, the first first, for as long as they fit."""
    lines: list[str] = []
    used = count_tokens(f"{PINNED_HEADING}\n{PINNED_NOTE}\n")
    for probe in lost:
        if any(holds_literally(line, probe) for line in lines):
            continue
        line = _line(probe)
        tokens = count_tokens(f"{line}\n")
        if holds_literally(line, probe) and used + tokens <= most_tokens:
            lines.append(line)
            used += tokens
    if not lines:
        return Pinned()
    text = "\n".join([PINNED_HEADING, PINNED_NOTE, *lines])
    standing = frozenset(one for one in lost if any(holds_literally(line, one) for line in lines))
    return Pinned(text=text, probes=standing, tokens=count_tokens(text))


def _line(probe: Probe) -> str:
    """What was said, on one line: of a statement its own words, of a thing those around it."""
    said = " ".join((probe.text if probe.kind in WORDED else probe.sentence).split())
    at = max(said.find(probe.text), 0)
    quoted = bounded(said, at, len(probe.text), max(_LINE_CHARS, len(probe.text)))
    return f"- {probe.kind}: {defuse(quoted)}"
