"""Chat models of Anthropic's Messages API, and of servers that implement it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

from recollect.adapters.providers.calls import Body
from recollect.adapters.providers.chat_model import HttpChatModel, ParsedReply, ReplyWire
from recollect.core.formats.anthropic import AnthropicAssembling
from recollect.core.formats.blocks import mappings
from recollect.core.formats.json_text import encode
from recollect.core.values.model import Answer, Prompt, StopReason

_VERSION: Final = "2023-06-01"
_ANSWER_TOOL: Final = "answer"
_STOPS: Final[Mapping[str, StopReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool-calls",
    "refusal": "refusal",
}


def _parse(reply: Mapping[str, Any]) -> ParsedReply | None:
    content = reply.get("content")
    if reply.get("role") != "assistant" or not isinstance(content, list):
        return None
    blocks = mappings(content)
    stop = reply.get("stop_reason")
    return ParsedReply(
        text="".join(str(block.get("text", "")) for block in _of_type(blocks, "text")),
        thinking="".join(str(block.get("thinking", "")) for block in _of_type(blocks, "thinking")),
        calls=tuple(
            (str(block.get("id", "")), str(block.get("name", "")))
            for block in _of_type(blocks, "tool_use")
        ),
        stop=_STOPS.get(str(stop), "other"),
        stop_word=stop if isinstance(stop, str) else None,
    )


def _of_type(blocks: list[Mapping[str, Any]], kind: str) -> list[Mapping[str, Any]]:
    return [block for block in blocks if block.get("type") == kind]


class AnthropicModel(HttpChatModel):
    """A `ChatModel` of the Messages API. Close the model in the event loop that used it."""

    format: Final = "anthropic"
    wire: ClassVar[ReplyWire] = ReplyWire(
        provider="anthropic",
        path="/messages",
        own_url="https://api.anthropic.com/v1",
        key_hint="Anthropic needs a key: set ANTHROPIC_API_KEY, or give another URL",
        assemble=AnthropicAssembling,
        parse=_parse,
        error_events=frozenset({"error"}),
    )

    async def ask(self, prompt: Prompt) -> Answer:
        """Send one prompt and return the answer. If the prompt has a schema, a forced tool call
        returns the answer as JSON."""
        reply, answer = await self._ask(Body(fields=self.prompt_fields(prompt)))
        forced_calls = _of_type(mappings(reply.get("content")), "tool_use") if prompt.schema else []
        if not forced_calls:
            return answer
        stop = "stop" if answer.stop == "tool-calls" else answer.stop
        return replace(answer, text=encode(forced_calls[0].get("input")).decode(), stop=stop)

    async def stated_window(self) -> int | None:
        if self._address.is_own:
            window_tokens = None if self._keyless else await self._ask_model_window()
        else:
            window_tokens = await self._ask_model_window() or await self._ask_listed_window()
        return self._remember_window(window_tokens)

    @staticmethod
    def _headers(key: str) -> dict[str, str]:
        return {"anthropic-version": _VERSION, **({"x-api-key": key} if key else {})}

    def prompt_fields(self, prompt: Prompt) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            "max_tokens": prompt.max_output_tokens,
            "messages": [{"role": "user", "content": prompt.text}],
        }
        if prompt.system:
            body["system"] = prompt.system
        if prompt.schema is not None:
            body["tools"] = [
                {
                    "name": _ANSWER_TOOL,
                    "description": "Give the answer through this tool.",
                    "input_schema": prompt.schema,
                }
            ]
            body["tool_choice"] = {
                "type": "tool",
                "name": _ANSWER_TOOL,
                "disable_parallel_tool_use": True,
            }
        return body
