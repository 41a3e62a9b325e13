"""Downloads a model into a folder of its own: all of it and verified, or not at all.

Owns which files make a model and when it is there. Blocking: for a command, never for a turn.
Always holds: the folder of a model appears in one step, when every file in it was verified;
what came before an interruption waits in `.parts`, where nothing looks for models, and is gone
on with by the next call. `model.json` says where each file came from.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from recollect.embedders.fetch import (
    Checksum,
    NotThere,
    Patience,
    Remote,
    Told,
    describe,
    fetch,
    matches,
)
from recollect.embedders.known_models import GRAPH, KNOWN_MODELS, HubModel, model_files
from recollect.errors import EmbedderError

HUB: Final = "https://huggingface.co"
HUB_VARIABLE: Final = "HF_ENDPOINT"
RECORD: Final = "model.json"
"""The file that says where a model came from."""
_PARTS: Final = ".parts"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SHA256: Final = re.compile(r"[0-9a-fA-F]{64}")

FileTold: TypeAlias = Callable[[str, int, int | None], None]
"""Called with a file's name, its bytes that are there, and those of the whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenFile:
    """A file by its address and its checksum, for models that are in no table."""

    url: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Downloaded:
    """What a download did."""

    name: str
    folder: Path
    files: Mapping[str, str]
    """Name to checksum."""
    size: int
    """Of all files, in bytes."""
    was_there: bool
    """Nothing was downloaded: the model was there, and is what it should be."""


def hub_model(name: str, repository: str | None = None) -> HubModel:
    """The known model of this name, or one of any `OWNER/NAME[@REVISION]` on the hub."""
    if repository is None:
        if name not in KNOWN_MODELS:
            raise EmbedderError(
                f"no model {name!r} is known: choose one of {', '.join(KNOWN_MODELS)}, or give "
                "--from OWNER/NAME of the hub, or --from URL with --sha256 for each of its files"
            )
        return KNOWN_MODELS[name]
    path, _, revision = repository.partition("@")
    return HubModel(name=name, repository=path, revision=revision or "main", files=model_files())


def download(
    model: HubModel,
    models: Path,
    *,
    told: FileTold = lambda *_: None,
    again: bool = False,
    patience: Patience | None = None,
) -> Downloaded:
    """Download a model of the hub; `again` replaces one that is there."""
    patience = patience or Patience()

    def wanted() -> Iterator[tuple[str, Remote]]:
        base = f"{hub_url()}/{urllib.parse.quote(model.repository)}"
        revision = urllib.parse.quote(model.revision, safe="")
        for file in model.files:
            url = f"{base}/resolve/{revision}/{urllib.parse.quote(file.path)}"
            try:
                remote = describe(url, patience)
            except NotThere:
                if not file.optional:
                    raise
                continue
            if file.sha256 is not None:
                remote = _pinned(remote, file.sha256)
            # The others are of the same commit, even if the branch moves on meanwhile.
            if re.fullmatch(r"[0-9a-f]{40}", remote.commit):
                revision = remote.commit
            yield file.name, remote

    source = {"repository": model.repository}
    return _placed(model.name, models, wanted, source, told, patience, again=again)


def download_given(
    name: str,
    files: Sequence[GivenFile],
    models: Path,
    *,
    told: FileTold = lambda *_: None,
    again: bool = False,
    patience: Patience | None = None,
) -> Downloaded:
    """Download a model by its files, given one by one; the one that ends in .onnx is its graph."""
    remotes: dict[str, Remote] = {}
    for file in files:
        if not _SHA256.fullmatch(file.sha256):
            raise EmbedderError("a SHA-256 has 64 hexadecimal digits: give one for each --from")
        last = urllib.parse.unquote(urllib.parse.urlsplit(file.url).path).rpartition("/")[2]
        kept = GRAPH if last.endswith(".onnx") else last
        if not _NAME.fullmatch(kept) or kept in remotes or kept == RECORD:
            raise EmbedderError(f"{last!r} cannot be the name of a file of its own in a model")
        checksum = Checksum(kind="sha256", hex=file.sha256.lower())
        remotes[kept] = Remote(url=file.url, size=None, checksum=checksum)
    if not {GRAPH, "tokenizer.json"} <= remotes.keys():
        raise EmbedderError(
            "a model needs a graph (.onnx) and tokenizer.json: give --from for both"
        )
    return _placed(
        name, models, lambda: iter(remotes.items()), {}, told, patience or Patience(), again=again
    )


def hub_url() -> str:
    """Where the hub is: `HF_ENDPOINT`, else its own address."""
    return (os.environ.get(HUB_VARIABLE) or HUB).rstrip("/")


def recorded(folder: Path) -> Mapping[str, str]:
    """Name to checksum of a model's files, as it was downloaded; empty where nobody knows."""
    try:
        told = json.loads((folder / RECORD).read_bytes())
    except (OSError, ValueError):
        return {}
    files = told.get("files") if isinstance(told, dict) else None
    return files if isinstance(files, dict) else {}


def _placed(
    name: str,
    models: Path,
    wanted: Callable[[], Iterator[tuple[str, Remote]]],
    source: Mapping[str, str],
    told: FileTold,
    patience: Patience,
    *,
    again: bool,
) -> Downloaded:
    if not _NAME.fullmatch(name):
        raise EmbedderError(f"{name!r} cannot be a model's name: use letters, digits, . _ and -")
    folder = models / name
    if folder.exists() and not again:
        return _as_it_is(name, folder)
    try:
        with _alone(models / _PARTS / name) as parts:
            return _fetched(name, folder, parts, wanted, source, told, patience)
    except OSError as error:
        raise EmbedderError(
            f"{models} cannot be written ({error.strerror}): make room, check its permissions, or "
            "set RECOLLECT_MODELS"
        ) from error


def _fetched(
    name: str,
    folder: Path,
    parts: Path,
    wanted: Callable[[], Iterator[tuple[str, Remote]]],
    source: Mapping[str, str],
    told: FileTold,
    patience: Patience,
) -> Downloaded:
    whole = parts / "whole"
    shutil.rmtree(whole, ignore_errors=True)
    came: dict[str, tuple[Remote, Path]] = {}
    for file, remote in wanted():
        # Named by what it must become, so that no half of one version is gone on with as another.
        part = parts / f"{remote.checksum.hex}.part"
        came[file] = (remote, fetch(remote, part, patience=patience, told=_of(told, file)))
    size = sum(part.stat().st_size for _, part in came.values())
    for file, (_, part) in came.items():
        (whole / file).parent.mkdir(parents=True, exist_ok=True)
        _linked(part, whole / file)
    files = {file: str(remote.checksum) for file, (remote, _) in came.items()}
    commit = next((remote.commit for remote, _ in came.values() if remote.commit), "")
    record = {"name": name, **source, **({"commit": commit} if commit else {}), "files": files}
    (whole / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    old = parts / "old"
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    try:
        whole.rename(folder)
    except BaseException:
        if old.exists() and not folder.exists():  # the model that was there stays there
            old.rename(folder)
        raise
    return Downloaded(name=name, folder=folder, files=files, size=size, was_there=False)


def _linked(part: Path, file: Path) -> None:
    """Not moved: two files of a model may be the same bytes, and so the same part."""
    try:
        os.link(part, file)
    except OSError:  # not every file system has links
        shutil.copyfile(part, file)


def _of(told: FileTold, file: str) -> Told:
    return lambda done, whole: told(file, done, whole)


def _pinned(remote: Remote, sha256: str) -> Remote:
    """The checksum of the table counts; where the hub tells another, nothing is downloaded."""
    ours = Checksum(kind="sha256", hex=sha256)
    if remote.checksum.kind == "sha256" and remote.checksum != ours:
        raise EmbedderError(
            f"the hub tells another checksum than Recollect knows for {remote.url}: nothing was "
            "downloaded; check HF_ENDPOINT, and update Recollect"
        )
    return Remote(url=remote.url, size=remote.size, checksum=ours, commit=remote.commit)


def _as_it_is(name: str, folder: Path) -> Downloaded:
    """A model that is there already; EmbedderError where it is not what was downloaded."""
    files = recorded(folder)
    wrong = [file for file, said in files.items() if not _still(folder / file, said)]
    if not files or wrong:
        why = f"{', '.join(wrong)} changed since" if wrong else "nobody knows where it came from"
        raise EmbedderError(f"{folder} is there, but {why}: --again replaces it")
    size = sum((folder / file).stat().st_size for file in files)
    return Downloaded(name=name, folder=folder, files=files, size=size, was_there=True)


def _still(file: Path, said: str) -> bool:
    kind, _, digits = said.partition(":")
    if not file.is_file() or kind not in ("sha256", "git-blob"):
        return False
    known = Checksum(kind="sha256" if kind == "sha256" else "git-blob", hex=digits)
    return matches(file, known)


@contextmanager
def _alone(parts: Path) -> Iterator[Path]:
    """The folder for parts, for one process at a time; it goes when all is done, or none came."""
    parts.mkdir(parents=True, exist_ok=True)
    lock = os.open(parts / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _lock(lock, parts.name)
        done = False
        try:
            yield parts
            done = True
        finally:
            if done or {one.name for one in parts.iterdir()} <= {"lock"}:
                shutil.rmtree(parts, ignore_errors=True)
    finally:
        os.close(lock)


def _lock(descriptor: int, name: str) -> None:
    try:
        import fcntl
    except ImportError:  # where there is none, two downloads at once end in a wrong checksum
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise EmbedderError(f"{name} is being downloaded by another process: wait for it") from None
