"""Measures a replayed session into what there is to tell about it.

Pure: a transcript and its replay in, `Explained` out. Tokens of single messages are the
engine's estimates carried over to its calibrated total, so that what is shown adds up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recollect.rules.tokens import Weigher
from recollect.surfaces.cli.explain_kinds import (
    KINDS,
    apportioned,
    sort_rows,
    tool_names,
)
from recollect.surfaces.cli.explain_replay import requests_of
from recollect.surfaces.cli.explain_text import excerpt_of, plain_line, shown_text
from recollect.surfaces.cli.explained import (
    Explained,
    KindShare,
    MessageFate,
    Recording,
    RepairCount,
    StageTold,
    ToolShare,
    WindowSource,
    WindowUsed,
)
from recollect.values.message import Message, ToolCall, ToolResult

if TYPE_CHECKING:
    from recollect.config import Settings
    from recollect.surfaces.cli.explain_replay import Replay
    from recollect.values.message import CallId, EntryKey
    from recollect.values.report import Fate, Report
    from recollect.values.transcript import RecordedSession

LARGEST = 10


def explain_session(
    transcript: RecordedSession,
    replayed: Replay,
    settings: Settings,
    *,
    turn: int,
    file: str,
    run: int,
    runs: int,
    window_source: WindowSource,
) -> Explained:
    """Everything there is to tell about the turn."""
    report = replayed.report
    messages = [entry.message for entry in report.entries]
    names = tool_names(messages)
    fates = _fates(transcript, replayed, messages, names)
    told = [fate for fate in fates if fate.number is not None]
    largest = sorted(told, key=lambda fate: (-fate.tokens_before, fate.number))[:LARGEST]
    kinds, tools = _shares(replayed, names, Weigher(settings.tokens.counter))
    usage = replayed.request.usage
    return Explained(
        recording=_recording(transcript, file, run, runs),
        turn=turn,
        turns=len(requests_of(transcript)),
        next_request=not transcript.requests,
        preset=settings.preset,
        window=WindowUsed(
            tokens=report.window_tokens,
            source=window_source,
            reserve_tokens=report.reserve_tokens,
            limit_tokens=report.limit_tokens,
        ),
        came_tokens=report.tokens_before,
        sent_tokens=report.tokens_after,
        reported_tokens=usage.input_tokens if usage and usage.input_tokens else None,
        calibration_ratio=report.calibration_ratio,
        moment=str(report.moment.reason) if report.moment else None,
        kinds=kinds,
        tools=tools,
        filling=replayed.points,
        skipped_turns=replayed.skipped_turns,
        largest=tuple(largest),
        fates=fates,
        repairs=_repairs(replayed),
        stages=tuple(
            StageTold(stage=line.stage, outcome=line.outcome, reasons=line.reasons)
            for line in report.lines
        ),
        said=_said(report, fates, turn, next_request=not transcript.requests),
    )


def _recording(transcript: RecordedSession, file: str, run: int, runs: int) -> Recording:
    def plain(text: str | None) -> str | None:
        return plain_line(text) if text else None

    return Recording(
        file=plain_line(file),
        kind=transcript.kind,
        format=transcript.format,
        version=plain(transcript.version),
        model=plain(transcript.model),
        session_id=plain(transcript.session_id),
        run=run,
        runs=runs,
        messages=len(transcript.items),
        requests=len(transcript.requests),
        compactions=transcript.compactions,
        passed_over=tuple(shown_text(line) for line in transcript.passed_over),
    )


def _shares(
    replayed: Replay, names: dict[CallId, str], weigher: Weigher
) -> tuple[tuple[KindShare, ...], tuple[ToolShare, ...]]:
    """What came and what was sent by kind, each adding up to the report's total."""
    report = replayed.report
    came = sort_rows(report.entries, names, weigher)
    sent = sort_rows(report.view.rows, names, weigher)
    for found in (came, sent):
        found.kinds["system"] += replayed.fixed.system_tokens
        found.kinds["tools"] += replayed.fixed.tools_tokens
        found.kinds["not recorded"] += replayed.fixed.unrecorded_tokens
    came_tokens = apportioned([came.kinds[kind] for kind in KINDS], report.tokens_before)
    sent_tokens = apportioned([sent.kinds[kind] for kind in KINDS], report.tokens_after)
    kinds = tuple(
        KindShare(kind=kind, came_tokens=came_tokens[at], sent_tokens=sent_tokens[at])
        for at, kind in enumerate(KINDS)
    )
    results = KINDS.index("tool results")
    by_tokens = [tool for tool, _ in came.tools.most_common()]
    tool_came = apportioned([came.tools[tool] for tool in by_tokens], came_tokens[results])
    tool_sent = apportioned([sent.tools[tool] for tool in by_tokens], sent_tokens[results])
    tools = tuple(
        ToolShare(
            tool=plain_line(tool),
            results=came.results[tool],
            came_tokens=tool_came[at],
            sent_tokens=tool_sent[at],
        )
        for at, tool in enumerate(by_tokens)
    )
    return kinds, tools


def _fates(
    transcript: RecordedSession, replayed: Replay, messages: list[Message], names: dict[CallId, str]
) -> tuple[MessageFate, ...]:
    report = replayed.report
    estimate = report.fixed_tokens + sum([entry.tokens for entry in report.entries])
    ratio = report.tokens_before / estimate if estimate else 1.0
    shown = tuple(replayed.request.shown)

    def told(fate: Fate) -> MessageFate:
        message = messages[fate.place] if fate.place is not None else None
        return MessageFate(
            number=None if fate.place is None else fate.place + 1,
            line=None if fate.place is None else transcript.items[shown[fate.place]].line,
            role=fate.role,
            what=plain_line(_what(message, names)) if message else "recollect",
            fate=fate.fate,
            reasons=fate.reasons[-1:] if fate.fate == "left out" else fate.reasons,
            tokens_before=round(fate.tokens_before * ratio),
            tokens_after=round(fate.tokens_after * ratio),
            excerpt=excerpt_of(message.parts) if message else "",
        )

    return tuple(told(fate) for fate in report.fates())


def _what(message: Message, names: dict[CallId, str]) -> str:
    """What a reader knows a message by: its tool, else its role."""
    if message.summary:
        return "summary"
    for part in message.parts:
        if isinstance(part, ToolResult):
            return f"{part.name or names.get(part.call_id, '?')} result"
    for part in message.parts:
        if isinstance(part, ToolCall) and message.role == "assistant":
            return f"{part.name} call"
    return message.role


def _repairs(replayed: Replay) -> tuple[RepairCount, ...]:
    report = replayed.report
    numbers: dict[EntryKey, int] = {
        entry.key: place for place, entry in enumerate(report.entries, 1)
    }
    counts: list[RepairCount] = []
    for (kind, reason), places in replayed.repaired.items():
        now = [r for r in report.repairs if (r.kind, r.reason) == (kind, reason)]
        touched = [numbers[r.anchor] for r in now if r.anchor in numbers]
        counts.append(
            RepairCount(
                kind=kind,
                reasons=(reason,),
                this_turn=len(now),
                session=len(places),
                numbers=tuple(sorted(set(touched))),
            )
        )
    return tuple(sorted(counts, key=lambda count: (-count.session, count.reason)))


def _said(report: Report, fates: tuple[MessageFate, ...], turn: int, *, next_request: bool) -> str:
    """The turn in one sentence."""
    subject = "The next request" if next_request else f"Turn {turn}"
    came, sent = report.tokens_before, report.tokens_after
    limit = report.limit_tokens
    did: list[str] = []
    for word, kind in (("left out", "left out"), ("changed", "changed")):
        count = sum(fate.fate == kind for fate in fates)
        if count:
            did.append(f"{count:,} {'message' if count == 1 else 'messages'} {word}")
    own = sum(fate.fate == "inserted" for fate in fates)
    if own:
        did.append(f"{own:,} of our own put in")
    if report.over_limit:
        return (
            f"{subject} came with {came:,} tokens and is still at {sent:,}, over the limit of "
            f"{limit:,}: what is left is protected."
        )
    if not did:
        return f"{subject} goes out as it came: {came:,} tokens, within the limit of {limit:,}."
    return (
        f"{subject} came with {came:,} tokens and goes out with {sent:,}, within the limit of "
        f"{limit:,}: {_joined(did)}."
    )


def _joined(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
