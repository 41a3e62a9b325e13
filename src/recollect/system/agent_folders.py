"""Where coding agents keep what is theirs, and which project a folder belongs to.

One place for both: hooks, the gateway's configuration and the import of histories must mean the
same files and the same memory. Reads the environment and looks at names, opens nothing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_PROJECT_MARKS: Final = (".git", "recollect.toml")


def project_space(cwd: str) -> str:
    """The memory of a folder: of the project that it belongs to, else its own."""
    folder = Path(cwd)
    for parent in (folder, *folder.parents):
        # a folder that may not be looked into has none of them
        if any(os.path.exists(parent / mark) for mark in _PROJECT_MARKS):  # noqa: PTH110
            return str(parent)
    return str(folder)


def claude_code_folder() -> Path:
    """Claude Code's settings and transcripts."""
    return _named("CLAUDE_CONFIG_DIR") or Path.home() / ".claude"


def codex_folder() -> Path:
    """Codex's configuration, hooks and rollouts."""
    return _named("CODEX_HOME") or Path.home() / ".codex"


def pi_folder() -> Path:
    """pi's models and sessions."""
    return _named("PI_CODING_AGENT_DIR") or Path.home() / ".pi" / "agent"


def openclaw_folder() -> Path:
    """OpenClaw's configuration and its agents."""
    return _named("OPENCLAW_STATE_DIR") or Path.home() / ".openclaw"


def _named(variable: str) -> Path | None:
    given = os.environ.get(variable)
    return Path(given).expanduser() if given else None
