"""Paths of Recollect's folders and files on this machine, and of other agents' folders.

`RECOLLECT_HOME` moves data and settings into one folder. Two spaces never share a file."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from recollect.system.data_folder import absolute_path, data_folder

_SPOKEN_CHARS: Final = 40  # not measured; file systems limit names to 255 bytes


def data_home() -> Path:
    """Return the folder of all data: `RECOLLECT_HOME`, or else the platform's data folder."""
    return Path(data_folder())


def config_home() -> Path:
    """Return the folder of the user's settings: `RECOLLECT_HOME`, or else the platform's."""
    home = data_home()
    if os.environ.get("RECOLLECT_HOME"):
        return home
    import platformdirs  # this import is slow, and hooks do not need it

    return platformdirs.user_config_path("recollect", appauthor=False)


def user_settings_file() -> Path:
    return config_home() / "recollect.toml"


def trust_folder() -> Path:
    """Return the folder that records which project files the user trusts."""
    return config_home() / "trusted"


def space_file(space: str) -> Path:
    return spaces_folder() / f"{file_name(space)}.db"


def spaces_folder() -> Path:
    return data_home() / "spaces"


def sessions_folder(space: str) -> Path:
    """Return the folder of a space's sessions. OpenClaw calls a space an agent."""
    return data_home() / "agents" / file_name(space) / "sessions"


def spool_folder() -> Path:
    """Return the folder of spools, in which batches wait while a store is down."""
    return data_home() / "spool"


def mcp_token_file() -> Path:
    """Return the file with the token that MCP clients send over HTTP."""
    return data_home() / "mcp" / "token"


def installation_secret_file() -> Path:
    """Return the file with this installation's hash key. RECOLLECT_SECRET overrides it."""
    return data_home() / "secret"


def models_folders() -> tuple[Path, ...]:
    """Return the folders in which to find models: `RECOLLECT_MODELS` if it is set, then `models` in
    the data folder. New models are stored in the first one."""
    chosen_folder = os.environ.get("RECOLLECT_MODELS")
    default_folder = data_home() / "models"
    if not chosen_folder:
        return (default_folder,)
    return Path(absolute_path("RECOLLECT_MODELS", chosen_folder)), default_folder


def file_name(name: str) -> str:
    """Convert a name to a readable part of a file name. Different names give different results."""
    from hashlib import blake2b  # this import is slow, and an agent may be waiting for a hook

    readable_part = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower()[:_SPOKEN_CHARS]
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    return f"{readable_part}-{digest}" if readable_part else digest


def claude_code_folder() -> Path:
    """Return the folder of Claude Code's settings and transcripts."""
    return _path_in("CLAUDE_CONFIG_DIR") or Path.home() / ".claude"


def codex_folder() -> Path:
    """Return the folder of Codex's configuration, hooks and rollouts."""
    return _path_in("CODEX_HOME") or Path.home() / ".codex"


def pi_folder() -> Path:
    """Return the folder of pi's models and sessions."""
    return _path_in("PI_CODING_AGENT_DIR") or Path.home() / ".pi" / "agent"


def openclaw_folder() -> Path:
    """Return the folder of OpenClaw's configuration and its agents."""
    return _path_in("OPENCLAW_STATE_DIR") or Path.home() / ".openclaw"


def _path_in(variable: str) -> Path | None:
    value = os.environ.get(variable)
    return Path(value).expanduser() if value else None
