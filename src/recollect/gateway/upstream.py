"""The providers behind the gateway: one request out, its reply in, byte for byte.

Owns connections and headers. A reply is handed on as it arrives and never decoded here: what is
compressed stays compressed, and reading stops while the client does not take more. Requests go to
the configured base URLs and to nobody else.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from recollect.config.settings import GatewaySettings
from recollect.errors import MissingExtra, SettingsError, UpstreamUnreachable

if TYPE_CHECKING:
    import aiohttp

Family: TypeAlias = Literal["anthropic", "openai"]
Headers: TypeAlias = Sequence[tuple[str, str]]

OWN_HEADERS: Final = "x-recollect-"
"""What begins like this is meant for the gateway and goes no further."""
_HOP_BY_HOP: Final = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"}
    | {"te", "trailer", "transfer-encoding", "upgrade", "host", "content-length", "expect"}
)
"""They belong to one connection; the next one makes its own."""
_ADDED_BY_CLIENT: Final = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
"""Headers that aiohttp would add of itself where the agent sent none."""
STALE_SECONDS: Final = 1.0
"""An idle connection that was closed shows within this; later the request may have been heard."""
READ_BYTES: Final = 65_536
"""What is read ahead of a client that takes its time; twice that, and reading pauses."""


def forwarded(headers: Iterable[tuple[str, str]], *, without: Sequence[str] = ()) -> Headers:
    """The headers that go on to the provider."""
    listed = {
        name.strip().lower()
        for key, value in (pair for pair in headers if pair[0].lower() == "connection")
        for name in value.split(",")
    }
    dropped = _HOP_BY_HOP | listed | set(without)
    return [
        (name, value)
        for name, value in headers
        if name.lower() not in dropped and not name.lower().startswith(OWN_HEADERS)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingRequest:
    """A request to a provider."""

    family: Family
    method: str
    target: str
    """Path and query as the client wrote them, such as `/v1/messages?beta=true`."""
    headers: Headers = field(repr=False)
    body: bytes = field(repr=False)


class UpstreamReply:
    """A provider's reply that has begun: status and headers are here, the body comes."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers: Headers = [
            (name, value)
            for name, value in (
                (raw.decode("latin-1"), text.decode("latin-1"))
                for raw, text in response.raw_headers
            )
            if name.lower() not in _HOP_BY_HOP or name.lower() == "content-length"
        ]

    def header(self, name: str) -> str:
        """The value of a header; empty where there is none."""
        return str(self._response.headers.get(name, ""))

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes, piece by piece; UpstreamUnreachable where it breaks off."""
        import aiohttp

        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UpstreamUnreachable(
                f"the provider's reply broke off ({_named(error)})"
            ) from error

    async def whole(self) -> bytes:
        """All of the body: for replies that are short by nature, such as errors."""
        return b"".join([chunk async for chunk in self.chunks()])

    def close(self) -> None:
        """End the exchange; a provider that is still sending sees its connection closed."""
        self._response.close()


class Upstreams:
    """Connections to the providers; open it in the event loop that uses it."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        given = {"anthropic": settings.upstream.anthropic, "openai": settings.upstream.openai}
        self._bases: dict[str, str] = {
            family: _checked(family, url) for family, url in given.items() if url
        }
        # A proxy is taken from the environment; passwords for hosts (.netrc) are not: keys are the
        # client's.
        self._proxies = {family: _proxy(url) for family, url in self._bases.items()}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        try:
            import aiohttp
        except ImportError:
            raise MissingExtra(feature="the gateway", extra="gateway") from None
        self._session = aiohttp.ClientSession(
            auto_decompress=False,
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=READ_BYTES,
            skip_auto_headers=_ADDED_BY_CLIENT,
            timeout=aiohttp.ClientTimeout(
                total=None,
                sock_connect=self._settings.connect_seconds,
                sock_read=self._settings.silence_seconds,
            ),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    def serves(self, family: Family) -> bool:
        """Whether a provider of this family is configured."""
        return family in self._bases

    def url(self, family: Family, target: str) -> str:
        """Where a request of the client's goes.

        Base URLs are written as the providers' own clients want them: OpenAI's with the version,
        Anthropic's without; one that has it the other way round is understood.
        """
        base = self._bases[family]
        versioned = target == "/v1" or target.startswith(("/v1/", "/v1?"))
        has_path = urlsplit(base).path not in ("", "/")
        if versioned and (base.endswith("/v1") or (family == "openai" and has_path)):
            target = target.removeprefix("/v1")
        return base + target

    async def send(self, request: OutgoingRequest) -> UpstreamReply:
        """Send a request; returns when the provider has begun to answer.

        A connection that turns out at once to be closed by the provider is replaced, once.
        UpstreamUnreachable where nobody answers.
        """
        import aiohttp
        from multidict import CIMultiDict
        from yarl import URL

        assert self._session is not None
        url = URL(self.url(request.family, request.target), encoded=True)
        headers = CIMultiDict(request.headers)
        begun = time.monotonic()
        while True:
            try:
                response = await self._session.request(
                    request.method,
                    url,
                    headers=headers,
                    data=request.body or None,
                    allow_redirects=False,
                    proxy=self._proxies.get(request.family),
                )
            except (aiohttp.ServerDisconnectedError, ConnectionResetError) as error:
                if time.monotonic() - begun > STALE_SECONDS:
                    raise self._unreachable(request.family, error) from error
                begun -= STALE_SECONDS  # once
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                raise self._unreachable(request.family, error) from error
            else:
                return UpstreamReply(response)

    def _unreachable(self, family: Family, error: BaseException) -> UpstreamUnreachable:
        host = urlsplit(self._bases[family]).netloc.rpartition("@")[2]
        return UpstreamUnreachable(f"{host} cannot be reached ({_named(error)})")


def _named(error: BaseException) -> str:
    """An error by its kind: its text may quote an address with a key in it."""
    return type(error).__name__


def _proxy(url: str) -> str | None:
    """The proxy that the environment names for an address."""
    parts = urlsplit(url)
    if proxy_bypass(parts.hostname or ""):
        return None
    return getproxies().get(parts.scheme)


def _checked(family: str, url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise SettingsError(
            f"gateway.upstream.{family} is no http:// or https:// address without a query: mend it"
        )
    return url.rstrip("/")
