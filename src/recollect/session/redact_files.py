"""Redacting what sessions left on the disk: our transcripts, long outputs beside them, daily notes.

Owns which files are looked at, their locks and their replacing, as forgetting does. Must never
touch a file outside the space's sessions and the workspace that was named, nor follow a link.
Always holds: a transcript is whole at any moment, and a line without a secret keeps its own bytes;
one that a running agent has open is left as it is and told; nothing that is told holds a secret.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from recollect.errors import FormatError, TranscriptError, TranscriptLocked
from recollect.formats.json_spans import decode
from recollect.formats.pi_entries import entry_line
from recollect.formats.pi_session import read_session
from recollect.memory.masking.masks import Masks, new_masks
from recollect.memory.masking.report import FILES_CANNOT
from recollect.session.disk import open_for_one, read_all, replace_file
from recollect.session.forget_notes import note_files, rewrite_note
from recollect.session.places import OUTPUTS_SUFFIX, sessions_folder
from recollect.session.redacting import mask_entry
from recollect.session.workspace import MOST_BYTES

TRANSCRIPTS: Final = "transcripts"
OUTPUTS: Final = "long outputs of commands"
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
    """Mask secrets in a space's transcripts and outputs, and in the notes of a workspace."""
    work = _Files(masks, apply=apply)
    folder = sessions_folder(space)
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.suffix == ".jsonl" and not path.name.startswith("."):
            work.transcript(path)
        elif path.suffix == OUTPUTS_SUFFIX and path.is_dir() and not path.is_symlink():
            for output in sorted(path.iterdir()):
                work.output(output)
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
                data, left = self._replaced(path)
                kinds = _masked(data, left)
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

    def _replaced(self, path: Path) -> tuple[bytes, bytes]:
        descriptor = open_for_one(path, create=False)
        try:
            data = read_all(descriptor)
            left = mask_lines(data, self._masks)
            if left != data:
                replace_file(path, left)
        finally:
            os.close(descriptor)
        return data, left

    def output(self, path: Path) -> None:
        """What a command printed."""
        kinds: Mapping[str, int] | None = None
        try:
            if path.is_symlink() or not path.is_file():
                return
            said = self._masks.text(path.read_bytes().decode("utf-8", "surrogateescape"))
            kinds = said.kinds
            if kinds and self._apply:
                replace_file(path, said.text.encode("utf-8", "surrogateescape"))
        except OSError as error:
            why = error.strerror or type(error).__name__
            line = f"{path.parent.name}/{path.name}, a long output ({why}): delete it"
            self._leave(kinds, line)
        else:
            if kinds:
                self._count(OUTPUTS, kinds)

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
            said = self._masks.text(text)
            found.append(said.kinds)
            return said.text, sum(said.kinds.values())

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
