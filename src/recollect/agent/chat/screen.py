"""What a turn looks like while it runs: events in, finished lines and a live region out.

Keeps what was folded, to be opened by its number, and what the status line tells. Every event is
drawn once; only the block that streams and the status line are drawn again, and only `draw` does
that, so that whoever calls it decides how often.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rich.text import Text

from recollect.agent.chat.drawing import (
    Folded,
    MarkdownStream,
    ReplyBlock,
    RunTally,
    WindowUse,
    argument_that_matters,
    folded_call,
    folded_compaction,
    folded_report,
    one_line,
    size_of,
    status_line,
    use_of_status,
    window_use,
    wrapped,
)
from recollect.agent.chat.live import (
    HIDE_CURSOR,
    SHOW_CURSOR,
    LiveRegion,
    Painter,
    Size,
    reflows,
    terminal_size,
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
from recollect.core.rules.price import model_price, read_prices

if TYPE_CHECKING:
    from recollect.agent.chat.opening import PersonQuestion, QuestionKind
    from recollect.hosts.inspect.status import ContextStatus
    from recollect.system.config import Settings

_SECONDS_TOLD = 2.0
"""From here on it is told how long something takes."""
_QUESTIONS: Mapping[QuestionKind, tuple[str, str]] = {
    "run": ("bash wants to run, and nothing confines it here:", "run it? y / n, then Enter:"),
    "forget": ("memory_forget wants this forgotten for good:", "forget it? y / n, then Enter:"),
}
"""What is said above what is asked about, and what is asked."""
_TYPED_SHOWN = 30
"""So much of what is typed is shown beside a question."""
MOST_FOLDED = 500
"""So many folded things are kept to be opened; older ones are in the transcript."""


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
        known = os.environ if environment is None else environment
        self._painter = Painter(self._size().columns, dict(known))
        self._live = LiveRegion(self._out, self._size, reflowing=reflows(known))
        self._now = now
        self._prices = read_prices(settings.models.prices)
        self._tally = RunTally()
        self._is_asked(model or settings.models.main or "")
        self._use: WindowUse | None = None
        self._stream = MarkdownStream()
        self._goes_on = False
        self._free = True
        self._thoughts: list[str] = []
        self._calls: dict[str, CallBegan] = {}
        self._folded: dict[int, Folded] = {}
        self._count = 0
        self._doing = ""
        self._since = 0.0
        self._question = ""
        self._asks: list[str] = []

    # What the status line tells

    def _is_asked(self, model: str) -> None:
        """This model answers from here on."""
        self._model = shown_model(model)
        self._tally.price = model_price(model, self._prices)

    def follow(self, status: ContextStatus) -> None:
        """Tell what `/status` would: after a turn, a command, and when a session was opened."""
        self._use = use_of_status(status, self._settings)
        self._is_asked(status.model)

    def status(self) -> str:
        """The line below the prompt."""
        width = self._fit().width
        if self._use is None:
            return self._painter.lines(status_line(None, self._model, self._tally, width, "ready"))[
                0
            ]
        return self._painter.lines(status_line(self._use, self._model, self._tally, width))[0]

    def _status_now(self) -> str:
        took = self._now() - self._since
        seconds = f" {took:.0f} s" if took >= _SECONDS_TOLD else ""
        doing = f"{self._doing}{seconds} · Ctrl-C stops" if self._doing else ""
        line = status_line(self._use, self._model, self._tally, self._fit().width, doing)
        return self._painter.lines(line)[0]

    def _do(self, what: str) -> None:
        if what != self._doing:
            self._doing, self._since = what, self._now()

    # A turn

    def begin(self) -> None:
        """A turn begins."""
        self._fit()
        self._stream = MarkdownStream()
        self._goes_on, self._free = False, True
        self._do("preparing")
        self._out.write(HIDE_CURSOR)
        self.draw()

    def end(self) -> None:
        """The turn is over, however it ended."""
        self._print_blocks(self._stream.finish())
        self._live.clear()
        self._doing = ""
        self._out.write(SHOW_CURSOR)
        self._out.flush()

    def draw(self) -> None:
        """Draw the block that is not finished, and the status line."""
        room = max(2, self._size().rows // 2 - 1)
        lines: list[str] = []
        while self._stream.pending.strip():
            lines = self._painter.block(self._stream.block)
            if len(lines) <= room:
                break
            piece = self._stream.piece()
            if piece is None:
                lines = lines[-room:]
                break
            self._print_block(piece)
            lines = []
        if lines and not self._free and not self._goes_on and len(lines) < room:
            lines = ["", *lines]
        self._live.draw([*lines, *self._asks, self._status_now()])

    def resized(self) -> None:
        """The terminal has another size."""
        self._live.resized()
        self._fit()
        self.draw()

    def _fit(self) -> Painter:
        columns = self._size().columns
        if columns != self._painter.columns:
            self._painter = Painter(columns, self._painter.environment)
        return self._painter

    # Events

    def on(self, event: AgentEvent) -> None:
        """Something happened."""
        if isinstance(event, Said):
            self._think_no_more()
            self._do("answering")
            self._print_blocks(self._stream.feed(harmless(event.text)))
        elif isinstance(event, Thought):
            self._thoughts.append(event.text)
            self._do("thinking")
        elif isinstance(event, Prepared):
            self._prepared(event)
        elif isinstance(event, Replied):
            self._replied(event)
        elif isinstance(event, CallBegan):
            self._calls[event.id] = event
            self._do(one_line(f"{event.name} {argument_that_matters(event.arguments, 24)}", 32))
            self.draw()
        elif isinstance(event, CallEnded):
            self._call_ended(event)
        elif isinstance(event, UpkeepBegan):
            self._do("writing notes" if event.kind == "flush" else "compacting")
            self.draw()
        elif isinstance(event, Compacted):
            if event.result.compacted or event.result.trigger != "manual":
                self._fold(folded_compaction(self._next(), event.result))
        elif isinstance(event, Flushed):
            self._flushed(event)
        else:
            self._told(event)

    def _told(self, event: Told | Failed | Withdrawn | Ended) -> None:
        if isinstance(event, Told):
            self._settle()
            self._print(self._rows(event.text))
        elif isinstance(event, Failed):
            self._settle()
            self._print_text(Text(harmless(event.reason), style="red"))
        elif isinstance(event, Withdrawn):
            self._settle()
            again = f"the reply so far does not count and is asked for again: {event.reason}"
            self._print_text(Text(harmless(again), style="yellow"))
        elif event.reason == "aborted":
            self._settle()
            self._print_text(Text("stopped; what was said so far stays", style="yellow"))

    def _prepared(self, event: Prepared) -> None:
        self._use = window_use(event.report, self._settings)
        if event.report.model:
            self._is_asked(event.report.model)
        folded = folded_report(self._count + 1, event.report)
        if folded is not None:
            self._next()
            self._fold(folded)
        self._do("waiting")
        self.draw()

    def _replied(self, event: Replied) -> None:
        self._think_no_more()
        self._settle()
        if event.usage is not None:
            self._tally.add(event.usage)
        self._do("keeping")

    def _call_ended(self, event: CallEnded) -> None:
        began = self._calls.pop(event.id, None)
        arguments: Mapping[str, Any] = {} if began is None else began.arguments
        self._fold(folded_call(self._next(), event.name, arguments, event))
        self._do("preparing")

    def _flushed(self, event: Flushed) -> None:
        result = event.result
        if result.usage is not None:
            self._tally.add(result.usage)
        whole = f"{result.outcome}: {result.reason}\n{result.path}\n{result.said}".rstrip()
        note = f"{result.outcome} {result.path}".strip() + f": {result.reason}"
        failed = result.outcome == "failed"
        self._fold(
            Folded(number=self._next(), title="notes", note=note, whole=whole, failed=failed)
        )

    def stopping(self) -> None:
        """The user wants it to stop."""
        self._do("stopping")
        self.draw()

    # A question

    def ask(self, question: PersonQuestion) -> None:
        """Show what is to be allowed, whole."""
        title, asks = _QUESTIONS[question.kind]
        self._settle()
        self._print_text(Text(title, style="yellow"))
        self._print([f"  {harmless(line)}" for line in question.text.split("\n")])
        self._question = asks
        self._do("waiting for you")

    def typed(self, text: str) -> None:
        """Ask, with what is typed so far, as an answer or ahead."""
        line = f"{self._question} {harmless(text)[-_TYPED_SHOWN:]}"
        self._asks = self._fit().lines(Text(line, style="yellow"))
        self.draw()

    def asked(self) -> None:
        """It was answered."""
        self._asks = []
        self._do("running")

    def note(self, text: str) -> None:
        """A line for good that is nobody's words, such as a warning that was logged."""
        self._print_text(Text(harmless(text), style="yellow"))

    # What is folded

    def show(self, number: int | None) -> None:
        """Print something folded whole: the newest, or that of a number."""
        number = self._count if number is None else number
        folded = self._folded.get(number)
        if folded is None:
            what = "nothing is folded yet" if not self._count else f"there is no [{number}]"
            self._print([what])
            return
        head = folded.line(self._fit().width)
        self._print([*self._painter.lines(head), *self._rows(folded.whole, "  "), ""])

    def _fold(self, folded: Folded) -> None:
        self._settle()
        self._folded[folded.number] = folded
        self._folded.pop(folded.number - MOST_FOLDED, None)
        self._print(self._painter.lines(folded.line(self._fit().width)))

    def _next(self) -> int:
        self._count += 1
        return self._count

    def _think_no_more(self) -> None:
        if self._thoughts:
            text = "".join(self._thoughts)
            self._thoughts = []
            self._fold(Folded(number=self._next(), title="thought", note=size_of(text), whole=text))

    # Lines for good

    def _rows(self, text: str, margin: str = "") -> list[str]:
        """A text in rows that fit, broken between words."""
        lines = harmless(text).expandtabs(4).split("\n")
        width = self._fit().width
        return [row for line in lines for row in wrapped(f"{margin}{line}".rstrip(), width)]

    def _settle(self) -> None:
        """What streams so far is finished: something else comes behind it."""
        self._print_blocks(self._stream.finish())

    def _print_blocks(self, blocks: list[ReplyBlock]) -> None:
        for block in blocks:
            self._print_block(block)

    def _print_block(self, block: ReplyBlock) -> None:
        gap = [] if self._goes_on or self._free else [""]
        self._print([*gap, *self._fit().block(block)])
        self._goes_on, self._free = block.goes_on, False

    def _print_text(self, text: Text) -> None:
        self._print(self._fit().lines(text))

    def _print(self, lines: list[str]) -> None:
        self._live.print_above(lines)
        self._goes_on = False
        self._free = lines[-1:] == [""]
