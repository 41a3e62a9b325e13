"""A session's state as bytes: every field comes back, an older one is read, a newer is refused."""

import json
import random
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.core.formats.stored_records import (
    StateWriter,
    join_state,
    read_state,
    split_state,
    with_texts,
    without_quotes,
    write_state,
)
from recollect.core.values.edit import Carried, Cut, Edit, Insert, LeaveOut, QuotedLine, Shorten
from recollect.core.values.history import SessionState, TokenCalibration
from recollect.core.values.message import EntryKey, MessageId
from recollect.core.values.reason import Cause, Reason
from recollect.errors import FormatError

KEY = EntryKey("k" * 32)
HOW: dict[str, Any] = {
    "stage": "compact",
    "reason": Reason(Cause.CUT, number=2, cut="c"),
    "turn": 3,
}
BLOCK = Insert(
    anchor=KEY,
    placement="before",
    text="block \ud800 marker",
    quotes=(MessageId("a"), MessageId("b")),
    recalled=("one", "two"),
    **HOW,
)
CUT = Cut(anchor=KEY, summary="summary marker", number=2, ended=(BLOCK, BLOCK), **HOW)


def full_state() -> SessionState:
    """A state with something in every field that there is."""
    out = LeaveOut(anchor=KEY, part=None, **HOW)
    short = Shorten(anchor=KEY, part=1, text="t", hard=True, quotes=(MessageId("a"),), **HOW)
    calibration = TokenCalibration().learn(estimated_tokens=1_000, reported_tokens=1_100)
    grown = calibration.learn(estimated_tokens=2_000, reported_tokens=2_300)
    held: dict[str, Any] = {
        "turn": 7,
        "path": (KEY,),
        "ids": (MessageId("a"),),
        "aliases": {EntryKey("x"): KEY},
        "edits": (out, short, BLOCK, CUT),
        "dormant": ((CUT, 2), (short, 1)),
        "calibration": grown,
        "blocks": ("mark", "other"),
    }
    rest: dict[str, Any] = {}
    for field in fields(SessionState):  # also those that come later
        if field.name not in held:
            rest[field.name] = _something(getattr(SessionState(), field.name), str(field.type))
    return replace(SessionState(), **held, **rest)


def _something(default: Any, said: str) -> Any:
    if isinstance(default, bool):
        return not default
    if isinstance(default, str):
        return "said"
    if isinstance(default, int | float):
        return default + 5
    if default is None:
        return "said" if "str" in said else 3.5 if "float" in said else 4
    changed = {
        one.name: _something(getattr(default, one.name), str(one.type)) for one in fields(default)
    }
    return replace(default, **changed)


def test_every_field_comes_back() -> None:
    state = full_state()
    for field in fields(SessionState):
        assert getattr(state, field.name) != getattr(SessionState(), field.name), field.name
    assert read_state(write_state(state)) == state
    assert join_state(split_state(state), state.path, state.ids) == state


def test_state_of_before_a_field_existed_has_its_default() -> None:
    held = json.loads(write_state(full_state()))
    kept = ("version", "turn", "path", "ids", "aliases", "edits", "dormant", "calibration")
    older = {name: held[name] for name in kept}
    for edit in (*older["edits"], *(edit for edit, _ in older["dormant"])):
        edit.pop("number", None)
        edit.pop("ended", None)
    state = read_state(json.dumps(older).encode())
    bare = replace(CUT, number=0, ended=())
    assert state.edits[-1] == bare
    assert state.dormant[0] == (bare, 2)
    assert state.calibration == full_state().calibration
    missing = {field.name for field in fields(SessionState)} - set(kept)
    assert missing
    for name in missing:
        assert getattr(state, name) == getattr(SessionState(), name)


def test_what_a_newer_program_wrote_is_refused() -> None:
    held = json.loads(write_state(full_state()))
    newer_edit = {**held, "edits": [{**held["edits"][0], "later": 1}]}
    for newer in ({**held, "version": 2}, {**held, "later": 1}, newer_edit, {**held, "turn": "x"}):
        with pytest.raises(FormatError):
            read_state(json.dumps(newer).encode())


def test_cut_goes_with_its_summary_and_the_blocks_it_took_out() -> None:
    left = read_state(without_quotes(write_state(full_state()), frozenset()))
    assert [type(edit) for edit in left.edits] == [LeaveOut, Shorten]
    assert b"marker" not in write_state(left)


def test_a_cleared_result_goes_only_where_a_line_of_it_is_left() -> None:
    bare = next(edit for edit in full_state().edits if isinstance(edit, Shorten))
    bare = replace(bare, hard=True, quotes=())
    quoting = replace(bare, text="[cleared] One line of it: marker", quotes=(MessageId("m"),))
    for edit, left in ((bare, (bare,)), (quoting, ())):
        state = replace(full_state(), edits=(edit,), dormant=())
        forgotten = write_state(state)
        assert read_state(without_quotes(forgotten, frozenset({edit.anchor}))).edits == left


@given(st.binary(max_size=200))
def test_no_bytes_do_more_than_be_refused(raw: bytes) -> None:
    with pytest.raises(FormatError):
        read_state(raw)


def test_thousands_of_messages_left_out_take_a_few_bytes_each() -> None:
    """They are told by their places, in the order in which they left, among other edits."""
    drawn = random.Random(3)
    path = tuple(EntryKey(f"{at:032x}") for at in range(6_000))
    reasons = [Reason(Cause.LEAST_RELEVANT, score=at / 1_000) for at in range(700)]
    edits: list[Any] = [
        LeaveOut(anchor=key, part=None, stage="trim", reason=reasons[at % 700], turn=at // 9)
        for at, key in enumerate(drawn.sample(path, 5_000))
    ]
    block = next(edit for edit in full_state().edits if isinstance(edit, Insert))
    part = replace(edits[7], part=2)
    elsewhere = replace(edits[8], anchor=EntryKey("f" * 32))
    edits[1_000:1_000] = [block, part, elsewhere]
    ids = tuple(MessageId(key) for key in path)
    state = replace(SessionState(), turn=5, path=path, ids=ids, edits=tuple(edits))
    raw = split_state(state)
    assert len(raw) < 12 * 5_000
    assert join_state(raw, path, ids) == state
    assert read_state(write_state(state)) == state
    cleaned = join_state(without_quotes(raw, frozenset()), path, ids)
    assert cleaned.edits == tuple(edit for edit in edits if edit is not block)
    assert join_state(with_texts(raw, str.upper), path, ids).edits[:1_000] == tuple(edits[:1_000])
    torn = json.loads(write_state(state))
    torn["edits"][0]["reasons"] = []
    with pytest.raises(FormatError):
        read_state(json.dumps(torn).encode())


def test_what_did_not_change_is_not_written_again_and_comes_back_all_the_same() -> None:
    """A session that goes on for 60 turns: trims, a block that comes and goes, a branch, a cut."""
    drawn = random.Random(5)
    writer = StateWriter()
    path: tuple[EntryKey, ...] = ()
    edits: tuple[Any, ...] = ()
    block = next(edit for edit in full_state().edits if isinstance(edit, Insert))
    masked: list[Any] = []

    def mask(edit: Any) -> Any:
        masked.append(edit)
        return edit

    lengths = []
    for turn in range(60):
        if turn == 40:
            path = path[:900]
            edits = tuple(edit for edit in edits if edit.anchor in path)
        path += tuple(EntryKey(f"{turn:016x}{at:016x}") for at in range(30))
        edits = tuple(edit for edit in edits if edit is not block)
        reason = Reason(Cause.LEAST_RELEVANT, score=turn / 7)
        edits += tuple(
            LeaveOut(anchor=key, part=None, stage="trim", reason=reason, turn=turn)
            for key in drawn.sample(path[-30:], 20)
        )
        edits += (block,) if turn % 3 else ()
        ids = tuple(MessageId(key) for key in path)
        state = replace(SessionState(), turn=turn, path=path, ids=ids, edits=edits)
        masked.clear()
        raw = writer.split(state, mask)
        lengths.append(len(masked))
        assert join_state(raw, path, ids) == state
        assert json.loads(write_state(state))["edits"]
    assert max(lengths[20:40]) <= 2 * 256 + 21, "chunks before the last stay as they are"
    state = replace(state, edits=(*edits, CUT))
    assert join_state(writer.split(state, mask), path, state.ids) == state


def test_what_a_cut_carries_is_masked_once_and_written_with_every_turn() -> None:
    carried = Carried(
        identifiers=("alpha", "be\ud800ta"), lines=(QuotedLine(speaker="user", text="a line"),)
    )
    cut = replace(CUT, carried=carried)
    state = replace(full_state(), edits=(cut, BLOCK), dormant=((BLOCK, 2),))
    masked: list[Edit] = []

    def mask(edit: Edit) -> Edit:
        masked.append(edit)
        if not isinstance(edit, Cut) or edit.carried is None:
            return edit
        lines = tuple([replace(line, text="masked") for line in edit.carried.lines])
        return replace(edit, carried=replace(edit.carried, lines=lines))

    writer = StateWriter()
    first = writer.split(state, mask)
    assert first == writer.split(state, mask)
    assert masked.count(cut) == 1
    again = join_state(first, state.path, state.ids).edits[0]
    assert isinstance(again, Cut)
    assert again.carried is not None
    assert again.carried.identifiers == carried.identifiers
    assert [line.text for line in again.carried.lines] == ["masked"]
    other = replace(cut, summary="another")
    writer.split(replace(state, edits=(other,)), mask)
    assert masked[-1] == other
