"""Holds a memory against the chains of corrections that it was told: who holds, and since when.

Owns what is counted right. Must never count a chain by what the memory did not take for a fact:
how much that is, is told beside it. Pure. Always holds: a fact counts for the statement it rests
on, and only if it says what that statement says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from recollect.facts.history import as_of
from recollect.values.fact import Fact, FactId
from recollect_bench.facts.chains.tell import Said
from recollect_bench.facts.junk import rests_on
from recollect_bench.facts.through_store import Kept

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
    done = [_Chain(said, by_case[chain_case(said[0].chain)], kept) for said in chains]
    heard = [one for one in done if one.taken]
    moments = [right for one in heard for right in one.moments()]
    return Checked(
        chains=len(chains),
        corrections=sum(len(said) - 1 for said in chains),
        extracted=sum(at > 0 for one in done for at in one.taken),
        misread=sum(one.misread for one in done),
        last_extracted=sum(one.taken[-1] == len(one.said) - 1 for one in heard),
        heard=len(heard),
        holds=sum(one.holds for one in heard),
        moments=len(moments),
        moments_right=sum(moments),
        wrongly_closed=tuple(_across(known, of)),
        of_several=sum(len(cases) > 1 for cases in of.values()),
        amiss=tuple(
            one.said[one.taken[-1]].content for one in heard if not one.holds or one.misread
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

    def _is(self, held: Sequence[Fact], at: int) -> bool:
        """Whether one fact holds, and it is what was said there."""
        return len(held) == 1 and held[0] in self._resting[at] and _says(held[0], self.said[at])


def _says(fact: Fact, said: Said) -> bool:
    content = fact.content.casefold()
    return any(key.casefold() in content for key in said.keys)


def _cases(fact: Fact, kept: Kept) -> frozenset[str]:
    named = (kept.placed[id_].case for id_ in rests_on(fact))
    return frozenset(case for case in named if case is not None)


def _across(known: Mapping[FactId, Fact], of: Mapping[FactId, frozenset[str]]) -> list[Closing]:
    found: list[Closing] = []
    for fact in known.values():
        by = None if fact.superseded_by is None else known.get(fact.superseded_by)
        if by is not None and not of[fact.id] & of[by.id]:
            found.append(Closing(closed=fact, by=by))
    return found


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0
