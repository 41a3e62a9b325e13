"""Evidence beside words and meaning: who said a passage, in what role, and when.

Owns the points that each kind of evidence is worth (docs/sources.md). It must never leave a
passage out: evidence lifts. What always holds: evidence that speaks for nearly everything
speaks for nothing, so a window that most candidates lie in is ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from recollect.search.dates import Window
from recollect.search.question import Question
from recollect.search.standing import STANDING_WORD
from recollect.values.lookup import Candidate

SPEAKER_POINTS: Final = 0.3
ROLE_POINTS: Final = 0.4
DATE_POINTS: Final = 0.4
STANDING_POINTS: Final = 0.4
STANDING_MOST: Final = 8
"""More of them would fill the block: a memory of years holds many."""
WIDE_SHARE: Final = 0.7
"""A window over more of the candidates than this tells nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known about a search beside its words and vectors."""

    speakers: frozenset[str]
    """Whom the question names; only in a chat between people, where it tells who spoke."""
    lifts_user: bool
    windows: tuple[Window, ...] = field(default=())
    between_people: bool = False
    """No assistant among the candidates: a chat between people."""


def gather_evidence(question: Question, passages: Sequence[Candidate]) -> Evidence:
    """What of a question's evidence tells these candidates apart."""
    roles = {one.role for one in passages}
    # where tools were used, what is looked for is as often in their output
    has_tools = any(one.tool is not None for one in passages)
    between_people = "assistant" not in roles
    return Evidence(
        speakers=frozenset(question.speakers if between_people else ()),
        lifts_user=not between_people and not has_tools and not question.asks_assistant,
        windows=_telling(question.windows, passages),
        between_people=between_people,
    )


def speaker_points(evidence: Evidence, one: Candidate) -> float:
    """The speaker is named in the question."""
    return SPEAKER_POINTS if any(word in evidence.speakers for word in one.counts) else 0.0


def role_points(evidence: Evidence, one: Candidate) -> float:
    """The user's own words, where the question does not want the assistant's."""
    return ROLE_POINTS if evidence.lifts_user and one.role == "user" and not one.tool else 0.0


def standing_points(passages: Sequence[Candidate], scores: Sequence[float]) -> list[float]:
    """An instruction that is to last bears on every question; the nearest few are lifted."""
    standing = [at for at, one in enumerate(passages) if STANDING_WORD in one.counts]
    if not standing:
        return [0.0] * len(passages)
    standing.sort(key=lambda at: (-round(scores[at], 6), passages[at].segment))
    lifted = set(standing[:STANDING_MOST])
    return [STANDING_POINTS if at in lifted else 0.0 for at in range(len(passages))]


def date_points(evidence: Evidence, one: Candidate) -> tuple[float, str]:
    """Said in a window that the question names, or speaking of a day in it; and which."""
    why = _when(evidence.windows, one)
    return (DATE_POINTS, why) if why else (0.0, "")


def _when(windows: Sequence[Window], one: Candidate) -> str:
    """How the first of the windows that a passage belongs to holds it; empty where none does."""
    for window in windows:
        if window.start <= one.said_at <= window.end:
            return f"said {window.said}"
        if any(word in one.counts for word in window.words):
            return f"speaks of {window.said}"
    return ""


def _telling(windows: Sequence[Window], passages: Sequence[Candidate]) -> tuple[Window, ...]:
    if not windows:
        return ()
    inside = sum(1 for one in passages if _when(windows, one))
    return tuple(windows) if 0 < inside <= WIDE_SHARE * len(passages) else ()
