"""LangChain: a middleware that adds a memory to every model call of an agent.

    memory = recollect.open_blocking_memory(space="my-project", window_tokens=128_000)
    agent = create_agent(model, tools, middleware=[RecollectMiddleware(memory)])

The agent's state keeps every message; Recollect changes only the model's input. Recollect reads
messages as Chat Completions, whatever the model. LangChain converts messages for each provider."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from recollect.core.blocking import BlockingEngine
from recollect.errors import FormatError, MissingExtra
from recollect.frameworks.turns import ShownRow, Turns, chat_reply

try:
    from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
    from langchain.agents.middleware.types import AgentState, ExtendedModelResponse
    from langchain_core.messages import (
        AIMessage,
        AnyMessage,
        HumanMessage,
        SystemMessage,
        ToolMessage,
        convert_to_openai_messages,
    )
    from langchain_core.utils.function_calling import convert_to_openai_tool
except ImportError as _error:
    raise MissingExtra(feature="the middleware for LangChain", extra="langchain") from _error

ContextT = TypeVar("ContextT")
ResponseT = TypeVar("ResponseT")
_OWN: Mapping[str, type[HumanMessage | AIMessage | SystemMessage]] = {
    "user": HumanMessage,
    "assistant": AIMessage,
    "system": SystemMessage,
}


class RecollectMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """Keeps an agent's requests within the window, and adds relevant memories. `session` names the
    conversation. The default is the `thread_id` in the run's config, so that one agent can serve
    many conversations. Put this middleware last in the list, so that it sees all changes."""

    def __init__(self, memory: BlockingEngine, session: str | None = None) -> None:
        super().__init__()
        self.turns: Turns = Turns(memory, "langchain", "openai-chat")
        self.session = session

    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> ModelResponse[Any] | AIMessage | ExtendedModelResponse[Any]:
        """Call the model with the messages that Recollect chose, in blocking code."""
        session = self._session(request)
        messages = self.turns.shape(
            session, lambda: _request_body(request), lambda rows: _view(request.messages, rows)
        )
        try:
            response = handler(request if messages is None else request.override(messages=messages))
        except Exception as error:
            model_error = error
            self.turns.learn(session, lambda: model_error)
            raise
        self.turns.learn(session, lambda: _reply(response))
        return response

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any] | AIMessage | ExtendedModelResponse[Any]:
        """Call the model with the messages that Recollect chose, in asynchronous code."""
        session = self._session(request)
        messages = await self.turns.ashape(
            session, lambda: _request_body(request), lambda rows: _view(request.messages, rows)
        )
        try:
            response = await handler(
                request if messages is None else request.override(messages=messages)
            )
        except Exception as error:
            model_error = error
            await self.turns.alearn(session, lambda: model_error)
            raise
        await self.turns.alearn(session, lambda: _reply(response))
        return response

    def _session(self, request: ModelRequest[Any]) -> str:
        if self.session is not None:
            return self.session
        running = getattr(request.runtime, "execution_info", None)
        thread = getattr(running, "thread_id", None)
        if thread is None:
            raise ValueError(
                "this conversation has no name: give RecollectMiddleware a `session`, or the run "
                'a thread: config={"configurable": {"thread_id": "..."}}'
            )
        return str(thread)


def _request_body(request: ModelRequest[Any]) -> dict[str, Any]:
    body: dict[str, Any] = {
        "messages": [_row_of(message) for message in request.messages],
        "tools": [convert_to_openai_tool(tool) for tool in request.tools],
    }
    if request.system_message is not None:
        body["system"] = str(request.system_message.text)
    model = request.model
    name = getattr(model, "model_name", None) or getattr(model, "model", None)
    if isinstance(name, str):
        body["model"] = name
    longest = request.model_settings.get("max_tokens") or getattr(model, "max_tokens", None)
    if isinstance(longest, int):
        body["max_tokens"] = longest
    return body


def _row_of(message: AnyMessage) -> dict[str, Any]:
    rows = convert_to_openai_messages([message])
    assert isinstance(rows, list)
    if len(rows) != 1:
        raise FormatError("a user message that contains tool results cannot be edited")
    if isinstance(message, AIMessage) and message.invalid_tool_calls:
        # Invalid calls are also sent to the provider, and have results.
        calls = [
            {
                "type": "function",
                "id": call["id"],
                "function": {"name": call["name"] or "", "arguments": call["args"] or ""},
            }
            for call in message.invalid_tool_calls
        ]
        rows[0]["tool_calls"] = [*rows[0].get("tool_calls", ()), *calls]
    return rows[0]


def _view(messages: Sequence[AnyMessage], rows: Sequence[ShownRow]) -> list[AnyMessage]:
    view_messages: list[AnyMessage] = []
    for row in rows:
        source = None if row.place is None else messages[row.place]
        unchanged = source is not None and not row.touched
        view_messages.append(source if unchanged and source else _message_of(row.wire, source))
    return view_messages


def _message_of(wire: Mapping[str, Any], source: AnyMessage | None) -> AnyMessage:
    content = wire.get("content") or ""
    if wire["role"] == "tool":
        if isinstance(source, ToolMessage):
            return source.model_copy(update={"content": content})
        return ToolMessage(content=content, tool_call_id=wire["tool_call_id"])
    if isinstance(source, AIMessage):
        return _change_reply(source, content, wire)
    if source is not None and not isinstance(source, ToolMessage):
        return source.model_copy(update={"content": content})
    return _OWN.get(wire["role"], HumanMessage)(content=content)


def _change_reply(source: AIMessage, content: Any, wire: Mapping[str, Any]) -> AIMessage:
    calls = {call.get("id") for call in wire.get("tool_calls") or ()}
    raw = {name: value for name, value in source.additional_kwargs.items() if name != "tool_calls"}
    return source.model_copy(
        update={
            "content": content,
            "additional_kwargs": raw,
            "tool_calls": [call for call in source.tool_calls if call["id"] in calls],
            "invalid_tool_calls": [
                call for call in source.invalid_tool_calls if call["id"] in calls
            ],
        }
    )


def _reply(response: ModelResponse[Any] | AIMessage | ExtendedModelResponse[Any]) -> dict[str, Any]:
    if isinstance(response, ExtendedModelResponse):
        response = response.model_response
    if not isinstance(response, AIMessage):
        response = next(message for message in response.result if isinstance(message, AIMessage))
    return chat_reply(_row_of(response), _usage(response))


def _usage(message: AIMessage) -> dict[str, int] | None:
    counts = message.usage_metadata
    if counts is None:
        return None
    usage = {"input": counts["input_tokens"], "output": counts["output_tokens"]}
    read = counts.get("input_token_details", {}).get("cache_read")
    return usage if read is None else {**usage, "cache_read": read}
