"""Standing instructions: what counts as one, that it is found without a shared word, and capped."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from recollect.adapters.stores.sqlite import SQLiteStore
from recollect.core.search.statements import STANDING_WORD, is_standing
from recollect.core.turn.ingest import index
from recollect.core.turn.recall import recall
from recollect.core.values.batch import Batch
from recollect.core.values.message import EntryKey, MessageId
from recollect.core.values.recall import Recalled, RecallRequest
from recollect.core.values.segment import NewSegment, Segment, SegmentId
from recollect.system.config.settings import Recall as RecallSettings


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


def test_it_is_recalled_though_it_shares_no_word_and_never_more_than_a_few(tmp_path: Path) -> None:
    async def scenario() -> Recalled:
        store = await SQLiteStore.open(tmp_path / "m.db", space="t")
        try:
            talk = [segment(n, f"the ferry to island {n} leaves at noon") for n in range(100)]
            orders = [segment(200 + n, f"Always be polite in way {n}.") for n in range(30)]
            await store.write(Batch(at=1.0, segments=(*talk, *orders)))
            request = RecallRequest(
                space="t",
                session="other",
                query="when does the ferry to the lighthouse leave?",
                now=time.time(),
                budget_tokens=2_000,
                count_tokens=lambda text: len(text) // 3 + 1,
                gated=False,
                most_hits=200,
            )
            return await recall(request, archive=store, vectors=(), settings=RecallSettings())
        finally:
            await store.close()

    found = asyncio.run(scenario())
    lifted = [hit for hit in found.hits if any(part.name == "standing" for part in hit.parts)]
    assert len(lifted) == 8
    shown = [passage.text for passage in found.passages]
    assert any(text.startswith("Always be polite") for text in shown)
    assert any("ferry" in text for text in shown)
