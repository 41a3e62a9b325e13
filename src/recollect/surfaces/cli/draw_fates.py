"""Draws what became of each message: a map of the request, and the reasons."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from recollect.surfaces.cli.draw_paint import (
    FATE_COLOURS,
    FATE_SIGNS,
    QUIET,
    Sheet,
    clipped,
    heading,
    in_runs,
    percent,
)
from recollect.surfaces.cli.explain_text import shown_text
from recollect.values.reason import Reason, told

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from recollect.surfaces.cli.explained import Explained, MessageFate
    from recollect.values.report import FateKind

_MAP_ROWS = 6
_MOST_RUNS = 16
"""So many stretches are listed one by one; of more, those with one reason are told together."""
_FATES: tuple[FateKind, ...] = ("kept", "changed", "left out", "summarised", "inserted")


@dataclass(slots=True)
class Stretch:
    """Messages with the same fate for the same reason."""

    fate: FateKind
    kind: tuple[object, ...]
    members: list[MessageFate] = field(default_factory=list)

    @property
    def span(self) -> str:
        """From where to where they stand."""
        numbers = [member.number for member in self.members if member.number is not None]
        if not numbers:
            return f"{len(self.members)} of ours" if len(self.members) > 1 else "ours"
        ends = (numbers[0], numbers[-1])
        return f"#{ends[0]:,}" if ends[0] == ends[1] else f"#{ends[0]:,}–#{ends[1]:,}"

    @property
    def why(self) -> str:
        """The reason, with the range of scores where they differ."""
        whys = [reason for one in self.members for reason in one.reasons]
        scores = [
            float(str(reason.numbers["score"])) for reason in whys if "score" in reason.numbers
        ]
        if not scores:
            return self.members[0].reason
        low, high = f"{min(scores):.2f}", f"{max(scores):.2f}"
        ends = low if low == high else f"{low} to {high}"
        shown = [
            Reason(one.cause, **{**one.numbers, "score": ends}) for one in self.members[0].reasons
        ]
        return shown_text(told(tuple(shown)))


def stretches(fates: Sequence[MessageFate], *, together: bool = False) -> list[Stretch]:
    """Neighbours of one fate and reason; `together` joins them over the whole request."""
    found: list[Stretch] = []
    known: dict[tuple[object, ...], Stretch] = {}
    for fate in fates:
        key = (fate.fate, *map(_without_score, fate.reasons))
        if together and key in known:
            stretch = known[key]
        elif not together and found and found[-1].kind == key:
            stretch = found[-1]
        else:
            stretch = known[key] = Stretch(fate=fate.fate, kind=key)
            found.append(stretch)
        stretch.members.append(fate)
    if together:
        found.sort(key=lambda one: (_FATES.index(one.fate), -len(one.members)))
    return found


def _without_score(reason: Reason) -> Reason:
    """A reason without the score that differs from message to message."""
    return Reason(reason.cause, **{k: v for k, v in reason.numbers.items() if k != "score"})


def draw_fates(
    explained: Explained, sheet: Sheet, *, every: bool = False
) -> Iterator[RenderableType]:
    """The section: the map, then stretches with their reasons, or every message."""
    fates = explained.fates
    title = "Each message's fate" if every else "What became of the messages"
    yield heading(title, _counts(fates), sheet)
    yield Text()
    if len(fates) > 1:
        yield from _map(fates, sheet)
        yield Text()
    if every:
        yield from _every(fates, sheet)
        return
    runs = stretches(fates)
    together = len(runs) > _MOST_RUNS
    yield _table(stretches(fates, together=True) if together else runs, together=together)


def draw_largest(explained: Explained, sheet: Sheet) -> Iterator[RenderableType]:
    """The largest messages, what they are, and what was done to them."""
    if not explained.largest:
        return
    whole = sum(item.tokens_before for item in explained.largest)
    share = Text(f"{percent(whole, explained.came_tokens)} of what came", style=QUIET)
    yield heading("The largest messages", share, sheet)
    yield Text()
    afters = max(len(_after(item)) for item in explained.largest)
    numbers = max(len(f"#{item.number:,}") for item in explained.largest)
    names = min(22, max(cell_len(item.what) for item in explained.largest))
    for item in explained.largest:
        style = FATE_COLOURS[item.fate]
        line = Text.assemble(
            (f"{f'#{item.number:,}':>{numbers}} ", QUIET),
            (f"{FATE_SIGNS[item.fate]} ", style),
            _named(item.what, names),
            (f" {item.tokens_before:>8,}", "bold"),
            (f" {percent(item.tokens_before, explained.came_tokens):>4}", QUIET),
            (f"{_after(item):<{afters}}  ", style),
        )
        line.append(clipped(item.excerpt, sheet.width - line.cell_len), style=QUIET)
        yield line


def _after(item: MessageFate) -> str:
    return "" if item.fate == "kept" else f" → {item.tokens_after:,}"


def _counts(fates: Sequence[MessageFate]) -> Text:
    counted = Counter(fate.fate for fate in fates)
    text = Text()
    for fate in _FATES:
        if counted[fate]:
            text.append("  " if text else "")
            text.append(f"{FATE_SIGNS[fate]} ", style=FATE_COLOURS[fate])
            text.append(f"{fate} {counted[fate]:,}", style=QUIET)
    return text


def _map(fates: Sequence[MessageFate], sheet: Sheet) -> Iterator[Text]:
    """One cell a message, or as many messages a cell as it takes to stay within some rows."""
    label = len(f"#{len(fates):,} ")
    cells = (sheet.width - label) // 10 * 10 or 10
    each = -(-len(fates) // (cells * _MAP_ROWS))
    number = 1
    for start in range(0, len(fates), cells * each):
        row = fates[start : start + cells * each]
        told = [_most_telling(row[at : at + each]) for at in range(0, len(row), each)]
        signs = in_runs((FATE_SIGNS[fate], FATE_COLOURS[fate]) for fate in told)
        yield Text.assemble((f"{f'#{number:,}':>{label - 1}} ", QUIET), signs)
        number += sum(fate.number is not None for fate in row)
    if each > 1:
        yield Text(f"{'':>{label}}each sign stands for {each} messages", style=QUIET)


def _most_telling(fates: Sequence[MessageFate]) -> FateKind:
    """What most of them met with; among equals what is rarer."""
    counted = Counter(fate.fate for fate in fates)
    return max(_FATES, key=lambda fate: (counted[fate], _FATES.index(fate)))


def _table(found: list[Stretch], *, together: bool) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    if together:
        table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    for _ in range(2):
        table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for stretch in found:
        style = FATE_COLOURS[stretch.fate]
        before = sum(member.tokens_before for member in stretch.members)
        after = sum(member.tokens_after for member in stretch.members)
        changed = stretch.fate != "kept"
        row = [
            Text(FATE_SIGNS[stretch.fate], style=style),
            Text(stretch.fate, style=f"bold {style}"),
            Text(stretch.span, style=QUIET),
            Text(f"{before:,}" if before else ""),
            Text(f"→ {after:,}" if changed else "", style=style),
            Text(stretch.why),
        ]
        if together:
            row.insert(2, Text(f"{len(stretch.members):,}", style="bold"))
        table.add_row(*row)
    return table


def _every(fates: Sequence[MessageFate], sheet: Sheet) -> Iterator[Text]:
    numbers = len(f"#{len(fates):,}")
    for fate in fates:
        style = FATE_COLOURS[fate.fate]
        kept = fate.fate == "kept"
        tokens = (
            f"{fate.tokens_before:,}"
            if kept
            else (f"{fate.tokens_before:,} → {fate.tokens_after:,}")
        )
        line = Text.assemble(
            (f"{f'#{fate.number:,}' if fate.number else '':>{numbers}} ", QUIET),
            (f"{FATE_SIGNS[fate.fate]} {fate.fate:<9}", style),
            _named(fate.what, 18),
            f" {tokens:>15}  ",
        )
        if not kept:
            line.append(f"{fate.reason}  ")
        line.append(clipped(fate.excerpt, sheet.width - line.cell_len), style=QUIET)
        yield line


def _named(what: str, cells: int) -> str:
    """A tool's name clipped so that it still shows whether this is its call or its result."""
    tool, space, word = what.rpartition(" ")
    if cell_len(what) > cells and tool:
        what = clipped(tool, cells - cell_len(word) - 1) + space + word
    what = clipped(what, cells)
    return what + " " * (cells - cell_len(what))
