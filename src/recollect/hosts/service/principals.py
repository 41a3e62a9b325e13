"""Who asks: the keys that requests bring, as the database knows them, remembered for a while.

A key is looked up again after `KEY_SECONDS`, so that one that was revoked ends soon.
Always holds: nothing but the key says which tenant a request is of, and inventing keys neither
forgets good ones nor makes the requests of others wait.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from recollect.core.values.tenant import ApiKey, Tenant
from recollect.hosts.service.keys import GivenKey, opens, read_key
from recollect.hosts.service.memories import TenantMemories
from recollect.hosts.service.problems import Problem, ProblemKind

KEY_SECONDS: Final = 5.0
"""How long a node goes by what it read of a key: so late a revocation reaches it."""
MOST_KEYS: Final = 10_000
MOST_REFUSED_KEYS: Final = 1_000
"""Keys that open nothing are remembered apart, so that inventing them forgets no good one."""
KEYS_LOOKED_UP: Final = 2
"""So many keys that a node has not seen are asked of the database at once."""
KEYS_WAITING: Final = 200
"""So many more wait for that; others are told to come again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who asks: one tenant, by one of its keys."""

    tenant: Tenant
    key: ApiKey
    space: str = ""
    """The space that the path names, for mounted applications."""


class Principals:
    """Who the bearers of keys are."""

    def __init__(self, memories: TenantMemories) -> None:
        self._memories = memories
        self._keys: OrderedDict[bytes, tuple[float, Principal]] = OrderedDict()
        self._refused_keys: OrderedDict[bytes, float] = OrderedDict()
        self._lookups = asyncio.Semaphore(KEYS_LOOKED_UP)
        self._waiting = 0

    async def of(self, header: str) -> Principal:
        """Who asks; a key that is unknown, has ended or was revoked is none."""
        scheme, _, text = header.partition(" ")
        given = read_key(text.strip()) if scheme.lower() == "bearer" else None
        found = None if given is None else await self._known(given)
        if found is None or given is None or not opens(given, found.key, now=time.time()):
            raise Problem(
                ProblemKind.UNAUTHORIZED, "bring a valid key as `Authorization: Bearer rk_…`"
            )
        return found

    async def _known(self, given: GivenKey) -> Principal | None:
        now = time.monotonic()
        since = now - KEY_SECONDS
        if self._refused_keys.get(given.hash, since) > since:
            return None
        known = self._keys.get(given.hash)
        if known is None:
            return await self._looked_up_in_turn(given)
        self._keys.move_to_end(given.hash)
        return known[1] if known[0] > since else await self._looked_up(given)

    async def _looked_up_in_turn(self, given: GivenKey) -> Principal | None:
        if self._waiting >= KEYS_WAITING:
            raise Problem(ProblemKind.BUSY, "too many unknown keys: come again", retry_after=1.0)
        self._waiting += 1
        try:
            async with self._lookups:
                known = self._keys.get(given.hash)  # somebody else asked meanwhile
                return await self._looked_up(given) if known is None else known[1]
        finally:
            self._waiting -= 1

    async def _looked_up(self, given: GivenKey) -> Principal | None:
        now = time.monotonic()
        records = await self._memories.records()
        found = await records.key(given.tenant, given.id)
        if found is None or not opens(given, found[0], now=time.time()):
            self._keys.pop(given.hash, None)
            self._refused_keys[given.hash] = now
            while len(self._refused_keys) > MOST_REFUSED_KEYS:
                self._refused_keys.popitem(last=False)
            return None
        self._keys[given.hash] = (now, Principal(key=found[0], tenant=found[1]))
        while len(self._keys) > MOST_KEYS:
            self._keys.popitem(last=False)
        return self._keys[given.hash][1]
