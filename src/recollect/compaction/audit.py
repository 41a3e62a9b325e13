"""Checks what a summary says against what it stands for.

Owns the checks: the sections are there, identifiers of the last messages stand in it letter by
letter (whoever put them there), and the user's latest ask is spoken of. Must never ask a model.
Always pure. The numbers are OpenClaw's (notes/formats.md B).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from recollect.compaction.consumed import consumed
from recollect.compaction.prompts import IDENTIFIERS_HEADING, REQUIRED_HEADINGS
from recollect.rules.noise import strip_channel_prefix
from recollect.rules.text import without_recalled_blocks
from recollect.search.identifiers import identifiers_in
from recollect.search.question import substance
from recollect.search.tokenize import tokenize
from recollect.values.history import Entry
from recollect.values.message import Text, text_of

MOST_IDENTIFIERS: Final = 12
LAST_MESSAGES: Final = 10
LEAST_SHARED_WORDS: Final = 2
_LONG_ASK_WORDS: Final = 3
_ASK_CHARS: Final = 2000
"""An ask stands at the beginning or the end of its message; between is what was pasted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """What a summary lacks; nothing where it passed."""

    sections: tuple[str, ...] = ()
    identifiers: tuple[str, ...] = field(default=(), repr=False)
    ask: str = field(default="", repr=False)
    """The latest ask, where the summary does not speak of it."""

    @property
    def passed(self) -> bool:
        """Nothing is missing."""
        return self.faults == 0

    @property
    def faults(self) -> int:
        """How much is missing: the fewer the better."""
        return len(self.sections) + len(self.identifiers) + bool(self.ask)

    @property
    def said(self) -> str:
        """What is missing, in counts and headings: never in words of the conversation."""
        parts = [heading.lstrip("# ") for heading in self.sections]
        if self.identifiers:
            parts.append(f"{len(self.identifiers)} identifiers")
        if self.ask:
            parts.append("the latest ask")
        return ", ".join(parts)

    def missing(self) -> tuple[str, ...]:
        """What to name to the model, one line each."""
        lines = [f"the heading {heading}" for heading in self.sections]
        lines += [f"letter by letter: {name}" for name in self.identifiers]
        if self.ask:
            lines.append(f"what the user asked last: {self.ask}")
        return tuple(lines)


def audit(summary: str, entries: Sequence[Entry], *, carried: bool = True) -> AuditResult:
    """Hold a summary of `entries` to what it must say.

    `carried`: code added its sections, so the identifiers' heading is code's affair.
    """
    there = {line.strip("#*: ").casefold() for line in summary.splitlines() if _is_heading(line)}
    sections = tuple(
        heading
        for heading in REQUIRED_HEADINGS
        if heading.lstrip("# ").casefold() not in there
        and not (carried and heading == IDENTIFIERS_HEADING)
    )
    folded = summary.casefold()
    lacking = [name for name in _last_identifiers(entries) if name.casefold() not in folded]
    ask = latest_ask(entries)
    return AuditResult(
        sections=sections,
        identifiers=tuple(lacking),
        ask="" if _speaks_of(summary, ask) else " ".join(ask.split())[:300],
    )


def _is_heading(line: str) -> bool:
    return line.lstrip().startswith(("#", "**"))


def latest_ask(entries: Sequence[Entry]) -> str:
    """What the user said last, commands that were carried out aside."""
    for entry in reversed(entries):
        if entry.role == "user" and not entry.message.summary:
            words = _asked(entry).strip()
            if words:
                return words
    return ""


def _asked(entry: Entry) -> str:
    texts = [
        strip_channel_prefix(without_recalled_blocks(part.text, any_spelling=True))
        for part in entry.parts
        if isinstance(part, Text)
    ]
    return "\n".join(text for text in texts if not consumed(text))


def _last_identifiers(entries: Sequence[Entry]) -> list[str]:
    found: dict[str, None] = {}
    for entry in reversed(entries[-LAST_MESSAGES:]):
        asks = entry.role == "user" and not entry.message.summary
        text = _asked(entry) if asks else text_of(entry.message)
        if entry.role != "system":
            found.update(dict.fromkeys(identifiers_in(text).values()))
    return list(found)[:MOST_IDENTIFIERS]


def _speaks_of(summary: str, ask: str) -> bool:
    if len(ask) > 2 * _ASK_CHARS:
        ask = f"{ask[:_ASK_CHARS]} {ask[-_ASK_CHARS:]}"
    asked = _about(ask)
    least = LEAST_SHARED_WORDS if len(asked) >= _LONG_ASK_WORDS else min(1, len(asked))
    return len(asked & set(_words(summary))) >= least


def _about(text: str) -> set[str]:
    return set(substance(text, tuple(_words(text))))


def _words(text: str) -> Iterable[str]:
    return tokenize(text)
