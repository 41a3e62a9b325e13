"""What holds for batches that a store can never take: refused before anything is written."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from dataclasses import replace

from recollect.errors import BatchRefused
from recollect.testing.store_contract.examples import SESSION, START, fact, full_batch, ids
from recollect.testing.store_contract.harness import Spaces, contents
from recollect.values.batch import Batch
from recollect.values.fact import EvidenceSpan, ExtractedTo

_TOO_LARGE = 2**53 + 1
_NO_TIMES = (math.nan, math.inf, -math.inf)


def _without_time(batch: Batch) -> Iterator[tuple[str, Batch]]:
    last = batch.segments[-1]
    for bad in _NO_TIMES:
        said = replace(last, segment=replace(last.segment, said_at=bad))
        yield f"said at {bad}", replace(batch, segments=(*batch.segments[:-1], said))
        yield f"batch at {bad}", replace(batch, at=bad)
        yield f"fact at {bad}", replace(batch, facts=(*batch.facts, fact("bad", at=bad)))
        first = batch.facts[0]
        yield f"valid to {bad}", replace(batch, facts=(replace(first, valid_to=bad),))
        yield f"recorded at {bad}", replace(batch, facts=(replace(first, recorded_at=bad),))
        yield f"job at {bad}", replace(batch, jobs=(replace(batch.jobs[0], run_at=bad),))
        yield f"turn at {bad}", replace(batch, turns=(replace(batch.turns[0], at=bad),))


def _too_large(batch: Batch) -> Iterator[tuple[str, Batch]]:
    last, turn, job = batch.segments[-1], batch.turns[0], batch.jobs[0]
    assert batch.session is not None
    for bad in (_TOO_LARGE, -_TOO_LARGE, 2**64):
        much = replace(last, segment=replace(last.segment, tokens=bad))
        yield f"tokens {bad}", replace(batch, segments=(*batch.segments[:-1], much))
        wide = replace(last, passages=(replace(last.passages[0], end=bad),))
        yield f"span {bad}", replace(batch, segments=(*batch.segments[:-1], wide))
        span = EvidenceSpan(segment=last.segment.id, start=0, end=bad)
        resting = replace(batch.facts[0], evidence=(span,))
        yield f"evidence {bad}", replace(batch, facts=(resting,))
        read = ExtractedTo(session=SESSION, sequence=bad)
        yield f"read to {bad}", replace(batch, extracted=(read,))
        yield f"turn {bad}", replace(batch, turns=(replace(turn, number=bad),))
        yield f"kept rows {bad}", replace(batch, turns=(replace(turn, kept_rows=bad),))
        yield f"cost {bad}", replace(batch, jobs=(replace(job, cost_tokens=bad),))
        yield f"session {bad}", replace(batch, session=replace(batch.session, turn=bad))


async def numbers_out_of_range_are_refused(spaces: Spaces) -> None:
    """No time that is none, no number beyond 2**53: such a batch is refused whole, and by name."""
    store = await spaces.open()
    await store.write(full_batch(0))
    before = await contents(store, SESSION)
    batch = full_batch(1)
    for part, bad in (*_without_time(batch), *_too_large(batch)):
        (outcome,) = await asyncio.gather(store.write(bad), return_exceptions=True)
        assert isinstance(outcome, BatchRefused), (part, outcome)
        assert batch.segments[-1].segment.text not in str(outcome)
        assert await contents(store, SESSION) == before, part
    largest = replace(batch.segments[-1].segment, tokens=2**53)
    kept = replace(batch.segments[-1], segment=largest)
    written = await store.write(replace(batch, segments=(*batch.segments[:-1], kept)))
    assert written.stored == ids(batch.segments)


async def refused_effect_leaves_the_job(spaces: Spaces) -> None:
    """A job whose effect is refused is not completed: its holder can give it back and say why."""
    store = await spaces.open()
    await store.write(full_batch(0))
    (lease,) = await store.claim(now=START + 1e6, lease_seconds=60, kinds=("embed",))
    bad = Batch(at=START, facts=(fact("bad", at=math.nan),))
    (outcome,) = await asyncio.gather(store.complete(lease, bad), return_exceptions=True)
    assert isinstance(outcome, BatchRefused), outcome
    assert await store.fail(lease, reason="refused", retry_at=None)
    assert [record.reason for record in await store.jobs()] == ["refused"]
