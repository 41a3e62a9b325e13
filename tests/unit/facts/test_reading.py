"""Everything that was said is read once, in windows, whatever its size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.facts.fact_segments import segment, talk

from recollect.core.facts.reading import (
    TOOL_HEAD_CHARS,
    TOOL_TAIL_CHARS,
    extraction_prompt,
    is_read,
    read_page,
    readable,
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


@given(said=st.lists(st.tuples(ROLES, SENTENCES), min_size=1), tokens=st.integers(1, 400))
def test_every_segment_is_read_once_page_by_page(said: list[tuple[str, str]], tokens: int) -> None:
    segments = talk(*said)  # type: ignore[arg-type]
    left = segments
    while left:
        page = read_page(left, tokens=tokens)
        assert page.read >= 1
        assert page.read == 1 or not page.cut_off
        for piece in page.new_pieces:
            spans = [(line.start, line.end) for line in page.lines if line.piece == piece]
            shown = "".join(piece.text[start:end] for start, end in spans)
            if not page.cut_off:
                assert "".join(shown.split()) == "".join(readable(piece.segment).split())
        numbers = [line.number for line in page.lines if line.number]
        assert numbers == list(range(1, len(numbers) + 1))
        left = left[page.read :]


def test_a_tools_output_is_shown_by_head_and_tail() -> None:
    text = "HEAD " + "x" * 5_000 + " TAIL"
    page = read_page([segment("tool", text)], tokens=2_000)
    shown = extraction_prompt(page, max_output_tokens=9).text.splitlines()[1]
    assert shown.startswith("(tool output: HEAD")
    assert shown.endswith("TAIL)")
    assert len(shown) < TOOL_HEAD_CHARS + TOOL_TAIL_CHARS + 40


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
    assert not is_read(passed_over)
    page = read_page([passed_over], tokens=500)
    assert (page.new_pieces, page.read) == ((), 1)


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
