"""Forgetting in what a session leaves on the disk: our transcripts, and daily notes.

Owns which files are looked at, their locks and their replacing. Must never touch a file outside
the space's sessions and the workspace that was named. Always holds: a transcript is whole at any
moment; one that a running agent has open is left as it is and told; nothing that is told holds
what was said.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from recollect.errors import TranscriptError, TranscriptLocked
from recollect.formats.pi_session import read_session
from recollect.memory.matching import bytes_meant
from recollect.session.disk import open_for_one, read_all, replace_file
from recollect.session.forget_entries import EntriesForgotten, forget_entries
from recollect.session.forget_notes import forget_notes
from recollect.session.forget_outputs import forget_outputs
from recollect.session.forget_search import MeantEntries
from recollect.session.index import SessionIndex
from recollect.session.places import (
    OUTPUTS_SUFFIX,
    outputs_folder,
    sessions_folder,
    transcript_file,
)
from recollect.session.record import SessionRecord
from recollect.stores.spool.durable import sync_folder
from recollect.values.upkeep import ForgetOrder

DELETED: Final = "transcripts deleted"
CHANGED: Final = "transcripts changed"
ENTRIES: Final = "entries of transcripts"
OUTPUTS: Final = "long outputs of commands, deleted"
SUMMARIES: Final = "summaries in transcripts, withdrawn"
ROWS: Final = "rows of the index of sessions"
NOTES: Final = "daily notes changed"
NOTE_LINES: Final = "lines of daily notes"

COVERS_TRANSCRIPTS: Final = (
    "transcripts of Recollect's own agent in this space: entries, summaries that stood for them, "
    "long outputs of commands beside them"
)
COVERS_NOTES: Final = "daily notes of the workspace that was named: lines that hold the words"
_BLOCKS: Final = (
    "blocks of the disk on which replaced transcripts and notes stood, backups and other copies"
)
_NO_WORKSPACE: Final = (
    "daily notes of workspaces: none was named, so none was looked at; forget once more with "
    "--workspace"
)
_OTHER_WORDS: Final = "notes that say it in other words: read the files in memory/ of the workspace"
STANDING: Final = (_BLOCKS, _OTHER_WORDS)
"""What files have out of reach whatever is forgotten."""
_LEFT_OVER: Final = re.compile(r"\.(.+\.jsonl)\.\d+\.[0-9a-f]{8}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesOrder:
    """What is to be forgotten, with the words that only the archive knows."""

    order: ForgetOrder
    said: tuple[str, ...] = field(default=(), repr=False)
    """Texts of the messages that were named by segment or identity."""
    all_said: tuple[str, ...] = field(default=(), repr=False)
    """Texts of all messages that go, for the notes."""
    workspace: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesForgotten:
    """What was done to files; counts and names, never content."""

    counts: Mapping[str, int]
    covers: tuple[str, ...]
    cannot: tuple[str, ...]


def forget_in_files(space: str, files: FilesOrder, *, only_look: bool = False) -> FilesForgotten:
    """Forget in a space's transcripts, and in the notes of the workspace where one is named.

    With `only_look` nothing is changed, and the result says what would be.
    """
    work = _Transcripts(space, files, only_look=only_look)
    work.run()
    counts, cannot = work.counts, work.cannot
    covers = [COVERS_TRANSCRIPTS]
    if files.workspace is None:
        cannot.append(_NO_WORKSPACE)
    else:
        notes = forget_notes(
            files.workspace,
            matching=files.order.matching,
            pattern=files.order.pattern,
            said=files.all_said,
            only_look=only_look,
        )
        counts[NOTES] += notes.files
        counts[NOTE_LINES] += notes.lines
        covers.append(COVERS_NOTES)
        cannot += [*notes.unreached, _OTHER_WORDS]
    return FilesForgotten(counts=dict(counts), covers=tuple(covers), cannot=(*cannot, _BLOCKS))


def sessions_named(space: str, names: Sequence[str]) -> tuple[str, ...]:
    """The names, and the sessions that the index has under them: the archive knows a
    conversation of the agent by its transcript's id, people by its key."""
    try:
        rows = SessionIndex.of_space(space).sessions() if names else {}
    except TranscriptError:
        return tuple(names)
    found = [rows[name].session_id for name in names if name in rows]
    return tuple(dict.fromkeys([*names, *(one for one in found if one)]))


class _Transcripts:
    """One pass through a space's transcripts."""

    def __init__(self, space: str, files: FilesOrder, *, only_look: bool) -> None:
        self.counts: Counter[str] = Counter()
        self.cannot: list[str] = []
        self._space = space
        self._order = files.order
        self._said = files.said
        self._only_look = only_look
        self._index = SessionIndex.of_space(space)
        self._rows: dict[str, SessionRecord] = {}
        self._again = (
            "then forget once more, with --matching and words of it: its segment is gone by then"
            if files.said and files.order.matching is None
            else "then forget once more"
        )

    def run(self) -> None:
        """Look at every transcript of the space."""
        folder = sessions_folder(self._space)
        if not folder.is_dir():
            return
        try:
            self._rows = self._index.sessions()
        except TranscriptError as error:
            self.cannot.append(f"rows of the index of sessions: {error}")
        for path in sorted(folder.iterdir()):
            if path.name.startswith("."):
                self._drop_left_over(path)
            elif path.suffix == ".jsonl":
                self._visit(path)
            elif path.suffix == OUTPUTS_SUFFIX:
                self._visit_left_outputs(path.with_suffix(".jsonl"))
        self._drop_rows()
        self._tell_names(folder)

    def _visit(self, path: Path) -> None:
        """Look without the lock first: who is not meant must not be disturbed."""
        try:
            if path.is_symlink():
                self.cannot.append(f"{path.name} among the transcripts is a link: see to its file")
                return
            data = path.read_bytes()
            left = self._left(path, data)
            if self._only_look or (left is not None and not left.changed):
                self._tell(path, left)
            else:
                self._change(path)
            self._visit_outputs(path, self._meant(path, data))
        except TranscriptLocked:
            self.cannot.append(
                f"transcript {path.name}, which a running agent has open: end it, {self._again}"
            )
        except (OSError, TranscriptError) as error:
            why = getattr(error, "strerror", None) or str(error)
            self.cannot.append(
                f"transcript {path.name} could not be changed ({why}): mend that, {self._again}"
            )

    def _visit_outputs(self, transcript: Path, meant: MeantEntries | None) -> None:
        done = forget_outputs(outputs_folder(transcript), meant, only_look=self._only_look)
        self.counts[OUTPUTS] += done.files
        self.cannot += done.unreached

    def _visit_left_outputs(self, transcript: Path) -> None:
        """Outputs whose transcript is gone: a forgetting was killed between the two."""
        if not transcript.exists():
            self._visit_outputs(transcript, self._meant(transcript, b""))

    def _change(self, path: Path) -> None:
        descriptor = open_for_one(path, create=False)
        try:
            left = self._left(path, read_all(descriptor))
            if left is None:
                path.unlink()
                sync_folder(path.parent)
            elif left.changed:
                replace_file(path, left.data)
        finally:
            os.close(descriptor)
        self._tell(path, left)

    def _left(self, path: Path, data: bytes) -> EntriesForgotten | None:
        """What is left of a transcript; None where all of it goes."""
        meant = self._meant(path, data)
        return None if meant is None else forget_entries(data, meant)

    def _meant(self, path: Path, data: bytes) -> MeantEntries | None:
        """What goes from a session; None for all of it."""
        order = self._order
        named = bool(order.sessions) and self._is_named(path, data)
        if named and not order.by_time:
            return None
        timely = named or not order.sessions
        return MeantEntries(
            matching=order.matching,
            pattern=order.pattern,
            said=self._said,
            before=order.said_before if timely else None,
            after=order.said_after if timely else None,
        )

    def _tell(self, path: Path, left: EntriesForgotten | None) -> None:
        if left is None:
            self.counts[DELETED] += 1
            return
        self.counts[CHANGED] += left.changed
        self.counts[ENTRIES] += left.entries
        self.counts[SUMMARIES] += left.summaries
        if left.left_in_names:
            self.cannot.append(
                f"ids and names of models and tools in transcript {path.name} that hold the text: "
                "--session removes all of it"
            )

    def _is_named(self, path: Path, data: bytes) -> bool:
        """Whether the order names this session: by its id, its file or its key."""
        header = read_session(data.partition(b"\n")[0] + b"\n").header
        names = {path.stem, *(() if header is None else (header.id,))}
        names |= {key for key, row in self._rows.items() if row.session_id in names}
        return any(
            name in names or transcript_file(self._space, name).name == path.name
            for name in self._order.sessions
        )

    def _drop_left_over(self, path: Path) -> None:
        """What an earlier forgetting left that was killed: a copy of a whole transcript."""
        found = _LEFT_OVER.fullmatch(path.name)
        if found is None or self._only_look:
            return
        beside = path.with_name(found[1])
        try:
            descriptor = open_for_one(beside, create=False) if beside.exists() else None
            try:
                path.unlink(missing_ok=True)
            finally:
                if descriptor is not None:
                    os.close(descriptor)
        except (OSError, TranscriptError):
            self.cannot.append(f"{path.name}, a copy that a crash left beside it: delete it")

    def _drop_rows(self) -> None:
        """Rows of sessions that go as a whole and whose transcript is gone."""
        if self._only_look or self._order.by_time:
            return
        for key, row in self._rows.items():
            named = key in self._order.sessions or row.session_id in self._order.sessions
            if named and not transcript_file(self._space, row.session_id).exists():
                try:
                    self.counts[ROWS] += self._index.remove(key)
                except TranscriptError as error:
                    self.cannot.append(f"a row of the index of sessions: {error}")

    def _tell_names(self, folder: Path) -> None:
        """Keys and other programs' fields in the index are names, which only their owner knows."""
        index = folder / self._index.path.name
        if index.is_file() and bytes_meant(self._order, index.read_bytes()):
            self.cannot.append(
                f"{index.name}, the index of sessions: a name in it holds the text; forget that "
                "session by --session, or edit it"
            )
