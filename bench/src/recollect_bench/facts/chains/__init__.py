"""Chains of corrections through the product: told as messages, read by the engine's own jobs.

Owns in which session each statement stands. In one memory of all sessions, a chain goes on from one
session to the next; where every session is a memory of its own, a chain stays in one. Must never
make a draft or a fact itself. Always holds: the statements arrive in the order they were said in,
with statements of other chains and unrelated ones between them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Final

from recollect_bench.facts.bury import Placed, Sitting
from recollect_bench.facts.chains.check import Checked, chain_case, check_chains
from recollect_bench.facts.chains.tell import Said, in_order, make_chains, some_of
from recollect_bench.facts.through_store import Scope, remember

__all__ = ["SEED", "check_through_store"]

SEED: Final = 5
SITTING_MESSAGES: Final = 70
"""How long a session is through which the chains go on; one job reads it."""
SESSIONS: Final = 4
"""How many sessions there are where chains stay in one; all chains are more than a job each."""
_CHINESE_FROM: Final = "\u3400"


def check_through_store(
    count: int,
    *,
    scope: Scope,
    seed: int = SEED,
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> Checked:
    """Tell so many chains to a real store, let its jobs read them, and check what holds."""
    chains = some_of(make_chains(random.Random(seed), repeat=True), count)
    said = in_order(chains)
    sittings = _following(said) if scope == "space" else _beside(said)
    return check_chains(asyncio.run(remember(sittings, progress, scope=scope)), chains)


def _following(said: Sequence[Said]) -> list[Sitting]:
    """One session after the other, all chains going on in the next."""
    placed = _placed(said)
    return [
        Sitting(name=f"session-{first}", messages=tuple(placed[first : first + SITTING_MESSAGES]))
        for first in range(0, len(placed), SITTING_MESSAGES)
    ]


def _beside(said: Sequence[Said]) -> list[Sitting]:
    """Sessions at the same time, every chain in one of them, and all chains of a thing together."""
    held: dict[str, list[Placed]] = {}
    things: dict[str, int] = {}
    for told, placed in zip(said, _placed(said), strict=True):
        number = things.setdefault(told.thing, len(things)) % SESSIONS
        held.setdefault(f"session-{number}", []).append(placed)
    return [Sitting(name=name, messages=tuple(messages)) for name, messages in held.items()]


def _placed(said: Sequence[Said]) -> list[Placed]:
    told: dict[int, int] = {}
    placed: list[Placed] = []
    for one in said:
        index = told.get(one.chain, 0)
        told[one.chain] = index + 1
        placed.append(
            Placed(
                role="user",
                text=_sentence(one.content),
                case=chain_case(one.chain),
                index=index,
                said_at=one.at,
            )
        )
    return placed


def _sentence(content: str) -> str:
    """As people write it: from a capital letter to a stop."""
    stop = "。" if content[-1] >= _CHINESE_FROM else "."
    return f"{content[0].upper()}{content[1:]}{stop}"
