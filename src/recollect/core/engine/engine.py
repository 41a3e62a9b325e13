"""The engine: one request in, one request out, and a report of what was done.

Sessions are values; the engine commits them by compare-and-set and serialises the turns of
one session. It never raises for what a message holds: a request that cannot be shaped goes
out as it came, and the report says so.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar, cast

from recollect.core.boundary import Boundary, Failure, Part, SystemClock, attempted
from recollect.core.compaction.cut import UndoResult
from recollect.core.engine.archive import DurableArchive
from recollect.core.engine.background import BackgroundNotes, MeteredModel, use_reason
from recollect.core.engine.batch_moment import Durability
from recollect.core.engine.compact import CompactionOrder, Compactor
from recollect.core.engine.heard_replies import MarkReply
from recollect.core.engine.hooks import Hook, HookName, Hooks
from recollect.core.engine.keeper import HandedOver, IngestCounts, SessionKeeper
from recollect.core.engine.observe import Observer, overtaken
from recollect.core.engine.prepare import TurnResult, begin, context_of, prepare_turn
from recollect.core.engine.recaller import MemoryRecaller
from recollect.core.engine.schedule import Compactions
from recollect.core.engine.session import (
    Context,
    Observation,
    Session,
    check_format,
    check_order,
    check_reply,
    check_session_name,
    check_space_name,
    check_state,
    checked_messages,
    checked_request,
    listed_message,
    load,
)
from recollect.core.engine.told_answers import ToldAnswers
from recollect.core.engine.watch import Watching, watched
from recollect.core.formats.codec import CODECS, format_of
from recollect.core.formats.json_text import encode
from recollect.core.formats.replies import StreamedReply
from recollect.core.formats.request import split_request
from recollect.core.ports import (
    Clock,
    Embedder,
    Model,
    Recaller,
    RecogniseOverflow,
    Store,
    TokenCounter,
)
from recollect.core.rules.budget import limits_beside, limits_of, window_of
from recollect.core.rules.identity import ROOT, SealSecret, batch_root, chain, sealed, space_secret
from recollect.core.rules.message_redaction import TextMask
from recollect.core.rules.tokens import Weigher
from recollect.core.transfer.memory_files import Following
from recollect.core.turn.align import LastRequest, enter, read, remember
from recollect.core.turn.apply import LastView
from recollect.core.turn.draft import Draft, TurnInput
from recollect.core.turn.query import last_turn
from recollect.core.upkeep.jobs import BackgroundJobs
from recollect.core.values.compaction import CompactionResult, Trigger
from recollect.core.values.history import Entry, SessionId, SessionState, SpaceId, requests_of
from recollect.core.values.message import MessageId
from recollect.core.values.model import FormatName, ModelUse, Request
from recollect.core.values.reason import Cause, Reason
from recollect.core.values.recall import Recalled, RecallRequest
from recollect.core.values.report import Outcome
from recollect.core.values.segment import SegmentId, StoredMessage
from recollect.core.values.upkeep import Certificate, ForgetOrder, SessionSummary, Stats
from recollect.errors import StaleSession, StoreError, StoreUnavailable
from recollect.system.config import Settings

if TYPE_CHECKING:
    from recollect.core.engine.facts.book import FactBook
    from recollect.core.upkeep.forget import Cascade

StreamT = TypeVar("StreamT")
StoredT = TypeVar("StoredT")

KNOWN_PROMPTS = 64
"""How many pairs of system prompt and tools are counted only once."""
NEW_BYTES = 65_536
WHOLE_BYTES = 1_500_000
STANDING_EDITS = 32
"""A request that adds no more than this to the session's last one, is no larger, and stands under
so few edits is shaped in a few milliseconds: a server does that in place, too, since the way into
a thread and back takes longer on a busy machine."""
FEW_EVENTS = 100
_SAME_RATIO = 0.9
"""So much of the last request, from its beginning, has to be there again: clients move their cache
marks near its end."""


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
        beside: BackgroundNotes | None = None,
        model: Model | None = None,
        critical_rules: Callable[[], str] = lambda: "",
        workspace: str | None = None,
        compact_in_background: bool = True,
        embedders: Sequence[Embedder] = (),
        cascades: Sequence[Cascade] = (),
        deployment_secret: bytes = b"",
        seal: SealSecret | None = None,
        off_the_loop: bool = False,
        reads_facts: bool = False,
        delete_stored: Callable[[], Awaitable[Certificate]] | None = None,
    ) -> None:
        """`off_the_loop` runs pure stages in a thread, as servers want it. `reads_facts` queues
        jobs that read sessions for facts. `delete_stored` removes all that is stored of the space.

        Without an `archive` nothing is kept, without a `model` nothing is compacted;
        `open_memory` gives it both.
        """
        self.settings = settings or Settings()
        self.space = check_space_name(space)
        self._secret = space_secret(space, deployment_secret)
        own = os.urandom(32)  # then seals hold in this engine alone
        self._seal: SealSecret = seal or (lambda: own)
        self._jobs, self._files = jobs, files
        self._embedders = tuple(embedder.name for embedder in embedders)
        self._cascades = tuple(cascades)
        self._delete_stored = delete_stored
        self._beside = beside or BackgroundNotes()
        self._clock = clock or SystemClock()
        self._recaller, self._model = recaller, model
        self._hooks = Hooks()
        self._off_the_loop = off_the_loop
        self._reads_facts = reads_facts
        self._stored = None if archive is None else self._reader(archive, embedders)
        """Reads what is stored, whether or not anything new may be kept."""
        self._keeper = self._stored if self.settings.ingest.enabled else None
        count = counter.count_text if counter else None
        self._weigher = Weigher(self.settings.tokens.counter, count=count)
        """Counts tokens as reports do, before calibration."""
        self._compactor = Compactor(
            self.settings,
            space=space,
            model=None if model is None else self._metered(model, archive),
            hooks=self._hooks,
            keeper=self._keeper,
            recaller=recaller if self.settings.recall.enabled else None,
            clock=self._clock,
            critical_rules=critical_rules,
            workspace=workspace,
        )
        self._compactions = Compactions(
            self._compactor, self._hooks, self._keeper, self._clock, reader=self._stored
        )
        self._observer = Observer(
            self.settings,
            secret=self._secret,
            weigher=self._weigher,
            clock=self._clock,
            reader=self._stored,
            keeper=self._keeper,
            compactor=self._compactor,
            compactions=self._compactions,
            in_background=compact_in_background and self.settings.compaction.background,
            jobs=jobs,
            recognise_overflow=recognise_overflow,
        )
        self._sessions: dict[SessionId, Session] = {}
        self._watched: dict[Session, Watching] = {}
        self._watch_part = Part("watched stream")
        self._closed = False
        self._told = ToldAnswers(self._secret, self._seal)
        self._summary_model = "" if self._model is None else self._model.name
        """The name of the model that summarises; empty where none does."""
        self._fixed: dict[tuple[bytes | None, bytes | None], int] = {}

    def _reader(self, archive: DurableArchive, embedders: Sequence[Embedder]) -> SessionKeeper:
        archive.jobs_due = self._wake_jobs
        return SessionKeeper(
            archive,
            self.settings,
            embedders=embedders,
            off_the_loop=self._off_the_loop,
            reads_facts=self._reads_facts,
        )

    def _metered(self, model: Model, archive: DurableArchive | None) -> MeteredModel:
        async def record(use: ModelUse, day: str) -> None:
            if archive is not None and self.settings.ingest.enabled:
                archive.count(use, day)

        return MeteredModel(model, self._clock, record, used=self._beside.add_use)

    def session(self, id: SessionId, state: SessionState | None = None) -> Session:  # noqa: A002
        """The session of this name; `state` continues one that was kept elsewhere."""
        check_session_name(id)
        check_state(state)
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

    def _abandon(self, session: SessionId) -> None:
        """Let go of a session whose request was not answered, and cut off what is written of it and
        the compaction that it waited for:
        another process may go on with it, and what is here would be older than what is stored."""
        handle = self._sessions.get(session)
        if handle is not None:
            self.end(handle)
            self._compactions.cancel(handle)
            if self._keeper is not None:
                self._keeper.abandon(handle.keeping)

    async def _hand_over(
        self, session: Session | SessionId, seconds: float | None = None
    ) -> HandedOver | None:
        """Let go of a session when all of it is kept, so that any process may go on with it.

        Waits `seconds`, else `turn.deadline_seconds`. Where it is, at worst: in the store, the
        spool or nowhere yet; "stale" where another process went on with the session meanwhile, so
        that its last turn was left out; None where no memory is kept.
        """
        handle = self._handle(session)
        async with handle.lock:
            where: HandedOver | None = None
            if self._keeper is not None:
                where = await self._keeper.hand_over(
                    handle.id,
                    handle.state,
                    handle.keeping,
                    seconds=self.settings.turn.deadline_seconds if seconds is None else seconds,
                    now=self._clock.now(),
                    learned=handle.learned,
                )
            if self._sessions.get(handle.id) is handle:
                self.end(handle)
            return where

    async def ingest(
        self,
        session: SessionId,
        messages: Sequence[bytes | Mapping[str, Any]],
        *,
        format: FormatName | None = None,  # noqa: A002
        batch: str | None = None,
        said_at: float | None = None,
    ) -> IngestCounts:
        """Keep messages that come outside of a turn, each a mapping of a provider's wire format or
        its JSON as bytes.

        Without `batch` they are the session's history from its beginning, as a request would hold
        it: sent again, or longer, only what is new is stored. With one they are a piece of their
        own, and the same piece again changes nothing. StoreUnavailable where the store did not
        take them.
        """
        self._check_open()
        if self._keeper is None:
            raise StoreError("nothing is kept here: set ingest.enabled = true")
        check_session_name(session)
        given = checked_messages(messages)
        check_format(format)
        if said_at is not None and not isfinite(said_at):
            raise ValueError("said_at is a time in seconds since the epoch")

        def entered() -> list[Entry]:
            raws = [one if isinstance(one, bytes) else encode(one) for one in given]
            codec = CODECS[format or format_of(raws)]
            key = ROOT if batch is None else batch_root(batch, self._secret)
            entries = []
            for reading in read(
                raws, codec, self._secret, self._weigher, LastRequest(), seal=self._seal
            ).fresh:
                key = chain(key, reading.id)
                entries.append(enter(reading, key))
            return entries

        now = self._clock.now()
        entries = await asyncio.to_thread(entered)
        return await self._keeper.ingest(
            session, entries, said_at=now if said_at is None else min(said_at, now), now=now
        )

    def _handle(self, session: Session | SessionId) -> Session:
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
        betas: Sequence[str] = (),
        window_tokens: int | None = None,
    ) -> Context:
        """Shape one request: valid for its provider, within its window, explained.

        `betas` are the provider's beta features that the request is sent with, where they stand in
        its headers: what they allow is not repaired. `window_tokens` is the window of this request,
        from a host that knows it, in place of the setting.
        """
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
            # Tools were just run where the newest message holds results: nobody has spoken since.
            mid_turn = bool(draft.entries) and bool(last_turn(draft.entries).results)
            order = CompactionOrder(trigger="mid-turn" if mid_turn else "threshold")
            done = await self._compactions.run(handle, draft, order)
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
        """What `prepare` would send, leaving no trace: nothing is kept, compacted or committed.

        For requests beside the conversation that carry its history: a count of tokens, a summary
        that the client writes itself (`recall=False`). `window_tokens` as for `prepare`.
        """
        handle = self._handle(session)
        request = checked_request(request)
        async with handle.lock:
            boundary = self._boundary(is_quick=_is_quick(handle, request))
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
            boundary = self._boundary(is_quick=_is_quick(handle, request))
            self._follow_files(boundary)
            facts, uses = self._beside.take()
            for line in facts:
                boundary.note("extract", "done", Reason(Cause.EXTRACTED, facts=line))
            if uses:
                boundary.note("jobs", "done", use_reason(uses))
            ended, handle.compacted_meanwhile = handle.compacted_meanwhile, None
            if compacted is not None:
                boundary.note("compact", *_compaction_line(compacted))
            elif ended is not None:
                outcome, how = _compaction_line(ended)
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
                    f"session {handle.id!r} changed while it was prepared; try again"
                )
            handle.state = context.state
            if done.draft is not None:
                self._go_on(handle, done.draft, context)
                # Let the write begin: a task that never ran is dropped when the loop is closed.
                await asyncio.sleep(0)
            return context

    def _go_on(self, handle: Session, draft: Draft, context: Context) -> None:
        given = draft.given
        handle.last_draft = replace(draft, committed=True)
        handle.remembered = remember(
            given.remembered,
            given.request.format,
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
        if why is None or why.cause is not Cause.BREAKER_OPEN:
            return
        if not done.told_why_not_compact:
            boundary.note("compact", "skipped", Reason(Cause.NO_COMPACTION, why=why))
        if not self._compactor.part.trouble(given.session):
            self._compactor.part.away(str(why), whose=given.session)

    def _follow_files(self, boundary: Boundary) -> None:
        if self._files is not None:
            self._files.wake()
            if trouble := self._files.trouble():
                boundary.note("ingest", "skipped", trouble)

    async def _read_files(self) -> None:
        if self._files is not None:
            await self._files.first_look()

    def _wake_jobs(self, due_at: float | None = None) -> None:
        if self._jobs is not None:
            self._jobs.wake(0.0 if due_at is None else max(0.0, due_at - self._clock.now()))

    async def settle(self, seconds: float = 5.0, *, jobs: bool = False) -> int:
        """Wait until all that was said is in the store, but no longer than this.

        Returns how many batches still wait, in the spool or, where it takes none, in memory. With
        `jobs` also until what runs beside the turns has done what is due: vectors, facts.
        """
        self._check_open()
        for handle in tuple(self._watched):
            await self._end_watched(handle)
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
        for handle in tuple(self._watched):
            await self._end_watched(handle)
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
        """Replace the past of a session by a summary, now.

        Starts from the last request that was prepared in this process, or from `request`, of which
        `window_tokens` is the window.
        `instructions` say what to look after; they are used for this summary only. Never raises
        for what goes wrong: the result says how it ended, and the history stays where it failed.
        """
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
        return await self._compactions.run(handle, draft, order)

    async def undo(self, session: Session | SessionId) -> UndoResult:
        """Show the session as before its last compaction; nothing is compacted by itself then
        until `compact` is called. Works on what the store knows, from any process."""
        handle = self._handle(session)
        async with handle.lock:
            state = await load(handle, self._stored, self._boundary())
            return await self._compactions.undo(handle, state)

    async def flushed(self, session: Session | SessionId) -> None:
        """The host has written its notes: no flush is due until after the next compaction, in
        any process."""
        handle = self._handle(session)
        async with handle.lock:
            await self._compactions.flushed(handle)

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
        book = await asyncio.to_thread(_fact_book)  # its imports take their time
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

    async def sessions(self) -> tuple[SessionSummary, ...]:
        """List the sessions that are stored, oldest first; memory files are listed as `file:…`."""
        await self._let_arrive()
        return await self._look_up(lambda store: store.sessions())

    async def messages(
        self,
        session: Session | SessionId,
        *,
        after: int = 0,
        limit: int = 100,
        newest_first: bool = False,
    ) -> tuple[StoredMessage, ...]:
        """List a session's stored messages in order, `limit` of them.

        `after` is the `place` of the last message you have: the list continues behind it. With
        `newest_first` it goes back in time, and `after` is the place to stay before. Messages that
        were forgotten, or left out as a copy of a recalled block, are not listed.
        """
        name = session.id if isinstance(session, Session) else check_session_name(session)
        if limit < 1:
            raise ValueError(f"limit must be at least 1, not {limit}")
        await self._let_arrive()
        page = await self._look_up(
            lambda store: store.page(
                after=after, limit=limit, session=name, descending=newest_first
            )
        )
        return tuple(listed_message(one) for one in page)

    async def stats(self) -> Stats:
        """Count what the space holds: messages, passages, vectors, facts, sessions, bytes."""
        await self._let_arrive()
        return await self._look_up(lambda store: store.stats())

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
        """Forget permanently, in the store, the spool and the caches of this machine.

        `messages` and `facts` are ids; `matching` means every message and fact that contains this
        text, `pattern` every one that a regular expression matches. `sessions`, `said_after` and
        `said_before` mean the messages of these sessions and times; given together, those that
        all of them name. A message that was forgotten stays out if a client sends it again. The
        certificate counts what was removed, and names what it cannot reach.
        """
        for name, given in (("messages", messages), ("sessions", sessions), ("facts", facts)):
            if isinstance(given, str):  # each of its characters would name something
                raise TypeError(f"{name} must be a list, not a string: pass {name}=[{given!r}]")
        order = ForgetOrder(
            at=self._clock.now(),
            segments=tuple(SegmentId(one) for one in messages),
            sessions=tuple(sessions),
            matching=matching,
            pattern=pattern,
            said_after=said_after,
            said_before=said_before,
        )
        check_order(order, facts)
        book = await self.facts()
        if facts:
            named = await book.order_to_forget(facts)
            order = replace(order, facts=named.facts)
        if await self._let_arrive():
            raise StoreUnavailable("messages are waiting for the store: try again when it is back")
        return await book.forget(order)

    async def delete_space(self) -> Certificate:
        """Delete the whole space, as when a user leaves: all that its store holds, what waits in
        the spool of this machine, and cached vectors. Closes this memory.

        Other processes must have closed the space. On PostgreSQL, space names of tenants are the
        service's to delete.
        """
        self._check_open()
        if self._delete_stored is None:
            raise StoreError(
                "this memory does not own its store: delete the space where the store was opened"
            )
        await self.close()
        return await self._delete_stored()

    async def _let_arrive(self) -> int:
        return await self.settle(self.settings.turn.deadline_seconds)

    async def _look_up(self, question: Callable[[Store], Awaitable[StoredT]]) -> StoredT:
        self._check_open()
        if self._stored is None:
            raise StoreError("nothing is kept here: set ingest.enabled = true")
        answer = await self._stored.archive.ask(question)
        if isinstance(answer, Failure):
            raise StoreError(f"memory could not be asked: {answer.said}")
        return answer

    async def search(
        self,
        query: str,
        *,
        session: SessionId | None = None,
        budget_tokens: int = 2_000,
        said_after: float | None = None,
        said_before: float | None = None,
    ) -> Recalled:
        """What is found for these words, packed into the budget, best first; there is no gate.

        With a `session`, what it may see, unless `recall.scope` makes all sessions one memory.
        """
        self._check_open()
        if self._recaller is None:
            raise StoreError("nothing is kept here, so nothing can be searched")
        await self._read_files()
        only = None if self.settings.recall.scope == "space" else session
        request = RecallRequest(
            space=self.space,
            session=only or "",
            query=query,
            newest=query,
            scope="space" if only is None else "session",
            now=self._clock.now(),
            budget_tokens=budget_tokens,
            count_tokens=self._weigher.text,
            asks="past",
            on_purpose=True,
            said_after=said_after,
            said_before=said_before,
        )
        return await self._recaller.recall(request)

    def _tell(self, text: str, quotes: Sequence[MessageId]) -> str:
        """A memory tool answers this: where it comes back as a result, it is known as that."""
        text = sealed(text, self._seal())
        self._told.tell(text, quotes)
        return text

    async def _keep_told(self) -> None:
        if self._keeper is not None:
            await attempted(self._told.keep(self._keeper.archive, now=self._clock.now()))

    def _load_again(self) -> None:
        for handle in self._sessions.values():
            handle.keeping.load_again()

    def on(self, name: HookName, hook: Hook) -> Callable[[], None]:
        """Call `hook(event, context)` around compactions; what is returned stops it.

        `before_compaction` and `after_compaction` are told, `session_before_compact` may supply
        the summary, `flush_due` says that it is time to write notes. They run in parallel, may
        be async, and a hook that fails is noted and stops nothing.
        """
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
        """Learn from a reply: its usage calibrates the counter, an overflow the window.

        `reply` is the provider's reply or its error: a mapping, a client's object, bytes, the
        exception that the client raised, or the text of one that names the window. Of a reply that
        was streamed, the list of its events, or one of them that tells its usage; `watch` does
        that by itself. TypeError for what can be none of these; what a proxy answers in a
        provider's place is told as a failure.

        `turn` names the request that it answers (`context.report.turn`), where several of a session
        may be under way: a reply to another than the last one is not kept, since the client sends
        it again, and teaches nothing of the last one's size. One that was never prepared is a
        failure of the observation.
        It returns when what was said is kept, within `turn.deadline_seconds`; without `wait` when
        the reply was read: keeping goes on, and the next turn's report tells what went wrong.
        `mark` makes, of the messages of a whole reply, the marks under which `find_sessions`
        finds this session again.
        """
        handle = self._handle(session)
        check_reply(reply)
        async with handle.lock:
            boundary = self._boundary(is_quick=_is_short(reply))
            if turn is not None:
                last = requests_of(await load(handle, self._stored, boundary))  # of any process
                if turn > last and not boundary.failures:
                    unknown = Reason(Cause.NO_SUCH_TURN, turn=turn, last=last)
                    boundary.note("read", "failed", unknown)
                if turn != last:
                    return overtaken(handle.state, reply, boundary.failures)
            handle.observation = await self._observer.observe(
                handle, reply, boundary, wait=wait, mark=mark
            )
            handle.learned = True
            return handle.observation

    def watch(self, session: Session | SessionId, stream: StreamT) -> StreamT:
        """A stream to read in place of `stream`: what it gives is observed when it ends.

        `stream` is what a client gives that streams: an asynchronous or a plain iterator, or the
        manager of one. Every event goes on at once and as it is, and all else that the client's
        stream offers is there. A reply that ends early (by an error, by leaving the loop, by
        closing) is kept as far as it came. What was learned is in `session(...).observation`.
        """
        return self._watch(session, stream, plain=False)

    def _watch(self, session: Session | SessionId, stream: StreamT, *, plain: bool) -> StreamT:
        handle = self._handle(session)

        async def observe(reply: StreamedReply) -> None:
            if self._watched.get(handle) is watching:
                del self._watched[handle]
            await self.observe(handle, reply)
            self._watch_part.back()

        watching = Watching(observe, self._watch_part.away)
        read = watched(stream, watching, plain=plain)
        self._watched[handle] = watching
        return cast(StreamT, read)

    async def _end_watched(self, handle: Session) -> None:
        """A stream that nobody reads on is observed before anything else is asked."""
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
        given: bytes | Mapping[str, Any],
        format_name: FormatName | None,
        boundary: Boundary,
        betas: Sequence[str],
        window_tokens: int | None,
    ) -> TurnInput:
        nothing = Request(format=format_name or "anthropic", messages=(), field="")
        request, fixed_tokens = await boundary.run(
            "read",
            lambda: self._split(given, format_name, betas),
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
        settings = self.settings
        if window_tokens is not None:
            settings = replace(settings, window_tokens=window_tokens)
        window = window_of(request.model, settings, learned_tokens=learned)
        limits = limits_of(window.tokens, self.settings, output_tokens=request.output_tokens)
        fixed = fixed_tokens
        if self.settings.tokens.calibrate:
            fixed = state.calibration.apply(fixed_tokens)
        if fixed >= limits.available_tokens and window.source != "provider":
            limits, room = limits_beside(
                fixed, window.tokens, self.settings, output_tokens=request.output_tokens
            )
            told = Reason(Cause.PROMPT_FILLS, tokens=fixed, window=window.tokens, room=room)
            boundary.note("read", "done", told)
        if handle.remembered.format != request.format or request.continues:
            handle.remembered = LastRequest()
        if self._stored is not None:
            looking = self._told.look_for(request, handle.remembered, self._stored.archive)
            await attempted(looking)
        return TurnInput(
            settings=self.settings,
            space=self.space,
            session=handle.id,
            state=state,
            readable=request is not nothing,
            request=request,
            fixed_tokens=fixed_tokens,
            limits=limits,
            window_source=window.source,
            weigher=self._weigher,
            secret=self._secret,
            now=self._clock.now(),
            mask=TextMask(self.settings.redaction, handle.keeping.secrets),
            forgotten=handle.keeping.forgotten,
            told=self._told.marks,
            seal=self._seal,
            remembered=handle.remembered,
        )

    def _split(
        self, given: bytes | Mapping[str, Any], format_name: FormatName | None, betas: Sequence[str]
    ) -> tuple[Request, int]:
        request = split_request(given, format_name, betas=betas)
        return request, self._fixed_tokens(request)

    def _fixed_tokens(self, request: Request) -> int:
        known = (request.system, request.tools)
        if known not in self._fixed:
            if len(self._fixed) >= KNOWN_PROMPTS:
                self._fixed.clear()
            texts = [raw.decode("utf-8", "replace") for raw in known if raw]
            self._fixed[known] = sum(self._weigher.text(text) for text in texts)
        return self._fixed[known]


def _is_quick(handle: Session, request: bytes | Mapping[str, Any]) -> bool:
    if not isinstance(request, bytes) or len(handle.state.edits) > STANDING_EDITS:
        return False
    if len(request) <= NEW_BYTES:
        return True
    draft = handle.last_draft
    last = None if draft is None else draft.given.request.body
    if last is None or len(request) > WHOLE_BYTES or len(request) - len(last) > NEW_BYTES:
        return False
    return request.startswith(last[: int(len(last) * _SAME_RATIO)])


def _is_short(reply: Any) -> bool:
    if isinstance(reply, bytes | str):
        return len(reply) <= NEW_BYTES
    return isinstance(reply, list | tuple) and len(reply) <= FEW_EVENTS


def _fact_book() -> type[FactBook]:
    from recollect.core.engine.facts.book import FactBook

    return FactBook


def _compaction_line(done: CompactionResult) -> tuple[Outcome, Reason]:
    if done.compacted:
        return "done", Reason(
            Cause.COMPACTED,
            why=done.reason,
            before=done.tokens_before,
            after=done.tokens_after,
            seconds=done.seconds,
        )
    if done.convergence == "failed":
        return "failed", Reason(Cause.NOT_COMPACTED, why=done.reason)
    return "nothing", Reason(Cause.IRREDUCIBLE, why=done.reason)
