"""The cost bench through the gateway: the same conversation over real HTTP, billed at the provider.

Owns the provider, which answers with the conversation's own next messages and reports usage as one
with a prompt cache does, and the translation of recordings into a wire that the gateway serves. The
engine is opened with the bench's own settings, so that what differs is the way through the gateway.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import aiohttp

from recollect.adapters.wiring.memory import open_memory
from recollect.core.engine import Engine
from recollect.core.formats.json_text import encode
from recollect.core.formats.request import split_request
from recollect.core.formats.translate import Speaker, to_wire
from recollect.core.values.model import FormatName
from recollect.errors import RecollectError
from recollect.hosts.gateway.running import BackgroundGateway
from recollect_bench.cost.data import ByteCounter, Conversation, Moment, conversation_of
from recollect_bench.cost.strategies import (
    SECONDS_A_REQUEST,
    Meter,
    NoteTaker,
    NotingModel,
    SteadyClock,
    Tally,
    frame,
    settings_of,
)
from recollect_bench.live.gateway import JsonProvider

SESSION: Final = "replay"
_PATHS: Final[Mapping[FormatName, str]] = {
    "anthropic": "/v1/messages",
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
}


def as_served(conversation: Conversation) -> Conversation:
    """The conversation in a wire that the gateway serves."""
    if conversation.format != "pi":
        return conversation
    messages = [json.loads(row.raw) for row in conversation.rows]
    wire = to_wire(messages, Speaker(format="anthropic", model="replayed"))
    raws = [encode(message) for message in wire.messages]
    return conversation_of(conversation, "anthropic", raws)


class ReplayedProvider(JsonProvider):
    """Bills each request that reaches it, and answers with what the model said then."""

    def __init__(self, conversation: Conversation, meter: Meter) -> None:
        self._conversation = conversation
        self._meter = meter
        self.moment: Moment | None = None
        """The moment that the next request belongs to."""
        super().__init__()

    async def _answer(self, content: bytes) -> tuple[int, dict[str, Any]]:
        moment, meter, wire = self.moment, self._meter, self._conversation.format
        assert moment is not None
        read, whole = meter.tally.read_tokens, meter.tally.sent_tokens
        meter.sent([meter.row(raw) for raw in split_request(content, wire).messages], moment)
        read, whole = meter.tally.read_tokens - read, meter.tally.sent_tokens - whole
        rows = self._conversation.rows
        end = moment.row + 1
        while end < len(rows) and rows[end].role == "assistant":
            end += 1
        said = [json.loads(row.raw) for row in rows[moment.row : end]]
        return 200, _REPLIES[wire](said, read, whole)


def _anthropic(said: Sequence[dict[str, Any]], read: int, whole: int) -> dict[str, Any]:
    return {
        "type": "message",
        "role": "assistant",
        "content": [block for message in said for block in _blocks(message["content"])],
        "stop_reason": "end_turn",
        "usage": {
            "input_tokens": 0,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": whole - read,
            "output_tokens": 1,
        },
    }


def _blocks(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _chat(said: Sequence[dict[str, Any]], read: int, whole: int) -> dict[str, Any]:
    return {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": said[0], "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": whole,
            "completion_tokens": 1,
            "prompt_tokens_details": {"cached_tokens": read},
        },
    }


def _responses(said: Sequence[dict[str, Any]], read: int, whole: int) -> dict[str, Any]:
    return {
        "object": "response",
        "status": "completed",
        "output": list(said),
        "usage": {
            "input_tokens": whole,
            "output_tokens": 1,
            "input_tokens_details": {"cached_tokens": read},
        },
    }


_REPLIES: Final[
    Mapping[FormatName, Callable[[Sequence[dict[str, Any]], int, int], dict[str, Any]]]
] = {"anthropic": _anthropic, "openai-chat": _chat, "openai-responses": _responses}


async def replay_gateway(conversation: Conversation, window_tokens: int) -> Tally:
    """What the engine costs on this conversation behind a gateway, and what it keeps."""
    meter, clock = Meter(conversation), SteadyClock()
    settings = settings_of("recollect", window_tokens)
    with (
        TemporaryDirectory(prefix="recollect-cost-") as folder,
        ReplayedProvider(conversation, meter) as provider,
    ):
        opened: Callable[[str], Engine] = partial(
            _opened, conversation, meter, clock, Path(folder), window_tokens
        )
        upstream = replace(
            settings.gateway.upstream, anthropic=provider.url, openai=f"{provider.url}/v1"
        )
        served = replace(settings.gateway, port=0, upstream=upstream)
        with BackgroundGateway(replace(settings, gateway=served), open_engine=opened) as gateway:
            await _replayed(gateway.url, provider, conversation, clock)
    return meter.tally


def _opened(
    conversation: Conversation,
    meter: Meter,
    clock: SteadyClock,
    folder: Path,
    window_tokens: int,
    space: str,
) -> Engine:
    return open_memory(
        space=space,
        store=folder / "memory.db",
        clock=clock,
        counter=ByteCounter(),
        model=NotingModel(NoteTaker(conversation.naming), meter.asked),
        compact_in_background=False,
        settings=settings_of("recollect", window_tokens),
    )


async def _replayed(
    url: str, provider: ReplayedProvider, conversation: Conversation, clock: SteadyClock
) -> None:
    head, tail = frame(conversation)
    raws = [row.raw for row in conversation.rows]
    headers = {"content-type": "application/json", "x-recollect-session": SESSION}
    async with aiohttp.ClientSession() as http:
        for moment in conversation.moments:
            clock.at += SECONDS_A_REQUEST
            provider.moment = moment
            body = head + b",".join(raws[: moment.row]) + tail
            address = url + _PATHS[conversation.format]
            async with http.post(address, data=body, headers=headers) as reply:
                text = await reply.text()
                if reply.status != 200:
                    raise RecollectError(f"the gateway answered {reply.status}: {text[:300]}")
