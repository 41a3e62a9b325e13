"""Chains of corrections: made, told as messages, read by the engine's own jobs, and counted.

The same source of chance gives the same chains; no chain says the same twice in a row; statements
of one thing are of one chain only. In one memory of all sessions a chain goes on from one session
to the next; where every session is a memory of its own, a chain stays in one. Statements arrive in
the order they were said in, with others between them. Must never make a draft or a fact itself.
A fact counts for the statement it rests on, and only if it says the same; a chain that was not
taken for a fact is counted apart.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from recollect.facts.history import as_of
from recollect.values.fact import Fact, FactId, FactType
from recollect_bench.facts.bury import Placed, Sitting
from recollect_bench.facts.chain_domains import DOMAINS, MORE_DOMAINS, RULES, UNRELATED, Domain
from recollect_bench.facts.junk import rests_on
from recollect_bench.facts.through_store import Kept, Scope, remember

__all__ = ["SEED", "check_through_store"]


# Makes chains of corrections


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
    places = [messages for messages in chains if messages[0].elsewhere]
    chosen = places[: count // 2]
    named = {messages[0].thing for messages in chosen}
    plain = [messages for messages in chains if not messages[0].elsewhere]
    plain.sort(
        key=lambda messages: messages[0].thing not in named
    )  # stable: the same things come first
    return [*plain[: count - len(chosen)], *chosen]


def _chain(
    number: int, domain: Domain, thing: str, place: str, *, repeat: bool, pick: random.Random
) -> list[Said]:
    most = MOST_STATEMENTS if repeat else min(MOST_STATEMENTS, len(domain.values))
    values = _values(domain, pick.randint(2, most), pick)
    minute = pick.randint(0, 500)
    messages: list[Said] = []
    for value in values:
        minute += pick.randint(1, 50)
        messages.append(
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
    return messages


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
    return sorted(
        (message for messages in (*chains, unrelated()) for message in messages),
        key=lambda message: message.at,
    )


# A memory held against its chains


LONG_AFTER: Final = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """A fact that one of another chain took the place of."""

    closed: Fact
    by: Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What a memory made of the chains."""

    chains: int
    corrections: int
    """Statements that are not the first of their chain."""
    extracted: int
    """Corrections that a fact rests on."""
    misread: int
    """Statements that a fact rests on, but none that says what they say."""
    last_extracted: int
    """Chains whose last correction is a fact."""
    heard: int
    """Chains of which anything is a fact."""
    holds: int
    """Chains whose one current fact is the last statement of them that is a fact."""
    moments: int
    moments_right: int
    """Moments at which exactly the version held that was the last to be extracted by then."""
    wrongly_closed: tuple[Closing, ...] = field(default=(), repr=False)
    of_several: int = 0
    """Facts that rest on statements of more than one chain."""
    amiss: tuple[str, ...] = field(default=(), repr=False)
    """The last words of chains that do not hold."""

    @property
    def figures(self) -> dict[str, float]:
        """As a bench names them."""
        return {
            "chains": float(self.chains),
            "corrections": float(self.corrections),
            "extracted": _share(self.extracted, self.corrections),
            "misread": float(self.misread),
            "last_extracted": _share(self.last_extracted, self.chains),
            "last_extracted_holds": _share(self.holds, self.heard),
            "as_of_moments": float(self.moments),
            "as_of_right": _share(self.moments_right, self.moments),
            "closed_by_another": float(len(self.wrongly_closed)),
            "facts_of_several": float(self.of_several),
        }


def check_chains(kept: Kept, chains: Sequence[Sequence[Said]]) -> Checked:
    """Count, chain by chain. Their messages were placed as `chain_case` names them."""
    known = {fact.id: fact for fact in kept.facts}
    of = {fact.id: _cases(fact, kept) for fact in kept.facts}
    by_case: dict[str, list[Fact]] = defaultdict(list)
    for fact in kept.facts:
        for case in of[fact.id]:
            by_case[case].append(fact)
    done = [_Chain(messages, by_case[chain_case(messages[0].chain)], kept) for messages in chains]
    heard = [chain for chain in done if chain.taken]
    moments = [right for chain in heard for right in chain.moments()]
    return Checked(
        chains=len(chains),
        corrections=sum(len(messages) - 1 for messages in chains),
        extracted=sum(at > 0 for chain in done for at in chain.taken),
        misread=sum(chain.misread for chain in done),
        last_extracted=sum(chain.taken[-1] == len(chain.said) - 1 for chain in heard),
        heard=len(heard),
        holds=sum(chain.holds for chain in heard),
        moments=len(moments),
        moments_right=sum(moments),
        wrongly_closed=tuple(_across(known, of)),
        of_several=sum(len(cases) > 1 for cases in of.values()),
        amiss=tuple(
            chain.said[chain.taken[-1]].content
            for chain in heard
            if not chain.holds or chain.misread
        ),
    )


def chain_case(number: int) -> str:
    """What the messages of a chain are placed as."""
    return f"chain-{number}"


class _Chain:
    """One chain and the facts that rest on it."""

    def __init__(self, said: Sequence[Said], facts: Sequence[Fact], kept: Kept) -> None:
        self.said = said
        self.facts = facts
        case = chain_case(said[0].chain)
        self._resting: dict[int, list[Fact]] = defaultdict(list)
        for fact in facts:
            for id_ in rests_on(fact):
                if kept.placed[id_].case == case:
                    self._resting[kept.placed[id_].index].append(fact)
        self.taken = sorted(self._resting)

    @property
    def misread(self) -> int:
        return sum(
            not any(_says(fact, self.said[at]) for fact in self._resting[at]) for at in self.taken
        )

    @property
    def holds(self) -> bool:
        return self._is([fact for fact in self.facts if fact.current], self.taken[-1])

    def moments(self) -> list[bool]:
        """Whether each moment tells what held: before all, then at, within and to the end."""
        right = [not as_of(self.facts, self.said[self.taken[0]].at - 1)]
        ends = [*self.taken, None]
        for at, after in pairwise(ends):
            assert at is not None
            since = self.said[at].at
            until = since + LONG_AFTER if after is None else self.said[after].at
            moments = (since, (since + until) / 2, until - 0.5)
            right += [self._is(as_of(self.facts, moment), at) for moment in moments]
        return right

    def _is(self, facts: Sequence[Fact], at: int) -> bool:
        """Whether one fact holds, and it is what was said there."""
        return len(facts) == 1 and facts[0] in self._resting[at] and _says(facts[0], self.said[at])


def _says(fact: Fact, message: Said) -> bool:
    content = fact.content.casefold()
    return any(key.casefold() in content for key in message.keys)


def _cases(fact: Fact, kept: Kept) -> frozenset[str]:
    named = (kept.placed[id_].case for id_ in rests_on(fact))
    return frozenset(case for case in named if case is not None)


def _across(known: Mapping[FactId, Fact], of: Mapping[FactId, frozenset[str]]) -> list[Closing]:
    closings: list[Closing] = []
    for fact in known.values():
        by = None if fact.superseded_by is None else known.get(fact.superseded_by)
        if by is not None and not of[fact.id] & of[by.id]:
            closings.append(Closing(closed=fact, by=by))
    return closings


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0


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
    messages = in_order(chains)
    sittings = _following(messages) if scope == "space" else _beside(messages)
    return check_chains(asyncio.run(remember(sittings, progress, scope=scope)), chains)


def _following(messages: Sequence[Said]) -> list[Sitting]:
    """One session after the other, all chains going on in the next."""
    placed = _placed(messages)
    return [
        Sitting(name=f"session-{first}", messages=tuple(placed[first : first + SITTING_MESSAGES]))
        for first in range(0, len(placed), SITTING_MESSAGES)
    ]


def _beside(said: Sequence[Said]) -> list[Sitting]:
    """Sessions at the same time, every chain in one of them, and all chains of a thing together."""
    placeds: dict[str, list[Placed]] = {}
    things: dict[str, int] = {}
    for message, placed in zip(said, _placed(said), strict=True):
        number = things.setdefault(message.thing, len(things)) % SESSIONS
        placeds.setdefault(f"session-{number}", []).append(placed)
    return [Sitting(name=name, messages=tuple(messages)) for name, messages in placeds.items()]


def _placed(messages: Sequence[Said]) -> list[Placed]:
    told: dict[int, int] = {}
    placed: list[Placed] = []
    for message in messages:
        index = told.get(message.chain, 0)
        told[message.chain] = index + 1
        placed.append(
            Placed(
                role="user",
                text=_sentence(message.content),
                case=chain_case(message.chain),
                index=index,
                said_at=message.at,
            )
        )
    return placed


def _sentence(content: str) -> str:
    """As people write it: from a capital letter to a stop."""
    stop = "。" if content[-1] >= _CHINESE_FROM else "."
    return f"{content[0].upper()}{content[1:]}{stop}"
