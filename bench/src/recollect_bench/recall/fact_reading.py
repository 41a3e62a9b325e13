"""Reads a stored memory for facts as the background of the engine does, to the end.

Owns the jobs that are enqueued and the clock they run by. Must never extract, reconcile or digest
anything itself: the engine's handlers do. Always holds: a job that failed is tried as often as a
worker tries it, at once; what stays undone is counted, never hidden.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, cast

from recollect.config import Settings, build
from recollect.engine.background import runner_of
from recollect.ports import Embedder, Model, Store
from recollect.upkeep.jobs import RunResult
from recollect.values.batch import Batch, extract_job
from recollect.values.fact import Fact, FactId
from recollect.values.segment import SegmentId, StoredSegment
from recollect_bench.recall.memory import StoredMemory

FactsBy: TypeAlias = Literal["none", "rules", "model"]
"""Who reads a memory for facts: nobody, rules alone, or rules and a model."""
_SETTINGS: Final = {"jobs.day_tokens": None, "recall.scope": "space"}
"""A bench has no day, and every set is one memory of many sessions."""
_PAGE: Final = 500

Told: TypeAlias = Callable[[int], None]
"""So many jobs are done."""


@dataclass(slots=True)
class _MovingClock:
    """Stands, until a job waits for a later time."""

    at: float

    def now(self) -> float:
        """The time it was set to."""
        return self.at


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFacts:
    """What a memory holds after it was read."""

    facts: dict[FactId, Fact] = field(default_factory=dict, repr=False)
    """The current ones, digests among them."""
    superseded: int = 0
    messages_read: int = 0
    """Of those that were to be read, the ones that extraction came past."""
    dead_jobs: int = 0
    """Given up: what they would have read is missing."""
    seconds: float = 0.0

    @property
    def digests(self) -> int:
        """How many of the facts are digests."""
        return sum(fact.type == "digest" for fact in self.facts.values())


class _PartOfStore:
    """A store in which extraction finds only some messages of a session; the rest is as it is."""

    def __init__(self, store: Store, only: frozenset[SegmentId]) -> None:
        self._store = store
        self._only = only

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def page(
        self, *, after: int = 0, limit: int = _PAGE, **how: Any
    ) -> tuple[StoredSegment, ...]:
        """So many of those that are to be read, however far apart; fewer at the end only."""
        wanted: list[StoredSegment] = []
        while len(wanted) < limit:
            found = await self._store.page(after=after, limit=_PAGE, **how)
            if not found:
                break
            wanted += [one for one in found if one.segment.id in self._only]
            after = found[-1].sequence
        return tuple(wanted[:limit])


async def read_for_facts(
    stored: StoredMemory,
    *,
    places: Collection[int] | None = None,
    embedders: Sequence[Embedder] = (),
    model: Model | None = None,
    settings: Settings | None = None,
    told: Told = lambda _: None,
) -> ReadFacts:
    """Read every session of a memory, or these messages, and give its facts their vectors."""
    store = stored.store
    clock = _MovingClock(stored.memory.ends_at)
    messages = stored.messages if places is None else [stored.messages[at] for at in sorted(places)]
    sessions = dict.fromkeys(message.session for message in messages)
    jobs = tuple(extract_job(session, run_at=clock.at, left=True) for session in sessions)
    started = time.perf_counter()
    await store.write(Batch(at=clock.at, jobs=jobs))
    if places is not None:
        store = cast(Store, _PartOfStore(store, frozenset(one.segment for one in messages)))
    runner = runner_of(store, settings or build(_SETTINGS), clock, embedders, model=model)
    done = 0

    def count(result: RunResult) -> None:
        nonlocal done
        done += result.done
        told(done)

    while True:
        taken = (await runner.run_due(told=count)).taken
        due_at = (await store.queue()).due_at
        if due_at is None or (not taken and due_at <= clock.at):
            break
        clock.at = max(clock.at, due_at)
    read_to = {session: await store.extracted_to(session) for session in sessions}
    every = await store.facts(superseded=True)
    current = {fact.id: fact for fact in await store.facts()}
    return ReadFacts(
        facts=current,
        superseded=len(every) - len(current),
        messages_read=sum(one.sequence <= read_to[one.session] for one in messages),
        dead_jobs=(await store.queue()).dead,
        seconds=time.perf_counter() - started,
    )
