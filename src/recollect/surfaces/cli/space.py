"""`recollect space list|delete|expire`: the spaces of a store as wholes."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict

import click

from recollect.errors import RecollectError
from recollect.surfaces.cli.memory.looking import spaces
from recollect.surfaces.cli.progress import ShownProgress
from recollect.surfaces.cli.store_options import json_option, place_of, print_json, store_option
from recollect.surfaces.cli.text import plain_line


@click.group("space")
def space() -> None:
    """List the spaces of a store, delete one, let old turns go in all."""


space.add_command(spaces, "list")


@space.command("delete")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_option
@json_option
def delete(*, name: str, yes: bool, url: str | None, as_json: bool) -> None:
    """Delete a space with all that it holds, and print a certificate.

    Archive, index, vectors, facts, ledger, jobs, tombstones, and what waits for it in the spool of
    this machine; of a file, the file. What is out of reach stands in the certificate.
    """
    place = place_of(url, name)
    if not yes:
        if as_json or not sys.stdin.isatty():
            raise RecollectError("say so with --yes, since nobody can be asked here")
        click.confirm(f"Delete the space {plain_line(name)} for good?", err=True, abort=True)
    from recollect.upkeep.certificates import certificate_json, certificate_text
    from recollect.wiring.spaces import delete_stored_space

    certificate = asyncio.run(delete_stored_space(place.settings, name, place.url))
    if as_json:
        print_json(certificate_json(certificate))
    else:
        click.echo(certificate_text(certificate, plain=plain_line))


@space.command("expire")
@store_option
@json_option
def expire(*, url: str | None, as_json: bool) -> None:
    """Let turns older than ledger.retention_days go in every space of a server, now.

    Workers do so by themselves; this is for spaces that were last used before they did.
    """
    from recollect.wiring.spaces import expire_all
    from recollect.wiring.stores import is_server

    place = place_of(url, "default")
    if place.url is None or not is_server(place.url):
        raise RecollectError("this is for PostgreSQL: give --store postgresql://…")
    with ShownProgress(quiet=as_json) as progress:
        told = asyncio.run(
            expire_all(
                place.settings,
                place.url,
                progress=lambda count: progress.show("spaces", count, count),
            )
        )
    if as_json:
        print_json(asdict(told))
    else:
        click.echo(f"{told.turns:,} turns went in {told.spaces:,} spaces")
    if told.unreached:
        click.echo(f"recollect: {told.unreached:,} spaces could not be asked", err=True)
        raise SystemExit(1)
