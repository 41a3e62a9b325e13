"""Draws a turn while it runs: finished lines once, and below them a few that change.

Only the live lines are drawn again; finished lines go above them and are never touched, so the
terminal's own scrollback holds the whole chat. No alternate screen, no mouse, no scroll regions.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rich.text import Text

from recollect.agent.chat.drawing import (
    Folded,
    MarkdownStream,
    ReplyBlock,
    WindowUse,
    folded_call,
    folded_compaction,
    folded_report,
    main_argument,
    one_line,
    size_of,
    status_line,
    use_of_status,
    window_use,
)
from recollect.agent.chat.output import Sink, harmless, shown_model
from recollect.agent.events import (
    AgentEvent,
    CallBegan,
    CallEnded,
    Compacted,
    Ended,
    Failed,
    Flushed,
    Prepared,
    Replied,
    Said,
    Thought,
    Told,
    UpkeepBegan,
    Withdrawn,
)

if TYPE_CHECKING:
    from rich.console import Console

    from recollect.agent.chat.opening import PersonQuestion, QuestionKind
    from recollect.hosts.inspect.status import ContextStatus
    from recollect.system.config import Settings

HIDE_CURSOR: Final = "\x1b[?25l"
SHOW_CURSOR: Final = "\x1b[?25h"
_STYLE: Final = re.compile(r"\x1b\[[0-9;]*m")
_CLEAR_BELOW: Final = "\x1b[J"
_SECONDS_SHOWN: Final = 2.0
"""From here on the status line shows how long something takes."""
_QUESTIONS: Mapping[QuestionKind, tuple[str, str]] = {
    "run": ("bash wants to run, and nothing confines it here:", "run it? y / n, then Enter:"),
    "forget": (
        "memory_forget wants to forget this permanently:",
        "forget it? y / n, then Enter:",
    ),
}
_TYPED_SHOWN: Final = 30
MOST_FOLDED: Final = 500
"""So many folded things can be opened; older ones are in the transcript."""


class Size(NamedTuple):
    """The size of a terminal, in cells."""

    columns: int
    rows: int


def terminal_size(descriptor: int) -> Size:
    """The current size; 80 by 24 if it is not known."""
    try:
        found = os.get_terminal_size(descriptor)
    except OSError:
        return Size(80, 24)
    return Size(found.columns or 80, found.lines or 24)


@dataclass(slots=True)
class Painter:
    """Draws with rich for a width, into strings that can be written as they are."""

    columns: int
    environment: Mapping[str, str] | None = None
    _console: Console | None = field(default=None, repr=False)

    @property
    def width(self) -> int:
        """One cell less than there is: some terminals wrap a full line."""
        return max(20, self.columns - 1)

    def lines(self, drawn: Any) -> list[str]:
        """Draw anything that rich can, one string per line."""
        from rich.console import Console

        if self._console is None:
            self._console = Console(
                width=self.width,
                height=100,
                force_terminal=True,
                legacy_windows=False,
                highlight=False,
                markup=False,
                emoji=False,
                _environ=self.environment,
            )
        with self._console.capture() as capture:
            self._console.print(drawn, soft_wrap=False)
        return [line.rstrip(" ") for line in capture.get().rstrip("\n").split("\n")]

    def block(self, block: ReplyBlock) -> list[str]:
        """Draw a block of a reply."""
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


class LiveRegion:
    """The lines at the bottom that change."""

    def __init__(self, out: Sink) -> None:
        self._out = out
        self._drawn: list[str] = []

    def draw(self, lines: Sequence[str]) -> None:
        """Show these lines instead, from the first one that changed on."""
        old, new = self._drawn, list(lines)
        if new == old:
            return
        same = 0
        while same < min(len(old), len(new) - 1) and old[same] == new[same]:
            same += 1
        if not old:
            self._write("\n".join(new))
        elif same == len(old):
            self._write("\n" + "\n".join(new[same:]))
        else:
            self._write(_up(len(old) - 1 - same) + _CLEAR_BELOW + "\n".join(new[same:]))
        self._drawn = new

    def print_above(self, lines: Sequence[str]) -> None:
        """Print finished lines above the status line; other live lines are gone until the next
        `draw`."""
        if lines:
            status = self._drawn[-1:]
            finished = "".join(f"{line}\n" for line in lines)
            self._write(self._erased() + finished + "".join(status))
            self._drawn = status

    def clear(self) -> None:
        """Erase the live lines.

        After a resize a remnant of one may stay; a finished line is never erased.
        """
        self._write(self._erased())
        self._drawn = []

    def _erased(self) -> str:
        return _up(len(self._drawn) - 1) + _CLEAR_BELOW if self._drawn else ""

    def _write(self, text: str) -> None:
        if text:
            self._out.write(text)
            self._out.flush()


def _up(rows: int) -> str:
    return f"\r\x1b[{rows}A" if rows > 0 else "\r"


class Screen:
    """The terminal below the prompt."""

    def __init__(
        self,
        settings: Settings,
        model: str = "",
        *,
        out: Sink | None = None,
        size: Callable[[], Size] | None = None,
        environment: Mapping[str, str] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._out: Sink = out or sys.stdout
        self._size = size or (lambda: terminal_size(sys.stdout.fileno()))
        self._painter = Painter(
            self._size().columns, dict(os.environ if environment is None else environment)
        )
        self._live = LiveRegion(self._out)
        self._now = now
        self._model = shown_model(model or settings.models.main or "")
        self._use: WindowUse | None = None
        self._stream = MarkdownStream()
        self._continues = False
        self._after_blank = True
        self._thoughts: list[str] = []
        self._calls: dict[str, CallBegan] = {}
        self._folded: dict[int, Folded] = {}
        self._count = 0
        self._doing = ""
        self._since = 0.0
        self._question = ""
        self._asks: list[str] = []

    # The status line

    def follow(self, status: ContextStatus) -> None:
        """Show the figures of `/status`."""
        self._use = use_of_status(status, self._settings)
        self._model = shown_model(status.model)

    def status(self) -> str:
        """The status line as it is now."""
        took = self._now() - self._since
        seconds = f" {took:.0f} s" if took >= _SECONDS_SHOWN else ""
        doing = f"{self._doing}{seconds} · Ctrl-C stops" if self._doing else ""
        line = status_line(self._use, self._model, self._fit().width, doing)
        return self._painter.lines(line)[0]

    def _do(self, what: str) -> None:
        if what != self._doing:
            self._doing, self._since = what, self._now()

    # A turn

    def begin(self) -> None:
        """A turn begins."""
        self._stream = MarkdownStream()
        self._continues, self._after_blank = False, True
        self._do("preparing")
        self._out.write(HIDE_CURSOR)
        self.draw()

    def end(self) -> None:
        """The turn is over, however it ended."""
        self._settle()
        self._live.clear()
        self._doing = ""
        self._out.write(SHOW_CURSOR)
        self._out.flush()

    def draw(self) -> None:
        """Draw the block that is not finished, and the status line."""
        room = max(2, self._size().rows // 2 - 1)
        lines: list[str] = []
        if self._stream.pending.strip():
            lines = self._fit().block(self._stream.block)
            if len(lines) > room and (code := self._stream.take_code()) is not None:
                self._print_block(code)
                lines = []
            lines = lines[-room:]  # text is printed whole when its block ends
        if lines and not self._after_blank and not self._continues and len(lines) < room:
            lines = ["", *lines]
        self._live.draw([*lines, *self._asks, self.status()])

    def resized(self) -> None:
        """The terminal has another size."""
        self._live.clear()
        self.draw()

    def _fit(self) -> Painter:
        columns = self._size().columns
        if columns != self._painter.columns:
            self._painter = Painter(columns, self._painter.environment)
        return self._painter

    # Events

    def on(self, event: AgentEvent) -> None:
        """Show an event."""
        if isinstance(event, Said):
            self._fold_thoughts()
            self._do("answering")
            self._print_blocks(self._stream.feed(harmless(event.text)))
            return  # drawn with the next frame: these come often
        if isinstance(event, Thought):
            self._thoughts.append(event.text)
            self._do("thinking")
            return
        if isinstance(event, CallBegan | CallEnded):
            self._on_call(event)
        elif isinstance(event, UpkeepBegan | Compacted | Flushed):
            self._on_upkeep(event)
        elif isinstance(event, Prepared):
            self._use = window_use(event.report, self._settings)
            if (folded := folded_report(self._count + 1, event.report)) is not None:
                self._fold(folded)
            self._do("waiting")
        elif isinstance(event, Replied):
            self._fold_thoughts()
            self._settle()
            self._do("saving")
        elif isinstance(event, Told):
            self._settle()
            self._print(self._rows(event.text))
        else:
            self._notice(event)
        self.draw()

    def _on_call(self, event: CallBegan | CallEnded) -> None:
        if isinstance(event, CallBegan):
            self._calls[event.id] = event
            self._do(one_line(f"{event.name} {main_argument(event.arguments, 24)}", 32))
            return
        began = self._calls.pop(event.id, None)
        arguments = {} if began is None else began.arguments
        self._fold(folded_call(self._count + 1, event.name, arguments, event))
        self._do("preparing")

    def _on_upkeep(self, event: UpkeepBegan | Compacted | Flushed) -> None:
        if isinstance(event, UpkeepBegan):
            self._do("writing notes" if event.kind == "flush" else "compacting")
        elif isinstance(event, Flushed):
            note = f"{event.result.outcome}: {event.result.reason}"
            failed = event.result.outcome == "failed"
            number = self._count + 1
            self._fold(Folded(number=number, title="notes", note=note, whole=note, failed=failed))
        elif event.result.compacted or event.result.trigger != "manual":
            self._fold(folded_compaction(self._count + 1, event.result))

    def _notice(self, event: Failed | Withdrawn | Ended) -> None:
        self._settle()
        if isinstance(event, Failed):
            self._print_text(Text(harmless(event.reason), style="red"))
        elif isinstance(event, Withdrawn):
            self.note(f"the reply so far does not count; the model is asked again: {event.reason}")
        elif event.reason == "aborted":
            self.note("stopped; the messages so far stay")

    def stopping(self) -> None:
        """The user wants it to stop."""
        self._do("stopping")
        self.draw()

    def note(self, text: str) -> None:
        """Print a notice, such as a logged warning."""
        self._print_text(Text(harmless(text), style="yellow"))

    # A question

    def ask(self, question: PersonQuestion) -> None:
        """Show what the person is asked to allow, whole."""
        title, asks = _QUESTIONS[question.kind]
        self._settle()
        self.note(title)
        self._print([f"  {harmless(line)}" for line in question.text.split("\n")])
        self._question = asks
        self._do("waiting for you")

    def typed(self, text: str) -> None:
        """Show the question with the keys typed so far."""
        line = f"{self._question} {harmless(text)[-_TYPED_SHOWN:]}"
        self._asks = self._fit().lines(Text(line, style="yellow"))
        self.draw()

    def asked(self) -> None:
        """The question was answered."""
        self._asks = []
        self._do("running")

    # Folded lines

    def show(self, number: int | None) -> None:
        """Print a folded line whole: the newest, or the one with a number."""
        number = self._count if number is None else number
        folded = self._folded.get(number)
        if folded is None:
            self._print([f"there is no [{number}]" if self._count else "nothing is folded yet"])
            return
        head = folded.line(self._fit().width)
        self._print([*self._painter.lines(head), *self._rows(folded.whole), ""])

    def _fold(self, folded: Folded) -> None:
        self._settle()
        self._count = folded.number
        self._folded[folded.number] = folded
        self._folded.pop(folded.number - MOST_FOLDED, None)
        self._print(self._painter.lines(folded.line(self._fit().width)))

    def _fold_thoughts(self) -> None:
        if self._thoughts:
            text, self._thoughts = "".join(self._thoughts), []
            number = self._count + 1
            self._fold(Folded(number=number, title="thought", note=size_of(text), whole=text))

    # Finished lines

    def _rows(self, text: str) -> list[str]:
        return self._fit().lines(Text(harmless(text).expandtabs(4)))

    def _settle(self) -> None:
        """Finish the block that streams: something else follows it."""
        self._print_blocks(self._stream.finish())

    def _print_blocks(self, blocks: list[ReplyBlock]) -> None:
        for block in blocks:
            self._print_block(block)

    def _print_block(self, block: ReplyBlock) -> None:
        gap = [] if self._continues or self._after_blank else [""]
        self._print([*gap, *self._fit().block(block)])
        self._continues, self._after_blank = block.continues, False

    def _print_text(self, text: Text) -> None:
        self._print(self._fit().lines(text))

    def _print(self, lines: list[str]) -> None:
        self._live.print_above(lines)
        self._continues = False
        self._after_blank = lines[-1:] == [""]
