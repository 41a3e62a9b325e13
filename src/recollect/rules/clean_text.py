"""Text that every store can hold: no NUL, no lone surrogates.

SQLite ends a text at NUL for some readers, PostgreSQL refuses it, and neither takes a lone
surrogate, which escaped JSON can carry. Owns their replacement by U+FFFD. Never changes the
length of a text, so spans stay what they were. Always idempotent; text that has nothing to
replace is returned as the same object.
"""

from __future__ import annotations

import re

REPLACEMENT = "\ufffd"

_UNHOLDABLE = re.compile("[\x00\ud800-\udfff]")


def clean_text(text: str) -> str:
    """The text with what no store can hold replaced, character by character."""
    if text.isascii():
        return text.replace("\x00", REPLACEMENT) if "\x00" in text else text
    return _UNHOLDABLE.sub(REPLACEMENT, text)
