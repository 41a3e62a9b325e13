"""Downloads an embedding model into its own folder, from a model hub, a mirror or a folder.

The download verifies each file next to the folder, and then renames the folder, so that Recollect
never loads an incomplete model. After an interruption, the next attempt continues where the last
one stopped. Functions block the calling thread. Recollect reads and sends no token of the hub."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from recollect.adapters.embedders.local import import_package
from recollect.adapters.embedders.onnx import EXTRA, FEATURE, OFFERED_MODEL
from recollect.errors import EmbedderError
from recollect.system.http import certificates

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with a file's name, the bytes that are there, and its size; 0 if that is unknown."""
HUB: Final = "https://huggingface.co"
RECORD: Final = "model.json"
"""Name of the file that records a downloaded model's repository, commit and checksums."""
_REQUIRED: Final = {"model.onnx": "onnx/model.onnx", "tokenizer.json": "tokenizer.json"}
_OPTIONAL: Final = (
    "sentence_bert_config.json",
    "tokenizer_config.json",
    "config_sentence_transformers.json",
    "1_Pooling/config.json",
)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_CHUNK_BYTES: Final = 1 << 18  # not measured
_CONNECT_SECONDS: Final = 10.0  # not measured; bounds a wait for a server that is down
_READ_SECONDS: Final = 20.0
"""A source that sends nothing for this long counts as broken. Not measured."""
_PAUSE_SECONDS: Final = 1.0
"""Pause before a broken download continues. Not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubModel:
    """A sentence-transformer with an ONNX graph, in a repository of a model hub."""

    name: str
    """The name of the model's folder on this machine."""
    repository: str
    revision: str = "main"
    files: Mapping[str, str] = field(default_factory=lambda: _REQUIRED, repr=False)
    """Path in the repository, by name in the folder."""
    checksums: Mapping[str, Sequence[str]] = field(default_factory=dict, repr=False)
    """SHA-256 of each accepted build, by name. Without checksums, the hub's own are used."""
    megabytes: int = 0
    """Approximate size of the download; 0 if unknown."""
    languages: str = ""
    license: str = ""


KNOWN_MODELS: Final[Mapping[str, HubModel]] = {
    model.name: model
    for model in (
        HubModel(
            name=OFFERED_MODEL,
            repository="Xenova/all-MiniLM-L6-v2",
            revision="751bff37182d3f1213fa05d7196b954e230abad9",
            files={**_REQUIRED, "model.onnx": "onnx/model_quantized.onnx"},
            checksums={  # first the hub's build, then the one of our figures (benchmarks.md)
                "model.onnx": (
                    "afdb6f1a0e45b715d0bb9b11772f032c399babd23bfc31fed1c170afc848bdb1",
                    "3fcf116957e0e378ca22a67629ba6416daa9a082319bd5776fdce456bf5f7ade",
                ),
                "tokenizer.json": (
                    "da0e79933b9ed51798a3ae27893d3c5fa4a201126cef75586296df9b4d2c62a0",
                    "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
                ),
            },
            megabytes=24,
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
    model: HubModel,
    models: Path,
    *,
    source: str | None = None,
    replaces: bool = False,
    progress: Progress = lambda _name, _done, _size: None,
) -> Downloaded:
    """Download a model into `models`. `source` is the URL of a hub or mirror, or a folder; the
    default is HF_ENDPOINT or the public hub. `again` replaces an installed model."""
    if not _NAME.fullmatch(model.name):
        raise EmbedderError(
            f"{model.name!r} is not a valid model name: use letters, digits, . _ and -"
        )
    folder = models / model.name
    if folder.exists() and not replaces:
        return _verify_installed(model.name, folder)
    parts = models / ".parts" / model.name
    try:
        parts.mkdir(parents=True, exist_ok=True)
        reader = _Source(_address(source), model, progress)
        try:
            commit, checksums = reader.checksums()
            files = {name: reader.fetch(name, parts, sums) for name, sums in checksums.items()}
        except reader.error_types as error:
            # without the error's text, which may quote the address
            raise EmbedderError(
                f"{reader.title} cannot be downloaded ({type(error).__name__}): check the network, "
                "or set recall.model_source to a mirror or a folder, then run `recollect models "
                f"download {model.name}`, which continues where this download stopped"
            ) from None
        return _install(model, parts, folder, files, commit)
    except OSError as error:
        raise EmbedderError(
            f"{error.filename or models} cannot be used ({error.strerror or error}): free some "
            "space, check its permissions, or set RECOLLECT_MODELS"
        ) from error


def source_to_show(source: str | None) -> str:
    """Return the source to show: a URL may contain a password."""
    return _address(source).rpartition("@")[2]


def _address(source: str | None) -> str:
    return source or os.environ.get("HF_ENDPOINT") or HUB


def read_record(folder: Path) -> Mapping[str, str]:
    """Read the checksums of a model from its `model.json`; empty if a user copied it by hand."""
    try:
        record = json.loads((folder / RECORD).read_bytes())
    except (OSError, ValueError):
        return {}
    files = record.get("files") if isinstance(record, dict) else None
    return files if isinstance(files, dict) else {}


class _Source:
    """Reads the files of one model from a hub, a mirror or a folder."""

    def __init__(self, source: str, model: HubModel, progress: Progress) -> None:
        self._model, self._progress = model, progress
        self._is_url = source.startswith(("http://", "https://"))
        self._root = source.rstrip("/") if self._is_url else str(Path(source).expanduser())
        self.title = f"{model.name} from {source_to_show(self._root)}"
        self.error_types: tuple[type[Exception], ...] = (ValueError,)  # no JSON, or no number
        if not self._is_url:
            return
        if os.environ.get("HF_HUB_OFFLINE", "0").lower() not in ("", "0", "false", "no", "off"):
            raise EmbedderError("HF_HUB_OFFLINE is set: unset it to download a model")
        self._http: Any = import_package("httpx2", feature=FEATURE, extra=EXTRA)
        self.error_types = (ValueError, self._http.HTTPError, self._http.InvalidURL)

    def checksums(self) -> tuple[str, Mapping[str, Sequence[str]]]:
        """Return the commit, and the accepted checksums of each file: the pinned ones or, for a
        model without them, those that the hub's API reports."""
        model = self._model
        if model.checksums:
            sums = {
                name: [f"sha256:{digest}" for digest in of] for name, of in model.checksums.items()
            }
            return model.revision, sums
        found, commit = {}, ""
        if self._is_url:
            address = f"api/models/{model.repository}/revision/{model.revision}?blobs=true"
            with self._get(address) as response:
                info = json.loads(response.read()) if response.is_success else {}
            with suppress(KeyError, TypeError, AttributeError):  # no answer of a hub's API
                commit = str(info["sha"])
                for file in info["siblings"]:
                    lfs = file.get("lfs")
                    checksum = f"sha256:{lfs['sha256']}" if lfs else f"git-blob:{file['blobId']}"
                    found[file["rfilename"]] = checksum
        if not found:
            raise EmbedderError(
                f"{self.title}: {model.repository} has no public revision {model.revision!r} "
                "there: check the name, or download it by hand"
            )
        files = {**model.files, **{path: path for path in _OPTIONAL if path in found}}
        if missing := [path for path in files.values() if path not in found]:
            raise EmbedderError(
                f"{self.title} has no {' and no '.join(missing)}: choose another model"
            )
        return commit, {name: [found[path]] for name, path in files.items()}

    def fetch(self, name: str, parts: Path, checksums: Sequence[str]) -> str:
        """Download a file into `parts`, or the rest of it. Return its checksum."""
        part = parts / name
        part.parent.mkdir(parents=True, exist_ok=True)
        while not (matching := [checksum for checksum in checksums if _matches(part, checksum)]):
            is_continued = _file_size(part) > 0
            while not self._write_rest(name, part):
                time.sleep(_PAUSE_SECONDS)
            if not any(_matches(part, checksum) for checksum in checksums):
                digits = hashlib.sha256(part.read_bytes()).hexdigest()
                part.unlink()
                if not is_continued:  # otherwise the first bytes may be of another build
                    raise EmbedderError(
                        f"{name} of {self.title} has the SHA-256 {digits}, not the checksum "
                        f"{' or '.join(checksums)}, and was removed: try again; if it happens "
                        "again, set recall.model_source to another source"
                    )
        return matching[0]

    def _write_rest(self, name: str, part: Path) -> bool:
        """Return False if the connection broke after new bytes, so that another attempt helps."""
        model = self._model
        addresses = [f"{model.repository}/resolve/{model.revision}/{model.files.get(name, name)}"]
        if model.checksums:  # they show whether a file from a mirror's own folders is the right one
            addresses += [f"{model.name}/{name}", name]
        size = _file_size(part)
        try:
            if not any(self._copy(address, name, part) for address in addresses):
                raise EmbedderError(f"{self.title} has no {name}: check recall.model_source")
        except self.error_types:
            if _file_size(part) <= size:
                raise
            return False
        return True

    def _copy(self, address: str, name: str, part: Path) -> bool:
        """Write the file at an address, or its rest. Return False if there is none."""
        if not self._is_url:
            path = Path(self._root) / address
            return path.is_file() and shutil.copyfile(path, part) is not None
        offset = _file_size(part)
        with self._get(address, **({"range": f"bytes={offset}-"} if offset else {})) as response:
            if response.status_code in (401, 404):  # the hub answers 401 for unknown names
                return False
            if response.status_code == 416:  # more is there than the file has
                part.write_bytes(b"")
                return True
            response.raise_for_status()
            is_rest = response.status_code == 206
            size = int(response.headers.get("content-length", 0)) + offset * is_rest
            with part.open("ab" if is_rest else "wb") as file:
                for chunk in response.iter_raw(_CHUNK_BYTES):
                    file.write(chunk)
                    self._progress(name, file.tell(), size)
        return True

    def _get(self, address: str, **headers: str) -> Any:
        return self._http.stream(
            "GET",
            f"{self._root}/{address}",
            headers={"accept-encoding": "identity", **headers},  # ranges count the file's own bytes
            timeout=self._http.Timeout(_READ_SECONDS, connect=_CONNECT_SECONDS),
            verify=certificates(),
            follow_redirects=True,
        )


def _file_size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _install(
    model: HubModel, parts: Path, folder: Path, files: Mapping[str, str], commit: str
) -> Downloaded:
    new_folder, old_folder = (
        parts.with_name(f"{model.name}.whole"),
        parts.with_name(f"{model.name}.old"),
    )
    for leftover in (new_folder, old_folder):
        shutil.rmtree(leftover, ignore_errors=True)
    for name in files:
        (new_folder / name).parent.mkdir(parents=True, exist_ok=True)
        (parts / name).rename(new_folder / name)
    record = {"name": model.name, "repository": model.repository, "commit": commit, "files": files}
    (new_folder / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    if folder.exists():
        folder.rename(old_folder)
    try:
        new_folder.rename(folder)
    except BaseException:
        if old_folder.exists() and not folder.exists():  # restore the installed model
            old_folder.rename(folder)
        raise
    for leftover in (parts, old_folder):
        shutil.rmtree(leftover, ignore_errors=True)
    return Downloaded(
        name=model.name, folder=folder, files=files, size=_size(folder, files), was_there=False
    )


def _verify_installed(name: str, folder: Path) -> Downloaded:
    files = read_record(folder)
    wrong = [file for file, checksum in files.items() if not _matches(folder / file, checksum)]
    if not files or wrong:
        reason = (
            f"{', '.join(wrong)} changed after the download"
            if wrong
            else "Recollect did not download it"
        )
        raise EmbedderError(f"{folder} exists, but {reason}: pass --again to replace it")
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
