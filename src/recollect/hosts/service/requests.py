"""Requests of the API, read and checked; invalid ones raise a Problem that says what is wrong."""

from __future__ import annotations

import asyncio
import hmac
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec

from recollect.core.engine.session import check_session_name
from recollect.core.ports import Store
from recollect.core.values.tenant import ApiKey, Tenant
from recollect.hosts.gateway.asgi import Receive, unless_gone
from recollect.hosts.service import models as m
from recollect.hosts.service.limits import Budgets
from recollect.hosts.service.memories import TenantMemories, TenantMemory
from recollect.hosts.service.problems import Problem, ProblemKind
from recollect.hosts.service.telemetry import RequestRecord

Scope: TypeAlias = MutableMapping[str, Any]
Header: TypeAlias = tuple[bytes, bytes]
Answer: TypeAlias = tuple[int, list[Header], bytes]

_MOST_NAME: Final = 512


@dataclass(slots=True, kw_only=True)
class Incoming:
    """A request before its route is known."""

    method: str
    parts: tuple[str, ...]
    query: str
    headers: dict[str, str]
    target: bytes
    began: float
    record: RequestRecord
    body: bytes = field(default=b"", repr=False)


def read_request(scope: Scope, record: RequestRecord) -> Incoming:
    """A request's line and headers; Problem if they cannot be read."""
    raw = bytes(scope.get("raw_path") or scope["path"].encode("utf-8", "surrogateescape"))
    raw = raw.partition(b"?")[0]
    try:
        parts = tuple(unquote_to_bytes(part).decode() for part in raw.split(b"/")[1:])
        query = bytes(scope.get("query_string") or b"").decode("ascii")
    except UnicodeDecodeError:
        raise Problem(ProblemKind.BAD_REQUEST, "the path is not UTF-8") from None
    for part in parts:
        if part in {"", ".", ".."} or len(part) > _MOST_NAME or not part.strip():
            raise Problem(
                ProblemKind.NOT_FOUND,
                "a name in the path is empty or too long: see /openapi.json for what there is",
            )
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key = name.decode("latin-1").lower()
        if key in headers and key in {"authorization", "idempotency-key", "x-request-timeout"}:
            raise Problem(ProblemKind.BAD_REQUEST, f"{key} stands twice")
        headers[key] = value.decode("latin-1")
    return Incoming(
        method=scope["method"],
        parts=parts,
        query=query,
        headers=headers,
        target=raw + b"?" + query.encode(),
        began=time.monotonic(),
        record=record,
    )


def read_query(text: str, kind: type[m.ApiBody]) -> m.ApiBody:
    """The parameters of a request; Problem if they are invalid."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text), errors="strict")
        if len({name for name, _ in pairs}) != len(pairs):
            raise Problem(ProblemKind.BAD_REQUEST, "a parameter stands twice")
        return msgspec.convert(dict(pairs), kind, strict=False)
    except msgspec.ValidationError as error:
        takes = ", ".join(kind.__struct_encode_fields__) or "no parameters"
        raise Problem(ProblemKind.INVALID, f"{error}; this takes {takes}") from None
    except ValueError:
        raise Problem(ProblemKind.BAD_REQUEST, "the query cannot be read") from None


def decoded(body: bytes, kind: type[m.ApiBody]) -> m.ApiBody:
    """The body of a request; Problem if it is invalid."""
    try:
        body.decode()  # a body that is passed on unread must be text, too
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        takes = ", ".join(kind.__struct_encode_fields__)
        raise Problem(ProblemKind.INVALID, f"{error}; this body takes {takes}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Problem(ProblemKind.BAD_REQUEST, "the body is not JSON") from None


async def unless_gone_after(receive: Receive, work: Callable[[Receive], Awaitable[None]]) -> None:
    """Run it, and stop if the client disconnects after sending its whole request."""
    whole = asyncio.Event()

    async def noting() -> MutableMapping[str, Any]:
        message = await receive()
        if message["type"] == "http.disconnect" or not message.get("more_body"):
            whole.set()
        return message

    async def watching() -> MutableMapping[str, Any]:
        await whole.wait()
        return await receive()

    await unless_gone(watching, work(noting))


def replaying(body: bytes, receive: Receive) -> Receive:
    """A body to be read again, followed by later messages of the client."""
    left = [body]

    async def replayed() -> MutableMapping[str, Any]:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": False}
        return await receive()

    return replayed


NO_SPACE: Final = "the tenant has no space of this name"
_MARK_BYTES: Final = 12


class Cursors:
    """Cursors: names of a list's next page, valid for one list of one tenant. A cursor holds a
    position and a keyed hash over it and its list."""

    def __init__(self, secret: bytes) -> None:
        """`secret` is the same on all nodes of a service."""
        self._key = blake2b(secret, digest_size=32, person=b"recollect-page").digest()

    def write(self, position: Any, place: Sequence[str]) -> str:
        """The cursor of the page after a position."""
        told = msgspec.json.encode(position)
        return urlsafe_b64encode(self._mark(told, place) + told).rstrip(b"=").decode()

    def read(self, text: str, place: Sequence[str], kind: type) -> Any:
        """The position in a cursor; raises a Problem if it belongs to another list."""
        try:
            raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
            mark, told = raw[:_MARK_BYTES], raw[_MARK_BYTES:]
            if hmac.compare_digest(mark, self._mark(told, place)):
                position = msgspec.json.decode(told)
                if isinstance(position, kind):
                    return position
        except (NotBase64, ValueError):
            pass
        raise Problem(ProblemKind.BAD_REQUEST, "cursor: it belongs to another list; begin anew")

    def _mark(self, told: bytes, place: Sequence[str]) -> bytes:
        named = msgspec.json.encode([*place])
        return blake2b(told + b"\0" + named, key=self._key, digest_size=_MARK_BYTES).digest()


@dataclass(slots=True, kw_only=True)
class Call:
    """One request: its tenant, path, query and body."""

    tenant: Tenant
    key: ApiKey
    memories: TenantMemories
    budgets: Budgets
    cursors: Cursors
    route: str
    path: dict[str, str]
    query: Any
    body: Any
    now: float
    seconds: float
    """About what is left of its deadline."""
    writes: bool
    needs_space: bool = False
    """It writes only to a space that exists."""
    keyed: bool = False
    tokens: int = field(default=0)
    """Tokens of its input and of models, for the tenant's budget."""
    is_charged: bool = False

    @property
    def space(self) -> str:
        """The space's name."""
        return self.path["space"]

    @property
    def session(self) -> str:
        """The session in the path."""
        try:
            return check_session_name(self.path["session"])
        except ValueError as error:
            raise Problem(ProblemKind.INVALID, str(error)) from None

    @property
    def number(self) -> int:
        """The number in the path."""
        text = self.path["number"]
        if not (text.isascii() and text.isdigit() and len(text) < 16):
            raise Problem(ProblemKind.NOT_FOUND, "a number stands at the end of this path")
        return int(text)

    @asynccontextmanager
    async def memory(self) -> AsyncIterator[TenantMemory]:
        """The memory of the space; to read, the space must exist."""
        records = await self.memories.records()
        if not self.writes and not await records.has_space(self.tenant.id, self.space):
            raise Problem(ProblemKind.NOT_FOUND, NO_SPACE)
        async with self.memories.memory(self.tenant.id, self.space) as memory:
            if self.writes and not memory.is_listed:
                if self.needs_space and not await records.has_space(self.tenant.id, self.space):
                    raise Problem(ProblemKind.NOT_FOUND, NO_SPACE)
                await records.add_space(self.tenant.id, self.space, at=self.now)
                memory.is_listed = True
            listing: asyncio.Task[None] | None = None
            try:
                yield memory
            finally:
                # It may have been deleted meanwhile: writes must be found, also those of a
                # cancelled request, which does not wait for this.
                if self.writes:
                    listing = self.memories.beside(
                        records.add_space(self.tenant.id, self.space, at=self.now)
                    )
            if listing is not None:
                await asyncio.shield(listing)

    @asynccontextmanager
    async def store(self) -> AsyncIterator[Store]:
        """The store of the space, to read."""
        async with self.memory():
            yield await self.memories.store(self.tenant.id, self.space)

    def after(self, default: Any) -> Any:
        """The start of the page in the query."""
        if self.query.cursor is None:
            return default
        return self.cursors.read(self.query.cursor, self._place(), type(default))

    def cursor(self, position: Any) -> str:
        """The cursor of the page after this position."""
        return self.cursors.write(position, self._place())

    def _place(self) -> tuple[str, ...]:
        return (str(self.tenant.id), self.route, *self.path.values())
