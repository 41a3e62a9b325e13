"""A response of OpenAI's Responses API out of its stream's events, and what a response says.

Owns the events of that wire. Always holds: the reply is the response that its last event
carries; where a server leaves the output out of that, the items that it finished before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from recollect.providers.streaming import Heard, Wire
from recollect.values.model import CallStarted, ReplyEvent, StopReason, TextDelta, ThinkingDelta

_ENDS: Final = frozenset({"response.completed", "response.incomplete"})
_TEXT: Final = frozenset({"response.output_text.delta", "response.refusal.delta"})
_THINKING: Final = frozenset(
    {"response.reasoning_text.delta", "response.reasoning_summary_text.delta"}
)
_CALLS: Final = frozenset({"function_call", "custom_tool_call"})
_INCOMPLETE: Final[Mapping[str, StopReason]] = {
    "max_output_tokens": "length",
    "max_tokens": "length",
    "content_filter": "refusal",
}


class ResponsesAssembling:
    """One response."""

    def __init__(self) -> None:
        self._items: dict[int, Any] = {}
        self._response: Mapping[str, Any] | None = None

    @property
    def complete(self) -> bool:
        """The event that carries the whole response was seen."""
        return self._response is not None

    def take(self, event: Mapping[str, Any]) -> Iterator[ReplyEvent]:
        """What this event adds."""
        kind = event.get("type")
        delta = event.get("delta")
        if kind in _TEXT and isinstance(delta, str) and delta:
            yield TextDelta(text=delta)
        elif kind in _THINKING and isinstance(delta, str) and delta:
            yield ThinkingDelta(text=delta)
        elif kind == "response.output_item.added":
            item = _mapping(event.get("item"))
            if item.get("type") in _CALLS:
                yield CallStarted(id=_call_id(item), name=str(item.get("name", "")))
        elif kind == "response.output_item.done":
            at = event.get("output_index")
            self._items[at if isinstance(at, int) else len(self._items)] = event.get("item")
        elif kind in _ENDS:
            self._response = _mapping(event.get("response"))

    def reply(self) -> Mapping[str, Any] | None:
        """The response; None before its last event."""
        if self._response is None or self._response.get("output"):
            return self._response
        return {**self._response, "output": [self._items[at] for at in sorted(self._items)]}


def hear_responses(reply: Mapping[str, Any]) -> Heard | None:
    """What a response says; None where it is none."""
    output = reply.get("output")
    if not isinstance(output, list):
        return None
    items = [_mapping(item) for item in output]
    parts = [part for item in items if item.get("type") == "message" for part in _list(item)]
    refusals = [str(part.get("refusal", "")) for part in parts if part.get("type") == "refusal"]
    text = "".join(str(part.get("text", "")) for part in parts if part.get("type") == "output_text")
    calls = tuple(
        (_call_id(item), str(item.get("name", ""))) for item in items if item.get("type") in _CALLS
    )
    reason = _mapping(reply.get("incomplete_details")).get("reason")
    status = reply.get("status")
    return Heard(
        text=text or "".join(refusals),
        thinking=_thinking(items),
        calls=calls,
        stop=_stop(status, reason, refused=bool(refusals), called=bool(calls)),
        said_stop=str(reason or status) if reason or status else None,
    )


RESPONSES_WIRE: Final = Wire(
    path="/responses",
    assemble=ResponsesAssembling,
    hear=hear_responses,
    error_events=frozenset({"error", "response.failed", "response.cancelled"}),
)


def _stop(status: Any, reason: Any, *, refused: bool, called: bool) -> StopReason:
    if status == "incomplete":
        return _INCOMPLETE.get(str(reason), "other")
    if status not in ("completed", None):
        return "other"
    if refused:
        return "refusal"
    return "tool-calls" if called else "stop"


def _thinking(items: list[Mapping[str, Any]]) -> str:
    """What is shown of the reasoning: its text where there is one, else its summary."""
    said = []
    for item in items:
        if item.get("type") == "reasoning":
            parts = _list(item) or _list(item, "summary")
            said += [str(part.get("text", "")) for part in parts]
    return "".join(said)


def _list(item: Mapping[str, Any], name: str = "content") -> list[Mapping[str, Any]]:
    parts = item.get(name)
    return [_mapping(part) for part in parts] if isinstance(parts, list) else []


def _call_id(item: Mapping[str, Any]) -> str:
    return str(item.get("call_id") or item.get("id") or "")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
