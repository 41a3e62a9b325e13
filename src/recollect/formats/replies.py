"""What a provider's reply says about usage, in every spelling, dict or client object alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recollect.errors import FormatError
from recollect.formats.json_spans import decode, plain
from recollect.values.request import Usage


def read_usage(reply: Any) -> Usage | None:
    """The usage a reply reports, with the input counted whole; None where it reports none."""
    fields = _mapping(reply)
    usage = _mapping(fields.get("usage") or _mapping(fields.get("response")).get("usage"))
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
    return int(value) if isinstance(value, int | float) else 0


def _mapping(value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return value
    try:
        made = decode(value) if isinstance(value, bytes) else plain(value)
    except FormatError:
        return {}
    return made if isinstance(made, Mapping) else {}
