"""The MCP server, which gives clients of the Model Context Protocol a memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOrder:
    """The memory that a client asks the server to open."""

    space: str
    store: str | None = None
    session: str | None = None
    """The session whose messages the client may see; None for the whole space."""
    config: Path | None = None
