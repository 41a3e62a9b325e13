"""What a provider's error means: an overflow, a refusal for good, or trouble that may pass.

Owns the one classification of errors, whether they come as an HTTP status or inside a stream.
Never quotes what a provider said: providers echo requests and keys. Codes are shown, letters and
underscores only. Always holds: the overflow table is asked first; what a format error caused is
never tried again (the same request fails the same way with any account).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from recollect.errors import FormatError, ModelError, ModelOverflow, ModelRefused, ModelUnavailable
from recollect.formats.json_spans import decode
from recollect.formats.replies import read_error
from recollect.providers.overflow import recognise_overflow, recognise_pairing_error

_PASSING: Final = frozenset({408, 409, 425, 429})
_CODE: Final = re.compile(r"[A-Za-z_]{1,60}")
_NO_MORE_MONEY: Final = frozenset({"insufficient_quota", "billing_error", "insufficient_balance"})
"""Spent accounts, some of them as status 429: no waiting helps."""

_STATUS_OF_CODE: Final[Mapping[str, int]] = {
    # Anthropic's error types, which come without a status inside a stream
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
    # OpenAI's codes in `response.failed` and in chunks
    "invalid_prompt": 400,
    "invalid_request": 400,
    "invalid_api_key": 401,
    "model_not_found": 404,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "server_error": 500,
    # vLLM
    "BadRequestError": 400,
    "NotFoundError": 404,
}


class FieldRefused(ModelRefused):
    """A field that not every server knows was refused; sent otherwise, the request may pass."""

    def __init__(self, message: str, name: str) -> None:
        super().__init__(message)
        self.name = name


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A call that did not succeed: the error to raise, and whether to try again before."""

    error: ModelError
    again: bool = False
    asked_seconds: float | None = None
    """How long the provider asks to wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """An error as a provider told it."""

    status: int | None
    text: str = field(repr=False)
    body: Mapping[str, Any] | None = field(default=None, repr=False)


def read_told(status: int | None, content: bytes) -> Told:
    """An error response's body, whatever it is."""
    text = content.decode("utf-8", "replace")
    try:
        body = decode(content)
    except FormatError:
        body = None
    if isinstance(body, Mapping):
        return told_in(body, status=status)
    return Told(status=status, text=text)


def told_in(body: Mapping[str, Any], *, status: int | None = None) -> Told:
    """An error object: of a response, a chunk, or an event of a stream."""
    said = read_error(body)
    text = said.message if said is not None else body.get("message")
    code = next((code for code in _codes(body) if code in _STATUS_OF_CODE), None)
    number = _status_inside(body)
    if status is None:
        status = _STATUS_OF_CODE[code] if code is not None else number
    return Told(status=status, text=text if isinstance(text, str) else "", body=body)


def classify(told: Told, *, who: str, doubtful: tuple[str, ...] = ()) -> ModelError:
    """The error to raise; `doubtful` are fields that the server may not know."""
    overflow = recognise_overflow(status=told.status, message=told.text, body=told.body)
    if overflow is not None:
        return ModelOverflow(
            f"{who}: the request does not fit the model's window ({overflow.pattern_name}); "
            "compact the session, or ask a model with a larger one",
            overflow,
        )
    status = told.status
    codes = [code for code in _codes(told.body) if _CODE.fullmatch(code)]
    said = f"{who} answered {status}" if status is not None else f"{who} broke off its reply"
    if codes:
        said += f" ({codes[0]})"
    message = f"{said}: {_advice(told, codes)}"
    if status is None or status in _PASSING or status >= 500:
        return ModelUnavailable(message)
    refused = next((name for name in doubtful if name in told.text), None)
    return FieldRefused(message, refused) if refused else ModelRefused(message)


def may_pass(told: Told) -> bool:
    """Whether the same request may succeed in a moment."""
    status = told.status
    spent = any(code in _NO_MORE_MONEY for code in _codes(told.body))
    return status is not None and (status in _PASSING or status >= 500) and not spent


def _advice(told: Told, codes: list[str]) -> str:
    status = told.status
    pairing = recognise_pairing_error(told.text)
    if pairing is not None:
        return f"calls and results do not pair up ({pairing}); asking again is no use"
    if status == 402 or any(code in _NO_MORE_MONEY for code in codes):
        return "the account's quota is spent; look at its plan and billing"
    if status in (401, 403):
        return "check the key, and that it may use this model"
    if status in (404, 405) or (status is not None and 300 <= status < 400):
        return "check the model's name and the base URL"
    if status == 429:
        return "too many requests; try again later, or lower the rate"
    if status is None or status in _PASSING or status >= 500:
        return "the provider has trouble of its own; try again later"
    return "it refuses the request as it is; asking again is no use"


def _codes(body: Mapping[str, Any] | None) -> list[str]:
    """Codes and types, the particular first, wherever the wire puts its error object."""
    found: list[str] = []
    for error in _error_objects(body or {}):
        for name in ("code", "type"):
            value = error.get(name)
            if isinstance(value, str) and value not in ("error", "response.failed"):
                found.append(value)
    return found


def _status_inside(body: Mapping[str, Any]) -> int | None:
    for error in _error_objects(body):
        for name in ("code", "status", "status_code"):
            value = error.get(name)
            if isinstance(value, int) and 300 <= value < 600:
                return value
    return None


def _error_objects(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    response = body.get("response")
    nested = [body.get("error"), response.get("error") if isinstance(response, Mapping) else None]
    return [error for error in (*nested, body) if isinstance(error, Mapping)]
