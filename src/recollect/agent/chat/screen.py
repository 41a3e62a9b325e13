"""Draws a turn while it runs: prints finished lines, and redraws a few lines below them.

Finished lines are never redrawn, so the terminal's own scrollback contains the whole chat. The chat
uses no alternate screen and no mouse."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from rich.console import Console, Group
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segment
from rich.text import Text

from recollect.agent.chat.drawing import (
    Folded,
    MarkdownStream,
    fold_call,
    fold_compaction,
    fold_report,
    main_argument,
    one_line,
    size_of,
)
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
from recollect.system.plain_text import harmless, short_tokens

if TYPE_CHECKING:
    from rich.console import ConsoleOptions, RenderResult

    from recollect.agent.chat.opening import PersonQuestion, QuestionKind
    from recollect.hosts.inspect.status import ContextStatus

_SECONDS_SHOWN: Final = 2.0
"""The status line shows the duration of a step after this time."""
_PENDING_CHARS: Final = 4_000
"""Number of characters drawn of an incomplete block. A complete block is printed in full."""
QUESTIONS: Mapping[QuestionKind, tuple[str, str]] = {
    "run": ("bash wants to run this, and no sandbox confines it:", "run it? y / n, then Enter: "),
    "forget": (
        "memory_forget wants to forget this permanently:",
        "forget it? y / n, then Enter: ",
    ),
}
MOST_FOLDED: Final = 500
"""Number of folded lines that `/show` can print. Older lines are only in the transcript."""


class _Block:
    """The last lines of a Markdown block, without the spaces that rich adds to fill them."""

    def __init__(self, text: str, rows: int | None = None) -> None:
        self._drawn = Markdown(text, code_theme="ansi_dark", hyperlinks=False)
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = [*map(_strip, console.render_lines(self._drawn, options, pad=False))]
        full = [at for at, line in enumerate(lines) if line]
        for line in lines[full[0] : full[-1] + 1][-(self._rows or 0) :] if full else ():
            yield from line
            yield Segment.line()


def _strip(line: list[Segment]) -> list[Segment]:
    while line and not line[-1].text.strip():
        line.pop()
    return [*line[:-1], *(Segment(one.text.rstrip(), one.style) for one in line[-1:])]


def model_label(name: str) -> str:
    """Return a model's name for people. Local servers use a file path as the name."""
    return name.rpartition("/")[2].removesuffix(".gguf") if name.endswith(".gguf") else name


class Screen:
    """The part of the terminal in which a turn is drawn."""

    def __init__(
        self,
        model: str,
        *,
        console: Console | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console or Console(highlight=False, markup=False, emoji=False)
        self._now = now
        self._live: Live | None = None
        self._model = model_label(model)
        self._used = ""
        self._stream = MarkdownStream()
        self._thoughts: list[str] = []
        self._calls: dict[str, CallBegan] = {}
        self._folded: dict[int, Folded] = {}
        self._count = 0
        self._doing = ""
        self._since = 0.0

    def follow(self, status: ContextStatus) -> None:
        self._fill(status.request.tokens, status.request.window_tokens)
        self._model = model_label(status.model)

    def status(self) -> str:
        took = self._now() - self._since
        seconds = f" {took:.0f} s" if took >= _SECONDS_SHOWN else ""
        doing = f"{self._doing}{seconds} · Ctrl-C stops" if self._doing else ""
        return "  ".join(filter(None, (doing, self._used, one_line(self._model, 28))))

    def _fill(self, tokens: int, window: int) -> None:
        share = tokens / max(1, window)
        self._used = f"{short_tokens(tokens)}/{short_tokens(window)} {share:.0%}"

    def _do(self, what: str) -> None:
        if what != self._doing:
            self._doing, self._since = what, self._now()

    def begin(self) -> None:
        self._do("preparing")
        self._live = Live(
            console=self._console,
            get_renderable=self._drawn,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()
        self.draw()

    def end(self) -> None:
        self._settle()
        self._doing = ""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def draw(self) -> None:
        if self._live is not None:
            self._live.refresh()

    def _drawn(self) -> Group:
        status = Text(self.status(), no_wrap=True, overflow="ellipsis")
        pending = self._stream.tail(_PENDING_CHARS)
        if not pending.strip():
            return Group(status)
        rows = max(2, self._console.size.height // 2 - 1)
        return Group(_Block(pending, rows), status)

    def on(self, event: AgentEvent) -> None:
        if isinstance(event, Said):
            self._fold_thoughts()
            self._do("answering")
            self._print_blocks(self._stream.feed(harmless(event.text)))
            return  # wait for the next frame, because these events arrive often
        if isinstance(event, Thought):
            self._thoughts.append(event.text)
            self._do("thinking")
            return
        if isinstance(event, CallBegan | CallEnded):
            self._on_call(event)
        elif isinstance(event, UpkeepBegan | Compacted | Flushed):
            self._on_upkeep(event)
        elif isinstance(event, Prepared):
            self._fill(event.report.tokens_after, event.report.window_tokens)
            if (folded := fold_report(event.report)) is not None:
                self._fold(folded)
            self._do("waiting")
        elif isinstance(event, Replied):
            self._fold_thoughts()
            self._settle()
            self._do("saving")
        elif isinstance(event, Told):
            self._settle()
            self._print(event.text)
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
        self._fold(fold_call(event.name, arguments, event))
        self._do("preparing")

    def _on_upkeep(self, event: UpkeepBegan | Compacted | Flushed) -> None:
        if isinstance(event, UpkeepBegan):
            self._do("writing notes" if event.kind == "flush" else "compacting")
        elif isinstance(event, Flushed):
            note = f"{event.result.outcome}: {event.result.reason}"
            failed = event.result.outcome == "failed"
            self._fold(Folded(title="notes", note=note, whole=note, failed=failed))
        elif event.result.compacted or event.result.trigger != "manual":
            self._fold(fold_compaction(event.result))

    def _notice(self, event: Failed | Withdrawn | Ended) -> None:
        self._settle()
        if isinstance(event, Failed):
            self._print(event.reason, style="red")
        elif isinstance(event, Withdrawn):
            self.note(
                f"the reply so far is discarded, and the model is asked again: {event.reason}"
            )
        elif event.reason == "aborted":
            self.note("stopped; the messages so far stay")

    def stopping(self) -> None:
        self._do("stopping")
        self.draw()

    def note(self, text: str) -> None:
        self._print(text, style="yellow")

    def ask(self, question: PersonQuestion) -> None:
        """Print everything that the person must know to answer the question."""
        self.end()
        self.note(QUESTIONS[question.kind][0])
        self._print("\n".join(f"  {line}" for line in question.text.split("\n")))

    def show(self, number: int | None) -> None:
        """Print a folded line in full: the newest, or the one with this number."""
        number = self._count if number is None else number
        folded = self._folded.get(number)
        if folded is None:
            self._print(
                f"there is no folded line [{number}]" if self._count else "no line is folded yet"
            )
            return
        self._console.print(folded.line(number, self._console.width - 1))
        self._print(f"{folded.whole}\n")

    def _fold(self, folded: Folded) -> None:
        self._settle()
        self._count += 1
        self._folded[self._count] = folded
        self._folded.pop(self._count - MOST_FOLDED, None)
        self._console.print(folded.line(self._count, self._console.width - 1))

    def _fold_thoughts(self) -> None:
        if self._thoughts:
            text, self._thoughts = "".join(self._thoughts), []
            self._fold(Folded(title="thought", note=size_of(text), whole=text))

    def _settle(self) -> None:
        self._print_blocks(self._stream.finish())

    def _print_blocks(self, blocks: list[str]) -> None:
        if blocks:
            self._console.print(*[part for one in blocks for part in (_Block(one), Text())])

    def _print(self, text: str, style: str = "") -> None:
        self._console.print(Text(harmless(text).expandtabs(4), style=style))
