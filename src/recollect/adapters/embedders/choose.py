"""Chooses the embedders among those that are installed, without importing a heavy package.

"auto" never fails; it takes none if only hash is left, which finds no more than words do. Any other
name gives that embedder, or an error that names the fix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

from recollect.adapters.embedders.local import HashEmbedder, StaticEmbedder, package_folder
from recollect.adapters.embedders.onnx import EXTRA, FEATURE, PACKAGES, OnnxEmbedder, holds_model
from recollect.core.ports import Embedder
from recollect.errors import EmbedderError, MissingExtra

LocalName: TypeAlias = Literal[
    "auto", "hash", "static", "onnx", "onnx+static", "transformer", "none"
]

MEASURED_MODEL: Final = "all-MiniLM-L6-v2"
"""The model that our figures measure: preferred if there are several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenEmbedders:
    """The embedders to use, best first, and the explanation."""

    embedders: tuple[Embedder, ...]
    said: str
    """The choice and the reason, in one line for a person."""
    lacking: str = ""
    """The requested embedder that is missing, if that is no error."""


def choose(
    name: str,
    *,
    models: Sequence[Path],
    onnx_model: str | None = None,
    threads: int = 1,
    hash_instead: bool = False,
) -> ChosenEmbedders:
    """Return the embedders of this name; MissingExtra or EmbedderError if it is unavailable.

    `models` are folders that hold model folders; `onnx_model` is the name of one among them, or a
    path; `threads` is the number of cores a run of a graph may use. A missing "transformer" is no
    error: recall uses words alone, or `hash_instead`, as OpenClaw does.
    """
    if name not in get_args(LocalName):
        raise EmbedderError(
            f"there is no embedder {name!r} here: choose one of {', '.join(get_args(LocalName))}"
        )
    if name == "none":
        return ChosenEmbedders(embedders=(), said="none: recall goes by words alone")
    if name == "transformer":
        return _transformer(models, onnx_model, threads, hash_instead=hash_instead)
    if name == "auto":
        return _best(models, onnx_model, threads)
    embedders: list[Embedder] = []
    if name in ("onnx", "onnx+static"):
        embedders.append(_onnx(models, onnx_model, threads))
    if name in ("static", "onnx+static"):
        embedders.append(StaticEmbedder())
    return _choice_of(embedders or [HashEmbedder()], ())


def _transformer(
    models: Sequence[Path], onnx_model: str | None, threads: int, *, hash_instead: bool
) -> ChosenEmbedders:
    try:
        return _choice_of([_onnx(models, onnx_model, threads)], ())
    except (MissingExtra, EmbedderError) as error:
        instead = [HashEmbedder()] if hash_instead else []
        by = "by hash vectors" if hash_instead else "by words alone"
        lacking = f"no transformer: {error}"
        text = f"recall goes {by}; {lacking}"
        return ChosenEmbedders(embedders=tuple(instead), said=text, lacking=lacking)


def _best(models: Sequence[Path], onnx_model: str | None, threads: int) -> ChosenEmbedders:
    embedders: list[Embedder] = []
    lacking: list[str] = []
    try:
        embedders.append(_onnx(models, onnx_model, threads))
    except (MissingExtra, EmbedderError) as error:
        lacking.append(f"no onnx: {error}")
    try:
        embedders.append(StaticEmbedder())
    except (MissingExtra, EmbedderError) as error:
        lacking.append(f"no static: {error}")
    if not embedders:  # hash finds no more than words do, and takes space
        return ChosenEmbedders(
            embedders=(), said="; ".join(("recall goes by words alone", *lacking))
        )
    return _choice_of(embedders, lacking)


def _choice_of(embedders: Sequence[Embedder], lacking: Sequence[str]) -> ChosenEmbedders:
    names = " and ".join(embedder.name for embedder in embedders)
    return ChosenEmbedders(embedders=tuple(embedders), said="; ".join((names, *lacking)))


def _onnx(models: Sequence[Path], onnx_model: str | None, threads: int) -> OnnxEmbedder:
    if any(package_folder(package) is None for package in PACKAGES):
        raise MissingExtra(feature=FEATURE, extra=EXTRA)
    return OnnxEmbedder(_model_folder(models, onnx_model), threads=threads)


def _model_folder(models: Sequence[Path], onnx_model: str | None) -> Path:
    folders = [folder for place in models for folder in _folders(place) if holds_model(folder)]
    if onnx_model is not None:
        named = [folder for folder in folders if folder.name == onnx_model]
        path = named[0] if named else Path(onnx_model).expanduser()
        if not path.is_dir():
            raise EmbedderError(
                f"there is no ONNX model {onnx_model!r}: name a folder that holds model.onnx and "
                f"tokenizer.json{_listed(folders)}, or run `recollect models download "
                f"{MEASURED_MODEL}`"
            )
        return path
    if not folders:
        raise EmbedderError(
            f"no ONNX model is installed: run `recollect models download {MEASURED_MODEL}`"
        )
    return next(
        (folder for folder in folders if folder.name.startswith(MEASURED_MODEL)), folders[0]
    )


def _folders(place: Path) -> list[Path]:
    try:
        return sorted(path for path in place.iterdir() if path.is_dir())
    except OSError:  # not made yet, or not ours to read: no models there
        return []


def _listed(folders: Sequence[Path]) -> str:
    return f" ({', '.join(sorted({folder.name for folder in folders}))})" if folders else ""
