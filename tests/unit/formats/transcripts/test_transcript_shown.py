"""`ShownItems`: a history that shares its past is still an ordinary sequence."""

from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.core.values.transcript import ShownItems


@settings(deadline=None)  # the machine may be busy
@given(st.lists(st.integers(0, 12), max_size=40))
def test_it_is_the_sequence_it_was_grown_from(indexes: list[int]) -> None:
    shown = ShownItems()
    for index in indexes:
        shown = shown.then(index)
    assert list(shown) == indexes
    assert len(shown) == len(indexes)
    assert shown == tuple(indexes)
    assert hash(shown) == hash(tuple(indexes))
    assert shown.last == (indexes[-1] if indexes else None)
    assert all((index in shown) == (index in indexes) for index in range(13))
    assert shown[1:3] == tuple(indexes[1:3])
    assert [shown[at] for at in range(len(indexes))] == indexes


def test_two_ways_to_the_same_history_are_equal() -> None:
    grown = ShownItems().then(3).then(4).then(1)
    again = ShownItems().then(3).then(4).then(1)
    assert grown == again
    assert {grown: "x"}[again] == "x"
