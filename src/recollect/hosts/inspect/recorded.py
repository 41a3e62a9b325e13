"""A recorded session replayed by a real engine, request by request.

Owns which requests are replayed, the clock that follows the recording, and the usage that the
engine learns from. The engine decides about the requests. Reads no files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from recollect.core.engine import Engine
from recollect.core.formats.codec import CODECS
from recollect.core.formats.json_text import encode
from recollect.core.rules.tokens import Weigher
from recollect.core.values.transcript import RecordedRequest, ShownItems
from recollect.errors import FormatError

if TYPE_CHECKING:
    from recollect.core.values.edit import Repair
    from recollect.core.values.message import EntryKey
    from recollect.core.values.model import FormatName
    from recollect.core.values.reason import Reason
    from recollect.core.values.report import MomentKind, Report
    from recollect.core.values.transcript import RecordedSession
    from recollect.system.config import Settings

Progress: TypeAlias = Callable[[int, int], None]
RepairPlace: TypeAlias = "tuple[EntryKey | None, int | None]"

WHOLE_REPLAY_MESSAGES = 600_000
"""Up to so many messages over all requests everything is replayed: about ten seconds."""
LAST_TURNS = 50
"""Turns right before the one explained, which are replayed whatever they cost..."""
LEAST_LAST_TURNS = 25
"""...though of a very long history only so many."""

_SESSION = "explained"
_FILLER = "word "
_OPENING_REQUESTS = 5  # later on, what a counter is off by outweighs what is not recorded
_LEAST_UNRECORDED_TOKENS = 100  # less is within what an estimate may be off
_SYSTEM_KEYS: dict[FormatName, str] = {
    "anthropic": "system",
    "openai-responses": "instructions",
    "pi": "systemPrompt",
}


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
class FixedParts:
    """What stands before the messages of every request, and what it weighs."""

    system: bytes | None = None
    """JSON of the system prompt; filled up by what the recording lacks."""
    tools: bytes | None = None
    system_tokens: int = 0
    tools_tokens: int = 0
    unrecorded_tokens: int = 0
    """System prompt and tools that were sent but are not in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What the engine did up to one turn, and its report of that turn."""

    report: Report
    request: RecordedRequest
    fixed: FixedParts
    points: tuple[TurnPoint, ...]
    repaired: dict[tuple[str, Reason], set[RepairPlace]]
    """Every repair of the session by kind and reason."""
    skipped_turns: int


@dataclass(slots=True)
class RecordedClock:
    """Shows the time of the request that is being replayed."""

    time: float = 0.0

    def now(self) -> float:
        """Seconds since the epoch, by the recording; 0 where it holds no times."""
        return self.time


@dataclass(slots=True)
class _Replaying:
    """A replay under way."""

    transcript: RecordedSession
    engine: Engine
    clock: RecordedClock
    fixed: FixedParts
    points: list[TurnPoint] = field(default_factory=list)
    repaired: dict[tuple[str, Reason], set[RepairPlace]] = field(default_factory=dict)
    summaries: frozenset[EntryKey] = frozenset()

    async def turn(self, number: int, request: RecordedRequest) -> Report:
        """Prepare one request and let the engine see what its answer reported."""
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
                compacted=self._compacted(report),
                new_edits=len(report.new_edits),
                new_repairs=sum(self._is_new(repair) for repair in report.repairs),
            )
        )
        await self._observe(request, report)
        return report

    def _body(self, request: RecordedRequest) -> bytes:
        items = self.transcript.items
        shown = request.shown
        spans = shown.runs() if isinstance(shown, ShownItems) else (shown,)
        raws = [items[at].raw for span in spans for at in span]
        format_name = self.transcript.format
        fields: list[bytes] = []
        if self.fixed.system is not None and format_name in _SYSTEM_KEYS:
            fields.append(encode(_SYSTEM_KEYS[format_name]) + b":" + self.fixed.system)
        if self.fixed.tools is not None:
            fields.append(b'"tools":' + self.fixed.tools)
        key = b'"input":[' if format_name == "openai-responses" else b'"messages":['
        fields.append(key + b",".join(raws) + b"]")
        return b"{" + b",".join(fields) + b"}"

    def _compacted(self, report: Report) -> bool:
        """Whether a summary stands in the request that did not stand in the one before."""
        keys = frozenset(entry.key for entry in report.entries if entry.message.summary)
        fresh = bool(keys - self.summaries)
        self.summaries = keys
        return fresh

    def _is_new(self, repair: Repair) -> bool:
        places = self.repaired.setdefault((repair.kind, repair.reason), set())
        place = (repair.anchor, repair.part)
        fresh = place not in places
        places.add(place)
        return fresh

    async def _observe(self, request: RecordedRequest, report: Report) -> None:
        """The recorded usage is for the request as it came; ours would have cost its share."""
        if request.usage is None or not request.usage.input_tokens:
            return
        came = report.fixed_tokens + sum([entry.tokens for entry in report.entries])
        sent = report.fixed_tokens + report.view.tokens
        share = sent / came if came else 1.0
        input_tokens = max(1, round(request.usage.input_tokens * share))
        usage = {"input_tokens": input_tokens, "output_tokens": request.usage.output_tokens}
        await self.engine.observe(_SESSION, {"usage": usage})


async def replay(
    transcript: RecordedSession, settings: Settings, *, turn: int, progress: Progress | None = None
) -> Replay:
    """Replay up to `turn` (from 1); progress is told in turns done and in all."""
    requests = requests_of(transcript)
    clock = RecordedClock()
    under_way = _Replaying(
        transcript=transcript,
        engine=Engine(settings, clock=clock),
        clock=clock,
        fixed=fixed_parts(transcript, Weigher(settings.tokens.counter)),
    )
    gaps = _gaps_seconds(transcript, requests[:turn])
    chosen = chosen_turns([len(request.shown) for request in requests[:turn]])
    before = 0
    report: Report | None = None
    for done, number in enumerate(chosen):
        # A pause within the turns that are passed over let the provider's cache expire too.
        clock.time += max(gaps[before:number])
        report = await under_way.turn(number, requests[number - 1])
        before = number
        if progress is not None:
            progress(done + 1, len(chosen))
    assert report is not None
    return Replay(
        report=report,
        request=requests[turn - 1],
        fixed=under_way.fixed,
        points=tuple(under_way.points),
        repaired=under_way.repaired,
        skipped_turns=turn - len(chosen),
    )


def requests_of(transcript: RecordedSession) -> tuple[RecordedRequest, ...]:
    """The recorded requests; where there is none yet, the one that would come next."""
    if transcript.requests:
        return transcript.requests
    return (RecordedRequest(shown=range(len(transcript.items)), answered=()),)


def fixed_parts(transcript: RecordedSession, weigher: Weigher) -> FixedParts:
    """System prompt and tools as recorded, with a stand-in for what a session file leaves out.

    Most clients write neither down. What the provider counted for the first request beyond its
    messages is what they weighed; without it the first replies would teach the engine a wrong
    ratio, since a request of a hundred tokens would be reported as thousands.
    """
    system = encode(transcript.system) if transcript.system else None
    tools = transcript.tools.encode() if transcript.tools else None
    system_tokens = weigher.text(transcript.system or "")
    tools_tokens = weigher.text(transcript.tools or "")
    opening = requests_of(transcript)[:_OPENING_REQUESTS]
    first = next((request for request in opening if request.usage is not None), None)
    unrecorded = 0
    if first is not None and first.usage is not None and transcript.format in _SYSTEM_KEYS:
        codec = CODECS[transcript.format]
        messages = [codec.read(transcript.items[at].raw) for at in first.shown]
        known = (
            system_tokens
            + tools_tokens
            + sum(weigher.message(message.parts) for message in messages)
        )
        unrecorded = max(0, first.usage.input_tokens - known)
    if unrecorded > _LEAST_UNRECORDED_TOKENS:
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


def chosen_turns(sizes: Sequence[int]) -> list[int]:
    """The turns to replay, the last one always: all, or every n-th where that takes too long."""
    count = len(sizes)
    if sum(sizes) <= WHOLE_REPLAY_MESSAGES:
        return list(range(1, count + 1))
    affordable = WHOLE_REPLAY_MESSAGES // (2 * max(sizes))
    last = min(count, LAST_TURNS, max(LEAST_LAST_TURNS, affordable))
    earlier = sum(sizes[: count - last])
    step = max(1, -(-2 * earlier // WHOLE_REPLAY_MESSAGES))
    return [*range(1, count - last + 1, step), *range(count - last + 1, count + 1)]


def _gaps_seconds(transcript: RecordedSession, requests: Sequence[RecordedRequest]) -> list[float]:
    """Before each request: how long after the one before it was made; time never runs back."""
    gaps: list[float] = []
    now: float | None = None
    for request in requests:
        made_at = _made_at(transcript, request)
        if made_at is None:
            gaps.append(0.0)
        elif now is None:
            gaps.append(made_at)
            now = made_at
        else:
            gaps.append(max(0.0, made_at - now))
            now = max(now, made_at)
    return gaps


def _made_at(transcript: RecordedSession, request: RecordedRequest) -> float | None:
    """A request is made when its newest message is there."""
    shown = request.shown
    newest = shown.last if isinstance(shown, ShownItems) else shown[-1] if shown else None
    for at in (newest, *request.answered[:1]):
        if at is not None and transcript.items[at].timestamp is not None:
            return transcript.items[at].timestamp
    return None
