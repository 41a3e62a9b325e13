"""A chat completion out of its stream's chunks, and what a completion says.

Owns OpenAI's chunks and the liberties that servers of its wire take with them: calls without an
index or all of one index, reasoning under several names, usage in any chunk, no `[DONE]`.
Always holds: what arrived in pieces is joined, and a field nobody knows is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from recollect.formats.json_spans import encode
from recollect.providers.streaming import Heard, Wire
from recollect.values.model import CallStarted, ReplyEvent, StopReason, TextDelta, ThinkingDelta

_STOPS: Final[Mapping[str, StopReason]] = {
    "stop": "stop",
    "eos": "stop",
    "length": "length",
    "tool_calls": "tool-calls",
    "function_call": "tool-calls",
    "content_filter": "refusal",
    "refusal": "refusal",
}
_WHOLE: Final = frozenset({"role", "id", "type", "index", "name", "format"})
"""Fields that come whole, by some servers in every chunk anew; other strings come in stretches."""
_THINKING: Final = ("reasoning_content", "reasoning")


class ChatAssembling:
    """One completion."""

    def __init__(self) -> None:
        self._top: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}

    @property
    def complete(self) -> bool:
        """Never before the stream says so: the usage comes after the last choice."""
        return False

    def take(self, event: Mapping[str, Any]) -> Iterator[ReplyEvent]:
        """What this chunk adds; events are those of the first choice."""
        for name, value in event.items():
            if name not in ("choices", "object") and value is not None:
                self._top[name] = value
        choices = event.get("choices")
        for given in choices if isinstance(choices, list) else ():
            fields = _mapping(given)
            index = fields.get("index", 0)
            at = index if isinstance(index, int) else 0
            events = list(self._choose(at, fields))
            if at == 0:
                yield from events

    def reply(self) -> Mapping[str, Any] | None:
        """The completion; None where a choice has no end."""
        choices = [self._choices[at] for at in sorted(self._choices)]
        if not choices or any(choice["finish_reason"] is None for choice in choices):
            return None
        for choice in choices:
            for call in choice["message"].get("tool_calls", ()):
                call.pop("index", None)
        return {"object": "chat.completion", **self._top, "choices": choices}

    def _choose(self, at: int, fields: Mapping[str, Any]) -> Iterator[ReplyEvent]:
        message = {"role": "assistant", "content": None}
        empty = {"index": at, "message": message, "finish_reason": None}
        choice = self._choices.setdefault(at, empty)
        for name, value in fields.items():
            if name == "logprobs" and isinstance(value, Mapping):
                choice[name] = dict(choice.get(name) or {})
                _merge(choice[name], value)
            elif name not in ("delta", "message", "index") and value is not None:
                choice[name] = value
        delta = _mapping(fields.get("delta") or fields.get("message"))
        yield from _words(delta)
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            yield from _take_call(choice["message"], _mapping(call))
        _merge(choice["message"], {name: delta[name] for name in delta if name != "tool_calls"})


def hear_chat(reply: Mapping[str, Any]) -> Heard | None:
    """What a completion's first choice says; None where it is no completion."""
    choices = reply.get("choices")
    choice = _mapping(choices[0]) if isinstance(choices, list) and choices else {}
    message = _mapping(choice.get("message"))
    if not message:
        return None
    calls = message.get("tool_calls")
    named = [_mapping(call) for call in calls] if isinstance(calls, list) else []
    refusal = message.get("refusal")
    said = choice.get("finish_reason")
    stop = _STOPS.get(str(said), "other")
    if refusal:
        stop = "refusal"
    elif named and stop == "stop":
        stop = "tool-calls"  # with a forced tool, and from servers that know one reason only
    return Heard(
        text=_text(message.get("content")) or (refusal if isinstance(refusal, str) else ""),
        thinking=_thinking(message),
        calls=tuple(
            (str(call.get("id", "")), str(_mapping(call.get("function")).get("name", "")))
            for call in named
        ),
        stop=stop,
        said_stop=said if isinstance(said, str) else None,
    )


CHAT_WIRE: Final = Wire(
    path="/chat/completions",
    assemble=ChatAssembling,
    hear=hear_chat,
    error_events=frozenset({"error"}),
)


def _take_call(message: dict[str, Any], given: Mapping[str, Any]) -> Iterator[ReplyEvent]:
    calls: list[dict[str, Any]] = message.setdefault("tool_calls", [])
    call = _call_of(calls, given)
    if call is None:
        call = {"index": given.get("index", len(calls)), "id": "", "type": "function"}
        call["function"] = {"name": "", "arguments": ""}
        calls.append(call)
    known = call["function"]["name"]
    _merge(call, {**given, "function": _function(given)})
    if not known and call["function"]["name"]:
        yield CallStarted(id=str(call["id"]), name=str(call["function"]["name"]))


def _call_of(calls: list[dict[str, Any]], given: Mapping[str, Any]) -> dict[str, Any] | None:
    """The call that this stretch goes on with; None where it begins another.

    A new id begins a call even under a known index: some servers number every call 0.
    """
    index, call_id = given.get("index"), given.get("id")
    same = [call for call in calls if index is None or call["index"] == index]
    if not same:
        return None
    last = same[-1]
    return None if call_id and last["id"] and call_id != last["id"] else last


def _function(given: Mapping[str, Any]) -> Mapping[str, Any]:
    function = _mapping(given.get("function"))
    arguments = function.get("arguments")
    if isinstance(arguments, Mapping):
        return {**function, "arguments": encode(arguments).decode()}
    return function


def _merge(into: dict[str, Any], delta: Mapping[str, Any]) -> None:
    for name, value in delta.items():
        had = into.get(name)
        if value is None or (name in _WHOLE and had and not value):
            into.setdefault(name, value)
        elif isinstance(had, str) and isinstance(value, str) and name not in _WHOLE:
            into[name] = had + value
        elif isinstance(had, Mapping) and isinstance(value, Mapping):
            merged = dict(had)
            _merge(merged, value)
            into[name] = merged
        elif isinstance(had, list) and isinstance(value, list):
            into[name] = _joined(had, value)
        else:
            into[name] = value


def _joined(had: list[Any], further: list[Any]) -> list[Any]:
    """Items with an index go on with the item of that index; others are appended."""
    joined = [dict(item) if isinstance(item, Mapping) else item for item in had]
    for item in further:
        index = _mapping(item).get("index")
        begun = [known for known in joined if _mapping(known).get("index") == index]
        if index is not None and begun:
            _merge(begun[-1], item)
        else:
            joined.append(item)
    return joined


def _words(delta: Mapping[str, Any]) -> Iterator[ReplyEvent]:
    thinking = _thinking(delta)
    if thinking:
        yield ThinkingDelta(text=thinking)
    for text in (_text(delta.get("content")), delta.get("refusal")):
        if text and isinstance(text, str):
            yield TextDelta(text=text)


def _thinking(fields: Mapping[str, Any]) -> str:
    """Under whichever name; servers that use both say the same under each."""
    said = (fields.get(name) for name in _THINKING)
    return next((text for text in said if text and isinstance(text, str)), "")


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = [_mapping(part) for part in content] if isinstance(content, list) else []
    return "".join(str(part.get("text", "")) for part in parts if part.get("type") == "text")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
