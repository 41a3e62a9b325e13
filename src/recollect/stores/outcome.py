"""What became of a session's write, for both engines to tell in one way."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOutcome:
    """What a store did with the state that it was given."""

    stale: bool = False
    """It was left out: the session has moved on, or what is remembered of it is not enough."""
    cleaned: bool = False
    """It quoted what was forgotten: another state is stored than was given, or none."""
