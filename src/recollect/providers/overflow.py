"""Recognises that a request was too large for the model, from what any provider says.

Owns how an error or a reply is read; the wordings are in `wordings.py`. It must never decide
what to do about them, and never raises on odd input. What always holds: what only sounds like
an overflow is asked for first, so a rate limit or an unpaid bill is never taken for a full
window; the time is bounded, for only the head of what was said is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from recollect.providers.wordings import (
    COUNT_PATTERNS,
    NOT_OVERFLOW_WORDINGS,
    OVERFLOW_WORDINGS,
    PAIRING_WORDINGS,
    Wording,
)
from recollect.values.overflow import Overflow

_READ_MAX_CHARS: Final = 8_000  # providers put the cause first; some echo the request after it


# The fields of an error body that say what went wrong. Others may echo the request.
_TELLING_FIELDS: Final = (
    *("error", "errors", "response", "detail", "details", "metadata", "raw"),
    *("code", "type", "__type", "status", "reason", "msg", "message"),
    *("n_prompt_tokens", "n_ctx"),
)
_BODY_MAX_DEPTH: Final = 6

_FINISHED: Final = frozenset({"stop", "end_turn", "stop_sequence", "completed"})
_CUT_SHORT: Final = frozenset({"length", "max_tokens", "max_output_tokens", "incomplete"})
_FULL_WINDOW_RATIO: Final = 0.99  # docs/sources.md


def recognise_overflow(
    *, status: int | None, message: str, body: Mapping[str, Any] | None = None
) -> Overflow | None:
    """The overflow that an error of a provider reports, or None if it reports something else.

    `message` is the error's text in whatever wrapping, `body` its decoded JSON where there is
    one: an error response, or an event of a stream such as `response.failed`.
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
    cache_read_tokens: int = 0,
    cache_write_tokens: int = 0,
) -> Overflow | None:
    """The overflow behind a reply that looks like a success.

    Some providers cut the request to fit and answer it: the reply ends well, but more was sent
    than the window holds. Others leave no room: the reply is cut short before its first token.
    `stop_reason` is taken in any provider's spelling.
    """
    reason = (stop_reason or "").lower()
    prompt_tokens = input_tokens + cache_read_tokens + cache_write_tokens
    if reason == "model_context_window_exceeded":
        name = "window_exceeded_while_replying"
    elif window_tokens is None:
        return None
    elif reason in _FINISHED and prompt_tokens > window_tokens:
        name = "silently_cut_request"
    elif (
        reason in _CUT_SHORT
        and output_tokens == 0
        and prompt_tokens >= _FULL_WINDOW_RATIO * window_tokens
    ):
        name = "no_room_for_reply"
    else:
        return None
    return Overflow(pattern_name=name, limit_tokens=window_tokens, requested_tokens=prompt_tokens)


def recognise_pairing_error(message: str) -> str | None:
    """The name of the broken tool pairing that an error reports, or None.

    Sending the same request again, to whichever account, fails again.
    """
    wording = _first_match(PAIRING_WORDINGS, message[:_READ_MAX_CHARS])
    return wording.name if wording is not None else None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)  # on first use: errors are rare


def _first_match(wordings: tuple[Wording, ...], text: str) -> Wording | None:
    return next((row for row in wordings if _compiled(row.pattern).search(text)), None)


def _named(kind: str, text: str) -> tuple[str, int | None]:
    """The first number of a kind, and the words that name it."""
    for pattern in COUNT_PATTERNS[kind]:
        match = _compiled(pattern).search(text)
        if match is not None:
            return match[0], int(match[1].replace(",", ""))
    return "", None


def _readable(*, status: int | None, message: str, body: Mapping[str, Any] | None) -> str:
    """Everything that was said, in one line of bounded length, the status first."""
    said = [message.strip()[:_READ_MAX_CHARS]]
    if body is not None:
        _gather(body, said, depth=0)
    text = " ".join(part for part in said if part) or "(no body)"
    if status is not None and not text.startswith(str(status)):
        text = f"{status} {text}"
    return text[: 2 * _READ_MAX_CHARS]


def _gather(value: object, said: list[str], *, depth: int) -> None:
    if depth > _BODY_MAX_DEPTH:
        return
    if isinstance(value, str):
        said.append(value[:_READ_MAX_CHARS])
    elif isinstance(value, Mapping):
        for field in _TELLING_FIELDS:
            found = value.get(field)
            if isinstance(found, int):
                said.append(f"{field}: {found}")
            else:
                _gather(found, said, depth=depth + 1)
    elif isinstance(value, list):
        for item in value[:8]:
            _gather(item, said, depth=depth + 1)
