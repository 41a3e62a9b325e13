"""The events of an agent, in the order in which they happen. Reprs never show message content."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from recollect.core.values.compaction import CompactionResult
from recollect.core.values.model import Usage
from recollect.core.values.report import Report

FlushOutcome: TypeAlias = Literal["written", "nothing", "skipped", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushResult:
    """The outcome of a note-taking turn, always with a reason."""

    outcome: FlushOutcome
    reason: str
    path: str = ""
    """The first file that was written, relative to the workspace; otherwise today's notes."""
    written: tuple[tuple[str, int], ...] = ()
    """Each file that was appended to, and the bytes added."""
    refused: tuple[str, ...] = ()
    steps: int = 0
    usage: Usage | None = None
    """The tokens of its requests; None if no provider reported them."""

    @property
    def bytes_written(self) -> int:
        return sum(size for _, size in self.written)

    @property
    def done(self) -> bool:
        """True if no other note-taking turn is due before the next compaction. Failures count too;
        otherwise it would run after every reply."""
        return self.outcome != "skipped"


EndReason: TypeAlias = Literal["done", "aborted", "failed", "max-steps", "command"]
FailureKind: TypeAlias = Literal["overflow", "refused", "unavailable", "model"]
UpkeepKind: TypeAlias = Literal["flush", "compaction"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """The next part of the reply. Never sent for a reply that is NO_REPLY."""

    text: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Thought:
    """The next part of the model's reasoning."""

    text: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A request was shaped and is sent now."""

    step: int
    report: Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Replied:
    """A complete reply was recorded."""

    entry_id: str
    message: Mapping[str, Any] = field(repr=False)
    usage: Usage | None = None
    silent: bool = False
    """True if the model replied NO_REPLY: there is nothing to show."""


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
    """Exit code of a command that ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepBegan:
    """A note-taking turn or a compaction begins. `Flushed` or `Compacted` follows, unless the user
    stops it."""

    kind: UpkeepKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """A compaction ended, successfully or not."""

    result: CompactionResult
    entry_id: str | None = None
    """The transcript's entry; None if nothing was compacted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flushed:
    """A note-taking turn ended, or was skipped."""

    result: FlushResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawn:
    """The reply so far is discarded, and the model is asked again."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The answer to a command, or a notice for the user."""

    text: str = field(repr=False)
    data: Mapping[str, Any] | None = field(default=None, repr=False)
    """The same as a value for JSON, if there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The turn failed. The history is unchanged."""

    kind: FailureKind
    reason: str
    """The cause, and the fix."""


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
