"""What a store holds, compared with what was acknowledged.

Owns the counts that the harness reports. It reads through the store's own port only, and it
must never write. Always holds: a batch may be there without having been acknowledged only when
it was on its way; it is there whole or not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from recollect.core.ports import Store
from recollect.core.values.fact import FactId
from recollect.core.values.message import EntryKey
from recollect.core.values.segment import SegmentId, StoredSegment
from tools.crash.plan import (
    EMBEDDER,
    JOB_KIND,
    fact_id,
    job_key,
    planned_batch,
    planned_ids,
    session_of,
)

PAGE = 1000
ALL = 1_000_000
SAMPLE_EVERY = 4
"""Of every so many batches one is compared byte by byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """How far one writer came."""

    batches: int
    """Batches 0 to this one, not included, were acknowledged."""
    on_the_way: int = 0
    """How many more were begun; they may be there."""


@dataclass(slots=True, kw_only=True)
class Verdict:
    """What was found."""

    acknowledged: int = 0
    """Messages."""
    lost: int = 0
    duplicated: int = 0
    strangers: int = 0
    """Messages that nobody sent."""
    half_batches: int = 0
    out_of_order: int = 0
    problems: list[str] = field(default_factory=list)
    """What `check` or the comparison says, in words without content."""

    @property
    def clean(self) -> bool:
        """Nothing was lost, doubled, torn or out of order."""
        counts = (
            self.lost, self.duplicated, self.strangers, self.half_batches, self.out_of_order
        )  # fmt: skip
        return not any(counts) and not self.problems

    def add(self, other: Verdict) -> None:
        """Count what `other` found too."""
        for name in ("acknowledged", "lost", "duplicated", "strangers"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.half_batches += other.half_batches
        self.out_of_order += other.out_of_order
        self.problems += other.problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """All that a store holds that the plan knows of."""

    segments: tuple[StoredSegment, ...]
    vectors: Mapping[tuple[SegmentId, int], bytes]
    facts: Counter[FactId]
    jobs: Counter[str]
    turns: frozenset[tuple[str, int]]
    paths: Mapping[str, tuple[EntryKey, ...]]
    passages: Mapping[SegmentId, int]


async def read_segments(store: Store, *, after: int = 0) -> tuple[StoredSegment, ...]:
    """Every segment, page by page in the order of arrival."""
    found: list[StoredSegment] = []
    while page := await store.page(after=after, limit=PAGE):
        found += page
        after = page[-1].sequence
    return tuple(found)


async def read_contents(store: Store) -> Contents:
    """Everything there is; the passages only of every seventh segment, one call each."""
    segments = await read_segments(store)
    vectors = {(one.segment, one.ordinal): one.values for one in await store.vectors(EMBEDDER)}
    turns: set[tuple[str, int]] = set()
    paths = {}
    for session in dict.fromkeys(stored.segment.session for stored in segments):
        turns |= {(session, number) for number in await store.turns(session)}
        remembered = await store.session(session)
        paths[session] = remembered.path if remembered else ()
    sampled = [stored.segment.id for stored in segments[-200:] + segments[::7]]
    return Contents(
        segments=segments,
        vectors=vectors,
        facts=Counter(fact.id for fact in await store.facts(superseded=True)),
        jobs=Counter(job.key for job in await store.jobs(limit=ALL) if job.kind == JOB_KIND),
        turns=frozenset(turns),
        paths=paths,
        passages={named: len(await store.passages(named)) for named in dict.fromkeys(sampled)},
    )


async def verify(
    store: Store, writers: Mapping[str, Acknowledged], *, jobs_stay: bool = True, check: bool = True
) -> Verdict:
    """Compare everything; `jobs_stay` when nobody took jobs meanwhile."""
    contents = await read_contents(store)
    verdict = compare_segments(contents.segments, writers)
    present = {stored.segment.id for stored in contents.segments}
    for writer, came in writers.items():
        for number in range(came.batches + came.on_the_way):
            ids = planned_ids(writer, number)
            there = [named for named in ids if named in present]
            if number >= came.batches and not there:
                missing = _left_over(writer, number, contents, jobs_stay=jobs_stay)
            else:
                missing = _missing(writer, number, contents, jobs_stay=jobs_stay)
            if there and number % SAMPLE_EVERY == 0:
                verdict.problems += await _altered(store, writer, number, contents)
            if missing or 0 < len(there) < len(ids):
                verdict.half_batches += 1
                verdict.problems += [f"batch {number} of {writer}: {what}" for what in missing]
    doubled = [*contents.facts.values(), *(contents.jobs.values() if jobs_stay else ())]
    verdict.duplicated += sum(count - 1 for count in doubled)
    if check:
        verdict.problems += (await store.check()).problems
    return verdict


async def _altered(store: Store, writer: str, number: int, contents: Contents) -> list[str]:
    """What of a batch that is there is not what was given, byte by byte."""
    batch = planned_batch(writer, number)
    wanted = {new.segment.id: new.segment.text for new in batch.segments}
    found = []
    held = await store.segments(tuple(wanted))
    if any(one.segment.text != wanted[one.segment.id] for one in held):
        found.append("a text is another")
    pieces = await store.pieces([piece.hash for piece in batch.pieces])
    if any(pieces.get(piece.hash) != piece for piece in batch.pieces):
        found.append("a piece is missing or another")
    given = [vector for made in batch.vectors for vector in made.vectors]
    held_vectors = ((contents.vectors.get((one.segment, one.ordinal)), one) for one in given)
    if any(values is not None and values != one.values for values, one in held_vectors):
        found.append("a vector is another")
    return [f"batch {number} of {writer}: {what}" for what in found]


def compare_segments(
    segments: tuple[StoredSegment, ...], writers: Mapping[str, Acknowledged]
) -> Verdict:
    """Loss, doubles, strangers and order, from the segments alone."""
    verdict = Verdict()
    planned: dict[SegmentId, tuple[str, int]] = {}
    """The place of each message in the order its writer sent it."""
    counted = Counter(stored.segment.id for stored in segments)
    texts = Counter(stored.segment.text for stored in segments)
    for writer, came in writers.items():
        place = 0
        for number in range(came.batches + came.on_the_way):
            for named in planned_ids(writer, number):
                planned[named] = (writer, place)
                place += 1
                if number < came.batches:
                    verdict.acknowledged += 1
                    verdict.lost += not counted[named]
    verdict.strangers = sum(named not in planned for named in counted)
    by_id = sum(count - 1 for count in counted.values())
    by_text = sum(count - 1 for count in texts.values())
    verdict.duplicated = max(by_id, by_text)
    last: dict[str, int] = {}
    sequence = 0
    for stored in segments:
        writer, place = planned.get(stored.segment.id, ("", 0))
        late = place < last.get(writer, 0) or stored.sequence <= sequence
        verdict.out_of_order += late and bool(writer)
        last[writer] = max(place, last.get(writer, 0))
        sequence = stored.sequence
    return verdict


def _missing(writer: str, number: int, contents: Contents, *, jobs_stay: bool) -> list[str]:
    """What a batch that is there lacks."""
    batch = planned_batch(writer, number)
    found = []
    expected = {(v.segment, v.ordinal) for made in batch.vectors for v in made.vectors}
    if not expected <= contents.vectors.keys():
        found.append("vectors are missing")
    if fact_id(writer, number) not in contents.facts:
        found.append("its fact is missing")
    if jobs_stay and job_key(writer, number) not in contents.jobs:
        found.append("its job is missing")
    if (session_of(writer, number), number + 1) not in contents.turns:
        found.append("its turn is missing")
    written = batch.session
    assert written is not None
    path = contents.paths.get(written.session, ())
    if path[written.path_from : written.path_from + len(written.path)] != written.path:
        found.append("its part of the session's path is missing")
    held = contents.passages  # of some segments only
    if any(
        held.get(new.segment.id, len(new.passages)) != len(new.passages) for new in batch.segments
    ):
        found.append("passages are missing")
    return found


def _left_over(writer: str, number: int, contents: Contents, *, jobs_stay: bool) -> list[str]:
    """What is there of a batch none of whose messages is."""
    found = []
    if fact_id(writer, number) in contents.facts:
        found.append("its fact is there without it")
    if jobs_stay and job_key(writer, number) in contents.jobs:
        found.append("its job is there without it")
    if (session_of(writer, number), number + 1) in contents.turns:
        found.append("its turn is there without it")
    return found
