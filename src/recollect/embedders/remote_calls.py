"""Calls over HTTP to a provider of embeddings: paced, bounded, tried again, and told plainly.

Owns the client, the pace and what an answer that is none means. One client an event loop, closed
with it. Never lets a key, a text or a provider's own words into an error: providers quote both.
Always holds: a call ends within its patience, with an answer or an `EmbedderError`.
"""

from __future__ import annotations

import asyncio
import email.utils
import json
import random
import threading
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from recollect.errors import EmbedderError, MissingExtra

if TYPE_CHECKING:
    import httpx

_AGAIN: Final = frozenset({408, 425, 429, 500, 502, 503, 504, 529})
_FIRST_WAIT_SECONDS: Final = 0.5
_LONGEST_WAIT_SECONDS: Final = 30.0
_NO_MORE_MONEY: Final = "insufficient_quota"
"""OpenAI's word for a spent account: status 429, but no waiting helps."""


class TooMuch(EmbedderError):  # noqa: N818 - an EmbedderError for whom it reaches
    """A request was refused for its size; a smaller one may pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How long and how often a call is tried, and how many run at once."""

    at_once: int = 4
    timeout_seconds: float = 30.0
    """Of one try: to connect, and between two pieces of the answer."""
    tries: int = 5
    patience_seconds: float = 120.0
    """Of all tries and the waiting between them."""


class Pace:
    """Spreads requests and tokens over the minute; safe from several threads."""

    def __init__(
        self, *, requests_per_minute: int | None = None, tokens_per_minute: int | None = None
    ) -> None:
        self._request_seconds = 60.0 / requests_per_minute if requests_per_minute else 0.0
        self._token_seconds = 60.0 / tokens_per_minute if tokens_per_minute else 0.0
        self._free_at = 0.0
        self._lock = threading.Lock()

    def take(self, tokens: int) -> float:
        """Take a place for so many tokens; how long to wait until it is there."""
        with self._lock:
            now = time.monotonic()
            start = max(now, self._free_at)
            self._free_at = start + max(self._request_seconds, tokens * self._token_seconds)
            return start - now

    def hold(self, seconds: float) -> None:
        """Nobody starts before then: the provider said so."""
        with self._lock:
            self._free_at = max(self._free_at, time.monotonic() + seconds)


@dataclass(frozen=True, slots=True)
class _Line:
    """What belongs to one event loop."""

    client: httpx.AsyncClient
    places: asyncio.Semaphore
    keeper: AsyncGenerator[httpx.AsyncClient, None]


class Caller:
    """Posts JSON to one provider."""

    def __init__(
        self, *, provider: str, key_variable: str | None, pace: Pace, bounds: Bounds
    ) -> None:
        self._provider = provider
        self._key_variable = key_variable
        self._pace = pace
        self._bounds = bounds
        self._lines: dict[asyncio.AbstractEventLoop, _Line] = {}

    async def post(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        body: Mapping[str, Any],
        tokens: int,
        urgent: bool = False,
    ) -> bytes:
        """The answer's bytes. What is urgent waits neither for its place nor for the pace."""
        line = await self._line()
        content = await asyncio.to_thread(_encoded, body)
        if urgent:
            self._pace.take(tokens)
            return await self._tried(line.client, url, headers, content)
        async with line.places:
            await asyncio.sleep(self._pace.take(tokens))
            return await self._tried(line.client, url, headers, content)

    async def close(self) -> None:
        """Close the connections of this event loop; the next call opens new ones."""
        line = self._lines.pop(asyncio.get_running_loop(), None)
        if line is not None:
            await line.keeper.aclose()

    async def _tried(
        self, client: httpx.AsyncClient, url: str, headers: Mapping[str, str], content: bytes
    ) -> bytes:
        started = time.monotonic()
        wait = _FIRST_WAIT_SECONDS
        for left in range(self._bounds.tries - 1, -1, -1):
            answer, silence = await self._once(client, url, headers, content)
            if answer is not None and answer.status_code == 200:
                return answer.content
            asked = None if answer is None else _asked_to_wait(answer)
            if answer is not None and answer.status_code == 429 and asked:
                self._pace.hold(min(asked, _LONGEST_WAIT_SECONDS))
            # Our own pause even where none is asked for: "at once" from a server in trouble,
            # taken at its word by all who wait, would keep it there.
            pause = max(asked or 0.0, random.uniform(wait / 2, wait))  # noqa: S311
            spent = time.monotonic() - started + pause
            hopeless = answer is not None and not _worth_again(answer)
            if hopeless or not left or spent > self._bounds.patience_seconds:
                raise self._error(answer, silence, asked)
            await asyncio.sleep(pause)
            wait = min(wait * 2, _LONGEST_WAIT_SECONDS)
        raise AssertionError("tries is at least one")

    async def _once(
        self, client: httpx.AsyncClient, url: str, headers: Mapping[str, str], content: bytes
    ) -> tuple[httpx.Response | None, str]:
        """An answer, or what kept it away. The driver's errors end here: they hold the request."""
        import httpx

        try:
            async with asyncio.timeout(self._bounds.timeout_seconds * 2):
                return await client.post(url, headers=dict(headers), content=content), ""
        except (httpx.TimeoutException, TimeoutError):
            return None, f"did not answer within {self._bounds.timeout_seconds:g} s"
        except httpx.ConnectError:
            return None, "cannot be reached"
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return None, f"broke off ({type(error).__name__})"

    async def _line(self) -> _Line:
        loop = asyncio.get_running_loop()
        line = self._lines.get(loop)
        if line is None:
            for gone in [held for held in self._lines if held.is_closed()]:
                del self._lines[gone]
            keeper = _kept(self._bounds)
            client = await anext(keeper)
            places = asyncio.Semaphore(self._bounds.at_once)
            # Another task may have been quicker while the driver was imported.
            line = self._lines.setdefault(loop, _Line(client, places, keeper))
            if line.client is not client:
                await keeper.aclose()
        return line

    def _error(
        self, answer: httpx.Response | None, silence: str, asked: float | None
    ) -> EmbedderError:
        if answer is None:
            return EmbedderError(
                f"{self._provider} {silence}: check the network and recall.remote, then try again"
            )
        status = answer.status_code
        said = f"{self._provider} answered {status}"
        if status in (413, 422):
            return TooMuch(f"{said}: it does not take texts of this size or number")
        return EmbedderError(f"{said}: {self._advice(answer, status, asked)}")

    def _advice(self, answer: httpx.Response, status: int, asked: float | None) -> str:
        if status in (401, 403) and self._key_variable is None:
            return "name the variable that holds this server's key as recall.remote.key_variable"
        if status in (401, 403):
            return f"check the key in {self._key_variable}, and that it may use this model"
        if status == 404 or 300 <= status < 400:
            return "check the model's name and the base URL"
        if status == 429 and _code(answer) == _NO_MORE_MONEY:
            return "the account's quota is spent; look at its plan and billing"
        if status == 429:
            later = f" in {asked:.0f} s" if asked else " later"
            return f"too many requests; try again{later}, or lower the rate"
        if status >= 500:
            return "the provider has trouble of its own; try again later"
        return "it refuses the request; check the model's name and its dimensions"


async def _kept(bounds: Bounds) -> AsyncGenerator[httpx.AsyncClient, None]:
    """A client that an event loop closes when it ends, as it does with every generator."""
    httpx = await asyncio.to_thread(import_httpx)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=bounds.at_once)
    timeout = httpx.Timeout(bounds.timeout_seconds)
    async with httpx.AsyncClient(timeout=timeout, limits=limits) as client:
        yield client


def import_httpx() -> Any:
    """The driver; MissingExtra where it is not installed."""
    try:
        import httpx
    except ImportError as error:
        raise MissingExtra(feature="a remote embedder", extra="remote") from error
    return httpx


def _encoded(body: Mapping[str, Any]) -> bytes:
    # A lone surrogate cannot be sent; it becomes a question mark rather than an error.
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


def _worth_again(answer: httpx.Response) -> bool:
    return answer.status_code in _AGAIN and _code(answer) != _NO_MORE_MONEY


def _code(answer: httpx.Response) -> str:
    error = _error_object(answer)
    return str(error.get("code", ""))


def _asked_to_wait(answer: httpx.Response) -> float | None:
    """How long the provider asks to wait: by header, or as Google says it in the body."""
    headers = answer.headers
    if "retry-after-ms" in headers:
        return _seconds(headers["retry-after-ms"], per=1000.0)
    if "retry-after" in headers:
        after = headers["retry-after"]
        seconds = _seconds(after)
        if seconds is not None:
            return seconds
        try:
            return max(0.0, email.utils.parsedate_to_datetime(after).timestamp() - time.time())
        except ValueError:
            return None
    details = _error_object(answer).get("details")
    for detail in details if isinstance(details, list) else ():
        delay = detail.get("retryDelay") if isinstance(detail, dict) else None
        if isinstance(delay, str):
            return _seconds(delay.removesuffix("s"))
    return None


def _seconds(text: str, *, per: float = 1.0) -> float | None:
    try:
        seconds = float(text) / per
    except ValueError:
        return None
    return seconds if 0 <= seconds < 86_400 else None


def _error_object(answer: httpx.Response) -> dict[str, Any]:
    try:
        body = json.loads(answer.content)
    except ValueError:
        return {}
    error = body.get("error") if isinstance(body, dict) else None
    return error if isinstance(error, dict) else {}
