"""What a turn did: every message's fate, tokens, timings, failures.

Fates are worked out when asked for, so that a turn does not pay for a report nobody reads.
Always holds: every incoming message has exactly one fate, and every fate a reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
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
        reasons = [reason.to_dict() for reason in self.reasons]
        return {**_fields(self), "reasons": reasons, "said": self.said}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What became of one message, or why one of ours is there."""

    fate: FateKind
    role: Role
    reasons: tuple[Reason, ...]
    """In the order in which they befell it; of a message that left, the last is why."""
    key: EntryKey | None
    place: int | None
    """Its place among the incoming messages; None for rows of our own."""
    tokens_before: int
    """Estimates of the message by itself, before calibration."""
    tokens_after: int

    @property
    def said(self) -> str:
        """The reasons, for people to read."""
        return told(self.reasons)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        reasons = [reason.to_dict() for reason in self.reasons]
        return {**_fields(self), "reasons": reasons, "said": self.said}


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
    cut = newest_cut(edits)
    behind = behind_cut(entries, edits)
    own = _own_rows(view)
    fates: list[Fate] = list(own.get(None, ()))
    for place, entry in enumerate(entries):
        why = reasons.get(entry.key, [])
        if id(entry) in as_it_came:
            why = [reason for reason in why if reason.cause is Cause.RESULT_AWAY]
            kind: FateKind = "changed" if why else "kept"
            after, otherwise = entry.tokens, Cause.AS_IT_CAME
        elif entry.key in shares:
            kind, after, otherwise = "changed", shares[entry.key], Cause.WITH_NEIGHBOUR
        elif cut is not None and entry.key in behind:
            kind, after, why, otherwise = "summarised", 0, [cut.reason], Cause.NOT_SHOWN
        else:
            kind, after, otherwise = "left out", 0, Cause.NOT_SHOWN
        fates.append(
            Fate(
                fate=kind,
                role=entry.role,
                reasons=tuple(why) or (Reason(otherwise),),
                key=entry.key,
                place=place,
                tokens_before=entry.tokens,
                tokens_after=after,
            )
        )
        fates.extend(own.get(entry.key, ()))
    return tuple(fates)


def _reasons(view: View, edits: Sequence[Edit]) -> dict[EntryKey, list[Reason]]:
    reasons: dict[EntryKey, list[Reason]] = {}
    for edit in edits:
        if isinstance(edit, LeaveOut | Shorten):
            _add(reasons, edit.anchor, edit.reason)
        elif isinstance(edit, Insert) and edit.anchor is not None:
            _add(reasons, edit.anchor, Reason(Cause.CARRIES, block=edit.reason))
    for repair in view.repairs:
        if repair.anchor is not None:
            _add(reasons, repair.anchor, repair.reason)
    return reasons


def _add(reasons: dict[EntryKey, list[Reason]], key: EntryKey, reason: Reason) -> None:
    known = reasons.setdefault(key, [])
    if reason not in known:
        known.append(reason)


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
                    reasons=tuple(_own_reason(note) for note in row.notes or ("",)),
                    key=None,
                    place=None,
                    tokens_before=0,
                    tokens_after=row.tokens,
                )
            )
    return own


_OWN = {
    "gap": Cause.GAP_NOTE,
    "inject": Cause.OWN_BLOCK,
    "opening": Cause.OPENING,
    "stand-in": Cause.STAND_IN,
    "summary": Cause.SUMMARY,
}


def _own_reason(note: str) -> Reason:
    return Reason(_OWN[note]) if note in _OWN else Reason(Cause.OWN_ROW, note=note)


def _fields(value: StageLine | Fate) -> dict[str, Any]:
    return {one.name: getattr(value, one.name) for one in fields(value)}
