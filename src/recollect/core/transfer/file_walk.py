"""Finds the files that Recollect follows for changes: a workspace's memory files, and paths in the
settings. A path in the settings is a file, a folder or a glob (with `**`), relative to the
workspace or `~`. Only names and sizes are read, in a thread. Symbolic links out of these paths are
not followed. A file is found once, loops end, and the number of names is limited. Every skipped
path is reported. If a folder cannot be listed, its files are not treated as deleted."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from recollect.core.rules.text import clean_text
from recollect.core.values.upkeep import SkippedFile

T = TypeVar("T")
Pattern: TypeAlias = tuple[str, ...]
"""Parts of a glob or of a path, one per name."""

_MAGIC = frozenset("*?[")

MAX_FILES = 5_000
"""Not measured; bounds a scan of a path that contains more than notes."""
MAX_BYTES = 2 * 1024 * 1024
"""Not measured; a larger Markdown file is more likely generated than written."""
MAX_ENTRIES = 200_000
"""Limit of the names that `find` lists, because a path in the settings may be a whole disk."""
_OWN_FILES = ("MEMORY.md", "memory.md")
_OWN_FOLDER = "memory"
_SUFFIX = ".md"


def _root_of(path_setting: str, workspace: Path) -> tuple[Path, Pattern]:
    """Return the resolved root of a path in the settings, and the glob below it (empty if none)."""
    path = workspace / os.path.expanduser(path_setting)  # noqa: PTH111 - never raises
    if not _MAGIC.intersection(path_setting) or os.path.lexists(path):
        return Path(os.path.realpath(path)), ()
    parts = path.parts
    fixed_count = next(index for index, part in enumerate(parts) if _MAGIC.intersection(part))
    return Path(os.path.realpath(Path(*parts[:fixed_count]))), parts[fixed_count:]


def _matches(names: Pattern, pattern: Pattern) -> bool:
    """Return whether a path or one of its parents matches: a glob includes whole folders. One row
    per name, from the last, takes linear time, also for a pattern with many `**`."""
    fits = [False] * len(pattern) + [True]  # whether the rest of the pattern fits these names
    for name in reversed(names):
        row = [True]
        for part, fits_here, fits_next in reversed([*zip(pattern, fits, fits[1:], strict=False)]):
            row.append(
                (row[-1] or fits_here) if part == "**" else fits_next and fnmatchcase(name, part)
            )
        fits = row[::-1]
    return fits[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFile:
    """A followed file, with its size and time when it was found."""

    path: Path
    label: str
    """Path relative to its workspace; for a file outside, an absolute path or one with `~`."""
    outside: bool
    device: int
    inode: int
    size: int
    mtime_ns: int


@dataclass(slots=True, kw_only=True)
class FoundFiles:
    """The files that were found, and the paths that were skipped."""

    files: list[FoundFile] = field(default_factory=list)
    skipped_files: list[SkippedFile] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    """Labels of files that are not followed as they are now, for example too large."""
    unlisted_folders: list[str] = field(default_factory=list)
    """Labels of folders that could not be listed. An empty label means all folders."""


class FollowedFiles:
    """The files of one workspace, and the paths that settings add."""

    def __init__(
        self, workspace: Path, extra_paths: Sequence[str] = (), *, own_files: bool = True
    ) -> None:
        """With `own_files`, follow `MEMORY.md`, `memory.md` and the folder `memory`."""
        self.workspace: Path = Path(os.path.realpath(workspace))
        self._own_files = own_files
        self._home = Path(os.path.realpath(os.path.expanduser("~")))  # noqa: PTH111 - never raises
        self._roots = tuple([_root_of(path, self.workspace) for path in extra_paths])

    def find(self) -> FoundFiles:
        """Find the files. Raise OSError only if the workspace itself cannot be listed."""
        if self._own_files or any(path.is_relative_to(self.workspace) for path, _ in self._roots):
            with os.scandir(self.workspace):
                pass
        walk = _FileWalk(self, (self.workspace, *(path for path, _ in self._roots)))
        if self._own_files:
            for name in _OWN_FILES:
                walk.name(self.workspace / name)
            walk.name(self.workspace / _OWN_FOLDER)
        for path, pattern in self._roots:
            walk.root(path, pattern)
        return walk.result

    def is_gone(self, label: str, files: FoundFiles, *, outside: bool) -> bool:
        """Return whether the stored sections of a file that was not found must be removed."""
        if label in files.refused:
            return True
        path = self._path_of(label, outside=outside)
        if outside:
            # another workspace may follow the file with another pattern, so require that it is
            # deleted
            roots = [root for root, _ in self._roots if path.is_relative_to(root)]
            return any(root.parent.exists() for root in roots) and _is_missing(path)
        listed = not any(
            not folder or label == folder or label.startswith(f"{folder}/")
            for folder in files.unlisted_folders
        )
        return listed or _is_missing(path)

    def is_within(self, label: str, *, outside: bool) -> bool:
        return self._path_of(label, outside=outside).is_relative_to(self.workspace)

    def label_of(self, path: Path) -> str:
        if path.is_relative_to(self.workspace):
            return clean_text(path.relative_to(self.workspace).as_posix())
        if path.is_relative_to(self._home):
            return clean_text(f"~/{path.relative_to(self._home).as_posix()}")
        return clean_text(path.as_posix())

    def _path_of(self, label: str, *, outside: bool) -> Path:
        if outside and label.startswith("~/"):
            return self._home / label[2:]
        return self.workspace / label


class _FileWalk:
    def __init__(self, followed_files: FollowedFiles, allowed_roots: Sequence[Path]) -> None:
        self._followed_files = followed_files
        self._allowed_roots = allowed_roots
        self.result = FoundFiles()
        self._files: set[object] = set()
        self._folders: set[tuple[int, int, Pattern]] = set()
        self._entries = 0
        self._full = False

    def root(self, path: Path, pattern: Pattern) -> None:
        """Add a path of the settings: a file of any suffix, a folder, or a pattern."""
        if pattern:
            self._walk(path, pattern)
        elif not self.name(path, any_suffix=True):
            self._skip(path, "it does not exist")

    def name(self, path: Path, *, any_suffix: bool = False) -> bool:
        """Add a file, or a folder with everything in it. Return False if nothing has this name."""
        if _is_missing(path):
            return False
        folder = self._visit(path, wanted=any_suffix or _is_markdown(path.name))
        if folder is not None:
            self._walk(folder)
        return True

    def _visit(self, path: Path, *, wanted: bool) -> Path | None:
        """Add a file if `wanted`. Return the folder if it must be searched."""
        try:
            real = self._follow_link(path) if path.is_symlink() else path
            if real is None:
                return None
            found_stat = real.stat()
        except OSError as error:
            self._report_unreadable(path, error)
            return None
        if stat.S_ISDIR(found_stat.st_mode):
            return real
        if wanted:
            self._file(real, found_stat)
        return None

    def _walk(self, folder: Path, pattern: Pattern = ()) -> None:
        waiting: list[tuple[Path, Pattern]] = [(folder, ())]
        while waiting and not self._full:
            folder_path, above = waiting.pop()
            for entry in self._list_folder(folder_path, pattern):
                self._entries += 1
                if self._entries > MAX_ENTRIES:
                    self._end(f"more than {MAX_ENTRIES:,} names; the rest is not indexed")
                    break
                names = (*above, entry.name)
                is_wanted = _is_markdown(entry.name) and _matches(names, pattern)
                if is_wanted or _may_be_folder(entry):
                    inner = self._visit(Path(entry.path), wanted=is_wanted)
                    waiting += [] if inner is None else [(inner, names)]

    def _list_folder(self, folder: Path, pattern: Pattern) -> list[os.DirEntry[str]]:
        try:
            found_stat = folder.stat()
            place = (found_stat.st_dev, found_stat.st_ino, pattern)
            if place in self._folders:
                return []
            self._folders.add(place)
            with os.scandir(folder) as listing:
                entries = [entry for entry in listing if not entry.name.startswith(".")]
        except OSError as error:
            self._report_unreadable(folder, error)
            return []
        return sorted(entries, key=lambda entry: (entry.is_symlink(), entry.name))

    def _follow_link(self, link: Path) -> Path | None:
        """Return the target of a link; None (and report it) if the link must not be followed."""
        real = Path(os.path.realpath(link))
        if any(real.is_relative_to(root) for root in self._allowed_roots):
            return real
        self._skip(link, "it is a link out of the workspace; add its target to index.extra_paths")
        return None

    def _report_unreadable(self, path: Path, error: OSError) -> None:
        """Report an unreadable file. An unreadable file exists, so its sections are not removed."""
        if not _is_missing(path):
            self._skip(path, f"it cannot be read: {error.strerror or type(error).__name__}")
            self.result.unlisted_folders.append(self._followed_files.label_of(path))

    def _file(self, path: Path, found_stat: os.stat_result) -> None:
        label = self._followed_files.label_of(path)
        if not stat.S_ISREG(found_stat.st_mode):
            self._skip(path, "it is not a regular file")
            return
        # some network drives have no inode numbers, so compare names
        file_id = (
            (found_stat.st_dev, found_stat.st_ino) if found_stat.st_ino else os.path.normcase(path)
        )
        if file_id in self._files:
            return
        if found_stat.st_size > MAX_BYTES:
            self._skip(path, f"it is larger than {MAX_BYTES // 1024**2} MiB")
            self.result.refused.add(label)
            return
        if len(self._files) == MAX_FILES:
            self._end(f"there are more than {MAX_FILES:,} files; the rest is not indexed")
            return
        self._files.add(file_id)
        self.result.files.append(
            FoundFile(
                path=path,
                label=label,
                outside=not path.is_relative_to(self._followed_files.workspace),
                device=found_stat.st_dev,
                inode=found_stat.st_ino,
                size=found_stat.st_size,
                mtime_ns=found_stat.st_mtime_ns,
            )
        )

    def _end(self, reason: str) -> None:
        if not self._full:
            self._full = True
            self.result.skipped_files.append(
                SkippedFile(file=str(self._followed_files.workspace), reason=reason)
            )
            self.result.unlisted_folders.append("")

    def _skip(self, path: Path, reason: str) -> None:
        self.result.skipped_files.append(
            SkippedFile(file=self._followed_files.label_of(path), reason=reason)
        )


def _is_markdown(name: str) -> bool:
    return name.lower().endswith(_SUFFIX)


def _may_be_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return True


def _is_missing(path: Path) -> bool:
    """Return whether nothing exists at this path. A path that cannot be examined is not missing."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return True
    except OSError:
        return False
    return False


class ThreadRunner:
    """Runs blocking work in threads, one per call."""

    def __init__(self, seconds: float) -> None:
        """`seconds` limits each call."""
        self._seconds = seconds
        self._late: Future[Any] | None = None

    async def run(self, work: Callable[[], T]) -> T:
        """Return the result of `work`. Raise TimeoutError if `work` takes too long, or if an
        earlier call is still running."""
        if self._late is not None and not self._late.done():
            raise TimeoutError
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()

        def run() -> None:
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
                future.set_exception(error)

        threading.Thread(target=run, name="recollect-files", daemon=True).start()
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), self._seconds)
        finally:
            if not future.done():
                self._late = future
