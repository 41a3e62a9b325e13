"""Replays a conversation through the real engine: a real store, recall, pruning, compaction.

Owns what is set apart from the defaults, so that strategies differ in nothing else: the counter,
the reserve and the model are those of plain compaction, words alone are searched, and no deadline
of a busy machine can change a figure. Must never hand the engine anything but requests as a client
sends them. Always holds: the same conversation gives the same requests.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from recollect.config import Settings, load_settings
from recollect.config.presets import PRESETS
from recollect.engine import Engine
from recollect.formats.codec import CODECS
from recollect.formats.request import split_request
from recollect.formats.summaries import PI_OPENING
from recollect.rules.budget import RESERVE_SHARE
from recollect.values.edit import Insert
from recollect.values.message import Message, Other, Part, Text, Thinking, ToolCall, ToolResult
from recollect.values.recalled import BLOCK_OPENING
from recollect.wiring.memory import open_memory
from recollect_bench.cost.data import WEIGHER, ByteCounter, Conversation, Moment, count_bytes
from recollect_bench.cost.result import NoteTaker, NotingModel

# What counts as an identifier in the cost bench: paths, symbols, hashes, addresses, codes.
#
# Owns the measure, which is that of the study (docs/sources.md) and not the product's own: what is
# measured must not choose what it is measured by. Must never count what every message of a tool
# says anyway: names of tools and keys of their JSON are left out. Always pure.


LEAST_CHARS: Final = 4
COMMON_RESULTS: Final = 10
"""A key that so many results hold is the tool's own word; in fewer it is what they are about."""
_SHAPES: Final = tuple(
    re.compile(shape)
    for shape in (
        r"https?://[^\s\"'<>)\]}`]+",
        r"(?:[\w.@~-]{0,80}/){1,20}[\w.@-]{1,80}\.[A-Za-z]\w{0,5}\b",
        r"\b[\w-]{1,80}\.(?:tsx?|m?js|jsonl?|md|py|sh|css|html|ya?ml|toml|lock|txt)\b",
        r"\b[A-Za-z_$][A-Za-z0-9]*[a-z0-9][A-Z][A-Za-z0-9]*\b",
        r"\b[A-Za-z]\w*_\w+\b",
        r"\b[A-Za-z_]\w{3,}(?=\()",
        r"\b(?=[0-9a-f]{0,39}\d)(?=[0-9a-f]{0,39}[a-f])[0-9a-f]{7,40}\b",
        r"\b\d{5,}\b",
        r"\b(?:E[A-Z]{4,}|TS\d{3,5}|ERR_[A-Z_]+|[A-Z]{1,5}-?\d{3,})\b",
        r"\b(?=[A-Z]*\d)(?=\d*[A-Z])[A-Z0-9]{6,}\b",
    )
)
_KEYS_DEPTH: Final = 8


class Naming:
    """Finds identifiers in the texts of one conversation."""

    def __init__(self, common: Iterable[str] = (), folder: str = "") -> None:
        """`common` names say nothing; paths below `folder` are the same without it."""
        self._common = frozenset(common)
        self._folder = folder.rstrip("/") + "/" if folder.strip("/") else ""
        self._known: dict[str, frozenset[str]] = {}

    def __reduce__(self) -> tuple[type[Naming], tuple[frozenset[str], str]]:
        return Naming, (self._common, self._folder)

    def names_in(self, text: str) -> frozenset[str]:
        """The identifiers of a text; each text is read once."""
        known = self._known.get(text)
        if known is None:
            known = self._known[text] = self.read(text)
        return known

    def without_folder(self, text: str) -> str:
        """The text with the paths of the session as they are named without its folder."""
        return text.replace(self._folder, "") if self._folder else text

    def read(self, text: str) -> frozenset[str]:
        """The same for a text that nobody asks about twice."""
        text = self.without_folder(text)
        found: set[str] = set()
        for shape in _SHAPES:
            for match in shape.finditer(text):
                name = match[0].rstrip(".,:;")
                if len(name) >= LEAST_CHARS and name not in self._common and not _is_word(name):
                    found.add(name)
        return frozenset(found)


def _is_word(name: str) -> bool:
    return name.isalpha() and name.islower()


def part_text(part: Part) -> str:
    """What a part says, as a reader sees it: arguments of a call without JSON's escapes."""
    if isinstance(part, Text | Thinking):
        return part.text
    if isinstance(part, ToolCall):
        return f"{part.name} {_spelled(part.arguments)}"
    if isinstance(part, ToolResult):
        return part.text
    return _spelled(part.payload) if isinstance(part, Other) else ""


def message_text(message: Message) -> str:
    """All that a message says."""
    return "\n".join(filter(None, map(part_text, message.parts)))


def common_names(messages: Iterable[Message]) -> set[str]:
    """Names of tools, and the keys of what they are given and answer."""
    names: set[str] = set()
    answered: Counter[str] = Counter()
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                names.add(part.name)
                names.update(_keys(_decoded(part.arguments)))
            elif isinstance(part, ToolResult):
                answered.update(set(_keys(_decoded(part.text))))
    return names | {key for key, times in answered.items() if times >= COMMON_RESULTS}


def _spelled(text: str) -> str:
    value = _decoded(text)
    return text if value is None else "\n".join(_strings(value))


def _decoded(text: str) -> Any:
    if text[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _strings(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, dict) and depth < _KEYS_DEPTH:
        for key, held in value.items():
            yield f"{key}: {' '.join(_strings(held, depth + 1))}"
    elif isinstance(value, list) and depth < _KEYS_DEPTH:
        for held in value:
            yield from _strings(held, depth + 1)
    else:
        yield value if isinstance(value, str) else json.dumps(value)


def _keys(value: Any, depth: int = 0) -> Iterator[str]:
    if depth == _KEYS_DEPTH:
        return
    if isinstance(value, dict):
        for key, held in value.items():
            if not any(sign.isdigit() for sign in key):
                yield key
            yield from _keys(held, depth + 1)
    elif isinstance(value, list):
        for held in value:
            yield from _keys(held, depth + 1)


# Plain compaction, the baseline: over the limit all but the newest 20,000 tokens become a summary.
#
# As coding agents do it (notes/cost.md): no recall, no pruning, nothing changed in between. Must
# never part a tool's results from their call.


RESERVE_TOKENS: Final = 16_000
KEPT_TOKENS: Final = 20_000
KEPT_SHARE: Final = 0.45
"""Of the limit, for windows so small that the rest could not be summarised."""


def replay_plain(
    conversation: Conversation,
    window_tokens: int,
    *,
    reserve_tokens: int = RESERVE_TOKENS,
    kept_tokens: int = KEPT_TOKENS,
    behind: Callable[[int, int], str] = lambda _moment, _cut: "",
    progress: Callable[[int], None] = lambda _: None,
) -> Tally:
    """What plain compaction costs on this conversation, and what it keeps.

    `behind` is given the moment and the first row that is kept, and says what stands behind the
    summary: nothing in plain compaction, what an oracle would put there where one is measured.
    """
    meter = Meter(conversation)
    taker = NoteTaker(conversation.naming)
    rows = [meter.row(row.raw) for row in conversation.rows]
    limit = window_tokens - min(reserve_tokens, window_tokens // RESERVE_SHARE)
    kept_tokens = min(kept_tokens, int(limit * KEPT_SHARE))
    first = 0
    summary: SentRow | None = None
    text = ""
    for done, moment in enumerate(conversation.moments):
        progress(done)
        held = SYSTEM_TOKENS + sum(row.tokens for row in rows[first : moment.row])
        if held + (summary.tokens if summary else 0) > limit:
            at = _cut(conversation, first, moment.row, kept_tokens)
            if at > first:
                gone = conversation.rows[first:at]
                meter.asked(sum(row.tokens for row in gone) + (summary.tokens if summary else 0))
                text = taker.note(((row.role, row.text) for row in gone), [text])
                told = behind(done, at)
                summary = meter.summary_row(f"{text}\n{told}" if told else text)
                first = at
        sent = [summary] if summary else []
        meter.sent([*sent, *rows[first : moment.row]], moment)
    return meter.tally


def _cut(conversation: Conversation, first: int, end: int, kept_tokens: int) -> int:
    """The first row that is kept: where enough is, but not at a tool's result."""
    rows = conversation.rows
    at, kept = end, 0
    while at > first and kept < kept_tokens:
        at -= 1
        kept += rows[at].tokens
    cut = at
    while cut < end and not _may_begin(conversation, cut):
        cut += 1
    if cut == end:  # only results fit: their call stays with them
        cut = end - 1
        while cut > first and not _may_begin(conversation, cut):
            cut -= 1
    return cut


def _may_begin(conversation: Conversation, at: int) -> bool:
    """Not with a result, nor within a run of rows that the model wrote at once."""
    rows = conversation.rows
    if rows[at].answers_a_call:
        return False
    return not (rows[at].role == "assistant" and at and rows[at - 1].role == "assistant")


# Bills requests as a provider with a prompt cache does, and looks what they still show.
#
# Owns the prices and the measures: of what a message refers back to, the share that stands in the
# request before it (retention); of what no message in the request says any more, the share that a
# summary or a recalled block names (recovered), and of those about which something was said, the
# share that one of them tells about (useful; `relied` says how that is told). Must never know which
# strategy it meters.
# Always holds: the longest common run of rows with the request before is read, the rest written.


READ_PRICE: Final = 0.1
WRITE_PRICE: Final = 1.25
OUTPUT_PRICE: Final = 5.0
"""Of a token of input without a cache, as Anthropic bills them (notes/cost.md)."""
SYSTEM_TOKENS: Final = 6000
"""System prompt and tools, before every request."""
SUMMARY_TOKENS: Final = 1500
"""What a summary call writes, sized on two real ones (notes/cost.md)."""
_OWN: Final = (BLOCK_OPENING, PI_OPENING, "[recollect]")


@dataclass(frozen=True, slots=True, eq=False)
class SentRow:
    """A row of a request as it went out; the same bytes are the same object."""

    tokens: int
    said: frozenset[str] = field(repr=False)
    """What messages of the conversation name."""
    ours: frozenset[str] = field(repr=False)
    """What summaries and recalled blocks name."""
    texts: tuple[str, ...] = field(default=(), repr=False)
    """What summaries and recalled blocks say."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """What a replay came to."""

    cost: float = 0.0
    summary_cost: float = 0.0
    summaries: int = 0
    requests: int = 0
    sent_tokens: int = 0
    read_tokens: int = 0
    most_tokens: int = 0
    breaks: int = 0
    """Requests that did not begin with all of the one before."""
    references: int = 0
    present: int = 0
    left: int = 0
    """References that no message in the request says any more."""
    recovered: int = 0
    relied: int = 0
    """Of those that left, the ones about which a line was said that the message relies on."""
    named: int = 0
    """Of those that rely on a line, the ones whose name is there."""
    useful: int = 0
    """Of those that rely on a line, the ones about which the request tells."""
    notes: dict[str, float] = field(default_factory=dict)

    @property
    def retention(self) -> float:
        """Of all references."""
        return self.present / self.references if self.references else 1.0

    @property
    def recovered_share(self) -> float | None:
        """Of those that left the window; None where none did."""
        return self.recovered / self.left if self.left else None

    @property
    def useful_share(self) -> float | None:
        """Of those that rely on a line that left the window; None where none does."""
        return self.useful / self.relied if self.relied else None


class Meter:
    """Follows the requests of one replay."""

    def __init__(self, conversation: Conversation) -> None:
        self.tally = Tally()
        self._conversation = conversation
        self._codec = CODECS[conversation.format]
        self._rows: dict[bytes, SentRow] = {}
        self._sent: list[SentRow] = []
        self._said: Counter[str] = Counter()
        self._ours: Counter[str] = Counter()

    def row(self, raw: bytes) -> SentRow:
        """A row of the wire as it is metered."""
        known = self._rows.get(raw)
        if known is None:
            parts = self._codec.read(raw).parts
            naming = self._conversation.naming
            ours: set[str] = set()
            said: set[str] = set()
            texts: list[str] = []
            for part in parts:
                own = isinstance(part, Text) and part.text.startswith(_OWN)
                text = part_text(part)
                (ours if own else said).update(naming.names_in(text))
                if own:
                    texts.append(naming.without_folder(text))
            known = SentRow(WEIGHER.message(parts), frozenset(said), frozenset(ours), tuple(texts))
            self._rows[raw] = known
        return known

    def summary_row(self, text: str) -> SentRow:
        """A summary that stands as a message of its own."""
        whole = Text(text=PI_OPENING + text)
        naming = self._conversation.naming
        names = naming.names_in(text)
        told = (naming.without_folder(text),)
        return SentRow(WEIGHER.message((whole,)), frozenset(), names, told)

    def asked(self, input_tokens: int, output_tokens: int = SUMMARY_TOKENS) -> None:
        """A call for a summary; nothing of it is cached."""
        cost = input_tokens + output_tokens * OUTPUT_PRICE
        self.tally.cost += cost
        self.tally.summary_cost += cost
        self.tally.summaries += 1

    def sent(self, rows: Sequence[SentRow], moment: Moment) -> None:
        """A request went out; hold it to what comes next."""
        same = 0
        for before, now in zip(self._sent, rows, strict=False):
            if before is not now:
                break
            same += 1
        tally = self.tally
        read = SYSTEM_TOKENS + sum(row.tokens for row in rows[:same]) if tally.requests else 0
        total = SYSTEM_TOKENS + sum(row.tokens for row in rows)
        tally.breaks += same < len(self._sent)
        for row in self._sent[same:]:
            self._said.subtract(row.said)
            self._ours.subtract(row.ours)
        for row in rows[same:]:
            self._said.update(row.said)
            self._ours.update(row.ours)
        self._sent = list(rows)
        tally.cost += READ_PRICE * read + WRITE_PRICE * (total - read)
        tally.requests += 1
        tally.sent_tokens += total
        tally.read_tokens += read
        tally.most_tokens = max(tally.most_tokens, total)
        self._look(moment)

    def _look(self, moment: Moment) -> None:
        """A message that is in the request already must not count as what it refers to."""
        rows, tally = self._conversation.rows, self.tally
        texts = [text for row in self._sent for text in row.texts]
        for target in moment.targets:
            itself = rows[target.row : moment.row]
            for name in target.names:
                said = self._said[name] > sum(name in row.names for row in itself)
                ours = self._ours[name] > 0
                tally.references += 1
                tally.present += said or ours
                if said:
                    continue
                tally.left += 1
                tally.recovered += ours
                line = self._conversation.relied.of(name, target.row, target.end)
                if line is not None:
                    tally.relied += 1
                    tally.named += ours
                    tally.useful += line.told_in(texts)


SECONDS_A_REQUEST: Final = 5.0
"""No cache expires, as in the study."""
_BEGUN_AT: Final = 1_700_000_000.0
_PATIENCE: Final = 600.0
_APART: Final[Mapping[str, Any]] = {
    "recall.embedder": "none",
    "tokens.calibrate": False,
    "compaction.reserve_tokens": RESERVE_TOKENS,
    "compaction.reserve_tokens_floor": 0,
    "compaction.deadline_seconds": _PATIENCE,
    "recall.deadline_seconds": _PATIENCE,
    "turn.deadline_seconds": _PATIENCE,
    "turn.stage_deadline_seconds": _PATIENCE,
    "store.read_seconds": _PATIENCE,
    "store.write_seconds": _PATIENCE,
    "jobs.in_process": False,
    "ledger.enabled": False,
}


class SteadyClock:
    """Goes on by the same seconds for each request."""

    def __init__(self) -> None:
        self.at = _BEGUN_AT

    def now(self) -> float:
        """The time of this request."""
        return self.at


def settings_of(
    preset: str, window_tokens: int, changes: Mapping[str, Any] | None = None
) -> Settings:
    """The settings of a preset with what the bench sets apart; no file or variable is read."""
    apart = {key: value for key, value in _APART.items() if key not in PRESETS[preset]}
    arguments = {**apart, **(changes or {}), "preset": preset, "window_tokens": window_tokens}
    return load_settings(arguments=arguments, environment={}, file=Path("/dev/null")).settings


async def replay_engine(
    conversation: Conversation,
    window_tokens: int,
    *,
    preset: str = "recollect",
    changes: Mapping[str, Any] | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Tally:
    """What the engine costs on this conversation, and what it keeps."""
    meter = Meter(conversation)
    clock = SteadyClock()
    with TemporaryDirectory(prefix="recollect-cost-") as folder:
        memory = open_memory(
            space="bench",
            store=Path(folder) / "memory.db",
            clock=clock,
            counter=ByteCounter(),
            model=NotingModel(NoteTaker(conversation.naming), meter.asked),
            compact_in_background=False,
            settings=settings_of(preset, window_tokens, changes),
        )
        async with memory:
            await _replayed(memory, conversation, meter, clock, progress)
    return meter.tally


async def _replayed(
    memory: Engine,
    conversation: Conversation,
    meter: Meter,
    clock: SteadyClock,
    progress: Callable[[int], None],
) -> None:
    head, tail = _frame(conversation)
    raws = [row.raw for row in conversation.rows]
    seen: set[tuple[str, int]] = set()
    blocks = 0
    for done, moment in enumerate(conversation.moments):
        progress(done)
        clock.at += SECONDS_A_REQUEST
        body = head + b",".join(raws[: moment.row]) + tail
        context = await memory.prepare("replay", body, format=conversation.format)
        sent = split_request(context.request, conversation.format).messages
        meter.sent([meter.row(raw) for raw in sent], moment)
        for edit in context.state.edits:
            if isinstance(edit, Insert) and (edit.text, edit.turn) not in seen:
                seen.add((edit.text, edit.turn))
                blocks += 1
    meter.tally.notes["blocks"] = blocks


def _frame(conversation: Conversation) -> tuple[bytes, bytes]:
    """What stands around the messages; tools of the right weight, which every wire has."""
    field = "input" if conversation.format == "openai-responses" else "messages"
    tools = [{"name": "tool", "description": ""}]
    missing = SYSTEM_TOKENS - count_bytes(json.dumps(tools))
    tools[0]["description"] = "a" * (4 * missing)
    opening = f'{{"model":"replayed","tools":{json.dumps(tools)},"{field}":['
    return opening.encode(), b"]}"
