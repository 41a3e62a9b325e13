"""`recollect models …`: which models are on this machine, and downloading one.

Owns the commands: what is listed, how a download is shown. What a model is and how it is
verified is the embedders'. Always holds: nothing is downloaded but by `download`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from recollect.config.places import models_folders
from recollect.embedders.choose import choose
from recollect.embedders.download import (
    KNOWN_MODELS,
    Downloaded,
    FileProgress,
    GivenFile,
    download,
    download_given,
    hub_model,
    recorded,
)
from recollect.embedders.onnx import holds_model
from recollect.errors import EmbedderError

_MEGABYTE = 1_000_000


@click.group()
def models() -> None:
    """Which embedding models are here, and downloading one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """A model on this machine."""

    name: str
    folder: Path
    size: int
    """In bytes."""
    downloaded: bool
    """By this command, which verified it; else somebody put it there."""


@models.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_(*, as_json: bool) -> None:
    """What is installed and where, what can be downloaded, and what `auto` takes."""
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
    "--from",
    "sources",
    multiple=True,
    metavar="SOURCE",
    help="OWNER/NAME[@REVISION] of the hub, or the address of one file; may be repeated.",
)
@click.option(
    "--sha256",
    "sums",
    multiple=True,
    metavar="HEX",
    help="The checksum of each file given by its address, in the same order.",
)
@click.option("--again", is_flag=True, help="Replace the model where it is there already.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def download_(
    *, name: str, sources: tuple[str, ...], sums: tuple[str, ...], again: bool, as_json: bool
) -> None:
    """Download the model NAME and verify every file of it.

    What was interrupted goes on where it stopped. HF_ENDPOINT names another hub.
    """
    fetch = _asked_for(name, sources, sums, again=again)
    with _shown() as progress:
        done = fetch(progress)
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


def _asked_for(
    name: str, sources: tuple[str, ...], sums: tuple[str, ...], *, again: bool
) -> Callable[[FileProgress], Downloaded]:
    into = models_folders()[0]
    addresses = [source for source in sources if "://" in source]
    if addresses:
        if len(addresses) != len(sources) or len(sums) != len(sources):
            raise EmbedderError("every address of --from needs its own --sha256, in the same order")
        files = [
            GivenFile(url=url, sha256=sha256) for url, sha256 in zip(addresses, sums, strict=True)
        ]
        return lambda progress: download_given(name, files, into, progress=progress, again=again)
    if len(sources) > 1 or sums:
        raise EmbedderError("--sha256 and a second --from are for addresses of files")
    if sources and sources[0].partition("@")[0].count("/") != 1:
        raise EmbedderError("--from takes OWNER/NAME of the hub, or the address of a file")
    model = hub_model(name, sources[0] if sources else None)
    return lambda progress: download(model, into, progress=progress, again=again)


def _installed() -> list[Installed]:
    installeds = []
    for place in models_folders():
        folders = sorted(place.iterdir()) if place.is_dir() else []
        installeds += [_described(folder) for folder in folders if holds_model(folder)]
    return installeds


def _described(folder: Path) -> Installed:
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return Installed(name=folder.name, folder=folder, size=size, downloaded=bool(recorded(folder)))


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


@contextmanager
def _shown() -> Iterator[FileProgress]:
    """A bar a file on standard error, for somebody who watches."""
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TaskID,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    bars: dict[str, TaskID] = {}
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:

        def told(file: str, done: int, whole: int | None) -> None:
            if file not in bars:
                bars[file] = progress.add_task(file, total=whole)
            progress.update(bars[file], completed=done, total=whole)

        yield told


def _megabytes(size: int) -> str:
    return f"{size / _MEGABYTE:.1f} MB"
