"""The HTTP side of the gateway: routes, limits, and replies relayed as they come.

An ASGI application. Whatever it does not know is passed through untouched; what it knows is shaped
by memory first. A client that goes away ends its request at the provider, too.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from contextlib import aclosing, nullcontext, suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, TypeAlias
from urllib.parse import quote, urlsplit

from recollect.boundary import Failure
from recollect.config import Settings
from recollect.engine import Engine, Observation
from recollect.errors import FormatError, MissingExtra, RecollectError, UpstreamUnreachable
from recollect.formats.json_text import decode, encode
from recollect.formats.replies import read_error
from recollect.gateway.activity import (
    Activity,
    ExchangeRecord,
    Handling,
    described,
    usage_dict,
)
from recollect.gateway.caller import Caller, RequestKind, read_caller
from recollect.gateway.replies import KeptReply, decoded, first_event
from recollect.gateway.shaping import ShapedRequest, Shaper, aside_if_large
from recollect.gateway.spaces import CLOSE_SECONDS, OpenSpaces
from recollect.gateway.summaries import ClientModel, crossing, crossing_of
from recollect.gateway.upstream import (
    Family,
    Headers,
    OutgoingRequest,
    UpstreamReply,
    Upstreams,
    forwarded,
)
from recollect.providers.overflow import recognise_overflow
from recollect.values.model import FormatName
from recollect.values.report import Report

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

MOST_TRIES: Final = 4
"""How often a turn is sent while the provider refuses it for its size."""
LARGEST_PEEK: Final = 16_384
"""A stream's first event is looked at before it is handed on; it is shorter than this."""
CANCEL_SECONDS: Final = 0.2
"""After so long a request whose client has gone is cancelled again."""
LIGHT_READING: Final = 24
"""Who is asking is read without decoding messages: so many times faster than other reading."""
NEARLY_FULL_RATIO: Final = 0.5
"""From here on a stream's opening events wait for the next one: a refusal may follow them."""
_OPENING_EVENTS: Final = frozenset({"response.created", "response.queued", "response.in_progress"})
LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
"""This machine's own names, which nobody else can reach."""
SHOWN_RECORDS: Final = 50
"""The newest requests that whoever begins to watch is shown."""
OWN_PATH: Final = "/recollect/"
_REPORTS: Final = f"{OWN_PATH}reports/"


@dataclass(frozen=True, slots=True)
class ServedRoute:
    """A path whose requests memory shapes."""

    family: Family
    format: FormatName
    counts: bool = False


ROUTES: Final = {
    "/v1/messages": ServedRoute("anthropic", "anthropic"),
    "/v1/messages/count_tokens": ServedRoute("anthropic", "anthropic", counts=True),
    "/v1/chat/completions": ServedRoute("openai", "openai-chat"),
    "/v1/responses": ServedRoute("openai", "openai-responses"),
}


@dataclass(slots=True)
class Exchange:
    """One request while it is handled."""

    method: str
    path: str
    target: str
    headers: Headers = field(repr=False)
    body: bytes = field(repr=False)
    record: ExchangeRecord
    began: float
    started: bool = False
    """Whether the reply's head has gone to the client."""
    report: Report | None = field(default=None, repr=False)
    """What memory did for it."""
    in_memory: bool = False
    """Whether it is a turn that memory keeps."""
    concluding: bool = False
    """Whether its reply is being read: its record is complete after that."""

    def header(self, name: str) -> str:
        """The first value of a header, by its name in lower case; empty where there is none."""
        return next((value for key, value in self.headers if key == name), "")

    def note(self, **changes: Any) -> None:
        """Write down what was done."""
        self.record = replace(self.record, **changes)


class NoBody(Enum):
    """Why a request's body was not read; the value is what people read."""

    GONE = "the client went away"
    SLOW = "the request did not come within gateway.silence_seconds"
    TOO_LARGE = "the request is larger than gateway.max_body_bytes allows"


class Gateway:
    """The ASGI application."""

    def __init__(
        self,
        settings: Settings,
        *,
        token: str | None = None,
        opened: Callable[[str], Engine] | None = None,
    ) -> None:
        """`token` is what every request must bring; loopback needs none. `opened` opens the memory
        of a space, in place of what the settings say."""
        self.settings = settings
        self.activity = Activity()
        self._token = token
        self._upstreams = Upstreams(settings.gateway)
        model = None
        if settings.gateway.summaries == "client" and settings.models.provider is None:
            model = ClientModel(self._upstreams, day_tokens=settings.gateway.summary_day_tokens)
        self.spaces = OpenSpaces(settings, model=model, opened=opened)
        self._shaper = Shaper(settings, self.spaces)
        self._running = 0
        self._warm: asyncio.Task[None] | None = None
        self._concluding: set[asyncio.Task[None]] = set()
        """Requests that were answered, and whose records are not complete yet."""
        self.startup_error: RecollectError | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        """Where it runs, once it is open: what is asked of its memories is asked there."""

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self.open()
                except RecollectError as error:
                    self.startup_error = error
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def open(self) -> None:
        """Make ready to reach the providers, and open the default memory before it is needed."""
        self.loop = asyncio.get_running_loop()
        await self._upstreams.__aenter__()
        self._warm = asyncio.create_task(self.spaces.warm(self.settings.gateway.space))

    async def close(self) -> None:
        """Finish what is being kept, and let go of every connection."""
        if self._warm is not None:
            await asyncio.wait({self._warm})
        if self._concluding:
            await asyncio.wait(self._concluding, timeout=CLOSE_SECONDS)
        await self.spaces.close()
        await self._upstreams.__aexit__(None, None, None)

    async def _http(self, scope: Message, receive: Receive, send: Send) -> None:
        exchange = self._exchange(scope)
        refusal = self._stranger(exchange, scope)
        if refusal is None and exchange.path.startswith(OWN_PATH):
            await self._own(exchange, receive, send)
            return
        refusal = refusal or self._refusal(exchange)
        if refusal is None:
            self._running += 1
            try:
                await self._take(exchange, receive, send)
            finally:
                self._running -= 1
        else:
            status, message = refusal
            await self._answer(exchange, send, status, message)

    def _exchange(self, scope: Message) -> Exchange:
        raw_path = bytes(scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
        query = bytes(scope.get("query_string") or b"").decode("latin-1")
        headers = [(_text(name), _text(value)) for name, value in scope["headers"]]
        record = ExchangeRecord(
            number=self.activity.next_number(),
            at=time.time(),
            method=scope["method"],
            path=scope["path"],
            client="other",
            kind="",
        )
        return Exchange(
            method=scope["method"],
            path=scope["path"],
            target=raw_path + (f"?{query}" if query else ""),
            headers=headers,
            body=b"",
            record=record,
            began=time.perf_counter(),
        )

    def _stranger(self, exchange: Exchange, scope: Message) -> tuple[int, str] | None:
        """Why whoever sent this is not answered: a page in a browser reaches this machine, too."""
        if not exchange.target.startswith("/"):
            return 400, "a request names a path"
        if not self._allowed(exchange):
            return 401, "the gateway's token is missing or wrong: send it as x-recollect-token"
        if self._token is not None or str((scope.get("server") or ("",))[0]) not in LOOPBACK:
            return None
        host = exchange.header("host").rpartition(":")[0] or exchange.header("host")
        origin = exchange.header("origin")
        named_here = host in LOOPBACK or host == "[::1]"
        if not named_here or (origin and urlsplit(origin).hostname not in LOOPBACK):
            return 403, "the gateway answers to this machine's own names and pages only"
        return None

    def _refusal(self, exchange: Exchange) -> tuple[int, str] | None:
        """Why a request is not served."""
        if exchange.header("upgrade").lower() == "websocket":
            return 426, "the gateway speaks HTTP only"
        if self._running >= self.settings.gateway.max_requests:
            return 429, "the gateway has as many requests at once as gateway.max_requests allows"
        if not self._upstreams.serves(self._family(exchange)):
            return 404, f"no upstream is configured for {exchange.path}: set gateway.upstream"
        return None

    def _allowed(self, exchange: Exchange) -> bool:
        if self._token is None:
            return True
        given = exchange.header("x-recollect-token").encode()
        return hmac.compare_digest(given, self._token.encode())

    def _family(self, exchange: Exchange) -> Family:
        """Whose request it is, told by path and headers."""
        route = ROUTES.get(exchange.path)
        if route is not None:
            return route.family
        anthropic = (
            exchange.path.startswith(("/v1/messages", "/api/"))
            or any(name.startswith("anthropic-") for name, _ in exchange.headers)
            or bool(exchange.header("x-api-key"))
        )
        family: Family = "anthropic" if anthropic else "openai"
        other: Family = "openai" if anthropic else "anthropic"
        return family if self._upstreams.serves(family) else other

    async def _take(self, exchange: Exchange, receive: Receive, send: Send) -> None:
        """Read the body, then handle it for as long as the client is there."""
        gateway = self.settings.gateway
        body: bytes | NoBody = NoBody.SLOW
        with suppress(TimeoutError):
            async with asyncio.timeout(gateway.silence_seconds):
                body = await _body(receive, gateway.max_body_bytes)
        if isinstance(body, bytes):
            exchange.body = body
            await _unless_gone(receive, self._handle(exchange, send))
        elif body is not NoBody.GONE:
            await self._answer(exchange, send, 413 if body is NoBody.TOO_LARGE else 408, body.value)
        else:
            exchange.note(outcome=body.value)
            await self._finish(exchange)

    async def _handle(self, exchange: Exchange, send: Send) -> None:
        route = ROUTES.get(exchange.path) if exchange.method == "POST" else None
        try:
            if route is None:
                await self._pass(exchange, send)
            else:
                await self._serve(exchange, route, send)
        except UpstreamUnreachable as error:
            exchange.note(outcome=str(error))
            if not exchange.started:
                await self._answer(exchange, send, 502, str(error))
                return
            await self._finish(exchange)
            # Not completing the reply makes the server close the connection: the client sees that
            # it broke off, as it would have without us.
        except asyncio.CancelledError:
            exchange.note(outcome=NoBody.GONE.value)
            self._finish_later(exchange)
            raise

    async def _pass(self, exchange: Exchange, send: Send) -> None:
        """Hand a request on untouched, and its reply back."""
        exchange.note(kind="passed through")
        reply = await self._send(exchange, self._family(exchange), exchange.body)
        try:
            await self._relay(exchange, send, reply, reply.chunks(), None)
        finally:
            reply.close()
        await self._finish(exchange)

    async def _serve(self, exchange: Exchange, route: ServedRoute, send: Send) -> None:
        """A request of a known format: through memory where it is part of a conversation."""
        body = await self._readable(exchange)
        names = dict(reversed(exchange.headers))
        caller = (
            Caller(client="other", kind=RequestKind.UNREADABLE)
            if body is None
            else await aside_if_large(
                len(body) // LIGHT_READING, read_caller, route.format, names, body
            )
        )
        if route.counts and caller.kind is not RequestKind.UNREADABLE:
            caller = replace(caller, kind=RequestKind.COUNT)
        exchange.note(client=caller.client, kind=caller.kind.value, session=caller.session)
        shaped = await self._shaped(exchange, caller, route, body)
        memory, session = shaped.memory, shaped.session
        with nullcontext() if memory is None or session is None else memory.in_use(session):
            await self._converse(exchange, caller, route, shaped, send, body)

    async def _readable(self, exchange: Exchange) -> bytes | None:
        """The body without its content coding; None where it cannot be read."""
        coding = exchange.header("content-encoding")
        if not coding:
            return exchange.body
        try:
            return await aside_if_large(len(exchange.body), decoded, exchange.body, coding)
        except (FormatError, MissingExtra):
            return None

    async def _shaped(
        self, exchange: Exchange, caller: Caller, route: ServedRoute, body: bytes | None
    ) -> ShapedRequest:
        if body is None or caller.kind is RequestKind.UNREADABLE:
            return ShapedRequest(body=exchange.body, handling=Handling.PASSED)
        if caller.kind.in_conversation:
            if self.settings.gateway.summaries == "client":
                crossing.set(crossing_of(route.format, caller.model, exchange.headers))
            return await self._shaper.shape(caller, route.format, body)
        if caller.kind in (RequestKind.COUNT, RequestKind.COMPACTION):
            return await self._shaper.shape_beside(caller, route.format, body)
        return ShapedRequest(body=body, handling=Handling.PASSED)

    async def _converse(
        self,
        exchange: Exchange,
        caller: Caller,
        route: ServedRoute,
        shaped: ShapedRequest,
        send: Send,
        body: bytes | None,
    ) -> None:
        """Send the view; where the provider refuses it for its size, a smaller one, and so on."""
        self._note_shaped(exchange, shaped)
        exchange.note(added_ms=round((time.perf_counter() - exchange.began) * 1000, 2))
        for tries in range(1, MOST_TRIES + 1):
            outgoing = exchange.body if body is None or shaped.body == body else shaped.body
            reply = await self._send(exchange, route.family, outgoing)
            try:
                chunks, begun, error = await self._begun(reply, shaped)
                if error is None or body is None or route.counts or tries == MOST_TRIES:
                    kept = KeptReply(reply.header("content-type"), reply.header("content-encoding"))
                    try:
                        await self._relay(
                            exchange, send, reply, _after(begun, chunks), shaped, kept
                        )
                    finally:
                        self._observe(exchange, shaped, kept, reply.status)
                    return
            finally:
                reply.close()
            exchange.note(overflows=tries)
            shaped = await self._shaper.shape_again(
                shaped, caller, route.format, body, error, tries=tries
            )
            self._note_shaped(exchange, shaped)

    async def _begun(
        self, reply: UpstreamReply, shaped: ShapedRequest
    ) -> tuple[AsyncIterator[bytes], list[bytes], Any]:
        """The reply's chunks, those already read, and the overflow it tells; else None."""
        chunks = reply.chunks()
        coding = reply.header("content-encoding")
        if reply.status >= 400:
            whole = [chunk async for chunk in chunks]
            return chunks, whole, _overflow(reply.status, b"".join(whole), coding)
        if coding or "event-stream" not in reply.header("content-type"):
            return chunks, [], None
        begun: list[bytes] = []
        opening = _OPENING_EVENTS if _is_nearly_full(shaped) else frozenset()
        async for chunk in chunks:
            begun.append(chunk)
            if (event := first_event(b"".join(begun), after=opening)) is not None:
                # some providers answer 200 and then refuse
                return chunks, begun, _refused_for_size(event, None)
            if sum(map(len, begun)) > LARGEST_PEEK:
                break
        return chunks, begun, None

    async def _send(self, exchange: Exchange, family: Family, body: bytes) -> UpstreamReply:
        same = body is exchange.body
        headers = forwarded(exchange.headers, without=() if same else ("content-encoding",))
        return await self._upstreams.send(
            OutgoingRequest(
                family=family,
                method=exchange.method,
                target=exchange.target,
                headers=headers,
                body=body,
            )
        )

    async def _relay(
        self,
        exchange: Exchange,
        send: Send,
        reply: UpstreamReply,
        chunks: AsyncIterator[bytes],
        shaped: ShapedRequest | None,
        kept: KeptReply | None = None,
    ) -> None:
        """Hand a reply on, chunk by chunk as it comes; `send` waits while the client is slow."""
        head = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in reply.headers]
        if shaped is not None and shaped.context is not None and shaped.memory is not None:
            assert shaped.session is not None
            report = f"{quote(shaped.session, safe=':')}/{shaped.context.report.turn}"
            head.append((b"x-recollect-report", report.encode()))
        await send({"type": "http.response.start", "status": reply.status, "headers": head})
        exchange.started = True
        first = (time.perf_counter() - exchange.began) * 1000
        exchange.note(status=reply.status, first_byte_ms=round(first, 2))
        async for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            if kept is not None:
                kept.add(chunk)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _observe(
        self, exchange: Exchange, shaped: ShapedRequest, kept: KeptReply, status: int
    ) -> None:
        """Read the reply once it is with the client; the record is complete after that."""
        exchange.note(seconds=round(time.perf_counter() - exchange.began, 3))
        reading = self._shaper.observe_later(shaped, kept) if status < 400 else None
        self._finish_later(exchange, reading)

    def _finish_later(
        self, exchange: Exchange, reading: asyncio.Task[Observation | Failure] | None = None
    ) -> None:
        """Complete the record beside what comes next, and once only."""
        if exchange.concluding:
            return
        exchange.concluding = True

        async def conclude() -> None:
            seen = None if reading is None else await reading
            if isinstance(seen, Failure):
                exchange.note(failed=(*exchange.record.failed, f"the reply: {seen.said}"))
            elif seen is not None:
                failed = tuple(f"{line.stage}: {line.said}" for line in seen.failures)
                exchange.note(
                    usage=usage_dict(seen.usage), failed=(*exchange.record.failed, *failed)
                )
            exchange.concluding = False
            await self._finish(exchange)

        task = asyncio.create_task(conclude())
        self._concluding.add(task)
        task.add_done_callback(self._concluding.discard)

    def _note_shaped(self, exchange: Exchange, shaped: ShapedRequest) -> None:
        exchange.report = None if shaped.context is None else shaped.context.report
        exchange.in_memory = shaped.memory is not None
        exchange.note(
            session=shaped.session or exchange.record.session,
            space=shaped.space,
            handling=shaped.handling.value,
            why=shaped.why,
        )

    async def _finish(self, exchange: Exchange) -> None:
        """Add the record to what is shown; nothing where that is done once the reply was read."""
        if exchange.concluding:
            return
        if exchange.report is not None:
            lines, whole = await asyncio.to_thread(described, exchange.report)
            if exchange.in_memory:
                self.activity.keep_report(exchange.record.space or "", whole)
            lines["session"] = exchange.record.session or lines["session"]
            lines["failed"] = (*lines["failed"], *exchange.record.failed)
            exchange.note(**lines)
        record = exchange.record
        seconds = record.seconds or round(time.perf_counter() - exchange.began, 3)
        self.activity.add(replace(record, seconds=seconds))

    async def _answer(self, exchange: Exchange, send: Send, status: int, message: str) -> None:
        """An answer of the gateway's own, in the shape that the provider's errors have."""
        if self._family(exchange) == "anthropic":
            kind = "rate_limit_error" if status == 429 else "api_error"
            fields: dict[str, Any] = {"type": "error", "error": {"type": kind, "message": message}}
        else:
            fields = {"error": {"message": message, "type": "gateway_error", "code": None}}
        exchange.note(status=status, outcome=message, handling=Handling.PASSED.value)
        await _send_json(send, status, fields)
        self._finish_later(exchange)

    async def _own(self, exchange: Exchange, receive: Receive, send: Send) -> None:
        """The gateway's own pages: what it does, for `recollect tail` and whoever asks."""
        if exchange.path == f"{OWN_PATH}health":
            await _send_json(
                send, 200, {"ok": True, "running": self._running, "tasks": len(asyncio.all_tasks())}
            )
        elif exchange.path == f"{OWN_PATH}activity":
            await _unless_gone(receive, self._follow(exchange, send))
        elif exchange.path.startswith(_REPORTS):
            report = self.activity.report(exchange.path.removeprefix(_REPORTS))
            missing = {"error": "no such session has crossed the gateway lately"}
            await _send_json(send, 404 if report is None else 200, report or missing)
        else:
            await _send_json(send, 404, {"error": f"there is no {exchange.path}"})

    async def _follow(self, exchange: Exchange, send: Send) -> None:
        """Records as lines of JSON: the newest, then each as its reply ends."""
        headers = [(b"content-type", b"application/x-ndjson")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if "follow=0" in exchange.target:
            lines = b"".join(map(_line, self.activity.newest(SHOWN_RECORDS)))
            await send({"type": "http.response.body", "body": lines, "more_body": False})
            return
        async with aclosing(self.activity.follow(SHOWN_RECORDS)) as records:
            async for record in records:
                body = _line(record)
                await send({"type": "http.response.body", "body": body, "more_body": True})


def _line(record: ExchangeRecord) -> bytes:
    return encode(record.to_dict()) + b"\n"


async def _unless_gone(receive: Receive, work: Awaitable[None]) -> None:
    """Do it, and stop as soon as the client is gone."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        while not task.done():
            # Again where it was lost: Python 3.11's wait_for drops one that comes with the result.
            task.cancel()
            await asyncio.wait({task}, timeout=CANCEL_SECONDS)
        with suppress(asyncio.CancelledError):
            await task
    finally:
        task.cancel()
        gone.cancel()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _body(receive: Receive, most: int) -> bytes | NoBody:
    """The whole body, or why there is none."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return NoBody.GONE
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > most:
            return NoBody.TOO_LARGE
        if not message.get("more_body"):
            return b"".join(chunks)


async def _after(begun: Sequence[bytes], chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Chunks that were read already, then the rest."""
    for chunk in begun:
        yield chunk
    async for chunk in chunks:
        yield chunk


def _overflow(status: int, body: bytes, coding: str) -> dict[str, Any] | None:
    """The provider's error, where it says that the request was too large; else None."""
    try:
        fields = decode(decoded(body, coding))
    except (FormatError, MissingExtra):
        fields = {"error": {"message": body[:LARGEST_PEEK].decode("utf-8", "replace")}}
    return _refused_for_size(fields, status)


def _refused_for_size(fields: Any, status: int | None) -> dict[str, Any] | None:
    """An error, or an event of a stream, where it says that the request was too large."""
    error = read_error(fields)
    if error is None:
        return None
    found = recognise_overflow(status=status, message=error.message, body=error.body)
    return dict(fields) if found is not None else None


def _is_nearly_full(shaped: ShapedRequest) -> bool:
    """Whether the provider may still refuse the view for its size after it began to answer."""
    if shaped.context is None:
        return False
    report = shaped.context.report
    return report.tokens_after > report.window_tokens * NEARLY_FULL_RATIO


def _text(raw: bytes) -> str:
    """A header's bytes as text that goes out as the same bytes."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


async def _send_json(send: Send, status: int, fields: Any) -> None:
    body = encode(fields)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
