"""Whom cuts cover, in a state as it is stored: all of it comes back, and little is written."""

import json
from hashlib import blake2b
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.core.formats.stored_records import join_state, read_state, split_state, write_state
from recollect.core.values.edit import Cut
from recollect.core.values.history import SessionState
from recollect.core.values.message import EntryKey, MessageId
from recollect.core.values.reason import NOT_RUN
from recollect.errors import FormatError

COVERED = tuple(
    MessageId(blake2b(str(number).encode(), digest_size=16).hexdigest()) for number in range(5_000)
)


def cut(*covers: MessageId) -> Cut:
    return Cut(
        anchor=EntryKey("k" * 32),
        summary="s",
        stage="compact",
        reason=NOT_RUN,
        turn=1,
        covers=covers,
    )


def state_of(standing: list[tuple[MessageId, ...]], resting: list[tuple[MessageId, ...]]) -> Any:
    return SessionState(
        turn=1,
        edits=tuple(cut(*covers) for covers in standing),
        dormant=tuple((cut(*covers), 1) for covers in resting),
    )


# Few, so that lists share what they begin with; odd ones, which cannot be joined.
NAMES = st.sampled_from([*COVERED[:3], "a", "\ud800" * 32, "é" * 32, "x" * 64, ""]).map(MessageId)
COVERS = st.lists(st.lists(NAMES, max_size=6).map(tuple), max_size=4)


@given(COVERS, COVERS)
def test_whom_cuts_cover_comes_back(
    standing: list[tuple[MessageId, ...]], resting: list[tuple[MessageId, ...]]
) -> None:
    state = state_of(standing, resting)
    assert read_state(write_state(state)) == state
    assert join_state(split_state(state), (), ()) == state


@pytest.mark.parametrize("covers", [1, -1, 0, 3, "abc", None, 1.5, [1], {"a": 1}, "é" * 31])
def test_what_covers_nobody_knows_whom_is_refused(covers: Any) -> None:
    held = json.loads(write_state(state_of([COVERED[:2], ()], [])))
    held["edits"][1]["covers"] = covers
    if covers == 1:  # as many as it shares with the widest
        assert read_state(json.dumps(held).encode()).edits[1] == cut(COVERED[0])
        held["edits"] = held["edits"][1:]
    with pytest.raises(FormatError):
        read_state(json.dumps(held).encode())


def test_cut_of_before_it_said_whom_it_covers_is_read() -> None:
    held = json.loads(write_state(state_of([()], [])))
    assert "covers" not in held["edits"][0]
    assert read_state(json.dumps(held).encode()).edits == (cut(),)
    listed = {**held["edits"][0], "covers": list(COVERED[:2])}
    assert read_state(json.dumps({**held, "edits": [listed]}).encode()).edits == (
        cut(*COVERED[:2]),
    )
