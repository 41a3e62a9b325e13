"""Buries cases in noise: sessions in which a case's messages stand far apart.

Owns which message stands where. Must never change a case's message, nor their order. Always holds:
each case is a session of its own; there is exactly as much noise as was asked for; the same count
and seed give the same sessions.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from recollect.values.message import Role
from recollect_bench.facts.cases import BOTH, Case
from recollect_bench.facts.noise import (
    LOOP_SHARE,
    RECALLED,
    Noise,
    looped_noise,
    loose_noise,
    recalled_block,
)

SESSION_MESSAGES: Final = 150
"""How long a session of noise alone is, loops aside."""
BETWEEN_SHARE: Final = 0.25
"""Of the noise that stands between the messages of cases; the rest is in sessions of its own."""
LOOPS_BETWEEN: Final = 6
"""Every so many runs of a loop, one stands in the middle of a case."""
ECHO_SHARE: Final = 0.1
"""At most this much of the noise are recalled blocks that quote the cases themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A message at its place: one of a case, or noise."""

    role: Role
    text: str = field(repr=False)
    tool: str | None = None
    case: str | None = None
    index: int = -1
    """Which message of its case it is."""
    family: str | None = None
    """What kind of noise it is; None for a case's message."""
    said_at: float | None = None
    """When it was said; None: some seconds behind the message before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sitting:
    """One session: a case among noise, or noise alone."""

    name: str
    messages: tuple[Placed, ...] = field(repr=False)


def bury(cases: Sequence[Case], *, noise: int, seed: int, half: str = BOTH) -> list[Sitting]:
    """The cases and so many messages of noise of a half's wording, as sessions in their order."""
    rng = random.Random(seed)
    echoes = _echoes(cases, int(noise * ECHO_SHARE), rng)
    runs = looped_noise(int(noise * LOOP_SHARE), rng, half)
    left = noise - sum(map(len, runs)) - sum(map(len, echoes.values()))
    between = int(left * BETWEEN_SHARE)
    own = {case.id: [[noise] for noise in echoes.get(case.id, ())] for case in cases}
    for at, one in enumerate(loose_noise(between, rng, half)):
        own[cases[at % len(cases)].id].append([one])
    alone = [[noise] for noise in loose_noise(left - between, rng, half)]
    for at, run in enumerate(runs):
        (own[rng.choice(cases).id] if at % LOOPS_BETWEEN == 0 else alone).append(run)
    sittings = [_around(case, own[case.id], rng) for case in cases] + _alone(alone, rng)
    rng.shuffle(sittings)
    return sittings


def _echoes(cases: Sequence[Case], most: int, rng: random.Random) -> dict[str, list[Noise]]:
    """Recalled blocks that repeat what was said in a case: memory's words, not the user's."""
    noises = {
        case.id: [
            Noise(
                family=RECALLED,
                role="user",
                text=recalled_block(rng, tuple(case.messages[fact.by].text for fact in case.facts)),
            )
        ]
        for case in cases
        if case.facts
    }
    return dict(list(noises.items())[:most])


def _around(case: Case, noise: Sequence[Sequence[Noise]], rng: random.Random) -> Sitting:
    """A case's messages in their order, each stretch of noise before, between or behind them."""
    gaps: list[list[Placed]] = [[] for _ in range(len(case.messages) + 1)]
    for run in noise:
        rng.choice(gaps).extend(_placed(other) for other in run)
    own = [
        [
            Placed(
                role=message.role,
                text=message.text,
                tool=message.tool,
                case=case.id,
                index=index,
            )
        ]
        for index, message in enumerate(case.messages)
    ]
    woven = [gaps[0], *chain.from_iterable(zip(own, gaps[1:], strict=True))]
    return Sitting(name=f"case-{case.id}", messages=tuple(chain.from_iterable(woven)))


def _alone(noise: list[list[Noise]], rng: random.Random) -> list[Sitting]:
    """Sessions that hold nothing but noise."""
    rng.shuffle(noise)
    sittings: list[Sitting] = []
    placeds: list[Placed] = []
    for run in noise:
        placeds.extend(_placed(other) for other in run)
        if len(placeds) >= SESSION_MESSAGES:
            sittings.append(Sitting(name=f"noise-{len(sittings)}", messages=tuple(placeds)))
            placeds = []
    if placeds:
        sittings.append(Sitting(name=f"noise-{len(sittings)}", messages=tuple(placeds)))
    return sittings


def _placed(noise: Noise) -> Placed:
    return Placed(role=noise.role, text=noise.text, tool=noise.tool, family=noise.family)
