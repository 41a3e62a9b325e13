"""Downloads a model into a folder of its own: all of it and verified, or not at all.

Owns which models are known by name, which files make a model and when it is there; the hub is asked
and bytes are fetched by huggingface_hub, which the extra `onnx` brings. Blocking: for a command,
never for a turn. No token is read or sent. Always holds: the folder of a model appears in one step,
when every file in it was verified; what came before an interruption waits in `.parts`, where
nothing looks for models, and is gone on with by the next call. `model.json` says where each file
came from.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

from recollect.embedders.local import imported
from recollect.errors import EmbedderError

GRAPH: Final = "model.onnx"
"""What a graph is called here, wherever its repository keeps it."""
HUB: Final = "https://huggingface.co"
HUB_VARIABLE: Final = "HF_ENDPOINT"
RECORD: Final = "model.json"
"""The file that says where a model came from."""
_PARTS: Final = ".parts"
_CHUNK_BYTES: Final = 1 << 17
_SERVER_TROUBLE: Final = (500, 502, 503, 504)
_PAUSES_SECONDS: Final = (1, 2, 4, 8)
"""Between tries of a file whose server is in trouble."""
_CLIENT_PACKAGES: Final = ("huggingface_hub", "httpx2", "httpcore2")
"""Whose logs hold whole addresses."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SHA256: Final = re.compile(r"[0-9a-fA-F]{64}")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")

FileProgress: TypeAlias = Callable[[str, int, int | None], None]
"""Called with a file's name, its bytes that are there, and those of the whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubFile:
    """A file of a repository on the hub."""

    path: str
    """In the repository."""
    kept_as: str = ""
    """In the model's folder; the same path unless told otherwise."""
    optional: bool = False
    """A repository may lack it."""
    sha256: str | None = None
    """None: the one that the hub tells."""

    @property
    def name(self) -> str:
        """Where it goes in the model's folder."""
        return self.kept_as or self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class HubModel:
    """A repository on the hub, and what is taken of it."""

    name: str
    """Of the model here: its folder's."""
    repository: str
    revision: str = "main"
    files: tuple[HubFile, ...] = field(repr=False)
    megabytes: int = 0
    """About how large the download is; 0 where nobody knows."""
    languages: str = ""
    licence: str = ""


_BESIDE: Final = (
    HubFile(path="sentence_bert_config.json", optional=True),
    HubFile(path="tokenizer_config.json", optional=True),
    HubFile(path="config_sentence_transformers.json", optional=True),
    HubFile(path="1_Pooling/config.json", optional=True),
)


def model_files(
    graph: str = "onnx/model.onnx",
    *,
    graph_sha256: str | None = None,
    tokenizer_sha256: str | None = None,
) -> tuple[HubFile, ...]:
    """What the onnx embedder reads of a sentence-transformer's repository."""
    return (
        HubFile(path=graph, kept_as=GRAPH, sha256=graph_sha256),
        HubFile(path="tokenizer.json", sha256=tokenizer_sha256),
        *_BESIDE,
    )


_MODELS: Final = (
    HubModel(
        name="all-MiniLM-L6-v2",
        repository="sentence-transformers/all-MiniLM-L6-v2",
        revision="1110a243fdf4706b3f48f1d95db1a4f5529b4d41",
        files=model_files(
            graph_sha256="6fd5d72fe4589f189f8ebc006442dbb529bb7ce38f8082112682524616046452",
            tokenizer_sha256="be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        ),
        megabytes=91,
        languages="English",
        licence="Apache-2.0",
    ),
    HubModel(
        name="bge-small-en-v1.5",
        repository="BAAI/bge-small-en-v1.5",
        files=model_files(),
        megabytes=134,
        languages="English",
        licence="MIT",
    ),
    HubModel(
        name="paraphrase-multilingual-MiniLM-L12-v2",
        repository="sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2",
        files=model_files(),
        megabytes=480,
        languages="more than 50",
        licence="Apache-2.0",
    ),
)

KNOWN_MODELS: Final[Mapping[str, HubModel]] = {model.name: model for model in _MODELS}
"""By name. A checksum stands here only where it was confirmed from several sources; for all other
files the hub's own is taken when they are downloaded."""


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
    model: HubModel, models: Path, *, progress: FileProgress = lambda *_: None, again: bool = False
) -> Downloaded:
    """Download a model of the hub; `again` replaces one that is there."""

    def wanted() -> Iterator[tuple[str, _RemoteFile]]:
        revision = model.revision
        for file in model.files:
            remote = _described(model.repository, file, revision)
            if remote is None:
                continue
            # The others are of the same commit, even if the branch moves on meanwhile.
            revision = remote.commit if _COMMIT.fullmatch(remote.commit) else revision
            yield file.name, remote

    return _placed(
        model.name, models, wanted, {"repository": model.repository}, progress, again=again
    )


def download_given(
    name: str,
    files: Sequence[GivenFile],
    models: Path,
    *,
    progress: FileProgress = lambda *_: None,
    again: bool = False,
) -> Downloaded:
    """Download a model by its files, given one by one; the one that ends in .onnx is its graph."""
    remotes: dict[str, _RemoteFile] = {}
    for file in files:
        if not _SHA256.fullmatch(file.sha256):
            raise EmbedderError("a SHA-256 has 64 hexadecimal digits: give one for each --from")
        last = urllib.parse.unquote(urllib.parse.urlsplit(file.url).path).rpartition("/")[2]
        kept = GRAPH if last.endswith(".onnx") else last
        if not _NAME.fullmatch(kept) or kept in remotes or kept == RECORD:
            raise EmbedderError(f"{last!r} cannot be the name of a file of its own in a model")
        remotes[kept] = _RemoteFile(url=file.url, checksum=f"sha256:{file.sha256.lower()}")
    if not {GRAPH, "tokenizer.json"} <= remotes.keys():
        raise EmbedderError(
            "a model needs a graph (.onnx) and tokenizer.json: give --from for both"
        )
    return _placed(name, models, lambda: iter(remotes.items()), {}, progress, again=again)


def hub_url() -> str:
    """Where the hub is: `HF_ENDPOINT`, else its own address."""
    return (os.environ.get(HUB_VARIABLE) or HUB).rstrip("/")


def recorded(folder: Path) -> Mapping[str, str]:
    """Name to checksum of a model's files, as it was downloaded; empty where nobody knows."""
    try:
        record = json.loads((folder / RECORD).read_bytes())
    except (OSError, ValueError):
        return {}
    files = record.get("files") if isinstance(record, dict) else None
    return files if isinstance(files, dict) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class _RemoteFile:
    """A file that is to be fetched, and what it must be."""

    url: str
    checksum: str
    """`sha256:…`, or `git-blob:…`, the SHA-1 that git gives a file of this size."""
    size: int | None = None
    commit: str = ""


class _Part:
    """A file being fetched: says how far it is, and takes no more than the hub said it has.

    Else a server that goes on and on would fill the disk before any checksum is looked at.
    """

    def __init__(self, file: BinaryIO, size: int | None, progress: Callable[[int], None]) -> None:
        self._file = file
        self._size = size
        self._told = progress
        self.seek, self.tell, self.truncate = file.seek, file.tell, file.truncate

    def write(self, chunk: bytes) -> None:
        """Write what belongs to the file; `_WholeError` where more comes."""
        left = len(chunk) if self._size is None else max(0, self._size - self._file.tell())
        self._file.write(chunk[:left])
        self._told(self._file.tell())
        if len(chunk) > left:
            raise _WholeError


class _WholeError(Exception):
    """The file is whole, and yet more is sent."""


def _described(repository: str, file: HubFile, revision: str) -> _RemoteFile | None:
    """A file as the hub describes it; None where it may be missing and is."""
    with _hub() as hub:
        url = hub.hf_hub_url(repository, file.path, revision=revision, endpoint=hub_url())
        with _told_plainly(url) as trouble:
            described = hub.get_hf_file_metadata(url, token=False, retry_on_errors=True)
    if trouble.status in (404, 410) and file.optional:
        return None
    if trouble.why:
        raise EmbedderError(trouble.why)
    kind = {64: "sha256", 40: "git-blob"}.get(len(described.etag or ""))
    if kind is None or not re.fullmatch(r"[0-9a-f]+", described.etag):
        raise EmbedderError(
            f"{_shown(url)} comes without a checksum: check HF_ENDPOINT, or give --from and "
            "--sha256"
        )
    ours = f"sha256:{file.sha256}" if file.sha256 is not None else f"{kind}:{described.etag}"
    if kind == "sha256" and ours != f"sha256:{described.etag}":
        raise EmbedderError(
            f"the hub tells another checksum than Recollect knows for {_shown(url)}: nothing was "
            "downloaded; check HF_ENDPOINT, and update Recollect"
        )
    return _RemoteFile(
        url=url, checksum=ours, size=described.size, commit=described.commit_hash or ""
    )


def _fetch(remote: _RemoteFile, part: Path, progress: Callable[[int, int | None], None]) -> Path:
    """Fetch a file into `part`, going on with what is there already, and verify it."""
    part.touch()
    with part.open("r+b") as file:
        progress(file.seek(0, os.SEEK_END), remote.size)
        trouble = _get(remote, _Part(file, remote.size, lambda done: progress(done, remote.size)))
    if trouble.why and trouble.status != 416:  # nothing is behind what we have: the sum decides
        raise EmbedderError(
            f"{trouble.why}; what came is kept, so the same command goes on from there"
        )
    if not _matches(part, remote.checksum):
        part.unlink()
        raise EmbedderError(
            f"{_shown(remote.url)} has not the checksum {remote.checksum}: it was removed; try "
            "again, and do not use a copy of it from there if it happens again"
        )
    return part


def _get(remote: _RemoteFile, into: _Part) -> _Trouble:
    """Get what is missing of a file; a server in trouble is asked again.

    The hub's client asks again by itself where a connection breaks, not where a server says 5xx.
    """
    trouble = _Trouble()
    with _hub() as hub:
        for pause in (*_PAUSES_SECONDS, None):
            have = into.tell()
            if remote.size is not None and have >= remote.size:
                break
            with _told_plainly(remote.url) as trouble:
                hub.http_get(
                    remote.url,
                    into,
                    resume_size=have,
                    # The bytes as they are: a checksum is of the file, not of how it was packed.
                    headers={"Accept-Encoding": "identity"},
                    expected_size=remote.size,
                    tqdm_class=partial(import_module("tqdm").tqdm, disable=True),
                )
            if pause is None or trouble.status not in _SERVER_TROUBLE:
                break
            time.sleep(pause)
    return trouble


@dataclass(slots=True)
class _Trouble:
    """Why the hub did not answer as it should; empty where it did."""

    why: str = ""
    status: int | None = None


@contextmanager
def _told_plainly(url: str) -> Iterator[_Trouble]:
    """Notes what goes wrong on the network; what goes wrong on the disk passes through."""
    import httpx2
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    shown = _shown(url)
    trouble = _Trouble()
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise EmbedderError(f"{shown} is no http or https address")
    try:
        yield trouble
    except _WholeError:
        pass
    except _PlainRedirectError:
        trouble.why = f"{shown} redirects from https to http, which is not followed"
    except HfHubHTTPError as error:
        trouble.status = error.response.status_code
        trouble.why = f"{shown} {_answered(trouble.status)}"
    except OfflineModeIsEnabled:
        trouble.why = f"{shown} is not asked while HF_HUB_OFFLINE is set: unset it to download"
    except httpx2.TooManyRedirects:
        trouble.why = f"{shown} redirects without end: check HF_ENDPOINT"
    except httpx2.HTTPError as error:
        name = type(error).__name__
        trouble.why = f"{shown} cannot be reached ({name}): check the network and HF_ENDPOINT"
    except OSError as error:
        if error.errno is not None:
            raise
        trouble.why = f"{shown} ended before its end"


def _answered(status: int) -> str:
    if status in (404, 410):
        return f"is not there ({status}): check the name"
    if status in (401, 403):
        return f"is not public ({status}): download it by hand"
    return f"answered {status}: try again later"


@contextmanager
def _hub() -> Iterator[Any]:
    """The hub's client: in this thread it logs no secret and never goes from https to http.

    Its session, log level and progress bars are the whole process's: nothing of them stays changed.
    """
    package = imported("huggingface_hub", feature="downloading a model", extra="onnx")
    hub = import_module("huggingface_hub.file_download")
    session = package.get_session()
    thread = threading.get_ident()
    quiet = _QuietLog(thread)
    names = [name for name in logging.root.manager.loggerDict if _package(name) in _CLIENT_PACKAGES]
    loggers = [logging.getLogger(name) for name in names]

    def refuse_plain(response: Any) -> None:
        if thread == threading.get_ident() and response.has_redirect_location:
            onward = response.url.join(response.headers["Location"])
            if response.url.scheme == "https" and onward.scheme != "https":
                raise _PlainRedirectError

    for logger in loggers:
        logger.addFilter(quiet)
    session.event_hooks["response"].append(refuse_plain)
    try:
        yield hub
    finally:
        with suppress(ValueError):
            session.event_hooks["response"].remove(refuse_plain)
        for logger in loggers:
            logger.removeFilter(quiet)


class _PlainRedirectError(Exception):
    """A server wants us to go on without TLS."""


class _QuietLog(logging.Filter):
    """Of one thread's requests lets only httpx2's own line through, without what may be secret."""

    def __init__(self, thread: int) -> None:
        super().__init__()
        self._thread = thread

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is logged; what the others log are headers, and what we say ourselves."""
        import httpx2

        if self._thread != threading.get_ident():
            return True
        if isinstance(record.args, tuple):
            record.args = tuple(
                _shown(str(given)) if isinstance(given, httpx2.URL) else given
                for given in record.args
            )
        return _package(record.name) == "httpx2"


def _package(name: str) -> str:
    return name.partition(".")[0]


def _shown(url: str) -> str:
    """An address without what may be secret in it: name, password and query."""
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit(
        (parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", "")
    )


def _matches(file: Path, checksum: str) -> bool:
    """Whether the file is what the checksum says."""
    kind, _, digits = checksum.partition(":")
    if not file.is_file() or kind not in ("sha256", "git-blob"):
        return False
    if kind == "sha256":
        digest = hashlib.sha256()
    else:  # what git calls a blob: its own header, then the content
        digest = hashlib.sha1(f"blob {file.stat().st_size}\0".encode(), usedforsecurity=False)
    with file.open("rb") as content:
        while chunk := content.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest() == digits


def _placed(
    name: str,
    models: Path,
    wanted: Callable[[], Iterator[tuple[str, _RemoteFile]]],
    source: Mapping[str, str],
    progress: FileProgress,
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
            return _fetched(name, folder, parts, wanted, source, progress)
    except OSError as error:
        raise EmbedderError(
            f"{models} cannot be written ({error.strerror}): make room, check its permissions, or "
            "set RECOLLECT_MODELS"
        ) from error


def _fetched(
    name: str,
    folder: Path,
    parts: Path,
    wanted: Callable[[], Iterator[tuple[str, _RemoteFile]]],
    source: Mapping[str, str],
    progress: FileProgress,
) -> Downloaded:
    whole = parts / "whole"
    shutil.rmtree(whole, ignore_errors=True)
    came: dict[str, tuple[_RemoteFile, Path]] = {}
    for file, remote in wanted():
        # Named by what it must become, so that no half of one version is gone on with as another.
        part = parts / f"{remote.checksum.partition(':')[2]}.part"
        came[file] = (remote, _fetch(remote, part, partial(progress, file)))
    size = sum(part.stat().st_size for _, part in came.values())
    for file, (_, part) in came.items():
        (whole / file).parent.mkdir(parents=True, exist_ok=True)
        _linked(part, whole / file)
    files = {file: remote.checksum for file, (remote, _) in came.items()}
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


def _as_it_is(name: str, folder: Path) -> Downloaded:
    """A model that is there already; EmbedderError where it is not what was downloaded."""
    files = recorded(folder)
    wrong = [file for file, checksum in files.items() if not _matches(folder / file, checksum)]
    if not files or wrong:
        why = f"{', '.join(wrong)} changed since" if wrong else "nobody knows where it came from"
        raise EmbedderError(f"{folder} is there, but {why}: --again replaces it")
    size = sum((folder / file).stat().st_size for file in files)
    return Downloaded(name=name, folder=folder, files=files, size=size, was_there=True)


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
            if done or {part.name for part in parts.iterdir()} <= {"lock"}:
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
