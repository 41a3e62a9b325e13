"""What there is to import behind the paths somebody gives: files, folders, archives.

Owns which files are looked at. In a folder only what could be a recording is; a file that is
named is always tried. OpenClaw's three files are known by their names and go together.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Final

from recollect.errors import FormatError

SEGMENTS: Final = "segments.jsonl"
KNOWLEDGE: Final = "knowledge.jsonl"
VECTORS: Final = "vectors.bin"
OPENCLAW_FILES: Final = frozenset({SEGMENTS, KNOWLEDGE, VECTORS})
_LOOKED_AT: Final = (".jsonl", ".json", ".gz", ".tgz", ".tar", ".ndjson", ".traj", ".zst")
_ARCHIVES: Final = (".tgz", ".tar", ".tar.gz")
_SUFFIXES: Final = (".gz", ".jsonl", ".ndjson", ".json", ".tgz", ".tar", ".traj")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A file that may be a recording."""

    name: str
    """As it is told to people."""
    stem: str
    """What a session is called that has no name of its own."""
    modified_at: float
    read: Callable[[], bytes] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenclawFolder:
    """A folder with OpenClaw's files, or one of them by itself."""

    name: str
    folder: Path
    files: frozenset[str]


def find_sources(paths: tuple[Path, ...]) -> Iterator[Recorded | OpenclawFolder]:
    """Everything to be imported, in a settled order, each file once."""
    seen: set[Path] = set()
    for path in paths:
        for found in _within(path):
            where = found.resolve()
            if where not in seen:
                seen.add(where)
                yield from _source(found, path, seen)


def _within(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for file in sorted(path.rglob("*")):
        if file.is_file() and (file.name in OPENCLAW_FILES or _worth_trying(file.name)):
            yield file


def _worth_trying(name: str) -> bool:
    if "aider" in name and name.endswith(".md"):  # it has no reader, and that is to be told
        return True
    return not name.startswith(".") and name.lower().endswith(_LOOKED_AT)


def _source(file: Path, given: Path, seen: set[Path]) -> Iterator[Recorded | OpenclawFolder]:
    name = str(file.relative_to(given)) if given.is_dir() else file.name
    if file.name in OPENCLAW_FILES:
        beside = frozenset(one for one in OPENCLAW_FILES if (file.parent / one).is_file())
        # one file by itself is taken alone, but segments always with their vectors
        alone = frozenset({KNOWLEDGE}) if file.name == KNOWLEDGE else beside - {KNOWLEDGE}
        files = beside if given.is_dir() else alone
        seen.update((file.parent / one).resolve() for one in files)
        folder = str(Path(name).parent) if given.is_dir() else name
        yield OpenclawFolder(
            name=given.name if folder == "." else folder, folder=file.parent, files=files
        )
    elif file.name.lower().endswith(_ARCHIVES):
        yield from _members(file, name)
    else:
        yield Recorded(
            name=name,
            stem=stem_of(file.name),
            modified_at=file.stat().st_mtime,
            read=file.read_bytes,
        )


def _members(file: Path, name: str) -> Iterator[Recorded]:
    """The files of an archive, read into memory one by one."""
    try:
        with tarfile.open(file) as archive:
            for member in archive:
                if not (member.isfile() and _worth_trying(Path(member.name).name)):
                    continue
                opened = archive.extractfile(member)
                held = BytesIO(opened.read() if opened is not None else b"")
                yield Recorded(
                    name=f"{name}/{member.name}",
                    stem=stem_of(Path(member.name).name),
                    modified_at=float(member.mtime),
                    read=held.getvalue,
                )
    except (tarfile.TarError, OSError, EOFError) as problem:
        raise FormatError(f"{name} is a damaged archive: {problem}") from None


def stem_of(name: str) -> str:
    """A file's name without the endings that say how it is packed."""
    stem = name
    while stem.lower().endswith(_SUFFIXES) and Path(stem).stem:
        stem = Path(stem).stem
    return stem or name
