"""What people ask of a store besides reading and writing: numbers, checks, forgetting.

Nothing here carries content: these values are printed and logged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from recollect.values.message import MessageId
from recollect.values.segment import FactId, SegmentId


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    """A session at a glance."""

    session: str
    segments: int
    first_said_at: float | None
    last_said_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """What a space holds."""

    space: str
    engine: str
    """Name and version of what keeps it."""
    segments: int
    cold: int
    noise: int
    passages: int
    tokens: int
    vectors: Mapping[str, int] = field(default_factory=dict)
    """Vectors by embedder."""
    facts: int = 0
    sessions: int = 0
    turns: int = 0
    pieces: int = 0
    tombstones: int = 0
    jobs_waiting: int = 0
    jobs_dead: int = 0
    bytes_on_disk: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What an integrity check found; `problems` empty is clean."""

    checked: tuple[str, ...]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetOrder:
    """Which segments are to go; the ways add up. A tombstone is left for each identity."""

    at: float
    segments: tuple[SegmentId, ...] = ()
    message_ids: tuple[MessageId, ...] = ()
    sessions: tuple[str, ...] = ()
    said_before: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """What a store removed; counts and ids, never content."""

    segments: tuple[SegmentId, ...] = ()
    message_ids: tuple[MessageId, ...] = ()
    passages: int = 0
    vectors: int = 0
    facts: tuple[FactId, ...] = ()
    pieces: int = 0
    jobs: int = 0
    session_states: int = 0
    """Session states whose quoting edits were dropped."""
    cannot: tuple[str, ...] = ()
    """What it could not reach from where it stands, one sentence each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubResult:
    """What was done so that removed bytes are in no file either."""

    done: tuple[str, ...]
    cannot: tuple[str, ...] = ()
