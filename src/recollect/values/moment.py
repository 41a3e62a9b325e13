"""When edits before the tail are allowed (design.md 1, "batch moment")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from recollect.values.reason import Reason

MomentKind: TypeAlias = Literal[
    "over-limit", "room", "cache-expired", "compaction", "ratio", "every-turn"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One batch moment and why it is one, for reasons in the report."""

    kind: MomentKind
    reason: Reason
