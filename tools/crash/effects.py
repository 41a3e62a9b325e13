"""Effects of jobs that can be counted: each run of a job would leave another one.

An effect's id is random on purpose: an id made from the job would hide a second effect behind
the first. Always holds: the effects of a job are as many as the completions that were written.
"""

from __future__ import annotations

from collections import Counter
from uuid import uuid4

from recollect.core.ports import Store
from recollect.core.values.batch import Batch, Lease
from recollect.core.values.fact import Fact, FactId

PREFIX = "effect of "


def effect_of(lease: Lease, *, at: float) -> Batch:
    """What completing this job writes."""
    content = f"{PREFIX}{lease.key}"
    effect = Fact(
        id=FactId(uuid4().hex),
        type="task_state",
        content=content,
        at=at,
        words=tuple(content.split()),
    )
    return Batch(at=at, facts=(effect,))


async def count_effects(store: Store) -> Counter[str]:
    """How many effects each job has."""
    facts = await store.facts(superseded=True)
    return Counter(
        fact.content.removeprefix(PREFIX) for fact in facts if fact.content.startswith(PREFIX)
    )
