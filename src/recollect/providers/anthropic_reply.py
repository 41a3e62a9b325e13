"""An Anthropic message out of its stream's events, and what a message says.

Owns Anthropic's events. Always holds: the message is the one that the provider would have sent
without streaming: blocks in their order, signatures whole, inputs of calls parsed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from recollect.errors import FormatError
from recollect.formats.json_spans import decode
from recollect.providers.streaming import Heard, Wire
from recollect.values.model import CallStarted, ReplyEvent, StopReason, TextDelta, ThinkingDelta

_STOPS: Final[Mapping[str, StopReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool-calls",
    "refusal": "refusal",
}
_BROKEN_INPUT: Final = "INVALID_JSON"
"""Holds an input that was cut off: the provider's own advice for sending such a call back."""


class AnthropicAssembling:
    """One message."""

    def __init__(self) -> None:
        self._message: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, str] = {}
        self._complete = False

    @property
    def complete(self) -> bool:
        """`message_stop` was seen."""
        return self._complete

    def take(self, event: Mapping[str, Any]) -> Iterator[ReplyEvent]:
        """What this event adds."""
        kind = event.get("type")
        index = event.get("index")
        at = index if isinstance(index, int) else 0
        if kind == "message_start":
            self._start(_mapping(event.get("message")))
        elif kind == "content_block_start":
            yield from self._start_block(at, dict(_mapping(event.get("content_block"))))
        elif kind == "content_block_delta":
            yield from self._extend(at, _mapping(event.get("delta")))
        elif kind == "message_delta":
            self._settle(event)
        elif kind == "message_stop":
            self._complete = True

    def reply(self) -> Mapping[str, Any] | None:
        """The message; None before its stop reason is known."""
        if self._message.get("stop_reason") is None:
            return None
        for at, written in self._inputs.items():
            self._blocks[at]["input"] = _input(written)
        content = [self._blocks[at] for at in sorted(self._blocks)]
        return {**self._message, "content": content}

    def _start(self, message: Mapping[str, Any]) -> None:
        self._message = {"type": "message", "role": "assistant", **message}
        content = message.get("content")
        for at, block in enumerate(content if isinstance(content, list) else ()):
            self._blocks[at] = dict(_mapping(block))

    def _start_block(self, at: int, block: dict[str, Any]) -> Iterator[ReplyEvent]:
        self._blocks[at] = block
        if block.get("type") == "tool_use":
            yield CallStarted(id=str(block.get("id", "")), name=str(block.get("name", "")))
        yield from _words(block)

    def _extend(self, at: int, delta: Mapping[str, Any]) -> Iterator[ReplyEvent]:
        block = self._blocks.setdefault(at, {"type": "text", "text": ""})
        for name, value in delta.items():
            if name == "partial_json":
                self._inputs[at] = self._inputs.get(at, "") + str(value)
            elif name == "citation":
                block["citations"] = [*(block.get("citations") or ()), value]
            elif name != "type" and isinstance(value, str):
                # text, thinking, signature, and what may come: stretches of a field
                block[name] = str(block.get(name) or "") + value
        yield from _words(delta)

    def _settle(self, event: Mapping[str, Any]) -> None:
        """What is known at the end; counts are of the whole message so far."""
        usage = {**_mapping(self._message.get("usage")), **_said(_mapping(event.get("usage")))}
        further = {key: event[key] for key in event if key not in ("type", "delta", "usage")}
        delta = _mapping(event.get("delta"))
        self._message = {**self._message, **further, **delta, "usage": usage}


def hear_anthropic(reply: Mapping[str, Any]) -> Heard | None:
    """What a message says; None where it is none."""
    content = reply.get("content")
    if reply.get("role") != "assistant" or not isinstance(content, list):
        return None
    blocks = [_mapping(block) for block in content]
    said = reply.get("stop_reason")
    return Heard(
        text="".join(str(block.get("text", "")) for block in blocks if _is(block, "text")),
        thinking="".join(
            str(block.get("thinking", "")) for block in blocks if _is(block, "thinking")
        ),
        calls=tuple(
            (str(block.get("id", "")), str(block.get("name", "")))
            for block in blocks
            if _is(block, "tool_use")
        ),
        stop=_STOPS.get(str(said), "other"),
        said_stop=said if isinstance(said, str) else None,
    )


ANTHROPIC_WIRE: Final = Wire(
    path="/messages",
    assemble=AnthropicAssembling,
    hear=hear_anthropic,
    error_events=frozenset({"error"}),
)


def _words(fields: Mapping[str, Any]) -> Iterator[ReplyEvent]:
    text, thinking = fields.get("text"), fields.get("thinking")
    if text and isinstance(text, str):
        yield TextDelta(text=text)
    if thinking and isinstance(thinking, str):
        yield ThinkingDelta(text=thinking)


def _input(written: str) -> Any:
    if not written.strip():
        return {}
    try:
        return decode(written.encode("utf-8", "surrogatepass"))
    except FormatError:
        return {_BROKEN_INPUT: written}


def _is(block: Mapping[str, Any], kind: str) -> bool:
    return block.get("type") == kind


def _said(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
