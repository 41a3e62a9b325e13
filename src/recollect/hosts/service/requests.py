"""Parses and checks requests of the API. An invalid request raises a Problem that names the fault.

A request with an Idempotency-Key is executed once. A client that repeats the request gets the same
answer. A request claims its key in the database for a limited time, and stores its answer there.
The key is released only if the request did nothing. No node stops work that has begun."""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_type_hints
from urllib.parse import parse_qsl, unquote_to_bytes
from uuid import UUID

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive

from recollect.core.boundary import Failure, attempted
from recollect.core.engine.session import check_session_name
from recollect.core.ports import Store
from recollect.core.values.tenant import ApiKey, KeyScope, Tenant
from recollect.hosts.http import run_for_client
from recollect.hosts.service import models as m
from recollect.hosts.service.memories import TenantMemories, TenantMemory
from recollect.hosts.service.problems import Problem, ProblemKind

if TYPE_CHECKING:
    from recollect.adapters.stores.postgres.tenants import TenantRecords

_MOST_NAME: Final = 512  # not measured; names are index keys in PostgreSQL


def read_names(request: Request) -> dict[str, str]:
    """Return the names in a request's path. Raise a Problem if a name cannot be read."""
    names: dict[str, str] = {}
    for part, text in request.path_params.items():
        try:
            name = unquote_to_bytes(text).decode()
        except UnicodeDecodeError:
            raise Problem(ProblemKind.BAD_REQUEST, "the path is not UTF-8") from None
        if name in {".", ".."} or len(name) > _MOST_NAME or not name.strip():
            raise Problem(
                ProblemKind.NOT_FOUND,
                "a name in the path is empty or too long: see /openapi.json for the paths",
            )
        names[part] = name
    return names


def read_query(raw: bytes, kind: type[m.ApiBody]) -> m.ApiBody:
    """Parse the query of a request. Raise a Problem if the query is invalid."""
    try:
        text = raw.decode("ascii")
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text), errors="strict")
        if len({name for name, _ in pairs}) != len(pairs):
            raise Problem(ProblemKind.BAD_REQUEST, "a parameter appears twice")
        return msgspec.convert(dict(pairs), kind, strict=False)
    except msgspec.ValidationError as error:
        takes = ", ".join(kind.__struct_encode_fields__) or "no parameters"
        raise Problem(ProblemKind.INVALID, f"{error}; the request takes {takes}") from None
    except ValueError:
        raise Problem(ProblemKind.BAD_REQUEST, "the query cannot be read") from None


def decode_body(body: bytes, kind: type[m.ApiBody]) -> m.ApiBody:
    """Parse the body of a request. Raise a Problem if the body is invalid."""
    try:
        body.decode()  # a body that is passed on unread must be valid UTF-8 too
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        takes = ", ".join(kind.__struct_encode_fields__)
        raise Problem(ProblemKind.INVALID, f"{error}; the body takes {takes}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Problem(ProblemKind.BAD_REQUEST, "the body is not JSON") from None


_MARK_BYTES: Final = 12  # 96 bits


class Cursors:
    """Creates and checks cursors, which name the next page of a list. A cursor is valid for one
    list of one tenant. A cursor contains a position, and a keyed hash over position and list."""

    def __init__(self, memories: TenantMemories) -> None:
        self._memories = memories

    def write(self, position: Any, place: Sequence[str]) -> str:
        position_json = msgspec.json.encode(position)
        cursor = urlsafe_b64encode(self._mark(position_json, place) + position_json)
        return cursor.rstrip(b"=").decode()

    def read(self, text: str, place: Sequence[str], kind: type) -> Any:
        """Return the position in a cursor. Raise a Problem if the cursor is for another list."""
        try:
            raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
            mark, position_json = raw[:_MARK_BYTES], raw[_MARK_BYTES:]
            if hmac.compare_digest(mark, self._mark(position_json, place)):
                position = msgspec.json.decode(position_json)
                if isinstance(position, kind):
                    return position
        except (NotBase64, ValueError):
            pass
        raise Problem(
            ProblemKind.BAD_REQUEST, "the cursor belongs to another list; start without a cursor"
        )

    def _mark(self, position_json: bytes, place: Sequence[str]) -> bytes:
        place_json = msgspec.json.encode([*place])
        key = blake2b(self._memories.secret, digest_size=32, person=b"recollect-page").digest()
        return blake2b(
            position_json + b"\0" + place_json, key=key, digest_size=_MARK_BYTES
        ).digest()


Method: TypeAlias = Literal["GET", "POST", "DELETE"]
Operation: TypeAlias = "Callable[[Call], Awaitable[m.ApiAnswer]]"
Idempotency: TypeAlias = Literal["none", "again", "kept"]
"""How a request with a used Idempotency-Key is answered. "none": a read runs again. "again": the
request runs again, which changes nothing. "kept": the client gets the first answer."""


@dataclass(frozen=True, slots=True)
class ApiRoute:
    """A path, a method, and its operation."""

    method: Method
    path: str
    scope: KeyScope
    call: Operation
    body: type[m.ApiBody] | None = None
    query: type[m.ApiBody] = m.NoQuery
    idempotency: Idempotency = "none"
    needs_space: bool = False
    """True if the operation writes only to an existing space."""
    to_the_end: bool = False
    """True if a request with an Idempotency-Key is finished even if the client disconnects. Nodes
    cannot detect a partial run, which must not be repeated."""

    @property
    def operation(self) -> str:
        return self.call.__name__

    @property
    def keeps_answer(self) -> bool:
        """True if the whole answer is stored, not only the fact that the request is done."""
        return self.idempotency == "kept"

    @property
    def is_counted(self) -> bool:
        """True if requests count against the tenant's budgets."""
        return self.scope != "operator" and self.path != "/tenant"

    @property
    def answer(self) -> type[m.ApiAnswer]:
        answer_type: type[m.ApiAnswer] = get_type_hints(self.call)["return"]
        return answer_type


@dataclass(slots=True, kw_only=True)
class Call:
    """One request: its tenant, path, query and body."""

    tenant: Tenant
    key: ApiKey
    memories: TenantMemories
    cursors: Cursors
    route: ApiRoute
    path: dict[str, str]
    query: Any
    body: Any
    now: float
    seconds: float
    """Approximate number of seconds until the request's deadline."""
    keyed: bool = False
    tokens: int = field(default=0)
    """Tokens of the request's input and of model calls, for the tenant's budget."""
    is_charged: bool = False

    @property
    def space(self) -> str:
        return self.path["space"]

    @property
    def session(self) -> str:
        try:
            return check_session_name(self.path["session"])
        except ValueError as error:
            raise Problem(ProblemKind.INVALID, str(error)) from None

    @property
    def number(self) -> int:
        text = self.path["number"]
        if not (text.isascii() and text.isdigit() and len(text) < 16):
            raise Problem(ProblemKind.NOT_FOUND, "this path must end with a number")
        return int(text)

    def memory(self) -> AbstractAsyncContextManager[TenantMemory]:
        """Return the memory of the request's space."""
        scope, creates = self.route.scope, not self.route.needs_space
        return self.memories.use(self.tenant, self.space, scope, creates=creates)

    @asynccontextmanager
    async def store(self) -> AsyncIterator[Store]:
        async with self.memory():
            yield await self.memories.store(self.tenant.id, self.space)

    def after(self, default: Any) -> Any:
        if self.query.cursor is None:
            return default
        return self.cursors.read(self.query.cursor, self._place(), type(default))

    def cursor(self, position: Any) -> str:
        return self.cursors.write(position, self._place())

    def _place(self) -> tuple[str, ...]:
        return (str(self.tenant.id), self.route.path, *self.path.values())


LOG: Final = logging.getLogger("recollect")
LEASE_MARGIN_SECONDS: Final = 1.0  # not measured; clocks of nodes differ
FINISH_SECONDS: Final = 15.0
"""Time after a request's deadline for work that must finish."""
KEEP_AGAIN_SECONDS: Final = (0.1, 2.0)
"""First and longest delay between attempts to store an answer. The delay doubles each time."""
_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,255}")


@dataclass(slots=True, kw_only=True)
class KeyClaim:
    """A request with an Idempotency-Key that this node executes."""

    records: TenantRecords
    tenant: UUID
    key_hash: bytes = field(repr=False)
    token: str = field(repr=False)
    ends_at: float
    """Time after which another request may claim the key, by the event loop's clock."""
    route: ApiRoute
    is_done: bool = False
    """True once the work is done and must never be repeated."""
    was_tried: asyncio.Event = field(default_factory=asyncio.Event, repr=False)


class IdempotencyKeys:
    """The idempotency keys of a deployment's requests."""

    def __init__(self, memories: TenantMemories, *, keep_seconds: float) -> None:
        self._memories, self._keep_seconds = memories, keep_seconds

    async def claim(
        self, key: str, call: Call, request: tuple[bytes, bytes, bytes]
    ) -> KeyClaim | Response | None:
        """Claim a request (method, target and body), so that this node executes it. Return a claim,
        the earlier answer to the request, or None to execute it again."""
        if _TOKEN.fullmatch(key) is None:
            raise Problem(
                ProblemKind.BAD_REQUEST,
                "Idempotency-Key must have at most 255 visible ASCII characters",
            )
        records = await self._memories.records()
        key_hash = self._mark(call, b"key", key.encode())
        lease_seconds = call.seconds + LEASE_MARGIN_SECONDS
        lease_seconds += FINISH_SECONDS if call.route.to_the_end else 0.0
        claim_result = await records.claim(
            call.tenant.id,
            key_hash,
            self._mark(call, b"request", *request),
            now=call.now,
            lease_seconds=lease_seconds,
            keep_seconds=self._keep_seconds,
        )
        if not claim_result.same_request:
            raise Problem(
                ProblemKind.KEY_REUSED,
                "this Idempotency-Key was used for another request: use a new one",
            )
        if claim_result.running_until is not None:
            raise Problem(
                ProblemKind.IN_PROGRESS,
                "the same request is still running, or its node died: try again",
                retry_after=max(0.0, claim_result.running_until - call.now),
            )
        if claim_result.status is not None:
            if not call.route.keeps_answer:
                return None
            return Response(
                claim_result.answer or b"{}",
                claim_result.status,
                {"idempotency-replayed": "true"},
                media_type="application/json",
            )
        assert claim_result.lease_token is not None
        return KeyClaim(
            records=records,
            tenant=call.tenant.id,
            key_hash=key_hash,
            token=claim_result.lease_token,
            ends_at=time.monotonic() + lease_seconds,
            route=call.route,
        )

    async def carry_out(
        self,
        claim: KeyClaim,
        work: Callable[[], Awaitable[Response | Problem]],
        settle: Callable[[], Awaitable[None]],
    ) -> Response:
        """Run the claimed request, store its answer, and then charge its usage."""
        task = self._memories.start_background(self._run_once(claim, work, settle))
        try:
            answer = await asyncio.shield(task)
        except asyncio.CancelledError:
            if not (claim.is_done or claim.route.to_the_end):
                task.cancel()
                await asyncio.wait({task})
            raise
        if isinstance(answer, Problem):
            raise answer
        return answer

    async def _run_once(
        self,
        claim: KeyClaim,
        work: Callable[[], Awaitable[Response | Problem]],
        settle: Callable[[], Awaitable[None]],
    ) -> Response | Problem:
        try:
            answer = await work()
        except BaseException:
            self._release(claim)
            raise
        if isinstance(answer, Problem):
            self._release(claim)
            return answer
        claim.is_done = True
        kept_body = bytes(answer.body) if claim.route.keeps_answer else b""
        self._memories.start_background(self._keep_answer(claim, answer.status_code, kept_body))
        await claim.was_tried.wait()  # the client gets the answer even if storing it failed
        await settle()
        return answer

    def _release(self, claim: KeyClaim) -> None:
        self._memories.start_background(
            attempted(claim.records.release(claim.tenant, claim.key_hash, claim.token))
        )

    async def _keep_answer(self, claim: KeyClaim, status: int, answer: bytes) -> None:
        seconds, max_seconds = KEEP_AGAIN_SECONDS
        while True:
            result = await attempted(
                claim.records.keep_answer(
                    claim.tenant, claim.key_hash, claim.token, status=status, answer=answer
                )
            )
            claim.was_tried.set()
            if not isinstance(result, Failure):
                return
            if time.monotonic() + seconds > claim.ends_at:
                LOG.error("could not store the answer for an Idempotency-Key: %s", result.said)
                return
            await asyncio.sleep(seconds)
            seconds = min(2 * seconds, max_seconds)

    def _mark(self, call: Call, *parts: bytes) -> bytes:
        secret = self._memories.secret
        key = blake2b(secret, digest_size=32, person=b"recollect-serve").digest()
        hasher = blake2b(call.tenant.id.bytes, key=key, digest_size=32)
        for part in parts:
            hasher.update(len(part).to_bytes(8, "big") + part)
        return hasher.digest()


async def run_after_body(receive: Receive, work: Callable[[Receive], Awaitable[None]]) -> None:
    """Run `work`, and cancel it if the client disconnects after sending its whole request."""
    request_complete = asyncio.Event()

    async def receive_noted() -> Message:
        message = await receive()
        if message["type"] == "http.disconnect" or not message.get("more_body"):
            request_complete.set()
        return message

    async def receive_after() -> Message:
        await request_complete.wait()
        return await receive()

    await run_for_client(receive_after, work(receive_noted))


async def collect(app: ASGIApp, request: Request, body: bytes) -> Response:
    """Return an application's whole answer to a request whose body was read."""
    unread_parts, messages = [body], list[Message]()

    async def receive() -> Message:
        if unread_parts:
            return {"type": "http.request", "body": unread_parts.pop(), "more_body": False}
        return await request.receive()

    async def send(message: Message) -> None:
        messages.append(message)

    await app(request.scope, receive, send)
    start, *body_messages = messages
    response = Response(
        b"".join(message.get("body", b"") for message in body_messages), start["status"]
    )
    response.raw_headers = list(start["headers"])
    return response
