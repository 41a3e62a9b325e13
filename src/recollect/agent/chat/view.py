"""Prints the events of a chat as lines, the same in a terminal, in a dumb terminal and in a pipe.

A printed line never changes. So the terminal's own scrollback contains the whole chat, and any
program can read it. Replies and answers of commands go to one stream, all other lines to another,
both without control characters of models and tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TextIO

from rich.console import Console
from rich.text import Text

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
from recollect.core.values.edit import Insert, LeaveOut, Shorten
from recollect.core.values.recall import TOOL_OPENING
from recollect.hosts.inspect.text import clip_text
from recollect.hosts.tools.answers import NOTE
from recollect.system.plain_text import harmless, number_of, plain_line, short_tokens, size_text

if TYPE_CHECKING:
    from recollect.agent.chat.opening import PersonQuestion, QuestionKind
    from recollect.core.values.report import Report
    from recollect.hosts.inspect.status import ContextStatus

_MATTERS: Final = ("command", "path", "query", "pattern", "url", "text")
"""Arguments that describe a tool call best, in the order of preference."""
# Not measured: the name of the tool, its argument and a short note fit one row of a terminal.
ARGUMENT_CELLS: Final = 60
NOTE_CELLS: Final = 100
"""Longest note of a numbered line, so that few notes need a second row of a terminal."""
MAX_NUMBERED: Final = 500
"""Number of numbered lines that `/show` can print. Older texts are only in the transcript."""
QUESTIONS: Mapping[QuestionKind, tuple[str, str]] = {
    "run": ("bash wants to run this, and no sandbox confines it:", "run it? y / n, then Enter: "),
    "forget": (
        "memory_forget wants to forget this permanently:",
        "forget it? y / n, then Enter: ",
    ),
}


def one_line(text: str, cells: int) -> str:
    """Cut a text to one line of at most this many terminal cells."""
    return clip_text(plain_line(text[: 8 * max(1, cells)]), cells)


def main_argument(arguments: Mapping[str, Any]) -> str:
    """Return the argument that describes a tool call best: command, path, or first text."""
    texts = {name: value for name, value in arguments.items() if isinstance(value, str)}
    for name in (*_MATTERS, *texts):
        if texts.get(name):
            return one_line(texts[name], ARGUMENT_CELLS)
    return ""


def size_of(text: str) -> str:
    size = size_text(len(text.encode("utf-8", "surrogatepass")))
    lines = text.count("\n") + 1
    return size if lines == 1 else f"{lines:,} lines, {size}"


def call_note(event: CallEnded) -> str:
    if not event.is_error:
        return size_of(event.text)
    lines = (line for line in event.text.split("\n") if line.strip())
    first = next((line for line in lines if line not in (TOOL_OPENING, NOTE)), "")
    return f"{f'exit code {event.exit_code}' if event.exit_code else 'error'}: {first}"


def memory_note(report: Report) -> str:
    """Return memory's changes to this request since the previous one; empty if there are none."""
    notes = [f"{line.stage} failed" for line in report.failures]
    old_texts = {edit.text for edit in report.ended_edits if isinstance(edit, Insert)}
    blocks = [edit for edit in report.new_edits if isinstance(edit, Insert)]
    blocks.sort(key=lambda edit: edit.stage == "stand")
    notes += [str(edit.reason) for edit in blocks if edit.text not in old_texts]
    for kind, change in ((LeaveOut, "left out"), (Shorten, "shortened")):
        if count := len({edit.anchor for edit in report.new_edits if isinstance(edit, kind)}):
            notes.append(f"{number_of(count, 'message')} {change}")
    return "; ".join(notes)


def memory_text(report: Report) -> str:
    blocks = [edit for edit in report.new_edits if isinstance(edit, Insert)]
    return "\n".join([report.summary(), *(f"\n{edit.reason}:\n{edit.text}" for edit in blocks)])


class LineView:
    """The lines of a chat."""

    def __init__(self, out: TextIO, notes: TextIO) -> None:
        self._out = out
        self._notes = Console(
            file=notes, highlight=False, markup=False, emoji=False, soft_wrap=True
        )
        self._in_reply = False
        """True while the last line of a reply lacks its line end."""
        self._in_call = False
        """True while the line of a running tool call lacks its note."""
        self._thoughts: list[str] = []
        self._count = 0
        self._texts: dict[int, str] = {}
        """The texts that `/show` prints, by the number of the line that stands for each."""
        self._title = ""

    def on(self, event: AgentEvent) -> None:
        if isinstance(event, Thought):
            self._thoughts.append(event.text)
            return
        if self._thoughts:
            text, self._thoughts = "".join(self._thoughts), []
            self._add("thought", size_of(text), text)
        if isinstance(event, Said):
            self._print_reply(harmless(event.text))
        elif isinstance(event, CallBegan):
            arguments_text = "\n".join(f"{key}: {value}" for key, value in event.arguments.items())
            title = f"{event.name} {main_argument(event.arguments)}"
            self._begin(title, f"{event.name}\n{arguments_text}\n")
        elif isinstance(event, CallEnded):
            self._texts[self._count] += f"\n{event.text}"
            self._end_numbered(call_note(event), failed=event.is_error)
        elif isinstance(event, Prepared):
            if note := memory_note(event.report):
                failed = bool(event.report.failures)
                self._add("memory", note, memory_text(event.report), failed=failed)
        elif isinstance(event, Told):
            self._end_lines()
            self._print_reply(f"{harmless(event.text)}\n")
        else:
            self._on_notice(event)

    def _on_notice(
        self, event: UpkeepBegan | Compacted | Flushed | Replied | Failed | Withdrawn | Ended
    ) -> None:
        self._end_lines()
        if isinstance(event, UpkeepBegan):
            self._print("writing notes…" if event.kind == "flush" else "compacting…", style="dim")
        elif isinstance(event, Flushed):
            result = event.result
            note = f"{result.outcome}: {result.reason}"
            self._add("notes", note, note, failed=result.outcome == "failed")
        elif isinstance(event, Compacted):
            compaction = event.result
            # the answer of a command says all of it
            if compaction.compacted or compaction.trigger != "manual":
                full_text = f"{compaction}\n\n{compaction.summary}".rstrip()
                title = "compacted" if compaction.compacted else "compaction"
                self._add(title, full_text.partition("\n")[0], full_text, failed=not compaction.ok)
        elif isinstance(event, Failed):
            self._print(f"recollect: {event.reason}", style="red")
        elif isinstance(event, Withdrawn):
            self.note(
                f"the reply so far is discarded, and the model is asked again: {event.reason}"
            )
        elif isinstance(event, Ended) and event.reason == "aborted":
            self.note("stopped; the messages so far stay")

    def print_status(self, status: ContextStatus) -> None:
        """Print the tokens of the request, the window, the share that is in use, and the model."""
        request, model = status.request, status.model
        if model.endswith(".gguf"):  # local servers use a file path as the name
            model = model.rpartition("/")[2].removesuffix(".gguf")
        sizes = f"{short_tokens(request.tokens)}/{short_tokens(request.window_tokens)}"
        self._print(f"{sizes} {request.window_share:.0%}  {one_line(model, 28)}", style="dim")

    def note(self, text: str) -> None:
        self._print(text, style="yellow")

    def ask(self, question: PersonQuestion) -> str:
        """Print everything that the person must know to answer, and return the prompt."""
        title, prompt = QUESTIONS[question.kind]
        self.note(title)
        self._print("\n".join(f"  {line}" for line in question.text.split("\n")))
        return prompt

    def show(self, number: int | None) -> None:
        """Print the text of a numbered line: the newest, or the one with this number."""
        number = self._count if number is None else number
        if number in self._texts:
            self._print(f"{self._texts[number]}\n", number=number)
        else:
            self._print(f"there is no line [{number}]" if self._count else "no line has a number")

    def _add(self, title: str, note: str, text: str, *, failed: bool = False) -> None:
        self._begin(title, text)
        self._end_numbered(note, failed=failed)

    def _begin(self, title: str, text: str) -> None:
        """Print a numbered line up to its note, which follows when it is known."""
        self._title = one_line(title, NOTE_CELLS)
        self._count += 1
        self._texts[self._count] = text
        self._texts.pop(self._count - MAX_NUMBERED, None)
        self._print(self._title, style="dim", number=self._count, end="")
        self._in_call = True

    def _end_numbered(self, note: str, *, failed: bool) -> None:
        line, number = f" — {one_line(note, NOTE_CELLS)}", None
        if not self._in_call:  # another line was printed meanwhile
            line, number = f"{self._title}{line}", self._count
        self._in_call = False
        self._print(line, style="red" if failed else "dim", number=number)

    def _end_lines(self) -> None:
        if self._in_call:
            self._in_call = False
            self._notes.print()
        if self._in_reply:
            self._print_reply("\n")

    def _print_reply(self, text: str) -> None:
        if text:
            print(text, end="", file=self._out, flush=True)
            self._in_reply = not text.endswith("\n")

    def _print(
        self, text: str, *, style: str = "", number: int | None = None, end: str = "\n"
    ) -> None:
        self._end_lines()
        mark = "" if number is None else f"[{number}] "
        line = Text.assemble((mark, "cyan"), (harmless(text).expandtabs(4), style))
        self._notes.print(line, end=end)
