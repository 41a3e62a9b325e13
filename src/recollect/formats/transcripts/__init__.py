"""Readers of recorded sessions: bytes in, `Transcript` out.

Owns the choice of the reader, by content. Pure: opens no files. Bad lines never raise, they
are told in `passed_over`; what is of no known kind raises `UnknownFormat`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from recollect.errors import FormatError
from recollect.formats.transcripts.claude_code import read_claude_code
from recollect.formats.transcripts.codex import read_codex
from recollect.formats.transcripts.detect import Finding, detect_kind, find_kind
from recollect.formats.transcripts.flat import read_flat
from recollect.formats.transcripts.pi import read_pi
from recollect.formats.transcripts.plain import read_messages, read_request, read_tau_bench
from recollect.formats.transcripts.records import Progress, array_items, records, unpacked

if TYPE_CHECKING:
    from collections.abc import Callable

    from recollect.values.transcript import Transcript, TranscriptKind

__all__ = ["detect_kind", "read_transcript", "read_transcripts"]

_LINE_READERS: dict[TranscriptKind, Callable[..., Transcript]] = {
    "pi": read_pi,
    "claude-code": read_claude_code,
    "codex": read_codex,
    "flat": read_flat,
}


def read_transcript(data: bytes, *, name: str = "", progress: Progress | None = None) -> Transcript:
    """Read a recording that holds one session.

    `name` is for error messages only. `progress(done_bytes, total_bytes)` is called now and
    then, with unpacked bytes.
    """
    found = read_transcripts(data, name=name, progress=progress)
    if len(found) != 1:
        raise FormatError(
            f"{name or 'the recording'} holds {len(found)} sessions; "
            "read them with read_transcripts and choose one"
        )
    return found[0]


def read_transcripts(
    data: bytes, *, name: str = "", progress: Progress | None = None
) -> tuple[Transcript, ...]:
    """Read a recording that may hold several sessions, as tau-bench's results do."""
    data = unpacked(data, name=name)
    finding = find_kind(data, name=name)
    if finding.parts is not None:
        return _read_parts(finding, finding.parts, progress)
    if finding.kind == "messages":
        return (_read_message_lines(data, progress),)
    return (_LINE_READERS[finding.kind](data, progress=progress),)


def _read_parts(
    finding: Finding, parts: tuple[bytes, ...], progress: Progress | None
) -> tuple[Transcript, ...]:
    total = sum(map(len, parts))
    done = 0
    found: list[Transcript] = []
    for part in parts:
        if finding.kind == "request":
            found.append(read_request(part))
        elif finding.kind == "tau-bench":
            found.append(read_tau_bench(part))
        else:
            found.append(read_messages(list(enumerate(array_items(part) or [], 1))))
        done += len(part)
        if progress is not None:
            progress(done, total)
    if finding.passed_over:  # told once, with the first session of the file
        told = (*finding.passed_over, *found[0].passed_over)
        found[0] = replace(found[0], passed_over=told)
    return tuple(found)


def _read_message_lines(data: bytes, progress: Progress | None) -> Transcript:
    passed_over: list[str] = []
    lines = records(data, passed_over=passed_over, progress=progress)
    messages = [(line.line, line.raw) for line in lines]
    return read_messages(messages, passed_over=passed_over)
