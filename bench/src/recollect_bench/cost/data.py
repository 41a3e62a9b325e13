"""The conversations that the cost bench replays, and what each message refers back to.

Owns reading recordings as rows of their own wire format: every message in its order but
summaries, empty ones and replies that were broken off, which no client sends again; one request
before every run of rows that the model wrote. Must never keep or print what was said.

*Identifiers* are those of the study (docs/contributing/sources.md), not the product's own: what is
measured must not choose what it is measured by. Names of tools and keys of their JSON do not count.
What a message refers to stood before it, and not in the last `RECENT_MESSAGES`.

*Useful* is a request that tells about what a message names, not only its name:

- Of the lines of earlier messages that hold the name, the reference relies on the one that shares
  most content words with the message, the earliest of equals. Of a long line `LINE_CHARS` around
  the name are read.
- Content words have three or more characters; a path or a name in code is one word; numbers, stop
  words of English and code, and words that hold the name are left out.
- A reference counts if its line has at least `LEAST_WORDS` content words, one of them also in the
  message. It is useful if half of the line's content words stand within `NEAR_CHARS` of the name,
  in one stretch of one summary or recalled block. No strategy is looked at to choose a line.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Any, Final

from recollect.cli.import_run import Recorded, find_sources
from recollect.core.formats.codec import CODECS
from recollect.core.formats.json_text import array_items, object_fields
from recollect.core.formats.transcripts import read_transcripts
from recollect.core.formats.transcripts.records import unpack
from recollect.core.rules.tokens import Weigher
from recollect.core.values.message import (
    Message,
    Other,
    Part,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from recollect.core.values.model import FormatName
from recollect.core.values.transcript import RecordedSession
from recollect.errors import FormatError, RecollectError
from recollect_bench.data import DataNotFoundError, data_folder

# What counts as an identifier in the cost bench


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


# Whether a request tells about what a message names


LINE_CHARS: Final = 300
NEAR_CHARS: Final = 300
LEAST_WORDS: Final = 3
USEFUL_SHARE: Final = 0.5
_LEAST_CHARS: Final = 3
_WORD: Final = re.compile(r"[\w$@](?:[\w$@./:-]*[\w$])?")
_EMPTY_LINES: Final = """
the and for are was were has have had not but you your our their his her its they them this that
these those with from into onto over under than then when where which while what who how why all
any some each both more most can could will would should may might must shall been being does did
done also just only very here there about let const var def import export return function class
new null true false none undefined async await public private static void type interface string
number boolean self else elif try catch except finally throw raise print end
"""
_EMPTY: Final = frozenset(_EMPTY_LINES.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliedLine:
    """What a message relies on when it names something."""

    name: str = field(repr=False)
    text: str = field(repr=False)
    words: frozenset[str] = field(repr=False)
    row: int

    def told_in(self, texts: Sequence[str]) -> bool:
        """Whether one stretch of one of these texts says enough of it."""
        return any(
            len(self.words & content_words(stretch)) >= USEFUL_SHARE * len(self.words)
            for text in texts
            for stretch in _around(text, self.name, NEAR_CHARS)
        )


def content_words(text: str) -> frozenset[str]:
    """The words of a text that say something."""
    words = frozenset(_WORD.findall(text.casefold())) - _EMPTY
    return frozenset(word for word in words if len(word) >= _LEAST_CHARS and not word.isdigit())


class ReliedLines:
    """The lines of one conversation, by the names that they hold."""

    def __init__(self, texts: Sequence[str], naming: Naming) -> None:
        """`texts` are what the rows of the conversation say, in order."""
        self._texts = texts
        self._naming = naming
        self._read = 0
        self._lines: dict[str, list[tuple[int, str]]] = {}
        self._known: dict[tuple[int, int, str], ReliedLine | None] = {}

    def __reduce__(self) -> tuple[type[ReliedLines], tuple[Sequence[str], Naming]]:
        return ReliedLines, (self._texts, self._naming)

    def of(self, name: str, first: int, end: int) -> ReliedLine | None:
        """What the message of rows `first` to `end` relies on when it names this."""
        asked = (first, end, name)
        if asked not in self._known:
            self._known[asked] = self._chosen(name, first, end)
        return self._known[asked]

    def _chosen(self, name: str, first: int, end: int) -> ReliedLine | None:
        self._grow(first)
        own = name.casefold()
        said = content_words("\n".join(map(self._naming.without_folder, self._texts[first:end])))
        best: ReliedLine | None = None
        most = 0
        for row, line in self._lines.get(name, ()):
            words = frozenset(word for word in content_words(line) if own not in word)
            shared = len(words & said)
            if row < first and len(words) >= LEAST_WORDS and shared > most:
                best, most = ReliedLine(name=name, text=line, words=words, row=row), shared
        return best

    def _grow(self, until: int) -> None:
        """Rows are read in their order, each once."""
        for row in range(self._read, until):
            for line in self._naming.without_folder(self._texts[row]).splitlines():
                for name in self._naming.read(line):
                    for around in _around(line, name, (LINE_CHARS - len(name)) // 2):
                        self._lines.setdefault(name, []).append((row, around))
                        break
        self._read = max(self._read, until)


def _around(text: str, name: str, chars: int) -> Iterator[str]:
    """The text around each place where a name stands."""
    at = text.find(name)
    while at >= 0:
        yield text[max(0, at - chars) : at + len(name) + chars]
        at = text.find(name, at + len(name))


RECENT_MESSAGES: Final = 5
"""What the last so many messages say is no reference back."""
BYTES_A_TOKEN: Final = 4
TAU_TRIALS: Final = 2
"""Of tau-bench's four: two runs of every task, as in the study."""
_TAU: Final = "taubench_gpt-4o-airline.json.gz"
_TUNED: Final = ("pi_before-compaction.jsonl.gz", "pi_large-session.jsonl.gz", _TAU)
_HELD_OUT: Final = ("codex_session.jsonl.gz", "codex_session_patches.jsonl.gz")
_FOLDER: Final = re.compile(rb'"cwd"\s*:\s*"([^"\\]{2,300})"')
_FOLDER_BYTES: Final = 100_000


def count_bytes(text: str) -> int:
    """Tokens of a text as the study counts them, the same for every strategy."""
    return ceil(len(text.encode("utf-8", "replace")) / BYTES_A_TOKEN)


class ByteCounter:
    """Counts so for the engine."""

    def count_text(self, text: str) -> int:
        """A quarter of the bytes, rounded up."""
        return count_bytes(text)


WEIGHER: Final = Weigher(count=count_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One message of the wire."""

    raw: bytes = field(repr=False)
    role: Role
    text: str = field(repr=False)
    tokens: int
    names: frozenset[str] = field(repr=False)
    answers_a_call: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A message that refers back: its first row, and what it names."""

    row: int
    names: tuple[str, ...] = field(repr=False)
    end: int
    """Behind its last row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A request: all rows before `row`, and the messages whose references it is held to."""

    row: int
    targets: tuple[Target, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A recording as it is replayed."""

    name: str
    format: FormatName
    rows: tuple[Row, ...] = field(repr=False)
    moments: tuple[Moment, ...] = field(repr=False)
    naming: Naming = field(repr=False)
    relied: ReliedLines = field(repr=False)
    held_out: bool = False
    """Nothing was tuned on it; it is no part of the pooled figures."""

    @property
    def tokens(self) -> int:
        """All of it."""
        return sum(row.tokens for row in self.rows)


def load_conversations(paths: Sequence[Path] = (), *, quick: bool = False) -> list[Conversation]:
    """The shared recordings, or those of `paths`; `quick` takes a slice of the first."""
    if paths:
        return _own(paths, quick=quick)
    folder = data_folder() / "transcripts"
    if not folder.is_dir():
        raise DataNotFoundError(
            "the transcripts of the cost bench are not here: set RECOLLECT_DATA to the folder"
            " that holds transcripts/, or give recordings of your own with --paths"
        )
    names = _TUNED[:1] if quick else (*_TUNED, *_HELD_OUT)
    return [_shared(folder / name, held_out=name in _HELD_OUT) for name in names]


def tau_runs(data: bytes) -> tuple[RecordedSession, ...]:
    """The runs of a result file of tau-bench: each `traj` is a list of chat messages."""
    runs = [object_fields(run) or {} for run in array_items(unpack(data)) or ()]
    return read_transcripts(b"[" + b",".join(run["traj"] for run in runs) + b"]")


def _shared(file: Path, *, held_out: bool) -> Conversation:
    if not file.is_file():
        raise DataNotFoundError(f"{file.name} is missing in RECOLLECT_DATA's transcripts/")
    data = file.read_bytes()
    recorded = tau_runs(data) if file.name == _TAU else read_transcripts(data, name=file.name)
    name = file.name.split(".")[0].split("-")[0]
    if file.name == _TAU:
        # the file holds one trial of every task behind the other
        recorded = recorded[: len(recorded) * TAU_TRIALS // 4]
        name = "tau"
    return conversation(name, recorded, folder=_folder(data), held_out=held_out)


def _own(paths: Sequence[Path], *, quick: bool) -> list[Conversation]:
    for path in paths:
        if not path.exists():
            raise RecollectError(f"there is no {path}: give files or folders of transcripts")
    conversations: list[Conversation] = []
    for source in find_sources(tuple(paths)):
        if not isinstance(source, Recorded):
            continue
        data = source.read()
        try:
            recorded = read_transcripts(data, name=source.name)
        except FormatError:
            continue
        for number, session in enumerate(recorded):
            name = source.stem if len(recorded) == 1 else f"{source.stem}-{number}"
            made = conversation(name, (session,), folder=_folder(data))
            if made.moments:
                conversations.append(made)
        if quick and conversations:
            break
    if not conversations:
        raise RecollectError("none of the files given is a recording of a known kind")
    return conversations


def _folder(data: bytes) -> str:
    """The folder that a coding session worked in: paths are named with and without it."""
    match = _FOLDER.search(unpack(data)[:_FOLDER_BYTES])
    return match[1].decode("utf-8", "replace") if match else ""


def conversation(
    name: str, recorded: Sequence[RecordedSession], *, folder: str = "", held_out: bool = False
) -> Conversation:
    """One conversation from one recording, or from several of a kind one behind the other."""
    wire = recorded[0].format
    codec = CODECS[wire]
    messages = [
        message
        for session in recorded
        for item in session.items
        if not item.derived and _counts(message := codec.read(item.raw))
    ]
    naming = Naming(common_names(messages), folder)
    rows = tuple(_row(message, naming) for message in messages)
    return Conversation(
        name=name,
        format=wire,
        rows=rows,
        moments=tuple(_moments(rows)),
        naming=naming,
        relied=ReliedLines([row.text for row in rows], naming),
        held_out=held_out,
    )


def conversation_of(
    conversation: Conversation, wire: FormatName, raws: Sequence[bytes]
) -> Conversation:
    """The same conversation in another wire, whose messages these are."""
    messages = [CODECS[wire].read(raw) for raw in raws]
    rows = tuple(_row(message, conversation.naming) for message in messages if _counts(message))
    return replace(
        conversation,
        format=wire,
        rows=rows,
        moments=tuple(_moments(rows)),
        relied=ReliedLines([row.text for row in rows], conversation.naming),
    )


def sliced(whole: Conversation, rows: int) -> Conversation:
    """The beginning of a conversation."""
    kept = whole.rows[:rows]
    return Conversation(
        name=whole.name,
        format=whole.format,
        rows=kept,
        moments=tuple(_moments(kept)),
        naming=whole.naming,
        relied=whole.relied,
        held_out=whole.held_out,
    )


def _counts(message: Message) -> bool:
    if message.role == "system" or message.summary or message.ending != "complete":
        return False
    return _answers(message) or bool(message_text(message).strip())


def _answers(message: Message) -> bool:
    return any(isinstance(part, ToolResult) for part in message.parts)


def _role(message: Message) -> Role:
    """A message of results alone is a tool's, whatever the wire calls it."""
    only = all(isinstance(part, ToolResult) for part in message.parts)
    return "tool" if only else message.role


def _row(message: Message, naming: Naming) -> Row:
    text = message_text(message)
    return Row(
        raw=message.raw,
        role=_role(message),
        text=text,
        tokens=WEIGHER.message(message.parts),
        names=naming.names_in(text),
        answers_a_call=_answers(message),
    )


def _moments(rows: Sequence[Row]) -> Iterable[Moment]:
    """Walks over messages: a run of the model's rows is one, every other row is one."""
    starts = [
        at
        for at, row in enumerate(rows)
        if not (row.role == "assistant" and at and rows[at - 1].role == "assistant")
    ]
    known: set[str] = set()
    recent: list[frozenset[str]] = []
    waiting: list[Target] = []
    for start, end in pairwise([*starts, len(rows)]):
        names = frozenset().union(*(row.names for row in rows[start:end]))
        lately = frozenset().union(*recent)
        target = Target(row=start, names=tuple(sorted((names & known) - lately)), end=end)
        if rows[start].role == "user":
            waiting.append(target)
        elif rows[start].role == "assistant":
            if start:
                yield Moment(row=start, targets=(*waiting, target))
            waiting = []
        known |= names
        recent = [*recent, names][-RECENT_MESSAGES:]
