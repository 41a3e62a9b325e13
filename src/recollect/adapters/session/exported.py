"""Exports a session to a file: the transcript itself, or Markdown. Masked text stays masked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from recollect.adapters.session.entries import is_undo
from recollect.adapters.session.files import write_new_file
from recollect.adapters.session.transcript import read_session_file
from recollect.core.formats.blocks import texts_of
from recollect.core.formats.pi_session import PiEntry, PiSession, path_to
from recollect.errors import TranscriptError

MOST_RESULT_LINES: Final = 40
"""Lines of a tool's result in Markdown; the JSONL has all of them."""


def export_session(transcript: Path, file: Path) -> int:
    """Write a session to a new file of the user's: the transcript itself if the name ends in
    `.jsonl`, else Markdown. Returns the number of bytes; TranscriptError if the file exists."""
    session = read_session_file(transcript)
    try:
        whole = file.suffix.lower() == ".jsonl"
        content = transcript.read_bytes() if whole else session_markdown(session).encode()
        write_new_file(file, content)
    except FileExistsError:
        raise TranscriptError(f"{file} exists already; give another name") from None
    except OSError as error:
        why = error.strerror or str(error)
        raise TranscriptError(f"{file} could not be written: {why}") from error
    return len(content)


def session_markdown(session: PiSession) -> str:
    """Write the messages of the newest branch: one line per call, long results cut."""
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
    """Return a message's text and calls; a model's thinking is left out."""
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    for at, block in enumerate(block for block in blocks if isinstance(block, Mapping)):
        text = ""
        if block.get("type") == "text":
            text = str(block.get("text") or "").strip()
        elif block.get("type") == "image":
            text = "*(an image)*"
        elif block.get("type") == "toolCall":
            arguments = json.dumps(block.get("arguments") or {}, ensure_ascii=False)
            mark = _fence(arguments, 1)
            text = f"**{block.get('name')}** {mark} {arguments} {mark}"
        if text:
            yield from ["", text] if at else [text]


def _result(message: Mapping[str, Any]) -> Iterator[str]:
    text = "\n".join(texts_of(message.get("content") or ()))
    lines = text.splitlines()
    fence = _fence(text, 3)
    yield f"{message.get('toolName')} {'failed' if message.get('isError') else 'answered'}:"
    yield ""
    yield fence
    yield from lines[:MOST_RESULT_LINES]
    if len(lines) > MOST_RESULT_LINES:
        yield f"… {len(lines) - MOST_RESULT_LINES:,} more lines"
    yield fence


def _fence(text: str, least: int) -> str:
    """More backticks than the text has in a row, so that it cannot end its own quotation."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    return "`" * max(least, longest + 1)


def _when(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M")
