"""aider's `.aider.chat.history.md` and `.aider.input.history`.

Owns how Markdown becomes messages: `# aider chat started at` begins a session, lines that begin
with `####` are the user's, lines quoted with `> ` are what aider printed and nobody sent, and
all the rest is the model's. Aider ends its own lines with two spaces: without them a heading or a
quote is the model's. Commands to aider itself (`/add`, `/run`) are no messages; what stands
behind `/ask`, `/code` or `/architect` is. Times are those of the clock on the wall, as aider
writes them. The history of inputs holds the user's side alone, in one session.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from recollect.core.formats.json_text import encode
from recollect.core.formats.transcripts.records import Progress
from recollect.core.values.transcript import RecordedRequest, RecordedSession, TranscriptItem

_OPENING = re.compile(rb"^# aider chat started at ", re.MULTILINE)
_INPUT_OPENING = re.compile(rb"\s*# \d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.\d]*\n\+")
_LOOKED_AT_BYTES = 1 << 20
"""How far into a file its first opening is looked for."""
_STARTED = "# aider chat started at "
_SAID = "####"
_SPOKEN_COMMANDS = ("/ask", "/code", "/architect", "/chat-mode")
INPUT_SESSION = "aider inputs"


def is_aider(data: bytes) -> bool:
    """Whether these bytes are one of aider's histories."""
    opening = _OPENING.search(data, 0, _LOOKED_AT_BYTES)
    return opening is not None or _INPUT_OPENING.match(data) is not None


@dataclass(slots=True, kw_only=True)
class _Chat:
    session_id: str
    started_at: float | None
    items: list[TranscriptItem] = field(default_factory=list)
    requests: list[RecordedRequest] = field(default_factory=list)
    role: str = ""
    line: int = 0
    texts: list[str] = field(default_factory=list)

    def take(self, role: str, text: str, line: int) -> None:
        """One more line of what somebody says."""
        if role != self.role:
            self.end()
            self.role, self.line = role, line
        self.texts.append(text)

    def end(self) -> None:
        """What was said so far is a message."""
        text = "\n".join(self.texts).strip("\n")
        role, self.role, self.texts = self.role, "", []
        if role == "user":
            text = spoken(text)
        if not text.strip():
            return
        if role == "assistant":
            before = range(len(self.items))
            self.requests.append(RecordedRequest(shown=before, answered=(len(self.items),)))
        raw = encode({"role": role, "content": text})
        self.items.append(
            TranscriptItem(raw=raw, line=self.line, timestamp=self.started_at, derived=True)
        )

    def recorded(self) -> RecordedSession:
        self.end()
        return RecordedSession(
            kind="aider",
            format="openai-chat",
            items=tuple(self.items),
            requests=tuple(self.requests),
            session_id=self.session_id,
        )


def read_aider(data: bytes, *, progress: Progress | None = None) -> tuple[RecordedSession, ...]:
    """The sessions of a history, in its order; those in which nothing was said are left out."""
    lines = data.decode("utf-8", "replace").split("\n")
    chats = _chats(lines) if _OPENING.search(data) else _inputs(lines)
    read = [chat.recorded() for chat in chats]
    if progress is not None:
        progress(len(data), len(data))
    return tuple(one for one in read if one.items) or tuple(read[:1])


def spoken(text: str) -> str:
    """What a user's input says to the model; nothing where it was a command to aider."""
    stripped = text.strip()
    if not stripped.startswith(("/", "!")):
        return text
    command, _, rest = stripped.partition(" ")
    return rest.strip() if command in _SPOKEN_COMMANDS else ""


def _chats(lines: list[str]) -> Iterator[_Chat]:
    chat = _Chat(session_id="aider", started_at=None)
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        own = line.rstrip("\r").endswith("  ")
        when = line.removeprefix(_STARTED).strip()
        if line.startswith(_STARTED) and _instant(when) is not None:
            yield chat
            count = seen[when] = seen.get(when, 0) + 1
            name = f"aider {when}" if count == 1 else f"aider {when} ({count})"
            chat = _Chat(session_id=name, started_at=_instant(when))
        elif own and line.startswith(_SAID):
            chat.take("user", line.removeprefix(_SAID).removeprefix(" ").rstrip(), number)
        elif own and (line.startswith("> ") or line.rstrip() == ">"):
            chat.end()
        elif chat.role == "assistant" or (line.strip() and line.strip("-") != ""):
            chat.take("assistant", line.rstrip("\r"), number)
        else:
            chat.end()
    yield chat


def _inputs(lines: list[str]) -> Iterator[_Chat]:
    chat = _Chat(session_id=INPUT_SESSION, started_at=None)
    for number, line in enumerate(lines, 1):
        if line.startswith("# "):
            chat.end()
            chat.started_at = _instant(line[2:].strip()) or chat.started_at
        elif line.startswith("+"):
            chat.take("user", line[1:], number)
    yield chat


def _instant(when: str) -> float | None:
    try:
        return datetime.fromisoformat(when).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
