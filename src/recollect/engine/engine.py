"""The engine: one request in, one request out, and a report of what was done.

Sessions are values; the engine commits them by compare-and-set and serialises the turns of
one session. It never raises for what a message holds: a request that cannot be shaped goes
out as it came, and the report says so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar, cast

from recollect.boundary import Boundary, Part, SystemClock
from recollect.compaction.cut import UndoResult
from recollect.compaction.trigger import TriggerResult, breaker_is_open
from recollect.compaction.trigger import trigger as what_is_due
from recollect.config import Settings
from recollect.engine.archive import DurableArchive, Where
from recollect.engine.background import Heard, MeteredModel, use_reason
from recollect.engine.compact import CompactionOrder, Compactor
from recollect.engine.freeing import free
from recollect.engine.gate import Gate
from recollect.engine.hooks import Hook, HookName, Hooks
from recollect.engine.keeper import SessionKeeper
from recollect.engine.observe import (
    after_overflow,
    doubt_limit,
    followed_by,
    learned_from,
    replied,
)
from recollect.engine.recaller import MemoryRecaller
from recollect.engine.reporting import recalled_of, report_of
from recollect.engine.schedule import Compactions
from recollect.engine.session import (
    Context,
    Observation,
    Session,
    check_reply,
    check_session_name,
    check_space_name,
    checked_request,
    holds_reply,
)
from recollect.engine.telling import compaction_line
from recollect.engine.turn_path import TurnPath
from recollect.engine.watch import Watching, watched
from recollect.errors import StaleSession, StoreError
from recollect.formats.codec import CODECS
from recollect.formats.replies import StreamedReply
from recollect.formats.request import join_request, split_request
from recollect.ports import Clock, Model, Recaller, RecogniseOverflow, TokenCounter
from recollect.rules.budget import limits_of, window_of
from recollect.rules.identity import space_secret
from recollect.rules.message_redaction import TextMask
from recollect.rules.tokens import Weigher
from recollect.transfer.memory_files import Following
from recollect.turn.align import Remembered, remember
from recollect.turn.apply import LastView
from recollect.upkeep.jobs import BackgroundJobs
from recollect.values.compaction import CompactionResult, Trigger
from recollect.values.history import (
    Entry,
    SessionId,
    SessionState,
    SpaceId,
    newest_cut,
    requests_of,
)
from recollect.values.model import FormatName, ModelUse, Overflow, Request, Usage
from recollect.values.reason import Cause, Reason
from recollect.values.recall import FILE_SESSIONS

if TYPE_CHECKING:
    from recollect.engine.facts.book import FactBook
    from recollect.upkeep.forget import Cascade

StreamT = TypeVar("StreamT")

KNOWN_PROMPTS = 64
"""How many pairs of system prompt and tools are counted only once."""


class Engine:
    """Shapes the requests of one space's sessions."""

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        space: SpaceId = "default",
        clock: Clock | None = None,
        recaller: Recaller | None = None,
        counter: TokenCounter | None = None,
        recognise_overflow: RecogniseOverflow | None = None,
        archive: DurableArchive | None = None,
        jobs: BackgroundJobs | None = None,
        files: Following | None = None,
        extracted: Heard | None = None,
        model: Model | None = None,
        critical_rules: Callable[[], str] = lambda: "",
        workspace: str | None = None,
        compact_in_background: bool = True,
        embedders: Sequence[str] = (),
        cascades: Sequence[Cascade] = (),
        deployment_secret: bytes = b"",
        off_the_loop: bool = False,
    ) -> None:
        """`off_the_loop` runs pure stages in a thread, as servers want it.

        Without an `archive` nothing is kept, without a `model` nothing is compacted;
        `open_memory` gives it both.
        """
        self.settings = settings or Settings()
        self.space = check_space_name(space)
        self._secret = space_secret(space, deployment_secret)
        self._stored: SessionKeeper | None = None
        """Reads what is stored, whether or not anything new may be kept."""
        if archive is not None:
            self._stored = SessionKeeper(
                archive,
                self.settings,
                embedders=embedders,
                off_the_loop=off_the_loop,
                kept=self._wake_jobs,
            )
        self._keeper = self._stored if self.settings.ingest.enabled else None
        self._jobs = jobs
        self._embedders = tuple(embedders)
        self._cascades = tuple(cascades)
        self._files = files
        self._extracted = extracted or Heard()
        self._clock = clock or SystemClock()
        self._recaller = recaller
        count = counter.count_text if counter else None
        self._weigher = Weigher(self.settings.tokens.counter, count=count)
        self._recognise_overflow = recognise_overflow
        self._model = model
        self._hooks = Hooks()
        self._compactor = Compactor(
            self.settings,
            space=space,
            model=None if model is None else self._metered(model, archive),
            hooks=self._hooks,
            keeper=self._keeper,
            recaller=recaller,
            clock=self._clock,
            critical_rules=critical_rules,
            workspace=workspace,
        )
        self._compactions = Compactions(
            self._compactor,
            self._hooks,
            self._keeper,
            self._clock,
            load=lambda held: self._loaded(held, self._boundary()),
        )
        self._in_background = compact_in_background and self.settings.compaction.background
        self._off_the_loop = off_the_loop
        self._sessions: dict[SessionId, Session] = {}
        self._watched: dict[Session, Watching] = {}
        self._watch_part = Part("watched stream")
        self._closed = False
        self._fixed: dict[tuple[bytes | None, bytes | None], int] = {}

    def _metered(self, model: Model, archive: DurableArchive | None) -> MeteredModel:
        async def record(use: ModelUse, day: str) -> None:
            if archive is not None and self.settings.ingest.enabled:
                archive.count(use, day)

        return MeteredModel(model, self._clock, record, used=self._extracted.use)

    def session(self, id: SessionId, state: SessionState | None = None) -> Session:  # noqa: A002
        """The session of this name; `state` continues one that was kept elsewhere."""
        check_session_name(id)
        if id.startswith(FILE_SESSIONS):  # every session of the space may read those
            raise ValueError(f"{FILE_SESSIONS}… names a memory file; name the session otherwise")
        known = self._sessions.get(id)
        if known is None or state is not None:
            self._check_open()  # those that there were can be looked at
            known = self._sessions[id] = Session(id, state)
        return known

    def end(self, session: Session | SessionId) -> None:
        """Let go of a session's handle; without an archive its state is gone with it."""
        name = session.id if isinstance(session, Session) else check_session_name(session)
        self._sessions.pop(name, None)
        self._compactor.part.forget(whose=name)

    def _held(self, session: Session | SessionId) -> Session:
        """The session that a call is about; RuntimeError where the engine is closed."""
        self._check_open()
        return session if isinstance(session, Session) else self.session(session)

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError(
                "this memory is closed: call `open_memory` again, and close it only when the last "
                "session is done"
            )

    async def prepare(
        self,
        session: Session | SessionId,
        request: bytes | bytearray | memoryview | Mapping[str, Any],
        *,
        format: FormatName | None = None,  # noqa: A002
    ) -> Context:
        """Shape one request: valid for its provider, within its window, explained."""
        held = self._held(session)
        request = checked_request(request)
        if format is not None and format not in CODECS:
            raise ValueError(f"format {format!r} is none of {', '.join(CODECS)}")
        await self._end_watched(held)
        context = await self._turn(held, request, format, may_compact=True)
        if context is None:
            assert held.last_path is not None
            trigger: Trigger = "mid-turn" if _is_mid_turn(held.last_path) else "threshold"
            done = await self._compactions.run(
                held, held.last_path, CompactionOrder(trigger=trigger)
            )
            context = await self._turn(held, request, format, may_compact=False, compacted=done)
            assert context is not None
        return context

    async def _turn(
        self,
        held: Session,
        request: bytes | Mapping[str, Any],
        format_name: FormatName | None,
        *,
        may_compact: bool,
        compacted: CompactionResult | None = None,
    ) -> Context | None:
        """One turn under the session's lock; None where a compaction has to come first."""
        async with held.lock:
            boundary = self._boundary()
            self._follow_files(boundary)
            facts, uses = self._extracted.told(), self._extracted.used()
            for line in facts:
                boundary.note("extract", "done", Reason(Cause.EXTRACTED, facts=line))
            if uses:
                boundary.note("jobs", "done", use_reason(uses))
            ended, held.compacted_meanwhile = held.compacted_meanwhile, None
            if compacted is None and ended is not None:
                outcome, how = compaction_line(ended)
                boundary.note("compact", outcome, Reason(Cause.IN_BACKGROUND, compaction=how))
            if compacted is not None:
                boundary.note("compact", *compaction_line(compacted))
            state = await self._loaded(held, boundary)
            path = await self._path(held, state, request, format_name, boundary)
            path.why_not_compact = self._compactor.why_not(state)
            if path.request.continues and path.why_not_compact is None:
                path.why_not_compact = Reason(Cause.PROVIDER_HOLDS)
            path.may_compact = may_compact and path.why_not_compact is None
            outgoing = await self._shape(path, held) if path.readable else None
            if path.wants_compaction:
                held.last_path, held.compacted_meanwhile = path, ended
                self._extracted.hear_again(facts, uses)
                return None
            self._tell_pause(held, path)
            if outgoing is None:
                outgoing = request
                path.pass_by(_size_chars(path.request, request))
            context = Context(
                request=outgoing,
                report=report_of(path, held.id),
                state=path.next_state(),
                recalled=recalled_of(path),
                compaction=compacted,
            )
            if held.state is not state:
                raise StaleSession(f"session {held.id!r} changed while it was prepared; try again")
            held.state = context.state
            if path.shaped and path.done is not None:
                held.last_path = path
                remember(
                    held.remembered,
                    path.request.format,
                    path.entries,
                    path.done,
                    path.composed,
                    LastView(entries=path.entries, edits=path.edits, view=path.view),
                )
                self._keep_turn(held, path, context)
                # Let the write begin: a task that never ran is dropped when the loop is closed.
                await asyncio.sleep(0)
            return context

    def _tell_pause(self, held: Session, path: TurnPath) -> None:
        """While the breaker pauses compactions, every report says so, and the log of each process
        once: the failures that opened it may be another process's."""
        why = path.why_not_compact
        if why is None or why.cause is not Cause.BREAKER_OPEN:
            return
        if not any(
            line.stage == "compact" and line.outcome == "skipped" for line in path.boundary.lines
        ):
            path.boundary.note("compact", "skipped", Reason(Cause.NO_COMPACTION, why=why))
        if not self._compactor.part.trouble(held.id):
            self._compactor.part.away(str(why), whose=held.id)

    def _follow_files(self, boundary: Boundary) -> None:
        """Memory files are looked at beside the turns; what is wrong with them is told."""
        if self._files is not None:
            self._files.wake()
            if trouble := self._files.trouble():
                boundary.note("ingest", "skipped", trouble)

    async def _loaded(self, held: Session, boundary: Boundary) -> SessionState:
        """The session's state, as it was left where the store knows it."""
        if self._stored is not None:
            known = await self._stored.load(held.id, held.state, held.keeping, boundary)
            if known.path is not held.state.path:  # what was worked out belongs to the other
                held.remembered, held.sent_messages = Remembered(), len(known.path)
            held.state = known
        return held.state

    def _keep_turn(self, held: Session, path: TurnPath, context: Context) -> None:
        held.sent_messages = len(context.state.path)
        if self._keeper is not None:
            self._keeper.keep_turn(
                path.request,
                context.report,
                context.state,
                held.keeping,
                now=path.now,
                as_it_came=context.request is path.request.body,
            )

    def _wake_jobs(self) -> None:
        if self._jobs is not None:
            self._jobs.wake()

    async def settle(self, seconds: float = 5.0, *, jobs: bool = False) -> int:
        """Wait until all that was said is in the store, but no longer than this.

        Returns how many batches still wait, in the spool or, where it takes none, in memory. With
        `jobs` also until what runs beside the turns has done what is due: vectors, facts.
        """
        self._check_open()
        for held in tuple(self._watched):
            await self._end_watched(held)
        if self._keeper is None:
            return 0
        begun = time.monotonic()
        await self._keeper.wait_for_all(seconds)
        waits = await self._keeper.archive.settle(max(0.0, seconds - (time.monotonic() - begun)))
        if jobs and self._jobs is not None:
            self._jobs.wake()
            await self._jobs.rest(max(0.0, seconds - (time.monotonic() - begun)))
        return waits

    async def close(self) -> None:
        """Wait for what is being written, stop the jobs, and close the store.

        What the store could not take stays in the spool and is written next time.
        """
        for held in tuple(self._watched):
            await self._end_watched(held)
        self._closed = True
        if self._files is not None:
            await self._files.close()
        await self._compactions.close()
        if self._jobs is not None:
            await self._jobs.close()
        if isinstance(self._recaller, MemoryRecaller):
            await self._recaller.close()
        if self._stored is not None:
            await self._stored.close()

    def __enter__(self) -> NoReturn:
        raise TypeError(
            "this memory is asynchronous: use `async with open_memory(...)`, or "
            "`with open_blocking_memory(...)` in code without an event loop"
        )

    def __exit__(self, *_: object) -> None:
        """Python asks for it before `__enter__` can say what to do."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _shape(self, path: TurnPath, held: Session) -> Any:
        """The shaped request, or None where it could not be shaped."""
        gate = None
        if self._keeper is not None:
            gate = Gate(keeper=self._keeper, session=held.id, keeping=held.keeping, now=path.now)
        if not await path.run(self._recaller, self.space, held.id, gate, free):
            return None
        return await path.boundary.run(
            "send",
            lambda: join_request(path.request, path.entries, path.view.rows),
            unchanged=None,
            reason=lambda _: Reason(Cause.SENT, messages=len(path.view.rows)),
        )

    async def compact(
        self,
        session: Session | SessionId,
        request: bytes | Mapping[str, Any] | None = None,
        *,
        instructions: str = "",
        trigger: Trigger = "manual",
        format: FormatName | None = None,  # noqa: A002
    ) -> CompactionResult:
        """Replace the past of a session by a summary, now.

        Starts from the last request that was prepared in this process, or from `request`.
        `instructions` say what to look after; they are used for this summary only. Never raises
        for what goes wrong: the result says how it ended, and the history stays where it failed.
        """
        held = self._held(session)
        path = held.last_path
        if request is not None:
            request = checked_request(request)
            async with held.lock:
                boundary = self._boundary()
                state = await self._loaded(held, boundary)
                path = await self._path(held, state, request, format, boundary)
                readable = path.readable and await path.stand()
            if not readable:
                path = None
        if path is None:
            why = Reason(Cause.NOTHING_TO_START_FROM)
            return CompactionResult(convergence="irreducible", reason=why, trigger=trigger)
        order = CompactionOrder(trigger=trigger, instructions=instructions)
        return await self._compactions.run(held, path, order)

    async def undo(self, session: Session | SessionId) -> UndoResult:
        """Show the session as before its last compaction; nothing is compacted by itself then
        until `compact` is called. Works on what the store knows, from any process."""
        held = self._held(session)
        async with held.lock:
            state = await self._loaded(held, self._boundary())
            return await self._compactions.undo(held, state)

    async def flushed(self, session: Session | SessionId) -> None:
        """The host has written its notes: no flush is due until after the next compaction, in
        any process."""
        held = self._held(session)
        async with held.lock:
            await self._compactions.flushed(held)

    async def facts(self, session: SessionId | None = None) -> FactBook:
        """The facts of this space: to list, add, correct and pin, and to ask where they came from.

        With a `session`, what it may see: its own and those of no session, unless `recall.scope`
        makes all sessions one memory.
        Under `ingest.enabled = false` they can be read. StoreError where nothing is stored, or
        the store cannot be opened.
        """
        self._check_open()
        if self._stored is None:
            raise StoreError("nothing is kept here, facts neither: set ingest.enabled = true")
        archive = self._stored.archive
        book = await asyncio.to_thread(_fact_book)  # rules of two languages take their time to load
        spool = await archive.spool()
        return book(
            await archive.store(),
            self.settings,
            self._clock,
            embedders=self._embedders,
            spools=() if spool is None else (spool,),
            cascades=self._cascades,
            forgotten=self._load_again,
            read_only=self._keeper is None,
            session=session,
        )

    def _load_again(self) -> None:
        """What was forgotten may be quoted in sessions that are in memory."""
        for held in self._sessions.values():
            held.keeping.load_again()

    def on(self, name: HookName, hook: Hook) -> Callable[[], None]:
        """Call `hook(event, context)` around compactions; what is returned stops it.

        `before_compaction` and `after_compaction` are told, `session_before_compact` may supply
        the summary, `flush_due` says that it is time to write notes. They run in parallel, may
        be async, and a hook that fails is noted and stops nothing.
        """
        return self._hooks.on(name, hook)

    async def observe(self, session: Session | SessionId, reply: Any) -> Observation:
        """Learn from a reply: its usage calibrates the counter, an overflow the window.

        `reply` is the provider's reply or its error: a mapping, a client's object, bytes, the
        exception that the client raised, or the text of one that names the window. Of a reply that
        was streamed, the list of its events, or one of them that tells its usage; `watch` does
        that by itself. TypeError for what can be none of these; what a proxy answers in a
        provider's place is told as a failure.
        """
        held = self._held(session)
        check_reply(reply)
        async with held.lock:
            boundary = self._boundary()
            given = reply
            if isinstance(reply, list | tuple):
                events, none = reply, StreamedReply()
                reply = await boundary.run(
                    "read",
                    lambda: StreamedReply(events),
                    unchanged=none,
                    reason=lambda _: Reason(Cause.USAGE_READ),
                )
            state = held.state
            if state.sent_at is None:  # another process prepared what this is the reply to
                state = await self._loaded(held, boundary)
            if not state.turn:
                boundary.note("read", "failed", Reason(Cause.NEVER_PREPARED))
            nothing: tuple[Usage | None, Overflow | None] = (None, None)
            usage, overflow = await boundary.run(
                "read",
                lambda: learned_from(reply, self._recognise_overflow),
                unchanged=nothing,
                reason=lambda _: Reason(Cause.USAGE_READ),
            )
            if overflow is None and not holds_reply(given):
                kind = type(given).__name__
                boundary.note("read", "failed", Reason(Cause.NOT_A_REPLY, kind=kind))
            doubt = None
            if overflow is not None:
                sent = () if held.last_path is None else held.last_path.request.messages
                doubt = doubt_limit(state, overflow, sent)
                state = state if doubt is not None else after_overflow(state, overflow)
            if usage and state.sent_estimate_tokens and self.settings.tokens.calibrate:
                learned = state.calibration.learn(
                    estimated_tokens=state.sent_estimate_tokens,
                    reported_tokens=usage.input_tokens,
                )
                state = replace(state, calibration=learned)
            held.state = state
            entries, archived = await self._keep_reply(held, reply, boundary)
            due = self._due(held, usage, sum(entry.tokens for entry in entries))
            self._note_beside(held, boundary)
            held.observation = Observation(
                usage=usage,
                calibration_ratio=state.calibration.ratio,
                learned_window_tokens=state.learned_window_tokens,
                doubted_limit=doubt,
                failures=boundary.failures,
                due=due.due,
                due_reason=due.reason,
                flush_first=due.flush_first,
                archived=archived,
                broken_off=isinstance(reply, StreamedReply) and reply.broken_off,
            )
            return held.observation

    def watch(self, session: Session | SessionId, stream: StreamT) -> StreamT:
        """A stream to read in place of `stream`: what it gives is observed when it ends.

        `stream` is what a client gives that streams: an asynchronous or a plain iterator, or the
        manager of one. Every event goes on at once and as it is, and all else that the client's
        stream offers is there. A reply that ends early (by an error, by leaving the loop, by
        closing) is kept as far as it came. What was learned is in `session(...).observation`.
        """
        return self._watch(session, stream, plain=False)

    def _watch(self, session: Session | SessionId, stream: StreamT, *, plain: bool) -> StreamT:
        """As `watch`; the blocking façade reads by `for` what can be read both ways."""
        held = self._held(session)

        async def observe(reply: StreamedReply) -> None:
            if self._watched.get(held) is watching:
                del self._watched[held]
            await self.observe(held, reply)
            self._watch_part.back()

        watching = Watching(observe, self._watch_part.away)
        read = watched(stream, watching, plain=plain)
        self._watched[held] = watching
        return cast(StreamT, read)

    async def _end_watched(self, held: Session) -> None:
        """A stream that nobody reads on is observed before anything else is asked."""
        watching = self._watched.pop(held, None)
        if watching is not None:
            await watching.ended()

    def _note_beside(self, held: Session, boundary: Boundary) -> None:
        """What goes wrong beside the turns and bears on this session."""
        if self._keeper is not None:
            self._keeper.note_trouble(boundary)
        failed, held.compaction_failure = held.compaction_failure, None
        if failed is not None:
            boundary.note("compact", "failed", failed)
        if self._jobs is not None and (said := self._jobs.trouble()):
            boundary.note("jobs", "failed", Reason(Cause.ERROR, error=said))

    def _due(self, held: Session, usage: Usage | None, reply_tokens: int) -> TriggerResult:
        """What the window asks for after a reply; in the background, unless the host does it."""
        path, state = held.last_path, held.state
        used = None
        if path is None or newest_cut(state.edits) != newest_cut(path.edits):
            pass  # the counts are those of a request from before the cut
        elif usage is not None:
            used = usage.input_tokens + usage.output_tokens
        elif state.sent_estimate_tokens:
            used = path.calibrated(state.sent_estimate_tokens + reply_tokens)
        if path is None:
            return TriggerResult(due="nothing", reason=Reason(Cause.NOTHING_PREPARED))
        nobody = self._compactor.nobody
        if nobody is not None:
            return TriggerResult(due="nothing", reason=nobody)
        settings = self.settings.compaction
        due = what_is_due(
            used_tokens=used,
            limits=path.limits,
            settings=settings,
            compactions=state.compactions,
            flushed_in=state.flushed_in,
            paused=state.compaction_paused,
            breaker_open=breaker_is_open(state.breaker, settings, now=self._clock.now()),
        )
        if self._in_background and due.due != "nothing":
            self._compactions.ahead_of_need(held, path, due)
        return due

    async def _keep_reply(
        self, held: Session, reply: Any, boundary: Boundary
    ) -> tuple[tuple[Entry, ...], Where | None]:
        """Archive what the model answered, behind the history it answered to."""
        none: tuple[Entry, ...] = ()
        sent = held.state.path[: held.sent_messages]
        entries = await boundary.run(
            "read",
            lambda: replied(reply, held.state.sent_format, sent, self._secret, self._weigher),
            unchanged=none,
            reason=lambda found: Reason(Cause.REPLY_READ, messages=len(found)),
        )
        if self._keeper is None:
            return entries, None
        if entries:
            held.state = followed_by(held.state, entries, held.sent_messages)
            self._keeper.keep_reply(held.id, entries, held.keeping, now=self._clock.now())
        seconds = self.settings.turn.deadline_seconds
        done = await self._keeper.wait(held.keeping, seconds)
        boundary.lines.extend(held.keeping.trouble)
        if not done:
            boundary.note("ingest", "late", Reason(Cause.WRITE_GOES_ON, seconds=seconds))
        return entries, held.keeping.where if done else "nowhere"

    def _boundary(self) -> Boundary:
        turn = self.settings.turn
        return Boundary(
            turn_seconds=turn.deadline_seconds,
            stage_seconds=turn.stage_deadline_seconds,
            off_the_loop=self._off_the_loop,
        )

    async def _path(
        self,
        held: Session,
        state: SessionState,
        given: bytes | Mapping[str, Any],
        format_name: FormatName | None,
        boundary: Boundary,
    ) -> TurnPath:
        nothing = Request(format=format_name or "anthropic", messages=(), field="")
        request, fixed_tokens = await boundary.run(
            "read",
            lambda: self._split(given, format_name),
            unchanged=(nothing, 0),
            reason=lambda split: Reason(
                Cause.REQUEST_READ, messages=len(split[0].messages), format=split[0].format
            ),
        )
        learned = state.learned_window_tokens
        if request.model != state.learned_for_model:
            learned = None
        if learned is None and self._model is not None and request.model == self._model.name:
            learned = self._model.window_tokens
        window = window_of(request.model, self.settings, learned_tokens=learned)
        if held.remembered.format != request.format or request.continues:
            held.remembered = Remembered()
        return TurnPath(
            settings=self.settings,
            state=state,
            readable=request is not nothing,
            request=request,
            codec=CODECS[request.format],
            limits=limits_of(window.tokens, self.settings, output_tokens=request.output_tokens),
            window_source=window.source,
            weigher=self._weigher,
            boundary=boundary,
            remembered=held.remembered,
            secret=self._secret,
            now=self._clock.now(),
            number=state.turn + 1,
            turn=requests_of(state) + 1,
            fixed_tokens=fixed_tokens,
            composed=held.remembered.composed,
            mask=TextMask(self.settings.redaction, held.keeping.secrets),
            forgotten=held.keeping.forgotten,
        )

    def _split(
        self, given: bytes | Mapping[str, Any], format_name: FormatName | None
    ) -> tuple[Request, int]:
        request = split_request(given, format_name)
        return request, self._fixed_tokens(request)

    def _fixed_tokens(self, request: Request) -> int:
        """System prompt and tool schemas, counted once for as long as they stay the same."""
        known = (request.system, request.tools)
        if known not in self._fixed:
            if len(self._fixed) >= KNOWN_PROMPTS:
                self._fixed.clear()
            texts = [raw.decode("utf-8", "replace") for raw in known if raw]
            self._fixed[known] = sum(self._weigher.text(text) for text in texts)
        return self._fixed[known]


def _fact_book() -> type[FactBook]:
    from recollect.engine.facts.book import FactBook

    return FactBook


def _is_mid_turn(path: TurnPath) -> bool:
    """Whether tools were just run: the user has not spoken since."""
    return bool(path.entries) and bool(path.entries[-1].results)


def _size_chars(request: Request, given: bytes | Mapping[str, Any]) -> int:
    """How large a request is that nobody could read."""
    if isinstance(given, bytes):
        return len(given)
    return sum(len(raw) for raw in request.messages)
