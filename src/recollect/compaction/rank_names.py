"""Ranks the exact names of what is cut: which of them a view should not be without.

By who named them and how often; what was ranked before counts on, and fades. Pure. The weights did
best on real transcripts among those tried (docs/figures_cost.md), and are no more than that.
Always holds: bounded; the same entries and the same list before give the same list.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from recollect.compaction.consumed import consumed
from recollect.rules.segment_text import without_recalled_blocks
from recollect.search.identifiers import shapes_in
from recollect.values.history import Entry
from recollect.values.message import Text, ToolCall, ToolResult

MOST_NAMES: Final = 1000
ARGUMENT_CHARS: Final = 600
"""A longer argument is content: a file's, a patch's."""
_USER, _MODEL, _CONTENT, _RESULT = 4.0, 2.0, 1.0, 0.25
"""What a naming is worth by where it stands: a log names everything."""
_MOST_OF_RESULTS: Final = 3.0
"""However often a log repeats a name, the user's naming it once is worth more."""
_PATH_FACTOR, _NUMBER_FACTOR = 1.5, 0.3
FADES: Final = 0.7
"""What is left of a name's place at the next compaction."""
_READ_CHARS: Final = 100_000
_LEAST_CHARS, _MOST_CHARS = 4, 120
_SHARED_LEAST: Final = 3
"""So many paths below a folder make it worth naming once."""
_CHAIN: Final = re.compile(r"[A-Za-z_$][\w$]*(?:(?:\.|::|->)[A-Za-z_$][\w$]*)+")
_LINKS: Final = re.compile(r"\.|::|->")
_FILE: Final = re.compile(
    r"[\w-]+\.(?:tsx?|m?jsx?|jsonl?|md|py|sh|css|html|ya?ml|toml|lock|txt|rs|go|java|c|h|cpp|rb|php"
    r"|sql|cfg|ini|csv)"
)
_SHAPED: Final = re.compile(r"[A-Za-z$]*[a-z0-9][A-Z]\w*|\w*[A-Za-z]_\w+|_\w{3,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankResult:
    """The names, best first."""

    names: tuple[str, ...] = field(repr=False)
    reason: str


def rank_names(
    entries: Sequence[Entry], before: Sequence[str] = (), *, most: int = MOST_NAMES
) -> RankResult:
    """The names of `entries`, and of the list `before`, by what they are worth."""
    fresh: dict[str, float] = {}
    in_results: dict[str, float] = {}
    for entry in entries:
        for text, weight in _spoken(entry):
            named = in_results if weight == _RESULT else fresh
            for name in set(_names(text)):
                named[name] = named.get(name, 0.0) + weight * _factor(name)
    for name, worth in in_results.items():
        fresh[name] = fresh.get(name, 0.0) + min(worth, _MOST_OF_RESULTS)
    folder = _shared_folder((*before, *fresh))
    scores: dict[str, float] = {}
    for name, worth in fresh.items():
        _add(scores, name, worth, folder)
    levels = sorted(scores.values(), reverse=True) or [1.0]
    for rank, name in enumerate(before):
        _add(scores, name, FADES * levels[min(rank, len(levels) - 1)], folder)
    scores.pop(folder, None)
    ordered = sorted(scores, key=lambda name: (-scores[name], name))
    if folder:
        ordered.insert(0, folder)
    return RankResult(
        names=tuple(ordered[:most]), reason=f"{len(ordered)} names, {min(most, len(ordered))} kept"
    )


def _add(scores: dict[str, float], name: str, worth: float, folder: str) -> None:
    """Under the name without the folder that most paths share."""
    short = (name.removeprefix(folder) or name) if folder else name
    scores[short] = scores.get(short, 0.0) + worth


def _factor(name: str) -> float:
    if "/" in name:
        return _PATH_FACTOR
    is_number = name.replace(".", "").isdigit()
    return _NUMBER_FACTOR if is_number or name.startswith("-") else 1.0


def _names(text: str) -> Iterator[str]:
    """As a reader would look for them: a chain of names in code by its pieces."""
    for written in shapes_in(text[:_READ_CHARS]):
        if not _LEAST_CHARS <= len(written) <= _MOST_CHARS:
            continue
        if _CHAIN.fullmatch(written) and not _FILE.fullmatch(written):
            for piece in _LINKS.split(written):
                if len(piece) >= _LEAST_CHARS and _SHAPED.fullmatch(piece):
                    yield piece
            continue
        yield written


def _shared_folder(names: Iterable[str]) -> str:
    """The folder that saves most when it is named once; empty where none does."""
    below: Counter[str] = Counter()
    for name in names:
        if name.startswith("/"):
            steps = name.split("/")
            below.update("/".join(steps[:depth]) + "/" for depth in range(3, len(steps)))
    best = max(below, key=lambda one: ((below[one] - 1) * len(one), one), default="")
    return best if best and below[best] >= _SHARED_LEAST else ""


def _spoken(entry: Entry) -> Iterator[tuple[str, float]]:
    """The texts of a message that may name something, and what a name in each is worth."""
    if entry.role == "system":
        return
    for part in entry.parts:
        if isinstance(part, Text):
            if entry.role != "user":
                yield part.text, _MODEL
            elif not consumed(part.text):
                yield without_recalled_blocks(part.text, any_spelling=True), _USER
        elif isinstance(part, ToolCall):
            values = list(_values(part.arguments))
            yield "\n".join(one for one in values if len(one) <= ARGUMENT_CHARS), _MODEL
            yield "\n".join(one for one in values if len(one) > ARGUMENT_CHARS), _CONTENT
        elif isinstance(part, ToolResult):
            yield part.text, _RESULT


def _values(arguments: str) -> Iterator[str]:
    """What a call is given, without the names of its arguments."""
    try:
        given = json.loads(arguments)
    except (ValueError, RecursionError):
        given = arguments
    for value in given.values() if isinstance(given, dict) else [given]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            held = [one.values() if isinstance(one, dict) else [one] for one in value]
            yield from (one for ones in held for one in ones if isinstance(one, str))
