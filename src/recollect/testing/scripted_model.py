"""A model for tests, without a network: it answers from a script. The model fails on a call that
the script does not expect, and `check` fails if steps are unused. A step is a text, an `Answer`, an
exception to raise, a `ReplyEvent` or a list of them. The script can also be a function of the
prompt (or request) that returns one of these. Provider adapters are not imported, because this
model tests them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from recollect.core.values.model import (
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
from recollect.errors import ModelRefused

WireName: TypeAlias = Literal["anthropic", "openai-chat", "openai-responses"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedCall:
    """A tool call in a scripted reply."""

    id: str
    name: str
    input: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Says:
    """One scripted reply."""

    text: str = field(default="", repr=False)
    thinking: str = field(default="", repr=False)
    calls: Sequence[ScriptedCall] = ()
    stop: StopReason | None = None
    """Reason why the reply stops; None derives it from the content."""
    usage: Usage | None = field(default_factory=lambda: Usage(input_tokens=100, output_tokens=10))
    stretch_chars: int = 4
    """Characters per event in a stream."""
    piece_bytes: int | None = None
    """Send the stream in pieces of this many bytes, even inside a character."""
    delay_seconds: float = 0.0
    """Seconds to wait before the first byte."""
    cut_after_events: int | None = None
    """Close the connection after this many events."""
    hang_after_events: int | None = None
    """Send nothing after this many events. With 0, not even the status is sent."""
    fail_after_events: int | None = None
    """Send the format's error for overload after this many events."""
    id: str = "1"
    """Suffix of the reply's ids on the wire."""

    @property
    def stop_reason(self) -> StopReason:
        """Return the stop reason, given or derived."""
        return self.stop or ("tool-calls" if self.calls else "stop")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fails:
    """A scripted error response."""

    status: int
    body: Any = field(default=None, repr=False)
    """An object is sent as JSON; text and bytes are sent as they are. None sends an error object of
    the format."""
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_seconds: float = 0.0


Given: TypeAlias = str | Answer | Says | BaseException | Sequence[ReplyEvent]
"""What a step returns. A `Says` can also contain thinking and tool calls."""
Step: TypeAlias = Given | Callable[[Any], Given]


class UnexpectedCall(ModelRefused, AssertionError):  # noqa: N818
    """A call for which the script has no step. Reports quote it, like a provider's error."""


class ScriptedModel:
    """A `ChatModel` that follows a script."""

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
        self.requests: list[Mapping[str, Any]] = []
        self.closed: bool = False

    @property
    def name(self) -> str:
        """The name passed to the constructor."""
        return self._name

    @property
    def window_tokens(self) -> int | None:
        """The window passed to the constructor."""
        return self._window

    @property
    def format(self) -> FormatName:
        """The wire format of requests and replies."""
        return self._format

    def __repr__(self) -> str:
        return f"ScriptedModel({self._name!r}, {len(self.prompts)} prompts)"

    async def ask(self, prompt: Prompt) -> Answer:
        """Answer with the next step."""
        self.prompts.append(prompt)
        step_result = await self._next(prompt)
        if isinstance(step_result, Answer):
            return step_result
        says = _says(step_result)
        return Answer(text=says.text, stop=says.stop_reason, usage=says.usage)

    async def stream(self, request: Mapping[str, Any]) -> AsyncGenerator[ReplyEvent, None]:
        """Stream the reply of the next step."""
        self.requests.append(request)
        step_result = await self._next(request)
        if isinstance(step_result, Sequence) and not isinstance(step_result, str):
            for event in step_result:
                yield event
            return
        says = _says(step_result)
        if says.thinking:
            yield ThinkingDelta(text=says.thinking)
        if says.text:
            yield TextDelta(text=says.text)
        for call in says.calls:
            yield CallStarted(id=call.id, name=call.name)
        reply = whole_reply(self._format, says, model=self._name)
        yield ReplyDone(reply=reply, stop=says.stop_reason, usage=says.usage)

    async def close(self) -> None:
        """Set `closed`, because there is nothing else to close."""
        self.closed = True

    def check(self) -> None:
        """Raise AssertionError if steps are unused or a call was not expected."""
        left_steps = 0 if callable(self._steps) else len(self._steps)
        if left_steps or self._unexpected:
            raise AssertionError(
                f"{left_steps} steps of the script were not used, and {self._unexpected} calls "
                "were not expected"
            )

    async def _next(self, prompt: Any) -> Given:
        if self._delay:
            await asyncio.sleep(self._delay)
        if callable(self._steps):
            step: Step = self._steps
        elif self._steps:
            step = self._steps.pop(0)
        else:
            self._unexpected += 1
            raise UnexpectedCall(
                f"the script of {self._name} has no step for this call: add one, or pass a "
                "function, which answers every call"
            )
        step_result = step(prompt) if callable(step) else step
        if isinstance(step_result, BaseException):
            raise step_result
        return step_result


def _says(step_result: Given) -> Says:
    if isinstance(step_result, Says):
        return step_result
    if isinstance(step_result, Answer):
        return Says(text=step_result.text, stop=step_result.stop, usage=step_result.usage)
    text = step_result if isinstance(step_result, str) else ""
    usage = Usage(input_tokens=100, output_tokens=max(1, len(text) // 4))
    return Says(text=text, usage=usage)


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
    """Build the reply as one body, without streaming."""
    if wire == "anthropic":
        return _message(says, model)
    return _completion(says, model) if wire == "openai-chat" else _response(says, model)


def _message(says: Says, model: str) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = []
    if says.thinking:
        signature = "c2lnbmVk" * 3
        blocks.append({"type": "thinking", "thinking": says.thinking, "signature": signature})
    if says.text:
        blocks.append({"type": "text", "text": says.text})
    for call in says.calls:
        tool = {"type": "tool_use", "id": call.id, "name": call.name, "input": dict(call.input)}
        blocks.append(tool)
    return {
        "id": f"msg_{says.id}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": blocks,
        "stop_reason": _ANTHROPIC_STOPS[says.stop_reason],
        "stop_sequence": None,
        "usage": _anthropic_usage(says.usage),
    }


def _completion(says: Says, model: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": says.text or None}
    if says.thinking:
        message["reasoning_content"] = says.thinking
    if says.calls:
        message["tool_calls"] = [_chat_call(call) for call in says.calls]
    finish = _CHAT_STOPS[says.stop_reason]
    completion = {
        "object": "chat.completion",
        "id": f"chatcmpl-{says.id}",
        "created": 1_700_000_000,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
    }
    if says.usage is not None:
        completion["usage"] = _chat_usage(says.usage)
    return completion


def _chat_call(call: ScriptedCall) -> dict[str, Any]:
    arguments = json.dumps(call.input, ensure_ascii=False)
    function = {"name": call.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def _response(says: Says, model: str) -> dict[str, Any]:
    refused = says.stop_reason == "refusal" and bool(says.text)
    cut = says.stop_reason == "length" or (says.stop_reason == "refusal" and not refused)
    reason = "max_output_tokens" if says.stop_reason == "length" else "content_filter"
    return {
        "id": f"resp_{says.id}",
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
        items.append({"id": f"rs_{says.id}", "type": "reasoning", "summary": summary})
    if says.text:
        part: dict[str, Any] = {"type": "output_text", "text": says.text, "annotations": []}
        if refused:
            part = {"type": "refusal", "refusal": says.text}
        message = {"id": f"msg_{says.id}", "type": "message", "role": "assistant"}
        items.append({**message, "status": "completed", "content": [part]})
    for call in says.calls:
        arguments = json.dumps(call.input, ensure_ascii=False)
        item = {"id": f"fc_{call.id}", "type": "function_call", "call_id": call.id}
        items.append({**item, "name": call.name, "arguments": arguments, "status": "completed"})
    return items


def _anthropic_usage(usage: Usage | None) -> dict[str, Any]:
    if usage is None:
        return {}
    cached_tokens = usage.cache_read_tokens + usage.cache_write_tokens
    return {
        "input_tokens": usage.input_tokens - cached_tokens,
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
