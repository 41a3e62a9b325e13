"""Recognizes errors by which a provider reports that a request was too large for the model.

The tables contain the providers' wordings (docs/contributing/sources.md). Errors that only resemble
an overflow are checked first. To limit the time, only the start of an error text is searched, and
no pattern contains `.*`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from recollect.core.values.model import Overflow

_N: Final = r"\d[\d,]{0,14}"
_NOT_TOKENS: Final = r"(?![\d,])(?!\s*(?:bytes?|[kmg]i?b|char|tool|image|file|page|message))"

# Patterns of wordings, by the name that reports show. The first match names the overflow, so
# specific wordings come before general ones.
OVERFLOW_WORDINGS: Final[Mapping[str, str]] = {
    # Anthropic
    "prompt_too_long": r"prompt is too long",
    "input_and_reply_over_limit": r"exceed context limit",
    "request_too_large": r"request_too_large",
    # an error code of some providers, and a stop reason of Anthropic
    "model_window_exceeded": r"model_context_window_exceeded",
    # Bedrock; the last limit counts characters
    "validation_input_tokens": r"ValidationException.{0,200}?"
    r"(?:input is too long|max input token|input token.{0,80}?exceed)",
    "input_too_long_for_model": r"input is too long for requested model",
    "input_over_max_length": r"expected maxLength:",
    # Google; the last limit counts bytes
    "input_token_count": r"input token count.{0,80}?exceeds the maximum",
    "input_count_supported": rf"input token count is {_N} but (?:the )?model only",
    "payload_size": r"request payload size exceeds",
    # xAI, OpenAI, Cerebras
    "maximum_prompt_length": rf"maximum prompt length is {_N}",
    "input_exceeds_window": r"exceeds the context window",
    "configured_limit": r"input tokens exceed the configured limit",
    "current_length": r"current length is .{1,40}? while limit is",
    # vLLM
    "output_requested": rf"requested {_N} output tokens",
    "input_contained": rf"prompt contains.{{0,40}}?{_N} input tokens",
    "total_requested": rf"for a total of.{{0,40}}?{_N} tokens",
    # OpenAI, DeepSeek, OpenRouter, Azure and most servers that imitate them
    "maximum_context_is": rf"maximum context length is {_N} tokens",
    "over_maximum_context": r"exceeds (?:the )?(?:model'?s )?maximum context length"
    rf"(?: of {_N} tokens?|\s*\({_N}\))",
    "over_allowed_input": rf"exceeds (?:the )?maximum allowed input length of {_N} tokens?",
    "longer_than_context": rf"input \({_N} tokens\) is longer than the model'?s context",
    # llama.cpp, LM Studio
    "available_context_size": r"exceeds the available context size",
    "context_size_type": r"exceed_context_size_error",
    "greater_than_context": r"greater than the context length",
    "loaded_context": rf"loaded with (?:a )?context length of only {_N}",
    # MiniMax, Moonshot, Mistral, Ollama, Hugging Face, Groq, Codex, Copilot
    "window_exceeds_limit": r"context window exceeds limit",
    "model_token_limit": r"exceeded model token limit",
    "too_large_for_model": rf"too large for model with {_N} maximum context",
    "exceeded_max_context": r"prompt too long; exceeded (?:max )?context length",
    "inputs_and_new_tokens": r"`inputs` tokens \+ `max_new_tokens` must be",
    "reduce_messages": r"reduce the length of the messages",
    "out_of_room": r"ran out of room",
    "over_the_limit": rf"exceeds the limit of {_N}{_NOT_TOKENS}",
    # OpenAI's error code, which Codex finds in `response.failed`. Others print it with spaces.
    "context_length_code": r"context[_ ]length[_ ]exceeded",
    "context_window_code": r"context[_ ]?window[_ ]?exceeded",
    "chinese": r"上下文过长|上下文超出|上下文长度超|超出最大上下文|请压缩上下文",
    "prompt_length": r"prompt: length",
    "too_many_tokens": r"too many tokens",
    "token_limit": r"token limit exceeded",
    "length_limit": r"length limit exceeded",
    "payload_too_large": r"\b413\b.{0,200}?too large",
    "no_body": r"^4(?:00|13)\s*(?:status code)?\s*\(no body\)",
}

# Errors that resemble an overflow, although a smaller request would not help.
NOT_OVERFLOW_WORDINGS: Final[Mapping[str, str]] = {
    "rate_limit": r"rate[ _-]?limit|too many requests|^429\b",
    "throttling": r"^(?:\d{3} )?(?:throttling error|service unavailable):|ThrottlingException"
    r"|too many tokens, please wait",
    "tokens_per_minute": r"\bTP[MD]\b|tokens[ _]per[ _](?:min(?:ute)?|hour|day)\b",
    "billing": r"^402\b|\bbilling\b|credit balance|more credits|exceeded your current quota"
    r"|insufficient[_ ](?:quota|credits?|balance|funds)|payment required",
    # OpenAI: one string of the request is too long, whatever the window
    "string_too_long": r"string_above_max_length|string too long\. expected a string",
    # a host refuses to load a model; the model does not refuse a request
    "window_too_small": r"context window.{0,80}?(?:too small|minimum is)",
    "count_of_something_else": r"\b(?:tools|functions|images|files|pages|attachments)\b"
    r".{0,40}?exceeds the limit of",
}

# Patterns of numbers of tokens in an error. For each kind of number, the first match counts.
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


# Fields of an error body that contain the error's text. Other fields may repeat the request.
_TELLING_FIELDS: Final = (
    *("error", "errors", "response", "detail", "details", "metadata", "raw"),
    *("code", "type", "__type", "status", "reason", "msg", "message"),
    *("n_prompt_tokens", "n_ctx"),
)
_BODY_MAX_DEPTH: Final = 6
"""Not measured; bounds the work on a deeply nested error body."""

_FINISHED: Final = frozenset({"stop", "end_turn", "stop_sequence", "completed"})
_CUT_SHORT: Final = frozenset({"length", "max_tokens", "max_output_tokens", "incomplete"})
_FULL_WINDOW_RATIO: Final = 0.99  # docs/contributing/sources.md


def recognize_overflow(
    *, status: int | None, message: str, body: Mapping[str, Any] | None = None
) -> Overflow | None:
    """Return the overflow that a provider's error reports; None for another kind of error.

    `message` is the error's text, in any wrapping. `body` is the decoded JSON of an error response
    or of a stream event such as `response.failed`, if there is one.
    """
    text = _readable_text(status=status, message=message, body=body)
    if _first_match(NOT_OVERFLOW_WORDINGS, text) is not None:
        return None
    name = _first_match(OVERFLOW_WORDINGS, text)
    if name is None:
        return None
    limit_words, limit_tokens = _find_count("limit", text)
    counts = {kind: _find_count(kind, text)[1] for kind in COUNT_PATTERNS}
    requested_tokens = counts["requested"]
    if requested_tokens is None and counts["input"] is not None:
        requested_tokens = counts["input"] + (counts["output"] or 0)
    return Overflow(
        pattern_name=name,
        limit_tokens=limit_tokens,
        requested_tokens=requested_tokens,
        output_tokens=counts["output"],
        limit_words=limit_words,
    )


def recognize_silent_overflow(
    *, stop_reason: str | None, input_tokens: int, output_tokens: int, window_tokens: int | None
) -> Overflow | None:
    """Return the overflow behind a reply that looks successful; None if there is none. Some
    providers cut the request to fit and answer it: the reply ends normally, although more was sent
    than the window holds. Other providers have no space left for the reply, and end it before its
    first token. `stop_reason` may have any provider's spelling."""
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
    # Compile the patterns on first use, because errors are rare.
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)


def _first_match(wordings: Mapping[str, str], text: str) -> str | None:
    return next((name for name, words in wordings.items() if _compile(words).search(text)), None)


def _find_count(kind: str, text: str) -> tuple[str, int | None]:
    for pattern in COUNT_PATTERNS[kind]:
        match = _compile(pattern).search(text)
        if match is not None:
            return match[0], int(match[1].replace(",", ""))
    return "", None


def _readable_text(*, status: int | None, message: str, body: Mapping[str, Any] | None) -> str:
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
