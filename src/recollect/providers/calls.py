"""Calls over HTTP to a provider of models: bounded, tried again where that helps, told plainly.

Owns the client, the deadline and the retries. One client an event loop, closed with it. Never
lets a key or a provider's own words into an error or a log; the driver's errors end here, for they
hold the request. Always holds: nothing is tried again once a byte of the reply has arrived, or when
the request can never succeed; a call ends within its deadline, a stream within a deadline of
silence.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from recollect.errors import MissingExtra, ModelError, ModelRefused, ModelUnavailable
from recollect.formats.json_spans import encode
from recollect.providers.addresses import Address
from recollect.providers.failures import Failure, classify, may_pass, read_told
from recollect.providers.quiet import hide_secrets
from recollect.providers.retries import Retries, asked_to_wait

if TYPE_CHECKING:
    import httpx

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
