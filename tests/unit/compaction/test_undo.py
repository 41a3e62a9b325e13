"""An undo brings back all that the compaction took away, or says why it cannot."""

from tests.unit.compaction.histories import cut_at, entries_of, key, said, turn

from recollect.core.compaction.cut import replace_past, undo
from recollect.core.values.edit import Cut, Edit, Insert, Shorten
from recollect.core.values.reason import NOT_RUN

HISTORY = entries_of([said("system", 5), *turn(0), *turn(1), *turn(2)])
SHORT = Shorten(anchor=key(3), part=0, text="[short]", stage="prune", reason=NOT_RUN, turn=1)


def block_at(at: int | None) -> Insert:
    return Insert(
        anchor=None if at is None else key(at),
        placement="head" if at is None else "before",
        text="recalled",
        stage="inject",
        reason=NOT_RUN,
        turn=1,
    )


def test_a_cut_ends_the_blocks_before_it_and_an_undo_brings_them_back() -> None:
    before: tuple[Edit, ...] = (block_at(1), SHORT, block_at(None), block_at(9))
    made = replace_past(before, cut_at(5), HISTORY, keep_blocks=frozenset({key(9)}))
    newest = made[-1]  # the newest cut is the one that counts
    assert isinstance(newest, Cut)
    assert newest.ended == (block_at(1), block_at(None))
    assert set(made) == {SHORT, block_at(9), newest}
    done = undo(made)
    assert done.undone == newest
    assert set(done.edits) == set(before)
    assert "the whole history is sent again" in str(done.reason)


def test_the_last_two_cuts_are_kept_and_the_older_one_counts_again() -> None:
    edits: tuple[Edit, ...] = ()
    for number, at in enumerate(range(2, 12), 1):
        edits = replace_past((*edits, block_at(at)), cut_at(at, number), HISTORY)
    assert [edit.number for edit in edits if isinstance(edit, Cut)] == [9, 10]
    assert len(edits) == 2
    done = undo(edits)
    assert [edit.number for edit in done.edits if isinstance(edit, Cut)] == [9]
    assert block_at(11) in done.edits
    assert "the previous summary is active again" in str(done.reason)


def test_what_cannot_be_undone_stays_and_is_explained() -> None:
    for edits, why in (
        ((SHORT,), "no compaction to undo"),
        ((cut_at(9, 2, before=1),), "only the last two summaries are kept"),
    ):
        done = undo(edits)
        assert (done.undone, done.edits) == (None, edits)
        assert why in str(done.reason)
