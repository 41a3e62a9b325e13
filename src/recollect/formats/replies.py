"""What a provider's reply says: its messages, its usage, or its error about itself.

Dict, bytes, client object and exception alike; what says nothing is None or empty, never an
exception. Always holds: a message read from a reply has the identity that the same message
has when the client sends it back in its next request, as the client's library writes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from recollect.errors import FormatError
from recollect.formats.json_text import decode, encode, plain
from recollect.values.model import FormatName, Usage

_UNFINISHED = frozenset({"failed", "cancelled", "queued", "in_progress"})
"""States of a Responses reply in which its items are not, or not yet, part of a history."""


_REPLY_FIELDS = frozenset(
    {"role", "content", "choices", "output", "usage", "error", "message", "response"}
    | {"type", "object"}
)
"""Each reply, error and event of every wire has one of these."""


def may_be_reply(given: Any) -> bool:
    """Whether anything of a provider's can be in it: a reply, an error, an event of a stream."""
    return not _REPLY_FIELDS.isdisjoint(_mapping(given))


def read_reply(format_name: FormatName, reply: Any) -> tuple[bytes, ...]:
    """The messages that a reply adds to the history, as a client would send them back.

    Empty for an error, a stream that was not read to its end, and what is of another format.
    """
    if isinstance(reply, BaseException):
        return ()
    fields = _mapping(reply)
    if not fields or fields.get("error"):
        return ()
    try:
        if format_name == "anthropic":
            return _anthropic_messages(fields)
        if format_name == "openai-chat":
            return _chat_messages(fields)
        if format_name == "openai-responses":
            return _response_items(fields)
        return _pi_messages(reply, fields)
    except FormatError:
        return ()


def _anthropic_messages(fields: Mapping[str, Any]) -> tuple[bytes, ...]:
    content = fields.get("content")
    if fields.get("role") != "assistant" or not isinstance(content, list | str) or not content:
        return ()
    return (encode({"role": "assistant", "content": content}),)


def _chat_messages(fields: Mapping[str, Any]) -> tuple[bytes, ...]:
    """The first choice's message. What is null was not said, and is not sent back by all."""
    choices = fields.get("choices")
    if not isinstance(choices, list | tuple) or not choices:
        return ()
    message = _mapping(_mapping(choices[0]).get("message"))
    said = {name: value for name, value in message.items() if value is not None}
    if said.get("role", "assistant") != "assistant":
        return ()
    if not any(value for name, value in said.items() if name != "role"):
        return ()
    return (encode({"content": None, **said, "role": "assistant"}),)


def _response_items(fields: Mapping[str, Any]) -> tuple[bytes, ...]:
    """The output items; also those of the event that ends a stream."""
    if "output" not in fields:
        fields = _mapping(fields.get("response"))
    output = fields.get("output")
    status = fields.get("status")
    if not isinstance(output, list | tuple) or status in _UNFINISHED or fields.get("error"):
        return ()
    items = [_mapping(item) for item in output]
    return tuple([encode(item) for item in items if item])


def _pi_messages(reply: Any, fields: Mapping[str, Any]) -> tuple[bytes, ...]:
    if fields.get("role") != "assistant" or not fields.get("content"):
        return ()
    return (reply if isinstance(reply, bytes) else encode(fields),)


def read_usage(reply: Any) -> Usage | None:
    """The usage that a reply, or an event of its stream, reports, with the input counted whole;
    None where it reports none."""
    fields = _mapping(reply)
    within = (_mapping(fields.get(name)).get("usage") for name in ("response", "message"))
    usage = _mapping(fields.get("usage") or next((found for found in within if found), None))
    if not usage:
        return None
    if "prompt_tokens" in usage:
        cached = _number(_mapping(usage.get("prompt_tokens_details")), "cached_tokens")
        return _usage(usage, "prompt_tokens", "completion_tokens", read=cached)
    if "input_tokens_details" in usage:
        cached = _number(_mapping(usage["input_tokens_details"]), "cached_tokens")
        return _usage(usage, "input_tokens", "output_tokens", read=cached)
    if "input_tokens" in usage:
        read = _number(usage, "cache_read_input_tokens")
        write = _number(usage, "cache_creation_input_tokens")
        return _usage(usage, "input_tokens", "output_tokens", read=read, write=write, add=True)
    if "input" in usage:
        read, write = _number(usage, "cacheRead"), _number(usage, "cacheWrite")
        return _usage(usage, "input", "output", read=read, write=write, add=True)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SaidError:
    """A provider's error as far as it could be read."""

    status: int | None
    message: str
    body: Mapping[str, Any] | None


def read_error(reply: Any) -> SaidError | None:
    """The error in a reply, or in the exception a client raised; None where there is none."""
    if isinstance(reply, str):
        return SaidError(status=None, message=reply, body=None)
    status = getattr(reply, "status_code", getattr(reply, "status", None))
    if isinstance(reply, BaseException):
        body = getattr(reply, "body", None)
        return SaidError(
            status=status if isinstance(status, int) else None,
            message=str(getattr(reply, "message", "") or reply),
            body=body if isinstance(body, Mapping) else None,
        )
    fields = _mapping(reply)
    error = fields.get("error") or _mapping(fields.get("response")).get("error")
    if not error:
        return None
    told = _mapping(error).get("message")
    message = told if isinstance(told, str) else str(error)
    return SaidError(
        status=status if isinstance(status, int) else None, message=message, body=fields
    )


def _usage(
    usage: Mapping[str, Any],
    whole: str,
    output: str,
    *,
    read: int,
    write: int = 0,
    add: bool = False,
) -> Usage | None:
    """`add`: the provider counts cached input apart, so the whole is the sum."""
    total = _number(usage, whole) + (read + write if add else 0)
    if total <= 0:
        return None
    return Usage(
        input_tokens=total,
        output_tokens=_number(usage, output),
        cache_read_tokens=read,
        cache_write_tokens=write,
    )


def _number(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    if isinstance(value, float) and not isfinite(value):
        return 0
    return int(value) if isinstance(value, int | float) else 0


def _mapping(value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return value
    try:
        sent = isinstance(value, bytes | bytearray | memoryview)
        made = decode(bytes(value)) if sent else plain(value)
    except FormatError:
        return {}
    return made if isinstance(made, Mapping) else {}
