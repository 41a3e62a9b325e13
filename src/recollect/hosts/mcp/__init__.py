"""The MCP server: memory for every client of the Model Context Protocol."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOrder:
    """Which memory the server opens."""

    space: str
    store: str | None = None
    session: str | None = None
    """The session whose memory it is; None for the whole space."""
    config: Path | None = None
