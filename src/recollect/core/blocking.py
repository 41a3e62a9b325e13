"""The synchronous façade: the engine's own calls, waited for.

One background thread runs one event loop for all calls, so sessions, locks and deadlines
behave as they do for asynchronous callers. Adds nothing of its own but `submit`, for asynchronous
code that shares a memory with blocking code: a test holds its methods
against the engine's.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
import weakref
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from recollect.core.compaction.cut import UndoResult
from recollect.core.engine import Context, Engine, Observation, Session
from recollect.core.engine.heard_replies import MarkReply
from recollect.core.engine.hooks import Hook, HookName
from recollect.core.engine.keeper import IngestCounts
from recollect.core.ports import Spool
from recollect.core.values.compaction import CompactionResult, Trigger
from recollect.core.values.fact import Fact, FactType, MadeBy
from recollect.core.values.history import SessionId, SessionState
from recollect.core.values.model import FormatName
from recollect.core.values.recall import Recalled
from recollect.core.values.segment import SegmentId, StoredMessage, Trust
from recollect.core.values.upkeep import Certificate, ForgetOrder, SessionSummary, Stats

if TYPE_CHECKING:  # most processes never need facts
    from recollect.core.engine.facts.book import FactBook
    from recollect.core.facts.results import (
        FactFilter,
        FactHistory,
        FactPinned,
        FactWhy,
        FactWritten,
    )
    from recollect.core.upkeep.forget import Cascade

T = TypeVar("T")
StreamT = TypeVar("StreamT")
StoredT = TypeVar("StoredT")


class BlockingEngine:
    """An `Engine` for code without an event loop; close it, or use it in a `with`."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="recollect", daemon=True
        )
        self._thread.start()
        _close_at_exit(self)

    def session(self, id: SessionId, state: SessionState | None = None) -> Session:  # noqa: A002
        """As `Engine.session`."""
        return self.engine.session(id, state)

    def end(self, session: Session | SessionId) -> None:
        """As `Engine.end`."""
        self.engine.end(session)

    def prepare(
        self,
        session: Session | SessionId,
        request: bytes | bytearray | memoryview | Mapping[str, Any],
        *,
        format: FormatName | None = None,  # noqa: A002
        betas: Sequence[str] = (),
        window_tokens: int | None = None,
    ) -> Context:
        """As `Engine.prepare`, waited for."""
        return self._wait(
            self.engine.prepare(
                session, request, format=format, betas=betas, window_tokens=window_tokens
            )
        )

    def preview(
        self,
        session: Session | SessionId,
        request: bytes | bytearray | memoryview | Mapping[str, Any],
        *,
        format: FormatName | None = None,  # noqa: A002
        betas: Sequence[str] = (),
        recall: bool = True,
        window_tokens: int | None = None,
    ) -> Context:
        """As `Engine.preview`, waited for."""
        return self._wait(
            self.engine.preview(
                session,
                request,
                format=format,
                betas=betas,
                recall=recall,
                window_tokens=window_tokens,
            )
        )

    def observe(
        self,
        session: Session | SessionId,
        reply: Any,
        *,
        turn: int | None = None,
        wait: bool = True,
        mark: MarkReply | None = None,
    ) -> Observation:
        """As `Engine.observe`, waited for."""
        return self._wait(self.engine.observe(session, reply, turn=turn, wait=wait, mark=mark))

    def watch(self, session: Session | SessionId, stream: StreamT) -> StreamT:
        """As `Engine.watch`, for a stream that is read by `for`."""

        async def watch() -> StreamT:
            return self.engine._watch(session, stream, plain=True)

        return self._wait(watch())

    def compact(
        self,
        session: Session | SessionId,
        request: bytes | Mapping[str, Any] | None = None,
        *,
        instructions: str = "",
        trigger: Trigger = "manual",
        format: FormatName | None = None,  # noqa: A002
        window_tokens: int | None = None,
    ) -> CompactionResult:
        """As `Engine.compact`, waited for."""
        return self._wait(
            self.engine.compact(
                session,
                request,
                instructions=instructions,
                trigger=trigger,
                format=format,
                window_tokens=window_tokens,
            )
        )

    def undo(self, session: Session | SessionId) -> UndoResult:
        """As `Engine.undo`, waited for."""
        return self._wait(self.engine.undo(session))

    def flushed(self, session: Session | SessionId) -> None:
        """As `Engine.flushed`, waited for."""
        self._wait(self.engine.flushed(session))

    def facts(self, session: SessionId | None = None) -> BlockingFactBook:
        """As `Engine.facts`, waited for."""
        return BlockingFactBook(self._wait(self.engine.facts(session)), self._wait)

    def ingest(
        self,
        session: SessionId,
        messages: Sequence[bytes | Mapping[str, Any]],
        *,
        format: FormatName | None = None,  # noqa: A002
        batch: str | None = None,
        said_at: float | None = None,
    ) -> IngestCounts:
        """As `Engine.ingest`, waited for."""
        return self._wait(
            self.engine.ingest(session, messages, format=format, batch=batch, said_at=said_at)
        )

    def sessions(self) -> tuple[SessionSummary, ...]:
        """As `Engine.sessions`, waited for."""
        return self._wait(self.engine.sessions())

    def messages(
        self,
        session: Session | SessionId,
        *,
        after: int = 0,
        limit: int = 100,
        newest_first: bool = False,
    ) -> tuple[StoredMessage, ...]:
        """As `Engine.messages`, waited for."""
        return self._wait(
            self.engine.messages(session, after=after, limit=limit, newest_first=newest_first)
        )

    def stats(self) -> Stats:
        """As `Engine.stats`, waited for."""
        return self._wait(self.engine.stats())

    def forget(
        self,
        *,
        messages: Sequence[str] = (),
        sessions: Sequence[SessionId] = (),
        facts: Sequence[str] = (),
        matching: str | None = None,
        pattern: str | None = None,
        said_after: float | None = None,
        said_before: float | None = None,
    ) -> Certificate:
        """As `Engine.forget`, waited for."""
        return self._wait(
            self.engine.forget(
                messages=messages,
                sessions=sessions,
                facts=facts,
                matching=matching,
                pattern=pattern,
                said_after=said_after,
                said_before=said_before,
            )
        )

    def delete_space(self) -> Certificate:
        """As `Engine.delete_space`, waited for; then stop the background thread."""
        certificate = self._wait(self.engine.delete_space())
        self.close()
        return certificate

    def search(
        self,
        query: str,
        *,
        session: SessionId | None = None,
        budget_tokens: int = 2_000,
        said_after: float | None = None,
        said_before: float | None = None,
    ) -> Recalled:
        """As `Engine.search`, waited for."""
        return self._wait(
            self.engine.search(
                query,
                session=session,
                budget_tokens=budget_tokens,
                said_after=said_after,
                said_before=said_before,
            )
        )

    def on(self, name: HookName, hook: Hook) -> Callable[[], None]:
        """As `Engine.on`; a hook runs in the background thread, or one of its helpers."""
        return self.engine.on(name, hook)

    def settle(self, seconds: float = 5.0, *, jobs: bool = False) -> int:
        """As `Engine.settle`, waited for."""
        return self._wait(self.engine.settle(seconds, jobs=jobs))

    def close(self) -> None:
        """As `Engine.close`, then stop the background thread; calls after this fail."""
        if self._loop.is_closed():
            return
        try:
            self._wait(self.engine.close())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin some work of `.engine` in the background thread; what is returned tells its end.

        For asynchronous code that shares this memory: `asyncio.wrap_future` awaits it.
        """
        if self._loop.is_closed():
            work.close()
            self.engine._check_open()
            raise RuntimeError("the thread of this memory has ended: open it again")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        if threading.current_thread() is self._thread:  # it would wait for itself
            work.close()
            raise RuntimeError("an async hook awaits the calls of `.engine` instead of these")
        return self.submit(work).result()


class _Waits(Protocol):
    def __call__(self, work: Coroutine[Any, Any, T], /) -> T:
        """What the work gives."""
        ...


class BlockingFactBook:
    """A `FactBook` for code without an event loop; of no use once its engine is closed."""

    def __init__(self, book: FactBook, wait: _Waits) -> None:
        self._book = book
        self._wait = wait

    def list(self, asked: FactFilter | None = None) -> tuple[Fact, ...]:
        """As `FactBook.list`, waited for."""
        return self._wait(self._book.list(asked))

    def find(self, id: str) -> Fact:  # noqa: A002
        """As `FactBook.find`, waited for."""
        return self._wait(self._book.find(id))

    def add(
        self,
        text: str,
        *,
        type: FactType | None = None,  # noqa: A002
        subject: str = "",
        at: float | None = None,
        made_by: MadeBy = "user",
        trust: Trust = "high",
        source: SegmentId | None = None,
    ) -> FactWritten:
        """As `FactBook.add`, waited for."""
        added = self._book.add(
            text, type=type, subject=subject, at=at, made_by=made_by, trust=trust, source=source
        )
        return self._wait(added)

    def edit(
        self,
        id: str,  # noqa: A002
        text: str,
        *,
        type: FactType | None = None,  # noqa: A002
    ) -> FactWritten:
        """As `FactBook.edit`, waited for."""
        return self._wait(self._book.edit(id, text, type=type))

    def pin(self, id: str) -> FactPinned:  # noqa: A002
        """As `FactBook.pin`, waited for."""
        return self._wait(self._book.pin(id))

    def unpin(self, id: str) -> FactPinned:  # noqa: A002
        """As `FactBook.unpin`, waited for."""
        return self._wait(self._book.unpin(id))

    def history(self, id: str) -> FactHistory:  # noqa: A002
        """As `FactBook.history`, waited for."""
        return self._wait(self._book.history(id))

    def why(self, id: str) -> FactWhy:  # noqa: A002
        """As `FactBook.why`, waited for."""
        return self._wait(self._book.why(id))

    def order_to_forget(
        self, ids: Sequence[str], *, sources: bool = False, versions: bool = False
    ) -> ForgetOrder:
        """As `FactBook.order_to_forget`, waited for."""
        return self._wait(self._book.order_to_forget(ids, sources=sources, versions=versions))

    def forget(
        self, order: ForgetOrder, *, spools: Sequence[Spool] = (), cascades: Sequence[Cascade] = ()
    ) -> Certificate:
        """As `FactBook.forget`, waited for."""
        return self._wait(self._book.forget(order, spools=spools, cascades=cascades))


def _close_at_exit(engine: BlockingEngine) -> None:
    """What was said last must not go with the process.

    The ordinary exit handlers run when no thread can be given work any more, which is too late
    for a store; `concurrent.futures` itself uses this earlier door.
    """
    held = weakref.ref(engine)

    def close() -> None:
        left = held()
        if left is not None:
            left.close()

    getattr(threading, "_register_atexit", atexit.register)(close)
