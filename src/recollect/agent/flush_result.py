"""How a flush turn ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

FlushOutcome: TypeAlias = Literal["written", "nothing", "skipped", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushResult:
    """What a flush turn did, and why; there is always a reason."""

    outcome: FlushOutcome
    reason: str
    path: str = ""
    """The file of the day, relative to the workspace."""
    bytes_written: int = 0
    steps: int = 0
    said: str = field(default="", repr=False)
    """What the model said besides NO_REPLY; the user does not see it."""

    @property
    def done(self) -> bool:
        """It counts as this cycle's flush; a turn that failed does, too, or it would come again
        with every reply."""
        return self.outcome != "skipped"
