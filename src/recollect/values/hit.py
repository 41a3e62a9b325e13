"""A passage that a search found, with the score that put it where it stands, part by part.

Always holds: the points of the parts add up to the score.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from recollect.values.lookup import Candidate
from recollect.values.reason import Reason

PartName: TypeAlias = Literal[
    "words", "vector", "neighbours", "stretch", "speaker", "role", "date", "standing", "age"
]
"""What a score is made of: words it shares with the question; nearness in meaning; what stands
beside it; the stretch of conversation it stands in; who said it; when; that it is an instruction
that is to last; how long ago."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorePart:
    """One reason why a hit stands where it stands."""

    name: PartName
    points: float
    """What it adds to the score."""
    why: str
    """In words, for people: `4 of 5 words`, `0.61 by static`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A passage as it was ranked."""

    passage: Candidate
    score: float
    """Relative to the best of its search; only compares hits of the same search."""
    parts: tuple[ScorePart, ...] = field(default=(), repr=False)
    text: str = field(default="", repr=False)
    """What it says. A turn reads the texts of those that its block could have held; its `Context`
    lists these alone. A search reads all."""
    shown: bool = False
    """Whether it stands in a block of the request that goes out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateVerdict:
    """Whether the turn refers to something that has left the view, and how that was told."""

    open: bool
    reason: Reason
    score: float | None = None
    """The calibrated absolute score of the best that was found, 0 to 1."""
    threshold: float | None = None
    lost_terms: tuple[str, ...] = field(default=(), repr=False)
    """Terms of the turn, as written, that memory holds and the view does not."""
    lost_words: tuple[str, ...] = field(default=(), repr=False)
    """What the index knows them by: only passages that hold one are recalled; empty: all are."""
