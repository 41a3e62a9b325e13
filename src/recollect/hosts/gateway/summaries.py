"""Summaries that the client's own model writes, with the key of the client's request. The key and
the model's name are in RAM only while the request and its tasks run. A user's gateways share one
daily limit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from recollect.adapters.providers.anthropic import AnthropicModel
from recollect.adapters.providers.chat_model import HttpChatModel
from recollect.adapters.providers.openai import OpenAIChatModel, OpenAIResponsesModel
from recollect.adapters.session.files import hold_lock
from recollect.core.formats.json_text import decode, encode
from recollect.core.formats.replies import read_usage
from recollect.core.values.model import Answer, FormatName, Prompt
from recollect.errors import FormatError, ModelRefused, ModelUnavailable, TranscriptError
from recollect.hosts.gateway.credentials import Headers
from recollect.hosts.gateway.upstream import Family, Upstreams, decompress
from recollect.system.durable import make_folder, replace_file
from recollect.system.places import data_home

_KEPT_HEADERS: Final = frozenset(
    {"x-api-key", "authorization", "api-key", "anthropic-version", "anthropic-beta"}
    | {"openai-organization", "openai-project", "user-agent", "chatgpt-account-id"}
)
LOCK_SECONDS: Final = 2.0
"""Time to wait for another gateway that is writing the shared count of tokens."""
DAY_TOKENS: Final = 1_000_000
"""Tokens per day if jobs.day_tokens is not set, because the client pays for the summaries."""
_ROUTES: Final[dict[FormatName, tuple[Family, str, type[HttpChatModel]]]] = {
    "anthropic": ("anthropic", "/v1/messages", AnthropicModel),
    "openai-chat": ("openai", "/v1/chat/completions", OpenAIChatModel),
    "openai-responses": ("openai", "/v1/responses", OpenAIResponsesModel),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossingRequest:
    """The key and the model of a client's request, with which a summary can be written."""

    format: FormatName
    model: str
    headers: Headers = field(repr=False)


crossing: Final[ContextVar[CrossingRequest | None]] = ContextVar("crossing", default=None)
"""The client's request that started the current task."""


def crossing_of(
    format_name: FormatName, model: str | None, headers: Sequence[tuple[str, str]]
) -> CrossingRequest | None:
    """Return the parts of a request that a summary needs; None if the request names no model."""
    if not model or format_name not in _ROUTES:
        return None
    kept_headers = [(name, value) for name, value in headers if name.lower() in _KEPT_HEADERS]
    return CrossingRequest(format=format_name, model=model, headers=kept_headers)


class DaySpending:
    """Number of tokens that summaries used today, in a file that all gateways of a user share."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or data_home() / "gateway" / "summary_spending.json"
        self._day, self._own_tokens = "", 0

    def charge(self, tokens: int, *, max_tokens: int | None = None) -> bool:
        """Add to today's tokens. If the sum would exceed `most`, add nothing and return False."""
        today = datetime.now(UTC).date().isoformat()
        if today != self._day:
            self._day, self._own_tokens = today, 0
        try:
            make_folder(self._path.parent)
            with hold_lock(self._path.with_suffix(".lock"), seconds=LOCK_SECONDS):
                self._own_tokens = self._read()
                fits = self._add(tokens, max_tokens)
                if fits:
                    replace_file(self._path, encode({"day": today, "tokens": self._own_tokens}))
        except (OSError, TranscriptError):
            return self._add(tokens, max_tokens)
        return fits

    def _add(self, tokens: int, max_tokens: int | None) -> bool:
        fits = max_tokens is None or self._own_tokens + tokens <= max_tokens
        self._own_tokens = max(0, self._own_tokens + tokens) if fits else self._own_tokens
        return fits

    def _read(self) -> int:
        try:
            record = decode(self._path.read_bytes())
        except (FileNotFoundError, FormatError):
            return 0
        known = isinstance(record, dict) and record.get("day") == self._day
        return int(record["tokens"]) if known and isinstance(record.get("tokens"), int) else 0


class ClientModel:
    """A `Model` that asks the model which the current client request names."""

    name = ""
    window_tokens: int | None = None

    def __init__(self, upstreams: Upstreams, *, day_tokens: int | None) -> None:
        self._upstreams = upstreams
        self._day_tokens = day_tokens or DAY_TOKENS
        self._spending = DaySpending()

    async def ask(self, prompt: Prompt) -> Answer:
        """Send one of Recollect's prompts to the client's model."""
        request = crossing.get()
        if request is None:
            raise ModelUnavailable("no client request is open whose model could write the summary")
        charged_tokens = len(prompt.text) // 4 + prompt.max_output_tokens
        # Charge before the call, because other calls may run at the same time.
        if not await asyncio.to_thread(
            self._spending.charge, charged_tokens, max_tokens=self._day_tokens
        ):
            raise ModelUnavailable(
                f"summaries may use {self._day_tokens:,} tokens per day, and today's are used up: "
                "set jobs.day_tokens to a higher number"
            )
        used = 0  # a call without an answer costs nothing
        try:
            answer = await self._send(request, prompt)
            usage = answer.usage
            used = charged_tokens if usage is None else usage.input_tokens + usage.output_tokens
        finally:
            await asyncio.to_thread(self._spending.charge, used - charged_tokens)
        return answer

    async def _send(self, request: CrossingRequest, prompt: Prompt) -> Answer:
        family, path, kind = _ROUTES[request.format]
        body = encode(kind(model=request.model).prompt_fields(prompt))
        headers = [*request.headers, ("content-type", "application/json")]
        reply = await self._upstreams.send(family, "POST", path, headers, body)
        try:
            raw = decompress(await reply.read_whole(), reply.header("content-encoding"))
        finally:
            reply.close()
        if reply.status >= 500 or reply.status == 429:
            raise ModelUnavailable(f"the client's model answered {reply.status}")
        if reply.status >= 400:
            raise ModelRefused(f"the client's model refused the summary ({reply.status})")
        fields = decode(raw)
        parsed_reply = kind.wire.parse(fields) if isinstance(fields, dict) else None
        if parsed_reply is None:
            raise ModelUnavailable("the answer of the client's model cannot be read")
        return Answer(text=parsed_reply.text, stop=parsed_reply.stop, usage=read_usage(fields))

    async def open(self) -> None:
        await self._upstreams.open()

    async def disconnect(self) -> None:
        await self._upstreams.close()

    async def close(self) -> None:
        """Do nothing, because other engines still use this model."""
