"""What an agent tells while it works, in the order in which it happens.

Values only; whoever draws them decides how they look. Reprs never show what was said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from recollect.core.values.compaction import CompactionResult
from recollect.core.values.model import Usage
from recollect.core.values.report import Report

# How a flush turn ended.


FlushOutcome: TypeAlias = Literal["written", "nothing", "skipped", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushRefusal:
    """Something that the model wanted written in a flush turn, and that was not."""

    path: str
    """The file, or the tool that does not work there."""
    reason: str

    def __str__(self) -> str:
        return f"{self.path} ({self.reason})"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushResult:
    """What a flush turn did, and why; there is always a reason."""

    outcome: FlushOutcome
    reason: str
    path: str = ""
    """The first file that was written, relative to the workspace; else the file of the day."""
    bytes_written: int = 0
    written: tuple[tuple[str, int], ...] = ()
    """Each file that was added to, and by how many bytes."""
    refused: tuple[FlushRefusal, ...] = ()
    steps: int = 0
    usage: Usage | None = None
    """What its requests took together; None where no provider said."""
    said: str = field(default="", repr=False)
    """What the model said besides NO_REPLY; the user does not see it."""

    @property
    def done(self) -> bool:
        """It counts as this cycle's flush; a turn that failed does, too, or it would come again
        with every reply."""
        return self.outcome != "skipped"


EndReason: TypeAlias = Literal["done", "aborted", "failed", "max-steps", "command"]
FailureKind: TypeAlias = Literal["overflow", "refused", "unavailable", "model"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A further stretch of the reply; never any of a reply that is for nobody."""

    text: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Thought:
    """A further stretch of the model's reasoning."""

    text: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A request was shaped and goes out now."""

    step: int
    report: Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Replied:
    """A whole reply was recorded."""

    entry_id: str
    message: Mapping[str, Any] = field(repr=False)
    usage: Usage | None = None
    silent: bool = False
    """It said NO_REPLY: there is nothing to show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallBegan:
    """A tool begins to run."""

    id: str
    name: str
    arguments: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEnded:
    """A tool has answered, and its result was recorded."""

    id: str
    name: str
    is_error: bool
    text: str = field(repr=False)
    exit_code: int | None = None
    """Of a command that ran; None where none did."""


UpkeepKind: TypeAlias = Literal["flush", "compaction"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepBegan:
    """A flush turn or a compaction begins; `Flushed` or `Compacted` says how it ended, unless the
    user stopped it."""

    kind: UpkeepKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """A compaction ended, one way or another."""

    result: CompactionResult
    entry_id: str | None = None
    """The transcript's entry; None where nothing was compacted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flushed:
    """A flush turn ended, or was skipped."""

    result: FlushResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawn:
    """The reply so far does not count and is asked for again."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a command answered, or what the user should know."""

    text: str = field(repr=False)
    data: Mapping[str, Any] | None = field(default=None, repr=False)
    """The same as a value, ready for JSON, where there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The turn could not be finished; the history is as it was."""

    kind: FailureKind
    reason: str
    """One or two sentences: what happened, and what to do next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The last event of every run."""

    reason: EndReason
    steps: int = 0


AgentEvent: TypeAlias = (
    Said
    | Thought
    | Prepared
    | Replied
    | CallBegan
    | CallEnded
    | UpkeepBegan
    | Compacted
    | Flushed
    | Withdrawn
    | Told
    | Failed
    | Ended
)
