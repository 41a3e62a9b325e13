"""Converts events into lines of text, and splits a streamed reply into Markdown blocks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from rich.cells import cell_len
from rich.text import Text

from recollect.core.values.edit import Insert, LeaveOut, Shorten
from recollect.core.values.recall import TOOL_OPENING
from recollect.hosts.inspect.drawn import clipped
from recollect.hosts.tools.answers import NOTE
from recollect.system.plain_text import plain_line, short_tokens

if TYPE_CHECKING:
    from recollect.agent.events import CallEnded
    from recollect.core.values.compaction import CompactionResult
    from recollect.core.values.report import Report

_MATTERS: Final = ("command", "path", "query", "pattern", "url", "text")
"""Arguments that describe a tool call best, in the order of preference."""
ARGUMENT_CELLS: Final = 60


def one_line(text: str, cells: int) -> str:
    """Cut a text to one line of at most this many terminal cells."""
    return clipped(plain_line(text[: 8 * max(1, cells)]), cells)


def main_argument(arguments: Mapping[str, Any], cells: int = ARGUMENT_CELLS) -> str:
    """Return the argument that describes a tool call best: command, path, or first text."""
    texts = {name: value for name, value in arguments.items() if isinstance(value, str)}
    for name in (*_MATTERS, *texts):
        if texts.get(name):
            return one_line(texts[name], cells)
    return ""


def size_of(text: str) -> str:
    size = len(text.encode("utf-8", "surrogatepass"))
    shown = f"{size} B" if size < 1000 else f"{size / 1000:.1f} kB"
    lines = text.count("\n") + 1
    return shown if lines == 1 else f"{lines:,} lines, {shown}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """Content shown as one line, which `/show` prints in full."""

    title: str
    note: str
    whole: str = field(repr=False)
    failed: bool = False

    def line(self, number: int, cells: int) -> Text:
        mark = f"[{number}] "
        style = "red" if self.failed else "dim"
        text = Text(no_wrap=True)
        text.append(mark, style="cyan")
        text.append(one_line(f"{self.title} — {self.note}", cells - cell_len(mark)), style=style)
        return text


def fold_call(name: str, arguments: Mapping[str, Any], ended: CallEnded) -> Folded:
    asked = "\n".join(f"{key}: {value}" for key, value in arguments.items())
    return Folded(
        title=f"{name} {main_argument(arguments)}".strip(),
        note=call_note(ended),
        whole=f"{name}\n{asked}\n\n{ended.text}",
        failed=ended.is_error,
    )


def call_note(ended: CallEnded) -> str:
    if not ended.is_error:
        return size_of(ended.text)
    lines = (line for line in ended.text.split("\n") if line.strip())
    first = next((line for line in lines if line not in (TOOL_OPENING, NOTE)), "")
    return f"{f'exit code {ended.exit_code}' if ended.exit_code else 'error'}: {first}"


def fold_report(report: Report) -> Folded | None:
    """Return a folded list of memory's changes to this request since the previous one, if any."""
    failed = [f"{line.stage} failed" for line in report.failures]
    stood = {edit.text for edit in report.ended_edits if isinstance(edit, Insert)}
    blocks = [edit for edit in report.new_edits if isinstance(edit, Insert)]
    new = sorted(
        (edit for edit in blocks if edit.text not in stood), key=lambda edit: edit.stage == "stand"
    )
    notes = [*failed, *(str(edit.reason) for edit in new)]
    for kind, done in ((LeaveOut, "left out"), (Shorten, "shortened")):
        if count := len({edit.anchor for edit in report.new_edits if isinstance(edit, kind)}):
            notes.append(f"{count} {'message' if count == 1 else 'messages'} {done}")
    if not notes:
        return None
    whole = [report.summary(), *(f"\n{edit.reason}:\n{edit.text}" for edit in blocks)]
    return Folded(
        title="memory",
        note="; ".join(notes),
        whole="\n".join(whole),
        failed=bool(failed),
    )


def fold_compaction(result: CompactionResult) -> Folded:
    if result.trigger == "manual":  # the answer to `/compact` shows the rest
        note = f"the summary, {size_of(result.summary)}"
    elif result.compacted:
        sizes = f"{short_tokens(result.tokens_before)} → {short_tokens(result.tokens_after)} tokens"
        note = f"{result.compacted_messages} messages are now a summary, {sizes}; /undo"
    else:
        note = f"{result.convergence}: {result.reason}"
    return Folded(
        title="compacted" if result.compacted else "compaction",
        note=note,
        whole=f"{result}\n\n{result.summary}".rstrip(),
        failed=not result.ok,
    )


_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})\s*([^`]*)")


@dataclass(slots=True)
class MarkdownStream:
    """Splits a reply into blocks, and returns each when it is complete; `pending` is the rest. A
    block ends at a blank line if the next line is not indented. Fenced code is one block."""

    pending: str = field(default="", repr=False)
    _fence: str = ""
    """The fence that will close the pending code block; empty outside of code."""
    _read: int = 0
    """Number of characters of `pending` in complete lines that were examined."""
    _blank: bool = False

    def feed(self, text: str) -> list[str]:
        """Add text to the reply. Return the blocks that are now complete."""
        self.pending += text
        blocks: list[str] = []
        while (end := self.pending.find("\n", self._read)) >= 0:
            line = self.pending[self._read : end]
            marks = _FENCE.fullmatch(line)
            if self._fence:
                if marks is not None and marks[1].startswith(self._fence) and not marks[2].strip():
                    blocks.append(self._take(end + 1))
                    continue
            elif self._read and (marks or (self._blank and line.strip() and not line[0].isspace())):
                blocks.append(self._take(self._read))  # the next block begins with this line
                continue
            elif marks is not None:
                self._fence = marks[1]
            self._read, self._blank = end + 1, not line.strip()
        return [block for block in blocks if block.strip()]

    def finish(self) -> list[str]:
        """End the reply. Return the last block."""
        block = self._take(len(self.pending))
        return [block] if block.strip() else []

    def tail(self, chars: int) -> str:
        if len(self.pending) <= chars:
            return self.pending
        return f"{self._fence}\n{self.pending[-chars:]}"

    def _take(self, end: int) -> str:
        block, self.pending = self.pending[:end], self.pending[end:]
        self._fence, self._read, self._blank = "", 0, False
        return block
