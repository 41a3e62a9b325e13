"""Events into what a terminal shows: lines of text, Markdown block by block, the bar of the window.

Values in, `rich.text.Text` or plain text out; nothing here writes. What others said is made
harmless first: no control character of a model's or a tool's gets further than this. Every kind in
the bar has a sign of its own, so that nothing is lost without colours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from rich.cells import cell_len, chop_cells
from rich.text import Text

from recollect.core.rules.budget import limits_of
from recollect.core.rules.price import ModelPrice
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
    from recollect.core.values.model import Usage
    from recollect.core.values.report import Report
    from recollect.hosts.inspect.status import ContextComponent, ContextStatus
    from recollect.system.config import Settings

# Short words for long things


_MATTERS: Final = ("command", "path", "query", "pattern", "url", "text")
"""Arguments that tell most of a call, the first that is there counts."""
ARGUMENT_CELLS: Final = 60


def one_line(text: str, cells: int) -> str:
    """The beginning of a text on one line, in at most so many cells."""
    return clipped(plain_line(text[: 8 * max(1, cells)]), cells)


def argument_that_matters(arguments: Mapping[str, Any], cells: int = ARGUMENT_CELLS) -> str:
    """What a call is about: its command, its path, or whatever text it was given first."""
    texts = {name: value for name, value in arguments.items() if isinstance(value, str)}
    for name in (*_MATTERS, *texts):
        if texts.get(name):
            return one_line(texts[name], cells)
    return ""


def size_of(text: str) -> str:
    """How much a text is, in lines and bytes."""
    size = len(text.encode("utf-8", "surrogatepass"))
    told = f"{size} B" if size < 1000 else f"{size / 1000:.1f} kB"
    lines = text.count("\n") + 1
    return told if lines == 1 else f"{lines:,} lines, {told}"


_COLUMN: Final = re.compile(r"\s*\S.*?\s{2,}(?=\S)")


def wrapped(line: str, cells: int) -> list[str]:
    """A line in rows of at most so many cells, broken between words.

    Further rows stand below its second column where it has one, else two cells further in.
    """
    if cell_len(line) <= cells:
        return [line]
    margin = min(len(line) - len(line.lstrip()) + 2, cells // 2)
    column = _COLUMN.match(line)
    under = cell_len(column[0]) if column is not None else margin
    indent = " " * (under if under <= cells // 2 else margin)
    rows, row = [], ""
    for word in re.findall(r"\s*\S+", line):
        if row and cell_len(row + word) > cells:
            rows.append(row)
            row = indent + word.lstrip()
        else:
            row += word
        while cell_len(row) > cells:  # a word that is wider than the room
            head = chop_cells(row, cells)[0]
            rows.append(head)
            row = indent + row[len(head) :]
    return [*rows, row]


# What is folded to a line


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """Something shown as one line, with the whole of it kept to be opened."""

    number: int
    title: str
    note: str
    whole: str = field(repr=False)
    failed: bool = False

    def line(self, cells: int) -> Text:
        """The line; the number is what `/show` takes."""
        mark = f"[{self.number}] "
        room = max(10, cells - cell_len(mark) - 2)
        note = one_line(self.note, max(8, room - min(cell_len(self.title), room // 2) - 3))
        title = one_line(self.title, room - cell_len(note) - (3 if note else 0))
        style = "red" if self.failed else "dim"
        text = Text(no_wrap=True)
        text.append(mark, style="cyan")
        text.append(title, style=style)
        if note:
            text.append(f" — {note}", style=style)
        return text


def folded_call(number: int, name: str, arguments: Mapping[str, Any], ended: CallEnded) -> Folded:
    """A tool call with its answer."""
    words = f"{name} {argument_that_matters(arguments)}".strip()
    asked = "\n".join(f"{key}: {value}" for key, value in arguments.items())
    return Folded(
        number=number,
        title=words,
        note=call_note(ended),
        whole=f"{name}\n{asked}\n\n{ended.text}",
        failed=ended.is_error,
    )


def call_note(ended: CallEnded) -> str:
    """How much a tool answered; of one that failed, why."""
    if not ended.is_error:
        return size_of(ended.text)
    said = (line for line in ended.text.split("\n") if line.strip())
    first = next((line for line in said if line not in (TOOL_OPENING, NOTE)), "")
    return f"{f'exit code {ended.exit_code}' if ended.exit_code else 'error'}: {first}"


def folded_report(number: int, report: Report) -> Folded | None:
    """What was done to this request and not before; None where that is nothing."""
    failed = [f"{line.stage} failed" for line in report.failures]
    news = _news(report)
    if not (news or failed):
        return None
    blocks = [edit for edit in report.new_edits if isinstance(edit, Insert)]
    whole = [report.summary(), *(f"\n{edit.reason}:\n{edit.text}" for edit in blocks)]
    return Folded(
        number=number,
        title="memory",
        note="; ".join([*failed, *news]),
        whole="\n".join(whole),
        failed=bool(failed),
    )


def _news(report: Report) -> list[str]:
    """What came into the request and what left it; a compaction has a line of its own."""
    stood = {edit.text for edit in report.ended_edits if isinstance(edit, Insert)}
    blocks = [
        edit for edit in report.new_edits if isinstance(edit, Insert) and edit.text not in stood
    ]
    blocks.sort(key=lambda edit: edit.stage == "stand")
    news = [str(edit.reason) for edit in blocks]
    for kind, done in ((LeaveOut, "left out"), (Shorten, "shortened")):
        if count := len({edit.anchor for edit in report.new_edits if isinstance(edit, kind)}):
            news.append(f"{count} {'message' if count == 1 else 'messages'} {done}")
    return news


def folded_compaction(number: int, result: CompactionResult) -> Folded:
    """How a compaction ended; opened, its summary and what became of what was known.

    Of one that was asked for only the summary's size: the answer to `/compact` says the rest.
    """
    if result.trigger == "manual":
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


BarKind: TypeAlias = Literal["fixed", "summary", "history", "recalled", "free"]
BAR_KINDS: Final[tuple[BarKind, ...]] = ("fixed", "summary", "history", "recalled", "free")
BAR_SIGNS: Final[Mapping[BarKind, str]] = {
    "fixed": "=",
    "summary": "≡",
    "history": "▒",
    "recalled": "+",
    "free": "·",
}
BAR_COLOURS: Final[Mapping[BarKind, str]] = {
    "fixed": "#8b95a5",
    "summary": "#27b3c4",
    "history": "#4b8bf5",
    "recalled": "#c9525f",
    "free": "#7d8694",
}
NOTES_MARK: Final = "┊"
COMPACT_MARK: Final = "│"


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowUse:
    """What stands in the window, in tokens calibrated by what the provider reported."""

    window_tokens: int
    kinds: Mapping[BarKind, int]
    notes_at: int
    """Where notes are written."""
    compact_at: int
    """Where it is compacted."""

    @property
    def used_tokens(self) -> int:
        """All that was sent."""
        return sum(self.kinds.values())


def window_use(report: Report, settings: Settings) -> WindowUse:
    """What a request takes that goes out now, in the figures of `/status`."""
    counted = report.fixed_tokens + report.view.tokens
    said = said_components(report, Weigher(settings.tokens.counter))
    return _use(report.window_tokens, report.tokens_after, counted, said, settings)


def use_of_status(status: ContextStatus, settings: Settings) -> WindowUse:
    """What `/status` says of the window."""
    request = status.request
    return _use(
        request.window_tokens, request.tokens, request.counted_tokens, request.components, settings
    )


def _use(
    window: int,
    tokens: int,
    counted: int,
    components: Sequence[ContextComponent],
    settings: Settings,
) -> WindowUse:
    """Calibrated shares that add up to `tokens`; what is none of the kinds that were said is the
    system prompt, the files in it and the tools."""
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
    """The window as a bar: kinds in their colours, and marks where notes are written and where
    it is compacted. Whatever takes anything at all has a cell."""
    window = max(1, use.window_tokens)
    signs: list[tuple[str, str]] = []
    at = 0.0
    for kind in BAR_KINDS[:-1]:
        tokens = use.kinds.get(kind, 0)
        at += tokens * cells / window
        wanted = max(round(at) - len(signs), 1 if tokens else 0)
        signs.extend([(BAR_SIGNS[kind], BAR_COLOURS[kind])] * wanted)
    signs = signs[:cells]
    signs.extend([(BAR_SIGNS["free"], BAR_COLOURS["free"])] * (cells - len(signs)))
    for tokens, mark, colour in (
        (use.notes_at, NOTES_MARK, "#d98a16"),
        (use.compact_at, COMPACT_MARK, "#e0475b"),
    ):
        place = min(cells - 1, tokens * cells // window)
        signs[place] = (mark, colour)
    return in_runs(signs)


@dataclass(slots=True)
class RunTally:
    """What the replies of this run took."""

    price: ModelPrice | None = None
    dollars: float = 0.0
    input_tokens: int = 0
    cached_tokens: int = 0

    def add(self, usage: Usage) -> None:
        """One more reply."""
        self.input_tokens += usage.input_tokens
        self.cached_tokens += usage.cache_read_tokens
        if self.price is not None:
            self.dollars += self.price.of(usage)

    def words(self) -> list[str]:
        """Cost and cache share, where they are known."""
        cost = [f"${self.dollars:.3f}"] if self.price is not None and self.dollars else []
        share = self.cached_tokens / self.input_tokens if self.input_tokens else 0.0
        return cost + ([f"cache {share:.0%}"] if self.cached_tokens else [])


def status_line(
    use: WindowUse | None, model: str, tally: RunTally, cells: int, doing: str = ""
) -> Text:
    """The line at the bottom, never wider than `cells`: what is least needed goes first."""
    sizes = ""
    if use is not None:
        share = use.used_tokens / max(1, use.window_tokens)
        sizes = f"{short_tokens(use.used_tokens)}/{short_tokens(use.window_tokens)} {share:.0%}"
    line = Text(no_wrap=True)
    if use is not None:
        line.append_text(window_bar(use, max(10, min(40, cells * 3 // 10))))
        line.append(" ")
    pieces = [doing, sizes, one_line(model, 28), *tally.words()]
    shown = [piece for piece in pieces if piece]
    while shown and line.cell_len + cell_len("  ".join(shown)) > cells:
        shown.pop()
    line.append("  ".join(shown))
    line.truncate(cells)
    return line


# Markdown as it comes


_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})\s*([^`]*)")
_RULE: Final = re.compile(r"[\s|:-]*-[\s|:-]*")
BlockKind: TypeAlias = Literal["text", "code"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyBlock:
    """A stretch of a reply that can be drawn by itself."""

    kind: BlockKind
    text: str = field(repr=False)
    """Markdown; of code what stands between the fences."""
    language: str = ""
    goes_on: bool = False
    """The same block goes on behind it: nothing is left free between the two."""


@dataclass(slots=True)
class MarkdownStream:
    """A reply as blocks: each comes out once, when it is finished; the last is still `pending`.

    A block ends at a blank line, when what follows is not indented (and so belongs to it); a code
    fence is a block of its own. One that grows beyond what can be shown at once is handed out in
    pieces that can be drawn by themselves: code by its lines, a table with its head repeated.
    """

    pending: str = field(default="", repr=False)
    _fence: str = ""
    """What closes the code that is pending; empty for text."""
    _language: str = ""
    _checked: int = 0
    """So much of `pending` are whole lines that were looked at."""
    _blank: bool = False

    @property
    def block(self) -> ReplyBlock:
        """What is pending, as it is now."""
        return self._of(self.pending)

    def feed(self, text: str) -> list[ReplyBlock]:
        """Take in more; the blocks that ended with it."""
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
        """The reply is over: what is left is the last block."""
        block = self._taken(len(self.pending), len(self.pending))
        self._fence = self._language = ""
        return [block] if block.text.strip() else []

    def piece(self) -> ReplyBlock | None:
        """The first part of what is pending, which is too tall to be shown, up to a line that is
        still to be shown; None where it cannot be parted yet."""
        lines = self.pending[: self._checked].splitlines(keepends=True)
        head = "" if self._fence else _table_head(self.pending)
        at = len(lines)
        if not self._fence and not head:  # rather before a line that stands at the margin
            at = next((n for n in range(at - 1, 0, -1) if not lines[n][0].isspace()), at)
        cut = len("".join(lines[:at]))
        if cut <= len(head):
            cut = 0 if head or self._fence else self.pending.rfind(" ") + 1  # one endless line
        if not cut:
            return None
        checked = self._checked
        block = replace(self._of(self.pending[:cut]), goes_on=True)
        self.pending = head + self.pending[cut:]
        self._checked = max(0, checked - cut) + len(head)
        return block

    def _taken(self, end: int, rest: int) -> ReplyBlock:
        """Take the block out that ends there; what is pending begins at `rest`."""
        block = self._of(self.pending[:end])
        self.pending = self.pending[rest:]
        self._checked, self._blank = 0, False
        return block

    def _of(self, text: str) -> ReplyBlock:
        return ReplyBlock(
            kind="code" if self._fence else "text", text=text, language=self._language
        )


def _table_head(text: str) -> str:
    """The two lines that make what follows a table; empty where it is none."""
    lines = text.splitlines(keepends=True)[:2]
    if len(lines) == 2 and all("|" in line for line in lines) and _RULE.fullmatch(lines[1]):
        return "".join(lines)
    return ""
