"""Downloads a model into a folder of its own: all of it and verified, or not at all.

Owns which files make a model and when it is there. Blocking: for a command, never for a turn.
Always holds: the folder of a model appears in one step, when every file in it was verified;
what came before an interruption waits in `.parts`, where nothing looks for models, and is gone
on with by the next call. `model.json` says where each file came from.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import shutil
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, Literal, Self, TypeAlias, TypeVar

from recollect.errors import EmbedderError

# Which sentence-transformers can be downloaded by name, and of which files a model is made.
#
# A table, and nothing else. A checksum stands here only where it was confirmed from several
# sources; for all other files the hub's own is taken when they are downloaded.


GRAPH: Final = "model.onnx"
"""What a graph is called here, wherever its repository keeps it."""


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
"""By name."""


# Fetches one file over HTTP and proves that it is the right one.
#
# Owns requests, redirects, going on where a download stopped, and the checksum. Uses the standard
# library alone: a command that runs once a year is no reason for a dependency. Never opens anything
# but http and https, never goes from https to http. Always holds: a file that `fetch` returns is
# what its checksum says; one that is not is removed.


T = TypeVar("T")
Told: TypeAlias = Callable[[int, int | None], None]
"""Called with the bytes that are there and the bytes of the whole, None where nobody knows."""

_CHUNK_BYTES: Final = 1 << 17
_NO_END: Final = 1 << 60
_REDIRECTS: Final = 5
_SEVERAL: Final = (429, 500, 502, 503, 504)
_BROKEN: Final = (urllib.error.URLError, http.client.HTTPException, OSError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checksum:
    """What a file must be: a SHA-256, or the SHA-1 that git gives a file of this size."""

    kind: Literal["sha256", "git-blob"]
    hex: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.hex}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """A file as its server describes it."""

    url: str
    size: int | None
    checksum: Checksum
    commit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How often and how long a file is tried."""

    tries: int = 5
    timeout_seconds: float = 30.0
    wait_seconds: float = 1.0
    """Before the second try; it doubles."""


class NotThere(EmbedderError):  # noqa: N818 - an EmbedderError for whom it reaches
    """The server has no such file."""


def describe(url: str, patience: Patience) -> Remote:
    """What the hub says of a file; its checksum comes with the answer.

    A large file is answered by a redirect whose `X-Linked-Etag` is its SHA-256, a small one by
    itself with an `ETag` that is its SHA-1 in git (huggingface.co/docs/hub, `get_hf_file_metadata`
    of huggingface_hub).
    """
    at, commit = url, ""
    for _ in range(_REDIRECTS):
        headers, status = _asked(at, patience)
        commit = commit or headers.get("x-repo-commit", "")
        onward = urllib.parse.urljoin(at, headers.get("location", ""))
        # Small files and renamed repositories redirect within the hub, large files away from it.
        away = urllib.parse.urlsplit(onward).netloc != urllib.parse.urlsplit(at).netloc
        if not 300 <= status < 400 or "x-linked-etag" in headers or away:
            break
        _refuse_without_tls(at, onward)
        at = onward
    else:
        raise EmbedderError(f"{_shown(url)} redirects without end: check HF_ENDPOINT")
    linked = headers.get("x-linked-etag")
    tag = (linked or headers.get("etag", "")).removeprefix("W/").strip('"').lower()
    size = headers.get("x-linked-size") or (None if linked else headers.get("content-length"))
    return Remote(
        url=url,
        size=int(size) if size and size.isdigit() else None,
        checksum=_checksum(tag, url),
        commit=commit,
    )


def fetch(remote: Remote, part: Path, *, patience: Patience, told: Told) -> Path:
    """Fetch a file into `part`, going on with what is there already, and verify it."""
    wait = patience.wait_seconds
    for left in range(patience.tries - 1, -1, -1):
        failed = _go_on(remote, part, patience, told)
        if not failed:
            break
        if not left:
            raise EmbedderError(
                f"{_shown(remote.url)} {failed}: what came is kept, so the same command goes on "
                "from there"
            )
        time.sleep(wait)
        wait *= 2
    if not matches(part, remote.checksum):
        part.unlink()
        raise EmbedderError(
            f"{_shown(remote.url)} has not the checksum {remote.checksum}: it was removed; try "
            "again, and do not use a copy of it from there if it happens again"
        )
    return part


def matches(file: Path, checksum: Checksum) -> bool:
    """Whether the file is what the checksum says."""
    if checksum.kind == "sha256":
        digest = hashlib.sha256()
    else:
        # What git calls a blob: its own header, then the content.
        digest = hashlib.sha1(f"blob {file.stat().st_size}\0".encode(), usedforsecurity=False)
    with file.open("rb") as content:
        while chunk := content.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest() == checksum.hex.lower()


def _checksum(tag: str, url: str) -> Checksum:
    if re.fullmatch(r"[0-9a-f]{64}", tag):
        return Checksum(kind="sha256", hex=tag)
    if re.fullmatch(r"[0-9a-f]{40}", tag):
        return Checksum(kind="git-blob", hex=tag)
    raise EmbedderError(
        f"{_shown(url)} comes without a checksum: check HF_ENDPOINT, or give --from and --sha256"
    )


def _go_on(remote: Remote, part: Path, patience: Patience, told: Told) -> str:
    """Fetch what is missing; why it stopped, empty when all is there."""
    have = part.stat().st_size if part.exists() else 0
    if remote.size is not None and have >= remote.size:
        told(have, remote.size)
        return ""
    sent = {"Range": f"bytes={have}-"} if have else {}
    try:
        with _open(_request(remote.url, headers=sent), patience.timeout_seconds) as answer:
            if have and answer.status != 206:
                have = 0  # it does not continue, it starts over
            whole = remote.size or _whole(answer, have)
            told(have, whole)
            with _Disk(part, "ab" if have else "wb") as disk:
                # No more than was told, or a server that never ends would fill the disk.
                while chunk := answer.read(min(_CHUNK_BYTES, (remote.size or _NO_END) - have)):
                    disk.write(chunk)
                    have += len(chunk)
                    told(have, whole)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:  # there is nothing behind what we have: the checksum decides
            return ""
        if error.code not in _SEVERAL:
            raise _refused(remote.url, error.code) from None
        return f"answered {error.code}"
    except _BROKEN as error:
        return f"broke off ({type(error).__name__})"
    if whole is not None and have < whole:
        return f"ended after {have} of {whole} bytes"
    return ""


class _Disk:
    """A file to write, whose errors are told apart from those of the network."""

    def __init__(self, path: Path, mode: Literal["ab", "wb"]) -> None:
        self._path = path
        self._file = self._tried(lambda: path.open(mode))

    def write(self, chunk: bytes) -> None:
        """Write it all."""
        self._tried(lambda: self._file.write(chunk))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._tried(self._file.close)

    def _tried(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except OSError as error:
            raise EmbedderError(
                f"{self._path.parent} cannot be written ({error.strerror}): make room, or check "
                "its permissions"
            ) from error


def _whole(answer: http.client.HTTPResponse, have: int) -> int | None:
    length = answer.headers.get("Content-Length", "")
    return have + int(length) if length.isdigit() else None


def _asked(url: str, patience: Patience) -> tuple[Mapping[str, str], int]:
    """The headers and the status of an answer to HEAD, redirects not followed."""
    wait = patience.wait_seconds
    for left in range(patience.tries - 1, -1, -1):
        try:
            request = _request(url, method="HEAD")
            with _open(request, patience.timeout_seconds, follow=False) as answer:
                headers = {name.lower(): value for name, value in answer.headers.items()}
                return headers, answer.status
        except urllib.error.HTTPError as error:
            error.close()
            if error.code not in _SEVERAL or not left:
                raise _refused(url, error.code) from None
        except _BROKEN as error:
            if not left:
                raise EmbedderError(
                    f"{_shown(url)} cannot be reached ({type(error).__name__}): check the network "
                    "and HF_ENDPOINT"
                ) from error
        time.sleep(wait)
        wait *= 2
    raise AssertionError("tries is at least one")


def _refused(url: str, status: int) -> EmbedderError:
    if status in (404, 410):
        return NotThere(f"{_shown(url)} is not there ({status}): check the name")
    if status in (401, 403):
        return EmbedderError(f"{_shown(url)} is not public ({status}): download it by hand")
    return EmbedderError(f"{_shown(url)} answered {status}: try again later")


def _request(
    url: str, *, method: str = "GET", headers: Mapping[str, str] | None = None
) -> urllib.request.Request:
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise EmbedderError(f"{_shown(url)} is no http or https address")
    # The bytes as they are: a checksum is of the file, not of how it was packed on the way.
    sent = {"User-Agent": "recollect", "Accept-Encoding": "identity", **(headers or {})}
    return urllib.request.Request(url, method=method, headers=sent)  # noqa: S310 - checked above


def _refuse_without_tls(url: str, onward: str) -> None:
    if url.lower().startswith("https:") and not onward.lower().startswith("https:"):
        raise EmbedderError(f"{_shown(url)} redirects to an address without TLS")


class _Onward(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but never from https to http."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        _refuse_without_tls(req.full_url, newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _Stay(urllib.request.HTTPErrorProcessor):
    """Hands out a redirect as an answer of its own."""

    def http_response(self, request: Any, response: Any) -> Any:
        if 300 <= response.status < 400:
            return response
        return super().http_response(request, response)

    https_response = http_response


def _open(
    request: urllib.request.Request, timeout: float, *, follow: bool = True
) -> http.client.HTTPResponse:
    opener = urllib.request.build_opener(_Onward if follow else _Stay)
    answer = opener.open(request, timeout=timeout)
    assert isinstance(answer, http.client.HTTPResponse)
    return answer


def _shown(url: str) -> str:
    """An address without what may be secret in it: name, password and query."""
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit(
        (parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", "")
    )


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
