"""`SQLiteStore`: the memory of one space in one SQLite file.

Owns the lanes and hands each operation to its module. A lane writes, one searches, one reads
the rest; see `lanes.py` for what a cancelled call leaves behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from recollect.stores.sqlite import archive, check, facts, forget, jobs, ledger
from recollect.stores.sqlite.candidates import find_around, find_candidates
from recollect.stores.sqlite.connection import EncryptionKey, SpaceFile, space_file
from recollect.stores.sqlite.database import Database, Lane
from recollect.stores.sqlite.facts import FactMatrices, find_fact_candidates, unembedded_facts
from recollect.stores.sqlite.ledger import read_compactions
from recollect.stores.sqlite.lexical import Recent
from recollect.stores.sqlite.passages import STEP, evict, replace_passages, warm
from recollect.stores.sqlite.sessions import read_session
from recollect.stores.sqlite.tombstones import tombstoned
from recollect.stores.sqlite.vectors import Matrices
from recollect.values.batch import (
    Batch,
    JobRecord,
    Lease,
    LedgerPiece,
    PieceHash,
    QueueState,
    RebuiltTurn,
    StoredSession,
    WriteResult,
)
from recollect.values.compaction import CompactionRecord
from recollect.values.fact import Fact, FactId, FactText
from recollect.values.history import SessionId, SpaceId
from recollect.values.message import MessageId
from recollect.values.model import ModelUse
from recollect.values.recall import (
    CandidateQuery,
    Candidates,
    FactCandidates,
    FactQuery,
    Surroundings,
)
from recollect.values.segment import NewPassage, PassageText, SegmentId, StoredSegment, Vector
from recollect.values.upkeep import (
    CheckResult,
    ForgetOrder,
    Forgotten,
    RewriteOrder,
    Rewritten,
    Room,
    ScrubResult,
    SessionSummary,
    Stats,
    StoredBody,
)


class SQLiteStore:
    """A space in a file of its own; several processes may have it open."""

    def __init__(self, file: SpaceFile) -> None:
        self.space: SpaceId = file.space
        self._file = file
        self._writer = Lane(file, name="write")
        self._reader = Lane(file, name="read")
        self._searcher = Lane(file, name="search")
        self._matrices = Matrices()
        self._fact_matrices = FactMatrices()
        self._recent = Recent()

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        space: str,
        key: EncryptionKey | bytes | None = None,
        create: bool = True,
        busy_seconds: float = 5.0,
    ) -> Self:
        """Open the file of a space, and make it where it is missing."""
        file = await asyncio.to_thread(
            space_file, path, space=space, key=key, create=create, busy_seconds=busy_seconds
        )
        store = cls(file)
        try:
            await store._searcher.run(lambda _: None)
        except BaseException:
            for lane in store._lanes:
                lane.abandon()
            raise
        return store

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def path(self) -> Path:
        """The file of the space."""
        return self._file.path

    @property
    def _lanes(self) -> tuple[Lane, ...]:
        return self._searcher, self._reader, self._writer

    # Archive

    async def write(self, batch: Batch) -> WriteResult:
        """As `Archive.write`."""
        return await self._writer.write(partial(archive.write_batch, batch=batch))

    async def session(self, session: SessionId) -> StoredSession | None:
        """As `Archive.session`."""
        return await self._reader.read(partial(read_session, name=session))

    async def sessions(self) -> tuple[SessionSummary, ...]:
        """As `Archive.sessions`."""
        return await self._reader.read(archive.sessions)

    async def candidates(self, query: CandidateQuery) -> Candidates:
        """As `Archive.candidates`."""
        return await self._searcher.read(
            lambda db: find_candidates(db, self._matrices, self._recent, query)
        )

    async def around(
        self,
        ids: Sequence[SegmentId],
        query: CandidateQuery,
        *,
        reach: int = 2,
        passages_each: int = 3,
    ) -> Surroundings:
        """As `Archive.around`."""
        return await self._searcher.read(
            lambda db: find_around(
                db,
                self._matrices,
                self._recent,
                ids=ids,
                query=query,
                reach=reach,
                passages_each=passages_each,
            )
        )

    async def segments(self, ids: Sequence[SegmentId]) -> tuple[StoredSegment, ...]:
        """As `Archive.segments`."""
        return await self._reader.read(partial(archive.segments_by_id, ids=ids))

    async def known(self, ids: Iterable[SegmentId]) -> frozenset[SegmentId]:
        """As `Archive.known`."""
        wanted = tuple(ids)
        found = await self._reader.read(lambda db: archive.known_segments(db, wanted))
        return frozenset(map(SegmentId, found))

    async def tombstoned(self, ids: Iterable[MessageId]) -> frozenset[MessageId]:
        """As `Archive.tombstoned`."""
        wanted = tuple(ids)
        found = await self._reader.read(lambda db: tombstoned(db, wanted))
        return frozenset(map(MessageId, found))

    async def page(
        self,
        *,
        after: int = 0,
        limit: int = 500,
        session: SessionId | None = None,
        descending: bool = False,
    ) -> tuple[StoredSegment, ...]:
        """As `Archive.page`."""
        return await self._reader.read(
            partial(archive.page, after=after, limit=limit, session=session, descending=descending)
        )

    async def passages(self, id: SegmentId) -> tuple[NewPassage, ...]:  # noqa: A002
        """As `Archive.passages`."""
        return await self._reader.read(partial(archive.passages_by_id, id_=id))

    async def replace_passages(
        self,
        passages: Mapping[SegmentId, tuple[NewPassage, ...]],
        *,
        at: float,  # noqa: ARG002 - the file keeps no time of indexing
    ) -> None:
        """As `Archive.replace_passages`."""
        await self._writer.write(partial(replace_passages, passages=passages))

    async def unembedded(self, embedder: str, *, limit: int) -> tuple[PassageText, ...]:
        """As `Archive.unembedded`."""
        return await self._reader.read(partial(archive.unembedded, embedder=embedder, limit=limit))

    async def vectors(
        self, embedder: str, *, after: tuple[SegmentId, int] | None = None, limit: int = 1000
    ) -> tuple[Vector, ...]:
        """As `Archive.vectors`."""
        return await self._searcher.read(
            lambda db: archive.vectors(db, self._matrices, embedder, after=after, limit=limit)
        )

    async def withdraw(
        self,
        ids: Sequence[SegmentId],
        *,
        at: float,  # noqa: ARG002 - nothing stays that could carry a time
    ) -> int:
        """As `Archive.withdraw`."""
        return await self._writer.run_after(partial(forget.withdraw, ids=ids), forget.log_emptied)

    async def facts(
        self,
        ids: Sequence[FactId] | None = None,
        *,
        superseded: bool = False,
        subjects: Collection[str] | None = None,
    ) -> tuple[Fact, ...]:
        """As `Archive.facts`."""
        return await self._reader.read(
            partial(archive.facts, ids=ids, superseded=superseded, subjects=subjects)
        )

    async def fact_candidates(self, query: FactQuery) -> FactCandidates:
        """As `Archive.fact_candidates`."""
        return await self._searcher.read(
            lambda db: find_fact_candidates(db, self._fact_matrices, query)
        )

    async def facts_revision(self) -> int:
        """As `Archive.facts_revision`."""
        return await self._reader.read(facts.facts_revision)

    async def unembedded_facts(self, embedder: str, *, limit: int) -> tuple[FactText, ...]:
        """As `Archive.unembedded_facts`."""
        return await self._reader.read(partial(unembedded_facts, embedder=embedder, limit=limit))

    async def extracted_to(self, session: SessionId) -> int:
        """As `Archive.extracted_to`."""
        return await self._reader.read(partial(facts.extracted_to, session=session))

    async def evict(self, *, max_segments: int | None, said_before: float | None) -> int:
        """As `Archive.evict`."""
        step = partial(evict, max_segments=max_segments, said_before=said_before)
        total = 0
        while moved := await self._writer.write(step):
            total += moved
        return total

    async def warm(self, ids: Sequence[SegmentId]) -> int:
        """As `Archive.warm`."""
        total = 0
        for at in range(0, len(ids), STEP):
            some = ids[at : at + STEP]
            total += await self._writer.write(partial(warm, ids=some))
        return total

    # JobQueue

    async def claim(
        self,
        *,
        now: float,
        lease_seconds: float,
        kinds: Sequence[str],
        limit: int = 1,
        day: str = "",
        day_tokens: int | None = None,
        max_attempts: int = 5,
    ) -> tuple[Lease, ...]:
        """As `JobQueue.claim`."""
        return await self._writer.write(
            partial(
                jobs.claim,
                now=now,
                lease_seconds=lease_seconds,
                kinds=kinds,
                limit=limit,
                day=day,
                day_tokens=day_tokens,
                max_attempts=max_attempts,
            )
        )

    async def heartbeat(self, lease: Lease, *, expires_at: float) -> bool:
        """As `JobQueue.heartbeat`."""
        return await self._writer.write(partial(jobs.keep, lease=lease, expires_at=expires_at))

    async def complete(self, lease: Lease, batch: Batch) -> bool:
        """As `JobQueue.complete`."""

        def finish(db: Database) -> bool:
            if not jobs.finish(db, lease):
                return False
            archive.write_batch(db, batch)
            return True

        return await self._writer.write(finish)

    async def fail(self, lease: Lease, *, reason: str, retry_at: float | None) -> bool:
        """As `JobQueue.fail`."""
        return await self._writer.write(
            partial(jobs.give_back, lease=lease, reason=reason, retry_at=retry_at)
        )

    async def jobs(self, *, limit: int = 100) -> tuple[JobRecord, ...]:
        """As `JobQueue.jobs`."""
        return await self._reader.read(partial(jobs.list_jobs, limit=limit))

    async def queue(self, *, day: str = "") -> QueueState:
        """As `JobQueue.queue`."""
        return await self._reader.read(partial(jobs.queue_state, day=day))

    async def add_model_use(self, use: ModelUse, *, day: str) -> None:
        """As `JobQueue.add_model_use`."""
        await self._writer.write(partial(jobs.add_model_use, use=use, day=day))

    async def model_use(self, *, since: str = "") -> tuple[ModelUse, ...]:
        """As `JobQueue.model_use`."""
        return await self._reader.read(partial(jobs.model_use, since=since))

    async def pause(self, kind: str = "*") -> None:
        """As `JobQueue.pause`."""
        await self._writer.write(partial(jobs.pause, kind=kind))

    async def resume(self, kind: str = "*") -> None:
        """As `JobQueue.resume`."""
        await self._writer.write(partial(jobs.resume, kind=kind))

    async def revive(self, ids: Sequence[str] | None = None, *, at: float) -> int:
        """As `JobQueue.revive`."""
        return await self._writer.write(partial(jobs.revive, ids=ids, at=at))

    # Ledger

    async def turns(self, session: SessionId) -> tuple[int, ...]:
        """As `Ledger.turns`."""
        return await self._reader.read(partial(ledger.turn_numbers, session=session))

    async def turn(self, session: SessionId, number: int) -> RebuiltTurn | None:
        """As `Ledger.turn`."""
        return await self._reader.read(partial(ledger.rebuilt_turn, session=session, number=number))

    async def pieces(self, hashes: Sequence[PieceHash]) -> Mapping[PieceHash, LedgerPiece]:
        """As `Ledger.pieces`."""
        return await self._reader.read(partial(ledger.read_pieces, hashes=hashes))

    async def compactions(self, session: SessionId) -> tuple[CompactionRecord, ...]:
        """As `Ledger.compactions`."""
        return await self._reader.read(partial(read_compactions, session=session))

    async def expire(self, *, before: float) -> int:
        """As `Ledger.expire`."""
        return await self._writer.write(partial(ledger.expire, before=before))

    # Upkeep

    async def forget(self, order: ForgetOrder) -> Forgotten:
        """As `Upkeep.forget`."""
        return await self._writer.run_after(partial(forget.forget, order=order), forget.told_of_log)

    async def held(
        self, room: Room, *, after: str | None = None, limit: int = 100
    ) -> tuple[StoredBody, ...]:
        """As `Upkeep.held`."""
        return await self._reader.read(partial(forget.held, room=room, after=after, limit=limit))

    async def rewrite(self, order: RewriteOrder) -> Rewritten:
        """As `Upkeep.rewrite`."""
        return await self._writer.run_after(
            partial(forget.rewrite, order=order), forget.rewrite_with_log
        )

    async def scrub(self) -> ScrubResult:
        """As `Upkeep.scrub`."""
        return await self._writer.run(forget.scrub)

    async def check(self) -> CheckResult:
        """As `Upkeep.check`: in one snapshot of its own, while others read and write."""
        return await self._reader.read_apart(check.check)

    async def stats(self) -> Stats:
        """As `Upkeep.stats`."""
        return await self._reader.read(
            partial(
                check.stats,
                space=self.space,
                path=self._file.path,
                encrypted=self._file.key is not None,
            )
        )

    async def close(self) -> None:
        """As `Upkeep.close`."""
        for lane in self._lanes:
            await lane.close()
