"""Reads the workspace's files for the system prompt, and creates the files of a new workspace.

Links out of the workspace are not followed, existing files are not changed, and no file can make a
function fail. A file over the limit is shortened, with a mark that reports what is missing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Final

from recollect.system.durable import read_inside

ALWAYS_SHOWN: Final = ("AGENTS.md", "SOUL.md", "TOOLS.md", "IDENTITY.md", "USER.md", "HEARTBEAT.md")
FIRST_RUN_ONLY: Final = "BOOTSTRAP.md"
LONG_TERM_NOTES: Final = ("MEMORY.md", "memory.md")
MAX_BYTES: Final = 16_000_000
"""A larger file is skipped with a note: a file of this size is not meant for the system prompt."""

_HEAD_PARTS: Final = 3  # a shortened file keeps 3/4 of its limit at the start, 1/4 at the end


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceFile:
    """A file as it appears in the system prompt."""

    name: str
    text: str = field(repr=False)
    raw: str = field(repr=False)
    """The whole text of the file on the disk."""

    @property
    def truncated(self) -> bool:
        """True if the system prompt contains only a part of the file."""
        return self.text != self.raw


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedWorkspace:
    """The files of a workspace, as they were at one moment."""

    files: tuple[WorkspaceFile, ...] = ()
    notes: tuple[str, ...] = ()
    """One sentence per file that exists but could not be included."""

    @property
    def project_context(self) -> str:
        """Join the files into one text for the system prompt; empty if there are none."""
        if not self.files:
            return ""
        sections = "\n\n".join(f"## {file.name}\n\n{file.text.strip()}" for file in self.files)
        return f"# Project Context\n\nThe workspace's files, as they are now.\n\n{sections}\n"


def load_workspace(
    folder: Path, *, max_chars: int, today: date, first_run: bool = False
) -> LoadedWorkspace:
    """Read the workspace's files as they are now. `today` is the date in the user's time zone."""
    try:
        root = folder.resolve(strict=True)
    except OSError as error:
        return LoadedWorkspace(notes=(f"the workspace could not be read: {error.strerror}",))
    files: list[WorkspaceFile] = []
    notes: list[str] = []
    seen: set[tuple[int, int]] = set()
    for name in _list_names(today, first_run=first_run):
        if not os.path.lexists(root / name):
            continue
        try:
            raw, file_status = read_inside(root, name, MAX_BYTES)
        except OSError as error:
            notes.append(f"{name} is left out: {error.strerror or error}")
            continue
        if (file_status.st_dev, file_status.st_ino) in seen:
            continue  # the same file under a second name, such as memory.md if case is ignored
        seen.add((file_status.st_dev, file_status.st_ino))
        text = raw.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n")
        if text.strip():
            short_text = shorten(text, max_chars, name=name)
            files.append(WorkspaceFile(name=name, text=short_text, raw=text))
    return LoadedWorkspace(files=tuple(files), notes=tuple(notes))


def _list_names(today: date, *, first_run: bool) -> Iterator[str]:
    yield from ALWAYS_SHOWN
    if first_run:
        yield FIRST_RUN_ONLY
    yield from LONG_TERM_NOTES
    for day in (today - timedelta(days=1), today):
        yield f"memory/{day:%Y-%m-%d}.md"


def shorten(text: str, max_chars: int, *, name: str) -> str:
    """Cut a text to its start and end, with a mark between them, within `max_chars`."""
    if len(text) <= max_chars:
        return text
    space_left = max_chars - len(_mark(len(text), name))
    if space_left <= 0:
        return text[:max_chars]
    head = space_left * _HEAD_PARTS // 4
    tail = space_left - head
    return text[:head] + _mark(len(text) - space_left, name) + text[len(text) - tail :]


def _mark(chars: int, name: str) -> str:
    return f"\n\n[… {chars} characters left out here; {name} has them …]\n\n"


_FIRST_WORDS: Final = {
    "AGENTS.md": """# How to work here

## Session Startup

Each session begins without the last one. These files are what lasts; what is only meant to be
remembered is gone. Read the notes of today and yesterday before you ask what was agreed.

## Where things are written down

- Somebody says "remember this": add it to today's notes, `memory/YYYY-MM-DD.md`.
- The user prefers something, or tells who they are: add it to `USER.md`.
- You learned how work goes better here: add it to `AGENTS.md`; of a tool, a machine or a
  command, to `TOOLS.md`.
- A fact will stay true (a decision, an address, a date that counts): add it to `memory.md`.

Add to these files and keep what they say; correct a line that is no longer true. Write what is
needed and no more, without passwords or keys. Say in a few words that you wrote it down.

## Red Lines

- Ask before anything that cannot be undone.
- Nothing private leaves this machine.
""",
    "SOUL.md": "# Manner\n\nBe direct and brief. Say what you do not know.\n",
    "TOOLS.md": "# Notes on tools\n\nNames of machines, paths and commands of this place.\n",
    "IDENTITY.md": "# Who you are\n\nName and role of the assistant.\n",
    "USER.md": "# Who you work for\n\nName, language, time zone and preferences of the user.\n",
    "HEARTBEAT.md": "# What to look after\n\nTasks for when nobody asks anything.\n",
    FIRST_RUN_ONLY: "# The first conversation\n\nFind out who the user is and what this workspace "
    "is for. Write it to USER.md and IDENTITY.md.\n",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedFiles:
    """The files that were created, and the failures."""

    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def create_missing_files(folder: Path) -> CreatedFiles:
    """Create the files that a workspace lacks. BOOTSTRAP.md, for the first conversation, is only
    created if all other files are missing."""
    is_new = not any(os.path.lexists(folder / name) for name in (*ALWAYS_SHOWN, FIRST_RUN_ONLY))
    names: list[str] = []
    notes: list[str] = []
    for name, words in _FIRST_WORDS.items():
        if name == FIRST_RUN_ONLY and not is_new:
            continue
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / name).open("x", encoding="utf-8", newline="\n") as file:
                file.write(words)
        except FileExistsError:
            continue
        except OSError as error:
            notes.append(f"{name} could not be created: {error.strerror}")
            continue
        names.append(name)
    return CreatedFiles(names=tuple(names), notes=tuple(notes))
