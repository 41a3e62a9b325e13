"""Stretches of a history that no cut may part: calls with their results, reasoning with its item.

Atomic groups are most of it. Pairing is more patient than groups are: it also gives a result to a
call that comes after it, to an older call of an id used twice, and to a call of another kind. A
cut between such two would take a shown result out of the view, so they are tied, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from recollect.rules.calls import group
from recollect.values.history import Entry
from recollect.values.message import CallId, ToolCall, ToolResult
from recollect.values.model import WireRules


def ties(entries: Sequence[Entry], rules: WireRules) -> list[tuple[int, int]]:
    """First and last place of every stretch that belongs together."""
    spans = [(min(one.entries), max(one.entries)) for one in group(entries, rules)]
    waiting: dict[CallId, list[int]] = {}
    early: list[tuple[int, CallId]] = []
    for at, entry in enumerate(entries):
        if not entry.calls and not entry.results:
            continue
        for part in entry.parts:
            if isinstance(part, ToolCall):
                waiting.setdefault(part.id, []).append(at)
            elif isinstance(part, ToolResult):
                answered = waiting.get(part.call_id) or waiting.get(part.alternative or CallId(""))
                if answered:
                    spans.append((answered.pop(), at))
                else:
                    early.append((at, part.call_id))
    for at, call_id in early:
        later = next((call for call in waiting.get(call_id, ()) if call > at), None)
        if later is not None:
            waiting[call_id].remove(later)
            spans.append((at, later))
    return spans
