"""Sessions, turns and the state of a window as plain text, for a chat and a pipe.

Text of a conversation is printed on one line each, cut if it is long, masked, and without signs
that a terminal acts upon.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final

from recollect.core.formats.json_text import when
from recollect.core.values.reason import Reason, joined_reasons
from recollect.hosts.inspect.turns import shown_text, stretches
from recollect.system.plain_text import number_of

if TYPE_CHECKING:
    from recollect.core.engine.ledger import KeptTurn, Rebuilt
    from recollect.hosts.inspect.explained import Explained
    from recollect.hosts.inspect.status import (
        ComponentKind,
        ContextStatus,
        RequestContext,
        Spending,
    )
    from recollect.hosts.inspect.turns import MessageFate, Stretch, TurnFates

MOST_LISTED: Final = 20
_MOST_MATCHES: Final = 5
_SAID_CHARS: Final = 60


def reason_text(reasons: tuple[Reason, ...]) -> str:
    """Reasons as one sentence."""
    return shown_text(joined_reasons(reasons))


def span_text(stretch: Stretch) -> str:
    """The numbers of a stretch's first and last message."""
    if stretch.first is None or stretch.last is None:
        return f"{stretch.count} of ours" if stretch.count > 1 else "ours"
    if stretch.first == stretch.last:
        return f"#{stretch.first:,}"
    return f"#{stretch.first:,}–#{stretch.last:,}"


def why_text(stretch: Stretch) -> str:
    """The reason of a stretch, with the range of scores if they differ."""
    if stretch.scores is None:
        return reason_text(stretch.reasons)
    low, high = (f"{score:.2f}" for score in stretch.scores)
    ends = low if low == high else f"{low} to {high}"
    return reason_text(
        tuple(Reason(one.cause, **{**one.numbers, "score": ends}) for one in stretch.reasons)
    )


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
            sizes = f"{one.tokens_before:>7,} → {one.tokens_after:<7,}"
            lines.append(f"  {span_text(one):>11}  {one.fate:<10} {sizes} {why_text(one)}")
        return "\n".join(lines)
    found = [one for one in turn.messages if one.number in numbers]
    lines = [_fate_line(one) for one in found[:_MOST_MATCHES]]
    if len(found) > _MOST_MATCHES:
        lines.append(f"… and {len(found) - _MOST_MATCHES} more hold these words.")
    return "\n".join(lines)


def _fate_line(fate: MessageFate) -> str:
    sizes = f"{fate.tokens_before:,} → {fate.tokens_after:,} tokens"
    said = shown_text(fate.excerpt, _SAID_CHARS)
    why = reason_text(fate.reasons)
    return f"{fate.number:>4} {fate.role} »{said}«: {fate.fate}, {sizes}: {why}"


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


def sent_line(rebuilt: Rebuilt) -> str:
    """Which turn a request is, and whether it is byte for byte what was sent."""
    record = rebuilt.record
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


# The state of a window


_COMPONENTS: Final[Mapping[ComponentKind, str]] = {
    "system": "system prompt",
    "tools": "tool schemas",
    "files": "workspace files",
    "summary": "summary",
    "recalled": "recalled blocks",
    "history": "history",
}


def status_text(status: ContextStatus) -> str:
    """The answer of `/status`."""
    request = status.request
    named = f" ({status.name})" if status.name else ""
    messages = number_of(request.messages, "message")
    lines = [
        f"session {status.session_id}{named}, {_duration(status.seconds)}",
        f"model {status.model}, window {request.window_tokens:,} tokens ({request.window_source})",
        f"{status.messages} messages, {status.compactions} compactions in effect",
        f"{_which(request)}: {request.tokens:,} tokens, {request.window_share:.0%} of the window",
        f"  by the counter: {request.counted_tokens:,} tokens in {messages}",
        f"  limit without the reply: {request.limit_tokens:,}",
    ]
    if status.reported_tokens is not None:
        lines.append(f"  as the provider counted it: {status.reported_tokens:,} tokens")
    lines.extend(
        f"  {_COMPONENTS[one.kind]}: {one.tokens:,} tokens, "
        f"{request.share(one.kind):.0%} of the window"
        for one in request.components
        if one.tokens
    )
    lines.append(_spending_text(status.spending))
    return "\n".join([*lines, *request.notes])


def _spending_text(spent: Spending) -> str:
    if not spent.replies and not spent.side_requests:
        return "cost: nothing was reported yet"
    used = f"{spent.input_tokens:,} tokens in, {spent.output_tokens:,} out"
    cached = "" if spent.cache_share is None else f", {spent.cache_share:.0%} from the cache"
    took = f"{number_of(spent.replies, 'reply', 'replies')}: {used}{cached}"
    if spent.side_requests:
        beside = number_of(
            spent.side_requests, "summary or note-taking turn", "summaries and note-taking turns"
        )
        took += f"; {beside}: {spent.side_input_tokens:,} in, {spent.side_output_tokens:,} out"
    if spent.cost is None:
        why = f"the price of {', '.join(spent.unpriced)} is not known; models.prices can name it"
        return f"cost: not known ({why}); {took}"
    return f"cost: ${spent.cost:.4f} for {took}"


def _which(request: RequestContext) -> str:
    return "last request" if request.which == "sent" else "next request, before your message"


def _duration(seconds: float) -> str:
    minutes, hours = int(seconds) // 60, int(seconds) // 3600
    if hours >= 24:
        return f"{hours // 24} d {hours % 24} h"
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min {int(seconds) % 60} s"
