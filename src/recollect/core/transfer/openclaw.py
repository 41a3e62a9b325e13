"""Imports and exports OpenClaw's `segments.jsonl`, `knowledge.jsonl` and `vectors.bin`. Imported
lines and vectors are stored, so that an export writes the same bytes. A vector that the hash
embedder computes again is not stored. Lines with secrets are masked and counted, and their vectors
are left out. Existing facts are not changed, and forgotten ones are not imported. A file is trusted
like a model at most, unless users restore their own export. Invalid lines are reported. No search
uses imported vectors, because the model that made them is unknown."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import islice
from math import inf
from typing import Any, BinaryIO, Final, TypeAlias, TypeVar

from recollect.core.facts.book import FactBook
from recollect.core.formats.json_text import decode, stringify
from recollect.core.formats.openclaw_files import KNOWLEDGE_FIELDS as FACT_FIELDS
from recollect.core.formats.openclaw_files import SEGMENT_FIELDS as SEGMENT_FIELDS
from recollect.core.formats.openclaw_files import (
    KnowledgeLine,
    SegmentLine,
    VectorFile,
    foreign_of,
    own_keys,
    read_fact_file,
    read_knowledge_lines,
    read_line_id,
    read_segment_lines,
    sort_facts,
    with_own_keys,
    write_knowledge_line,
    write_segment_line,
    write_vectors,
)
from recollect.core.ports import Store, read_pages
from recollect.core.rules.identity import chain, identify, segment_id
from recollect.core.rules.message_redaction import TextMask
from recollect.core.rules.noise import is_noise
from recollect.core.rules.redaction import redact, secrets_in
from recollect.core.rules.text import clean_text
from recollect.core.rules.trust import trust_of_role
from recollect.core.search.tokenize import tokenize
from recollect.core.transfer.topics import entities_of, topics_of
from recollect.core.transfer.transcripts import ImportCounts, ImportRules, Progress
from recollect.core.turn.ingest import CHUNK_MESSAGES, VECTOR_PLACE, index
from recollect.core.values.batch import Batch
from recollect.core.values.fact import Fact, FactId, fact_identity
from recollect.core.values.message import EntryKey, Message, Text
from recollect.core.values.segment import (
    FLOAT_BYTES,
    NewSegment,
    Segment,
    SegmentId,
    Vector,
    VectorSet,
)
from recollect.system.config.settings import Redaction

T = TypeVar("T")
EmbedTexts: TypeAlias = Callable[[Sequence[str]], Awaitable[Sequence[bytes]]]
HASH_DIMENSIONS: Final = 384
"""Dimensions of OpenClaw's hash embedder."""
NO_VECTORS: Final = VectorFile(dimensions=0, offsets={}, data=b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCounts:
    """Counts of the lines of one imported file."""

    messages: ImportCounts = field(default_factory=ImportCounts)
    altered: int = 0
    """Number of lines that differ in an export, because a secret in them was masked."""
    passed_over: tuple[str, ...] = ()

    def plus(self, other: FileCounts) -> FileCounts:
        return FileCounts(
            messages=self.messages.plus(other.messages),
            altered=self.altered + other.altered,
            passed_over=self.passed_over + other.passed_over,
        )


async def import_segments(
    store: Store,
    lines: Iterable[bytes],
    *,
    rules: ImportRules,
    session: str | None = None,
    vectors: VectorFile = NO_VECTORS,
    embed: EmbedTexts,
    progress: Progress | None = None,
) -> FileCounts:
    """Write the lines of a `segments.jsonl`. `session` overrides the session that a line names.
    `embed` is OpenClaw's hash embedder."""
    passed_over = list(vectors.passed_over)
    places = {name: number for number, name in enumerate(vectors.offsets, 1)}
    unused_ids = set(places)
    counts = FileCounts()
    done = 0
    for chunk in chunks(read_segment_lines(lines, passed_over)):
        segments = [(line, _segment(line, rules, session, places.get(line.id))) for line in chunk]
        counts = counts.plus(await _write_lines(store, segments, rules, vectors, embed))
        unused_ids.difference_update(line.id for line in chunk)
        done += len(chunk)
        if progress is not None:
            progress(done, done)
    if unused_ids:
        passed_over.append(f"vectors.bin: {len(unused_ids):,} vectors belong to no message")
    return replace(counts, passed_over=tuple(passed_over))


async def _write_lines(
    store: Store,
    lines: Sequence[tuple[SegmentLine, Segment]],
    rules: ImportRules,
    vectors: VectorFile,
    embed: EmbedTexts,
) -> FileCounts:
    # If the file is an export of this space, segments may be stored under the lines' own ids.
    own_ids = {segment.id: SegmentId(clean_text(line.id)) for line, segment in lines}
    known_ids = await store.known({*own_ids, *own_ids.values()})
    new_by_id = {
        segment.id: _new_segment(line, segment, rules)
        for line, segment in lines
        if known_ids.isdisjoint((segment.id, own_ids[segment.id]))
    }
    if not new_by_id:
        return FileCounts(messages=ImportCounts(read=len(lines), known=len(lines)))
    segments = tuple(s for s, _ in new_by_id.values())
    jobs = rules.reading(dict.fromkeys(s.segment.session for s in segments))
    given_vectors = {
        segment.id: vectors.values(line.id)
        for line, segment in lines
        if segment.id in new_by_id and not new_by_id[segment.id][1] and line.id in vectors.offsets
    }
    own_vectors = await embed([new_by_id[id_][0].segment.text for id_ in given_vectors])
    foreign_vectors = tuple(
        Vector(segment=id_, ordinal=0, values=values)
        for (id_, values), own_vector in zip(given_vectors.items(), own_vectors, strict=True)
        if values != own_vector
    )
    name = f"{IMPORTED_VECTORS}{vectors.dimensions}"
    vector_set = VectorSet(embedder=name, dimensions=vectors.dimensions, vectors=foreign_vectors)
    batch = Batch(
        at=rules.now, segments=segments, jobs=jobs, vectors=(vector_set,) if foreign_vectors else ()
    )
    write_result = await store.write(batch)
    stored_ids, forgotten_ids = set(write_result.stored), set(write_result.forgotten)
    new_segments = [new_by_id[id_] for id_ in new_by_id.keys() & stored_ids]
    return FileCounts(
        messages=ImportCounts(
            read=len(lines),
            stored=len(stored_ids),
            known=len(lines) - len(stored_ids) - len(forgotten_ids),
            forgotten=len(forgotten_ids),
            noise=sum(s.segment.noise is not None for s, _ in new_segments),
        ),
        altered=sum(altered for _, altered in new_segments),
    )


IMPORTED_VECTORS: Final = "vectors.bin:"
"""Precedes the dimensions in the embedder's name of imported vectors."""


def _segment(
    line: SegmentLine, rules: ImportRules, session: str | None, place: int | None
) -> Segment:
    """Return the segment of a line, without its text. The segment's key is made from the line's id,
    because a line has no position in a history."""
    message = Message(role=line.role, parts=(Text(text=line.content),), raw=b"")
    identity = identify(message, rules.secret)
    id_bytes = line.id.encode("utf-8", "surrogatepass")
    digest = blake2b(id_bytes, digest_size=16, person=b"recollect-line").hexdigest()
    key = chain(EntryKey(digest), identity)
    session = clean_text(line.session if session is None else session)
    return Segment(
        id=segment_id(session, key),
        session=session,
        key=key,
        message_id=identity,
        role=line.role,
        text="",
        tokens=rules.weigher.text(line.content) if line.tokens is None else line.tokens,
        said_at=rules.now if line.said_at is None else line.said_at,
        source="import",
        trust=trust_of_role(line.role),
        origin=f"segments.jsonl:{line.number}"
        + ("" if place is None else f"{VECTOR_PLACE}{place}"),
    )


def _new_segment(
    line: SegmentLine, segment: Segment, rules: ImportRules
) -> tuple[NewSegment, bool]:
    value, altered = mask_object(line.value, SEGMENT_FIELDS, rules.redaction)
    text = clean_text(str(value["content"]))
    noise = is_noise(text)
    kind = "system" if line.role == "system" else noise and noise.value
    segment = replace(
        segment,
        text=text,
        noise=None if VECTOR_PLACE in (segment.origin or "") else kind,
        foreign=line_again(value, line.line) if altered else line.line,
    )
    return NewSegment(segment=segment, passages=index(segment)), altered


def chunks(lines: Iterator[T]) -> Iterator[list[T]]:
    while chunk := list(islice(lines, CHUNK_MESSAGES)):
        yield chunk


def mask_object(
    value: dict[str, Any], fields: frozenset[str], settings: Redaction
) -> tuple[dict[str, Any], bool]:
    """Mask the JSON object of a line. Also return whether the object contained secrets."""
    if not settings.enabled:
        return value, False
    mask = TextMask(settings)
    masked = _mask_fields(value, fields, mask)
    if mask.secrets:  # other fields, such as an entity or a tag, may repeat the secret of a field
        masked = _mask_fields(masked, fields, mask)
    return masked, masked != value


def _mask_fields(value: dict[str, Any], fields: frozenset[str], mask: TextMask) -> dict[str, Any]:
    masked: dict[str, Any] = {}
    for key, item in value.items():
        masked_item = _mask_value(item, mask)
        if key not in fields:  # the name of an unknown field may announce a secret
            pair = f"{stringify(key)}:{stringify(masked_item)}"
            redaction = redact(pair, pii=mask.settings.pii, known_secrets=mask.secrets)
            mask.secrets.update(secrets_in(pair, redaction.spans))
            masked_item = redaction.spans[0].replacement if redaction.spans else masked_item
        masked[key] = masked_item
    return masked


def _mask_value(item: Any, mask: TextMask) -> Any:
    if isinstance(item, str):
        return mask.text(item)
    if isinstance(item, list):
        return [_mask_value(inner, mask) for inner in item]
    if isinstance(item, dict):
        masked = {mask.text(key): _mask_value(inner, mask) for key, inner in item.items()}
        json_text = stringify(masked)
        masked_text = mask.json(json_text)  # a key may announce that its value is a secret
        return masked if masked_text == json_text else decode(masked_text.encode())
    return item


def line_again(value: dict[str, Any], line: str) -> str:
    """Write a masked object as a line with the line's own ending."""
    return stringify(value) + line[len(line.rstrip("\r\n")) :]


async def import_facts(
    store: Store, lines: Iterable[bytes], *, rules: ImportRules, restore: bool = False
) -> FileCounts:
    """Write the lines of a `knowledge.jsonl`. A stored fact does not change. With `restore` the
    file is the user's own export, so trust levels, sources and pins are taken from it."""
    passed_over: list[str] = []
    counts = FileCounts()
    for chunk in chunks(read_knowledge_lines(lines, passed_over)):
        facts_by_id = {
            fact_pair[0].id: fact_pair
            for fact_pair in (_fact(line, rules, restored=restore) for line in chunk)
        }
        known_facts = {
            fact.id: fact for fact in await store.facts(list(facts_by_id), superseded=True)
        }
        forgotten_ids = await store.tombstoned(map(fact_identity, facts_by_id))
        new_facts = [
            (fact, altered)
            for fact, altered in facts_by_id.values()
            if fact_identity(fact.id) not in forgotten_ids
            and (
                fact.id not in known_facts or (restore and _is_imported(known_facts[fact.id], fact))
            )
        ]
        out = sum(fact_identity(id_) in forgotten_ids for id_ in facts_by_id)
        if new_facts:
            await store.write(Batch(at=rules.now, facts=tuple(fact for fact, _ in new_facts)))
        counts = counts.plus(
            FileCounts(
                messages=ImportCounts(
                    read=len(chunk),
                    stored=len(new_facts),
                    known=len(chunk) - len(new_facts) - out,
                    forgotten=out,
                ),
                altered=sum(altered for _, altered in new_facts),
            )
        )
    return replace(counts, passed_over=tuple(passed_over))


async def import_fact_file(
    data: bytes,
    facts: Mapping[FactId, Fact],
    store: Store,
    book: FactBook,
    *,
    rules: ImportRules,
    restore: bool,
) -> str:
    """Apply the file of a fact, and return what that did. `facts` are all stored facts. A changed
    statement is a new version of its fact, and a file without an id is a new fact."""
    line = read_fact_file(data)
    text, kind, id_ = line["content"], line["type"], line.get("id")
    if not isinstance(id_, str):
        return (await book.add(text, type=kind, subject=str(line.get("subject", "")))).outcome
    if (fact := facts.get(FactId(id_))) is None:
        done = await import_facts(store, [stringify(line).encode()], rules=rules, restore=restore)
        return "added" if done.messages.stored else "left out"
    newest = fact
    while newest.superseded_by is not None and newest.superseded_by in facts:
        newest = facts[newest.superseded_by]
    outcome = "known"
    if (text, kind) not in [(version.content.strip(), version.type) for version in (fact, newest)]:
        written = await book.edit(newest.id, text, type=kind)
        outcome, newest = written.outcome, written.fact or newest
    elif text != newest.content.strip():  # a later version was made elsewhere
        return outcome
    if not newest.current:
        return outcome
    if (line["validTo"] or inf) <= rules.now * 1000:
        await book.expire(newest.id)
        return "expired" if outcome == "known" else outcome
    if newest.pinned is line["pinned"]:
        return outcome
    await (book.pin(newest.id) if line["pinned"] else book.unpin(newest.id))
    return outcome if outcome != "known" else "pinned" if line["pinned"] else "unpinned"


def _is_imported(stored_fact: Fact, fact: Fact) -> bool:
    """Return whether the stored fact was imported without `restore`, and so has lower trust."""
    return stored_fact.made_by == "import" and own_keys(stored_fact) != own_keys(fact)


def _fact(line: KnowledgeLine, rules: ImportRules, *, restored: bool) -> tuple[Fact, bool]:
    value, altered = mask_object(line.value, FACT_FIELDS, rules.redaction)
    content, context = value.get("content"), value.get("context")
    text = clean_text(content if isinstance(content, str) else "")
    bare = Fact(
        id=FactId(clean_text(line.id)),
        type=line.type,
        content=text,
        context=clean_text(context) if isinstance(context, str) else "",
        at=rules.now if line.said_at is None else line.said_at,
        superseded_by=FactId(clean_text(line.superseded_by))
        if line.superseded_by is not None
        else None,
        words=tuple(tokenize(text)),
        foreign=foreign_of(line.number, line_again(value, line.line) if altered else line.line),
    )
    fact = with_own_keys(bare, value, restored=restored)
    fact = replace(
        fact,
        subject=clean_text(fact.subject),
        attribute=clean_text(fact.attribute),
        session=None if fact.session is None else clean_text(fact.session),
    )
    return fact, altered


async def export_segments(
    store: Store,
    file: BinaryIO,
    vector_file: BinaryIO,
    embed: EmbedTexts,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Write all messages in order of arrival as `segments.jsonl`, and their vectors. Return the
    number of messages. Imported vectors are written again. `embed`, OpenClaw's hash embedder,
    computes the others, unless another embedder made the imported ones."""
    counts = (await store.stats()).vectors
    names = [name for name in counts if name.startswith(IMPORTED_VECTORS) and counts[name]]
    imported_vectors = {
        v.segment: v.values for name in names[:1] for v in await store.vectors(name)
    }
    written, lines = 0, _Lines(file)
    vectors: list[tuple[float, str, bytes]] = []
    by_hash: list[tuple[float, str, bytes]] = []
    async for page in read_pages(store):
        hash_vectors = await embed([stored_segment.segment.text for stored_segment in page])
        for stored_segment, hash_vector in zip(page, hash_vectors, strict=True):
            segment = stored_segment.segment
            line = write_segment_line(segment, _metadata(segment))
            lines.write(line)
            place = (segment.origin or "").partition(VECTOR_PLACE)[2]
            vector = float(place or "inf"), read_line_id(line)
            if segment.id in imported_vectors:
                vectors.append((*vector, imported_vectors[segment.id]))
            elif place or segment.noise is None:
                by_hash.append((*vector, hash_vector))
        written += len(page)
        if progress is not None:
            progress(written)
    dimensions = len(vectors[0][2]) // FLOAT_BYTES if vectors else HASH_DIMENSIONS
    imported_by_hash = sum(place < inf for place, _, _ in by_hash)
    if dimensions != HASH_DIMENSIONS or len(vectors) > imported_by_hash:
        by_hash = []  # another embedder made the imported vectors
    sorted_vectors = sorted([*vectors, *by_hash], key=lambda vector: vector[0])
    pairs = [(name, values) for _, name, values in sorted_vectors]
    vector_file.writelines(write_vectors(pairs, dimensions=dimensions))
    return written


def _metadata(segment: Segment) -> dict[str, Any]:
    text = "" if segment.noise is not None else segment.text
    return {"topics": topics_of(text), "entities": entities_of(text)}


async def export_facts(store: Store, file: BinaryIO) -> int:
    """Write all facts, also replaced ones, as `knowledge.jsonl`. Return the number of facts."""
    facts = sort_facts(await store.facts(superseded=True))
    lines = _Lines(file)
    for fact in facts:
        lines.write(write_knowledge_line(fact))
    return len(facts)


class _Lines:
    """Writes lines to a file, and a missing newline if further lines follow."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._torn = False

    def write(self, line: str) -> None:
        self._file.write((("\n" if self._torn else "") + line).encode())
        self._torn = not line.endswith("\n")
