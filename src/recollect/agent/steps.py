"""The steps of a turn: one reply with its recovery, and what the window asks for behind it.

Owns how the history, the engine and the model meet. A reply is recorded before anything is done
about it. A reply that breaks off, or a model that lacks its extra, is a value, never an exception;
`abort` ends the stream and its connection at once. A request is tried again at most once, and only
for its size: the engine learns the window and compacts, preparing again shortens what is too long.
If it fails again the history is as it was and the error says what can be done. A flush or a
compaction that fails changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from typing import Any, TypeVar

from recollect.adapters.session.workspace import LoadedWorkspace, load_workspace
from recollect.agent.conversation import (
    SPENT,
    Conversation,
    SidePurpose,
    first_kept_entry,
    unrecorded,
)
from recollect.agent.durably import durably
from recollect.agent.events import (
    AgentEvent,
    Compacted,
    Failed,
    FailureKind,
    Flushed,
    Prepared,
    Replied,
    Said,
    Thought,
    Told,
    UpkeepBegan,
    Withdrawn,
)
from recollect.agent.flush import FlushOrder, SilentFilter, flush
from recollect.agent.prompt import is_answered, system_prompt
from recollect.agent.request import RequestMade, Shape, request_body
from recollect.agent.tools.confine import ToolScope
from recollect.agent.tools.outcome import Tool
from recollect.core.engine.engine import Engine
from recollect.core.engine.session import Context, Observation
from recollect.core.formats.pi_session import PiShown
from recollect.core.formats.translate import (
    REFUSED,
    Speaker,
    WireHistory,
    as_resent,
    broken_off,
    to_pi,
    to_wire,
)
from recollect.core.ports import ChatModel, Clock
from recollect.core.rules.price import read_prices
from recollect.core.values.compaction import CompactionResult, Trigger
from recollect.core.values.edit import Edit
from recollect.core.values.model import (
    Overflow,
    ReplyDone,
    ReplyEvent,
    TextDelta,
    ThinkingDelta,
    Usage,
)
from recollect.core.values.report import Report
from recollect.errors import ModelOverflow, ModelRefused, ModelUnavailable, RecollectError
from recollect.hosts.inspect.status import (
    ContextStatus,
    WhichRequest,
    reported_tokens,
    request_context,
    spending_of,
)

# One request of a turn: what went out, and what came of it.


@dataclass(slots=True, kw_only=True)
class Step:
    """One request of a turn and what came of it; filled in while it runs."""

    number: int
    message: Mapping[str, Any] | None = field(default=None, repr=False)
    """The reply as it was recorded; None where there is none that counts."""
    aborted: bool = False
    observation: Observation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRequest:
    """The request that went out last."""

    request: Mapping[str, Any] = field(repr=False)
    wire_messages: int
    """How much of the history it stands for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastPrepared:
    """What was prepared last, and what would make it out of date."""

    made: RequestMade
    session_id: str
    edits: tuple[Edit, ...] = field(repr=False)
    """Those that stood then: a compaction, its undoing or forgetting changes them."""
    reply: Mapping[str, Any] | None = field(default=None, repr=False)
    """What was answered to it, as it was recorded."""


# Waits for work that the user may stop waiting for.


_T = TypeVar("_T")


class AbortableWork:
    """One piece of work at a time."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None

    def abort(self) -> None:
        """End the work; nothing is waited for: nothing happens."""
        if self._task is not None:
            self._task.cancel()

    async def unless_aborted(self, work: Coroutine[Any, Any, _T]) -> _T | None:
        """What the work comes to; None where the user did not wait for it.

        Work that has something to tell although it was ended tells it. The engine ends a
        compaction that nobody waits for by itself; it is recorded when the next request shows
        its cut.
        """
        task = self._task = asyncio.create_task(work)
        try:
            await asyncio.wait({task})
        finally:
            self._task = None
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        return None if task.cancelled() else task.result()


# One reply, as it streams in


@dataclass(slots=True)
class ReplyState:
    """How a reply came; filled in while it is listened to."""

    text: str = field(default="", repr=False)
    """The words so far."""
    done: ReplyDone | None = None
    trouble: Trouble | None = None
    aborted: bool = False
    silent: bool = False
    ended: bool = False
    """The stream was listened to until it ended or broke off by itself."""


class Listener:
    """Listens to one stream at a time."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    def abort(self) -> None:
        """Stop listening; what had come stays in the `ReplyState`."""
        if self._task is not None:
            self._task.cancel()

    async def listen(
        self, model: ChatModel, request: Mapping[str, Any], hearing: ReplyState
    ) -> AsyncGenerator[Said | Thought, None]:
        """What may be shown of the reply, as it comes."""
        queue: asyncio.Queue[ReplyEvent | None] = asyncio.Queue()
        task = self._task = asyncio.create_task(_pump(model, request, queue))
        filtered = SilentFilter()
        try:
            while (event := await queue.get()) is not None:
                if isinstance(event, TextDelta):
                    hearing.text += event.text
                    if shown := filtered.feed(event.text):
                        yield Said(text=shown)
                elif isinstance(event, ThinkingDelta):
                    yield Thought(text=event.text)
                elif isinstance(event, ReplyDone):
                    hearing.done = event
            if rest := filtered.finish():
                yield Said(text=rest)
            await asyncio.wait({task})
            _conclude(task, hearing)
            hearing.silent = filtered.silent
        finally:
            self._task = None
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _pump(
    model: ChatModel, request: Mapping[str, Any], queue: asyncio.Queue[ReplyEvent | None]
) -> None:
    """Read in one task: drivers tie a connection to the task that opened it."""
    stream = model.stream(request)
    try:
        async for event in stream:
            queue.put_nowait(event)
    finally:
        queue.put_nowait(None)
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()


def _conclude(task: asyncio.Task[None], hearing: ReplyState) -> None:
    if task.cancelled():
        hearing.ended, hearing.aborted = True, hearing.done is None
        return
    error = task.exception()
    if error is not None and not isinstance(error, RecollectError):
        raise error  # no word of a model's: a fault of the program
    hearing.ended = True
    if isinstance(error, RecollectError):
        hearing.trouble = trouble_of(error)
    elif hearing.done is None:
        hearing.trouble = trouble_of(ModelUnavailable("the reply broke off before its end"))
    elif hearing.done.overflow is not None:
        hearing.trouble = silent_trouble(hearing.done.overflow)


# A reply that did not come


UNSAID = Overflow(pattern_name="unsaid")
"""A provider refused for size and said nothing more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why a reply did not come."""

    kind: FailureKind
    reason: str
    overflow: Overflow | None = field(default=None, repr=False)


def trouble_of(error: RecollectError) -> Trouble:
    """What an error means for the turn."""
    if isinstance(error, ModelOverflow):
        said = error.overflow
        overflow = said if isinstance(said, Overflow) else UNSAID
        return Trouble(kind="overflow", reason=str(error), overflow=overflow)
    if isinstance(error, ModelRefused):
        return Trouble(kind="refused", reason=str(error))
    if isinstance(error, ModelUnavailable):
        return Trouble(kind="unavailable", reason=str(error))
    return Trouble(kind="model", reason=str(error))


def silent_trouble(overflow: Overflow) -> Trouble:
    """A reply that came although its request did not fit."""
    reason = f"the request was larger than the window ({overflow.pattern_name})"
    return Trouble(kind="overflow", reason=reason, overflow=overflow)


def gave_up(trouble: Trouble, made: Compacted | None) -> str:
    """What the user is told when a turn could not be finished."""
    if trouble.kind == "overflow":
        why = "" if made is None else f" Compaction: {made.result.reason}."
        return (
            f"The request still does not fit the model's window.{why} Nothing was lost: the "
            "conversation is as it was. Try /compact with what matters, a model with a larger "
            "window, or /new for a fresh session."
        )
    if trouble.kind == "refused":
        return f"The provider refused the request: {trouble.reason}"
    return f"The model did not answer: {trouble.reason}"


STOPPED_FLUSH = "Stopped: the notes before a compaction are written another time."
STOPPED_COMPACTION = "Stopped: nothing was compacted; that comes another time."
SHRUNK_RATIO = 0.9
"""Of a request that did not fit, what the next one may be: estimates are off by some percent."""


@dataclass(slots=True, kw_only=True)
class TurnSteps:
    """What the steps of an agent share."""

    engine: Engine
    model: ChatModel
    flush_model: ChatModel
    conversation: Conversation
    scope: ToolScope
    tools: tuple[Tool, ...]
    clock: Clock
    tz: tzinfo | None
    max_output_tokens: int | None
    options: Mapping[str, Any] = field(repr=False)
    provider: str
    own_words: str = field(repr=False)
    first_run: bool
    aborted: bool = False
    workspace: LoadedWorkspace = field(default_factory=LoadedWorkspace)
    shape: Shape = field(init=False)
    _listener: Listener = field(default_factory=Listener)
    _sent: SentRequest | None = None
    _last: LastPrepared | None = None
    _waiting: AbortableWork = field(default_factory=AbortableWork)

    def __post_init__(self) -> None:
        shown = self.conversation.shown()
        self.first_run = self.first_run and not is_answered(item.message for item in shown)
        self.begin()

    @property
    def window_tokens(self) -> int | None:
        """The model's window: as set or as the model says, but never above what was learned."""
        known = self.engine.settings.window_tokens or self.model.window_tokens
        learned = self.engine.session(self.conversation.session_id).state.learned_window_tokens
        return min((one for one in (known, learned) if one), default=None)

    def begin(self) -> None:
        """Read the workspace anew: what its files say now counts for this run."""
        today = datetime.fromtimestamp(self.clock.now(), self.tz).astimezone(self.tz).date()
        self.workspace = load_workspace(
            self.scope.root,
            max_chars=self.engine.settings.workspace.max_chars,
            today=today,
            first_run=self.first_run,
        )
        self.shape = Shape(
            speaker=Speaker(
                format=self.model.format, model=self.model.name, provider=self.provider
            ),
            system=system_prompt(
                self.tools, self.workspace.project_context, own_words=self.own_words
            ),
            tools=self.tools,
            max_output_tokens=self.max_output_tokens,
            options=self.options,
        )

    def abort(self) -> None:
        """Stop listening to the model."""
        self.aborted = True
        self._listener.abort()
        self._waiting.abort()

    async def answer(self, step: Step) -> AsyncGenerator[AgentEvent, None]:
        """Ask for one reply; where the request does not fit, make room and ask once more."""
        refused: Report | None = None
        for attempt in (1, 2):
            ready = (
                None if self.aborted else await self._waiting.unless_aborted(self._ready(refused))
            )
            if ready is None:
                step.aborted = True
                return
            context, sent, made = ready
            if made is not None:
                yield made
            await durably(self.conversation.follow, context.state)  # undone by somebody else
            for result in unrecorded(context, self.conversation.recorded_cuts()):
                yield await self._keep_compaction(result)
            yield Prepared(step=step.number, report=context.report)
            step.aborted = self.aborted
            if step.aborted:
                return
            hearing = ReplyState()
            async with aclosing(self._shown_reply(sent, hearing)) as words:
                async for event in words:
                    yield event
            trouble, step.aborted = hearing.trouble, hearing.aborted
            if hearing.done is not None and trouble is None:
                yield await self._keep_reply(step, hearing.done, silent=hearing.silent)
                if step.message is None:
                    yield Failed(kind="refused", reason=REFUSED)
            if trouble is None:
                return
            if trouble.overflow is not None:
                await self.engine.observe(self.conversation.session_id, trouble.overflow)
            if trouble.overflow is None or attempt == 2:
                yield Failed(kind=trouble.kind, reason=gave_up(trouble, made))
                return
            yield Withdrawn(reason=trouble.reason)
            refused = context.report

    async def _shown_reply(
        self, sent: SentRequest, hearing: ReplyState
    ) -> AsyncGenerator[Said | Thought, None]:
        """What may be shown of a reply; one that breaks off is recorded as far as it came."""
        try:
            async with aclosing(self._listener.listen(self.model, sent.request, hearing)) as words:
                async for event in words:
                    yield event
        finally:
            if hearing.aborted or not hearing.ended:  # or whoever listened is gone
                await self._keep_broken(hearing, "aborted", None)
        self._sent = sent
        if hearing.trouble is not None:
            await self._keep_broken(hearing, "error", hearing.trouble.reason)

    async def upkeep(self, step: Step, *, mid_turn: bool) -> AsyncGenerator[AgentEvent, None]:
        """What the window asks for behind a reply: notes first, then a compaction."""
        seen = step.observation
        if seen is None or seen.due == "nothing" or self.aborted:
            return
        notes_due = seen.due == "flush" or seen.flush_first
        if notes_due and not self.conversation.flushed_in_this_cycle:
            yield UpkeepBegan(kind="flush")
            flushed = await self._waiting.unless_aborted(self._flush())
            yield flushed or Told(text=STOPPED_FLUSH)
        if seen.due == "compaction" and not self.aborted:
            yield UpkeepBegan(kind="compaction")
            trigger: Trigger = "mid-turn" if mid_turn else "threshold"
            made = await self._waiting.unless_aborted(self.compact(trigger))
            yield made or Told(text=STOPPED_COMPACTION)

    async def compact(self, trigger: Trigger, *, instructions: str = "") -> Compacted:
        """Compact now, and record it where it was done."""
        body, _, _ = self._body()
        result = await self.engine.compact(
            self.conversation.session_id,
            body,
            instructions=instructions,
            trigger=trigger,
            format=self.shape.speaker.format,
        )
        return await self._keep_compaction(result)

    async def compact_on_request(self, instructions: str) -> Compacted | None:
        """Compact as the user asked; None where they did not wait for it."""
        return await self._waiting.unless_aborted(self.compact("manual", instructions=instructions))

    async def _ready(self, refused: Report | None) -> tuple[Context, SentRequest, Compacted | None]:
        """A request to send; behind one that was `refused` for its size, a smaller one.

        The engine has learned the window: preparing again shortens a result that is too long, and
        compacts where that is not enough. Where it thinks that all is well, it is told to compact.
        """
        context, sent = await self._prepare()
        if refused is None or context.report.tokens_after <= SHRUNK_RATIO * refused.tokens_after:
            return context, sent, None
        made = await self.compact("overflow")
        context, sent = await self._prepare()
        return context, sent, made

    async def _prepare(self) -> tuple[Context, SentRequest]:
        body, wire, _ = self._body()
        context = await self.engine.prepare(
            self.conversation.session_id, body, format=self.shape.speaker.format
        )
        self._last = LastPrepared(
            made=RequestMade(report=context.report, shape=self.shape, workspace=self.workspace),
            session_id=self.conversation.session_id,
            edits=context.state.edits,
        )
        return context, SentRequest(request=context.request, wire_messages=len(wire.messages))

    async def last_request(self) -> LastPrepared | None:
        """What was prepared last in this process; None where the next request is made otherwise:
        after a compaction, its undoing, forgetting, another model, a new session."""
        last, session_id = self._last, self.conversation.session_id
        if last is None or last.session_id != session_id:
            return None
        if last.made.shape.speaker != self.shape.speaker:
            return None
        await self.engine._last_messages(session_id)  # another process may have changed it
        stands = self.engine.session(session_id).state.edits == last.edits
        return last if stands else None

    async def next_request(self) -> RequestMade:
        """The next request, as the engine would send it now; leaves no trace. Nothing is recalled
        for it: what is asked next is not known."""
        self.begin()
        body, _, _ = self._body()
        context = await self.engine.preview(
            self.conversation.session_id, body, format=self.shape.speaker.format, recall=False
        )
        return RequestMade(report=context.report, shape=self.shape, workspace=self.workspace)

    async def status(self) -> ContextStatus:
        """What stands in the window: of the last request, or of the next one where that differs."""
        conversation = self.conversation
        last = await self.last_request()
        made = await self.next_request() if last is None else last.made
        which: WhichRequest = "next" if last is None else "sent"
        prices = read_prices(self.engine.settings.models.prices)
        return ContextStatus(
            session_id=conversation.session_id,
            name=conversation.name,
            model=self.model.name,
            messages=len(conversation.shown()),
            compactions=conversation.compactions,
            seconds=max(0.0, self.clock.now() - (conversation.began or self.clock.now())),
            spending=spending_of(conversation.transcript.entries, prices, beside_as=SPENT),
            reported_tokens=None if last is None else reported_tokens(last.reply),
            request=request_context(
                made.report,
                which,
                self.engine._weigher,
                tools=made.shape.wire_tools(),
                names=[tool.name for tool in made.shape.tools],
                workspace=made.workspace,
                spelled=not made.shape.leading,  # Chat's system prompt is a message
            ),
        )

    def _body(self) -> tuple[dict[str, Any], WireHistory, tuple[PiShown, ...]]:
        shown = self.conversation.shown()
        wire = to_wire([item.message for item in shown], self.shape.speaker)
        shape = replace(self.shape, window_tokens=self.window_tokens)
        return request_body(wire, shape), wire, shown

    async def _keep_reply(self, step: Step, done: ReplyDone, *, silent: bool) -> Replied:
        message = to_pi(
            done.reply,
            self.shape.speaker,
            stop=done.stop,
            usage=done.usage,
            timestamp=self.conversation.milliseconds(),
        )
        entry_id = await durably(self.conversation.keep, message)
        if self._last is not None:
            self._last = replace(self._last, reply=message)
        if message["stopReason"] != "error":
            step.message = message
            self.first_run = False
        taught = as_resent(done.reply, self.shape.speaker, stop=done.stop, message=message)
        step.observation = await self.engine.observe(self.conversation.session_id, taught)
        await durably(self.conversation.keep_usage, done.usage)
        return Replied(entry_id=entry_id, message=message, usage=done.usage, silent=silent)

    async def _keep_broken(self, hearing: ReplyState, reason: Any, error: str | None) -> None:
        """What had come; recorded as pi records it, never sent to a model again."""
        message = broken_off(
            hearing.text,
            self.shape.speaker,
            reason=reason,
            timestamp=self.conversation.milliseconds(),
            error=error,
            usage=None if hearing.done is None else hearing.done.usage,
        )
        await durably(self.conversation.keep, message)

    async def _keep_compaction(self, result: CompactionResult) -> Compacted:
        """Record it, and what it took: one that came to nothing was paid for, too."""
        entry_id: str | None = None
        if result.compacted:
            _, wire, shown = self._body()
            path = self.engine.session(self.conversation.session_id).state.path
            leading = self.shape.leading
            first = first_kept_entry(result.first_kept, path, wire, shown, leading=leading)
            entry_id = await durably(self.conversation.keep_compaction, result, first)
        spent = result.spent
        if spent.input_tokens or spent.output_tokens:
            usage = Usage(input_tokens=spent.input_tokens, output_tokens=spent.output_tokens)
            await self._keep_spent("summary", self.engine._summary_model, usage)
        return Compacted(result=result, entry_id=entry_id)

    async def _keep_spent(self, purpose: SidePurpose, model: str, usage: Usage) -> None:
        await durably(self.conversation.keep_spent, purpose=purpose, model=model, usage=usage)

    async def _flush(self) -> Flushed:
        _, wire, _ = self._body()
        assert self._sent is not None, "a flush follows a reply"
        order = FlushOrder(
            sent=self._sent.request,
            since=wire.messages[self._sent.wire_messages :],
            shape=self.shape,
            note_root=self.scope.root,
            now=self.clock.now(),
            tz=self.tz,
            read_only=self.scope.read_only,
        )
        model = self.flush_model
        result = await flush(order, model, self.engine.settings)
        await durably(self.conversation.keep_flush, result)
        if result.usage is not None:
            await self._keep_spent("flush", model.name, result.usage)
        if result.done:
            await self.engine.flushed(self.conversation.session_id)
        return Flushed(result=result)
