"""Passages are spans of their text: nothing is lost, nothing is doubled, nothing is too long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.waiting import assert_linear

from recollect.core.search.tokenize import (
    TAIL_MIN_CHARS,
    TARGET_CHARS,
    WHOLE_MAX_CHARS,
    split_passages,
)


def texts(source: str) -> list[str]:
    return [passage.text for passage in split_passages(source)]


def test_a_long_message_is_cut_at_line_ends_and_a_long_line_at_sentence_ends() -> None:
    assert len(texts("word " * 117)) == 1  # 584 characters without the last space
    assert len(texts("word " * 118)) == 2
    lines = [f"Line {number} says something of use. And more." * 4 for number in range(9)]
    for passage in texts("\n".join(lines)):
        assert all(line in lines for line in passage.split("\n"))
    sentences = [f'Sentence {number} is "this long."' * 3 for number in range(40)]
    for passage in texts(" ".join(sentences)):
        assert passage.startswith("Sentence")
        assert passage.endswith('."')
    body = "x" * TARGET_CHARS
    joined = f"{body}\n{body}\n" + "y" * (TAIL_MIN_CHARS - 1)
    alone = f"{body}\n{body}\n" + "y" * TAIL_MIN_CHARS
    assert [len(text) for text in texts(joined)] == [TARGET_CHARS, TARGET_CHARS + TAIL_MIN_CHARS]
    assert [len(text) for text in texts(alone)] == [TARGET_CHARS, TARGET_CHARS, TAIL_MIN_CHARS]


@pytest.mark.parametrize("mark", ["。", "！", "？", "。」"])
def test_chinese_and_japanese_sentences_need_no_space(mark: str) -> None:
    # eleven of the quoted sentences without the last bracket would fill the target exactly
    sentence = "今日は天気がいいので散歩に行きました" * 2 + "それで" + mark
    for passage in texts(sentence * 30):
        assert passage.endswith(mark)
        assert len(passage) % len(sentence) == 0


lines = st.text(
    alphabet=st.sampled_from(list("abcdefgh  ..!?\n\t\"'。！」あ漢\u2028\u00a0\r")), max_size=400
)
long_texts = st.lists(st.one_of(lines, st.text(max_size=80)), min_size=2, max_size=12).map(
    lambda pieces: "".join(piece * 3 for piece in pieces)
)


@given(st.one_of(st.text(), long_texts))
def test_passages_cover_the_text_in_order_and_lose_only_white_space(source: str) -> None:
    position = 0
    for passage in split_passages(source):
        assert passage.text == source[passage.start : passage.end]
        assert position <= passage.start < passage.end
        assert not source[position : passage.start].strip()
        assert passage.text == passage.text.strip()
        assert len(passage.text) <= WHOLE_MAX_CHARS
        position = passage.end
    assert not source[position:].strip()


@given(long_texts)
def test_only_the_last_of_several_passages_exceeds_the_target(source: str) -> None:
    sizes = [len(text) for text in texts(source)]
    if len(sizes) > 1:
        assert max(sizes[:-1]) <= TARGET_CHARS


@pytest.mark.parametrize(
    "unit", ["x", ".", "x ", ". ", '."', "あ。", "！", "a\n", "\n x", "…\u2028"]
)
def test_time_grows_with_the_text_and_not_faster(unit: str) -> None:
    assert_linear(lambda chars: split_passages("x" + unit * (chars // len(unit)) + "x"), 400_000)
