"""Fetches one file over HTTP and proves that it is the right one.

Owns requests, redirects, going on where a download stopped, and the checksum. Uses the standard
library alone: a command that runs once a year is no reason for a dependency. Never opens anything
but http and https, never goes from https to http. Always holds: a file that `fetch` returns is
what its checksum says; one that is not is removed.
"""

from __future__ import annotations

import hashlib
import http.client
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, Literal, Self, TypeAlias, TypeVar

from recollect.errors import EmbedderError

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
