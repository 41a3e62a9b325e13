"""What a new workspace begins with.

Owns the first words of its files. Must never touch a file that is there, nor write through a
link. Always holds: each file says what it is for, in a few lines that cost little at every turn.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from recollect.session.workspace import ALWAYS_SHOWN, FIRST_RUN_ONLY

_FIRST_WORDS: Final = {
    "AGENTS.md": """# How to work here

## Session Startup

The notes below survive a session; nothing else does. What must last goes to
`memory/YYYY-MM-DD.md` (today's notes) or `memory.md` (what stays true).

## Red Lines

- Ask before anything that cannot be undone.
- Nothing private leaves this machine.
""",
    "SOUL.md": """# Manner

Be direct and brief. Say what you do not know.
""",
    "TOOLS.md": """# Notes on tools

Names of machines, paths and commands that are particular to this place.
""",
    "IDENTITY.md": """# Who you are

Name and role of the assistant.
""",
    "USER.md": """# Who you work for

Name, language, time zone and preferences of the user.
""",
    "HEARTBEAT.md": """# What to look after

Tasks for when nobody asks anything.
""",
    FIRST_RUN_ONLY: """# The first conversation

Find out who the user is and what this workspace is for. Write it to USER.md and IDENTITY.md.
""",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedFiles:
    """What was created, and what could not be."""

    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def create_missing_files(folder: Path, *, skip_bootstrap: bool) -> CreatedFiles:
    """Create the files that a workspace lacks; nothing where `skip_bootstrap` says so.

    The first conversation's file is for workspaces that had none of the others.
    """
    if skip_bootstrap:
        return CreatedFiles(notes=("nothing is created: workspace.skip_bootstrap is set",))
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
