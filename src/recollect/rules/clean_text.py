"""Text that is safe to hand on: to a store, and to a model that reads a conversation as text.

SQLite ends a text at NUL for some readers, PostgreSQL refuses it, and neither takes a lone
surrogate, which escaped JSON can carry: `clean_text` replaces them by U+FFFD and never changes the
length of a text, so spans stay what they were. Where a conversation is written down for a model,
labels at the start of a line say who speaks: `quote_labels` marks those that a text brings along.
Both are idempotent; text that has nothing to replace is returned as the same object.
"""

from __future__ import annotations

import re
import unicodedata

REPLACEMENT = "\ufffd"

_UNHOLDABLE = re.compile("[\x00\ud800-\udfff]")
_LINE_BREAKS = re.compile("\r\n|[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
"""Whatever a reader may take for the end of a line (the ends that `str.splitlines` knows)."""
_LABEL = re.compile(
    r"\[ ?(?:user|human|customer|assistant(?: thinking| tool calls?)?|model|ai|system|developer"
    r"|(?:tool|function)(?: calls?| results?| outputs?| response)?|earlier summary|summary) ?\]",
    re.IGNORECASE,
)
_LABEL_CHARS = 80
"""A label and what may stand before it are read within so many characters of a line."""
_OPENING = "【〔〖［⟦❲⁅﹝⦗「『"
_CLOSING = "】〕〗］⟧❳⁆﹞⦘」』"
_BRACKETS = str.maketrans(_OPENING + _CLOSING, "[" * len(_OPENING) + "]" * len(_CLOSING))
QUOTED = "> "
"""Before a line that begins like a label: it reads as a quotation, and stays legible."""


def clean_text(text: str) -> str:
    """The text with what no store can hold replaced, character by character."""
    if text.isascii():
        return text.replace("\x00", REPLACEMENT) if "\x00" in text else text
    return _UNHOLDABLE.sub(REPLACEMENT, text)


def quote_labels(text: str) -> str:
    """The text with every line marked that begins like a speaker's label, in any spelling.

    Told by what a reader sees: brackets of other scripts, other widths of letters, space and
    invisible characters before and within a label make no difference.
    """
    lines: list[str] = []
    start, changed = 0, False
    for line_break in _LINE_BREAKS.finditer(text):
        line = text[start : line_break.start()]
        marked = _is_labelled(line)
        changed |= marked
        lines += [QUOTED if marked else "", line, line_break[0]]
        start = line_break.end()
    line = text[start:]
    marked = _is_labelled(line)
    if not (changed or marked):
        return text
    return "".join([*lines, QUOTED if marked else "", line])


def _is_labelled(line: str) -> bool:
    """Whether a line begins with what a reader may take for a label."""
    head = line.lstrip()[:_LABEL_CHARS]
    if not head.isascii():
        folded = unicodedata.normalize("NFKC", head.translate(_BRACKETS)).translate(_BRACKETS)
        head = "".join(c for c in folded if unicodedata.category(c) not in ("Cf", "Mn", "Cc"))
    return "]" in head and _LABEL.match(" ".join(head.split())) is not None
