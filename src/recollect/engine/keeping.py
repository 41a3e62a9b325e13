"""Keeps what a session says: loads what is known of it, and writes each turn beside the request.

Owns when a message counts as durable. A turn waits for it only at a batch moment, before
anything may leave the view; otherwise the write runs while the model answers, and what went
wrong is told in the next report.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from recollect.config import Settings
from recollect.engine.archive import DurableArchive, Kept, Where
from recollect.engine.boundary import Boundary, Failure, attempted
from recollect.engine.recording import LastRecord, quoted_by, record_turn
from recollect.errors import FormatError
from recollect.formats.session_state import join_state, split_state
from recollect.rules.identity import segment_id
from recollect.turn.ingest import ingest
from recollect.values.batch import Batch, SessionWrite, StoredSession
from recollect.values.history import Entry, SessionState
from recollect.values.job import NewJob
from recollect.values.ledger import Piece, TurnRecord
from recollect.values.message import CallId, EntryKey, ToolCall
from recollect.values.report import Outcome, Report, StageLine
from recollect.values.request import Request
from recollect.values.segment import Source

T = TypeVar("T")

INLINE_MESSAGES = 4
"""More new messages than this are prepared in a thread: tokenising blocks the loop."""
DAY_SECONDS = 86_400.0


@dataclass(slots=True)
class Keeping:
    """What is known about a session's place in the archive, in this process."""

    loaded: bool = False
    durable: set[EntryKey] = field(default_factory=set, repr=False)
    path: tuple[EntryKey, ...] = field(default=(), repr=False)
    """The path as it was last written."""
    last_record: LastRecord = field(default_factory=LastRecord, repr=False)
    tasks: list[asyncio.Task[None]] = field(default_factory=list, repr=False)
    """What is being written, each behind the one before it: a reply must not overtake the
    question it answers."""
    where: Where = "nowhere"
    """Where the last write went."""
    trouble: list[StageLine] = field(default_factory=list)
    """What went wrong beside the last turn; told in the next report."""


class SessionKeeper:
    """Loads and keeps the sessions of one space."""

    def __init__(
        self, archive: DurableArchive, settings: Settings, *, embedder: str | None = None
    ) -> None:
        self.archive = archive
        self._settings = settings
        self._embedder = embedder
        self._chores_at = -DAY_SECONDS

    async def load(
        self, session: str, state: SessionState, keeping: Keeping, boundary: Boundary
    ) -> SessionState:
        """The session as it was left, by this process or another one."""
        for line in keeping.trouble:
            boundary.lines.append(line)
        keeping.trouble.clear()
        if keeping.loaded:
            return state
        found = await self.archive.ask(lambda store: store.session(session))
        if isinstance(found, Failure):
            boundary.note("load", "failed", f"{found.said}: what is known of the session is not")
            return state
        keeping.loaded = True
        if found is None:
            return state
        try:
            stored = join_state(found.state, found.path, found.ids)
        except FormatError as error:
            boundary.note("load", "failed", str(error))
            return replace(state, turn=max(state.turn, found.turn))
        boundary.note("load", "done", f"{len(found.path)} messages known from turn {found.turn}")
        keeping.path = found.path
        return _joined(state, stored, found)

    async def make_durable(
        self, session: str, entries: Sequence[Entry], keeping: Keeping, *, now: float
    ) -> Kept:
        """Write these messages, and wait for it; nothing leaves a view before."""
        await self.wait(keeping)
        kept = await attempted(self._write(session, entries, keeping, now=now, source="request"))
        return Kept(where="nowhere", said=kept.said) if isinstance(kept, Failure) else kept

    def keep_turn(
        self, request: Request, report: Report, state: SessionState, keeping: Keeping, *, now: float
    ) -> None:
        """Start writing a turn: its new messages, the session's state, the ledger."""
        self._beside(keeping, lambda: self._keep_turn(request, report, state, keeping, now=now))

    def keep_reply(
        self, session: str, entries: Sequence[Entry], keeping: Keeping, *, now: float
    ) -> None:
        """Start writing what the model answered."""
        self._beside(
            keeping, lambda: self._write(session, entries, keeping, now=now, source="reply")
        )

    async def wait(self, keeping: Keeping) -> None:
        """Until what was started is done; bounded by the store's and the spool's deadlines."""
        while running := [task for task in keeping.tasks if not task.done()]:
            await asyncio.wait(running)
        keeping.tasks.clear()

    def _beside(self, keeping: Keeping, work: Callable[[], Awaitable[Kept]]) -> None:
        before = [task for task in keeping.tasks if not task.done()]

        async def run() -> None:
            if before:
                await asyncio.wait(before)
            kept = await attempted(work())
            where: Where = "nowhere" if isinstance(kept, Failure) else kept.where
            keeping.where = where
            if where != "store":
                outcome: Outcome = "failed" if where == "nowhere" else "late"
                said = f"kept in the {where}: {kept.said}" if where == "spool" else kept.said
                keeping.trouble.append(
                    StageLine(stage="ingest", outcome=outcome, said=said, seconds=0.0)
                )

        keeping.tasks = [*before, asyncio.create_task(run())]

    async def _keep_turn(
        self, request: Request, report: Report, state: SessionState, keeping: Keeping, *, now: float
    ) -> Kept:
        record: TurnRecord | None = None
        pieces: tuple[Piece, ...] = ()
        # A session that could not be loaded counts its turns anew: its records would take the
        # place of others.
        if self._settings.ledger.enabled and report.view.rows and keeping.loaded:
            record, pieces = await self._off_loop(
                len(report.view.rows) - len(keeping.last_record.raws),
                lambda: record_turn(
                    request, report, keeping.last_record, self._settings.redaction, at=now
                ),
            )
        write = _session_write(report, state, keeping)
        batch = Batch(
            at=now,
            session=write,
            pieces=pieces,
            turns=() if record is None else (record,),
            jobs=self._chores(now),
        )
        kept = await self._write(
            report.session, report.entries, keeping, now=now, source="request", batch=batch
        )
        if kept.where == "nowhere":  # the next record must not rest on this one
            keeping.last_record = LastRecord()
        elif kept.written is not None and kept.written.session_stale:
            # another process went on with it: load it again, and rest on nothing of ours
            keeping.loaded, keeping.path, keeping.last_record = False, (), LastRecord()
        else:
            keeping.path = state.path
        return kept

    async def _write(
        self,
        session: str,
        entries: Sequence[Entry],
        keeping: Keeping,
        *,
        now: float,
        source: Source,
        batch: Batch | None = None,
    ) -> Kept:
        fresh = [entry for entry in entries if entry.key not in keeping.durable]
        fresh = await self._unknown(session, fresh)
        made = await self._off_loop(
            len(fresh),
            lambda: ingest(
                fresh,
                session=session,
                source=source,
                said_at=now,
                redaction=self._settings.redaction,
                now=now,
                embedder=self._embedder,
                tool_names=_called(fresh, entries),
            ),
        )
        whole = replace(batch or Batch(at=now), segments=made.segments)
        whole = replace(whole, jobs=(*whole.jobs, *made.jobs))
        if whole.empty:
            keeping.durable.update(entry.key for entry in entries)
            return Kept(where="spool" if self.archive.spooling else "store", said="nothing new")
        kept = await self.archive.write(whole)
        if kept.where != "nowhere":
            keeping.durable.update(entry.key for entry in entries)
        return kept

    async def _unknown(self, session: str, entries: list[Entry]) -> list[Entry]:
        """Those that the store does not have yet, where it can say so; the rest is written
        again at worst, which changes nothing."""
        if len(entries) <= INLINE_MESSAGES:
            return entries
        ids = {segment_id(session, entry.key): entry for entry in entries}
        known = await self.archive.ask(lambda store: store.known(list(ids)))
        if isinstance(known, Failure):
            return entries
        return [entry for id_, entry in ids.items() if id_ not in known]

    async def _off_loop(self, size: int, work: Callable[[], T]) -> T:
        return work() if size <= INLINE_MESSAGES else await asyncio.to_thread(work)

    def _chores(self, now: float) -> tuple[NewJob, ...]:
        """What has to be looked after once a day: the size of the index, the ledger's age."""
        if now - self._chores_at < DAY_SECONDS:
            return ()
        self._chores_at = now
        jobs = [NewJob(kind="evict", key="daily", run_at=now)]
        if self._settings.ledger.retention_days is not None:
            jobs.append(NewJob(kind="expire", key="daily", run_at=now))
        return tuple(jobs)


def _called(fresh: Sequence[Entry], history: Sequence[Entry]) -> dict[CallId, str]:
    """The tools that new results answer for, where their calls came earlier."""
    wanted = {call_id for entry in fresh for call_id in entry.results}
    names: dict[CallId, str] = {}
    for entry in reversed(history):
        if len(names) == len(wanted):
            break
        for part in entry.parts if entry.calls else ():
            if isinstance(part, ToolCall) and part.id in wanted:
                names.setdefault(part.id, part.name)
    return names


def _session_write(report: Report, state: SessionState, keeping: Keeping) -> SessionWrite:
    shared = 0
    for before, now in zip(keeping.path, state.path, strict=False):
        if before != now:
            break
        shared += 1
    edits = state.edits + tuple(edit for edit, _ in state.dormant)
    return SessionWrite(
        session=report.session,
        turn=state.turn,
        state=split_state(state),
        about=quoted_by(edits, report.entries),
        path_from=shared,
        path=state.path[shared:],
        ids=state.ids[shared:],
    )


def _joined(ours: SessionState, stored: SessionState, found: StoredSession) -> SessionState:
    """A session that went on while the store was away keeps its own edits, if it has any."""
    turn = max(ours.turn, found.turn)
    if ours.edits:
        return replace(ours, turn=turn)
    return replace(stored, turn=turn)
