"""Forgetting in what waits: a spooled batch without the messages that are to go.

Pure: batches in, batches out. Always holds: what is left of a batch quotes none of them; a
batch that holds none of them is left as it was, byte for byte.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from recollect.errors import FormatError
from recollect.formats.batches import read_batch, write_batch
from recollect.formats.session_state import join_state, without_quotes
from recollect.memory.matching import fact_identity, fact_meant, segment_meant
from recollect.values.batch import Batch, SessionWrite
from recollect.values.message import MessageId
from recollect.values.segment import Fact, FactId, Segment, SegmentId
from recollect.values.upkeep import ForgetOrder


@dataclass(slots=True, kw_only=True)
class Gone:
    """Which messages are to go; grows while spooled ones are found that the order means."""

    order: ForgetOrder
    message_ids: set[MessageId] = field(default_factory=set)
    segments: set[SegmentId] = field(default_factory=set)
    facts: set[FactId] = field(default_factory=set)
    unread: int = 0
    """Records that cannot be read here: another version's."""

    def look_at(self, record: bytes) -> bytes:
        """Note what of a spooled record is meant; gives the record back."""
        self.note(self.read(record) or Batch(at=0.0))
        return record

    def note(self, batch: Batch) -> tuple[Segment, ...]:
        """Note what of a batch is meant; the messages of it."""
        found = tuple(new.segment for new in batch.segments if self._meant(new.segment))
        for segment in found:
            self.message_ids.add(segment.message_id)
            self.segments.add(segment.id)
        for fact in batch.facts:
            if fact_meant(self.order, fact):
                self.facts.add(fact.id)
                self.message_ids.add(fact_identity(fact.id))
        return found

    def remove(self, record: bytes) -> bytes | None:
        """The record without them; None when nothing is left of it."""
        batch = self.read(record)
        if batch is None:
            self.unread += 1
            return record
        self.note(batch)
        left = without(
            batch, frozenset(self.message_ids), frozenset(self.segments), frozenset(self.facts)
        )
        if left == batch:
            return record
        return None if left.empty else write_batch(left)

    def read(self, record: bytes) -> Batch | None:
        """The batch in a record; None where it cannot be read here."""
        try:
            return read_batch(record)
        except FormatError:
            return None

    def _meant(self, segment: Segment) -> bool:
        return (
            segment.message_id in self.message_ids
            or segment.id in self.segments
            or segment_meant(self.order, segment)
        )


def without(
    batch: Batch,
    message_ids: frozenset[MessageId],
    segments: frozenset[SegmentId],
    facts: frozenset[FactId] = frozenset(),
) -> Batch:
    """The batch with nothing of these messages, nothing that quotes them, and not these facts."""
    dropped = {new.segment.id for new in batch.segments if new.segment.message_id in message_ids}
    gone = segments | dropped
    return replace(
        batch,
        segments=tuple(new for new in batch.segments if new.segment.id not in gone),
        vectors=tuple(
            replace(held, vectors=kept)
            for held in batch.vectors
            if (kept := tuple(one for one in held.vectors if one.segment not in gone))
        ),
        facts=tuple(
            left
            for fact in batch.facts
            if fact.id not in facts and (left := _fact(fact, gone)) is not None
        ),
        jobs=tuple(job for job in batch.jobs if message_ids.isdisjoint(job.about)),
        pieces=tuple(piece for piece in batch.pieces if message_ids.isdisjoint(piece.about)),
        session=None if batch.session is None else _session(batch.session, message_ids),
    )


def _fact(fact: Fact, gone: frozenset[SegmentId]) -> Fact | None:
    """A fact that rests on others too stays, without the sources that went."""
    left = tuple(source for source in fact.sources if source not in gone)
    if fact.sources and not left:
        return None
    return fact if left == fact.sources else replace(fact, sources=left)


def _session(write: SessionWrite, message_ids: frozenset[MessageId]) -> SessionWrite | None:
    if message_ids.isdisjoint(write.about):
        return write
    try:
        state = join_state(write.state, (), ())
    except FormatError:
        return None  # it quotes them, and nobody here can tell where: the stored one stays
    # Which edit quotes whom is not said: all that quote anybody go, and can be made again.
    edits = (*state.edits, *(edit for edit, _ in state.dormant))
    anchors = frozenset(edit.anchor for edit in edits if edit.anchor is not None)
    return replace(
        write,
        state=without_quotes(write.state, anchors),
        about=tuple(one for one in write.about if one not in message_ids),
    )
