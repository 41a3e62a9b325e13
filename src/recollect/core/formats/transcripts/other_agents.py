"""Sessions of opencode (`opencode export`) and aider (its Markdown history) as chat messages.

opencode: one assistant message per step; a reply marked `summary` replaces the history. aider:
`####` lines are the user's, `> ` lines aider's own, the rest the model's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from recollect.core.formats.json_text import decode, encode
from recollect.core.formats.transcripts.records import tokens_of
from recollect.core.values.model import Usage
from recollect.core.values.transcript import (
    RecordedRequest,
    RecordedSession,
    ShownItems,
    TranscriptItem,
)
from recollect.errors import FormatError

PART_TYPES: Final = frozenset(
    {"text", "reasoning", "file", "tool", "step-start", "step-finish", "snapshot", "patch"}
    | {"agent", "retry", "compaction", "subtask"}
)
ROLES: Final = frozenset({"user", "assistant"})
_ENDED: Final = frozenset({"completed", "error"})


@dataclass(slots=True, kw_only=True)
class _OpencodeSession:
    items: list[TranscriptItem] = field(default_factory=list)
    requests: list[RecordedRequest] = field(default_factory=list)
    context: ShownItems = field(default_factory=ShownItems)
    compactions: int = 0
    model: str | None = None
    passed_over: list[str] = field(default_factory=list)

    def add(self, message: Mapping[str, Any], info: Mapping[str, Any], number: int) -> int:
        self.items.append(
            TranscriptItem(
                raw=encode(message),
                line=number,
                timestamp=_created(info),
                entry_id=str(info.get("id") or "") or None,
                derived=True,
            )
        )
        self.context = self.context.then(len(self.items) - 1)
        return len(self.items) - 1


def read_opencode(data: bytes) -> RecordedSession:
    """Read one session."""
    document = decode(data)
    info, messages = document.get("info"), document.get("messages")
    if not isinstance(info, dict) or not isinstance(messages, list):
        raise FormatError("no session of opencode: it lacks info or messages")
    session = _OpencodeSession()
    for number, row in enumerate(messages, 1):
        about = row.get("info") if isinstance(row, dict) else None
        parts = row.get("parts") if isinstance(row, dict) else None
        if not isinstance(about, dict) or not isinstance(parts, list):
            session.passed_over.append(f"message {number}: without info or parts")
            continue
        _take(about, [part for part in parts if isinstance(part, dict)], number, session)
    return RecordedSession(
        kind="opencode",
        format="openai-chat",
        items=tuple(session.items),
        requests=tuple(session.requests),
        session_id=str(info["id"]) if info.get("id") else None,
        version=str(info["version"]) if info.get("version") else None,
        model=session.model,
        compactions=session.compactions,
        current=session.context,
        passed_over=tuple(session.passed_over),
    )


def _take(
    info: Mapping[str, Any],
    parts: Sequence[Mapping[str, Any]],
    number: int,
    session: _OpencodeSession,
) -> None:
    role = info.get("role")
    for part in parts:
        if part.get("type") not in PART_TYPES:
            kind = part.get("type")
            session.passed_over.append(f"message {number}: a part of unknown type {kind!r}")
    if role == "user":
        if any(part.get("type") == "compaction" for part in parts):
            session.compactions += 1
        text = "\n".join(_texts(parts))
        if text.strip():
            session.add({"role": "user", "content": text}, info, number)
    elif role == "assistant":
        model = info.get("modelID")
        session.model = model if isinstance(model, str) else session.model
        if info.get("summary") is True:
            session.context = ShownItems()
        for step in _steps(parts):
            _take_step(step, info, number, session)
    else:
        session.passed_over.append(f"message {number}: of unknown role {role!r}")


def _steps(parts: Sequence[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    step: list[Mapping[str, Any]] = []
    for part in parts:
        if part.get("type") == "step-start" and step:
            yield step
            step = []
        step.append(part)
    if step:
        yield step


def _take_step(
    parts: Sequence[Mapping[str, Any]],
    info: Mapping[str, Any],
    number: int,
    session: _OpencodeSession,
) -> None:
    text = "\n".join(_texts(parts))
    calls = [part for part in parts if part.get("type") == "tool" and part.get("callID")]
    if not text.strip() and not calls:
        return
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if calls:
        message["tool_calls"] = [_call(part) for part in calls]
    before = session.context
    item = session.add(message, info, number)
    session.requests.append(
        RecordedRequest(shown=before, answered=(item,), usage=_usage(parts, info))
    )
    for part in calls:
        state = part.get("state")
        if isinstance(state, dict) and state.get("status") in _ENDED:
            output = state.get("output") if state["status"] == "completed" else state.get("error")
            result = {"role": "tool", "tool_call_id": part["callID"], "content": str(output or "")}
            session.add(result, info, number)


def _texts(parts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for part in parts:
        text = part.get("text")
        said = not part.get("synthetic") and not part.get("ignored")
        if part.get("type") == "text" and said and isinstance(text, str) and text:
            yield text


def _call(part: Mapping[str, Any]) -> dict[str, Any]:
    state = part.get("state")
    given = state.get("input") if isinstance(state, dict) else None
    function = {"name": str(part.get("tool") or ""), "arguments": encode(given or {}).decode()}
    return {"id": part["callID"], "type": "function", "function": function}


def _usage(parts: Sequence[Mapping[str, Any]], info: Mapping[str, Any]) -> Usage | None:
    ends = [part for part in parts if part.get("type") == "step-finish"]
    tokens = (ends[-1] if ends else info).get("tokens")
    if not isinstance(tokens, dict):
        return None
    cache = tokens.get("cache") if isinstance(tokens.get("cache"), dict) else {}
    read, written = tokens_of(cache or {}, "read"), tokens_of(cache or {}, "write")
    whole = tokens_of(tokens, "input") + read + written
    output = tokens_of(tokens, "output")
    if not whole and not output:
        return None
    return Usage(
        input_tokens=whole, output_tokens=output, cache_read_tokens=read, cache_write_tokens=written
    )


def _created(info: Mapping[str, Any]) -> float | None:
    time = info.get("time")
    created = time.get("created") if isinstance(time, dict) else None
    known = isinstance(created, int | float) and not isinstance(created, bool)
    return created / 1000 if known and created is not None else None


_OPENING = re.compile(rb"^# aider chat started at ", re.MULTILINE)
_INPUT_OPENING = re.compile(rb"\s*# \d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.\d]*\n\+")
_LOOKED_AT_BYTES = 1 << 20
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
        """Add a line to the message of this role."""
        if role != self.role:
            self.end()
            self.role, self.line = role, line
        self.texts.append(text)

    def end(self) -> None:
        """End the current message."""
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


def read_aider(data: bytes) -> tuple[RecordedSession, ...]:
    """The sessions of a history, in its order; those in which nothing was said are left out."""
    lines = data.decode("utf-8", "replace").split("\n")
    chats = _chats(lines) if _OPENING.search(data) else _inputs(lines)
    read = [chat.recorded() for chat in chats]
    return tuple(one for one in read if one.items) or tuple(read[:1])


def spoken(text: str) -> str:
    """The part of a user's input that the model reads; empty for a command to aider."""
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
