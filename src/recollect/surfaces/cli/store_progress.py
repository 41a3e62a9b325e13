"""Progress of long work on a memory: on standard error, for somebody who watches.

Drawn once half a second has passed; nothing is left on the screen afterwards.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

    from rich.progress import Progress, TaskID

_PATIENCE_SECONDS = 0.5


class StoreProgress:
    """One bar at a time, with what is being done in front of it."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._watched = sys.stderr.isatty() and not quiet
        self._since = time.monotonic()
        self._bars: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.clear()

    def clear(self) -> None:
        """Take the bar away, so that something can be printed; it comes back when it is due."""
        if self._bars is not None:
            self._bars.stop()
        self._bars = self._task = None

    def show(self, what: str, done: int, total: int | None) -> None:
        """So much of it is done; `total` None where nobody knows."""
        if not self._watched or time.monotonic() - self._since < _PATIENCE_SECONDS:
            return
        if self._bars is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
            self._bars = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bars.start()
        if self._task is None:
            self._task = self._bars.add_task(what, total=total)
        self._bars.update(self._task, description=what, completed=done, total=total)
