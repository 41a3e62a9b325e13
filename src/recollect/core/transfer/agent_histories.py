"""Finds the session files of coding agents on this machine: Claude Code, Codex, pi and OpenClaw.
The files are never changed. Project, size and dates come from the first lines, or from a query; the
import reads the rest. An unreadable file is reported and does not affect others."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import IO, Final, Literal, TypeAlias

from recollect.core.formats.json_text import Fields, object_fields, text_of
from recollect.core.formats.transcripts.records import unpack
from recollect.errors import FormatError, MissingExtra
from recollect.system.durable import open_regular
from recollect.system.places import (
    claude_code_folder,
    codex_folder,
    openclaw_folder,
    pi_folder,
)
from recollect.system.projects import project_space

HistoryAgent: TypeAlias = Literal["claude-code", "codex", "pi", "openclaw"]

_HEAD_BYTES: Final = 16 << 20
"""Bytes of a file that are searched for the project's folder. A pasted prompt may precede it."""


class LeftOutReason(Enum):
    """Reason why a session that was found is not imported."""

    SUBAGENT = "messages of a subagent; its parent's session contains the result"
    NO_PROJECT = "it names no project folder"
    SAME_THREADS = "it contains the same threads as the rollouts"
    UNREADABLE = "it cannot be read"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOutFile:
    """A session that was found but is not imported."""

    agent: HistoryAgent
    name: str
    reason: LeftOutReason
    detail: str = ""
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentHistory:
    """One file, or one session of a database, that was found but not read yet."""

    agent: HistoryAgent
    project: str
    """Folder of the session, from which `project_space` derives the space."""
    name: str
    """The file; in case of a database also the session."""
    stem: str
    """Name to give to the session if it has none."""
    size_bytes: int
    last_at: float
    read: Callable[[], bytes] = field(repr=False)
    space: str = ""
    """The space that hooks and the gateway use in this folder."""


@dataclass(slots=True)
class FoundHistories:
    """All sessions that were found."""

    histories: list[AgentHistory] = field(default_factory=list)
    left_out: list[LeftOutFile] = field(default_factory=list)


def find_histories() -> FoundHistories:
    """Find the sessions of every agent, sorted by space and then by date."""
    result = FoundHistories()
    _find_claude_code(result)
    _find_codex(result)
    _find_files(result, "pi", pi_folder() / "sessions", "*/*.jsonl")
    _find_openclaw(result)
    folders = {history.project for history in result.histories}
    spaces = {folder: project_space(folder, keep=False) for folder in folders}
    result.histories = [replace(one, space=spaces[one.project]) for one in result.histories]
    result.histories.sort(key=lambda history: (history.space, history.last_at, history.name))
    return result


def _project_of(agent: HistoryAgent, fields: Fields) -> str | None:
    """Return the folder that this line of a transcript names; None if it names none."""
    kind = text_of(fields, "type")
    if agent == "codex":
        meta = object_fields(fields.get("payload", b"")) if kind == "session_meta" else None
        return text_of(meta or {}, "cwd")
    return text_of(fields, "cwd") if agent == "claude-code" or kind == "session" else None


def first_folder(agent: HistoryAgent, path: Path) -> str | None:
    """Return the folder in which a session began; None if the file does not name it. A session
    belongs to that folder, even if the agent changes folders later."""
    try:
        return _head(path, agent)
    except (OSError, FormatError, MissingExtra):  # the agent creates the file with the first reply
        return None


def _find_claude_code(result: FoundHistories) -> None:
    projects = claude_code_folder() / "projects"
    for pattern in ("*/agent-*.jsonl", "*/*/subagents/agent-*.jsonl"):
        for path in _find_sorted(projects, pattern):
            _leave_out(result, "claude-code", path, LeftOutReason.SUBAGENT)
    main = (
        path for path in _find_sorted(projects, "*/*.jsonl") if not path.name.startswith("agent-")
    )
    _take_files(result, "claude-code", main)


def _find_codex(result: FoundHistories) -> None:
    folder = codex_folder()
    for name in ("sessions", "archived_sessions"):
        _find_files(result, "codex", folder / name, "**/rollout-*.jsonl*")
    for path in _find_sorted(folder, "thread_history*.sqlite"):
        _leave_out(result, "codex", path, LeftOutReason.SAME_THREADS)


def _find_files(result: FoundHistories, agent: HistoryAgent, folder: Path, pattern: str) -> None:
    _take_files(result, agent, _find_sorted(folder, pattern))


def _take_files(result: FoundHistories, agent: HistoryAgent, paths: Iterable[Path]) -> None:
    for path in paths:
        try:
            project = _head(path, agent)
            stat = path.stat()
        except (OSError, FormatError, MissingExtra) as problem:
            detail = getattr(problem, "strerror", None) or str(problem)
            _leave_out(result, agent, path, LeftOutReason.UNREADABLE, detail)
            continue
        if project is None:
            _leave_out(result, agent, path, LeftOutReason.NO_PROJECT)
            continue
        result.histories.append(
            AgentHistory(
                agent=agent,
                project=project,
                name=str(path),
                stem=path.stem,
                size_bytes=stat.st_size,
                last_at=stat.st_mtime,
                read=path.read_bytes,
            )
        )


def _open_history(path: Path) -> IO[bytes]:
    file = open(path, "rb", opener=open_regular)  # noqa: SIM115 - the caller closes it
    if path.suffix not in (".zst", ".gz"):
        return file
    with file:
        return BytesIO(unpack(file.read(), name=path.name))


def _head(path: Path, agent: HistoryAgent) -> str | None:
    looked_at = 0
    with _open_history(path) as file:
        while looked_at <= _HEAD_BYTES and (line := file.readline(_HEAD_BYTES)):
            looked_at += len(line)
            fields = object_fields(line.strip())
            if fields is not None:
                project = _project_of(agent, fields)
                if project is not None and Path(project).is_absolute():
                    return project
    return None


def _find_sorted(folder: Path, pattern: str) -> list[Path]:
    return sorted(path for path in folder.glob(pattern) if path.is_file())


def _leave_out(
    result: FoundHistories, agent: HistoryAgent, path: Path, reason: LeftOutReason, detail: str = ""
) -> None:
    try:
        size = path.stat().st_size
    except OSError:
        size = 0
    result.left_out.append(
        LeftOutFile(agent=agent, name=str(path), reason=reason, detail=detail, size_bytes=size)
    )


_WAL_VERSION: Final = b"\x02\x02"
"""Bytes 18 and 19 of a database with a write-ahead log."""


def open_read_only(path: Path) -> sqlite3.Connection:
    """Open another program's database read-only, without creating files in its folder. A database
    without a write-ahead log is opened as immutable, so that SQLite creates no files."""
    address = f"{path.absolute().as_uri()}?mode=ro"
    with path.open("rb") as file:
        alone = file.read(20)[18:] == _WAL_VERSION and not Path(f"{path}-wal").exists()
    return sqlite3.connect(address + "&immutable=1" * alone, uri=True, timeout=10.0)


def _seconds(milliseconds: object) -> float | None:
    return milliseconds / 1000 if isinstance(milliseconds, int | float) else None


def _find_openclaw(result: FoundHistories) -> None:
    agents = openclaw_folder() / "agents"
    _find_files(result, "openclaw", agents, "*/sessions/*.jsonl")
    for path in _find_sorted(agents, "*/agent/openclaw-agent.sqlite"):
        try:
            result.histories.extend(list(_openclaw_sessions(path)))
        except (sqlite3.Error, OSError) as problem:
            _leave_out(result, "openclaw", path, LeftOutReason.UNREADABLE, str(problem))


_OPENCLAW_SESSIONS: Final = """
    SELECT session_id, sum(event_utf8_bytes), max(created_at)
    FROM transcript_events GROUP BY session_id
"""


def _openclaw_sessions(path: Path) -> Iterator[AgentHistory]:
    with closing(open_read_only(path)) as database:
        for session, size, last in database.execute(_OPENCLAW_SESSIONS):
            header = database.execute(f"{_OPENCLAW_EVENTS} LIMIT 1", (session,)).fetchone()
            fields = object_fields(_read_openclaw_line(*header)) or {}
            yield AgentHistory(
                agent="openclaw",
                project=_project_of("openclaw", fields) or str(openclaw_folder() / "workspace"),
                name=f"{path}#{session}",
                stem=session,
                size_bytes=size or 0,
                last_at=_seconds(last) or path.stat().st_mtime,
                read=partial(_openclaw_lines, path, session),
            )


_OPENCLAW_EVENTS: Final = """
    SELECT event_json, event_zstd FROM transcript_events WHERE session_id = ? ORDER BY seq
"""


def _openclaw_lines(path: Path, session: str) -> bytes:
    """Write the events of a session as the lines that older versions of OpenClaw wrote."""
    with closing(open_read_only(path)) as database:
        rows = database.execute(_OPENCLAW_EVENTS, (session,))
        return b"\n".join(_read_openclaw_line(*row) for row in rows)


def _read_openclaw_line(text: object, packed_text: object) -> bytes:
    """Decode an event; an unreadable one becomes a line that the reader reports as skipped."""
    if isinstance(packed_text, bytes) and text is None:
        try:
            return unpack(packed_text)
        except (FormatError, MissingExtra):
            return b"packed with Zstandard"
    if isinstance(text, bytes):
        return text
    return str(text).encode("utf-8", "surrogatepass")
