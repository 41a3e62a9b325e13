"""`recollect bench NAME [--json]`: measure what the documentation claims, on this machine.

Owns which benches there are, which options each takes, and how a result is shown. A bench is a
module of its name with `run(progress, **options)`; one that draws more than a list of figures
has a `draw(result)` too.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

from recollect.cli.store_options import ShownProgress
from recollect.system.plain_text import window_from
from recollect_bench.result import BenchResult, figure_text

BENCHES: Final = {
    "cost": "cost of a long conversation under prompt caching, and what its requests keep",
    "gateway": "time that the gateway adds to a request, compared with bare proxies",
    "hooks": "time that an agent waits for its hooks, with and without the daemon",
    "live": "how often a request contains the answer when the user asks, at the defaults",
    "recall": "share of the evidence for a question that is found, and what is recalled needlessly",
    "redaction": "share of real secrets that are masked, and of other text that is masked wrongly",
    "scale": "load that a node and PostgreSQL serve at 10,000 spaces, and the fleet this implies",
    "store": "speed of a store, compared with hand-written SQL of the same durability",
    "tokens": "error of the token counter, compared with o200k",
    "turn": "time to prepare a request, compared with json.loads + json.dumps",
    "week": "what a week of work through the hooks gives to prompts that need memory",
}
RECALL_SETS: Final = ("locomo", "longmemeval", "beam", "madial", "memdaily", "own")
LIVE_SETS: Final = (
    "agent",
    "assistant",
    "locomo",
    "beam",
    "longmemeval",
    "coding",
    "ordinary",
)
LIVE_STRATEGIES: Final = (
    "gateway",
    "recollect",
    "tools",
    "tools-alone",
    "both",
    "recall-off",
    "block-4000",
    "sliding-window",
    "plain-compaction",
    "oracle",
)
EMBEDDERS: Final = ("hash", "static", "minilm", "minilm+static", "onnx", "onnx+static", "none")
HALVES: Final = ("tune", "held-out", "fresh", "new")
_TAKES: Final[Mapping[str, frozenset[str]]] = {
    "cost": frozenset({"paths", "svg", "quick", "through_gateway"}),
    "gateway": frozenset({"quick", "peers"}),
    "hooks": frozenset({"quick"}),
    "live": frozenset(
        {"sets", "half", "window", "embedder", "summaries", "statements", "store"}
        | {"strategy", "no_pause"}
        | {"quick", "misses", "seeds", "most_chats", "most_questions", "spread"}
    ),
    "recall": frozenset(
        {"sets", "embedder", "store", "compare", "paths", "misses", "svg", "quick", "no_cache"}
    ),
    "scale": frozenset(
        {"quick", "spaces", "passages", "seconds", "idle_seconds", "data_dir", "capacity"}
    ),
    "store": frozenset({"store", "quick", "large", "spaces"}),
    "turn": frozenset({"recall", "store", "quick"}),
    "week": frozenset({"half", "embedder", "quick", "misses"}),
}
"""The options of each bench; one that is not named takes none."""
_VALUES: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("recall", "sets"): RECALL_SETS,
    ("live", "sets"): LIVE_SETS,
    ("week", "half"): ("tune", "held-out"),
    ("week", "embedder"): ("none", "static", "minilm"),
}
"""What each bench takes of an option that several have."""


@click.command()
@click.argument("name", type=click.Choice(sorted(BENCHES)))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
@click.option(
    "--store",
    metavar="URL",
    help=(
        "store, recall, turn --recall: the store to measure. sqlite: (default) uses a "
        "temporary file, sqlite:FOLDER a folder, pg18 or pg16 a temporary server. The role of "
        "a postgresql://… URL must be allowed to create databases. live: sqlite, pg18 or pg16."
    ),
)
@click.option(
    "--quick",
    is_flag=True,
    help=(
        "All except tokens and redaction (turn: with --recall): run a small part, to check "
        "that the bench works."
    ),
)
@click.option(
    "--peers",
    is_flag=True,
    help="gateway: also measure LiteLLM and Headroom. pip installs them into a temporary folder.",
)
@click.option("--large", is_flag=True, help="store: also measure a space of 200,000 passages.")
@click.option(
    "--spaces",
    type=click.IntRange(min=0),
    help=(
        "store: number of other spaces in the database; 0 for none. scale: number of spaces. "
        "Default: 10,000. The last figure uses twice as many."
    ),
)
@click.option(
    "--passages",
    type=click.IntRange(min=2),
    metavar="N",
    help="scale: passages per space. Default: 200.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.1),
    metavar="N",
    help="scale: how many seconds to send requests at each rate. Default: 8.",
)
@click.option(
    "--idle-seconds",
    type=click.FloatRange(min=0.1),
    metavar="N",
    help="scale: watch an idle node for at least this many seconds, while the rest runs.",
)
@click.option(
    "--data-dir",
    type=click.Path(exists=True, file_okay=False),
    metavar="FOLDER",
    help="scale: the folder of the database. It needs about 15 GB, and a short path.",
)
@click.option(
    "--capacity",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help=(
        "scale: measure nothing; compute the size of fleets from the figures of an earlier "
        "run in FILE."
    ),
)
@click.option(
    "--set",
    "sets",
    multiple=True,
    type=click.Choice(tuple(dict.fromkeys((*RECALL_SETS, *LIVE_SETS)))),
    help=(
        "The questions to ask; may be repeated. recall: locomo by default; own asks about "
        "your transcripts (--paths). live: agent by default, assistant, locomo, beam, "
        "longmemeval, coding or ordinary."
    ),
)
@click.option(
    "--embedder",
    type=click.Choice(EMBEDDERS),
    help=(
        "recall, live, week: the embedder. Default: hash (live: static; week: none, static and "
        "minilm in turn). onnx means minilm, as in recall.embedder."
    ),
)
@click.option(
    "--paths",
    multiple=True,
    metavar="FILE",
    help="cost, recall --set own: a transcript, or a folder of transcripts; may be repeated.",
)
@click.option(
    "--misses",
    type=click.IntRange(min=0),
    metavar="N",
    help=(
        "recall, live, week: show N questions whose evidence was not found, and what was found "
        "instead. recall shows none from your own transcripts. live also shows the stage that "
        "lost the evidence."
    ),
)
@click.option("--svg", metavar="FILE", help="cost, recall: draw the figures into this SVG file.")
@click.option(
    "--compare",
    metavar="A,B",
    help="recall: only compare the rankings of two stores, such as sqlite,pg18.",
)
@click.option(
    "--no-cache",
    is_flag=True,
    help="recall: compute every vector again instead of using cached ones.",
)
@click.option(
    "--recall",
    is_flag=True,
    help="turn: measure the time of recall against its bare SQL statements and vector products.",
)
@click.option(
    "--half",
    type=click.Choice(HALVES),
    help="live --set agent, week: the domains or prompts to use. Default: tune.",
)
@click.option(
    "--window",
    multiple=True,
    metavar="N",
    help="live: the window in tokens, such as 16k; may be repeated.",
)
@click.option(
    "--through-gateway",
    is_flag=True,
    help="cost: also measure Recollect through a real gateway, over HTTP.",
)
@click.option(
    "--summaries",
    multiple=True,
    type=click.Choice(("none", "junk", "plausible", "model")),
    help=(
        "live: the model that writes summaries; may be repeated. none: no model. junk: its "
        "summaries contain nothing. plausible: they keep the user's last messages. model: a "
        "real model in llama.cpp. Default: junk, and with --set agent also plausible."
    ),
)
@click.option(
    "--statements",
    multiple=True,
    type=click.IntRange(min=0),
    metavar="N",
    help=(
        "live --set agent: add N user statements that answer no question to each session; may "
        "be repeated. Default: 0 and 200."
    ),
)
@click.option(
    "--strategy",
    multiple=True,
    type=click.Choice(LIVE_STRATEGIES),
    help="live: measure only this strategy, Recollect or a baseline; may be repeated.",
)
@click.option(
    "--spread",
    is_flag=True,
    help="live: spread the questions over the last quarter of each "
    "chat. Default: ask them at its end.",
)
@click.option(
    "--no-pause", is_flag=True, help="live: start each turn without waiting for background work."
)
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    metavar="N",
    help="live --set agent: sessions per domain. Default: 1.",
)
@click.option(
    "--most-chats",
    type=click.IntRange(min=1),
    metavar="N",
    help="live: use only the first N chats, or domains, of a set.",
)
@click.option(
    "--most-questions",
    type=click.IntRange(min=1),
    metavar="N",
    help=(
        "live: ask N questions from all chats of a set, and N about chats that the memory "
        "does not contain."
    ),
)
def bench(name: str, *, as_json: bool, **options: Any) -> None:
    """Measure one part of Recollect. The figures in the documentation come from these benches.

    \b
    cost       cost of a long conversation under prompt caching, and what its requests keep
    gateway    time that the gateway adds to a request, compared with bare proxies
    hooks      time that an agent waits for its hooks, with and without the daemon
    live       how often a request contains the answer when the user asks, at the defaults
    recall     share of the evidence for a question that is found, and what is recalled needlessly
    redaction  share of real secrets that are masked, and of other text that is masked wrongly
    scale      load that a node and PostgreSQL serve at 10,000 spaces, and the fleet this implies
    store      speed of a store, compared with hand-written SQL of the same durability
    tokens     error of the token counter, compared with o200k
    turn       time to prepare a request, compared with json.loads + json.dumps
    week       what a week of work through the hooks gives to prompts that need memory
    """
    given = {
        option: value
        for option, value in options.items()
        if value is not None and value is not False and value != ()
    }
    _refuse_foreign(name, given)
    if "window" in given:
        given["window"] = [window_from(one) for one in given["window"]]
    module = importlib.import_module(f"recollect_bench.{name}")
    with ShownProgress() as bars:

        def progress(text: str, done: int = 0, total: int | None = None) -> None:
            # A bar draws from a thread of its own: not where times are measured.
            if total is not None:
                bars.show(text, done, total)
            elif sys.stderr.isatty():
                bars.clear()
                click.echo(f"\r\x1b[K{text}", nl=False, err=True)

        result: BenchResult = module.run(progress, **given)
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", nl=False, err=True)
    if as_json:
        click.echo(json.dumps(result.as_json(), indent=2))
    else:
        getattr(module, "draw", _draw)(result)
    for failure in result.failures:
        click.echo(f"recollect bench {name}: not measured: {failure}", err=True)
    if result.failures:
        raise click.exceptions.Exit(1)


def _refuse_foreign(name: str, given: Mapping[str, Any]) -> None:
    """An option of another bench is a mistake worth telling."""
    for option in given:
        if option not in _TAKES.get(name, ()):
            spelled = "--set" if option == "sets" else f"--{option.replace('_', '-')}"
            owners = " and ".join(
                f"`recollect bench {owner}`" for owner, takes in _TAKES.items() if option in takes
            )
            raise click.UsageError(f"{spelled} belongs to {owners}")
        chosen = given[option] if isinstance(given[option], tuple) else (given[option],)
        values = _VALUES.get((name, option), chosen)
        for value in chosen:
            if value not in values:
                word = option.removesuffix("s")
                raise click.UsageError(f"`recollect bench {name}` has no {word} {value}")


def _draw(result: BenchResult) -> None:
    """A table of the figures, each beside the baselines of the same measure."""
    console = Console()
    table = Table(title=f"recollect bench {result.bench}", title_justify="left", box=None)
    table.add_column("figure")
    table.add_column("value", justify="right")
    for figure, value in result.figures.items():
        table.add_row(figure, figure_text(value), style="bold")
    for figure, value in result.baselines.items():
        table.add_row(f"  {figure}", figure_text(value), style="dim")
    console.print(table)
    for note in result.notes:
        console.print(f"  {note}", style="dim", highlight=False)
