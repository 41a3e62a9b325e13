"""One statement as an item of a Markdown list, and back.

Owns how a text is spelled so that any text fits: a line break is a continuation line, and what
Markdown or an editor would take for something else is escaped as Markdown escapes it. Pure.
Always holds: reading what was written gives the same text and id, whatever they hold; a line
that people wrote without knowing the escapes reads as they meant it.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, unquote

BULLET: Final = "- "
_CONTINUED: Final = "\n  "
_MOST_CODE_POINT: Final = 0x10FFFF
# What is read as something else than itself, in the order of trying.
_SPELLED: Final = re.compile(
    r"\\(?P<escaped>[\\<&])"
    r"|&#(?P<number>[0-9]{1,7});"
    r"|[ \t]*<!-- fact (?P<id>[^\s,<>]+)(?:, (?P<note>[^<>\n]*?))? -->"
)
_SEPARATORS: Final = frozenset("\u2028\u2029")
_BOX: Final = re.compile(r"\[[ xX]\](?:[ \t]+|$)")
"""A task list's box: people's sign beside a statement, no part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A list item as it was read."""

    content: str = field(repr=False)
    id: str | None = None
    """The id that its marker names; None for an item that people added."""
    note: str = field(default="", repr=False)
    """What else stands in the marker."""


def write_item(content: str, *, id: str, note: str) -> str:  # noqa: A002
    """The item's lines, without a line end at the end."""
    lines: list[str] = []
    held = ""
    for line in content.split("\n"):
        if not line:
            held += "&#10;"
            continue
        lines.append(held + _escaped(line))
        held = ""
    if lines and _BOX.match(lines[0]):
        lines[0] = f"&#91;{lines[0][1:]}"
    text = _CONTINUED.join(_with_breaks(lines, held))
    return f"{BULLET}{text} <!-- fact {spelled_id(id)}, {note} -->"


def read_item(lines: list[str]) -> Item:
    """An item from its lines: the first without its bullet, all with their white space."""
    found: list[tuple[str, str]] = []

    def plain(match: re.Match[str]) -> str:
        if match["id"] is not None:
            found.append((match["id"], match["note"] or ""))
            return ""
        if match["number"] is not None:
            code = int(match["number"])
            return chr(code) if code <= _MOST_CODE_POINT else match[0]
        return match["escaped"]

    text = "\n".join(line.strip() for line in lines)
    box = _BOX.match(text)
    content = _SPELLED.sub(plain, text if box is None else text[box.end() :])
    if not found:
        return Item(content=content)
    named, note = found[0]
    return Item(content=content, id=read_id(named), note=note)


def spelled_id(id: str) -> str:  # noqa: A002
    """An id that neither ends a comment nor a word."""
    return quote(id, safe=":", errors="surrogatepass")


def read_id(spelled: str) -> str:
    """What `spelled_id` spelled; anything else as it stands, which is no fact's id."""
    try:
        return unquote(spelled, errors="surrogatepass")
    except UnicodeDecodeError:
        return spelled


def write_heading(text: str) -> str:
    """A text on one line, as a heading holds it."""
    return _escaped(text)


def read_heading(text: str) -> str:
    """What `write_heading` wrote."""
    return read_item([text]).content


def _with_breaks(lines: list[str], held: str) -> list[str]:
    """The lines, with breaks at the very end; nothing but breaks is a line of its own."""
    if not lines:
        # n breaks make n + 1 empty lines
        return [held.removesuffix("&#10;")]
    return [*lines[:-1], lines[-1] + held]


def _escaped(line: str) -> str:
    line = line.replace("\\", "\\\\").replace("<!--", "\\<!--").replace("&#", "\\&#")
    kept = line.lstrip()
    before, line = line[: len(line) - len(kept)], kept
    kept = line.rstrip()
    after = line[len(kept) :]
    return _numbers(before) + "".join(map(_visible, kept)) + _numbers(after)


def _numbers(text: str) -> str:
    return "".join(f"&#{ord(sign)};" for sign in text)


def _visible(sign: str) -> str:
    """A sign that editors, terminals and decoders leave alone, or its number."""
    if sign.isprintable() or sign == "\t":
        return sign
    odd = unicodedata.category(sign) in ("Cc", "Cs") or sign in _SEPARATORS
    return f"&#{ord(sign)};" if odd else sign
