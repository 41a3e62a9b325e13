"""Reads, removes and masks the content of a transcript's entries.

The functions take and return bytes, without I/O. Removing content keeps the entry in the tree, with
its id, parent, time and pairing of calls and results. A line without forgotten content or secrets
keeps its bytes. A summary of forgotten content is removed. If a signed text changes, its signature
is removed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from recollect.core.formats.json_text import decode, encode, stringify
from recollect.core.formats.pi import PiCodec
from recollect.core.formats.pi_session import (
    PiEntry,
    PiHeader,
    PiSession,
    build_history,
    entry_line,
    find_first_kept,
    path_to,
    read_session,
)
from recollect.core.rules.redaction import redact
from recollect.core.rules.text import segment_text, without_thinking
from recollect.core.upkeep.masks import Masks, strings_in
from recollect.core.upkeep.matching import OrderMatcher
from recollect.core.values.upkeep import ForgetOrder
from recollect.errors import FormatError

UNDOES: Final = "undoes"
"""Key in a compaction's `details`: the id of the compaction that it undoes."""
UNDONE_SUMMARY: Final = (
    "Nothing is left out here: an earlier compaction was undone, and the whole conversation "
    "follows."
)
FORGOTTEN: Final = "[forgotten]"
WITHDRAWN: Final = (
    "The summary that stood here was withdrawn: something that it stood for was forgotten."
)
MIN_CHARS: Final = 12
"""A shorter text is only forgotten as a whole message: "yes, do it" is part of many texts."""

# Fields that define a session's structure. They are not content, so masking skips them.
_ENTRY_NAMES: Final = frozenset(
    {"type", "id", "parentId", "timestamp", "customType", "display", "firstKeptEntryId",
     "firstKeptEntryIndex", "tokensBefore", "tokensAfter", "fromHook", "fromId", "targetId",
     "provider", "modelId", "thinkingLevel"}
)  # fmt: skip
_MESSAGE_NAMES: Final = frozenset(
    {"role", "customType", "display", "api", "provider", "model", "responseId", "usage",
     "stopReason", "toolCallId", "toolName", "isError", "exitCode", "cancelled", "truncated",
     "excludeFromContext", "fromId", "tokensBefore", "timestamp"}
)  # fmt: skip
_SIGNATURES: Final = ("textSignature", "thinkingSignature", "thoughtSignature")
_BLOCK_NAMES: Final = frozenset({"type", "id", "name", "mimeType", *_SIGNATURES})
_DETAILS: Final = (UNDOES, "recollect")
"""Keys of a compaction's `details` for numbers and ids. All other values are content."""
_SETTINGS_OF_A_SESSION: Final = ("model_change", "thinking_level_change", "session")
_SPOKEN_FIELDS: Final = {"session_info": "name", "label": "label"}
_OWN_KINDS: Final = "recollect."  # custom entries of Recollect's agent: their keys are not content
_SUMMARIES: Final = ("compaction", "branch_summary")
_HEADER_TEXTS: Final = ("cwd", "parentSession")
_SEALED: Final = ("type", "id", "encrypted_content")
"""Fields of a JSON signature that only its provider can read."""
_MAX_NAME_CHARS: Final = 500
"""Not measured; longer texts of an entry are images and signatures, not names."""
_CODEC: Final = PiCodec()


def content_strings(value: Mapping[str, Any]) -> Iterator[str]:
    """Yield every string of an entry that is content or derived from it, except images."""
    kind = value.get("type")
    if kind in _SETTINGS_OF_A_SESSION:
        return
    is_own_kind = str(value.get("customType")).startswith(_OWN_KINDS)
    for key, nested in value.items():
        if key in _ENTRY_NAMES or key == "retainedTail":
            continue
        if key == "message":
            yield from message_strings(nested)
        elif key == "content":
            yield from _block_strings(nested)
        elif key == "details" and kind in _SUMMARIES and isinstance(nested, Mapping):
            yield from _strings({name: nested[name] for name in nested if name not in _DETAILS})
        else:
            yield from _strings(nested, keys=not is_own_kind)


def message_strings(message: Any) -> Iterator[str]:
    if not isinstance(message, Mapping):
        yield from _strings(message)
        return
    for key, value in message.items():
        if key == "content":
            yield from _block_strings(value)
        elif key not in _MESSAGE_NAMES:
            yield from _strings(value)


def _block_strings(content: Any) -> Iterator[str]:
    for block in content if isinstance(content, list) else (content,):
        if not isinstance(block, Mapping):
            yield from _strings(block)
            continue
        structural_names = _BLOCK_NAMES | ({"data"} if block.get("type") == "image" else set())
        for key, value in block.items():
            if key not in structural_names:
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


def text_of(entry: PiEntry) -> str | None:
    """Return the text that the archive would store for an entry; None if it is not a message."""
    if entry.message is not None:
        return _message_text(entry.message)
    if entry.kind == "custom_message":
        return _message_text({"role": "user", "content": entry.value.get("content")})
    return None


def _message_text(message: Mapping[str, Any]) -> str:
    return segment_text(_CODEC.read(encode(dict(message)))).text


def comparable(text: str) -> str:
    """Normalize a text for comparison: archive and transcript mask secrets differently."""
    return redact(text, pii=False).text.strip()


def blank_entry(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry without its content, with the keys in the same order."""
    kind = str(value.get("type"))
    if kind in _SETTINGS_OF_A_SESSION:
        return dict(value)
    if kind in _SUMMARIES:
        tail = value.get("retainedTail")
        tail_messages = tail if isinstance(tail, list) else []
        return _blank_summary(value, [_blank_message(message) for message in tail_messages])
    blank_value: dict[str, Any] = {}
    for key, nested in value.items():
        if key in _ENTRY_NAMES:
            blank_value[key] = nested
        elif key == "message" and isinstance(nested, Mapping):
            blank_value[key] = _blank_message(nested)
        elif key == "content":
            blank_value[key] = _blank_content(nested)
        elif _SPOKEN_FIELDS.get(kind) == key:
            blank_value[key] = FORGOTTEN
    return blank_value


def _blank_summary(value: Mapping[str, Any], tail: list[Any] | None = None) -> dict[str, Any]:
    """Remove the summary from the entry of a compaction or a branch. `tail` replaces the messages
    that a compaction contains."""
    blank_value: dict[str, Any] = {}
    for key, nested in value.items():
        if key == "retainedTail":
            blank_value[key] = nested if tail is None else tail
        elif key in _ENTRY_NAMES:
            blank_value[key] = nested
        elif key == "summary":
            blank_value[key] = WITHDRAWN
        elif key == "details" and isinstance(nested, Mapping):
            details = {name: nested[name] for name in _DETAILS if name in nested}
            if details:
                blank_value[key] = details
    return blank_value


def _blank_message(message: Any) -> Any:
    if not isinstance(message, Mapping):
        return FORGOTTEN
    blank_value: dict[str, Any] = {}
    for key, value in message.items():
        if key in _MESSAGE_NAMES:
            blank_value[key] = value
        elif key == "content":
            blank_value[key] = _blank_content(value)
        elif key in ("command", "output", "summary"):
            blank_value[key] = FORGOTTEN if key != "output" else ""
    return blank_value


def _blank_content(content: Any) -> Any:
    if not content:
        return content
    if not isinstance(content, list):
        return FORGOTTEN
    calls: list[dict[str, Any]] = [
        {"type": "toolCall", "id": block.get("id"), "name": block.get("name"), "arguments": {}}
        for block in content
        if isinstance(block, Mapping) and block.get("type") == "toolCall"
    ]
    # A reply that only calls tools has no text to replace.
    texts = [{"type": "text", "text": FORGOTTEN}] if len(calls) < len(content) else []
    return [*texts, *calls]


class EntrySearch:
    """A request to forget, applied to session files. `message_texts` are message texts as the
    archive stored them. The request's times apply only if `by_time` is true."""

    def __init__(
        self, order: ForgetOrder, message_texts: Sequence[str] = (), *, by_time: bool = True
    ) -> None:
        self.matcher: OrderMatcher = OrderMatcher(order)
        self._order = order if by_time and order.by_time else None
        self._message_texts = tuple(text for text in map(comparable, message_texts) if text)
        long = [text for text in message_texts if len(text.strip()) >= MIN_CHARS]
        self._text_matchers = [OrderMatcher(ForgetOrder(at=0.0, matching=text)) for text in long]

    def is_timely(self, seconds: float) -> bool:
        return self._order is not None and self._order.said_then(seconds)

    def matches_line(self, line: bytes) -> bool:
        """Return True if a line that is not an entry contains a text to forget."""
        return self.matcher.in_bytes(line) or any(
            matcher.in_bytes(line) for matcher in self._text_matchers
        )

    def matches_text(self, text: str, *, result: bool = False) -> bool:
        """Return True if a text contains the request's text or pattern, or one of its messages.
        Some providers join results, so a tool's result may also be a part of a message."""
        if self.matcher.in_text(text):
            return True
        if not self._message_texts:
            return False
        forms = {comparable(text), comparable(without_thinking(text))} - {""}
        return any(
            form == message_text
            or (len(message_text) >= MIN_CHARS and message_text in form)
            or (result and f"\n{form}\n" in f"\n{message_text}\n")
            for form in forms
            for message_text in self._message_texts
        )

    def matches_entry(self, entry: PiEntry) -> bool:
        strings = list(content_strings(entry.value))
        text = text_of(entry)
        if text is None:
            return any(map(self.matches_text, strings))
        if any(map(self.matcher.in_text, strings)):
            return True
        return self.matches_text(text, result=entry.role == "toolResult")

    def matches_message(self, message: Mapping[str, Any]) -> bool:
        """Return True if a message inside a compaction is to be forgotten."""
        milliseconds = message.get("timestamp")
        if (
            isinstance(milliseconds, int | float)
            and milliseconds > 0
            and self.is_timely(milliseconds / 1000)
        ):
            return True
        if any(map(self.matcher.in_text, message_strings(message))):
            return True
        return self.matches_text(_message_text(message), result=message.get("role") == "toolResult")


@dataclass(frozen=True, slots=True, kw_only=True)
class EntriesForgotten:
    """The transcript after forgetting, and counts of its changes."""

    data: bytes = field(repr=False)
    entries: int = 0
    """Number of entries whose content was removed, and of unreadable lines."""
    summaries: int = 0
    """Number of summaries removed because they cover entries whose content was removed."""
    left_in_names: bool = False
    """True if an id, or the name of a model or tool, contains the text and keeps it."""


def forget_entries(data: bytes, search: EntrySearch) -> EntriesForgotten:
    session = read_session(data)
    aged_numbers = _select_by_time(session, search)
    values = _forget_content(session, search, aged_numbers)
    entries = len(values)
    values |= _withdraw_summaries(session.entries, values)
    lines, unreadable_count = _rewrite_lines(data, session, values, aged_numbers, search)
    return EntriesForgotten(
        data=b"\n".join(lines),
        entries=entries + unreadable_count,
        summaries=len(values) - entries,
        left_in_names=any(
            search.matcher.in_text(text)
            for line in lines
            for text in strings_in(line)
            if len(text) < _MAX_NAME_CHARS
        ),
    )


def _forget_content(
    session: PiSession, search: EntrySearch, aged_numbers: set[int]
) -> dict[int, dict[str, Any]]:
    values: dict[int, dict[str, Any]] = {}
    removed_texts: set[str] = set()
    for entry in session.entries:
        if entry.number in aged_numbers or search.matches_entry(entry):
            blank_value = blank_entry(entry.value)
            if blank_value != entry.value:
                values[entry.number] = blank_value
                removed_texts.add(stringify(entry.value.get("message")))
    for entry in session.entries:
        if entry.number in values or entry.retained_tail is None:
            continue
        tail = [
            _blank_message(value)
            if isinstance(value, Mapping)
            and (search.matches_message(value) or stringify(value) in removed_texts)
            else value
            for value in entry.value["retainedTail"]
        ]
        if tail != entry.value["retainedTail"]:
            values[entry.number] = _blank_summary(entry.value, tail)
    return values


def _select_by_time(session: PiSession, search: EntrySearch) -> set[int]:
    header = session.header
    milliseconds = PiEntry(number=0, line=b"", value=header.value).milliseconds if header else 0
    numbers: set[int] = set()
    for entry in session.entries:
        milliseconds = entry.milliseconds or milliseconds
        if search.is_timely(milliseconds / 1000):
            numbers.add(entry.number)
    return numbers


def _withdraw_summaries(
    entries: Sequence[PiEntry], removed_values: Mapping[int, Mapping[str, Any]]
) -> dict[int, dict[str, Any]]:
    """List the summaries that cover removed entries, or that were made from such a summary."""
    summaries: dict[int, dict[str, Any]] = {}
    for entry in entries:
        if entry.number in removed_values or entry.kind not in _SUMMARIES:
            continue
        if entry.text("summary") in (None, UNDONE_SUMMARY, WITHDRAWN):
            continue
        source_numbers = {pi_entry.number for pi_entry in _find_summary_sources(entries, entry)}
        if not source_numbers.isdisjoint(removed_values) or not source_numbers.isdisjoint(
            summaries
        ):
            summaries[entry.number] = _blank_summary(entry.value)
    return summaries


def _find_summary_sources(entries: Sequence[PiEntry], summary: PiEntry) -> list[PiEntry]:
    """List the possible sources of a summary: all entries that it does not keep."""
    earlier = [entry for entry in entries if entry.number < summary.number]
    if summary.id is None:
        return earlier
    path = path_to(entries, summary.id)
    if summary.kind == "branch_summary":  # this entry summarizes a branch that it does not name
        path_numbers = {entry.number for entry in path}
        return [entry for entry in earlier if entry.number not in path_numbers]
    cut_index = len(path) - 1
    first_kept = (
        cut_index if summary.retained_tail is not None else find_first_kept(path, cut_index)
    )
    return [
        *path[:first_kept],
        *(entry for entry in path[first_kept:cut_index] if entry.kind == "compaction"),
    ]


def _rewrite_lines(
    data: bytes,
    session: PiSession,
    values: Mapping[int, Mapping[str, Any]],
    aged_numbers: set[int],
    search: EntrySearch,
) -> tuple[list[bytes], int]:
    known_numbers = {entry.number for entry in session.entries}
    lines = data.split(b"\n")
    first = 0 if session.header is None else lines.index(session.header.line) + 1
    remaining_lines: list[bytes] = []
    unreadable_count = last_number = 0
    for number, line in enumerate(lines, 1):
        if number in values:
            remaining_lines.append(entry_line(values[number]))
        elif number == first and session.header is not None:
            remaining_lines.append(_blank_header(session.header, search))
        elif number in known_numbers or not line.strip():
            remaining_lines.append(line)
        elif last_number in aged_numbers or search.matches_line(line):
            # An unreadable line counts as old as the entry before it.
            unreadable_count += 1
            if number == len(lines):
                remaining_lines.append(b"")  # the previous line keeps its newline
        else:
            remaining_lines.append(line)
        last_number = number if number in known_numbers else last_number
    return remaining_lines, unreadable_count


def _blank_header(header: PiHeader, search: EntrySearch) -> bytes:
    value = {
        key: FORGOTTEN
        if key in _HEADER_TEXTS and isinstance(value, str) and search.matcher.in_text(value)
        else value
        for key, value in header.value.items()
    }
    return header.line if value == header.value else entry_line(value)


def mask_entry(value: dict[str, Any], masks: Masks) -> dict[str, Any]:
    """Mask secrets in an entry. If the entry contains none, return the same object."""
    line = entry_line(value)
    masked_line = masks.json(line).body
    messages = [value.get("message"), *_list_at(value, "retainedTail")]
    if masked_line == line and not any(
        _secret_signatures(block, masks) for block in _blocks(messages)
    ):
        return value
    entry: dict[str, Any] = decode(masked_line)
    _restore(entry, value, _ENTRY_NAMES)
    new_messages = [entry.get("message"), *_list_at(entry, "retainedTail")]
    for message, old_message in zip(new_messages, messages, strict=True):
        if isinstance(message, dict) and isinstance(old_message, Mapping):
            _restore_message(message, old_message, masks)
    return value if entry == value else entry


def mask_lines(data: bytes, masks: Masks) -> bytes:
    """Mask secrets in a transcript. A line that cannot be parsed is masked as text."""
    return b"\n".join([_mask_line(line, masks) for line in data.split(b"\n")])


def _mask_line(line: bytes, masks: Masks) -> bytes:
    if not line.strip():
        return line
    try:
        value = decode(line)
    except FormatError:
        value = None
    if not isinstance(value, dict):
        return masks.json(line).body
    masked_value = mask_entry(value, masks)
    return line if masked_value is value else entry_line(masked_value)


def _list_at(value: Mapping[str, Any], key: str) -> Sequence[Any]:
    items = value.get(key)
    return items if isinstance(items, list | tuple) else ()


def _blocks(messages: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    for message in messages:
        if isinstance(message, Mapping):
            yield from (
                block for block in _list_at(message, "content") if isinstance(block, Mapping)
            )


def _restore_message(
    new_message: dict[str, Any], original: Mapping[str, Any], masks: Masks
) -> None:
    _restore(new_message, original, _MESSAGE_NAMES)
    pairs = zip(_list_at(new_message, "content"), _list_at(original, "content"), strict=True)
    for block, old_block in pairs:
        if not isinstance(block, dict) or not isinstance(old_block, Mapping):
            continue
        _restore(block, old_block, _BLOCK_NAMES)
        if old_block.get("type") == "image":
            _restore(block, old_block, {"data"})
        if block.get("thinking") != old_block.get("thinking"):
            # A provider would refuse a signature that does not match its text.
            block.pop("thinkingSignature", None)
        for name in _secret_signatures(old_block, masks):
            block.pop(name, None)  # a masked signature would be invalid


def _restore(new_value: dict[str, Any], original: Mapping[str, Any], keys: Iterable[str]) -> None:
    new_value.update((key, original[key]) for key in keys if key in original)


def _secret_signatures(block: Mapping[str, Any], masks: Masks) -> list[str]:
    """Return the names of JSON signatures that contain a secret, as in OpenAI's Responses."""
    return [name for name in _SIGNATURES if _holds_secret(block.get(name), masks)]


def _holds_secret(signature: Any, masks: Masks) -> bool:
    if not isinstance(signature, str) or not signature.lstrip().startswith(("{", "[")):
        return False
    try:
        signed_value = decode(signature.encode("utf-8", "surrogatepass"))
    except FormatError:
        return False
    if isinstance(signed_value, dict):
        signed_value = {name: value for name, value in signed_value.items() if name not in _SEALED}
    return bool(masks.json(encode(signed_value)).kinds)


# An undo is a new compaction that restores the view before the last active one, so pi can read it.


def plan_undo(path: Sequence[PiEntry]) -> dict[str, Any] | None:
    """Return the fields of a compaction that undoes the last active one; None if none is active."""
    active_indexes = active_compactions(path)
    if not active_indexes:
        return None
    undone_entry = path[active_indexes[-1]]
    tokens = undone_entry.value.get("tokensBefore")
    fields: dict[str, Any] = {
        "summary": UNDONE_SUMMARY,
        "first_kept_entry_id": path[0].id,
        "tokens_before": tokens if isinstance(tokens, int) else 0,
        "details": {UNDOES: undone_entry.id},
        "from_hook": True,
    }
    return (
        fields
        if len(active_indexes) == 1
        else fields | _restore_fields(path, active_indexes[-2], undone_entry)
    )


def active_compactions(path: Sequence[PiEntry]) -> tuple[int, ...]:
    """Return the indexes of the path's compactions that were not undone; the last is active."""
    active_indexes: list[int] = []
    for position, entry in enumerate(path):
        if entry.kind != "compaction":
            continue
        if not is_undo(entry):
            active_indexes.append(position)
        elif active_indexes:
            active_indexes.pop()
    return tuple(active_indexes)


def is_undo(entry: PiEntry) -> bool:
    """Return True if a compaction only undoes another one."""
    details = entry.value.get("details")
    return isinstance(details, dict) and isinstance(details.get(UNDOES), str)


def _restore_fields(path: Sequence[PiEntry], index: int, undone_entry: PiEntry) -> dict[str, Any]:
    restored_entry = path[index]
    first_kept = find_first_kept(path, index)
    # If the compaction kept no earlier message, the restored view begins right after it.
    first = path[first_kept if first_kept < index else index + 1].id
    tail = restored_entry.retained_tail
    if tail is not None:
        tail += build_history(path[index + 1 :]).messages
        first = path[index + 1].id or first
    details = restored_entry.value.get("details")
    from_hook = restored_entry.value.get("fromHook")
    return {
        "summary": restored_entry.text("summary") or "",
        "first_kept_entry_id": first,
        "details": {**(details if isinstance(details, dict) else {}), UNDOES: undone_entry.id},
        "from_hook": from_hook if isinstance(from_hook, bool) else None,
        "retained_tail": tail,
    }
