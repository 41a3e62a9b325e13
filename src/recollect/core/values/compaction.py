"""A compaction, from the plan to the result. Planning calls no model. Messages before the cut are
summarized; those after it are sent unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from recollect.core.values.edit import Carried as Carried
from recollect.core.values.edit import ToolFailure as ToolFailure
from recollect.core.values.history import Entry
from recollect.core.values.message import EntryKey, MessageId
from recollect.core.values.reason import Reason
from recollect.system.plain_text import number_of

Convergence: TypeAlias = Literal["reduced", "irreducible", "failed"]
Trigger: TypeAlias = Literal["threshold", "overflow", "manual", "mid-turn"]
Due: TypeAlias = Literal["nothing", "flush", "compaction"]
ProbeKind: TypeAlias = Literal[
    "path",
    "url",
    "symbol",
    "hash",
    "number",
    "command",
    "error",
    "decision",
    "constraint",
    "task",
    "attempt",
]
Standing: TypeAlias = Literal["in summary", "recallable", "lost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CutPlan:
    """The plan of a cut: which messages are summarized, and which are not."""

    anchor: EntryKey
    history: tuple[Entry, ...] = field(repr=False)
    turn_prefix: tuple[Entry, ...] = field(default=(), repr=False)
    """Messages before the cut in the turn that it splits. They are summarized separately."""
    continues_turn: bool = False
    """True if the previous cut split this turn as well."""
    kept: tuple[Entry, ...] = field(default=(), repr=False)
    kept_tokens: int
    summarized_tokens: int
    reason: Reason

    @property
    def splits_a_turn(self) -> bool:
        """True if the cut is inside a turn: only the beginning of the turn is summarized."""
        return bool(self.turn_prefix)

    @property
    def summarized(self) -> tuple[Entry, ...]:
        """All messages that the summary covers, without the previous summary."""
        return self.history + self.turn_prefix


@dataclass(frozen=True, slots=True, kw_only=True)
class NoCut:
    """The reason why no cut is possible."""

    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Model calls and tokens of a compaction."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    max_calls: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Summarized:
    """A summary that passed its checks."""

    text: str = field(repr=False)
    carried: Carried
    spent: Spent
    chunks: int = 1
    notes: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict, repr=False)
    oversized: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NoSummary:
    """The reason for a failed summary, after which the history does not change."""

    reason: Reason
    spent: Spent
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """An exact name or value from summarized messages, which a check looks for in the summary."""

    kind: ProbeKind
    text: str = field(repr=False)
    sentence: str = field(repr=False)
    """Sentence that contains the name or value. A query of memory is made from this sentence."""
    source: MessageId
    key: EntryKey
    stands: bool = False
    """True if the user decided it, so that the summary or every request must contain it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeFinding:
    """Result of checking for one name or value."""

    probe: Probe
    standing: Standing
    pinned: bool = False
    """True if memory does not find the name or value, so code added its sentence to the summary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """For each checked name and value: whether it is in the summary, recallable or lost."""

    findings: tuple[ProbeFinding, ...] = field(default=(), repr=False)
    details: int = 0
    """Number of names and values in the summarized messages, checked or not; 0 if unknown."""
    pinned_tokens: int = 0
    notes: tuple[str, ...] = ()

    def count(self, standing: Standing) -> int:
        """Count the names and values with this outcome."""
        return sum(1 for finding in self.findings if finding.standing == standing)

    @property
    def pinned(self) -> int:
        """Number of names and values whose sentences code added to the summary."""
        return sum(finding.pinned for finding in self.findings)

    @property
    def checked(self) -> int:
        """Number of names and values whose outcome is known."""
        return len(self.findings)

    @property
    def not_checked(self) -> int:
        """Number of names and values whose outcome is unknown."""
        return max(0, self.details - self.checked)

    @property
    def checked_text(self) -> str:
        """How many details were checked, and of how many if that is known."""
        if not self.details:
            return f"{number_of(self.checked, 'detail')} checked"
        return f"{self.checked:,} of {number_of(self.details, 'detail')} checked"

    def __str__(self) -> str:
        return (
            f"{self.checked_text}: {self.count('in summary')} in the summary "
            f"({self.pinned} pinned), {self.count('recallable')} recallable, "
            f"{self.count('lost')} lost" + "".join(f"; {note}" for note in self.notes)
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON, which quotes the checked names and values."""
        return {
            "in_summary": self.count("in summary"),
            "recallable": self.count("recallable"),
            "lost": self.count("lost"),
            "pinned": self.pinned,
            "pinned_tokens": self.pinned_tokens,
            "checked": self.checked,
            "not_checked": self.not_checked,
            "details": self.details,
            "notes": list(self.notes),
            "findings": [
                {
                    "kind": finding.probe.kind,
                    "text": finding.probe.text,
                    "sentence": finding.probe.sentence,
                    "standing": finding.standing,
                    "pinned": finding.pinned,
                }
                for finding in self.findings
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """Result of a compaction. `convergence` is "reduced", "irreducible" or "failed". `first_kept`
    is the first message after the summary. `spent` counts model calls and tokens."""

    convergence: Convergence
    """"reduced" (later requests are smaller), "irreducible" (nothing could be gained) or
    "failed"."""
    reason: Reason
    """Reason for the outcome. `str(reason)` is a sentence."""
    trigger: Trigger
    """Why the compaction started: "threshold", "mid-turn", "overflow" or "manual"."""
    number: int = 0
    """Number of the compaction in its session, from 1; 0 if there was no compaction."""
    summary: str = field(default="", repr=False)
    """The text that replaces the summarized messages."""
    first_kept: EntryKey | None = None
    """Key of the first message that the summary does not replace."""
    compacted_messages: int = 0
    """Number of messages that the summary replaces."""
    tokens_before: int = 0
    """Tokens of the request before the compaction, calibrated by the provider's counts."""
    tokens_after: int = 0
    """Tokens of the request after the compaction, without the standing block of the next turn."""
    splits_a_turn: bool = False
    """True if the summary replaces only the beginning of a turn."""
    details: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Values that a `session_before_compact` callback returned."""
    receipt: Receipt | None = None
    """Which details the summary kept, memory can bring back, or are lost."""
    spent: Spent = field(default_factory=Spent)
    """Model calls and tokens of the compaction."""
    notes: tuple[str, ...] = ()
    """Remarks for people, such as callbacks that failed."""
    seconds: float = 0.0
    """Duration of the compaction."""

    @property
    def ok(self) -> bool:
        """True unless the compaction failed, also if there was nothing to compact."""
        return self.convergence != "failed"

    @property
    def compacted(self) -> bool:
        """True if later requests of the session are smaller than before."""
        return self.convergence == "reduced"

    def __str__(self) -> str:
        if not self.compacted:
            return f"{self.convergence}: {self.reason}"
        text = f"{self.tokens_before:,} to {self.tokens_after:,} tokens in {self.seconds:.1f} s"
        receipt_text = "" if self.receipt is None else f"\n{self.receipt}"
        return f"compaction {self.number}: {self.reason}, {text}{receipt_text}"

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON, which quotes the summary and the receipt."""
        return {
            "number": self.number,
            "trigger": self.trigger,
            "convergence": self.convergence,
            "reason": str(self.reason),
            "cause": self.reason.cause.name.lower(),
            "numbers": self.reason.to_dict()["numbers"],
            "tokens_before": self.tokens_before,
            "tokens_after": self.tokens_after,
            "compacted_messages": self.compacted_messages,
            "splits_a_turn": self.splits_a_turn,
            "calls": self.spent.calls,
            "input_tokens": self.spent.input_tokens,
            "output_tokens": self.spent.output_tokens,
            "seconds": self.seconds,
            "summary": self.summary,
            "receipt": None if self.receipt is None else self.receipt.to_dict(),
            "details": dict(self.details),
            "notes": list(self.notes),
        }

    def as_openclaw(self) -> dict[str, Any]:
        """Return the result as programs for OpenClaw read it."""
        values = {
            "summary": self.summary,
            "firstKeptEntryId": self.first_kept,
            "tokensBefore": self.tokens_before,
            "tokensAfter": self.tokens_after,
            "details": dict(self.details),
        }
        outcome = {"ok": self.ok, "compacted": self.compacted, "reason": str(self.reason)}
        return {**outcome, "result": values} if self.compacted else outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionRecord:
    """A stored compaction, for receipts, comparisons and undo."""

    session: str
    number: int
    at: float
    body: bytes = field(repr=False)
    about: tuple[MessageId, ...] = field(default=(), repr=False)
    """Messages that the summary covers. Forgetting one of these messages removes this record."""
