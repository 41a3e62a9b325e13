"""Calls a model provider within a deadline, retries if that can help, and raises clear errors.

Errors never show a key, a secret part of a URL or the provider's own text. Once a byte of the reply
has arrived, the call is not retried. A base URL without a version gets `/v1`."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, urlsplit, urlunsplit

from recollect.adapters.providers.overflow import recognize_overflow
from recollect.core.formats.json_text import decode, encode
from recollect.core.formats.replies import read_error
from recollect.errors import FormatError, ModelError, ModelOverflow, ModelRefused, ModelUnavailable
from recollect.system import http

_PASSING: Final = frozenset({408, 409, 425, 429})
_CODE: Final = re.compile(r"[A-Za-z_]{1,60}")
_ACCOUNT_EMPTY: Final = frozenset({"insufficient_quota", "billing_error", "insufficient_balance"})
"""Error codes for empty accounts. A retry does not help, even if the status is 429."""

_STATUS_OF_CODE: Final[Mapping[str, int]] = {
    # Anthropic's error types. An error event in a stream has a type but no status.
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
    # OpenAI's error codes in `response.failed` and in chunks
    "invalid_prompt": 400,
    "invalid_request": 400,
    "invalid_api_key": 401,
    "model_not_found": 404,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "server_error": 500,
    # vLLM's error codes
    "BadRequestError": 400,
    "NotFoundError": 404,
}


class FieldRefused(ModelRefused):
    """Raised if the server refused a field without which the request may succeed."""

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
    """The error's codes and types, the most specific first."""

    @property
    def is_spent(self) -> bool:
        return self.status == 402 or not _ACCOUNT_EMPTY.isdisjoint(self.codes)

    @property
    def is_passing(self) -> bool:
        """Return True if the provider is at fault, not the request."""
        return self.status is None or self.status in _PASSING or self.status >= 500

    @property
    def may_pass(self) -> bool:
        """Return True if the same request may succeed in a moment."""
        return self.status is not None and self.is_passing and not self.is_spent


def read_error_reply(status: int, content: bytes) -> ProviderError:
    """Read the error from a response, whatever its body is."""
    try:
        body = decode(content)
    except FormatError:
        body = None
    if isinstance(body, Mapping):
        return read_error_object(body, status=status)
    return ProviderError(status=status, text=content.decode("utf-8", "replace"))


def read_error_object(body: Mapping[str, Any], *, status: int | None = None) -> ProviderError:
    """Read the error from a JSON object: a response's body, a chunk, or a stream event."""
    error = read_error(body)
    text = error.message if error is not None else body.get("message")
    codes = tuple(_list_codes(body))
    if status is None:
        known_statuses = (_STATUS_OF_CODE[code] for code in codes if code in _STATUS_OF_CODE)
        status = next(known_statuses, _find_status(body))
    text = text if isinstance(text, str) else ""
    return ProviderError(status=status, text=text, body=body, codes=codes)


def classify(error: ProviderError, *, server: str, doubtful: tuple[str, ...] = ()) -> ModelError:
    """Return the exception to raise for a provider's error. `doubtful` lists fields of the request
    that the server may not know."""
    overflow = recognize_overflow(status=error.status, message=error.text, body=error.body)
    if overflow is not None:
        return ModelOverflow(
            f"{server}: the request does not fit the model's window ({overflow.pattern_name}); "
            "compact the session, or use a model with a larger window",
            overflow,
        )
    has_status = error.status is not None
    outcome = f"{server} answered {error.status}" if has_status else f"{server} broke off its reply"
    code = next((f" ({code})" for code in error.codes if _CODE.fullmatch(code)), "")
    message = f"{outcome}{code}: {_advice(error)}"
    if error.is_passing:
        return ModelUnavailable(message)
    refused_field = next((name for name in doubtful if name in error.text), None)
    return FieldRefused(message, refused_field) if refused_field else ModelRefused(message)


def _advice(error: ProviderError) -> str:
    status = error.status
    if error.is_spent:
        return "the account's quota is used up; check its plan and billing"
    if status in (401, 403):
        return "check the key, and that it may use this model"
    if status in (404, 405) or (status is not None and 300 <= status < 400):
        return "check the model's name and the base URL"
    if status == 429:
        return "too many requests; try again later, or lower the rate"
    if error.is_passing:
        return "the provider has an internal problem; try again later"
    return "it refuses this request; sending it again does not help"


def _list_codes(body: Mapping[str, Any]) -> list[str]:
    values = [error.get(name) for error in _list_errors(body) for name in ("code", "type")]
    return [
        value
        for value in values
        if isinstance(value, str) and value not in ("error", "response.failed")
    ]


def _find_status(body: Mapping[str, Any]) -> int | None:
    for error in _list_errors(body):
        for name in ("code", "status", "status_code"):
            value = error.get(name)
            if isinstance(value, int) and 300 <= value < 600:
                return value
    return None


def _list_errors(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    response = body.get("response")
    nested = [body.get("error"), response.get("error") if isinstance(response, Mapping) else None]
    return [error for error in (*nested, body) if isinstance(error, Mapping)]


if TYPE_CHECKING:
    import httpx2

_CONNECT_SECONDS: Final = 10.0
"""Time limit for connecting, short enough to leave time for another attempt."""
_ERROR_MAX_BYTES: Final = 65_536
"""Not measured; bounds what is read of an error response, whose cause comes first."""
_LOOK_SECONDS: Final = 5.0
"""Not measured; bounds how long a start waits for a server that may not report its window."""
_LAST_BYTES_SECONDS: Final = 0.05
"""Not measured; bounds the wait for the end of a reply, after which its connection is free."""
_VERSION: Final = re.compile(r"v\d+\w*")
_ENDPOINTS: Final = ("/chat/completions", "/completions", "/responses", "/messages", "/models")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The address of a server."""

    host: str
    """Host and port, as errors show them."""
    is_own: bool
    """True if this is the provider's own server, which accepts all fields that it documents."""
    _parts: SplitResult = field(repr=False)

    def url(self, path: str) -> str:
        """Return the full URL of an endpoint, such as `/models`, with the version."""
        return urlunsplit(self._parts._replace(path=self._parts.path + path))

    def root_url(self, path: str) -> str:
        """Return the full URL of an endpoint without the version, such as llama.cpp's `/props`."""
        head, _, last = self._parts.path.rpartition("/")
        root = head if _VERSION.fullmatch(last) else self._parts.path
        return urlunsplit(self._parts._replace(path=root + path))


def read_address(base_url: str | None, *, own_url: str) -> Address:
    """Parse a base URL. For None, return `own_url`, the provider's address."""
    parts = _add_version(base_url or own_url)
    host = f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
    return Address(host=host, is_own=parts == _add_version(own_url), _parts=parts)


def _add_version(url: str) -> SplitResult:
    parts = _split(url.strip())
    path = parts.path.rstrip("/")
    for endpoint in _ENDPOINTS:
        path = path.removesuffix(endpoint)
    if not any(_VERSION.fullmatch(segment) for segment in path.split("/")):
        path += "/v1"
    return parts._replace(path=path, fragment="")


def _split(url: str) -> SplitResult:
    parts: SplitResult | None
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        parts = None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ModelRefused("the base URL of the model must be an http:// or https:// URL")
    return parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A request's body, and the names of its fields that the server may not know."""

    fields: Mapping[str, Any] = field(repr=False)
    doubtful: tuple[str, ...] = ()


class Reply:
    """A response whose first bytes have arrived."""

    def __init__(
        self,
        content_type: str,
        first: bytes,
        unread_body: AsyncGenerator[bytes],
        exit_stack: AsyncExitStack,
    ) -> None:
        self.content_type = content_type
        self._first: bytes | None = first
        self._unread_body = unread_body
        self._exit_stack = exit_stack

    async def read_piece(self, *, seconds: float) -> bytes | http.NetworkTrouble | None:
        if self._first is not None:
            first, self._first = self._first, None
            return first

        async def read_next() -> bytes | None:
            async with asyncio.timeout(seconds):
                return await anext(self._unread_body, None)

        return await http.attempt(read_next())

    async def close(self) -> None:
        """Release the connection. If the reply was not read to its end, close the connection."""
        await self._exit_stack.aclose()


class Calls:
    """Sends the calls of one model to one server."""

    def __init__(
        self,
        *,
        address: Address,
        headers: Mapping[str, str],
        deadline_seconds: float,
        retries: http.Retries | None = None,
    ) -> None:
        self.address = address
        self._headers = {"Content-Type": "application/json", **headers}
        self._deadline = deadline_seconds
        self._retries = retries or http.Retries()
        # This class enforces the deadline over all attempts; the driver only limits connecting.
        self._connections = http.Connections(
            feature="a model over HTTP", connect_seconds=_CONNECT_SECONDS, read_seconds=None, idle=8
        )

    async def fetch(self, path: str, body: Body) -> bytes:
        """Send a request, and return the whole response, within the deadline."""
        deadline = time.monotonic() + self._deadline
        reply = await self._begin_until(path, body, deadline)
        try:
            return await self.read_rest(reply, deadline)
        finally:
            await reply.close()

    async def begin(self, path: str, body: Body) -> Reply:
        """Send a request, and wait for the first bytes of a reply, which the caller must close."""
        return await self._begin_until(path, body, time.monotonic() + self._deadline)

    async def read_next(self, reply: Reply, *, seconds: float | None = None) -> bytes | None:
        """Return the next bytes of a reply; None at its end."""
        piece = await reply.read_piece(seconds=self._deadline if seconds is None else seconds)
        if isinstance(piece, http.NetworkTrouble):
            raise self._failure(piece).error
        return piece

    async def end(self, reply: Reply) -> None:
        """Close a reply after its last event. A reply read to its end keeps the connection open."""
        await reply.read_piece(seconds=_LAST_BYTES_SECONDS)
        await reply.close()

    async def fetch_object(self, url: str) -> Mapping[str, Any]:
        """Read the JSON object at a URL of this server. On failure, return an empty object."""
        content = await http.attempt(self._get(url))
        try:
            value = decode(content) if isinstance(content, bytes) else None
        except FormatError:
            value = None
        return value if isinstance(value, Mapping) else {}

    async def close(self) -> None:
        await self._connections.close()

    async def _begin_until(self, path: str, body: Body, deadline: float) -> Reply:
        content = await asyncio.to_thread(encode, body.fields)

        async def try_once() -> Reply | http.FailedTry:
            async with AsyncExitStack() as exit_stack:
                reply = await http.attempt(
                    self._open_reply(path, content, body.doubtful, deadline, exit_stack)
                )
                return self._failure(reply) if isinstance(reply, http.NetworkTrouble) else reply

        return await http.try_again(try_once, retries=self._retries, until=deadline)

    async def _open_reply(
        self,
        path: str,
        content: bytes,
        doubtful: tuple[str, ...],
        deadline: float,
        exit_stack: AsyncExitStack,
    ) -> Reply | http.FailedTry:
        async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
            answer = await self._connections.send(
                "POST", self.address.url(path), headers=self._headers, content=content
            )
            exit_stack.push_async_callback(answer.aclose)
            if not answer.is_success:
                return await self._read_refusal(answer, doubtful)
            pieces = answer.aiter_bytes()
            exit_stack.push_async_callback(pieces.aclose)
            first = await anext(pieces, None)
        if first is None:
            return http.FailedTry(error=self._early_end("before the first byte"), may_retry=True)
        return Reply(answer.headers.get("content-type", ""), first, pieces, exit_stack.pop_all())

    async def read_rest(self, reply: Reply, deadline: float | None = None) -> bytes:
        pieces: list[bytes] = []
        while True:
            seconds = None if deadline is None else max(0.0, deadline - time.monotonic())
            piece = await self.read_next(reply, seconds=seconds)
            if piece is None:
                return b"".join(pieces)
            pieces.append(piece)

    async def _read_refusal(
        self, answer: httpx2.Response, doubtful: tuple[str, ...]
    ) -> http.FailedTry:
        content = bytearray()
        await http.attempt(
            _read_into(content, answer)
        )  # use the part of the error that was received
        error = read_error_reply(answer.status_code, bytes(content))
        return http.FailedTry(
            error=classify(error, server=self.address.host, doubtful=doubtful),
            may_retry=error.may_pass and answer.headers.get("x-should-retry") != "false",
            asked_seconds=http.retry_after_seconds(answer.headers),
        )

    async def _get(self, url: str) -> bytes | None:
        async with asyncio.timeout(min(_LOOK_SECONDS, self._deadline)):
            answer = await self._connections.send("GET", url, headers=self._headers)
            try:
                return await answer.aread() if answer.is_success else None
            finally:
                await answer.aclose()

    def _failure(self, trouble: http.NetworkTrouble) -> http.FailedTry:
        host = self.address.host
        if trouble.kind is http.TroubleCause.ADDRESS:
            return http.FailedTry(
                error=ModelRefused(f"{host} cannot be called: check the base URL")
            )
        if trouble.kind is http.TroubleCause.LATE:
            late = (
                f"{host} did not answer within {self._deadline:g} s: try again later, or raise "
                "models.deadline_seconds"
            )
            return http.FailedTry(error=ModelUnavailable(late, prompt_read=True))
        if trouble.kind is http.TroubleCause.UNREACHABLE:
            unreachable = f"{host} cannot be reached: check the network and the base URL"
            return http.FailedTry(error=ModelUnavailable(unreachable), may_retry=True)
        return http.FailedTry(error=self._early_end(trouble.name), may_retry=True)

    def _early_end(self, how: str) -> ModelError:
        early = f"{self.address.host} ended its reply early ({how}): try again"
        return ModelUnavailable(early, prompt_read=True)


async def _read_into(content: bytearray, answer: httpx2.Response) -> None:
    async for piece in answer.aiter_bytes():
        content += piece
        if len(content) >= _ERROR_MAX_BYTES:
            return
