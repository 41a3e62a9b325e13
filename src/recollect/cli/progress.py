"""Progress on standard error: only for somebody who watches, and only when it takes long.

Drawn once half a second has passed; nothing is left on the screen afterwards.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_PATIENCE_SECONDS = 0.5


class ShownProgress:
    """A bar for each thing that is done, with what it is in front."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._watched = sys.stderr.isatty() and not quiet
        self._since = time.monotonic()
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def clear(self) -> None:
        """Take the bars away, so that something can be printed; they come back when due."""
        if self._bars is not None:
            self._bars.stop()
        self._bars = None
        self._tasks.clear()

    def show(self, what: str, done: int, total: int | None, *, bar: str = "") -> None:
        """So much of it is done; `total` None where nobody knows.

        What is shown as the same `bar` takes turns on it.
        """
        if not self._watched or time.monotonic() - self._since < _PATIENCE_SECONDS:
            return
        if self._bars is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
            self._bars = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bars.start()
        if bar not in self._tasks:
            self._tasks[bar] = self._bars.add_task(what, total=total)
        self._bars.update(self._tasks[bar], description=what, completed=done, total=total)

    def replaying(self, done_turns: int, total_turns: int) -> None:
        """So many turns are replayed."""
        self.show("replaying", done_turns, total_turns, bar="replaying")
