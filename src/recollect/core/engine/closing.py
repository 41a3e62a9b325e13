"""Completes the writes of a memory: stores everything that was given, or counts what could not be
stored. If a memory is closed and that takes long, short messages are stored before long ones."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import groupby
from math import inf
from operator import itemgetter
from typing import Final
from weakref import WeakKeyDictionary

from recollect.core.boundary import Failure, attempted
from recollect.core.engine.archive import CLOSE_SECONDS
from recollect.core.engine.keeper import OffLoop, SessionKeeper
from recollect.core.engine.ledger import ArchiveState, GivenMessage
from recollect.core.rules.message_redaction import RepeatedWords
from recollect.system.plain_text import number_of

LOG: Final = logging.getLogger("recollect")
LOOK_SECONDS: Final = 0.25
STALL_SECONDS: Final = 2.0
"""If closing stores nothing for this long, it stores short messages before long ones. On a busy
machine, masking and writing 200 short messages takes up to 2 s."""
GROUP_BYTES: Final = 4_000
"""Short messages are stored early in groups of this size. Not measured; masking takes moments."""
LAST_TRY_SECONDS: Final = 15.0
"""Time limit of the last attempt to store or spool what is held in RAM. SQLite waits up to 5 s for
another process; a spool that hangs would never end the attempt."""


class Closing:
    """Closes the sessions and the store of one memory."""

    def __init__(self, keeper: SessionKeeper) -> None:
        self._keeper = keeper
        self._until = inf
        self._failed: Failure | None = None
        self._repeats: WeakKeyDictionary[ArchiveState, RepeatedWords] = WeakKeyDictionary()

    async def settle(self, seconds: float) -> int:
        """Wait up to `seconds` until everything that was given so far is in the store. Return how
        many messages and batches still wait."""
        until = time.monotonic() + seconds
        given = [(state, key) for state in self._keeper.states for key in state.unstored_messages]
        ended = await self._keeper.wait_for_all(seconds)
        waits = await self._keeper.archive.settle(max(0.0, until - time.monotonic()))
        if ended and any(key in state.unstored_messages for state, key in given):
            await self._store_rest(until)
            waits = await self._keeper.archive.settle(0.0)
        return waits + max(sum(key in state.unstored_messages for state, key in given), not ended)

    def hurry(self, seconds: float) -> None:
        """Let `finish` end within `seconds` from now, if it would take longer."""
        self._until = min(self._until, time.monotonic() + seconds)

    async def finish(self) -> None:
        """Make everything durable that was given, in the time that `hurry` left."""
        try:
            await self._finish()
        except asyncio.CancelledError:
            LOG.warning(
                "closing was interrupted with %s to store: the event loop stores them before it "
                "ends, unless you interrupt it again",
                number_of(self._count_unstored(), "message"),
            )
            raise

    async def close(self) -> int:
        """Close the store. Return the number of messages that are neither in the store nor in the
        spool."""
        why = "storing them takes longer than store.close_seconds allows"
        if self._keeper.archive.location == "nowhere":
            why = "neither the store nor the spool accepts writes"
        elif time.monotonic() < self._until:
            why = "closing was interrupted" if self._failed is None else self._failed.reason
        held = await self._keeper.close()
        unstored = self._count_unstored()
        if held or unstored:
            LOG.warning(
                "closed without storing %s: %s. Messages are stored if the client sends them again",
                number_of(unstored, "message") if unstored else number_of(held, "write"),
                why,
            )
        return unstored

    def _count_unstored(self) -> int:
        return sum(len(state.unstored_messages) for state in self._keeper.states)

    async def _finish(self) -> None:
        keeper, archive = self._keeper, self._keeper.archive
        stored, stored_at, early = keeper.stored_batches, time.monotonic(), None
        while (left := self._until - time.monotonic()) > 0:
            if await keeper.wait_for_all(min(left, LOOK_SECONDS)):
                break
            now = time.monotonic()
            if stored != keeper.stored_batches:
                stored, stored_at = keeper.stored_batches, now
            elif now - stored_at > STALL_SECONDS and (early is None or early.done()):
                early = keeper.start(attempted(self._store_short_first()))
        await archive.settle(CLOSE_SECONDS)
        await archive.retry_held(min(max(CLOSE_SECONDS, left), LAST_TRY_SECONDS))
        await self._store_rest(self._until)

    async def _store_rest(self, until: float) -> None:
        """Store messages whose writes failed, as long as that makes progress."""
        before = inf
        while 0 < (unstored := self._count_unstored()) < before:
            if (left := until - time.monotonic()) <= 0:
                return
            before = unstored
            self._keeper.start(attempted(self._store_short_first()))
            await self._keeper.wait_for_all(left)

    async def _store_short_first(self) -> None:
        # Slow masking may occupy every thread of the event loop's own executor.
        executor = ThreadPoolExecutor(1, thread_name_prefix="recollect-closing")
        off_loop = partial(asyncio.get_running_loop().run_in_executor, executor)
        expected = self._keeper.stored_batches
        for state, group in _short_first(self._keeper.states):
            away = state.masking_keys | state.waiting_keys
            repeats = await self._repeats_of(state, off_loop)
            ready = [
                given
                for given in group
                if state.unstored_messages.get(given.entry.key) is given
                and given.entry.key not in away
                and not repeats.may_repeat(given.entry.key, state.unstored_messages)
            ]
            if ready:
                expected += await self._store_early(ready, state, off_loop)
            if self._keeper.stored_batches != expected:  # others are stored in order again
                return

    async def _store_early(
        self, group: Sequence[GivenMessage], state: ArchiveState, off_loop: OffLoop
    ) -> int:
        """Store a group, or its messages one by one if that fails. Return the number of batches."""
        kept = await attempted(self._keeper.write_early(group, state, off_loop))
        if not isinstance(kept, Failure):
            return int(kept.location != "nowhere")
        self._failed = kept
        if len(group) == 1:
            return 0
        return sum([await self._store_early([given], state, off_loop) for given in group])

    async def _repeats_of(self, state: ArchiveState, off_loop: OffLoop) -> RepeatedWords:
        """Search the messages of a session once, because some may have many megabytes."""
        repeats = self._repeats.get(state)
        if repeats is None or not repeats.knows(state.unstored_messages.keys()):
            messages = {key: given.entry.message for key, given in state.unstored_messages.items()}
            repeats = self._repeats[state] = await off_loop(RepeatedWords, messages)
        return repeats


def _short_first(
    states: Iterable[ArchiveState],
) -> list[tuple[ArchiveState, list[GivenMessage]]]:
    """Group the messages that are not durable: those of one request that are short together."""
    groups: list[tuple[int, ArchiveState, list[GivenMessage]]] = []
    for state in states:
        by_size = sorted(state.unstored_messages.values(), key=_size_bytes)
        for _, same_request in groupby(sorted(by_size, key=_request_id), key=_request_id):
            total = GROUP_BYTES
            for given in same_request:
                total += _size_bytes(given)
                if total > GROUP_BYTES:
                    total = _size_bytes(given)
                    groups.append((total, state, []))
                groups[-1][2].append(given)
    groups.sort(key=itemgetter(0))
    return [(state, group) for _, state, group in groups]


def _size_bytes(given: GivenMessage) -> int:
    return len(given.entry.raw)


def _request_id(given: GivenMessage) -> int:
    return id(given.history)
