"""A session as a file of its own: the transcript itself, or Markdown.

Reads files that others may be writing; nothing is locked or changed. What a transcript masks stays
masked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from recollect.adapters.session.files import OWNER_ONLY, write_new_file
from recollect.adapters.session.transcript import read_session_file
from recollect.adapters.session.undo import is_undo
from recollect.core.formats.blocks import texts_of
from recollect.core.formats.pi_session import PiEntry, PiSession, path_to
from recollect.errors import TranscriptError
from recollect.system.durable import replace_file

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
