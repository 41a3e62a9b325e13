"""The engine takes a request, and returns the request to send with a report. The turns of one
session run one after the other. Message content never makes the engine raise: a request that it
cannot read is sent unchanged and reported."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn, Self, TypeVar, cast

from recollect.core.boundary import Boundary, Component, SystemClock, attempted
from recollect.core.compaction.cut import UndoResult
from recollect.core.engine.archive import DurableArchive
from recollect.core.engine.background import BackgroundNotes, MeteredModel, use_reason
from recollect.core.engine.batch_moment import Durability
from recollect.core.engine.closing import Closing
from recollect.core.engine.compact import CompactionOrder, Compactor
from recollect.core.engine.keeper import SessionKeeper
from recollect.core.engine.memory import StoredMemory
from recollect.core.engine.observe import Observer, late_reply
from recollect.core.engine.prepare import begin, is_quick, limits_for, prepare_turn, read_request
from recollect.core.engine.recaller import MemoryRecaller
from recollect.core.engine.session import (
    Context,
    MarkReply,
    Observation,
    Session,
    ToolAnswers,
    TurnResult,
    check_format,
    check_name,
    check_reply,
    checked_request,
    compaction_line,
    context_of,
    load,
)
from recollect.core.engine.summary import Hook, HookName, Hooks
from recollect.core.engine.watch import Watching, watched
from recollect.core.formats.codec import codec_of
from recollect.core.formats.replies import StreamedReply
from recollect.core.ports import Clock, Embedder, Model, Recaller, RecognizeOverflow, TokenCounter
from recollect.core.rules.identity import SealSecret, space_secret
from recollect.core.rules.message_redaction import TextMask
from recollect.core.rules.tokens import Weigher
from recollect.core.transfer.memory_files import Following
from recollect.core.turn.align import LastRequest, remember
from recollect.core.turn.apply import LastView
from recollect.core.turn.draft import Draft, TurnInput
from recollect.core.turn.query import last_turn
from recollect.core.upkeep.jobs import BackgroundJobs
from recollect.core.values.compaction import CompactionResult, Trigger
from recollect.core.values.history import SessionId, SessionState, SpaceId, requests_of
from recollect.core.values.message import MessageId
from recollect.core.values.model import FormatName, ModelUse, Request
from recollect.core.values.reason import PAUSING, Cause, Reason
from recollect.core.values.upkeep import Certificate
from recollect.errors import StaleSession
from recollect.system.config import Settings

StreamT = TypeVar("StreamT")

SHORT_BYTES = 65_536
SHORT_EVENTS = 100
"""A reply with more events is parsed in a thread."""


class Engine(StoredMemory):
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
        beside: BackgroundNotes | None = None,
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
        self.settings: Settings = settings or Settings()
        self.space: SpaceId = check_name(space, "space")
        self._secret = space_secret(space, deployment_secret)
        own = os.urandom(32)  # without `seal`, no other process can verify this engine's seals
        self._seal: SealSecret = seal or (lambda: own)
        self._jobs, self._files = jobs, files
        self._embedders = tuple(embedder.name for embedder in embedders)
        self._delete_stored = delete_stored
        self._beside = beside or BackgroundNotes()
        self._clock = clock or SystemClock()
        self._recaller, self._model = recaller, model
        self._hooks = Hooks()
        self._off_the_loop = off_the_loop
        self._reads_facts = reads_facts
        self._stored = None if archive is None else self._reader(archive, embedders)
        self._keeper = self._stored if self.settings.ingest.enabled else None
        count = counter.count_text if counter else None
        self._weigher = Weigher(self.settings.tokens.counter, count=count)
        self._compactor = Compactor(
            self.settings,
            model=None if model is None else self._meter(model, archive),
            hooks=self._hooks,
            keeper=self._keeper,
            reader=self._stored,
            recaller=recaller if self.settings.recall.enabled else None,
            clock=self._clock,
            critical_rules=critical_rules,
            workspace=workspace,
        )
        self._observer = Observer(
            self,
            in_background=compact_in_background and self.settings.compaction.background,
            recognize_overflow=recognize_overflow,
        )
        self._sessions: dict[SessionId, Session] = {}
        self._watched: dict[Session, Watching] = {}
        self._watch_component = Component("watched stream")
        self._closed = False
        self._process = None
        self._ending = None if self._stored is None else Closing(self._stored)
        self._closing: asyncio.Task[int] | None = None
        self._told = ToolAnswers(self._secret)
        self._summary_model = "" if self._model is None else self._model.name

    def _reader(self, archive: DurableArchive, embedders: Sequence[Embedder]) -> SessionKeeper:
        archive.jobs_due = self._wake_jobs
        return SessionKeeper(
            archive,
            self.settings,
            embedders=embedders,
            off_the_loop=self._off_the_loop,
            reads_facts=self._reads_facts,
        )

    def _meter(self, model: Model, archive: DurableArchive | None) -> MeteredModel:
        async def record(use: ModelUse, day: str) -> None:
            if archive is not None and self.settings.ingest.enabled:
                archive.count(use, day)

        return MeteredModel(model, self._clock, record, used=self._beside.add_use)

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
        handle = self._handle(session)
        request = checked_request(request)
        check_format(format)
        await self._end_watched(handle)
        turn = partial(
            self._turn, handle, request, format, betas=betas, window_tokens=window_tokens
        )
        context = await turn(may_compact=True)
        if context is None:
            draft = handle.last_draft
            assert draft is not None
            # The newest message is a tool result, so the user has written nothing since the last
            # turn.
            mid_turn = bool(draft.entries) and bool(last_turn(draft.entries).results)
            order = CompactionOrder(trigger="mid-turn" if mid_turn else "threshold")
            done = await self._compactor.run(handle, draft, order)
            context = await turn(may_compact=False, compacted=done)
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
        handle = self._handle(session)
        request = checked_request(request)
        async with handle.lock:
            boundary = self._boundary(is_quick=is_quick(handle, request))
            state = await load(handle, self._stored, boundary)
            given = await self._given(
                handle, state, request, format, boundary, betas, window_tokens
            )
            given = replace(given, why_not_compact=Reason(Cause.PREVIEWED), may_compact=False)
            recaller = self._recaller if recall else None
            done = await prepare_turn(given, boundary, recaller=recaller, durability=None)
            return context_of(given, done, boundary, as_it_came=request, compaction=None)

    async def _last_messages(self, session: Session | SessionId) -> tuple[MessageId, ...]:
        handle = self._handle(session)
        async with handle.lock:
            return (await load(handle, self._stored, self._boundary())).ids

    async def _turn(
        self,
        handle: Session,
        request: bytes | Mapping[str, Any],
        format_name: FormatName | None,
        *,
        may_compact: bool,
        compacted: CompactionResult | None = None,
        betas: Sequence[str] = (),
        window_tokens: int | None = None,
    ) -> Context | None:
        async with handle.lock:
            boundary = self._boundary(is_quick=is_quick(handle, request))
            self._follow_files(boundary)
            facts, uses = self._beside.take()
            for line in facts:
                boundary.note("extract", "done", Reason(Cause.EXTRACTED, facts=line))
            if uses:
                boundary.note("jobs", "done", use_reason(uses))
            ended, handle.compacted_meanwhile = handle.compacted_meanwhile, None
            if compacted is not None:
                boundary.note("compact", *compaction_line(compacted))
            elif ended is not None:
                outcome, how = compaction_line(ended)
                boundary.note("compact", outcome, Reason(Cause.IN_BACKGROUND, compaction=how))
            state = await load(handle, self._stored, boundary)
            given = await self._given(
                handle, state, request, format_name, boundary, betas, window_tokens
            )
            why_not = self._compactor.why_not(state)
            if given.request.continues and why_not is None:
                why_not = Reason(Cause.PROVIDER_HOLDS)
            given = replace(
                given, why_not_compact=why_not, may_compact=may_compact and why_not is None
            )
            durability = None
            if self._keeper is not None:
                durability = Durability(keeper=self._keeper, keeping=handle.keeping)
            done = await prepare_turn(
                given, boundary, recaller=self._recaller, durability=durability
            )
            if done.compact_first:
                handle.last_draft, handle.compacted_meanwhile = done.draft, ended
                self._beside.put_back(facts, uses)
                return None
            self._note_pause(given, done, boundary)
            context = context_of(given, done, boundary, as_it_came=request, compaction=compacted)
            if handle.state is not state:
                raise StaleSession(
                    f"session {handle.id!r} changed while its request was prepared; prepare it "
                    "again"
                )
            handle.state = context.state
            if done.draft is not None:
                self._go_on(handle, done.draft, context)
                # Let the task start: if the event loop closed first, the write would be lost.
                await asyncio.sleep(0)
            return context

    def _go_on(self, handle: Session, draft: Draft, context: Context) -> None:
        given = draft.given
        handle.last_draft = replace(draft, committed=True)
        handle.remembered = remember(
            given.remembered,
            given.codec.rules,
            draft.entries,
            draft.read,
            LastView(entries=draft.entries, edits=draft.edits, view=draft.view),
        )
        handle.sent_messages, handle.learned = len(context.state.path), False
        if self._keeper is not None:
            self._keeper.keep_turn(
                given.request,
                context.report,
                context.state,
                handle.keeping,
                now=given.now,
                as_it_came=context.request is given.request.body,
            )

    def _note_pause(self, given: TurnInput, done: TurnResult, boundary: Boundary) -> None:
        why = given.why_not_compact
        if why is None or why.cause not in PAUSING:
            return
        if not done.told_why_not_compact:
            boundary.note("compact", "skipped", Reason(Cause.NO_COMPACTION, why=why))
        if not self._compactor.component.trouble(given.session):
            self._compactor.component.fail(str(why), whose=given.session)

    def _follow_files(self, boundary: Boundary) -> None:
        if self._files is not None:
            self._files.wake()
            if trouble := self._files.trouble():
                boundary.note("ingest", "skipped", trouble)

    async def settle(self, seconds: float = 5.0, *, jobs: bool = False) -> int:
        """Wait up to `seconds` until all messages are in the store. Return how many messages and
        batches still wait. With `jobs`, also wait for jobs that are due."""
        self._check_open()
        for handle in tuple(self._watched):
            await self._end_watched(handle)
        if self._keeper is None or self._ending is None:
            return 0
        begun = time.monotonic()
        waits = await self._ending.settle(seconds)
        if jobs and self._jobs is not None:
            self._jobs.wake()
            await self._jobs.rest(max(0.0, seconds - (time.monotonic() - begun)))
        return waits

    async def close(self, seconds: float | None = None) -> int:
        """Store all messages within `seconds` (default: `store.close_seconds`), stop the jobs, and
        close the store. Return how many messages are in neither the store nor the spool; the log
        counts them, too. Batches in the spool are written to the store when this space is opened
        again. If the caller is cancelled, closing continues in the background. A second call waits
        for the first, and can shorten its time."""
        if self._process is not None and self._process.is_other:
            return 0  # the parent closes it
        if self._ending is not None:
            default = self.settings.store.close_seconds
            self._ending.hurry(default if seconds is None else seconds)
        if self._closing is None or self._closing.get_loop().is_closed():
            self._closing = asyncio.create_task(self._close())
        return await asyncio.shield(self._closing)

    async def _close(self) -> int:
        for handle in tuple(self._watched):
            await self._end_watched(handle)
        self._closed = True
        await self._compactor.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.settings.turn.deadline_seconds):
                for handle in tuple(self._sessions.values()):  # turns that are being prepared
                    async with handle.lock:
                        pass
        recaller = self._recaller if isinstance(self._recaller, MemoryRecaller) else None
        parts = [part.close() for part in (self._files, self._jobs, recaller) if part is not None]
        if self._ending is None:
            await asyncio.gather(*parts)
            return 0
        results = await asyncio.gather(*parts, self._ending.finish(), return_exceptions=True)
        unstored = await self._ending.close()  # also if a part failed
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return unstored

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
        handle = self._handle(session)
        draft = handle.last_draft
        if request is not None:
            request = checked_request(request)
            async with handle.lock:
                boundary = self._boundary()
                state = await load(handle, self._stored, boundary)
                given = await self._given(
                    handle, state, request, format, boundary, (), window_tokens
                )
                draft = await begin(given, boundary)
        if draft is None:
            why = Reason(Cause.NOTHING_TO_START_FROM)
            return CompactionResult(convergence="irreducible", reason=why, trigger=trigger)
        order = CompactionOrder(trigger=trigger, instructions=instructions)
        return await self._compactor.run(handle, draft, order)

    async def undo(self, session: Session | SessionId) -> UndoResult:
        """Undo the session's last compaction: requests contain its messages again. Automatic
        compactions stop until you call `compact`."""
        handle = self._handle(session)
        async with handle.lock:
            state = await load(handle, self._stored, self._boundary())
            return await self._compactor.undo(handle, state)

    async def flushed(self, session: Session | SessionId) -> None:
        """Record that the agent has written its notes. The next compaction asks for new ones."""
        handle = self._handle(session)
        async with handle.lock:
            await self._compactor.flushed(handle)

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
        handle = self._handle(session)
        check_reply(reply)
        async with handle.lock:
            boundary = self._boundary(is_quick=_is_short(reply))
            if turn is not None:
                # Another process may have prepared the last request.
                last = requests_of(await load(handle, self._stored, boundary))
                if turn > last and not boundary.failures:
                    unknown = Reason(Cause.NO_SUCH_TURN, turn=turn, last=last)
                    boundary.note("read", "failed", unknown)
                if turn != last:
                    return late_reply(handle.state, reply, boundary.failures)
            handle.observation = await self._observer.observe(
                handle, reply, boundary, wait=wait, mark=mark
            )
            handle.learned = True
            return handle.observation

    def watch(self, session: Session | SessionId, stream: StreamT) -> StreamT:
        """Return a stream to read instead of `stream`. When the stream ends, its reply is observed.
        Events and other methods of the stream do not change. The result is in
        `session(...).observation`."""
        return self._watch(session, stream, plain=False)

    def _watch(self, session: Session | SessionId, stream: StreamT, *, plain: bool) -> StreamT:
        handle = self._handle(session)

        async def observe(reply: StreamedReply) -> None:
            if self._watched.get(handle) is watching:
                del self._watched[handle]
            await self.observe(handle, reply)
            self._watch_component.recover()

        watching = Watching(observe, self._watch_component.fail)
        read = watched(stream, watching, plain=plain)
        self._watched[handle] = watching
        return cast(StreamT, read)

    async def _end_watched(self, handle: Session) -> None:
        watching = self._watched.pop(handle, None)
        if watching is not None:
            await watching.ended()

    def _boundary(self, *, is_quick: bool = False) -> Boundary:
        turn = self.settings.turn
        return Boundary(
            turn_seconds=turn.deadline_seconds,
            stage_seconds=turn.stage_deadline_seconds,
            off_the_loop=self._off_the_loop,
            is_quick=is_quick,
        )

    async def _given(
        self,
        handle: Session,
        state: SessionState,
        body: bytes | Mapping[str, Any],
        format_name: FormatName | None,
        boundary: Boundary,
        betas: Sequence[str],
        window_tokens: int | None,
    ) -> TurnInput:
        last = None if handle.last_draft is None else handle.last_draft.given.request
        read, fixed_tokens = await read_request(
            body, format_name, boundary, betas=betas, weigher=self._weigher, before=last
        )
        request = read or Request(format=format_name or "anthropic", messages=(), field="")
        limits, window_source = limits_for(
            request,
            fixed_tokens,
            state,
            self.settings,
            self._model,
            boundary,
            window_tokens=window_tokens,
        )
        if handle.remembered.rules != codec_of(request).rules or request.continues:
            handle.remembered = LastRequest()
        if self._stored is not None:
            looking = self._told.look_for(request, handle.remembered, self._stored.archive)
            await attempted(looking)
        return TurnInput(
            settings=self.settings,
            space=self.space,
            session=handle.id,
            state=state,
            readable=read is not None,
            request=request,
            fixed_tokens=fixed_tokens,
            limits=limits,
            window_source=window_source,
            weigher=self._weigher,
            secret=self._secret,
            now=self._clock.now(),
            mask=TextMask(self.settings.redaction, handle.keeping.secrets),
            forgotten=handle.keeping.forgotten,
            answers=self._told.marks,
            seal=self._seal,
            remembered=handle.remembered,
        )


def _is_short(reply: Any) -> bool:
    if isinstance(reply, bytes | str):
        return len(reply) <= SHORT_BYTES
    return isinstance(reply, list | tuple) and len(reply) <= SHORT_EVENTS
