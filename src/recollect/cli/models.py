"""`recollect models …`: list and download embedding models.

Nothing is downloaded except by `recollect models download`.
"""

from __future__ import annotations

import sys

import click

from recollect.adapters.embedders.choose import choose
from recollect.adapters.embedders.download import KNOWN_MODELS, download, hub_model, read_record
from recollect.adapters.embedders.onnx import holds_model
from recollect.cli.store_options import json_option, print_json
from recollect.errors import EmbedderError
from recollect.system.config.places import models_folders


@click.group()
def models() -> None:
    """List and download embedding models."""


@models.command("list")
@json_option
def list_(*, as_json: bool) -> None:
    """List the installed models, the models to download, and the choice of `auto`."""
    installed = [
        {
            "name": folder.name,
            "folder": str(folder),
            "bytes": sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
            "downloaded": bool(read_record(folder)),
        }
        for place in models_folders()
        for folder in (sorted(place.iterdir()) if place.is_dir() else ())
        if holds_model(folder)
    ]
    there = {model["name"] for model in installed}
    chosen = choose("auto", models=models_folders())
    if as_json:
        names = ("name", "repository", "megabytes", "languages", "licence")
        known_models = [
            {**{name: getattr(known, name) for name in names}, "installed": known.name in there}
            for known in KNOWN_MODELS.values()
        ]
        used = [embedder.name for embedder in chosen.embedders]
        print_json(
            {
                "folders": [str(folder) for folder in models_folders()],
                "installed": installed,
                "known": known_models,
                "auto": {"embedders": used, "said": chosen.said},
            }
        )
        return
    click.echo("installed")
    for model in installed:
        how = "" if model["downloaded"] else ", put there by hand"
        click.echo(f"  {model['name']}  {_megabytes(model['bytes'])}  {model['folder']}{how}")
    if not installed:
        click.echo(f"  none in {' or '.join(map(str, models_folders()))}")
    click.echo("can be downloaded")
    for known in KNOWN_MODELS.values():
        if known.name not in there:
            size = f"{known.megabytes} MB"
            click.echo(f"  {known.name}  {size}  {known.languages}  {known.licence}")
    click.echo(f"auto takes {chosen.said}")


@models.command("download")
@click.argument("name")
@click.option(
    "--from", "repository", metavar="OWNER/NAME[@REVISION]", help="A repository of the hub."
)
@click.option("--again", is_flag=True, help="Replace the installed model.")
@json_option
def download_(*, name: str, repository: str | None, again: bool, as_json: bool) -> None:
    """Download the model NAME and verify each of its files.

    After an interruption, complete files are not fetched again. HF_ENDPOINT names another hub.
    """
    if repository and repository.partition("@")[0].count("/") != 1:
        raise EmbedderError("--from takes OWNER/NAME of the hub, optionally with @REVISION")
    model = hub_model(name, repository)
    done = download(model, models_folders()[0], again=again, quiet=not sys.stderr.isatty())
    if as_json:
        print_json(
            {
                "name": done.name,
                "folder": str(done.folder),
                "bytes": done.size,
                "files": dict(done.files),
                "was_there": done.was_there,
            }
        )
        return
    came = "was there already" if done.was_there else "downloaded"
    click.echo(f"{done.name} {came} and verified: {_megabytes(done.size)} in {done.folder}")


def _megabytes(size: object) -> str:
    assert isinstance(size, int)
    return f"{size / 1_000_000:.1f} MB"
