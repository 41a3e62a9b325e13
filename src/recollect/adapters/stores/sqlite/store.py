"""`SQLiteStore`: the memory of one space in one SQLite file.

The store has four threads: for writes, for searches, for pings, and for other reads.
`recollect.core.ports` documents the operations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeAlias, TypeVar

from recollect.adapters.stores.sqlite import archive, check, ledger
from recollect.adapters.stores.sqlite import candidates as search
from recollect.adapters.stores.sqlite import facts as fact_table
from recollect.adapters.stores.sqlite import forget as removal
from recollect.adapters.stores.sqlite import jobs as job_queue
from recollect.adapters.stores.sqlite.connection import EncryptionKey, SpaceFile, space_file
from recollect.adapters.stores.sqlite.database import Database, Lane
from recollect.adapters.stores.sqlite.sessions import read_session
from recollect.core.values.batch import Batch, Lease, StoredSession
from recollect.core.values.history import SessionId, SpaceId
from recollect.core.values.recall import FactCandidates, FactQuery
from recollect.core.values.upkeep import CheckResult, ScrubResult, Stats

P = ParamSpec("P")
T = TypeVar("T")
Operation: TypeAlias = Callable[Concatenate["SQLiteStore", P], Coroutine[Any, Any, T]]
_MARK: Final = "SELECT value FROM meta WHERE key = 'secret mark'"
_FIRST_MARK: Final = "INSERT OR IGNORE INTO meta (key, value) VALUES ('secret mark', ?)"


def _reads(work: Callable[Concatenate[Database, P], T]) -> Operation[P, T]:
    async def call(store: SQLiteStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await store._reader.read(lambda db: work(db, *args, **kwargs))

    return call


def _searches(work: Callable[Concatenate[Database, search.Caches, P], T]) -> Operation[P, T]:
    async def call(store: SQLiteStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await store._searcher.read(lambda db: work(db, store._caches, *args, **kwargs))

    return call


def _writes(
    work: Callable[Concatenate[Database, P], T], then: Callable[[Database, T], T] | None = None
) -> Operation[P, T]:
    async def call(store: SQLiteStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        def step(db: Database) -> T:
            return work(db, *args, **kwargs)

        if then is None:
            return await store._writer.write(step)
        return await store._writer.run_after(step, then)

    return call


class SQLiteStore:
    """A space in its own file, which several processes may open at the same time."""

    def __init__(self, file: SpaceFile) -> None:
        self.space: SpaceId = file.space
        self._file = file
        self._writer = Lane(file, name="write")
        self._reader = Lane(file, name="read")
        self._searcher = Lane(file, name="search")
        self._pinger = Lane(file, name="ping")
        self._lanes = self._searcher, self._reader, self._pinger, self._writer
        self._caches = search.Caches()

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        space: str,
        key: EncryptionKey | None = None,
        create: bool = True,
        busy_seconds: float = 5.0,
    ) -> Self:
        """Open the file of a space. With `create`, create a missing file."""
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

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def path(self) -> Path:
        return self._file.path

    async def secret_mark(self, first: bytes | None = None) -> bytes | None:
        """Return the mark of the secret that keys the file's ids. If it has none, store `first`."""
        if first is not None:
            await self._writer.write(lambda db: db.run(_FIRST_MARK, (first,)))
        mark: bytes | None = await self._searcher.read(lambda db: db.value(_MARK))
        return mark

    write: Final = _writes(archive.write_batch)

    async def session(self, session: SessionId) -> StoredSession | None:
        # Pings have no session name, and must never wait in a queue.
        lane = self._reader if session else self._pinger
        return await lane.read(lambda db: read_session(db, session))

    sessions: Final = _reads(archive.list_sessions)
    segments: Final = _reads(archive.read_segments)
    known: Final = _reads(archive.find_known)
    tombstoned: Final = _reads(archive.find_tombstones)
    page: Final = _reads(archive.read_page)
    passages: Final = _reads(archive.read_passages)
    replace_passages: Final = _writes(archive.replace_passages)
    unembedded: Final = _reads(archive.find_unembedded)
    withdraw: Final = _writes(removal.withdraw, removal.finish_withdrawal)
    facts: Final = _reads(archive.read_facts)
    facts_revision: Final = _reads(fact_table.read_revision)
    unembedded_facts: Final = _reads(fact_table.find_unembedded_facts)
    extracted_to: Final = _reads(fact_table.read_position)

    candidates: Final = _searches(search.find_candidates)
    around: Final = _searches(search.find_surroundings)
    vectors: Final = _searches(search.read_vectors)

    async def fact_candidates(self, query: FactQuery) -> FactCandidates:
        matrices = self._caches.facts
        return await self._searcher.read(
            lambda db: fact_table.find_fact_candidates(db, matrices, query)
        )

    claim: Final = _writes(job_queue.claim)
    heartbeat: Final = _writes(job_queue.heartbeat)
    fail: Final = _writes(job_queue.fail)
    jobs: Final = _reads(job_queue.list_jobs)
    queue: Final = _reads(job_queue.read_queue)
    add_model_use: Final = _writes(job_queue.add_model_use)
    model_use: Final = _reads(job_queue.read_model_use)
    pause: Final = _writes(job_queue.pause)
    resume: Final = _writes(job_queue.resume)
    revive: Final = _writes(job_queue.revive)

    async def complete(self, lease: Lease, batch: Batch) -> bool:
        def finish(db: Database) -> bool:
            if not job_queue.finish(db, lease):
                return False
            archive.write_batch(db, batch)
            return True

        return await self._writer.write(finish)

    turns: Final = _reads(ledger.list_turns)
    turn: Final = _reads(ledger.rebuild_turn)
    records: Final = _reads(ledger.list_records)
    quoting: Final = _reads(ledger.find_rows_about)
    pieces: Final = _reads(ledger.read_pieces)
    compactions: Final = _reads(ledger.read_compactions)
    expire: Final = _writes(ledger.expire)

    forget: Final = _writes(removal.forget, removal.finish_change)
    bodies: Final = _reads(removal.read_bodies)
    rewrite: Final = _writes(removal.rewrite, removal.finish_change)

    async def scrub(self) -> ScrubResult:
        return await self._writer.run(removal.scrub)

    async def check(self) -> CheckResult:
        return await self._reader.read_separately(check.check)

    async def stats(self) -> Stats:
        file = self._file
        return await self._reader.read(
            lambda db: check.read_stats(
                db, space=self.space, path=file.path, encrypted=file.key is not None
            )
        )

    async def close(self) -> None:
        for lane in self._lanes:
            await lane.close()
