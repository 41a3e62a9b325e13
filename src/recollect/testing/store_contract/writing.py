"""What holds for writes: all or nothing, once however often, there after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

from recollect.testing.store_contract.examples import (
    SESSION,
    START,
    conversation,
    fact,
    full_batch,
    ids,
    piece,
    rising,
    segments,
    session_write,
    vectors,
)
from recollect.testing.store_contract.harness import Spaces, contents
from recollect.values.batch import Batch, NewJob, TurnRecord
from recollect.values.message import Role

_UNWRITABLE: Any = cast(Any, object())
_SURROGATE = "lone \ud800 surrogate"


def _broken(batch: Batch) -> Iterator[tuple[str, Batch]]:
    """The batch with one value that cannot be stored, once in each of its parts."""
    last = batch.segments[-1]
    yield (
        "segment",
        replace(
            batch,
            segments=(
                *batch.segments[:-1],
                replace(last, segment=replace(last.segment, text=_UNWRITABLE)),
            ),
        ),
    )
    given = batch.vectors[0]
    short = replace(given.vectors[-1], values=_UNWRITABLE)
    yield "vector", replace(batch, vectors=(replace(given, vectors=(*given.vectors[:-1], short)),))
    yield "fact", replace(batch, facts=(*batch.facts, fact("bad", content=_SURROGATE)))
    yield "job", replace(batch, jobs=(*batch.jobs, NewJob(kind="embed", key=_SURROGATE)))
    assert batch.session is not None
    yield "session", replace(batch, session=replace(batch.session, state=_UNWRITABLE))
    yield "piece", replace(batch, pieces=(*batch.pieces, replace(piece("x"), body=_UNWRITABLE)))
    bad = TurnRecord(session=SESSION, number=99, at=START, format=_SURROGATE)
    yield "turn", replace(batch, turns=(*batch.turns, bad))


async def batch_is_all_or_nothing(spaces: Spaces) -> None:
    """A batch of which one value cannot be stored leaves nothing, and the store goes on."""
    refused = 0
    for part, bad in _broken(full_batch(1)):
        store = await spaces.open(part)
        await store.write(full_batch(0))
        before = await contents(store, SESSION)
        (outcome,) = await asyncio.gather(store.write(bad), return_exceptions=True)
        if isinstance(outcome, BaseException):
            refused += 1
            assert await contents(store, SESSION) == before, part
        else:
            assert set(outcome.stored) == set(ids(bad.segments)), part
        written = await store.write(full_batch(2))
        assert written.stored == ids(full_batch(2).segments), part
    assert refused, "an object() was taken for a text"


async def cancelled_write_is_all_or_nothing(spaces: Spaces) -> None:
    """A write that is cancelled at any moment is there whole or not at all."""
    store = await spaces.open()
    for number in range(12):
        batch = full_batch(number, session=f"s{number}", count=8)
        task = asyncio.create_task(store.write(batch))
        await asyncio.sleep(number * 0.0007)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        # It may land between two reads still, so each read stands for itself.
        assert len(await store.known(ids(batch.segments))) in (0, 8), number
        written = await store.write(batch)
        assert len(written.stored) in (0, 8), number
        assert len(written.stored) + len(written.known) == 8, number
        assert await store.session(f"s{number}") is not None, number
        assert await store.turns(f"s{number}") == (number + 1,), number
        assert await store.facts([batch.facts[0].id]) == batch.facts, number
    assert (await store.stats()).segments == 12 * 8


async def same_batch_twice_is_once(spaces: Spaces) -> None:
    """Writing a batch again changes nothing, and says that it was known."""
    store = await spaces.open()
    batch = full_batch(0)
    first = await store.write(batch)
    assert first.stored == ids(batch.segments)
    assert (first.known, first.forgotten, first.session_stale) == ((), (), False)
    before = await contents(store, SESSION)
    for _ in range(2):
        again = await store.write(batch)
        assert again.stored == ()
        assert again.known == ids(batch.segments)
        assert await contents(store, SESSION) == before
    assert len(await store.vectors(batch.vectors[0].embedder)) == len(batch.vectors[0].vectors)


async def overlapping_batches_add_what_is_new(spaces: Spaces) -> None:
    """Of a batch that overlaps with what is stored, only the new segments are stored."""
    store = await spaces.open()
    new = segments(10)
    await store.write(Batch(at=START, segments=new[:6]))
    written = await store.write(Batch(at=START, segments=new[3:]))
    assert written.known == ids(new[3:6])
    assert written.stored == ids(new[6:])
    assert tuple(row.segment.id for row in await store.page()) == ids(new)


async def segment_twice_in_one_batch_is_once(spaces: Spaces) -> None:
    """A segment that stands twice in one batch is stored once."""
    store = await spaces.open()
    new = segments(3)
    written = await store.write(Batch(at=START, segments=(*new, *new)))
    assert sorted(written.stored) == sorted(ids(new))
    assert len(await store.page()) == 3
    assert (await store.stats()).segments == 3


async def known_segment_is_not_changed(spaces: Spaces) -> None:
    """A segment that arrives again with another text or time stays as it was first stored."""
    store = await spaces.open()
    (new,) = segments(1)
    await store.write(Batch(at=START, segments=(new,)))
    other = replace(new, segment=replace(new.segment, text="another", said_at=START + 9, tokens=1))
    await store.write(Batch(at=START + 9, segments=(other,)))
    (stored,) = await store.segments([new.segment.id])
    assert stored.segment == new.segment


async def concurrent_writers_store_once(spaces: Spaces) -> None:
    """Of several stores that write the same segments at once, each segment is stored by one."""
    stores = [await spaces.open() for _ in range(3)]
    new = segments(24)
    batches = [
        Batch(at=START, segments=new[first : first + 12], vectors=(vectors(new[first:][:12]),))
        for first in (0, 4, 8, 12)
    ]
    written = await asyncio.gather(*(store.write(batch) for store in stores for batch in batches))
    stored = [one for outcome in written for one in outcome.stored]
    assert sorted(stored) == sorted(ids(new))
    page = await stores[0].page()
    assert sorted(row.segment.id for row in page) == sorted(ids(new))
    assert rising([row.sequence for row in page])


async def what_was_written_is_there_after_reopening(spaces: Spaces) -> None:
    """After closing and opening everything is as it was."""
    store = await spaces.open()
    for number in range(3):
        await store.write(full_batch(number))
    before = await contents(store, SESSION)
    vectors_before = await store.vectors("example-256")
    store = await spaces.reopen(store)
    assert await contents(store, SESSION) == before
    assert await store.vectors("example-256") == vectors_before
    later = await store.write(full_batch(3))
    assert later.stored == ids(full_batch(3).segments)


async def another_store_sees_what_was_written(spaces: Spaces) -> None:
    """A write that has returned is seen by every store on that memory, whenever it opened."""
    first, second = await spaces.open(), await spaces.open()
    for number in range(4):
        writer, reader = (first, second) if number % 2 else (second, first)
        await writer.write(full_batch(number))
        assert await contents(reader, SESSION) == await contents(writer, SESSION)


async def empty_batch_is_nothing(spaces: Spaces) -> None:
    """A batch without anything is written without effect."""
    store = await spaces.open()
    written = await store.write(Batch(at=START))
    assert (written.stored, written.known, written.forgotten) == ((), (), ())
    assert await store.page() == ()


async def every_field_comes_back(spaces: Spaces) -> None:
    """A segment comes back with every field as it was written, times to the last bit."""
    store = await spaces.open()
    full = conversation(
        ["all fields are set"],
        said_at=1_760_000_000.123456789,
        tokens=7,
        source="import",
        trust="low",
        tool="bash",
        topics=("build", "größe"),
        entities=("src/a.py", 'quote"d'),
        origin="notes.jsonl:12",
        foreign='{"id": 1, "text": "…"}',
    )
    plain = conversation(["no field is set"], session="other")
    kinds: tuple[Role, ...] = ("system", "user", "assistant", "tool")
    roles = [
        replace(new, segment=replace(new.segment, role=role, tool="read"))
        for new, role in zip(segments(4, session="roles"), kinds, strict=True)
    ]
    given = (*full, *plain, *roles)
    await store.write(Batch(at=START, segments=given))
    stored = await store.segments(ids(given))
    assert [row.segment for row in stored] == [new.segment for new in given]
    assert not any(row.cold for row in stored)


async def session_write_goes_with_its_batch(spaces: Spaces) -> None:
    """A stale session write is left out alone: the rest of its batch is stored."""
    store = await spaces.open()
    new = segments(4)
    await store.write(Batch(at=START, session=session_write(new, turn=5)))
    late = await store.write(Batch(at=START, segments=new, session=session_write(new[:1], turn=4)))
    assert late.session_stale
    assert late.stored == ids(new)
    stored = await store.session(SESSION)
    assert stored is not None
    assert (stored.turn, len(stored.path)) == (5, 4)
