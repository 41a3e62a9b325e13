"""`recollect memory spool`: what waits on this machine, and what went wrong with it.

Never opens the store, so it answers while that is away, which is when people ask.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from recollect.surfaces.cli.explain_text import plain_line
from recollect.surfaces.cli.store_options import Place, place_of, print_json, store_options

if TYPE_CHECKING:
    from recollect.values.upkeep import SpoolState

RETRY = "`recollect memory spool --retry` offers them again"


@click.command("spool")
@click.option("--retry", is_flag=True, help="Let what the store refused wait again, at the end.")
@store_options
def spool(*, retry: bool, url: str | None, space: str, as_json: bool) -> None:
    """Show what waits for the store on this machine, was refused, or is damaged.

    Exit code 1 when something was refused or is damaged.
    """
    retried, state = asyncio.run(_look(place_of(url, space), retry=retry))
    problems = problems_of(state)
    if as_json:
        print_json({**asdict(state), "retried": retried, "problems": list(problems)})
    else:
        if retry:
            click.echo(f"{retried:,} refused batches wait again")
        click.echo(f"{state.waiting:,} batches wait; the next to open this memory hands them over")
        for problem in problems:
            click.echo(f"PROBLEM  {plain_line(problem)}")
        if not problems:
            click.echo("Nothing was refused, nothing is damaged.")
    if problems:
        raise SystemExit(1)


def problems_of(state: SpoolState) -> tuple[str, ...]:
    """What people should see to, one sentence each, with what to do."""
    problems = []
    if state.refused:
        problems.append(
            f"spool: the store refused {state.refused:,} batches, kept in "
            f"{_files(state, state.refused_files)}: {RETRY}, `recollect memory forget` reaches them"
        )
    if state.damaged_files:
        problems.append(
            f"spool: what could not be read lies in {_files(state, state.damaged_files)}: "
            "look to the disk, then delete what nobody needs"
        )
    if state.torn:
        problems.append(
            f"spool: {state.torn:,} batches were cut off while they were written and are dropped "
            "now: they were not yet confirmed; a disk that was full or a power cut does this"
        )
    return tuple(problems)


async def _look(place: Place, *, retry: bool) -> tuple[int, SpoolState]:
    from recollect.wiring import open_spool

    opened = await open_spool(place.url, space=place.space, key=place.settings.store.key)
    try:
        retried = await opened.retry_refused() if retry else 0
        return retried, await opened.state()
    finally:
        await opened.close()


def _files(state: SpoolState, names: tuple[str, ...]) -> str:
    return f"{', '.join(names)} of {state.folder}"
