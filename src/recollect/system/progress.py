"""A progress bar in one line of a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final, Self

_PATIENCE_SECONDS: Final = 0.5
"""Work that ends sooner shows no bar. Not measured."""
_REDRAW_SECONDS: Final = 0.1  # not measured; looks continuous
_BAR_CHARS: Final = 30  # with name and numbers, fits 100 columns
_NAME_CHARS: Final = 40  # see _BAR_CHARS


class ShownProgress:
    """A progress bar on standard error, only on a terminal and only after half a second."""

    def __init__(
        self, *, quiet: bool = False, amount: Callable[[int], str] = "{:,}".format
    ) -> None:
        """`amount` formats a number, such as a number of bytes."""
        self._is_watched = sys.stderr is not None and sys.stderr.isatty() and not quiet
        self._amount = amount
        self._draw_at = time.monotonic() + _PATIENCE_SECONDS
        self._is_drawn = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def clear(self) -> None:
        """Remove the bar, so that a command can print text. The next `show` draws it again."""
        if self._is_drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        self._is_drawn = False

    def show(self, name: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if not self._is_watched or now < self._draw_at:
            return
        self._draw_at, self._is_drawn = now + _REDRAW_SECONDS, True
        text = f"{name[:_NAME_CHARS]}  {self._amount(done)}"
        if total:
            filled_chars = min(_BAR_CHARS, _BAR_CHARS * done // total)
            bar = "#" * filled_chars + "." * (_BAR_CHARS - filled_chars)
            text += f" of {self._amount(total)}  [{bar}]"
        sys.stderr.write(f"\r{text}\x1b[K")
        sys.stderr.flush()
