"""What people ask of facts, and what they are told: frozen values, no content in their reprs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from recollect.core.values.fact import EvidenceSpan, Fact, FactId, FactType, MadeBy
from recollect.core.values.segment import SPEAKERS, SegmentId, StoredSegment, Trust

WriteOutcome: TypeAlias = Literal["added", "replaced", "known", "refused"]
"""What became of a statement: a fact of its own, a fact instead of others, nothing new, or
nothing at all, and the reason says why."""


TRUSTS: Final[Mapping[str, Trust]] = {
    **{trust: trust for trust in SPEAKERS},
    "user": "high",
    "assistant": "medium",
    "tool": "low",
}
"""Every way to ask for a trust: its name, and what it was asked for by before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactFilter:
    """Which facts are asked for; every condition holds, and none asks for all."""

    types: tuple[FactType, ...] = ()
    trusts: tuple[Trust, ...] = ()
    made_by: tuple[MadeBy, ...] = ()
    session: str | None = None
    """Extracted from this session."""
    as_of: float | None = None
    """What held then; None is now."""
    superseded: bool = False
    """Also those that were replaced."""
    search: str = field(default="", repr=False)
    """Those that hold all of these words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactWritten:
    """What became of a statement that a person gave."""

    outcome: WriteOutcome
    fact: Fact | None = None
    """The fact that says it now; None where it was refused."""
    replaced: tuple[Fact, ...] = ()
    """What held before, closed."""
    reason: str = ""
    masked: int = 0
    """Secrets that were masked before it was written."""

    def __str__(self) -> str:
        """What became of it, the fact that says it now, and what it replaced."""
        lines = [f"{self.outcome}: {self.reason if self.fact is None else self.fact}"]
        lines += [f"in place of: {fact}" for fact in self.replaced]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class FactPinned:
    """What became of a pin."""

    fact: Fact
    changed: bool
    """False where it was so already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactVersion:
    """One version of a fact, or the gap that a forgotten one left."""

    fact: Fact | None
    """None for a gap."""
    id: FactId | None = None
    """A forgotten version's id, where another one still names it."""
    until: float | None = None
    """Until when it held; None while it holds, and where nobody knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactHistory:
    """A fact's versions, oldest first."""

    asked: Fact
    versions: tuple[FactVersion, ...]

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The versions that are there."""
        return tuple(version.fact for version in self.versions if version.fact is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FactSource:
    """A message that a fact rests on, with the spans that say so."""

    id: SegmentId
    stored: StoredSegment | None
    """None where it is not in the archive any more."""
    spans: tuple[EvidenceSpan, ...] = ()
    """In order; only those that lie within its text as it is now."""
    lost_spans: int = 0
    """Spans that do not: the text was redacted since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactWhy:
    """Why a fact is known."""

    fact: Fact
    sources: tuple[FactSource, ...]
    rests_on: Fact | None = None
    """Where a person rewrote it: the newest version before that names messages, which
    `sources` are then those of; None where it is the fact itself, or none does."""
