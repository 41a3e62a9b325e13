"""Which turns are replayed, by what clock, and with what before the messages."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.core.rules.tokens import Weigher
from recollect.core.values.model import Usage
from recollect.core.values.transcript import RecordedRequest, RecordedSession, TranscriptItem
from recollect.hosts.inspect import explained as replaying
from recollect.hosts.inspect.explained import (
    MIN_LAST_TURNS,
    WHOLE_REPLAY_MESSAGES,
    Replay,
    choose_turns,
    read_fixed_parts,
    replay,
)
from recollect.system.config import Settings
from recollect.system.plain_text import window_from


def recorded(times: list[float | None], *, usage: int | None = None) -> RecordedSession:
    """A question and an answer a turn, each turn at its time."""
    items: list[TranscriptItem] = []
    requests: list[RecordedRequest] = []
    for turn, time in enumerate(times):
        for role in ("user", "assistant"):
            content = [{"type": "text", "text": f"{role} says {turn}"}]
            raw = json.dumps({"role": role, "content": content}).encode()
            items.append(TranscriptItem(raw=raw, line=len(items) + 1, timestamp=time))
        told = Usage(input_tokens=usage + 20 * turn) if usage else None
        shown = tuple(range(len(items) - 1))
        requests.append(RecordedRequest(shown=shown, answered=(len(items) - 1,), usage=told))
    return RecordedSession(kind="pi", format="pi", items=tuple(items), requests=tuple(requests))


def replayed(transcript: RecordedSession, turn: int, settings: Settings | None = None) -> Replay:
    return asyncio.run(replay(transcript, settings or Settings(), turn=turn))


def test_caches_expire_by_the_recorded_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = [
        point.moment for point in replayed(recorded([1000.0, 1060.0, 1900.0, 1910.0]), 4).points
    ]
    assert moments == [None, None, "cache-expired", None]
    points = replayed(recorded([None] * 6), 6).points
    assert [point.moment for point in points] == [None] * 6
    times: list[float | None] = [1000.0 + 60 * turn for turn in range(200)]
    monkeypatch.setattr(replaying, "WHOLE_REPLAY_MESSAGES", 8000)
    steady = replayed(recorded(times), 200)
    assert steady.skipped_turns > 50
    assert {point.moment for point in steady.points} == {None}
    paused = [time + 3600 if at > 60 else time for at, time in enumerate(times) if time]
    seen = replayed(recorded(list(paused)), 200)
    assert [point.moment for point in seen.points].count("cache-expired") == 1


@given(st.lists(st.integers(0, 30_000), min_size=1, max_size=400))
def test_the_turns_chosen_end_with_the_last_ones_and_stay_affordable(sizes: list[int]) -> None:
    chosen = choose_turns(sizes)
    assert chosen == sorted(set(chosen))
    assert chosen[0] == 1
    assert chosen[-1] == len(sizes)
    if sum(sizes) <= WHOLE_REPLAY_MESSAGES:
        assert len(chosen) == len(sizes)
    else:
        last = min(MIN_LAST_TURNS, len(sizes))
        assert chosen[-last:] == list(range(len(sizes) - last + 1, len(sizes) + 1))
        assert len(chosen) <= len(sizes)


def test_what_the_first_request_held_besides_its_messages_is_counted() -> None:
    weigher = Weigher()
    fixed = read_fixed_parts(recorded([None] * 3, usage=5000), weigher)
    assert fixed.unrecorded_tokens == pytest.approx(5000, rel=0.02)
    assert read_fixed_parts(recorded([None] * 3), weigher).unrecorded_tokens == 0
    result = replayed(recorded([None] * 3, usage=5000), 3)
    assert [point.came_tokens for point in result.points] == pytest.approx(
        [5000, 5020, 5040], rel=0.02
    )


def test_windows_are_read_as_people_write_them() -> None:
    told = [window_from(text) for text in ("32k", "200_000", "1M", "1.5m", " 128,000 ", "4096")]
    assert told == [32_000, 200_000, 1_000_000, 1_500_000, 128_000, 4096]
