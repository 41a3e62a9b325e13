"""Full messages in the providers' shapes, each row of the tables at least once."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.waiting import assert_linear

from recollect.adapters.providers.overflow import (
    NOT_OVERFLOW_WORDINGS,
    OVERFLOW_WORDINGS,
    recognize_overflow,
    recognize_silent_overflow,
)
from recollect.core.values.model import Overflow


class Said(NamedTuple):
    row: str
    message: str
    status: int | None = 400
    body: dict[str, Any] | None = None
    limit: int | None = None
    requested: int | None = None
    output: int | None = None


def read_messages(name: str) -> list[Said]:
    """Messages as providers sent them, one per line, from a file next to this one."""
    lines = Path(__file__).with_name(name).read_text("utf-8").splitlines()
    return [Said(**json.loads(line)) for line in lines]


OVERFLOWS = read_messages("overflows.jsonl")
NOT_OVERFLOWS = read_messages("not_overflows.jsonl")
ORDINARY_ERRORS = [
    "max_tokens: 64000 > 32000, which is the maximum allowed number of output tokens",
    "max_tokens is too large: 100000. This model supports at most 16384 completion tokens.",
    "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 6000000 bytes",
    "Attachment exceeds the limit of 20 MB",
    "Request exceeds the limit of 2,048 messages",
    "Internal server error",
    "invalid x-api-key",
    "messages: roles must alternate between user and assistant",
    "The model `gpt-9` does not exist",
    "Overloaded",
]


def name_of(said: Said) -> str:
    return f"{said.row}: {said.message[:40]}"


def recognise(said: Said) -> Overflow | None:
    return recognize_overflow(status=said.status, message=said.message, body=said.body)


@pytest.mark.parametrize("said", OVERFLOWS, ids=name_of)
def test_every_overflow_is_recognised_with_what_it_tells(said: Said) -> None:
    assert recognise(said) == Overflow(
        pattern_name=said.row,
        limit_tokens=said.limit,
        requested_tokens=said.requested,
        output_tokens=said.output,
    )


@pytest.mark.parametrize("said", NOT_OVERFLOWS, ids=name_of)
def test_what_only_sounds_like_an_overflow_is_none(said: Said) -> None:
    assert recognise(said) is None


@pytest.mark.parametrize("message", ORDINARY_ERRORS)
def test_other_errors_are_no_overflows(message: str) -> None:
    assert recognize_overflow(status=400, message=message) is None


def test_every_row_of_every_table_is_hit_by_a_message_above() -> None:
    def first_hits(table: Mapping[str, str], messages: list[str]) -> set[str]:
        return {
            next(name for name, words in table.items() if re.search(words, text, re.IGNORECASE))
            for text in messages
        }

    assert {said.row for said in OVERFLOWS} == set(OVERFLOW_WORDINGS)
    excluded_texts = [
        f"{said.status or ''} {said.message} {said.body or ''}".strip() for said in NOT_OVERFLOWS
    ]
    assert first_hits(NOT_OVERFLOW_WORDINGS, excluded_texts) == set(NOT_OVERFLOW_WORDINGS)


def test_what_the_user_wrote_is_not_read_as_the_providers_words() -> None:
    body = {"error": {"message": "invalid input", "input": "why is my prompt is too long?"}}
    assert recognize_overflow(status=422, message="", body=body) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.just("error"), inner),
    max_leaves=10,
)


@given(
    st.none() | st.integers(100, 599),
    st.text(),
    st.none() | st.dictionaries(st.sampled_from(["error", "message", "code", "x"]), json_values),
)
def test_odd_errors_never_raise(
    status: int | None, message: str, body: dict[str, Any] | None
) -> None:
    recognize_overflow(status=status, message=message, body=body)


@pytest.mark.parametrize("unit", ["prompt contains ", "9,", "input token ", "413 ", "exceeds "])
def test_a_huge_message_is_read_in_linear_time(unit: str) -> None:
    def read(chars: int) -> None:
        message = unit * (chars // len(unit))
        recognize_overflow(status=400, message=message, body={"error": {"message": message}})

    assert_linear(read, 5_000_000)


class TestSilentOverflow:
    @pytest.mark.parametrize("reason", ["stop", "end_turn", "STOP", "completed"])
    def test_a_reply_to_more_than_the_window_holds(self, reason: str) -> None:
        overflow = recognize_silent_overflow(
            stop_reason=reason, input_tokens=210_000, output_tokens=800, window_tokens=200_000
        )
        assert overflow == Overflow(
            pattern_name="silently_cut_request", limit_tokens=200_000, requested_tokens=210_000
        )

    def test_a_window_that_is_just_full_is_no_overflow(self) -> None:
        assert (
            recognize_silent_overflow(
                stop_reason="stop", input_tokens=200_000, output_tokens=800, window_tokens=200_000
            )
            is None
        )

    @pytest.mark.parametrize("reason", ["length", "max_tokens", "MAX_TOKENS", "incomplete"])
    @pytest.mark.parametrize(
        ("input_tokens", "output_tokens", "expected"),
        [(198_000, 0, "no_room_for_reply"), (197_999, 0, None), (198_000, 1, None)],
    )
    def test_a_reply_cut_short_before_its_first_token(
        self, reason: str, input_tokens: int, output_tokens: int, expected: str | None
    ) -> None:
        overflow = recognize_silent_overflow(
            stop_reason=reason,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            window_tokens=200_000,
        )
        assert (overflow.pattern_name if overflow else None) == expected

    def test_a_stop_reason_that_says_so_needs_no_window(self) -> None:
        overflow = recognize_silent_overflow(
            stop_reason="model_context_window_exceeded",
            input_tokens=190_000,
            output_tokens=10_000,
            window_tokens=None,
        )
        assert overflow is not None
        assert overflow.limit_tokens is None


@pytest.mark.parametrize(
    "message",
    [
        "messages.54: Did not find 2 `tool_result` block(s) at the beginning of this message.",
        "toolResult blocks at messages.2.content exceeds the number of toolUse blocks",
        "No tool call found for function call output with call_id call_1.",
    ],
)
def test_a_broken_tool_pair_is_not_an_overflow(message: str) -> None:
    assert recognize_overflow(status=400, message=message) is None
