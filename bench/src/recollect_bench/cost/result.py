"""What a run of the cost bench measured: figures by window, pooled and by transcript.

Owns the names of figures, the thresholds and the aims. Never prints what was said. Always holds:
cost is relative to plain compaction on the same transcript in the same run; pooled figures leave
held-out transcripts out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from recollect_bench.cost.strategies import Tally
from recollect_bench.result import BenchResult

OURS: Final = "recollect"
PLAIN: Final = "plain"
OPENCLAW: Final = "openclaw"
GATEWAY: Final = "gateway"
STRATEGIES: Final = (OURS, PLAIN, OPENCLAW, GATEWAY)
MEASURES: Final = ("cost", "useful", "recovered", "retention")


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """What has to be reached, and what should be."""

    threshold: float
    aim: float

    def met(self, name: str, value: float) -> bool:
        """Whether a figure reaches it: of cost less is better."""
        return value <= self.threshold if name.startswith("cost") else value >= self.threshold


THRESHOLDS: Final[Mapping[str, Threshold]] = {
    "cost_64k": Threshold(threshold=1.12, aim=1.0),
    "cost_128k": Threshold(threshold=1.08, aim=1.0),
    "cost_200k": Threshold(threshold=1.04, aim=1.0),
    "useful_64k.pi_before": Threshold(threshold=0.3, aim=0.6),
    "useful_64k.pi_large": Threshold(threshold=0.45, aim=0.6),
    "recovered_64k": Threshold(threshold=0.55, aim=0.8),
    "recovered_128k": Threshold(threshold=0.58, aim=0.8),
    "recovered_200k": Threshold(threshold=0.47, aim=0.8),
}
"""Retention must not be below plain compaction's on any transcript, either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """One strategy on one transcript in one window."""

    transcript: str
    held_out: bool
    window_tokens: int
    strategy: str
    tally: Tally = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostResult(BenchResult):
    """A run; `replays` are for the table and the picture."""

    replays: tuple[Replay, ...] = field(default=(), repr=False)

    def value(self, strategy: str, measure: str, window_tokens: int, transcript: str = "") -> float:
        """A figure, NaN where the run has none."""
        name = figure_name(measure, window_tokens, transcript)
        if strategy == OURS:
            return self.figures.get(name, math.nan)
        return self.baselines.get(f"{strategy}.{name}", math.nan)


def figure_name(measure: str, window_tokens: int, transcript: str = "") -> str:
    """As `--json` prints it."""
    short = f"{measure}_{window_tokens // 1000}k"
    return f"{short}.{transcript}" if transcript else short


def summed_up(replays: Sequence[Replay], notes: Sequence[str]) -> CostResult:
    """All figures of these replays."""
    figures: dict[str, float] = {}
    baselines: dict[str, float] = {}
    windows = dict.fromkeys(replay.window_tokens for replay in replays)
    for window in windows:
        for strategy in STRATEGIES:
            some = [r for r in replays if (r.window_tokens, r.strategy) == (window, strategy)]
            if not some:
                continue
            into = figures if strategy == OURS else baselines
            before = "" if strategy == OURS else f"{strategy}."
            for name, value in _figures(some, replays, window):
                into[before + name] = round(value, 4)
    return CostResult(
        bench="cost",
        figures=figures,
        baselines=baselines,
        notes=tuple(notes),
        replays=tuple(replays),
    )


def _figures(
    some: Sequence[Replay], replays: Sequence[Replay], window: int
) -> Iterable[tuple[str, float]]:
    plain = {
        r.transcript: r.tally.cost
        for r in replays
        if r.strategy == PLAIN and r.window_tokens == window
    }
    pooled = [replay for replay in some if not replay.held_out] or list(some)
    yield from _measured(pooled, plain, window, "")
    for replay in some:
        yield from _measured([replay], plain, window, replay.transcript)


def _measured(
    some: Sequence[Replay], plain: Mapping[str, float], window: int, transcript: str
) -> Iterable[tuple[str, float]]:
    tallies = [replay.tally for replay in some]
    ratios = [replay.tally.cost / plain[replay.transcript] for replay in some]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    yield figure_name("cost", window, transcript), mean
    left = sum(tally.left for tally in tallies)
    if left:
        recovered = sum(tally.recovered for tally in tallies)
        yield figure_name("recovered", window, transcript), recovered / left
    relied = sum(tally.relied for tally in tallies)
    if relied:
        useful = sum(tally.useful for tally in tallies)
        yield figure_name("useful", window, transcript), useful / relied
    references = sum(tally.references for tally in tallies)
    if references:
        present = sum(tally.present for tally in tallies)
        yield figure_name("retention", window, transcript), present / references
    if transcript:
        return
    yield figure_name("left", window), left
    yield figure_name("relied", window), relied
    sent = sum(tally.sent_tokens for tally in tallies)
    read = sum(tally.read_tokens for tally in tallies)
    yield figure_name("cached", window), read / sent


def misses(result: CostResult) -> list[str]:
    """Thresholds that a run does not reach, in words."""
    lines = []
    for name, threshold in THRESHOLDS.items():
        value = result.figures.get(name)
        if value is not None and not threshold.met(name, value):
            lines.append(f"{name} is {value:.3f}, its threshold {threshold.threshold:g}")
    for name, value in result.figures.items():
        if name.startswith("retention_") and "." in name:
            other = result.baselines.get(f"{PLAIN}.{name}")
            if other is not None and value < other:
                lines.append(f"{name} is {value:.3f}, plain compaction's {other:.3f}")
    return lines
