"""Faults that only the client can mend: we may pass them on, report them or refuse them.

Drawn apart from the ordinary mess, so that a test of repairs can leave them out.
"""

from collections.abc import Iterator
from typing import Any

from tests.conversations.script import flag


def spoil(messages: list[dict[str, Any]], bits: int) -> None:
    """Put one such fault into the messages, in place: a role, an id, a signature or cache marks."""
    if not messages:
        return
    kind = bits % 4
    if kind == 0:
        messages[bits % len(messages)]["role"] = "critic"
        messages[bits % len(messages)].pop("type", None)
    for holder in _objects(messages) if kind else ():
        if kind == 1 and "call_id" in holder:
            holder["call_id"] = ""
        elif kind == 1 and "id" in holder and ("name" in holder or "function" in holder):
            holder["id"] = "" if flag(bits, 4, 2) else "edit:22|fc_1"
        elif kind == 2 and holder.get("type") == "thinking":
            holder["signature"] = None
        elif kind == 3 and holder.get("type") == "text" and str(holder.get("text")).strip():
            holder["cache_control"] = {"type": "ephemeral"}


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        for item in value:
            yield from _objects(item)
    elif isinstance(value, dict):
        yield value
        for key in ("content", "tool_calls"):
            yield from _objects(value.get(key))
