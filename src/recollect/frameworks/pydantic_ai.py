"""Pydantic AI: a capability that adds a memory to every model request of an agent.

    memory = recollect.open_blocking_memory(space="my-project", window_tokens=128_000)
    agent = Agent("openai:gpt-5", capabilities=[RecollectCapability(memory, session="my-session")])

Recollect reads each part of a request, and each response, as one Chat Completions message. The
run's own messages stay complete: only the model's input is shaped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NoReturn

from recollect.core.blocking import BlockingEngine
from recollect.errors import MissingExtra
from recollect.frameworks.turns import ShownRow, Turns, chat_reply

try:
    from pydantic_ai import RunContext
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.messages import (
        BinaryContent,
        CachePoint,
        ImageUrl,
        ModelMessage,
        ModelRequest,
        ModelRequestPart,
        ModelResponse,
        ModelResponsePart,
        RetryFeedbackPart,
        SystemPromptPart,
        TextContent,
        TextPart,
        ThinkingPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )
    from pydantic_ai.models import ModelRequestContext
except ImportError as _error:
    raise MissingExtra(feature="the capability for Pydantic AI", extra="pydantic-ai") from _error

_UNNAMED: Final = "tool"
"""Tool name of a placeholder result whose call is not shown."""


class RecollectCapability(AbstractCapability[Any]):
    """Keeps an agent's requests within the window, and adds relevant memories.

    `session` names the conversation. The default is the run's `conversation_id`. A later run has
    the same id if you pass it the `message_history` of the earlier run.
    """

    def __init__(self, memory: BlockingEngine, session: str | None = None) -> None:
        self.turns: Turns = Turns(memory, "pydantic_ai")
        self.session = session

    @classmethod
    def get_serialization_name(cls) -> str | None:
        """Return None: a memory cannot be written into a spec."""
        return None

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Replace the request's messages by those to send."""
        messages = list(request_context.messages)
        shown = await self.turns.ashaped(
            self._session(ctx),
            lambda: _asked(request_context, messages),
            lambda rows: _View(messages).of(rows),
            format="openai-chat",
        )
        return request_context if shown is None else replace(request_context, messages=shown)

    async def after_model_request(
        self,
        ctx: RunContext[Any],
        *,
        request_context: ModelRequestContext,
        response: ModelResponse,
    ) -> ModelResponse:
        """Store the model's response."""
        del request_context
        await self.turns.alearn(self._session(ctx), lambda: _reply(response))
        return response

    async def on_model_request_error(
        self,
        ctx: RunContext[Any],
        *,
        request_context: ModelRequestContext,
        error: Exception,
    ) -> NoReturn:
        """Learn from a provider's error, and raise it again."""
        del request_context
        await self.turns.alearn(self._session(ctx), lambda: error)
        raise error

    def _session(self, ctx: RunContext[Any]) -> str:
        return self.session or str(ctx.conversation_id)


def _asked(context: ModelRequestContext, messages: Sequence[ModelMessage]) -> dict[str, Any]:
    given = context.model_request_parameters
    asked: dict[str, Any] = {
        "messages": [row for message in messages for _, row in _written(message)],
        "model": context.model.model_name,
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description or "",
                    "parameters": tool.parameters_json_schema,
                },
            }
            for tool in (*given.function_tools, *given.output_tools)
        ],
    }
    system = "\n\n".join(part.content for part in given.instruction_parts or ())
    if system:
        asked["system"] = system
    longest = (context.model_settings or {}).get("max_tokens")
    if longest:
        asked["max_tokens"] = longest
    return asked


def _written(message: ModelMessage) -> Iterator[tuple[int, dict[str, Any]]]:
    """Return a message as rows, each with the index of its part. A response is one row. Parts that
    only control the run (available tools, changed instructions) have no row: they are sent with the
    other parts of their request."""
    if isinstance(message, ModelResponse):
        yield 0, _write_reply(message)
        return
    for at, part in enumerate(message.parts):
        if isinstance(part, SystemPromptPart):
            yield at, {"role": "system", "content": part.content}
        elif isinstance(part, UserPromptPart):
            yield at, {"role": "user", "content": _write_content(part)}
        elif isinstance(part, ToolReturnPart):
            text = part.model_response_str()
            yield at, {"role": "tool", "tool_call_id": part.tool_call_id, "content": text}
        elif isinstance(part, RetryFeedbackPart):
            yield at, {"role": "user", "content": part.model_response()}
        elif part.part_kind == "retry-prompt":
            text = part.model_response()
            if part.tool_name is None:
                yield at, {"role": "user", "content": text}
            else:
                yield at, {"role": "tool", "tool_call_id": part.tool_call_id, "content": text}


def _write_content(part: UserPromptPart) -> str | list[dict[str, Any]]:
    if isinstance(part.content, str):
        return part.content
    return [_block(item) for item in part.content if not isinstance(item, CachePoint)]


def _block(item: Any) -> dict[str, Any]:
    if isinstance(item, str | TextContent):
        return {"type": "text", "text": item if isinstance(item, str) else item.content}
    if isinstance(item, ImageUrl):
        return {"type": "image_url", "image_url": {"url": item.url}}
    if isinstance(item, BinaryContent):
        if item.is_image:
            return {"type": "image_url", "image_url": {"url": item.data_uri}}
        return {"type": "file", "file": {"file_data": item.data_uri}}
    return {"type": "file", "file": {"file_data": str(getattr(item, "url", item))}}


def _write_reply(message: ModelResponse) -> dict[str, Any]:
    row: dict[str, Any] = {"role": "assistant", "content": _said(message.parts)}
    thoughts = [part.content for part in message.parts if isinstance(part, ThinkingPart)]
    if any(thoughts):
        row["reasoning_content"] = "\n".join(thoughts)
    calls = [
        {
            "id": part.tool_call_id,
            "type": "function",
            "function": {"name": part.tool_name, "arguments": part.args_as_json_str()},
        }
        for part in message.parts
        if isinstance(part, ToolCallPart)
    ]
    if calls:
        row["tool_calls"] = calls
    return row


def _said(parts: Sequence[ModelResponsePart]) -> str | list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, TextPart):
            blocks.append({"type": "text", "text": part.content})
        elif not isinstance(part, ThinkingPart | ToolCallPart):
            held = getattr(part, "content", None) or getattr(part, "args", None)
            blocks.append({"type": part.part_kind, "held": _plain(held)})
    if all(block["type"] == "text" for block in blocks):
        return "".join(block["text"] for block in blocks)
    return blocks


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=str))


class _View:
    def __init__(self, messages: Sequence[ModelMessage]) -> None:
        self._messages = messages
        self._owners = [
            (at, part) for at, message in enumerate(messages) for part, _ in _written(message)
        ]
        with_rows = {at for at, _ in self._owners}
        self._bare = [at for at in range(len(messages)) if at not in with_rows]
        """Messages without a row. They are sent at their place."""
        self._shown: list[ModelMessage] = []
        self._open: int | None = None
        self._pieces: list[tuple[int | None, ModelRequestPart]] = []
        """Parts of the open message with their places; None for parts that Recollect added."""

    def of(self, rows: Sequence[ShownRow]) -> list[ModelMessage]:
        for row in rows:
            owner = None if row.place is None else self._owners[row.place]
            if owner is None:
                self._take_own(row.wire)
                continue
            source = self._messages[owner[0]]
            if isinstance(source, ModelResponse):
                self._close()
                self._pass(owner[0])
                self._shown.append(_changed_reply(source, row.wire) if row.touched else source)
                continue
            if self._open is not None and self._open != owner[0]:
                self._close()
            if self._open is None:
                self._pass(owner[0])
                self._open = owner[0]
            part = source.parts[owner[1]]
            self._pieces.append((owner[1], _changed(part, row.wire) if row.touched else part))
        self._close()
        self._pass(len(self._messages))
        return self._shown

    def _pass(self, before: int) -> None:
        while self._bare and self._bare[0] < before:
            self._shown.append(self._messages[self._bare.pop(0)])

    def _take_own(self, wire: Mapping[str, Any]) -> None:
        text = _text(wire.get("content"))
        if wire["role"] == "assistant":
            self._close()
            self._shown.append(ModelResponse(parts=[TextPart(content=text)]))
        elif wire["role"] == "tool":
            name = self._tool_name(wire["tool_call_id"])
            made = ToolReturnPart(
                tool_name=name, content=text, tool_call_id=str(wire["tool_call_id"])
            )
            self._pieces.append((None, made))
        else:
            self._pieces.append((None, UserPromptPart(content=text)))

    def _tool_name(self, call: str) -> str:
        replies = (message for message in self._messages if isinstance(message, ModelResponse))
        calls = (part for reply in replies for part in reply.parts)
        named = (part for part in calls if isinstance(part, ToolCallPart))
        return next((part.tool_name for part in named if part.tool_call_id == call), _UNNAMED)

    def _close(self) -> None:
        pieces, self._pieces = self._pieces, []
        at, self._open = self._open, None
        if at is None:
            if pieces:
                self._shown.append(ModelRequest(parts=[part for _, part in pieces]))
            return
        source = self._messages[at]
        assert isinstance(source, ModelRequest)
        parts = list(_with_steering(source, pieces))
        same = len(parts) == len(source.parts) and all(
            mine is theirs for mine, theirs in zip(parts, source.parts, strict=True)
        )
        self._shown.append(source if same else replace(source, parts=parts))


def _with_steering(
    source: ModelRequest, pieces: Sequence[tuple[int | None, ModelRequestPart]]
) -> Iterator[ModelRequestPart]:
    rows = {at for at, _ in _written(source)}
    steering = [at for at in range(len(source.parts)) if at not in rows]
    for at, part in pieces:
        while at is not None and steering and steering[0] < at:
            yield source.parts[steering.pop(0)]
        yield part
    for at in steering:
        yield source.parts[at]


def _changed(part: ModelRequestPart, wire: Mapping[str, Any]) -> ModelRequestPart:
    content = wire.get("content")
    if part.part_kind == "tool-return" and type(part) is ToolReturnPart:
        return replace(part, content=_text(content))  # type: ignore[arg-type]
    if isinstance(part, SystemPromptPart):
        return replace(part, content=_text(content))
    if isinstance(part, UserPromptPart):
        if isinstance(content, str) or isinstance(part.content, str):
            return replace(part, content=_text(content))
        known = {json.dumps(_block(item), sort_keys=True): item for item in part.content}
        items = [
            known.get(json.dumps(block, sort_keys=True), _text([block])) for block in content or ()
        ]
        return replace(part, content=items)
    return part


def _changed_reply(source: ModelResponse, wire: Mapping[str, Any]) -> ModelResponse:
    calls = {call.get("id") for call in wire.get("tool_calls") or ()}
    same_words = (wire.get("content") or "") == _said(source.parts)
    parts: list[ModelResponsePart] = []
    for part in source.parts:
        if isinstance(part, ToolCallPart):
            kept = part.tool_call_id in calls
        elif isinstance(part, ThinkingPart):
            kept = "reasoning_content" in wire
        else:
            kept = same_words or not isinstance(part, TextPart)
        if kept:
            parts.append(part)
    text = _text(wire.get("content"))
    if not same_words and text:
        parts.insert(0, TextPart(content=text))
    return replace(source, parts=parts)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n\n".join(str(block["text"]) for block in content or () if block.get("type") == "text")


def _reply(response: ModelResponse) -> dict[str, Any]:
    used = response.usage
    usage = {"input": used.input_tokens, "output": used.output_tokens}
    if used.cache_read_tokens:
        usage["cache_read"] = used.cache_read_tokens
    return chat_reply(_write_reply(response), usage if used.input_tokens else None)
