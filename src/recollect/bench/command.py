"""`recollect bench NAME [--json]`: measure what the documentation claims, on this machine."""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from recollect.bench.result import BenchResult

BENCHES = {
    "redaction": "what is masked of real secrets, and what is touched that is none",
    "store": "a store beside hand-written SQL of the same durability",
    "tokens": "the token counter against o200k",
    "turn": "what shaping a request costs beside json.loads + json.dumps",
}


@click.command()
@click.argument("name", type=click.Choice(sorted(BENCHES)))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
@click.option(
    "--store",
    metavar="URL",
    help="store: sqlite: (a temporary file, the default), sqlite:FOLDER, postgresql://… of a"
    " role that may create databases, or pg18 and pg16 for a temporary server.",
)
@click.option("--quick", is_flag=True, help="store: a few seconds, to see that it runs.")
@click.option("--large", is_flag=True, help="store: also a space of 200,000 passages.")
@click.option(
    "--spaces", type=click.IntRange(min=0), help="store: how many spaces beside, 0 for none."
)
def bench(name: str, *, as_json: bool, **of_store: Any) -> None:
    """Measure one part of Recollect; figures in the documentation come from here.

    \b
    redaction  what is masked of real secrets, and what is touched that is none
    store      a store beside hand-written SQL of the same durability
    tokens     the token counter against o200k
    turn       what shaping a request costs beside json.loads + json.dumps
    """
    given = {
        option: value
        for option, value in of_store.items()
        if value is not None and value is not False
    }
    if given and name != "store":
        raise click.UsageError(f"--{next(iter(given))} belongs to `recollect bench store`")
    module = importlib.import_module(f"recollect.bench.{name}")

    def progress(said: str) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r\x1b[K{said}", nl=False, err=True)

    result: BenchResult = module.run(progress, **given)
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", nl=False, err=True)
    if as_json:
        click.echo(json.dumps(result.as_json(), indent=2))
    else:
        _draw(result)


def _draw(result: BenchResult) -> None:
    """A table of the figures, each beside the baselines of the same measure."""
    console = Console()
    table = Table(title=f"recollect bench {result.bench}", title_justify="left", box=None)
    table.add_column("figure")
    table.add_column("value", justify="right")
    for figure, value in result.figures.items():
        table.add_row(figure, _number(value), style="bold")
    for figure, value in result.baselines.items():
        table.add_row(f"  {figure}", _number(value), style="dim")
    console.print(table)
    for note in result.notes:
        console.print(f"  {note}", style="dim", highlight=False)


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) >= 10 else f"{value:.4g}"
