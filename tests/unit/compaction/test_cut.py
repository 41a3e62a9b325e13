"""Where a compaction cuts, and what it says where it cannot."""

from typing import Any

import pytest
from tests.unit.compaction.histories import (
    call,
    covering,
    cut_at,
    entries_of,
    key,
    result,
    rules_of,
    said,
    turn,
)

from recollect.core.compaction.cut import cut
from recollect.core.values.compaction import CutPlan, NoCut
from recollect.core.values.edit import LeaveOut
from recollect.core.values.history import Entry
from recollect.core.values.reason import NOT_RUN


def keys(entries: tuple[Entry, ...]) -> list[int]:
    return [int(entry.key[1:]) for entry in entries]


def plan(messages: list[Any], edits: Any = (), *, keep: int, **more: Any) -> CutPlan:
    done = cut(entries_of(messages), edits, rules_of(), keep_tokens=keep, **more)
    assert isinstance(done, CutPlan), done
    return done


def no_cut(messages: list[Any], edits: Any = (), *, keep: int, **more: Any) -> NoCut:
    done = cut(entries_of(messages), edits, rules_of(), keep_tokens=keep, **more)
    assert isinstance(done, NoCut), done
    return done


class TestPlace:
    def test_a_cut_lies_between_turns_and_never_between_a_call_and_its_results(self) -> None:
        done = plan(turn(0) + turn(1) + turn(2), keep=520)
        assert done.anchor == key(8)
        assert keys(done.history) == list(range(8))
        assert not done.splits_a_turn
        assert 520 <= done.kept_tokens <= 600
        assert "between turns" in str(done.reason)
        messages = [*turn(0, 400), said("user", 10), call(5, 6), result(5, 50), result(6, 300)]
        done = plan(messages, keep=540)
        assert done.anchor == key(4), "the results reach past what is kept; the turn fits the slack"
        tight = plan(messages, keep=100)
        assert tight.anchor == key(5), "only the exchange stays"
        assert keys(tight.turn_prefix) == [4]

    def test_a_turn_that_is_too_long_is_split_and_its_beginning_named(self) -> None:
        messages = [*turn(0), said("user", 50)]
        for n in range(1, 9):
            messages += [call(n), result(n, 200)]
        done = plan(messages, keep=500)
        assert done.splits_a_turn
        assert keys(done.history) == [0, 1, 2, 3]
        assert keys(done.turn_prefix)[0] == 4, "the prefix begins with the user's message"
        assert done.kept[0].calls, "the kept part begins with a call"
        assert keys(done.summarized) + keys(done.kept) == list(range(len(messages)))

    def test_responses_never_between_reasoning_and_its_item(self) -> None:
        messages: list[Any] = [
            {"role": "user", "content": "word " * 400},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x" * 900},
            {"type": "message", "role": "assistant", "id": "m_1", "content": "word " * 300},
            {"role": "user", "content": "word " * 20},
        ]
        held = entries_of(messages, "openai-responses")
        done = cut(held, (), rules_of("openai-responses"), keep_tokens=310)
        assert isinstance(done, CutPlan)
        assert done.anchor in (key(1), key(3)), "reasoning stays with its message"


class TestWhatIsCovered:
    def test_messages_left_out_of_the_view_are_summarized_too_and_weigh_nothing(self) -> None:
        out = tuple(
            LeaveOut(anchor=key(at), part=None, stage="trim", reason=NOT_RUN, turn=1)
            for at in (8, 9, 10, 11)
        )
        messages = turn(0) + turn(1) + turn(2) + turn(3)
        done = plan(messages, out, keep=1_100)
        assert done.anchor == key(4), "the third turn takes none of what may be kept"
        later = plan(messages, out, keep=520)
        assert keys(later.summarized) == list(range(12))

    def test_a_turn_whose_beginning_is_summarized_already_goes_on_as_prefix(self) -> None:
        messages = [said("user", 50)]
        for n in range(12):
            messages += [call(n), result(n, 100)]
        first = plan(messages[:13], keep=250)
        anchor = keys(first.kept)[0]
        covers = covering(entries_of(messages), anchor)
        again = plan(messages, (cut_at(anchor, covers=covers),), keep=250)
        assert again.history == ()
        assert keys(again.turn_prefix)[0] == keys(first.kept)[0]

    def test_system_messages_are_neither_summarized_nor_an_anchor(self) -> None:
        messages = [said("system", 50), *turn(0), said("system", 50), *turn(1)]
        done = plan(messages, keep=520)
        assert done.anchor == key(6)
        assert keys(done.summarized) == [1, 2, 3, 4]


class TestNoCut:
    @pytest.mark.parametrize("keep", [0, 100, 1_000])
    def test_one_exchange_alone_is_too_large(self, keep: int) -> None:
        messages = [said("user", 20), call(1), result(1, 9_000)]
        reason = no_cut(messages, keep=keep).reason
        assert "would free 38 tokens, less than a summary takes" in str(reason)
