"""A provider's reply: its messages, its usage, or its error.

Takes dicts, bytes, client objects and exceptions, and never raises. A message from a reply has the
identity that it has when the client sends it back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
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


def may_be_reply(given: Any) -> bool:
    """Whether anything of a provider's can be in it: a reply, an error, an event of a stream."""
    return not _REPLY_FIELDS.isdisjoint(plain_mapping(given))


def read_reply(format_name: FormatName, reply: Any) -> tuple[bytes, ...]:
    """The messages that a reply adds to the history, as a client would send them back. Empty for an
    error, a stream that was not read to its end, and what is of another format."""
    if isinstance(reply, BaseException):
        return ()
    fields = plain_mapping(reply)
    if not fields or fields.get("error"):
        return ()
    try:
        messages = CODECS[format_name].reply_messages(fields)
    except FormatError:
        return ()
    # pi's reply is the message itself, so its bytes stay
    return (reply,) if messages and format_name == "pi" and isinstance(reply, bytes) else messages


def read_usage(reply: Any) -> Usage | None:
    """The usage that a reply, or an event of its stream, reports, with the input counted whole;
    None where it reports none."""
    fields = plain_mapping(reply)
    within = (plain_mapping(fields.get(name)).get("usage") for name in ("response", "message"))
    usage = plain_mapping(fields.get("usage") or next((value for value in within if value), None))
    if not usage:
        return None
    if "prompt_tokens" in usage:
        details = plain_mapping(usage.get("prompt_tokens_details"))
        return _usage(usage, "prompt_tokens", "completion_tokens", details=details)
    if "input_tokens_details" in usage:
        details = plain_mapping(usage["input_tokens_details"])
        return _usage(usage, "input_tokens", "output_tokens", details=details)
    if "input_tokens" in usage:
        cached = ("cache_read_input_tokens", "cache_creation_input_tokens")
        return _usage(usage, "input_tokens", "output_tokens", apart=cached)
    if "input" in usage:
        return _usage(usage, "input", "output", apart=("cacheRead", "cacheWrite"))
    return None


def read_cleared_tokens(reply: Any) -> int:
    """The input tokens that the provider cleared before the model saw the request (Anthropic's
    context editing); its usage does not count them."""
    managed = plain_mapping(plain_mapping(reply).get("context_management"))
    edits = managed.get("applied_edits")
    cleared = edits if isinstance(edits, list) else ()
    return sum(_number(plain_mapping(edit), "cleared_input_tokens") for edit in cleared)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyError:
    """A provider's error as far as it could be read."""

    status: int | None
    message: str
    body: Mapping[str, Any] | None


def read_error(reply: Any) -> ReplyError | None:
    """The error in a reply, or in the exception a client raised; None where there is none."""
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
    told = plain_mapping(error).get("message")
    message = told if isinstance(told, str) else str(error)
    return ReplyError(
        status=status if isinstance(status, int) else None, message=message, body=fields
    )


def _usage(
    usage: Mapping[str, Any],
    whole: str,
    output: str,
    *,
    details: Mapping[str, Any] | None = None,
    apart: tuple[str, str] | None = None,
) -> Usage | None:
    """`details` holds the cached part of the whole. `apart` names the fields of a provider that
    counts cached tokens separately, so that the whole is the sum."""
    if apart is not None:
        read, write = (_number(usage, name) for name in apart)
        total, reports = _number(usage, whole) + read + write, usage.get(apart[0]) is not None
    else:
        details = details or {}
        read, write = _number(details, "cached_tokens"), 0
        total, reports = _number(usage, whole), details.get("cached_tokens") is not None
    if total <= 0:
        return None
    return Usage(
        input_tokens=total,
        output_tokens=_number(usage, output),
        cache_read_tokens=read,
        cache_write_tokens=write,
        reports_cache=reports,
    )


def _number(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    if isinstance(value, float) and not isfinite(value):
        return 0
    return int(value) if isinstance(value, int | float) else 0


class StreamedReply:
    """A streamed reply of any wire so far. Takes events as objects or mappings of a client's
    library, and ignores the library's own snapshots."""

    def __init__(self, events: Iterable[Any] = ()) -> None:
        """With `events`, all of them; FormatError where none of them is one."""
        self._assembling: Assembling | None = None
        self.events = 0
        self.error: Any = None
        given = 0
        for event in events:
            given += 1
            self.take(event)
        if given and not self.events and self.error is None:
            raise FormatError(
                f"none of these {given} is an event of a stream that is known: give the events "
                "of Anthropic's Messages, or of OpenAI's Chat Completions or Responses"
            )

    def take(self, event: Any) -> None:
        """Add what an event holds."""
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
        """Whether the reply came to its own end."""
        return self._assembling is not None and self._assembling.reply() is not None

    @property
    def broken_off(self) -> bool:
        """Whether it began and did not come to its end."""
        return bool(self.events) and not self.whole

    def reply(self) -> Mapping[str, Any]:
        """The reply so far, as it would have come without streaming."""
        if self._assembling is None:
            return {}
        whole = self._assembling.reply()
        return self._assembling.partial() if whole is None else whole


def _event_fields(event: Any) -> Mapping[str, Any]:
    if getattr(event, "type", None) == "chunk":  # OpenAI's helper wraps the chunk it was told
        event = getattr(event, "chunk", event)
    if isinstance(event, Mapping):
        return event
    dump = getattr(event, "model_dump", None)
    if callable(dump):
        # A warning of pydantic's would show a stretch of what was said.
        made = dump(mode="json", exclude_unset=True, exclude={"snapshot"}, warnings=False)
        return mapping(made)
    return mapping(decode(encode(event)))
