"""Fits a summary's body into fewer characters, section by section.

Owns how it gives way: the longest sections first, from their end, never a section as a whole, so
that a long list of what is done does not push out what is still open. Always pure; the result is
never longer than asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

HEADINGS: Final = re.compile(r"^(?=#{1,4} |\*\*Turn Context)", re.MULTILINE)
"""Where a section begins."""
_SHORTENED: Final = "[... shortened]"


def fit(body: str, most_chars: int) -> str:
    """The body in `most_chars` characters."""
    if len(body) <= most_chars:
        return body
    if most_chars <= 0:
        return ""
    sections = [one for one in HEADINGS.split(body) if one]
    cap = level([len(one) for one in sections], most_chars)
    kept = [one if len(one) <= cap else _cut_section(one, cap) for one in sections]
    return "".join(kept).strip()[:most_chars]


def fit_tokens(body: str, most_tokens: int, count_tokens: Callable[[str], int]) -> str:
    """The body in so many tokens: how many characters that is differs by script."""
    while (tokens := count_tokens(body)) > most_tokens and body:
        body = fit(body, min(len(body) - 1, len(body) * most_tokens * 98 // (tokens * 100)))
    return body


def whole_lines(text: str, most_chars: int) -> str:
    """As many lines from the top as fit; a first line that is too long is cut."""
    if len(text) <= most_chars:
        return text
    if most_chars <= 0:
        return ""
    end = text.rfind("\n", 0, most_chars + 1)
    return text[: end if end > 0 else most_chars].rstrip()


def level(lengths: Sequence[int], most: int) -> int:
    """The longest length at which all of them, cut to it, still fit; `most` where they do."""
    left, waiting = most, sorted(lengths)
    for at, length in enumerate(waiting):
        share = left // (len(waiting) - at)
        if length > share:
            return share
        left -= length
    return most


def _cut_section(section: str, most: int) -> str:
    room = most - len(_SHORTENED) - 3
    if room <= 0:
        return section[:most]
    return f"{whole_lines(section, room)}\n{_SHORTENED}\n\n"
