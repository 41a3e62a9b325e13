"""Simulated sessions that show how close a calibrated count comes to the provider's.

Owns the simulation: every turn adds messages, the request is the history so far, the provider
reports what o200k counts, and once in a while most of the history is removed. It must never
calibrate with anything but such reports. The same documents give the same sessions.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from recollect.rules.tokens import count_text
from recollect.values.history import TokenCalibration
from recollect_bench.token_corpus import HELD_KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TURNS_BEFORE_MEASURING = 5
REMOVED_SHARE = 0.6
"""How much of the history a simulated compaction takes away, oldest messages first."""

_TURNS = 14
_SHRINK_AT_TURN = 10
_SESSIONS_PER_KIND = 12
# As agents have it: instructions and tools first, then messages of a few hundred to a few thousand
# characters. A single message larger than all before it is as uncertain as its own estimate.
_INSTRUCTIONS_CHARS = 6000
_LONGEST_MESSAGE_CHARS = 6000

Session = list[list[str]]
"""The messages that each turn adds."""


def simulated_sessions(documents: dict[str, list[str]]) -> dict[str, list[Session]]:
    """Sessions of each promised kind, and of kinds that follow one another or alternate."""
    held = {kind: documents[kind] for kind in HELD_KINDS if kind in documents}
    sessions: dict[str, list[Session]] = {}
    for kind, texts in held.items():
        dice = random.Random(f"session:{kind}")
        sessions[kind] = [_session(dice, [texts] * _TURNS) for _ in range(_SESSIONS_PER_KIND)]
    dice = random.Random("session:mixed")
    names = sorted(held)
    one_after_another, alternating = [], []
    for _ in range(_SESSIONS_PER_KIND * 2):
        first, then, last = (held[dice.choice(names)] for _ in range(3))
        one_after_another.append(_session(dice, [first] * 5 + [then] * 5 + [last] * 4))
        alternating.append(_session(dice, [held[dice.choice(names)] for _ in range(_TURNS)]))
    return sessions | {"one_after_another": one_after_another, "alternating": alternating}


def worst_calibrated_error(sessions: Sequence[Session], count_true: Callable[[str], int]) -> float:
    """The largest relative error of any request after five reports, shrunk requests included."""
    return max(max(calibrated_errors(session, count_true)) for session in sessions)


def calibrated_errors(session: Session, count_true: Callable[[str], int]) -> list[float]:
    """The relative error at each turn from the sixth on, as a provider that counts would see it."""
    calibration = TokenCalibration()
    history: list[tuple[int, int]] = []
    errors = []
    for turn, messages in enumerate(session):
        if turn == _SHRINK_AT_TURN:
            history = history[round(len(history) * REMOVED_SHARE) :]
        history += [(count_text(text), count_true(text)) for text in messages]
        estimated = sum(message_estimate for message_estimate, _ in history)
        reported = sum(message_true for _, message_true in history)
        if turn >= TURNS_BEFORE_MEASURING:
            errors.append(abs(calibration.apply(estimated) - reported) / reported)
        calibration = calibration.learn(estimated_tokens=estimated, reported_tokens=reported)
    return errors


def _session(dice: random.Random, texts_by_turn: Sequence[Sequence[str]]) -> Session:
    turns = [[_message(dice, texts) for _ in range(dice.randint(1, 4))] for texts in texts_by_turn]
    instructions = "\n".join(dice.choice(texts_by_turn[0]) for _ in range(8))
    turns[0].insert(0, instructions[:_INSTRUCTIONS_CHARS])
    return turns


def _message(dice: random.Random, texts: Sequence[str]) -> str:
    text = dice.choice(texts)
    wanted_chars = min(_LONGEST_MESSAGE_CHARS, round(dice.lognormvariate(6.5, 1.2)) + 20)
    length = min(len(text), wanted_chars)
    start = dice.randrange(len(text) - length + 1)
    return text[start : start + length]
