"""The gateway's HTTP application: its own pages, limits, and replies that are relayed as they
arrive. Memory prepares the requests to known paths. Requests to other paths pass unchanged. If a
client disconnects, the gateway also aborts the client's request to the provider."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any, Final
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from recollect.adapters.wiring.stores import installation_secret
from recollect.core.boundary import Failure, attempted
from recollect.core.engine import Engine, Observation
from recollect.core.formats.json_text import decode, encode
from recollect.core.formats.replies import StreamedReply, read_usage
from recollect.core.rules.price import model_price, read_prices
from recollect.core.values.model import FormatName, Usage
from recollect.core.values.reason import Cause
from recollect.errors import FormatError, UpstreamUnreachable
from recollect.hosts.gateway.activity import (
    Activity,
    Exchange,
    ExchangeRecord,
    Handling,
    describe_report,
)
from recollect.hosts.gateway.caller import Caller, RequestKind, read_caller
from recollect.hosts.gateway.credentials import key_providers
from recollect.hosts.gateway.shaping import ShapedRequest, Shaper, WithoutMemory
from recollect.hosts.gateway.summaries import ClientModel, crossing, crossing_of
from recollect.hosts.gateway.upstream import (
    SILENCE_SECONDS,
    Family,
    KeptReply,
    UpstreamReply,
    Upstreams,
    begin_reading,
    decompress,
    headers_to_forward,
)
from recollect.hosts.http import (
    JsonAnswer,
    OwnPagesOnly,
    application,
    in_thread_if_large,
    is_own_user,
    is_token,
    read_body,
    run_for_client,
)
from recollect.hosts.inspector.mounted import PATH as INSPECTOR_PATH
from recollect.hosts.inspector.mounted import LocalInspector
from recollect.hosts.memories import MemoryThread
from recollect.system.config import Settings
from recollect.system.loopback import LOOPBACK

LOG: Final = logging.getLogger(__name__)
CHECK_INTERVAL_SECONDS: Final = 3.0
"""While a request waits for memory, check at this interval that memory's thread works."""
MOST_TRIES: Final = 4  # not measured; bounds the requests that one call makes
MOST_BODY_BYTES: Final = 64_000_000  # above Anthropic's limit of 32 MB
MOST_REQUESTS: Final = 256  # not measured; bounds memory
LIGHT_READING: Final = 24
"""Identifying the caller without decoding messages is this many times faster."""
NEARLY_FULL_RATIO: Final = 0.5
"""If a request fills more than this share of the window, the first events of its reply wait for the
next event, which may be a refusal."""
SHOWN_RECORDS: Final = 50  # not measured; one screen
ENDING_BYTES: Final = 65_536  # not measured; the last events of a stream
OWN_PATH: Final = "/recollect/"
_CLAUDE_PATHS: Final = re.compile(
    r"/api/(?:hello$|claude|event_logging|oauth/|organizations?/|web/domain_info)"
)
"""Claude Code's own requests, some of which have no key. Other programs use /api/ too."""
_HEALTH: Final = f"{OWN_PATH}health"
_GONE: Final = "the client disconnected"
_USAGE: Final = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
_NOT_LET_IN: Final = (
    "the gateway's token is missing or wrong: give your client the base URL that "
    "`recollect gateway` prints, or send the token as x-recollect-token"
)


@dataclass(frozen=True, slots=True)
class ServedRoute:
    """A path whose requests memory prepares."""

    family: Family
    format: FormatName
    counts: bool = False


ROUTES: Final = {
    "/v1/messages": ServedRoute("anthropic", "anthropic"),
    "/v1/messages/count_tokens": ServedRoute("anthropic", "anthropic", counts=True),
    "/v1/chat/completions": ServedRoute("openai", "openai-chat"),
    "/v1/responses": ServedRoute("openai", "openai-responses"),
}


class Gateway:
    """The gateway as an ASGI application."""

    def __init__(
        self,
        settings: Settings,
        *,
        token: str,
        open_engine: Callable[[str], Engine] | None = None,
        notify: Callable[[str], None] | None = None,
        own_user_only: bool = False,
    ) -> None:
        """Create the gateway. Every request must contain `token`. `open_engine` opens the memory of
        a space, in place of the settings. `notify` is called with one sentence for a person, in the
        serving thread. `own_user_only` refuses processes of other users."""
        self.settings = settings
        self._own_user_only = own_user_only
        self.activity: Activity = Activity()
        self._prices = read_prices(settings.models.prices)
        self._token = token
        self._secret = installation_secret(settings.store.url)
        self.upstreams: Upstreams = Upstreams(settings.gateway, notify=notify)
        self._model: ClientModel | None = None
        if settings.gateway.summaries == "client" and settings.models.provider is None:
            self._model = ClientModel(
                # Each turn reports this problem itself.
                Upstreams(settings.gateway, notify=lambda _: None),
                day_tokens=settings.jobs.day_tokens,
            )
        self.memories: MemoryThread = MemoryThread()
        """The only thread that uses memories."""
        self.shaper: Shaper = Shaper(settings, model=self._model, open_engine=open_engine)
        host = settings.gateway.host
        names = None if host in LOOPBACK else frozenset((host, socket.gethostname().lower()))
        self.inspector: LocalInspector = LocalInspector(
            settings, path=INSPECTOR_PATH, public_hosts=names
        )
        self._running = 0
        self._concluding: set[asyncio.Task[None]] = set()
        """Tasks that complete the records of answered requests."""
        guard = [Middleware(OwnPagesOnly, local=host in LOOPBACK)]
        self._own_pages = application(
            [
                Route(_HEALTH, self._health),
                Route(f"{OWN_PATH}activity", self._follow, middleware=guard),
                Route(f"{OWN_PATH}reports/{{name:path}}", self._report, middleware=guard),
            ],
            lifespan=self._lifespan,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        else:
            await self._own_pages(scope, receive, send)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        del app
        await self.open()
        yield
        await self.close()

    async def open(self) -> None:
        """Connect to the providers, and open the default memory before the first request."""
        await self.upstreams.open()
        self.memories.start()
        if self._model is not None:
            await self.memories.ask(self._model.open())
        self.memories.ask(attempted(self.shaper.warm_up()))

    async def close(self) -> None:
        """Finish storing replies and close every connection, within a time limit."""
        if self._concluding:
            await asyncio.wait(self._concluding, timeout=self.settings.store.close_seconds)
        await self.memories.stop(self._close_memories())
        await self.upstreams.close()

    async def _close_memories(self) -> None:
        await self.shaper.close()
        if self._model is not None:
            await self._model.disconnect()

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange.of(scope, next(self.activity.numbers))
        if f"{exchange.path}/".startswith(f"{INSPECTOR_PATH}/"):
            await self.inspector(scope, receive, send)  # the inspector checks browsers itself
            return
        allowed = is_token(exchange.token, self._token)
        allowed = allowed and (not self._own_user_only or is_own_user(scope))
        if exchange.path == _HEALTH or (allowed and exchange.path.startswith(OWN_PATH)):
            own_scope = {**scope, "path": exchange.path, "state": {"allowed": allowed}}
            await self._own_pages(own_scope, receive, send)
            return
        try:
            refusal = self._refusal(exchange) if allowed else (401, _NOT_LET_IN)
            if refusal is None:
                await self._take(exchange, Request(scope, receive), send)
            else:
                await self._answer(exchange, send, *refusal)
        finally:
            self._conclude(exchange)

    def _refusal(self, exchange: Exchange) -> tuple[int, str] | None:
        if exchange.header("upgrade").lower() == "websocket":
            return 426, "the gateway speaks HTTP only"
        if self._running >= MOST_REQUESTS:
            return (
                429,
                f"the gateway already handles {MOST_REQUESTS} requests at once: try again later",
            )
        family = self._family(exchange)
        setting = f"gateway.upstream.{family}"
        if not self.upstreams.serves(family):
            return 404, f"no upstream is configured for {exchange.record.path}: set {setting}"
        headers = headers_to_forward(exchange.headers)
        if stranger := self.upstreams.stranger(family, headers, exchange.query, exchange.path):
            return 400, (
                f"the key or the path belongs to {stranger}, but {setting} is another server: set "
                f"it to the URL where {stranger} offers Messages or Chat Completions, or if it is "
                "a proxy of your own that may have the key, set gateway.upstream.any_key = true"
            )
        return None

    def _family(self, exchange: Exchange) -> Family:
        route = ROUTES.get(exchange.path)
        if route is not None:
            return route.family
        headers, path = exchange.headers, exchange.path
        named_providers = key_providers(headers_to_forward(headers), exchange.query, path)
        is_claude = exchange.header("user-agent").startswith("claude-cli/")
        is_claude = is_claude or _CLAUDE_PATHS.match(path) is not None
        has_sign = any(name.startswith("anthropic-") or name == "x-api-key" for name, _ in headers)
        is_anthropic = "anthropic" in named_providers or (
            "openai" not in named_providers and (is_claude or has_sign)
        )
        is_anthropic = is_anthropic or path.startswith("/v1/messages")
        family: Family = "anthropic" if is_anthropic else "openai"
        other_family: Family = "openai" if is_anthropic else "anthropic"
        if self.upstreams.serves(family) or not self.upstreams.serves(other_family):
            return family
        return other_family if self.upstreams.owner(other_family) is None else family

    async def _take(self, exchange: Exchange, request: Request, send: Send) -> None:
        self._running += 1
        try:
            exchange.body = await read_body(
                request, max_bytes=MOST_BODY_BYTES, seconds=SILENCE_SECONDS
            )
        except HTTPException as refusal:
            await self._answer(exchange, send, refusal.status_code, refusal.detail)
        except ClientDisconnect:
            exchange.note(outcome=_GONE)
        else:
            await run_for_client(request.receive, self._handle(exchange, send))
        finally:
            self._running -= 1

    async def _handle(self, exchange: Exchange, send: Send) -> None:
        route = ROUTES.get(exchange.path) if exchange.method == "POST" else None
        try:
            if route is None:
                await self._pass(exchange, send)
            else:
                await self._serve(exchange, route, send)
        except UpstreamUnreachable as error:
            exchange.note(outcome=str(error))
            if not exchange.has_started:
                await self._answer(exchange, send, 502, str(error))
            # The reply is incomplete, so the server closes the connection. The client sees the same
            # failure as without the gateway.
        except asyncio.CancelledError:
            if not exchange.has_ended:
                exchange.note(outcome=_GONE)
            raise

    async def _pass(self, exchange: Exchange, send: Send) -> None:
        exchange.note(kind="passed through")
        reply = await self._send(exchange, self._family(exchange), exchange.body)
        try:
            await self._relay(exchange, send, reply, reply.chunks(), None)
        finally:
            reply.close()

    async def _serve(self, exchange: Exchange, route: ServedRoute, send: Send) -> None:
        body = await self._readable(exchange)
        caller = Caller(client="other", kind=RequestKind.UNREADABLE)
        if body is not None:
            size, parts = len(body) // LIGHT_READING, (exchange.headers, exchange.query, body)
            caller = await in_thread_if_large(
                size, read_caller, route.format, *parts, secret=self._secret
            )
        if route.counts and caller.kind is not RequestKind.UNREADABLE:
            caller = replace(caller, kind=RequestKind.COUNT)
        exchange.note(
            client=caller.client,
            kind=caller.kind.value,
            session=caller.session,
            model=caller.model,
        )
        shaped_request = await self._shape(exchange, caller, route, body)
        memory, session = shaped_request.memory, shaped_request.session
        with nullcontext() if memory is None or session is None else memory.in_use(session):
            await self._converse(exchange, caller, route, shaped_request, send, body)

    async def _readable(self, exchange: Exchange) -> bytes | None:
        coding = exchange.header("content-encoding")
        if not coding:
            return exchange.body
        try:
            return await asyncio.to_thread(decompress, exchange.body, coding)
        except FormatError:
            return None

    async def _shape(
        self, exchange: Exchange, caller: Caller, route: ServedRoute, body: bytes | None
    ) -> ShapedRequest:
        if body is None or caller.kind is RequestKind.UNREADABLE:
            return ShapedRequest(body=exchange.body, handling=Handling.PASSED)
        if caller.kind is RequestKind.TURN:
            if self.settings.gateway.summaries == "client":
                crossing.set(crossing_of(route.format, caller.model, exchange.headers))
            work = self.shaper.shape(caller, route.format, body)
        elif caller.kind in (RequestKind.COUNT, RequestKind.COMPACTION):
            work = self.shaper.shape_side_request(caller, route.format, body)
        else:
            return ShapedRequest(body=body, handling=Handling.PASSED)
        return await self._ask_memory(work, body)

    async def _ask_memory(
        self, work: Coroutine[Any, Any, ShapedRequest], body: bytes
    ) -> ShapedRequest:
        """Wait for the view of a request while memory's thread works: a summary takes time."""
        if self.memories.is_stuck:
            work.close()
            return _as_it_came(body, WithoutMemory.STUCK)
        shaping = self.memories.ask(work)
        try:
            while not shaping.done():
                await asyncio.wait({shaping}, timeout=CHECK_INTERVAL_SECONDS)
                if not shaping.done() and not await self.memories.responds():
                    return _as_it_came(body, WithoutMemory.STUCK)
            result = await attempted(shaping)
        finally:
            shaping.cancel()
        return _as_it_came(body, WithoutMemory.FAILED) if isinstance(result, Failure) else result

    async def _converse(
        self,
        exchange: Exchange,
        caller: Caller,
        route: ServedRoute,
        shaped_request: ShapedRequest,
        send: Send,
        body: bytes | None,
    ) -> None:
        self._note_shaped(exchange, shaped_request)
        exchange.note(added_ms=round((time.perf_counter() - exchange.began) * 1000, 2))
        for tries in range(1, MOST_TRIES + 1):
            is_unchanged = body is None or shaped_request.body == body
            outgoing = exchange.body if is_unchanged else shaped_request.body
            reply = await self._send(exchange, route.family, outgoing)
            try:
                report = exchange.report
                nearly_full = report is not None and (
                    report.tokens_after > report.window_tokens * NEARLY_FULL_RATIO
                )
                chunks, error = await begin_reading(reply, nearly_full=nearly_full)
                if error is None or body is None or route.counts or tries == MOST_TRIES:
                    copy = KeptReply(reply.header("content-type"), reply.header("content-encoding"))
                    try:
                        kept_reply = copy if reply.status < 400 else None
                        await self._relay(exchange, send, reply, chunks, shaped_request, kept_reply)
                    finally:
                        self._observe(exchange, shaped_request, copy, reply.status)
                    return
            finally:
                reply.close()
            exchange.note(overflows=tries)
            smaller = self.shaper.shape_again(
                shaped_request, caller, route.format, body, error, tries=tries
            )
            shaped_request = await self._ask_memory(smaller, body)
            self._note_shaped(exchange, shaped_request)

    async def _send(self, exchange: Exchange, family: Family, body: bytes) -> UpstreamReply:
        is_unchanged = body is exchange.body
        headers = headers_to_forward(
            exchange.headers, removed_names=() if is_unchanged else ("content-encoding",)
        )
        return await self.upstreams.send(family, exchange.method, exchange.target, headers, body)

    async def _relay(
        self,
        exchange: Exchange,
        send: Send,
        reply: UpstreamReply,
        chunks: AsyncIterator[bytes],
        shaped_request: ShapedRequest | None,
        kept_reply: KeptReply | None = None,
    ) -> None:
        head = list(reply.raw_headers)
        if (
            shaped_request is not None
            and shaped_request.context is not None
            and shaped_request.memory is not None
        ):
            assert shaped_request.session is not None
            report = (
                f"{quote(shaped_request.session, safe=':')}/{shaped_request.context.report.turn}"
            )
            head.append((b"x-recollect-report", report.encode()))
        await send({"type": "http.response.start", "status": reply.status, "headers": head})
        exchange.has_started = True
        first = (time.perf_counter() - exchange.began) * 1000
        exchange.note(status=reply.status, first_byte_ms=round(first, 2))
        async for chunk in chunks:
            exchange.ending = chunk[-ENDING_BYTES:]
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            if kept_reply is not None:
                kept_reply.add(chunk)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _observe(
        self, exchange: Exchange, shaped_request: ShapedRequest, kept_reply: KeptReply, status: int
    ) -> None:
        exchange.note(seconds=round(time.perf_counter() - exchange.began, 3))
        if status < 400 and shaped_request.memory is not None and not self.memories.is_stuck:
            assert shaped_request.session is not None
            shaped_request.memory.begin(shaped_request.session)
            exchange.reading = self.memories.ask(self.shaper.observe(shaped_request, kept_reply))
        elif status < 400:
            exchange.reading = asyncio.ensure_future(
                attempted(asyncio.to_thread(_read_usage_of, kept_reply))
            )

    def _conclude(self, exchange: Exchange) -> None:
        """Complete a request's record once its reply was read, and add the record to the list."""

        async def conclude() -> None:
            await self._note_reply(exchange)
            if exchange.report is not None:
                fields, full_report = await asyncio.to_thread(describe_report, exchange.report)
                if exchange.in_memory:
                    self.activity.keep_report(exchange.record.space or "", full_report)
                fields["session"] = exchange.record.session or fields["session"]
                fields["failed"] = (*fields["failed"], *exchange.record.failed)
                exchange.note(**fields)
            if not exchange.record.seconds:
                exchange.note(seconds=round(time.perf_counter() - exchange.began, 3))
            self.activity.add(exchange.record)

        task = asyncio.create_task(conclude())
        self._concluding.add(task)
        task.add_done_callback(self._concluding.discard)

    async def _note_reply(self, exchange: Exchange) -> None:
        observation = None if exchange.reading is None else await exchange.reading
        if isinstance(observation, Failure):
            exchange.note(failed=(f"the reply: {observation.said}",))
        elif observation is not None:
            exchange.note(
                failed=tuple(f"{line.stage}: {line.said}" for line in observation.failures)
            )
            if observation.usage is not None:
                counts = {name: getattr(observation.usage, name) for name in _USAGE}
                exchange.note(usage=counts, dollars=self._dollars(exchange, observation.usage))

    def _dollars(self, exchange: Exchange, usage: Usage) -> float | None:
        price = model_price(exchange.record.model, self._prices)
        if price is None:
            return None
        dollars = price.of(usage)
        if self._model is not None and exchange.report is not None:
            for line in exchange.report.lines:
                if line.cause is Cause.MODELS_ASKED:
                    numbers = line.reasons[0].numbers
                    input_tokens, output_tokens = (
                        int(str(numbers[name])) for name in ("input_tokens", "output_tokens")
                    )
                    dollars += price.of(
                        Usage(input_tokens=input_tokens, output_tokens=output_tokens)
                    )
        return round(dollars, 6)

    def _note_shaped(self, exchange: Exchange, shaped_request: ShapedRequest) -> None:
        exchange.report = None if shaped_request.context is None else shaped_request.context.report
        exchange.in_memory = shaped_request.memory is not None
        exchange.note(
            session=shaped_request.session or exchange.record.session,
            space=shaped_request.space,
            handling=shaped_request.handling.value,
            why=shaped_request.why,
        )

    async def _answer(self, exchange: Exchange, send: Send, status: int, message: str) -> None:
        if self._family(exchange) == "anthropic":
            kind = {401: "authentication_error", 429: "rate_limit_error"}.get(status, "api_error")
            fields: dict[str, Any] = {"type": "error", "error": {"type": kind, "message": message}}
        else:
            fields = {"error": {"message": message, "type": "gateway_error", "code": None}}
        exchange.note(status=status, outcome=message, handling=Handling.PASSED.value)
        answer = JsonAnswer(fields, status)
        await send({"type": "http.response.start", "status": status, "headers": answer.raw_headers})
        await send({"type": "http.response.body", "body": answer.body})

    async def _health(self, request: Request) -> Response:
        tasks = len(asyncio.all_tasks())
        details = {"running": self._running, "tasks": tasks} if request.state.allowed else {}
        return JsonAnswer({"ok": True, **details})

    async def _report(self, request: Request) -> Response:
        report = self.activity.report(request.path_params["name"])
        if report is None:
            raise HTTPException(404, "no session with this name has used the gateway lately")
        return JsonAnswer(report)

    async def _follow(self, request: Request) -> Response:
        kind = "application/x-ndjson"
        if request.query_params.get("follow") == "0":
            lines = b"".join(map(_line, self.activity.newest_records(SHOWN_RECORDS)))
            return Response(lines, media_type=kind)

        async def follow() -> AsyncIterator[bytes]:
            async with aclosing(self.activity.follow(SHOWN_RECORDS)) as records:
                async for record in records:
                    yield _line(record)

        return StreamingResponse(follow(), media_type=kind)


def _line(record: ExchangeRecord) -> bytes:
    return encode(asdict(record)) + b"\n"


def _read_usage_of(kept_reply: KeptReply) -> Observation:
    read = kept_reply.read()
    reply = StreamedReply(read).reply() if isinstance(read, list) else decode(read)
    return Observation(usage=read_usage(reply), calibration_ratio=1.0, learned_window_tokens=None)


def _as_it_came(body: bytes, cause: WithoutMemory) -> ShapedRequest:
    return ShapedRequest(body=body, handling=Handling.WITHOUT_MEMORY, why=cause.value)
