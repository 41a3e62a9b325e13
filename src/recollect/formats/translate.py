"""pi messages as a provider's wire messages: what our own agent sends of its transcript.

Pure. Always holds: the same messages for the same model give the same wire messages, so that
alignment and the provider's prompt cache hold from turn to turn and over a restart; a further
message never changes what stands for the ones before it (results of one reply's calls count as
one: all of them are there before the next request). A reply that was turned into a pi message
comes back with the identity that it had as a reply. It never repairs: a call without its
result, or a result without its call, is left to the engine's pairing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recollect.formats.summaries import (
    PI_BRANCH_CLOSING,
    PI_BRANCH_OPENING,
    PI_CLOSING,
    PI_OPENING,
)
from recollect.formats.translate_anthropic import anthropic_messages
from recollect.formats.translate_chat import chat_messages
from recollect.formats.translate_parts import WireMessage
from recollect.formats.translate_responses import responses_items
from recollect.values.request import FormatName

APIS: Mapping[FormatName, str] = {
    "anthropic": "anthropic-messages",
    "openai-chat": "openai-completions",
    "openai-responses": "openai-responses",
}
"""pi's word for each wire."""
PROVIDERS: Mapping[FormatName, str] = {
    "anthropic": "anthropic",
    "openai-chat": "openai",
    "openai-responses": "openai",
}
"""Whose wire it is, where nobody names the provider."""
_UNFINISHED = frozenset({"error", "aborted"})
_WRITERS = {
    "anthropic": anthropic_messages,
    "openai-chat": chat_messages,
    "openai-responses": responses_items,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Speaker:
    """Who is asked: thinking goes back only to the model that thought it."""

    format: FormatName
    model: str
    provider: str = ""

    @property
    def provider_name(self) -> str:
        """The provider as messages name it."""
        return self.provider or PROVIDERS.get(self.format, self.format)

    def made(self, message: Mapping[str, Any]) -> bool:
        """Whether this very model answered so."""
        return (
            message.get("api") == APIS.get(self.format)
            and message.get("provider") == self.provider_name
            and message.get("model") == self.model
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WireHistory:
    """A history as it is sent."""

    messages: tuple[dict[str, Any], ...] = field(repr=False)
    sources: tuple[int, ...]
    """For each wire message the position of the (first) pi message that it stands for."""


def to_wire(messages: Sequence[Mapping[str, Any]], speaker: Speaker) -> WireHistory:
    """The messages in the speaker's wire format.

    Left out as pi leaves them out: replies that broke off, and what is marked as not for the
    model.
    """
    write = _WRITERS[speaker.format]
    written: list[WireMessage] = write(
        [
            (at, plain, speaker.made(message))
            for at, message in enumerate(messages)
            if (plain := _plain(message)) is not None
        ]
    )
    return WireHistory(
        messages=tuple([one.body for one in written]),
        sources=tuple([one.source for one in written]),
    )


def _plain(message: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The message as user, assistant or toolResult; None where the model does not see it."""
    role = message.get("role")
    if role == "assistant":
        return None if message.get("stopReason") in _UNFINISHED else message
    if role in ("user", "toolResult"):
        return message
    if message.get("excludeFromContext") is True:
        return None
    if role == "bashExecution":
        return _as_user(_bash_text(message))
    if role == "compactionSummary":
        return _as_user(PI_OPENING + str(message.get("summary") or "") + PI_CLOSING)
    if role == "branchSummary":
        return _as_user(PI_BRANCH_OPENING + str(message.get("summary") or "") + PI_BRANCH_CLOSING)
    if role in ("custom", "hookMessage"):
        return {"role": "user", "content": message.get("content")}
    return None


def _as_user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _bash_text(message: Mapping[str, Any]) -> str:
    """A command that the user ran beside the conversation, and what it printed."""
    lines = [f"$ {message.get('command') or ''}", str(message.get("output") or "(no output)")]
    if message.get("cancelled") is True:
        lines.append("[cancelled]")
    elif message.get("exitCode"):
        lines.append(f"[exit code {message['exitCode']}]")
    if message.get("truncated") is True and message.get("fullOutputPath"):
        lines.append(f"[shortened; all of it is in {message['fullOutputPath']}]")
    return "\n".join(lines)
