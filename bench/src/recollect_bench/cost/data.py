"""The conversations that the cost bench replays, and what each message refers back to.

Owns reading recordings as rows of their own wire format: every message in its order but
summaries, empty ones and replies that were broken off, which no client sends again; one request
before every run of rows that the model wrote. Must never keep or print what was said. Always
holds: what a message refers to stood before it, and not in the last `RECENT_MESSAGES`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Final

from recollect.errors import FormatError, RecollectError
from recollect.formats.codec import CODECS
from recollect.formats.transcripts import read_transcripts
from recollect.formats.transcripts.records import unpacked
from recollect.rules.tokens import Weigher
from recollect.surfaces.cli.import_sources import Recorded, find_sources
from recollect.values.message import Message, Role, ToolResult
from recollect.values.model import FormatName
from recollect.values.transcript import RecordedSession
from recollect_bench.cost.names import Naming, common_names, message_text
from recollect_bench.cost.relied import ReliedLines
from recollect_bench.data import DataNotFoundError, data_folder

RECENT_MESSAGES: Final = 5
"""What the last so many messages say is no reference back (notes/cost.md)."""
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


def _shared(file: Path, *, held_out: bool) -> Conversation:
    if not file.is_file():
        raise DataNotFoundError(f"{file.name} is missing in RECOLLECT_DATA's transcripts/")
    data = file.read_bytes()
    recorded = read_transcripts(data, name=file.name)
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
    found: list[Conversation] = []
    for source in find_sources(tuple(paths)):
        if not isinstance(source, Recorded):
            continue
        data = source.read()
        try:
            recorded = read_transcripts(data, name=source.name)
        except FormatError:
            continue
        for number, one in enumerate(recorded):
            name = source.stem if len(recorded) == 1 else f"{source.stem}-{number}"
            made = conversation(name, (one,), folder=_folder(data))
            if made.moments:
                found.append(made)
        if quick and found:
            break
    if not found:
        raise RecollectError("none of the files given is a recording of a known kind")
    return found


def _folder(data: bytes) -> str:
    """The folder that a coding session worked in: paths are named with and without it."""
    found = _FOLDER.search(unpacked(data)[:_FOLDER_BYTES])
    return found[1].decode("utf-8", "replace") if found else ""


def conversation(
    name: str, recorded: Sequence[RecordedSession], *, folder: str = "", held_out: bool = False
) -> Conversation:
    """One conversation from one recording, or from several of a kind one behind the other."""
    wire = recorded[0].format
    codec = CODECS[wire]
    messages = [
        message
        for one in recorded
        for item in one.items
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
