"""Finding the tokens of `secret_formats` in a text.

Owns the search and what makes a match a sample rather than a token: filler (`ghp_xxxx…`), keys
known from public test code, and characters in the midst of a base64 blob, which are left
alone. Always linear: a run of token characters is read once, and its first two characters
choose the formats that are tried on it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from recollect.rules.secret_formats import (
    INFIX_FORMATS,
    NUMBERED_FORMATS,
    RUN_FORMATS,
    SEARCHED_FORMATS,
    TokenFormat,
)
from recollect.rules.secret_values import is_placeholder, is_published_sample

if TYPE_CHECKING:
    from collections.abc import Iterator

_RUN = re.compile(r"\b[\w.~-]{16,}+", re.ASCII)
_WORD_START = re.compile(r"[.~-]+(?=\w)", re.ASCII)
_PART_START = re.compile(r"[.~][.~-]*(?=\w)", re.ASCII)
_NOT_BASE64 = re.compile(r"[._~-]")
_FILE_ENDING = re.compile(r"\.(?:png|jpe?g|gif|svg|webp|ico|css|html?|js|map|woff2?|pdf|mp[34])\b")
_DIGITS = "0123456789"
_BLOB = re.compile(r"[A-Za-z0-9+/]{24}\Z")


def _by_opening() -> dict[str, tuple[TokenFormat, ...]]:
    """The formats by their first two characters (one, where the prefix is one letter)."""
    table: dict[str, list[TokenFormat]] = defaultdict(list)
    for token_format in RUN_FORMATS:
        for opening in dict.fromkeys(prefix[:2] for prefix in token_format.prefixes):
            table[opening].append(token_format)
    return {opening: tuple(formats) for opening, formats in table.items()}


_BY_OPENING = _by_opening()


def find_tokens(text: str) -> Iterator[tuple[str, int, int]]:
    """Every token of a known format in the text: its rule's name, start and end."""
    for run in _RUN.finditer(text):
        first, last = run.span()
        yield from _tokens_of_run(text, _after_escape(text, first) if first else 0, last)
        word = run.group()
        for literal, token_format in INFIX_FORMATS:
            if literal in word:
                start = _before_punctuation(text, first)
                match = token_format.pattern.match(text, start)
                if match is not None and _is_live(text, match):
                    yield token_format.name, start, match.end()
    yield from _find_searched(text)


def _tokens_of_run(text: str, start: int, last: int) -> Iterator[tuple[str, int, int]]:
    """The tokens that begin with the run, after a dot or tilde in it, or after one another."""
    while start < last:
        end = 0
        for opening in (text[start : start + 2], text[start]):
            for token_format in _BY_OPENING.get(opening, ()):
                match = token_format.pattern.match(text, start)
                if match is not None and _is_live(text, match):
                    yield token_format.name, start, match.end()
                    end = max(end, match.end())
        following = (_WORD_START if end else _PART_START).search(text, end or start, last)
        if following is None:
            break
        start = following.end()


def _after_escape(text: str, start: int) -> int:
    """Where the token begins when the run starts inside `\\n` of JSON or `%3D` of a URL."""
    before = text[start - 1]
    if before == "\\" and text[start] in "nrt":
        return start + 1
    if before == "%":
        return start + 2
    if before == "[" and text[start - 2 : start - 1] == "\x1b":  # a terminal's colour, ESC [ 9 3 m
        return text.find("m", start, start + 8) + 1 or start
    return start


def _before_punctuation(text: str, start: int) -> int:
    """Where a token begins whose first characters are punctuation: no word begins there."""
    lead = text[max(0, start - 3) : start]
    return start - (len(lead) - len(lead.rstrip(".~-")))


def _is_live(text: str, match: re.Match[str]) -> bool:
    """False for filler, known samples, a file's name, and what lies inside a base64 blob."""
    token, start = match.group(), match.start()
    if token.endswith("EXAMPLE") or is_placeholder(match["body"]) or is_published_sample(token):
        return False
    if _FILE_ENDING.match(text, match.end()):
        return False
    before = text[start - 1] if start else " "
    if before not in "+/" or _NOT_BASE64.search(token):
        return True
    return _BLOB.search(text, max(0, start - 25), start) is None


def _find_searched(text: str) -> Iterator[tuple[str, int, int]]:
    for name, literal, pattern in SEARCHED_FORMATS:
        at = text.find(literal)
        while at >= 0:
            inside_word = at > 0 and literal[0].isalnum() and text[at - 1].isalnum()
            match = None if inside_word else pattern.match(text, at)
            if match is not None:
                begin, end = match.span("secret" if "secret" in pattern.groupindex else 0)
                if not is_placeholder(text[begin:end]):
                    yield name, begin, end
            at = text.find(literal, at + 1 if match is None else match.end())
    for name, literal, most_digits, pattern in NUMBERED_FORMATS:
        at = text.find(literal)
        while at >= 0:
            if at and text[at - 1] in _DIGITS:
                lead = text[max(0, at - most_digits - 1) : at]
                begin = at - (len(lead) - len(lead.rstrip(_DIGITS)))
                match = pattern.match(text, begin)
                if match is not None and not is_placeholder(match.group()):
                    yield name, begin, match.end()
            at = text.find(literal, at + 1)
