"""Full messages in the providers' shapes, each row of the tables at least once."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.waiting import assert_linear

from recollect.adapters.providers.overflow import (
    NOT_OVERFLOW_WORDINGS,
    OVERFLOW_WORDINGS,
    recognise_overflow,
    recognise_silent_overflow,
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


LLAMA_CPP_BODY = {
    "error": {
        "code": 400,
        "message": "request (8031 tokens) exceeds the available context size (4096 tokens), "
        "try increasing it",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 8031,
        "n_ctx": 4096,
    }
}
CODEX_FAILED_EVENT = {
    "type": "response.failed",
    "response": {
        "id": "resp_1",
        "status": "failed",
        "error": {"code": "context_length_exceeded", "message": "The request was refused."},
    },
}

OVERFLOWS = [
    Said(
        "prompt_too_long",
        "prompt is too long: 215,331 tokens > 200000 maximum",
        limit=200_000,
        requested=215_331,
    ),
    Said(
        "input_and_reply_over_limit",
        "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, "
        "decrease input length or `max_tokens` and try again",
        limit=200_000,
        requested=209_573,
        output=21_333,
    ),
    Said(
        "request_too_large",
        "",
        status=413,
        body={
            "type": "error",
            "error": {"type": "request_too_large", "message": "Request exceeds the maximum size"},
        },
    ),
    Said("model_window_exceeded", "finish_reason: model_context_window_exceeded", status=None),
    Said(
        "validation_input_tokens",
        "An error occurred (ValidationException) when calling the ConverseStream operation: "
        "The model returned the following errors: Input is too long for requested model.",
    ),
    Said("input_too_long_for_model", "Input is too long for requested model."),
    Said(
        "input_over_max_length",
        "Malformed input request: expected maxLength: 200000, actual: 200183, please reformat "
        "your input and try again.",
    ),
    Said(
        "input_token_count",
        "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
        body={"error": {"code": 400, "status": "INVALID_ARGUMENT"}},
        limit=1_048_575,
        requested=1_196_265,
    ),
    Said(
        "input_count_supported",
        "Unable to submit request because the input token count is 135538 but model only supports "
        "up to 131072. Reduce the input token count and try again.",
        limit=131_072,
        requested=135_538,
    ),
    Said("payload_size", "400 Request payload size exceeds the limit: 20971520 bytes."),
    Said(
        "maximum_prompt_length",
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        limit=131_072,
        requested=537_812,
    ),
    Said(
        "input_exceeds_window",
        "Your input exceeds the context window of this model. Please adjust your input and try "
        "again.",
        body={"error": {"code": "context_length_exceeded", "param": "input"}},
    ),
    Said(
        "configured_limit",
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in "
        "303112 tokens. Please reduce the length of the messages.",
        limit=272_000,
        requested=303_112,
    ),
    Said(
        "current_length",
        "Please reduce the length of the messages or completion. Current length is 40212 while "
        "limit is 32768",
        limit=32_768,
        requested=40_212,
    ),
    Said(
        "output_requested",
        "This model's maximum context length is 262144 tokens. However, you requested 128000 "
        "output tokens and your prompt contains at least 134145 input tokens, for a total of at "
        "least 262145 tokens. Please reduce the length of the input prompt or the number of "
        "requested output tokens. (parameter=input_tokens, value=134145)",
        limit=262_144,
        requested=262_145,
        output=128_000,
    ),
    Said(
        "input_contained",
        "The prompt contains at least 134145 input tokens, no room is left.",
        requested=134_145,
    ),
    Said("total_requested", "You asked for a total of at least 9001 tokens.", requested=9_001),
    Said(
        "maximum_context_is",
        "This model's maximum context length is 128000 tokens. However, your messages resulted in "
        "130000 tokens. Please reduce the length of the messages.",
        body={"error": {"code": "context_length_exceeded", "type": "invalid_request_error"}},
        limit=128_000,
        requested=130_000,
    ),
    Said(
        "maximum_context_is",
        "This model's maximum context length is 8192 tokens. However, you requested 8554 tokens "
        "(7554 in the messages, 1000 in the completion). Please reduce the length of the messages "
        "or completion.",
        limit=8_192,
        requested=8_554,
        output=1_000,
    ),
    Said(
        "over_maximum_context",
        "Input length 131393 exceeds the maximum context length of 131,072 tokens.",
        limit=131_072,
        requested=131_393,
    ),
    Said(
        "over_allowed_input",
        "Input length 300000 exceeds the maximum allowed input length of 262,144 tokens.",
        limit=262_144,
        requested=300_000,
    ),
    Said(
        "longer_than_context",
        "The input (516368 tokens) is longer than the model's context length (262144 tokens).",
        limit=262_144,
        requested=516_368,
    ),
    Said(
        "available_context_size",
        "the request exceeds the available context size. try increasing the context size",
        status=500,
    ),
    Said(
        "context_size_type",
        "",
        body={
            "error": {"type": "exceed_context_size_error", "n_prompt_tokens": 8031, "n_ctx": 4096}
        },
        limit=4_096,
        requested=8_031,
    ),
    Said(
        "greater_than_context",
        "The number of tokens to keep from the initial prompt is greater than the context length. "
        "Try to load the model with a larger context length.",
    ),
    Said(
        "greater_than_context",
        "The number of tokens to keep from the initial prompt is greater than the context length "
        "(n_keep: 13055>= n_ctx: 4096). Try to load the model with a larger context length.",
        limit=4_096,
        requested=13_055,
    ),
    Said(
        "loaded_context",
        "Trying to keep the first 14538 tokens when context the overflows. However, the model is "
        "loaded with context length of only 2048 tokens, which is not enough.",
        limit=2_048,
        requested=14_538,
    ),
    Said("window_exceeds_limit", "invalid params, context window exceeds limit (2013)"),
    Said(
        "model_token_limit",
        "Invalid request: Your request exceeded model token limit: 262144 (requested: 291351)",
        limit=262_144,
        requested=291_351,
    ),
    Said(
        "too_large_for_model",
        "Prompt contains 150031 tokens and 0 draft tokens, too large for model with 131072 maximum "
        "context length",
        limit=131_072,
        requested=150_031,
    ),
    Said("exceeded_max_context", "prompt too long; exceeded max context length by 112 tokens"),
    Said(
        "inputs_and_new_tokens",
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 3900 "
        "`inputs` tokens and 512 `max_new_tokens`",
        status=422,
        limit=4_096,
        requested=4_412,
        output=512,
    ),
    Said("reduce_messages", "Please reduce the length of the messages or completion."),
    Said(
        "out_of_room",
        "Codex ran out of room in the model's context window. Start a new thread.",
        status=None,
    ),
    Said(
        "over_the_limit",
        "prompt token count of 137500 exceeds the limit of 128000",
        body={"error": {"code": "model_max_prompt_tokens_exceeded"}},
        limit=128_000,
        requested=137_500,
    ),
    Said("context_length_code", "", status=None, body=CODEX_FAILED_EVENT),
    Said("context_window_code", "litellm.ContextWindowExceededError: refused upstream"),
    Said("chinese", "请求失败：上下文过长，请压缩上下文后重试"),
    Said("prompt_length", "ValidationError: prompt: length must not pass 32768"),
    Said(
        "too_many_tokens",
        "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5120.",
        limit=4_081,
        requested=5_120,
    ),
    Said("token_limit", "Input token limit exceeded."),
    Said("length_limit", "Prompt length limit exceeded for this model"),
    Said("payload_too_large", "<html><title>Request Entity Too Large</title></html>", status=413),
    Said("no_body", "400 status code (no body)", status=None),
]

NOT_OVERFLOWS = [
    Said("rate_limit", "Rate limit reached for requests. Limit: 3 / min.", status=None),
    Said("rate_limit", "Number of request tokens has exceeded your rate_limit", status=None),
    Said("rate_limit", "Too many requests, token limit exceeded for now", status=None),
    Said("rate_limit", "token limit exceeded, try again in 20 s", status=429),
    Said("throttling", "Throttling error: Too many tokens, please wait before trying again.", None),
    Said("throttling", "Service unavailable: token limit exceeded on this node", status=503),
    Said("throttling", "ThrottlingException: Too many tokens in flight", status=400),
    Said("throttling", "Too many tokens, please wait before trying again.", status=400),
    Said(
        "tokens_per_minute",
        "Request too large for gpt-4o in organization org-example on tokens per min (TPM): "
        "Limit 30000, Requested 45210.",
        status=413,
    ),
    Said("tokens_per_minute", "TPM token limit exceeded", status=400),
    Said(
        "billing", "Your credit balance is too low to access the API. Please go to Plans & Billing."
    ),
    Said("billing", "You exceeded your current quota, please check your plan.", status=400),
    Said("billing", "Prompt token limit exceeded: 12000 > 3000.", status=402),
    Said(
        "billing",
        "This request requires more credits, or fewer max_tokens. You requested up to 64000 "
        "tokens, but can only afford 2100.",
        status=400,
    ),
    Said(
        "string_too_long",
        "Invalid 'messages[1].content': string too long. Expected a string with maximum length "
        "1048576, but got a string with length 2097152 instead.",
        body={"error": {"code": "string_above_max_length"}},
    ),
    Said("string_too_long", "", body={"error": {"code": "string_above_max_length"}}),
    Said("window_too_small", "Model context window too small (4096 tokens).", status=None),
    Said("window_too_small", "context window is 8000 tokens; minimum is 16000", status=None),
    Said("count_of_something_else", "The number of tools (140) exceeds the limit of 128"),
]

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
    return recognise_overflow(status=said.status, message=said.message, body=said.body)


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
    assert recognise_overflow(status=400, message=message) is None


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
    assert recognise_overflow(status=422, message="", body=body) is None


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
    recognise_overflow(status=status, message=message, body=body)


@pytest.mark.parametrize("unit", ["prompt contains ", "9,", "input token ", "413 ", "exceeds "])
def test_a_huge_message_is_read_in_linear_time(unit: str) -> None:
    def read(chars: int) -> None:
        message = unit * (chars // len(unit))
        recognise_overflow(status=400, message=message, body={"error": {"message": message}})

    assert_linear(read, 5_000_000)


class TestSilentOverflow:
    @pytest.mark.parametrize("reason", ["stop", "end_turn", "STOP", "completed"])
    def test_a_reply_to_more_than_the_window_holds(self, reason: str) -> None:
        overflow = recognise_silent_overflow(
            stop_reason=reason, input_tokens=210_000, output_tokens=800, window_tokens=200_000
        )
        assert overflow == Overflow(
            pattern_name="silently_cut_request", limit_tokens=200_000, requested_tokens=210_000
        )

    def test_a_window_that_is_just_full_is_no_overflow(self) -> None:
        assert (
            recognise_silent_overflow(
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
        overflow = recognise_silent_overflow(
            stop_reason=reason,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            window_tokens=200_000,
        )
        assert (overflow.pattern_name if overflow else None) == expected

    def test_a_stop_reason_that_says_so_needs_no_window(self) -> None:
        overflow = recognise_silent_overflow(
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
    assert recognise_overflow(status=400, message=message) is None
