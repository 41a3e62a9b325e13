"""Looking through a space's sessions without opening one: which there are, which one is meant, and
one of them as a text for people.

Reads files that others may be writing; nothing is locked or changed. What a transcript masks stays
masked. A session is named by its key, its id, a beginning of that, or the name it was given.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from recollect.config.places import sessions_folder
from recollect.durable import replace_file
from recollect.errors import TranscriptError
from recollect.formats.blocks import texts_of
from recollect.formats.pi_session import PiEntry, PiSession, path_to
from recollect.session.files import OWNER_ONLY, transcript_file, write_new_file
from recollect.session.index import SessionIndex
from recollect.session.transcript import read_session_file
from recollect.session.undo import is_undo

# Which there are, and which one is meant


_INFO: Final = b'"session_info"'
_SAID: Final = tuple(
    b'"message":{"role":"%b"' % role for role in (b"user", b"assistant", b"toolResult")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLine:
    """A session of a space, as it is listed."""

    session_id: str
    key: str
    """Its key in the index, the first of several; empty where it is no key's newest session."""
    name: str = field(repr=False)
    messages: int
    """What was said by user and model, and results of tools, on all of its branches."""
    changed: float
    current: bool = False
    """The one under way; for a shell, the one that goes on where none is named."""
    keys: tuple[str, ...] = ()
    """All keys that go on with it: two do where one resumed the other's session."""

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON, under these names."""
        return asdict(self)


def sessions_of(space: str) -> list[SessionLine]:
    """The sessions of a space, the one that changed last first. Waits for the disk."""
    index = SessionIndex.of_space(space)
    main = index.get("main")
    return listed_sessions(sessions_folder(space), "" if main is None else main.session_id, index)


def listed_sessions(folder: Path, current: str, index: SessionIndex | None) -> list[SessionLine]:
    """The transcripts of a folder, the one that changed last first. Waits for the disk."""
    rows = {} if index is None else index.sessions()
    keys: dict[str, list[str]] = {}
    for key, record in rows.items():
        keys.setdefault(record.session_id, []).append(key)
    found: list[SessionLine] = []
    for path in folder.glob("*.jsonl"):
        try:
            (name, messages), changed = _told(path), path.stat().st_mtime
        except OSError:
            continue
        id_ = path.stem
        own = sorted(keys.get(id_, ()), key=lambda key: key != "main")
        found.append(
            SessionLine(
                session_id=id_,
                key=own[0] if own else "",
                keys=tuple(own),
                name=name,
                messages=messages,
                changed=changed,
                current=id_ == current,
            )
        )
    return sorted(found, key=lambda line: line.changed, reverse=True)


def _told(path: Path) -> tuple[str, int]:
    """What a session was called last, and how much was said; only names are read as JSON."""
    name, said = "", 0
    with path.open("rb") as file:
        for line in file:
            said += any(mark in line[:400] for mark in _SAID)
            if _INFO in line:
                try:
                    entry = json.loads(line)
                except ValueError:
                    continue
                if isinstance(entry, dict) and entry.get("type") == "session_info":
                    name = str(entry.get("name") or "")
    return name, said


def session_meant(lines: Sequence[SessionLine], wanted: str) -> SessionLine:
    """The session of this key, id, beginning of an id, or name; TranscriptError where it is not
    clear which."""
    found = sessions_called(lines, wanted)
    if len(found) != 1:
        which = "several sessions are" if found else "no session is"
        raise TranscriptError(
            f"{which} called {wanted[:80]!r} here; `recollect sessions` (in a chat /sessions) "
            "lists them"
        )
    return found[0]


def sessions_called(lines: Sequence[SessionLine], wanted: str) -> list[SessionLine]:
    """Those of this key; else of this id or name; else whose id begins so."""
    ways = (
        [line for line in lines if wanted in line.keys],
        [line for line in lines if wanted in (line.session_id, line.name)],
        [line for line in lines if line.session_id.startswith(wanted)],
    )
    return next((way for way in ways if way), []) if wanted else []


# A session as a file of its own


ExportFormat: TypeAlias = Literal["markdown", "jsonl"]
MOST_RESULT_LINES: Final = 40
"""Of a tool's result; the JSONL has all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionExport:
    """A session that was written out."""

    session_id: str
    file: str
    format: ExportFormat
    bytes_written: int


def export_format(file: Path) -> ExportFormat:
    """JSONL where the name says so, else Markdown."""
    return "jsonl" if file.suffix.lower() == ".jsonl" else "markdown"


def export_session(transcript: Path, file: Path, *, replace: bool = False) -> SessionExport:
    """Write a session to a file, for its owner alone: the transcript itself where the name ends in
    `.jsonl`, else what was said on its newest branch, as Markdown.

    TranscriptError where the file is there already, unless it may be replaced.
    """
    session = read_session_file(transcript)
    kind = export_format(file)
    try:
        content = transcript.read_bytes() if kind == "jsonl" else session_markdown(session).encode()
        if replace and file.exists():
            replace_file(file, content)
            file.chmod(OWNER_ONLY)
        else:
            write_new_file(file, content)
    except FileExistsError:
        raise TranscriptError(f"{file} is there already; give another name") from None
    except OSError as error:
        why = error.strerror or str(error)
        raise TranscriptError(f"{file} could not be written: {why}") from error
    id_ = transcript.stem if session.header is None else session.header.id
    return SessionExport(session_id=id_, file=str(file), format=kind, bytes_written=len(content))


def exported_transcript(space: str, wanted: str) -> Path:
    """The transcript of the session that is meant."""
    return transcript_file(space, session_meant(sessions_of(space), wanted).session_id)


def session_markdown(session: PiSession) -> str:
    """What was said on the newest branch, for people: calls in a line, long results cut."""
    path = path_to(session.entries)
    names = [entry.text("name") for entry in session.entries if entry.kind == "session_info"]
    title = (names[-1] if names else "") or "Session"
    id_ = "" if session.header is None else session.header.id
    times = [entry.milliseconds for entry in path if entry.milliseconds]
    when = f", {_when(times[0])} to {_when(times[-1])} UTC" if times else ""
    lines = [f"# {' '.join(title.split())}", "", f"Session `{id_}`{when}."]
    speaker = ""
    for entry in path:
        said, by = list(_entry_lines(entry)), _speaker(entry)
        if not said:
            continue
        if by and by != speaker:
            speaker = by
            lines += ["", f"## {by}, {_when(entry.milliseconds)}"]
        lines += ["", *said]
    return "\n".join(lines) + "\n"


def _speaker(entry: PiEntry) -> str:
    """Who says it; empty where it stands under whoever spoke before."""
    message = entry.message or {}
    if entry.role == "user":
        return "User"
    if entry.role == "assistant":
        return str(message.get("model") or "Assistant")
    return ""


def _entry_lines(entry: PiEntry) -> Iterator[str]:
    if entry.kind == "model_change":
        yield f"*{entry.text('modelId') or 'Another model'} answers from here on.*"
    elif entry.kind == "compaction":
        if is_undo(entry):
            yield "*A compaction was undone here.*"
            return
        yield "*Compacted here; what was said before is shown to the model as this summary:*"
        yield ""
        yield from (f"> {line}".rstrip() for line in (entry.text("summary") or "").splitlines())
    elif entry.message is not None and entry.role in ("user", "assistant"):
        yield from _blocks(entry.message.get("content"))
    elif entry.message is not None and entry.role == "toolResult":
        yield from _result(entry.message)


def _blocks(content: Any) -> Iterator[str]:
    """What a message says, and what it calls; a model's thinking is left out."""
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    for at, block in enumerate(block for block in blocks if isinstance(block, Mapping)):
        told = ""
        if block.get("type") == "text":
            told = str(block.get("text") or "").strip()
        elif block.get("type") == "image":
            told = "*(an image)*"
        elif block.get("type") == "toolCall":
            arguments = json.dumps(block.get("arguments") or {}, ensure_ascii=False)
            told = f"**{block.get('name')}** {_code(arguments)}"
        if told:
            yield from ["", told] if at else [told]


def _result(message: Mapping[str, Any]) -> Iterator[str]:
    text = "\n".join(texts_of(message.get("content") or ()))
    lines = text.splitlines()
    fence = "`" * max(3, _longest_run(text) + 1)
    yield f"{message.get('toolName')} {'failed' if message.get('isError') else 'answered'}:"
    yield ""
    yield fence
    yield from lines[:MOST_RESULT_LINES]
    if len(lines) > MOST_RESULT_LINES:
        yield f"… {len(lines) - MOST_RESULT_LINES:,} more lines"
    yield fence


def _code(text: str) -> str:
    mark = "`" * (_longest_run(text) + 1)
    return f"{mark} {text} {mark}" if len(mark) > 1 else f"`{text}`"


def _longest_run(text: str) -> int:
    """Of backticks: what is quoted cannot end its own quotation."""
    longest = run = 0
    for sign in text:
        run = run + 1 if sign == "`" else 0
        longest = max(longest, run)
    return longest


def _when(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M")
