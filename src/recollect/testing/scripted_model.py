"""A model without a network that answers by a script: for tests of what asks models.

It fails on a call that the script does not foresee, and `check` tells the steps that nobody
asked for. A step is a text, an `Answer`, an exception to raise, a `ReplyEvent` or a list of
them for a stream, or a function of the prompt (or request) that gives one of these.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from recollect.values.model import (
    Answer,
    CallStarted,
    FormatName,
    Prompt,
    ReplyDone,
    ReplyEvent,
    StopReason,
    TextDelta,
    ThinkingDelta,
    Usage,
)

# Replies of a model, written once for every wire: the steps of a script.


WireName: TypeAlias = Literal["anthropic", "openai-chat", "openai-responses"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedCall:
    """A tool that the model asks for."""

    id: str
    name: str
    input: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Says:
    """One reply of the model."""

    text: str = field(default="", repr=False)
    thinking: str = field(default="", repr=False)
    calls: Sequence[ScriptedCall] = ()
    stop: StopReason | None = None
    """None: by what is said."""
    usage: Usage | None = field(default_factory=lambda: Usage(input_tokens=100, output_tokens=10))
    stretch_chars: int = 4
    """So many characters in each event of a stream."""
    piece_bytes: int | None = None
    """The stream goes out in pieces of so many bytes, through the middle of characters."""
    delay_seconds: float = 0.0
    """Before the first byte."""
    cut_after_events: int | None = None
    """The connection breaks after so many events."""
    hang_after_events: int | None = None
    """Nothing more comes after so many events; 0: not even a status."""
    fail_after_events: int | None = None
    """The wire's own overloaded error takes the place of what would follow."""

    @property
    def said_stop(self) -> StopReason:
        """Why it stopped."""
        return self.stop or ("tool-calls" if self.calls else "stop")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fails:
    """An error response."""

    status: int
    body: Any = field(default=None, repr=False)
    """An object is sent as JSON, text and bytes as they are; None: the wire's own error object."""
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_seconds: float = 0.0


Given: TypeAlias = str | Answer | Says | BaseException | Sequence[ReplyEvent]
"""What a step gives; a `Says` can also think and call tools."""
Step: TypeAlias = Given | Callable[[Any], Given]


class ScriptedModel:
    """A `ChatModel` that says what it was told to say."""

    def __init__(
        self,
        steps: Iterable[Step] | Callable[[Any], Given] = (),
        *,
        name: str = "scripted",
        window_tokens: int | None = None,
        format: WireName = "anthropic",  # noqa: A002 - as the port names it
        delay_seconds: float = 0.0,
    ) -> None:
        self._steps = steps if callable(steps) else list(steps)
        self._name = name
        self._window = window_tokens
        self._format = format
        self._delay = delay_seconds
        self._unexpected = 0
        self.prompts: list[Prompt] = []
        """Every prompt that was asked, in order."""
        self.requests: list[Mapping[str, Any]] = []
        """Every request that was streamed, in order."""
        self.closed = False

    @property
    def name(self) -> str:
        """The name it was given."""
        return self._name

    @property
    def window_tokens(self) -> int | None:
        """The window it was given."""
        return self._window

    @property
    def format(self) -> FormatName:
        """The wire format of its requests and replies."""
        return self._format

    def __repr__(self) -> str:
        return f"ScriptedModel({self._name!r}, {len(self.prompts)} prompts)"

    async def ask(self, prompt: Prompt) -> Answer:
        """The next step's answer."""
        self.prompts.append(prompt)
        given = await self._next(prompt)
        if isinstance(given, Answer):
            return given
        says = _says(given)
        return Answer(text=says.text, stop=says.said_stop, usage=says.usage)

    async def stream(self, request: Mapping[str, Any]) -> AsyncGenerator[ReplyEvent, None]:
        """The next step's reply, as events."""
        self.requests.append(request)
        given = await self._next(request)
        if isinstance(given, Sequence) and not isinstance(given, str):
            for event in given:
                yield event
            return
        says = _says(given)
        if says.thinking:
            yield ThinkingDelta(text=says.thinking)
        if says.text:
            yield TextDelta(text=says.text)
        for call in says.calls:
            yield CallStarted(id=call.id, name=call.name)
        reply = whole_reply(self._format, says, model=self._name)
        yield ReplyDone(reply=reply, stop=says.said_stop, usage=says.usage)

    async def close(self) -> None:
        """Nothing is open; remembered in `closed`."""
        self.closed = True

    def check(self) -> None:
        """AssertionError where the script and what was asked differ."""
        left = 0 if callable(self._steps) else len(self._steps)
        if left or self._unexpected:
            raise AssertionError(
                f"{left} steps of the script were not asked for, {self._unexpected} calls were "
                "not foreseen"
            )

    async def _next(self, asked: Any) -> Given:
        if self._delay:
            await asyncio.sleep(self._delay)
        if callable(self._steps):
            step: Step = self._steps
        elif self._steps:
            step = self._steps.pop(0)
        else:
            self._unexpected += 1
            raise AssertionError(f"{self._name} was asked once more than its script foresees")
        given = step(asked) if callable(step) else step
        if isinstance(given, BaseException):
            raise given
        return given


def _says(given: Given) -> Says:
    if isinstance(given, Says):
        return given
    if isinstance(given, Answer):
        return Says(text=given.text, stop=given.stop, usage=given.usage)
    text = given if isinstance(given, str) else ""
    usage = Usage(input_tokens=100, output_tokens=max(1, len(text) // 4))
    return Says(text=text, usage=usage)


# How each provider's wire spells a reply, whole or streamed, and its errors.
#
# Written from the wires' descriptions and independent of `recollect.providers`, which it tests:
# never import from there.


Events: TypeAlias = list[tuple[str, Mapping[str, Any]]]
"""Of a stream: the name, empty where the wire has none, and the data."""

_ANTHROPIC_STOPS: Mapping[StopReason, str] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool-calls": "tool_use",
    "refusal": "refusal",
    "other": "pause_turn",
}
_CHAT_STOPS: Mapping[StopReason, str] = {
    "stop": "stop",
    "length": "length",
    "tool-calls": "tool_calls",
    "refusal": "content_filter",
    "other": "other",
}


def whole_reply(wire: WireName, says: Says, *, model: str) -> dict[str, Any]:
    """The reply without streaming."""
    if wire == "anthropic":
        return _message(says, model)
    return _completion(says, model) if wire == "openai-chat" else _response(says, model)


def streamed_reply(wire: WireName, says: Says, *, model: str, usage: bool) -> Events:
    """The same reply as events; `usage`: a chat request asked for it."""
    if wire == "anthropic":
        return list(_message_events(says, model))
    if wire == "openai-chat":
        return list(_chunks(says, model, usage=usage))
    return list(_response_events(says, model))


def error_body(wire: WireName, *, code: str, message: str) -> dict[str, Any]:
    """An error response in the wire's own form."""
    if wire == "anthropic":
        return {"type": "error", "error": {"type": code, "message": message}}
    return {"error": {"message": message, "type": code, "param": None, "code": code}}


def overloaded(wire: WireName) -> tuple[str, Mapping[str, Any]]:
    """The event that tells an error in the midst of a stream."""
    code = "overloaded_error" if wire == "anthropic" else "server_error"
    return error_event(wire, error_body(wire, code=code, message="Overloaded"))


def overflow_body(wire: WireName, *, tokens: int, window: int) -> dict[str, Any]:
    """A request over the window, in the provider's own words."""
    if wire == "anthropic":
        message = f"prompt is too long: {tokens} tokens > {window} maximum"
        return error_body(wire, code="invalid_request_error", message=message)
    if wire == "openai-chat":
        message = (
            f"This model's maximum context length is {window} tokens. However, your messages "
            f"resulted in {tokens} tokens. Please reduce the length of the messages."
        )
    else:
        message = "Your input exceeds the context window of this model. Adjust it and try again."
    return error_body(wire, code="context_length_exceeded", message=message)


def error_event(wire: WireName, body: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """An error body as an event of a stream."""
    if wire == "anthropic":
        return "error", body
    if wire == "openai-chat":
        return "", body
    failed = {"id": "resp_1", "object": "response", "status": "failed", **body, "output": []}
    return "response.failed", {"type": "response.failed", "response": failed}


def stretches(text: str, says: Says) -> list[str]:
    """The text in stretches of the reply's size."""
    size = says.stretch_chars
    return [text[at : at + size] for at in range(0, len(text), size)]


def _message(says: Says, model: str) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = []
    if says.thinking:
        signed = "c2lnbmVk" * 3
        blocks.append({"type": "thinking", "thinking": says.thinking, "signature": signed})
    if says.text:
        blocks.append({"type": "text", "text": says.text})
    for call in says.calls:
        tool = {"type": "tool_use", "id": call.id, "name": call.name, "input": dict(call.input)}
        blocks.append(tool)
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": blocks,
        "stop_reason": _ANTHROPIC_STOPS[says.said_stop],
        "stop_sequence": None,
        "usage": _anthropic_usage(says.usage),
    }


def _message_events(says: Says, model: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    message = _message(says, model)
    begun = {**message, "content": [], "stop_reason": None}
    begun["usage"] = {**message["usage"], "output_tokens": 1}
    yield _named({"type": "message_start", "message": begun})
    yield _named({"type": "ping"})
    for at, block in enumerate(message["content"]):
        yield _named({"type": "content_block_start", "index": at, "content_block": _empty(block)})
        for delta in _block_deltas(block, says):
            yield _named({"type": "content_block_delta", "index": at, "delta": delta})
        yield _named({"type": "content_block_stop", "index": at})
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    usage = {"output_tokens": message["usage"].get("output_tokens", 0)}
    yield _named({"type": "message_delta", "delta": delta, "usage": usage})
    yield _named({"type": "message_stop"})


def _empty(block: Mapping[str, Any]) -> dict[str, Any]:
    cleared = {"text": "", "thinking": "", "signature": "", "input": {}}
    return {name: cleared.get(name, value) for name, value in block.items()}


def _block_deltas(block: Mapping[str, Any], says: Says) -> Iterator[dict[str, Any]]:
    if block["type"] == "tool_use":
        for part in stretches(json.dumps(block["input"], ensure_ascii=False), says):
            yield {"type": "input_json_delta", "partial_json": part}
        return
    kind = block["type"]
    for part in stretches(block[kind], says):
        yield {"type": f"{kind}_delta", kind: part}
    if "signature" in block:
        yield {"type": "signature_delta", "signature": block["signature"]}


def _completion(says: Says, model: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": says.text or None}
    if says.thinking:
        message["reasoning_content"] = says.thinking
    if says.calls:
        message["tool_calls"] = [_chat_call(call) for call in says.calls]
    finish = _CHAT_STOPS[says.said_stop]
    completion = {
        "object": "chat.completion",
        "id": "chatcmpl-1",
        "created": 1_700_000_000,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
    }
    if says.usage is not None:
        completion["usage"] = _chat_usage(says.usage)
    return completion


def _chunks(says: Says, model: str, *, usage: bool) -> Iterator[tuple[str, Mapping[str, Any]]]:
    completion = _completion(says, model)
    top = {name: completion[name] for name in ("id", "created", "model")}
    top["object"] = "chat.completion.chunk"

    def chunk(delta: Mapping[str, Any], finish: str | None = None) -> tuple[str, dict[str, Any]]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return "", {**top, "choices": [choice]}

    yield chunk({"role": "assistant", "content": None})
    for part in stretches(says.thinking, says):
        yield chunk({"reasoning_content": part})
    for part in stretches(says.text, says):
        yield chunk({"content": part})
    for at, call in enumerate(says.calls):
        begun = {**_chat_call(call), "function": {"name": call.name, "arguments": ""}}
        yield chunk({"tool_calls": [{"index": at, **begun}]})
    for at, call in enumerate(says.calls):
        for part in stretches(json.dumps(call.input, ensure_ascii=False), says):
            yield chunk({"tool_calls": [{"index": at, "function": {"arguments": part}}]})
    yield chunk({}, completion["choices"][0]["finish_reason"])
    if usage and says.usage is not None:
        yield "", {**top, "choices": [], "usage": completion["usage"]}


def _chat_call(call: ScriptedCall) -> dict[str, Any]:
    arguments = json.dumps(call.input, ensure_ascii=False)
    function = {"name": call.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def _response(says: Says, model: str) -> dict[str, Any]:
    refused = says.said_stop == "refusal" and bool(says.text)
    cut = says.said_stop == "length" or (says.said_stop == "refusal" and not refused)
    reason = "max_output_tokens" if says.said_stop == "length" else "content_filter"
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1_700_000_000,
        "model": model,
        "status": "incomplete" if cut else "completed",
        "error": None,
        "incomplete_details": {"reason": reason} if cut else None,
        "output": _items(says, refused=refused),
        "usage": _responses_usage(says.usage),
    }


def _items(says: Says, *, refused: bool) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if says.thinking:
        summary = [{"type": "summary_text", "text": says.thinking}]
        items.append({"id": "rs_1", "type": "reasoning", "summary": summary})
    if says.text:
        part: dict[str, Any] = {"type": "output_text", "text": says.text, "annotations": []}
        if refused:
            part = {"type": "refusal", "refusal": says.text}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
        items.append({**message, "content": [part]})
    for call in says.calls:
        arguments = json.dumps(call.input, ensure_ascii=False)
        item = {"id": f"fc_{call.id}", "type": "function_call", "call_id": call.id}
        items.append({**item, "name": call.name, "arguments": arguments, "status": "completed"})
    return items


def _response_events(says: Says, model: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    response = _response(says, model)
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    yield _named({"type": "response.created", "response": begun})
    for at, item in enumerate(response["output"]):
        blank = {"content": [], "summary": [], "arguments": ""}
        added = {name: blank.get(name, value) for name, value in item.items()}
        yield _named({"type": "response.output_item.added", "output_index": at, "item": added})
        place = {"item_id": item["id"], "output_index": at}
        for event in _item_events(item, says):
            yield _named({**place, **event})
        yield _named({"type": "response.output_item.done", "output_index": at, "item": item})
    yield _named({"type": f"response.{response['status']}", "response": response})


def _item_events(item: Mapping[str, Any], says: Says) -> Iterator[Mapping[str, Any]]:
    """What comes between the beginning and the end of an item."""
    if item["type"] == "function_call":
        for piece in stretches(item["arguments"], says):
            yield {"type": "response.function_call_arguments.delta", "delta": piece}
        return
    if item["type"] == "reasoning":
        part, place, whose = item["summary"][0], {"summary_index": 0}, "reasoning_summary_part"
        kind, field = "reasoning_summary_text", "text"
    else:
        part, place, whose = item["content"][0], {"content_index": 0}, "content_part"
        kind, field = ("refusal",) * 2 if "refusal" in part else ("output_text", "text")
    yield {"type": f"response.{whose}.added", **place, "part": {**part, field: ""}}
    for piece in stretches(part[field], says):
        yield {"type": f"response.{kind}.delta", **place, "delta": piece}
    yield {"type": f"response.{kind}.done", **place, field: part[field]}
    yield {"type": f"response.{whose}.done", **place, "part": part}


def _named(event: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    return str(event["type"]), event


def _anthropic_usage(usage: Usage | None) -> dict[str, Any]:
    if usage is None:
        return {}
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    return {
        "input_tokens": usage.input_tokens - cached,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "output_tokens": usage.output_tokens,
    }


def _chat_usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens},
    }


def _responses_usage(usage: Usage | None) -> dict[str, Any] | None:
    if usage is None:
        return None
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cache_read_tokens},
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
