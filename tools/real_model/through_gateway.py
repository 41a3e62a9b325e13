"""A real model behind the gateway, and the official `openai` client before it.

The client only knows a base URL, sends its whole history every time and streams. llama.cpp refuses
what is over its window; a relay between the gateway and it keeps what was sent.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from recollect.hosts.gateway.running import BackgroundGateway
from recollect.system.config import load_settings
from recollect_bench.llama_server import LlamaServer
from tools.clients.hop import RecordingHop
from tools.real_model.script import plan_conversation

TURN_TOKENS: Final = (500, 800, 650)
REPLY_TOKENS: Final = 16
CALL_SECONDS: Final = 900.0
"""For a reply of a small model on a machine that is busy with other things."""
_SYSTEM: Final = {"role": "system", "content": "You are a helpful colleague. Answer briefly."}


@dataclass(slots=True, kw_only=True)
class GatewayTalk:
    """What a conversation through the gateway came to."""

    window_tokens: int
    turns: int = 0
    said_tokens: int = 0
    """What user and model said, as the model counts it."""
    largest_tokens: int = 0
    """Of a request with its reply, as the server counts them."""
    overflows: int = 0
    """Requests that the server refused for their size, unseen by the client."""
    shaped: int = 0
    """Requests that left the gateway otherwise than they came."""
    pieces: int = 0
    """In which replies came."""
    planted_asked: int = 0
    planted_there: int = 0
    errors: list[str] = field(default_factory=list)
    """What reached the client that was no answer."""
    seconds: float = 0.0

    @property
    def faults(self) -> list[str]:
        """What the run did not show, one sentence each."""
        said = [
            (bool(self.errors), f"errors reached the client: {self.errors[:3]}"),
            (self.largest_tokens > self.window_tokens, "a request was over the window"),
            (self.said_tokens <= self.window_tokens, "all that was said fits the window"),
            (not self.shaped, "no request was shaped"),
            (self.pieces <= self.turns, "the replies did not stream"),
            (not self.planted_asked, "nothing was asked for"),
        ]
        return [one for is_so, one in said if is_so]

    def as_json(self) -> dict[str, Any]:
        """The figures and the faults."""
        return {"run": "real-model-gateway", "figures": asdict(self), "faults": self.faults}


def converse_through_gateway(
    server: LlamaServer,
    folder: Path,
    *,
    tokens: int,
    turn_tokens: Sequence[int] = TURN_TOKENS,
    reply_tokens: int = REPLY_TOKENS,
    tell: Callable[[str], None] = lambda _: None,
) -> GatewayTalk:
    """The whole conversation; what went wrong is in what it came to."""
    import openai

    begun = time.monotonic()
    talk = GatewayTalk(window_tokens=server.window_tokens)
    turns = plan_conversation(tokens, server.count_tokens, turn_tokens=turn_tokens)
    with RecordingHop(server.address) as hop:
        settings = load_settings(
            arguments={
                "gateway.port": 0,
                "gateway.upstream.openai": f"{hop.url}/v1",
                "store.url": str(folder / "memory.db"),
                "window_tokens": server.window_tokens,
                "recall.embedder": "none",
            },
            environment={},
        ).settings
        with (
            BackgroundGateway(settings) as gateway,
            openai.OpenAI(
                base_url=f"{gateway.url}/v1", api_key="none", max_retries=0, timeout=CALL_SECONDS
            ) as client,
        ):
            history: list[Any] = [_SYSTEM]
            for turn in turns:
                talk.turns += 1
                history.append({"role": "user", "content": turn.text})
                talk.said_tokens += server.count_tokens(turn.text)
                try:
                    history.append(
                        {
                            "role": "assistant",
                            "content": _reply(client, history, talk, reply_tokens),
                        }
                    )
                except openai.OpenAIError as error:
                    talk.errors.append(f"turn {talk.turns}: {type(error).__name__}: {error}"[:300])
                    history.pop()
                sent = hop.exchanges()[-1].body.decode()
                talk.planted_asked += len(turn.asks)
                talk.planted_there += sum(one.exact in sent for one in turn.asks)
                tell(f"turn {talk.turns}/{len(turns)}: {talk.said_tokens} tokens said")
            records = gateway.gateway.activity.newest_records(10_000)
            talk.shaped = sum(one.handling == "shaped" for one in records)
            talk.overflows = sum(one.status == 400 for one in hop.exchanges())
    talk.seconds = round(time.monotonic() - begun, 1)
    return talk


def _reply(client: Any, history: list[Any], talk: GatewayTalk, most_tokens: int) -> str:
    """One streamed reply; what it was counted is noted."""
    words = ""
    stream = client.chat.completions.create(
        model="smollm2",
        messages=history,
        max_tokens=most_tokens,
        stream=True,
        stream_options={"include_usage": True},
    )
    for chunk in stream:
        for choice in chunk.choices:
            if choice.delta.content:
                words += choice.delta.content
                talk.pieces += 1
        if chunk.usage is not None:
            talk.said_tokens += chunk.usage.completion_tokens
            talk.largest_tokens = max(talk.largest_tokens, chunk.usage.total_tokens)
    return words or "(nothing)"


def table(talk: GatewayTalk) -> str:
    """The figures to read."""
    rows = [f"{name:<26} {json.dumps(value)}" for name, value in asdict(talk).items()]
    return "\n".join([*rows, *(f"FAULT: {one}" for one in talk.faults)])
