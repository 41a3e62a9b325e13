"""Decides whether a draft may become a fact at all, from whose words it repeats.

Owns what each level of trust may say. The user's words may be anything; the model's anything but a
preference, which is the user's to have; what tools brought in only says how things are. Must never
raise a draft's trust. What always holds: nothing that rests on a tool's words, however it was said
again, is a preference or a decision or tells anybody what to do. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from recollect.memory.reading.lineage import lineage
from recollect.memory.reading.orders import is_order
from recollect.rules.trust import TRUST_ORDER
from recollect.values.fact import EXTRACTED_TYPES, FactDraft, FactType
from recollect.values.segment import Segment, SegmentId, Trust

_HOW_THINGS_ARE: Final[frozenset[FactType]] = frozenset({"implementation", "config", "issue"})
_MAY_SAY: Final[Mapping[Trust, frozenset[FactType]]] = {
    "high": frozenset(EXTRACTED_TYPES),
    "medium": frozenset(EXTRACTED_TYPES) - {"preference"},
    "low": _HOW_THINGS_ARE,
    "outside": _HOW_THINGS_ARE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """The draft with the trust it has, or why it is refused."""

    draft: FactDraft | None = field(repr=False)
    reason: str = ""
    segment: SegmentId | None = None


def admit(draft: FactDraft, spans: Sequence[str], around: Sequence[Segment]) -> Admitted:
    """Hold a draft to what its sources may say; `spans` are the words it rests on, and `around`
    the segments it was found among, in order."""
    segment = draft.evidence[-1].segment
    before = _before(draft, around)
    said = dict.fromkeys((draft.content, *spans))
    traced = [lineage(one, draft.trust, before) for one in said]
    least = max(traced, key=lambda one: (TRUST_ORDER.index(one.trust), len(one.segments)))
    repeated = tuple(dict.fromkeys(name for one in traced for name in one.segments))
    if draft.type not in _MAY_SAY[least.trust]:
        return Admitted(
            draft=None, reason=f"{least.trust} trust states no {draft.type}", segment=segment
        )
    if least.trust in ("low", "outside") and any(map(is_order, (draft.content, *spans))):
        return Admitted(draft=None, reason="a tool's words tell nobody what to do", segment=segment)
    return Admitted(draft=replace(draft, trust=least.trust, lineage=repeated), segment=segment)


def _before(draft: FactDraft, around: Sequence[Segment]) -> list[Segment]:
    """What its speaker can have read: nothing that was said later."""
    own = {evidence.segment for evidence in draft.evidence}
    last = max((at for at, one in enumerate(around) if one.id in own), default=len(around))
    return [one for one in around[:last] if one.id not in own]
