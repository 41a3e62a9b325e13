"""Sections of AGENTS.md that are repeated after every compaction: "Session Startup" and "Red Lines"
(docs/reference/session-files.md)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

LIMIT_CHARS: Final = 2000
"""OpenClaw's limit of `<workspace-critical-rules>` (docs/contributing/sources.md)."""
TITLES: Final = frozenset({"session startup", "red lines"})

_HEADING: Final = re.compile(r" {0,3}(#{1,6})[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*")
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")
_LEFT_OUT: Final = "\n[…]"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Heading:
    line: int
    level: int
    title: str


def critical_rules(agents_md_text: str, limit_chars: int = LIMIT_CHARS) -> str:
    """Return the sections to repeat after a compaction, cut to the limit with a mark; empty if
    there are none."""
    lines = agents_md_text.split("\n")
    headings = _headings(lines)
    sections: list[str] = []
    inside_until = -1
    for at, heading in enumerate(headings):
        if heading.title not in TITLES or heading.line < inside_until:
            continue
        ends = (later.line for later in headings[at + 1 :] if later.level <= heading.level)
        inside_until = next(ends, len(lines))
        sections.append("\n".join(lines[heading.line : inside_until]).strip())
    return "\n\n".join(_fitted(sections, limit_chars))


def _headings(lines: list[str]) -> list[_Heading]:
    headings: list[_Heading] = []
    fence = ""
    for number, line in enumerate(lines):
        marked = _FENCE.match(line)
        if fence:
            closes = marked is not None and marked[1].startswith(fence)
            fence = "" if closes else fence
        elif marked is not None:
            fence = marked[1]
        else:
            heading = _HEADING.fullmatch(line.rstrip("\r"))
            if heading is not None:
                title = " ".join(heading[2].strip("*_: ").casefold().split())
                headings.append(_Heading(line=number, level=len(heading[1]), title=title))
    return headings


def _fitted(sections: list[str], limit_chars: int) -> list[str]:
    between = 2
    left = limit_chars - between * (len(sections) - 1)
    fitted = dict.fromkeys(range(len(sections)), "")
    by_length = sorted(fitted, key=lambda at: len(sections[at]))
    for done, at in enumerate(by_length):
        share = max(0, left // (len(sections) - done))
        fitted[at] = _cut(sections[at], share)
        left -= len(fitted[at])
    return [text for text in fitted.values() if text]


def _cut(text: str, limit_chars: int) -> str:
    if len(text) <= limit_chars:
        return text
    room = limit_chars - len(_LEFT_OUT)
    if room <= 0:
        return ""
    whole, newline, _ = text[: room + 1].rpartition("\n")
    return (whole.rstrip() if newline and whole.strip() else text[:room]) + _LEFT_OUT
