"""What a forgetting leaves behind for people: a certificate without content.

Counts, times and names of sessions; never what was said. Always holds: the checksum is over
everything else in it, so a certificate that was changed shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was to be forgotten, as it was asked."""

    segments: int = 0
    """How many segments were named one by one."""
    identities: int = 0
    """How many messages were named by their identity."""
    sessions: tuple[str, ...] = ()
    said_before: float | None = None
    said_after: float | None = None
    matching: bool = False
    """Whether a text was searched for; it is not repeated here."""
    pattern: bool = False
    """Whether a pattern was searched for; it is not repeated here."""
    facts: int = 0
    """How many facts were named one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What was forgotten, what that covers, and what it cannot."""

    at: float
    """When; seconds since the epoch."""
    space: str
    engine: str
    """Name and version of what keeps the space."""
    version: str
    """Of Recollect."""
    asked: Asked
    counts: Mapping[str, int] = field(default_factory=dict)
    """What was removed, by kind."""
    identities_digest: str = ""
    """A hash over the identities that were forgotten: who knows them can check it."""
    covers: tuple[str, ...] = ()
    cannot: tuple[str, ...] = ()
    checksum: str = ""
