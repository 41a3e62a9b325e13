"""Recognizes errors by which a provider reports that a request was too large for the model.

The tables contain the providers' wordings (docs/contributing/sources.md). Errors that only resemble
an overflow are checked first. Only the start of a text is read, and no pattern contains `.*`, so
the time is limited.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from recollect.core.values.model import Overflow


class Wording(NamedTuple):
    """One row: its name in reports, its provider, and the regular expression."""

    name: str
    provider: str | None
    pattern: str


_N: Final = r"\d[\d,]{0,14}"
_NOT_TOKENS: Final = r"(?![\d,])(?!\s*(?:bytes?|[kmg]i?b|char|tool|image|file|page|message))"

# The first row that matches names the overflow: specific wordings come before general ones.
OVERFLOW_WORDINGS: Final[tuple[Wording, ...]] = (
    Wording("prompt_too_long", "anthropic", r"prompt is too long"),
    Wording("input_and_reply_over_limit", "anthropic", r"exceed context limit"),
    Wording("request_too_large", "anthropic", r"request_too_large"),
    # an error code of some providers, and a stop reason of Anthropic
    Wording("model_window_exceeded", None, r"model_context_window_exceeded"),
    Wording(
        "validation_input_tokens",
        "bedrock",
        r"ValidationException.{0,200}?"
        r"(?:input is too long|max input token|input token.{0,80}?exceed)",
    ),
    Wording("input_too_long_for_model", "bedrock", r"input is too long for requested model"),
    # this limit counts characters
    Wording("input_over_max_length", "bedrock", r"expected maxLength:"),
    Wording("input_token_count", "google", r"input token count.{0,80}?exceeds the maximum"),
    Wording(
        "input_count_supported", "google", rf"input token count is {_N} but (?:the )?model only"
    ),
    # this limit counts bytes
    Wording("payload_size", "google", r"request payload size exceeds"),
    Wording("maximum_prompt_length", "xai", rf"maximum prompt length is {_N}"),
    Wording("input_exceeds_window", "openai", r"exceeds the context window"),
    Wording("configured_limit", "openai", r"input tokens exceed the configured limit"),
    Wording("current_length", "cerebras", r"current length is .{1,40}? while limit is"),
    Wording("output_requested", "vllm", rf"requested {_N} output tokens"),
    Wording("input_contained", "vllm", rf"prompt contains.{{0,40}}?{_N} input tokens"),
    Wording("total_requested", "vllm", rf"for a total of.{{0,40}}?{_N} tokens"),
    # OpenAI, DeepSeek, OpenRouter, Azure and most servers that imitate them
    Wording("maximum_context_is", None, rf"maximum context length is {_N} tokens"),
    Wording(
        "over_maximum_context",
        None,
        r"exceeds (?:the )?(?:model'?s )?maximum context length"
        rf"(?: of {_N} tokens?|\s*\({_N}\))",
    ),
    Wording(
        "over_allowed_input",
        None,
        rf"exceeds (?:the )?maximum allowed input length of {_N} tokens?",
    ),
    Wording(
        "longer_than_context", None, rf"input \({_N} tokens\) is longer than the model'?s context"
    ),
    Wording("available_context_size", "llama.cpp", r"exceeds the available context size"),
    Wording("context_size_type", "llama.cpp", r"exceed_context_size_error"),
    Wording("greater_than_context", "lm-studio", r"greater than the context length"),
    Wording("loaded_context", "lm-studio", rf"loaded with (?:a )?context length of only {_N}"),
    Wording("window_exceeds_limit", "minimax", r"context window exceeds limit"),
    Wording("model_token_limit", "moonshot", r"exceeded model token limit"),
    Wording("too_large_for_model", "mistral", rf"too large for model with {_N} maximum context"),
    Wording("exceeded_max_context", "ollama", r"prompt too long; exceeded (?:max )?context length"),
    Wording("inputs_and_new_tokens", "huggingface", r"`inputs` tokens \+ `max_new_tokens` must be"),
    Wording("reduce_messages", "groq", r"reduce the length of the messages"),
    Wording("out_of_room", "codex", r"ran out of room"),
    Wording("over_the_limit", "copilot", rf"exceeds the limit of {_N}{_NOT_TOKENS}"),
    # OpenAI's error code, which Codex finds in `response.failed`. Others print it with spaces.
    Wording("context_length_code", None, r"context[_ ]length[_ ]exceeded"),
    Wording("context_window_code", None, r"context[_ ]?window[_ ]?exceeded"),
    Wording("chinese", None, r"上下文过长|上下文超出|上下文长度超|超出最大上下文|请压缩上下文"),
    Wording("prompt_length", None, r"prompt: length"),
    Wording("too_many_tokens", None, r"too many tokens"),
    Wording("token_limit", None, r"token limit exceeded"),
    Wording("length_limit", None, r"length limit exceeded"),
    Wording("payload_too_large", None, r"\b413\b.{0,200}?too large"),
    Wording("no_body", None, r"^4(?:00|13)\s*(?:status code)?\s*\(no body\)"),
)

# Errors that resemble an overflow but are not: a smaller request would not help.
NOT_OVERFLOW_WORDINGS: Final[tuple[Wording, ...]] = (
    Wording("rate_limit", None, r"rate[ _-]?limit|too many requests|^429\b"),
    Wording(
        "throttling",
        None,
        r"^(?:\d{3} )?(?:throttling error|service unavailable):|ThrottlingException"
        r"|too many tokens, please wait",
    ),
    Wording("tokens_per_minute", None, r"\bTP[MD]\b|tokens[ _]per[ _](?:min(?:ute)?|hour|day)\b"),
    Wording(
        "billing",
        None,
        r"^402\b|\bbilling\b|credit balance|more credits|exceeded your current quota"
        r"|insufficient[_ ](?:quota|credits?|balance|funds)|payment required",
    ),
    # one string of the request is too long, whatever the window
    Wording(
        "string_too_long", "openai", r"string_above_max_length|string too long\. expected a string"
    ),
    # a host refuses to load a model; the model does not refuse a request
    Wording("window_too_small", None, r"context window.{0,80}?(?:too small|minimum is)"),
    Wording(
        "count_of_something_else",
        None,
        r"\b(?:tools|functions|images|files|pages|attachments)\b.{0,40}?exceeds the limit of",
    ),
)

# Patterns for the numbers. For each kind, the first match is used.
COUNT_PATTERNS: Final[Mapping[str, tuple[str, ...]]] = {
    "limit": (
        rf"tokens > ({_N}) maximum",
        rf"{_N} \+ {_N} > ({_N})",
        rf"maximum (?:context|prompt) length(?: is| of)? \(?({_N})",
        rf"with ({_N}) maximum context length",
        rf"maximum number of tokens allowed \(({_N})\)",
        rf"context (?:size|length) \(({_N}) tokens",
        rf"context length of only ({_N}) tokens",
        rf"maximum allowed input length of ({_N}) tokens",
        rf"(?:configured|exceeds the) limit of ({_N}){_NOT_TOKENS}",
        rf"while limit is ({_N})",
        rf"model only supports up to ({_N})",
        rf"`max_new_tokens` must be <= ({_N})",
        rf"exceeded model token limit: ({_N})",
        rf"tokens in the prompt cannot exceed ({_N})",
        rf"\bn_ctx['\"]?: ?({_N})",
    ),
    "requested": (
        rf"prompt is too long: ({_N}) tokens",
        rf"resulted in (?:about )?({_N}) tokens",
        rf"requested (?:about )?({_N}) tokens",
        rf"\(requested: ({_N})\)",
        rf"for a total of (?:at least )?({_N}) tokens",
        rf"(?:request|input|prompt) \(({_N}) tokens\)",
        rf"token count (?:of |is |\()({_N})",
        rf"(?:request|prompt) contains (?:at least )?({_N}) tokens",
        rf"input length:? \(?({_N})",
        rf"current length is ({_N})",
        rf"- received ({_N})",
        rf"keep the first ({_N}) tokens",
        rf"\bn_keep: ?({_N})",
        rf"\bn_prompt_tokens['\"]?: ?({_N})",
    ),
    "input": (
        rf"({_N}) \+ {_N} > {_N}",
        rf"prompt contains (?:at least )?({_N}) input tokens",
        rf"given: ({_N}) `inputs` tokens",
    ),
    "output": (
        rf"{_N} \+ ({_N}) > {_N}",
        rf"requested ({_N}) output tokens",
        rf"({_N}) in the (?:completion|output)\b",
        rf"({_N}) `max_new_tokens`",
    ),
}


_READ_MAX_CHARS: Final = 8_000  # providers name the cause first; some repeat the request after it


# Fields of an error body that contain the error. Other fields may repeat the request.
_TELLING_FIELDS: Final = (
    *("error", "errors", "response", "detail", "details", "metadata", "raw"),
    *("code", "type", "__type", "status", "reason", "msg", "message"),
    *("n_prompt_tokens", "n_ctx"),
)
_BODY_MAX_DEPTH: Final = 6

_FINISHED: Final = frozenset({"stop", "end_turn", "stop_sequence", "completed"})
_CUT_SHORT: Final = frozenset({"length", "max_tokens", "max_output_tokens", "incomplete"})
_FULL_WINDOW_RATIO: Final = 0.99  # docs/contributing/sources.md


def recognise_overflow(
    *, status: int | None, message: str, body: Mapping[str, Any] | None = None
) -> Overflow | None:
    """Return the overflow that a provider's error reports, or None for another error.

    `message` is the error's text, in any wrapping. `body` is its decoded JSON, if there is one: an
    error response, or a stream event such as `response.failed`.
    """
    text = _readable(status=status, message=message, body=body)
    if _first_match(NOT_OVERFLOW_WORDINGS, text) is not None:
        return None
    wording = _first_match(OVERFLOW_WORDINGS, text)
    if wording is None:
        return None
    limit_words, limit = _named("limit", text)
    counts = {kind: _named(kind, text)[1] for kind in COUNT_PATTERNS}
    requested = counts["requested"]
    if requested is None and counts["input"] is not None:
        requested = counts["input"] + (counts["output"] or 0)
    return Overflow(
        pattern_name=wording.name,
        provider=wording.provider,
        limit_tokens=limit,
        requested_tokens=requested,
        output_tokens=counts["output"],
        limit_words=limit_words,
    )


def recognise_silent_overflow(
    *,
    stop_reason: str | None,
    input_tokens: int,
    output_tokens: int,
    window_tokens: int | None,
) -> Overflow | None:
    """Return the overflow behind a reply that looks successful.

    Some providers cut the request to fit and answer it: the reply ends normally, but more was sent
    than the window holds. With others no space is left: the reply is cut off before its first
    token. `stop_reason` may have any provider's spelling.
    """
    reason = (stop_reason or "").lower()
    if reason == "model_context_window_exceeded":
        name = "window_exceeded_while_replying"
    elif window_tokens is None:
        return None
    elif reason in _FINISHED and input_tokens > window_tokens:
        name = "silently_cut_request"
    elif (
        reason in _CUT_SHORT
        and output_tokens == 0
        and input_tokens >= _FULL_WINDOW_RATIO * window_tokens
    ):
        name = "no_room_for_reply"
    else:
        return None
    return Overflow(pattern_name=name, limit_tokens=window_tokens, requested_tokens=input_tokens)


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    # Compiled on first use, because errors are rare.
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)


def _first_match(wordings: tuple[Wording, ...], text: str) -> Wording | None:
    return next((row for row in wordings if _compile(row.pattern).search(text)), None)


def _named(kind: str, text: str) -> tuple[str, int | None]:
    for pattern in COUNT_PATTERNS[kind]:
        match = _compile(pattern).search(text)
        if match is not None:
            return match[0], int(match[1].replace(",", ""))
    return "", None


def _readable(*, status: int | None, message: str, body: Mapping[str, Any] | None) -> str:
    texts = [message.strip()[:_READ_MAX_CHARS]]
    if body is not None:
        _gather(body, texts, depth=0)
    text = " ".join(part for part in texts if part) or "(no body)"
    if status is not None and not text.startswith(str(status)):
        text = f"{status} {text}"
    return text[: 2 * _READ_MAX_CHARS]


def _gather(value: object, texts: list[str], *, depth: int) -> None:
    if depth > _BODY_MAX_DEPTH:
        return
    if isinstance(value, str):
        texts.append(value[:_READ_MAX_CHARS])
    elif isinstance(value, Mapping):
        for field in _TELLING_FIELDS:
            found_value = value.get(field)
            if isinstance(found_value, int):
                texts.append(f"{field}: {found_value}")
            else:
                _gather(found_value, texts, depth=depth + 1)
    elif isinstance(value, list):
        for item in value[:8]:
            _gather(item, texts, depth=depth + 1)
