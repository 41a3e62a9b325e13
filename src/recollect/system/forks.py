"""Recognizes a forked child process. The connections, threads and locks of a parent must not be
used in its child: two processes would share a connection, and wait for threads that only one
has."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

LOG: Final = logging.getLogger("recollect")
_OF_PARENTS: Final[list[object]] = []


class OwnProcess:
    """The process in which a value is used."""

    __slots__ = ("id",)

    def __init__(self) -> None:
        self.id: int = os.getpid()

    @property
    def is_other(self) -> bool:
        """True in a child that was forked after this value was created."""
        return self.id != os.getpid()


def leave_to_parent(*values: object) -> None:
    """Keep values of the parent until this process ends. Python would close an unused connection or
    event loop, which the parent still uses."""
    _OF_PARENTS.extend(values)


class _ForkGate:
    """Delays a fork while threads use a C library with locks of its own, such as SQLite: in the
    child, nobody would release a lock that another thread held at that moment."""

    MOST_SECONDS: Final = 10.0
    """A fork waits no longer. SQLite waits up to 5 s for another process."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._users = 0
        self._is_closed = False
        self._thread_state = threading.local()
        self._forking = threading.Lock()
        os.register_at_fork(
            before=self._close, after_in_parent=self._open, after_in_child=self._begin_in_child
        )

    @contextmanager
    def delay_forks(self) -> Iterator[None]:
        """Let this process fork only after the block. A thread may nest such blocks."""
        if getattr(self._thread_state, "is_inside", False):
            yield
            return
        process = OwnProcess()
        with self._condition:
            self._condition.wait_for(lambda: not self._is_closed)
            self._users += 1
        self._thread_state.is_inside = True
        try:
            yield
        finally:
            if not process.is_other:
                self._thread_state.is_inside = False
                with self._condition:
                    self._users -= 1
                    self._condition.notify_all()

    def _close(self) -> None:
        self._forking.acquire()
        with self._condition:
            self._is_closed = True
            own_uses = int(getattr(self._thread_state, "is_inside", False))
            if not self._condition.wait_for(lambda: self._users <= own_uses, self.MOST_SECONDS):
                LOG.warning(
                    "this process forks while SQLite is busy for more than %g s: the child may "
                    "wait forever when it opens a memory",
                    self.MOST_SECONDS,
                )

    def _open(self) -> None:
        with self._condition:
            self._is_closed = False
            self._condition.notify_all()
        self._forking.release()

    def _begin_in_child(self) -> None:
        self._condition, self._forking = threading.Condition(), threading.Lock()
        self._users, self._is_closed = 0, False
        self._thread_state = threading.local()


FORK_GATE: Final = _ForkGate()
FORKED: Final = (
    "this memory was used before this process was forked: open it in the new process (Gunicorn: "
    "`post_fork`, Celery: `worker_process_init`), or use `open_blocking_memory`, which opens again"
)
