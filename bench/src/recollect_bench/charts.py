"""Draws the charts of the docs as SVG, each from the object that its bench prints with `--json`.

`python -m tools.reference` draws all of them from docs/contributing/figures. Owns the look: a white
card that is readable on light and dark pages, text as text, and the same bytes for the same
figures. Imports matplotlib, so the benches import it only to draw.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

Json: TypeAlias = Mapping[str, Any]
Groups: TypeAlias = Mapping[str, Mapping[str, float]]
"""Bars by the label of their group and the name of their series."""

_WIDTH: Final = 7.0
_BLUE, _ORANGE, _PURPLE, _GREEN, _GREY, _RED = (
    "#2f6fe4", "#d98a16", "#8a63d2", "#2f9e6e", "#8c95a4", "#c0392b",
)  # fmt: skip
_LOOK: Final[Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Helvetica", "Arial"],  # the widest measures the layout
    "font.size": 9,
    "text.color": "#1f2430",
    "axes.labelcolor": "#1f2430",
    "axes.titlelocation": "left",
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.edgecolor": "#b6bcc8",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#e3e6eb",
    "xtick.color": "#4b5563",
    "ytick.color": "#1f2430",
    "ytick.left": False,
    "legend.frameon": False,
    "figure.constrained_layout.w_pad": 0.12,
    "figure.constrained_layout.h_pad": 0.08,
    "figure.constrained_layout.wspace": 0.04,
    "svg.fonttype": "none",
    "svg.hashsalt": "recollect",
}
_SERIES: Final = {
    "recollect": ("Recollect", _BLUE),
    "gateway": ("Recollect, through the gateway", _GREEN),
    "openclaw": ("OpenClaw's method", _ORANGE),
    "plain": ("plain compaction", _GREY),
    "vectors": ("vectors only", _PURPLE),
    "bm25": ("words only (BM25)", _GREY),
    "recency": ("newest passages", _GREEN),
    "random": ("random passages", _RED),
    "p50": ("p50", "#8fb3f2"),
    "p99": ("p99", _BLUE),
}
"""The name and colour of each series, in the order of its bars."""
_SETS: Final = {"locomo": "LoCoMo", "longmemeval": "LongMemEval", "beam": "BEAM"}
_FOUND: Final = ("all_4k", "all_4k_gated", "strict_4k", "strict_4k_gated", "recall_at_10", "found")
_ERRORS: Final = ("lost", "false_recall")
_COST_PANELS: Final = {
    "cost": "Cost (plain = 1)",
    "recovered": "Recovered identifiers",
    "useful": "Recovered statements",
}


@mpl.rc_context(_LOOK)
def recall_chart(told: Json) -> str:
    """The main figure of each set; of a single set all figures, also by part."""
    names = told["run"]["sets"]
    groups: dict[str, dict[str, float]] = {}
    for name in names:
        several = len(names) > 1
        held = _by_series(told, f"{name}." if several else "")
        ours = held["recollect"]
        main = next((figure for figure in _FOUND if figure in ours), "")
        parts = [figure for figure in ours if figure.startswith(f"{main}.")]
        shown = [main] if several else [*_FOUND, *parts, *_ERRORS]
        for one in (figure for figure in shown if figure in ours):
            label = _SETS.get(name, name) if several else one.replace(".", ", ")
            label += " (less is better)" if one in _ERRORS else ""
            groups[label] = {who: some[one] for who, some in held.items() if one in some}
    bars = sum(map(len, groups.values())) + len(groups)
    figure = Figure(figsize=(_WIDTH, 0.9 + 0.17 * bars), layout="constrained")
    axes = figure.subplots()
    _draw_bars(axes, groups, "{:.2f}")
    axes.set_xlim(0, 1.08)
    axes.set_xlabel("share of the questions")
    _add_legend(figure, axes)
    return _as_svg(figure, "What recall finds, and what other methods find")


@mpl.rc_context(_LOOK)
def cost_chart(told: Json) -> str:
    """Cost and what came back after it left the window, by window and strategy."""
    held = _by_series(told, "")
    windows = [
        name.removeprefix("cost_")
        for name in held["recollect"]
        if name.startswith("cost_") and "." not in name
    ]
    shown = [one for one in _COST_PANELS if any(f"{one}_{w}" in held["recollect"] for w in windows)]
    series = sum(f"cost_{windows[0]}" in figures for figures in held.values())
    size = (_WIDTH, 1.0 + 0.19 * (series + 1) * len(windows))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
    for axes, measure in zip(panels, shown, strict=True):
        groups = {
            f"{window} window": {
                who: figures[f"{measure}_{window}"]
                for who, figures in held.items()
                if f"{measure}_{window}" in figures
            }
            for window in windows
        }
        _draw_bars(axes, groups, "{:.2f}")
        axes.set_title(_COST_PANELS[measure])
        axes.set_xlim(0, axes.dataLim.x1 * 1.2 if measure == "cost" else 1.15)
    _add_legend(figure, panels[0])
    return _as_svg(figure, "What strategies cost, and what comes back")


@mpl.rc_context(_LOOK)
def rate_chart(told: Json) -> str:
    """Latency over requests per second, for mixed requests and for prepare alone."""
    figure = Figure(figsize=(_WIDTH, 3.2), layout="constrained")
    axes = figure.subplots()
    kinds = (("mix", "mixed requests", _BLUE), ("prepare", "prepare alone", _ORANGE))
    for kind, name, colour in kinds:
        for share, style in ((99, "o-"), (50, "o:")):
            points = _points(told["figures"], f"{kind}_p{share}_ms_at_")
            rates, latencies = [rate for rate, _ in points], [ms for _, ms in points]
            axes.plot(rates, latencies, style, color=colour, ms=4, label=f"{name}, p{share}")
    axes.axhline(250, color=_RED, linestyle="--", linewidth=1, label="limit of p99, 250 ms")
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.set_xlabel("requests per second")
    axes.set_ylabel("latency, ms")
    _add_legend(figure, axes, columns=3)
    return _as_svg(figure, "Latency against requests per second")


@mpl.rc_context(_LOOK)
def flat_chart(told: Json) -> str:
    """Latency of prepare, by the number of spaces in the database."""
    figures = told["figures"]
    groups = {
        f"{count:,} spaces": {"p50": half, "p99": figures[f"flat_p99_ms_{count}"]}
        for count, half in _points(figures, "flat_p50_ms_")
    }
    figure = Figure(figsize=(_WIDTH, 0.9 + 0.55 * len(groups)), layout="constrained")
    axes = figure.subplots()
    _draw_bars(axes, groups, "{:.0f} ms")
    axes.set_xlabel("latency of prepare, ms")
    _add_legend(figure, axes)
    return _as_svg(figure, "Latency of prepare by the number of spaces")


@mpl.rc_context(_LOOK)
def growth_chart(told: Json) -> str:
    """The data folder and the CPU of prepare, over the turns of long sessions."""
    figure = Figure(figsize=(_WIDTH, 2.9), layout="constrained")
    folder, cpu = figure.subplots(1, 2)
    colours = {"16000": _BLUE, "64000": _ORANGE}
    for window, result in told.items():
        if window not in colours:
            continue
        colour, name = colours[window], f"{int(window) // 1000}k window"
        folder.plot(*_ratios(result), color=colour, label=name)
        turns = [sample["turn"] for sample in result["samples"]]
        medians = result["cpu_p50_ms"][: len(turns)]
        cpu.plot(turns[: len(medians)], medians, color=colour)
    folder.set_ylim(bottom=0)
    folder.set_title("Data folder / archived text")
    cpu.set_ylim(bottom=0)
    cpu.set_title("CPU of prepare, median, ms")
    for axes in (folder, cpu):
        axes.set_xlim(left=0)
        axes.set_xlabel("turns")
        axes.xaxis.set_major_formatter("{x:,.0f}")
    _add_legend(figure, folder)
    return _as_svg(figure, "Growth of long sessions")


def _ratios(session: Json) -> tuple[list[int], list[float]]:
    samples = session["samples"]
    ratios = [sample["folder_bytes"] / sample["archived_bytes"] for sample in samples]
    return [sample["turn"] for sample in samples], ratios


CHARTS: Final[Mapping[str, tuple[str, Callable[[Json], str]]]] = {
    "images/recall.svg": ("recall", recall_chart),
    "images/cost.svg": ("cost", cost_chart),
    "images/long_sessions.svg": ("long_sessions", growth_chart),
    "images/capacity_rate.svg": ("scale", rate_chart),
    "images/capacity_flat.svg": ("scale", flat_chart),
}
"""The charts of the docs, and the figures that each is drawn from."""


def draw_docs(docs: Path) -> dict[str, str]:
    """Every chart of this folder, by its place in it."""
    return {
        chart: draw(json.loads((docs / f"contributing/figures/{run}.json").read_text("utf-8")))
        for chart, (run, draw) in CHARTS.items()
    }


def _by_series(told: Json, prefix: str) -> dict[str, dict[str, float]]:
    """The figures of each series, without their prefix."""
    ours = _without(told["figures"], prefix)
    known = _without(told["baselines"], prefix)
    others = {who: _without(known, f"{who}.") for who in _SERIES if who != "recollect"}
    return {"recollect": ours} | {who: figures for who, figures in others.items() if figures}


def _without(figures: Mapping[str, float], prefix: str) -> dict[str, float]:
    start = len(prefix)
    return {name[start:]: value for name, value in figures.items() if name.startswith(prefix)}


def _points(figures: Mapping[str, float], start: str) -> list[tuple[int, float]]:
    """The number at the end of each figure's name, and the figure."""
    return sorted((int(number), value) for number, value in _without(figures, start).items())


def _draw_bars(axes: Axes, groups: Groups, number: str) -> None:
    """One bar per series in each group, with its figure at the end of the bar."""
    series = [who for who in _SERIES if any(who in group for group in groups.values())]
    height = 0.84 / max(1, len(series))
    for place, who in enumerate(series):
        shift = (place - (len(series) - 1) / 2) * height
        held = [(at + shift, some[who]) for at, some in enumerate(groups.values()) if who in some]
        name, colour = _SERIES[who]
        places, values = [y for y, _ in held], [value for _, value in held]
        bars = axes.barh(places, values, height=0.88 * height, color=colour, label=name)
        axes.bar_label(bars, fmt=number, padding=3, fontsize=8)
    axes.set_yticks(range(len(groups)), list(groups))
    axes.set_ylim(max(1, len(groups)) - 0.5, -0.5)
    axes.margins(x=0.12)
    axes.grid(visible=False, axis="y")


def _add_legend(figure: Figure, axes: Axes, columns: int = 4) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=columns)


def _as_svg(figure: Figure, title: str) -> str:
    """The picture without a date; `title` is what a screen reader reads."""
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Title": title, "Date": None, "Creator": None})
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())
