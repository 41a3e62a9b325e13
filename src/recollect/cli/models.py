"""`recollect models …`: lists the models on this machine and downloads one.

Nothing is downloaded except by `recollect models download`.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from recollect.adapters.embedders.choose import choose
from recollect.adapters.embedders.download import KNOWN_MODELS, download, hub_model, read_record
from recollect.adapters.embedders.onnx import holds_model
from recollect.errors import EmbedderError
from recollect.system.config.places import models_folders

_MEGABYTE = 1_000_000


@click.group()
def models() -> None:
    """List and download embedding models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """A model on this machine."""

    name: str
    folder: Path
    size: int
    """In bytes."""
    downloaded: bool
    """By `recollect models download`, which verified it, and not put there by hand."""


@models.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_(*, as_json: bool) -> None:
    """List the installed models, the models to download, and the choice of `auto`."""
    installed = _installed()
    chosen = choose("auto", models=models_folders())
    taken = [embedder.name for embedder in chosen.embedders]
    if as_json:
        found = _as_object(installed, taken, chosen.said)
        click.echo(json.dumps(found, ensure_ascii=False, indent=2))
        return
    click.echo("installed")
    for model in installed:
        how = "" if model.downloaded else ", put there by hand"
        click.echo(f"  {model.name}  {_megabytes(model.size)}  {model.folder}{how}")
    if not installed:
        click.echo(f"  none in {' or '.join(map(str, models_folders()))}")
    there = {model.name for model in installed}
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
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def download_(*, name: str, repository: str | None, again: bool, as_json: bool) -> None:
    """Download the model NAME and verify each of its files.

    After an interruption, complete files are not fetched again. HF_ENDPOINT names another hub.
    """
    if repository and repository.partition("@")[0].count("/") != 1:
        raise EmbedderError("--from takes OWNER/NAME of the hub, optionally with @REVISION")
    model = hub_model(name, repository)
    done = download(model, models_folders()[0], again=again, quiet=not sys.stderr.isatty())
    if as_json:
        shown = {
            "name": done.name,
            "folder": str(done.folder),
            "bytes": done.size,
            "files": dict(done.files),
            "was_there": done.was_there,
        }
        click.echo(json.dumps(shown, ensure_ascii=False, indent=2))
        return
    came = "was there already" if done.was_there else "downloaded"
    click.echo(f"{done.name} {came} and verified: {_megabytes(done.size)} in {done.folder}")


def _installed() -> list[Installed]:
    installeds = []
    for place in models_folders():
        folders = sorted(place.iterdir()) if place.is_dir() else []
        installeds += [_described(folder) for folder in folders if holds_model(folder)]
    return installeds


def _described(folder: Path) -> Installed:
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return Installed(
        name=folder.name, folder=folder, size=size, downloaded=bool(read_record(folder))
    )


def _as_object(installed: list[Installed], taken: list[str], text: str) -> dict[str, Any]:
    there = {model.name for model in installed}
    return {
        "folders": [str(folder) for folder in models_folders()],
        "installed": [
            {
                "name": model.name,
                "folder": str(model.folder),
                "bytes": model.size,
                "downloaded": model.downloaded,
            }
            for model in installed
        ],
        "known": [
            {
                "name": known.name,
                "repository": known.repository,
                "megabytes": known.megabytes,
                "languages": known.languages,
                "licence": known.licence,
                "installed": known.name in there,
            }
            for known in KNOWN_MODELS.values()
        ],
        "auto": {"embedders": taken, "said": text},
    }


def _megabytes(size: int) -> str:
    return f"{size / _MEGABYTE:.1f} MB"
