"""Forgetting in the daily notes of a workspace: lines that hold a forgotten text.

Owns which files those are: `memory/YYYY-MM-DD.md`, regular files inside the workspace that was
named. Must never change another file of the user, nor follow a link; where one of them holds the
text, that is told. Always holds: a note is whole at any moment, with the rights it had.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from recollect.memory.matching import compiled
from recollect.session.disk import read_all, replace_file
from recollect.session.forget_search import LEAST_CHARS
from recollect.session.workspace import LONG_TERM_NOTES, MOST_BYTES
from recollect.stores.spool.locks import same_file

_FOLDER: Final = "memory"
_LOCK_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.01
_DAILY: Final = re.compile(r"\d{4}-\d{2}-\d{2}\.md")


@dataclass(frozen=True, slots=True, kw_only=True)
class NotesForgotten:
    """What was done to the notes."""

    files: int = 0
    lines: int = 0
    unreached: tuple[str, ...] = field(default=(), repr=False)
    """Files that hold the text and stay, one line each with what to do."""


def forget_notes(
    workspace: Path,
    *,
    matching: str | None = None,
    pattern: str | None = None,
    said: Sequence[str] = (),
    only_look: bool = False,
) -> NotesForgotten:
    """Take lines out of a workspace's daily notes: those that hold the text, case aside, those
    that the pattern matches, and those that hold one of the messages `said` as a whole."""
    wanted = [] if matching is None else [matching.casefold()]
    wanted += [text.strip().casefold() for text in said if len(text.strip()) >= LEAST_CHARS]
    search = None if pattern is None else compiled(pattern)
    files = lines = 0
    unreached: list[str] = []
    try:
        root = workspace.resolve(strict=True)
        daily, others = note_files(root)
    except OSError as error:
        why = error.strerror or type(error).__name__
        told = f"the daily notes: the workspace could not be read ({why}); name another one"
        return NotesForgotten(unreached=(told,))
    for path in daily:
        try:
            removed = rewrite_note(
                path, lambda text: without_lines(text, wanted, search), only_look=only_look
            )
        except OSError as error:
            why = error.strerror or str(error)
            unreached.append(f"memory/{path.name}, a daily note, could not be rewritten: {why}")
            continue
        files += removed > 0
        lines += removed
    unreached += [
        _told(path, root, wanted, search) for path in others if _holds(path, wanted, search)
    ]
    return NotesForgotten(files=files, lines=lines, unreached=tuple(unreached))


def without_lines(
    text: str, wanted: Sequence[str], search: re.Pattern[str] | None = None
) -> tuple[str, int]:
    """The text without the lines that hold one of these folded texts, or a part of what a pattern
    matches, and how many went."""
    folded = text.casefold()
    wanted = [one for one in wanted if one and one in folded]
    gone = set(_matched_lines(text, search))
    if not wanted and not gone:
        return text, 0
    lines = text.split("\n")
    small = [line.casefold() for line in lines]
    for one in wanted:
        spans = one.count("\n") + 1
        for at in range(len(lines) - spans + 1):
            if one in "\n".join(small[at : at + spans]):
                gone.update(range(at, at + spans))
    return "\n".join([line for at, line in enumerate(lines) if at not in gone]), len(gone)


def _matched_lines(text: str, search: re.Pattern[str] | None) -> Iterator[int]:
    if search is None:
        return
    for match in search.finditer(text):
        first = text.count("\n", 0, match.start())
        yield from range(first, first + match[0].count("\n") + 1)


def note_files(root: Path) -> tuple[list[Path], list[Path]]:
    """The daily notes, and the other memory files, of a workspace."""
    daily: list[Path] = []
    others = [root / name for name in LONG_TERM_NOTES if (root / name).is_file()]
    folder = root / _FOLDER
    if not folder.is_dir():
        return daily, others
    if folder.is_symlink():
        return daily, [*others, *sorted(folder.glob("*.md"))]
    for path in sorted(folder.rglob("*.md")):
        mode = path.lstat().st_mode
        own = path.parent == folder and _DAILY.fullmatch(path.name) is not None
        (daily if own and stat.S_ISREG(mode) else others).append(path)
    return daily, list(_once(others))


def _once(paths: Sequence[Path]) -> Iterator[Path]:
    """Each file under one name: MEMORY.md and memory.md are one where case does not count."""
    seen: set[tuple[int, int]] = set()
    for path in paths:
        if not path.exists():
            continue
        there = path.stat()
        if (there.st_dev, there.st_ino) not in seen:
            seen.add((there.st_dev, there.st_ino))
            yield path


def rewrite_note(path: Path, change: Callable[[str], tuple[str, int]], *, only_look: bool) -> int:
    """Replace a note by what `change` makes of it; how much that says it changed."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not only_look:
            _lock(descriptor)
            if not same_file(descriptor, path):
                raise OSError("it was replaced meanwhile; forget once more")
        there = os.fstat(descriptor)
        text = read_all(descriptor).decode("utf-8", "surrogateescape")
        left, changed = change(text)
        if changed and not only_look:
            replace_file(path, left.encode("utf-8", "surrogateescape"))
            path.chmod(stat.S_IMODE(there.st_mode))
        return changed
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    """A flush holds it for one write; who holds it longer is told of."""
    until = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise OSError("another program holds it; end that and forget once more") from None
            time.sleep(_PAUSE_SECONDS)
        else:
            return


def _holds(path: Path, wanted: Sequence[str], search: re.Pattern[str] | None) -> bool:
    try:
        there = path.stat()
        if not stat.S_ISREG(there.st_mode) or there.st_size > MOST_BYTES:
            return False
        text = path.read_bytes().decode("utf-8", "replace")
    except OSError:
        return False
    return _is_meant(text, wanted, search)


def _is_meant(text: str, wanted: Sequence[str], search: re.Pattern[str] | None) -> bool:
    folded = text.casefold()
    if any(one in folded for one in wanted if one):
        return True
    return search is not None and search.search(text) is not None


def _told(path: Path, root: Path, wanted: Sequence[str], search: re.Pattern[str] | None) -> str:
    name = path.relative_to(root).as_posix()
    if _is_meant(name, wanted, search):
        name = "a memory file whose name holds the text"
    return f"{name} in the workspace, which is not a daily note: take it out there by hand"
