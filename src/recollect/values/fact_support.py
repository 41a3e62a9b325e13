"""What is left of a fact when segments that it rests on are gone; stores and spools ask here.

Pure. Always holds: a fact never rests on a forgotten segment, neither by a source nor by a span;
one that took all of its sources goes with any of them, one that rested on nothing else goes too.
Its trust stays as it was: fewer sources are no reason to trust it more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final

from recollect.values.fact import Fact
from recollect.values.segment import SegmentId

_NO_TWINS: Final[Mapping[str, str]] = {}


def rests_on(fact: Fact) -> set[str]:
    """The segments that a fact names, as sources or by a span."""
    return {*fact.sources, *(one.segment for one in fact.evidence)}


def all_rest_on(facts: Iterable[Fact]) -> set[str]:
    """The segments that any of these facts names."""
    return {segment for fact in facts for segment in rests_on(fact)}


def still_supported(
    fact: Fact, gone: AbstractSet[str], twins: Mapping[str, str] = _NO_TWINS
) -> Fact | None:
    """The fact without segments that are gone; None when it can no longer stand.

    A segment whose very words are said elsewhere is replaced by its twin there.
    """
    named = rests_on(fact)
    lost = {one for one in named if one in gone and one not in twins}
    if not named & gone:
        return fact
    if lost and (fact.joint or lost == named):
        return None

    def now(segment: SegmentId) -> SegmentId:
        return SegmentId(twins[segment]) if segment in gone else segment

    sources = (now(one) for one in fact.sources if one not in lost)
    evidence = (
        replace(one, segment=now(one.segment)) for one in fact.evidence if one.segment not in lost
    )
    return replace(
        fact, sources=tuple(dict.fromkeys(sources)), evidence=tuple(dict.fromkeys(evidence))
    )
