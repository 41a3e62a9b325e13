"""How both engines keep facts and what they rest on; what is left of one is `values.fact_support`.

Pure. Always holds: what `pack_evidence` made reads back as it was; no fact is closed for one that
may not be written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from recollect.values.fact import Evidence, Fact, FactId, fact_identity
from recollect.values.fact_support import all_rest_on, rests_on, still_supported
from recollect.values.segment import SegmentId

__all__ = [
    "all_rest_on",
    "pack_evidence",
    "rests_on",
    "still_supported",
    "unpack_evidence",
    "writable",
]


def writable(
    given: Iterable[Fact],
    held: Mapping[FactId, Fact],
    *,
    tombstones: AbstractSet[str],
    gone: AbstractSet[str],
) -> list[Fact]:
    """What of the facts of a batch is to be written where these are `held`.

    A fact that another of the batch replaces stays as it is held where that one is refused: else
    nothing would hold any more. One that is new then holds.
    """
    wanted = {fact.id: fact for fact in given}
    kept: dict[FactId, Fact] = {}
    for fact in wanted.values():
        left = None if fact_identity(fact.id) in tombstones else still_supported(fact, gone)
        if left is not None:
            kept[left.id] = left
    refused = wanted.keys() - kept.keys() - held.keys()
    for fact in [one for one in kept.values() if one.superseded_by in refused]:
        kept[fact.id] = held.get(fact.id) or replace(fact, superseded_by=None, valid_to=None)
    return [fact for fact in kept.values() if held.get(fact.id) != fact]


def pack_evidence(evidence: Sequence[Evidence]) -> str | None:
    """Spans as a column holds them; None for none."""
    if not evidence:
        return None
    return json.dumps([[one.segment, one.start, one.end] for one in evidence])


def unpack_evidence(packed: str | bytes | None) -> tuple[Evidence, ...]:
    """What `pack_evidence` made; ValueError when it cannot be read."""
    if packed is None:
        return ()
    match json.loads(packed):
        case [*spans]:
            return tuple(map(_span, spans))
    raise ValueError("not a list of spans")


def _span(item: object) -> Evidence:
    match item:
        case [str(segment), int(start), int(end)]:
            return Evidence(segment=SegmentId(segment), start=start, end=end)
    raise ValueError("not a span")
