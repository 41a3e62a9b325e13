"""Cut upon cut, no message vanishes, every view stays valid, and every cut can be undone.

Generated conversations of every wire format grow over ten rounds; each round cuts what stands
then, with edits of prune, trim and recall among it (tests/conversations). The validator is
independent of the code it checks (recollect.testing.provider_rules).
"""

import json
import os
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conversations.strategies import bodies, body_from, valid_bodies
from tests.sizes import at_size

from recollect.core.compaction.chunks import chunk
from recollect.core.compaction.cut import cut, replace_past, undo
from recollect.core.formats.codec import CODECS
from recollect.core.formats.request import split_request
from recollect.core.rules.calls import group
from recollect.core.rules.identity import ROOT, chain
from recollect.core.rules.tokens import Weigher
from recollect.core.turn.align import LastRequest, enter, read
from recollect.core.turn.apply import apply
from recollect.core.values.compaction import CutPlan, NoCut
from recollect.core.values.edit import Cut, Edit, Insert, LeaveOut, Shorten
from recollect.core.values.history import Entry, View
from recollect.core.values.message import EntryKey, MessageId, ToolResult
from recollect.core.values.model import FormatName
from recollect.core.values.reason import NOT_RUN
from recollect.testing.provider_rules import violations

FORMATS: tuple[FormatName, ...] = ("anthropic", "openai-chat", "openai-responses", "pi")
EXAMPLES = 2_000 if os.environ.get("RECOLLECT_SOAK") else at_size(ci=25, full=60)
ROUNDS = 10
WEIGHER = Weigher()


class Story:
    """A conversation of one format, its edits, and what summaries have covered so far."""

    def __init__(self, format_name: FormatName, body: dict[str, Any]) -> None:
        self.format: FormatName = format_name
        self.codec = CODECS[format_name]
        self.body = body
        self.request = split_request(json.dumps(body).encode(), format_name)
        done = read(self.request.messages, self.codec, b"k" * 32, WEIGHER, LastRequest())
        key, entries = ROOT, list[Entry]()
        for reading in done.new_readings:
            key = chain(key, reading.id)
            entries.append(enter(reading, key))
        self.entries = tuple(entries)
        self.edits: tuple[Edit, ...] = ()
        self.covers: tuple[MessageId, ...] = ()

    def view(self, size: int, edits: tuple[Edit, ...] | None = None) -> View:
        held = self.edits if edits is None else edits
        known = self.entries[:size]
        return apply(known, held, self.codec, WEIGHER.message).view

    def refused(self, view: View) -> list[Any]:
        field = "input" if self.format == "openai-responses" else "messages"
        shown = {**self.body, field: [json.loads(row.raw) for row in view.rows]}
        strict = self.format == "anthropic"
        return violations(self.format, shown, ids_unique_across_messages=strict)

    def edit(self, size: int, seed: int) -> None:
        """Leave out, shorten and insert as prune, trim and recall would, here and there."""
        known = self.entries[:size]
        made: list[Edit] = []
        for at, unit in enumerate(group(known[:-3], self.codec.rules)):
            if (seed >> at % 30) % 5 == 1 and known[unit.first].role != "system":
                made += [
                    LeaveOut(anchor=key, part=part, stage="trim", reason=NOT_RUN, turn=1)
                    for key, part in unit.members
                ]
        for at, entry in enumerate(known):
            for part_at, part in enumerate(entry.parts):
                if isinstance(part, ToolResult) and (seed >> at % 25) % 4 == 2:
                    made.append(_shortened(entry.key, part_at))
            if entry.role == "user" and (seed >> at % 20) % 6 == 3:
                made.append(_block(entry.key, f"recalled {at}"))
        self.edits = (*self.edits, *(one for one in made if one not in self.edits))


def _shortened(key: EntryKey, part: int) -> Shorten:
    return Shorten(anchor=key, part=part, text="[short]", stage="prune", reason=NOT_RUN, turn=1)


def _block(key: EntryKey | None, text: str) -> Insert:
    return Insert(
        anchor=key,
        placement="before" if key else "head",
        text=text,
        stage="inject",
        reason=NOT_RUN,
        turn=1,
    )


def shown_keys(view: View) -> set[EntryKey]:
    return {
        key for row in view.rows for key in ([row.key] if isinstance(row, Entry) else row.sources)
    }


def raw_of(view: View) -> list[bytes]:
    return [row.raw for row in view.rows]


def _check_range(story: Story, plan: CutPlan, size: int, covered: Counter[EntryKey]) -> int:
    """The ranges so far hold every message before the anchor once, the rest is kept."""
    known = story.entries[:size]
    at = [entry.key for entry in known].index(plan.anchor)
    covered.update(entry.key for entry in plan.summarized)
    expected = Counter(entry.key for entry in known[:at] if entry.role != "system")
    assert covered == expected, "every message before the cut is in exactly one summarized range"
    assert plan.kept == known[at:]
    assert plan.kept
    assert known[-1] is plan.kept[-1]
    # A result that comes in only after its call was summarized is summarized with the next cut.
    calls = {call_id for entry in plan.summarized for call_id in entry.calls}
    later = {call_id for entry in plan.kept for call_id in entry.calls}
    results = {call_id for entry in plan.kept for call_id in entry.results}
    assert not (results & calls) - later, "no kept result lost its call"
    return at


def _one_cut(
    story: Story, size: int, keep_tokens: int, number: int, covered: Counter[EntryKey]
) -> bool:
    known = story.entries[:size]
    before = story.view(size)
    plan = cut(known, story.edits, story.codec.rules, keep_tokens=keep_tokens, least_freed_tokens=0)
    if isinstance(plan, NoCut):
        assert str(plan.reason)
        return False
    at = _check_range(story, plan, size, covered)
    new = Cut(
        anchor=plan.anchor,
        summary=f"summary {number}",
        stage="compact",
        reason=NOT_RUN,
        turn=number,
        number=number,
        covers=(*story.covers, *(entry.id for entry in plan.summarized)),
    )
    story.covers = new.covers
    newest_user = [entry.key for entry in known if entry.role == "user"][-1:]
    done = replace_past(story.edits, new, known, keep_blocks=frozenset(newest_user))
    after = story.view(size, done)
    kept = {entry.key for entry in known[at:]}
    was_shown = shown_keys(before)
    now_shown = shown_keys(after)
    assert was_shown & kept <= now_shown, "what is kept and was shown is shown"
    systems = {entry.key for entry in known if entry.role == "system"}
    assert now_shown <= kept | systems
    assert any(f"summary {number}".encode() in row.raw for row in after.rows)
    if not story.refused(before):
        assert story.refused(after) == []
    back = undo(done)
    assert back.undone == done[-1]
    assert raw_of(story.view(size, back.edits)) == raw_of(before), "undone, byte for byte"
    assert sum(isinstance(edit, Cut) for edit in done) <= 2
    story.edits = done
    return True


def _through_rounds(story: Story, keeps: list[int], seed: int) -> int:
    covered: Counter[EntryKey] = Counter()
    made = 0
    for turn in range(1, ROUNDS + 1):
        size = max(1, len(story.entries) * turn // ROUNDS)
        story.edit(size, seed >> turn)
        made += _one_cut(story, size, keeps[turn - 1], turn, covered)
    return made


KEEPS = st.lists(st.sampled_from([0, 1, 20, 60, 200, 600, 2_000]), min_size=ROUNDS, max_size=ROUNDS)
SEEDS = st.one_of(st.just(0), st.integers(0, 2**40))


@pytest.mark.parametrize("format_name", FORMATS)
def test_no_message_vanishes_over_ten_cuts(format_name: FormatName) -> None:
    """Kept messages vanished at the second compaction."""
    made = []

    @settings(max_examples=EXAMPLES)
    @given(valid_bodies(format_name, max_turns=14), KEEPS, SEEDS)
    def check(body: dict[str, Any], keeps: list[int], seed: int) -> None:
        made.append(_through_rounds(Story(format_name, body), keeps, seed))

    check()
    assert max(made) >= 4, "the conversations were long enough to be cut again and again"


@pytest.mark.parametrize("format_name", FORMATS)
def test_messy_conversations_are_cut_as_safely(format_name: FormatName) -> None:
    @settings(max_examples=EXAMPLES * 2)
    @given(bodies(format_name), KEEPS, SEEDS)
    def check(body: dict[str, Any], keeps: list[int], seed: int) -> None:
        _through_rounds(Story(format_name, body), keeps, seed)

    check()


@pytest.mark.parametrize("format_name", FORMATS)
def test_whatever_can_be_reduced_is(format_name: FormatName) -> None:
    """Asked to keep nothing, a cut leaves the newest exchange alone, or says that it is all."""

    @settings(max_examples=EXAMPLES)
    @given(valid_bodies(format_name, max_turns=6))
    def check(body: dict[str, Any]) -> None:
        story = Story(format_name, body)
        plan = cut(story.entries, (), story.codec.rules, keep_tokens=0, least_freed_tokens=0)
        spoken = [entry for entry in story.entries if entry.role != "system"]
        units = [u for u in group(spoken, story.codec.rules) if u.first > 0]
        if isinstance(plan, NoCut):
            ends = [max(u.entries) for u in group(spoken, story.codec.rules)]
            assert not units or max(ends[: len(ends) - len(units)]) >= units[-1].first
        else:
            assert plan.summarized_tokens > 0
            inner = group(plan.kept, story.codec.rules)
            spans = [u for u in inner if u.first > 0 and plan.kept[u.first].role != "system"]
            # What is kept hangs together: no group in it begins where another has ended.
            for unit in spans:
                first = plan.kept[unit.first]
                joined = any(min(o.entries) < unit.first <= max(o.entries) for o in inner)
                assert joined or first.results or first.message.summary

    check()


@pytest.mark.parametrize("format_name", FORMATS)
def test_chunks_partition_what_they_are_given(format_name: FormatName) -> None:
    @settings(max_examples=EXAMPLES)
    @given(
        st.integers(0, 2**30),
        st.lists(st.integers(0, 2**30), min_size=1, max_size=12),
        st.sampled_from([200, 1_000, 4_096, 32_768, 200_000]),
        st.sampled_from([0, 100, 1_000]),
        st.integers(0, 4),
    )
    def check(header: int, codes: list[int], window: int, overhead: int, halvings: int) -> None:
        story = Story(format_name, body_from(format_name, header, codes))
        done = chunk(
            story.entries,
            story.codec.rules,
            window_tokens=window,
            overhead_tokens=overhead,
            halvings=halvings,
        )
        read_ = [entry.key for one in done.chunks for entry in one]
        places = Counter([*read_, *(entry.key for entry in done.oversized)])
        assert places == Counter(entry.key for entry in story.entries)
        assert all(done.chunks)
        home = {e.key: n for n, one in enumerate((done.oversized, *done.chunks)) for e in one}
        for unit in group(story.entries, story.codec.rules):
            assert len({home[key] for key, _ in unit.members}) == 1, "groups are read whole"
        for one in done.chunks:
            groups = group(one, story.codec.rules)
            weight = sum(entry.tokens for entry in one)
            assert weight <= done.budget_tokens or _hangs_together(groups)

    check()


def _hangs_together(groups: list[Any]) -> bool:
    """One unit: every group shares a message with another."""
    joined = set(groups[0].entries)
    for _ in groups:
        for one in groups:
            if joined & set(one.entries):
                joined |= set(one.entries)
    return all(joined & set(one.entries) for one in groups)
