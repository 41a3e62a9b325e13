"""The engine takes a request, and returns the request to send with a report. The turns of one
session run one after the other. Message content never makes the engine raise: a request that it
cannot read is sent unchanged and reported."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

from recollect.core.boundary import SystemClock
from recollect.core.compaction.cut import UndoResult
from recollect.core.engine.archive import DurableArchive
from recollect.core.engine.background import BackgroundNotes, MeteredModel
from recollect.core.engine.closing import Closing
from recollect.core.engine.compact import CompactionOrder, Compactor
from recollect.core.engine.guarded_store import GuardedStore
from recollect.core.engine.keeper import SessionKeeper
from recollect.core.engine.ledger import IngestCounts
from recollect.core.engine.memory import (
    forget_order,
    open_facts,
    read_messages,
    search_memory,
    to_listed_message,
)
from recollect.core.engine.observe import Observer, late_reply
from recollect.core.engine.open_sessions import OpenSessions
from recollect.core.engine.parts import EngineParts
from recollect.core.engine.recaller import MemoryRecaller
from recollect.core.engine.session import (
    Context,
    MarkReply,
    Observation,
    Session,
    ToolAnswers,
    check_format,
    check_name,
    check_reply,
    check_session_name,
    load_state,
    require_messages,
    require_request,
)
from recollect.core.engine.summary import Hook, HookName, Hooks
from recollect.core.engine.turns import Incoming, TurnRunner
from recollect.core.engine.watch import WatchedStreams
from recollect.core.ports import Clock, Embedder, Model, Recaller, RecognizeOverflow, TokenCounter
from recollect.core.rules.identity import SealSecret, space_secret
from recollect.core.rules.tokens import Weigher
from recollect.core.transfer.memory_files import Following
from recollect.core.turn.query import last_turn
from recollect.core.upkeep.jobs import BackgroundJobs
from recollect.core.values.compaction import CompactionResult, Trigger
from recollect.core.values.history import SessionId, SessionState, SpaceId, requests_of
from recollect.core.values.model import FormatName, ModelUse
from recollect.core.values.reason import Cause, Reason
from recollect.core.values.recall import Recalled
from recollect.core.values.segment import StoredMessage
from recollect.core.values.upkeep import Certificate, SessionSummary, Stats
from recollect.errors import StoreError
from recollect.system.config import Settings

if TYPE_CHECKING:
    from recollect.core.facts.book import FactBook

StreamT = TypeVar("StreamT")

SHORT_BYTES = 65_536
"""A longer reply is parsed in a thread: decoding it would hold up other sessions. As
`NEW_BYTES`."""
SHORT_EVENTS = 100
"""A reply with more events is parsed in a thread."""


class Engine:
    """A memory of one space, which fits requests into the window and stores their messages."""

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        space: SpaceId = "default",
        clock: Clock | None = None,
        recaller: Recaller | None = None,
        counter: TokenCounter | None = None,
        recognize_overflow: RecognizeOverflow | None = None,
        archive: DurableArchive | None = None,
        jobs: BackgroundJobs | None = None,
        files: Following | None = None,
        background_notes: BackgroundNotes | None = None,
        model: Model | None = None,
        critical_rules: Callable[[], str] = lambda: "",
        workspace: str | None = None,
        compact_in_background: bool = True,
        embedders: Sequence[Embedder] = (),
        deployment_secret: bytes = b"",
        seal: SealSecret | None = None,
        off_the_loop: bool = False,
        reads_facts: bool = False,
        delete_stored: Callable[[], Awaitable[Certificate]] | None = None,
    ) -> None:
        """With `off_the_loop`, stages run in a thread, as servers need it. Use `open_memory` to get
        an engine with a store and a model."""
        settings = settings or Settings()
        clock = clock or SystemClock()
        notes = background_notes or BackgroundNotes()
        check_name(space, "space")
        secret = space_secret(space, deployment_secret)
        random_secret = os.urandom(32)  # without `seal`, no other process can verify its seals
        reader = None
        if archive is not None:
            reader = SessionKeeper(
                archive,
                settings,
                embedders=embedders,
                off_the_loop=off_the_loop,
                reads_facts=reads_facts,
            )
        keeper = reader if settings.ingest.enabled else None
        hooks = Hooks()
        compactor = Compactor(
            settings,
            model=None if model is None else _meter_model(model, keeper, clock, notes),
            hooks=hooks,
            keeper=keeper,
            reader=reader,
            recaller=recaller if settings.recall.enabled else None,
            clock=clock,
            critical_rules=critical_rules,
            workspace=workspace,
        )
        sessions = OpenSessions(
            compactor,
            reader=reader,
            keeper=keeper,
            clock=clock,
            deadline_seconds=settings.turn.deadline_seconds,
        )
        count = counter.count_text if counter else None
        self.settings: Settings = settings
        self.space: SpaceId = space
        self.parts = EngineParts(
            settings=settings,
            space=space,
            clock=clock,
            weigher=Weigher(settings.tokens.counter, count=count),
            secret=secret,
            seal=seal or (lambda: random_secret),
            embedder_names=tuple(embedder.name for embedder in embedders),
            model=model,
            recaller=recaller,
            store=GuardedStore(archive, check_open=sessions.check_open),
            reader=reader,
            keeper=keeper,
            compactor=compactor,
            sessions=sessions,
            tool_answers=ToolAnswers(secret),
            notes=notes,
            jobs=jobs,
            files=files,
            off_the_loop=off_the_loop,
        )
        if archive is not None:
            archive.jobs_due = self.parts.wake_jobs
        self.streams = WatchedStreams(self.observe)
        self._hooks = hooks
        self._turns = TurnRunner(self.parts)
        self._observer = Observer(
            self.parts,
            in_background=compact_in_background and settings.compaction.background,
            recognize_overflow=recognize_overflow,
        )
        self._delete_stored = delete_stored
        self._closing = None if reader is None else Closing(reader)
        self._close_task: asyncio.Task[int] | None = None

    async def prepare(
        self,
        session: Session | SessionId,
        request: bytes | bytearray | memoryview | Mapping[str, Any],
        *,
        format: FormatName | None = None,  # noqa: A002
        betas: Sequence[str] = (),
        window_tokens: int | None = None,
    ) -> Context:
        """Make a request valid, fit it into the window, and report all changes. `betas` are the
        provider's beta features from the request's headers. `window_tokens` overrides the
        setting."""
        handle = self.parts.sessions.find(session)
        request = require_request(request)
        check_format(format)
        await self.streams.end(handle)
        incoming = Incoming(
            body=request, format_name=format, betas=betas, window_tokens=window_tokens
        )
        context = await self._turns.run(handle, incoming)
        if context is None:
            draft = handle.last_draft
            assert draft is not None
            # The newest message is a tool result, so the user has written nothing since the last
            # turn.
            mid_turn = bool(draft.entries) and bool(last_turn(draft.entries).results)
            order = CompactionOrder(trigger="mid-turn" if mid_turn else "threshold")
            compaction = await self.parts.compactor.run(handle, draft, order)
            context = await self._turns.run(handle, incoming, compaction)
            assert context is not None
        return context

    async def preview(
        self,
        session: Session | SessionId,
        request: bytes | bytearray | memoryview | Mapping[str, Any],
        *,
        format: FormatName | None = None,  # noqa: A002
        betas: Sequence[str] = (),
        recall: bool = True,
        window_tokens: int | None = None,
    ) -> Context:
        """Return the request that `prepare` would return, but store and compact nothing. Use
        `preview` to count tokens, or if the client itself writes a summary (`recall=False`)."""
        incoming = Incoming(
            body=require_request(request),
            format_name=format,
            betas=betas,
            window_tokens=window_tokens,
        )
        return await self._turns.preview(self.parts.sessions.find(session), incoming, recall=recall)

    def session(self, id: SessionId, state: SessionState | None = None) -> Session:  # noqa: A002
        """Return the session with this name. Pass `state` to continue a state that you stored
        yourself."""
        return self.parts.sessions.open(id, state)

    def end(self, session: Session | SessionId) -> None:
        """Release a session. If messages are not stored, the session's state is lost."""
        self.parts.sessions.end(session)

    async def settle(self, seconds: float = 5.0, *, jobs: bool = False) -> int:
        """Wait up to `seconds` until all messages are in the store. Return how many messages and
        batches still wait. With `jobs`, also wait for jobs that are due."""
        self.parts.sessions.check_open()
        await self.streams.end_all()
        if self.parts.keeper is None or self._closing is None:
            return 0
        began_at = time.monotonic()
        waiting_count = await self._closing.settle(seconds)
        if jobs and self.parts.jobs is not None:
            if isinstance(self.parts.recaller, MemoryRecaller):
                await self.parts.recaller.rest(max(0.0, seconds - (time.monotonic() - began_at)))
            self.parts.jobs.wake()
            await self.parts.jobs.rest(max(0.0, seconds - (time.monotonic() - began_at)))
        return waiting_count

    async def close(self, seconds: float | None = None) -> int:
        """Store all messages within `seconds` (default: `store.close_seconds`), stop the jobs, and
        close the store. Return how many messages are in neither the store nor the spool; the log
        counts them, too. Batches in the spool are written to the store when this space is opened
        again. If the caller is cancelled, closing continues in the background. A second call waits
        for the first, and can shorten its time."""
        if self.parts.sessions.belong_to_parent:
            return 0  # the parent closes it
        if self._closing is not None:
            default_seconds = self.settings.store.close_seconds
            self._closing.hurry(default_seconds if seconds is None else seconds)
        if self._close_task is None or self._close_task.get_loop().is_closed():
            self._close_task = asyncio.create_task(self._close())
        return await asyncio.shield(self._close_task)

    async def _close(self) -> int:
        await self.streams.end_all()
        parts = self.parts
        parts.sessions.are_closed = True
        await parts.compactor.close()
        await parts.sessions.wait_for_turns()
        recaller = parts.recaller if isinstance(parts.recaller, MemoryRecaller) else None
        workers = (parts.files, parts.jobs, recaller)
        endings = [worker.close() for worker in workers if worker is not None]
        if self._closing is None:
            await asyncio.gather(*endings)
            return 0
        results = await asyncio.gather(*endings, self._closing.finish(), return_exceptions=True)
        unstored_count = await self._closing.close()  # also if a worker failed
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return unstored_count

    def __enter__(self) -> NoReturn:
        raise TypeError(
            "this memory is asynchronous: use `async with open_memory(...)`, or "
            "`with open_blocking_memory(...)` in code without an event loop"
        )

    def __exit__(self, *_: object) -> None:
        """Exists only because Python requires it; `__enter__` raises."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def compact(
        self,
        session: Session | SessionId,
        request: bytes | Mapping[str, Any] | None = None,
        *,
        instructions: str = "",
        trigger: Trigger = "manual",
        format: FormatName | None = None,  # noqa: A002
        window_tokens: int | None = None,
    ) -> CompactionResult:
        """Replace the older messages of `request`, or of the session's last request, by a summary
        now. `instructions` set the summary's focus. A failure does not raise: the result gives the
        reason."""
        handle = self.parts.sessions.find(session)
        draft = handle.last_draft
        if request is not None:
            incoming = Incoming(
                body=require_request(request), format_name=format, window_tokens=window_tokens
            )
            draft = await self._turns.begin_draft(handle, incoming)
        if draft is None:
            reason = Reason(Cause.NOTHING_TO_START_FROM)
            return CompactionResult(convergence="irreducible", reason=reason, trigger=trigger)
        order = CompactionOrder(trigger=trigger, instructions=instructions)
        return await self.parts.compactor.run(handle, draft, order)

    async def undo(self, session: Session | SessionId) -> UndoResult:
        """Undo the session's last compaction: requests contain its messages again. Automatic
        compactions stop until you call `compact`."""
        handle = self.parts.sessions.find(session)
        async with handle.lock:
            state = await load_state(handle, self.parts.reader, self.parts.new_boundary())
            return await self.parts.compactor.undo(handle, state)

    async def flushed(self, session: Session | SessionId) -> None:
        """Record that the agent has written its notes. The next compaction asks for new ones."""
        handle = self.parts.sessions.find(session)
        async with handle.lock:
            await self.parts.compactor.note_flush(handle)

    def on(self, name: HookName, hook: Hook) -> Callable[[], None]:
        """Call `hook(event, context)` around compactions. Call the returned function to remove the
        hook. Hooks run in parallel and may be async. If a hook fails, the report mentions it, and
        the compaction continues."""
        return self._hooks.on(name, hook)

    async def observe(
        self,
        session: Session | SessionId,
        reply: Any,
        *,
        turn: int | None = None,
        wait: bool = True,
        mark: MarkReply | None = None,
    ) -> Observation:
        """Store a reply and learn from it: its usage calibrates token counts, an overflow error
        corrects the window size. `reply` is the object your client returned or raised, as object,
        mapping, bytes or list of events. `turn` is the request that it answers; a reply to an
        earlier request is not stored. Without `wait`, `observe` returns before the reply is stored.
        `mark` returns keys under which `find_sessions` then finds this session."""
        handle = self.parts.sessions.find(session)
        check_reply(reply)
        async with handle.lock:
            boundary = self.parts.new_boundary(is_quick=_is_short(reply))
            if turn is not None:
                # Another process may have prepared the last request.
                last_turn_number = requests_of(
                    await load_state(handle, self.parts.reader, boundary)
                )
                if turn > last_turn_number and not boundary.failures:
                    unknown_turn = Reason(Cause.NO_SUCH_TURN, turn=turn, last=last_turn_number)
                    boundary.note("read", "failed", unknown_turn)
                if turn != last_turn_number:
                    return late_reply(handle.state, reply, boundary.failures)
            handle.observation = await self._observer.observe(
                handle, reply, boundary, wait=wait, mark=mark
            )
            handle.has_learned = True
            return handle.observation

    def watch(self, session: Session | SessionId, stream: StreamT) -> StreamT:
        """Return a stream to read instead of `stream`. When the stream ends, its reply is observed.
        Events and other methods of the stream do not change. The result is in
        `session(...).observation`."""
        return self.streams.watch(self.parts.sessions.find(session), stream)

    async def ingest(
        self,
        session: SessionId,
        messages: Sequence[bytes | Mapping[str, Any]],
        *,
        format: FormatName | None = None,  # noqa: A002
        batch: str | None = None,
        said_at: float | None = None,
    ) -> IngestCounts:
        """Store messages outside of a turn, as mappings in a wire format or as their JSON. Without
        `batch`, pass the session's history from its start; only new messages are stored. Storing a
        batch twice changes nothing. Raises StoreUnavailable if messages cannot be stored."""
        self.parts.sessions.check_open()
        keeper = self.parts.require_keeper()
        check_session_name(session)
        messages = require_messages(messages)
        check_format(format)
        if said_at is not None and not isfinite(said_at):
            raise ValueError("said_at must be a time in seconds since the epoch")
        now = self.parts.clock.now()
        entries = await asyncio.to_thread(read_messages, self.parts, messages, format, batch)
        return await keeper.ingest(
            session, entries, said_at=now if said_at is None else min(said_at, now), now=now
        )

    async def facts(self, session: SessionId | None = None) -> FactBook:
        """Return the facts of this space, to list, add, correct, pin and trace them. With a
        `session`, return only facts that the session may see (`recall.scope`). With `ingest.enabled
        = false`, facts are read-only."""
        self.parts.sessions.check_open()
        return await open_facts(self.parts, session, self._settle_turn)

    async def _settle_turn(self) -> int:
        return await self.settle(self.settings.turn.deadline_seconds)

    async def sessions(self) -> tuple[SessionSummary, ...]:
        """List the stored sessions, oldest first. A memory file is a session named `file:…`."""
        await self._settle_turn()
        return await self.parts.store.sessions()

    async def messages(
        self,
        session: Session | SessionId,
        *,
        after: int = 0,
        limit: int = 100,
        newest_first: bool = False,
    ) -> tuple[StoredMessage, ...]:
        """List a session's stored messages in order. To continue a list, pass the `place` of its
        last message as `after`. With `newest_first`, the list contains the messages before that
        place, newest first."""
        name = session.id if isinstance(session, Session) else check_session_name(session)
        if limit < 1:
            raise ValueError(f"limit must be at least 1, not {limit}")
        await self._settle_turn()
        page = await self.parts.store.page(
            after=after, limit=limit, session=name, descending=newest_first
        )
        return tuple(map(to_listed_message, page))

    async def stats(self) -> Stats:
        """Count the space's messages, passages, vectors, facts, sessions and bytes."""
        await self._settle_turn()
        return await self.parts.store.stats()

    async def forget(
        self,
        *,
        messages: Sequence[str] = (),
        sessions: Sequence[SessionId] = (),
        facts: Sequence[str] = (),
        matching: str | None = None,
        pattern: str | None = None,
        said_after: float | None = None,
        said_before: float | None = None,
    ) -> Certificate:
        """Forget permanently, in the store, the spool and the caches of this machine. `messages`
        and `facts` are ids, `matching` is a text, `pattern` a regular expression. `sessions`,
        `said_after` and `said_before` together select messages. The certificate counts the removed
        items and lists the copies that Recollect cannot delete."""
        order = forget_order(
            self.parts.clock.now(),
            messages=messages,
            sessions=sessions,
            facts=facts,
            matching=matching,
            pattern=pattern,
            said_after=said_after,
            said_before=said_before,
        )
        book = await self.facts()
        if facts:
            order = replace(order, facts=(await book.order_to_forget(facts)).facts)
        return await book.forget(order)

    async def delete_space(self) -> Certificate:
        """Delete the whole space: its store and its spooled batches. The memory is closed first.
        Close the space in all other processes before this call."""
        self.parts.sessions.check_open()
        if self._delete_stored is None:
            raise StoreError(
                "this memory does not own its store: delete the space where the store was opened"
            )
        await self.close()
        return await self._delete_stored()

    async def search(
        self,
        query: str,
        *,
        session: SessionId | None = None,
        budget_tokens: int = 2_000,
        said_after: float | None = None,
        said_before: float | None = None,
    ) -> Recalled:
        """Search memory. Return passages and facts within the budget, best first. With a `session`,
        return only what the session may see (`recall.scope`)."""
        self.parts.sessions.check_open()
        return await search_memory(
            self.parts,
            query,
            session=session,
            budget_tokens=budget_tokens,
            said_after=said_after,
            said_before=said_before,
        )


def _meter_model(
    model: Model, keeper: SessionKeeper | None, clock: Clock, notes: BackgroundNotes
) -> MeteredModel:
    async def record(use: ModelUse, day: str) -> None:
        if keeper is not None:
            keeper.archive.count_model_use(use, day)

    return MeteredModel(model, clock, record, used=notes.add_use)


def _is_short(reply: Any) -> bool:
    if isinstance(reply, bytes | str):
        return len(reply) <= SHORT_BYTES
    return isinstance(reply, list | tuple) and len(reply) <= SHORT_EVENTS
