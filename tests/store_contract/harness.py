"""Runs one check of the contract on stores that a factory opens.

Owns the life of the stores of a check: each check gets spaces of its own, under names that no
other check uses, so checks can share a server and run beside each other. Always holds: a check
that passed leaves stores whose own `check` is clean, and closes what it opened. Checks on
generated cases need hypothesis, imported when they run; it draws in a thread of its own and hands
each case to the event loop where the store lives.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias
from unittest import SkipTest
from uuid import uuid4

from recollect.core.ports import Store
from recollect.core.values.batch import Lease
from recollect.core.values.fact import FactId
from recollect.core.values.recall import CandidateQuery
from recollect.core.values.segment import SegmentId

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


# Checks on generated cases

_CASES = 25


async def for_every(
    drawn: Callable[[], SearchStrategy[Any]], hold: Callable[[Any], Coroutine[Any, Any, None]]
) -> None:
    """Hold for every case that hypothesis thinks of."""
    from hypothesis import HealthCheck, given, settings

    loop = asyncio.get_running_loop()

    @settings(
        max_examples=_CASES, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(drawn())
    def run(case: Any) -> None:
        asyncio.run_coroutine_threadsafe(hold(case), loop).result()

    await asyncio.to_thread(run)


async def claim_all(
    store: Store,
    *,
    now: float,
    kinds: tuple[str, ...],
    lease_seconds: float = 60,
    limit: int = 100,
    **more: Any,
) -> tuple[Lease, ...]:
    """Claim due jobs, one by one, until none is left or there are `limit`."""
    leases: list[Lease] = []
    while len(leases) < limit:
        lease = await store.claim(now=now, lease_seconds=lease_seconds, kinds=kinds, **more)
        if lease is None:
            break
        leases.append(lease)
    return tuple(leases)


OpenStore: TypeAlias = Callable[[str], Awaitable[Store]]
"""Opens the memory of a space, made where it is missing. Called again for a space that is open
already, it gives another store on the same memory."""

Damage: TypeAlias = Callable[[str, SegmentId], Awaitable[None]]
"""Makes one stored segment of a space unreadable, behind the back of its store."""

DamageFact: TypeAlias = Callable[[str, FactId], Awaitable[None]]
"""The same for one stored fact."""


async def cannot_damage(space: str, segment: SegmentId) -> None:
    """For stores whose records cannot be damaged from outside, or that do not say how."""
    raise SkipTest("it was not said how a record can be damaged")


async def cannot_damage_fact(space: str, fact: FactId) -> None:
    """As `cannot_damage`, for facts."""
    raise SkipTest("it was not said how a fact can be damaged")


class Spaces:
    """The stores of one check."""

    def __init__(
        self,
        open_store: OpenStore,
        name: str,
        damage: Damage = cannot_damage,
        damage_fact: DamageFact = cannot_damage_fact,
    ) -> None:
        self._open_store = open_store
        self._damage = damage
        self._damage_fact = damage_fact
        self._prefix = f"{name[:24]}-{uuid4().hex[:12]}"
        self._open: dict[str, list[Store]] = {}
        self._damaged: list[Store] = []

    async def open(self, name: str = "one") -> Store:
        """The memory of a space of this check; twice the same name is twice the same memory."""
        space = f"{self._prefix}-{name}"
        store = await self._open_store(space)
        assert store.space == space, "a store says which space it is the memory of"
        self._open.setdefault(space, []).append(store)
        return store

    async def close(self, store: Store) -> None:
        """Close a store before the check ends."""
        self._open[store.space].remove(store)
        await store.close()

    async def reopen(self, store: Store) -> Store:
        """Close a store and open its memory again."""
        await self.close(store)
        return await self.open(store.space.removeprefix(f"{self._prefix}-"))

    async def damage(self, store: Store, segment: SegmentId) -> Store:
        """Close a store, make one of its segments unreadable, open it again.

        It is not examined at the end of the check: it cannot be clean any more.
        """
        await self.close(store)
        await self._damage(store.space, segment)
        return await self._open_damaged(store.space)

    async def damage_fact(self, store: Store, fact: FactId) -> Store:
        """As `damage`, for a fact."""
        await self.close(store)
        await self._damage_fact(store.space, fact)
        return await self._open_damaged(store.space)

    async def _open_damaged(self, space: str) -> Store:
        damaged = await self._open_store(space)
        self._damaged.append(damaged)
        return damaged

    async def finish(self, store: Store) -> None:
        """Examine and close the only store of a space that the check is done with."""
        await _examine(store)
        await self.close(store)
        del self._open[store.space]

    async def examine(self) -> None:
        """Every memory that was opened says of itself that it is clean."""
        unclean = {store.space for store in self._damaged}
        for space, stores in self._open.items():
            if space in unclean:
                continue
            if not stores:
                stores.append(await self._open_store(space))
            await _examine(stores[0])

    async def close_all(self) -> None:
        """Close what is open still."""
        for stores in (*self._open.values(), self._damaged):
            while stores:
                await stores.pop().close()


Check: TypeAlias = Callable[[Spaces], Awaitable[None]]
"""One invariant: its name and its docstring say what must hold; it raises where that fails."""


async def _examine(store: Store) -> None:
    result = await store.check()
    assert result.checked, "a check says what it looked at"
    assert not result.problems, result.problems


def checks_of(*modules: ModuleType) -> tuple[Check, ...]:
    """The checks of these modules: all their public coroutine functions."""
    return tuple(
        made
        for module in modules
        for name, made in vars(module).items()
        if not name.startswith("_")
        and inspect.iscoroutinefunction(made)
        and made.__module__ == module.__name__
    )


async def run_check(
    check: Check,
    open_store: OpenStore,
    *,
    damage: Damage = cannot_damage,
    damage_fact: DamageFact = cannot_damage_fact,
) -> None:
    """Run one check; what it raises carries the sentence that does not hold."""
    spaces = Spaces(open_store, getattr(check, "__name__", "check"), damage, damage_fact)
    try:
        await check(spaces)
        await spaces.examine()
    except AssertionError as error:
        error.add_note(f"the store contract: {inspect.getdoc(check)}")
        raise
    finally:
        await spaces.close_all()


async def contents(store: Store, *sessions: str) -> dict[str, Any]:
    """All that can be seen of a store, for comparing it before and after."""
    stats = await store.stats()
    index = await store.candidates(CandidateQuery())
    return {
        "page": await store.page(limit=100_000),
        "sessions": await store.sessions(),
        "facts": await store.facts(superseded=True),
        "jobs": await store.jobs(limit=100_000),
        "queue": await store.queue(),
        "index": (index.documents, index.average_length),
        "stored": [await store.session(session) for session in sessions],
        "turns": [await store.turns(session) for session in sessions],
        "compactions": [await store.compactions(session) for session in sessions],
        "counts": (
            stats.segments, stats.noise, stats.passages, stats.tokens,
            dict(stats.vectors), stats.facts, stats.sessions, stats.turns, stats.pieces,
            stats.compactions, stats.tombstones, stats.jobs_waiting, stats.jobs_dead,
        ),
    }  # fmt: skip
