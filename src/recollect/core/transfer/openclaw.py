"""OpenClaw's `segments.jsonl`, `vectors.bin` and `knowledge.jsonl` into the archive.

A segment or fact keeps its line, so that an export gives the same bytes; where a secret stood in
it, the line is masked value by value and spelled again, and that is counted. A fact that was
changed here since (closed, pinned, masked) is not put back, and one that was forgotten stays out.
A file never makes anything more trusted than what a model says, unless a person restores an export
of their own. Bad lines are told and hide no others. Never opens a file, and never copies the
vectors' one: a vector is sliced from it when its segment asks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import islice
from mmap import mmap
from typing import Any, TypeVar

from recollect.core.formats.json_text import decode, stringify, well_formed
from recollect.core.formats.openclaw_files import KNOWLEDGE_FIELDS as FACT_FIELDS
from recollect.core.formats.openclaw_files import SEGMENT_FIELDS as SEGMENT_FIELDS
from recollect.core.formats.openclaw_files import (
    KnowledgeLine,
    SegmentLine,
    VmemEntry,
    VmemReading,
    foreign_of,
    line_of,
    own_keys,
    read_knowledge_lines,
    read_segment_lines,
    with_own_keys,
)
from recollect.core.ports import Store
from recollect.core.rules.identity import chain, identify, segment_id
from recollect.core.rules.message_redaction import TextMask
from recollect.core.rules.noise import is_noise
from recollect.core.rules.redaction import redact, secrets_in
from recollect.core.rules.secret_values import MASK_OPENING
from recollect.core.rules.text import clean_text
from recollect.core.rules.trust import trust_of_role
from recollect.core.search.tokenize import tokenize
from recollect.core.transfer.transcripts import (
    BATCH_SEGMENTS,
    ImportCounts,
    ImportRules,
    Progress,
    evict_job,
)
from recollect.core.upkeep.chores import VECTOR_ORIGIN, passages_of
from recollect.core.values.batch import EMBED_JOB, Batch, NewJob
from recollect.core.values.fact import Fact, FactId, fact_identity
from recollect.core.values.message import EntryKey, Message, MessageId, Text
from recollect.core.values.segment import NewSegment, Segment, SegmentId, Vector, VectorSet
from recollect.system.config.settings import Redaction

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCounts:
    """What became of one of OpenClaw's files."""

    messages: ImportCounts = field(default_factory=ImportCounts)
    vectors: int = 0
    altered: int = 0
    """Lines that held a secret: they are kept masked, and an export differs there."""
    passed_over: tuple[str, ...] = ()

    def plus(self, other: FileCounts) -> FileCounts:
        """Both together."""
        return FileCounts(
            messages=self.messages.plus(other.messages),
            vectors=self.vectors + other.vectors,
            altered=self.altered + other.altered,
            passed_over=self.passed_over + other.passed_over,
        )


class VectorFile:
    """The vectors of a `vectors.bin`, found by the ids of its segments."""

    def __init__(self, reading: VmemReading, data: bytes | mmap) -> None:
        self.dimensions = reading.dimensions
        self.embedder = f"vmem-{reading.dimensions}"
        self._data = data
        self._entries: dict[str, tuple[int, VmemEntry]] = {}
        for rank, entry in enumerate(reading.entries):
            self._entries[entry.id] = (rank, entry)
        self._named: set[str] = set()
        self.passed_over = list(reading.passed_over)
        doubled = len(reading.entries) - len(self._entries)
        if doubled:
            self.passed_over.append(f"{doubled:,} vectors are there twice: the last one is kept")

    def __len__(self) -> int:
        return len(self._entries)

    def claim(self, name: str) -> None:
        """There is a segment of this id."""
        self._named.add(well_formed(name))

    def find(self, name: str) -> tuple[int, bytes] | None:
        """The place in the file and the values of a segment's vector."""
        found = self._entries.get(well_formed(name))
        if found is None:
            return None
        rank, entry = found
        values = bytes(self._data[entry.start : entry.end])
        if not math.isfinite(sum(memoryview(values).cast("f"))):
            self.passed_over.append(f"vector {rank + 1:,} holds what is no number: kept out")
            return None
        return rank, values

    def told(self) -> tuple[str, ...]:
        """What was left out, once every segment was named."""
        orphans = len(self._entries.keys() - self._named)
        if orphans:
            return (*self.passed_over, f"{orphans:,} vectors name no segment: kept out")
        return tuple(self.passed_over)


async def import_segments(
    store: Store,
    lines: Iterable[bytes],
    *,
    vectors: VectorFile | None,
    rules: ImportRules,
    session: str | None = None,
    progress: Progress | None = None,
) -> FileCounts:
    """Write the lines of a `segments.jsonl`; `session` overrides the session they name."""
    passed_over: list[str] = []
    late = False
    if vectors is not None:
        stats = await store.stats()
        # after a run without vectors.bin the segments are known, but not their vectors
        late = stats.vectors.get(vectors.embedder, 0) < len(vectors)
    counts = FileCounts()
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
        passed_over.extend(f"vectors.bin: {text}" for text in vectors.told())
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
    vectors: VectorFile | None,
    rules: ImportRules,
    *,
    late: bool,
) -> FileCounts:
    # an id that is one of ours: an export of this very space comes back
    own = {other.id: SegmentId(clean_text(other.line.id)) for other in placed}
    known = await store.known({*own, *own.values()})
    fresh = {other.id: other for other in placed if not {other.id, own[other.id]} & known}
    made = [_new_segment(other, vectors, rules) for other in fresh.values()]
    attached = [vector for _, vector, _ in made if vector is not None]
    if late and vectors is not None:
        attached += await _late_vectors(
            store, [other for other in placed if other.id in known], vectors
        )
    segments = tuple(new for new, _, _ in made)
    batch = Batch(
        at=rules.now,
        segments=segments,
        vectors=_vector_sets(vectors, attached),
        jobs=_jobs(segments, rules),
    )
    if batch.empty:
        return FileCounts(messages=ImportCounts(read=len(placed), known=len(placed)))
    written = await store.write(batch)
    stored, forgotten = set(written.stored), set(written.forgotten)
    kept = [(new, altered) for new, _, altered in made if new.segment.id in stored]
    return FileCounts(
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
    store: Store, known: Sequence[_Placed], vectors: VectorFile
) -> list[Vector]:
    """Vectors of segments that came without them; they need a passage to stand at."""
    found_vectors: list[Vector] = []
    for placed in known:
        values = vectors.find(placed.line.id)
        if values is not None and await store.passages(placed.id):
            found_vectors.append(placed.vector(values[1]))
    return found_vectors


def _vector_sets(vectors: VectorFile | None, attached: Sequence[Vector]) -> tuple[VectorSet, ...]:
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
    placed: _Placed, vectors: VectorFile | None, rules: ImportRules
) -> tuple[NewSegment, Vector | None, bool]:
    """What to write for a line, its vector, and whether a secret stood in the line."""
    line = placed.line
    value, altered = masked_object(line.value, SEGMENT_FIELDS, rules.redaction)
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
        origin=origin if found is None else f"{origin}{VECTOR_ORIGIN}{found[0]}",
        foreign=line_again(value, line.line) if altered else line.line,
    )
    new = NewSegment(segment=segment, passages=passages_of(segment))
    return new, None if found is None else placed.vector(found[1]), altered


def _noise(line: SegmentLine, text: str) -> str | None:
    if line.role == "system":
        return "system"
    reason = is_noise(text).reason
    return None if reason is None else reason.value


def _line_key(name: str) -> EntryKey:
    """What a line's own id stands for among keys: lines have no place in a history."""
    named = name.encode("utf-8", "surrogatepass")
    return EntryKey(blake2b(named, digest_size=16, person=b"recollect-line").hexdigest())


def chunks(lines: Iterator[T]) -> Iterator[list[T]]:
    """The lines, as many at a time as are written at once."""
    while chunk := list(islice(lines, BATCH_SEGMENTS)):
        yield chunk


def masked_object(
    value: dict[str, Any], fields: frozenset[str], settings: Redaction
) -> tuple[dict[str, Any], bool]:
    """The object of a line without secrets, and whether there were any."""
    if not settings.enabled:
        return value, False
    mask = TextMask(settings)
    masked = _masked_fields(value, fields, mask)
    if mask.secrets:  # what one field masks may stand in another by itself: an entity, a tag
        masked = _masked_fields(masked, fields, mask)
    return masked, masked != value


def _masked_fields(value: dict[str, Any], fields: frozenset[str], mask: TextMask) -> dict[str, Any]:
    masked: dict[str, Any] = {}
    for key, item in value.items():
        done = _masked_value(item, mask)
        if key not in fields:  # what is unknown may be a secret by its name
            pair = f"{stringify(key)}:{stringify(done)}"
            named = redact(pair, pii=mask.settings.pii, known=mask.secrets)
            mask.secrets.update(secrets_in(pair, named.spans))
            done = named.spans[0].replacement if named.spans else done
        masked[key] = done
    return masked


def _masked_value(item: Any, mask: TextMask) -> Any:
    if isinstance(item, str):
        return mask.text(item)
    if isinstance(item, list):
        return [_masked_value(inner, mask) for inner in item]
    if isinstance(item, dict):
        masked = {mask.text(key): _masked_value(inner, mask) for key, inner in item.items()}
        spelled = stringify(masked)
        done = mask.json(spelled)  # a key may promise a secret
        return masked if done == spelled else decode(done.encode())
    return item


def line_again(value: dict[str, Any], line: str) -> str:
    """A masked object as its line, with the line end it had."""
    return stringify(value) + line[len(line.rstrip("\r\n")) :]


async def import_facts(
    store: Store, lines: Iterable[bytes], *, rules: ImportRules, restore: bool = False
) -> FileCounts:
    """Write the lines of a `knowledge.jsonl`; a fact that is there as it is stays as it is.

    `restore`: the file is an export of one's own, and what it says of trust, maker and pins holds.
    """
    passed_over: list[str] = []
    counts = FileCounts()
    for chunk in chunks(read_knowledge_lines(lines, passed_over)):
        made = {one[0].id: one for one in (_fact(line, rules, restored=restore) for line in chunk)}
        known = {fact.id: fact for fact in await store.facts(list(made), superseded=True)}
        forgotten = await store.tombstoned(map(fact_identity, made))
        fresh = [
            (fact, altered)
            for fact, altered in made.values()
            if fact_identity(fact.id) not in forgotten
            and _comes_in(fact, known.get(fact.id), rules, restore=restore)
        ]
        out = sum(fact_identity(id_) in forgotten for id_ in made)
        if fresh:
            await store.write(Batch(at=rules.now, facts=tuple(fact for fact, _ in fresh)))
        counts = counts.plus(
            FileCounts(
                messages=ImportCounts(
                    read=len(chunk),
                    stored=len(fresh),
                    known=len(chunk) - len(fresh) - out,
                    forgotten=out,
                ),
                altered=sum(altered for _, altered in fresh),
            )
        )
    return replace(counts, passed_over=tuple(passed_over))


def _comes_in(fact: Fact, stored: Fact | None, rules: ImportRules, *, restore: bool) -> bool:
    """Whether a line is written: it is new, or it says something else than when it came first and
    nothing was done here to the fact since."""
    if stored is None:
        return True
    if stored.foreign is None or fact.foreign is None:
        return False
    readings = (False, True) if restore else (False,)
    if not any(_as_it_came(stored, rules, restored=reading) for reading in readings):
        return False
    before, now = line_of(stored.foreign), line_of(fact.foreign)
    if before == now:
        return restore and own_keys(stored) != own_keys(fact)
    return before.count(MASK_OPENING) <= now.count(MASK_OPENING)  # else it was masked here


def _as_it_came(stored: Fact, rules: ImportRules, *, restored: bool) -> bool:
    """Whether a stored fact is what its line makes of it, trusted or not."""
    line = line_of(stored.foreign or "").encode("utf-8", "surrogatepass")
    read = next(read_knowledge_lines([line], []), None)
    if read is None:
        return False
    came, _ = _fact(read, rules, restored=restored)
    return _identity(came) == _identity(stored)


def _identity(fact: Fact) -> tuple[object, ...]:
    return fact.type, fact.content, fact.context, fact.superseded_by, own_keys(fact)


def _fact(line: KnowledgeLine, rules: ImportRules, *, restored: bool) -> tuple[Fact, bool]:
    """A line as a fact, and whether something in it had to be masked."""
    value, altered = masked_object(line.value, FACT_FIELDS, rules.redaction)
    content, context = value.get("content"), value.get("context")
    text = clean_text(content if isinstance(content, str) else "")
    bare = Fact(
        id=FactId(clean_text(line.id)),
        type=line.type,
        content=text,
        context=clean_text(context) if isinstance(context, str) else "",
        at=rules.now if line.at is None else line.at,
        superseded_by=FactId(clean_text(line.superseded_by))
        if line.superseded_by is not None
        else None,
        words=tuple(tokenize(text)),
        foreign=foreign_of(line.number, line_again(value, line.line) if altered else line.line),
    )
    return _cleaned(with_own_keys(bare, value, restored=restored)), altered


def _cleaned(fact: Fact) -> Fact:
    """The fact with its free texts as every text is stored."""
    return replace(
        fact,
        subject=clean_text(fact.subject),
        attribute=clean_text(fact.attribute),
        session=None if fact.session is None else clean_text(fact.session),
    )
