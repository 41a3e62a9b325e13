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
from recollect.session.disk import open_for_one, read_all, replace_file
from recollect.session.forget_notes import note_files, rewrite_note
from recollect.session.places import OUTPUTS_SUFFIX, sessions_folder
from recollect.session.redacting import mask_entry
from recollect.session.workspace import MOST_BYTES

TRANSCRIPTS: Final = "transcripts"
OUTPUTS: Final = "long outputs of commands"
NOTES: Final = "daily notes"
_BLOCKS: Final = (
    "blocks of the disk on which replaced transcripts and notes stood, backups and other copies"
)
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
        work.cannot.append(_BLOCKS)
    return FilesRedacted(
        kinds={place: dict(kinds) for place, kinds in work.kinds.items()},
        changed=dict(work.changed),
        sessions=dict(work.sessions),
        cannot=tuple(work.cannot),
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


class _Files:
    """One pass through files."""

    def __init__(self, masks: Masks, *, apply: bool) -> None:
        self.kinds: dict[str, Counter[str]] = {}
        self.changed: Counter[str] = Counter()
        self.sessions: Counter[str] = Counter()
        self.cannot: list[str] = []
        self._masks = masks
        self._apply = apply

    def transcript(self, path: Path) -> None:
        """Look without the lock first: who is not meant must not be disturbed."""
        try:
            if path.is_symlink():
                self.cannot.append(f"{path.name} among the transcripts is a link: see to its file")
                return
            data = path.read_bytes()
            left = mask_lines(data, self._masks)
            if left == data:
                return
            if self._apply:
                data, left = self._replaced(path)
            kinds = new_masks(data.decode("utf-8", "replace"), left.decode("utf-8", "replace"))
            self._count(TRANSCRIPTS, kinds)
            header = read_session(data.partition(b"\n")[0] + b"\n").header
            self.sessions[path.stem if header is None else header.id] += sum(kinds.values())
        except TranscriptLocked:
            self.cannot.append(
                f"transcript {path.name}, which a running agent has open: end it, then redact "
                "once more"
            )
        except (OSError, TranscriptError) as error:
            why = getattr(error, "strerror", None) or str(error)
            self.cannot.append(f"transcript {path.name} could not be changed ({why})")

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
        try:
            if path.is_symlink() or not path.is_file():
                return
            said = self._masks.text(path.read_bytes().decode("utf-8", "surrogateescape"))
            if said.kinds:
                self._count(OUTPUTS, said.kinds)
            if said.kinds and self._apply:
                replace_file(path, said.text.encode("utf-8", "surrogateescape"))
        except OSError as error:
            why = error.strerror or type(error).__name__
            self.cannot.append(f"{path.parent.name}/{path.name}, a long output ({why}): delete it")

    def notes(self, workspace: Path) -> None:
        """Daily notes; other memory files are the user's, and told."""
        try:
            root = workspace.resolve(strict=True)
            daily, others = note_files(root)
        except OSError as error:
            why = error.strerror or type(error).__name__
            self.cannot.append(f"the daily notes: the workspace could not be read ({why})")
            return
        for path in daily:
            try:
                rewrite_note(path, self._note, only_look=not self._apply)
            except OSError as error:
                why = error.strerror or str(error)
                self.cannot.append(f"memory/{path.name}, a daily note, was not rewritten: {why}")
        for path in others:
            if count := self._in_another(path):
                self.cannot.append(
                    f"{path.relative_to(root).as_posix()} in the workspace, which is not a daily "
                    f"note, holds {count:,}: mask them there by hand"
                )

    def _note(self, text: str) -> tuple[str, int]:
        said = self._masks.text(text)
        if said.kinds:
            self._count(NOTES, said.kinds)
        return said.text, sum(said.kinds.values())

    def _in_another(self, path: Path) -> int:
        try:
            if not path.is_file() or path.stat().st_size > MOST_BYTES:
                return 0
            said = self._masks.text(path.read_bytes().decode("utf-8", "replace"))
        except OSError:
            return 0
        return sum(said.kinds.values())

    def _count(self, place: str, kinds: Mapping[str, int]) -> None:
        self.changed[place] += 1
        self.kinds.setdefault(place, Counter()).update(kinds)
