"""Topics and entities in an export: rules for English and Chinese."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.core.transfer.topics import entities_of, topics_of


@pytest.mark.parametrize(
    ("text", "topics"),
    [
        ("The webhook endpoint returns 500", ["api"]),
        ("我们决定使用 PostgreSQL 数据库", ["database", "decision"]),
        ("部署到生产环境之前先运行测试", ["deployment", "testing"]),
        ("Deploy it with Docker and roll back on Kubernetes", ["deployment"]),
        ("妈妈住在医院", ["family", "health"]),
        ("My sister booked a flight and a hotel", ["travel", "family"]),
        ("TESTS failed", ["debugging", "testing"]),
        ("thanks, that is all", []),
        ("", []),
        ("a contest is not a test-drive of testimony", []),
    ],
)
def test_topics_are_those_whose_words_are_in_the_text(text: str, topics: list[str]) -> None:
    assert topics_of(text) == topics


def test_a_long_message_needs_two_words_of_a_topic() -> None:
    filler = "lorem ipsum dolor sit amet " * 30
    assert topics_of(f"{filler} a flight") == []
    assert topics_of(f"{filler} a flight, a hotel") == ["travel"]


@pytest.mark.parametrize(
    ("text", "entities"),
    [
        ("Fix src/payment/webhook.ts first", ["src/payment/webhook.ts"]),
        ("`MAX_RETRIES` is 5", ["MAX_RETRIES"]),
        ("部署到《星河》集群，使用「蓝色」方案", ["星河", "蓝色"]),
        ("mail anna@example.com", ["anna@example.com"]),
        ("we asked Otto Kranz on Monday", ["Otto Kranz"]),
        ("the key is [REDACTED:token:3f2a] now", []),
        ("plain words only", []),
    ],
)
def test_entities_are_what_the_text_names(text: str, entities: list[str]) -> None:
    found = entities_of(text)
    assert [one for one in found if one not in ("example.com",)] == entities


def test_the_most_often_named_is_first() -> None:
    assert entities_of("a_b then c_dd then c_dd again")[0] == "c_dd"


@given(st.text(max_size=300))
def test_any_text_is_read(text: str) -> None:
    assert len(topics_of(text)) <= 8
    for entity in entities_of(text):
        assert 1 < len(entity) <= 120


def test_a_huge_text_takes_no_longer_than_its_head() -> None:
    begun = time.process_time()
    for filler in ("A", "a.", "@a", "A b ", "`", "「", "数据库", "/a"):
        topics_of(filler * 1_000_000)
        entities_of(filler * 1_000_000)
    assert time.process_time() - begun < 3
