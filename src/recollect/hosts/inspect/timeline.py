"""The recorded turns of a session as values: sizes, events and cost of each request. The values
come from the ledger's reports, which contain no message content."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from recollect.core.formats.json_text import decode
from recollect.core.formats.turn_records import read_reason
from recollect.core.rules.price import PriceList, model_price
from recollect.core.turn.token_kinds import TokenKind, TurnFigures
from recollect.core.values.message import EntryKey
from recollect.core.values.model import Usage
from recollect.core.values.reason import Cause
from recollect.core.values.report import AGENTS_OWN_WINDOW_TOKENS
from recollect.errors import FormatError
from recollect.hosts.inspect.turns import reason_text
from recollect.system.plain_text import number_of

if TYPE_CHECKING:
    from recollect.core.ports import Store
    from recollect.core.values.batch import PieceHash, TurnRecord

MAX_CACHED_REPORTS: Final = 30_000
"""Number of reports that stay in RAM, each about 2 kB."""
# One column of a sparkline is about four pixels wide. The reports of one query take about 4 MB.
SPARK_TURNS: Final = 48
_REPORTS_PER_QUERY: Final = 2_000

ShownKind: TypeAlias = Literal[
    "fixed", "summary", "user", "assistant", "thinking", "calls", "results", "ours"
]
_KINDS: Final[Mapping[ShownKind, tuple[str, tuple[TokenKind, ...]]]] = {
    "fixed": ("System and tools", ("system", "tools", "not recorded")),
    "summary": ("Summaries", ("summaries",)),
    "user": ("User", ("user", "other")),
    "assistant": ("Assistant", ("assistant",)),
    "thinking": ("Thinking", ("thinking",)),
    "calls": ("Tool calls", ("tool calls",)),
    "results": ("Tool results", ("tool results", "images")),
    "ours": ("Added by Recollect", ("ours",)),
}
SHOWN_KINDS: Final = {kind: title for kind, (title, _) in _KINDS.items()}
"""Kinds in stacking order, with their titles."""
_SHOWN_AS: Final = {kind: shown_kind for shown_kind, (_, kinds) in _KINDS.items() for kind in kinds}


class EventKind(Enum):
    """A kind of event in a turn. The value is the name of the sign in drawings."""

    EDITED = "edited"
    RECALLED = "recalled"
    COMPACTED = "compacted"
    CLIENT = "client"
    """The history became shorter: the client compacted, or took another branch."""
    CACHE = "cache"
    FAILED = "failed"


EVENT_WORDS: Final[Mapping[EventKind, str]] = {
    EventKind.EDITED: "Shortened or dropped",
    EventKind.RECALLED: "Recalled",
    EventKind.COMPACTED: "Compacted",
    EventKind.CLIENT: "Shorter history from the client",
    EventKind.CACHE: "Cache broken",
    EventKind.FAILED: "Failed",
}
_EVENTS: Final[Mapping[tuple[str, str], EventKind]] = {
    ("prune", "done"): EventKind.EDITED,
    ("trim", "done"): EventKind.EDITED,
    ("inject", "done"): EventKind.RECALLED,
    ("compact", "done"): EventKind.COMPACTED,
}
_ACTS: Final = (Cause.PRUNED, Cause.TRIMMED, Cause.PAYS, Cause.RECALLED_BLOCK, Cause.RECALLED_PART)
_SHOWN: Final = (EventKind.COMPACTED, EventKind.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event of a turn, with its reason."""

    kind: EventKind
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSizes:
    """The sizes and events in a turn's stored report."""

    came_tokens: int
    sent_tokens: int
    limit_tokens: int
    window_tokens: int
    figures: TurnFigures | None
    """Exact token figures; None in records of earlier versions."""
    events: tuple[Event, ...]
    seconds: float

    @property
    def is_prompt(self) -> bool:
        """True if an agent's hook recorded the turn: such an agent sends its requests itself."""
        return self.window_tokens >= AGENTS_OWN_WINDOW_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnLine:
    """One recorded turn of a session."""

    turn: int
    at: float
    model: str | None
    sizes: TurnSizes
    events: tuple[Event, ...]
    usage: Usage | None = None
    """The provider's token counts; None if no reply reported them."""
    cached_tokens: int | None = None
    """Input from the provider's cache: as reported, else the unchanged start of the request; None
    if unknown."""
    dollars: float | None = None
    uncached: bool = False
    """True if the provider reported cache use of 0 for every turn, so no change can break it."""

    @property
    def event_kinds(self) -> frozenset[EventKind]:
        return frozenset([event.kind for event in self.events])

    @property
    def asked_key(self) -> EntryKey | None:
        """The message of the user that this turn answers; None if unknown."""
        return None if self.sizes.figures is None else self.sizes.figures.asked

    def kinds(self, *, came: bool = False) -> Counter[ShownKind]:
        """Return the tokens by shown kind."""
        figures, total = self.sizes.figures, self.sizes.sent_tokens
        if figures is None:
            return Counter({"user": self.sizes.came_tokens if came else total})
        token_counts: Counter[ShownKind] = Counter()
        for kind, tokens in (figures.came if came else figures.sent).items():
            token_counts[_SHOWN_AS[kind]] += tokens
        return token_counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The recorded turns of a session, oldest first."""

    lines: tuple[TurnLine, ...] = field(repr=False)
    turns: int
    """Number of recorded turns; `lines` may contain only some of them."""

    @property
    def limit_tokens(self) -> int:
        return self.lines[-1].sizes.limit_tokens if self.lines else 0

    @property
    def peak_tokens(self) -> int:
        return max((line.sizes.sent_tokens for line in self.lines), default=0)

    def counts(self) -> Counter[EventKind]:
        """Return the number of turns with each kind of event."""
        return Counter(kind for line in self.lines for kind in line.event_kinds)

    def line(self, turn: int) -> TurnLine | None:
        return next((line for line in self.lines if line.turn == turn), None)


class TimelineReader:
    """Reads timelines, and caches the reports, because a stored report never changes."""

    def __init__(self, prices: PriceList = ()) -> None:
        self._prices = prices
        self._sizes_by_hash: OrderedDict[PieceHash, TurnSizes | None] = OrderedDict()

    async def read(self, store: Store, session: str, *, max_turns: int | None = None) -> Timeline:
        """Read a session's turns: all, or an even choice of `most`, with the first and the last."""
        records = await store.records(session)
        chosen_records = records
        if max_turns is not None and len(records) > max_turns:
            step = (len(records) - 1) / (max_turns - 1)
            chosen_records = tuple(records[round(index * step)] for index in range(max_turns))
        sizes = await self._sizes(store, chosen_records)
        sized_turns = [
            (record, sizes[record.report]) for record in chosen_records if record.report in sizes
        ]
        return timeline_of(sized_turns, turns=len(records), prices=self._prices)

    async def _sizes(
        self, store: Store, records: Iterable[TurnRecord]
    ) -> Mapping[PieceHash | None, TurnSizes]:
        report_hashes = [record.report for record in records if record.report is not None]
        new_hashes = [name for name in report_hashes if name not in self._sizes_by_hash]
        for start in range(0, len(new_hashes), _REPORTS_PER_QUERY):
            for name, piece in (
                await store.pieces(new_hashes[start : start + _REPORTS_PER_QUERY])
            ).items():
                self._sizes_by_hash[name] = read_sizes(piece.body)
        found_sizes: dict[PieceHash | None, TurnSizes] = {
            name: turn_sizes
            for name in report_hashes
            if (turn_sizes := self._sizes_by_hash.get(name)) is not None
        }
        while len(self._sizes_by_hash) > MAX_CACHED_REPORTS:
            self._sizes_by_hash.popitem(last=False)
        return found_sizes


def timeline_of(
    turns_read: Iterable[tuple[TurnRecord, TurnSizes]], *, turns: int, prices: PriceList = ()
) -> Timeline:
    """Return the timeline of these turns, oldest first. `turns` is the number of all turns of the
    session."""
    sized_turns = list(turns_read)
    usages = [
        sizes.figures.usage for _, sizes in sized_turns if sizes.figures and sizes.figures.usage
    ]
    uses_cache = any(usage.cache_read_tokens or usage.cache_write_tokens for usage in usages)
    uncached = not uses_cache and any(usage.reports_cache for usage in usages)
    lines: list[TurnLine] = []
    for record, sizes in sized_turns:
        lines.append(_line(record, sizes, lines[-1] if lines else None, uncached=uncached))
    pairs = zip_longest(lines, lines[1:])
    priced_lines = tuple(_with_price(line, after, prices) for line, after in pairs)
    return Timeline(lines=priced_lines, turns=turns)


def _with_price(line: TurnLine, next_line: TurnLine | None, prices: PriceList) -> TurnLine:
    """Add the cost and the usage to a turn's line. The next turn's record contains the usage."""
    figures = None
    if next_line is not None and next_line.turn == line.turn + 1:
        figures = next_line.sizes.figures
    reported_usage = None if figures is None else figures.usage
    price = None if line.sizes.is_prompt else model_price(line.model, prices)
    usage = reported_usage
    if usage is None:
        sent_tokens = line.sizes.sent_tokens
        cached_tokens = min(sent_tokens, line.cached_tokens or 0)
        usage = Usage(
            input_tokens=sent_tokens,
            cache_read_tokens=cached_tokens,
            cache_write_tokens=0 if line.uncached else sent_tokens - cached_tokens,
        )
    elif usage.reports_cache or usage.cache_read_tokens or usage.cache_write_tokens:
        line = replace(line, cached_tokens=usage.cache_read_tokens)
    return replace(line, usage=reported_usage, dollars=None if price is None else price.of(usage))


def read_sizes(body: bytes) -> TurnSizes | None:
    """Decode the sizes in a turn's stored report; None if the report cannot be read."""
    try:
        record: dict[str, Any] = decode(body)
        figures = record.get("figures")
        # earlier versions stored dictionaries
        lines = [line for line in record["lines"] if isinstance(line, list)]
        return TurnSizes(
            came_tokens=int(record["tokens_before"]),
            sent_tokens=int(record["tokens_after"]),
            limit_tokens=int(record["limit_tokens"]),
            window_tokens=int(record["window_tokens"]),
            figures=None if figures is None else TurnFigures.from_dict(figures),
            events=tuple(dict.fromkeys(_events(lines))),
            seconds=sum(float(line[2]) for line in lines),
        )
    except (FormatError, LookupError, TypeError, ValueError):
        return None


def _events(lines: Sequence[Any]) -> Iterable[Event]:
    for stage, outcome, _, reasons in lines:
        kind = _EVENTS.get((stage, outcome))
        if outcome in ("failed", "late"):
            kind = EventKind.FAILED
        reason_values = tuple(map(read_reason, reasons))
        if kind in _SHOWN or (kind is not None and reason_values[0].cause in _ACTS):
            yield Event(kind=kind, text=reason_text(reason_values))


def _line(
    record: TurnRecord, sizes: TurnSizes, previous_line: TurnLine | None, *, uncached: bool
) -> TurnLine:
    figures, events = sizes.figures, list(sizes.events)
    cached_tokens = None
    if figures is not None:
        earlier = previous_line.sizes.figures if previous_line is not None else None
        if earlier is not None and figures.messages < earlier.messages:
            missing_text = number_of(earlier.messages - figures.messages, "message")
            events.append(
                Event(kind=EventKind.CLIENT, text=f"{missing_text} fewer than the turn before")
            )
        if figures.before is not None and not sizes.is_prompt:
            cached_tokens = 0 if uncached else figures.same_tokens
        # Recollect neither sent nor saw the request of an agent with hooks.
        if figures.breaks_cache and not (uncached or sizes.is_prompt):
            own_kinds = {EventKind.EDITED, EventKind.COMPACTED, EventKind.RECALLED} & {
                event.kind for event in events
            }
            by = "Recollect" if own_kinds else "a change of the request"
            same_text = f"{figures.same_tokens:,} tokens from the start are unchanged"
            events.append(Event(kind=EventKind.CACHE, text=f"broken by {by}; {same_text}"))
    return TurnLine(
        turn=record.number,
        at=record.at,
        model=record.model,
        sizes=sizes,
        events=tuple(events),
        cached_tokens=cached_tokens,
        uncached=uncached,
    )


def cost_of(lines: Sequence[TurnLine]) -> float | None:
    """Return the cost of the turns with a known price; None if no price is known."""
    costs = [line.dollars for line in lines if line.dollars is not None]
    return sum(costs) if costs else None


def cache_share(lines: Sequence[TurnLine]) -> str:
    """Format the share of the input that came from the provider's cache."""
    known_lines = [line for line in lines if line.cached_tokens is not None]
    input_tokens = sum(
        line.usage.input_tokens if line.usage else line.sizes.sent_tokens for line in known_lines
    )
    cached_tokens = sum(line.cached_tokens or 0 for line in known_lines)
    return f"{min(1.0, cached_tokens / input_tokens):.0%}" if input_tokens else "unknown"


def dollars(amount: float | None) -> str:
    """Format an amount of dollars."""
    return "unknown" if amount is None else f"${amount:.{2 if amount >= 1 else 3}f}"
