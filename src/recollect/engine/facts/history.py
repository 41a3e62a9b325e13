"""The versions of a fact for people, with a gap where a forgotten one stood.

Pure; `memory.history` finds the chain. Always holds: every version stands once; a gap stands
where, and only where, one is known to be missing.
"""

from __future__ import annotations

from collections.abc import Sequence

from recollect.engine.facts.told import FactHistory, FactVersion
from recollect.memory.history import versions
from recollect.values.fact import Fact


def history_of(fact: Fact, facts: Sequence[Fact]) -> FactHistory:
    """A fact's versions among `facts`, which hold the replaced ones too."""
    every = facts if any(one.id == fact.id for one in facts) else (*facts, fact)
    found = versions(every, fact.id)
    replaced = {one.fact.superseded_by for one in found}
    shown: list[FactVersion] = []
    for version in found:
        one = version.fact
        after_gap = bool(shown) and shown[-1].fact is None
        if one.change is not None and one.id not in replaced and not after_gap:
            shown.append(FactVersion(fact=None))
        shown.append(FactVersion(fact=one, until=version.until))
        if version.followed_by_gap:
            shown.append(FactVersion(fact=None, id=one.superseded_by))
    return FactHistory(asked=fact, versions=tuple(shown))


def before(history: FactHistory) -> tuple[Fact, ...]:
    """The versions before the one that was asked for, newest first."""
    earlier = [one for one in history.facts if one.id != history.asked.id]
    return tuple(reversed([one for one in earlier if one.at <= history.asked.at]))
