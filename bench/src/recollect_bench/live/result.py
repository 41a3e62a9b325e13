"""What a run of the live bench came to: figures a set and window, beside baselines.

Owns the names under which they go into the one flat object of `--json`: `agent_16k_static.live_all`
is a figure of the product, `agent_16k_static.sliding-window.live_all` one of a baseline. It must
never hold what was said, unless misses were asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from recollect_bench.live.feed import Asked
from recollect_bench.result import BenchResult

OURS: Final = "recollect"


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """A question whose evidence is not all in the request; for looking at, never for keeping."""

    part: str
    name: str
    kind: str
    lost_by: str
    ask: str = field(repr=False)
    absent: tuple[str, ...] = field(repr=False)
    """What is not there, as it was said."""
    block_tokens: int
    request_tokens: int

    @classmethod
    def of(cls, part: str, asked: Asked) -> Missed:
        """A miss from what became of the question."""
        question = asked.question
        lead = [str(message["content"]) for message in question.lead if message["role"] == "user"]
        pairs = zip(question.needs, asked.found, strict=True)
        return cls(
            part=part,
            name=question.name,
            kind=question.kind,
            lost_by=asked.lost_by,
            ask=" … ".join([*lead, question.ask]),
            absent=tuple(text for need, found in pairs if not found for text in need.texts),
            block_tokens=asked.block_tokens,
            request_tokens=asked.request_tokens,
        )

    def as_json(self) -> dict[str, Any]:
        """The object that `--misses --json` prints."""
        return {
            "part": self.part,
            "question": self.name,
            "kind": self.kind,
            "lost_by": self.lost_by,
            "ask": self.ask,
            "absent": list(self.absent),
            "block_tokens": self.block_tokens,
            "request_tokens": self.request_tokens,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePart:
    """One set in one window."""

    name: str
    """As figures begin: the set, its window and its embedder."""
    figures: Mapping[str, Mapping[str, float]]
    """Of each strategy, by its name; ours first."""
    misses: tuple[Missed, ...] = field(default=(), repr=False)

    @property
    def rows(self) -> list[str]:
        """The names of all figures, in the order of the first who has them."""
        return list(dict.fromkeys(name for figure in self.figures.values() for name in figure))


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveResult(BenchResult):
    """All parts of a run."""

    parts: tuple[LivePart, ...] = field(default=(), repr=False)
    chosen: Mapping[str, Any] = field(default_factory=dict)
    """What the run was asked for."""

    def as_json(self) -> dict[str, Any]:
        """As every bench's object, and what was run; the misses that were asked for come too."""
        # Not `super()`: a slotted dataclass is made anew, and its methods keep the first one.
        told = BenchResult.as_json(self) | {"run": dict(self.chosen)}
        misses = [miss.as_json() for part in self.parts for miss in part.misses]
        return told | {"misses": misses} if misses else told


def joined(
    parts: Sequence[LivePart], *, chosen: Mapping[str, Any], notes: Sequence[str]
) -> LiveResult:
    """The parts of a run as one result, flat."""
    figures: dict[str, float] = {}
    baselines: dict[str, float] = {}
    for part in parts:
        for strategy, held in part.figures.items():
            if strategy == OURS:
                figures |= {f"{part.name}.{name}": value for name, value in held.items()}
            else:
                start = f"{part.name}.{strategy}"
                baselines |= {f"{start}.{name}": value for name, value in held.items()}
    return LiveResult(
        bench="live",
        figures=figures,
        baselines=baselines,
        notes=tuple(notes),
        parts=tuple(parts),
        chosen=chosen,
    )


_SHOWN_CHARS = 200


def draw(result: LiveResult) -> None:
    """A table a part: figures down, strategies across; then what was missed."""
    console = Console()
    for part in result.parts:
        table = Table(title=f"recollect bench live: {part.name}", title_justify="left", box=None)
        table.add_column("figure")
        for strategy in part.figures:
            table.add_column(strategy, justify="right")
        for name, *values in _rows(part):
            table.add_row(Text(name, style="bold"), *values)
        console.print(table)
    for note in result.notes:
        console.print(f"  {note}", style="dim", highlight=False, markup=False, soft_wrap=True)
    for part in result.parts:
        for miss in part.misses:
            _draw_miss(console, miss)


def _draw_miss(console: Console, miss: Missed) -> None:
    said = Text(f"\n{miss.part} {miss.kind} ({miss.lost_by}): ", style="bold")
    said.append(miss.ask, style="not bold")
    console.print(said, soft_wrap=True)
    for text in miss.absent:
        console.print(Text(f"  absent: {' '.join(text.split())[:_SHOWN_CHARS]}"), soft_wrap=True)
    tokens = f"  {miss.block_tokens} tokens of blocks in {miss.request_tokens}"
    console.print(Text(tokens, style="dim"))


def _rows(part: LivePart) -> list[list[str]]:
    return [
        [name, *(_number(figure.get(name)) for figure in part.figures.values())]
        for name in part.rows
    ]


def _number(value: float | None) -> str:
    if value is None:
        return ""
    whole = float(value).is_integer() and abs(value) >= 2
    return f"{value:,.0f}" if whole or abs(value) >= 1000 else f"{value:.3f}"
