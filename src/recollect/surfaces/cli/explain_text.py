"""Text from a transcript made fit to be shown: no secrets, no control characters, one line.

Owns that nothing a recording holds can move the cursor, colour the screen, turn its reading
direction or reveal a key. Always returns text that any terminal can encode and measure.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from recollect.rules.message_redaction import redact_json_text
from recollect.rules.redaction import redact
from recollect.values.message import Image, Other, Text, Thinking, ToolCall, ToolResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recollect.values.message import Part

EXCERPT_CHARS = 160
_LOOKED_AT_CHARS = 4000  # enough to see a long secret whole before it is clipped
_UNPRINTED = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor (ECMA-48, 5.4)
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # OSC, DCS
    r"|\x1b[ -/]*[0-~]?"
)
# Selectors change how wide the sign before them is drawn, differently on every terminal.
_SELECTORS = re.compile("[\ufe00-\ufe0f]")


def plain_line(text: str) -> str:
    """One line that prints as it reads: no escapes, no controls, white space joined."""
    if text.isprintable() and text.isascii() and "  " not in text:
        return text.strip()
    text = _SELECTORS.sub("", _SEQUENCE.sub("", text))
    kept = [
        " " if sign.isspace() else sign
        for sign in text
        if sign.isspace() or unicodedata.category(sign) not in _UNPRINTED
    ]
    return " ".join("".join(kept).split())


def shown_text(text: str, at_most_chars: int = EXCERPT_CHARS) -> str:
    """A text's beginning with its secrets masked, on one line."""
    line = plain_line(redact(text[:_LOOKED_AT_CHARS]).text)
    return line if len(line) <= at_most_chars else line[: at_most_chars - 1].rstrip() + "…"


def excerpt_of(parts: Sequence[Part]) -> str:
    """The first words of a message."""
    for part in parts:
        line = shown_text(_words_of(part))
        if line:
            return line
    return ""


def _words_of(part: Part) -> str:
    if isinstance(part, Text | Thinking):
        return part.text
    if isinstance(part, ToolCall):
        arguments, _ = redact_json_text(part.arguments)  # as it reads: an escape can hide a label
        return f"{redact(part.name).text} {arguments}"
    if isinstance(part, ToolResult):
        images = sum(isinstance(inner, Image) for inner in part.content)
        return part.text or (f"[{images} images]" if images > 1 else "[image]" if images else "")
    if isinstance(part, Image):
        return f"[{part.media_type or 'image'}]"
    assert isinstance(part, Other)
    return f"[{part.kind}]"
