"""What holds of recall whatever is said, asked and found: bounds, order, budgets."""

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sizes import at_size
from tests.unit.search.candidates import DAY, NOW, candidate
from tests.unit.turn.memories import Memory, entries, memory, user

from recollect.core.rules.tokens import Weigher, count_text, count_text_openclaw
from recollect.core.search.dates import days_meant, windows_asked
from recollect.core.search.identifiers import identifiers_in, words_of
from recollect.core.search.names import date_words_in, names_in, speaker_of
from recollect.core.search.question import read_question
from recollect.core.turn.fill import pack
from recollect.core.turn.inject import inject
from recollect.core.values.batch import Batch
from recollect.core.values.fact import Fact, FactId
from recollect.core.values.recall import Candidate

WORDS = ("crane", "quay", "green", "north", "boat", "hm")
TEXTS = st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join)
SIMILARITIES = st.none() | st.floats(-1, 1, allow_nan=False)
PIECES = st.sampled_from(
    [
        *("may ", "May", "march ", " 5th", " 31 ", "2023", "-", "/", ":", " of ", "in ", "this "),
        *("last ", "sunday", "ago", " a couple of ", "weeks ", "years ", "999 ", "年", "月", "日"),
        *("5", "昨天", "上周", "yesterday", "tomorrow", "Ann", "'s", "#", "--", "_", ".", "\\"),
        *("\n", "  ", "é", "٣", "\ud800"),
    ]
)
ANY_TEXT = st.text(max_size=80) | st.lists(PIECES, max_size=20).map("".join)
TIMES = st.floats(allow_nan=True, allow_infinity=True) | st.floats(0, 4e9)


@given(ANY_TEXT, TIMES)
@settings(max_examples=at_size(ci=60, full=400))
def test_any_text_at_any_time_is_read(text: str, moment: float) -> None:
    days = days_meant(text, moment)
    assert len(days) == len(set(days))
    for window in windows_asked(text, asked_at=moment):
        assert window.start < window.end
    question = read_question(text, asked_at=moment)
    assert len(question.words) == len(set(question.words))
    assert not any(mark in question.words for mark in question.marks)
    assert speaker_of(text) in text
    names_in(text)
    date_words_in(text)
    for key, written in identifiers_in(text).items():
        assert written in text
        assert key
        assert words_of(written)


@given(
    st.dates(min_value=date(1950, 1, 1), max_value=date(2150, 1, 1)),
    st.sampled_from(["%Y-%m-%d", "%d %B %Y", "%B %d, %Y", "%Y年%m月%d日"]),
    st.sampled_from(["%Y-%m-%d", "%d %B %Y", "%B %d, %Y", "%Y年%m月%d日"]),
)
def test_a_day_is_the_same_however_it_is_written(day: Any, said: str, asked: str) -> None:
    meant = days_meant(f"we met on {day.strftime(said)} there", NOW)
    windows = windows_asked(f"what was on {day.strftime(asked)}?", asked_at=NOW)
    assert {word for window in windows for word in window.words} & set(meant)


@st.composite
def passages(draw: st.DrawFn) -> list[Candidate]:
    vectors = draw(st.integers(0, 2))
    held = []
    for at in range(draw(st.integers(1, 12))):
        held.append(
            candidate(
                f"{draw(st.integers(0, 5))}",
                draw(TEXTS),
                ordinal=at,
                sequence=draw(st.integers(0, 60)),
                session=draw(st.sampled_from("st")),
                role=draw(st.sampled_from(["user", "assistant"])),
                said_at=NOW - DAY * draw(st.integers(-2, 400)),
                marks=draw(st.sampled_from([(), ("by=ann",), ("on=2025-05-07", "on=2025-05")])),
                similarities=tuple(draw(SIMILARITIES) for _ in range(vectors)),
            )
        )
    return held


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(0, 4), st.integers(0, 3)), max_size=30),
    st.integers(0, 400),
    st.integers(0, 60),
    st.integers(0, 12),
)
@settings(max_examples=at_size(ci=50, full=300))
def test_a_block_is_packed_within_its_budget(
    items: list[tuple[int, int, int]], budget: int, more: int, heading: int
) -> None:
    def packed(tokens: int) -> list[int]:
        return pack(
            range(len(items)),
            budget_tokens=tokens,
            cost=lambda at: items[at][0],
            sitting=lambda at: items[at][2],
            heading_cost=lambda at: heading,
        )

    def spent(chosen: list[int]) -> int:
        return sum(items[at][0] for at in chosen) + heading * len({items[at][2] for at in chosen})

    chosen = packed(budget)
    assert spent(chosen) <= budget
    assert chosen == sorted(chosen)
    assert spent(packed(budget + more)) >= spent(chosen)


COUNTERS: dict[str, Callable[[str], int]] = {
    "ours": count_text,
    "openclaw": count_text_openclaw,
    "characters": len,
    "words": lambda text: len(text.split()),
    "bytes": lambda text: len(text.encode()) // 2 + 1,
}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[asyncio.Runner, Memory]]:
    """A memory of short and long messages of two sessions and days, in two scripts."""
    folder = tmp_path_factory.mktemp("recall")
    with asyncio.Runner() as runner:
        opened = memory(folder)
        held = runner.run(opened.__aenter__())
        chance = random.Random(4)
        for session, at in (("s", NOW - 9 * DAY), ("s", NOW - DAY), ("t", NOW - DAY)):
            said = [
                " ".join(
                    chance.choices(
                        (*WORDS, "鹤站在码头", "</detail>"), k=chance.choice([3, 30, 400])
                    )
                )
                for _ in range(20)
            ]
            runner.run(held.remember(said, session=session, at=at))
        facts = tuple(
            Fact(
                id=FactId(f"{n}"),
                type="issue",
                content=f"crane {n} " * (n + 1),
                at=NOW,
                words=("crane",),
            )
            for n in range(20)
        )
        runner.run(held.store.write(Batch(at=NOW, facts=facts)))
        yield runner, held
        runner.run(opened.__aexit__(None, None, None))


@given(
    budget=st.integers(-10, 3_000),
    counter=st.sampled_from(sorted(COUNTERS)),
    question=st.sampled_from(["which crane at the quay?", "north boat", "鹤在哪里", "hm", "crane"]),
    scope=st.sampled_from(["session", "space"]),
    gated=st.booleans(),
)
@settings(max_examples=at_size(ci=25, full=80))
def test_what_is_recalled_fits_its_block(
    filled: tuple[asyncio.Runner, Memory],
    budget: int,
    counter: str,
    question: str,
    scope: str,
    gated: bool,
) -> None:
    runner, held = filled
    count = COUNTERS[counter]
    view = entries([user(question)], name="q")
    request = replace(
        held.asks(view, budget=budget, scope=scope, every_turn=not gated), count_tokens=count
    )
    recalled = runner.run(held.answer(request))
    made = inject(
        view,
        recalled,
        Weigher(count=count),
        placement="before-newest-user",
        budget_tokens=budget,
        turn=1,
    )
    if made.edit is None:
        assert made.tokens == 0
        return
    assert count(made.edit.text) == made.tokens <= budget
    stored = {one.segment.message_id: one.segment for one in runner.run(held.store.page())}
    for one in recalled.passages:
        assert one.message_id is not None
        assert one.text in stored[one.message_id].text
        assert scope == "space" or stored[one.message_id].session == "s"
    if counter in ("characters", "openclaw", "bytes") and not recalled.facts:
        assert made.fill == "everything", "what was packed is what is sent"
