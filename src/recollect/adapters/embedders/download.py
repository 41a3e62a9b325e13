"""Downloads an embedding model from the Hugging Face hub into its own folder.

The download verifies each file in a temporary folder, and then renames the folder, so that
Recollect never loads an incomplete model. Functions block the calling thread. Recollect reads and
sends no access token of the hub."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from recollect.adapters.embedders.local import import_package
from recollect.errors import EmbedderError

HUB: Final = "https://huggingface.co"
RECORD: Final = "model.json"
"""Name of the file that records a downloaded model's repository, commit and checksums."""
_GRAPH: Final = "onnx/model.onnx"
_REQUIRED: Final = (_GRAPH, "tokenizer.json")
_OPTIONAL: Final = (
    "sentence_bert_config.json",
    "tokenizer_config.json",
    "config_sentence_transformers.json",
    "1_Pooling/config.json",
)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_CHUNK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class HubModel:
    """A sentence-transformer on the Hugging Face hub that has an ONNX graph."""

    name: str
    """The name of the model's folder on this machine."""
    repository: str
    revision: str = "main"
    checksums: Mapping[str, str] = field(default_factory=dict, repr=False)
    """SHA-256 by path, if several sources confirm it; other files have the hub's checksum."""
    megabytes: int = 0
    """Approximate size of the download; 0 if unknown."""
    languages: str = ""
    license: str = ""


KNOWN_MODELS: Final[Mapping[str, HubModel]] = {
    model.name: model
    for model in (
        HubModel(
            name="all-MiniLM-L6-v2",
            repository="sentence-transformers/all-MiniLM-L6-v2",
            revision="1110a243fdf4706b3f48f1d95db1a4f5529b4d41",
            checksums={
                _GRAPH: "6fd5d72fe4589f189f8ebc006442dbb529bb7ce38f8082112682524616046452",
                "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611"
                "b2561a3a27eeab05e5aa30f411572037",
            },
            megabytes=91,
            languages="English",
            license="Apache-2.0",
        ),
        HubModel(
            name="bge-small-en-v1.5",
            repository="BAAI/bge-small-en-v1.5",
            megabytes=134,
            languages="English",
            license="MIT",
        ),
        HubModel(
            name="paraphrase-multilingual-MiniLM-L12-v2",
            repository="sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2",
            megabytes=480,
            languages="more than 50",
            license="Apache-2.0",
        ),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Downloaded:
    """The result of a download."""

    name: str
    folder: Path
    files: Mapping[str, str]
    """Checksum by name."""
    size: int
    """Size of all files, in bytes."""
    was_there: bool
    """True if the model was installed and unchanged, so that Recollect downloaded nothing."""


def hub_model(name: str, repository: str | None = None) -> HubModel:
    """Return the known model `name`, or that of the hub's `repository`, OWNER/NAME[@REVISION]."""
    if repository is not None:
        path, _, revision = repository.partition("@")
        return HubModel(name=name, repository=path, revision=revision or "main")
    if name not in KNOWN_MODELS:
        raise EmbedderError(
            f"{name!r} is not a known model: choose one of {', '.join(KNOWN_MODELS)}, or name "
            "a Hugging Face repository with --from OWNER/NAME"
        )
    return KNOWN_MODELS[name]


def download(
    model: HubModel, models: Path, *, again: bool = False, quiet: bool = True
) -> Downloaded:
    """Download a model into `models`. `again` replaces an installed model; `quiet` hides output."""
    if not _NAME.fullmatch(model.name):
        raise EmbedderError(
            f"{model.name!r} is not a valid model name: use letters, digits, . _ and -"
        )
    folder = models / model.name
    if folder.exists() and not again:
        return _verify_installed(model.name, folder)
    parts = models / ".parts" / model.name
    try:
        parts.mkdir(parents=True, exist_ok=True)
        checksums, commit = _fetch(model, parts, quiet=quiet)
        return _install(model, parts, folder, checksums, commit)
    except OSError as error:
        raise EmbedderError(
            f"{models} cannot be written ({error.strerror or error}): free some space, check its "
            "permissions, or set RECOLLECT_MODELS"
        ) from error


def read_record(folder: Path) -> Mapping[str, str]:
    """Read the checksums of a model from its `model.json`; empty if a user copied it by hand."""
    try:
        record = json.loads((folder / RECORD).read_bytes())
    except (OSError, ValueError):
        return {}
    files = record.get("files") if isinstance(record, dict) else None
    return files if isinstance(files, dict) else {}


def _fetch(model: HubModel, parts: Path, *, quiet: bool) -> tuple[dict[str, str], str]:
    hub: Any = import_package("huggingface_hub", feature="downloading a model", extra="onnx")
    import httpx2
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if quiet:
        disable_progress_bars()
    endpoint = (os.environ.get("HF_ENDPOINT") or HUB).rstrip("/")
    shown = f"{model.repository} of {endpoint.rpartition('@')[2]}"
    problem = ""
    try:
        info = hub.HfApi(endpoint=endpoint, token=False).model_info(
            model.repository, revision=model.revision, files_metadata=True
        )
        checksums = {
            file.rfilename: f"sha256:{file.lfs.sha256}" if file.lfs else f"git-blob:{file.blob_id}"
            for file in info.siblings or ()
            if file.rfilename in (*_REQUIRED, *_OPTIONAL)
        }
        if missing := [path for path in _REQUIRED if path not in checksums]:
            raise EmbedderError(f"{shown} has no {' and no '.join(missing)}: choose another model")
        checksums |= {path: f"sha256:{digits}" for path, digits in model.checksums.items()}
        hub.snapshot_download(
            model.repository,
            revision=info.sha,
            allow_patterns=list(checksums),
            local_dir=parts,
            endpoint=endpoint,
            token=False,
        )
    except hub.errors.OfflineModeIsEnabled:
        problem = "is not contacted while HF_HUB_OFFLINE is set: unset it to download"
    except hub.errors.RepositoryNotFoundError:
        problem = "does not exist or is not public: check the name, or download it by hand"
    except hub.errors.RevisionNotFoundError:
        problem = f"has no revision {model.revision!r}"
    except (
        hub.errors.HfHubHTTPError,
        hub.errors.LocalEntryNotFoundError,
        httpx2.HTTPError,
    ) as error:
        problem = (
            f"cannot be downloaded ({type(error).__name__}): check the network and HF_ENDPOINT, "
            "then run the same command again; complete files are not fetched twice"
        )
    else:
        return checksums, info.sha
    # Raise here, because the hub's own error may quote the address.
    raise EmbedderError(f"{shown} {problem}")


def _install(
    model: HubModel, parts: Path, folder: Path, checksums: Mapping[str, str], commit: str
) -> Downloaded:
    for path, checksum in checksums.items():
        if not _matches(parts / path, checksum):
            shutil.rmtree(parts, ignore_errors=True)
            raise EmbedderError(
                f"{path} of {model.repository} does not have the checksum {checksum} and was "
                "removed: try again; if it happens again, do not use that hub"
            )
    whole, old = parts.with_name(f"{model.name}.whole"), parts.with_name(f"{model.name}.old")
    for leftover in (whole, old):
        shutil.rmtree(leftover, ignore_errors=True)
    files = {path.removeprefix("onnx/"): checksum for path, checksum in checksums.items()}
    for path in checksums:
        target = whole / path.removeprefix("onnx/")
        target.parent.mkdir(parents=True, exist_ok=True)
        (parts / path).rename(target)
    record = {"name": model.name, "repository": model.repository, "commit": commit, "files": files}
    (whole / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    if folder.exists():
        folder.rename(old)
    try:
        whole.rename(folder)
    except BaseException:
        if old.exists() and not folder.exists():  # restore the installed model
            old.rename(folder)
        raise
    for leftover in (parts, old):
        shutil.rmtree(leftover, ignore_errors=True)
    return Downloaded(
        name=model.name, folder=folder, files=files, size=_size(folder, files), was_there=False
    )


def _verify_installed(name: str, folder: Path) -> Downloaded:
    files = read_record(folder)
    wrong = [file for file, checksum in files.items() if not _matches(folder / file, checksum)]
    if not files or wrong:
        why = (
            f"{', '.join(wrong)} changed after the download"
            if wrong
            else "Recollect did not download it"
        )
        raise EmbedderError(f"{folder} exists, but {why}: pass --again to replace it")
    return Downloaded(
        name=name, folder=folder, files=files, size=_size(folder, files), was_there=True
    )


def _size(folder: Path, files: Mapping[str, str]) -> int:
    return sum((folder / file).stat().st_size for file in files)


def _matches(file: Path, checksum: str) -> bool:
    kind, _, digits = checksum.partition(":")
    if not file.is_file() or kind not in ("sha256", "git-blob"):
        return False
    if kind == "sha256":
        digest = hashlib.sha256()
    else:  # git hashes a header before the content
        digest = hashlib.sha1(f"blob {file.stat().st_size}\0".encode(), usedforsecurity=False)
    with file.open("rb") as content:
        while chunk := content.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest() == digits
