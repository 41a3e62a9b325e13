"""Whether a request keeps what is promised of every request, looked at before it is answered.

Pure. Always holds: what it names is broken in the request itself or in what the report says of
it; it never quotes what was said.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from recollect.core.values.history import Entry, behind_cut
from recollect.core.values.report import Report
from recollect.testing.provider_rules import violations
from tools.crash.desk import markers_in


def broken_promises(
    report: Report, request: Mapping[str, Any], said: Sequence[str]
) -> Iterator[str]:
    """What is wrong with a request, given the markers of all that was ever said."""
    for broken in violations("anthropic", request, ids_unique_across_messages=True):
        yield f"the provider would refuse the request: {broken.rule} at {broken.where}"
    known = Counter(mark for entry in report.entries for mark in _markers(entry))
    if missing := set(said) - set(known):
        yield f"{len(missing)} messages of the transcript are not in the history"
    if twice := [mark for mark, count in known.items() if count > 1]:
        yield f"{len(twice)} messages are in the history twice"
    yield from _unseen(report, json.dumps(request))


def _unseen(report: Report, request: str) -> Iterator[str]:
    """Every message stands in the request, or behind the cut whose summary it shows.

    The result of a tool may have been shortened; then its message stands there without it.
    """
    behind = behind_cut(report.entries, report.edits)
    fates = {fate.place: fate.fate for fate in report.fates() if fate.place is not None}
    shown = set(markers_in(request))
    for place, entry in enumerate(report.entries):
        fate = fates[place]
        if entry.key in behind:
            if fate != "summarized":
                yield f"message {place} is behind the cut, and {fate}"
        elif fate != "changed" and not (fate == "kept" and shown.issuperset(_markers(entry))):
            yield f"message {place} is neither shown nor summarized, but {fate}"


def _markers(entry: Entry) -> list[str]:
    return markers_in(entry.raw.decode())
