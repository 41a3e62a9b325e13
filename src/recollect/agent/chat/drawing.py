"""Turns events into lines of text, Markdown blocks, and the bar of the window.

Values in, `rich.text.Text` or plain text out; nothing here writes. Every kind in the bar has a sign
of its own, so that nothing is lost without colours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from rich.cells import cell_len
from rich.text import Text

from recollect.core.rules.budget import limits_of
from recollect.core.rules.tokens import Weigher
from recollect.core.values.edit import Insert, LeaveOut, Shorten
from recollect.core.values.recall import TOOL_OPENING
from recollect.hosts.inspect.drawn import clipped, in_runs, short_tokens
from recollect.hosts.inspect.status import said_components
from recollect.hosts.tools.answers import NOTE
from recollect.system.plain_text import plain_line

if TYPE_CHECKING:
    from recollect.agent.events import CallEnded
    from recollect.core.values.compaction import CompactionResult
    from recollect.core.values.report import Report
    from recollect.hosts.inspect.status import ContextComponent, ContextStatus
    from recollect.system.config import Settings

_MATTERS: Final = ("command", "path", "query", "pattern", "url", "text")
"""Arguments that tell most about a call; the first one present counts."""
ARGUMENT_CELLS: Final = 60


def one_line(text: str, cells: int) -> str:
    """The beginning of a text on one line, in at most so many cells."""
    return clipped(plain_line(text[: 8 * max(1, cells)]), cells)


def main_argument(arguments: Mapping[str, Any], cells: int = ARGUMENT_CELLS) -> str:
    """The argument that tells most about a call: its command, its path, or its first text."""
    texts = {name: value for name, value in arguments.items() if isinstance(value, str)}
    for name in (*_MATTERS, *texts):
        if texts.get(name):
            return one_line(texts[name], cells)
    return ""


def size_of(text: str) -> str:
    """The size of a text in lines and bytes."""
    size = len(text.encode("utf-8", "surrogatepass"))
    shown = f"{size} B" if size < 1000 else f"{size / 1000:.1f} kB"
    lines = text.count("\n") + 1
    return shown if lines == 1 else f"{lines:,} lines, {shown}"


# Folded lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """Something shown as one line, which `/show` prints whole."""

    number: int
    title: str
    note: str
    whole: str = field(repr=False)
    failed: bool = False

    def line(self, cells: int) -> Text:
        """The line; `/show` takes its number."""
        mark = f"[{self.number}] "
        style = "red" if self.failed else "dim"
        text = Text(no_wrap=True)
        text.append(mark, style="cyan")
        text.append(one_line(f"{self.title} — {self.note}", cells - cell_len(mark)), style=style)
        return text


def folded_call(number: int, name: str, arguments: Mapping[str, Any], ended: CallEnded) -> Folded:
    """Fold a tool call with its answer."""
    asked = "\n".join(f"{key}: {value}" for key, value in arguments.items())
    return Folded(
        number=number,
        title=f"{name} {main_argument(arguments)}".strip(),
        note=call_note(ended),
        whole=f"{name}\n{asked}\n\n{ended.text}",
        failed=ended.is_error,
    )


def call_note(ended: CallEnded) -> str:
    """The size of a tool's answer, or its error."""
    if not ended.is_error:
        return size_of(ended.text)
    lines = (line for line in ended.text.split("\n") if line.strip())
    first = next((line for line in lines if line not in (TOOL_OPENING, NOTE)), "")
    return f"{f'exit code {ended.exit_code}' if ended.exit_code else 'error'}: {first}"


def folded_report(number: int, report: Report) -> Folded | None:
    """Fold what memory did to this request and not to the one before; None for nothing."""
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
        number=number,
        title="memory",
        note="; ".join(notes),
        whole="\n".join(whole),
        failed=bool(failed),
    )


def folded_compaction(number: int, result: CompactionResult) -> Folded:
    """Fold the outcome of a compaction with its summary."""
    if result.trigger == "manual":  # the answer of `/compact` has the rest
        note = f"the summary, {size_of(result.summary)}"
    elif result.compacted:
        sizes = f"{short_tokens(result.tokens_before)} → {short_tokens(result.tokens_after)} tokens"
        note = f"{result.compacted_messages} messages are now a summary, {sizes}; /undo"
    else:
        note = f"{result.convergence}: {result.reason}"
    return Folded(
        number=number,
        title="compacted" if result.compacted else "compaction",
        note=note,
        whole=f"{result}\n\n{result.summary}".rstrip(),
        failed=not result.ok,
    )


# The bar of the window


BarKind: TypeAlias = Literal["fixed", "summary", "history", "recalled"]
BAR: Final[Mapping[BarKind, tuple[str, str]]] = {
    "fixed": ("=", "#8b95a5"),
    "summary": ("≡", "#27b3c4"),
    "history": ("▒", "#4b8bf5"),
    "recalled": ("+", "#c9525f"),
}
"""The sign and the colour of each kind."""
_FREE: Final = ("·", "#7d8694")
NOTES_MARK: Final = "┊"
COMPACT_MARK: Final = "│"


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowUse:
    """The contents of the window, in tokens calibrated by what the provider reported."""

    window_tokens: int
    kinds: Mapping[BarKind, int]
    notes_at: int
    """At this size the flush turn runs."""
    compact_at: int

    @property
    def used_tokens(self) -> int:
        """All tokens of the request."""
        return sum(self.kinds.values())


def window_use(report: Report, settings: Settings) -> WindowUse:
    """Read the contents of the window off a request that is sent now."""
    counted = report.fixed_tokens + report.view.tokens
    said = said_components(report, Weigher(settings.tokens.counter))
    return _use(report.window_tokens, report.tokens_after, counted, said, settings)


def use_of_status(status: ContextStatus, settings: Settings) -> WindowUse:
    """Read the contents of the window off `/status`."""
    one = status.request
    return _use(one.window_tokens, one.tokens, one.counted_tokens, one.components, settings)


def _use(
    window: int,
    tokens: int,
    counted: int,
    components: Sequence[ContextComponent],
    settings: Settings,
) -> WindowUse:
    """Calibrated shares that add up to `tokens`."""
    sizes = {one.kind: round(tokens * one.tokens / (counted or 1)) for one in components}
    kinds: dict[BarKind, int] = {kind: sizes[kind] for kind in ("summary", "history", "recalled")}
    limits = limits_of(window, settings)
    return WindowUse(
        window_tokens=window,
        kinds={"fixed": max(0, tokens - sum(kinds.values())), **kinds},
        notes_at=limits.flush_tokens,
        compact_at=limits.compact_tokens,
    )


def window_bar(use: WindowUse, cells: int) -> Text:
    """The window as a bar, with marks where notes are written and where it is compacted."""
    window = max(1, use.window_tokens)
    signs: list[tuple[str, str]] = []
    at = 0.0
    for kind, sign in BAR.items():
        tokens = use.kinds.get(kind, 0)
        at += tokens * cells / window
        signs.extend([sign] * max(round(at) - len(signs), 1 if tokens else 0))
    signs = signs[:cells]
    signs.extend([_FREE] * (cells - len(signs)))
    for tokens, mark, colour in (
        (use.notes_at, NOTES_MARK, "#d98a16"),
        (use.compact_at, COMPACT_MARK, "#e0475b"),
    ):
        signs[min(cells - 1, tokens * cells // window)] = (mark, colour)
    return in_runs(signs)


def status_line(use: WindowUse | None, model: str, cells: int, doing: str = "") -> Text:
    """The line at the bottom, never wider than `cells`: the last pieces are dropped first."""
    line, sizes = Text(no_wrap=True), ""
    if use is not None:
        share = use.used_tokens / max(1, use.window_tokens)
        sizes = f"{short_tokens(use.used_tokens)}/{short_tokens(use.window_tokens)} {share:.0%}"
        line.append_text(window_bar(use, max(10, min(40, cells * 3 // 10))))
        line.append(" ")
    shown = [piece for piece in (doing, sizes, one_line(model, 28)) if piece]
    while shown and line.cell_len + cell_len("  ".join(shown)) > cells:
        shown.pop()
    line.append("  ".join(shown))
    line.truncate(cells)
    return line


# Markdown as it streams


_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})\s*([^`]*)")
BlockKind: TypeAlias = Literal["text", "code"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyBlock:
    """A part of a reply that can be drawn by itself."""

    kind: BlockKind
    text: str = field(repr=False)
    """Markdown, or the code between the fences."""
    language: str = ""
    continues: bool = False
    """The same code continues after it: no blank line between the two."""


@dataclass(slots=True)
class MarkdownStream:
    """A reply as blocks: each is returned once, when it is complete; the last is `pending`.

    A block ends at a blank line if the next line is not indented; a code fence is a block of its
    own.
    """

    pending: str = field(default="", repr=False)
    _fence: str = ""
    """The fence that closes the pending code; empty for text."""
    _language: str = ""
    _checked: int = 0
    """So much of `pending` are whole lines that were read."""
    _blank: bool = False

    @property
    def block(self) -> ReplyBlock:
        """The pending block as it is now."""
        return self._of(self.pending)

    def feed(self, text: str) -> list[ReplyBlock]:
        """Add text; returns the blocks that ended with it."""
        self.pending += text
        ended: list[ReplyBlock] = []
        while (end := self.pending.find("\n", self._checked)) >= 0:
            line = self.pending[self._checked : end]
            marks = _FENCE.fullmatch(line)
            if self._fence:
                if marks is not None and marks[1].startswith(self._fence) and not marks[2].strip():
                    ended.append(self._taken(self._checked, end + 1))
                    self._fence = self._language = ""
                else:
                    self._checked = end + 1
            elif marks is not None:
                ended.append(self._taken(self._checked, end + 1))
                words = marks[2].split()
                self._fence, self._language = marks[1], words[0] if words else ""
            else:
                if self._blank and line.strip() and not line[0].isspace():
                    ended.append(self._taken(self._checked, self._checked))
                    end = len(line)
                self._blank = not line.strip()
                self._checked = end + 1
        return [block for block in ended if block.kind == "code" or block.text.strip()]

    def finish(self) -> list[ReplyBlock]:
        """End the reply; returns the last block."""
        block = self._taken(len(self.pending), len(self.pending))
        self._fence = self._language = ""
        return [block] if block.text.strip() else []

    def take_code(self) -> ReplyBlock | None:
        """Take the whole lines of pending code, which is too tall to be shown; None for text."""
        if not self._fence or not self._checked:
            return None
        text, self.pending = self.pending[: self._checked], self.pending[self._checked :]
        self._checked = 0
        return ReplyBlock(kind="code", text=text, language=self._language, continues=True)

    def _taken(self, end: int, rest: int) -> ReplyBlock:
        """Take the block that ends there; the pending text begins at `rest`."""
        block = self._of(self.pending[:end])
        self.pending = self.pending[rest:]
        self._checked, self._blank = 0, False
        return block

    def _of(self, text: str) -> ReplyBlock:
        return ReplyBlock(
            kind="code" if self._fence else "text", text=text, language=self._language
        )
