"""Decides whether a draft may become a fact at all, from whose words it repeats.

Owns what each level of trust may say. The user's words may be anything; the model's anything but a
preference, which is the user's to have; what tools brought in only says how things are. Must never
raise a draft's trust. What always holds: nothing that rests on a tool's words, however it was said
again, is a preference or a decision or tells anybody what to do; where tools' words stand further
back than anybody looked, the model's lay nothing down either. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from recollect.memory.reading.lineage import Lineage, Said, lineages
from recollect.memory.reading.orders import is_order
from recollect.rules.trust import lowest
from recollect.values.fact import EXTRACTED_TYPES, FactDraft, FactType
from recollect.values.segment import Segment, SegmentId, Trust

_HOW_THINGS_ARE: Final[frozenset[FactType]] = frozenset({"implementation", "config", "issue"})
_MAY_SAY: Final[Mapping[Trust, frozenset[FactType]]] = {
    "high": frozenset(EXTRACTED_TYPES),
    "medium": frozenset(EXTRACTED_TYPES) - {"preference"},
    "low": _HOW_THINGS_ARE,
    "outside": _HOW_THINGS_ARE,
}


_LAID_DOWN: Final[frozenset[FactType]] = frozenset({"preference", "decision"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed:
    """A draft and the words it rests on."""

    draft: FactDraft = field(repr=False)
    spans: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """The draft with the trust it has, or why it is refused."""

    draft: FactDraft | None = field(repr=False)
    reason: str = ""
    segment: SegmentId | None = None


def admit(
    proposed: Sequence[Proposed], around: Sequence[Segment], *, unseen_low: bool = False
) -> tuple[Admitted, ...]:
    """Hold drafts to what their sources may say; `around` are the segments they were found among,
    in order, and `unseen_low` says that tools' words stand further back, where nobody looked."""
    places = {segment.id: place for place, segment in enumerate(around)}
    said = [_said(one, places, len(around)) for one in proposed]
    traced = lineages((each for one in said for each in one), around)
    return tuple(
        _held_to_trust(one, [traced[each] for each in each_said], unseen_low=unseen_low)
        for one, each_said in zip(proposed, said, strict=True)
    )


def _said(one: Proposed, places: Mapping[SegmentId, int], end: int) -> tuple[Said, ...]:
    """What is said in a draft's name; its speaker can have read nothing that was said later."""
    own = frozenset(evidence.segment for evidence in one.draft.evidence)
    before = max((places[id_] for id_ in own if id_ in places), default=end)
    return tuple(
        Said(statement=text, trust=one.draft.trust, before=before, own=own)
        for text in dict.fromkeys((one.draft.content, *one.spans))
    )


def _held_to_trust(one: Proposed, traced: Sequence[Lineage], *, unseen_low: bool) -> Admitted:
    draft = one.draft
    segment = draft.evidence[-1].segment
    trust = lowest(found.trust for found in traced)
    if draft.type not in _MAY_SAY[trust]:
        return Admitted(draft=None, reason=f"{trust} trust states no {draft.type}", segment=segment)
    lays_down = any(map(is_order, (draft.content, *one.spans)))
    if lays_down and trust in ("low", "outside"):
        return Admitted(draft=None, reason="a tool's words tell nobody what to do", segment=segment)
    if unseen_low and trust != "high" and (lays_down or draft.type in _LAID_DOWN):
        reason = "it may repeat what a tool brought in further back"
        return Admitted(draft=None, reason=reason, segment=segment)
    repeated = tuple(dict.fromkeys(name for found in traced for name in found.segments))
    return Admitted(draft=replace(draft, trust=trust, lineage=repeated), segment=segment)
