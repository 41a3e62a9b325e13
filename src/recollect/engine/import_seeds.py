"""The seeds' `segments.jsonl` and `vectors.bin` into the archive.

Owns what a line becomes. A segment keeps the line it came as, so that an export gives the same
bytes; where a secret stood in it, the line is masked before it is kept, and that is counted.
Bad lines are told and hide no others. Never opens a file: lines and vectors come in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

from recollect.engine.import_path import ImportCounts, ImportRules, Progress, evict_job
from recollect.engine.seed_lines import SeedCounts, chunks, line_again, masked_object
from recollect.engine.seed_vectors import SeedVectors
from recollect.formats.segments_jsonl import FIELDS, SegmentLine, read_segment_lines
from recollect.ports import Store
from recollect.rules.clean_text import clean_text
from recollect.rules.identity import chain, identify, segment_id
from recollect.rules.noise import is_noise
from recollect.rules.trust import trust_of_role
from recollect.turn.index import index
from recollect.values.batch import Batch
from recollect.values.job import EMBED_JOB, NewJob
from recollect.values.message import EntryKey, Message, MessageId, Text
from recollect.values.segment import (
    NewPassage,
    NewSegment,
    Segment,
    SegmentId,
    Vector,
    VectorSet,
)

VECTOR_ORIGIN = " vectors.bin:"
"""Stands in the origin of a segment before the place of its vector, so that an export finds it."""


async def import_segments(
    store: Store,
    lines: Iterable[bytes],
    *,
    vectors: SeedVectors | None,
    rules: ImportRules,
    session: str | None = None,
    progress: Progress | None = None,
) -> SeedCounts:
    """Write the lines of a `segments.jsonl`; `session` overrides the session they name."""
    passed_over: list[str] = []
    late = False
    if vectors is not None:
        stats = await store.stats()
        # after a run without vectors.bin the segments are known, but not their vectors
        late = stats.vectors.get(vectors.embedder, 0) < len(vectors)
    counts = SeedCounts()
    done = 0
    for chunk in chunks(read_segment_lines(lines, passed_over)):
        placed = [_place(line, rules, session) for line in chunk]
        if vectors is not None:
            for line in chunk:
                vectors.claim(line.id)
        counts = counts.plus(await _write_placed(store, placed, vectors, rules, late=late))
        done += len(chunk)
        if progress is not None:
            progress(done, done)
    if vectors is not None:
        passed_over.extend(f"vectors.bin: {said}" for said in vectors.told())
    return replace(counts, passed_over=tuple(passed_over))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    """A line with the ids it has here, before anything else is worked out about it."""

    line: SegmentLine
    id: SegmentId
    session: str
    key: EntryKey
    message_id: MessageId

    def vector(self, values: bytes) -> Vector:
        """Its vector; VMEM has one a segment, which stands at the first passage."""
        return Vector(segment=self.id, ordinal=0, values=values)


def _place(line: SegmentLine, rules: ImportRules, session: str | None) -> _Placed:
    message = Message(role=line.role, parts=(Text(text=line.content),), raw=b"")
    identity = identify(message, rules.secret)
    key = chain(_line_key(line.id), identity)
    named = clean_text(line.session if session is None else session)
    return _Placed(
        line=line, id=segment_id(named, key), session=named, key=key, message_id=identity
    )


async def _write_placed(
    store: Store,
    placed: Sequence[_Placed],
    vectors: SeedVectors | None,
    rules: ImportRules,
    *,
    late: bool,
) -> SeedCounts:
    # an id that is one of ours: an export of this very space comes back
    own = {one.id: SegmentId(clean_text(one.line.id)) for one in placed}
    known = await store.known({*own, *own.values()})
    fresh = {one.id: one for one in placed if not {one.id, own[one.id]} & known}
    made = [_new_segment(one, vectors, rules) for one in fresh.values()]
    attached = [vector for _, vector, _ in made if vector is not None]
    if late and vectors is not None:
        attached += await _late_vectors(store, [one for one in placed if one.id in known], vectors)
    segments = tuple(new for new, _, _ in made)
    batch = Batch(
        at=rules.now,
        segments=segments,
        vectors=_vector_sets(vectors, attached),
        jobs=_jobs(segments, rules),
    )
    if batch.empty:
        return SeedCounts(messages=ImportCounts(read=len(placed), known=len(placed)))
    written = await store.write(batch)
    stored, forgotten = set(written.stored), set(written.forgotten)
    kept = [(new, altered) for new, _, altered in made if new.segment.id in stored]
    return SeedCounts(
        messages=ImportCounts(
            read=len(placed),
            stored=len(stored),
            known=len(placed) - len(stored) - len(forgotten),
            forgotten=len(forgotten),
            noise=sum(new.segment.noise is not None for new, _ in kept),
        ),
        vectors=sum(vector.segment not in forgotten for vector in attached),
        altered=sum(altered for _, altered in kept),
    )


async def _late_vectors(
    store: Store, known: Sequence[_Placed], vectors: SeedVectors
) -> list[Vector]:
    """Vectors of segments that came without them; they need a passage to stand at."""
    found: list[Vector] = []
    for one in known:
        values = vectors.find(one.line.id)
        if values is not None and await store.passages(one.id):
            found.append(one.vector(values[1]))
    return found


def _vector_sets(vectors: SeedVectors | None, attached: Sequence[Vector]) -> tuple[VectorSet, ...]:
    if vectors is None or not attached:
        return ()
    return (
        VectorSet(
            embedder=vectors.embedder, dimensions=vectors.dimensions, vectors=tuple(attached)
        ),
    )


def _jobs(fresh: Sequence[NewSegment], rules: ImportRules) -> tuple[NewJob, ...]:
    if not fresh:
        return ()
    sessions = dict.fromkeys(new.segment.session for new in fresh)
    chores = (evict_job(rules.now), *rules.reading(sessions))
    if not rules.embedders or not any(new.passages for new in fresh):
        return chores
    embed = (NewJob(kind=EMBED_JOB, key=name, run_at=rules.now) for name in rules.embedders)
    return *chores, *embed


def _new_segment(
    placed: _Placed, vectors: SeedVectors | None, rules: ImportRules
) -> tuple[NewSegment, Vector | None, bool]:
    """What to write for a line, its vector, and whether a secret stood in the line."""
    line = placed.line
    value, altered = masked_object(line.value, FIELDS, rules.redaction)
    found = None if vectors is None else vectors.find(line.id)
    text = clean_text(str(value["content"]))
    origin = f"segments.jsonl:{line.number}"
    segment = Segment(
        id=placed.id,
        session=placed.session,
        key=placed.key,
        message_id=placed.message_id,
        role=line.role,
        text=text,
        tokens=rules.weigher.text(line.content) if line.tokens is None else line.tokens,
        said_at=rules.now if line.said_at is None else line.said_at,
        source="import",
        trust=trust_of_role(line.role),
        # what has a vector was worth one to those who wrote the file, and needs a passage
        noise=None if found is not None else _noise(line, text),
        topics=_texts(value.get("metadata"), "topics"),
        entities=_texts(value.get("metadata"), "entities"),
        origin=origin if found is None else f"{origin}{VECTOR_ORIGIN}{found[0]}",
        foreign=line_again(value, line.line) if altered else line.line,
    )
    new = NewSegment(segment=segment, passages=passages_of(segment))
    return new, None if found is None else placed.vector(found[1]), altered


def passages_of(segment: Segment) -> tuple[NewPassage, ...]:
    """How a stored segment is indexed; one with an imported vector always has a passage."""
    passages = index(segment)
    if passages or VECTOR_ORIGIN not in (segment.origin or ""):
        return passages
    return (NewPassage(start=0, end=len(segment.text), words=(), embedded=False),)


def _noise(line: SegmentLine, text: str) -> str | None:
    if line.role == "system":
        return "system"
    reason = is_noise(text).reason
    return None if reason is None else reason.value


def _line_key(name: str) -> EntryKey:
    """What a line's own id stands for among keys: lines have no place in a history."""
    named = name.encode("utf-8", "surrogatepass")
    return EntryKey(blake2b(named, digest_size=16, person=b"recollect-line").hexdigest())


def _texts(metadata: Any, key: str) -> tuple[str, ...]:
    found = metadata.get(key) if isinstance(metadata, dict) else None
    if not isinstance(found, list):
        return ()
    return tuple(clean_text(item) for item in found if isinstance(item, str))
