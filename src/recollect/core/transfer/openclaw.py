"""Imports and exports OpenClaw's `segments.jsonl` and `knowledge.jsonl`. Imported lines are stored,
so that an export writes the same bytes. Lines with secrets are masked and counted. Existing facts
are not changed, and forgotten ones are not imported. A file is trusted like a model at most, unless
users restore their own export. Invalid lines are reported. Vectors are computed, not imported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import islice
from typing import Any, BinaryIO, TypeVar

from recollect.core.formats.json_text import decode, stringify
from recollect.core.formats.openclaw_files import KNOWLEDGE_FIELDS as FACT_FIELDS
from recollect.core.formats.openclaw_files import SEGMENT_FIELDS as SEGMENT_FIELDS
from recollect.core.formats.openclaw_files import (
    KnowledgeLine,
    SegmentLine,
    foreign_of,
    in_order,
    own_keys,
    read_knowledge_lines,
    read_segment_lines,
    with_own_keys,
    write_knowledge_line,
    write_segment_line,
)
from recollect.core.ports import Store, read_pages
from recollect.core.rules.identity import chain, identify, segment_id
from recollect.core.rules.message_redaction import TextMask
from recollect.core.rules.noise import is_noise
from recollect.core.rules.redaction import redact, secrets_in
from recollect.core.rules.text import clean_text
from recollect.core.rules.trust import trust_of_role
from recollect.core.search.tokenize import tokenize
from recollect.core.transfer.transcripts import BATCH_SEGMENTS, ImportCounts, ImportRules, Progress
from recollect.core.turn.ingest import index
from recollect.core.values.batch import Batch
from recollect.core.values.fact import Fact, FactId, fact_identity
from recollect.core.values.message import EntryKey, Message, Text
from recollect.core.values.segment import NewSegment, Segment, SegmentId
from recollect.system.config.settings import Redaction

T = TypeVar("T")


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
    progress: Progress | None = None,
) -> FileCounts:
    """Write the lines of a `segments.jsonl`. `session` overrides the session that a line names."""
    passed_over: list[str] = []
    counts = FileCounts()
    done = 0
    for chunk in chunks(read_segment_lines(lines, passed_over)):
        segments = [(line, _segment(line, rules, session)) for line in chunk]
        counts = counts.plus(await _write_lines(store, segments, rules))
        done += len(chunk)
        if progress is not None:
            progress(done, done)
    return replace(counts, passed_over=tuple(passed_over))


async def _write_lines(
    store: Store, lines: Sequence[tuple[SegmentLine, Segment]], rules: ImportRules
) -> FileCounts:
    # If the file is an export of this space, segments may be stored under the lines' own ids.
    own = {segment.id: SegmentId(clean_text(line.id)) for line, segment in lines}
    known = await store.known({*own, *own.values()})
    fresh = {
        segment.id: _new_segment(line, segment, rules)
        for line, segment in lines
        if known.isdisjoint((segment.id, own[segment.id]))
    }
    if not fresh:
        return FileCounts(messages=ImportCounts(read=len(lines), known=len(lines)))
    segments = tuple(new for new, _ in fresh.values())
    jobs = rules.reading(dict.fromkeys(new.segment.session for new in segments))
    written = await store.write(Batch(at=rules.now, segments=segments, jobs=jobs))
    stored, forgotten = set(written.stored), set(written.forgotten)
    kept = [fresh[id_] for id_ in fresh.keys() & stored]
    return FileCounts(
        messages=ImportCounts(
            read=len(lines),
            stored=len(stored),
            known=len(lines) - len(stored) - len(forgotten),
            forgotten=len(forgotten),
            noise=sum(new.segment.noise is not None for new, _ in kept),
        ),
        altered=sum(altered for _, altered in kept),
    )


def _segment(line: SegmentLine, rules: ImportRules, session: str | None) -> Segment:
    """Return the segment of a line, without its text. The segment's key is made from the line's id,
    because a line has no position in a history."""
    message = Message(role=line.role, parts=(Text(text=line.content),), raw=b"")
    identity = identify(message, rules.secret)
    named = line.id.encode("utf-8", "surrogatepass")
    hashed = blake2b(named, digest_size=16, person=b"recollect-line").hexdigest()
    key = chain(EntryKey(hashed), identity)
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
        origin=f"segments.jsonl:{line.number}",
    )


def _new_segment(
    line: SegmentLine, segment: Segment, rules: ImportRules
) -> tuple[NewSegment, bool]:
    value, altered = mask_object(line.value, SEGMENT_FIELDS, rules.redaction)
    text = clean_text(str(value["content"]))
    noise = is_noise(text)
    segment = replace(
        segment,
        text=text,
        noise="system" if line.role == "system" else noise and noise.value,
        foreign=line_again(value, line.line) if altered else line.line,
    )
    return NewSegment(segment=segment, passages=index(segment)), altered


def chunks(lines: Iterator[T]) -> Iterator[list[T]]:
    while chunk := list(islice(lines, BATCH_SEGMENTS)):
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
        done = _mask_value(item, mask)
        if key not in fields:  # the name of an unknown field may announce a secret
            pair = f"{stringify(key)}:{stringify(done)}"
            named = redact(pair, pii=mask.settings.pii, known=mask.secrets)
            mask.secrets.update(secrets_in(pair, named.spans))
            done = named.spans[0].replacement if named.spans else done
        masked[key] = done
    return masked


def _mask_value(item: Any, mask: TextMask) -> Any:
    if isinstance(item, str):
        return mask.text(item)
    if isinstance(item, list):
        return [_mask_value(inner, mask) for inner in item]
    if isinstance(item, dict):
        masked = {mask.text(key): _mask_value(inner, mask) for key, inner in item.items()}
        spelled = stringify(masked)
        done = mask.json(spelled)  # a key may announce that its value is a secret
        return masked if done == spelled else decode(done.encode())
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
        made = {one[0].id: one for one in (_fact(line, rules, restored=restore) for line in chunk)}
        known = {fact.id: fact for fact in await store.facts(list(made), superseded=True)}
        forgotten = await store.tombstoned(map(fact_identity, made))
        fresh = [
            (fact, altered)
            for fact, altered in made.values()
            if fact_identity(fact.id) not in forgotten
            and (fact.id not in known or (restore and _is_imported(known[fact.id], fact)))
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


def _is_imported(stored: Fact, fact: Fact) -> bool:
    """Return whether the stored fact was imported without `restore`, and so has lower trust."""
    return stored.made_by == "import" and own_keys(stored) != own_keys(fact)


def _fact(line: KnowledgeLine, rules: ImportRules, *, restored: bool) -> tuple[Fact, bool]:
    value, altered = mask_object(line.value, FACT_FIELDS, rules.redaction)
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
    fact = with_own_keys(bare, value, restored=restored)
    fact = replace(
        fact,
        subject=clean_text(fact.subject),
        attribute=clean_text(fact.attribute),
        session=None if fact.session is None else clean_text(fact.session),
    )
    return fact, altered


async def export_segments(
    store: Store, file: BinaryIO, progress: Callable[[int], None] | None = None
) -> int:
    """Write all messages in order of arrival as `segments.jsonl`. Return the number of messages."""
    written = 0
    lines = _Lines(file)
    async for page in read_pages(store):
        for stored in page:
            lines.write(write_segment_line(stored.segment))
        written += len(page)
        if progress is not None:
            progress(written)
    return written


async def export_facts(store: Store, file: BinaryIO) -> int:
    """Write all facts, also replaced ones, as `knowledge.jsonl`. Return the number of facts."""
    facts = in_order(await store.facts(superseded=True))
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
