"""Forgetting in what sessions leave on disk: transcripts, long outputs beside them, daily notes,
what was typed in chats.

Owns which files are looked at and their replacing. Must never touch a file outside the space's
sessions and the workspace that was named, nor follow a link. Always holds: a file is whole at any
moment; a transcript that a running agent has open is left as it is and reported; what is reported
never holds what was said. An output that holds it goes whole: its head and tail stand in the
transcript.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from recollect.adapters.session.files import (
    OUTPUTS_SUFFIX,
    open_for_one,
    outputs_folder,
    read_all,
    rewrite_locked,
    transcript_file,
)
from recollect.adapters.session.forget_entries import (
    LEAST_CHARS,
    EntriesForgotten,
    EntrySearch,
    EntryTargets,
    comparable,
    forget_entries,
    said_in,
)
from recollect.adapters.session.index import SessionIndex, SessionRecord
from recollect.adapters.session.workspace import LONG_TERM_NOTES, MOST_BYTES
from recollect.core.formats.pi_session import read_session
from recollect.core.upkeep.matching import bytes_meant, compiled
from recollect.core.values.upkeep import ForgetOrder
from recollect.errors import TranscriptError, TranscriptLocked
from recollect.system.config.places import chat_history_file, sessions_folder
from recollect.system.durable import locked_within, replace_file, same_file

# Forgetting in the daily notes of a workspace: lines that hold a forgotten text


_FOLDER: Final = "memory"
_LOCK_SECONDS: Final = 2.0
_DAILY: Final = re.compile(r"\d{4}-\d{2}-\d{2}\.md")


@dataclass(frozen=True, slots=True, kw_only=True)
class NotesForgotten:
    """What was done to the notes."""

    files: int = 0
    lines: int = 0
    unreached: tuple[str, ...] = field(default=(), repr=False)
    """Files that hold the text and stay, one line each with what to do."""


def forget_notes(
    workspace: Path,
    *,
    matching: str | None = None,
    pattern: str | None = None,
    texts: Sequence[str] = (),
    only_look: bool = False,
) -> NotesForgotten:
    """Take lines out of a workspace's daily notes: those that hold the text, case aside, those
    that the pattern matches, and those that hold one of the `texts` as a whole."""
    wanted = [] if matching is None else [matching.casefold()]
    wanted += [text.strip().casefold() for text in texts if len(text.strip()) >= LEAST_CHARS]
    search = None if pattern is None else compiled(pattern)
    files = lines = 0
    unreached: list[str] = []
    try:
        root = workspace.resolve(strict=True)
        daily, others = note_files(root)
    except OSError as error:
        why = error.strerror or type(error).__name__
        told = f"the daily notes: the workspace could not be read ({why}); name another one"
        return NotesForgotten(unreached=(told,))
    for path in daily:
        try:
            removed = rewrite_note(
                path, lambda text: without_lines(text, wanted, search), only_look=only_look
            )
        except OSError as error:
            why = error.strerror or str(error)
            unreached.append(f"memory/{path.name}, a daily note, could not be rewritten: {why}")
            continue
        files += removed > 0
        lines += removed
    unreached += [
        _by_hand_line(path, root, wanted, search) for path in others if _holds(path, wanted, search)
    ]
    return NotesForgotten(files=files, lines=lines, unreached=tuple(unreached))


def without_lines(
    text: str, wanted: Sequence[str], search: re.Pattern[str] | None = None
) -> tuple[str, int]:
    """The text without the lines that hold one of these folded texts, or a part of what a pattern
    matches, and how many went."""
    folded = text.casefold()
    wanted = [other for other in wanted if other and other in folded]
    gone = set(_matched_lines(text, search))
    if not wanted and not gone:
        return text, 0
    lines = text.split("\n")
    small = [line.casefold() for line in lines]
    for one in wanted:
        spans = one.count("\n") + 1
        for at in range(len(lines) - spans + 1):
            if one in "\n".join(small[at : at + spans]):
                gone.update(range(at, at + spans))
    return "\n".join([line for at, line in enumerate(lines) if at not in gone]), len(gone)


def _matched_lines(text: str, search: re.Pattern[str] | None) -> Iterator[int]:
    if search is None:
        return
    for match in search.finditer(text):
        first = text.count("\n", 0, match.start())
        yield from range(first, first + match[0].count("\n") + 1)


def note_files(root: Path) -> tuple[list[Path], list[Path]]:
    """The daily notes, and the other memory files, of a workspace."""
    daily: list[Path] = []
    others = [root / name for name in LONG_TERM_NOTES if (root / name).is_file()]
    folder = root / _FOLDER
    if not folder.is_dir():
        return daily, others
    if folder.is_symlink():
        return daily, [*others, *sorted(folder.glob("*.md"))]
    for path in sorted(folder.rglob("*.md")):
        mode = path.lstat().st_mode
        own = path.parent == folder and _DAILY.fullmatch(path.name) is not None
        (daily if own and stat.S_ISREG(mode) else others).append(path)
    return daily, list(_once(others))


def _once(paths: Sequence[Path]) -> Iterator[Path]:
    """Each file under one name: MEMORY.md and memory.md are one where case does not count."""
    seen: set[tuple[int, int]] = set()
    for path in paths:
        if not path.exists():
            continue
        there = path.stat()
        if (there.st_dev, there.st_ino) not in seen:
            seen.add((there.st_dev, there.st_ino))
            yield path


def rewrite_note(path: Path, change: Callable[[str], tuple[str, int]], *, only_look: bool) -> int:
    """Replace a note by what `change` makes of it; how much that says it changed."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not only_look:
            # a flush holds it for one write
            if not locked_within(descriptor, _LOCK_SECONDS):
                raise OSError("another program holds it; end that and forget once more")
            if not same_file(descriptor, path):
                raise OSError("it was replaced meanwhile; forget once more")
        there = os.fstat(descriptor)
        text = read_all(descriptor).decode("utf-8", "surrogateescape")
        left, changed = change(text)
        if changed and not only_look:
            replace_file(path, left.encode("utf-8", "surrogateescape"))
            path.chmod(stat.S_IMODE(there.st_mode))
        return changed
    finally:
        os.close(descriptor)


def _holds(path: Path, wanted: Sequence[str], search: re.Pattern[str] | None) -> bool:
    try:
        there = path.stat()
        if not stat.S_ISREG(there.st_mode) or there.st_size > MOST_BYTES:
            return False
        text = path.read_bytes().decode("utf-8", "replace")
    except OSError:
        return False
    return _is_meant(text, wanted, search)


def _is_meant(text: str, wanted: Sequence[str], search: re.Pattern[str] | None) -> bool:
    folded = text.casefold()
    if any(other in folded for other in wanted if other):
        return True
    return search is not None and search.search(text) is not None


def _by_hand_line(
    path: Path, root: Path, wanted: Sequence[str], search: re.Pattern[str] | None
) -> str:
    name = path.relative_to(root).as_posix()
    if _is_meant(name, wanted, search):
        name = "a memory file whose name holds the text"
    return f"{name} in the workspace, which is not a daily note: take it out there by hand"


# Forgetting in the long outputs of commands, which lie beside a transcript


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputsForgotten:
    """What was done to the outputs of a session."""

    files: int = 0
    unreached: tuple[str, ...] = ()
    """Outputs that stay, one line each with what to do."""


def forget_outputs(
    folder: Path, meant: EntryTargets | None, *, only_look: bool = False
) -> OutputsForgotten:
    """Delete the outputs that hold what is meant; all of them, and the folder, for None."""
    if folder.is_symlink() or not folder.is_dir():
        return OutputsForgotten()
    search = None if meant is None else EntrySearch(meant)
    texts = () if meant is None else meant.said
    files = 0
    unreached: list[str] = []
    for path in sorted(folder.iterdir()):
        try:
            if search is not None and not _output_is_meant(path, search, texts):
                continue
            if not only_look:
                path.unlink()
            files += 1
        except OSError as error:
            why = error.strerror or type(error).__name__
            text = f"{folder.name}/{path.name}, a long output ({why}): delete it"
            unreached.append(text)
    if meant is None and not only_look and not unreached:
        shutil.rmtree(folder, ignore_errors=True)
    return OutputsForgotten(files=files, unreached=tuple(unreached))


def _output_is_meant(path: Path, search: EntrySearch, texts: Sequence[str]) -> bool:
    """By its age, by what it holds, or because its result goes: that one names it."""
    if path.is_symlink():
        return False
    if search.is_timely(round(path.stat().st_mtime * 1000)):
        return True
    return any(path.name in text for text in texts) or search.unread_line(path.read_bytes())


# Forgetting in what was typed in chats, which lies beside the transcripts


_COMMAND: Final = re.compile(r"\A/\w+\s*")


def forget_typed(path: Path, goes: Callable[[str, float], bool], *, only_look: bool) -> int:
    """Take out what `goes` says goes, by its text and by when it was typed; how many went."""

    def change(text: str) -> tuple[str, int]:
        pieces = re.split(r"^(?=# )", text, flags=re.MULTILINE)  # each typed line begins with a +
        left = [piece for piece in pieces if not goes(*_typed(piece))]
        return "".join(left), len(pieces) - len(left)

    return rewrite_note(path, change, only_look=only_look) if path.exists() else 0


def _typed(piece: str) -> tuple[str, float]:
    """What was typed, and when; of a time that cannot be read, long ago."""
    head, *lines = piece.split("\n")
    try:
        at = datetime.fromisoformat(head.removeprefix("# ")).timestamp()
    except (ValueError, OverflowError):
        at = 0.0
    return "\n".join(line[1:] for line in lines if line.startswith("+")), at


DELETED: Final = "transcripts deleted"
CHANGED: Final = "transcripts changed"
ENTRIES: Final = "entries of transcripts"
OUTPUTS: Final = "long outputs of commands, deleted"
SUMMARIES: Final = "summaries in transcripts, withdrawn"
ROWS: Final = "rows of the index of sessions"
NOTES: Final = "daily notes changed"
NOTE_LINES: Final = "lines of daily notes"
TYPED: Final = "inputs typed in chats"

COVERS_TRANSCRIPTS: Final = (
    "transcripts of Recollect's own agent in this space: entries, summaries that stood for them, "
    "long outputs of commands beside them, what was typed in its chats"
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
_LEFT_OVER: Final = re.compile(r"\.(.+\.jsonl|chat_history)\.\d+\.[0-9a-f]{8}")


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
            texts=files.all_said,
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
    return tuple(dict.fromkeys([*names, *(text for text in found if text)]))


def _users_words(data: bytes) -> set[str]:
    """What a transcript's user said, and told commands."""
    entries = read_session(data).entries
    said = [entry.value for entry in entries if entry.role in ("user", None)]
    return {comparable(text) for value in said for text in said_in(value)} - {""}


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
        self._said_in_named: set[str] = set()
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
        self._visit_typed()
        self._drop_rows()
        self._note_names(folder)

    def _visit(self, path: Path) -> None:
        """Look without the lock first: who is not meant must not be disturbed."""
        try:
            if path.is_symlink():
                self.cannot.append(f"{path.name} among the transcripts is a link: see to its file")
                return
            data = path.read_bytes()
            if self._order.sessions and self._is_named(path, data):
                self._said_in_named |= _users_words(data)
            left = self._left(path, data)
            if self._only_look or (left is not None and not left.changed):
                self._note_left(path, left)
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

    def _visit_outputs(self, transcript: Path, meant: EntryTargets | None) -> None:
        done = forget_outputs(outputs_folder(transcript), meant, only_look=self._only_look)
        self.counts[OUTPUTS] += done.files
        self.cannot += done.unreached

    def _visit_left_outputs(self, transcript: Path) -> None:
        """Outputs whose transcript is gone: a forgetting was killed between the two."""
        if not transcript.exists():
            self._visit_outputs(transcript, self._meant(transcript, b""))

    def _visit_typed(self) -> None:
        """What was typed knows no session: of one that is named goes what was said in it."""
        order = self._order
        timely = not order.sessions
        search = EntrySearch(
            EntryTargets(
                matching=order.matching,
                pattern=order.pattern,
                said=self._said,
                before=order.said_before if timely else None,
                after=order.said_after if timely else None,
            )
        )

        def goes(text: str, at: float) -> bool:
            if not text or search.text(text) or search.is_timely(round(at * 1000)):
                return bool(text)
            said = comparable(_COMMAND.sub("", text))
            return said in self._said_in_named and order.said_then(at)

        path = chat_history_file(self._space)
        try:
            self.counts[TYPED] += forget_typed(path, goes, only_look=self._only_look)
        except OSError as error:
            why = error.strerror or str(error)
            self.cannot.append(f"{path.name}, what was typed in chats ({why}): delete it")

    def _change(self, path: Path) -> None:
        def change(data: bytes) -> bytes | None:
            left = self._left(path, data)
            return None if left is None else left.data

        self._note_left(path, self._left(path, rewrite_locked(path, change)))

    def _left(self, path: Path, data: bytes) -> EntriesForgotten | None:
        """What is left of a transcript; None where all of it goes."""
        meant = self._meant(path, data)
        return None if meant is None else forget_entries(data, meant)

    def _meant(self, path: Path, data: bytes) -> EntryTargets | None:
        """What goes from a session; None for all of it."""
        order = self._order
        named = bool(order.sessions) and self._is_named(path, data)
        if named and not order.by_time:
            return None
        timely = named or not order.sessions
        return EntryTargets(
            matching=order.matching,
            pattern=order.pattern,
            said=self._said,
            before=order.said_before if timely else None,
            after=order.said_after if timely else None,
        )

    def _note_left(self, path: Path, left: EntriesForgotten | None) -> None:
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
        match = _LEFT_OVER.fullmatch(path.name)
        if match is None or self._only_look:
            return
        beside = path.with_name(match[1])
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

    def _note_names(self, folder: Path) -> None:
        """Keys and other programs' fields in the index are names, which only their owner knows."""
        index = folder / self._index.path.name
        if index.is_file() and bytes_meant(self._order, index.read_bytes()):
            self.cannot.append(
                f"{index.name}, the index of sessions: a name in it holds the text; forget that "
                "session by --session, or edit it"
            )
