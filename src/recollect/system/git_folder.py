"""Finds a folder's git repository, its origin and its first commit, without running `git`, which
may run programs that an unknown repository names.

Repositories arrive in archives, too. A `.git` file that leads to another folder therefore counts
only if that folder leads back to it."""

from __future__ import annotations

import hashlib
import os
import stat
import time
import zlib
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from recollect.system.durable import open_regular

MAX_FILE_BYTES: Final = 1 << 20
"""Not measured; links, references and commits are far smaller."""
MAX_INDEX_BYTES: Final = 64 << 20
"""Indexes of packs in memory: about two million objects. A larger history stays unknown."""
_COMMIT, _OFFSET_DELTA, _BASE_DELTA = 1, 6, 7
_PACK_STEP: Final = 4096  # one page of the system
_MAX_REFS: Final = 5  # git's own limit of symbolic references
_MAX_DEPTH: Final = 250
"""Deltas on deltas. git makes 50, and made 250 with `--aggressive` until version 2.11."""


@dataclass(frozen=True, slots=True)
class Repository:
    """A git repository on this machine."""

    folder: str
    """The folder that all worktrees share, such as `.git`."""
    top: str
    """The main worktree. For a bare repository, the folder that contains or is the repository."""
    is_linked: bool = False
    """True if it was found from one of the other worktrees."""


def find_repository(top: str) -> Repository | None:
    """Return the repository whose worktree, or bare folder, this is."""
    mark = os.path.join(top, ".git")
    try:
        mode = os.lstat(mark).st_mode
    except (OSError, ValueError):
        is_bare = _is_repository(top) and os.path.isdir(os.path.join(top, "refs"))
        return Repository(top, _top_of(top)) if is_bare else None
    try:
        if stat.S_ISDIR(mode):
            return Repository(mark, top) if _is_repository(mark) else None
        # a link could lead to any repository of the user
        return _find_linked_repository(top, mark) if stat.S_ISREG(mode) else None
    except (OSError, ValueError):
        return None


def _is_repository(folder: str) -> bool:
    head, objects = os.path.join(folder, "HEAD"), os.path.join(folder, "objects")
    return os.path.isfile(head) and os.path.isdir(objects)


def _find_linked_repository(top: str, mark: str) -> Repository | None:
    text = read_text(mark)
    if not text.startswith("gitdir:"):
        return None
    own_folder = os.path.realpath(os.path.join(top, text.removeprefix("gitdir:").strip()))
    if os.path.dirname(own_folder) == top:  # a bare repository in the project's own folder
        return Repository(own_folder, top) if _is_repository(own_folder) else None
    if os.path.exists(os.path.join(own_folder, "commondir")):
        common = os.path.realpath(
            os.path.join(own_folder, read_text(os.path.join(own_folder, "commondir")))
        )
        back = os.path.join(own_folder, read_text(os.path.join(own_folder, "gitdir")))
        belongs = os.path.dirname(own_folder) == os.path.join(common, "worktrees")
        if belongs and _is_repository(common) and _names_this(back, mark):
            return Repository(common, _top_of(common), is_linked=True)
        return None
    back = next(_config_values(own_folder, "core", "worktree"), "")
    is_submodule = back and os.path.samefile(os.path.join(own_folder, back), top)
    return Repository(own_folder, top) if is_submodule and _is_repository(own_folder) else None


def _names_this(path: str, file: str) -> bool:
    """Return True if the path names this file, maybe in other letters. A hard link to the file of
    another worktree is not named by it."""
    if os.path.realpath(path) == file:
        return True
    return os.path.samefile(path, file) and os.stat(file).st_nlink == 1


def _top_of(common: str) -> str:
    above, name = os.path.split(common)
    if name == ".git":
        return above
    text = _text_or_nothing(os.path.join(above, ".git"))
    named_folder = text.removeprefix("gitdir:").strip() if text.startswith("gitdir:") else ""
    is_top = named_folder and os.path.realpath(os.path.join(above, named_folder)) == common
    return above if is_top else common


def read_text(path: str) -> str:
    """Read a small file of a repository, which may be hostile. Raise OSError for anything else."""
    with open(path, "rb", opener=open_regular) as file:
        return file.read(MAX_FILE_BYTES).decode("utf-8", "surrogateescape").strip()


def _config_values(folder: str, section: str, key: str) -> Iterator[str]:
    current = ""
    for line in read_text(os.path.join(folder, "config")).splitlines():
        text = line.strip()
        if text.startswith("["):
            current = text.partition("]")[0].strip("[ ").casefold()
            continue
        name, equals, value = text.partition("=")
        if equals and current == section and name.strip().casefold() == key:
            yield value.strip().strip('"')


def read_origin(repository: Repository) -> str:
    """Return the address of the remote `origin`, without scheme, user and ending, or else ""."""
    try:
        url = next(_config_values(repository.folder, 'remote "origin"', "url"), "")
    except OSError:
        return ""
    scheme, has_scheme, address_rest = url.partition("://")
    if has_scheme and scheme != "file":
        host, _, path = address_rest.partition("/")
        host = host.rpartition("@")[2].partition(":")[0]
    elif not has_scheme and ":" in url.partition("/")[0]:
        host, _, path = url.partition(":")
        host = host.rpartition("@")[2]
    else:
        path = address_rest if has_scheme else url
        local_path = os.path.realpath(os.path.join(repository.top, path)) if path else ""
        return local_path.removesuffix("/.git")
    path = path.partition("?")[0].strip("/").removesuffix(".git")
    return f"{host.casefold()}/{path}" if path else ""


def first_commit(repository: Repository, *, seconds: float = 1.0) -> str:
    """Return the id of the first commit: the end of the chain of first parents. Return "" if it is
    unknown: no commit, a shallow clone, another storage format, or no end within `seconds`."""
    until = time.monotonic() + seconds
    folder = repository.folder
    try:
        shallow = _text_or_nothing(os.path.join(folder, "shallow")).split()
        commit, parent = "", _head(folder)
        with ExitStack() as closing:
            objects = _Objects(os.path.join(folder, "objects"), closing, until)
            while parent:
                if time.monotonic() > until or parent in shallow:
                    return ""
                commit, body = parent, objects.read(bytes.fromhex(parent))
                head = body.partition(b"\n\n")[0].split(b"\n")
                lines = (line[7:].decode("ascii") for line in head if line[:7] == b"parent ")
                parent = next(lines, "")
    except (OSError, ValueError, LookupError, zlib.error):
        return ""
    return commit


def _text_or_nothing(path: str) -> str:
    try:
        return read_text(path)
    except OSError:
        return ""


def _head(folder: str) -> str:
    text = read_text(os.path.join(folder, "HEAD"))
    for _ in range(_MAX_REFS):
        if not text.startswith("ref:"):
            break
        name = text.removeprefix("ref:").strip()
        text = _text_or_nothing(os.path.join(folder, name)) or _find_packed_ref(folder, name)
    return text if text and not text.startswith("ref:") else ""


def _find_packed_ref(folder: str, name: str) -> str:
    for line in _text_or_nothing(os.path.join(folder, "packed-refs")).splitlines():
        commit, _, packed_name = line.partition(" ")
        if packed_name == name:
            return commit
    return ""


class _Objects:
    """The objects of a repository, loose and packed, also those that it shares with others."""

    def __init__(self, folder: str, closing: ExitStack, until: float) -> None:
        self._until = until
        shared_paths = _text_or_nothing(os.path.join(folder, "info", "alternates")).splitlines()
        self._folders = [folder, *(os.path.join(folder, path) for path in shared_paths)]
        self._packs = list(self._open_packs(closing))

    def read(self, name: bytes) -> bytes:
        """Return the content of a commit. Raise LookupError if it is missing, and ValueError if its
        name is not its hash."""
        content = self._read(name)
        make_hash = hashlib.sha256 if len(name) == hashlib.sha256().digest_size else hashlib.sha1
        if make_hash(b"commit %d\0" % len(content) + content).digest() != name:
            raise ValueError("the commit has another name")
        return content

    def _read(self, name: bytes, depth: int = 0) -> bytes:
        for index, pack in self._packs:
            offset = _find_offset(index, name)
            if offset is not None:
                return self._read_at(pack.fileno(), offset, depth)
        for folder in self._folders:
            path = os.path.join(folder, name.hex()[:2], name.hex()[2:])
            if os.path.exists(path):
                with open(path, "rb", opener=open_regular) as file:
                    packed = file.read(MAX_FILE_BYTES)
                return zlib.decompressobj().decompress(packed, MAX_FILE_BYTES).partition(b"\0")[2]
        raise LookupError(name.hex())

    def _open_packs(self, closing: ExitStack) -> Iterator[tuple[bytes, BinaryIO]]:
        left_bytes = MAX_INDEX_BYTES
        for folder in self._folders:
            for path in sorted(Path(folder, "pack").glob("*.idx")):
                with open(path, "rb", opener=open_regular) as file:
                    index = file.read(left_bytes + 1)
                left_bytes -= len(index)
                if left_bytes < 0 or index[:8] != b"\xfftOc\0\0\0\2":
                    raise ValueError("the index of a pack is too large, or of another version")
                pack = open(path.with_suffix(".pack"), "rb", opener=open_regular)  # noqa: SIM115
                yield index, closing.enter_context(pack)

    def _read_at(self, descriptor: int, offset: int, depth: int) -> bytes:
        if depth > _MAX_DEPTH:
            raise ValueError("the object is based on too many others")
        head = os.pread(descriptor, _PACK_STEP, offset)
        kind, position = head[0] >> 4 & 7, 1
        while head[position - 1] & 0x80:
            position += 1
        if kind == _OFFSET_DELTA:
            distance = head[position] & 0x7F
            while head[position] & 0x80:
                position += 1
                distance = (distance + 1 << 7) | head[position] & 0x7F
            base = self._read_at(descriptor, offset - distance, depth + 1)
            position += 1
        elif kind == _BASE_DELTA:
            # names have 20 bytes; packs of SHA-256 repositories rarely have such deltas
            base = self._read(head[position : position + 20], depth + 1)
            position += 20
        elif kind == _COMMIT:
            return _unpack_at(descriptor, offset + position)
        else:
            raise ValueError("the object is no commit")
        return _apply_delta(base, _unpack_at(descriptor, offset + position), self._until)


def _unpack_at(descriptor: int, offset: int) -> bytes:
    unpacker, content, end = zlib.decompressobj(), b"", offset + MAX_FILE_BYTES
    while not unpacker.eof and len(content) < MAX_FILE_BYTES and offset < end:
        data = os.pread(descriptor, _PACK_STEP, offset)
        if not data:
            raise ValueError("the pack ends within an object")
        content += unpacker.decompress(data, MAX_FILE_BYTES)
        offset += len(data)
    return content


def _find_offset(index: bytes, name: bytes) -> int | None:
    """Find an object in the index of a pack (version 2)."""
    size, names = len(name), 8 + 1024

    def number(position: int, width: int = 4) -> int:
        return int.from_bytes(index[position : position + width], "big")

    count = number(8 + 4 * 255)
    low = number(8 + 4 * (name[0] - 1)) if name[0] else 0
    place = bisect_left(
        range(count),
        name,
        low,
        number(8 + 4 * name[0]),
        key=lambda i: index[names + size * i : names + size * (i + 1)],
    )
    if index[names + size * place : names + size * (place + 1)] != name or place >= count:
        return None
    offsets = names + (size + 4) * count
    offset = number(offsets + 4 * place)
    if offset >> 31:
        return number(offsets + 4 * count + 8 * (offset & 0x7FFFFFFF), 8)
    return offset


def _apply_delta(base: bytes, delta: bytes, until: float) -> bytes:
    position, content, size = 0, bytearray(), 0
    for _ in range(2):  # the size of the base, and that of the result
        size = shift = 0
        while (shift == 0 or delta[position - 1] & 0x80) and shift < 64:
            size |= (delta[position] & 0x7F) << shift
            position, shift = position + 1, shift + 7
    while position < len(delta):
        if len(content) > min(size, MAX_FILE_BYTES) or time.monotonic() > until:
            raise ValueError("the object is too large, or takes too long to read")
        code = delta[position]
        position += 1
        if not code & 0x80:
            content += delta[position : position + code]
            position += code
            continue
        values = []
        for bits in (range(4), range(4, 7)):
            value = 0
            for shift, bit in enumerate(bits):
                if code >> bit & 1:
                    value |= delta[position] << 8 * shift
                    position += 1
            values.append(value)
        start, length = values[0], values[1] or 0x10000
        content += base[start : start + length]
    return bytes(content)
