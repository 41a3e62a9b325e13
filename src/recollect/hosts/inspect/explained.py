"""Replays a recorded session with a real engine and measures one turn, for `recollect explain`.
Token counts of single messages are estimates, scaled so that their sum is the engine's calibrated
total. Every message has exactly one outcome."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from recollect.core.engine import Engine
from recollect.core.formats.codec import CODECS
from recollect.core.formats.json_text import encode
from recollect.core.formats.turn_records import write_report
from recollect.core.rules.price import read_prices
from recollect.core.rules.tokens import Weigher
from recollect.core.turn.token_kinds import KINDS, LastFigures, TokenKind, apportion, row_kinds
from recollect.core.values.batch import TurnRecord
from recollect.core.values.history import Row
from recollect.core.values.message import CallId, ToolResult
from recollect.core.values.reason import Reason, join_reasons
from recollect.core.values.transcript import RecordedRequest, ShownItems
from recollect.errors import FormatError
from recollect.hosts.inspect.timeline import Timeline, TurnSizes, read_sizes, timeline_of
from recollect.hosts.inspect.turns import (
    MessageFate,
    StageNote,
    format_excerpt,
    tool_names,
    turn_of,
)
from recollect.system.plain_text import number_of, plain_line

if TYPE_CHECKING:
    from recollect.core.values.model import FormatName
    from recollect.core.values.report import MomentKind, Report
    from recollect.core.values.transcript import RecordedSession
    from recollect.system.config import Settings

Progress: TypeAlias = Callable[[int, int], None]

WHOLE_REPLAY_MESSAGES = 600_000
"""If all requests together have at most this many messages, every turn is replayed, which takes
about ten seconds."""
LAST_TURNS = 50
"""Number of turns before the explained one that are replayed unless the history is very long."""
MIN_LAST_TURNS = 25
"""Number of turns before the explained one that are replayed in a very long history."""

_SESSION = "explained"
_FILLER = "word "
_OPENING_REQUESTS = 5  # in later requests, the counter's error is larger than the unrecorded part
_MIN_UNRECORDED_TOKENS = 100  # fewer tokens are within the error of an estimate
_SYSTEM_KEYS: dict[FormatName, str] = {
    "anthropic": "system",
    "openai-responses": "instructions",
    "pi": "systemPrompt",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnPoint:
    """One replayed request of the session."""

    turn: int
    came_tokens: int
    sent_tokens: int
    moment: MomentKind | None
    new_edits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedParts:
    """The system prompt and tools of every request, and their tokens."""

    system: bytes | None = None
    """JSON of the system prompt, with filler text for parts that were not recorded."""
    tools: bytes | None = None
    system_tokens: int = 0
    tools_tokens: int = 0
    unrecorded_tokens: int = 0
    """Tokens of system prompt and tools that were sent, but are not in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The replay up to one turn, and that turn's report."""

    report: Report
    request: RecordedRequest
    fixed_parts: FixedParts
    points: tuple[TurnPoint, ...]
    skipped_turns: int
    timeline: Timeline = field(repr=False)


@dataclass(slots=True)
class RecordedClock:
    """A clock that shows the time of the replayed request; 0 if the recording has no times."""

    time: float = 0.0

    def now(self) -> float:
        """Return the seconds since the epoch."""
        return self.time


@dataclass(slots=True)
class _Replaying:
    transcript: RecordedSession
    engine: Engine
    clock: RecordedClock
    fixed_parts: FixedParts
    weigher: Weigher
    points: list[TurnPoint] = field(default_factory=list)
    figures: LastFigures = field(default_factory=LastFigures)
    sized_turns: list[tuple[TurnRecord, TurnSizes]] = field(default_factory=list)

    async def turn(self, number: int, request: RecordedRequest) -> Report:
        context = await self.engine.prepare(
            _SESSION, self._body(request), format=self.transcript.format
        )
        report = context.report
        if len(report.entries) != len(request.shown):
            text = "; ".join(line.said for line in report.failures)
            raise FormatError(f"turn {number} could not be read by the engine: {text}")
        self.points.append(
            TurnPoint(
                turn=number,
                came_tokens=report.tokens_before,
                sent_tokens=report.tokens_after,
                moment=report.moment.kind if report.moment else None,
                new_edits=len(report.new_edits),
            )
        )
        await self._observe(request, report)
        self._note(number, report)
        return report

    def _note(self, number: int, report: Report) -> None:
        """Keep the turn as the ledger would record it, to draw the session's timeline."""
        figures, self.figures = self.figures.next(report, self.weigher, None, same_head=True)
        sizes = read_sizes(write_report(report, lambda reason: reason, figures.to_dict()))
        assert sizes is not None
        record = TurnRecord(
            session=_SESSION,
            number=number,
            at=self.clock.time,
            format=self.transcript.format,
            model=self.transcript.model,
        )
        self.sized_turns.append((record, sizes))

    def _body(self, request: RecordedRequest) -> bytes:
        items = self.transcript.items
        shown = request.shown
        spans = shown.runs() if isinstance(shown, ShownItems) else (shown,)
        raws = [items[index].raw for span in spans for index in span]
        format_name = self.transcript.format
        fields: list[bytes] = []
        if self.fixed_parts.system is not None and format_name in _SYSTEM_KEYS:
            fields.append(encode(_SYSTEM_KEYS[format_name]) + b":" + self.fixed_parts.system)
        if self.fixed_parts.tools is not None:
            fields.append(b'"tools":' + self.fixed_parts.tools)
        key = b'"input":[' if format_name == "openai-responses" else b'"messages":['
        fields.append(key + b",".join(raws) + b"]")
        return b"{" + b",".join(fields) + b"}"

    async def _observe(self, request: RecordedRequest, report: Report) -> None:
        """Pass the recorded token usage to the engine, scaled by how much the engine shortened the
        request, because the provider counted the original request."""
        if request.usage is None or not request.usage.input_tokens:
            return
        received_tokens = report.fixed_tokens + sum([entry.tokens for entry in report.entries])
        sent_tokens = report.fixed_tokens + report.view.tokens
        share = sent_tokens / received_tokens if received_tokens else 1.0
        input_tokens = max(1, round(request.usage.input_tokens * share))
        usage = {"input_tokens": input_tokens, "output_tokens": request.usage.output_tokens}
        await self.engine.observe(_SESSION, {"usage": usage})


async def replay(
    transcript: RecordedSession, settings: Settings, *, turn: int, progress: Progress | None = None
) -> Replay:
    """Replay the session up to `turn`, counted from 1. Call `progress` with the number of replayed
    turns and the number of turns to replay."""
    requests = requests_of(transcript)
    clock, weigher = RecordedClock(), Weigher(settings.tokens.counter)
    under_way = _Replaying(
        transcript=transcript,
        engine=Engine(settings, clock=clock),
        clock=clock,
        fixed_parts=read_fixed_parts(transcript, weigher),
        weigher=weigher,
    )
    gaps = _pauses_seconds(transcript, requests[:turn])
    turn_numbers = choose_turns([len(request.shown) for request in requests[:turn]])
    previous_number = 0
    report: Report | None = None
    for position, number in enumerate(turn_numbers):
        # Use the longest pause in the skipped turns, because the provider's cache expired there
        # too.
        clock.time += max(gaps[previous_number:number])
        report = await under_way.turn(number, requests[number - 1])
        previous_number = number
        if progress is not None:
            progress(position + 1, len(turn_numbers))
    assert report is not None
    return Replay(
        report=report,
        request=requests[turn - 1],
        fixed_parts=under_way.fixed_parts,
        points=tuple(under_way.points),
        skipped_turns=turn - len(turn_numbers),
        timeline=timeline_of(
            under_way.sized_turns, turns=turn, prices=read_prices(settings.models.prices)
        ),
    )


def requests_of(transcript: RecordedSession) -> tuple[RecordedRequest, ...]:
    """Return the recorded requests; if there are none, one request with all messages."""
    if transcript.requests:
        return transcript.requests
    return (RecordedRequest(shown=range(len(transcript.items)), answered=()),)


def read_fixed_parts(transcript: RecordedSession, weigher: Weigher) -> FixedParts:
    """Return the system prompt and tools of the requests. Most clients record neither, so add
    filler text for the tokens that the provider counted in the first request, but that the file
    lacks. The engine compares estimates with the provider's counts, so the prompt must have its
    full size."""
    system = encode(transcript.system) if transcript.system else None
    tools = transcript.tools.encode() if transcript.tools else None
    system_tokens = weigher.text(transcript.system or "")
    tools_tokens = weigher.text(transcript.tools or "")
    opening = requests_of(transcript)[:_OPENING_REQUESTS]
    first = next((request for request in opening if request.usage is not None), None)
    unrecorded = 0
    if first is not None and first.usage is not None and transcript.format in _SYSTEM_KEYS:
        codec = CODECS[transcript.format]
        messages = [codec.read(transcript.items[index].raw) for index in first.shown]
        known_tokens = (
            system_tokens
            + tools_tokens
            + sum(weigher.message(message.parts) for message in messages)
        )
        unrecorded = max(0, first.usage.input_tokens - known_tokens)
    if unrecorded > _MIN_UNRECORDED_TOKENS:
        words = unrecorded * 100 // weigher.text(_FILLER * 100)
        system = encode((transcript.system or "") + _FILLER * words)
        unrecorded = weigher.text(system.decode()) - system_tokens
    else:
        unrecorded = 0
    return FixedParts(
        system=system,
        tools=tools,
        system_tokens=system_tokens,
        tools_tokens=tools_tokens,
        unrecorded_tokens=unrecorded,
    )


def choose_turns(sizes: Sequence[int]) -> list[int]:
    """Choose the turns to replay: all, or every n-th if that would take too long. The last turn is
    always included."""
    count = len(sizes)
    if sum(sizes) <= WHOLE_REPLAY_MESSAGES:
        return list(range(1, count + 1))
    affordable = WHOLE_REPLAY_MESSAGES // (2 * max(sizes))
    last = min(count, LAST_TURNS, max(MIN_LAST_TURNS, affordable))
    earlier = sum(sizes[: count - last])
    step = max(1, -(-2 * earlier // WHOLE_REPLAY_MESSAGES))
    return [*range(1, count - last + 1, step), *range(count - last + 1, count + 1)]


def _pauses_seconds(
    transcript: RecordedSession, requests: Sequence[RecordedRequest]
) -> list[float]:
    gaps: list[float] = []
    now: float | None = None
    for request in requests:
        made_at = _time_of(transcript, request)
        if made_at is None:
            gaps.append(0.0)
        elif now is None:
            gaps.append(made_at)
            now = made_at
        else:
            gaps.append(max(0.0, made_at - now))
            now = max(now, made_at)
    return gaps


def _time_of(transcript: RecordedSession, request: RecordedRequest) -> float | None:
    shown = request.shown
    newest = shown.last if isinstance(shown, ShownItems) else shown[-1] if shown else None
    for index in (newest, *request.answered[:1]):
        if index is not None and transcript.items[index].timestamp is not None:
            return transcript.items[index].timestamp
    return None


WindowSource: TypeAlias = Literal["argument", "settings", "recording", "model", "default"]
# Not measured: the list fits a screen together with the rest.
MAX_LARGEST: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A recorded file and its contents."""

    file: str
    kind: str
    format: str
    model: str | None
    runs: int
    """Number of sessions in the file, of which only the first is explained."""
    messages: int
    requests: int
    compactions: int
    is_reconstructed: bool
    """True if the agent sends its requests itself: the file has messages, but no requests."""
    added_blocks: int
    """Number of blocks that hooks of Recollect added, which the replay leaves out."""
    added_tokens: int
    passed_over: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowUsed:
    """The window size of the replay, and where it comes from."""

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
class Explained:
    """A session at one turn, measured."""

    recording: Recording
    turn: int
    turns: int
    next_request: bool
    """True if the file records no request, so that the session's next request is explained."""
    preset: str
    window: WindowUsed
    came_tokens: int
    sent_tokens: int
    reported_tokens: int | None
    calibration_ratio: float
    moment: Reason | None
    kinds: tuple[KindShare, ...]
    tools: tuple[ToolShare, ...]
    filling: tuple[TurnPoint, ...]
    skipped_turns: int
    """Number of earlier turns that were skipped, to save time."""
    largest: tuple[MessageFate, ...]
    fates: tuple[MessageFate, ...]
    stages: tuple[StageNote, ...]

    def as_json(self) -> dict[str, Any]:
        """Return what `--json` prints, with each reason as a sentence and as a cause's name."""
        moment = None if self.moment is None else str(self.moment)
        return {**asdict(self, dict_factory=_with_sentences), "moment": moment}


def turn_line(explanation: Explained) -> str:
    """Describe a replayed turn in one sentence."""
    subject = "The next request" if explanation.next_request else f"Turn {explanation.turn}"
    received_tokens = explanation.came_tokens
    sent_tokens = explanation.sent_tokens
    limit = explanation.window.limit_tokens
    fates = [fate.fate for fate in explanation.fates]
    did = [
        f"{number_of(fates.count(kind), 'message')} {kind}"
        for kind in ("left out", "changed", "inserted")
        if kind in fates
    ]
    if sent_tokens > limit:
        return (
            f"{subject} had {received_tokens:,} tokens and still has {sent_tokens:,}, over the "
            f"limit of {limit:,}: the rest is protected."
        )
    if not did:
        sizes = f"{received_tokens:,} tokens, within the limit of {limit:,}"
        return f"{subject} is sent unchanged: {sizes}."
    return (
        f"{subject} had {received_tokens:,} tokens and is sent with {sent_tokens:,}, within the "
        f"limit of {limit:,}: {', '.join(did)}."
    )


def _with_sentences(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    for name in ("key", "row", "is_new", "segment"):
        record.pop(name, None)
    if "reasons" in record:
        record["reason"] = format_excerpt(join_reasons(record["reasons"]))
        record["reasons"] = [reason.to_dict() for reason in record["reasons"]]
    return record


def explain_session(
    transcript: RecordedSession,
    replay_result: Replay,
    settings: Settings,
    *,
    turn: int,
    file: str,
    runs: int,
    window_source: WindowSource,
) -> Explained:
    """Measure the explained turn."""
    report, usage = replay_result.report, replay_result.request.usage
    estimate = report.fixed_tokens + sum([entry.tokens for entry in report.entries])
    turn_fates = turn_of(report, ratio=report.tokens_before / estimate if estimate else 1.0)
    message_indexes = tuple(replay_result.request.shown)
    fates = tuple(
        fate
        if fate.number is None
        else replace(fate, line=transcript.items[message_indexes[fate.number - 1]].line)
        for fate in turn_fates.messages
    )
    messages = [fate for fate in fates if fate.number is not None]
    weigher = Weigher(settings.tokens.counter)
    kinds, tools = _shares(replay_result, weigher)
    return Explained(
        recording=_recording(transcript, file, runs, weigher),
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
        filling=replay_result.points,
        skipped_turns=replay_result.skipped_turns,
        largest=tuple(sorted(messages, key=lambda fate: -fate.tokens_before)[:MAX_LARGEST]),
        fates=fates,
        stages=turn_fates.stages,
    )


def _recording(transcript: RecordedSession, file: str, runs: int, weigher: Weigher) -> Recording:
    return Recording(
        file=plain_line(file),
        kind=transcript.kind,
        format=transcript.format,
        model=plain_line(transcript.model) if transcript.model else None,
        runs=runs,
        messages=len(transcript.items),
        requests=len(transcript.requests),
        compactions=transcript.compactions,
        is_reconstructed=transcript.kind in ("claude-code", "codex"),
        added_blocks=len(transcript.added_texts),
        added_tokens=sum(map(weigher.text, transcript.added_texts)),
        passed_over=tuple(format_excerpt(line) for line in transcript.passed_over),
    )


def _shares(
    replay_result: Replay, weigher: Weigher
) -> tuple[tuple[KindShare, ...], tuple[ToolShare, ...]]:
    report, fixed_parts = replay_result.report, replay_result.fixed_parts
    names = tool_names(entry.message for entry in report.entries)
    received_totals = _sort_rows(report.entries, names, weigher)
    sent_totals = _sort_rows(report.view.rows, names, weigher)
    for totals in (received_totals, sent_totals):
        totals.kinds["system"] += fixed_parts.system_tokens
        totals.kinds["tools"] += fixed_parts.tools_tokens
        totals.kinds["not recorded"] += fixed_parts.unrecorded_tokens
    came_tokens = apportion([received_totals.kinds[kind] for kind in KINDS], report.tokens_before)
    sent_tokens = apportion([sent_totals.kinds[kind] for kind in KINDS], report.tokens_after)
    kinds = tuple(
        KindShare(kind=kind, came_tokens=came_tokens[index], sent_tokens=sent_tokens[index])
        for index, kind in enumerate(KINDS)
    )
    results = KINDS.index("tool results")
    tools = [tool for tool, _ in received_totals.tools.most_common()]
    tool_came = apportion([received_totals.tools[tool] for tool in tools], came_tokens[results])
    tool_sent = apportion([sent_totals.tools[tool] for tool in tools], sent_tokens[results])
    return kinds, tuple(
        ToolShare(
            tool=plain_line(tool),
            results=received_totals.results[tool],
            came_tokens=tool_came[index],
            sent_tokens=tool_sent[index],
        )
        for index, tool in enumerate(tools)
    )


@dataclass(slots=True)
class _Sorted:
    kinds: Counter[TokenKind] = field(default_factory=Counter)
    tools: Counter[str] = field(default_factory=Counter)
    results: Counter[str] = field(default_factory=Counter)


def _sort_rows(rows: Iterable[Row], names: dict[CallId, str], weigher: Weigher) -> _Sorted:
    totals = _Sorted()
    for row in rows:
        for part, kind, tokens in row_kinds(row, weigher):
            totals.kinds[kind] += tokens
            if kind == "tool results" and isinstance(part, ToolResult):
                tool = part.name or names.get(part.call_id, "?")
                totals.tools[tool] += tokens
                totals.results[tool] += 1
    return totals
