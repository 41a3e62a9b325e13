"""A conversation made from names and numbers, as a client sends it, and its traces in a store.

Every message begins with a marker of its own, so the archive can be compared with what was
said without knowing how the engine names it. Always holds: the same turn is the same request,
so a client that was killed resends what it sent before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from recollect.core.values.segment import StoredSegment
from tools.crash.plan import WORDS
from tools.crash.verify import Verdict

SESSION_TURNS = 25
"""Turns a session; then another one begins, so that requests stay of a size."""


def session_of_turn(talker: str, turn: int) -> str:
    """The session that a turn belongs to."""
    return f"{talker}-{turn // SESSION_TURNS}"


def marker(talker: str, turn: int, role: str) -> str:
    """What a message of that turn begins with, and nothing else holds."""
    return f"{talker}.{turn}.{role}"


def markers(talker: str, turns: Iterable[int]) -> list[str]:
    """The markers of all messages of these turns, in the order they are said."""
    return [marker(talker, turn, role) for turn in turns for role in ("user", "assistant")]


def text_of_turn(talker: str, turn: int, role: str) -> str:
    """What is said."""
    start = turn * 7 + len(role)
    said = " ".join(WORDS[(start + step * step) % len(WORDS)] for step in range(12))
    return f"{marker(talker, turn, role)} {said}."


def request_of(talker: str, turn: int) -> dict[str, Any]:
    """The request of a turn: the session's history, and what the user says now.

    The cache mark moves with the newest message, as clients move it.
    """
    first = turn - turn % SESSION_TURNS
    messages: list[dict[str, Any]] = []
    for earlier in range(first, turn):
        messages.append({"role": "user", "content": text_of_turn(talker, earlier, "user")})
        messages.append(
            {"role": "assistant", "content": text_of_turn(talker, earlier, "assistant")}
        )
    newest = {
        "type": "text",
        "text": text_of_turn(talker, turn, "user"),
        "cache_control": {"type": "ephemeral"},
    }
    messages.append({"role": "user", "content": [newest]})
    return {
        "model": "claude-sonnet-4-5",
        "max_tokens": 1024,
        "system": "You talk about rivers and lanterns.",
        "messages": messages,
    }


def reply_of(talker: str, turn: int) -> dict[str, Any]:
    """The provider's reply to that request."""
    return {
        "id": f"msg_{turn}",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [{"type": "text", "text": text_of_turn(talker, turn, "assistant")}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 100, "output_tokens": 20},
    }


def compare_spoken(
    segments: Sequence[StoredSegment], said: Sequence[str], *, maybe: frozenset[str] = frozenset()
) -> Verdict:
    """What the archive holds against the markers of what was acknowledged.

    `maybe` was on its way. Order is that of each session: what one session said later must not
    stand before what it said earlier.
    """
    held = Counter(stored.segment.text.partition(" ")[0] for stored in segments)
    verdict = Verdict(acknowledged=len(said))
    verdict.lost = sum(not held[mark] for mark in said)
    verdict.duplicated = sum(count - 1 for count in held.values())
    known = {mark: place for place, mark in enumerate(said)}
    verdict.strangers = sum(mark not in known and mark not in maybe for mark in held)
    latest: dict[str, int] = {}
    for stored in segments:
        place = known.get(stored.segment.text.partition(" ")[0])
        if place is not None:
            before = latest.setdefault(stored.segment.session, -1)
            verdict.out_of_order += place < before
            latest[stored.segment.session] = max(place, before)
    return verdict
