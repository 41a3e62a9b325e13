"""The names of our folders and files on this machine, and of other agents'. Opens nothing.

Data is in one folder, and the user's own settings in another; `RECOLLECT_HOME` moves both into one.
Two spaces never share a file, whatever their names look like.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from recollect.system.data_folder import absolute_path, data_folder

_SPOKEN_CHARS: Final = 40
_PROJECT_MARKS: Final = (".git", "recollect.toml")


def data_home() -> Path:
    """The folder of all data: `RECOLLECT_HOME`, else the platform's data folder."""
    return Path(data_folder())


def config_home() -> Path:
    """The folder of the user's settings: `RECOLLECT_HOME`, else the platform's config folder."""
    home = data_home()
    if os.environ.get("RECOLLECT_HOME"):
        return home
    import platformdirs  # slow to import, and a hook does without it

    return platformdirs.user_config_path("recollect", appauthor=False)


def user_settings_file() -> Path:
    """The user's own recollect.toml."""
    return config_home() / "recollect.toml"


def trust_folder() -> Path:
    """Where it is recorded which project files the user trusts."""
    return config_home() / "trusted"


def space_file(space: str) -> Path:
    """The SQLite file of a space."""
    return spaces_folder() / f"{file_name(space)}.db"


def spaces_folder() -> Path:
    """Where the files of spaces are."""
    return data_home() / "spaces"


def sessions_folder(space: str) -> Path:
    """The folder of a space's sessions; the space is what OpenClaw calls an agent."""
    return data_home() / "agents" / file_name(space) / "sessions"


def chat_history_file(space: str) -> Path:
    """What was typed in the chats of a space."""
    return sessions_folder(space) / "chat_history"


def remove_embedding_cache(store: Path, space: str) -> None:
    """Delete the vectors that an earlier version cached for the space of this file."""
    named = f"{space}\0{store.expanduser().resolve()}"
    for ending in ("", "-wal", "-shm", "-journal"):
        cache = data_home() / "embeddings" / f"{file_name(named)}.db{ending}"
        cache.unlink(missing_ok=True)


def spool_folder() -> Path:
    """Where batches wait that a store could not take."""
    return data_home() / "spool"


def mcp_token_file() -> Path:
    """Where the token is that clients of the MCP server bring over HTTP."""
    return data_home() / "mcp" / "token"


def installation_secret_file() -> Path:
    """The key of this installation's hashes; used unless RECOLLECT_SECRET is set."""
    return data_home() / "secret"


def models_folders() -> tuple[Path, ...]:
    """Where models are looked for, the first of which gets new ones: `RECOLLECT_MODELS` where
    it is set, then `models` in the folder of all data."""
    given = os.environ.get("RECOLLECT_MODELS")
    own = data_home() / "models"
    return (Path(absolute_path("RECOLLECT_MODELS", given)), own) if given else (own,)


def file_name(name: str) -> str:
    """A name as part of a file's name: readable, and different for different names."""
    from hashlib import blake2b  # slow to import, and an agent may wait for its hook

    spoken = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower()[:_SPOKEN_CHARS]
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    return f"{spoken}-{digest}" if spoken else digest


# Other agents


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
