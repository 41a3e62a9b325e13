"""opencode's sessions as `opencode export` writes them: info, and messages of info and parts.

Its database holds the same objects in rows (`transfer/agent_histories.py` puts them together).
Owns how parts become chat messages: of a user's message what was typed, not what the client added
(`synthetic`) or took out again (`ignored`); of a reply one assistant message a step, and the
outputs of its calls behind it. A compaction is a user's message with a part of that type; the
reply to it, marked `summary`, is what stands for the past from then on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from recollect.core.formats.json_text import decode, encode
from recollect.core.formats.transcripts.records import Progress, tokens_of
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


def read_opencode(data: bytes, *, progress: Progress | None = None) -> RecordedSession:
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
    if progress is not None:
        progress(len(data), len(data))
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
