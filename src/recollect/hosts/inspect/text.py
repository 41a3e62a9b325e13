"""Sessions, turns and their messages as plain text, for a chat and a pipe.

Text of a conversation is printed on one line each, cut if it is long, masked, and without signs
that a terminal acts upon.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Final

from recollect.core.formats.json_text import when
from recollect.core.values.reason import Reason, joined_reasons
from recollect.core.values.report import FateKind
from recollect.hosts.inspect.tokens import shown_text
from recollect.system.plain_text import number_of

if TYPE_CHECKING:
    from recollect.core.engine.ledger import KeptTurn
    from recollect.hosts.inspect.explained import Explained
    from recollect.hosts.inspect.sessions import SessionLine
    from recollect.hosts.inspect.turns import MessageFate, SentTurn, TurnFates

FATES: Final[tuple[FateKind, ...]] = ("kept", "changed", "left out", "summarised", "inserted")
MOST_LISTED: Final = 20
_MOST_MATCHES: Final = 5
_SAID_CHARS: Final = 60


def reason_text(reasons: tuple[Reason, ...]) -> str:
    """Reasons as one sentence."""
    return shown_text(joined_reasons(reasons))


# Neighbours told together


@dataclass(slots=True)
class Stretch:
    """Messages with the same fate for the same reason."""

    fate: FateKind
    kind: tuple[object, ...]
    members: list[MessageFate] = field(default_factory=list)

    @property
    def span(self) -> str:
        """The numbers of the first and the last."""
        numbers = [member.number for member in self.members if member.number is not None]
        if not numbers:
            return f"{len(self.members)} of ours" if len(self.members) > 1 else "ours"
        ends = (numbers[0], numbers[-1])
        return f"#{ends[0]:,}" if ends[0] == ends[1] else f"#{ends[0]:,}–#{ends[1]:,}"

    @property
    def why(self) -> str:
        """The reason, with the range of scores if they differ."""
        reasons = [reason for fate in self.members for reason in fate.reasons]
        scores = [float(str(one.numbers["score"])) for one in reasons if "score" in one.numbers]
        if not scores:
            return shown_text(joined_reasons(self.members[0].reasons))
        low, high = f"{min(scores):.2f}", f"{max(scores):.2f}"
        ends = low if low == high else f"{low} to {high}"
        shown = [
            Reason(reason.cause, **{**reason.numbers, "score": ends})
            for reason in self.members[0].reasons
        ]
        return shown_text(joined_reasons(tuple(shown)))


def stretches(fates: Sequence[MessageFate], *, together: bool = False) -> list[Stretch]:
    """Neighbours of one fate and reason; `together` joins them over the whole request."""
    found: list[Stretch] = []
    known: dict[tuple[object, ...], Stretch] = {}
    for fate in fates:
        key = (fate.fate, *map(_without_score, fate.reasons))
        if together and key in known:
            stretch = known[key]
        elif not together and found and found[-1].kind == key:
            stretch = found[-1]
        else:
            stretch = known[key] = Stretch(fate=fate.fate, kind=key)
            found.append(stretch)
        stretch.members.append(fate)
    if together:
        found.sort(key=lambda one: (FATES.index(one.fate), -len(one.members)))
    return found


def _without_score(reason: Reason) -> Reason:
    """A reason without the score that differs from message to message."""
    return Reason(reason.cause, **{k: v for k, v in reason.numbers.items() if k != "score"})


# A request, message by message


def turn_text(turn: TurnFates, numbers: Sequence[int] = ()) -> str:
    """What became of the messages of a request; of those with these numbers, one by one."""
    if not numbers:
        lines = [
            f"  {stage.stage}: {stage.outcome}: {reason_text(stage.reasons)}"
            for stage in turn.stages
            if stage.outcome not in ("done", "nothing")
        ]
        for one in stretches(turn.messages)[-MOST_LISTED:]:
            before = sum(member.tokens_before for member in one.members)
            after = sum(member.tokens_after for member in one.members)
            lines.append(f"  {one.span:>11}  {one.fate:<10} {before:>7,} → {after:<7,} {one.why}")
        return "\n".join(lines)
    found = [one for one in turn.messages if one.number in numbers]
    lines = [_fate_line(one) for one in found[:_MOST_MATCHES]]
    if len(found) > _MOST_MATCHES:
        lines.append(f"… and {len(found) - _MOST_MATCHES} more hold these words.")
    return "\n".join(lines)


def _fate_line(fate: MessageFate) -> str:
    sizes = f"{fate.tokens_before:,} → {fate.tokens_after:,} tokens"
    said = shown_text(fate.excerpt, _SAID_CHARS)
    return f"{fate.number:>4} {fate.role} »{said}«: {fate.fate}, {sizes}: " + reason_text(
        fate.reasons
    )


def turn_line(explained: Explained) -> str:
    """A replayed turn in one sentence."""
    subject = "The next request" if explained.next_request else f"Turn {explained.turn}"
    came, sent, limit = explained.came_tokens, explained.sent_tokens, explained.window.limit_tokens
    fates = [fate.fate for fate in explained.fates]
    did = [
        f"{number_of(fates.count(kind), 'message')} {kind}"
        for kind in ("left out", "changed", "inserted")
        if kind in fates
    ]
    if sent > limit:
        return (
            f"{subject} came with {came:,} tokens and is still at {sent:,}, over the limit of "
            f"{limit:,}: the rest is protected."
        )
    if not did:
        return f"{subject} is sent as it came: {came:,} tokens, within the limit of {limit:,}."
    return (
        f"{subject} came with {came:,} tokens and is sent with {sent:,}, within the limit of "
        f"{limit:,}: {', '.join(did)}."
    )


# Requests of the ledger


def turns_text(kept: Sequence[KeptTurn]) -> list[str]:
    """One line per message of the user: the turns that answer it, and its first words."""
    rows = []
    for _, group in groupby(kept, key=lambda turn: turn.asked_by or turn.turn):
        turns = list(group)
        first, last = turns[0], turns[-1]
        span = f"{first.turn}" if first is last else f"{first.turn}-{last.turn}"
        rows.append(f"{span:>9}  {when(first.at)}  {shown_text(first.said) or '(no longer kept)'}")
    return rows


def sent_line(sent: SentTurn) -> str:
    """Which turn a request is, and whether it is byte for byte what was sent."""
    rebuilt, record = sent.rebuilt, sent.rebuilt.record
    text = f"turn {record.number}, {when(record.at)}, {record.format}, {len(rebuilt.body):,} bytes"
    reasons = ["exact" if rebuilt.exact else "not exact"]
    if rebuilt.redacted:
        reasons.append(f"secrets are masked: {_named(rebuilt.redacted)}")
    if rebuilt.missing:
        reasons.append(f"no longer kept: {_named(rebuilt.missing)}")
    return f"{text}: {'; '.join(reasons)}"


def _named(things: tuple[str, ...]) -> str:
    left = len(things) - _MOST_MATCHES
    return ", ".join(things[:_MOST_MATCHES]) + (f" and {left:,} more" if left > 0 else "")


def sent_text(sent: SentTurn) -> str:
    """A request of the ledger, one line per message."""
    return "\n".join(
        [
            sent_line(sent),
            *(f"     {name}: {len(text):,} characters" for name, text in sent.parts.items()),
            *(
                f"{at:>4} {one.role}: {shown_text(one.text)}"
                for at, one in enumerate(sent.messages, 1)
            ),
        ]
    )


def sessions_text(lines: Sequence[SessionLine]) -> list[str]:
    """One line per session: id, keys, when it changed, how long it is, its name."""
    keys = [shown_text(", ".join(line.keys)) for line in lines]
    width = max(map(len, keys), default=0)
    return [
        f"{'*' if line.current else ' '} {line.session_id}  {key:<{width}}  {when(line.changed)}  "
        f"{number_of(line.messages, 'message')}  {shown_text(line.name)}".rstrip()
        for line, key in zip(lines, keys, strict=True)
    ]
