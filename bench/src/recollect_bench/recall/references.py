"""Finds future references in a recorded session: what is named again after it left the view.

Owns what counts as an identifier and as a reference to it. A message that names an identifier
which stands far back, and nowhere in what the model still sees, says by itself what memory should
have brought back: gold without labels. Pure. Always holds: a reference's identifier stands in
the memory of its question, and neither in its view nor in the last five messages.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from recollect.values.history import Entry
from recollect.values.segment import NewSegment

VIEW_TOKENS: Final = 20_000
"""What the model is taken to see: this much before the message; all before that is memory."""
LAST_MESSAGES: Final = 5
MOST_A_MESSAGE: Final = 8
"""References counted of one message, so that a pasted file does not outweigh a day's work."""
_LONGEST_READ: Final = 200_000
_IDENTIFIERS: Final = re.compile(
    r"""
    https?://[^\s"'<>()\[\]{}`,\\]{4,200}                          # an address
    |(?:~|\.{1,2})?(?:/[\w.@+-]{1,80}){2,20}                       # a path
    |(?:[\w@+-][\w.@+-]{0,80}/){1,20}[\w@+-][\w.@+-]{0,80}\.\w{1,8}
    |\b[\w-]{2,80}\.(?:py|pyi|js|mjs|ts|tsx|jsx|json|jsonl|ya?ml|toml|md|txt|html|css|go|rs|java
        |kt|rb|php|sh|sql|c|h|cc|cpp|hpp|cs|lock|ini|cfg|env|log|xml|csv|ipynb|swift|vue)\b
    |\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b               # a UUID
    |\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b           # a commit
    |\bE[A-Z]{4,20}\b|\b[A-Z]{2,10}-?\d{3,8}\b                     # an error's code, an issue
    |\b[A-Z]\w{2,60}(?:Error|Exception)\b
    |\b[a-zA-Z][a-zA-Z0-9]{0,40}(?:_[a-zA-Z0-9]{1,40}){1,8}\b      # a name in code
    |\b[a-z]{2,30}(?:[A-Z][a-z0-9]{1,30}){1,8}\b
    |\b(?:[A-Z][a-z0-9]{1,30}){2,8}\b
    |\b\d{6,20}\b                                                  # a number that is a name
    """,
    re.VERBOSE | re.ASCII,
)
_TRAILING: Final = ".,;:!?-/"


def identifiers_of(text: str) -> list[str]:
    """The identifiers a text names, each once, in reading order."""
    found = [match[0].rstrip(_TRAILING) for match in _IDENTIFIERS.finditer(text[:_LONGEST_READ])]
    return list(dict.fromkeys(name for name in found if len(name) > 4))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A message that names what only memory holds."""

    place: int
    """Which message of the session."""
    view_from: int
    """The first message the model still sees; all before it is memory."""
    identifiers: tuple[str, ...] = field(repr=False)


def find_references(entries: Sequence[Entry], segments: Sequence[NewSegment]) -> list[Reference]:
    """The references of a session, in order; entries and segments go together."""
    last_named: dict[str, int] = {}
    found: list[Reference] = []
    view_from = 0
    view_tokens = 0
    for place, (entry, new) in enumerate(zip(entries, segments, strict=True)):
        names = identifiers_of(new.segment.text)
        behind = min(view_from, place - LAST_MESSAGES)
        lost = [name for name in names if last_named.get(name, behind) < behind]
        if lost and new.segment.role in ("user", "assistant"):
            named = tuple(lost[:MOST_A_MESSAGE])
            found.append(Reference(place=place, view_from=view_from, identifiers=named))
        last_named.update(dict.fromkeys(names, place))
        view_tokens += entry.tokens
        while view_tokens > VIEW_TOKENS:
            view_tokens -= entries[view_from].tokens
            view_from += 1
    return found
