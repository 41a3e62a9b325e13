"""The contract that every store must pass, as checks that run on a store of your own too.

With pytest, say how a store is opened, and every check is a test:

    from tests.store_contract import StoreContract

    class TestMyStore(StoreContract):
        async def open_store(self, space: str) -> Store:
            return await MyStore.open(self.address, space)

`open_store` opens the memory of a space and makes it where it is missing; called again for a
space that is open it gives a second store on the same memory. Spaces have names that no other
check uses, so one server may serve all checks, in any order and at once. Fixtures work as in
any test class: an autouse one can set `self.address`. Every check runs in an event loop of its
own; what its stores share, a pool for instance, is closed by `close_shared`. `damage` and
`damage_fact` make a record unreadable, where you can say how: a check is skipped without. Put

    pytest.register_assert_rewrite("tests.store_contract")

in front of the import to see the values of an assertion that fails. Without pytest:

    asyncio.run(run_contract(open_store))

runs every check and raises what failed, together. `CONTRACT` holds the checks themselves; each
is one sentence that must hold, its docstring. After every check the store's own `check` has to
be clean. `examples` makes the values, `model` knows the right answers. The checks that try
many cases of their own making need hypothesis.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Final
from unittest import SkipTest

from tests.store_contract import (
    compactions,
    fact_revisions,
    facts,
    forgetting,
    indexing,
    jobs,
    places,
    properties,
    searching,
    sessions,
    upkeep,
    writing,
)
from tests.store_contract.harness import (
    Check,
    Damage,
    DamageFact,
    OpenStore,
    Spaces,
    cannot_damage,
    cannot_damage_fact,
    checks_of,
    run_check,
)

from recollect.core.ports import Store
from recollect.core.values.fact import FactId
from recollect.core.values.segment import SegmentId

__all__ = [
    "CONTRACT", "Check", "Damage", "DamageFact", "OpenStore", "Spaces", "StoreContract",
    "run_check", "run_contract",
]  # fmt: skip

CONTRACT: Final[tuple[Check, ...]] = checks_of(
    writing,
    sessions,
    searching,
    indexing,
    facts,
    fact_revisions,
    jobs,
    compactions,
    forgetting,
    places,
    upkeep,
    properties,
)
"""Every check, in an order to build a store by."""


async def run_contract(
    open_store: OpenStore,
    *,
    damage: Damage = cannot_damage,
    damage_fact: DamageFact = cannot_damage_fact,
) -> None:
    """Run every check; raises an ExceptionGroup of those that do not hold."""
    failed: list[Exception] = []
    for check in CONTRACT:
        run = run_check(check, open_store, damage=damage, damage_fact=damage_fact)
        (outcome,) = await asyncio.gather(run, return_exceptions=True)
        if isinstance(outcome, Exception) and not isinstance(outcome, SkipTest):
            failed.append(outcome)
    if failed:
        raise ExceptionGroup(f"{len(failed)} of {len(CONTRACT)} checks failed", failed)


class StoreContract:
    """The checks as test methods, for a class whose name pytest collects."""

    async def open_store(self, space: str) -> Store:
        """Open the memory of a space; yours to write."""
        raise NotImplementedError("say how a store is opened")

    async def damage(self, space: str, segment: SegmentId) -> None:
        """Make one stored segment unreadable behind the store's back; skipped where not given."""
        await cannot_damage(space, segment)

    async def damage_fact(self, space: str, fact: FactId) -> None:
        """Make one stored fact unreadable behind the store's back; skipped where not given."""
        await cannot_damage_fact(space, fact)

    async def close_shared(self) -> None:
        """Close what the stores of a check shared, such as a pool; nothing by default."""


def _as_test(check: Check) -> Callable[[StoreContract], None]:
    async def run(contract: StoreContract) -> None:
        try:
            await run_check(
                check, contract.open_store, damage=contract.damage, damage_fact=contract.damage_fact
            )
        finally:
            await contract.close_shared()

    def test(self: StoreContract) -> None:
        asyncio.run(run(self))

    test.__doc__ = inspect.getdoc(check)
    return test


for _check in CONTRACT:
    setattr(StoreContract, f"test_{getattr(_check, '__name__', '')}", _as_test(_check))
