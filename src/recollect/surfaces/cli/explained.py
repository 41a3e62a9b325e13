"""What `recollect explain` has to tell, as values: one picture of a session at one turn.

Owns the names that `--json` prints; what is drawn is drawn from here and from nothing else.
Texts in it are plain: no control characters, no secrets. Tokens are the engine's calibrated
counts. Always holds: the kinds add up to what came and to what was sent, and every message of
the request has exactly one fate.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from recollect.surfaces.cli.explain_text import shown_text
from recollect.values.edit import StageName
from recollect.values.reason import Reason, told
from recollect.values.report import FateKind, MomentKind, Outcome

TokenKind: TypeAlias = Literal[
    "system",
    "tools",
    "not recorded",
    "user",
    "assistant",
    "thinking",
    "tool calls",
    "tool results",
    "images",
    "summaries",
    "ours",
    "other",
]
WindowSource: TypeAlias = Literal["argument", "settings", "recording", "model", "default"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The file and what it holds."""

    file: str
    kind: str
    format: str
    version: str | None
    model: str | None
    session_id: str | None
    run: int
    runs: int
    messages: int
    requests: int
    compactions: int
    passed_over: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowUsed:
    """The window the session was replayed in, and where that number came from."""

    tokens: int
    source: WindowSource
    reserve_tokens: int
    limit_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KindShare:
    """What one kind of content takes of the request."""

    kind: TokenKind
    came_tokens: int
    sent_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolShare:
    """What the results of one tool take of the request."""

    tool: str
    results: int
    came_tokens: int
    sent_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnPoint:
    """One request of the session as it was replayed."""

    turn: int
    came_tokens: int
    sent_tokens: int
    moment: MomentKind | None
    compacted: bool
    """The recording's own client had replaced its past by a summary since the turn before."""
    new_edits: int
    new_repairs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFate:
    """What became of one message of the request, or why a row of our own is there."""

    number: int | None
    """Its place in the request, from 1; None for rows of our own."""
    line: int | None
    """Where it stands in the file."""
    role: str
    what: str
    """The tool, or the role, that a reader knows it by."""
    fate: FateKind
    reasons: tuple[Reason, ...]
    """Why; of a message that left, only why it left."""
    tokens_before: int
    tokens_after: int
    excerpt: str

    @property
    def reason(self) -> str:
        """The reasons, as they may be shown."""
        return shown_text(told(self.reasons))


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairCount:
    """One reason for which the provider's rules changed something."""

    kind: str
    reasons: tuple[Reason, ...]
    this_turn: int
    session: int
    numbers: tuple[int, ...]
    """The messages it touched at this turn."""

    @property
    def reason(self) -> str:
        """The reason, as it may be shown."""
        return shown_text(told(self.reasons))


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTold:
    """What one stage of the turn said."""

    stage: StageName
    outcome: Outcome
    reasons: tuple[Reason, ...]

    @property
    def reason(self) -> str:
        """The reasons, as they may be shown."""
        return shown_text(told(self.reasons))


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """A session at one turn, measured."""

    recording: Recording
    turn: int
    turns: int
    next_request: bool
    """No request is recorded yet: this is what the next one would be."""
    preset: str
    window: WindowUsed
    came_tokens: int
    sent_tokens: int
    reported_tokens: int | None
    """What the provider counted for this request as it was recorded."""
    calibration_ratio: float
    moment: str | None
    kinds: tuple[KindShare, ...]
    tools: tuple[ToolShare, ...]
    filling: tuple[TurnPoint, ...]
    skipped_turns: int
    """Turns before this one that were not replayed, to save time."""
    largest: tuple[MessageFate, ...]
    fates: tuple[MessageFate, ...]
    repairs: tuple[RepairCount, ...]
    stages: tuple[StageTold, ...]
    said: str

    def as_json(self) -> dict[str, Any]:
        """The object that `--json` prints."""
        return asdict(self, dict_factory=_with_sentences)


def _with_sentences(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of `--json`: reasons stand in it as their sentence, and apart for code."""
    held = dict(pairs)
    if "reasons" in held:
        held["reason"] = shown_text(told(held["reasons"]))
        held["reasons"] = [reason.to_dict() for reason in held["reasons"]]
    return held
