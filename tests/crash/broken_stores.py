"""Stores with one promise broken each, to see that the crash harness notices."""

import asyncio
import itertools
from dataclasses import replace
from typing import Any
from uuid import uuid4

from tools.crash.places import open_plain

from recollect.core.values.batch import Batch, Lease, WriteResult
from recollect.core.values.segment import NewSegment, SegmentId


class Broken:
    """A real store; what a subclass does not break is as it should be."""

    def __init__(self, real: Any) -> None:
        self.real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


class AcksEarly(Broken):
    """Says that a batch is durable and writes it a little later."""

    later: list[Batch]

    async def write(self, batch: Batch) -> WriteResult:
        waiting = self.__dict__.setdefault("later", [])
        waiting.append(batch)
        if len(waiting) > 2:
            await self.real.write(waiting.pop(0))
        await asyncio.sleep(0.002)
        return WriteResult(stored=tuple(new.segment.id for new in batch.segments))

    async def close(self) -> None:
        for batch in self.__dict__.get("later", ()):
            await self.real.write(batch)
        await self.real.close()


class WithoutTransaction(Broken):
    """Writes the messages of a batch one by one, and the rest of it at the end."""

    async def write(self, batch: Batch) -> WriteResult:
        stored: tuple[SegmentId, ...] = ()
        known: tuple[SegmentId, ...] = ()
        for new in batch.segments:
            written = await self.real.write(Batch(at=batch.at, segments=(new,)))
            stored, known = stored + written.stored, known + written.known
        await self.real.write(replace(batch, segments=()))
        return WriteResult(stored=stored, known=known)


class NotIdempotent(Broken):
    """Keeps what it has already once more, under another name."""

    async def write(self, batch: Batch) -> WriteResult:
        written: WriteResult = await self.real.write(batch)
        again = tuple(_renamed(new) for new in batch.segments if new.segment.id in written.known)
        if again:
            await self.real.write(Batch(at=batch.at, segments=again))
        return written


class Forgetful(Broken):
    """Says it wrote every batch, and does not write every fifth."""

    numbers = itertools.count(1)

    async def write(self, batch: Batch) -> WriteResult:
        if next(self.numbers) % 5 == 0:
            return WriteResult(stored=tuple(new.segment.id for new in batch.segments))
        written: WriteResult = await self.real.write(batch)
        return written

    async def known(self, ids: Any) -> frozenset[SegmentId]:
        return frozenset(ids)


class EffectFirst(Broken):
    """Writes a job's effect, and in another write its end."""

    async def complete(self, lease: Lease, batch: Batch) -> bool:
        await self.real.write(batch)
        await asyncio.sleep(0.005)
        return bool(await self.real.complete(lease, Batch(at=batch.at)))


class Spendthrift(Broken):
    """Hands out jobs whatever the day's budget is."""

    async def claim(self, **asked: Any) -> Lease | None:
        lease: Lease | None = await self.real.claim(**{**asked, "day_tokens": None})
        return lease


class Scribbler(Broken):
    """Keeps every batch whole, and another text, piece or vector than was given."""

    what = "text"

    async def write(self, batch: Batch) -> WriteResult:
        if self.what == "text":
            segments = tuple(
                replace(new, segment=replace(new.segment, text=new.segment.text[::-1]))
                for new in batch.segments
            )
            batch = replace(batch, segments=segments)
        elif self.what == "piece":
            pieces = tuple(replace(one, body=one.body[:-1]) for one in batch.pieces)
            batch = replace(batch, pieces=pieces)
        else:
            sets = tuple(
                replace(one, vectors=tuple(replace(v, values=v.values[::-1]) for v in one.vectors))
                for one in batch.vectors
            )
            batch = replace(batch, vectors=sets)
        written: WriteResult = await self.real.write(batch)
        return written


def _renamed(new: NewSegment) -> NewSegment:
    return replace(new, segment=replace(new.segment, id=SegmentId(uuid4().hex)))


async def open_acks_early(location: str, space: str) -> Any:
    return AcksEarly(await open_plain(location, space))


async def open_without_transaction(location: str, space: str) -> Any:
    return WithoutTransaction(await open_plain(location, space))


async def open_not_idempotent(location: str, space: str) -> Any:
    return NotIdempotent(await open_plain(location, space))


async def open_forgetful(location: str, space: str) -> Any:
    return Forgetful(await open_plain(location, space))


async def open_unsynced(location: str, space: str) -> Any:
    """The real store, which leaves it to the system when to put anything on the disk."""
    real: Any = await open_plain(location, space)
    for lane in real._lanes:
        await lane.run(lambda db: db.run("PRAGMA synchronous = OFF"))
    return real


async def open_scribbler(location: str, space: str) -> Any:
    store = Scribbler(await open_plain(location, space))
    store.what = space
    return store


async def open_effect_first(location: str, space: str) -> Any:
    return EffectFirst(await open_plain(location, space))


async def open_spendthrift(location: str, space: str) -> Any:
    return Spendthrift(await open_plain(location, space))
