"""Candidates made of texts, for tests of what weighs them: no store is needed for that."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from recollect.core.search.question import Question, read_question
from recollect.core.search.tokenize import tokenize
from recollect.core.values.message import EntryKey
from recollect.core.values.recall import Candidate, Candidates
from recollect.core.values.segment import SegmentId

NOW = 1_760_000_000.0
DAY = 86_400.0


def candidate(name: str, text: str, **more: Any) -> Candidate:
    """A passage of the segment `name`; `more` are further fields."""
    words = tokenize(text)
    marks: tuple[str, ...] = more.pop("marks", ())
    made: dict[str, Any] = {
        "ordinal": 0,
        "session": "s",
        "sequence": 0,
        "role": "user",
        "said_at": NOW,
        "trust": "high",
        "start": 0,
        "end": len(text),
        "length": len(words),
        **more,
    }
    return Candidate(
        segment=SegmentId(name), key=EntryKey(name), counts=Counter([*words, *marks]), **made
    )


def found(passages: Sequence[Candidate], *, documents: int | None = None) -> Candidates:
    """These candidates, as if they were the whole memory, or the part of a larger one."""
    frequencies = Counter(word for one in passages for word in one.counts)
    return Candidates(
        passages=tuple(passages),
        documents=len(passages) if documents is None else documents,
        average_length=sum(one.length for one in passages) / max(1, len(passages)),
        document_frequencies=frequencies,
    )


def asking(text: str, *, at: float = NOW) -> Question:
    """A question as a turn asks it."""
    return read_question(text, asked_at=at)
