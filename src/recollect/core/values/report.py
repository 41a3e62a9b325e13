"""Report of a turn: every message's outcome, tokens, timings and failures. Outcomes are computed on
demand. Each incoming message has exactly one outcome, and each outcome has a reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, TypeAlias

from recollect.core.values.edit import (
    Cut,
    Edit,
    Insert,
    LeaveOut,
    Repair,
    RepairKind,
    Shorten,
    StageName,
)
from recollect.core.values.history import Entry, SessionId, Slot, View, newest_cut
from recollect.core.values.message import EntryKey, Role
from recollect.core.values.model import FormatName
from recollect.core.values.reason import PAUSING, Cause, Reason, join_reasons

MomentKind: TypeAlias = Literal[
    "over-limit", "room", "cache-expired", "uncached", "compaction", "ratio", "every-turn"
]
_WORTH_TELLING: Final = frozenset({Cause.MODELS_ASKED, Cause.PROMPT_FILLS})
_WHY_NOW: Final[Mapping[MomentKind, str]] = {
    "cache-expired": "the edit costs nothing extra",
    "uncached": "the edit costs nothing extra",
    "ratio": "the edit pays for itself",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchMoment:
    """One edit batch (a turn in which older messages may change) and the reason for it."""

    kind: MomentKind
    reason: Reason

    @property
    def price(self) -> str:
        """Explain why an edit is worth invalidating the provider's cache."""
        return _WHY_NOW.get(self.kind, "the edit was needed")


Outcome: TypeAlias = Literal["done", "nothing", "failed", "late", "skipped"]
AGENTS_OWN_WINDOW_TOKENS: Final = 100_000_000
"""Window size for sessions whose agent manages a window of unknown size: so large that nothing is
trimmed or compacted."""
WindowSource: TypeAlias = Literal["settings", "model", "provider", "assumed"]
FateKind: TypeAlias = Literal["kept", "changed", "left out", "summarized", "inserted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLine:
    """Outcome of one stage, with the reason or the failure."""

    stage: StageName
    outcome: Outcome
    reasons: tuple[Reason, ...]
    """The first reason describes the work; the others add detail."""
    seconds: float

    @property
    def cause(self) -> Cause:
        """Main cause, for code to compare."""
        return self.reasons[0].cause

    @property
    def said(self) -> str:
        """The reasons as text."""
        return join_reasons(self.reasons)

    def __str__(self) -> str:
        return f"{self.stage}: {self.outcome}: {self.said}"

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON."""
        reasons = [reason.to_dict() for reason in self.reasons]
        seconds = round(self.seconds, 6)
        return {**_fields(self), "reasons": reasons, "seconds": seconds, "said": self.said}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """Outcome of one received message, or the reason for a message that Recollect added."""

    fate: FateKind
    role: Role
    reasons: tuple[Reason, ...]
    """Reasons in order of occurrence. If a message is not sent, the last reason says why."""
    key: EntryKey | None
    place: int | None
    """Position among the received messages, from 0. None for a message that Recollect added (a
    recalled block, a summary, a note); it is listed after the one that precedes it."""
    tokens_before: int
    tokens_after: int

    @property
    def said(self) -> str:
        """The reasons as text."""
        return join_reasons(self.reasons)

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON."""
        reasons = [reason.to_dict() for reason in self.reasons]
        return {**_fields(self), "reasons": reasons, "said": self.said}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Changes of a turn to its request, with reasons. `limit_tokens` is the window without the
    reserve. `fixed_tokens` counts the system prompt and tools. `moment` is the reason why older
    messages could be edited. `lines` has one entry per stage. `recalled` holds ids and scores of
    recalled messages."""

    session: SessionId
    """Name of the session."""
    turn: int
    """Number of the request in its session, from 1; `recollect replay --turn` takes this number."""
    format: FormatName
    """Wire format of the request, such as "anthropic"."""
    model: str | None
    """Model that the request names."""
    window_tokens: int
    """Size of the window that Recollect worked with."""
    window_source: WindowSource
    """Where the window size comes from. If the source is "assumed", set `window_tokens`."""
    reserve_tokens: int
    """Part of the window that stays free for the reply."""
    limit_tokens: int
    """Largest allowed size of the request: the window without the reserve."""
    fixed_tokens: int
    """Tokens of the system prompt and the tools, which Recollect does not shorten."""
    tokens_before: int
    """Tokens of the request as received."""
    tokens_after: int
    """Tokens of the request as sent."""
    calibration_ratio: float
    """Factor on the token estimate, learned from the usage that the provider reports."""
    moment: BatchMoment | None
    """Why older messages could be edited in this turn; None if they could not."""
    query: str = field(repr=False)
    """Text that recall searched with; empty if it did not search."""
    lines: tuple[StageLine, ...]
    """What each stage of the turn did, in order."""
    new_edits: tuple[Edit, ...] = field(repr=False)
    """Edits that this turn added to the session."""
    ended_edits: tuple[Edit, ...] = field(repr=False)
    """Edits that ended with this turn."""
    entries: tuple[Entry, ...] = field(repr=False)
    """All messages of the received history."""
    view: View
    """The messages of the request as sent."""
    edits: tuple[Edit, ...] = field(repr=False)
    """All edits of the session that apply to the request."""
    recalled: tuple[tuple[str, float], ...] = ()
    """Id and score of each message in the recalled block."""

    @property
    def over_limit(self) -> bool:
        """True if the request is still over its limit. A report line gives the reason."""
        return self.tokens_after > self.limit_tokens

    @property
    def failures(self) -> tuple[StageLine, ...]:
        """Stages that failed or were late, and whose changes the turn therefore lacks."""
        return tuple(line for line in self.lines if line.outcome in ("failed", "late"))

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """Changes that the provider's rules required."""
        return self.view.repairs

    def fates(self) -> tuple[Fate, ...]:
        """Return the outcome of each received message in order, and of each added one."""
        return _fates(self.entries, self.view, self.edits)

    def __str__(self) -> str:
        return self.summary()

    def summary(self) -> str:
        """Return three lines for people: the request, the changes, the failures or pauses."""
        sent = f"Turn {self.turn}: {_count_text(len(self.view.rows), 'message')}, "
        sent += f"{self.tokens_after:,} of {self.limit_tokens:,} tokens"
        if self.tokens_before != self.tokens_after:
            sent += f" ({self.tokens_before:,} received)"
        done = self.done() or ["sent unchanged"]
        done += [text] if (text := self.not_recalled()) else []
        failed_text = join_lines(self.failures)
        problems = [f"Failed: {failed_text}"] if failed_text else []
        problems += [f"Paused: {paused_text}"] if (paused_text := self._write_pause()) else []
        last = "; ".join(problems) or "No failures"
        return "\n".join((sent, f"Done: {', '.join(done)}", last))

    def done(self) -> list[str]:
        """Return the changes to the request, one phrase each; empty if it is sent unchanged."""
        fates = self.fates() if self.edits or self.repairs else ()
        counts = Counter(fate.fate for fate in fates)
        changed_keys = {fate.key for fate in fates if fate.fate == "changed"}
        shortened_keys = {edit.anchor for edit in self.edits if isinstance(edit, Shorten)}
        message_counts = {
            "left out": counts["left out"],
            "shortened": len(shortened_keys & changed_keys),
            "shown as a summary": counts["summarized"],
        }
        blocks = [edit for edit in self.new_edits if isinstance(edit, Insert)]
        moment = self.moment
        edited = any(not isinstance(edit, Insert) for edit in self.new_edits)
        compacted = any(line.stage == "compact" and line.outcome == "done" for line in self.lines)
        return [
            *(
                f"{_count_text(count, 'message')} {outcome}"
                for outcome, count in message_counts.items()
                if count
            ),
            *(["compacted just now"] if compacted else []),
            *([f"edited now: {moment.reason}; {moment.price}"] if moment and edited else []),
            *(str(edit.reason) for edit in blocks if edit.stage == "stand"),
            *(str(edit.reason) for edit in blocks if edit.stage != "stand"),
            *(line.said for line in self.lines if line.cause in _WORTH_TELLING),
            *(
                [f"repaired for the provider: {_write_repairs(self.repairs)}"]
                if self.repairs
                else []
            ),
        ]

    def not_recalled(self) -> str:
        """Return why nothing was recalled for this request; empty if something was."""
        lines = (line for line in self.lines if line.cause is Cause.NOT_RECALLED)
        return next((str(line.reasons[0]) for line in lines), "")

    def _write_pause(self) -> str:
        whys = (line.reasons[0].numbers.get("why") for line in self.lines)
        pauses = (w for w in whys if isinstance(w, Reason) and w.cause in PAUSING)
        return str(next(pauses, ""))

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a dictionary for JSON, without message content."""
        names = (
            *("session", "turn", "format", "model", "window_tokens", "window_source"),
            *("reserve_tokens", "limit_tokens", "fixed_tokens", "tokens_before", "tokens_after"),
            *("over_limit", "calibration_ratio"),
        )
        moment = self.moment
        return {
            **{name: getattr(self, name) for name in names},
            "messages": len(self.view.rows),
            "moment": None
            if moment is None
            else {"kind": moment.kind, "price": moment.price, **_reason_dict(moment.reason)},
            "lines": [line.to_dict() for line in self.lines],
            "failed": [line.stage for line in self.failures],
            "fates": [fate.to_dict() for fate in self.fates()],
            "repairs": [
                {
                    "kind": repair.kind,
                    "anchor": repair.anchor,
                    "part": repair.part,
                    **_reason_dict(repair.reason),
                }
                for repair in self.repairs
            ],
            "new_edits": [_edit_dict(edit) for edit in self.new_edits],
            "ended_edits": [_edit_dict(edit) for edit in self.ended_edits],
            "recalled": [{"segment": segment, "score": score} for segment, score in self.recalled],
        }


def join_lines(lines: Sequence[StageLine]) -> str:
    """Join lines into text for people. Stages with the same text get one line."""
    stages: dict[str, list[str]] = {}
    for line in lines:
        stage_names = stages.setdefault(line.said, [])
        if line.stage not in stage_names:
            stage_names.append(line.stage)
    return "; ".join(f"{', '.join(stage_names)}: {text}" for text, stage_names in stages.items())


class Outcomes:
    """Outcomes of a request's messages, by position in the received request."""

    __slots__ = (
        "_as_it_came",
        "_covered_ids",
        "_cut",
        "_cut_place",
        "_entries",
        "_reasons",
        "_shares",
    )

    def __init__(self, entries: Sequence[Entry], view: View, edits: Sequence[Edit]) -> None:
        self._entries = entries
        self._as_it_came = {id(row) for row in view.rows if isinstance(row, Entry)}
        self._reasons = _reasons(view, edits)
        self._shares = _shares(entries, view)
        self._cut = newest_cut(edits)
        self._covered_ids: frozenset[str] = frozenset()
        self._cut_place = 0
        if self._cut is not None:
            anchor = self._cut.anchor
            places = (index for index, entry in enumerate(entries) if entry.key == anchor)
            self._cut_place = next(places, 0)
            self._covered_ids = frozenset(self._cut.covers)

    def outcome_at(self, place: int) -> Fate:
        entry = self._entries[place]
        reasons = self._reasons.get(entry.key, [])
        if id(entry) in self._as_it_came:
            reasons = [reason for reason in reasons if reason.cause is Cause.RESULT_AWAY]
            kind: FateKind = "changed" if reasons else "kept"
            after, otherwise = entry.tokens, Cause.AS_IT_CAME
        elif entry.key in self._shares:
            kind, after, otherwise = "changed", self._shares[entry.key], Cause.WITH_NEIGHBOR
        elif self._cut is not None and self.is_summarized(place):
            kind, after, reasons, otherwise = "summarized", 0, [self._cut.reason], Cause.NOT_SHOWN
        else:
            kind, after, otherwise = "left out", 0, Cause.NOT_SHOWN
        return Fate(
            fate=kind,
            role=entry.role,
            reasons=tuple(reasons) or (Reason(otherwise),),
            key=entry.key,
            place=place,
            tokens_before=entry.tokens,
            tokens_after=after,
        )

    def is_summarized(self, place: int) -> bool:
        """Return whether a summary replaces the message at this position."""
        entry = self._entries[place]
        return (
            place < self._cut_place
            and entry.id in self._covered_ids
            and entry.role != "system"
            and id(entry) not in self._as_it_came
            and entry.key not in self._shares
        )


def _fates(entries: Sequence[Entry], view: View, edits: Sequence[Edit]) -> tuple[Fate, ...]:
    outcomes, own_outcomes = Outcomes(entries, view, edits), own_rows(view)
    fates: list[Fate] = list(own_outcomes.get(None, ()))
    for place, entry in enumerate(entries):
        fates.append(outcomes.outcome_at(place))
        fates.extend(own_outcomes.get(entry.key, ()))
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
    known_reasons = reasons.setdefault(key, [])
    if reason not in known_reasons:
        known_reasons.append(reason)


def _shares(entries: Sequence[Entry], view: View) -> dict[EntryKey, int]:
    composed_slots = [row for row in view.rows if isinstance(row, Slot) and row.sources]
    sources = {key for row in composed_slots for key in row.sources}
    weight = {entry.key: entry.tokens for entry in entries if entry.key in sources}
    shares: dict[EntryKey, int] = {}
    for row in composed_slots:
        total = sum(weight.get(key, 0) for key in row.sources) or 1
        for key in row.sources:
            part = row.tokens * weight.get(key, 0) // total
            shares[key] = shares.get(key, 0) + part
    return shares


def own_rows(view: View) -> dict[EntryKey | None, list[Fate]]:
    """Return the messages that Recollect added, by the received message before each."""
    own_outcomes: dict[EntryKey | None, list[Fate]] = {}
    last: EntryKey | None = None
    for row in view.rows:
        if isinstance(row, Entry):
            last = row.key
        elif row.sources:
            last = row.sources[-1]
        else:
            own_outcomes.setdefault(last, []).append(
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
    return own_outcomes


_OWN = {
    "absent": Cause.ABSENT,
    "gap": Cause.GAP_NOTE,
    "inject": Cause.OWN_BLOCK,
    "opening": Cause.OPENING,
    "stand": Cause.STANDING_ROW,
    "stand-in": Cause.STAND_IN,
    "summary": Cause.SUMMARY,
}


def _own_reason(note: str) -> Reason:
    return Reason(_OWN[note]) if note in _OWN else Reason(Cause.OWN_ROW, note=note)


_REPAIRED: Final[Mapping[RepairKind, tuple[str, str]]] = {
    "left-out": ("item", "left out"),
    "moved": ("tool result", "moved"),
    "synthesised": ("placeholder", "added"),
    "merged": ("message", "merged"),
    "opened": ("opening message", "added"),
    "respelled": ("item", "rewritten"),
}


def _write_repairs(repairs: Sequence[Repair]) -> str:
    return ", ".join(
        f"{_count_text(count, _REPAIRED[kind][0])} {_REPAIRED[kind][1]}"
        for kind, count in Counter(repair.kind for repair in repairs).items()
    )


def _count_text(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _reason_dict(reason: Reason) -> dict[str, Any]:
    return {"reasons": [reason.to_dict()], "said": str(reason)}


def _edit_dict(edit: Edit) -> dict[str, Any]:
    return {
        "kind": _EDITS[type(edit)],
        "anchor": edit.anchor,
        "stage": edit.stage,
        "turn": edit.turn,
        **_reason_dict(edit.reason),
    }


_EDITS = {LeaveOut: "left out", Shorten: "shortened", Insert: "inserted", Cut: "cut"}


def _fields(value: StageLine | Fate) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}
