"""HTTP for models and embedders: connections, retries, and failures of the network.

The HTTP driver's own errors contain the request, so this module replaces them by a
`NetworkTrouble`. The first request imports the driver. A client is closed with its event loop."""

from __future__ import annotations

import asyncio
import email.utils
import random
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from recollect.errors import MissingExtra

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")

_LONGEST_ASKED_SECONDS: Final = 86_400.0  # a longer pause is an error of the server


class TroubleCause(Enum):
    """Why the server did not answer."""

    ADDRESS = "the address cannot be used"
    UNREACHABLE = "no server answers at the address"
    LATE = "the answer did not arrive in time"
    BROKEN = "the connection broke off"


@dataclass(frozen=True, slots=True)
class NetworkTrouble:
    """A failure of the network, without the request that the driver's error contains."""

    kind: TroubleCause
    name: str
    """Name of the driver's error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedTry:
    """A failed attempt: the error to raise, and whether a retry may help."""

    error: Exception
    may_retry: bool = False
    asked_seconds: float | None = None
    """Number of seconds that the server asks clients to wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How often to retry, and how long to pause."""

    times: int = 2
    first_seconds: float = 0.5
    longest_seconds: float = 5.0

    def pause(self, tried: int) -> float:
        """Return a random pause, so that clients do not all retry at the same time."""
        factor = random.uniform(1.0, 2.0)  # noqa: S311
        return min(self.longest_seconds, self.first_seconds * 2.0**tried * factor)


async def try_again(
    once: Callable[[], Awaitable[T | FailedTry]], *, retries: Retries, until: float
) -> T:
    """Return the first successful result. No pause lasts beyond `until` (monotonic). A pause is at
    least Recollect's own, even if the server asks for none, because many clients that retry at once
    would keep an overloaded server down."""
    tried = 0
    while True:
        result = await once()
        if not isinstance(result, FailedTry):
            return result
        pause = max(result.asked_seconds or 0.0, retries.pause(tried))
        late = time.monotonic() + pause >= until
        if not result.may_retry or tried >= retries.times or late:
            raise result.error
        await asyncio.sleep(pause)
        tried += 1


async def attempt(work: Awaitable[T]) -> T | NetworkTrouble:
    """Return the result of the work, or the failure of the network."""
    try:
        return await work
    except TimeoutError as error:
        return NetworkTrouble(TroubleCause.LATE, type(error).__name__)
    except Exception as error:
        cause = _cause(error)
        if cause is None:
            raise
        return NetworkTrouble(cause, type(error).__name__)


def _cause(error: Exception) -> TroubleCause | None:
    """Classify an error of the driver; return None for any other error. The driver is not imported
    here, because that takes 0.1 s, and the work has already imported it in a thread."""
    httpx2 = sys.modules.get("httpx2")
    if httpx2 is None:
        return None
    if isinstance(error, httpx2.InvalidURL | httpx2.UnsupportedProtocol):
        return TroubleCause.ADDRESS
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
        return TroubleCause.UNREACHABLE
    if isinstance(error, httpx2.TimeoutException):
        return TroubleCause.LATE
    return TroubleCause.BROKEN if isinstance(error, httpx2.HTTPError) else None


class _LoopClient(NamedTuple):
    client: httpx2.AsyncClient
    keeper: AsyncGenerator[httpx2.AsyncClient, None]


@dataclass(slots=True, kw_only=True, eq=False)
class Connections:
    """Connections to one server, with one client per event loop."""

    feature: str
    """Name of the feature that needs the HTTP driver, for an error message."""
    connect_seconds: float
    read_seconds: float | None
    idle: int
    """Maximum number of connections that stay open without a request."""
    _lines: PerLoop[_LoopClient] = field(default_factory=lambda: PerLoop(), init=False)

    async def send(
        self, method: str, url: str, *, headers: Mapping[str, str], content: bytes | None = None
    ) -> httpx2.Response:
        """Send a request, and return the response without its body. Raises the driver's errors."""
        client = await self._client()
        request = client.build_request(method, url, headers=dict(headers), content=content)
        request.url = _quiet_url()(request.url)
        return await client.send(request, stream=True)

    async def close(self) -> None:
        """Close the connections of this event loop. The next call opens new connections."""
        line = self._lines.pop()
        if line is not None:
            await line.keeper.aclose()

    async def _client(self) -> httpx2.AsyncClient:
        line = self._lines.get()
        if line is None:
            keeper = self._keep()
            new_client = _LoopClient(await anext(keeper), keeper)
            # another task may have been first while the driver was imported
            line = self._lines.put(new_client)
            if line is not new_client:
                await keeper.aclose()
        return line.client

    async def _keep(self) -> AsyncGenerator[httpx2.AsyncClient, None]:
        httpx2 = await asyncio.to_thread(import_driver, self.feature)
        timeout = httpx2.Timeout(self.read_seconds, connect=self.connect_seconds)
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=self.idle)
        verify = await asyncio.to_thread(certificates)
        async with httpx2.AsyncClient(timeout=timeout, limits=limits, verify=verify) as client:
            yield client


class PerLoop(Generic[T]):
    """One value per running event loop. The values of closed loops are dropped."""

    def __init__(self) -> None:
        self._values: dict[asyncio.AbstractEventLoop, T] = {}

    def get(self) -> T | None:
        return self._values.get(asyncio.get_running_loop())

    def put(self, value: T) -> T:
        """Store a value for this loop, unless another task has. Return the stored value."""
        for closed_loop in [loop for loop in self._values if loop.is_closed()]:
            del self._values[closed_loop]
        return self._values.setdefault(asyncio.get_running_loop(), value)

    def pop(self) -> T | None:
        return self._values.pop(asyncio.get_running_loop(), None)


def import_driver(feature: str) -> Any:
    """Import the HTTP driver. Raise MissingExtra if the driver is not installed."""
    try:
        import httpx2
    except ImportError as error:
        raise MissingExtra(feature=feature, extra="remote") from error
    return httpx2


def is_sendable_key(key: str) -> bool:
    """Return False if a header cannot contain this key: the driver's error would quote it."""
    return key.isascii() and key.isprintable() and " " not in key


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """Return the pause in seconds that a server's headers ask for; None if they do not."""
    if "retry-after-ms" in headers:
        return read_seconds(headers["retry-after-ms"], per=1000.0)
    after = headers.get("retry-after")
    if after is None:
        return None
    seconds = read_seconds(after)
    if seconds is not None:
        return seconds
    try:
        return max(0.0, email.utils.parsedate_to_datetime(after).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def read_seconds(text: str, *, per: float = 1.0) -> float | None:
    """Parse a number of seconds; None if it is invalid or more than a day."""
    try:
        seconds = float(text) / per
    except ValueError:
        return None
    return seconds if 0 <= seconds < _LONGEST_ASKED_SECONDS else None


@cache
def certificates() -> Any:
    """Load the trusted certificates once per process: loading takes longer than a connection."""
    import httpx2

    return httpx2.create_ssl_context()


@cache
def _quiet_url() -> type[httpx2.URL]:
    import httpx2

    class QuietURL(httpx2.URL):
        def __str__(self) -> str:
            return str(httpx2.URL(self).copy_with(userinfo=b"", query=None))

    return QuietURL
