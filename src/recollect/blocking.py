"""The synchronous façade: the engine's own calls, waited for.

One background thread runs one event loop for all calls, so sessions, locks and deadlines
behave as they do for asynchronous callers. Adds nothing of its own: a test holds its methods
against the engine's.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
import weakref
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from recollect.compaction.undo import UndoResult
from recollect.engine import Context, Engine, Observation, Session
from recollect.engine.hooks import Hook, HookName
from recollect.values.compaction import CompactionResult, Trigger
from recollect.values.history import SessionId, SessionState
from recollect.values.request import FormatName

T = TypeVar("T")


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
    ) -> Context:
        """As `Engine.prepare`, waited for."""
        return self._wait(self.engine.prepare(session, request, format=format))

    def observe(self, session: Session | SessionId, reply: Any) -> Observation:
        """As `Engine.observe`, waited for."""
        return self._wait(self.engine.observe(session, reply))

    def compact(
        self,
        session: Session | SessionId,
        request: bytes | Mapping[str, Any] | None = None,
        *,
        instructions: str = "",
        trigger: Trigger = "manual",
        format: FormatName | None = None,  # noqa: A002
    ) -> CompactionResult:
        """As `Engine.compact`, waited for."""
        return self._wait(
            self.engine.compact(
                session, request, instructions=instructions, trigger=trigger, format=format
            )
        )

    def undo(self, session: Session | SessionId) -> UndoResult:
        """As `Engine.undo`, waited for."""
        return self._wait(self.engine.undo(session))

    def flushed(self, session: Session | SessionId) -> None:
        """As `Engine.flushed`, waited for."""
        self._wait(self.engine.flushed(session))

    def on(self, name: HookName, hook: Hook) -> Callable[[], None]:
        """As `Engine.on`; a hook runs in the background thread, or one of its helpers."""
        return self.engine.on(name, hook)

    def settle(self, seconds: float = 5.0) -> int:
        """As `Engine.settle`, waited for."""
        return self._wait(self.engine.settle(seconds))

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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop.is_closed():
            work.close()
            raise RuntimeError("this engine is closed; open a new one")
        if threading.current_thread() is self._thread:  # it would wait for itself
            work.close()
            raise RuntimeError("an async hook awaits the calls of `.engine` instead of these")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


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
