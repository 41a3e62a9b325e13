"""Progress on standard error: only for somebody who watches, and only when it takes long.

Nothing is left on the screen afterwards.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

    from rich.progress import Progress, TaskID

_PATIENCE_SECONDS = 0.5


class ShownProgress:
    """A bar for reading and one for replaying, drawn once half a second has passed."""

    def __init__(self) -> None:
        self._watched = sys.stderr.isatty()
        self._since = time.monotonic()
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def reading(self, done_bytes: int, total_bytes: int) -> None:
        """So much of the file is read."""
        self._show("reading", done_bytes, total_bytes)

    def replaying(self, done_turns: int, total_turns: int) -> None:
        """So many turns are replayed."""
        self._show("replaying", done_turns, total_turns)

    def _show(self, task: str, done: int, total: int) -> None:
        if not self._watched or time.monotonic() - self._since < _PATIENCE_SECONDS:
            return
        if self._bars is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

            columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
            self._bars = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bars.start()
        if task not in self._tasks:
            self._tasks[task] = self._bars.add_task(task, total=total)
        self._bars.update(self._tasks[task], completed=done)
