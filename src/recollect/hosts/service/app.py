"""The service as an HTTP application.

A node checks deadline and key first, then scope, the node's limits, the tenant's budgets, the body
and the idempotency key. Only the key decides to which tenant a request belongs. Two requests with
the same idempotency key never run at the same time.

At the first SIGTERM or SIGINT, a node answers /readyz with 503 and serves for another
`serve.drain_seconds`. After this drain the node accepts no more requests, finishes open ones, and
closes. A second signal ends the wait."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import Message, Receive, Scope, Send

import recollect
from recollect.adapters.wiring import deployment_secret
from recollect.adapters.wiring.secrets import SECRET_VARIABLE
from recollect.adapters.wiring.stores import require_server
from recollect.core.boundary import Failure, attempted
from recollect.core.engine.background import METER
from recollect.core.values.model import ModelUse
from recollect.core.values.tenant import KeyScope, Tenant, tenant_space
from recollect.hosts.http import HttpServer, JsonAnswer, application, in_thread_if_large, read_body
from recollect.hosts.service import models as m
from recollect.hosts.service.api import PREFIX, ROUTES, openapi
from recollect.hosts.service.keys import Principal, Principals
from recollect.hosts.service.limits import FairQueue, Intake, Taking
from recollect.hosts.service.memories import MOST_SECONDS, TenantMemories
from recollect.hosts.service.problems import Problem, ProblemKind, problem_of, retry_advice
from recollect.hosts.service.requests import (
    ApiRoute,
    Call,
    Cursors,
    IdempotencyKeys,
    KeyClaim,
    collect,
    decode_body,
    read_names,
    read_query,
    run_after_body,
)
from recollect.hosts.service.telemetry import RequestRecord
from recollect.system.config import Settings
from recollect.system.loopback import host_of
from recollect.system.telemetry import measure_action

if TYPE_CHECKING:
    from recollect.hosts.inspector.app import Inspector
    from recollect.hosts.service.metrics import Metrics

AnswerMcp: TypeAlias = Callable[[Request, bytes, Principal], Awaitable[Response]]
"""Answers an MCP message for a tenant and a space. The message is a request whose body was read."""
MountMcp: TypeAlias = Callable[[TenantMemories, bytes], AbstractAsyncContextManager[AnswerMcp]]
"""Opens the MCP server, given a node's memories and the deployment's secret."""
T = TypeVar("T")

LOG: Final = logging.getLogger("recollect")
MOST_BODY_BYTES: Final = 16_000_000  # not measured; a window of 1M tokens has about 4 MB
MOST_REQUESTS: Final = 1_024  # not measured; bounds memory, with MOST_BODY_BYTES
MOST_STREAMS: Final = 64
"""Maximum number of live inspector streams. One tenant may use a fourth of them."""
TENANT_WAITING: Final = 64
"""Number of a tenant's requests that may wait for their turn. Further requests get 429."""
ANSWERS_KEPT_SECONDS: Final = 24 * 3_600.0  # clients retry within a day
BODY_SECONDS: Final = 30.0
"""Time limit for receiving a body, independent of the request's deadline."""
PURGE_SECONDS: Final = 3_600.0  # not measured; expired rows are only space
LEAST_SECONDS: Final = 0.01  # so that a deadline of 0 fails as late, not as invalid
MCP_BYTES_PER_TOKEN: Final = 4
"""An MCP message is charged as one token per this many bytes of request and answer."""
_HEADERS: Final = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
_SINGLE: Final = ("authorization", "idempotency-key", "x-request-timeout")


@dataclass(slots=True, kw_only=True)
class _Admitted:
    """A tenant's request that a node has accepted."""

    principal: Principal
    body: bytes = field(repr=False)
    ends_at: float
    """Deadline of the request, by the monotonic clock."""

    @property
    def seconds(self) -> float:
        return self.ends_at - time.monotonic()


class Service:
    """The application of one node."""

    def __init__(
        self, settings: Settings, url: str, *, secret: bytes = b"", mcp: MountMcp | None = None
    ) -> None:
        """Create the application. All nodes have the same `secret`. `mcp` answers paths in
        `/mcp`."""
        serve = settings.serve
        self._serve = serve
        hosts = (host_of(f"//{name}") for name in serve.public_hosts)
        self._public_hosts = frozenset(filter(None, hosts))
        self._settings = settings
        self._inspector: Inspector | None = None
        self._pages: Starlette | None = None
        self._streams = Intake(MOST_STREAMS, max_body_bytes=0)
        self.memories: TenantMemories = TenantMemories(settings, url)
        self._cursors = Cursors(self.memories)
        self._queue = FairQueue(serve.concurrency, tenant_waiting=TENANT_WAITING)
        self._mount_mcp = mcp
        self._answer_mcp: AnswerMcp | None = None
        self._deployment_secret = secret
        self._principals = Principals(self.memories)
        self._idempotency = IdempotencyKeys(self.memories, keep_seconds=ANSWERS_KEPT_SECONDS)
        self._intake = Intake(MOST_REQUESTS, max_body_bytes=MOST_BODY_BYTES)
        self._purged_at = time.monotonic()
        self._document = openapi()
        self.draining: bool = False
        self._app = application(
            self._routes(), lifespan=self._lifespan, on_problem=self._answer_unrouted
        )

    def _routes(self) -> list[BaseRoute]:
        routes: list[BaseRoute] = [
            Route("/openapi.json", self._page("openapi", self._openapi)),
            Route("/healthz", self._page("healthz", self._health)),
            Route("/readyz", self._page("readyz", self._health)),
        ]
        by_path: dict[str, dict[str, ApiRoute]] = {}
        for route in ROUTES:
            by_path.setdefault(PREFIX + route.path, {})[route.method] = route
        for path, methods in by_path.items():
            call = self._page("other", partial(self._serve_api, methods))
            routes.append(Route(path, call, methods=list(methods)))
        if self._mount_mcp is not None:
            path = f"{PREFIX}/spaces/{{space}}/mcp"
            routes.append(Route(path, self._page("mcp", self._serve_mcp), methods=["POST"]))
        return [*routes, Mount("/inspector", self._inspect)]

    async def _inspect(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the inspector within the limits of other requests. The first request imports its
        pages."""
        from recollect.hosts.inspector.access import refusal_of
        from recollect.hosts.service.inspector import CHALLENGE, KeyAccess, as_bearer

        if self._pages is None:
            from recollect.hosts.inspector.app import Inspector

            entry = KeyAccess(self._visitor, self.memories, self._settings)
            self._inspector = Inspector(entry.admit, self._settings)
            self._pages = Starlette(routes=self._inspector.routes())
        pages, request = self._pages, Request(scope, receive)
        key = as_bearer(request.headers.get("authorization", ""))

        async def visit(request: Request) -> Response:
            async with (
                self._admit(request, {}, None, counted=False, key=key) as admission,
                self._queue.turn(admission.principal.tenant.id, admission.seconds),
            ):
                return await collect(pages, request, admission.body)

        async def stream(request: Request) -> Response:
            principal = await self._principals.of(key)
            with self._streams.request(principal.tenant.id):
                await pages(request.scope, receive, send)
            return Response()

        work = stream if scope["path"].endswith("/live") else visit
        refusal = refusal_of(request, self._public_hosts)
        answer = refusal or await self._page("inspector", work)(request)
        if not request.state.record.status:  # a stream has sent its answer
            if answer.status_code == ProblemKind.UNAUTHORIZED.status:
                answer.headers.update(CHALLENGE)
            await answer(scope, receive, send)

    async def _visitor(self, header: str) -> Principal:
        principal = await self._principals.of(header)
        await self._take(principal.tenant)
        return principal

    @property
    def waiting(self) -> int:
        return self._queue.waiting

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await run_after_body(receive, lambda got: self._record(scope, got, send))
        else:
            await self._app(scope, receive, send)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        del app
        if not self._deployment_secret:
            LOG.warning(
                "%s is not set: cursors and idempotency keys are hashed with a public default "
                "key. Set it to the same long random text on all nodes, before anything is stored",
                SECRET_VARIABLE,
            )
        opening = await attempted(self.memories.fleet())
        if isinstance(opening, Failure):
            LOG.warning("the database cannot be used yet: %s", opening.said)
        warming = await attempted(self.memories.warm_up())
        if isinstance(warming, Failure):
            LOG.warning("the first requests may be slow: %s", warming.said)
        async with AsyncExitStack() as running:
            if self._mount_mcp is not None:
                mcp_context = self._mount_mcp(self.memories, self._deployment_secret)
                self._answer_mcp = await running.enter_async_context(mcp_context)
            yield
        await self.memories.close()

    def drain(self) -> None:
        """Answer /readyz with 503 from now on, but continue to serve."""
        self.draining = True
        self.end_streams()

    def end_streams(self) -> None:
        """End the live streams of the inspector, which would delay the stop."""
        if self._inspector is not None:
            self._inspector.end()

    async def _record(self, scope: Scope, receive: Receive, send: Send) -> None:
        record = RequestRecord()

        async def send_noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                own_headers = ((b"x-request-id", record.id.encode()), *_HEADERS)
                message["headers"] = [*message["headers"], *own_headers]
            await send(message)

        # Names in paths may contain an encoded slash, so routes match the path as it was sent.
        raw_path = scope.get("raw_path") or scope["path"].encode("utf-8", "surrogateescape")
        path = bytes(raw_path).partition(b"?")[0].decode("latin-1")
        routed_scope = {**scope, "path": path, "state": {"record": record}}
        began = time.perf_counter()
        with measure_action("request", record.operation) as measurement:
            try:
                await self._app(routed_scope, receive, send_noted)
            finally:
                record.tell(measurement)
                record.log(time.perf_counter() - began, self._deployment_secret)

    def _page(
        self, operation: str, work: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            request.state.record.operation = operation
            result = await attempted(_keep_problems(work(request)))
            if isinstance(result, Failure):
                LOG.error("a request failed: %s", result.said)
                result = problem_of(result.error, result.said)
            if not isinstance(result, Problem):
                return result
            request.state.record.reason = result.reason
            return Response(result.body(), result.kind.status, result.headers())

        return answer

    async def _answer_unrouted(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        problem = Problem(ProblemKind.NOT_FOUND, "see /openapi.json for the paths")
        if error.status_code == 405:
            problem = Problem(
                ProblemKind.METHOD,
                "see /openapi.json for the methods of this path",
                allow=(error.headers or {}).get("Allow", ""),
            )

        async def refuse(request: Request) -> Response:
            if request.scope["path"].startswith(f"{PREFIX}/"):
                async with asyncio.timeout(self._serve.deadline_seconds):
                    await self._principals.of(request.headers.get("authorization", ""))
            raise problem

        return await self._page("other", refuse)(request)

    async def _openapi(self, request: Request) -> Response:
        del request
        return JsonAnswer(self._document)

    async def _health(self, request: Request) -> Response:
        record = request.state.record
        reason: m.NotReady | None = None
        if record.operation == "readyz":
            reason = "draining" if self.draining else await self.memories.not_ready()
        record.reason = reason or ""
        # all nodes share the disk, and none must keep searches and removals from it
        well = reason in (None, "disk-full")
        state: Any = "ok" if well else "draining" if self.draining else "unavailable"
        answer = m.HealthAnswer(status=state, version=recollect.__version__, reason=reason)
        return JsonAnswer(answer, 200 if well else 503)

    async def _serve_api(self, methods: dict[str, ApiRoute], request: Request) -> Response:
        route = methods["GET" if request.method == "HEAD" else request.method]
        request.state.record.operation = route.operation
        names = read_names(request)
        async with self._admit(request, names, route.scope, counted=route.is_counted) as admission:
            call = await self._call(route, names, request, admission)
            async with self._queue.turn(call.tenant.id, admission.seconds):
                return await self._carry_out(call, request, admission.body)

    async def _serve_mcp(self, request: Request) -> Response:
        names = read_names(request)
        async with self._admit(request, names, None, counted=True) as admission:
            principal, space = admission.principal, names["space"]
            async with self._queue.turn(principal.tenant.id, admission.seconds):
                # if the key may write, a tool that writes creates the space
                if "write" not in principal.key.scopes:
                    await self.memories.require(principal.tenant.id, space)
                assert self._answer_mcp is not None
                space_principal = replace(principal, space=space)
                answer = await self._answer_mcp(request, admission.body, space_principal)
                # Count before the answer is sent, because the client may disconnect.
                size = len(admission.body) + len(answer.body)
                await self._charge(principal.tenant, size // MCP_BYTES_PER_TOKEN)
                return answer

    @asynccontextmanager
    async def _admit(
        self,
        request: Request,
        names: dict[str, str],
        scope: KeyScope | None,
        *,
        counted: bool,
        key: str | None = None,
    ) -> AsyncIterator[_Admitted]:
        """Accept a tenant's request, and limit its time while the block runs. `key` replaces the
        request's own header."""
        for name in _SINGLE:
            if len(request.headers.getlist(name)) > 1:
                raise Problem(ProblemKind.BAD_REQUEST, f"{name} appears twice")
        requested_seconds = self._read_timeout(request)
        seconds = max(LEAST_SECONDS, min(requested_seconds, MOST_SECONDS))
        ends_at = time.monotonic() + seconds
        record = request.state.record
        try:
            async with asyncio.timeout(seconds):
                key = request.headers.get("authorization", "") if key is None else key
                principal = await self._principals.of(key)
                tenant = principal.tenant
                record.tenant = tenant.id
                if "space" in names:
                    record.space = tenant_space(tenant.id, names["space"])
                if scope is not None and scope not in principal.key.scopes:
                    raise Problem(
                        ProblemKind.FORBIDDEN, f"this request needs a key with the scope {scope}"
                    )
                with self._intake.request(tenant.id) as taking:
                    if counted:
                        await self._take(tenant)
                    body = await _read(request, taking)
                    yield _Admitted(principal=principal, body=body, ends_at=ends_at)
        except TimeoutError:
            raise Problem(
                ProblemKind.DEADLINE,
                f"the request took longer than {min(requested_seconds, seconds):g} s: "
                + retry_advice(keyed="idempotency-key" in request.headers),
                retry_after=1.0,
            ) from None

    async def _take(self, tenant: Tenant) -> None:
        if tenant.requests_per_minute is None and tenant.tokens_per_day is None:
            return
        records = await self.memories.records()
        await self.memories.budgets.take_request(tenant, records)
        await self.memories.budgets.check_tokens(tenant, records)

    def _read_timeout(self, request: Request) -> float:
        text = request.headers.get("x-request-timeout")
        if text is None:
            return self._serve.deadline_seconds
        try:
            seconds = float(text)
        except ValueError:
            seconds = 0.0
        if not seconds > 0:
            raise Problem(
                ProblemKind.BAD_REQUEST, "X-Request-Timeout must be a number of seconds above 0"
            )
        return seconds

    async def _call(
        self, route: ApiRoute, names: dict[str, str], request: Request, admission: _Admitted
    ) -> Call:
        if route.body is None and admission.body:
            raise Problem(ProblemKind.BAD_REQUEST, "this request must have no body")
        kind = request.headers.get("content-type", "application/json").partition(";")[0]
        if route.body is not None and kind.strip().lower() != "application/json":
            raise Problem(ProblemKind.MEDIA_TYPE, "send the body as application/json")
        body: m.ApiBody | None = None
        if route.body is not None:
            raw = admission.body
            body = await in_thread_if_large(len(raw), decode_body, raw, route.body)
        return Call(
            tenant=admission.principal.tenant,
            key=admission.principal.key,
            memories=self.memories,
            cursors=self._cursors,
            route=route,
            path=names,
            query=read_query(request.scope["query_string"], route.query),
            body=body,
            now=time.time(),
            seconds=admission.seconds,
            keyed=route.idempotency != "none" and "idempotency-key" in request.headers,
        )

    async def _carry_out(self, call: Call, request: Request, body: bytes) -> Response:
        if not call.keyed:
            return await self._work_and_settle(call)
        path = request.scope["path"].encode("latin-1")
        target = path + b"?" + request.scope["query_string"]
        claim = await self._idempotency.claim(
            request.headers["idempotency-key"], call, (request.method.encode(), target, body)
        )
        if claim is None:
            return await self._work_and_settle(call)
        if not isinstance(claim, KeyClaim):
            return claim
        return await self._idempotency.carry_out(
            claim, partial(self._work, call), partial(self._settle, call)
        )

    async def _work_and_settle(self, call: Call) -> Response:
        answer = await self._work(call)
        if isinstance(answer, Problem):
            raise answer
        await asyncio.shield(self.memories.start_background(self._settle(call)))
        return answer

    async def _work(self, call: Call) -> Response | Problem:
        def note_use(use: ModelUse) -> None:
            if use.purpose == "summary":
                call.tokens += use.input_tokens + use.output_tokens
                # The call ran in parallel with the request, or was cancelled with the request.
                if call.is_charged:
                    self.memories.start_background(self._settle(call))

        metering = METER.set(note_use)
        answer: m.ApiAnswer | Problem | Failure | None = None
        try:
            answer = await attempted(_keep_problems(call.route.call(call)))
        finally:
            METER.reset(metering)
            if not isinstance(answer, m.ApiAnswer):
                self.memories.start_background(self._settle(call))
        if isinstance(answer, Failure):
            problem = problem_of(answer.error, answer.said, keyed=call.keyed)
            if problem.kind is ProblemKind.INTERNAL:
                LOG.error("%s %s failed: %s", call.route.method, call.route.path, answer.said)
            return problem
        if isinstance(answer, Problem):
            return answer
        return JsonAnswer(answer)

    async def _settle(self, call: Call) -> None:
        tokens, call.tokens, call.is_charged = call.tokens, 0, True
        if time.monotonic() - self._purged_at > PURGE_SECONDS:
            self._purged_at = time.monotonic()
            self.memories.start_background(self._purge(call.now))
        await self._charge(call.tenant, tokens)

    async def _charge(self, tenant: Tenant, tokens: int) -> None:
        if not tokens or tenant.tokens_per_day is None:
            return

        async def charge() -> None:
            records = await self.memories.records()
            await self.memories.budgets.charge_tokens(tenant, records, tokens)

        result = await attempted(charge())
        if isinstance(result, Failure):
            LOG.error("%d tokens could not be counted: %s", tokens, result.said)

    async def _purge(self, now: float) -> None:
        async def purge() -> None:
            await (await self.memories.records()).purge_all(now=now)

        result = await attempted(purge())
        if isinstance(result, Failure):
            LOG.error("expired data could not be removed: %s", result.said)


async def _keep_problems(work: Awaitable[T]) -> T | Problem:
    try:
        return await work
    except Problem as problem:
        return problem


async def _read(request: Request, taking: Taking) -> bytes:
    try:
        body = await read_body(
            request, max_bytes=MOST_BODY_BYTES, seconds=BODY_SECONDS, count=taking.hold
        )
    except HTTPException as refusal:
        if refusal.status_code == 408:
            raise Problem(ProblemKind.DEADLINE, refusal.detail, retry_after=1.0) from None
        raise Problem(ProblemKind.TOO_LARGE, refusal.detail) from None
    except ClientDisconnect:
        raise asyncio.CancelledError from None
    taking.read()
    return body


def service_of(settings: Settings, *, mcp: MountMcp | None = None) -> Service:
    """Create the application of a node. Raise SettingsError if the store is not a server."""
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


class NodeServer(HttpServer):
    """The HTTP server of a node, which drains before it stops."""

    force_exit: bool

    def __init__(
        self,
        service: Service,
        settings: Settings,
        *,
        on_ready: Callable[[], None] = lambda: None,
        on_draining: Callable[[], None] = lambda: None,
        parent: socket.socket | None = None,
    ) -> None:
        super().__init__(service, stop_seconds=round(MOST_SECONDS), on_stop=service.end_streams)
        self._service, self._drain_seconds = service, settings.serve.drain_seconds
        self._on_ready, self._on_draining, self._parent = on_ready, on_draining, parent

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            if self._parent is not None:
                asyncio.get_running_loop().add_reader(self._parent, self._read_parent, self._parent)
            self._on_ready()

    def _read_parent(self, parent: socket.socket) -> None:
        """Take a connection or a signal from the parent. End if the parent has died."""
        order = self.take_connection(parent)
        if not order:
            asyncio.get_running_loop().remove_reader(parent)
            self.should_exit = True
        elif order == b"s":
            self._drain_or_end()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Replace uvicorn's handler, after which the process would end with a failure. A parent
        passes signals on, and its processes ignore those that a whole group gets."""
        del sig, frame
        if self._parent is None:
            self._drain_or_end()

    def _drain_or_end(self) -> None:
        if self._service.draining:
            self.force_exit = self.should_exit
            self._end()
            return
        self._service.drain()
        loop = asyncio.get_running_loop()
        loop.call_later(self._drain_seconds, self._end)
        loop.call_soon(self._on_draining)  # the loop runs this outside of the signal handler

    def _end(self) -> None:
        self.should_exit = True
