"""What is written to the terminal: finished lines for good, and below them a few that live.

Only the live lines are ever drawn again, from the first one that changed on; what is finished goes
above them and is never touched, so the terminal's own scrollback holds the whole talk. No other
screen, no mouse, no scroll regions: it works over ssh, in tmux and in a plain console.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from recollect.agent.chat.drawing import ReplyBlock
from recollect.agent.chat.output import Sink

if TYPE_CHECKING:
    from rich.console import Console

_REFLOWING: Final = (
    *("TMUX", "VTE_VERSION", "KITTY_WINDOW_ID", "WEZTERM_PANE", "ALACRITTY_WINDOW_ID"),
    *("KONSOLE_VERSION", "WT_SESSION", "GHOSTTY_RESOURCES_DIR"),
)
"""Set by terminals that wrap long lines again when they are made narrower."""
_REFLOWING_PROGRAMS: Final = frozenset(
    {"iTerm.app", "Apple_Terminal", "vscode", "WezTerm", "ghostty", "WarpTerminal", "tmux"}
)
_REFLOWING_TERMS: Final = ("tmux", "xterm-kitty", "xterm-ghostty", "alacritty", "foot", "wezterm")
"""Of `TERM`, which ssh passes on, how it begins in such terminals."""
HIDE_CURSOR: Final = "\x1b[?25l"
SHOW_CURSOR: Final = "\x1b[?25h"
_STYLE: Final = re.compile(r"\x1b\[[0-9;]*m")
_CLEAR_BELOW: Final = "\x1b[J"


class Size(NamedTuple):
    """Of a terminal, in cells."""

    columns: int
    rows: int


def terminal_size(descriptor: int) -> Size:
    """As it is now; 80 by 24 where nobody says it."""
    try:
        found = os.get_terminal_size(descriptor)
    except OSError:
        return Size(80, 24)
    return Size(found.columns or 80, found.lines or 24)


def reflows(environment: Mapping[str, str]) -> bool:
    """Whether the terminal is known to wrap long lines again when its width changes."""
    return (
        any(name in environment for name in _REFLOWING)
        or environment.get("TERM_PROGRAM") in _REFLOWING_PROGRAMS
        or environment.get("TERM", "").startswith(_REFLOWING_TERMS)
    )


@dataclass(slots=True)
class Painter:
    """Draws with rich for a width, into strings that can be written as they are."""

    columns: int
    environment: Mapping[str, str] | None = None
    _consoles: dict[int, Console] = field(default_factory=dict, repr=False)

    @property
    def width(self) -> int:
        """One cell less than there is: a full line would make some terminals wrap."""
        return max(20, self.columns - 1)

    def lines(self, drawn: Any) -> list[str]:
        """Anything that rich draws, a string each line."""
        console = self._console()
        with console.capture() as capture:
            console.print(drawn, soft_wrap=False)
        return [line.rstrip(" ") for line in capture.get().rstrip("\n").split("\n")]

    def block(self, block: ReplyBlock) -> list[str]:
        """A block of a reply."""
        if block.kind == "code":
            from rich.padding import Padding
            from rich.syntax import Syntax

            code = block.text.rstrip("\n").expandtabs(4)
            language = block.language or "text"
            syntax = Syntax(
                code, language, theme="ansi_dark", word_wrap=True, background_color="default"
            )
            return self.lines(Padding(syntax, (0, 0, 0, 2)))
        from rich.markdown import Markdown

        lines = self.lines(Markdown(block.text, code_theme="ansi_dark", hyperlinks=False))
        drawn = [number for number, line in enumerate(lines) if _STYLE.sub("", line).strip()]
        return lines[drawn[0] : drawn[-1] + 1] if drawn else []

    def _console(self) -> Console:
        if self.width not in self._consoles:
            from rich.console import Console

            self._consoles.clear()
            self._consoles[self.width] = Console(
                width=self.width,
                height=100,
                force_terminal=True,
                legacy_windows=False,
                highlight=False,
                markup=False,
                emoji=False,
                _environ=self.environment,
            )
        return self._consoles[self.width]


class LiveRegion:
    """The lines at the bottom that change."""

    def __init__(self, out: Sink, size: Callable[[], Size], *, reflowing: bool = False) -> None:
        self._out = out
        self._size = size
        self._reflowing = reflowing
        self._drawn: list[str] = []
        self._columns = size().columns

    def draw(self, lines: Sequence[str]) -> None:
        """Show these lines instead; what did not change is not written."""
        new = list(lines)
        if new == self._drawn:
            return
        self._write(self._change(new))
        self._drawn = new

    def print_above(self, lines: Sequence[str]) -> None:
        """Lines for good, above the status line; what else lived may be among them, and is gone
        until it is drawn again."""
        if not lines:
            return
        status = self._drawn[-1:]
        finished = "".join(f"{line}\n" for line in lines)
        self._write(self._erased() + finished + "".join(status))
        self._drawn = status

    def clear(self) -> None:
        """Nothing lives any more."""
        self._write(self._erased())
        self._drawn = []

    def resized(self) -> None:
        """The terminal has another width: begin anew from where the lines are now.

        Where it is not known whether long lines were wrapped anew, no more rows are cleared than
        there certainly are: a remnant of a live line may stay, nothing finished ever goes.
        """
        columns = self._size().columns
        rows = len(self._drawn)
        if self._reflowing and columns < self._columns:
            rows = sum(max(1, -(-_cells(line) // columns)) for line in self._drawn)
        if self._drawn:
            self._write(_up(rows - 1) + _CLEAR_BELOW)
        self._drawn = []
        self._columns = columns

    def _change(self, new: list[str]) -> str:
        old = self._drawn
        if not old:
            return "\n".join(new)
        if not new:
            return self._erased()
        same = 0
        while same < min(len(old), len(new) - 1) and old[same] == new[same]:
            same += 1
        if same == len(old):
            return "\n" + "\n".join(new[same:])
        return _up(len(old) - 1 - same) + _CLEAR_BELOW + "\n".join(new[same:])

    def _erased(self) -> str:
        return _up(len(self._drawn) - 1) + _CLEAR_BELOW if self._drawn else ""

    def _write(self, text: str) -> None:
        if text:
            self._out.write(text)
            self._out.flush()


def _up(rows: int) -> str:
    """To the beginning of a line so many rows above."""
    return f"\r\x1b[{rows}A" if rows > 0 else "\r"


def _cells(line: str) -> int:
    from rich.text import Text

    return Text.from_ansi(line).cell_len
