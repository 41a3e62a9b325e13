"""Sends requests to providers, and relays their replies byte for byte. A reply is relayed as it
arrives, and reading pauses while the client accepts no more. Afterwards, memory reads the reply in
a thread. Requests go only to the base URLs in the settings."""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
import zlib
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import msgspec

from recollect.adapters.providers.overflow import recognize_overflow
from recollect.core.boundary import Failure, guarded
from recollect.core.formats.json_text import decode
from recollect.core.formats.replies import read_error
from recollect.errors import FormatError, SettingsError, UpstreamUnreachable
from recollect.hosts.gateway import credentials
from recollect.hosts.gateway.credentials import OWN_HEADERS, Headers
from recollect.system.config.settings import GatewaySettings
from recollect.system.loopback import is_this_machine

if TYPE_CHECKING:
    import aiohttp

Family: TypeAlias = Literal["anthropic", "openai"]
_HOP_BY_HOP: Final = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"}
    | {"te", "trailer", "transfer-encoding", "upgrade", "host", "content-length", "expect"}
)
"""Headers for one connection only, which a proxy must not forward."""
_ADDED_BY_CLIENT: Final = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
"""Headers that aiohttp would add to an agent's request."""
CONNECT_SECONDS: Final = 10.0  # not measured; clients have longer timeouts
SILENCE_SECONDS: Final = 600.0
"""Time limit for a provider or a client that sends and accepts no data."""
STALE_SECONDS: Final = 1.0
"""Within this time, a failure on an idle connection means that the server had closed it, and the
request is sent again. Later, the provider may already have received the request."""
READ_BYTES: Final = 65_536
"""Number of bytes to read ahead for a slow client. Reading a reply pauses at twice this number."""

_KEY_HEADERS: Final = frozenset({"authorization", "x-api-key", "api-key"})
"""Headers in which clients send a provider its key."""
LOG: Final = logging.getLogger(__name__)


def headers_to_forward(
    headers: Iterable[tuple[str, str]], *, removed_names: Sequence[str] = ()
) -> Headers:
    listed_names = {
        name.strip().lower()
        for key, value in (pair for pair in headers if pair[0].lower() == "connection")
        for name in value.split(",")
    }
    dropped_names = _HOP_BY_HOP | listed_names | set(removed_names)
    return [
        (name, value)
        for name, value in headers
        if name.lower() not in dropped_names and not name.lower().startswith(OWN_HEADERS)
    ]


class UpstreamReply:
    """A provider's reply that has begun: its status and headers have arrived, its body follows."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status: int = response.status
        dropped_names = _HOP_BY_HOP - {"content-length"}
        self.raw_headers: list[tuple[bytes, bytes]] = [
            (name, value)
            for name, value in response.raw_headers
            if name.decode("latin-1").lower() not in dropped_names
        ]

    def header(self, name: str) -> str:
        return str(self._response.headers.get(name, ""))

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body in chunks. Raise UpstreamUnreachable if the connection ends early."""
        import aiohttp

        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UpstreamUnreachable(
                f"the provider's reply broke off ({failure_reason(error)})"
            ) from error

    async def read_whole(self) -> bytes:
        """Return the whole body, for short replies such as summaries."""
        body, is_whole = await _begin(self.chunks(), MOST_BYTES)
        if not is_whole:
            raise FormatError(f"the provider's reply is larger than {MOST_BYTES:,} bytes")
        return body

    def close(self) -> None:
        """End the exchange. If the provider is still sending, close the connection."""
        self._response.close()


class Upstreams:
    """Connections to the providers. Open this object in the event loop that uses it."""

    def __init__(
        self, settings: GatewaySettings, *, notify: Callable[[str], None] | None = None
    ) -> None:
        """Check the base URLs. `notify` gets sentences for a person, which are otherwise logged."""
        self._notify = notify or LOG.warning
        self._any_key = settings.upstream.any_key
        self._away: set[str] = set()
        self._bases: dict[str, str] = {
            family: _require_url(family, url)
            for family in ("anthropic", "openai")
            if (url := getattr(settings.upstream, family))
        }
        # Read proxies from the environment, but no passwords from .netrc: clients send their keys.
        self._proxies = {family: _proxy(url) for family, url in self._bases.items()}
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        import aiohttp

        self._session = aiohttp.ClientSession(
            auto_decompress=False,
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=READ_BYTES,
            skip_auto_headers=_ADDED_BY_CLIENT,
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS
            ),
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def serves(self, family: Family) -> bool:
        return family in self._bases

    def owner(self, family: Family) -> str | None:
        """Return the provider that has the upstream's domain; None for other servers."""
        host = credentials.PROVIDER_HOSTS.fullmatch(urlsplit(self._bases[family]).hostname or "")
        return None if host is None else host.lastgroup

    def stranger(self, family: Family, headers: Headers, query: str, path: str) -> str | None:
        """Return a provider to which this upstream does not belong, but a key or the path of a
        request does. An upstream on this machine gets keys of every provider."""
        owner = self.owner(family)
        if owner is None and self._any_key:
            return None
        api = credentials.api_of(path)
        if api not in (None, owner) and (owner is not None or api != "azure"):
            return api  # proxies have Azure's paths too, because bodies are OpenAI's there
        if owner is None and is_this_machine(urlsplit(self._bases[family]).hostname or ""):
            return None
        kept_headers = self._without_proxy_keys(family, headers)
        named_providers = credentials.key_providers(kept_headers, query, path)
        return min(named_providers - self._issuers(family), default=None)

    def _issuers(self, family: Family) -> set[str]:
        """The providers whose keys this upstream gets."""
        owner = self.owner(family)
        own_providers = {owner or family}
        if owner not in ("anthropic", "openai"):  # other servers have keys of every form
            own_providers.add(credentials.UNKNOWN_PROVIDER)
        return own_providers

    def _without_proxy_keys(self, family: Family, headers: Headers) -> Headers:
        """Leave out what a proxy before the gateway reads, if a provider gets a key of its own
        too. A server of the user's may be the proxy that needs it."""
        if self.owner(family) is None:
            return headers
        own_providers = self._issuers(family)
        kept_headers = [
            pair for pair in headers if not credentials.is_key_of_others(*pair, own_providers)
        ]
        has_own_key = any(name.lower() in _KEY_HEADERS for name, _ in kept_headers)
        return kept_headers if has_own_key else headers

    def url(self, family: Family, target: str) -> str:
        """Return the URL of a request. The base URL may or may not end with the API version."""
        base = self._bases[family]
        versioned = target == "/v1" or target.startswith(("/v1/", "/v1?"))
        has_path = urlsplit(base).path not in ("", "/")
        if versioned and (base.endswith("/v1") or (family == "openai" and has_path)):
            target = target.removeprefix("/v1")
        return base + target

    async def send(
        self, family: Family, method: str, target: str, headers: Headers, body: bytes
    ) -> UpstreamReply:
        """Send a request, and return when the reply begins. If an idle connection was closed, send
        the request again. `target` is path and query, such as `/v1/messages?beta=true`."""
        import aiohttp
        from multidict import CIMultiDict
        from yarl import URL

        assert self._session is not None
        url = URL(self.url(family, target), encoded=True)
        started = time.monotonic()
        while True:
            try:
                response = await self._session.request(
                    method,
                    url,
                    headers=CIMultiDict(self._without_proxy_keys(family, headers)),
                    data=body or None,
                    allow_redirects=False,
                    proxy=self._proxies.get(family),
                )
            except (aiohttp.ServerDisconnectedError, ConnectionResetError) as error:
                if time.monotonic() - started > STALE_SECONDS:
                    raise self._unreachable(family, error) from error
                started -= STALE_SECONDS  # retry only once
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                raise self._unreachable(family, error) from error
            else:
                host = self._host(family)
                if host in self._away:
                    self._away.discard(host)
                    self._notify(f"the provider at {host} is back")
                return UpstreamReply(response)

    def _host(self, family: Family) -> str:
        return urlsplit(self._bases[family]).netloc.rpartition("@")[2]

    def _unreachable(self, family: Family, error: BaseException) -> UpstreamUnreachable:
        host = self._host(family)
        reason = f"{host} cannot be reached ({failure_reason(error)})"
        if host not in self._away:
            self._away.add(host)
            self._notify(
                f"the provider at {reason}: requests are answered with 502 until it is back"
            )
        return UpstreamUnreachable(reason)


def failure_reason(error: BaseException) -> str:
    """Return why the provider did not answer. The error's own text may quote a URL with a key."""
    import aiohttp

    match error:
        case aiohttp.ClientProxyConnectionError() | aiohttp.ClientHttpProxyError():
            return "the proxy cannot be reached"
        case aiohttp.ClientConnectorDNSError() | socket.gaierror():
            return "its host name was not found"
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ServerFingerprintMismatch():
            return "its certificate is not trusted"
        case aiohttp.ClientSSLError():
            return "no TLS connection could be established"
        case TimeoutError():
            return "no answer in time"
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientPayloadError():
            return "it closed the connection"
        case OSError(errno=int(number)):
            return os.strerror(number).lower()
    return f"unknown reason: {type(error).__name__}"


def _proxy(url: str) -> str | None:
    parts = urlsplit(url)
    if proxy_bypass(parts.hostname or ""):
        return None
    return getproxies().get(parts.scheme)


def _require_url(family: str, url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise SettingsError(
            f"gateway.upstream.{family} must be an http:// or https:// URL without a query string"
        )
    return url.rstrip("/")


MOST_BYTES: Final = 64_000_000
"""Size limit of one request or reply that is read, as it came and after each decompression."""
MAX_RATIO: Final = 200
"""A coding may multiply a body of more than FREE_BYTES by this at most. JSON of long conversations
shrinks to a tenth; a body of spaces to a thousandth with gzip, and to a millionth with zstd."""
FREE_BYTES: Final = 1_000_000  # not measured; a small body is harmless at any ratio
MAX_CODINGS: Final = 2
"""No client is known that uses two codings. Each one takes time and RAM."""
MAX_WINDOW_LOG: Final = 23
"""zstd may refer back 8 MB, as RFC 9659 allows for HTTP. The decoder reserves so much RAM."""
MAX_ERROR_BYTES: Final = 65_536
"""A provider's refusal of a request as too large is shorter. Longer errors are only relayed."""

SHORT_BYTES: Final = 32_768  # not measured; longer replies are not kept
LARGEST_PEEK: Final = 16_384
"""The first event of a stream is read before it is relayed, unless it has more bytes than this."""
_CODINGS: Final = frozenset({"identity", "gzip", "x-gzip", "deflate", "br", "zstd"})
_OPENING_EVENTS: Final = frozenset({"response.created", "response.queued", "response.in_progress"})


class KeptReply:
    """The bytes of one reply, as the client received them."""

    def __init__(self, content_type: str, coding: str) -> None:
        self.streamed: bool = "event-stream" in content_type
        self._coding = coding.strip().lower()
        self._chunks: list[bytes] = []
        self._size = 0

    def add(self, chunk: bytes) -> None:
        self._size += len(chunk)
        self._chunks.append(chunk)
        if self._size > MOST_BYTES:
            self._chunks.clear()

    @property
    def is_short(self) -> bool:
        """True if reading the reply takes less time than starting a thread."""
        return self._size <= SHORT_BYTES

    def read(self) -> Any:
        """Return the argument for `observe`: a stream's complete events, or the bytes of the JSON
        body. Raise FormatError if the reply cannot be read."""
        if self._size > MOST_BYTES:
            raise FormatError(
                f"the provider's reply is larger than {MOST_BYTES:,} bytes, so it is not stored"
            )
        body = decompress(b"".join(self._chunks), self._coding, must_be_complete=not self.streamed)
        return events_of(body) if self.streamed else body


def events_of(body: bytes) -> list[Any]:
    """Return the JSON events of a server-sent stream, without `[DONE]` and comments."""
    events: list[Any] = []
    for block in body.replace(b"\r\n", b"\n").split(b"\n\n"):
        data = b"\n".join(
            line[5:].removeprefix(b" ") for line in block.split(b"\n") if line[:5] == b"data:"
        )
        if not data or data == b"[DONE]":
            continue
        try:
            events.append(msgspec.json.decode(data))
        except msgspec.DecodeError:  # the event was cut off
            continue
    return events


def decompress(
    body: bytes, coding: str, *, must_be_complete: bool = True, max_bytes: int = MOST_BYTES
) -> bytes:
    """Decompress a body. Raise FormatError for one that unpacks to more than `max_bytes`, and with
    `must_be_complete` for a damaged or incomplete one."""
    names = [name.strip() for name in coding.lower().split(",") if name.strip()]
    if len(names) > MAX_CODINGS:
        raise FormatError(f"a body with {len(names)} content codings is not decompressed")
    for name in reversed(names):
        if name not in _CODINGS:
            raise FormatError(f"the content coding {name!r} is not supported")
        limit = min(max_bytes, max(FREE_BYTES, MAX_RATIO * len(body)))
        unpacked_body = guarded(partial(_unpack, body, name, limit))
        if not isinstance(unpacked_body, Failure):
            body = unpacked_body
            if len(body) > limit:
                raise FormatError(f"a body of more than {limit:,} bytes is not decompressed")
        elif must_be_complete:
            raise FormatError(f"a body is marked as {name}, but cannot be decoded as such")
        else:
            return b""
    return body


def _unpack(body: bytes, coding: str, max_bytes: int) -> bytes:
    """Return the decompressed body, or if it is too large, a little more than `max_bytes` of it.
    The provider would also read what follows a body's end, so nothing may."""
    if coding == "identity":
        return body
    if coding == "br":
        import brotli  # type: ignore[import-untyped]

        return bytes(brotli.Decompressor().process(body, output_buffer_limit=max_bytes + 1))
    bits = 31  # for data with a gzip header
    if coding == "deflate":
        bits = -zlib.MAX_WBITS if body[:1] and body[0] & 0x0F != 8 else zlib.MAX_WBITS
    stream: Any = zlib.decompressobj(wbits=bits)
    if coding == "zstd":
        package = "compression" if sys.version_info >= (3, 14) else "backports"
        zstd = import_module(f"{package}.zstd")
        largest = {zstd.DecompressionParameter.window_log_max: MAX_WINDOW_LOG}
        stream = zstd.ZstdDecompressor(options=largest)
    unpacked_body = bytes(stream.decompress(body, max_bytes + 1))
    if stream.unused_data:
        raise FormatError("data follows the end of a compressed body")
    return unpacked_body


def first_event(first_bytes: bytes, *, after: Collection[str] = ()) -> Any:
    """Return the first complete event whose type is not in `after`; None if there is none yet. A
    comment counts as an event."""
    complete_events, end, _ = first_bytes.replace(b"\r\n", b"\n").rpartition(b"\n\n")
    if end and first_bytes[:1] == b":":
        return {}
    for event in events_of(complete_events) if end else ():
        if not (isinstance(event, dict) and str(event.get("type")) in after):
            return event
    return None


async def begin_reading(
    reply: UpstreamReply, *, nearly_full: bool
) -> tuple[AsyncIterator[bytes], dict[str, Any] | None]:
    """Before the client sees anything, check whether the provider refuses the request as too large.
    Some providers send status 200 and refuse in the stream's first event. With `nearly_full`, also
    wait for the next event. Return the body in chunks, and the refusal."""
    chunks = reply.chunks()
    coding = reply.header("content-encoding")
    if reply.status >= 400:
        first_bytes, is_whole = await _begin(chunks, MAX_ERROR_BYTES)
        error = _overflow(reply.status, first_bytes, coding) if is_whole else None
        return _after(first_bytes, chunks), error
    if coding or "event-stream" not in reply.header("content-type"):
        return chunks, None
    received = b""
    event = None
    async for chunk in chunks:
        received += chunk
        event = first_event(received, after=_OPENING_EVENTS if nearly_full else ())
        if event is not None or len(received) > LARGEST_PEEK:
            break
    return _after(received, chunks), _size_refusal(event, None)


async def _begin(chunks: AsyncIterator[bytes], max_bytes: int) -> tuple[bytes, bool]:
    """Return a body up to its first chunk beyond `max_bytes`, and whether that is all of it."""
    first_bytes = bytearray()
    async for chunk in chunks:
        first_bytes += chunk
        if len(first_bytes) > max_bytes:
            return bytes(first_bytes), False
    return bytes(first_bytes), True


async def _after(first_bytes: bytes, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if first_bytes:
        yield first_bytes
    async for chunk in chunks:
        yield chunk


def _overflow(status: int, body: bytes, coding: str) -> dict[str, Any] | None:
    try:
        fields = decode(decompress(body, coding, max_bytes=FREE_BYTES))
    except FormatError:
        fields = {"error": {"message": body[:LARGEST_PEEK].decode("utf-8", "replace")}}
    return _size_refusal(fields, status)


def _size_refusal(fields: Any, status: int | None) -> dict[str, Any] | None:
    error = read_error(fields)
    if error is None:
        return None
    overflow = recognize_overflow(status=status, message=error.message, body=error.body)
    return dict(fields) if overflow is not None else None
