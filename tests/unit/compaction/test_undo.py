"""The edits after a compaction, and after it was undone."""

from __future__ import annotations

from tests.unit.compaction.histories import (
    block_at,
    cut_at,
    entries_of,
    key,
    said,
    turn,
)

from recollect.core.compaction.cut import replace_past, undo
from recollect.core.values.edit import Cut, Edit, Shorten
from recollect.core.values.reason import NOT_RUN

HISTORY = entries_of([said("system", 5), *turn(0), *turn(1), *turn(2)])


def short(at: int) -> Shorten:
    return Shorten(anchor=key(at), part=0, text="[short]", stage="prune", reason=NOT_RUN, turn=1)


class TestReplacePast:
    def test_blocks_end_but_for_those_of_the_current_turn(self) -> None:
        edits: tuple[Edit, ...] = (block_at(1), short(3), block_at(None), block_at(9))
        done = replace_past(edits, cut_at(5), HISTORY, keep_blocks=frozenset({key(9)}))
        made = done[-1]  # the newest cut is the last: it is the one that counts
        assert isinstance(made, Cut)
        assert made.ended == (block_at(1), block_at(None))
        assert set(done) == {short(3), block_at(9), made}

    def test_two_cuts_stay_whatever_comes(self) -> None:
        edits: tuple[Edit, ...] = ()
        for number, at in enumerate(range(2, 12), 1):
            edits = replace_past((*edits, block_at(at)), cut_at(at, number), HISTORY)
        cuts = [edit for edit in edits if isinstance(edit, Cut)]
        assert [one.number for one in cuts] == [9, 10]
        assert len(cuts[0].ended) == 0
        assert len(cuts[1].ended) == 1
        assert len(edits) == 2


class TestUndo:
    def test_nothing_to_undo_says_so(self) -> None:
        done = undo((short(3),))
        assert done.undone is None
        assert done.edits == (short(3),)
        assert "no compaction" in str(done.reason)

    def test_the_cut_goes_and_its_blocks_come_back(self) -> None:
        before: tuple[Edit, ...] = (block_at(1), short(3), block_at(9))
        made = replace_past(before, cut_at(5), HISTORY)
        done = undo(made)
        assert done.undone == made[-1]
        assert set(done.edits) == set(before)
        assert "whole history" in str(done.reason)

    def test_the_older_cut_stands_again(self) -> None:
        made = replace_past((cut_at(5, 1), block_at(6)), cut_at(9, 2), HISTORY)
        done = undo(made)
        assert set(done.edits) == {cut_at(5, 1), block_at(6)}
        assert "previous summary is active again" in str(done.reason)

    def test_a_cut_stays_if_the_summary_before_it_is_not_kept(self) -> None:
        done = undo((cut_at(9, 2, before=1),))
        assert done.undone is None
        assert "only the last two summaries are kept; the messages are still in" in str(done.reason)
