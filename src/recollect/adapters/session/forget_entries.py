"""Forgetting within one transcript: which entries go, what is left of them and of the file.

Pure: bytes in, bytes out. Must never take an entry out of the chain. Always holds: ids, parents,
times and the pairing of calls and results stay; a line that nobody meant keeps its own bytes; a
summary that stood for something forgotten is withdrawn; a short text is found only where it is all
that was said; ids, names of models, images and signatures are not taken for words; forgetting
twice changes nothing the second time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

from recollect.adapters.session.undo import UNDOES, UNDONE_SUMMARY
from recollect.core.formats.json_text import encode, stringify
from recollect.core.formats.pi import PiCodec
from recollect.core.formats.pi_session import (
    PiEntry,
    PiHeader,
    PiSession,
    entry_line,
    kept_from,
    path_to,
    read_session,
)
from recollect.core.formats.stored_records import SoughtText
from recollect.core.rules.redaction import redact
from recollect.core.rules.text import segment_text, without_thinking
from recollect.core.upkeep.masks import strings_in
from recollect.core.upkeep.matching import compiled

# An entry whose content is forgotten: what is left of it, so that the file still holds together


FORGOTTEN: Final = "[forgotten]"
"""Stands where something was said."""
WITHDRAWN: Final = (
    "The summary that stood here was withdrawn: something that it stood for was forgotten."
)

_ENTRY_FIELDS: Final = (
    "type",
    "id",
    "parentId",
    "timestamp",
    "customType",
    "display",
    "firstKeptEntryId",
    "firstKeptEntryIndex",
    "tokensBefore",
    "fromHook",
    "fromId",
    "targetId",
)
_MESSAGE_FIELDS: Final = (
    "role",
    "customType",
    "display",
    "api",
    "provider",
    "model",
    "usage",
    "stopReason",
    "toolCallId",
    "toolName",
    "isError",
    "exitCode",
    "cancelled",
    "truncated",
    "excludeFromContext",
    "fromId",
    "tokensBefore",
    "timestamp",
)
_DETAILS: Final = (UNDOES, "recollect")
"""Keys of a compaction's `details` that hold numbers and ids alone; the second is the agent's."""
_SETTINGS_OF_A_SESSION: Final = ("model_change", "thinking_level_change", "session")
_SPOKEN_FIELDS: Final = {"session_info": "name", "label": "label"}
_OPAQUE: Final = ("textSignature", "thinkingSignature", "thoughtSignature")
_UNSPOKEN: Final = frozenset({"type", "role", "timestamp", "usage", "stopReason", "version"})
_OWN_KINDS: Final = "recollect."  # custom entries of our agent: their keys are ours, not content
_SUMMARIES: Final = ("compaction", "branch_summary")


def blank_entry(value: Mapping[str, Any]) -> dict[str, Any]:
    """The entry without anything that was said; keys in the order they had."""
    kind = value.get("type")
    if kind in _SETTINGS_OF_A_SESSION:
        return dict(value)
    if kind in _SUMMARIES:
        return blank_summary(value, tail=[blank_message(message) for message in _messages(value)])
    left: dict[str, Any] = {}
    for key, nested in value.items():
        if key in _ENTRY_FIELDS:
            left[key] = nested
        elif key == "message" and isinstance(nested, Mapping):
            left[key] = blank_message(nested)
        elif key == "content":
            left[key] = _content(nested)
        elif _SPOKEN_FIELDS.get(str(kind)) == key:
            left[key] = FORGOTTEN
    return left


def blank_summary(
    value: Mapping[str, Any], *, tail: list[Any] | None = None, withdraw: bool = True
) -> dict[str, Any]:
    """A compaction or a branch's summary, withdrawn or not, with `tail` for what it carries."""
    left: dict[str, Any] = {}
    for key, nested in value.items():
        if key == "retainedTail":
            left[key] = nested if tail is None else tail
        elif key in _ENTRY_FIELDS or not withdraw:
            left[key] = nested
        elif key == "summary":
            left[key] = WITHDRAWN
        elif key == "details" and isinstance(nested, Mapping):
            kept = {name: nested[name] for name in _DETAILS if name in nested}
            if kept:
                left[key] = kept
    return left


def blank_message(message: Any) -> Any:
    """A message of pi without what was said in it."""
    if not isinstance(message, Mapping):
        return FORGOTTEN
    left: dict[str, Any] = {}
    for key, value in message.items():
        if key in _MESSAGE_FIELDS:
            left[key] = value
        elif key == "content":
            left[key] = _content(value)
        elif key in ("command", "output", "summary"):
            left[key] = FORGOTTEN if key != "output" else ""
    return left


def said_in(value: Mapping[str, Any]) -> Iterator[str]:
    """Every string of an entry that somebody said, or that was made of it; no ids, no images."""
    if value.get("type") in _SETTINGS_OF_A_SESSION:
        return
    own = str(value.get("customType")).startswith(_OWN_KINDS)
    for key, nested in value.items():
        if key in _ENTRY_FIELDS or key == "retainedTail":
            continue
        if key == "message":
            yield from said_in_message(nested)
        elif key == "content":
            yield from _said_in_blocks(nested)
        elif key == "details" and value.get("type") in _SUMMARIES and isinstance(nested, Mapping):
            yield from _strings({name: nested[name] for name in nested if name not in _DETAILS})
        else:
            yield from _strings(nested, keys=not own)


def said_in_message(message: Any) -> Iterator[str]:
    """The same of a message."""
    if not isinstance(message, Mapping):
        yield from _strings(message)
        return
    for key, value in message.items():
        if key == "content":
            yield from _said_in_blocks(value)
        elif key not in _MESSAGE_FIELDS:
            yield from _strings(value)


def named_in(value: Any) -> Iterator[str]:
    """Every string that blanking leaves: ids, names of models, tools and folders."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, nested in value.items():
            opaque = key in _OPAQUE or (key == "data" and value.get("type") == "image")
            if key not in _UNSPOKEN and not opaque:
                yield from named_in(nested)
    elif isinstance(value, list):
        for nested in value:
            yield from named_in(nested)


def _content(content: Any) -> Any:
    if not content:
        return content
    if not isinstance(content, list):
        return FORGOTTEN
    calls: list[dict[str, Any]] = [
        {"type": "toolCall", "id": block.get("id"), "name": block.get("name"), "arguments": {}}
        for block in content
        if isinstance(block, Mapping) and block.get("type") == "toolCall"
    ]
    # A reply that only called tools says nothing, so nothing stands for it.
    said = [{"type": "text", "text": FORGOTTEN}] if len(calls) < len(content) else []
    return [*said, *calls]


def _said_in_blocks(content: Any) -> Iterator[str]:
    if not isinstance(content, list):
        yield from _strings(content)
        return
    for block in content:
        if not isinstance(block, Mapping):
            yield from _strings(block)
            continue
        kind = block.get("type")
        unsaid = {"type", "id", "mimeType", *_OPAQUE, *(("data",) if kind == "image" else ())}
        for key, value in block.items():
            if key not in unsaid:
                yield from _strings(value)


def _strings(value: Any, *, keys: bool = True) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, nested in value.items():
            if keys:
                yield str(key)
            yield from _strings(nested, keys=keys)
    elif isinstance(value, list | tuple):
        for nested in value:
            yield from _strings(nested, keys=keys)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)


def _messages(value: Mapping[str, Any]) -> list[Any]:
    found_value = value.get("retainedTail")
    return found_value if isinstance(found_value, list) else []


# Whether an entry of a transcript says what is to be forgotten


LEAST_CHARS: Final = 12
"""A shorter text is forgotten where it is all that was said, not wherever it stands: "yes, do
it" is part of too much."""

_CODEC: Final = PiCodec()


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryTargets:
    """What is to go from a transcript; the ways add up."""

    matching: str | None = field(default=None, repr=False)
    """Whatever holds this text, case aside."""
    said: tuple[str, ...] = field(default=(), repr=False)
    """Texts of messages, as the archive kept them."""
    pattern: str | None = field(default=None, repr=False)
    """Whatever a part of which this regular expression matches."""
    before: float | None = None
    """Whatever was said before, in seconds; with `after`, between the two."""
    after: float | None = None
    """Whatever was said from then on, in seconds."""

    @property
    def nothing(self) -> bool:
        """Whether nothing at all is meant."""
        texts = self.matching is not None or self.pattern is not None or bool(self.said)
        return not texts and self.before is None and self.after is None


class EntrySearch:
    """What is looked for, made ready once; `said` are the messages, comparable."""

    def __init__(self, meant: EntryTargets) -> None:
        self._matching = SoughtText(meant.matching) if meant.matching else None
        self._pattern = None if meant.pattern is None else compiled(meant.pattern)
        self._before = None if meant.before is None else round(meant.before * 1000)
        self._after = None if meant.after is None else round(meant.after * 1000)
        self.said = tuple(text for text in map(comparable, meant.said) if text)
        self._held = tuple(
            [SoughtText(text) for text in meant.said if len(text.strip()) >= LEAST_CHARS]
        )

    def holds(self, text: str) -> bool:
        """Whether a string holds the text that is asked for."""
        if self._matching is not None and self._matching.stands_in(text):
            return True
        return self._pattern is not None and self._pattern.search(text) is not None

    @property
    def by_age_alone(self) -> bool:
        """Whether all before a moment goes, however old it is."""
        return self._before is not None and self._after is None

    def is_timely(self, milliseconds: int) -> bool:
        """Whether what was said then goes by its time."""
        if self._before is None and self._after is None:
            return False
        return (self._before is None or milliseconds < self._before) and (
            self._after is None or milliseconds >= self._after
        )

    def unread_line(self, line: bytes) -> bool:
        """Whether a line that is no entry holds a text that goes."""
        row = (*self._held, *(() if self._matching is None else (self._matching,)))
        if any(value.stands_in(line) for value in row):
            return True
        return self._pattern is not None and any(map(self.holds, strings_in(line, keys=True)))

    def text(self, text: str) -> bool:
        """Whether a text that stands by itself goes."""
        return self.holds(text) or self._text_goes(text)

    def entry(self, entry: PiEntry) -> bool:
        """Whether an entry goes by what it says."""
        strings = list(said_in(entry.value))
        if any(map(self.holds, strings)):
            return True
        text = text_of(entry)
        if text is None:
            return any(map(self._text_goes, strings))
        return self.holds(text) or self._text_goes(text, result=entry.role == "toolResult")

    def message(self, message: Mapping[str, Any]) -> bool:
        """Whether a message that a compaction carries goes."""
        at = message.get("timestamp")
        if isinstance(at, int | float) and at > 0 and self.is_timely(int(at)):
            return True
        text = _message_text(message)
        if any(map(self.holds, (*said_in_message(message), text))):
            return True
        return self._text_goes(text, result=message.get("role") == "toolResult")

    def _text_goes(self, text: str, *, result: bool = False) -> bool:
        if not self.said:
            return False
        forms = {comparable(text), comparable(without_thinking(text))}
        return any(_is_of(form, said, result=result) for form in forms for said in self.said)


def _is_of(text: str, said: str, *, result: bool) -> bool:
    """Whether a text is the one said or holds it; a result may also be a part of it, since
    results of several calls are one message for some providers."""
    if not text:
        return False
    if text == said or (len(said) >= LEAST_CHARS and said in text):
        return True
    return result and len(text) >= LEAST_CHARS and f"\n{text}\n" in f"\n{said}\n"


def comparable(text: str) -> str:
    """A text as it compares: archive and transcript mask secrets each in its own way."""
    return redact(text, pii=False).text.strip()


def text_of(entry: PiEntry) -> str | None:
    """What the archive would keep of an entry; None for what is no message."""
    if entry.message is not None:
        return _message_text(entry.message)
    if entry.kind == "custom_message":
        return _message_text({"role": "user", "content": entry.value.get("content")})
    return None


def _message_text(message: Mapping[str, Any]) -> str:
    return segment_text(_CODEC.read(encode(dict(message)))).text


_HEADER_TEXTS: Final = ("cwd", "parentSession")


@dataclass(frozen=True, slots=True, kw_only=True)
class EntriesForgotten:
    """A transcript afterwards, and what was done to it."""

    data: bytes = field(repr=False)
    entries: int = 0
    """Entries whose content went, and lines that nobody could read."""
    summaries: int = 0
    """Summaries that were withdrawn because of them."""
    header_changed: bool = False
    left_in_names: bool = False
    """The text stands in an id, or in the name of a model, a tool or the session, which stay."""

    @property
    def changed(self) -> bool:
        """Whether the file has to be written anew."""
        return bool(self.entries or self.summaries or self.header_changed)


def forget_entries(data: bytes, meant: EntryTargets) -> EntriesForgotten:
    """Forget what is meant in the bytes of a session file."""
    if meant.nothing:
        return EntriesForgotten(data=data)
    session = read_session(data)
    search = EntrySearch(meant)
    values = _forgotten(session, search)
    entries = len(values)
    values |= _withdrawn(session.entries, values)
    summaries = len(values) - entries
    header = None if session.header is None else _header(session.header, search)
    lines, unread = _changed_lines(data, session, values, header, search)
    done = EntriesForgotten(
        data=b"\n".join(lines),
        entries=entries + unread,
        summaries=summaries,
        header_changed=header is not None,
        left_in_names=_left(session, values, header, search),
    )
    return done if done.changed else EntriesForgotten(data=data, left_in_names=done.left_in_names)


def _forgotten(session: PiSession, search: EntrySearch) -> dict[int, dict[str, Any]]:
    """By line number, the entries that go, as they are afterwards."""
    meant = {entry.number for entry in session.entries if search.entry(entry)}
    meant |= _in_pieces(session.entries, search.said)
    meant |= _aged(session, search)
    gone: dict[int, dict[str, Any]] = {}
    spelled: set[str] = set()
    for entry in session.entries:
        if entry.number not in meant:
            continue
        left = blank_entry(entry.value)
        if left != entry.value:
            gone[entry.number] = left
            spelled.add(stringify(entry.value.get("message")))
    for entry in session.entries:
        if entry.number in gone or entry.retained_tail is None:
            continue
        tail = [
            blank_message(value)
            if isinstance(value, Mapping) and (search.message(value) or stringify(value) in spelled)
            else value
            for value in entry.value["retainedTail"]
        ]
        if tail != entry.value["retainedTail"]:
            gone[entry.number] = blank_summary(entry.value, tail=tail)
    return gone


def _in_pieces(entries: Sequence[PiEntry], said: tuple[str, ...]) -> set[int]:
    """Results that follow each other and were one message together, short ones too."""
    found: set[int] = set()
    runs = groupby(entries if said else (), key=lambda entry: entry.role == "toolResult")
    for run in [list(run) for results, run in runs if results]:
        texts = [comparable(text_of(entry) or "") for entry in run]
        for start in range(len(run)):
            for end in range(start + 2, len(run) + 1):
                if "\n".join(texts[start:end]) in said:
                    found.update(entry.number for entry in run[start:end])
    return found


def _aged(session: PiSession, search: EntrySearch) -> set[int]:
    """Entries that go by their time; one without a time is as old as the one before it."""
    header = session.header
    at = PiEntry(number=0, line=b"", value=header.value).milliseconds if header else 0
    found: set[int] = set()
    for entry in session.entries:
        at = entry.milliseconds or at
        if search.is_timely(at):
            found.add(entry.number)
    return found


def _withdrawn(
    entries: Sequence[PiEntry], gone: Mapping[int, Mapping[str, Any]]
) -> dict[int, dict[str, Any]]:
    """Summaries that stood for what went, or that were made from one that did."""
    found: dict[int, dict[str, Any]] = {}
    for entry in entries:
        if entry.number in gone or entry.kind not in ("compaction", "branch_summary"):
            continue
        if entry.text("summary") in (None, UNDONE_SUMMARY, WITHDRAWN):
            continue
        covered = {pi_entry.number for pi_entry in _covered(entries, entry)}
        if not covered.isdisjoint(gone) or not covered.isdisjoint(found):
            found[entry.number] = blank_summary(entry.value)
    return found


def _covered(entries: Sequence[PiEntry], summary: PiEntry) -> list[PiEntry]:
    """What a summary may have been made from: all before what it keeps, and earlier summaries."""
    earlier = [entry for entry in entries if entry.number < summary.number]
    if summary.id is None:
        return earlier
    path = path_to(entries, summary.id)
    if summary.kind == "branch_summary":  # of a branch that is not its own; which one, is not said
        own = {entry.number for entry in path}
        return [entry for entry in earlier if entry.number not in own]
    cut = len(path) - 1
    kept = cut if summary.retained_tail is not None else kept_from(path, cut)
    return [*path[:kept], *(entry for entry in path[kept:cut] if entry.kind == "compaction")]


def _header(header: PiHeader, search: EntrySearch) -> bytes | None:
    """The first line anew; None where it stays."""
    value = {
        key: FORGOTTEN
        if key in _HEADER_TEXTS and isinstance(value, str) and search.holds(value)
        else value
        for key, value in header.value.items()
    }
    return None if value == header.value else entry_line(value)


def _changed_lines(
    data: bytes,
    session: PiSession,
    values: Mapping[int, Mapping[str, Any]],
    header: bytes | None,
    search: EntrySearch,
) -> tuple[list[bytes], int]:
    """The file's lines afterwards, and how many went that nobody could read."""
    known = {entry.number for entry in session.entries}
    aged = _aged(session, search)
    oldest = max(aged, default=0) if search.by_age_alone else 0
    lines = data.split(b"\n")
    first = 0 if session.header is None else lines.index(session.header.line) + 1
    left: list[bytes] = []
    unread = before = 0
    for number, line in enumerate(lines, 1):
        if number in values:
            left.append(entry_line(values[number]))
        elif number == first and header is not None:
            left.append(header)
        elif number in known or number == first or not line.strip():
            left.append(line)
        elif before in aged or number < oldest or search.unread_line(line):
            unread += 1
            if number == len(lines):
                left.append(b"")  # the line before it keeps its end
        else:
            left.append(line)
        before = number if number in known else before
    return left, unread


def _left(
    session: PiSession,
    values: Mapping[int, Mapping[str, Any]],
    header: bytes | None,
    search: EntrySearch,
) -> bool:
    names = [values.get(entry.number, entry.value) for entry in session.entries]
    if session.header is not None:
        record = session.header.value
        names.append(
            record
            if header is None
            else {key: value for key, value in record.items() if key not in _HEADER_TEXTS}
        )
    return any(search.holds(text) for value in names for text in named_in(value))
