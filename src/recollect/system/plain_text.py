"""Text that people type and read: lines that are safe to print, and sizes as people write them.

This module must import quickly, because every command uses it."""

from __future__ import annotations

import re
import unicodedata

from recollect.errors import RecollectError

LEAST_WINDOW_TOKENS = 1_000  # a smaller window holds no system prompt
GREATEST_WINDOW_TOKENS = 100_000_000  # above it, a typing error is likely
_UNITS = {"k": 1_000, "m": 1_000_000}
_UNPRINTED = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colors, cursor (ECMA-48, 5.4)
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # OSC, DCS
    r"|\x1b[ -/]*[0-~]?"
)
# On terminals, variation selectors change the width of the character before them in different ways.
_SELECTORS = re.compile("[\ufe00-\ufe0f]")
# Matches control characters (not newline and tab), marks of reading direction, surrogates.
_ACTED_UPON = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def harmless(text: str) -> str:
    """Remove characters that control a terminal, but keep newlines and tabs. A stream may be cut
    anywhere, because each character is judged alone."""
    return _ACTED_UPON.sub("", text)


def plain_line(text: str) -> str:
    """Format a text as one line, without escapes, control characters and repeated white space."""
    if text.isprintable() and text.isascii() and "  " not in text:
        return text.strip()
    text = _SELECTORS.sub("", _SEQUENCE.sub("", text))
    chars = [
        " " if sign.isspace() else sign
        for sign in text
        if sign.isspace() or unicodedata.category(sign) not in _UNPRINTED
    ]
    return " ".join("".join(chars).split())


def plain_block(text: str) -> str:
    """Format a text for a page, without escapes and control characters. White space stays."""
    if text.isascii() and text.isprintable():
        return text
    text = _SEQUENCE.sub("", text.replace("\r\n", "\n"))
    return "".join(
        [
            sign
            for sign in text
            if sign in "\n\t" or sign.isprintable() or unicodedata.category(sign) not in _UNPRINTED
        ]
    )


def number_of(count: int, noun: str, plural: str = "") -> str:
    """Format a count: 1 session, 2,000 sessions."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def size_text(count: float) -> str:
    """Format a number of bytes."""
    for unit in ("B", "KB", "MB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GB"


def short_tokens(tokens: int) -> str:
    """Format a number of tokens in at most five characters: 950, 9.6k, 168k, 1M, 1.05M."""
    if tokens < 1000:
        return str(tokens)
    if tokens < 9_950:
        return f"{tokens / 1000:.1f}".removesuffix(".0") + "k"
    if tokens < 999_500:
        return f"{round(tokens / 1000)}k"
    return f"{tokens / 1_000_000:.2f}".rstrip("0").rstrip(".") + "M"


def window_from(text: str) -> int:
    """Parse a window as people write it: 32k, 200_000, 1M."""
    plain = text.strip().lower().replace("_", "").replace(",", "")
    unit = _UNITS.get(plain[-1:], 1)
    digits = plain[:-1] if plain[-1:] in _UNITS else plain
    integer_part, _, fraction = digits.partition(".")
    is_number = (integer_part + fraction).isascii() and (integer_part + fraction).isdigit()
    tokens = round(float(digits) * unit) if is_number and len(digits) < 16 else 0
    if not LEAST_WINDOW_TOKENS <= tokens <= GREATEST_WINDOW_TOKENS:
        raise RecollectError(
            f"--window {plain_line(text)!r}: give a number of tokens between "
            f"{LEAST_WINDOW_TOKENS:,} and {GREATEST_WINDOW_TOKENS:,}, such as 32k, 200_000 or 1M"
        )
    return tokens
