"""Pydantic AI: a capability that adds a memory to every model request of an agent.

    memory = recollect.open_blocking_memory(space="my-project", window_tokens=128_000)
    agent = Agent("openai:gpt-5", capabilities=[RecollectCapability(memory, session="my-session")])

Recollect reads each part of a request, and each response, as one Chat Completions message. The
run's own messages stay complete: Recollect changes only the model's input."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
"""Tool name for a tool result whose call is not part of the request."""


class RecollectCapability(AbstractCapability[Any]):
    """Keeps an agent's requests within the window, and adds relevant memories.

    `session` names the conversation. The default is the run's `conversation_id`. A later run has
    the same id if you pass it the `message_history` of the earlier run.
    """

    def __init__(self, memory: BlockingEngine, session: str | None = None) -> None:
        self.turns: Turns = Turns(memory, "pydantic_ai", "openai-chat")
        self.session = session

    @classmethod
    def get_serialization_name(cls) -> str | None:
        """Return None, because a memory cannot be written into an agent's spec file."""
        return None

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Replace the request's messages by those that Recollect chose."""
        messages = list(request_context.messages)
        shown_messages = await self.turns.ashape(
            self._session(ctx),
            lambda: _request_body(request_context, messages),
            lambda rows: _view(messages, rows),
        )
        if shown_messages is None:
            return request_context
        return replace(request_context, messages=shown_messages)

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
        """Learn the window from a provider's error, and raise this error again."""
        del request_context
        await self.turns.alearn(self._session(ctx), lambda: error)
        raise error

    def _session(self, ctx: RunContext[Any]) -> str:
        return self.session or str(ctx.conversation_id)


def _request_body(context: ModelRequestContext, messages: Sequence[ModelMessage]) -> dict[str, Any]:
    parameters = context.model_request_parameters
    body: dict[str, Any] = {
        "messages": [row for message in messages for _, row in _rows_of(message)],
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
            for tool in (*parameters.function_tools, *parameters.output_tools)
        ],
    }
    system = "\n\n".join(part.content for part in parameters.instruction_parts or ())
    if system:
        body["system"] = system
    longest = (context.model_settings or {}).get("max_tokens")
    if longest:
        body["max_tokens"] = longest
    return body


def _rows_of(message: ModelMessage) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield a message as rows, each with the index of its part. A response is one row. Parts that
    only control the run (available tools, changed instructions) have no row, and are sent with the
    other parts of their request."""
    if isinstance(message, ModelResponse):
        yield 0, _reply_row(message)
        return
    for index, part in enumerate(message.parts):
        if isinstance(part, SystemPromptPart):
            yield index, {"role": "system", "content": part.content}
        elif isinstance(part, UserPromptPart):
            yield index, {"role": "user", "content": _prompt_content(part)}
        elif isinstance(part, ToolReturnPart):
            text = part.model_response_str()
            yield index, {"role": "tool", "tool_call_id": part.tool_call_id, "content": text}
        elif isinstance(part, RetryFeedbackPart):
            yield index, {"role": "user", "content": part.model_response()}
        elif part.part_kind == "retry-prompt":
            text = part.model_response()
            if part.tool_name is None:
                yield index, {"role": "user", "content": text}
            else:
                yield index, {"role": "tool", "tool_call_id": part.tool_call_id, "content": text}


def _prompt_content(part: UserPromptPart) -> str | list[dict[str, Any]]:
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


def _reply_row(message: ModelResponse) -> dict[str, Any]:
    row: dict[str, Any] = {"role": "assistant", "content": _reply_content(message.parts)}
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


def _reply_content(parts: Sequence[ModelResponsePart]) -> str | list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, TextPart):
            blocks.append({"type": "text", "text": part.content})
        elif not isinstance(part, ThinkingPart | ToolCallPart):
            content = getattr(part, "content", None) or getattr(part, "args", None)
            blocks.append(
                {"type": part.part_kind, "held": json.loads(json.dumps(content, default=str))}
            )
    if all(block["type"] == "text" for block in blocks):
        return "".join(block["text"] for block in blocks)
    return blocks


@dataclass(slots=True)
class _Shown:
    """One message of the view: a reply, or a request joined from its parts."""

    source: int | None
    """Index of the original message; None if Recollect added this message."""
    reply: ModelResponse | None = None
    parts: list[tuple[int | None, ModelRequestPart]] = field(default_factory=list)
    """The request's parts with their indexes; None for a part that Recollect added."""


def _view(messages: Sequence[ModelMessage], rows: Sequence[ShownRow]) -> list[ModelMessage]:
    owners = [
        (message_index, part)
        for message_index, message in enumerate(messages)
        for part, _ in _rows_of(message)
    ]
    view: list[_Shown] = []
    for row in rows:
        message_index, index = (None, None) if row.place is None else owners[row.place]
        source = None if message_index is None else messages[message_index]
        if isinstance(source, ModelResponse):
            view.append(
                _Shown(message_index, _change_reply(source, row.wire) if row.touched else source)
            )
            continue
        if source is None and row.wire["role"] == "assistant":
            text = TextPart(content=_text(row.wire.get("content")))
            view.append(_Shown(None, ModelResponse(parts=[text])))
            continue
        is_open = bool(view) and view[-1].reply is None
        if not is_open or (
            message_index is not None and view[-1].source not in (None, message_index)
        ):
            view.append(_Shown(None))
        if source is None or index is None:
            part = _new_part(row.wire, messages)
        else:
            view[-1].source = message_index
            part = source.parts[index]
            part = _change_part(part, row.wire) if row.touched else part
        view[-1].parts.append((index, part))
    with_rows = {message_index for message_index, _ in owners}
    without_rows = [
        message_index for message_index in range(len(messages)) if message_index not in with_rows
    ]
    shown_messages: list[ModelMessage] = []
    for shown_message in view:
        while (
            shown_message.source is not None
            and without_rows
            and without_rows[0] < shown_message.source
        ):
            shown_messages.append(messages[without_rows.pop(0)])
        shown_messages.append(shown_message.reply or _request_of(shown_message, messages))
    return [*shown_messages, *(messages[message_index] for message_index in without_rows)]


def _new_part(wire: Mapping[str, Any], messages: Sequence[ModelMessage]) -> ModelRequestPart:
    text = _text(wire.get("content"))
    if wire["role"] != "tool":
        return UserPromptPart(content=text)
    call = str(wire["tool_call_id"])
    replies = (message for message in messages if isinstance(message, ModelResponse))
    calls = (part for reply in replies for part in reply.parts if isinstance(part, ToolCallPart))
    name = next((part.tool_name for part in calls if part.tool_call_id == call), _UNNAMED)
    return ToolReturnPart(tool_name=name, content=text, tool_call_id=call)


def _request_of(shown_message: _Shown, messages: Sequence[ModelMessage]) -> ModelRequest:
    if shown_message.source is None:
        return ModelRequest(parts=[part for _, part in shown_message.parts])
    source = messages[shown_message.source]
    assert isinstance(source, ModelRequest)
    parts = list(_with_steering(source, shown_message.parts))
    is_unchanged = len(parts) == len(source.parts) and all(
        new_part is source_part for new_part, source_part in zip(parts, source.parts, strict=True)
    )
    return source if is_unchanged else replace(source, parts=parts)


def _with_steering(
    source: ModelRequest, pieces: Sequence[tuple[int | None, ModelRequestPart]]
) -> Iterator[ModelRequestPart]:
    rows = {index for index, _ in _rows_of(source)}
    steering = [index for index in range(len(source.parts)) if index not in rows]
    for index, part in pieces:
        while index is not None and steering and steering[0] < index:
            yield source.parts[steering.pop(0)]
        yield part
    for index in steering:
        yield source.parts[index]


def _change_part(part: ModelRequestPart, wire: Mapping[str, Any]) -> ModelRequestPart:
    content = wire.get("content")
    if part.part_kind == "tool-return" and type(part) is ToolReturnPart:
        return replace(part, content=_text(content))  # type: ignore[arg-type]
    if isinstance(part, SystemPromptPart):
        return replace(part, content=_text(content))
    if isinstance(part, UserPromptPart):
        if isinstance(content, str) or isinstance(part.content, str):
            return replace(part, content=_text(content))
        item_by_block = {json.dumps(_block(item), sort_keys=True): item for item in part.content}
        items = [
            item_by_block.get(json.dumps(block, sort_keys=True), _text([block]))
            for block in content or ()
        ]
        return replace(part, content=items)
    return part


def _change_reply(source: ModelResponse, wire: Mapping[str, Any]) -> ModelResponse:
    calls = {call.get("id") for call in wire.get("tool_calls") or ()}
    same_words = (wire.get("content") or "") == _reply_content(source.parts)
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
    return chat_reply(_reply_row(response), usage if used.input_tokens else None)
