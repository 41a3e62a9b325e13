"""The texts of a stored state can be changed without the rest of it, packed or not."""

from __future__ import annotations

import pytest

from recollect.core.formats.stored_records import join_state, split_state, with_texts
from recollect.core.values.edit import Carried, Cut, Insert, LeaveOut, ToolFailure
from recollect.core.values.history import SessionState
from recollect.core.values.message import EntryKey, MessageId
from recollect.core.values.reason import NOT_RUN
from recollect.errors import FormatError

IDS = tuple(MessageId(f"{number:032x}") for number in range(300))
PATH = tuple(EntryKey(f"k{number}") for number in range(300))


def state(said: str) -> SessionState:
    block = Insert(
        anchor=PATH[3], placement="before", text=said, stage="inject", reason=NOT_RUN, turn=2
    )
    carried = Carried(
        read_files=(said,), failures=(ToolFailure(tool="bash", said=said),), identifiers=("a", said)
    )
    cut = Cut(
        anchor=PATH[200],
        summary=f"{said} and the tide",
        stage="compact",
        reason=NOT_RUN,
        turn=2,
        covers=IDS[:200],
        ended=(block,),
        carried=carried,
    )
    left = LeaveOut(anchor=PATH[201], part=None, stage="trim", reason=NOT_RUN, turn=2)
    return SessionState(turn=2, path=PATH, ids=IDS, edits=(cut, block, left), dormant=((cut, 1),))


@pytest.mark.parametrize("times", [1, 500])
def test_every_text_changes_and_nothing_else(times: int) -> None:
    raw = split_state(state("secret " * times))
    assert raw.startswith(b"Z1") == (times > 1), "a long one is packed"
    changed = with_texts(raw, lambda text: text.replace("secret ", "mask "))
    assert join_state(changed, PATH, IDS) == state("mask " * times)
    assert with_texts(changed, lambda text: text.replace("secret ", "mask ")) is changed


def test_what_is_no_state_is_refused() -> None:
    for raw in (b"[]", b'{"version": 99}', b"Z1torn"):
        with pytest.raises(FormatError):
            with_texts(raw, str.upper)
