"""One request of a turn: what went out, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from recollect.engine.session import Observation


@dataclass(slots=True, kw_only=True)
class Step:
    """One request of a turn and what came of it; filled in while it runs."""

    number: int
    message: Mapping[str, Any] | None = field(default=None, repr=False)
    """The reply as it was recorded; None where there is none that counts."""
    aborted: bool = False
    observation: Observation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """The request that went out last."""

    request: Mapping[str, Any] = field(repr=False)
    wire_messages: int
    """How much of the history it stands for."""
