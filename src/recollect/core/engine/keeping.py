"""A session's place in the archive, as this process knows it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from recollect.core.boundary import Failure
from recollect.core.engine.archive import Kept, Where
from recollect.core.engine.ledger import LastRecord
from recollect.core.formats.stored_records import StateWriter
from recollect.core.rules.identity import segment_id
from recollect.core.rules.redaction import JudgedTexts
from recollect.core.turn.ingest import IngestResult
from recollect.core.values.batch import SessionWrite, StoredSession, WriteResult
from recollect.core.values.history import Entry
from recollect.core.values.message import EntryKey, MessageId
from recollect.core.values.reason import Cause, Reason
from recollect.core.values.report import Outcome, StageLine

HandedOver: TypeAlias = Where | Literal["stale"]
_RANK: dict[Where, int] = {"store": 0, "spool": 1, "nowhere": 2}


@dataclass(slots=True)
class ArchiveState:
    """What is known about a session's place in the archive, in this process."""

    loaded: bool = False
    stale: bool = False
    overtaken: bool = False
    """The store left out what was written of it last, since another process was first."""
    durable: set[EntryKey] = field(default_factory=set, repr=False)
    waiting: set[EntryKey] = field(default_factory=set, repr=False)
    """Messages that could be kept nowhere, and wait in memory to be written."""
    forgotten: set[MessageId] = field(default_factory=set, repr=False)
    """Messages that the store refused because they were forgotten: nothing quotes them again."""
    secrets: dict[str, None] = field(default_factory=dict, repr=False)
    """What was masked in the session, for where it is repeated without its label. Never stored."""
    judged: JudgedTexts = field(default_factory=JudgedTexts, repr=False)
    path: tuple[EntryKey, ...] = field(default=(), repr=False)
    writer: StateWriter = field(default_factory=StateWriter, repr=False)
    replaced: int = 0
    last_record: LastRecord = field(default_factory=LastRecord, repr=False)
    recorded_at: float = 0.0
    """When the last record was made; after a day one that rests on nothing is made, since what
    it would rest on may have expired."""
    refusals: int = 0
    tasks: list[asyncio.Task[None]] = field(default_factory=list, repr=False)
    where: Where = "nowhere"
    awaited: asyncio.Event = field(default_factory=asyncio.Event, repr=False)
    trouble: list[StageLine] = field(default_factory=list)
    abandoned: bool = False

    def begin_anew(self, replaced: int) -> None:
        """The store is another one now: what this session says is written to it from the start."""
        self.replaced = replaced
        self.durable.clear()
        self.path, self.last_record = (), LastRecord()

    def load_again(self) -> None:
        """What the store has counts from now on, not what is in memory."""
        self.loaded, self.stale = False, True
        self.path, self.last_record = (), LastRecord()


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestCounts:
    """What became of messages that were ingested."""

    read: int = 0
    stored: int = 0
    known: int = 0
    forgotten: int = 0
    """They stay out, because they were forgotten on purpose."""
    redacted: int = 0
    tokens: int = 0

    def plus(self, written: WriteResult, made: IngestResult) -> IngestCounts:
        """With one more batch."""
        stored = frozenset(written.stored)
        new = [one.segment for one in made.segments if one.segment.id in stored]
        return replace(
            self,
            stored=self.stored + len(written.stored),
            known=self.known + len(written.known),
            forgotten=self.forgotten + len(written.forgotten),
            redacted=self.redacted + (made.redacted if new else 0),
            tokens=self.tokens + sum(segment.tokens for segment in new),
        )


def note_where(keeping: ArchiveState, kept: Kept | Failure) -> None:
    """Note where a write ended, and trouble for the next report."""
    where: Where = "nowhere" if isinstance(kept, Failure) else kept.where
    keeping.where = max(keeping.where, where, key=_RANK.__getitem__)
    if where != "store":
        outcome: Outcome = "failed" if where == "nowhere" else "late"
        reason = Reason(Cause.SPOOLED if where == "spool" else Cause.NOT_KEPT, error=kept.said)
        keeping.trouble.append(
            StageLine(stage="ingest", outcome=outcome, reasons=(reason,), seconds=0.0)
        )


def newest_session(
    stored: StoredSession | None, waiting: Sequence[SessionWrite]
) -> StoredSession | None:
    """A session as it will be once what waits has been written, oldest first."""
    for write in waiting:
        path, ids = ((), ()) if stored is None else (stored.path, stored.ids)
        if write.path_from > len(path) or (stored is not None and write.turn <= stored.turn):
            continue  # the store will call it stale
        stored = StoredSession(
            session=write.session,
            turn=write.turn,
            state=write.state,
            path=path[: write.path_from] + write.path,
            ids=ids[: write.path_from] + write.ids,
        )
    return stored


def learn_kept(keeping: ArchiveState, session: str, chunk: Sequence[Entry], kept: Kept) -> None:
    """Note that these messages are durable."""
    keys = {entry.key for entry in chunk}
    keeping.waiting -= keys
    keeping.durable |= keys
    written = kept.written
    if written is not None and written.forgotten:
        gone = frozenset(written.forgotten)
        keeping.forgotten.update(
            entry.id for entry in chunk if segment_id(session, entry.key) in gone
        )
