"""Which batches no store takes: times that are none, numbers that not every reader can hold.

Both engines look here before they write anything, so that a batch is refused alike by both. Must
never name what was said. Always holds: numbers of a batch that passes are exact as JSON, as
float64 and in 64 bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from recollect.errors import BatchRefused
from recollect.values.batch import Batch

NUMBER_MAX: Final = 2**53


def require_storable(batch: Batch) -> None:
    """Raise BatchRefused for what no store can take."""
    for name, time in _times(batch):
        if not _is_number(time) or not _within(time):
            raise BatchRefused(f"{name} of this batch is no time: the batch cannot be stored")
    for name, number in _numbers(batch):
        if not _is_whole(number) or not _within(number):
            raise BatchRefused(
                f"{name} of this batch is no whole number within 2**53: the batch cannot be stored"
            )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def _is_whole(value: object) -> bool:
    return isinstance(value, int)


def _within(value: float) -> bool:
    return -NUMBER_MAX <= value <= NUMBER_MAX  # a NaN is within nothing


def _times(batch: Batch) -> Iterator[tuple[str, float]]:
    yield "the time", batch.at
    for new in batch.segments:
        yield "the time of a segment", new.segment.said_at
    for fact in batch.facts:
        yield "the time of a fact", fact.at
        for time in (fact.valid_to, fact.recorded_at):
            if time is not None:
                yield "the time of a fact", time
    for job in batch.jobs:
        yield "the time of a job", job.run_at
    for turn in batch.turns:
        yield "the time of a turn", turn.at
    for record in batch.compactions:
        yield "the time of a compaction", record.at


def _numbers(batch: Batch) -> Iterator[tuple[str, int]]:
    for new in batch.segments:
        yield "the token count of a segment", new.segment.tokens
        for passage in new.passages:
            yield "the start of a passage", passage.start
            yield "the end of a passage", passage.end
    for vectors in batch.vectors:
        yield "the dimensions of a set of vectors", vectors.dimensions
    yield from _fact_numbers(batch)
    for job in batch.jobs:
        yield "the cost of a job", job.cost_tokens
    for turn in batch.turns:
        yield "the number of a turn", turn.number
        yield "the kept rows of a turn", turn.kept_rows
    for record in batch.compactions:
        yield "the number of a compaction", record.number
    if batch.session is not None:
        yield "the turn of a session", batch.session.turn
        yield "the path of a session", batch.session.path_from


def _fact_numbers(batch: Batch) -> Iterator[tuple[str, int]]:
    for fact in batch.facts:
        for span in fact.evidence:
            yield "the start of a span", span.start
            yield "the end of a span", span.end
    for fact_vectors in batch.fact_vectors:
        yield "the dimensions of a set of vectors", fact_vectors.dimensions
    for read in batch.extracted:
        yield "how far a session was read", read.sequence
    if batch.facts_revision is not None:
        yield "the revision of facts", batch.facts_revision
