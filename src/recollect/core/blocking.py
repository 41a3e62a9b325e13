"""An engine for code without an event loop. The blocking engine has the same calls, and runs them
in a background thread."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Protocol, Self, TypeVar

from recollect.core.engine import Engine, Session
from recollect.core.engine.summary import Hook, HookName
from recollect.core.values.history import SessionId, SessionState
from recollect.core.values.upkeep import Certificate
from recollect.system.forks import OwnProcess, leave_to_parent

if TYPE_CHECKING:  # imported on first use, because most programs never use facts
    from recollect.core.facts.book import FactBook

T = TypeVar("T")
P = ParamSpec("P")
StreamT = TypeVar("StreamT")
_REOPENING: Final = threading.Lock()
os.register_at_fork(
    before=_REOPENING.acquire,
    after_in_parent=_REOPENING.release,
    after_in_child=_REOPENING.release,
)


def _blocking_call(
    call: Callable[Concatenate[Engine, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[BlockingEngine, P], T]:
    @wraps(call)
    def wait(self: BlockingEngine, /, *args: P.args, **named: P.kwargs) -> T:
        return self.wait_for(call(self.engine, *args, **named))

    return wait


class BlockingEngine:
    """An `Engine` for code without an event loop. Close the engine, or use it with `with`."""

    def __init__(self, engine: Engine, *, reopen: Callable[[], Engine] | None = None) -> None:
        """`reopen` opens the memory again in a forked child, which must not use the engine of its
        parent."""
        self._reopen = reopen
        self._begin(engine)
        _close_at_exit(self)

    def _begin(self, engine: Engine) -> None:
        self._process = OwnProcess()
        self._engine = engine
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="recollect", daemon=True
        )
        self._thread.start()

    @property
    def engine(self) -> Engine:
        """The engine, whose coroutines run in the background thread (see `submit`)."""
        if self._process.is_other:
            with _REOPENING:
                if self._process.is_other:
                    leave_to_parent(self._engine, self._loop, self._thread)
                    self._begin(self._engine if self._reopen is None else self._reopen())
        return self._engine

    prepare: Final = _blocking_call(Engine.prepare)
    preview: Final = _blocking_call(Engine.preview)
    observe: Final = _blocking_call(Engine.observe)
    compact: Final = _blocking_call(Engine.compact)
    undo: Final = _blocking_call(Engine.undo)
    flushed: Final = _blocking_call(Engine.flushed)
    ingest: Final = _blocking_call(Engine.ingest)
    sessions: Final = _blocking_call(Engine.sessions)
    messages: Final = _blocking_call(Engine.messages)
    stats: Final = _blocking_call(Engine.stats)
    forget: Final = _blocking_call(Engine.forget)
    search: Final = _blocking_call(Engine.search)
    settle: Final = _blocking_call(Engine.settle)

    def session(self, id: SessionId, state: SessionState | None = None) -> Session:  # noqa: A002
        """Same as `Engine.session`."""
        return self.engine.session(id, state)

    def end(self, session: Session | SessionId) -> None:
        """Same as `Engine.end`."""
        self.engine.end(session)

    def watch(self, session: Session | SessionId, stream: StreamT) -> StreamT:
        """Same as `Engine.watch`, for a stream that you read in a `for` loop."""

        async def watch() -> StreamT:
            engine = self.engine
            return engine.streams.watch(engine.parts.sessions.find(session), stream, plain=True)

        return self.wait_for(watch())

    def facts(self, session: SessionId | None = None) -> BlockingFactBook:
        """Same as `Engine.facts`, but blocks until the facts are open."""
        return BlockingFactBook(self.wait_for(self.engine.facts(session)), self.wait_for)

    def on(self, name: HookName, hook: Hook) -> Callable[[], None]:
        """Same as `Engine.on`. Hooks run in the background thread or in a thread started from
        it."""
        return self.engine.on(name, hook)

    def delete_space(self) -> Certificate:
        """Same as `Engine.delete_space`, but blocks, and then stops the background thread."""
        certificate = self.wait_for(self.engine.delete_space())
        self.close()
        return certificate

    def close(self, seconds: float | None = None) -> int:
        """Same as `Engine.close`, but blocks, and then stops the background thread; later calls
        fail. Ctrl-C ends the wait."""
        if self._loop.is_closed() or self._process.is_other:
            return 0
        try:
            return self.wait_for(self.engine.close(seconds))
        except KeyboardInterrupt:
            self.wait_for(self.engine.close(0))  # the log counts what was not stored
            raise
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine of `.engine` in the background thread. Use `asyncio.wrap_future` to
        await the result."""
        engine = self.engine
        if self._loop.is_closed():
            work.close()
            engine.parts.sessions.check_open()
            raise RuntimeError("the thread of this memory has ended: open it again")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of `.engine` in the background thread, and return its result."""
        if threading.current_thread() is self._thread:  # the thread would wait for itself
            work.close()
            raise RuntimeError("an async hook must await the methods of `.engine` instead")
        return self.submit(work).result()


class _Waits(Protocol):
    def __call__(self, work: Coroutine[Any, Any, T], /) -> T:
        """Run the coroutine and wait for its result."""
        ...


def _fact_call(
    call: Callable[Concatenate[FactBook, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[BlockingFactBook, P], T]:
    raise NotImplementedError(call)  # checked by type checkers only, never called


class BlockingFactBook:
    """A `FactBook` for code without an event loop, with the same methods, which block."""

    def __init__(self, book: FactBook, wait: _Waits) -> None:
        self._book = book
        self.wait_for = wait

    if TYPE_CHECKING:
        list: Final = _fact_call(FactBook.list)
        find: Final = _fact_call(FactBook.find)
        add: Final = _fact_call(FactBook.add)
        edit: Final = _fact_call(FactBook.edit)
        pin: Final = _fact_call(FactBook.pin)
        unpin: Final = _fact_call(FactBook.unpin)
        expire: Final = _fact_call(FactBook.expire)
        history: Final = _fact_call(FactBook.history)
        why: Final = _fact_call(FactBook.why)
        order_to_forget: Final = _fact_call(FactBook.order_to_forget)
        forget: Final = _fact_call(FactBook.forget)
    else:

        def __getattr__(self, name: str) -> Any:
            call = getattr(self._book, name)
            return lambda *args, **named: self.wait_for(call(*args, **named))


def _close_at_exit(engine: BlockingEngine) -> None:
    """Close the engine before Python stops its threads at exit. `atexit` handlers run too late:
    threads then accept no more work."""
    engine_reference = weakref.ref(engine)

    def close() -> None:
        open_engine = engine_reference()
        if open_engine is not None:
            open_engine.close()

    getattr(threading, "_register_atexit", atexit.register)(close)
