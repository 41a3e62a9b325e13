"""Segments as tests of facts need them."""

import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from recollect.core.values.message import EntryKey, MessageId, Role
from recollect.core.values.segment import Segment, SegmentId, Trust

TRUSTS: dict[str, Trust] = {"user": "high", "assistant": "medium", "tool": "low", "system": "high"}


def segment(role: Role, text: str, at: int = 0, **given: Any) -> Segment:
    """A segment that this role said as number `at` of its session."""
    name = blake2b(f"{at}\0{role}\0{text}".encode(), digest_size=16).hexdigest()
    told: dict[str, Any] = {
        "trust": TRUSTS[role],
        "tool": "Bash" if role == "tool" else None,
        "source": "request",
        "session": "s",
        "said_at": 1_000.0 + at,
        "tokens": 1,
        "id": SegmentId(name),
    }
    return Segment(
        key=EntryKey(f"k{at}"),
        message_id=MessageId(name),
        role=role,
        text=text,
        **{**told, **given},
    )


def talk(*said: tuple[Role, str]) -> list[Segment]:
    """A conversation, in order."""
    return [segment(role, text, at) for at, (role, text) in enumerate(said)]


def claim(quote: str, content: str, type: str = "config", line: int = 1) -> dict[str, Any]:  # noqa: A002
    """A fact as the model claims it."""
    return {
        "line": line,
        "quote": quote,
        "type": type,
        "content": content,
        "subject": "",
        "attribute": "",
    }


def answered(claims: Sequence[dict[str, Any]]) -> str:
    """The model's answer with these claims."""
    return json.dumps({"facts": list(claims)}, ensure_ascii=False)
