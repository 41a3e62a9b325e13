"""The service as an ASGI application: whose request it is, its limits, and its answer.

Owns the order in which a request is looked at: its deadline and its key, then its scope, the
node's own limits, its tenant's budgets, the body, the idempotency key, and only then memory is
asked. What goes wrong is a problem with a status; nothing that a request holds ends the node.
Always holds: nothing but the key says which tenant a request is of, and no two requests of one
idempotency key are carried out at once.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import parse_qsl, unquote_to_bytes
from uuid import UUID

import msgspec

import recollect
from recollect.boundary import Failure, attempted
from recollect.config import Settings
from recollect.engine.background import METER
from recollect.gateway.asgi import NoBody, Receive, Send, read_body, unless_gone
from recollect.service import models as m
from recollect.service.api import PREFIX, ApiRoute, matching, openapi
from recollect.service.cursors import Cursors
from recollect.service.keys import GivenKey, opens, read_key
from recollect.service.limits import Budgets, FairQueue, Intake, Taking
from recollect.service.logs import RequestRecord
from recollect.service.memories import TenantMemories
from recollect.service.operations import Call, aside
from recollect.service.problems import Problem, ProblemKind, again, problem_of
from recollect.telemetry import measured
from recollect.values.model import ModelUse
from recollect.values.tenant import ApiKey, Tenant, tenant_space
from recollect.wiring.stores import SECRET_VARIABLE

if TYPE_CHECKING:
    from recollect.stores.postgres.tenants import TenantRecords

Scope: TypeAlias = MutableMapping[str, Any]
Header: TypeAlias = tuple[bytes, bytes]
MountedApp: TypeAlias = Callable[[Scope, Receive, Send, "Principal"], Awaitable[None]]
"""An application beside the API, for a request whose key and space are known."""
MountMcp: TypeAlias = Callable[[TenantMemories, bytes], AbstractAsyncContextManager[MountedApp]]
"""Opens it for the memories of a node and the deployment's secret."""

LOG: Final = logging.getLogger("recollect")
MOST_KEYS: Final = 10_000
MOST_REFUSED_KEYS: Final = 1_000
"""Keys that open nothing are remembered apart, so that inventing them forgets no good one."""
KEYS_LOOKED_UP: Final = 2
"""So many keys that a node has not seen are asked of the database at once."""
KEYS_WAITING: Final = 200
"""So many more wait for that; others are told to come again."""
OLD_KEY_SECONDS: Final = 1.0
"""While a key is looked up again, others go by what was known of it, so long at most."""
BODY_SECONDS: Final = 30.0
"""So long a body may take to come, whatever the deadline."""
PURGE_SECONDS: Final = 3_600.0
"""So often a node removes what has expired of all tenants' records."""
LEAST_SECONDS: Final = 0.01
MCP_ROUTE: Final = f"{PREFIX}/spaces/{{space}}/mcp"
LEASE_MARGIN_SECONDS: Final = 1.0
FINISH_SECONDS: Final = 15.0
"""How long work that is carried to its end may take beyond its request's deadline."""
KEEP_AGAIN_SECONDS: Final = (0.1, 2.0)
"""After so long it is tried again to keep an answer; at most, after every failure twice that."""
_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,255}")
_MOST_NAME: Final = 512
_ENCODER: Final = msgspec.json.Encoder()
_OF_REQUESTS: Final = frozenset({"messages", "model", "input", "system", "tools", "max_tokens"})
"""What is taken for a part of a provider's request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who asks: one tenant, by one of its keys."""

    tenant: Tenant
    key: ApiKey
    space: str = ""
    """The space that the path names, for mounted applications."""


@dataclass(slots=True, kw_only=True)
class Incoming:
    """A request before it is known what it wants."""

    method: str
    parts: tuple[str, ...]
    query: str
    headers: dict[str, str]
    target: bytes
    began: float
    record: RequestRecord
    body: bytes = field(default=b"", repr=False)


@dataclass(slots=True, kw_only=True)
class _Claim:
    """A request with an Idempotency-Key that this node carries out."""

    records: TenantRecords
    tenant: UUID
    key_hash: bytes = field(repr=False)
    token: str = field(repr=False)
    ends_at: float
    """When another try may take it over, by the loop's clock."""
    is_done: bool = False
    """What it does is done: it is never to be done again."""
    was_tried: asyncio.Event = field(default_factory=asyncio.Event, repr=False)
    """Set when it was tried to keep its answer."""


class Service:
    """The application of one node."""

    def __init__(
        self,
        settings: Settings,
        url: str,
        *,
        secret: bytes = b"",
        memories: TenantMemories | None = None,
        mcp: MountMcp | None = None,
    ) -> None:
        """`secret` is the deployment's, the same on all nodes; `mcp` serves the paths that end in
        `/mcp`."""
        serve = settings.serve
        self._serve = serve
        self.memories = memories or TenantMemories(settings, url)
        self._secret = blake2b(secret, digest_size=32, person=b"recollect-serve").digest()
        self._cursors = Cursors(secret)
        self._budgets = Budgets()
        self._queue = FairQueue(
            serve.concurrency,
            tenant_slots=serve.tenant_concurrency,
            tenant_waiting=serve.tenant_waiting,
            deadline_seconds=min(serve.deadline_seconds, serve.max_deadline_seconds),
        )
        self._mount_mcp = mcp
        self._mcp: MountedApp | None = None
        self._deployment_secret = secret
        self._keys: OrderedDict[bytes, tuple[float, Principal]] = OrderedDict()
        self._refused_keys: OrderedDict[bytes, float] = OrderedDict()
        self._key_lookups = asyncio.Semaphore(KEYS_LOOKED_UP)
        self._keys_waiting = 0
        self._renewing: dict[bytes, asyncio.Task[Principal | Failure | None]] = {}
        self._intake = Intake(serve.max_requests, max_body_bytes=serve.max_body_bytes)
        self._purged_at = time.monotonic()
        self._document = _ENCODER.encode(openapi())
        self.draining = False

    @property
    def waiting(self) -> int:
        """Requests that wait for their turn."""
        return self._queue.waiting

    # ASGI

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or the beginning and end of the process."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await unless_gone_after(receive, lambda got: self._serve_one(scope, got, send))

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        if not self._deployment_secret:
            LOG.warning(
                "%s is not set: cursors and idempotency keys are hashed with a key that everybody "
                "knows. Set it to the same long random text on all nodes, before anything is "
                "stored",
                SECRET_VARIABLE,
            )
        opened = await attempted(self.memories.fleet())
        if isinstance(opened, Failure):
            LOG.warning("the database cannot be used yet: %s", opened.said)
        async with AsyncExitStack() as running:
            if self._mount_mcp is not None:
                mounted = self._mount_mcp(self.memories, self._deployment_secret)
                self._mcp = await running.enter_async_context(mounted)
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await self.memories.close()
        await send({"type": "lifespan.shutdown.complete"})

    def drain(self) -> None:
        """Say no at /readyz from now on, and go on with what comes."""
        self.draining = True

    async def _serve_one(self, scope: Scope, receive: Receive, send: Send) -> None:
        record = RequestRecord(method=scope["method"])
        began = time.perf_counter()
        with measured("request", record.operation, parent=_traceparent(scope)) as heard:
            try:
                await self._answer(scope, receive, send, record)
            finally:
                record.tell(heard)
                record.log(heard, time.perf_counter() - began, self._deployment_secret)

    async def _answer(
        self, scope: Scope, receive: Receive, send: Send, record: RequestRecord
    ) -> None:
        async def noting(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", record.id.encode())]
            await send(message)

        answered = await attempted(self._answered(scope, receive, noting, record))
        if isinstance(answered, Failure):
            LOG.error("a request failed: %s", answered.said)
            answered = problem_of(answered.error, answered.said)
        if isinstance(answered, Problem):
            record.reason = answered.reason
        if answered is None or record.status:
            return  # it has been answered, by somebody else
        if isinstance(answered, Problem):
            await _send(noting, answered.kind.status, answered.headers(), answered.body())
        else:
            status, headers, body = answered
            await _send(noting, status, headers, body)

    async def _answered(
        self, scope: Scope, receive: Receive, send: Send, record: RequestRecord
    ) -> tuple[int, list[Header], bytes] | Problem | None:
        try:
            incoming = read_request(scope, record)
            if (page := await self._open_page(incoming)) is not None:
                return page
            return await self._for_tenant(scope, incoming, receive, send)
        except Problem as problem:
            return problem

    async def _open_page(self, incoming: Incoming) -> tuple[int, list[Header], bytes] | None:
        """What is answered to everybody."""
        if incoming.parts == ("openapi.json",) and incoming.method == "GET":
            incoming.record.operation = "openapi"
            return 200, [(b"content-type", b"application/json")], self._document
        if incoming.parts not in {("healthz",), ("readyz",)}:
            return None
        if incoming.method != "GET":
            raise Problem(ProblemKind.METHOD, "GET it", allow="GET")
        incoming.record.operation = incoming.parts[0]
        reason: m.NotReady | None = None
        if incoming.parts == ("readyz",):
            reason = "draining" if self.draining else await self.memories.not_ready()
        state: Any = {None: "ok", "draining": "draining"}.get(reason, "unavailable")
        told = m.HealthAnswer(status=state, version=recollect.__version__, reason=reason)
        return (
            200 if reason is None else 503,
            [(b"content-type", b"application/json")],
            _ENCODER.encode(told),
        )

    # Requests of tenants

    async def _for_tenant(
        self, scope: Scope, incoming: Incoming, receive: Receive, send: Send
    ) -> tuple[int, list[Header], bytes] | None:
        seconds = self._seconds(incoming)
        try:
            async with asyncio.timeout(seconds):
                principal = await self._principal(incoming.headers.get("authorization", ""))
                record = incoming.record
                record.tenant = principal.tenant.id
                if self._is_mcp(incoming.parts):
                    record.operation, record.route = "mcp", MCP_ROUTE
                    record.space = tenant_space(principal.tenant.id, incoming.parts[2])
                    with self._intake.request(principal.tenant.id) as taking:
                        await self._served_by_mcp(scope, incoming, receive, send, principal, taking)
                    return None
                route, path = self._route(incoming)
                record.operation, record.route = route.operation, PREFIX + route.path
                if "space" in path:
                    record.space = tenant_space(principal.tenant.id, path["space"])
                if route.scope not in principal.key.scopes:
                    raise Problem(
                        ProblemKind.FORBIDDEN, f"this needs a key with the scope {route.scope}"
                    )
                with self._intake.request(principal.tenant.id) as taking:
                    left = seconds - (time.monotonic() - incoming.began)
                    self._queue.refuse_late(principal.tenant.id, left)  # before it costs more
                    if route.counted:
                        await self._take(principal.tenant)
                    incoming.body = await self._body(incoming, receive, taking)
                    call = await self._call(route, path, incoming, principal, seconds)
                    left = seconds - (time.monotonic() - incoming.began)
                    async with self._queue.turn(principal.tenant.id, left):
                        return await self._carried_out(route, call, incoming)
        except TimeoutError:
            raise Problem(
                ProblemKind.DEADLINE,
                f"it took longer than {self._asked_seconds(incoming, seconds):g} s: "
                + again(keyed="idempotency-key" in incoming.headers),
                retry_after=1.0,
            ) from None

    async def _served_by_mcp(
        self,
        scope: Scope,
        incoming: Incoming,
        receive: Receive,
        send: Send,
        principal: Principal,
        taking: Taking,
    ) -> None:
        """A request of the Model Context Protocol, each by itself."""
        assert self._mcp is not None
        if incoming.method != "POST":
            raise Problem(ProblemKind.METHOD, "every message is a POST of its own", allow="POST")
        tenant, space = principal.tenant, incoming.parts[2]
        await self._take(tenant)
        incoming.body = await self._body(incoming, receive, taking)
        answer: list[bytes] = []

        async def charging(message: MutableMapping[str, Any]) -> None:
            """Count before the answer has gone: who has it may hang up."""
            if message["type"] == "http.response.body" and tenant.tokens_per_day is not None:
                answer.append(message.get("body", b""))
                if not message.get("more_body"):
                    told = b"".join(answer)
                    size = len(incoming.body) + len(told)
                    texts = await aside(size, partial(mcp_texts, incoming.body, told))
                    async with self.memories.memory(tenant.id, space) as memory:
                        tokens = sum(memory.engine.weigher.text(text) for text in texts)
                    await self._charge(tenant, tokens)
            await send(message)

        left = self._seconds(incoming) - (time.monotonic() - incoming.began)
        async with self._queue.turn(tenant.id, left):
            # with a key that may write, a tool makes the space when it writes
            if "write" not in principal.key.scopes and not await (
                await self.memories.records()
            ).has_space(tenant.id, space):
                raise Problem(ProblemKind.NOT_FOUND, "the tenant has no space of this name")
            replayed = replaying(incoming.body, receive)
            await self._mcp(scope, replayed, charging, replace(principal, space=space))

    def _is_mcp(self, parts: tuple[str, ...]) -> bool:
        if self._mcp is None or len(parts) != 4:
            return False
        return (parts[0], parts[1], parts[3]) == ("v1", "spaces", "mcp")

    def _route(self, incoming: Incoming) -> tuple[ApiRoute, dict[str, str]]:
        if incoming.parts[:1] != (PREFIX[1:],):
            raise Problem(ProblemKind.NOT_FOUND, "see /openapi.json for what there is")
        found = matching(incoming.parts[1:])
        if not found:
            raise Problem(ProblemKind.NOT_FOUND, "see /openapi.json for what there is")
        if incoming.method not in found:
            raise Problem(ProblemKind.METHOD, "see /openapi.json", allow=", ".join(sorted(found)))
        return found[incoming.method]

    async def _principal(self, header: str) -> Principal:
        """Who asks; a key that is unknown, has ended or was revoked is none."""
        scheme, _, text = header.partition(" ")
        given = read_key(text.strip()) if scheme.lower() == "bearer" else None
        found = None if given is None else await self._known(given)
        if found is None or given is None or not opens(given, found.key, now=time.time()):
            raise Problem(
                ProblemKind.UNAUTHORIZED, "bring a valid key as `Authorization: Bearer rk_…`"
            )
        return found

    async def _known(self, given: GivenKey) -> Principal | None:
        """Whose key it is, asked of the database where that was not done lately."""
        now = time.monotonic()
        since = now - self._serve.key_cache_seconds
        if self._refused_keys.get(given.hash, since) > since:
            return None
        known = self._keys.get(given.hash)
        if known is None:
            return await self._looked_up_in_turn(given)
        self._keys.move_to_end(given.hash)
        if known[0] > since:
            return known[1]
        renewing = self._renewing.get(given.hash)
        if renewing is not None and known[0] > since - OLD_KEY_SECONDS:
            return known[1]
        return await self._renewed(given, renewing)

    async def _renewed(
        self, given: GivenKey, renewing: asyncio.Task[Principal | Failure | None] | None
    ) -> Principal | None:
        """What the database says of a known key now: all who wait for that ask once."""
        if renewing is None:
            work = asyncio.wait_for(self._looked_up(given), self._serve.max_deadline_seconds)
            renewing = self._renewing[given.hash] = asyncio.create_task(attempted(work))
            renewing.add_done_callback(lambda _: self._renewing.pop(given.hash, None))
        found = await asyncio.shield(renewing)  # whoever asked first may hang up
        if isinstance(found, Failure):
            raise problem_of(found.error, found.said)
        return found

    async def _looked_up_in_turn(self, given: GivenKey) -> Principal | None:
        """A key that may be invented: few at once, so that the others' requests do not wait."""
        if self._keys_waiting >= KEYS_WAITING:
            raise Problem(ProblemKind.BUSY, "too many unknown keys: come again", retry_after=1.0)
        self._keys_waiting += 1
        try:
            async with self._key_lookups:
                known = self._keys.get(given.hash)  # somebody else asked meanwhile
                return await self._looked_up(given) if known is None else known[1]
        finally:
            self._keys_waiting -= 1

    async def _looked_up(self, given: GivenKey) -> Principal | None:
        now = time.monotonic()
        records = await self.memories.records()
        found = await records.key(given.tenant, given.id)
        if found is None or not opens(given, found[0], now=time.time()):
            self._keys.pop(given.hash, None)
            self._refused_keys[given.hash] = now
            while len(self._refused_keys) > MOST_REFUSED_KEYS:
                self._refused_keys.popitem(last=False)
            return None
        self._keys[given.hash] = (now, Principal(key=found[0], tenant=found[1]))
        while len(self._keys) > MOST_KEYS:
            self._keys.popitem(last=False)
        return self._keys[given.hash][1]

    async def _take(self, tenant: Tenant) -> None:
        """Count a request of a tenant; Problem where a budget is spent."""
        if tenant.requests_per_minute is None and tenant.tokens_per_day is None:
            return
        records = await self.memories.records()
        await self._budgets.take_request(tenant, records)
        await self._budgets.check_tokens(tenant, records)

    def _seconds(self, incoming: Incoming) -> float:
        text = incoming.headers.get("x-request-timeout")
        if text is None:
            return min(self._serve.deadline_seconds, self._serve.max_deadline_seconds)
        try:
            seconds = float(text)
        except ValueError:
            seconds = 0.0
        if not seconds > 0:
            raise Problem(ProblemKind.BAD_REQUEST, "X-Request-Timeout: give seconds above 0")
        return max(LEAST_SECONDS, min(seconds, self._serve.max_deadline_seconds))

    def _asked_seconds(self, incoming: Incoming, seconds: float) -> float:
        """The deadline as it was given, where that is shorter than the shortest there is."""
        return min(float(incoming.headers.get("x-request-timeout", seconds)), seconds)

    async def _body(self, incoming: Incoming, receive: Receive, taking: Taking) -> bytes:
        """The whole body; Problem where it is too large, comes too slowly, or is too much now."""

        async def holding() -> MutableMapping[str, Any]:
            message = await receive()
            taking.hold(len(message.get("body", b"")))
            return message

        most = self._serve.max_body_bytes
        length = incoming.headers.get("content-length", "0")
        body: bytes | NoBody = NoBody.TOO_LARGE
        if not (length.isascii() and length.isdigit() and int(length[:20]) > most):
            try:
                async with asyncio.timeout(BODY_SECONDS):
                    body = await read_body(holding, most)
            except TimeoutError:
                slow = f"the body did not come within {BODY_SECONDS:g} s"
                raise Problem(ProblemKind.DEADLINE, slow, retry_after=1.0) from None
        if body is NoBody.TOO_LARGE:
            raise Problem(ProblemKind.TOO_LARGE, f"a request has at most {most:,} bytes")
        if isinstance(body, NoBody):
            raise asyncio.CancelledError  # nobody waits for the answer
        taking.read()
        return body

    async def _call(
        self,
        route: ApiRoute,
        path: dict[str, str],
        incoming: Incoming,
        principal: Principal,
        seconds: float,
    ) -> Call:
        if route.body is None and incoming.body:
            raise Problem(ProblemKind.BAD_REQUEST, "this takes no body")
        kind = incoming.headers.get("content-type", "application/json").partition(";")[0]
        if route.body is not None and kind.strip().lower() != "application/json":
            raise Problem(ProblemKind.MEDIA_TYPE, "send the body as application/json")
        body: m.ApiBody | None = None
        if route.body is not None:
            body = await aside(len(incoming.body), partial(decoded, incoming.body, route.body))
        return Call(
            tenant=principal.tenant,
            key=principal.key,
            memories=self.memories,
            budgets=self._budgets,
            cursors=self._cursors,
            route=route.path,
            path=path,
            query=read_query(incoming.query, route.query),
            body=body,
            now=time.time(),
            seconds=seconds,
            writes=route.writes,
            keyed=route.idempotency != "none" and "idempotency-key" in incoming.headers,
        )

    async def _carried_out(
        self, route: ApiRoute, call: Call, incoming: Incoming
    ) -> tuple[int, list[Header], bytes]:
        key = incoming.headers.get("idempotency-key")
        if key is None or route.idempotency == "none":
            return await self._done(route, call)
        if _TOKEN.fullmatch(key) is None:
            raise Problem(
                ProblemKind.BAD_REQUEST, "Idempotency-Key: up to 255 visible ASCII characters"
            )
        records = await self.memories.records()
        key_hash = self._mark(call, b"key", key.encode())
        lease_seconds = call.seconds + LEASE_MARGIN_SECONDS
        lease_seconds += FINISH_SECONDS if route.to_the_end else 0.0
        claimed = await records.claim(
            call.tenant.id,
            key_hash,
            self._mark(call, b"request", incoming.method.encode(), incoming.target, incoming.body),
            now=call.now,
            lease_seconds=lease_seconds,
            keep_seconds=self._serve.idempotency_hours * 3_600.0,
        )
        if not claimed.same_request:
            raise Problem(ProblemKind.KEY_REUSED, "take a new Idempotency-Key for another request")
        if claimed.running_until is not None:
            raise Problem(
                ProblemKind.IN_PROGRESS,
                "it is under way, perhaps on a node that died: try again",
                retry_after=max(0.0, claimed.running_until - call.now),
            )
        if claimed.status is not None and route.idempotency == "kept":
            again = [(b"content-type", b"application/json"), (b"idempotency-replayed", b"true")]
            return claimed.status, again, claimed.answer or b"{}"
        if claimed.status is not None:  # what it did is done: again, it changes nothing
            return await self._done(route, call)
        assert claimed.lease_token is not None
        claim = _Claim(
            records=records,
            tenant=call.tenant.id,
            key_hash=key_hash,
            token=claimed.lease_token,
            ends_at=time.monotonic() + lease_seconds,
        )
        work = self.memories.beside(self._done_once(route, call, claim))
        try:
            answer = await asyncio.shield(work)
        except asyncio.CancelledError:
            if not (claim.is_done or route.to_the_end):
                work.cancel()
                await asyncio.wait({work})
            raise
        if isinstance(answer, Problem):
            raise answer
        return answer

    async def _done(self, route: ApiRoute, call: Call) -> tuple[int, list[Header], bytes]:
        answer = await self._worked(route, call)
        if isinstance(answer, Problem):
            raise answer
        await asyncio.shield(self.memories.beside(self._settle(call)))
        return answer

    async def _done_once(
        self, route: ApiRoute, call: Call, claim: _Claim
    ) -> tuple[int, list[Header], bytes] | Problem:
        """Carry out a request that came with a key. The key is released only where nothing was
        done; from then on nothing stops it, and the answer is kept before all else."""
        try:
            answer = await self._worked(route, call)
        except BaseException:
            self._release(claim)
            raise
        if isinstance(answer, Problem):
            self._release(claim)
            return answer
        claim.is_done = True
        kept = answer[2] if route.idempotency == "kept" else b""
        self.memories.beside(self._keep_answer(claim, answer[0], kept))
        await claim.was_tried.wait()  # where that failed, the caller has its answer all the same
        await self._settle(call)
        return answer

    def _release(self, claim: _Claim) -> None:
        """Nobody waits for it: the answer is due, and the database may be away."""
        self.memories.beside(
            attempted(claim.records.release(claim.tenant, claim.key_hash, claim.token))
        )

    async def _keep_answer(self, claim: _Claim, status: int, answer: bytes) -> None:
        """Keep what was answered, however often that has to be tried while nobody else may take the
        request over."""
        seconds, most = KEEP_AGAIN_SECONDS
        while True:
            kept = await attempted(
                claim.records.keep_answer(
                    claim.tenant, claim.key_hash, claim.token, status=status, answer=answer
                )
            )
            claim.was_tried.set()
            if not isinstance(kept, Failure):
                return
            if time.monotonic() + seconds > claim.ends_at:
                LOG.error("an answer could not be kept for its Idempotency-Key: %s", kept.said)
                return
            await asyncio.sleep(seconds)
            seconds = min(2 * seconds, most)

    async def _worked(
        self, route: ApiRoute, call: Call
    ) -> tuple[int, list[Header], bytes] | Problem:
        """What a request comes to. What models were asked is counted whatever becomes of it."""

        def asked(use: ModelUse) -> None:
            if use.purpose == "summary":
                call.tokens += use.input_tokens + use.output_tokens
                if call.is_charged:  # it went on beside the request, or was cut off with it
                    self.memories.beside(self._settle(call))

        metering = METER.set(asked)
        answer: m.ApiAnswer | Problem | Failure | None = None
        try:
            answer = await attempted(_problems_kept(route.call(call)))
        finally:
            METER.reset(metering)
            if not isinstance(answer, m.ApiAnswer):
                self.memories.beside(self._settle(call))
        if isinstance(answer, Failure):
            problem = problem_of(answer.error, answer.said, keyed=call.keyed)
            if issubclass(answer.error, Exception) and problem.kind is ProblemKind.INTERNAL:
                LOG.error("%s %s failed: %s", route.method, route.path, answer.said)
            return problem
        if isinstance(answer, Problem):
            return answer
        return 200, [(b"content-type", b"application/json")], _ENCODER.encode(answer)

    async def _settle(self, call: Call) -> None:
        """Count what a request took; and once in a while remove what has expired."""
        tokens, call.tokens, call.is_charged = call.tokens, 0, True
        if time.monotonic() - self._purged_at > PURGE_SECONDS:
            self._purged_at = time.monotonic()
            self.memories.beside(self._purge(call.now))
        await self._charge(call.tenant, tokens)

    async def _charge(self, tenant: Tenant, tokens: int) -> None:
        """Count tokens of work that is done: where that fails, the caller has its answer."""
        if not tokens or tenant.tokens_per_day is None:
            return

        async def charge() -> None:
            records = await self.memories.records()
            await self._budgets.charge_tokens(tenant, records, tokens)

        charged = await attempted(charge())
        if isinstance(charged, Failure):
            LOG.error("%d tokens could not be counted: %s", tokens, charged.said)

    async def _purge(self, now: float) -> None:
        async def purge() -> None:
            await (await self.memories.records()).purge_all(now=now)

        purged = await attempted(purge())
        if isinstance(purged, Failure):
            LOG.error("what has expired could not be removed: %s", purged.said)

    def _mark(self, call: Call, *parts: bytes) -> bytes:
        """A keyed hash, so that a database gives away neither keys nor what was asked."""
        made = blake2b(call.tenant.id.bytes, key=self._secret, digest_size=32)
        for part in parts:
            made.update(len(part).to_bytes(8, "big") + part)
        return made.digest()


async def _problems_kept(work: Awaitable[m.ApiAnswer]) -> m.ApiAnswer | Problem:
    """A problem is an answer, not a failure."""
    try:
        return await work
    except Problem as problem:
        return problem


async def unless_gone_after(receive: Receive, work: Callable[[Receive], Awaitable[None]]) -> None:
    """Do it, and stop when the client is gone once its whole request has come."""
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
    """A body that has been read, to be read again; behind it, what comes from the client."""
    left = [body]

    async def replayed() -> MutableMapping[str, Any]:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": False}
        return await receive()

    return replayed


class _McpAsked(msgspec.Struct):
    """What is looked at of a message to a tool."""

    class Params(msgspec.Struct):
        arguments: dict[str, msgspec.Raw] = {}

    params: Params = msgspec.field(default_factory=Params)


class _McpTold(msgspec.Struct):
    """What is looked at of the answer."""

    class Result(msgspec.Struct):
        content: list[dict[str, msgspec.Raw]] = []
        contents: list[dict[str, msgspec.Raw]] = []

    result: Result = msgspec.field(default_factory=Result)


def mcp_texts(request: bytes, answer: bytes) -> list[str]:
    """What a tool was given and what it, or a resource, answered; nothing of other messages.

    All else is passed over unread: what somebody made large costs little.
    """
    try:
        asked = msgspec.json.decode(request, type=_McpAsked)
        told = msgspec.json.decode(answer or b"{}", type=_McpTold)
        parts = [*told.result.content, *told.result.contents]
        raws = [*asked.params.arguments.values(), *(one["text"] for one in parts if "text" in one)]
        return [msgspec.json.decode(raw, type=str) for raw in raws if bytes(raw).startswith(b'"')]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []  # no message of the protocol, and refused as such


def _traceparent(scope: Scope) -> str:
    """The caller's span, as W3C writes it; empty where there is none."""
    found = (value for name, value in scope["headers"] if name.lower() == b"traceparent")
    return bytes(next(found, b"")).decode("latin-1")


def read_request(scope: Scope, record: RequestRecord) -> Incoming:
    """A request's line and headers; Problem where they cannot be read."""
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
    """The parameters of a request; Problem where they are not as they must be."""
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
    """The body of a request; Problem where it is not as it must be."""
    try:
        body.decode()  # what is passed on unread has to be text, too
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise Problem(ProblemKind.INVALID, f"{error}; {_expected(body, kind)}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Problem(ProblemKind.BAD_REQUEST, "the body is not JSON") from None


def _expected(body: bytes, kind: type[m.ApiBody]) -> str:
    """What a body takes; and where to put what came beside the `request` it belongs into."""
    fields = kind.__struct_encode_fields__
    takes = f"this body takes {', '.join(fields)}"
    try:
        given = msgspec.json.decode(body, type=dict[str, msgspec.Raw])  # names alone cost little
    except (msgspec.DecodeError, RecursionError):  # what came first was wrong already
        given = {}
    beside = _OF_REQUESTS & given.keys()
    if beside and "request" in fields:
        takes += f": put {', '.join(sorted(beside))} under `request`"
    return takes


async def _send(send: Send, status: int, headers: list[Header], body: bytes) -> None:
    sent = [
        *headers,
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": sent})
    await send({"type": "http.response.body", "body": body, "more_body": False})
