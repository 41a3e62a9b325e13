"""The three models against a real server, and how tests read them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from tests.harness.model_server import ModelServer

from recollect.adapters.providers.anthropic import AnthropicModel
from recollect.adapters.providers.openai import OpenAIChatModel, OpenAIResponsesModel
from recollect.core.ports import ChatModel
from recollect.core.values.model import CallStarted, ReplyDone, ReplyEvent, TextDelta, ThinkingDelta
from recollect.system.http import Retries
from recollect.testing.scripted_model import WireName

KEY = "sk-THE-KEY-0123456789"
SECRET = "the patient's name is Ferdinand"
WIRES: tuple[WireName, ...] = ("anthropic", "openai-chat", "openai-responses")
AT_ONCE = Retries(first_seconds=0.01, longest_seconds=0.02)
MODELS: Mapping[WireName, Any] = {
    "anthropic": AnthropicModel,
    "openai-chat": OpenAIChatModel,
    "openai-responses": OpenAIResponsesModel,
}
PATHS: Mapping[WireName, str] = {
    "anthropic": "/v1/messages",
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
}
_T = TypeVar("_T")


def model_at(wire: WireName, server: ModelServer | str, **given: Any) -> Any:
    url = server if isinstance(server, str) else server.url
    given = {"model": "scripted", "key": KEY, "deadline_seconds": 5.0, "retries": AT_ONCE, **given}
    return MODELS[wire](base_url=url, **given)


def request_of(wire: WireName) -> dict[str, Any]:
    said = [{"role": "user", "content": SECRET}]
    if wire == "openai-responses":
        return {"model": "scripted", "input": said}
    body: dict[str, Any] = {"model": "scripted", "messages": said}
    return {**body, "max_tokens": 100} if wire == "anthropic" else body


async def streamed(model: ChatModel, request: Mapping[str, Any]) -> list[ReplyEvent]:
    return [event async for event in model.stream(request)]


def using(model: ChatModel, work: Callable[[], Awaitable[_T]]) -> _T:
    """What the work gives, in an event loop of its own, the model closed at its end."""

    async def run() -> _T:
        try:
            return await work()
        finally:
            await model.close()

    return asyncio.run(run())


def run_stream(wire: WireName, server: ModelServer | str, **given: Any) -> list[ReplyEvent]:
    model = model_at(wire, server, **given)
    return using(model, lambda: streamed(model, request_of(wire)))


def text_of(events: list[ReplyEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def thinking_of(events: list[ReplyEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, ThinkingDelta))


def calls_of(events: list[ReplyEvent]) -> list[tuple[str, str]]:
    return [(event.id, event.name) for event in events if isinstance(event, CallStarted)]


def done_of(events: list[ReplyEvent]) -> ReplyDone:
    *before, last = events
    assert isinstance(last, ReplyDone)
    assert not any(isinstance(event, ReplyDone) for event in before)
    return last
