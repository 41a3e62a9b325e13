"""Everything that was said is read once, in windows, whatever its size."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.facts.fact_segments import segment, talk

from recollect.core.facts.reading import (
    TOOL_HEAD_CHARS,
    TOOL_TAIL_CHARS,
    readable,
    why_unread,
    windows,
)
from recollect.core.rules.text import THINKING_CLOSING, THINKING_OPENING
from recollect.core.values.recall import BLOCK_CLOSING, BLOCK_OPENING
from recollect.core.values.segment import Segment

SENTENCES = st.lists(
    st.sampled_from(["The port is 9000.", "We use Redis here.", "支付网关的端口是 7020。", "ok"]),
    min_size=1,
    max_size=60,
).map(" ".join)
ROLES = st.sampled_from(["user", "assistant", "tool"])


@given(
    said=st.lists(st.tuples(ROLES, SENTENCES), max_size=12),
    tokens=st.integers(1, 400),
    overlap=st.integers(0, 100),
)
def test_every_segment_is_new_exactly_once_and_in_order(
    said: list[tuple[str, str]], tokens: int, overlap: int
) -> None:
    segments = talk(*said)  # type: ignore[arg-type]
    pieces = [
        piece
        for one in windows(segments, tokens=tokens, overlap_tokens=overlap)
        for piece in one.new
    ]
    order = list(dict.fromkeys(piece.segment.id for piece in pieces))
    assert order == [one.id for one in segments]
    for one in segments:
        spans = [(piece.start, piece.end) for piece in pieces if piece.segment.id == one.id]
        read = "".join(readable(one)[start:end] for start, end in spans)
        assert "".join(read.split()) == "".join(readable(one).split())
        assert spans == sorted(spans)


@given(said=st.lists(st.tuples(ROLES, SENTENCES), max_size=12), tokens=st.integers(250, 600))
def test_no_stretch_is_larger_than_it_may_be(said: list[tuple[str, str]], tokens: int) -> None:
    for one in windows(talk(*said), tokens=tokens, overlap_tokens=50):  # type: ignore[arg-type]
        assert sum(piece.tokens for piece in one.new) <= max(tokens, 400)
        assert sum(piece.tokens for piece in one.before) <= 60


def test_a_message_far_beyond_eight_thousand_characters_is_read_to_its_end() -> None:
    text = "\n".join(f"Service {at} listens on port {20_000 + at}." for at in range(600))
    cut = windows([segment("user", text)], tokens=800, overlap_tokens=100)
    assert len(text) > 20_000
    assert len(cut) > 5
    assert "20599" in cut[-1].new[-1].shown
    assert cut[1].before
    assert cut[1].before[-1].shown.split(".")[-2] in cut[0].new[-1].shown


def test_a_tools_output_is_shown_by_head_and_tail() -> None:
    text = "HEAD " + "x" * 5_000 + " TAIL"
    (one,) = windows([segment("tool", text)], tokens=2_000, overlap_tokens=0)
    shown = one.new[0].shown
    assert shown.startswith("HEAD")
    assert shown.endswith("TAIL")
    assert len(shown) < TOOL_HEAD_CHARS + TOOL_TAIL_CHARS + 20


def test_what_was_read_before_stands_before_and_is_not_new() -> None:
    before = talk(("assistant", "Which port does the gateway use?"))
    new = [segment("user", "It uses 7020, same as ever.", 9)]
    (one,) = windows(new, tokens=500, overlap_tokens=100, before=before)
    assert [piece.segment.id for piece in one.before] == [before[0].id]
    assert [piece.segment for piece in one.new] == new


@pytest.mark.parametrize(
    "passed_over",
    [
        segment("user", "ok", noise="short"),
        segment("system", "You are a helper."),
        segment("user", "They decided on Redis.", trust="medium"),
        segment("user", "Redis is in use.", source="file"),
        segment("user", "Redis is in use.", source="note"),
    ],
)
def test_some_segments_are_not_read_at_all(passed_over: Segment) -> None:
    assert why_unread(passed_over)
    assert windows([passed_over], tokens=500, overlap_tokens=0) == ()


@pytest.mark.parametrize(
    ("role", "text"),
    [
        ("user", f"Hi there.\n{BLOCK_OPENING}\nThe port is SECRETIVE.\n{BLOCK_CLOSING}\nBye now."),
        ("user", 'Hi there.\n<recalled-context source="x">\nSECRETIVE stays open'),
        ("tool", f"Hi there\n{BLOCK_OPENING}SECRETIVE{BLOCK_CLOSING} Bye now."),
        ("assistant", f"{THINKING_OPENING}SECRETIVE thought{THINKING_CLOSING}\nHi there."),
        ("user", "Hi there.\n```\nport = SECRETIVE\n```\nBye now."),
        ("user", "Hi there.\n> All must use SECRETIVE.\nBye now."),
        (
            "user",
            "They wrote “" + "You must always use SECRETIVE for everything. " * 2 + "” Hi there.",
        ),
    ],
)
def test_what_may_not_be_read_is_white_space_and_moves_nothing(role: str, text: str) -> None:
    read = readable(segment(role, text))  # type: ignore[arg-type]
    assert "SECRETIVE" not in read
    assert len(read) == len(text)
    assert read.find("Hi there") == text.find("Hi there")


def test_calls_of_tools_are_not_what_the_model_said() -> None:
    said = 'I set the port to 9000.\nWrite({"text": "the port is 1234"})'
    read = readable(segment("assistant", said, tool="Write"))
    assert read.rstrip() == "I set the port to 9000."


def test_a_message_of_many_quoted_lines_is_read_in_time() -> None:
    text = "> a\n" * 90_000 + "The port is 9000, by the way."
    started = time.thread_time()
    read = readable(segment("user", text))
    assert time.thread_time() - started < 1.0
    assert len(read) == len(text)
    assert ">" not in read
