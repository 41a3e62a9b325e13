"""The service as an ASGI application. It checks deadline and key first, then scope, the node's
limits, the tenant's budgets, the body and the idempotency key. Only the key decides which tenant a
request belongs to. Two requests with the same idempotency key never run at the same time.

At the first SIGTERM or SIGINT a node answers /readyz with 503 and serves for another
`serve.drain_seconds`. Then it accepts no more requests, finishes open ones, and closes. A second
signal skips the wait.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from starlette.requests import Request

import recollect
from recollect.adapters.wiring import deployment_secret
from recollect.adapters.wiring.stores import SECRET_VARIABLE, require_server
from recollect.core.boundary import Failure, attempted
from recollect.core.engine.background import METER
from recollect.core.values.model import ModelUse
from recollect.core.values.tenant import Tenant, tenant_space
from recollect.hosts.http import (
    ClientDisconnect,
    HTTPException,
    HttpServer,
    Receive,
    Send,
    read_body,
)
from recollect.hosts.service import models as m
from recollect.hosts.service.api import PREFIX, ApiRoute, matching, openapi
from recollect.hosts.service.keys import Principal, Principals
from recollect.hosts.service.limits import Budgets, FairQueue, Intake, Taking
from recollect.hosts.service.memories import MOST_SECONDS, TenantMemories
from recollect.hosts.service.operations import aside
from recollect.hosts.service.problems import Problem, ProblemKind, again, problem_of
from recollect.hosts.service.requests import (
    Answer,
    Call,
    Cursors,
    Header,
    IdempotencyKeys,
    Incoming,
    KeyClaim,
    Scope,
    decoded,
    read_query,
    read_request,
    replaying,
    unless_gone_after,
)
from recollect.hosts.service.telemetry import RequestRecord
from recollect.system.config import Settings
from recollect.system.telemetry import measured

if TYPE_CHECKING:
    import uvicorn

    from recollect.hosts.service.metrics import Metrics

MountedApp: TypeAlias = Callable[[Scope, Receive, Send, Principal], Awaitable[None]]
"""An application mounted next to the API. It gets requests whose key and space are known."""
MountMcp: TypeAlias = Callable[[TenantMemories, bytes], AbstractAsyncContextManager[MountedApp]]
"""Opens the MCP application, given a node's memories and the deployment's secret."""

LOG: Final = logging.getLogger("recollect")
MOST_BODY_BYTES: Final = 16_000_000
MOST_REQUESTS: Final = 1_024
TENANT_WAITING: Final = 64
"""Number of a tenant's requests that may wait for their turn. More are refused with 429."""
ANSWERS_KEPT_SECONDS: Final = 24 * 3_600.0
BODY_SECONDS: Final = 30.0
"""Time limit for receiving a body, whatever the request's deadline."""
PURGE_SECONDS: Final = 3_600.0
LEAST_SECONDS: Final = 0.01
MCP_BYTES_PER_TOKEN: Final = 4
"""An MCP message is charged by the size of its request and answer."""
_ENCODER: Final = msgspec.json.Encoder()


class Service:
    """The application of one node."""

    def __init__(
        self,
        settings: Settings,
        url: str,
        *,
        secret: bytes = b"",
        mcp: MountMcp | None = None,
    ) -> None:
        """`secret` is the same on all nodes. `mcp` serves the paths that end in `/mcp`."""
        serve = settings.serve
        self._serve = serve
        self.memories: TenantMemories = TenantMemories(settings, url)
        self._cursors = Cursors(secret)
        self._budgets = Budgets()
        self._queue = FairQueue(serve.concurrency, tenant_waiting=TENANT_WAITING)
        self._mount_mcp = mcp
        self._mcp: MountedApp | None = None
        self._deployment_secret = secret
        self._principals = Principals(self.memories)
        self._idempotency = IdempotencyKeys(
            self.memories, secret, keep_seconds=ANSWERS_KEPT_SECONDS
        )
        self._intake = Intake(MOST_REQUESTS, max_body_bytes=MOST_BODY_BYTES)
        self._purged_at = time.monotonic()
        self._document = _ENCODER.encode(openapi())
        self.draining: bool = False

    @property
    def waiting(self) -> int:
        return self._queue.waiting

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await unless_gone_after(receive, lambda got: self._serve_one(scope, got, send))

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        if not self._deployment_secret:
            LOG.warning(
                "%s is not set: cursors and idempotency keys are hashed with a public default "
                "key. Set it to the same long random text on all nodes, before anything is stored",
                SECRET_VARIABLE,
            )
        opened = await attempted(self.memories.fleet())
        if isinstance(opened, Failure):
            LOG.warning("the database cannot be used yet: %s", opened.said)
        warmed = await attempted(self.memories.warm_up())
        if isinstance(warmed, Failure):
            LOG.warning("the first requests may be slow: %s", warmed.said)
        async with AsyncExitStack() as running:
            if self._mount_mcp is not None:
                mounted = self._mount_mcp(self.memories, self._deployment_secret)
                self._mcp = await running.enter_async_context(mounted)
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await self.memories.close()
        await send({"type": "lifespan.shutdown.complete"})

    def drain(self) -> None:
        """Answer /readyz with 503 from now on, but continue to serve."""
        self.draining = True

    async def _serve_one(self, scope: Scope, receive: Receive, send: Send) -> None:
        record = RequestRecord()
        began = time.perf_counter()
        with measured("request", record.operation) as heard:
            try:
                await self._answer(scope, receive, send, record)
            finally:
                record.tell(heard)
                record.log(time.perf_counter() - began, self._deployment_secret)

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
            return  # the mounted application has answered already
        if isinstance(answered, Problem):
            await _send(noting, answered.kind.status, answered.headers(), answered.body())
        else:
            status, headers, body = answered
            await _send(noting, status, headers, body)

    async def _answered(
        self, scope: Scope, receive: Receive, send: Send, record: RequestRecord
    ) -> Answer | Problem | None:
        try:
            incoming = read_request(scope, record)
            if (page := await self._open_page(incoming)) is not None:
                return page
            return await self._for_tenant(scope, incoming, receive, send)
        except Problem as problem:
            return problem

    async def _open_page(self, incoming: Incoming) -> Answer | None:
        if incoming.parts == ("openapi.json",) and incoming.method == "GET":
            incoming.record.operation = "openapi"
            return 200, [(b"content-type", b"application/json")], self._document
        if incoming.parts not in {("healthz",), ("readyz",)}:
            return None
        if incoming.method != "GET":
            raise Problem(ProblemKind.METHOD, "use GET", allow="GET")
        incoming.record.operation = incoming.parts[0]
        reason: m.NotReady | None = None
        if incoming.parts == ("readyz",):
            reason = "draining" if self.draining else await self.memories.not_ready()
        incoming.record.reason = reason or ""
        state: Any = {None: "ok", "draining": "draining"}.get(reason, "unavailable")
        told = m.HealthAnswer(status=state, version=recollect.__version__, reason=reason)
        return (
            200 if reason is None else 503,
            [(b"content-type", b"application/json")],
            _ENCODER.encode(told),
        )

    async def _for_tenant(
        self, scope: Scope, incoming: Incoming, receive: Receive, send: Send
    ) -> Answer | None:
        seconds = self._seconds(incoming)
        try:
            async with asyncio.timeout(seconds):
                principal = await self._principals.of(incoming.headers.get("authorization", ""))
                record = incoming.record
                record.tenant = principal.tenant.id
                if self._is_mcp(incoming.parts):
                    record.operation = "mcp"
                    record.space = tenant_space(principal.tenant.id, incoming.parts[2])
                    with self._intake.request(principal.tenant.id) as taking:
                        await self._serve_mcp(scope, incoming, receive, send, principal, taking)
                    return None
                route, path = self._route(incoming)
                record.operation = route.operation
                if "space" in path:
                    record.space = tenant_space(principal.tenant.id, path["space"])
                if route.scope not in principal.key.scopes:
                    raise Problem(
                        ProblemKind.FORBIDDEN,
                        f"this request needs a key with the scope {route.scope}",
                    )
                with self._intake.request(principal.tenant.id) as taking:
                    if route.counted:
                        await self._take(principal.tenant)
                    incoming.body = await self._body(incoming, receive, taking)
                    call = await self._call(route, path, incoming, principal, seconds)
                    left = seconds - (time.monotonic() - incoming.began)
                    async with self._queue.turn(principal.tenant.id, left):
                        return await self._carry_out(route, call, incoming)
        except TimeoutError:
            raise Problem(
                ProblemKind.DEADLINE,
                f"the request took longer than {self._asked_seconds(incoming, seconds):g} s: "
                + again(keyed="idempotency-key" in incoming.headers),
                retry_after=1.0,
            ) from None

    async def _serve_mcp(
        self,
        scope: Scope,
        incoming: Incoming,
        receive: Receive,
        send: Send,
        principal: Principal,
        taking: Taking,
    ) -> None:
        assert self._mcp is not None
        if incoming.method != "POST":
            raise Problem(ProblemKind.METHOD, "send each message as its own POST", allow="POST")
        tenant, space = principal.tenant, incoming.parts[2]
        await self._take(tenant)
        incoming.body = await self._body(incoming, receive, taking)
        size = len(incoming.body)

        async def charging(message: MutableMapping[str, Any]) -> None:
            """Count before the answer is sent, because the client may disconnect."""
            nonlocal size
            if message["type"] == "http.response.body":
                size += len(message.get("body", b""))
                if not message.get("more_body"):
                    await self._charge(tenant, size // MCP_BYTES_PER_TOKEN)
            await send(message)

        left = self._seconds(incoming) - (time.monotonic() - incoming.began)
        async with self._queue.turn(tenant.id, left):
            # if the key may write, a tool creates the space when it writes
            if "write" not in principal.key.scopes and not await (
                await self.memories.records()
            ).has_space(tenant.id, space):
                raise Problem(ProblemKind.NOT_FOUND, "the tenant has no space with this name")
            replayed = replaying(incoming.body, receive)
            await self._mcp(scope, replayed, charging, replace(principal, space=space))

    def _is_mcp(self, parts: tuple[str, ...]) -> bool:
        if self._mcp is None or len(parts) != 4:
            return False
        return (parts[0], parts[1], parts[3]) == ("v1", "spaces", "mcp")

    def _route(self, incoming: Incoming) -> tuple[ApiRoute, dict[str, str]]:
        if incoming.parts[:1] != (PREFIX[1:],):
            raise Problem(ProblemKind.NOT_FOUND, "see /openapi.json for the paths")
        found = matching(incoming.parts[1:])
        if not found:
            raise Problem(ProblemKind.NOT_FOUND, "see /openapi.json for the paths")
        if incoming.method not in found:
            raise Problem(
                ProblemKind.METHOD,
                "see /openapi.json for the methods of this path",
                allow=", ".join(sorted(found)),
            )
        return found[incoming.method]

    async def _take(self, tenant: Tenant) -> None:
        if tenant.requests_per_minute is None and tenant.tokens_per_day is None:
            return
        records = await self.memories.records()
        await self._budgets.take_request(tenant, records)
        await self._budgets.check_tokens(tenant, records)

    def _seconds(self, incoming: Incoming) -> float:
        text = incoming.headers.get("x-request-timeout")
        if text is None:
            return min(self._serve.deadline_seconds, MOST_SECONDS)
        try:
            seconds = float(text)
        except ValueError:
            seconds = 0.0
        if not seconds > 0:
            raise Problem(
                ProblemKind.BAD_REQUEST, "X-Request-Timeout must be a number of seconds above 0"
            )
        return max(LEAST_SECONDS, min(seconds, MOST_SECONDS))

    def _asked_seconds(self, incoming: Incoming, seconds: float) -> float:
        return min(float(incoming.headers.get("x-request-timeout", seconds)), seconds)

    async def _body(self, incoming: Incoming, receive: Receive, taking: Taking) -> bytes:
        request = Request(incoming.scope, receive)
        try:
            body = await read_body(
                request, most=MOST_BODY_BYTES, seconds=BODY_SECONDS, count=taking.hold
            )
        except HTTPException as refusal:
            late = refusal.status_code == 408
            kind = ProblemKind.DEADLINE if late else ProblemKind.TOO_LARGE
            raise Problem(kind, refusal.detail, retry_after=1.0 if late else None) from None
        except ClientDisconnect:
            raise asyncio.CancelledError from None
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
            raise Problem(ProblemKind.BAD_REQUEST, "this request must have no body")
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
            needs_space=route.needs_space,
            keyed=route.idempotency != "none" and "idempotency-key" in incoming.headers,
        )

    async def _carry_out(self, route: ApiRoute, call: Call, incoming: Incoming) -> Answer:
        key = incoming.headers.get("idempotency-key")
        if key is None or route.idempotency == "none":
            return await self._done(route, call)
        claim = await self._idempotency.claim(
            key,
            call,
            incoming,
            keeps_answer=route.idempotency == "kept",
            to_the_end=route.to_the_end,
        )
        if claim is None:
            return await self._done(route, call)
        if not isinstance(claim, KeyClaim):
            return claim
        return await self._idempotency.carry_out(
            claim, partial(self._work, route, call), partial(self._settle, call)
        )

    async def _done(self, route: ApiRoute, call: Call) -> Answer:
        answer = await self._work(route, call)
        if isinstance(answer, Problem):
            raise answer
        await asyncio.shield(self.memories.beside(self._settle(call)))
        return answer

    async def _work(self, route: ApiRoute, call: Call) -> Answer | Problem:
        def asked(use: ModelUse) -> None:
            if use.purpose == "summary":
                call.tokens += use.input_tokens + use.output_tokens
                # The call ran in parallel with the request, or was cancelled with it.
                if call.is_charged:
                    self.memories.beside(self._settle(call))

        metering = METER.set(asked)
        answer: m.ApiAnswer | Problem | Failure | None = None
        try:
            answer = await attempted(_keep_problems(route.call(call)))
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
        tokens, call.tokens, call.is_charged = call.tokens, 0, True
        if time.monotonic() - self._purged_at > PURGE_SECONDS:
            self._purged_at = time.monotonic()
            self.memories.beside(self._purge(call.now))
        await self._charge(call.tenant, tokens)

    async def _charge(self, tenant: Tenant, tokens: int) -> None:
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
            LOG.error("expired data could not be removed: %s", purged.said)


async def _keep_problems(work: Awaitable[m.ApiAnswer]) -> m.ApiAnswer | Problem:
    try:
        return await work
    except Problem as problem:
        return problem


async def _send(send: Send, status: int, headers: list[Header], body: bytes) -> None:
    sent = [
        *headers,
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": sent})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def service_of(settings: Settings, *, mcp: MountMcp | None = None) -> Service:
    """Make the application of a node. Raise SettingsError if its store is not a server."""
    url = require_server(settings.store.url)
    return Service(settings, url, secret=deployment_secret(), mcp=mcp)


def watch(service: Service, metrics: Metrics) -> None:
    """Let the metrics read a node's connections, queue and memories."""
    memories = service.memories
    metrics.watch(
        lambda: memories.pool,
        waiting=lambda: service.waiting,
        memories=lambda: memories.open_memories,
    )


def server_of(
    service: Service,
    settings: Settings,
    *,
    on_ready: Callable[[], None] = lambda: None,
    on_draining: Callable[[], None] = lambda: None,
) -> uvicorn.Server:
    """Make the HTTP server of a node, which drains before it stops."""
    server = HttpServer(service, stop_seconds=round(MOST_SECONDS))

    def end() -> None:
        server.force_exit = server.should_exit
        server.should_exit = True

    def drain_first(sig: int, frame: FrameType | None) -> None:
        """Replace uvicorn's handler, which would end the process by the signal, as if it had
        failed."""
        del sig, frame
        if service.draining:
            end()
            return
        service.drain()
        loop = asyncio.get_running_loop()
        loop.call_later(settings.serve.drain_seconds, end)
        loop.call_soon(on_draining)  # run outside of the signal handler, and do not delay the end

    start = server.startup

    async def tell_when_ready(sockets: list[socket.socket] | None = None) -> None:
        await start(sockets)
        if server.started:
            on_ready()

    server.startup = tell_when_ready  # type: ignore[method-assign]
    server.handle_exit = drain_first  # type: ignore[method-assign]
    return server
