"""Masking secrets in transcripts, before a line is written and in files that lie on the disk.

Owns which fields are never masked: ids that pair, names of models and tools, providers' signatures,
images. Must never touch a file outside the space's sessions and the workspace that was named, nor
follow a link. Always holds: an entry without a secret keeps its own bytes; a signature never stands
beside a text that it did not sign, and one that can be read (OpenAI's Responses: a whole item of
reasoning) is masked like all that was said; a transcript that a running agent has open is left as
it is and reported; what is reported never holds a secret.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from recollect.adapters.session.files import OUTPUTS_SUFFIX, rewrite_locked
from recollect.adapters.session.forget_files import note_files, rewrite_note
from recollect.adapters.session.workspace import MOST_BYTES
from recollect.core.formats.json_text import decode, encode
from recollect.core.formats.pi_session import entry_line, read_session
from recollect.core.upkeep.certificates import FILES_CANNOT
from recollect.core.upkeep.masks import Masks, new_masks
from recollect.errors import FormatError, TranscriptError, TranscriptLocked
from recollect.system.config.places import chat_history_file, sessions_folder
from recollect.system.config.settings import Redaction
from recollect.system.durable import replace_file

# An entry as it may reach the disk: its secrets masked, what holds it together left alone


_OF_ENTRIES: Final = (
    "type",
    "id",
    "parentId",
    "timestamp",
    "customType",
    "firstKeptEntryId",
    "fromId",
    "targetId",
    "provider",
    "modelId",
    "thinkingLevel",
)
_OF_MESSAGES: Final = (
    "role",
    "toolCallId",
    "toolName",
    "api",
    "provider",
    "model",
    "responseId",
    "stopReason",
    "usage",
    "timestamp",
)
_SIGNATURES: Final = ("textSignature", "thinkingSignature", "thoughtSignature")
_OF_BLOCKS: Final = ("type", "id", "name", "mimeType", *_SIGNATURES)
_SEALED: Final = ("type", "id", "encrypted_content")
"""What of a signature that is JSON nobody but its provider can read."""


def redact_entry(value: dict[str, Any], settings: Redaction) -> dict[str, Any]:
    """The entry with its secrets masked; the same object where there are none."""
    return mask_entry(value, Masks(pii=settings.pii)) if settings.enabled else value


def mask_entry(value: dict[str, Any], masks: Masks) -> dict[str, Any]:
    """The entry as these masks leave it; the same object where they find nothing."""
    line = entry_line(value)
    masked = masks.json(line).body
    if masked == line and not _says_something(value, masks):
        return value
    entry: dict[str, Any] = decode(masked)
    _restore(entry, value, _OF_ENTRIES)
    if value.get("type") == "message":
        _restore_message(entry.get("message"), value.get("message"), masks)
    for changed, original in _pairs(entry.get("retainedTail"), value.get("retainedTail")):
        _restore_message(changed, original, masks)
    return value if entry == value else entry


def _restore_message(changed: Any, original: Any, masks: Masks) -> None:
    if not isinstance(changed, dict) or not isinstance(original, Mapping):
        return
    _restore(changed, original, _OF_MESSAGES)
    for block, was in _pairs(changed.get("content"), original.get("content")):
        if not isinstance(block, dict) or not isinstance(was, Mapping):
            continue
        _restore(block, was, _OF_BLOCKS)
        if was.get("type") == "image":
            _restore(block, was, ("data",))
        if block.get("thinking") != was.get("thinking"):
            block.pop("thinkingSignature", None)  # the provider would refuse the pair
        for name in _secret_signatures(was, masks):
            block.pop(name, None)  # masked, it would be no signature


def _says_something(entry: Mapping[str, Any], masks: Masks) -> bool:
    """A signature of the entry tells a secret, which its quoting may have hidden."""
    tail = entry.get("retainedTail")
    messages = [entry.get("message"), *(tail if isinstance(tail, list | tuple) else ())]
    contents = [message.get("content") for message in messages if isinstance(message, Mapping)]
    return any(
        isinstance(block, Mapping) and _secret_signatures(block, masks)
        for content in contents
        if isinstance(content, list | tuple)
        for block in content
    )


def _secret_signatures(block: Mapping[str, Any], masks: Masks) -> list[str]:
    """The names of its signatures that are JSON and hold a secret."""
    return [name for name in _SIGNATURES if _holds_secret(block.get(name), masks)]


def _holds_secret(signature: Any, masks: Masks) -> bool:
    if not isinstance(signature, str) or not signature.lstrip().startswith(("{", "[")):
        return False
    try:
        said = decode(signature.encode("utf-8", "surrogatepass"))
    except FormatError:
        return False
    if isinstance(said, dict):
        said = {name: value for name, value in said.items() if name not in _SEALED}
    return bool(masks.json(encode(said)).kinds)


def _restore(changed: dict[str, Any], original: Mapping[str, Any], keys: tuple[str, ...]) -> None:
    for key in keys:
        if key in original:
            changed[key] = original[key]


def _pairs(changed: Any, original: Any) -> list[tuple[Any, Any]]:
    if not isinstance(changed, list) or not isinstance(original, list | tuple):
        return []
    return list(zip(changed, original, strict=True))


TRANSCRIPTS: Final = "transcripts"
OUTPUTS: Final = "long outputs of commands"
TYPED: Final = "files of what was typed in chats"
NOTES: Final = "daily notes"
_NO_WORKSPACE: Final = (
    "daily notes of workspaces: none was named, so none was looked at; redact once more with "
    "--workspace"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesRedacted:
    """What secrets stand in files, or stood there; counts and names, never one of them."""

    kinds: Mapping[str, Mapping[str, int]]
    changed: Mapping[str, int]
    sessions: Mapping[str, int]
    """By transcript, how many."""
    cannot: tuple[str, ...]
    left: int = 0
    """How many were found and not masked: in what others have open, or is not ours to change."""
    unread: int = 0
    """How many files could not be looked into."""


def redact_in_files(
    space: str, masks: Masks, *, workspace: Path | None = None, apply: bool
) -> FilesRedacted:
    """Mask secrets in a space's transcripts and outputs, in what was typed in its chats, and in
    the notes of a workspace."""
    work = _Files(masks, apply=apply)
    folder = sessions_folder(space)
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.suffix == ".jsonl" and not path.name.startswith("."):
            work.transcript(path)
        elif path.suffix == OUTPUTS_SUFFIX and path.is_dir() and not path.is_symlink():
            for output in sorted(path.iterdir()):
                work.text_file(output, OUTPUTS)
    work.text_file(chat_history_file(space), TYPED)
    if workspace is None:
        work.cannot.append(_NO_WORKSPACE)
    else:
        work.notes(workspace)
    if apply:
        work.cannot += FILES_CANNOT
    return FilesRedacted(
        kinds={place: dict(kinds) for place, kinds in work.kinds.items()},
        changed=dict(work.changed),
        sessions=dict(work.sessions),
        cannot=tuple(work.cannot),
        left=work.left,
        unread=work.unread,
    )


def mask_lines(data: bytes, masks: Masks) -> bytes:
    """A transcript without secrets; a line that nobody can read is taken for text."""
    return b"\n".join([_masked_line(line, masks) for line in data.split(b"\n")])


def _masked_line(line: bytes, masks: Masks) -> bytes:
    if not line.strip():
        return line
    try:
        value = decode(line)
    except FormatError:
        value = None
    if not isinstance(value, dict):
        return masks.json(line).body
    masked = mask_entry(value, masks)
    return line if masked is value else entry_line(masked)


def _masked(data: bytes, left: bytes) -> Mapping[str, int]:
    return new_masks(data.decode("utf-8", "replace"), left.decode("utf-8", "replace"))


class _Files:
    """One pass through files."""

    def __init__(self, masks: Masks, *, apply: bool) -> None:
        self.kinds: dict[str, Counter[str]] = {}
        self.changed: Counter[str] = Counter()
        self.sessions: Counter[str] = Counter()
        self.cannot: list[str] = []
        self.left = 0
        self.unread = 0
        self._masks = masks
        self._apply = apply

    def transcript(self, path: Path) -> None:
        """Look without the lock first: who is not meant must not be disturbed."""
        kinds: Mapping[str, int] | None = None
        try:
            if path.is_symlink():
                self.unread += 1
                self.cannot.append(f"{path.name} among the transcripts is a link: see to its file")
                return
            data = path.read_bytes()
            left = mask_lines(data, self._masks)
            if left == data:
                return
            kinds = _masked(data, left)
            if self._apply:
                data = rewrite_locked(path, lambda raw: mask_lines(raw, self._masks))
                kinds = _masked(data, mask_lines(data, self._masks))
        except TranscriptLocked:
            self._leave(
                kinds,
                f"transcript {path.name}, which a running agent has open: end it, then redact "
                "once more",
            )
        except (OSError, TranscriptError) as error:
            why = getattr(error, "strerror", None) or str(error)
            self._leave(kinds, f"transcript {path.name} could not be changed ({why})")
        else:
            self._count(TRANSCRIPTS, kinds)
            header = read_session(data.partition(b"\n")[0] + b"\n").header
            self.sessions[path.stem if header is None else header.id] += sum(kinds.values())

    def _leave(self, kinds: Mapping[str, int] | None, line: str) -> None:
        """Tell what stays as it is, with how many stand in it; None where nobody could look."""
        if kinds is None:
            self.unread += 1
        else:
            self.left += sum(kinds.values())
        self.cannot.append(line)

    def text_file(self, path: Path, place: str) -> None:
        """What a command printed, or what was typed."""
        kinds: Mapping[str, int] | None = None
        try:
            if path.is_symlink() or not path.is_file():
                return
            masked = self._masks.text(path.read_bytes().decode("utf-8", "surrogateescape"))
            kinds = masked.kinds
            if kinds and self._apply:
                replace_file(path, masked.text.encode("utf-8", "surrogateescape"))
        except OSError as error:
            why = error.strerror or type(error).__name__
            line = f"{path.parent.name}/{path.name}, of the {place} ({why}): delete it"
            self._leave(kinds, line)
        else:
            if kinds:
                self._count(place, kinds)

    def notes(self, workspace: Path) -> None:
        """Daily notes; other memory files are the user's, and told."""
        try:
            root = workspace.resolve(strict=True)
            daily, others = note_files(root)
        except OSError as error:
            why = error.strerror or type(error).__name__
            self.unread += 1
            self.cannot.append(f"the daily notes: the workspace could not be read ({why})")
            return
        for path in daily:
            self._daily(path)
        for path in others:
            if count := self._in_another(path):
                self.left += count
                self.cannot.append(
                    f"{path.relative_to(root).as_posix()} in the workspace, which is not a daily "
                    f"note, holds {count:,}: mask them there by hand"
                )

    def _daily(self, path: Path) -> None:
        """A daily note; counted only once it is written."""
        found: list[Mapping[str, int]] = []

        def change(text: str) -> tuple[str, int]:
            masked = self._masks.text(text)
            found.append(masked.kinds)
            return masked.text, sum(masked.kinds.values())

        try:
            rewrite_note(path, change, only_look=not self._apply)
        except OSError as error:
            why = error.strerror or str(error)
            line = f"memory/{path.name}, a daily note, was not rewritten: {why}"
            self._leave(found[0] if found else self._looked(path), line)
        else:
            if found[0]:
                self._count(NOTES, found[0])

    def _in_another(self, path: Path) -> int:
        kinds = self._looked(path)
        if kinds is None:
            self.unread += 1
            name = "a memory file of the workspace"
            self.cannot.append(f"{name} is too large, or cannot be read: look into it")
        return sum((kinds or {}).values())

    def _looked(self, path: Path) -> Mapping[str, int] | None:
        """What stands in a file that is not changed; None where it cannot be looked into."""
        try:
            if not path.is_file():
                return {}
            if path.stat().st_size > MOST_BYTES:
                return None
            return self._masks.text(path.read_bytes().decode("utf-8", "replace")).kinds
        except OSError:
            return None

    def _count(self, place: str, kinds: Mapping[str, int]) -> None:
        self.changed[place] += 1
        self.kinds.setdefault(place, Counter()).update(kinds)
