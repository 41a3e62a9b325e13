"""What each message weighs as the view shows it, under the standing edits.

Estimates before calibration, as everywhere in compaction; pairing and roles, which depend on the
whole view, are not counted.
"""

from __future__ import annotations

from collections.abc import Sequence

from recollect.rules.tokens import CALL_TOKENS, MESSAGE_TOKENS, Weigher
from recollect.values.edit import Edit, LeaveOut, Shorten
from recollect.values.history import Entry
from recollect.values.message import EntryKey, Part, Text, ToolResult


def shown_tokens(entries: Sequence[Entry], edits: Sequence[Edit], weigher: Weigher) -> list[int]:
    """Tokens of each entry as shown, in order; 0 where it is left out. Cuts are not applied."""
    out: set[EntryKey] = set()
    parts_out: dict[EntryKey, set[int]] = {}
    texts: dict[EntryKey, dict[int, str]] = {}
    for edit in edits:
        if isinstance(edit, Shorten):
            texts.setdefault(edit.anchor, {})[edit.part] = edit.text
        elif isinstance(edit, LeaveOut) and edit.part is None:
            out.add(edit.anchor)
        elif isinstance(edit, LeaveOut) and edit.part is not None:
            parts_out.setdefault(edit.anchor, set()).add(edit.part)
    weights: list[int] = []
    for entry in entries:
        if entry.key in out:
            weights.append(0)
        elif entry.key in texts or entry.key in parts_out:
            gone, said = parts_out.get(entry.key, set()), texts.get(entry.key, {})
            weights.append(_edited(entry, gone, said, weigher))
        else:
            weights.append(entry.tokens)
    return weights


def _edited(entry: Entry, gone: set[int], said: dict[int, str], weigher: Weigher) -> int:
    left = [(at, part) for at, part in enumerate(entry.parts) if at not in gone]
    if not left:
        return 0
    return MESSAGE_TOKENS + sum(_weight(part, said.get(at), weigher) for at, part in left)


def _weight(part: Part, text: str | None, weigher: Weigher) -> int:
    if text is None:
        return weigher.part(part)
    if not isinstance(part, ToolResult):
        return weigher.text(text)
    rest = sum(weigher.part(inner) for inner in part.content if not isinstance(inner, Text))
    return CALL_TOKENS + weigher.text(text) + rest
