"""Classifies a provider's error: an overflow, a permanent refusal, or trouble that may pass.

Never quotes a provider, because providers echo requests and keys; shows only error codes. Asks the
overflow table first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from recollect.adapters.providers.overflow import recognise_overflow
from recollect.core.formats.json_text import decode
from recollect.core.formats.replies import read_error
from recollect.errors import FormatError, ModelError, ModelOverflow, ModelRefused, ModelUnavailable

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
class ProviderError:
    """An error as a provider reported it."""

    status: int | None
    text: str = field(repr=False)
    body: Mapping[str, Any] | None = field(default=None, repr=False)
    codes: tuple[str, ...] = field(default=(), repr=False)
    """Codes and types, the particular first."""

    @property
    def is_spent(self) -> bool:
        """Whether the account has no money left."""
        return self.status == 402 or not _NO_MORE_MONEY.isdisjoint(self.codes)

    @property
    def is_passing(self) -> bool:
        """Whether it is trouble of the provider's own, and not of the request."""
        return self.status is None or self.status in _PASSING or self.status >= 500

    @property
    def may_pass(self) -> bool:
        """Whether the same request may succeed in a moment."""
        return self.status is not None and self.is_passing and not self.is_spent


def read_error_reply(status: int, content: bytes) -> ProviderError:
    """The error of a response, whatever its body is."""
    try:
        body = decode(content)
    except FormatError:
        body = None
    if isinstance(body, Mapping):
        return read_error_object(body, status=status)
    return ProviderError(status=status, text=content.decode("utf-8", "replace"))


def read_error_object(body: Mapping[str, Any], *, status: int | None = None) -> ProviderError:
    """The error of an object: a response's, a chunk's, or an event's of a stream."""
    error = read_error(body)
    text = error.message if error is not None else body.get("message")
    codes = tuple(_codes(body))
    if status is None:
        known = (_STATUS_OF_CODE[code] for code in codes if code in _STATUS_OF_CODE)
        status = next(known, _status_inside(body))
    text = text if isinstance(text, str) else ""
    return ProviderError(status=status, text=text, body=body, codes=codes)


def classify(error: ProviderError, *, who: str, doubtful: tuple[str, ...] = ()) -> ModelError:
    """The error to raise; `doubtful` are fields that the server may not know."""
    overflow = recognise_overflow(status=error.status, message=error.text, body=error.body)
    if overflow is not None:
        return ModelOverflow(
            f"{who}: the request does not fit the model's window ({overflow.pattern_name}); "
            "compact the session, or ask a model with a larger one",
            overflow,
        )
    answered = error.status is not None
    outcome = f"{who} answered {error.status}" if answered else f"{who} broke off its reply"
    code = next((f" ({code})" for code in error.codes if _CODE.fullmatch(code)), "")
    message = f"{outcome}{code}: {_advice(error)}"
    if error.is_passing:
        return ModelUnavailable(message)
    refused = next((name for name in doubtful if name in error.text), None)
    return FieldRefused(message, refused) if refused else ModelRefused(message)


def _advice(error: ProviderError) -> str:
    status = error.status
    if error.is_spent:
        return "the account's quota is spent; look at its plan and billing"
    if status in (401, 403):
        return "check the key, and that it may use this model"
    if status in (404, 405) or (status is not None and 300 <= status < 400):
        return "check the model's name and the base URL"
    if status == 429:
        return "too many requests; try again later, or lower the rate"
    if error.is_passing:
        return "the provider has trouble of its own; try again later"
    return "it refuses the request as it is; asking again is no use"


def _codes(body: Mapping[str, Any]) -> list[str]:
    values = [error.get(name) for error in _error_objects(body) for name in ("code", "type")]
    return [
        value
        for value in values
        if isinstance(value, str) and value not in ("error", "response.failed")
    ]


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
