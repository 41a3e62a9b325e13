"""Models of Anthropic's Messages API, and of servers that speak it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final, Literal

from recollect.errors import ModelRefused
from recollect.formats.json_text import encode
from recollect.providers.calls import Body, Calls, Retries, checked, read_address, sendable
from recollect.providers.streaming import ANSWER_NAME, ask_model_window, ask_whole, stream_whole
from recollect.providers.wires import ANTHROPIC_WIRE
from recollect.values.model import Answer, Prompt, ReplyEvent

_OWN_URL: Final = "https://api.anthropic.com/v1"
_VERSION: Final = "2023-06-01"


class AnthropicModel:
    """A `ChatModel` behind the Messages API; close it in the event loop that used it."""

    def __init__(
        self,
        *,
        model: str,
        key: str | None = None,
        base_url: str | None = None,
        deadline_seconds: float = 120.0,
        window_tokens: int | None = None,
        headers: Mapping[str, str] | None = None,
        retries: Retries | None = None,
    ) -> None:
        self._model = model
        self._window = window_tokens
        self._address = read_address(base_url, own=_OWN_URL)
        self._keyless = not (key and key.strip())
        keyed = {} if self._keyless else {"x-api-key": checked(key or "")}
        self._calls = Calls(
            address=self._address,
            headers={"anthropic-version": _VERSION, **keyed, **sendable(headers)},
            deadline_seconds=deadline_seconds,
            retries=retries,
        )

    @property
    def name(self) -> str:
        """The model's name, as its provider knows it."""
        return self._model

    @property
    def format(self) -> Literal["anthropic"]:
        """The wire format of its requests and replies."""
        return "anthropic"

    @property
    def window_tokens(self) -> int | None:
        """Its window, as given, or as `stated_window` found it."""
        return self._window

    def __repr__(self) -> str:
        return f"AnthropicModel({self._model!r} at {self._address.shown})"

    async def ask(self, prompt: Prompt) -> Answer:
        """The answer to one prompt; under a schema the answer is JSON text."""
        self._check_key()
        body = Body(fields=_body(self._model, prompt))
        reply, answer = await ask_whole(self._calls, ANTHROPIC_WIRE, body, self._window)
        return answer if prompt.schema is None else _held_to_schema(reply, answer)

    async def stream(self, request: Mapping[str, Any]) -> AsyncGenerator[ReplyEvent, None]:
        """Send a request of this format; closing the iterator aborts it."""
        self._check_key()
        body = Body(fields={**request, "stream": True})
        events = stream_whole(self._calls, ANTHROPIC_WIRE, body, self._window)
        async with aclosing(events):
            async for event in events:
                yield event

    async def stated_window(self) -> int | None:
        """The window that the server states for this model; None where it does not."""
        if not (self._keyless and self._address.own):
            stated = await ask_model_window(self._calls, self._address, self._model)
            self._window = self._window or stated
            return stated
        return None

    async def close(self) -> None:
        """Give back connections."""
        await self._calls.close()

    def _check_key(self) -> None:
        if self._keyless and self._address.own:
            raise ModelRefused("Anthropic needs a key: set ANTHROPIC_API_KEY, or give another URL")


def _body(model: str, prompt: Prompt) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": prompt.max_output_tokens,
        "messages": [{"role": "user", "content": prompt.text}],
    }
    if prompt.system:
        body["system"] = prompt.system
    if prompt.schema is not None:
        told = "Give the answer through this tool."
        tool = {"name": ANSWER_NAME, "description": told, "input_schema": prompt.schema}
        body["tools"] = [tool]
        body["tool_choice"] = {
            "type": "tool",
            "name": ANSWER_NAME,
            "disable_parallel_tool_use": True,
        }
    return body


def _held_to_schema(reply: Mapping[str, Any], answer: Answer) -> Answer:
    """The input of the forced call, as the text that other wires would have answered."""
    for block in reply.get("content", ()):
        if isinstance(block, Mapping) and block.get("type") == "tool_use":
            stop = "stop" if answer.stop == "tool-calls" else answer.stop
            return replace(answer, text=encode(block.get("input")).decode(), stop=stop)
    return answer
