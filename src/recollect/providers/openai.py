"""Models of OpenAI's Responses API, and of servers that speak it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Final, Literal

from recollect.errors import ModelRefused
from recollect.providers.calls import (
    Body,
    Calls,
    FieldRefused,
    Retries,
    bearer,
    read_address,
    sendable,
)
from recollect.providers.streaming import ask_whole, ask_window, named_schema, stream_whole
from recollect.providers.wires import CHAT_WIRE, RESPONSES_WIRE
from recollect.values.model import Answer, Prompt, ReplyEvent

# Models of OpenAI's Chat Completions, and of the many servers that speak it.


OPENAI_URL: Final = "https://api.openai.com/v1"
_USAGE: Final = "stream_options"
_OWN_ROOM: Final = "max_completion_tokens"
_OTHERS_ROOM: Final = "max_tokens"
"""Room for the reply: OpenAI's newer models refuse the old name, others know no other."""


class OpenAIChatModel:
    """A `ChatModel` behind Chat Completions; close it in the event loop that used it."""

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
        self._usage_refused = False
        self._room = _OWN_ROOM if self._address.own else _OTHERS_ROOM
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
    def format(self) -> Literal["openai-chat"]:
        """The wire format of its requests and replies."""
        return "openai-chat"

    @property
    def window_tokens(self) -> int | None:
        """Its window, as given, or as `stated_window` found it."""
        return self._window

    def __repr__(self) -> str:
        return f"OpenAIChatModel({self._model!r} at {self._address.shown})"

    async def ask(self, prompt: Prompt) -> Answer:
        """The answer to one prompt; under a schema the answer is JSON text."""
        self._check_key()
        try:
            return await self._ask(prompt, room=self._room)
        except FieldRefused:
            other = _other(self._room)
        answer = await self._ask(prompt, room=other)
        self._room = other
        return answer

    async def stream(self, request: Mapping[str, Any]) -> AsyncGenerator[ReplyEvent, None]:
        """Send a request of this format; closing the iterator aborts it.

        Asks for the usage too, unless the request says otherwise or the server refused it. Room
        for the reply, given as `max_completion_tokens`, goes by the name that the server knows.
        """
        self._check_key()
        room, settled = self._room, _OWN_ROOM not in request
        while True:
            body = self._streamed(request, room=room, settled=settled)
            try:
                told = stream_whole(self._calls, CHAT_WIRE, body, self._window)
                async with aclosing(told) as events:
                    async for event in events:
                        yield event
            except FieldRefused as error:
                if error.name == _OWN_ROOM:
                    room, settled = _other(room), True
                else:
                    self._usage_refused = True
            else:
                self._room = room
                return

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

    async def _ask(self, prompt: Prompt, *, room: str) -> Answer:
        fields = _body(self._model, prompt, room=room)
        # Whichever was sent, a server that wants the other names the newer one.
        body = Body(fields=fields, doubtful=(_OWN_ROOM,))
        _, answer = await ask_whole(self._calls, CHAT_WIRE, body, self._window)
        return answer

    def _streamed(self, request: Mapping[str, Any], *, room: str, settled: bool) -> Body:
        """The request as this server takes it; `settled`: no other name for the room is left."""
        fields = {room if name == _OWN_ROOM else name: value for name, value in request.items()}
        doubtful = [] if settled else [_OWN_ROOM]
        if _USAGE not in request and not self._usage_refused:
            fields[_USAGE] = {"include_usage": True}
            doubtful += [_USAGE, "include_usage"]
        return Body(fields={**fields, "stream": True}, doubtful=tuple(doubtful))

    def _check_key(self) -> None:
        if self._keyless and self._address.own:
            raise ModelRefused("OpenAI needs a key: set OPENAI_API_KEY, or give another URL")


def _other(room: str) -> str:
    return _OTHERS_ROOM if room == _OWN_ROOM else _OWN_ROOM


def _body(model: str, prompt: Prompt, *, room: str) -> dict[str, Any]:
    system = [{"role": "system", "content": prompt.system}] if prompt.system else []
    body: dict[str, Any] = {
        "model": model,
        room: prompt.max_output_tokens,
        "messages": [*system, {"role": "user", "content": prompt.text}],
    }
    if prompt.schema is not None:
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": named_schema(prompt.schema),
        }
    return body


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
        body = Body(fields=_responses_body(self._model, prompt))
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


def _responses_body(model: str, prompt: Prompt) -> dict[str, Any]:
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
