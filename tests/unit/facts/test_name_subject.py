"""What a statement is about: corrections of one thing meet, look-alikes do not."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.facts.statement_pairs import CORRECTIONS, LATER_CORRECTIONS, LOOK_ALIKES

from recollect.facts.subjects import Subject, name_subject
from recollect.values.fact import FactType

PIECES = (
    "the API port is to from not 8443 1,0 v1. :80 3pm 99:99 $5k `a b` /x/y 10. use for never "
    "prefer over 端口 改成 不要 用 的 每周 ， 。 , . every two weeks ² ４ \x00 's"
)


def named(content: str, type: FactType = "config") -> tuple[str, str, str]:  # noqa: A002
    found = name_subject(content, type)
    return found.subject, found.attribute, found.value


def meet(type: FactType, one: str, other: str) -> bool:  # noqa: A002
    left, right = name_subject(one, type), name_subject(other, type)
    return left.told and (left.subject, left.attribute) == (right.subject, right.attribute)


@pytest.mark.parametrize(
    ("content", "type", "expected"),
    [
        ("the staging API listens on port 8443", "config", ("api staging", "port", "8443")),
        ("Sorry, staging 的 API 端口改成 9000 了", "config", ("api staging", "port", "9000")),
        ("production API port is 443", "config", ("api production", "port", "443")),
        ("node 3 listens on port 8080", "config", ("3 node", "port", "8080")),
        (
            "we decided to use PostgreSQL for the orders database",
            "decision",
            ("database order", "choice", "postgresql"),
        ),
        ("I prefer tabs over spaces", "preference", ("user space / tab", "preference", "tab")),
        ("refund logic not implemented yet", "task_state", ("logic refund", "state", "open")),
        ("退款逻辑已经完成了", "task_state", ("退款逻辑", "state", "done")),
        ("never deploy on Friday", "decision", ("deploy friday", "rule", "no")),
        ("deploying on Fridays is fine now", "decision", ("deploy friday", "rule", "yes")),
        ("不要在周五部署", "decision", ("周五部署", "rule", "no")),
        ("API requests time out after 45 seconds", "config", ("api request", "timeout", "45s")),
        ("backups run every day at 3pm", "config", ("backup", "schedule", "15:00 daily")),
        ("the port is 9000", "config", ("", "port", "9000")),
    ],
)
def test_statements_are_named(
    content: str,
    type: FactType,  # noqa: A002
    expected: tuple[str, str, str],
) -> None:
    assert named(content, type) == expected


def test_corrections_in_explicit_forms_meet() -> None:
    """About half of them: what is not understood is kept beside, or left to a model."""
    assert sum(meet(*pair) for pair in CORRECTIONS) >= 44
    assert sum(meet(*pair) for pair in LATER_CORRECTIONS) >= 20


def test_corrections_state_another_value() -> None:
    """A correction that had the same value would be taken for a repetition, and lost."""
    for type, one, other in (*CORRECTIONS, *LATER_CORRECTIONS):  # noqa: A001
        if meet(type, one, other):
            assert name_subject(one, type).value != name_subject(other, type).value, other


@pytest.mark.parametrize(("type", "one", "other"), LOOK_ALIKES)
def test_look_alikes_never_meet(type: FactType, one: str, other: str) -> None:  # noqa: A002
    assert not meet(type, one, other)


@pytest.mark.parametrize(
    "content",
    [
        "is the staging API on port 8443?",
        "if port 8443 is taken, the staging API uses port 9000",
        "maybe the staging API port is 9000",
        "the API is on port 8443 and the admin API is on port 9000",
        "the API port is 8443, the admin API port is 9000",
        "如果端口被占用，API 端口改成 9000",
        "we use Python and Go",
        "the API is slow",
        "hello there",
        "",
        "the port of the API is " + "very " * 100 + "9000",
    ],
)
def test_nothing_is_guessed(content: str) -> None:
    assert not name_subject(content, "config").told


@given(
    st.lists(
        st.sampled_from(PIECES.split(" ")),
        max_size=40,
    ).map(" ".join)
    | st.text(max_size=400)
)
def test_any_text_has_an_answer(content: str) -> None:
    found = name_subject(content, "decision")
    assert name_subject(content, "decision") == found
    assert "8443" not in repr(Subject(subject="8443", attribute="8443", value="8443"))


@pytest.mark.parametrize(
    "piece",
    ["a ", "use a for ", "端口", "1,", "/a", "a.", "not a, ", "is ", "from a to ", "`", "用"],
)
def test_no_text_takes_long(piece: str) -> None:
    """A second is a thousand times what a statement takes: only a regex gone wild needs it."""
    started = time.thread_time()
    name_subject((piece * 400)[:400], "decision")
    assert time.thread_time() - started < 1.0
