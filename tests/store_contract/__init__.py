"""The contract that every store must pass. A class that says how a store is opened has every check
as a test:

    class TestMyStore(StoreContract):
        async def open_store(self, space: str) -> Store:
            return await MyStore.open(self.address, space)

`open_store` opens the memory of a space and makes it if it is missing; called again, it opens a
second store on the same memory. Every check runs in an event loop of its own, on spaces of its
own, and the store's own `check` must be clean after it. `examples` makes the values, `model` knows
the right answers.
"""

import asyncio
import inspect
from collections.abc import Callable
from typing import Final

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
    cannot_damage,
    cannot_damage_fact,
    checks_of,
    run_check,
)

from recollect.core.ports import Store
from recollect.core.values.fact import FactId
from recollect.core.values.segment import SegmentId

__all__ = ["CONTRACT", "StoreContract", "run_check"]

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
