"""Writes each turn while the model answers. A turn waits for a write only if
the turn leaves out a message. The writes of one session run one after the other."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import Context
from dataclasses import replace
from functools import partial
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar, cast

from recollect.core.boundary import Failure, attempted
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
    note_location,
    note_stored,
    record_turn,
    session_write,
)
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
from recollect.core.values.batch import Batch, LedgerPiece, NewJob, extract_job
from recollect.core.values.compaction import CompactionRecord
from recollect.core.values.history import Entry, SessionState
from recollect.core.values.message import EntryKey
from recollect.core.values.segment import SegmentId, Source
from recollect.errors import StoreUnavailable
from recollect.system.config import Settings

T = TypeVar("T")
P = ParamSpec("P")
OffLoop: TypeAlias = Callable[..., Awaitable[Any]]
"""Runs a function in a thread."""

LOG: Final = logging.getLogger("recollect")
REQUEST_FIRST_SECONDS = 0.03
"""A server sends the request on before it stores the turn, but delays storing no longer than
this."""
INLINE_BYTES = 8_000
"""Longer input is decoded and masked in a thread."""
DAY_SECONDS = 86_400.0
"""Seconds per day, the interval of chores."""


class SessionKeeper:
    """Stores the sessions of one space."""

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

    async def make_durable(
        self, session: str, entries: Sequence[Entry], archive_state: ArchiveState, *, now: float
    ) -> Persisted:
        """Write these messages and wait. The write completes even if the caller stops waiting."""
        self._note_unstored(session, entries, archive_state, now=now, source="request")
        if not self.find_not_durable(entries, archive_state):
            return Persisted(location="store")
        await self.archive.retry_held()
        writing = self._run_after_earlier_writes(
            archive_state, self._write, session, entries, archive_state, now=now, source="request"
        )
        return await _result_of(writing) or Persisted(location="store")

    def find_not_durable(
        self, entries: Sequence[Entry], archive_state: ArchiveState
    ) -> frozenset[EntryKey]:
        """Return the messages that may not be left out yet, because they are not stored."""
        durable = archive_state.durable_keys | archive_state.stored_keys
        return frozenset(entry.key for entry in entries if entry.key not in durable)

    def store_turn(self, turn: FinishedTurn, archive_state: ArchiveState) -> None:
        """Start to write a turn: its new messages, the session's state, the ledger."""
        report = turn.report
        self._note_unstored(
            report.session, report.entries, archive_state, now=turn.now, source="request"
        )
        archive_state.location = "store"
        self._run_after_earlier_writes(archive_state, self._write_turn, turn, archive_state)

    def store_reply(
        self,
        session: str,
        entries: Sequence[Entry],
        archive_state: ArchiveState,
        *,
        now: float,
        pieces: tuple[LedgerPiece, ...] = (),
    ) -> None:
        """Start to write a reply, and the marks by which other processes find its session."""
        batch = Batch(at=now, pieces=pieces)
        self._note_unstored(session, entries, archive_state, now=now, source="reply")
        self._run_after_earlier_writes(
            archive_state,
            self._write,
            session,
            entries,
            archive_state,
            now=now,
            source="reply",
            batch=batch,
        )

    async def store_state(
        self,
        session: str,
        state: SessionState,
        archive_state: ArchiveState,
        *,
        now: float,
        compactions: tuple[CompactionRecord, ...] = (),
    ) -> Persisted:
        """Write a session's state outside of a turn, and wait until it is stored."""
        writing = self._run_after_earlier_writes(
            archive_state, self._write_state, session, state, archive_state, now, compactions
        )
        not_persisted = Persisted(location="nowhere", problem="it could not be written")
        return await _result_of(writing) or not_persisted

    async def _write_state(
        self,
        session: str,
        state: SessionState,
        archive_state: ArchiveState,
        now: float,
        compactions: tuple[CompactionRecord, ...],
    ) -> Persisted:
        batch = Batch(
            at=now,
            session=session_write(session, state, archive_state, self._settings.redaction),
            compactions=compactions,
            jobs=self._extraction(session, now, left=True) if compactions else (),
        )
        return self._learn_location(await self.archive.write(batch), state.path, archive_state)

    async def wait(self, archive_state: ArchiveState, seconds: float) -> bool:
        """Wait at most `seconds` for running writes. Return whether all writes are done."""
        running = [task for task in archive_state.tasks if not task.done()]
        if running:
            await asyncio.wait(running, timeout=seconds)
        return all(task.done() for task in running)

    def abandon(self, archive_state: ArchiveState) -> None:
        """Cancel the writes of a session, whose messages the caller will send again."""
        archive_state.abandoned = True
        archive_state.unstored_messages.clear()
        for task in archive_state.tasks:
            task.cancel()

    async def wait_for_all(self, seconds: float) -> bool:
        """Wait for the writes of all sessions, also of ended ones. Return whether all have
        ended."""
        loop = asyncio.get_running_loop()
        running = {task for task in self._tasks if task.get_loop() is loop}
        return not running or not (await asyncio.wait(running, timeout=seconds))[1]

    async def write_early(
        self, messages: Sequence[GivenMessage], state: ArchiveState, off_loop: OffLoop
    ) -> Persisted:
        """Write messages of one request or reply before the messages around them."""
        return await self._write(
            messages[0].session,
            [message.entry for message in messages],
            state,
            now=messages[0].now,
            source=messages[0].source,
            history=messages[0].history,
            off_loop=off_loop,
        )

    async def close(self) -> int:
        """Close the store and end unfinished writes. Return the number of held batches."""
        held_count = await self.archive.close()
        self._closed = True
        for state in self.states:
            state.abandoned = True
        for task in tuple(self._tasks):
            task.cancel()
        await self.wait_for_all(CLOSE_SECONDS)
        return held_count

    async def wait_until_stored(
        self,
        session: str,
        state: SessionState,
        archive_state: ArchiveState,
        *,
        seconds: float,
        now: float,
        learned: bool,
    ) -> ReleasedTo:
        """Wait until a session is stored, with usage and window learned from its replies."""
        archive_state.awaited.set()
        if not await self.wait(archive_state, seconds):
            return "nowhere"
        if archive_state.location == "store" and learned and state.path:
            await self.store_state(
                session, replace(state, turn=state.turn + 1), archive_state, now=now
            )
        return (
            "stale"
            if archive_state.is_overtaken and archive_state.location == "store"
            else archive_state.location
        )

    async def ingest(
        self, session: str, entries: Sequence[Entry], *, said_at: float, now: float
    ) -> IngestCounts:
        """Write messages outside of a turn and wait. Skip stored and forgotten messages. Raise
        StoreUnavailable if messages cannot be stored."""
        archive_state = ArchiveState()
        counts = IngestCounts(read=len(entries))
        for part in write_ranges([len(entry.raw) for entry in entries]):
            chunk = entries[part]
            ingest_result = await self._ingest_chunk(
                session, chunk, entries, archive_state, now=now, source="import", said_at=said_at
            )
            batch = await self._add_segments(Batch(at=now), ingest_result, session)
            outcome = await self.archive.write(batch)
            if outcome.location != "store" or outcome.write_result is None:
                raise StoreUnavailable(f"the messages are not in the store: {outcome.problem}")
            counts = counts.plus(outcome.write_result, ingest_result)
        return counts

    def _run_after_earlier_writes(
        self,
        archive_state: ArchiveState,
        write: Callable[P, Awaitable[Persisted]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> asyncio.Task[Persisted | Failure]:
        """Run a write after the session's earlier writes, in a task that completes even if its
        caller stops waiting."""
        earlier_tasks = [task for task in archive_state.tasks if not task.done()]

        async def run() -> Persisted | Failure:
            if earlier_tasks:
                await asyncio.wait(earlier_tasks)
            result = await attempted(write(*args, **kwargs))
            note_location(archive_state, result)
            return result

        async def run_to_the_end() -> Persisted | Failure:
            try:
                return await run()
            except asyncio.CancelledError:
                if not archive_state.abandoned:
                    # The closing event loop cancelled this task but still waits for it. Write
                    # again: writing a batch twice changes nothing.
                    await run()
                raise

        task = self.start(run_to_the_end())
        archive_state.tasks = [*earlier_tasks, task]
        return task

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a write, for which closing waits."""
        task = asyncio.create_task(work, context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _note_unstored(
        self,
        session: str,
        entries: Sequence[Entry],
        archive_state: ArchiveState,
        *,
        now: float,
        source: Source,
    ) -> None:
        archive_state.note_unstored(session, entries, now=now, source=source)
        self.states.add(archive_state)
        if self._closed and archive_state.unstored_messages:
            LOG.warning("a turn ended after its memory was closed: its messages are not stored")

    async def _write_turn(self, turn: FinishedTurn, archive_state: ArchiveState) -> Persisted:
        report, now = turn.report, turn.now
        if (
            sum(len(message.entry.raw) for message in archive_state.unstored_messages.values())
            > LONG_BYTES
        ):
            # Messages first: masking the record takes as long again.
            await self._write(
                report.session, report.entries, archive_state, now=now, source="request"
            )
        elif self._off_the_loop and not self._closed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REQUEST_FIRST_SECONDS):
                    await archive_state.awaited.wait()
        recorded_turn = await self._record_turn(turn, archive_state)
        chores = self._chores(now)
        has_trimmed = any(edit.stage == "trim" for edit in report.new_edits)
        batch = Batch(
            at=now,
            session=session_write(
                report.session, turn.state, archive_state, self._settings.redaction
            ),
            pieces=() if recorded_turn is None else recorded_turn.pieces,
            turns=() if recorded_turn is None else (recorded_turn.record,),
            jobs=(
                *chores,
                *(self._extraction(report.session, now, left=True) if has_trimmed else ()),
            ),
        )
        outcome = await self._write(
            report.session, report.entries, archive_state, now=now, source="request", batch=batch
        )
        if outcome.location == "nowhere":
            return outcome
        if chores:
            self._chores_at = now
        self._learn_location(outcome, turn.state.path, archive_state)
        if archive_state.path:
            archive_state.last_record = (
                LastRecord() if recorded_turn is None else recorded_turn.last
            )
        return outcome

    def _learn_location(
        self, outcome: Persisted, path: tuple[EntryKey, ...], archive_state: ArchiveState
    ) -> Persisted:
        if outcome.location == "nowhere":
            return outcome
        write_result = outcome.write_result
        archive_state.is_overtaken = write_result is not None and write_result.session_stale
        if write_result is not None and (
            write_result.session_stale or write_result.session_cleaned
        ):
            archive_state.load_again()
        elif outcome.location == "spool":
            # The batch is in the spool. If another process writes a turn first, this one becomes
            # stale, so later writes must not depend on it.
            archive_state.path, archive_state.last_record = (), LastRecord()
        else:
            archive_state.path = path
        return outcome

    async def _record_turn(
        self, turn: FinishedTurn, archive_state: ArchiveState
    ) -> RecordedTurn | None:
        rows = turn.report.view.rows
        if not (self._settings.ledger.enabled and rows):
            return None
        refusals, now = self.archive.set_aside, turn.now
        if archive_state.refusals != refusals or now - archive_state.recorded_at > DAY_SECONDS:
            archive_state.refusals, archive_state.last_record = refusals, LastRecord()
            archive_state.recorded_at = now
        last_record = archive_state.last_record
        new_rows = rows[count_equal_rows(rows, last_record) :]
        usage, archive_state.usage = archive_state.usage, None
        return await _call_off_loop(
            sum(len(row.raw) for row in new_rows),
            asyncio.to_thread,
            record_turn,
            turn,
            last_record,
            TextMask(
                self._settings.redaction, archive_state.secrets, judged=archive_state.judged_texts
            ),
            forgotten_ids=frozenset(archive_state.forgotten_ids),
            usage=usage,
        )

    async def _write(
        self,
        session: str,
        entries: Sequence[Entry],
        archive_state: ArchiveState,
        *,
        now: float,
        source: Source,
        batch: Batch | None = None,
        history: Sequence[Entry] | None = None,
        off_loop: OffLoop = asyncio.to_thread,
    ) -> Persisted:
        new_entries = [entry for entry in entries if entry.key not in archive_state.durable_keys]
        if archive_state.waiting_keys:
            new_entries = [
                entry for entry in new_entries if entry.key not in archive_state.waiting_keys
            ]
        unknown_entries = await self._without_stored(
            session, [e for e in new_entries if e.key not in archive_state.stored_keys]
        )
        keys = {entry.key for entry in new_entries}.difference(
            entry.key for entry in unknown_entries
        )
        archive_state.note_durable(keys)
        known_entries = [entry for entry in new_entries if entry.key in keys]
        chunks = [
            unknown_entries[part]
            for part in write_ranges([len(unknown_entry.raw) for unknown_entry in unknown_entries])
        ]
        stored: set[SegmentId] = set()
        outcome = Persisted(location=self.archive.location, problem="nothing new")
        for number, planned_chunk in enumerate(chunks, start=1):
            chunk_batch = (batch or Batch(at=now)) if number == len(chunks) else Batch(at=now)
            # Closing stores some messages early.
            chunk = [
                entry for entry in planned_chunk if entry.key not in archive_state.durable_keys
            ]
            ingest_result = await self._ingest_chunk(
                session,
                chunk,
                history or entries,
                archive_state,
                now=now,
                source=source,
                known_entries=known_entries,
                off_loop=off_loop,
            )
            known_entries = []
            if chunk:
                chunk_batch = await self._add_segments(chunk_batch, ingest_result, session)
            if chunk_batch.empty:
                archive_state.note_durable({entry.key for entry in chunk})
                continue
            note_chunk = partial(note_stored, archive_state, session, chunk)
            outcome = await self.archive.write(chunk_batch, note_chunk)
            if outcome.is_waiting:
                archive_state.waiting_keys.update(entry.key for entry in chunk)
            elif outcome.location == "nowhere":
                return outcome
            else:
                note_chunk(outcome)
                self.stored_batches += 1
                stored.update(() if outcome.write_result is None else outcome.write_result.stored)
        if archive_state.may_be_broken and unknown_entries:
            archive_state.may_be_broken = False
            reply_keys = [entry.key for entry in unknown_entries if entry.role == "assistant"]
            new_reply_ids = stored.intersection(segment_id(session, key) for key in reply_keys)
            if new_reply_ids:
                await drop_repeated(session, entries, new_reply_ids, archive_state, self.store)
        if source == "reply" and entries[-1].message.ending != "complete":
            archive_state.may_be_broken = True
        return outcome

    async def _add_segments(self, batch: Batch, ingest_result: IngestResult, session: str) -> Batch:
        vectors = await embed_now(ingest_result.segments, self._embedders, self._late_embedders)
        embedder_names = {vector.embedder for vector in vectors}
        waiting = [job for job in ingest_result.jobs if job.key not in embedder_names]
        jobs = (*batch.jobs, *waiting, *self._extraction(session, batch.at, left=False))
        return replace(batch, segments=ingest_result.segments, vectors=vectors, jobs=jobs)

    async def _ingest_chunk(
        self,
        session: str,
        chunk: Sequence[Entry],
        entries: Sequence[Entry],
        archive_state: ArchiveState,
        *,
        now: float,
        source: Source,
        said_at: float | None = None,
        known_entries: Sequence[Entry] = (),
        off_loop: OffLoop = asyncio.to_thread,
    ) -> IngestResult:
        mask = TextMask(
            self._settings.redaction, archive_state.secrets, judged=archive_state.judged_texts
        )

        def work() -> IngestResult:
            # Collect secrets of messages by another process, to mask them in later messages.
            for entry in known_entries if self._settings.redaction.enabled else ():
                mask.message(entry.message)
            names, fetched_ids = earlier_calls(chunk, entries)
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
                fetched_ids=fetched_ids,
                secrets=archive_state.secrets,
                judged=archive_state.judged_texts,
            )

        alone = {chunk[0].key} if len(chunk) == 1 else set()
        archive_state.masking_keys |= alone
        try:
            size_bytes = sum(len(entry.raw) for entry in (*known_entries, *chunk))
            return await _call_off_loop(size_bytes, off_loop, work)
        finally:
            archive_state.masking_keys -= alone

    async def _without_stored(self, session: str, entries: list[Entry]) -> list[Entry]:
        if sum(len(entry.raw) for entry in entries) <= INLINE_BYTES:
            return entries
        ids = {segment_id(session, entry.key): entry for entry in entries}
        try:
            known_ids = await self.store.known(list(ids))
        except NoAnswer:
            return entries
        return [entry for id_, entry in ids.items() if id_ not in known_ids]

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
