"""Forgetting in what waits: a spooled batch without the messages that are to go.

Pure: batches in, batches out. Always holds: what is left of a batch quotes none of them; a
batch that holds none of them is left as it was, byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from recollect.errors import FormatError
from recollect.formats.stored_records import (
    join_state,
    read_batch,
    without_quotes,
    write_batch,
    write_state,
)
from recollect.memory.matching import (
    bytes_meant,
    content_meant,
    fact_meant,
    place_meant,
)
from recollect.ports import Spool
from recollect.values.batch import EXTRACT_JOB, Batch, SessionWrite, extract_key
from recollect.values.fact import FactId, fact_identity, still_supported
from recollect.values.message import MessageId
from recollect.values.segment import Segment, SegmentId
from recollect.values.upkeep import ForgetOrder


@runtime_checkable
class _SetsDamageAside(Protocol):
    def unreadable_files(self) -> tuple[str, ...]:
        """Files with what could not be read."""
        ...


def damaged_parts(spools: Iterable[Spool]) -> list[str]:
    """What of spools nobody can look into, one line each with what to do."""
    return [
        f"{name}, a damaged part of the spool: look into it, or delete it"
        for spool in spools
        if isinstance(spool, _SetsDamageAside)
        for name in spool.unreadable_files()
    ]


@dataclass(slots=True, kw_only=True)
class Gone:
    """Which messages are to go; grows while spooled ones are found that the order means."""

    order: ForgetOrder
    message_ids: set[MessageId] = field(default_factory=set)
    segments: set[SegmentId] = field(default_factory=set)
    facts: set[FactId] = field(default_factory=set)
    unsaid: set[MessageId] = field(default_factory=set)
    """Identities of which a segment goes by its place alone."""
    unread: int = 0
    """Records that cannot be read here: another version's."""

    def look_at(self, record: bytes) -> bytes:
        """Note what of a spooled record is meant; gives the record back."""
        self.note(self.read(record) or Batch(at=0.0))
        return record

    def note(self, batch: Batch) -> tuple[Segment, ...]:
        """Note what of a batch is meant; the messages of it."""
        found = tuple(new.segment for new in batch.segments if self._noted(new.segment))
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
            batch,
            frozenset(self.message_ids),
            frozenset(self.segments),
            frozenset(self.facts),
            unsaid=frozenset(self.unsaid),
        )
        left = self._without_sessions(self._without_text(left))
        if left == batch:
            return record
        return None if left.empty else write_batch(left)

    def read(self, record: bytes) -> Batch | None:
        """The batch in a record; None where it cannot be read here."""
        try:
            return read_batch(record)
        except FormatError:
            return None

    def _noted(self, segment: Segment) -> bool:
        if segment.message_id in self.message_ids or content_meant(self.order, segment):
            self.message_ids.add(segment.message_id)
        elif segment.id in self.segments or place_meant(self.order, segment):
            # its place has a tombstone of its own; what quotes it here goes, since nobody
            # here knows whether the same is said elsewhere
            self.message_ids.add(MessageId(segment.id))
            self.unsaid.add(segment.message_id)
        else:
            return False
        self.segments.add(segment.id)
        return True

    def _without_text(self, batch: Batch) -> Batch:
        """Without pieces, jobs, compactions and a state that hold the text, whomever about."""
        order = self.order
        if order.matching is None and order.pattern is None:
            return batch
        state = b"" if batch.session is None else _unpacked(batch.session)
        return replace(
            batch,
            jobs=tuple(job for job in batch.jobs if not bytes_meant(order, job.payload)),
            pieces=tuple(one for one in batch.pieces if not bytes_meant(order, one.body)),
            compactions=tuple(one for one in batch.compactions if not bytes_meant(order, one.body)),
            session=None if bytes_meant(order, state) else batch.session,
        )

    def _without_sessions(self, batch: Batch) -> Batch:
        """Without what is remembered of sessions that go as a whole."""
        whole = () if self.order.by_time else self.order.sessions
        gone = batch.session is not None and batch.session.session in whole
        reading = {extract_key(name, left=left) for name in whole for left in (False, True)}
        return replace(
            batch,
            facts=tuple(
                replace(fact, session=None) if fact.session in whole else fact
                for fact in batch.facts
            ),
            extracted=tuple(one for one in batch.extracted if one.session not in whole),
            jobs=tuple(
                job for job in batch.jobs if job.kind != EXTRACT_JOB or job.key not in reading
            ),
            turns=tuple(turn for turn in batch.turns if turn.session not in whole),
            compactions=tuple(one for one in batch.compactions if one.session not in whole),
            session=None if gone else batch.session,
        )


def without(
    batch: Batch,
    message_ids: frozenset[MessageId],
    segments: frozenset[SegmentId],
    facts: frozenset[FactId] = frozenset(),
    *,
    unsaid: frozenset[MessageId] = frozenset(),
) -> Batch:
    """The batch with nothing of these messages, nothing that quotes them, and not these facts.

    Nothing that quotes those `unsaid` either; they themselves stay where no segment is named.
    """
    quoted = message_ids | unsaid
    dropped = {new.segment.id for new in batch.segments if new.segment.message_id in message_ids}
    gone = segments | dropped
    kept = {
        left.id: left
        for fact in batch.facts
        if fact.id not in facts and (left := still_supported(fact, gone)) is not None
    }
    lost = facts | {fact.id for fact in batch.facts if fact.id not in kept}
    return replace(
        batch,
        segments=tuple(new for new in batch.segments if new.segment.id not in gone),
        vectors=tuple(
            replace(held, vectors=vectors)
            for held in batch.vectors
            if (vectors := tuple(one for one in held.vectors if one.segment not in gone))
        ),
        facts=tuple(kept[fact.id] for fact in batch.facts if fact.id in kept),
        fact_vectors=tuple(
            replace(held, vectors=fact_vectors)
            for held in batch.fact_vectors
            if (fact_vectors := tuple(one for one in held.vectors if one.fact not in lost))
        ),
        jobs=tuple(job for job in batch.jobs if quoted.isdisjoint(job.about)),
        pieces=tuple(piece for piece in batch.pieces if quoted.isdisjoint(piece.about)),
        compactions=tuple(one for one in batch.compactions if quoted.isdisjoint(one.about)),
        session=None if batch.session is None else _session(batch.session, quoted),
    )


def _unpacked(write: SessionWrite) -> bytes:
    """A session's state as it reads; its bytes where it cannot be read."""
    try:
        return write_state(join_state(write.state, (), ()))
    except FormatError:
        return write.state


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
