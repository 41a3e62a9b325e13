"""Whether an agent has our memory tools: its own configuration names the MCP server, or does not.

Only reads. What it found stays known while the files do not change, since every prompt asks.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from recollect.hosts.hooks.transcript_file import AgentName
from recollect.system.agent_folders import claude_code_folder, codex_folder

_MOST_BYTES: Final = 64 << 20
"""Claude Code keeps much else in the same file."""


def has_memory_tools(agent: AgentName, project: str, transcript: str = "") -> bool:
    """Whether the user's configuration of the agent names `recollect mcp`, also for this project
    alone.

    The project's own files (`.mcp.json`) are not asked: they could name a server of others by our
    name, and we would send the agent to it. The configuration is that of the agent that writes
    the transcript: its folder may be named in an environment that the daemon does not share.
    """
    if agent == "codex":
        own = _folder_of(transcript, "sessions") or codex_folder()
        files = [own / "config.toml"]
    else:
        own = _folder_of(transcript, "projects") or claude_code_folder()
        beside = (own.parent,) if own == Path.home() / ".claude" else ()
        files = [folder / ".claude.json" for folder in (own, *beside)]
    return any(_names_ours(path, project) for path in files)


def _folder_of(transcript: str, folder: str) -> Path | None:
    """The agent's folder, in whose `folder` this transcript stands; None where in no such."""
    return next((p.parent for p in Path(transcript).parents if p.name == folder), None)


def _names_ours(path: Path, project: str) -> bool:
    try:
        found = path.stat()
    except OSError:
        return False
    if found.st_size > _MOST_BYTES:
        return False
    return _read(path, project, found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=256)
def _read(path: Path, project: str, changed: int, size: int) -> bool:
    del changed, size  # they say whether it was read before
    load: Callable[[str], Any] = tomllib.loads if path.suffix == ".toml" else json.loads
    with suppress(OSError, ValueError, RecursionError):
        settings = load(path.read_text(encoding="utf-8"))
        return any(_is_ours(name, server) for name, server in _servers(settings, project))
    return False


def _servers(settings: object, project: str) -> Iterator[tuple[str, object]]:
    """The MCP servers that count in a project, by name."""
    fields = _mapping(settings)
    for holder in (fields, _mapping(_mapping(fields.get("projects")).get(project))):
        for key in ("mcpServers", "mcp_servers"):
            yield from _mapping(holder.get(key)).items()


def _is_ours(name: str, server: object) -> bool:
    fields = _mapping(server)
    if fields.get("enabled") is False or fields.get("disabled") is True:
        return False
    arguments = fields.get("args")
    words = [str(fields.get("command") or "")]
    words += [str(word) for word in arguments] if isinstance(arguments, list) else []
    ours = any(Path(word).name == "recollect" for part in words for word in part.split())
    return name == "recollect" or (ours and "mcp" in " ".join(words).split())


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
