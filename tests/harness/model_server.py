"""A real HTTP server that plays a provider of models, on this machine only; scripted.

It speaks Anthropic's Messages, OpenAI's Chat Completions and Responses, whole and streamed, as
the path of a request asks. It runs in a thread of its own, so that blocking and asynchronous
code can both be tested against it. What a script does not foresee is answered with status 418
and told by `check`.

    with ModelServer([Says(text="Hello"), Fails(status=529)], window_tokens=4096) as server:
        model = OpenAIChatModel(model="scripted", base_url=server.url)
"""

import asyncio
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Self, TypeAlias

from tests.harness.model_wires import (
    Events,
    error_body,
    error_event,
    overflow_body,
    overloaded,
    streamed_reply,
)
from tests.harness.waiting import PATIENCE_SECONDS

from recollect.core.values.model import Usage
from recollect.testing.scripted_model import Fails, Says, WireName, whole_reply

Step: TypeAlias = Says | Fails
OverflowManner: TypeAlias = Literal["error", "inside", "silent"]

_WIRES: Final[Mapping[str, WireName]] = {
    "/messages": "anthropic",
    "/chat/completions": "openai-chat",
    "/responses": "openai-responses",
}
_BYTES_A_TOKEN: Final = 4
_HEAD_END: Final = b"\r\n\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request that came in."""

    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    content: bytes = field(repr=False)
    connection: int
    """The same for what came over one connection."""

    @property
    def body(self) -> Any:
        """Its JSON."""
        return json.loads(self.content)

    @property
    def wire(self) -> WireName | None:
        """Whose wire its path belongs to."""
        path = self.path.partition("?")[0]
        return next((wire for end, wire in _WIRES.items() if path.endswith(end)), None)


class ModelServer:
    """Answers by a list of steps, in order, or by a function of each request.

    With `window_tokens` a request that counts more is answered with an overflow: as an error in
    the provider's own words, `inside` the stream, or `silent`, as if it had been cut to fit. Such
    answers take no step. `pages` answer GET requests by path. Every reply has a `request-id` of its
    own, as the providers' have.
    """

    def __init__(
        self,
        steps: Iterable[Step] | Callable[[Asked], Step] = (),
        *,
        window_tokens: int | None = None,
        overflow: OverflowManner = "error",
        count: Callable[[Asked], int] = lambda asked: len(asked.content) // _BYTES_A_TOKEN,
        pages: Mapping[str, Any] | None = None,
        port: int = 0,
    ) -> None:
        self._port = port
        self._steps = steps if callable(steps) else list(steps)
        self._window = window_tokens
        self._overflow = overflow
        self._count = count
        self._pages = dict(pages or {})
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._open: set[asyncio.Task[None]] = set()
        self._connections = 0
        self._unexpected = 0
        self.overflows = 0
        """Requests that it refused for their size."""
        self._replies = 0
        self._hung_up = threading.Semaphore(0)
        self._released = asyncio.Event()
        self.holds: Callable[[Asked], bool] = lambda _: False
        """Whether a request is answered only after `release`."""
        self.asked: list[Asked] = []
        """Every request, in order."""
        self.url = ""
        """Its base URL, without a version."""

    def __enter__(self) -> Self:
        self._thread.start()
        self._listener = self._run(asyncio.start_server(self._connected, "127.0.0.1", self._port))
        self.url = f"http://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def check(self) -> None:
        """AssertionError where the script and what was asked differ."""
        left = 0 if callable(self._steps) else len(self._steps)
        if left or self._unexpected:
            raise AssertionError(
                f"{left} steps of the script were not used, {self._unexpected} requests "
                "were not foreseen"
            )

    def release(self) -> None:
        """Answer the requests that are held, and all later ones."""
        self._loop.call_soon_threadsafe(self._released.set)

    def wait_until_hung_up(self) -> bool:
        """Whether a client left in the midst of a reply; it may take as long as it takes."""
        return self._hung_up.acquire(timeout=PATIENCE_SECONDS)

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=10)

    async def _stop(self) -> None:
        self._listener.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        self._connections += 1
        number = self._connections
        try:
            while (asked := await _read(reader, number)) is not None:
                self.asked.append(asked)
                if not await self._answer(asked, reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            self._hung_up.release()
        except asyncio.CancelledError:
            pass  # the server is closed; asyncio would report a connection's task as failed
        finally:
            self._open.discard(task)
            writer.close()

    async def _answer(
        self, asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Answer one request; whether the connection goes on."""
        wire = asked.wire
        if asked.method == "GET" or wire is None:
            status, page = self._page(asked)
            return await _respond(
                writer, status, page, self._numbered(), head=asked.method == "HEAD"
            )
        step = self._step(asked, wire)
        if self.holds(asked):
            await self._released.wait()
        await asyncio.sleep(step.delay_seconds)
        if isinstance(step, Fails):
            body = step.body
            if body is None:
                body = error_body(wire, code="scripted_error", message="as the script says")
            return await _respond(writer, step.status, body, {**self._numbered(), **step.headers})
        if step.hang_after_events == 0:
            return await self._hang(reader)
        fields = asked.body
        model = str(fields.get("model", "scripted"))
        if not fields.get("stream"):
            reply = whole_reply(wire, step, model=model)
            return await _respond(writer, 200, reply, self._numbered())
        usage = bool((fields.get("stream_options") or {}).get("include_usage"))
        events = streamed_reply(wire, step, model=model, usage=usage)
        return await self._stream(wire, step, events, reader, writer)

    def _page(self, asked: Asked) -> tuple[int, Any]:
        """What is answered to anything but a question to the model."""
        page = self._pages.get(asked.path)
        if page is None and asked.path.partition("?")[0].endswith("/count_tokens"):
            page = {"input_tokens": self._count(asked)}
        return (404, {"error": {"message": "not found"}}) if page is None else (200, page)

    def _numbered(self) -> dict[str, str]:
        self._replies += 1
        return {"request-id": f"req_{self._replies}"}

    def _step(self, asked: Asked, wire: WireName) -> Step:
        tokens = self._count(asked)
        over = self._window is not None and tokens > self._window
        if over and self._overflow != "silent":
            assert self._window is not None
            self.overflows += 1
            body = overflow_body(wire, tokens=tokens, window=self._window)
            inside = self._overflow == "inside" and asked.body.get("stream")
            return _Inside(body=body) if inside else Fails(status=400, body=body)
        if callable(self._steps):
            step = self._steps(asked)
        elif self._steps:
            step = self._steps.pop(0)
        else:
            self._unexpected += 1
            return Fails(status=418)
        if over and isinstance(step, Says):
            return replace(step, usage=Usage(input_tokens=tokens, output_tokens=1))
        return step

    async def _stream(
        self,
        wire: WireName,
        step: Says,
        events: Events,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        if isinstance(step, _Inside):
            events = [error_event(wire, step.body)]
        stops = (step.cut_after_events, step.hang_after_events, step.fail_after_events)
        shown = next((count for count in stops if count is not None), None)
        events = events[:shown]
        if step.fail_after_events is not None:
            events = [*events, overloaded(wire)]
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in self._numbered().items())
        writer.write(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        content = b"".join(_event(name, data) for name, data in events)
        ended = shown is None or step.fail_after_events is not None
        if ended and wire == "openai-chat":
            content += b"data: [DONE]\n\n"
        size = step.piece_bytes or max(1, len(content))
        for at in range(0, len(content), size):
            piece = content[at : at + size]
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
        if step.hang_after_events is not None:
            return await self._hang(reader)
        if step.cut_after_events is not None:
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def _hang(self, reader: asyncio.StreamReader) -> bool:
        if not await reader.read(1):
            self._hung_up.release()
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inside(Says):
    """An error that comes as an event of a stream."""

    body: Mapping[str, Any] = field(default_factory=dict, repr=False)


def _event(name: str, data: Mapping[str, Any]) -> bytes:
    named = f"event: {name}\n" if name else ""
    return f"{named}data: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


async def _read(reader: asyncio.StreamReader, connection: int) -> Asked | None:
    try:
        head = await reader.readuntil(_HEAD_END)
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").strip().split("\r\n")
    method, path, _ = first.split(" ", 2)
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    content = await reader.readexactly(int(headers.get("content-length", "0")))
    return Asked(method=method, path=path, headers=headers, content=content, connection=connection)


async def _respond(
    writer: asyncio.StreamWriter,
    status: int,
    body: Any,
    headers: Mapping[str, str] | None = None,
    *,
    head: bool = False,
) -> bool:
    """Answer; with `head` without the body, whose length is told all the same."""
    plain = isinstance(body, str | bytes)
    content = body if isinstance(body, bytes) else (body if plain else json.dumps(body)).encode()
    sent = {
        "Content-Type": "text/html" if plain else "application/json",
        "Content-Length": str(len(content)),
        **(headers or {}),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
    start = f"HTTP/1.1 {status} Scripted\r\n{lines}\r\n".encode()
    writer.write(start if head else start + content)
    await writer.drain()
    return True
