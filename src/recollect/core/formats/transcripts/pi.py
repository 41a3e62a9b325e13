"""pi and OpenClaw session files, versions 1 to 3 (docs/contributing/sources.md).

Turns the entries of a session into the history of each model call. Repairs nothing: aborted turns
and calls without a result stay. The item of a message entry is the file's own bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from recollect.core.formats.json_text import array_items, encode, object_fields
from recollect.core.formats.pi_session import (
    PiEntry,
    migrate,
    read_session,
    shown_message,
    summary_message,
)
from recollect.core.formats.transcripts.records import (
    PI_USAGE,
    ancestors,
    no_parent,
    parents_first,
    usage_of,
)
from recollect.core.values.transcript import (
    RecordedRequest,
    RecordedSession,
    ShownItems,
    TranscriptItem,
)

ENTRY_TYPES = frozenset(
    {"session", "message", "thinking_level_change", "model_change", "compaction", "branch_summary"}
    | {"label", "session_info", "custom", "custom_message"}
)
ROLES = frozenset(
    {"system", "user", "assistant", "toolResult", "bashExecution", "custom", "hookMessage"}
    | {"branchSummary", "compactionSummary"}
)
BLOCK_TYPES = frozenset({"text", "thinking", "image", "toolCall"})


def read_pi(data: bytes) -> RecordedSession:
    """Read a session file, every branch of it."""
    file = read_session(data)
    entries = migrate(file).entries
    notes = list(file.notes)
    items: list[TranscriptItem] = []
    own = [_take(*both, items, notes) for both in zip(file.entries, entries, strict=True)]
    parents = _parents(entries, notes)
    return RecordedSession(
        kind="pi",
        format="pi",
        items=tuple(items),
        requests=_requests(entries, own, parents, items, notes),
        session_id=file.header.id if file.header else None,
        version=str(file.version),
        model=_model(entries, parents),
        compactions=sum(entry.kind == "compaction" for entry in entries),
        passed_over=tuple(notes),
    )


def _take(
    was: PiEntry, entry: PiEntry, items: list[TranscriptItem], notes: list[str]
) -> tuple[int, ...]:
    """Add an entry's messages to the items, and return their places."""
    fields = object_fields(was.line) or {}
    if entry.kind == "message":
        if entry.role is None:
            notes.append(f"line {entry.number}: a message entry without a message")
            return ()
        derived = entry.message != was.message  # a migrated role
        source = (object_fields(entry.line) or {}) if derived else fields
        raws = [source["message"]]
    elif entry.kind == "compaction":
        derived = True
        raws = [encode(summary_message(entry)), *(array_items(fields.get("retainedTail")) or ())]
    else:
        if entry.kind not in ENTRY_TYPES:
            notes.append(f"line {entry.number}: an entry of unknown type {entry.kind!r}")
        message, derived = shown_message(entry), True
        raws = [] if message is None else [encode(message)]
    first = len(items)
    for at, raw in enumerate(raws):
        items.append(
            TranscriptItem(
                raw=raw,
                line=entry.number,
                timestamp=entry.milliseconds / 1000 or None,
                entry_id=was.id,
                usage=usage_of(object_fields(raw) or {}, keys=PI_USAGE)
                if entry.role == "assistant"
                else None,
                derived=derived and at == 0,
            )
        )
    return tuple(range(first, len(items)))


def _parents(entries: Sequence[PiEntry], notes: list[str]) -> list[int | None]:
    by_id = {entry.id: at for at, entry in enumerate(entries) if entry.id}
    notes += [
        no_parent(entry.number, entry.parent_id)
        for entry in entries
        if entry.parent_id and entry.parent_id not in by_id
    ]
    return [by_id.get(entry.parent_id) if entry.parent_id else None for entry in entries]


def _requests(
    entries: Sequence[PiEntry],
    own: Sequence[tuple[int, ...]],
    parents: list[int | None],
    items: Sequence[TranscriptItem],
    notes: list[str],
) -> tuple[RecordedRequest, ...]:
    """One request for every assistant message, in the file's order, whatever its branch."""
    contexts = [ShownItems()] * len(entries)
    requests: dict[int, RecordedRequest] = {}
    for position, parent in parents_first(parents):
        entry = entries[position]
        shown = before = contexts[parent] if parent is not None else ShownItems()
        added = own[position] if entry.kind == "compaction" or shown_message(entry) else ()
        if entry.kind == "compaction":
            shown = ShownItems()
            if entry.retained_tail is None:
                added += _kept_before(position, entries, own, parents, notes)
        for item in added:
            shown = shown.then(item)
        contexts[position] = shown
        if entry.role == "assistant" and own[position]:
            (answer,) = own[position]
            requests[position] = RecordedRequest(
                shown=before, answered=(answer,), usage=items[answer].usage
            )
    return tuple(requests[position] for position in sorted(requests))


def _kept_before(
    position: int,
    entries: Sequence[PiEntry],
    own: Sequence[tuple[int, ...]],
    parents: list[int | None],
    notes: list[str],
) -> tuple[int, ...]:
    kept: list[int] = []
    for at in ancestors(parents[position], parents):
        entry = entries[at]
        if entry.kind != "compaction" and shown_message(entry):
            kept += own[at]
        if entry.id is not None and entry.id == entries[position].first_kept_id:
            return tuple(kept[::-1])
    notes.append(
        f"line {entries[position].number}: the first entry that this compaction kept is not "
        "before it, so only its summary is shown"
    )
    return ()


def _model(entries: Sequence[PiEntry], parents: list[int | None]) -> str | None:
    """The model of the branch that the file ends on."""
    for at in ancestors(len(entries) - 1 if entries else None, parents):
        entry = entries[at]
        named = entry.message.get("model") if entry.message else entry.text("modelId")
        if isinstance(named, str) and named:
            return named
    return None
