"""Watches a stream: passes each event on at once, and observes the reply when the stream ends,
fails or is closed, at the latest before the session's next request. Never raises in the code that
reads the stream."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import CancelledError as Abandoned
from contextlib import suppress
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

from recollect.core.boundary import Component, Failure, attempted, guarded
from recollect.core.formats.replies import StreamedReply

if TYPE_CHECKING:
    from recollect.core.engine.session import Session

StreamT = TypeVar("StreamT")
END_SECONDS: Final = 10.0
"""Code without an event loop waits no longer for its reply to be stored. Not measured."""
_END: Final = object()
_TO_THE_END: Final = frozenset(
    {"until_done", "get_final_message", "get_final_text"}
    | {"get_final_completion", "get_final_response"}
)
_CLOSES: Final = frozenset({"close", "aclose"})


class Watching:
    """The events that one stream has returned, and whether its reply was observed."""

    def __init__(
        self, observe: Callable[[StreamedReply], Awaitable[object]], fail: Callable[[str], None]
    ) -> None:
        """`fail` is called if an event cannot be parsed or the reply cannot be observed."""
        self._reply = StreamedReply()
        self._observe = observe
        self._fail = fail
        self._unreadable = False
        self._observed = 0
        self._task: asyncio.Task[None] | None = None

    def take(self, event: Any) -> None:
        """Add an event. Events after an unreadable one are ignored: the reply would have a gap."""
        if self._unreadable:
            return
        result = guarded(lambda: self._reply.take(event))
        if isinstance(result, Failure):
            self._unreadable = True
            self._fail(result.said)

    def end(self, error: BaseException | None = None) -> asyncio.Task[None] | None:
        """Start to observe the reply, once. Call this only in the memory's event loop."""
        if isinstance(error, Exception):
            self._reply.error = error
        events = self._reply.events + (self._reply.error is not None)
        if events != self._observed:
            self._observed = events
            self._task = asyncio.get_running_loop().create_task(
                self._observe_reply(), context=Context()
            )
        return self._task

    async def finish(self, error: BaseException | None = None) -> None:
        """Observe the reply, once, and wait until that is done."""
        task = self.end(error)
        if task is not None and task.get_loop() is asyncio.get_running_loop():
            await asyncio.wait({task})

    async def _observe_reply(self) -> None:
        result = await attempted(self._observe(self._reply))
        if isinstance(result, Failure):
            self._fail(result.said)


def wrap_stream(stream: Any, watching: Watching, *, plain: bool) -> WatchedAsync | WatchedSync:
    """Return a stream to read instead of `stream`. Raise TypeError if `stream` is no stream."""
    kind = type(stream)
    if inspect.isawaitable(stream):
        if inspect.iscoroutine(stream):
            stream.close()
        raise TypeError(f"this stream has not begun ({kind.__name__}): `await` the client's call")
    asynchronous = any(hasattr(kind, name) for name in ("__aiter__", "__anext__", "__aenter__"))
    if asynchronous and plain and not hasattr(kind, "__iter__"):
        raise TypeError(
            "a blocking memory cannot watch a stream that needs `async for`: use `open_memory`"
        )
    if asynchronous and not plain:
        return WatchedAsync(stream, watching)
    is_whole = isinstance(stream, Mapping | list | tuple | str | bytes) or hasattr(
        kind, "model_dump"
    )
    if is_whole or not (hasattr(kind, "__iter__") or hasattr(kind, "__enter__")):
        raise TypeError(f"this is a {kind.__name__}, not a stream: pass a reply to `observe`")
    return WatchedSync(stream, watching)


class WatchedStreams:
    """The streams of one engine that are being read, at most one per session."""

    def __init__(self, observe: Callable[[Session, StreamedReply], Awaitable[object]]) -> None:
        """`observe` learns from the reply of a stream that has ended."""
        self._observe = observe
        self._watching_by_session: dict[Session, Watching] = {}
        self._component = Component("watched stream")

    def watch(self, session: Session, stream: StreamT, *, plain: bool = False) -> StreamT:
        """Return a stream to read instead of `stream`; `plain` in code without an event loop."""

        async def observe(reply: StreamedReply) -> None:
            if self._watching_by_session.get(session) is watching:
                del self._watching_by_session[session]
            await self._observe(session, reply)
            self._component.recover()

        watching = Watching(observe, self._component.fail)
        read = wrap_stream(stream, watching, plain=plain)
        self._watching_by_session[session] = watching
        return cast(StreamT, read)

    async def end(self, session: Session) -> None:
        """Observe the reply of the session's stream, if it has one."""
        watching = self._watching_by_session.pop(session, None)
        if watching is not None:
            await watching.finish()

    async def end_all(self) -> None:
        for session in tuple(self._watching_by_session):
            await self.end(session)


class _Watched:
    def __init__(self, stream: Any, watching: Watching) -> None:
        self._original = self._stream = stream
        self._watching = watching
        self._events: Any = None

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.__dict__["_stream"], name)
        if name == "text_stream":
            return self._texts()
        if name in _TO_THE_END:
            return self._read_first(value)
        return self._close_after(value) if name in _CLOSES else value

    if TYPE_CHECKING:

        def _texts(self) -> Any: ...
        def _read_first(self, method: Callable[..., Any]) -> Any: ...
        def _close_after(self, method: Callable[..., Any]) -> Any: ...


class WatchedAsync(_Watched):
    """Wraps an asynchronous stream or its context manager, and collects events that are read."""

    async def __aenter__(self) -> Self:
        if hasattr(type(self._original), "__aenter__"):
            self._stream = await self._original.__aenter__()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> Any:
        try:
            if hasattr(type(self._original), "__aexit__"):
                return await self._original.__aexit__(kind, error, trace)
            if hasattr(self._original, "aclose"):
                await self._original.aclose()
        finally:  # an exception of the reader's code is not a failure of the reply
            await self._end_reply(None if isinstance(error, Exception) else error)
        return None

    async def __aiter__(self) -> AsyncIterator[Any]:
        try:
            while (event := await self._next()) is not _END:
                yield event
        finally:  # the reader may have ended its loop early
            await self._watching.finish()

    async def __anext__(self) -> Any:
        event = await self._next()
        if event is _END:
            raise StopAsyncIteration
        return event

    async def _next(self) -> Any:
        if self._events is None:
            is_iterator = hasattr(type(self._stream), "__anext__")
            self._events = self._stream if is_iterator else aiter(self._stream)
        try:
            event = await anext(self._events, _END)
        except BaseException as error:  # raised again for the reader
            await self._end_reply(error)
            raise
        if event is _END:
            await self._end_reply(None)
        else:
            self._watching.take(event)
        return event

    async def _end_reply(self, error: BaseException | None) -> None:
        if error is None or isinstance(error, Exception):
            await self._watching.finish(error)
        else:
            self._watching.end()

    async def _texts(self) -> AsyncIterator[str]:
        async for event in self:
            if (text := _text_of(event)) is not None:
                yield text

    def _read_first(self, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def read(*args: Any, **kwargs: Any) -> Any:
            async for _ in self:
                pass
            return await method(*args, **kwargs)

        return read

    def _close_after(self, method: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        async def close(*args: Any, **kwargs: Any) -> Any:
            try:
                result = method(*args, **kwargs)
                return await result if inspect.isawaitable(result) else result
            finally:
                await self._watching.finish()

        return close


class WatchedSync(_Watched):
    """Wraps a stream for `for` loops or its context manager, and collects events that are read."""

    def __init__(self, stream: Any, watching: Watching) -> None:
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError as error:
            raise RuntimeError(
                "read a watched stream in the event loop of its memory; in code without an event "
                "loop, use `open_blocking_memory`"
            ) from error
        super().__init__(stream, watching)

    def __enter__(self) -> Self:
        if hasattr(type(self._original), "__enter__"):
            self._stream = self._original.__enter__()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> Any:
        try:
            if hasattr(type(self._original), "__exit__"):
                return self._original.__exit__(kind, error, trace)
            if hasattr(self._original, "close"):
                self._original.close()
        finally:
            self._end_reply(None)
        return None

    def __iter__(self) -> Iterator[Any]:
        try:
            while (event := self._next()) is not _END:
                yield event
        finally:  # the reader may have ended its loop early
            self._end_reply(None)

    def __next__(self) -> Any:
        event = self._next()
        if event is _END:
            raise StopIteration
        return event

    def _next(self) -> Any:
        if self._events is None:
            is_iterator = hasattr(type(self._stream), "__next__")
            self._events = self._stream if is_iterator else iter(self._stream)
        try:
            event = next(self._events, _END)
        except BaseException as error:  # raised again for the reader
            self._end_reply(error)
            raise
        if event is _END:
            self._end_reply(None)
        else:
            self._watching.take(event)
        return event

    def _end_reply(self, error: BaseException | None) -> None:
        if self._loop.is_closed():
            return  # the memory was closed with its loop, and has observed the events
        if _running_loop() is self._loop:
            self._watching.end(error)
            return
        future = asyncio.run_coroutine_threadsafe(self._watching.finish(error), self._loop)
        with suppress(TimeoutError, Abandoned):
            future.result(END_SECONDS)

    def _texts(self) -> Iterator[str]:
        for event in self:
            if (text := _text_of(event)) is not None:
                yield text

    def _read_first(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def read(*args: Any, **kwargs: Any) -> Any:
            for _ in self:
                pass
            return method(*args, **kwargs)

        return read

    def _close_after(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def close(*args: Any, **kwargs: Any) -> Any:
            try:
                return method(*args, **kwargs)
            finally:
                self._end_reply(None)

        return close


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _text_of(event: Any) -> str | None:
    if getattr(event, "type", None) != "content_block_delta":
        return None
    delta = event.delta
    return delta.text if delta.type == "text_delta" else None
