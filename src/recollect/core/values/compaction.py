"""A compaction from plan to result.

A plan is pure: you can look at it before anything is spent. Every message is either before the cut
and summarised, or behind it and shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from recollect.core.values.edit import Carried as Carried
from recollect.core.values.edit import ToolFailure as ToolFailure
from recollect.core.values.history import Entry
from recollect.core.values.message import EntryKey, MessageId
from recollect.core.values.reason import Reason

Convergence: TypeAlias = Literal["reduced", "irreducible", "failed"]
Trigger: TypeAlias = Literal["threshold", "overflow", "manual", "mid-turn"]
Due: TypeAlias = Literal["nothing", "flush", "compaction"]
ProbeKind: TypeAlias = Literal[
    "path", "url", "symbol", "hash", "number", "error", "decision", "constraint", "task", "attempt"
]
Standing: TypeAlias = Literal["in summary", "recallable", "lost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CutPlan:
    """The end of the summarised past."""

    anchor: EntryKey
    history: tuple[Entry, ...] = field(repr=False)
    turn_prefix: tuple[Entry, ...] = field(default=(), repr=False)
    """The beginning of the turn that the cut splits; summarised, too, as its own part."""
    continues_turn: bool = False
    """The previous cut split this turn as well."""
    kept: tuple[Entry, ...] = field(default=(), repr=False)
    kept_tokens: int
    summarized_tokens: int
    reason: Reason

    @property
    def splits_a_turn(self) -> bool:
        """The cut lies within a turn: its beginning is summarised, its end kept."""
        return bool(self.turn_prefix)

    @property
    def summarized(self) -> tuple[Entry, ...]:
        """All messages that the summary covers, besides the previous summary."""
        return self.history + self.turn_prefix


@dataclass(frozen=True, slots=True, kw_only=True)
class NoCut:
    """There is no place for a cut, and why."""

    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """The cost of a compaction, never above `max_calls`."""

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
    """Summarising failed; the history stays as it is."""

    reason: Reason
    spent: Spent
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Something exact that was known before the cut."""

    kind: ProbeKind
    text: str = field(repr=False)
    sentence: str = field(repr=False)
    """The sentence around it: what the model would have at hand to ask memory by."""
    source: MessageId
    key: EntryKey
    stands: bool = False
    """The user laid it down: it holds whether or not a turn asks memory for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeFinding:
    """The outcome of a check."""

    probe: Probe
    standing: Standing
    pinned: bool = False
    """It would have been lost; its sentence was added to the summary by code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The effect of a compaction on known facts and names."""

    findings: tuple[ProbeFinding, ...] = field(default=(), repr=False)
    pinned_tokens: int = 0
    notes: tuple[str, ...] = ()

    def count(self, standing: Standing) -> int:
        """The number of checks with this outcome."""
        return sum(1 for finding in self.findings if finding.standing == standing)

    @property
    def pinned(self) -> int:
        """The number of checks that code saved by adding them to the summary."""
        return sum(finding.pinned for finding in self.findings)

    def __str__(self) -> str:
        return (
            f"{len(self.findings)} things were known: {self.count('in summary')} in the summary "
            f"({self.pinned} pinned), {self.count('recallable')} recallable, "
            f"{self.count('lost')} lost" + "".join(f"; {note}" for note in self.notes)
        )

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON; probes are quoted as they were written down."""
        return {
            "in_summary": self.count("in summary"),
            "recallable": self.count("recallable"),
            "lost": self.count("lost"),
            "pinned": self.pinned,
            "pinned_tokens": self.pinned_tokens,
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
    """The result of a compaction: `reduced`, `irreducible` or `failed` (`convergence`).

    `first_kept` is the first message after the summary, `spent` counts model calls and tokens.
    """

    convergence: Convergence
    reason: Reason
    """Why it ended so; `str` gives a sentence."""
    trigger: Trigger
    number: int = 0
    """The number of the compaction in its session, from 1; 0 if none was made."""
    summary: str = field(default="", repr=False)
    first_kept: EntryKey | None = None
    compacted_messages: int = 0
    tokens_before: int = 0
    """Tokens of the request without the compaction, calibrated."""
    tokens_after: int = 0
    """The same after the compaction, without the standing block of the next turn."""
    splits_a_turn: bool = False
    details: Mapping[str, Any] = field(default_factory=dict, repr=False)
    receipt: Receipt | None = None
    spent: Spent = field(default_factory=Spent)
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether nothing failed, also if there was nothing to do."""
        return self.convergence != "failed"

    @property
    def compacted(self) -> bool:
        """Whether the view is smaller than before."""
        return self.convergence == "reduced"

    def __str__(self) -> str:
        if not self.compacted:
            return f"{self.convergence}: {self.reason}"
        text = f"{self.tokens_before:,} to {self.tokens_after:,} tokens in {self.seconds:.1f} s"
        known = "" if self.receipt is None else f"\n{self.receipt}"
        return f"compaction {self.number}: {self.reason}, {text}{known}"

    def to_dict(self) -> dict[str, Any]:
        """The result as a dictionary for JSON; it quotes the summary and the receipt."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionRecord:
    """A compaction as the store keeps it, for receipts, diffs and undo."""

    session: str
    number: int
    at: float
    body: bytes = field(repr=False)
    about: tuple[MessageId, ...] = field(default=(), repr=False)
    """The messages that it covers: forgetting one of them removes it."""
