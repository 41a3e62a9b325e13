"""The spool's log cut off within the pages of its last record, then drained into a store.

A record is torn when the power goes while it is written: it was not acknowledged, so its client
sends it again. What was whole before it must reach the store first. Owns the cuts.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from pathlib import Path

from recollect.adapters.stores.spool import FileSpool
from recollect.core.engine.archive import DurableArchive
from recollect.core.formats.stored_records import write_batch
from recollect.core.ports import Spool
from recollect.core.values.batch import Batch
from recollect.system.config.settings import StoreSettings
from tools.crash.outcome import Outcome, Tell, silent
from tools.crash.places import Place
from tools.crash.plan import LONG_EVERY, planned_batch
from tools.crash.verify import read_segments

WRITER = "torn"
DRAIN_SECONDS = 30.0
TELL_EVERY = 100
PAGE_PART = 17
"""A log has whole pages: no need to cut it at every byte."""


def tear_spool(place: Place, home: Path, *, step: int = 1, tell: Tell = silent) -> Outcome:
    """Cut the last record at every `step`th byte; each time open, drain and send it again."""
    began = time.monotonic()
    outcome = Outcome(scenario="torn spool", store=place.name)
    asyncio.run(_tear(place, home, step, outcome, tell))
    outcome.seconds = time.monotonic() - began
    return outcome


async def _tear(place: Place, home: Path, step: int, outcome: Outcome, tell: Tell) -> None:
    expected = []
    cut = 0
    while True:
        folder = home / f"cut-{cut}"
        whole, torn = _short_batch(2 * outcome.kills), _short_batch(2 * outcome.kills + 1)
        if not await _leave_torn(folder, place.space, whole, torn, cut):
            break
        await _drain(place, folder, torn, outcome)
        outcome.kills += 1
        expected += [batch.segments[0].segment.id for batch in (whole, torn)]
        cut += step * PAGE_PART
        if outcome.kills % TELL_EVERY == 0:
            tell(f"{place.name}: {outcome.kills} cuts")
    store = await place.open()
    try:
        held = [stored.segment.id for stored in await read_segments(store)]
        outcome.problems += (await store.check()).problems
    finally:
        await store.close()
    outcome.acknowledged = len(expected)
    outcome.lost = len(set(expected) - set(held))
    outcome.duplicated = len(held) - len(set(held))
    if not outcome.lost and held != expected:
        outcome.problems.append("what was spooled did not arrive in order")


def _short_batch(number: int) -> Batch:
    """A batch with one short message: every byte of its record is cut."""
    planned = planned_batch(WRITER, number * LONG_EVERY + 1)
    return Batch(at=planned.at, segments=planned.segments[:1])


async def _leave_torn(folder: Path, space: str, whole: Batch, torn: Batch, cut: int) -> bool:
    """A spool as a crash leaves it: one whole record and `cut` bytes of the next one's pages.

    False when the log has no such byte.
    """
    written = folder / "written"
    spool = FileSpool(written, space=space)
    await spool.append(write_batch(whole))
    (log,) = written.glob("*-wal")
    size = log.stat().st_size
    await spool.append(write_batch(torn))
    grown = log.stat().st_size
    for path in (log, log.with_name(log.name.removesuffix("-wal"))):
        shutil.copy(path, folder / path.name)
    await spool.close()
    os.truncate(folder / log.name, size + cut)
    return size + cut < grown


async def _drain(place: Place, folder: Path, resent: Batch, outcome: Outcome) -> None:
    """A new process: what waits goes to the store, then the batch that is sent again."""

    async def open_spool() -> Spool:
        return FileSpool(folder, space=place.space)

    archive = DurableArchive(place.open, open_spool, StoreSettings(write_seconds=DRAIN_SECONDS))
    try:
        kept = await archive.write(resent)
        waiting = await archive.settle(DRAIN_SECONDS)
    finally:
        await archive.close()
    if kept.location == "nowhere":
        outcome.problems.append(f"a batch sent again was not kept: {kept.problem}")
    if waiting:
        outcome.problems.append(f"{waiting} batches still wait in the spool")
