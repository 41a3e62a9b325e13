"""The events of an agent's run, in order. Reprs never show message content."""

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
    """The result of a note-taking turn, always with a reason."""

    outcome: FlushOutcome
    reason: str
    path: str = ""
    """The first file that was written, relative to the workspace; without one, today's notes."""
    written: tuple[tuple[str, int], ...] = ()
    """Each file to which notes were added, and the number of added bytes."""
    refused: tuple[str, ...] = ()
    steps: int = 0
    usage: Usage | None = None
    """Tokens of the note-taking turn's requests; None if no provider reported them."""

    @property
    def bytes_written(self) -> int:
        return sum(size for _, size in self.written)

    @property
    def done(self) -> bool:
        """True if no other note-taking turn is due before the next compaction. A failed turn
        counts, too: otherwise each reply would start another."""
        return self.outcome != "skipped"


EndReason: TypeAlias = Literal["done", "aborted", "failed", "max-steps", "command"]
FailureKind: TypeAlias = Literal["overflow", "refused", "unavailable", "model"]
UpkeepKind: TypeAlias = Literal["flush", "compaction"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A new part of the reply's text. A reply that is NO_REPLY has none."""

    text: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Thought:
    """A new part of the model's reasoning."""

    text: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The engine prepared a request, which is now sent to the model."""

    step: int
    report: Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Replied:
    """A complete reply was recorded in the transcript."""

    entry_id: str
    message: Mapping[str, Any] = field(repr=False)
    usage: Usage | None = None
    silent: bool = False
    """True if the model replied NO_REPLY, so that there is nothing to show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallBegan:
    """A tool begins to run."""

    id: str
    name: str
    arguments: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEnded:
    """A tool returned its result, which was recorded."""

    id: str
    name: str
    is_error: bool
    text: str = field(repr=False)
    exit_code: int | None = None
    """Exit code, if the tool ran a command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepBegan:
    """A note-taking turn or a compaction begins. `Flushed` or `Compacted` follows."""

    kind: UpkeepKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """A compaction succeeded or failed."""

    result: CompactionResult
    entry_id: str | None = None
    """Id of the transcript's entry; None if nothing was compacted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flushed:
    """A note-taking turn ended, or was skipped."""

    result: FlushResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawn:
    """The reply so far is discarded, because the model is asked again."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The answer to a slash command, or a notice for the user."""

    text: str = field(repr=False)
    data: Mapping[str, Any] | None = field(default=None, repr=False)
    """The same content as `text`, as a JSON value, if there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The turn failed, and left the history unchanged."""

    kind: FailureKind
    reason: str
    """What went wrong, and how to fix it."""


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
