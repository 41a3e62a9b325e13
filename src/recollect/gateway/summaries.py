"""Summaries by the client's own model, with the key of the request that needs them.

Key and model are those of the request that crosses the gateway while the window is full; they are
held in memory, for that request and what it starts, and nowhere else. What is asked for in a day
is bounded.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from recollect.errors import ModelRefused, ModelUnavailable
from recollect.formats.json_text import decode, encode
from recollect.formats.replies import read_usage
from recollect.gateway.replies import decoded
from recollect.gateway.upstream import Family, Headers, OutgoingRequest, Upstreams
from recollect.values.model import Answer, FormatName, Prompt, StopReason

_KEPT_HEADERS: Final = frozenset(
    {"x-api-key", "authorization", "api-key", "anthropic-version", "anthropic-beta"}
    | {"openai-organization", "openai-project", "user-agent", "chatgpt-account-id"}
)
_DAY_SECONDS: Final = 86_400
_PATHS: Final[dict[FormatName, tuple[Family, str]]] = {
    "anthropic": ("anthropic", "/v1/messages"),
    "openai-chat": ("openai", "/v1/chat/completions"),
    "openai-responses": ("openai", "/v1/responses"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossingRequest:
    """Whose key and model a summary is asked with."""

    format: FormatName
    model: str
    headers: Headers = field(repr=False)


crossing: Final[ContextVar[CrossingRequest | None]] = ContextVar("crossing", default=None)
"""Tasks that a request starts see the request that started them."""


def crossing_of(
    format_name: FormatName, model: str | None, headers: Sequence[tuple[str, str]]
) -> CrossingRequest | None:
    """What of a request a summary needs; None where it names no model."""
    if not model or format_name not in _PATHS:
        return None
    kept = [(name, value) for name, value in headers if name.lower() in _KEPT_HEADERS]
    return CrossingRequest(format=format_name, model=model, headers=kept)


class ClientModel:
    """A `Model`: whichever the crossing request talks to."""

    name = ""
    window_tokens: int | None = None

    def __init__(self, upstreams: Upstreams, *, day_tokens: int) -> None:
        self._upstreams = upstreams
        self._day_tokens = day_tokens
        self._day, self._spent = 0, 0

    async def ask(self, prompt: Prompt) -> Answer:
        """The answer of the client's model to one prompt of ours."""
        request = crossing.get()
        if request is None:
            raise ModelUnavailable("no request crosses the gateway whose model could be asked")
        charged = self._charge(prompt)
        family, path = _PATHS[request.format]
        body = encode(_fields(request, prompt))
        headers = [*request.headers, ("content-type", "application/json")]
        reply = await self._upstreams.send(
            OutgoingRequest(family=family, method="POST", target=path, headers=headers, body=body)
        )
        try:
            raw = decoded(await reply.whole(), reply.header("content-encoding"))
        finally:
            reply.close()
        if reply.status >= 500 or reply.status == 429:
            raise ModelUnavailable(f"the client's model answered {reply.status}")
        if reply.status >= 400:
            raise ModelRefused(f"the client's model refused the summary ({reply.status})")
        return self._answer(request.format, decode(raw), charged)

    async def close(self) -> None:
        """The connections are the gateway's."""

    def _charge(self, prompt: Prompt) -> int:
        """Charge what a prompt may take, before it is asked: others may be asked meanwhile."""
        today = int(time.time()) // _DAY_SECONDS
        if today != self._day:
            self._day, self._spent = today, 0
        expected = len(prompt.text) // 4 + prompt.max_output_tokens
        if self._spent + expected > self._day_tokens:
            raise ModelUnavailable(
                f"summaries may take {self._day_tokens:,} tokens a day, and today's are spent: "
                "raise gateway.summary_day_tokens"
            )
        self._spent += expected
        return expected

    def _answer(self, format_name: FormatName, reply: Any, charged: int) -> Answer:
        text, stop = _READERS[format_name](reply if isinstance(reply, dict) else {})
        usage = read_usage(reply)
        if usage is not None:
            self._spent += usage.input_tokens + usage.output_tokens - charged
        return Answer(text=text, stop=stop, usage=usage)


def _fields(request: CrossingRequest, prompt: Prompt) -> dict[str, Any]:
    asked = {"role": "user", "content": prompt.text}
    if request.format == "anthropic":
        return {
            "model": request.model,
            "max_tokens": prompt.max_output_tokens,
            "messages": [asked],
            **({"system": prompt.system} if prompt.system else {}),
        }
    if request.format == "openai-chat":
        system = [{"role": "system", "content": prompt.system}] if prompt.system else []
        most = {"max_completion_tokens": prompt.max_output_tokens}
        return {"model": request.model, "messages": [*system, asked], **most}
    return {
        "model": request.model,
        "input": [asked],
        "max_output_tokens": prompt.max_output_tokens,
        "store": False,
        **({"instructions": prompt.system} if prompt.system else {}),
    }


def _anthropic(reply: dict[str, Any]) -> tuple[str, StopReason]:
    blocks = reply.get("content") or []
    text = "".join(block.get("text", "") for block in blocks if block.get("type") == "text")
    return text, "length" if reply.get("stop_reason") == "max_tokens" else "stop"


def _chat(reply: dict[str, Any]) -> tuple[str, StopReason]:
    choice: dict[str, Any] = next(iter(reply.get("choices") or []), {})
    text = (choice.get("message") or {}).get("content") or ""
    return text, "length" if choice.get("finish_reason") == "length" else "stop"


def _responses(reply: dict[str, Any]) -> tuple[str, StopReason]:
    parts = [
        part
        for item in reply.get("output") or []
        if item.get("type") == "message"
        for part in item.get("content") or []
    ]
    text = "".join(part.get("text", "") for part in parts if part.get("type") == "output_text")
    return text, "length" if reply.get("status") == "incomplete" else "stop"


_READERS: Final = {"anthropic": _anthropic, "openai-chat": _chat, "openai-responses": _responses}
