"""Makes chains of corrections: what people say of one thing, again and again, and what is between.

Owns which statement stands where and when. Pure. Always holds: the same source of chance gives the
same chains; no chain says the same twice in a row; statements of one thing are of one chain only.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from recollect.values.fact import FactType
from recollect_bench.facts.chains.domains import DOMAINS, Domain
from recollect_bench.facts.chains.more_domains import MORE_DOMAINS, RULES, UNRELATED

CHAINS: Final = 200
START: Final = 1_700_000_000.0
FIRST_UNRELATED: Final = 1000
"""Where the numbers of statements begin that belong to no chain."""
MOST_STATEMENTS: Final = 8
_PLACES: Final = ("legacy", "mobile", "partner", "EU")
_ONE_PLACE: Final = {"rule", "preference", "version"}
"""Domains whose things cannot be had in several places."""


@dataclass(frozen=True, slots=True)
class Said:
    """One statement of a chain."""

    chain: int
    content: str = field(repr=False)
    type: FactType
    at: float
    thing: str = ""
    """What it is about, wherever that is: chains of one thing are easily taken for each other."""
    elsewhere: bool = False
    """It is about that thing in another place: the legacy one, the partner's."""
    keys: tuple[str, ...] = field(default=(), repr=False)
    """Whatever says what it says holds one of these."""


def make_chains(pick: random.Random, *, repeat: bool) -> list[list[Said]]:
    """Chains in the order of time; `repeat`: also ones that come back to an earlier value."""
    named = [(domain, thing) for domain in (*DOMAINS, *MORE_DOMAINS) for thing in domain.things]
    pick.shuffle(named)
    things = [(domain, thing, "") for domain, thing in named]
    things += [
        (domain, thing, f"{pick.choice([place for place in _PLACES if place not in thing])} ")
        for domain, thing in named
        if domain.name not in _ONE_PLACE
    ]
    return [_chain(number, *things[number], repeat=repeat, pick=pick) for number in range(CHAINS)]


def some_of(chains: Sequence[list[Said]], count: int) -> list[list[Said]]:
    """So many of them: those of things in other places, and those of the same things, first."""
    places = [said for said in chains if said[0].elsewhere]
    chosen = places[: count // 2]
    named = {said[0].thing for said in chosen}
    plain = [said for said in chains if not said[0].elsewhere]
    plain.sort(key=lambda said: said[0].thing not in named)  # stable: the same things come first
    return [*plain[: count - len(chosen)], *chosen]


def _chain(
    number: int, domain: Domain, thing: str, place: str, *, repeat: bool, pick: random.Random
) -> list[Said]:
    most = MOST_STATEMENTS if repeat else min(MOST_STATEMENTS, len(domain.values))
    values = _values(domain, pick.randint(2, most), pick)
    minute = pick.randint(0, 500)
    said: list[Said] = []
    for value in values:
        minute += pick.randint(1, 50)
        said.append(
            Said(
                chain=number,
                content=_told(domain, f"{place}{thing}", value, pick),
                type=domain.type,
                thing=thing,
                elsewhere=bool(place),
                at=START + 60.0 * minute + number / 1000,
                keys=_keys(domain, value),
            )
        )
    return said


def _values(domain: Domain, length: int, pick: random.Random) -> list[str]:
    """Values for a chain, none twice in a row; none twice at all where there are enough."""
    if len(domain.values) >= length:
        return pick.sample(domain.values, length)
    values = [pick.choice(domain.values)]
    while len(values) < length:
        values.append(pick.choice([one for one in domain.values if one != values[-1]]))
    return values


def _told(domain: Domain, thing: str, value: str, pick: random.Random) -> str:
    wordings = RULES[value] if domain.name == "rule" else domain.wordings + domain.chinese
    return pick.choice(wordings).format(thing=thing, value=value)


def _keys(domain: Domain, value: str) -> tuple[str, ...]:
    if domain.name != "rule":
        return (value,)
    return tuple(wording.split(" {thing}")[0] for wording in RULES[value])


def unrelated() -> list[Said]:
    """Statements that nothing replaces, each a chain of its own."""
    return [
        Said(chain=FIRST_UNRELATED + number, content=content, type=kind, at=START + 977.0 * number)
        for number, (kind, content) in enumerate(UNRELATED)
    ]


def in_order(chains: Sequence[Sequence[Said]]) -> list[Said]:
    """The statements of these chains, and the unrelated ones between them, by time."""
    return sorted((one for said in (*chains, unrelated()) for one in said), key=lambda one: one.at)
