"""Translates pi messages into a provider's wire messages, for Recollect's own agent. The same
messages give the same wire messages, so the prompt cache stays valid. An additional message never
changes earlier ones. Invalid histories are not repaired here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from recollect.core.formats.codec import WIRES
from recollect.core.formats.summaries import (
    PI_BRANCH_CLOSING,
    PI_BRANCH_OPENING,
    PI_CLOSING,
    PI_OPENING,
)
from recollect.core.values.model import FormatName, StopReason, Usage

_UNFINISHED = frozenset({"error", "aborted"})

APIS: Mapping[FormatName, str] = {name: wire.api for name, wire in WIRES.items()}
"""Name that pi uses for each format."""
PROVIDERS: Mapping[FormatName, str] = {name: wire.provider for name, wire in WIRES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Speaker:
    """The model that a request is sent to. A model gets back only thinking that it wrote itself."""

    format: FormatName
    model: str
    provider: str = ""

    @property
    def provider_name(self) -> str:
        """The provider's name in pi's spelling."""
        return self.provider or PROVIDERS.get(self.format, self.format)

    def made(self, message: Mapping[str, Any]) -> bool:
        return (
            message.get("api") == APIS.get(self.format)
            and message.get("provider") == self.provider_name
            and message.get("model") == self.model
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WireHistory:
    """A history as it is sent to the provider."""

    messages: tuple[dict[str, Any], ...] = field(repr=False)
    sources: tuple[int, ...]


def to_wire(messages: Sequence[Mapping[str, Any]], speaker: Speaker) -> WireHistory:
    """Translate the messages into the format of this model. Like pi, omit aborted replies and
    messages that are excluded from the context."""
    wire_messages = WIRES[speaker.format].from_pi(
        [
            (index, plain_message, speaker.made(message))
            for index, message in enumerate(messages)
            if (plain_message := _to_plain_message(message)) is not None
        ]
    )
    return WireHistory(
        messages=tuple([message.body for message in wire_messages]),
        sources=tuple([message.source for message in wire_messages]),
    )


def _to_plain_message(message: Mapping[str, Any]) -> Mapping[str, Any] | None:
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
    lines = [f"$ {message.get('command') or ''}", str(message.get("output") or "(no output)")]
    if message.get("cancelled") is True:
        lines.append("[cancelled]")
    elif message.get("exitCode"):
        lines.append(f"[exit code {message['exitCode']}]")
    if message.get("truncated") is True and message.get("fullOutputPath"):
        lines.append(f"[shortened; all of it is in {message['fullOutputPath']}]")
    return "\n".join(lines)


_STOPS: Mapping[StopReason, str] = {
    "stop": "stop",
    "length": "length",
    "tool-calls": "toolUse",
    "refusal": "error",
    "other": "stop",
}

REFUSED = "The model refused to answer."


def to_pi(
    reply: Mapping[str, Any],
    speaker: Speaker,
    *,
    stop: StopReason,
    usage: Usage | None,
    timestamp: int,
) -> dict[str, Any]:
    """Build the assistant message of a complete reply. `timestamp` is in milliseconds."""
    content = WIRES[speaker.format].to_pi(reply)
    for index, block in enumerate(content):
        if block["type"] == "toolCall" and not block["id"]:  # some servers send no call ids
            block["id"] = f"call_{timestamp}_{index}"
    reason = _STOPS[stop]
    calls = any(block["type"] == "toolCall" for block in content)
    if calls and reason not in ("error", "length"):  # a tool call that was cut off must not run
        reason = "toolUse"
    return _assistant_message(
        content,
        speaker,
        stop_reason=reason,
        usage=usage,
        timestamp=timestamp,
        error=REFUSED if reason == "error" else None,
    )


def as_resent(
    reply: Mapping[str, Any],
    speaker: Speaker,
    *,
    stop: StopReason,
    message: Mapping[str, Any] | None = None,
) -> Mapping[str, Any]:
    """Return the reply in the form that the next request will resend, with its usage, so that its
    stored id matches. Call ids are rewritten; invalid arguments, unsigned reasoning and refusals
    are removed. `message` is the result of `to_pi`, which has given ids to calls without one."""
    if message is None:
        message = to_pi(reply, speaker, stop=stop, usage=None, timestamp=0)
    wire_messages = list(to_wire([message], speaker).messages)
    if not wire_messages:
        return {"usage": reply.get("usage")}
    return WIRES[speaker.format].as_reply(reply, wire_messages)


def write_broken_reply(
    text: str,
    speaker: Speaker,
    *,
    reason: Literal["aborted", "error"],
    timestamp: int,
    error: str | None = None,
    usage: Usage | None = None,
) -> dict[str, Any]:
    """Build the message of an aborted or failed reply, which is never sent to a model."""
    content = [{"type": "text", "text": text}] if text else []
    return _assistant_message(
        content, speaker, stop_reason=reason, usage=usage, timestamp=timestamp, error=error
    )


def _assistant_message(
    content: Sequence[Mapping[str, Any]],
    speaker: Speaker,
    *,
    stop_reason: str,
    usage: Usage | None,
    timestamp: int,
    error: str | None = None,
) -> dict[str, Any]:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": [dict(block) for block in content],
        "api": APIS.get(speaker.format, speaker.format),
        "provider": speaker.provider_name,
        "model": speaker.model,
        "usage": _pi_usage(usage),
        "stopReason": stop_reason,
        "timestamp": timestamp,
    }
    if error is not None:
        message["errorMessage"] = error
    return message


def _pi_usage(usage: Usage | None) -> dict[str, Any]:
    used = usage or Usage(input_tokens=0)
    cached_tokens = used.cache_read_tokens + used.cache_write_tokens
    return {
        "input": max(0, used.input_tokens - cached_tokens),
        "output": used.output_tokens,
        "cacheRead": used.cache_read_tokens,
        "cacheWrite": used.cache_write_tokens,
        "totalTokens": used.input_tokens + used.output_tokens,
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0},
    }
