"""Takes over a cut what no model has to be trusted with: files, failures, exact identifiers.

Owns what is carried and how much of it. Must never look at what a summary says: it works from the
messages and from what the compaction before carried. What always holds: bounded lists; the same
entries give the same result; a file that was modified is not listed as read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Final

from recollect.compaction.consumed import consumed
from recollect.compaction.failures import failures
from recollect.compaction.touched import touched
from recollect.rules.segment_text import without_recalled_blocks
from recollect.search.identifiers import identifiers_in
from recollect.values.compaction import Carried
from recollect.values.history import Entry
from recollect.values.message import Text, ToolCall, ToolResult

MOST_IDENTIFIERS: Final = 600
MOST_FILES: Final = 200
"""Newest kept; a summary shows at most 900 characters of each list anyway."""
_ARGUMENT_CHARS: Final = 600
"""A longer argument is content: a file's, a patch's."""
_WORDS_WEIGHT: Final = 1.0
_CALL_WEIGHT: Final = 0.6
_RESULT_WEIGHT: Final = 0.2
"""A log names everything; what the two speak of is what they work with (our choice)."""


def carry(entries: Sequence[Entry], previous: Carried | None = None) -> Carried:
    """What code carries over the cut behind `entries`, and over the cut before them."""
    before = previous or Carried()
    read, modified = touched(entries)
    all_modified = _newest((*before.modified_files, *modified))
    all_read = _newest((*before.read_files, *read), leaving_out=set(all_modified))
    return Carried(
        read_files=tuple(sorted(all_read)),
        modified_files=tuple(sorted(all_modified)),
        failures=failures(entries, before.failures),
        identifiers=_ranked(entries, before.identifiers),
    )


def _newest(paths: Iterable[str], leaving_out: Iterable[str] = ()) -> list[str]:
    known: dict[str, None] = {}
    skipped = set(leaving_out)
    for path in paths:
        known.pop(path, None)
        if path not in skipped:
            known[path] = None
    return list(known)[-MOST_FILES:]


def _ranked(entries: Sequence[Entry], before: Sequence[str]) -> tuple[str, ...]:
    """By how lately and how often they were named; those of the past fade by their rank."""
    scores: dict[str, float] = {
        name: 0.5 + 0.5 * (1 - rank / len(before)) for rank, name in enumerate(before)
    }
    named: dict[str, float] = {}
    lately: dict[str, float] = {}
    for at, entry in enumerate(entries):
        for text, weight in _spoken(entry):
            for name in identifiers_in(text).values():
                so_far = named.get(name, 0.0)
                # results repeat themselves: there, often is no more than once
                repeats = weight == _RESULT_WEIGHT
                named[name] = max(so_far, weight) if repeats else so_far + weight
                lately[name] = max(lately.get(name, 0.0), (at + 1) / len(entries) * weight)
    for name, times in named.items():
        scores[name] = scores.get(name, 0.0) + lately[name] + 0.5 * math.log2(1 + times)
    ordered = sorted(scores, key=lambda name: (-scores[name], name))
    return tuple(ordered[:MOST_IDENTIFIERS])


def _spoken(entry: Entry) -> Iterable[tuple[str, float]]:
    """The texts of a message that may name something, and what a name in each is worth."""
    if entry.role == "system":
        return
    for part in entry.parts:
        if isinstance(part, Text):
            if entry.role == "user":
                if not consumed(part.text):
                    yield without_recalled_blocks(part.text, any_spelling=True), _WORDS_WEIGHT
            else:
                yield part.text, _WORDS_WEIGHT
        elif isinstance(part, ToolCall):
            yield "\n".join(_values(part.arguments)), _CALL_WEIGHT
        elif isinstance(part, ToolResult):
            yield part.text, _RESULT_WEIGHT


def _values(arguments: str) -> Iterable[str]:
    """What a call is given, without the names of its arguments and what it writes into files."""
    try:
        given = json.loads(arguments)
    except (ValueError, RecursionError):
        given = arguments
    for value in given.values() if isinstance(given, dict) else [given]:
        if isinstance(value, str) and len(value) <= _ARGUMENT_CHARS:
            yield value
