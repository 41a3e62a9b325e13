"""What messages are about and what they name."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.core.transfer.topics import (
    MOST_ENTITIES,
    MOST_ENTITY_CHARS,
    MOST_TOPICS,
    TOPICS,
    entities_of,
    topics_of,
)


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("The login endpoint returns 401 since the OAuth change", "auth"),
        ("pytest says three tests are failing", "testing"),
        ("Let us migrate the Postgres schema tonight", "database"),
        ("数据库迁移失败了，请看一下日志", "database"),
        ("把登录接口重构一下", "architecture"),
        ("My daughter starts school on Monday", "family"),
        ("我和妈妈下个月去旅行，机票已经订好了", "travel"),
        ("We decided to keep SQLite", "decision"),
        ("deploy to kubernetes with helm", "deployment"),
    ],
)
def test_topics_in_english_and_chinese(text: str, topic: str) -> None:
    assert topic in topics_of(text)


def test_the_topic_with_most_words_comes_first_and_chat_has_none() -> None:
    text = "the query is slow: the database index, the sql schema and a cache"
    assert topics_of(text)[0] == "database"
    assert topics_of("well, that was quite something yesterday") == ()
    assert topics_of("") == ()


def test_one_word_in_passing_does_not_tag_a_long_text() -> None:
    filler = "a sentence about nothing in particular, on and on it goes. " * 20
    assert topics_of(f"{filler} my doctor {filler}") == ()
    assert topics_of(f"{filler} my doctor and the hospital {filler}") == ("health",)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("see src/payment/webhook.ts:42 for it", "src/payment/webhook.ts:42"),
        ("open /etc/nginx/nginx.conf.", "/etc/nginx/nginx.conf"),
        (r"it is in C:\Users\bob\app.ini", r"C:\Users\bob\app.ini"),
        ("修改config.py文件", "config.py"),
        ("at https://example.org/a/b?x=1, I think", "https://example.org/a/b?x=1"),
        ("the host is db-1.internal:5432 now", "db-1.internal:5432"),
        ("ping 10.0.0.12", "10.0.0.12"),
        ("upgrade to v1.2.3-rc1 today", "v1.2.3-rc1"),
        ("with Python 3.11.7", "3.11.7"),
        ("fixed in fd4f67b", "fd4f67b"),
        ("closes #45", "#45"),
        ("see owner/repo#9", "owner/repo#9"),
        ("ticket ABC-123 is open", "ABC-123"),
        ("call getUserName() again", "getUserName"),
        ("set max_tokens to 5", "max_tokens"),
        ("it raised ModuleNotFoundError: x", "ModuleNotFoundError"),
        ("ask @jane-doe about it", "@jane-doe"),
        ("write to jo@example.org", "jo@example.org"),
        ("I met Alice Johnson yesterday", "Alice Johnson"),
        ("we flew to Lisbon last week", "Lisbon"),
        ("run `uv sync` first", "uv sync"),
        ("他在看《三体》", "三体"),
        ("联系「王小明」吧", "王小明"),
        ('the project "Blue Heron" starts', "Blue Heron"),
    ],
)
def test_names_of_every_shape(text: str, name: str) -> None:
    assert name in entities_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "nothing is named here at all",
        "The first word of a sentence is no name. Nor is this one.",
        "on Monday in March",
        "it costs 1234567 or 12.50",
        '{"max_output_tokens":400,"timeout_ms":5}',
        "token=[REDACTED:assigned-token] and [REDACTED:github-token]",
        "",
    ],
)
def test_what_is_no_name(text: str) -> None:
    assert entities_of(text) == ()


def test_what_is_named_most_often_comes_first() -> None:
    text = "a.py then b.py, b.py again and c.py"
    assert entities_of(text) == ("b.py", "a.py", "c.py")


@given(st.text(max_size=400))
def test_bounded_and_deterministic(text: str) -> None:
    topics, entities = topics_of(text), entities_of(text)
    assert (topics, entities) == (topics_of(text), entities_of(text))
    assert len(topics) <= MOST_TOPICS and TOPICS.issuperset(topics)
    assert len(entities) <= MOST_ENTITIES
    assert len(set(entities)) == len(entities)
    assert all(1 < len(name) <= MOST_ENTITY_CHARS for name in entities)


_UNITS = (
    "a/",
    "A",
    "Aa",
    "a_",
    "1.",
    "a@",
    "`",
    "「",
    "Aa ",
    "0a",
    "//",
    "..\\",
    "a.",
    "a::",
    '"A',
)


@pytest.mark.parametrize("unit", _UNITS)
def test_a_megabyte_of_anything_takes_no_longer_than_a_page(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))
    started = time.process_time()
    topics_of(text)
    entities_of(text)
    assert time.process_time() - started < 0.25


@given(st.lists(st.sampled_from("aA0_./\\:@#-"), min_size=190, max_size=200).map("".join))
def test_no_chunk_makes_the_shapes_backtrack(chunk: str) -> None:
    started = time.process_time()
    entities_of(f"{chunk}! " * 20)
    assert time.process_time() - started < 0.25
