"""Standing instructions: what counts as one, that it is found without a shared word, and capped."""

from __future__ import annotations

import pytest

from recollect.core.search.statements import STANDING_WORD, is_standing
from recollect.core.turn.ingest import index
from recollect.core.values.message import EntryKey, MessageId
from recollect.core.values.segment import NewSegment, Segment, SegmentId


@pytest.mark.parametrize(
    "text",
    [
        "Always answer in metric units.",
        "From now on call me Captain.",
        "Please never use emojis in commit messages",
        "When I ask about recipes, give me vegetarian ones.",
        "Don't ever push to main without asking me",
        "以后请用中文回答",
        "不要每次都道歉",
    ],
)
def test_what_is_to_last(text: str) -> None:
    assert is_standing(text)


@pytest.mark.parametrize(
    "text",
    [
        "I always wanted to see the sea",
        "She never called me back",
        "Use the blue one.",
        "What do you always do on Sundays?",
        "Always " + "a very long pasted text " * 20,
        "我总是迟到",
        "",
    ],
)
def test_what_was_only_said(text: str) -> None:
    assert not is_standing(text)


def segment(number: int, text: str, role: str = "user") -> NewSegment:
    made = Segment(
        id=SegmentId(f"{number:032x}"),
        session="s",
        key=EntryKey(f"k{number}"),
        message_id=MessageId(f"m{number}"),
        role=role,  # type: ignore[arg-type]
        text=text,
        tokens=10,
        said_at=1_700_000_000.0 + number,
        source="request",
        trust="high",
    )
    return NewSegment(segment=made, passages=index(made))


def test_only_the_users_own_short_messages_are_marked() -> None:
    said = "Always answer in metric units."
    assert STANDING_WORD in segment(1, said).passages[0].words
    assert STANDING_WORD not in segment(2, said, role="assistant").passages[0].words
