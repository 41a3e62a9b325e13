"""Puts a memory of the recall bench into a real store, by the product's own way in.

Owns the way from a set's messages to stored segments with vectors: messages as a chat's wire
format has them, read by its codec, through `turn/ingest`, written in batches, embedded by
`memory/embed`. It must never score anything. Always holds: what was written is what an import of
the same chat writes, so noise is not indexed and secrets are masked here too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final, TypeAlias

from recollect.core.formats.codec import CODECS
from recollect.core.formats.json_text import encode
from recollect.core.ports import Embedder, Store
from recollect.core.rules.identity import ROOT, chain, space_secret
from recollect.core.rules.tokens import Weigher
from recollect.core.turn.align import LastRequest, enter, read
from recollect.core.turn.ingest import ingest
from recollect.core.upkeep.chores import embed
from recollect.core.values.batch import EMBED_JOB, Batch, JobId, Lease
from recollect.core.values.history import Entry
from recollect.core.values.message import EntryKey
from recollect.core.values.segment import NewSegment, SegmentId, StoredSegment
from recollect.system.config.settings import Redaction
from recollect_bench.recall.sets import Memory, Said

BATCH_SEGMENTS: Final = 400
EMBEDDED_AT_ONCE: Final = 512
_FORMAT: Final = "openai-chat"

Told: TypeAlias = Callable[[int, int], None]
"""So many of so many are done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenClock:
    """A clock that stands: nothing a bench writes depends on when it runs."""

    at: float

    def now(self) -> float:
        """Always the same."""
        return self.at


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPassage:
    """A passage as it is indexed."""

    text: str = field(repr=False)
    words: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessage:
    """A message as it is stored; without passages where it is not indexed."""

    segment: SegmentId
    sequence: int
    """Its place in the order of arrival, as the store numbers it."""
    session: str
    role: str
    text: str = field(repr=False)
    said_at: float
    passages: tuple[StoredPassage, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMemory:
    """A memory in its store."""

    memory: Memory
    store: Store
    messages: tuple[StoredMessage, ...] = field(repr=False)
    """In the order of the memory's messages."""

    @property
    def passages(self) -> int:
        """How many are indexed."""
        return sum(len(message.passages) for message in self.messages)


def entries_of(messages: Sequence[Said], *, space: str) -> list[Entry]:
    """The messages as a chat brings them, each at its place in its session."""
    raws = [encode({"role": message.role, "content": message.text}) for message in messages]
    done = read(raws, CODECS[_FORMAT], space_secret(space), Weigher(), LastRequest())
    last: dict[str, EntryKey] = {}
    entries: list[Entry] = []
    for message, reading in zip(messages, done.new_readings, strict=True):
        key = chain(last.get(message.session, ROOT), reading.id)
        last[message.session] = key
        entries.append(enter(reading, key))
    return entries


async def write_memory(store: Store, memory: Memory) -> StoredMemory:
    """Write all messages of a memory, in their order."""
    entries = entries_of(memory.messages, space=store.space)
    made: list[NewSegment] = []
    for session, group in groupby(
        zip(memory.messages, entries, strict=True), key=lambda pair: pair[0].session
    ):
        pairs = list(group)
        done = ingest(
            [entry for _, entry in pairs],
            session=session,
            source="import",
            said_at={entry.key: message.said_at for message, entry in pairs},
            redaction=Redaction(),
            now=memory.ends_at,
        )
        made.extend(done.segments)
    assert len(made) == len(memory.messages), "no set holds recalled blocks"
    await write_segments(store, made, at=memory.ends_at)
    held = {segment.segment.id: segment.sequence for segment in await _all_of(store, made)}
    messages = tuple(stored_message(new, sequence=held[new.segment.id]) for new in made)
    return StoredMemory(memory=memory, store=store, messages=messages)


async def _all_of(store: Store, made: Sequence[NewSegment]) -> list[StoredSegment]:
    ids = [new.segment.id for new in made]
    return [
        segment
        for first in range(0, len(ids), BATCH_SEGMENTS)
        for segment in await store.segments(ids[first : first + BATCH_SEGMENTS])
    ]


async def write_segments(store: Store, segments: Sequence[NewSegment], *, at: float) -> None:
    """Write segments in batches as large as an import's."""
    for first in range(0, len(segments), BATCH_SEGMENTS):
        group = tuple(segments[first : first + BATCH_SEGMENTS])
        written = await store.write(Batch(at=at, segments=group))
        assert not written.known, "a bench writes to an empty space, each message once"


def stored_message(new: NewSegment, *, sequence: int) -> StoredMessage:
    """A message as the store has it now."""
    segment = new.segment
    passages = [
        StoredPassage(text=segment.text[passage.start : passage.end], words=passage.words)
        for passage in new.passages
    ]
    return StoredMessage(
        segment=segment.id,
        sequence=sequence,
        session=segment.session,
        role=segment.role,
        text=segment.text,
        said_at=segment.said_at,
        passages=tuple(passages),
    )


async def embed_memory(
    store: Store, embedder: Embedder, *, at: float, passages: int, told: Told = lambda *_: None
) -> None:
    """Give every passage its vector, as the job of the background does."""
    lease = Lease(
        id=JobId("bench"),
        kind=EMBED_JOB,
        key=embedder.name,
        payload=b"{}",
        cost_tokens=0,
        attempt=1,
        token="bench",  # noqa: S106 - names a lease, opens nothing
        expires_at=at,
    )
    clock = FrozenClock(at=at)
    done = 0
    while True:
        batch = await embed(
            lease, store=store, embedders=[embedder], clock=clock, passages=EMBEDDED_AT_ONCE
        )
        if not batch.vectors:
            return
        await store.write(replace(batch, jobs=()))
        done += len(batch.vectors[0].vectors)
        told(done, passages)
