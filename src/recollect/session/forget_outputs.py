"""Forgetting in the long outputs of commands, which lie beside a transcript.

Owns the files in `SESSION.outputs/`. An output that holds what is to be forgotten goes as a whole:
it is what a command printed, and its head and tail stand in the transcript. Must never follow a
link.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from recollect.session.forget_search import EntrySearch, MeantEntries


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputsForgotten:
    """What was done to the outputs of a session."""

    files: int = 0
    unreached: tuple[str, ...] = ()
    """Outputs that stay, one line each with what to do."""


def forget_outputs(
    folder: Path, meant: MeantEntries | None, *, only_look: bool = False
) -> OutputsForgotten:
    """Delete the outputs that hold what is meant; all of them, and the folder, for None."""
    if folder.is_symlink() or not folder.is_dir():
        return OutputsForgotten()
    search = None if meant is None else EntrySearch(meant)
    said = () if meant is None else meant.said
    files = 0
    unreached: list[str] = []
    for path in sorted(folder.iterdir()):
        try:
            if search is not None and not _is_meant(path, search, said):
                continue
            if not only_look:
                path.unlink()
            files += 1
        except OSError as error:
            why = error.strerror or type(error).__name__
            told = f"{folder.name}/{path.name}, a long output ({why}): delete it"
            unreached.append(told)
    if meant is None and not only_look and not unreached:
        shutil.rmtree(folder, ignore_errors=True)
    return OutputsForgotten(files=files, unreached=tuple(unreached))


def _is_meant(path: Path, search: EntrySearch, said: Sequence[str]) -> bool:
    """By its age, by what it holds, or because its result goes: that one names it."""
    if path.is_symlink():
        return False
    if search.is_timely(round(path.stat().st_mtime * 1000)):
        return True
    return any(path.name in text for text in said) or search.unread_line(path.read_bytes())
