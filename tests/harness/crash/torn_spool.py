"""The spool's file cut off at every byte of its last record, then drained into a store.

A record is torn when the power goes while it is written: it was not acknowledged, so its client
sends it again. What was whole before it must reach the store first. Owns the cuts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

from tests.harness.crash.outcome import Outcome, Tell, silent
from tests.harness.crash.places import Place
from tests.harness.crash.plan import LONG_EVERY, planned_batch
from tests.harness.crash.verify import read_segments

from recollect.config.settings import StoreSettings
from recollect.engine.archive import DurableArchive
from recollect.formats.stored_records import write_batch
from recollect.ports import Spool
from recollect.stores.spool import FileSpool
from recollect.stores.spool.spool_file import SUFFIX
from recollect.values.batch import Batch

WRITER = "torn"
DRAIN_SECONDS = 30.0
TELL_EVERY = 100


def tear_spool(place: Place, home: Path, *, step: int = 1, tell: Tell = silent) -> Outcome:
    """Cut the last record at every `step`th byte; each time open, drain and send it again."""
    began = time.monotonic()
    outcome = Outcome(scenario="torn spool", store=place.name)
    with _told() as warnings:
        asyncio.run(_tear(place, home, step, outcome, tell))
    outcome.figures = {"told": len(warnings)}
    if len(warnings) < outcome.kills - 1:  # a cut before the record's first byte tears nothing
        outcome.problems.append("a torn record was dropped and not told")
    outcome.seconds = time.monotonic() - began
    return outcome


@contextlib.contextmanager
def _told() -> Iterator[list[logging.LogRecord]]:
    """What the spool says meanwhile: kept here instead of on the screen."""
    kept: list[logging.LogRecord] = []

    def keep(record: logging.LogRecord) -> bool:
        kept.append(record)
        return False

    logger = logging.getLogger("recollect.spool")
    logger.addFilter(keep)
    try:
        yield kept
    finally:
        logger.removeFilter(keep)


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
        cut += step
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
    """A spool as a crash leaves it: one whole record and `cut` bytes of the next.

    False when the record has no such byte.
    """
    spool = FileSpool.open(folder, space=space)
    await spool.append(write_batch(whole))
    (file,) = _files(folder)
    size = file.stat().st_size
    await spool.append(write_batch(torn))
    grown = file.stat().st_size
    await spool.close()
    os.truncate(file, size + cut)
    return size + cut < grown


def _files(folder: Path) -> list[Path]:
    return list(folder.glob(f"*{SUFFIX}"))


async def _drain(place: Place, folder: Path, resent: Batch, outcome: Outcome) -> None:
    """A new process: what waits goes to the store, then the batch that is sent again."""

    async def open_spool() -> Spool:
        return FileSpool.open(folder, space=place.space)

    archive = DurableArchive(place.open, open_spool, StoreSettings(write_seconds=DRAIN_SECONDS))
    try:
        kept = await archive.write(resent)
        waiting = await archive.settle(DRAIN_SECONDS)
    finally:
        await archive.close()
    if kept.where == "nowhere":
        outcome.problems.append(f"a batch sent again was not kept: {kept.said}")
    if waiting:
        outcome.problems.append(f"{waiting} batches still wait in the spool")
