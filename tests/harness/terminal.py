"""A program in a real terminal whose screen can be read: a pty, drawn by pyte.

with Terminal([...], env=..., columns=80, rows=24) as terminal:
    terminal.wait_for("›")
    terminal.send("hello\r")
"""

import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Self

import pyte
from rich.text import Text

SCROLLBACK = 100_000


class _Screen(pyte.HistoryScreen):
    """Answers what a terminal is asked, such as where its cursor is."""

    answer: Any = None

    def write_process_input(self, data: str) -> None:
        self.answer(data)


class Terminal:
    """One program in a terminal."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path | None = None,
        columns: int = 80,
        rows: int = 24,
        term: str = "xterm-256color",
    ) -> None:
        self._screen = _Screen(columns, rows, history=SCROLLBACK, ratio=0.5)
        self._screen.answer = self.send
        self._stream = pyte.ByteStream(self._screen)
        self._lock = threading.Lock()
        self.written = bytearray()
        """Everything that the program wrote."""
        self._scrolled: list[str] = []
        """The lines of the scrollback, read once each: they change no more."""
        self._ours, theirs = pty.openpty()
        self._set_size(columns, rows)
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            list(command),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=cwd,
            env={**env, "TERM": term},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(timeout=30)
        self._reader.join(timeout=30)
        os.close(self._ours)

    def send(self, text: str) -> None:
        """Type; keys are what they send, such as "\\r" for Enter."""
        os.write(self._ours, text.encode())

    def resize(self, columns: int, rows: int) -> None:
        """Give it another size, and let it know."""
        with self._lock:
            self._scroll_for(rows)
            self._screen.resize(rows, columns)
        self._set_size(columns, rows)
        os.killpg(self.process.pid, signal.SIGWINCH)

    def _scroll_for(self, rows: int) -> None:
        """As terminals do it, and pyte does not: what no longer fits goes into the scrollback."""
        screen = self._screen
        gone = max(0, screen.cursor.y + 1 - rows)
        kept = [screen.buffer[number] for number in range(gone, screen.lines)]
        screen.history.top.extend(screen.buffer[number] for number in range(gone))
        screen.buffer.clear()
        screen.buffer.update(enumerate(kept[:rows]))
        screen.cursor.y -= gone
        screen.lines = rows

    def is_cooked(self) -> bool:
        """Whether the terminal is as a shell needs it: what is typed is shown, and edited."""
        wanted = termios.ECHO | termios.ICANON | termios.ISIG
        modes: int = termios.tcgetattr(self._ours)[3]
        last = {mode: self.written.rfind(mode) for mode in (b"?25h", b"?25l", b"?2004h", b"?2004l")}
        return (
            modes & wanted == wanted
            and last[b"?25h"] >= last[b"?25l"]
            and last[b"?2004l"] >= last[b"?2004h"]
        )

    def shown(self) -> list[str]:
        """The lines of the screen."""
        with self._lock:
            return [line.rstrip() for line in self._screen.display]

    def all_lines(self) -> list[str]:
        """The scrollback and the screen."""
        with self._lock:
            top = self._screen.history.top
            if len(top) < len(self._scrolled):  # it was cleared
                self._scrolled.clear()
            self._scrolled += [
                "".join(row[at].data for at in range(max(row, default=-1) + 1)).rstrip()
                for row in islice(top, len(self._scrolled), None)
            ]
            return self._scrolled + [line.rstrip() for line in self._screen.display]

    def colours(self, text: str) -> set[str]:
        """The colours in which a text stands on the screen."""
        with self._lock:
            for number, line in enumerate(self._screen.display):
                at = line.find(text)
                if at >= 0:
                    row = self._screen.buffer[number]
                    return {row[at + step].fg for step in range(len(text))}
        raise AssertionError(f"{text!r} is not on the screen")

    def drawn(self) -> list[Text]:
        """The screen with its colours; rows below the last one that is used are left out."""
        with self._lock:
            rows = [self._screen.buffer[number] for number in range(self._screen.lines)]
            lines = [
                Text.assemble(
                    *(
                        ("".join(sign.data for sign in run), style)
                        for style, run in groupby(
                            (row[at] for at in range(self._screen.columns)), key=_style
                        )
                    )
                )
                for row in rows
            ]
        while lines and not lines[-1].plain.strip():
            lines.pop()
        return lines

    def wait_for(self, text: str, seconds: float = 60.0, *, times: int = 1) -> float:
        """Until the text stands somewhere; how many seconds it took."""
        begun = time.monotonic()
        looked_at = -1
        while True:
            written = len(self.written)
            if written != looked_at and "\n".join(self.all_lines()).count(text) >= times:
                return time.monotonic() - begun
            looked_at = written
            if time.monotonic() - begun > seconds:
                shown = "\n".join(self.shown())
                raise AssertionError(f"{text!r} did not come within {seconds} s:\n{shown}")
            time.sleep(0.01)

    def wait_for_that(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        """Until this is so."""
        until = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < until, "\n".join(self.shown())
            time.sleep(0.05)

    def wait_until_ended(self, seconds: float = 60.0) -> int:
        """Until the program has ended; its exit code."""
        return self.process.wait(timeout=seconds)

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._ours, 65_536)
            except OSError:  # the other end is closed
                return
            if not data:
                return
            with self._lock:
                self._stream.feed(data)
            self.written += data  # last: who sees it grow finds it on the screen

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


_NAMES = {"brown": "yellow", "brightbrown": "bright_yellow"}


def _style(sign: Any) -> str:
    """A sign's style in rich's words."""
    marks = f"{'bold ' if sign.bold else ''}{'italic ' if sign.italics else ''}"
    return f"{marks}{_colour(sign.fg)} on {_colour(sign.bg)}"


def _colour(name: str) -> str:
    name = _NAMES.get(name, name)
    if len(name) == 6 and all(digit in "0123456789abcdef" for digit in name):
        return f"#{name}"
    return name.replace("bright", "bright_") if name.startswith("bright") else name
