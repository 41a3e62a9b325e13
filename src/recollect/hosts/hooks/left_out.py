"""The block for an agent that has just compacted by itself: what its summary left out of the
messages. The request in progress comes first, then the user's rules and values, failed attempts,
commands, and names by how often and how lately they were used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal, TypeAlias

from recollect.core.compaction.ask import command_of, decode_arguments, is_compact_command
from recollect.core.compaction.carry import failures, find_touched_files
from recollect.core.compaction.probe import contains, stands_alone
from recollect.core.formats.json_text import strings_of
from recollect.core.formats.recalled_block import EARLIER_ORDER, defuse_tags, standing_line
from recollect.core.formats.summaries import is_summary
from recollect.core.rules.noise import without_attachments, without_reminders
from recollect.core.rules.text import (
    excerpt_around,
    one_line,
    sentence_spans,
    without_recalled_blocks,
)
from recollect.core.search.identifiers import exact_things
from recollect.core.search.statements import is_looking, statement_kind
from recollect.core.turn.past_turns import NOT_TYPED
from recollect.core.turn.standing_block import asks_once, rule_strength
from recollect.core.values.compaction import Probe, ProbeKind
from recollect.core.values.history import Entry
from recollect.core.values.message import Text, ToolCall, ToolResult
from recollect.core.values.recall import BLOCK_CLOSING, BLOCK_OPENING

BLOCK_TOKENS: Final = 400
"""Token limit of the block. With 400 tokens, 47% of the names that the next 60 messages of real
sessions need are in the summary or the block, with 800 tokens 60%; the summary alone has 24%."""
NOTE: Final = "From before the compaction, left out of the summary, word for word, for reference."
OPEN_NOTE: Final = "The user's request in progress, not an earlier one:"
_LINE_CHARS: Final = 160
"""Not measured; a sentence or command of two lines."""
_COMMAND_CHARS: Final = 140
"""Not measured; longer commands are scripts, which later work does not repeat word for word."""
_ARGUMENT_CHARS: Final = 600
"""Not measured; a longer argument is the content of a file, not what a call is about."""
_OPEN_CHARS: Final = 320
"""Not measured; takes at most a fifth of the block."""
_QUOTE_CHARS: Final = 40
"""Words around a value: "port 5433" helps a model, "5433" alone does not."""
_READ_CHARS: Final = 4_000
"""Not measured; bounds the time for pasted logs."""
_MAX_FAILURES: Final = 3
"""Not measured; older failures are mostly solved by other means."""
_MAX_COMMANDS: Final = 12
_MAX_RULES: Final = 12
"""Not measured; both bound the comparisons with the summary."""
_RULE_STRENGTH: Final = 0.6
"""Sentences from this strength on are given back even without a value: all 45 rules of three real
sessions are in the summary or the block with it."""
_NAME_HALF_LIFE: Final = 80.0
"""Messages after which a mention counts half. With 40, 80 and 160 messages, 44.9, 45.7 and 45.3% of
the needed names are in the summary or a block of 372 tokens."""
_COMMAND_HALF_LIFE: Final = 40.0
"""As for names; commands are repeated sooner."""
_COST_EXPONENT: Final = 0.5
"""A line's worth is divided by this power of its tokens. With 0, .5 and 1, a block of 372 tokens
has 38.6, 40.7 and 38.0% of the needed names if the summary is junk."""
_COMMAND_WORTH: Final = 1.5
_SPEAKER_WORTH: Final = {"user": 1.0, "assistant": 2.0, "call": 2.0}
"""What the model itself uses is used again most often."""
_TYPED_VALUE_WORTH: Final = 6.0
"""A number, hash or address that the user typed is rarely said twice, but often needed."""
_NUMBER_SHARE: Final = 0.3
"""Most numbers of a session are counts and sizes."""
_VALUES: Final = ("number", "hash", "url")

LeftOutKind: TypeAlias = Literal["rule", "failed", "ran", "value", "name"]
_SHARES: Final[tuple[tuple[LeftOutKind, float], ...]] = (
    ("rule", 0.22),
    ("failed", 0.14),
    ("ran", 0.18),
)
"""What comes before names and values, and the largest share of the block that each takes. With 35%
for rules instead of 22%, the block has 43.9 instead of 45.7% of the needed names."""


class VisibleText:
    """What the model still sees: the agent's summary and the messages that the agent kept."""

    def __init__(self, *texts: str) -> None:
        self.text = "\n".join(texts)
        self._joined = " ".join(self.text.split())

    def has(self, text: str) -> bool:
        """Return whether it contains the text as whole words."""
        sought_text = " ".join(text.split())
        offset = self._joined.find(sought_text) if sought_text else -1
        while offset >= 0:
            if stands_alone(self._joined, offset, offset + len(sought_text)):
                return True
            offset = self._joined.find(sought_text, offset + 1)
        return not sought_text

    def has_path(self, path: str) -> bool:
        """Return whether it contains the path, or its folder and its name."""
        if self.has(path):
            return True
        folder, _, name = path.rstrip("/").rpartition("/")
        return bool(folder) and self.has(name) and f"{folder}/" in self._joined


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOutThing:
    """One thing that was said or used, and that the model no longer sees."""

    kind: LeftOutKind
    text: str = field(repr=False)
    worth: float
    name: str = field(default="", repr=False)
    """The bare value, if `text` quotes the words around it."""
    source: str = field(default="", repr=False)
    """The text that it was taken from. If a secret is masked there, it is not given back."""
    is_order: bool = False
    """True if the user asked for work that is done or abandoned by now."""


@dataclass(frozen=True, kw_only=True)
class LeftOutFinder:
    """Finds what `visible` lacks of the messages. `mask` masks secrets."""

    entries: Sequence[Entry]
    visible: VisibleText
    open_request: str = field(default="", repr=False)
    mask: Callable[[str], str] = str

    def find(self) -> list[LeftOutThing]:
        """Return what is left out, kind by kind, the most useful first."""
        return [*self._rules(), *self._failures(), *self._commands(), *self._names()]

    @cached_property
    def _typed_texts(self) -> list[tuple[int, Entry, str]]:
        return [
            (index, entry, self.mask(text))
            for index, entry in enumerate(self.entries)
            for text in typed_texts(entry)
        ]

    def _rules(self) -> list[LeftOutThing]:
        found: dict[str, LeftOutThing] = {}
        open_text = one_line(self.open_request)
        for index, entry, text in self._typed_texts:
            for sentence in _sentences(text[:_READ_CHARS]):
                if sentence in open_text:
                    continue
                worth = self._worth_of(sentence, index / max(len(self.entries), 1))
                line = excerpt_around(sentence, 0, 0, _LINE_CHARS)
                if worth and not contains(self.visible.text, _probe_of(line, entry)):
                    is_order = asks_once(sentence)
                    found[line.casefold()] = LeftOutThing(
                        kind="rule", text=line, worth=worth, is_order=is_order
                    )
        return sorted(found.values(), key=lambda rule: -rule.worth)[:_MAX_RULES]

    def _worth_of(self, sentence: str, age_share: float) -> float:
        """Return the worth of a sentence of the user; 0 if it neither rules nor names a value."""
        kind = statement_kind(sentence, by_user=True)
        strength = rule_strength(sentence, by_user=True)
        things = list(exact_things(sentence))
        values = [thing.text for thing in things if thing.kind in _VALUES]
        lays_down = kind in ("constraint", "decision") or strength >= _RULE_STRENGTH
        if not lays_down and all(map(self.visible.has, values)):
            return 0.0
        worth = strength + 0.3 * bool(things) + 0.5 * age_share
        return worth + (0.5 if kind == "constraint" else 0.0)

    def _failures(self) -> list[LeftOutThing]:
        standing = [failure for failure in failures(self.entries) if not is_looking(failure.said)]
        lines = [self.mask(excerpt_around(failure.said, 0, 0, _LINE_CHARS)) for failure in standing]
        return [
            LeftOutThing(kind="failed", text=line, worth=1 / (1 + place))
            for place, line in enumerate(reversed(lines))
            if not self.visible.has(line[:60])
        ][:_MAX_FAILURES]

    def _commands(self) -> list[LeftOutThing]:
        failed_ids = {
            part.call_id
            for entry in self.entries
            for part in entry.parts
            if isinstance(part, ToolResult) and part.is_error
        }
        worth_by_command: dict[str, float] = {}
        for age, entry in _by_age(self.entries):
            for part in entry.parts:
                command = one_line(command_of(part)) if isinstance(part, ToolCall) else ""
                if not command or len(command) > _COMMAND_CHARS or is_looking(command):
                    continue
                if isinstance(part, ToolCall) and part.id not in failed_ids:
                    worth = _COMMAND_WORTH * _SPEAKER_WORTH["call"]
                    worth *= 0.5 ** (age / _COMMAND_HALF_LIFE)
                    worth_by_command[command] = worth_by_command.get(command, 0.0) + worth
        ranked = sorted(worth_by_command.items(), key=lambda pair: -pair[1])[:_MAX_COMMANDS]
        return [
            LeftOutThing(kind="ran", text=command, worth=worth, source=command)
            for command, worth in ranked
            if not self.visible.has(command)
        ]

    def _names(self) -> list[LeftOutThing]:
        """Return names and values that a person or the model used. A search finds those that only
        a tool printed, of which there are too many."""
        mentions: dict[str, _Mention] = {}
        for age, entry in _by_age(self.entries):
            for speaker, text in _spoken_texts(entry):
                for name, kind in {thing.text: thing.kind for thing in exact_things(text)}.items():
                    if len(name) <= _LINE_CHARS:
                        mention = mentions.setdefault(name, _Mention(kind))
                        mention.add(speaker, text, age)
        found = []
        for name, mention in mentions.items():
            is_path = mention.kind == "path"
            if self.visible.has_path(name) if is_path else self.visible.has(name):
                continue
            share = _NUMBER_SHARE if mention.kind == "number" else 1.0
            found.append(
                LeftOutThing(
                    kind="value" if mention.kind in _VALUES else "name",
                    text=_quote(name, mention.source) if mention.kind in _VALUES else name,
                    name=name,
                    worth=share * mention.worth,
                    source=mention.source,
                )
            )
        return sorted(found, key=lambda name: -name.worth)


@dataclass(slots=True)
class _Mention:
    kind: ProbeKind
    worth: float = 0.0
    source: str = field(default="", repr=False)

    def add(self, speaker: str, text: str, age: int) -> None:
        is_typed_value = speaker == "user" and self.kind in _VALUES
        worth = _TYPED_VALUE_WORTH if is_typed_value else _SPEAKER_WORTH[speaker]
        self.worth += worth * 0.5 ** (age / _NAME_HALF_LIFE)
        self.source = text


def _by_age(entries: Sequence[Entry]) -> Iterator[tuple[int, Entry]]:
    for index, entry in enumerate(entries):
        yield len(entries) - index, entry


def typed_texts(entry: Entry) -> Iterator[str]:
    """Yield the texts of a message that a person typed."""
    if entry.role != "user" or is_summary(entry.role, entry.parts):
        return
    texts = [part.text for part in entry.parts if isinstance(part, Text)]
    for text in without_attachments(texts):
        typed_text = without_reminders(without_recalled_blocks(text, any_spelling=True)).strip()
        is_typed = typed_text and not typed_text.startswith(NOT_TYPED)
        if is_typed and not is_compact_command(typed_text):
            yield typed_text


def _spoken_texts(entry: Entry) -> Iterator[tuple[str, str]]:
    for part in entry.parts:
        if isinstance(part, Text) and entry.role == "assistant":
            yield "assistant", part.text[:_READ_CHARS]
        elif isinstance(part, ToolCall):
            arguments = decode_arguments(part.arguments)
            is_plain = not isinstance(arguments, dict | list)
            texts = [part.arguments] if is_plain else list(strings_of(arguments))
            yield "call", "\n".join(text for text in texts if len(text) <= _ARGUMENT_CHARS)
    for text in typed_texts(entry):
        yield "user", text[:_READ_CHARS]


def _sentences(text: str) -> Iterator[str]:
    is_fenced = False
    for start, end in sentence_spans(text):
        sentence = one_line(text[start:end])
        if sentence.startswith("```"):
            is_fenced = not is_fenced
        elif not is_fenced and len(sentence) >= 12:
            yield sentence


def _probe_of(line: str, entry: Entry) -> Probe:
    return Probe(kind="decision", text=line, sentence=line, source=entry.id, key=entry.key)


def _quote(name: str, text: str) -> str:
    line = one_line(next((line for line in text.splitlines() if name in line), name))
    return excerpt_around(line, max(line.find(name), 0), len(name), len(name) + _QUOTE_CHARS)


_ROUNDS: Final = 4
"""A block is some tokens shorter or longer than the sum of its lines. Further rounds correct this:
with three of them, the block has 47.2 instead of 45.7% of the needed names."""
_TITLES: Final = {
    "open": f"{OPEN_NOTE}\n<detail>\n</detail>",
    "rule": "<detail>\n</detail>",
    "failed": "Failed so far:",
    "ran": "Commands that were run:",
    "edited": "Files edited:",
    "name": "Names and values in use:",
}


@dataclass(kw_only=True)
class BlockWriter:
    """Writes the most useful of what is left out into a block of at most `max_tokens`."""

    max_tokens: int
    count_tokens: Callable[[str], int]
    mask: Callable[[str], str] = str
    _sections: dict[str, list[str]] = field(default_factory=dict, init=False)
    _used_tokens: int = field(default=0, init=False)
    _limit: int = field(default=0, init=False)
    _written: VisibleText = field(default_factory=VisibleText, init=False)

    def write(
        self,
        left_out: Sequence[LeftOutThing],
        edited: Sequence[str] = (),
        *,
        open_request: str = "",
    ) -> str:
        """Return the block; "" if there is nothing to give back. `edited` are the files that were
        changed."""
        text, limit = "", self.max_tokens
        for _ in range(_ROUNDS):
            block = self._write(left_out, edited, open_request, limit)
            excess_tokens = self.count_tokens(block) - self.max_tokens
            if excess_tokens <= 0:
                text = block
            elif text:
                break
            limit -= excess_tokens
        return text

    def _write(
        self, left_out: Sequence[LeftOutThing], edited: Sequence[str], open_request: str, limit: int
    ) -> str:
        self._sections, self._written, self._limit = {}, VisibleText(), limit
        frame = [BLOCK_OPENING, NOTE, BLOCK_CLOSING]
        self._used_tokens = self.count_tokens("\n".join(frame))
        if open_request:
            line = excerpt_around(one_line(self.mask(open_request)), 0, 0, _OPEN_CHARS)
            self._take("open", standing_line("user", line), limit)
        for kind, share in _SHARES:
            left_tokens = share * limit
            for thing in left_out:
                if thing.kind == kind:
                    left_tokens -= self._take_thing(kind, thing, left_tokens)
        exact = [thing for thing in left_out if thing.kind in ("ran", "name", "value")]
        for thing in sorted(exact, key=self._worth_per_cost, reverse=True):
            section = "ran" if thing.kind == "ran" else "edited" if thing.text in edited else "name"
            self._take_thing(section, thing, limit)
        return "\n".join(self._lines()) if any(self._sections.values()) else ""

    def _worth_per_cost(self, thing: LeftOutThing) -> float:
        return float(thing.worth / self.count_tokens(thing.text) ** _COST_EXPONENT)

    def _take_thing(self, section: str, thing: LeftOutThing, max_tokens: float) -> int:
        if self._written.has(thing.name or thing.text):
            return 0
        if thing.source and (thing.name or thing.text) not in self.mask(thing.source):
            return 0  # it is a secret, or a part of one
        if thing.kind != "rule":
            return self._take(section, defuse_tags(thing.text), max_tokens)
        speaker = EARLIER_ORDER if thing.is_order else "user"
        return self._take(section, standing_line(speaker, thing.text), max_tokens)

    def _take(self, section: str, text: str, max_tokens: float) -> int:
        tokens = self.count_tokens(text) + 2
        if section not in self._sections:
            tokens += self.count_tokens(_TITLES[section]) + 1
        if tokens > max_tokens or self._used_tokens + tokens > self._limit:
            return 0
        self._sections.setdefault(section, []).append(text)
        self._written = VisibleText(self._written.text, text)
        self._used_tokens += tokens
        return tokens

    def _lines(self) -> Iterator[str]:
        yield from (BLOCK_OPENING, NOTE)
        for section, title in _TITLES.items():
            texts = self._sections.get(section)
            if texts and section in ("open", "rule"):
                yield from (title.removesuffix("\n</detail>"), *texts, "</detail>")
            elif texts and section in ("edited", "name"):
                yield f"{title} {_join_by_folder(texts)}"
            elif texts:
                yield from (title, *(f"- {text}" for text in texts))
        yield BLOCK_CLOSING


def _join_by_folder(names: Sequence[str]) -> str:
    """Join names, those of one folder after the folder's name."""
    names_by_folder: dict[str, list[str]] = {}
    for name in names:
        folder, slash, base = name.rpartition("/")
        has_folder = bool(slash and base) and "://" not in name and " " not in name
        names_by_folder.setdefault(folder + slash if has_folder else "", []).append(
            base if has_folder else name
        )
    parts = names_by_folder.pop("", [])
    for folder, bases in names_by_folder.items():
        parts.append(f"{folder}{bases[0]}" if len(bases) == 1 else f"{folder} ({', '.join(bases)})")
    return "; ".join(parts)


def write_left_out(
    entries: Sequence[Entry],
    visible: VisibleText,
    *,
    open_request: str,
    max_tokens: int,
    count_tokens: Callable[[str], int],
    mask: Callable[[str], str],
) -> str:
    """Return the block for an agent whose model now sees `visible` instead of these messages."""
    finder = LeftOutFinder(entries=entries, visible=visible, open_request=open_request, mask=mask)
    is_kept = bool(open_request) and visible.has(open_request[:_OPEN_CHARS])
    writer = BlockWriter(max_tokens=max_tokens, count_tokens=count_tokens, mask=mask)
    _, edited = find_touched_files(entries)
    return writer.write(finder.find(), edited, open_request="" if is_kept else open_request)
