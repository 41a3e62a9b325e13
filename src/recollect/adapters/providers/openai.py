"""Chat models of OpenAI's Chat Completions and Responses, also on servers that imitate them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, ClassVar, Final

from recollect.adapters.providers.calls import Body, FieldRefused
from recollect.adapters.providers.chat_model import HttpChatModel, ParsedReply, ReplyWire
from recollect.core.formats.blocks import mapping, mappings
from recollect.core.formats.openai_chat import ChatAssembling, chat_text, chat_thinking
from recollect.core.formats.openai_responses import (
    RESPONSES_CALLS,
    ResponsesAssembling,
    responses_call_id,
)
from recollect.core.values.model import Answer, Prompt, ReplyEvent, StopReason

_OWN_URL: Final = "https://api.openai.com/v1"
_KEY_HINT: Final = "OpenAI needs a key: set OPENAI_API_KEY, or give another URL"
_USAGE: Final = "stream_options"
_NEW_LIMIT_FIELD: Final = "max_completion_tokens"
_OLD_LIMIT_FIELD: Final = "max_tokens"
"""Names of the field that limits the reply. OpenAI's newer models refuse the old name; other
servers know only the old one."""
_CHAT_STOPS: Final[Mapping[str, StopReason]] = {
    "stop": "stop",
    "eos": "stop",
    "length": "length",
    "tool_calls": "tool-calls",
    "function_call": "tool-calls",
    "content_filter": "refusal",
    "refusal": "refusal",
}
_INCOMPLETE: Final[Mapping[str, StopReason]] = {
    "max_output_tokens": "length",
    "max_tokens": "length",
    "content_filter": "refusal",
}


class _OpenAIModel(HttpChatModel):
    @staticmethod
    def _headers(key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"} if key else {}


def _parse_chat(reply: Mapping[str, Any]) -> ParsedReply | None:
    choice = next(iter(mappings(reply.get("choices"))), {})
    message = mapping(choice.get("message"))
    if not message:
        return None
    calls = mappings(message.get("tool_calls"))
    refusal, finish = message.get("refusal"), choice.get("finish_reason")
    stop = _CHAT_STOPS.get(str(finish), "other")
    if refusal:
        stop = "refusal"
    elif calls and stop == "stop":
        # Servers send "stop" also after a forced tool call, and if they know only this reason.
        stop = "tool-calls"
    return ParsedReply(
        text=chat_text(message.get("content")) or (refusal if isinstance(refusal, str) else ""),
        thinking=chat_thinking(message),
        calls=tuple(
            (str(call.get("id", "")), str(mapping(call.get("function")).get("name", "")))
            for call in calls
        ),
        stop=stop,
        stop_word=finish if isinstance(finish, str) else None,
    )


class OpenAIChatModel(_OpenAIModel):
    """A `ChatModel` of Chat Completions. Close the model in the event loop that used it."""

    format: Final = "openai-chat"
    wire: ClassVar[ReplyWire] = ReplyWire(
        provider="openai",
        path="/chat/completions",
        own_url=_OWN_URL,
        key_hint=_KEY_HINT,
        assemble=ChatAssembling,
        parse=_parse_chat,
        error_events=frozenset({"error"}),
    )

    _usage_refused = False
    _learned_limit_field: str | None = None

    @property
    def _limit_field(self) -> str:
        return self._learned_limit_field or (
            _NEW_LIMIT_FIELD if self._address.is_own else _OLD_LIMIT_FIELD
        )

    async def ask(self, prompt: Prompt) -> Answer:
        # A server that expects the other name mentions the newer name in its error.
        doubtful = (_NEW_LIMIT_FIELD,)
        try:
            fields = self.prompt_fields(prompt)
            return (await self._ask(Body(fields=fields, doubtful=doubtful)))[1]
        except FieldRefused:
            other_field = _other_limit_field(self._limit_field)
        fields = {
            other_field if name == self._limit_field else name: value
            for name, value in self.prompt_fields(prompt).items()
        }
        _, answer = await self._ask(Body(fields=fields, doubtful=doubtful))
        self._learned_limit_field = other_field
        return answer

    async def stream(self, request: Mapping[str, Any]) -> AsyncGenerator[ReplyEvent, None]:
        """Send a request in this wire format, and yield the reply as it arrives. Closing the
        iterator aborts the request.

        The request also asks for the token usage, unless the request turns that off or the server
        refused the field. `max_completion_tokens` is renamed to the field that the server knows.
        """
        limit_field, is_settled = self._limit_field, _NEW_LIMIT_FIELD not in request
        while True:
            body = self._streaming_body(request, limit_field=limit_field, is_settled=is_settled)
            try:
                async with aclosing(self._stream(body)) as events:
                    async for event in events:
                        yield event
            except FieldRefused as error:
                if error.name == _NEW_LIMIT_FIELD:
                    limit_field, is_settled = _other_limit_field(limit_field), True
                else:
                    self._usage_refused = True
            else:
                self._learned_limit_field = limit_field
                return

    def _streaming_body(
        self, request: Mapping[str, Any], *, limit_field: str, is_settled: bool
    ) -> Body:
        fields = {
            limit_field if name == _NEW_LIMIT_FIELD else name: value
            for name, value in request.items()
        }
        doubtful = [] if is_settled else [_NEW_LIMIT_FIELD]
        if _USAGE not in request and not self._usage_refused:
            fields[_USAGE] = {"include_usage": True}
            doubtful += [_USAGE, "include_usage"]
        return Body(fields={**fields, "stream": True}, doubtful=tuple(doubtful))

    def prompt_fields(self, prompt: Prompt) -> dict[str, Any]:
        system = [{"role": "system", "content": prompt.system}] if prompt.system else []
        body: dict[str, Any] = {
            "model": self._model,
            self._limit_field: prompt.max_output_tokens,
            "messages": [*system, {"role": "user", "content": prompt.text}],
        }
        if prompt.schema is not None:
            json_schema = _name_schema(prompt.schema)
            body["response_format"] = {"type": "json_schema", "json_schema": json_schema}
        return body


def _other_limit_field(limit_field: str) -> str:
    return _OLD_LIMIT_FIELD if limit_field == _NEW_LIMIT_FIELD else _NEW_LIMIT_FIELD


def _parse_responses(reply: Mapping[str, Any]) -> ParsedReply | None:
    if not isinstance(reply.get("output"), list):
        return None
    items = mappings(reply["output"])
    parts = [
        part
        for item in items
        if item.get("type") == "message"
        for part in mappings(item.get("content"))
    ]
    refusals = [str(part.get("refusal", "")) for part in parts if part.get("type") == "refusal"]
    text = "".join(str(part.get("text", "")) for part in parts if part.get("type") == "output_text")
    calls = tuple(
        (responses_call_id(item), str(item.get("name", "")))
        for item in items
        if str(item.get("type")) in RESPONSES_CALLS
    )
    reason = mapping(reply.get("incomplete_details")).get("reason")
    status = reply.get("status")
    return ParsedReply(
        text=text or "".join(refusals),
        thinking="".join(
            str(part.get("text", ""))
            for item in items
            if item.get("type") == "reasoning"
            for part in mappings(item.get("content")) or mappings(item.get("summary"))
        ),
        calls=calls,
        stop=_responses_stop(status, reason, refused=bool(refusals), called=bool(calls)),
        stop_word=str(reason or status) if reason or status else None,
    )


def _responses_stop(status: Any, reason: Any, *, refused: bool, called: bool) -> StopReason:
    if status == "incomplete":
        return _INCOMPLETE.get(str(reason), "other")
    if status not in ("completed", None):
        return "other"
    if refused:
        return "refusal"
    return "tool-calls" if called else "stop"


class OpenAIResponsesModel(_OpenAIModel):
    """A `ChatModel` of the Responses API. Close the model in the event loop that used it."""

    format: Final = "openai-responses"
    wire: ClassVar[ReplyWire] = ReplyWire(
        provider="openai",
        path="/responses",
        own_url=_OWN_URL,
        key_hint=_KEY_HINT,
        assemble=ResponsesAssembling,
        parse=_parse_responses,
        error_events=frozenset({"error", "response.failed", "response.cancelled"}),
    )

    def prompt_fields(self, prompt: Prompt) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            "input": [{"role": "user", "content": prompt.text}],
            "max_output_tokens": prompt.max_output_tokens,
            "store": False,  # the provider must not store Recollect's own prompts
        }
        if prompt.system:
            body["instructions"] = prompt.system
        if prompt.schema is not None:
            body["text"] = {"format": {"type": "json_schema", **_name_schema(prompt.schema)}}
        return body


def _name_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": "answer", "schema": schema, "strict": is_closed(schema)}


def is_closed(schema: Any) -> bool:
    """Return True if all objects of a schema forbid additional properties and require their own, as
    OpenAI's `strict` needs."""
    if isinstance(schema, list):
        return all(is_closed(item) for item in schema)
    if not isinstance(schema, Mapping):
        return True
    properties = schema.get("properties")
    if schema.get("type") == "object" or isinstance(properties, Mapping):
        required_names = schema.get("required")
        fields = set(properties) if isinstance(properties, Mapping) else set()
        required_set = set(required_names) if isinstance(required_names, list) else set()
        if schema.get("additionalProperties") is not False or required_set != fields:
            return False
    return all(is_closed(value) for value in schema.values())
