"""Replays a conversation through plain compaction and through the real engine, and bills both.

Strategies differ in nothing else: the counter, the reserve and the stand-in model are the same,
words alone are searched, and no deadline of a busy machine can change a figure. The engine gets
requests as a client sends them; the same conversation gives the same requests.

The stand-in model notes the hundred most named identifiers and no more, as in the study; it never
looks at what comes later. The meter bills as a provider with a prompt cache does (the longest
common run of rows is read, the rest written) and knows no strategy: of what a message refers back
to, the share that stands in the request is *retention*; of what no message there says any more,
the share that a summary or recalled block names is *recovered*, the share it tells about
*useful*. Plain compaction is what coding agents do: over the limit all but the newest 20,000
tokens become a summary, tool results staying with their calls.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from recollect.adapters.wiring.memory import open_memory
from recollect.core.compaction.ask import PROGRESS_HEADING, REQUIRED_HEADINGS
from recollect.core.engine import Engine
from recollect.core.formats.codec import CODECS
from recollect.core.formats.request import split_request
from recollect.core.formats.summaries import PI_OPENING
from recollect.core.rules.budget import RESERVE_SHARE
from recollect.core.values.edit import Insert
from recollect.core.values.message import Role, Text
from recollect.core.values.model import Answer, Prompt, Usage
from recollect.core.values.recall import BLOCK_OPENING
from recollect.system.config import Settings, load_settings
from recollect.system.config.load import PRESETS
from recollect_bench.cost.data import (
    BYTES_A_TOKEN,
    WEIGHER,
    ByteCounter,
    Conversation,
    Moment,
    Naming,
    count_bytes,
    part_text,
)

# The stand-in for a model


SUMMARY_TOKENS: Final = 1500
"""What a summary call writes, sized on two real ones."""
MOST_NAMES: Final = 100
FADING: Final = 0.7
ASK_WORDS: Final = 30
_WEIGHTS: Final[dict[Role, float]] = {"user": 4.0, "assistant": 2.0, "tool": 0.25, "system": 0.0}
_PATH_WEIGHT: Final = 1.5
"""These four are the study's."""
_WRITTEN_SHARE: Final = 3 / 16
"""Of the room that a prompt gives: 1,500 of a summary's 8,000, half of it for half a turn."""
_SHORTER: Final = 3
"""No summary is over a third of what it summarises."""
_MARK: Final = re.compile(r"note (\d+) of this stand-in")
_TAGGED: Final = re.compile(
    r"<(conversation|previous-summary|partial-summary)>\n(.*?)\n</\1>", re.DOTALL
)
_LABEL: Final = re.compile(
    r"^\[(User|Assistant|Assistant thinking|Assistant tool calls|Tool result|Earlier summary)\]: ",
    re.MULTILINE,
)
_PROSE: Final = (
    "work went on with what was asked and found so far while some of it stays open until more is "
    "known about how parts behave under load after changes were made in places that matter most"
)


class NoteTaker:
    """Keeps what each note weighed, so that the next one can go on from it."""

    def __init__(self, naming: Naming) -> None:
        self._naming = naming
        self._weights: list[dict[str, float]] = []

    def note(
        self,
        said: Iterable[tuple[Role, str]],
        before: Iterable[str] = (),
        *,
        most_tokens: int = SUMMARY_TOKENS,
    ) -> str:
        """A note of what was said, going on from the notes before."""
        earlier = [self._weights[int(at)] for text in before for at in _MARK.findall(text)[:1]]
        weights: dict[str, float] = {}
        for one in earlier:
            for name, weight in one.items():
                weights[name] = weights.get(name, 0.0) + FADING * weight
        ask = self._add(weights, said)
        return self._written(weights, most_tokens, ask)

    def merged(self, notes: Iterable[str], *, most_tokens: int = SUMMARY_TOKENS) -> str:
        """One note of several parts of the same conversation."""
        weights: dict[str, float] = {}
        for text in notes:
            for at in _MARK.findall(text)[:1]:
                for name, weight in self._weights[int(at)].items():
                    weights[name] = weights.get(name, 0.0) + weight
        return self._written(weights, most_tokens)

    def _add(self, weights: dict[str, float], said: Iterable[tuple[Role, str]]) -> str:
        """Weigh what was named; the plain words of the newest ask, which every summary tells."""
        ask = ""
        for role, text in said:
            if role == "user":
                ask = " ".join([word for word in text.split() if _is_plain(word)][:ASK_WORDS])
            for name in sorted(self._naming.names_in(text)):
                weight = _WEIGHTS[role] * (_PATH_WEIGHT if "/" in name else 1.0)
                weights[name] = weights.get(name, 0.0) + weight
        return ask

    def _written(self, weights: dict[str, float], most_tokens: int, ask: str = "") -> str:
        """Under the headings that a summary must have, identifiers where work is told."""
        self._weights.append(weights)
        lines = [*REQUIRED_HEADINGS[:-1], *([ask] if ask else []), PROGRESS_HEADING]
        lines[1:1] = [f"This is note {len(self._weights) - 1} of this stand-in."]
        left = BYTES_A_TOKEN * most_tokens - len("\n".join(lines).encode())
        for name in sorted(weights, key=lambda name: -weights[name])[:MOST_NAMES]:
            left -= len(name.encode()) + 3
            if left < 0:
                break
            lines.append(f"- {name}")
        if left > BYTES_A_TOKEN:
            lines.insert(2, _prose(left - 1, seed=len(self._weights)))
        return "\n".join(lines)


def _is_plain(word: str) -> bool:
    return word.isalpha() and word.islower()


def _prose(chars: int, *, seed: int) -> str:
    """Words that name nothing, so many characters of them."""
    dice = random.Random(f"note:{seed}")
    held = _PROSE.split()
    words = [dice.choice(held) for _ in range(chars // 3)]
    return " ".join(words)[:chars]


class NotingModel:
    """The same as a model that the engine asks; each call is billed."""

    def __init__(self, taker: NoteTaker, billed: Callable[[int, int], None]) -> None:
        self._taker = taker
        self._billed = billed

    @property
    def name(self) -> str:
        """Its name."""
        return "stand-in"

    @property
    def window_tokens(self) -> int | None:
        """As large as the conversation's own model's."""
        return None

    async def ask(self, prompt: Prompt) -> Answer:
        """A note of what the prompt holds."""
        asked = count_bytes(prompt.system) + count_bytes(prompt.text)
        tagged = [(match[1], match[2]) for match in _TAGGED.finditer(prompt.text)]
        material = sum(count_bytes(text) for _, text in tagged)
        most = min(
            SUMMARY_TOKENS,
            int(prompt.max_output_tokens * _WRITTEN_SHARE),
            material // _SHORTER,
        )
        parts = [text for tag, text in tagged if tag == "partial-summary"]
        if parts:
            text = self._taker.merged(parts, most_tokens=most)
        else:
            said = [one for tag, held in tagged if tag == "conversation" for one in _spoken(held)]
            before = [held for tag, held in tagged if tag == "previous-summary"]
            text = self._taker.note(said, before, most_tokens=most)
        self._billed(asked, count_bytes(text))
        usage = Usage(input_tokens=asked, output_tokens=count_bytes(text))
        return Answer(text=text, usage=usage)

    async def close(self) -> None:
        """Nothing to give back."""


def _spoken(written: str) -> Iterator[tuple[Role, str]]:
    """Who said what, from a conversation that was written down for a model."""
    matches = list(_LABEL.finditer(written))
    ends = [match.start() for match in matches[1:]] + [len(written)]
    for label, end in zip(matches, ends, strict=True):
        role: Role = "assistant"
        if label[1] == "User":
            role = "user"
        elif label[1] == "Tool result":
            role = "tool"
        yield role, written[label.end() : end]


# The meter


READ_PRICE: Final = 0.1
WRITE_PRICE: Final = 1.25
OUTPUT_PRICE: Final = 5.0
"""Of a token of input without a cache, as Anthropic bills them."""
SYSTEM_TOKENS: Final = 6000
"""System prompt and tools, before every request."""
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


# Plain compaction, the baseline


RESERVE_TOKENS: Final = 16_000
KEPT_TOKENS: Final = 20_000
KEPT_SHARE: Final = 0.45
"""Of the limit, for windows so small that the rest could not be summarized."""


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
    head, tail = frame(conversation)
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


def frame(conversation: Conversation) -> tuple[bytes, bytes]:
    """What stands around the messages; tools of the right weight, which every wire has."""
    field = "input" if conversation.format == "openai-responses" else "messages"
    tools = [{"name": "tool", "description": ""}]
    missing = SYSTEM_TOKENS - count_bytes(json.dumps(tools))
    tools[0]["description"] = "a" * (4 * missing)
    opening = f'{{"model":"replayed","tools":{json.dumps(tools)},"{field}":['
    return opening.encode(), b"]}"
