"""Models of OpenAI's Responses API, and of servers that speak it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Literal

from recollect.errors import ModelRefused
from recollect.providers.addresses import read_address
from recollect.providers.calls import Body, Calls
from recollect.providers.keys import bearer, sendable
from recollect.providers.openai_chat import OPENAI_URL
from recollect.providers.retries import Retries
from recollect.providers.schemas import named_schema
from recollect.providers.streaming import ask_whole, stream_whole
from recollect.providers.windows import ask_window
from recollect.providers.wires import RESPONSES_WIRE
from recollect.values.model import Answer, Prompt, ReplyEvent


class OpenAIResponsesModel:
    """A `ChatModel` behind the Responses API; close it in the event loop that used it."""

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
        self._address = read_address(base_url, own=OPENAI_URL)
        keyed = bearer(key)
        self._keyless = not keyed
        self._calls = Calls(
            address=self._address,
            headers={**keyed, **sendable(headers)},
            deadline_seconds=deadline_seconds,
            retries=retries,
        )

    @property
    def name(self) -> str:
        """The model's name, as its provider knows it."""
        return self._model

    @property
    def format(self) -> Literal["openai-responses"]:
        """The wire format of its requests and replies."""
        return "openai-responses"

    @property
    def window_tokens(self) -> int | None:
        """Its window, as given, or as `stated_window` found it."""
        return self._window

    def __repr__(self) -> str:
        return f"OpenAIResponsesModel({self._model!r} at {self._address.shown})"

    async def ask(self, prompt: Prompt) -> Answer:
        """The answer to one prompt; under a schema the answer is JSON text."""
        self._check_key()
        body = Body(fields=_body(self._model, prompt))
        _, answer = await ask_whole(self._calls, RESPONSES_WIRE, body, self._window)
        return answer

    async def stream(self, request: Mapping[str, Any]) -> AsyncGenerator[ReplyEvent, None]:
        """Send a request of this format; closing the iterator aborts it."""
        self._check_key()
        body = Body(fields={**request, "stream": True})
        events = stream_whole(self._calls, RESPONSES_WIRE, body, self._window)
        async with aclosing(events):
            async for event in events:
                yield event

    async def stated_window(self) -> int | None:
        """The window that the server states for this model; OpenAI itself states none."""
        if self._address.own:
            return None
        stated = await ask_window(self._calls, self._address, self._model)
        self._window = self._window or stated
        return stated

    async def close(self) -> None:
        """Give back connections."""
        await self._calls.close()

    def _check_key(self) -> None:
        if self._keyless and self._address.own:
            raise ModelRefused("OpenAI needs a key: set OPENAI_API_KEY, or give another URL")


def _body(model: str, prompt: Prompt) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": model,
        "input": [{"role": "user", "content": prompt.text}],
        "max_output_tokens": prompt.max_output_tokens,
        "store": False,  # our own prompts are not to be kept by the provider
    }
    if prompt.system:
        body["instructions"] = prompt.system
    if prompt.schema is not None:
        body["text"] = {"format": {"type": "json_schema", **named_schema(prompt.schema)}}
    return body
