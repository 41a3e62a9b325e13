"""Deletes and masks content in session files: transcripts and daily notes.

Only files of the space's sessions and of the named workspace change, never the target of a link. A
changed file is replaced atomically. If a running agent has a transcript open, the result reports
that file instead of changing it. Reports contain no content."""

from __future__ import annotations

import re
import stat
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from recollect.adapters.session.entries import (
    MIN_CHARS,
    EntrySearch,
    forget_entries,
    mask_lines,
)
from recollect.adapters.session.files import (
    SessionIndex,
    SessionRecord,
    rewrite_locked,
    transcript_file,
)
from recollect.adapters.session.workspace import LONG_TERM_NOTES, MAX_BYTES
from recollect.core.formats.pi_session import read_session
from recollect.core.upkeep.certificates import FILES_CANNOT, RedactionResult
from recollect.core.upkeep.masks import Masks, new_masks
from recollect.core.upkeep.matching import OrderMatcher
from recollect.core.values.upkeep import ForgetOrder
from recollect.errors import TranscriptError, TranscriptLocked
from recollect.system.places import sessions_folder

TRANSCRIPTS: Final = "transcripts"
NOTES: Final = "daily notes"

COVERS_TRANSCRIPTS: Final = (
    "transcripts of Recollect's own agent in this space: entries, and summaries that replaced them"
)
COVERS_NOTES: Final = "daily notes of the named workspace: lines that contain the text"
_NO_WORKSPACE: Final = (
    "daily notes of workspaces: to include them, repeat the command with --workspace DIR"
)
_OTHER_WORDS: Final = (
    "notes that say the same in other words: read the files in memory/ of the workspace"
)
STANDING: Final = (*FILES_CANNOT, _OTHER_WORDS)
"""Copies that forgetting never deletes from files. Every report lists them."""
_LEFT_OVER: Final = re.compile(
    r"chat_history|\.(?:.+\.jsonl|.{40}|chat_history|sessions\.json)(?:\.\d+)?\.[a-z0-9_]{8}"
)  # temporary names that `replace_file` uses, and what earlier versions kept of typed lines
_LEFT_OVER_SECONDS: Final = 60.0  # replacing a file takes less time than this
_DAILY: Final = re.compile(r"\d{4}-\d{2}-\d{2}\.md")
_NOTE_SECONDS: Final = 2.0  # the agent locks a note only for one write


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesOrder:
    """A request to forget, with texts that only the archive can provide."""

    order: ForgetOrder
    said: tuple[str, ...] = field(default=(), repr=False)
    """Texts of the messages that the request names by segment or identity."""
    all_said: tuple[str, ...] = field(default=(), repr=False)
    """Texts of all messages to forget, to find them in notes."""
    workspace: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesChanged:
    """Changes to files, made or planned; counts and names, never content."""

    counts: Mapping[str, int]
    covers: tuple[str, ...]
    cannot: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """The new content of a file (None deletes it), and counts by kind."""

    data: bytes | None = field(repr=False)
    does: Mapping[str, int] = field(default_factory=dict)
    note: str = ""
    """The part that could not be changed, as a sentence for the user."""


def forget_in_files(space: str, files: FilesOrder, *, only_look: bool = False) -> FilesChanged:
    """Delete forgotten content from a space's transcripts, and from a workspace's notes if one is
    named. `only_look` changes nothing, and lists what would change."""
    walk = _Forgetting(space, files, apply=not only_look)
    walk.run(files.workspace)
    with_notes = files.workspace is not None
    return FilesChanged(
        counts=walk.counts,
        covers=(COVERS_TRANSCRIPTS, COVERS_NOTES) if with_notes else (COVERS_TRANSCRIPTS,),
        cannot=(*walk.cannot, *((_OTHER_WORDS,) if with_notes else ()), *FILES_CANNOT),
    )


def redact_in_files(
    space: str, masks: Masks, *, workspace: Path | None = None, apply: bool
) -> RedactionResult:
    """Mask secrets in a space's transcripts and a workspace's notes, or only count them."""
    walk = _Masking(space, masks, apply=apply)
    walk.run(workspace)
    walk.result.cannot = [*walk.cannot, *(FILES_CANNOT if apply else ())]
    return walk.result


def resolve_sessions(space: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return these names, plus the sessions that the index lists under them. The archive names a
    conversation by its transcript's id, but users name it by its key."""
    try:
        rows = SessionIndex.of_space(space).sessions() if names else {}
    except TranscriptError:
        return tuple(names)
    session_ids = [rows[name].session_id for name in names if name in rows]
    return tuple(dict.fromkeys([*names, *(text for text in session_ids if text)]))


class _Walk:
    advice = "then repeat the command"

    def __init__(self, space: str, *, apply: bool) -> None:
        self.cannot: list[str] = []
        self._space = space
        self._apply = apply

    def edit(self, place: str, path: Path, data: bytes) -> _Change:
        """Return the change to a transcript or a daily note."""
        raise NotImplementedError

    def advise_user(self, name: str, data: bytes) -> str:
        """Return advice about a memory file that belongs to the user, or an empty text."""
        raise NotImplementedError

    def count(self, place: str, path: Path, change: _Change) -> None:
        raise NotImplementedError

    def report_unchanged(self, line: str, change: _Change | None) -> None:
        """Report a file that is not changed; `change` is None if the file could not be read."""
        del change
        self.cannot.append(line)

    def run(self, workspace: Path | None) -> None:
        folder = sessions_folder(self._space)
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if _LEFT_OVER.fullmatch(path.name):
                self._drop_left_over(path)
            elif path.suffix == ".jsonl":
                self._change_file(path, TRANSCRIPTS)
        if workspace is None:
            self.cannot.append(_NO_WORKSPACE)
        else:
            self._visit_notes(workspace)

    def _visit_notes(self, workspace: Path) -> None:
        try:
            root = workspace.resolve(strict=True)
            daily_paths, other_paths = _note_files(root)
        except OSError as error:
            self.report_unchanged(
                f"the daily notes: the workspace could not be read ({_reason_of(error)})", None
            )
            return
        for path in daily_paths:
            self._change_file(path, NOTES)
        for path in other_paths:
            try:
                if not path.is_file():
                    continue
                if path.stat().st_size > MAX_BYTES:
                    raise OSError("it is too large")  # noqa: TRY301 - reported like the others
                line = self.advise_user(path.relative_to(root).as_posix(), path.read_bytes())
            except OSError as error:
                self.report_unchanged(
                    f"a memory file of the workspace ({_reason_of(error)}): open it and check", None
                )
                continue
            if line:
                self.cannot.append(line)

    def _change_file(self, path: Path, place: str) -> None:
        """Change a file. Most files need no change, so first read the file without a lock."""
        change: _Change | None = None
        try:
            if path.is_symlink():
                self.report_unchanged(
                    f"{path.name} among the {place} is a link: check the file that it points to",
                    None,
                )
                return
            data = path.read_bytes()
            change = self.edit(place, path, data)
            if change.data != data and self._apply:
                changes: list[_Change] = []

                def rewrite(raw: bytes) -> bytes | None:
                    changes.append(self.edit(place, path, raw))
                    return changes[-1].data

                seconds = _NOTE_SECONDS if place == NOTES else 0.0
                data = rewrite_locked(path, rewrite, seconds=seconds)
                change = changes[-1]
        except TranscriptLocked:
            self.report_unchanged(
                f"{path.name} among the {place} is open in a running agent: end that agent, "
                f"{self.advice}",
                change,
            )
        except (OSError, TranscriptError) as error:
            self.report_unchanged(
                f"{path.name} among the {place} could not be changed ({_reason_of(error)}): "
                f"fix that, {self.advice}",
                change,
            )
        else:
            if change.note:
                self.cannot.append(change.note)
            if change.data != data:
                self.count(place, path, change)

    def _drop_left_over(self, path: Path) -> None:
        try:
            if self._apply and time.time() - path.lstat().st_mtime > _LEFT_OVER_SECONDS:
                path.unlink()
        except FileNotFoundError:
            pass  # the process that owns it removed it first
        except OSError as error:
            self.report_unchanged(
                f"{path}, a copy that a crash left ({_reason_of(error)}): delete it", None
            )


class _Forgetting(_Walk):
    def __init__(self, space: str, files: FilesOrder, *, apply: bool) -> None:
        super().__init__(space, apply=apply)
        self.counts: Counter[str] = Counter()
        self._order = files.order
        self._index = SessionIndex.of_space(space)
        self._rows: dict[str, SessionRecord] = {}
        self._anywhere = EntrySearch(files.order, files.said, by_time=not files.order.sessions)
        self._timely = EntrySearch(files.order, files.said)
        long = [text for text in files.all_said if len(text.strip()) >= MIN_CHARS]
        self._note_texts = [text.strip().casefold() for text in long]
        if files.order.matching is not None:
            self._note_texts.append(files.order.matching.casefold())
        if files.said and files.order.matching is None:
            self.advice = (
                "then forget again with --matching and words of the message, because its id no "
                "longer exists"
            )
        else:
            self.advice = "then forget again"

    def run(self, workspace: Path | None) -> None:
        try:
            self._rows = self._index.sessions()
        except TranscriptError as error:
            self.cannot.append(f"rows of the index of sessions: {error}")
        super().run(workspace)
        self._drop_rows()
        index = self._index.path
        if index.is_file() and OrderMatcher(self._order).in_bytes(index.read_bytes()):
            self.cannot.append(
                f"{index.name}, the index of sessions: a name in it contains the text; forget "
                "that session with --session, or edit the file"
            )

    def edit(self, place: str, path: Path, data: bytes) -> _Change:
        return (
            self._forget_in_transcript(path, data)
            if place == TRANSCRIPTS
            else self._forget_in_note(data)
        )

    def _forget_in_transcript(self, path: Path, data: bytes) -> _Change:
        search = self._entry_search(path, data)
        if search is None:
            return _Change(data=None, does={"transcripts deleted": 1})
        result = forget_entries(data, search)
        note = (
            f"ids and names of models and tools in transcript {path.name} that contain the text: "
            "--session removes the whole transcript"
        )
        does = {
            "transcripts changed": 1,
            "entries of transcripts": result.entries,
            "summaries in transcripts, withdrawn": result.summaries,
        }
        return _Change(data=result.data, does=does, note=note if result.left_in_names else "")

    def _forget_in_note(self, data: bytes) -> _Change:
        """Return the note without the lines that contain a forgotten text or part of a match."""
        text = _text(data)
        lines = text.split("\n")
        lowercase_lines = [line.casefold() for line in lines]
        cut_indexes = {
            index
            for span in OrderMatcher(self._order).spans(text)
            for index in _line_range(text, span)
        }
        for note_text in self._note_texts:
            spans = note_text.count("\n") + 1
            for index in range(len(lines) - spans + 1):
                if note_text in "\n".join(lowercase_lines[index : index + spans]):
                    cut_indexes.update(range(index, index + spans))
        remaining_text = "\n".join(
            [line for index, line in enumerate(lines) if index not in cut_indexes]
        )
        return _Change(
            data=_bytes(remaining_text) if cut_indexes else data,
            does={"daily notes changed": 1, "lines of daily notes": len(cut_indexes)},
        )

    def advise_user(self, name: str, data: bytes) -> str:
        if self._forget_in_note(data).data == data:
            return ""
        if self._forget_in_note(name.encode()).data != name.encode():
            name = "a memory file whose name contains the text"
        return (
            f"{name} in the workspace contains the text, but is not a daily note: remove the text "
            "by hand"
        )

    def count(self, place: str, path: Path, change: _Change) -> None:
        del place, path
        self.counts.update(change.does)

    def _entry_search(self, path: Path, data: bytes) -> EntrySearch | None:
        """Build the search for a session; None removes the whole session."""
        if not self._order.sessions or not self._is_named(path, data):
            return self._anywhere
        return self._timely if self._order.by_time else None

    def _is_named(self, path: Path, data: bytes) -> bool:
        """Return True if the request names this session by its id, file or key."""
        header = read_session(data.partition(b"\n")[0] + b"\n").header
        names = {path.stem, *(() if header is None else (header.id,))}
        names |= {key for key, row in self._rows.items() if row.session_id in names}
        return any(
            name in names or transcript_file(self._space, name).name == path.name
            for name in self._order.sessions
        )

    def _drop_rows(self) -> None:
        if not self._apply or self._order.by_time:
            return
        for key, row in self._rows.items():
            is_named = key in self._order.sessions or row.session_id in self._order.sessions
            if is_named and not transcript_file(self._space, row.session_id).exists():
                try:
                    self.counts["rows of the index of sessions"] += self._index.remove(key)
                except TranscriptError as error:
                    self.cannot.append(f"a row of the index of sessions: {error}")


class _Masking(_Walk):
    advice = "then redact again"

    def __init__(self, space: str, masks: Masks, *, apply: bool) -> None:
        super().__init__(space, apply=apply)
        self.result = RedactionResult(applied=apply)
        self._masks = masks

    def edit(self, place: str, path: Path, data: bytes) -> _Change:
        del path
        if place == TRANSCRIPTS:
            masked_data = mask_lines(data, self._masks)
            return _Change(data=masked_data, does=new_masks(_text(data), _text(masked_data)))
        return self._note(data)

    def _note(self, data: bytes) -> _Change:
        masked_note = self._masks.text(_text(data))
        return _Change(data=_bytes(masked_note.text), does=masked_note.kinds)

    def advise_user(self, name: str, data: bytes) -> str:
        count = sum(self._note(data).does.values())
        self.result.unmasked += count
        line = (
            f"{name} in the workspace contains {count:,} secrets, but is not a daily note: "
            "mask them"
        )
        return f"{line} by hand" if count else ""

    def count(self, place: str, path: Path, change: _Change) -> None:
        name = None
        if place == TRANSCRIPTS and change.data is not None:
            header = read_session(change.data.partition(b"\n")[0] + b"\n").header
            name = path.stem if header is None else header.id
        self.result.count(place, change.does, name)

    def report_unchanged(self, line: str, change: _Change | None) -> None:
        super().report_unchanged(line, change)
        if change is None:
            self.result.unread += 1
        else:
            self.result.unmasked += sum(change.does.values())


def _note_files(root: Path) -> tuple[list[Path], list[Path]]:
    daily_paths: list[Path] = []
    paths = [root / name for name in LONG_TERM_NOTES if (root / name).is_file()]
    # on file systems that ignore case, MEMORY.md and memory.md are the same file
    other_paths = list({path.stat().st_ino: path for path in paths}.values())
    folder = root / "memory"
    if not folder.is_dir():
        return daily_paths, other_paths
    if folder.is_symlink():
        return daily_paths, [*other_paths, *sorted(folder.glob("*.md"))]
    for path in sorted(folder.rglob("*.md")):
        is_daily = path.parent == folder and _DAILY.fullmatch(path.name) is not None
        (daily_paths if is_daily and stat.S_ISREG(path.lstat().st_mode) else other_paths).append(
            path
        )
    return daily_paths, other_paths


def _line_range(text: str, span: tuple[int, int]) -> range:
    first = text.count("\n", 0, span[0])
    return range(first, first + text.count("\n", *span) + 1)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _reason_of(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
