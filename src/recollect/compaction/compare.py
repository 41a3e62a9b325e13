"""Compares a summary with the one before it: what was dropped, what is new.

Owns the lines of the diff on a receipt's page. Lines are compared as sentences, without the marks
of lists, so that a point that only moved or was renumbered is no change. Must never show what
both say as changed. Pure; an empty summary before makes every line new.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Literal, TypeAlias

from recollect.rules.text import one_line, sentence_spans

Change: TypeAlias = Literal["dropped", "new", "kept"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffLine:
    """One sentence of either summary, and what became of it."""

    change: Change
    text: str = field(repr=False)


def compare(previous_summary: str, summary: str) -> tuple[DiffLine, ...]:
    """The sentences of both in the order of the newer one, what was dropped where it stood."""
    before, after = _sentences(previous_summary), _sentences(summary)
    still, known = {_folded(one) for one in after}, {_folded(one) for one in before}
    lines: list[DiffLine] = []
    # rarely more than a few hundred sentences each, so the exact match is affordable
    matched = SequenceMatcher(
        None, [_folded(one) for one in before], [_folded(one) for one in after], autojunk=False
    )
    for _, from_before, to_before, from_after, to_after in matched.get_opcodes():
        lines += [
            DiffLine(change="dropped", text=one)
            for one in before[from_before:to_before]
            if _folded(one) not in still
        ]
        lines += [
            DiffLine(change="kept" if _folded(one) in known else "new", text=one)
            for one in after[from_after:to_after]
        ]
    return tuple(lines)


def _sentences(text: str) -> list[str]:
    found = (one_line(text[start:end]) for start, end in sentence_spans(text))
    return [one for one in found if one]


def _folded(sentence: str) -> str:
    return sentence.strip("*_`. ").casefold()
