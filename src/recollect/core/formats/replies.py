"""A provider's reply: reads its messages, usage or error. A reply may be a dict, bytes, an object
of a client library or an exception; reading never raises. A message read from a reply gets the same
id as when the client resends it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from recollect.core.formats.blocks import mapping
from recollect.core.formats.codec import CODECS, WIRES, Assembling
from recollect.core.formats.json_text import decode, encode, plain_mapping
from recollect.core.values.model import FormatName, Usage
from recollect.errors import FormatError

_REPLY_FIELDS = frozenset(
    {"role", "content", "choices", "output", "usage", "error", "message", "response"}
    | {"type", "object"}
)
_CACHED = ("cache_read_input_tokens", "cache_creation_input_tokens")
_SPELLINGS: tuple[tuple[str, str, str, str, tuple[str, ...]], ...] = (
    ("prompt_tokens", "prompt_tokens", "completion_tokens", "prompt_tokens_details", ()),
    ("input_tokens_details", "input_tokens", "output_tokens", "input_tokens_details", ()),
    ("input_tokens", "input_tokens", "output_tokens", "", _CACHED),
    ("input", "input", "output", "", ("cacheRead", "cacheWrite")),
)
"""Keys in each provider's usage object: the one that identifies the provider, input, output, the
object that counts cached tokens, and counts of cached tokens that input excludes."""


def may_be_reply(reply: Any) -> bool:
    """Return whether this can be a reply, an error or a stream event."""
    return not _REPLY_FIELDS.isdisjoint(plain_mapping(reply))


def read_reply(format_name: FormatName, reply: Any) -> tuple[bytes, ...]:
    """Return the messages that a reply adds to the history, as a client would resend them. An
    error, an unfinished stream and another format add none."""
    if isinstance(reply, BaseException):
        return ()
    fields = plain_mapping(reply)
    if not fields or fields.get("error"):
        return ()
    try:
        messages = CODECS[format_name].reply_messages(fields)
    except FormatError:
        return ()
    # pi's reply is the message itself: return its bytes
    return (reply,) if messages and format_name == "pi" and isinstance(reply, bytes) else messages


def read_usage(reply: Any) -> Usage | None:
    """Return the usage in a reply or stream event, cached input included; None if there is none."""
    fields = plain_mapping(reply)
    nested_usages = (
        plain_mapping(fields.get(name)).get("usage") for name in ("response", "message")
    )
    usage = plain_mapping(
        fields.get("usage") or next((value for value in nested_usages if value), None)
    )
    if not usage:
        return None
    for mark, total_key, output_key, details_key, cache_keys in _SPELLINGS:
        if mark not in usage:
            continue
        input_details = plain_mapping(usage.get(details_key))
        separate = [token_count(usage, name) for name in cache_keys]
        total = token_count(usage, total_key) + sum(separate)
        if total <= 0:
            return None
        read_tokens, write_tokens = separate or (token_count(input_details, "cached_tokens"), 0)
        cache_value = usage.get(cache_keys[0]) if cache_keys else input_details.get("cached_tokens")
        return Usage(
            input_tokens=total,
            output_tokens=token_count(usage, output_key),
            cache_read_tokens=read_tokens,
            cache_write_tokens=write_tokens,
            reports_cache=cache_value is not None,
        )
    return None


def token_count(fields: Mapping[str, Any], name: str) -> int:
    """Return a reported number of tokens; 0 if it is missing or invalid."""
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 < value < inf else 0


def read_cleared_tokens(reply: Any) -> int:
    """Return the number of input tokens that the provider removed from the request (Anthropic's
    context editing). Reported usage does not include these tokens."""
    edits = plain_mapping(plain_mapping(reply).get("context_management")).get("applied_edits")
    edit_list = edits if isinstance(edits, list) else ()
    return sum(token_count(plain_mapping(edit), "cleared_input_tokens") for edit in edit_list)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyError:
    """A provider's error, as far as it could be read."""

    status: int | None
    message: str
    body: Mapping[str, Any] | None


def read_error(reply: Any) -> ReplyError | None:
    """Return the error in a reply or in a client's exception, else None."""
    if isinstance(reply, str):
        return ReplyError(status=None, message=reply, body=None)
    status = getattr(reply, "status_code", getattr(reply, "status", None))
    if isinstance(reply, BaseException):
        body = getattr(reply, "body", None)
        return ReplyError(
            status=status if isinstance(status, int) else None,
            message=str(getattr(reply, "message", "") or reply),
            body=body if isinstance(body, Mapping) else None,
        )
    fields = plain_mapping(reply)
    error = fields.get("error") or plain_mapping(fields.get("response")).get("error")
    if not error:
        return None
    text = plain_mapping(error).get("message")
    message = text if isinstance(text, str) else str(error)
    return ReplyError(
        status=status if isinstance(status, int) else None, message=message, body=fields
    )


class StreamedReply:
    """Joins the events of a streamed reply. Events that a client library adds with the reply so far
    are ignored."""

    def __init__(self, events: Iterable[Any] = ()) -> None:
        """Take all `events`. Raise FormatError if there are events, but none is a stream event."""
        self._assembling: Assembling | None = None
        self.events: int = 0
        self.error: Any = None
        given = 0
        for event in events:
            given += 1
            self.take(event)
        if given and not self.events and self.error is None:
            raise FormatError(
                f"none of these {given} is a known stream event: pass the events of "
                "Anthropic's Messages, or of OpenAI's Chat Completions or Responses"
            )

    def take(self, event: Any) -> None:
        fields = _event_fields(event)
        kind = str(fields.get("type") or "")
        if kind in ("error", "response.failed") or fields.get("error"):
            self.error = fields
            return
        wire = next((codec for codec in WIRES.values() if codec.is_event(fields)), None)
        if wire is None:
            return
        if self._assembling is None:
            self._assembling = wire.assembling()
        self.events += 1
        for _ in self._assembling.take(fields):
            pass

    @property
    def whole(self) -> bool:
        return self._assembling is not None and self._assembling.reply() is not None

    @property
    def broken_off(self) -> bool:
        """True if the reply began but has no end."""
        return bool(self.events) and not self.whole

    def reply(self) -> Mapping[str, Any]:
        """Return the reply so far, as if it had not been streamed."""
        if self._assembling is None:
            return {}
        reply = self._assembling.reply()
        return self._assembling.partial() if reply is None else reply


def _event_fields(event: Any) -> Mapping[str, Any]:
    if getattr(event, "type", None) == "chunk":  # OpenAI's helper wraps each chunk
        event = getattr(event, "chunk", event)
    if isinstance(event, Mapping):
        return event
    dump = getattr(event, "model_dump", None)
    if callable(dump):
        # pydantic's warnings quote message content
        return mapping(dump(mode="json", exclude_unset=True, exclude={"snapshot"}, warnings=False))
    return mapping(decode(encode(event)))
