"""What a turn did: every message's fate, tokens, timings, failures.

Fates are worked out when asked for, so that a turn does not pay for a report nobody reads.
Always holds: every incoming message has exactly one fate, and every fate a reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from recollect.values.edit import Edit, Insert, LeaveOut, Repair, Shorten, StageName
from recollect.values.history import Composed, Entry, SessionId, View, behind_cut, newest_cut
from recollect.values.message import EntryKey, Role
from recollect.values.moment import Moment
from recollect.values.reason import Cause, Reason, told
from recollect.values.request import FormatName

Outcome: TypeAlias = Literal["done", "nothing", "failed", "late", "skipped"]
WindowSource: TypeAlias = Literal["settings", "model", "provider", "assumed"]
FateKind: TypeAlias = Literal["kept", "changed", "left out", "summarised", "inserted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLine:
    """What one stage did, and why; or how it failed."""

    stage: StageName
    outcome: Outcome
    reasons: tuple[Reason, ...]
    """The first says what it did; the others what else there is to know."""
    seconds: float

    @property
    def cause(self) -> Cause:
        """What it did, for code to compare."""
        return self.reasons[0].cause

    @property
    def said(self) -> str:
        """The reasons, for people to read."""
        return told(self.reasons)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "stage": self.stage,
            "outcome": self.outcome,
            "reasons": [reason.to_dict() for reason in self.reasons],
            "said": self.said,
            "seconds": self.seconds,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What became of one message, or why one of ours is there."""

    fate: FateKind
    role: Role
    reason: str
    key: EntryKey | None
    place: int | None
    """Its place among the incoming messages; None for rows of our own."""
    tokens_before: int
    """Estimates of the message by itself, before calibration."""
    tokens_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One turn, explained."""

    session: SessionId
    turn: int
    format: FormatName
    model: str | None
    window_tokens: int
    window_source: WindowSource
    """Where the window's size comes from; "assumed" is a guess: set `window_tokens`."""
    reserve_tokens: int
    limit_tokens: int
    fixed_tokens: int
    """System prompt and tool schemas, before calibration."""
    tokens_before: int
    """The request as it came, calibrated."""
    tokens_after: int
    """The request as it goes out, calibrated."""
    calibration_ratio: float
    moment: Moment | None
    query: str = field(repr=False)
    """What the user asked, as trim and recall were asked by it."""
    lines: tuple[StageLine, ...]
    new_edits: tuple[Edit, ...] = field(repr=False)
    ended_edits: tuple[Edit, ...] = field(repr=False)
    """Edits that no longer stand: a block taken back, an anchor that is gone."""
    entries: tuple[Entry, ...] = field(repr=False)
    view: View
    edits: tuple[Edit, ...] = field(repr=False)
    recalled: tuple[tuple[str, float], ...] = ()
    """What stands in this turn's recalled block: the segments' ids with their scores."""

    @property
    def over_limit(self) -> bool:
        """Whether the request is still over its limit; a line says why."""
        return self.tokens_after > self.limit_tokens

    @property
    def failures(self) -> tuple[StageLine, ...]:
        """Stages that failed or came late; the turn went on with their input."""
        return tuple(line for line in self.lines if line.outcome in ("failed", "late"))

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """What pairing and the provider's rules changed."""
        return self.view.repairs

    def fates(self) -> tuple[Fate, ...]:
        """Every incoming message in order, with rows of our own where they stand."""
        return _fates(self.entries, self.view, self.edits)


def _fates(entries: Sequence[Entry], view: View, edits: Sequence[Edit]) -> tuple[Fate, ...]:
    as_it_came = {id(row) for row in view.rows if isinstance(row, Entry)}
    reasons = _reasons(view, edits)
    shares = _shares(entries, view)
    before_cut = _before_cut(entries, edits)
    own = _own_rows(view)
    fates: list[Fate] = list(own.get(None, ()))
    for place, entry in enumerate(entries):
        why = reasons.get(entry.key, [])
        if id(entry) in as_it_came:
            moved = [reason for reason in why if reason.startswith("moved")]
            kind: FateKind = "changed" if moved else "kept"
            reason = "; ".join(moved) or "as it came"
            after = entry.tokens
        elif entry.key in shares:
            kind, after = "changed", shares[entry.key]
            reason = "; ".join(why) or "shown together with its neighbour"
        elif entry.key in before_cut:
            kind, after, reason = "summarised", 0, before_cut[entry.key]
        else:
            kind, after, reason = "left out", 0, "; ".join(why) or "not shown"
        fates.append(
            Fate(
                fate=kind,
                role=entry.role,
                reason=reason,
                key=entry.key,
                place=place,
                tokens_before=entry.tokens,
                tokens_after=after,
            )
        )
        fates.extend(own.get(entry.key, ()))
    return tuple(fates)


def _reasons(view: View, edits: Sequence[Edit]) -> dict[EntryKey, list[str]]:
    reasons: dict[EntryKey, list[str]] = {}
    for edit in edits:
        if isinstance(edit, LeaveOut | Shorten):
            _add(reasons, edit.anchor, str(edit.reason))
        elif isinstance(edit, Insert) and edit.anchor is not None:
            _add(reasons, edit.anchor, f"carries {edit.reason}")
    for repair in view.repairs:
        if repair.anchor is not None:
            said = f"moved: {repair.reason}" if repair.kind == "moved" else repair.reason
            _add(reasons, repair.anchor, said)
    return reasons


def _add(reasons: dict[EntryKey, list[str]], key: EntryKey, reason: str) -> None:
    known = reasons.setdefault(key, [])
    if reason not in known:
        known.append(reason)


def _before_cut(entries: Sequence[Entry], edits: Sequence[Edit]) -> dict[EntryKey, str]:
    cut = newest_cut(edits)
    return {} if cut is None else dict.fromkeys(behind_cut(entries, edits), str(cut.reason))


def _shares(entries: Sequence[Entry], view: View) -> dict[EntryKey, int]:
    """What of a composed row's tokens each of its sources accounts for."""
    weight = {entry.key: entry.tokens for entry in entries}
    shares: dict[EntryKey, int] = {}
    for row in view.rows:
        if isinstance(row, Composed) and row.sources:
            total = sum(weight.get(key, 0) for key in row.sources) or 1
            for key in row.sources:
                part = row.tokens * weight.get(key, 0) // total
                shares[key] = shares.get(key, 0) + part
    return shares


def _own_rows(view: View) -> dict[EntryKey | None, list[Fate]]:
    """Rows of our own, by the last incoming message shown before them."""
    own: dict[EntryKey | None, list[Fate]] = {}
    last: EntryKey | None = None
    for row in view.rows:
        if isinstance(row, Entry):
            last = row.key
        elif row.sources:
            last = row.sources[-1]
        else:
            own.setdefault(last, []).append(
                Fate(
                    fate="inserted",
                    role=row.role,
                    reason=_own_reason(row),
                    key=None,
                    place=None,
                    tokens_before=0,
                    tokens_after=row.tokens,
                )
            )
    return own


def _own_reason(row: Composed) -> str:
    return {
        "gap": "a note where messages were left out",
        "inject": "a recalled block",
        "opening": "stands for the user, who has to begin",
        "stand-in": "stands in for a result that is missing",
        "summary": "the summary of what was cut",
    }.get(row.note, row.note or "of our own")
