"""Reads a growing transcript file: a read returns only the new lines. A file that was replaced,
rewritten or shortened is read again from the start. An incomplete last line is left for the next
read."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import BinaryIO, Final, Literal, TypeAlias

from recollect.core.formats.json_text import object_fields
from recollect.core.formats.recalled_block import recalled_items
from recollect.core.formats.transcripts.claude_code import ClaudeCodeReader
from recollect.core.formats.transcripts.codex import CodexReader
from recollect.core.formats.transcripts.records import mapping_of
from recollect.core.values.transcript import RecordedSession
from recollect.system.durable import open_regular

AgentName: TypeAlias = Literal["claude-code", "codex"]
MOST_BYTES: Final = 1 << 30
_BOUNDARY: Final[Mapping[AgentName, bytes]] = {
    "claude-code": b'"subtype":"compact_boundary"',
    "codex": b'"type":"compacted"',
}
_ADDED: Final = b"<recalled-context"
_COMPARED_BYTES: Final = 512
"""Number of bytes before the new lines that are compared, to detect a rewritten file."""


_READERS: Final[Mapping[AgentName, type[ClaudeCodeReader | CodexReader]]] = {
    "claude-code": ClaudeCodeReader,
    "codex": CodexReader,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptLook:
    """The contents of a transcript at the time of one read."""

    session: RecordedSession | None = None
    """The session since the last compaction; None if the file is missing or cannot be read."""
    added: frozenset[str] = field(default=frozenset(), repr=False)
    """The passages and facts that hooks added to the session since the last compaction."""
    compactions: int = 0
    state: tuple[int, ...] = ()


class FollowedTranscript:
    """One transcript, read from its last compaction on."""

    def __init__(self, agent: AgentName, path: str) -> None:
        self._agent = agent
        self._path = path
        self._lock = threading.Lock()
        self._begin()
        self._look = TranscriptLook()

    def _begin(self) -> None:
        self._reader = _READERS[self._agent]()
        self._added: frozenset[str] = frozenset()
        self._compactions = 0
        self._read_bytes = 0
        self._end = b""

    @property
    def path(self) -> str:
        return self._path

    def look(self) -> TranscriptLook:
        with self._lock:
            try:
                with open(self._path, "rb", opener=open_regular) as file:
                    found = os.fstat(file.fileno())
                    state = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
                    if state == self._look.state:
                        return self._look
                    same_file = state[:2] == self._look.state[:2]
                    data = self._unread(file, goes_on=same_file)
            except OSError:  # the agent creates the file with the first reply
                return TranscriptLook()
            self._look = self._looked(data, state)
            return self._look

    def _unread(self, file: BinaryIO, *, goes_on: bool) -> bytes:
        if goes_on and self._read_bytes:
            file.seek(self._read_bytes - len(self._end))
            data = file.read(MOST_BYTES)
            if data.startswith(self._end) and len(data) > len(self._end):
                return data[len(self._end) :]
            file.seek(0)
        self._begin()
        return file.read(MOST_BYTES)

    def _looked(self, data: bytes, state: tuple[int, ...]) -> TranscriptLook:
        end = data.rfind(b"\n") + 1
        # The last line is complete and lacks only its newline.
        if object_fields(data[end:]) is not None:
            end = len(data)
        self._take(data[:end])
        return TranscriptLook(
            session=self._reader.session() if self._read_bytes else None,
            added=self._added,
            compactions=self._compactions,
            state=state,
        )

    def _take(self, data: bytes) -> None:
        read_bytes, self._read_bytes = self._read_bytes + len(data), 0  # 0 stays if reading fails
        at = data.rfind(_BOUNDARY[self._agent])
        if at >= 0:
            compactions = self._compactions + data.count(_BOUNDARY[self._agent])
            self._begin()
            self._compactions = compactions
            data = data[data.rfind(b"\n", 0, at) + 1 :]
        self._reader.feed(data)
        self._added |= added_items(data)
        self._read_bytes = read_bytes
        self._end = (self._end + data[-_COMPARED_BYTES:])[-_COMPARED_BYTES:]


def read_whole(agent: AgentName, path: str) -> RecordedSession | None:
    """Return the whole transcript, also before compactions; None if it cannot be read."""
    try:
        with open(path, "rb", opener=open_regular) as file:
            data = file.read(MOST_BYTES)
    except OSError:
        return None
    if not data:
        return None
    reader = _READERS[agent]()
    reader.feed(data)
    return reader.session()


def added_items(data: bytes) -> frozenset[str]:
    """Return the passages and facts that hooks added to the conversation."""
    found: set[str] = set()
    for line in data.split(b"\n") if _ADDED in data else ():
        if _ADDED in line:
            fields = mapping_of(line.strip())
            holder = fields.get("attachment") or fields.get("payload")
            content = holder.get("content") if isinstance(holder, dict) else None
            for part in content if isinstance(content, list) else ():
                text = part.get("text") if isinstance(part, dict) else part
                found.update(recalled_items(str(text)))
    return frozenset(found)
