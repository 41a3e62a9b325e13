"""Takes over a cut what no model has to be trusted with: files, failures, exact identifiers.

Owns what is carried and how much of it. Must never look at what a summary says: it works from the
messages and from what the compaction before carried. What always holds: bounded lists; the same
entries give the same result; a file that was modified is not listed as read.
"""

from __future__ import annotations

import json
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
MOST_OF_ONE: Final = 200
READ_CHARS: Final = 40_000
"""Of one text: a log that is longer names everything."""
USER_WEIGHT: Final = 4.0
MODEL_WEIGHT: Final = 2.0
RESULT_WEIGHT: Final = 0.25
MOST_OF_RESULTS: Final = 3.0
"""However often a log repeats a name, the user's naming it once is worth more."""
PATH_FACTOR: Final = 1.5
FADES: Final = 0.7
"""What a naming is worth by who named it, and what is left of it at the next compaction; these did
best on real transcripts (docs/figures_cost.md)."""


def carry(entries: Sequence[Entry], previous: Carried | None = None) -> Carried:
    """What code carries over the cut behind `entries`, and over the cut before them."""
    before = previous or Carried()
    read, modified = touched(entries)
    all_modified = _newest((*before.modified_files, *modified))
    all_read = _newest((*before.read_files, *read), leaving_out=set(all_modified))
    names, scores = _ranked(entries, before)
    return Carried(
        read_files=tuple(sorted(all_read)),
        modified_files=tuple(sorted(all_modified)),
        failures=failures(entries, before.failures),
        identifiers=names,
        identifier_scores=scores,
    )


def _newest(paths: Iterable[str], leaving_out: Iterable[str] = ()) -> list[str]:
    known: dict[str, None] = {}
    skipped = set(leaving_out)
    for path in paths:
        known.pop(path, None)
        if path not in skipped:
            known[path] = None
    return list(known)[-MOST_FILES:]


def _ranked(entries: Sequence[Entry], before: Carried) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """By who named them and how often; those of the past fade with each compaction."""
    worths = (*before.identifier_scores, *[1.0] * len(before.identifiers))
    scores = {name: FADES * worth for name, worth in zip(before.identifiers, worths, strict=False)}
    in_results: dict[str, float] = {}
    seen: dict[str, int] = {}
    for at, entry in enumerate(entries):
        for text, weight in _spoken(entry):
            for name in identifiers_in(text, most=MOST_OF_ONE, read_chars=READ_CHARS).values():
                worth = weight * (PATH_FACTOR if "/" in name else 1.0)
                seen[name] = at
                if weight == RESULT_WEIGHT:
                    in_results[name] = min(in_results.get(name, 0.0) + worth, MOST_OF_RESULTS)
                else:
                    scores[name] = scores.get(name, 0.0) + worth
    for name, worth in in_results.items():
        scores[name] = scores.get(name, 0.0) + worth
    ordered = sorted(scores, key=lambda name: (-scores[name], -seen.get(name, -1), name))
    kept = ordered[:MOST_IDENTIFIERS]
    return tuple(kept), tuple(round(scores[name], 2) for name in kept)


def _spoken(entry: Entry) -> Iterable[tuple[str, float]]:
    """The texts of a message that may name something, and what a name in each is worth."""
    if entry.role == "system":
        return
    for part in entry.parts:
        if isinstance(part, Text):
            if entry.role == "user":
                if not consumed(part.text):
                    yield without_recalled_blocks(part.text, any_spelling=True), USER_WEIGHT
            else:
                yield part.text, MODEL_WEIGHT
        elif isinstance(part, ToolCall):
            yield "\n".join(_values(part.arguments)), MODEL_WEIGHT
        elif isinstance(part, ToolResult):
            yield part.text, RESULT_WEIGHT


def _values(arguments: str) -> Iterable[str]:
    """What a call is given, without the names of its arguments and what it writes into files."""
    try:
        given = json.loads(arguments)
    except (ValueError, RecursionError):
        given = arguments
    for value in given.values() if isinstance(given, dict) else [given]:
        if isinstance(value, str) and len(value) <= _ARGUMENT_CHARS:
            yield value
