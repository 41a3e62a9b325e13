"""Loads sessions, and writes each turn while the model answers. A turn waits for a write only if
the turn leaves out a message. The writes of one session run one after the other."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import Context
from dataclasses import replace
from functools import partial
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar, cast

from recollect.core.boundary import Boundary, Failure, attempted
from recollect.core.engine.archive import CLOSE_SECONDS, DurableArchive, Persisted
from recollect.core.engine.guarded_store import GuardedStore, NoAnswer
from recollect.core.engine.ledger import (
    ArchiveState,
    FinishedTurn,
    GivenMessage,
    IngestCounts,
    LastRecord,
    RecordedTurn,
    ReleasedTo,
    count_equal_rows,
    drop_repeated,
    newest_session,
    note_place,
    note_stored,
    record_turn,
    session_write,
)
from recollect.core.formats.stored_records import join_state
from recollect.core.ports import Embedder
from recollect.core.rules.identity import segment_id
from recollect.core.rules.message_redaction import TextMask
from recollect.core.turn.ingest import (
    LONG_BYTES,
    IngestResult,
    earlier_calls,
    ingest,
    write_ranges,
)
from recollect.core.upkeep.chores import embed_now
from recollect.core.values.batch import Batch, LedgerPiece, NewJob, StoredSession, extract_job
from recollect.core.values.compaction import CompactionRecord
from recollect.core.values.history import Entry, SessionState, requests_of
from recollect.core.values.message import EntryKey
from recollect.core.values.reason import Cause, Reason
from recollect.core.values.segment import SegmentId, Source
from recollect.errors import FormatError, StoreUnavailable
from recollect.system.config import Settings

T = TypeVar("T")
P = ParamSpec("P")
OffLoop: TypeAlias = Callable[..., Awaitable[Any]]
"""Runs a function in a thread."""

LOG: Final = logging.getLogger("recollect")
REQUEST_FIRST_SECONDS = 0.03
INLINE_BYTES = 8_000
"""Longer input is decoded and masked in a thread."""
DAY_SECONDS = 86_400.0


class SessionKeeper:
    """Loads and stores the sessions of one space."""

    def __init__(
        self,
        archive: DurableArchive,
        settings: Settings,
        *,
        embedders: Sequence[Embedder] = (),
        off_the_loop: bool = False,
        reads_facts: bool = False,
    ) -> None:
        self.archive = archive
        self.store = GuardedStore(archive)
        self._reads_facts = reads_facts
        self._settings = settings
        self._embedders = tuple(embedders)
        self._late_embedders: set[str] = set()
        self._off_the_loop = off_the_loop
        self._tasks: set[asyncio.Task[Any]] = set()
        self.states: weakref.WeakSet[ArchiveState] = weakref.WeakSet()
        """States of the sessions that have messages to store."""
        self._chores_at = -DAY_SECONDS
        self._closed = False
        self.stored_batches: int = 0

    def note_trouble(self, boundary: Boundary) -> None:
        """Report problems of the store and the spool, unless the report contains them."""
        known = {reason.numbers.get("error") for line in boundary.lines for reason in line.reasons}
        if trouble := self.archive.trouble(reported=known):
            boundary.note("ingest", "late", Reason(Cause.ARCHIVE_TROUBLE, trouble=trouble))

    async def load(
        self, session: str, state: SessionState, keeping: ArchiveState, boundary: Boundary
    ) -> SessionState:
        """Return the session's newest state, which this process or another one wrote."""
        boundary.add(keeping.trouble)
        keeping.trouble.clear()
        self.note_trouble(boundary)
        if keeping.replaced != self.archive.replaced:
            if keeping.copy == "current":
                boundary.note("ingest", "failed", Reason(Cause.STORE_REPLACED))
            keeping.write_from_start(self.archive.replaced)
        if keeping.copy == "current":
            return state
        was_outdated = keeping.copy == "outdated"
        found = await self._known(session, keeping, boundary)
        if isinstance(found, Failure):
            boundary.note("load", "failed", Reason(Cause.SESSION_NOT_LOADED, error=found.said))
            return state
        if found is None:
            return state
        try:
            stored = join_state(found.state, found.path, found.ids)
        except FormatError as error:
            boundary.note("load", "failed", Reason(Cause.ERROR, error=str(error)))
            newest = max(state.turn, found.turn)
            return replace(state, turn=newest, requests=max(state.requests, found.turn))
        requests = requests_of(stored)
        loaded = Reason(Cause.SESSION_LOADED, messages=len(found.path), turn=requests)
        boundary.note("load", "done", loaded)
        keeping.path, keeping.stored = found.path, found.newest
        keeping.may_be_broken = True
        # If a session continued while the store was down, use the edits of that time.
        ours = (state.edits or state.turn > found.turn) and not was_outdated
        if keeping.copy == "outdated":
            keeping.copy = "missing"
        return replace(
            state if ours else stored,
            turn=max(state.turn, found.turn),
            requests=max(state.requests, requests),
        )

    async def _known(
        self, session: str, keeping: ArchiveState, boundary: Boundary
    ) -> StoredSession | Failure | None:
        begun, seconds = time.monotonic(), self.archive.open_seconds
        # Read the spool first. A batch that is moved to the store meanwhile is read twice, not
        # missed.
        waiting = await self.archive.waiting_for(session, seconds=seconds / 2)
        left = seconds - (time.monotonic() - begun)
        found: StoredSession | Failure | None
        try:
            found = await GuardedStore(self.archive, seconds=left).session(session)
        except NoAnswer as error:
            found = error.failure
        boundary.allow(time.monotonic() - begun)
        if isinstance(waiting, Failure):  # read the spool again in the next turn
            boundary.note("load", "late", Reason(Cause.SPOOL_NOT_READ, error=waiting.said))
            return found
        stored = newest_session(None if isinstance(found, Failure) else found, waiting)
        if stored is None and isinstance(found, Failure):
            return found
        keeping.copy = "current"
        if not keeping.tasks:  # another process stored the session
            keeping.where = self.archive.where
        return found if stored is None else stored

    async def make_durable(
        self, session: str, entries: Sequence[Entry], keeping: ArchiveState, *, now: float
    ) -> Persisted:
        """Write these messages and wait. The write completes even if the caller stops waiting."""
        self._give(session, entries, keeping, now=now, source="request")
        if not self.not_durable(entries, keeping):
            return Persisted(where="store")
        await self.archive.retry_held()
        writing = self._beside(
            keeping, self._write, session, entries, keeping, now=now, source="request"
        )
        return await _result_of(writing) or Persisted(where="store")

    def not_durable(self, entries: Sequence[Entry], keeping: ArchiveState) -> frozenset[EntryKey]:
        """Return the messages that may not be left out yet, because they are not stored."""
        durable = keeping.durable | keeping.stored
        return frozenset(entry.key for entry in entries if entry.key not in durable)

    def keep_turn(self, turn: FinishedTurn, keeping: ArchiveState) -> None:
        """Start to write a turn: its new messages, the session's state, the ledger."""
        report = turn.report
        self._give(report.session, report.entries, keeping, now=turn.now, source="request")
        keeping.where = "store"
        self._beside(keeping, self._keep_turn, turn, keeping)

    def keep_reply(
        self,
        session: str,
        entries: Sequence[Entry],
        keeping: ArchiveState,
        *,
        now: float,
        pieces: tuple[LedgerPiece, ...] = (),
    ) -> None:
        """Start to write a reply, and the marks by which other processes find its session."""
        batch = Batch(at=now, pieces=pieces)
        self._give(session, entries, keeping, now=now, source="reply")
        self._beside(
            keeping, self._write, session, entries, keeping, now=now, source="reply", batch=batch
        )

    async def keep_state(
        self,
        session: str,
        state: SessionState,
        keeping: ArchiveState,
        *,
        now: float,
        compactions: tuple[CompactionRecord, ...] = (),
    ) -> Persisted:
        """Write a session's state outside of a turn, and wait until it is stored."""
        writing = self._beside(
            keeping, self._write_state, session, state, keeping, now, compactions
        )
        unwritten = Persisted(where="nowhere", said="it could not be written")
        return await _result_of(writing) or unwritten

    async def _write_state(
        self,
        session: str,
        state: SessionState,
        keeping: ArchiveState,
        now: float,
        compactions: tuple[CompactionRecord, ...],
    ) -> Persisted:
        batch = Batch(
            at=now,
            session=session_write(session, state, keeping, self._settings.redaction),
            compactions=compactions,
            jobs=self._extraction(session, now, left=True) if compactions else (),
        )
        return self._learn_place(await self.archive.write(batch), state.path, keeping)

    async def wait(self, keeping: ArchiveState, seconds: float) -> bool:
        """Wait at most `seconds` for running writes. Return whether all writes are done."""
        running = [task for task in keeping.tasks if not task.done()]
        if running:
            await asyncio.wait(running, timeout=seconds)
        return all(task.done() for task in running)

    def abandon(self, keeping: ArchiveState) -> None:
        """Cancel the writes of a session, whose messages the caller will send again."""
        keeping.abandoned = True
        keeping.given.clear()
        for task in keeping.tasks:
            task.cancel()

    async def wait_for_all(self, seconds: float) -> bool:
        """Wait for the writes of all sessions, also of ended ones. Return whether all have
        ended."""
        loop = asyncio.get_running_loop()
        running = {task for task in self._tasks if task.get_loop() is loop}
        return not running or not (await asyncio.wait(running, timeout=seconds))[1]

    async def write_early(
        self, given: Sequence[GivenMessage], state: ArchiveState, off_loop: OffLoop
    ) -> Persisted:
        """Write messages of one request or reply before the messages around them."""
        return await self._write(
            given[0].session,
            [message.entry for message in given],
            state,
            now=given[0].now,
            source=given[0].source,
            history=given[0].history,
            off_loop=off_loop,
        )

    async def close(self) -> int:
        """Close the store and end unfinished writes. Return the number of held batches."""
        held = await self.archive.close()
        self._closed = True
        for state in self.states:
            state.abandoned = True
        for task in tuple(self._tasks):
            task.cancel()
        await self.wait_for_all(CLOSE_SECONDS)
        return held

    async def wait_until_stored(
        self,
        session: str,
        state: SessionState,
        keeping: ArchiveState,
        *,
        seconds: float,
        now: float,
        learned: bool,
    ) -> ReleasedTo:
        """Wait until a session is stored, with usage and window learned from its replies."""
        keeping.awaited.set()
        if not await self.wait(keeping, seconds):
            return "nowhere"
        if keeping.where == "store" and learned and state.path:
            await self.keep_state(session, replace(state, turn=state.turn + 1), keeping, now=now)
        return "stale" if keeping.overtaken and keeping.where == "store" else keeping.where

    async def ingest(
        self, session: str, entries: Sequence[Entry], *, said_at: float, now: float
    ) -> IngestCounts:
        """Write messages outside of a turn and wait. Skip stored and forgotten messages. Raise
        StoreUnavailable if messages cannot be stored."""
        keeping = ArchiveState()
        counts = IngestCounts(read=len(entries))
        for part in write_ranges([len(entry.raw) for entry in entries]):
            chunk = entries[part]
            made = await self._ingested(
                session, chunk, entries, keeping, now=now, source="import", said_at=said_at
            )
            batch = await self._with_new(Batch(at=now), made, session)
            kept = await self.archive.write(batch)
            if kept.where != "store" or kept.written is None:
                raise StoreUnavailable(f"the messages are not in the store: {kept.said}")
            counts = counts.plus(kept.written, made)
        return counts

    def _beside(
        self,
        keeping: ArchiveState,
        write: Callable[P, Awaitable[Persisted]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> asyncio.Task[Persisted | Failure]:
        """Run a write after the session's earlier writes, in a task that completes even if its
        caller stops waiting."""
        before = [task for task in keeping.tasks if not task.done()]

        async def run() -> Persisted | Failure:
            if before:
                await asyncio.wait(before)
            result = await attempted(write(*args, **kwargs))
            note_place(keeping, result)
            return result

        async def run_to_the_end() -> Persisted | Failure:
            try:
                return await run()
            except asyncio.CancelledError:
                if not keeping.abandoned:
                    # The closing event loop cancelled this task but still waits for it. Write
                    # again: writing a batch twice changes nothing.
                    await run()
                raise

        task = self.start(run_to_the_end())
        keeping.tasks = [*before, task]
        return task

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a write, for which closing waits."""
        task = asyncio.create_task(work, context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _give(
        self,
        session: str,
        entries: Sequence[Entry],
        keeping: ArchiveState,
        *,
        now: float,
        source: Source,
    ) -> None:
        keeping.give(session, entries, now=now, source=source)
        self.states.add(keeping)
        if self._closed and keeping.given:
            LOG.warning("a turn ended after its memory was closed: its messages are not stored")

    async def _keep_turn(self, turn: FinishedTurn, keeping: ArchiveState) -> Persisted:
        report, now = turn.report, turn.now
        if sum(len(given.entry.raw) for given in keeping.given.values()) > LONG_BYTES:
            # Messages first: masking the record takes as long again.
            await self._write(report.session, report.entries, keeping, now=now, source="request")
        elif self._off_the_loop and not self._closed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REQUEST_FIRST_SECONDS):
                    await keeping.awaited.wait()
        recorded = await self._record(turn, keeping)
        chores = self._chores(now)
        left = any(edit.stage == "trim" for edit in report.new_edits)
        batch = Batch(
            at=now,
            session=session_write(report.session, turn.state, keeping, self._settings.redaction),
            pieces=() if recorded is None else recorded.pieces,
            turns=() if recorded is None else (recorded.record,),
            jobs=(*chores, *(self._extraction(report.session, now, left=True) if left else ())),
        )
        kept = await self._write(
            report.session, report.entries, keeping, now=now, source="request", batch=batch
        )
        if kept.where == "nowhere":
            return kept
        if chores:
            self._chores_at = now
        self._learn_place(kept, turn.state.path, keeping)
        if keeping.path:
            keeping.last_record = LastRecord() if recorded is None else recorded.last
        return kept

    def _learn_place(
        self, kept: Persisted, path: tuple[EntryKey, ...], keeping: ArchiveState
    ) -> Persisted:
        if kept.where == "nowhere":
            return kept
        written = kept.written
        keeping.overtaken = written is not None and written.session_stale
        if written is not None and (written.session_stale or written.session_cleaned):
            keeping.load_again()
        elif kept.where == "spool":
            # The batch is in the spool. If another process writes a turn first, this one becomes
            # stale, so later writes must not depend on it.
            keeping.path, keeping.last_record = (), LastRecord()
        else:
            keeping.path = path
        return kept

    async def _record(self, turn: FinishedTurn, keeping: ArchiveState) -> RecordedTurn | None:
        rows = turn.report.view.rows
        if not (self._settings.ledger.enabled and rows):
            return None
        refusals, now = self.archive.set_aside, turn.now
        if keeping.refusals != refusals or now - keeping.recorded_at > DAY_SECONDS:
            keeping.refusals, keeping.last_record = refusals, LastRecord()
            keeping.recorded_at = now
        last = keeping.last_record
        new = rows[count_equal_rows(rows, last) :]
        usage, keeping.usage = keeping.usage, None
        return await _call_off_loop(
            sum(len(row.raw) for row in new),
            asyncio.to_thread,
            record_turn,
            turn,
            last,
            TextMask(self._settings.redaction, keeping.secrets, judged=keeping.judged),
            forgotten=frozenset(keeping.forgotten),
            usage=usage,
        )

    async def _write(
        self,
        session: str,
        entries: Sequence[Entry],
        keeping: ArchiveState,
        *,
        now: float,
        source: Source,
        batch: Batch | None = None,
        history: Sequence[Entry] | None = None,
        off_loop: OffLoop = asyncio.to_thread,
    ) -> Persisted:
        fresh = [entry for entry in entries if entry.key not in keeping.durable]
        if keeping.waiting:
            fresh = [entry for entry in fresh if entry.key not in keeping.waiting]
        unknown = await self._unknown(session, [e for e in fresh if e.key not in keeping.stored])
        keys = {entry.key for entry in fresh}.difference(entry.key for entry in unknown)
        keeping.note_durable(keys)
        known = [entry for entry in fresh if entry.key in keys]
        chunks = [unknown[part] for part in write_ranges([len(one.raw) for one in unknown])]
        stored: set[SegmentId] = set()
        kept = Persisted(where=self.archive.where, said="nothing new")
        for number, planned in enumerate(chunks, start=1):
            whole = (batch or Batch(at=now)) if number == len(chunks) else Batch(at=now)
            # Closing stores some messages early.
            chunk = [entry for entry in planned if entry.key not in keeping.durable]
            made = await self._ingested(
                session,
                chunk,
                history or entries,
                keeping,
                now=now,
                source=source,
                known=known,
                off_loop=off_loop,
            )
            known = []
            if chunk:
                whole = await self._with_new(whole, made, session)
            if whole.empty:
                keeping.note_durable({entry.key for entry in chunk})
                continue
            learn = partial(note_stored, keeping, session, chunk)
            kept = await self.archive.write(whole, learn)
            if kept.waits:
                keeping.waiting.update(entry.key for entry in chunk)
            elif kept.where == "nowhere":
                return kept
            else:
                learn(kept)
                self.stored_batches += 1
                stored.update(() if kept.written is None else kept.written.stored)
        if keeping.may_be_broken and unknown:
            keeping.may_be_broken = False
            replies = [entry.key for entry in unknown if entry.role == "assistant"]
            said = stored.intersection(segment_id(session, key) for key in replies)
            if said:
                await drop_repeated(session, entries, said, keeping, self.store)
        if source == "reply" and entries[-1].message.ending != "complete":
            keeping.may_be_broken = True
        return kept

    async def _with_new(self, batch: Batch, made: IngestResult, session: str) -> Batch:
        vectors = await embed_now(made.segments, self._embedders, self._late_embedders)
        embedded = {some.embedder for some in vectors}
        waiting = [job for job in made.jobs if job.key not in embedded]
        jobs = (*batch.jobs, *waiting, *self._extraction(session, batch.at, left=False))
        return replace(batch, segments=made.segments, vectors=vectors, jobs=jobs)

    async def _ingested(
        self,
        session: str,
        chunk: Sequence[Entry],
        entries: Sequence[Entry],
        keeping: ArchiveState,
        *,
        now: float,
        source: Source,
        said_at: float | None = None,
        known: Sequence[Entry] = (),
        off_loop: OffLoop = asyncio.to_thread,
    ) -> IngestResult:
        mask = TextMask(self._settings.redaction, keeping.secrets, judged=keeping.judged)

        def work() -> IngestResult:
            # Collect secrets of messages by another process, to mask them in later messages.
            for entry in known if self._settings.redaction.enabled else ():
                mask.message(entry.message)
            names, fetched = earlier_calls(chunk, entries)
            return ingest(
                chunk,
                session=session,
                source=source,
                said_at=now if said_at is None else said_at,
                redaction=self._settings.redaction,
                now=now,
                embedders=[embedder.name for embedder in self._embedders],
                indexed="sessions" in self._settings.index.sources,
                tool_names=names,
                fetched_ids=fetched,
                secrets=keeping.secrets,
                judged=keeping.judged,
            )

        alone = {chunk[0].key} if len(chunk) == 1 else set()
        keeping.being_masked |= alone
        try:
            size_bytes = sum(len(entry.raw) for entry in (*known, *chunk))
            return await _call_off_loop(size_bytes, off_loop, work)
        finally:
            keeping.being_masked -= alone

    async def _unknown(self, session: str, entries: list[Entry]) -> list[Entry]:
        if sum(len(entry.raw) for entry in entries) <= INLINE_BYTES:
            return entries
        ids = {segment_id(session, entry.key): entry for entry in entries}
        try:
            known = await self.store.known(list(ids))
        except NoAnswer:
            return entries
        return [entry for id_, entry in ids.items() if id_ not in known]

    def _extraction(self, session: str, now: float, *, left: bool) -> tuple[NewJob, ...]:
        if not self._reads_facts:
            return ()
        run_at = now if left else now + self._settings.facts.idle_seconds
        return (extract_job(session, run_at=run_at, left=left),)

    def _chores(self, now: float) -> tuple[NewJob, ...]:
        due = now - self._chores_at >= DAY_SECONDS
        if not due or self._settings.ledger.retention_days is None:
            return ()
        return (NewJob(kind="expire", key="daily", run_at=now + DAY_SECONDS),)


async def _result_of(writing: asyncio.Task[Persisted | Failure]) -> Persisted | None:
    """Wait for a write. Return None if it failed."""
    await asyncio.wait({writing})
    result = None if writing.cancelled() else writing.result()
    return result if isinstance(result, Persisted) else None


async def _call_off_loop(
    size_bytes: int, off_loop: OffLoop, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Call a function, in a thread if its input is long."""
    if size_bytes <= INLINE_BYTES:
        return function(*args, **kwargs)
    return cast(T, await off_loop(partial(function, *args, **kwargs)))
