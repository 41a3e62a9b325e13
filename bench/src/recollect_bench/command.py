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
    "cost": "what a long conversation costs under prompt caching, and what is kept of it",
    "gateway": "what the gateway adds to a request, beside bare proxies",
    "hooks": "what an agent waits for its hooks, with the daemon and without",
    "live": "what stands in the request when a user asks, through the whole product",
    "recall": "what is found of what a question needs, on question sets and your transcripts",
    "redaction": "what is masked of real secrets, and what is touched that is none",
    "scale": "what a node and PostgreSQL serve at 10,000 spaces, and what a fleet needs",
    "store": "a store beside hand-written SQL of the same durability",
    "tokens": "the token counter against o200k",
    "turn": "what shaping a request costs beside json.loads + json.dumps",
}
RECALL_SETS: Final = ("locomo", "longmemeval", "beam", "madial", "memdaily", "own")
LIVE_SETS: Final = ("agent", "assistant", "locomo", "beam", "longmemeval", "coding")
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
HALVES: Final = ("tune", "held-out", "fresh")
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
        {"quick", "spaces", "passages", "seconds", "idle_seconds", "data_dir", "capacity", "write"}
    ),
    "store": frozenset({"store", "quick", "large", "spaces"}),
    "turn": frozenset({"recall", "store", "quick"}),
}
"""The options of each bench; one that is not named takes none."""
_VALUES: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("recall", "sets"): RECALL_SETS,
    ("live", "sets"): LIVE_SETS,
}
"""What each bench takes of an option that several have."""


@click.command()
@click.argument("name", type=click.Choice(sorted(BENCHES)))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
@click.option(
    "--store",
    metavar="URL",
    help="store, recall, turn --recall: sqlite: (a temporary file, the default), sqlite:FOLDER,"
    " postgresql://… of a role that may create databases, or pg18 and pg16 for a temporary server."
    " live: sqlite, pg18 or pg16.",
)
@click.option(
    "--quick",
    is_flag=True,
    help="cost, gateway, hooks, live, scale, store, recall, turn --recall: to see that it runs.",
)
@click.option(
    "--peers",
    is_flag=True,
    help="gateway: also LiteLLM and Headroom, installed by pip into a temporary folder.",
)
@click.option("--large", is_flag=True, help="store: also a space of 200,000 passages.")
@click.option(
    "--spaces",
    type=click.IntRange(min=0),
    help="store: how many spaces beside, 0 for none. scale: how many there are, 10,000 unless"
    " named; twice as many for the last figure.",
)
@click.option(
    "--passages",
    type=click.IntRange(min=2),
    metavar="N",
    help="scale: passages of a space, 200 unless named.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.1),
    metavar="N",
    help="scale: how long each rate is offered, 8 unless named.",
)
@click.option(
    "--idle-seconds",
    type=click.FloatRange(min=0.1),
    metavar="N",
    help="scale: watch an idle node at least so long; it is watched while the rest runs.",
)
@click.option(
    "--data-dir",
    type=click.Path(exists=True, file_okay=False),
    metavar="FOLDER",
    help="scale: where the database lies, with some 15 GB of room; its path has to be short.",
)
@click.option(
    "--capacity",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="scale: measure nothing, and show what the figures of an earlier run mean for fleets.",
)
@click.option(
    "--write",
    metavar="FOLDER",
    help="scale: write figures, the capacity page and its pictures there, as in `--write docs`.",
)
@click.option(
    "--set",
    "sets",
    multiple=True,
    type=click.Choice(tuple(dict.fromkeys((*RECALL_SETS, *LIVE_SETS)))),
    help="recall: which questions, locomo unless named; may be given several times. own: your"
    " transcripts, see --paths. live: agent unless named, assistant, locomo, beam, longmemeval,"
    " coding.",
)
@click.option(
    "--embedder",
    type=click.Choice(EMBEDDERS),
    help="recall, live: what makes vectors; hash (live: static) unless named. onnx is minilm, by"
    " the settings' word.",
)
@click.option(
    "--paths",
    multiple=True,
    metavar="FILE",
    help="cost, recall --set own: a transcript, or a folder of them; may be given several times.",
)
@click.option(
    "--misses",
    type=click.IntRange(min=0),
    metavar="N",
    help="recall: show N questions whose evidence was not found, and what was shown instead; none"
    " of your own transcripts. live: and the stage that lost it.",
)
@click.option("--svg", metavar="FILE", help="cost, recall: draw the figures as a picture.")
@click.option(
    "--compare",
    metavar="A,B",
    help="recall: only compare what two stores rank, as in sqlite,pg18.",
)
@click.option(
    "--no-cache", is_flag=True, help="recall: make every vector anew, without those kept earlier."
)
@click.option(
    "--recall", is_flag=True, help="turn: what recalling costs, beside its SQL and products bare."
)
@click.option(
    "--half",
    type=click.Choice(HALVES),
    help="live --set agent: which domains; tune unless named.",
)
@click.option(
    "--window",
    multiple=True,
    metavar="N",
    help="live: the window in tokens, as 16k; may be given several times.",
)
@click.option(
    "--through-gateway", is_flag=True, help="cost: ours also through a real gateway, over HTTP."
)
@click.option(
    "--summaries",
    multiple=True,
    type=click.Choice(("none", "junk", "plausible", "model")),
    help="live: who summarises: nobody, a model that says nothing (junk), one that keeps what the"
    " user said last (plausible), a real one by llama.cpp (model). agent: junk and plausible unless"
    " named, chats: junk. May be given several times.",
)
@click.option(
    "--statements",
    multiple=True,
    type=click.IntRange(min=0),
    metavar="N",
    help="live --set agent: N further statements of the user in each session, which answer no"
    " question; 0 and 200 unless named. May be given several times.",
)
@click.option(
    "--strategy",
    multiple=True,
    type=click.Choice(LIVE_STRATEGIES),
    help="live: only these, of the product and its baselines; may be given several times.",
)
@click.option(
    "--spread", is_flag=True, help="live: ask chats over their last quarter, not at the end."
)
@click.option("--no-pause", is_flag=True, help="live: the next turn comes at once.")
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    metavar="N",
    help="live --set agent: N sessions of each domain; 1 unless named.",
)
@click.option(
    "--most-chats",
    type=click.IntRange(min=1),
    metavar="N",
    help="live: only the first N chats, or domains, of a set.",
)
@click.option(
    "--most-questions",
    type=click.IntRange(min=1),
    metavar="N",
    help="live: ask N questions of a set of chats, from everywhere, and as many of other chats.",
)
def bench(name: str, *, as_json: bool, **options: Any) -> None:
    """Measure one part of Recollect; figures in the documentation come from here.

    \b
    cost       what a long conversation costs under prompt caching, and what is kept of it
    gateway    what the gateway adds to a request, beside bare proxies
    hooks      what an agent waits for its hooks, with the daemon and without
    live       what stands in the request when a user asks, through the whole product
    recall     what is found of what a question needs, and what is recalled for nothing
    redaction  what is masked of real secrets, and what is touched that is none
    scale      what a node and PostgreSQL serve at 10,000 spaces, and what a fleet needs
    store      a store beside hand-written SQL of the same durability
    tokens     the token counter against o200k
    turn       what shaping a request costs beside json.loads + json.dumps
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
