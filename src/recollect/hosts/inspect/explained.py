"""A recorded session at one turn, measured: what `recollect explain` shows.

Owns the names that `--json` prints. Tokens of single messages are the engine's estimates scaled to
its calibrated total. Always holds: the kinds add up to the tokens that came and to those that were
sent, and every message of the request has exactly one fate.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from recollect.core.rules.tokens import Weigher
from recollect.core.values.reason import Reason, joined_reasons
from recollect.core.values.transcript import RecordedSession
from recollect.hosts.inspect.recorded import Replay, TurnPoint, requests_of
from recollect.hosts.inspect.tokens import (
    KINDS,
    TokenKind,
    apportioned,
    shown_text,
    sort_rows,
    tool_names,
)
from recollect.hosts.inspect.turns import MessageFate, StageNote, turn_of
from recollect.system.config import Settings
from recollect.system.plain_text import plain_line

WindowSource: TypeAlias = Literal["argument", "settings", "recording", "model", "default"]
LARGEST: Final = 10


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
    """Tokens of one kind of content."""

    kind: TokenKind
    came_tokens: int
    sent_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolShare:
    """Tokens of the results of one tool."""

    tool: str
    results: int
    came_tokens: int
    sent_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairCount:
    """One reason for which the provider's rules changed something."""

    kind: str
    reasons: tuple[Reason, ...]
    this_turn: int
    session: int
    numbers: tuple[int, ...]
    """The messages it touched at this turn."""


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
    moment: Reason | None
    kinds: tuple[KindShare, ...]
    tools: tuple[ToolShare, ...]
    filling: tuple[TurnPoint, ...]
    skipped_turns: int
    """Turns before this one that were not replayed, to save time."""
    largest: tuple[MessageFate, ...]
    fates: tuple[MessageFate, ...]
    repairs: tuple[RepairCount, ...]
    stages: tuple[StageNote, ...]

    def as_json(self) -> dict[str, Any]:
        """The object that `--json` prints; each reason as a sentence, and as its cause for code."""
        moment = None if self.moment is None else str(self.moment)
        return {**asdict(self, dict_factory=_with_sentences), "moment": moment}


def _with_sentences(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    record.pop("key", None)
    if "reasons" in record:
        record["reason"] = shown_text(joined_reasons(record["reasons"]))
        record["reasons"] = [reason.to_dict() for reason in record["reasons"]]
    return record


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
    """Measure the turn."""
    report, usage = replayed.report, replayed.request.usage
    estimate = report.fixed_tokens + sum([entry.tokens for entry in report.entries])
    made = turn_of(report, ratio=report.tokens_before / estimate if estimate else 1.0)
    shown = tuple(replayed.request.shown)
    fates = tuple(
        one
        if one.number is None
        else replace(one, line=transcript.items[shown[one.number - 1]].line)
        for one in made.messages
    )
    messages = [one for one in fates if one.number is not None]
    kinds, tools = _shares(replayed, Weigher(settings.tokens.counter))
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
        moment=report.moment.reason if report.moment else None,
        kinds=kinds,
        tools=tools,
        filling=replayed.points,
        skipped_turns=replayed.skipped_turns,
        largest=tuple(sorted(messages, key=lambda one: -one.tokens_before)[:LARGEST]),
        fates=fates,
        repairs=_repairs(replayed),
        stages=made.stages,
    )


def _recording(transcript: RecordedSession, file: str, run: int, runs: int) -> Recording:
    named = (transcript.version, transcript.model, transcript.session_id)
    version, model, session_id = (plain_line(text) if text else None for text in named)
    return Recording(
        file=plain_line(file),
        kind=transcript.kind,
        format=transcript.format,
        version=version,
        model=model,
        session_id=session_id,
        run=run,
        runs=runs,
        messages=len(transcript.items),
        requests=len(transcript.requests),
        compactions=transcript.compactions,
        passed_over=tuple(shown_text(line) for line in transcript.passed_over),
    )


def _shares(
    replayed: Replay, weigher: Weigher
) -> tuple[tuple[KindShare, ...], tuple[ToolShare, ...]]:
    """Tokens that came and that were sent by kind, each adding up to the report's total."""
    report, fixed = replayed.report, replayed.fixed
    names = tool_names(entry.message for entry in report.entries)
    came = sort_rows(report.entries, names, weigher)
    sent = sort_rows(report.view.rows, names, weigher)
    for found in (came, sent):
        found.kinds["system"] += fixed.system_tokens
        found.kinds["tools"] += fixed.tools_tokens
        found.kinds["not recorded"] += fixed.unrecorded_tokens
    came_tokens = apportioned([came.kinds[kind] for kind in KINDS], report.tokens_before)
    sent_tokens = apportioned([sent.kinds[kind] for kind in KINDS], report.tokens_after)
    kinds = tuple(
        KindShare(kind=kind, came_tokens=came_tokens[at], sent_tokens=sent_tokens[at])
        for at, kind in enumerate(KINDS)
    )
    results = KINDS.index("tool results")
    tools = [tool for tool, _ in came.tools.most_common()]
    tool_came = apportioned([came.tools[tool] for tool in tools], came_tokens[results])
    tool_sent = apportioned([sent.tools[tool] for tool in tools], sent_tokens[results])
    return kinds, tuple(
        ToolShare(
            tool=plain_line(tool),
            results=came.results[tool],
            came_tokens=tool_came[at],
            sent_tokens=tool_sent[at],
        )
        for at, tool in enumerate(tools)
    )


def _repairs(replayed: Replay) -> tuple[RepairCount, ...]:
    report = replayed.report
    numbers = {entry.key: place for place, entry in enumerate(report.entries, 1)}
    counts: list[RepairCount] = []
    for (kind, reason), places in replayed.repaired.items():
        now = [one for one in report.repairs if (one.kind, one.reason) == (kind, reason)]
        touched = {numbers[one.anchor] for one in now if one.anchor in numbers}
        counts.append(
            RepairCount(
                kind=kind,
                reasons=(reason,),
                this_turn=len(now),
                session=len(places),
                numbers=tuple(sorted(touched)),
            )
        )
    return tuple(sorted(counts, key=lambda count: (-count.session, str(count.reasons[0]))))
