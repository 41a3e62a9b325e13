"""Calls over HTTP to a provider of models: bounded, tried again where that helps, told plainly.

Owns the client, the deadline and the retries. One client an event loop, closed with it. Never
lets a key or a provider's own words into an error or a log; the driver's errors end here, for they
hold the request. Always holds: nothing is tried again once a byte of the reply has arrived, or when
the request can never succeed; a call ends within its deadline, a stream within a deadline of
silence.
"""

from __future__ import annotations

import asyncio
import email.utils
import random
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from urllib.parse import SplitResult, urlsplit, urlunsplit

from recollect.errors import (
    FormatError,
    MissingExtra,
    ModelError,
    ModelOverflow,
    ModelRefused,
    ModelUnavailable,
)
from recollect.formats.json_text import decode, encode
from recollect.formats.replies import read_error
from recollect.providers.overflow import recognise_overflow, recognise_pairing_error

if TYPE_CHECKING:
    import httpx


# Where a provider is reached: its own server, or another that speaks its wire.
#
# Owns the rule for base URLs. Never shows what may be secret in one: a password before the host,
# a key in the query.
#
# The rule: with a version anywhere in its path (`/v1`, `/v1beta/openai`) a base URL is taken as it
# is; without one, `/v1` is added. A trailing slash and a whole endpoint's path are forgiven.


_VERSION: Final = re.compile(r"v\d+\w*")
_ENDPOINTS: Final = ("/chat/completions", "/completions", "/responses", "/messages", "/models")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A server."""

    shown: str
    """Host and port, for errors."""
    own: bool
    """Whether it is the provider itself, which is known to take everything it documents."""
    _parts: SplitResult = field(repr=False)

    def url(self, path: str) -> str:
        """The whole address of an endpoint below the version, such as `/models`."""
        return urlunsplit(self._parts._replace(path=self._parts.path + path))

    def root_url(self, path: str) -> str:
        """The same beside the version: where llama.cpp has its `/props`."""
        head, _, last = self._parts.path.rpartition("/")
        kept = head if _VERSION.fullmatch(last) else self._parts.path
        return urlunsplit(self._parts._replace(path=kept + path))


def read_address(base_url: str | None, *, own: str) -> Address:
    """The server of this base URL; None, or the provider's own URL: the provider's own."""
    parts = _versioned(base_url or own)
    return Address(shown=_shown(parts), own=parts == _versioned(own), _parts=parts)


def _versioned(url: str) -> SplitResult:
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
        raise ModelRefused("the base URL of the model is no http:// or https:// address: mend it")
    return parts


def _shown(parts: SplitResult) -> str:
    return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)


# A key into the headers of a call.
#
# Never shows a key. Always holds: what cannot be a key is refused before the driver sees it, for
# the driver quotes a header that it cannot send.


def bearer(key: str | None) -> dict[str, str]:
    """The header that OpenAI and servers of its wires take; none without a key."""
    return {"Authorization": f"Bearer {checked(key)}"} if key and key.strip() else {}


def checked(key: str) -> str:
    """The key without the blanks around it; ModelRefused where it can be none."""
    key = key.strip()
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ModelRefused("the model's key holds characters that no key has: set it anew")
    return key


def sendable(headers: Mapping[str, str] | None) -> dict[str, str]:
    """Headers of the caller's own; ModelRefused where one cannot be sent."""
    for name, value in (headers or {}).items():
        if not (name.isascii() and value.isascii() and value.isprintable()):
            raise ModelRefused(f"the header {name!r} holds characters that none may hold")
    return dict(headers or {})


# How often a call is tried again, and how long it waits in between.
#
# Owns numbers and how a provider's wish to wait is read; `calls.py` decides whether to try again.


_LONGEST_ASKED_SECONDS: Final = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How often a call is tried again, and how long it waits in between."""

    times: int = 2
    first_seconds: float = 0.5
    longest_seconds: float = 5.0

    def pause(self, tried: int) -> float:
        """Before the next try; drawn, so that many who wait do not come back together."""
        drawn = random.uniform(1.0, 2.0)  # noqa: S311
        return min(self.longest_seconds, self.first_seconds * 2.0**tried * drawn)


def asked_to_wait(headers: Mapping[str, str]) -> float | None:
    """Seconds that the provider asks to wait, by whichever header; None where it does not."""
    if "retry-after-ms" in headers:
        return _seconds(headers["retry-after-ms"], per=1000.0)
    after = headers.get("retry-after")
    if after is None:
        return None
    seconds = _seconds(after)
    if seconds is not None:
        return seconds
    try:
        return max(0.0, email.utils.parsedate_to_datetime(after).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _seconds(text: str, *, per: float = 1.0) -> float | None:
    try:
        seconds = float(text) / per
    except ValueError:
        return None
    return seconds if 0 <= seconds < _LONGEST_ASKED_SECONDS else None


# What the HTTP driver may log of a request: its address without what may be secret in it.
#
# The driver logs every request with its whole address, at a level that many programs show: a key in
# the query, a password before the host. Other requests of the process are not touched.


def hide_secrets(request: httpx.Request) -> httpx.Request:
    """The request, whose address is sent whole and shown without query and password."""
    request.url = _shown_in_part()(request.url)
    return request


@cache
def _shown_in_part() -> type[httpx.URL]:
    """Made when the driver is there: importing it takes long, and it is an extra."""
    import httpx

    class ShownInPart(httpx.URL):
        """An address whose text is for logs; the driver sends by its fields."""

        def __str__(self) -> str:
            return str(httpx.URL(self).copy_with(userinfo=b"", query=None))

    return ShownInPart


# What a provider's error means: an overflow, a refusal for good, or trouble that may pass.
#
# Owns the one classification of errors, whether they come as an HTTP status or inside a stream.
# Never quotes what a provider said: providers echo requests and keys. Codes are shown, letters and
# underscores only. Always holds: the overflow table is asked first; what a format error caused is
# never tried again (the same request fails the same way with any account).


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
class ProviderError:
    """An error as a provider told it."""

    status: int | None
    text: str = field(repr=False)
    body: Mapping[str, Any] | None = field(default=None, repr=False)


def read_told(status: int | None, content: bytes) -> ProviderError:
    """An error response's body, whatever it is."""
    text = content.decode("utf-8", "replace")
    try:
        body = decode(content)
    except FormatError:
        body = None
    if isinstance(body, Mapping):
        return told_in(body, status=status)
    return ProviderError(status=status, text=text)


def told_in(body: Mapping[str, Any], *, status: int | None = None) -> ProviderError:
    """An error object: of a response, a chunk, or an event of a stream."""
    said = read_error(body)
    text = said.message if said is not None else body.get("message")
    code = next((code for code in _codes(body) if code in _STATUS_OF_CODE), None)
    number = _status_inside(body)
    if status is None:
        status = _STATUS_OF_CODE[code] if code is not None else number
    return ProviderError(status=status, text=text if isinstance(text, str) else "", body=body)


def classify(told: ProviderError, *, who: str, doubtful: tuple[str, ...] = ()) -> ModelError:
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


def may_pass(told: ProviderError) -> bool:
    """Whether the same request may succeed in a moment."""
    status = told.status
    spent = any(code in _NO_MORE_MONEY for code in _codes(told.body))
    return status is not None and (status in _PASSING or status >= 500) and not spent


def _advice(told: ProviderError, codes: list[str]) -> str:
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


_CONNECT_SECONDS: Final = 10.0
"""So that an address nobody answers at leaves time to try again."""
_ERROR_MAX_BYTES: Final = 65_536
_LOOK_SECONDS: Final = 5.0
_LAST_BYTES_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A request's body, and the fields of it that the server may not know."""

    fields: Mapping[str, Any] = field(repr=False)
    doubtful: tuple[str, ...] = ()


class Reply:
    """A reply that has begun: its first bytes are here."""

    def __init__(
        self,
        *,
        content_type: str,
        first: bytes,
        pieces: AsyncIterator[bytes],
        held: AsyncExitStack,
    ) -> None:
        self.content_type = content_type
        self._first: bytes | None = first
        self._pieces = pieces
        self._held = held

    async def piece(self, *, within: float) -> bytes | None:
        """The next bytes; None at the end. The driver's errors and TimeoutError pass through."""
        if self._first is not None:
            first, self._first = self._first, None
            return first
        async with asyncio.timeout(within):
            return await anext(self._pieces, None)

    async def close(self) -> None:
        """Give the connection back, or cut it where the reply is not at its end."""
        await self._held.aclose()


class _Line(NamedTuple):
    """What belongs to one event loop."""

    client: httpx.AsyncClient
    keeper: AsyncGenerator[httpx.AsyncClient, None]


class Calls:
    """Asks one server."""

    def __init__(
        self,
        *,
        address: Address,
        headers: Mapping[str, str],
        deadline_seconds: float,
        retries: Retries | None = None,
    ) -> None:
        self._address = address
        self._headers = {"Content-Type": "application/json", **headers}
        self._deadline = deadline_seconds
        self._retries = retries or Retries()
        self._lines: dict[asyncio.AbstractEventLoop, _Line] = {}

    @property
    def who(self) -> str:
        """The server, as errors name it."""
        return self._address.shown

    async def whole(self, path: str, body: Body) -> bytes:
        """A reply to its end, within the deadline."""
        until = time.monotonic() + self._deadline
        reply = await self._begin(path, body, until)
        try:
            pieces: list[bytes] = []
            while True:
                piece = await self._next(reply, within=max(0.0, until - time.monotonic()))
                if piece is None:
                    return b"".join(pieces)
                pieces.append(piece)
        finally:
            await reply.close()

    async def begin(self, path: str, body: Body) -> Reply:
        """A reply whose first bytes have come within the deadline; close it."""
        return await self._begin(path, body, time.monotonic() + self._deadline)

    async def next(self, reply: Reply) -> bytes | None:
        """The next bytes of a reply that was begun; None at its end."""
        return await self._next(reply, within=self._deadline)

    async def end(self, reply: Reply) -> None:
        """Close a reply that has said everything; its connection is kept where it is at its end."""
        import httpx

        with suppress(httpx.HTTPError, TimeoutError):
            await reply.piece(within=_LAST_BYTES_SECONDS)
        await reply.close()

    async def look(self, url: str) -> bytes | None:
        """What is at an address of this server; None where nothing is. Never fails."""
        httpx = await asyncio.to_thread(import_httpx)
        client = await self._client()
        try:
            async with asyncio.timeout(min(_LOOK_SECONDS, self._deadline)):
                request = client.build_request("GET", url, headers=self._headers)
                answer = await client.send(hide_secrets(request))
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError):
            return None
        return bytes(answer.content) if answer.is_success else None

    async def close(self) -> None:
        """Close the connections of this event loop; the next call opens new ones."""
        line = self._lines.pop(asyncio.get_running_loop(), None)
        if line is not None:
            await line.keeper.aclose()

    async def _begin(self, path: str, body: Body, until: float) -> Reply:
        client = await self._client()
        content = await asyncio.to_thread(encode, body.fields)
        tried = 0
        while True:
            begun = await self._once(client, path, content, body.doubtful, until)
            if isinstance(begun, Reply):
                return begun
            pause = max(begun.asked_seconds or 0.0, self._retries.pause(tried))
            late = time.monotonic() + pause >= until
            if not begun.again or tried >= self._retries.times or late:
                raise begun.error
            await asyncio.sleep(pause)
            tried += 1

    async def _once(
        self,
        client: httpx.AsyncClient,
        path: str,
        content: bytes,
        doubtful: tuple[str, ...],
        until: float,
    ) -> Reply | Failure:
        import httpx

        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(max(0.0, until - time.monotonic())):
                    request = client.build_request(
                        "POST", self._address.url(path), headers=self._headers, content=content
                    )
                    answer = await client.send(hide_secrets(request), stream=True)
                    held.push_async_callback(answer.aclose)
                    if not answer.is_success:
                        return await self._failed(answer, doubtful)
                    pieces = cast("AsyncGenerator[bytes, None]", answer.aiter_bytes())
                    held.push_async_callback(pieces.aclose)
                    first = await anext(pieces, None)
            except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
                return self._broken(error)
            if first is None:
                return Failure(error=self._torn("ended it before its first byte"), again=True)
            return Reply(
                content_type=answer.headers.get("content-type", ""),
                first=first,
                pieces=pieces,
                held=held.pop_all(),
            )

    async def _failed(self, answer: httpx.Response, doubtful: tuple[str, ...]) -> Failure:
        import httpx

        content = b""
        try:
            async for piece in answer.aiter_bytes():
                content += piece
                if len(content) >= _ERROR_MAX_BYTES:
                    break
        except httpx.HTTPError:
            pass  # what has come of the error has to do
        told = read_told(answer.status_code, content)
        return Failure(
            error=classify(told, who=self._address.shown, doubtful=doubtful),
            again=may_pass(told) and answer.headers.get("x-should-retry") != "false",
            asked_seconds=asked_to_wait(answer.headers),
        )

    def _broken(self, error: Exception) -> Failure:
        import httpx

        who = self._address.shown
        if isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol):
            return Failure(error=ModelRefused(f"{who} cannot be asked: check the base URL"))
        if isinstance(error, TimeoutError):
            late = (
                f"{who} did not answer within {self._deadline:g} s: try again later, or allow more"
            )
            return Failure(error=ModelUnavailable(late))
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            away = f"{who} cannot be reached: check the network and the base URL"
            return Failure(error=ModelUnavailable(away), again=True)
        return Failure(error=self._torn(type(error).__name__), again=True)

    async def _next(self, reply: Reply, *, within: float) -> bytes | None:
        import httpx

        piece, broken = None, None
        try:
            piece = await reply.piece(within=within)
        except (httpx.HTTPError, TimeoutError) as error:
            broken = self._broken(error).error
        if broken is not None:
            raise broken
        return piece

    def _torn(self, how: str) -> ModelError:
        return ModelUnavailable(f"{self._address.shown} broke off its reply ({how}): try again")

    async def _client(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        line = self._lines.get(loop)
        if line is None:
            for gone in [known for known in self._lines if known.is_closed()]:
                del self._lines[gone]
            keeper = _kept()
            made = _Line(client=await anext(keeper), keeper=keeper)
            # Another task may have been quicker while the driver was imported.
            line = self._lines.setdefault(loop, made)
            if line is not made:
                await keeper.aclose()
        return line.client


async def _kept() -> AsyncGenerator[httpx.AsyncClient, None]:
    """A client that an event loop closes when it ends, as it does with every generator."""
    httpx = await asyncio.to_thread(import_httpx)
    # The deadline is kept here, over all tries: the driver only bounds connecting.
    timeout = httpx.Timeout(None, connect=_CONNECT_SECONDS)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=8)
    verify = await asyncio.to_thread(_certificates)
    async with httpx.AsyncClient(timeout=timeout, limits=limits, verify=verify) as client:
        yield client


@cache
def _certificates() -> Any:
    """Whom to trust: read once a process, for it takes longer than a connection."""
    return import_httpx().create_ssl_context()


def import_httpx() -> Any:
    """The driver; MissingExtra where it is not installed."""
    try:
        import httpx
    except ImportError as error:
        raise MissingExtra(feature="a model over HTTP", extra="remote") from error
    return httpx
