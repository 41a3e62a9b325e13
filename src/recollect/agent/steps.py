"""The steps of a turn: requests one reply, recovers from errors, and afterwards compacts or takes
notes if the window needs it.

A reply is recorded first. An interrupted reply, or a model whose extra is not installed, is
reported as a value, never as an exception. `abort` ends the stream at once. A request is retried at
most once, and only if it was too large: the engine learns the window and compacts. If the second
request fails, the history is unchanged. A failed note-taking turn or compaction changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeVar

from recollect.adapters.session.files import write_durably
from recollect.adapters.session.workspace import LoadedWorkspace, load_workspace
from recollect.agent.conversation import (
    SPENT_KIND,
    Conversation,
    Shape,
    find_unrecorded,
    first_kept_entry,
    request_body,
    system_prompt,
)
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
from recollect.agent.flush import FlushTurn, SilentFilter
from recollect.agent.tools.confine import Tool, ToolScope
from recollect.core.engine.engine import Engine
from recollect.core.engine.session import Context, Observation
from recollect.core.formats.pi_session import PiShown
from recollect.core.formats.translate import (
    REFUSED,
    Speaker,
    WireHistory,
    as_resent,
    to_pi,
    to_wire,
    write_broken_reply,
)
from recollect.core.ports import ChatModel, Clock
from recollect.core.rules.price import read_prices
from recollect.core.values.compaction import CompactionResult, Trigger
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
    request_context,
    spending_of,
    usage_of,
)

_UNFINISHED = frozenset({"error", "aborted"})
"""Stop reasons of replies that no later request contains, so that their calls need no results."""


def is_whole(message: Mapping[str, Any]) -> bool:
    """Return True if a message is a complete reply."""
    return message.get("role") == "assistant" and message.get("stopReason") not in _UNFINISHED


@dataclass(slots=True, kw_only=True)
class Step:
    """One request of a turn, and its result, which is filled in while the request runs."""

    number: int
    message: Mapping[str, Any] | None = field(default=None, repr=False)
    """The recorded reply; None if the model sent no usable reply."""
    aborted: bool = False
    observation: Observation | None = None


@dataclass(slots=True, kw_only=True)
class SentRequest:
    """The most recently prepared request."""

    request: Mapping[str, Any] = field(repr=False)
    wire_messages: int
    """Number of the request's messages that belong to the history."""
    report: Report
    reply: Mapping[str, Any] | None = field(default=None, repr=False)


def _request_from(context: Context, wire: WireHistory) -> SentRequest:
    return SentRequest(
        request=context.request, wire_messages=len(wire.messages), report=context.report
    )


_T = TypeVar("_T")


class AbortableWork:
    """Runs one task of a run at a time, which the user may stop."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None
        self.aborted: bool = False

    def abort(self) -> None:
        self.aborted = True
        if self._task is not None:
            self._task.cancel()

    @asynccontextmanager
    async def start(self, work: Coroutine[Any, Any, _T]) -> AsyncIterator[asyncio.Task[_T]]:
        """Start a task that ends with the block at the latest."""
        task = self._task = asyncio.create_task(work)
        try:
            yield task
        finally:
            self._task = None
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def unless_aborted(self, work: Coroutine[Any, Any, _T]) -> _T | None:
        """Return the result of the task; None if the user stopped the run. The engine completes an
        abandoned compaction itself, and the next request records it."""
        if self.aborted:
            work.close()
            return None
        async with self.start(work) as task:
            await asyncio.wait({task})
        return None if task.cancelled() else task.result()


@dataclass(slots=True)
class ReplyState:
    """A reply while it arrives."""

    text: str = field(default="", repr=False)
    reply_done: ReplyDone | None = None
    error: RecollectError | None = None
    aborted: bool = False
    silent: bool = False
    ended: bool = False
    """True if the stream ended or failed without an abort."""


async def _pump(
    model: ChatModel, request: Mapping[str, Any], queue: asyncio.Queue[ReplyEvent | None]
) -> None:
    """Read the stream in one task, because drivers bind a connection to the task that opened it."""
    stream = model.stream(request)
    try:
        async for event in stream:
            queue.put_nowait(event)
    finally:
        queue.put_nowait(None)
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()


def _conclude(task: asyncio.Task[None], reply: ReplyState) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, RecollectError):
        raise error  # an error of this program, not of the model
    reply.ended, reply.error = True, error
    if task.cancelled():
        reply.aborted = reply.reply_done is None
        return
    if error is None and reply.reply_done is None:
        reply.error = ModelUnavailable("the reply ended early")
    elif error is None and reply.reply_done is not None and reply.reply_done.overflow is not None:
        name = reply.reply_done.overflow.pattern_name
        problem = f"the request was larger than the window ({name})"
        reply.error = ModelOverflow(problem, reply.reply_done.overflow)


NO_LIMIT_NAMED = Overflow(pattern_name="unsaid")
"""Reported if a provider refused a request as too large without naming a limit."""


def _failure(error: RecollectError, compaction: Compacted | None) -> Failed:
    if isinstance(error, ModelOverflow):
        compaction_note = "" if compaction is None else f" Compaction: {compaction.result.reason}."
        reason = (
            f"The request still does not fit the model's window.{compaction_note} Nothing was "
            "lost: the conversation is unchanged. Try /compact with what matters, a model with a "
            "larger window, or /new for a fresh session."
        )
        return Failed(kind="overflow", reason=reason)
    if isinstance(error, ModelRefused):
        return Failed(kind="refused", reason=f"The provider refused the request: {error}")
    kind: FailureKind = "unavailable" if isinstance(error, ModelUnavailable) else "model"
    return Failed(kind=kind, reason=f"The model did not answer: {error}")


STOPPED_FLUSH = "Stopped: the notes before a compaction are written later."
STOPPED_COMPACTION = "Stopped: nothing was compacted; Recollect tries again later."
SHRUNK_RATIO = 0.9
"""Maximum size of the second request, relative to the first, which was too large. The ratio is
below 1, because token counts are estimates."""


@dataclass(slots=True, kw_only=True)
class TurnSteps:
    """The state that all steps of an agent share."""

    engine: Engine
    model: ChatModel
    conversation: Conversation
    scope: ToolScope
    tools: tuple[Tool, ...]
    clock: Clock
    max_output_tokens: int | None
    first_run: bool
    """True before the first reply, when the system prompt still contains BOOTSTRAP.md."""
    work: AbortableWork
    last: SentRequest | None = None
    """The last request; None once the next request would be different."""
    workspace: LoadedWorkspace = field(default_factory=LoadedWorkspace)
    shape: Shape = field(init=False)
    _last_sent: SentRequest | None = None

    def __post_init__(self) -> None:
        history = self.conversation.history()
        self.first_run = self.first_run and not any(is_whole(item.message) for item in history)
        self.begin()

    @property
    def window_tokens(self) -> int | None:
        """Return the model's window as set or reported, at most what the engine has learned."""
        configured_tokens = self.engine.settings.window_tokens or self.model.window_tokens
        learned_tokens = self.engine.session(
            self.conversation.session_id
        ).state.learned_window_tokens
        return min(
            (tokens for tokens in (configured_tokens, learned_tokens) if tokens), default=None
        )

    def begin(self) -> None:
        """Read the workspace's files again for the next run."""
        today = datetime.fromtimestamp(self.clock.now()).date()  # noqa: DTZ006 - the user's day
        self.workspace = load_workspace(
            self.scope.root,
            max_chars=self.engine.settings.workspace.max_chars,
            today=today,
            first_run=self.first_run,
        )
        self.shape = Shape(
            speaker=Speaker(format=self.model.format, model=self.model.name),
            system=system_prompt(self.tools, self.workspace.project_context),
            tools=self.tools,
            max_output_tokens=self.max_output_tokens,
        )

    async def answer(self, step: Step) -> AsyncGenerator[AgentEvent, None]:
        """Request one reply. If the request is too large, compact and retry once."""
        refused_report: Report | None = None
        for attempt in (1, 2):
            ready = await self.work.unless_aborted(self._prepare_retry(refused_report))
            if ready is None:
                step.aborted = True
                return
            context, sent_request, compaction = ready
            if compaction is not None:
                yield compaction
            # Another process undid a compaction: record this in the transcript.
            await write_durably(self.conversation.record_undos, context.state)
            for result in find_unrecorded(context, self.conversation.cut_numbers()):
                yield await self._record_compaction(result)
            yield Prepared(step=step.number, report=context.report)
            step.aborted = self.work.aborted
            if step.aborted:
                return
            reply = ReplyState()
            async with aclosing(self._listen(sent_request, reply)) as words:
                async for event in words:
                    yield event
            error, step.aborted = reply.error, reply.aborted
            if error is None:
                if reply.reply_done is not None:
                    yield await self._keep_reply(step, reply.reply_done, silent=reply.silent)
                    if step.message is None:
                        yield Failed(kind="refused", reason=REFUSED)
                return
            if isinstance(error, ModelOverflow):
                reported_overflow = error.overflow
                overflow = (
                    reported_overflow if isinstance(reported_overflow, Overflow) else NO_LIMIT_NAMED
                )
                await self.engine.observe(self.conversation.session_id, overflow)
            if not isinstance(error, ModelOverflow) or attempt == 2:
                yield _failure(error, compaction)
                return
            yield Withdrawn(reason=str(error))
            refused_report = context.report

    async def _listen(
        self, sent_request: SentRequest, reply: ReplyState
    ) -> AsyncGenerator[Said | Thought, None]:
        """Yield the parts of a reply to show. Record what was received if the stream breaks off."""
        queue: asyncio.Queue[ReplyEvent | None] = asyncio.Queue()
        silent_filter = SilentFilter()
        try:
            async with self.work.start(_pump(self.model, sent_request.request, queue)) as task:
                while (event := await queue.get()) is not None:
                    if isinstance(event, TextDelta):
                        reply.text += event.text
                        if text_to_show := silent_filter.feed(event.text):
                            yield Said(text=text_to_show)
                    elif isinstance(event, ThinkingDelta):
                        yield Thought(text=event.text)
                    elif isinstance(event, ReplyDone):
                        reply.reply_done = event
                if last_text := silent_filter.finish():
                    yield Said(text=last_text)
                await asyncio.wait({task})
                _conclude(task, reply)
                reply.silent = silent_filter.silent
        finally:
            if reply.aborted or not reply.ended:  # record it even if the consumer left
                await self._record_partial(reply, "aborted", None)
        self._last_sent = sent_request
        if reply.error is not None:
            await self._record_partial(reply, "error", str(reply.error))

    async def upkeep(self, step: Step, *, mid_turn: bool) -> AsyncGenerator[AgentEvent, None]:
        """After a reply, write notes and compact if the window needs it."""
        observation = step.observation
        if observation is None or observation.due == "nothing" or self.work.aborted:
            return
        notes_due = observation.due == "flush" or observation.flush_first
        if notes_due and not self.conversation.flushed_in_this_cycle:
            yield UpkeepBegan(kind="flush")
            flush_event = await self.work.unless_aborted(self._flush())
            yield flush_event or Told(text=STOPPED_FLUSH)
        if observation.due == "compaction" and not self.work.aborted:
            yield UpkeepBegan(kind="compaction")
            trigger: Trigger = "mid-turn" if mid_turn else "threshold"
            compaction = await self.work.unless_aborted(self.compact(trigger))
            yield compaction or Told(text=STOPPED_COMPACTION)

    async def compact(self, trigger: Trigger, *, instructions: str = "") -> Compacted:
        body, _, _ = self._body()
        result = await self.engine.compact(
            self.conversation.session_id,
            body,
            instructions=instructions,
            trigger=trigger,
            format=self.shape.speaker.format,
        )
        self.last = None
        return await self._record_compaction(result)

    async def _prepare_retry(
        self, refused_report: Report | None
    ) -> tuple[Context, SentRequest, Compacted | None]:
        """Prepare a request. If the provider refused the last one, `refused`, as too large, prepare
        a smaller one. The engine has learned the window from the refusal: preparing again shortens
        a long result, and compacts if necessary. If the request is hardly smaller, force a
        compaction."""
        context, sent_request = await self._prepare()
        if (
            refused_report is None
            or context.report.tokens_after <= SHRUNK_RATIO * refused_report.tokens_after
        ):
            return context, sent_request, None
        compaction = await self.compact("overflow")
        context, sent_request = await self._prepare()
        return context, sent_request, compaction

    async def _prepare(self) -> tuple[Context, SentRequest]:
        body, wire, _ = self._body()
        context = await self.engine.prepare(
            self.conversation.session_id, body, format=self.shape.speaker.format
        )
        self.last = _request_from(context, wire)
        return context, self.last

    async def current_request(self) -> tuple[SentRequest, WhichRequest]:
        """Return the last request of this run. Before the first request, return what the engine
        would send now, without storing it and without recall, because the question is unknown."""
        if self.last is not None:
            return self.last, "sent"
        self.begin()
        body, wire, _ = self._body()
        context = await self.engine.preview(
            self.conversation.session_id, body, format=self.shape.speaker.format, recall=False
        )
        return _request_from(context, wire), "next"

    async def status(self) -> ContextStatus:
        conversation = self.conversation
        sent_request, request_kind = await self.current_request()
        prices = read_prices(self.engine.settings.models.prices)
        now, entries = self.clock.now(), conversation.transcript.entries
        usage = None if sent_request.reply is None else usage_of(sent_request.reply)
        return ContextStatus(
            session_id=conversation.session_id,
            name=conversation.name,
            model=self.model.name,
            messages=len(conversation.history()),
            compactions=conversation.compactions,
            seconds=max(0.0, now - (entries[0].milliseconds / 1000 or now)) if entries else 0.0,
            spending=spending_of(entries, prices, beside_as=SPENT_KIND),
            reported_tokens=None if usage is None else usage.input_tokens,
            request=request_context(
                sent_request.report,
                request_kind,
                self.engine.parts.weigher,
                tools=self.shape.wire_tools(),
                workspace=self.workspace,
                # In Chat Completions the system prompt is a message.
                spelled=not self.shape.leading,
            ),
        )

    def _body(self) -> tuple[dict[str, Any], WireHistory, tuple[PiShown, ...]]:
        history = self.conversation.history()
        wire = to_wire([item.message for item in history], self.shape.speaker)
        shape = replace(self.shape, window_tokens=self.window_tokens)
        return request_body(wire, shape), wire, history

    async def _keep_reply(self, step: Step, reply_done: ReplyDone, *, silent: bool) -> Replied:
        message = to_pi(
            reply_done.reply,
            self.shape.speaker,
            stop=reply_done.stop,
            usage=reply_done.usage,
            timestamp=self.conversation.milliseconds(),
        )
        entry_id = await write_durably(self.conversation.keep, message)
        if self.last is not None:
            self.last.reply = message
        if message["stopReason"] != "error":
            step.message = message
            self.first_run = False
        resent_reply = as_resent(
            reply_done.reply, self.shape.speaker, stop=reply_done.stop, message=message
        )
        step.observation = await self.engine.observe(self.conversation.session_id, resent_reply)
        return Replied(entry_id=entry_id, message=message, usage=reply_done.usage, silent=silent)

    async def _record_partial(self, reply: ReplyState, reason: Any, error: str | None) -> None:
        """Record the incomplete reply as pi does. No request contains an incomplete reply."""
        message = write_broken_reply(
            reply.text,
            self.shape.speaker,
            reason=reason,
            timestamp=self.conversation.milliseconds(),
            error=error,
            usage=None if reply.reply_done is None else reply.reply_done.usage,
        )
        await write_durably(self.conversation.keep, message)

    async def _record_compaction(self, result: CompactionResult) -> Compacted:
        """Record the compaction and its tokens, which were spent even if nothing changed."""
        entry_id: str | None = None
        if result.compacted:
            _, wire, history = self._body()
            path = self.engine.session(self.conversation.session_id).state.path
            leading = self.shape.leading
            first = first_kept_entry(result.first_kept, path, wire, history, leading=leading)
            entry_id = await write_durably(self.conversation.keep_compaction, result, first)
        spent_tokens = result.spent
        if spent_tokens.input_tokens or spent_tokens.output_tokens:
            usage = Usage(
                input_tokens=spent_tokens.input_tokens, output_tokens=spent_tokens.output_tokens
            )
            summarizer = self.engine.parts.model
            model = "" if summarizer is None else summarizer.name
            await write_durably(self.conversation.keep_spent, "summary", model=model, usage=usage)
        return Compacted(result=result, entry_id=entry_id)

    async def _flush(self) -> Flushed:
        _, wire, _ = self._body()
        assert self._last_sent is not None, "a flush follows a reply"
        turn = FlushTurn(
            last_request=self._last_sent.request,
            since=wire.messages[self._last_sent.wire_messages :],
            shape=self.shape,
            root=self.scope.root,
            now=self.clock.now(),
            read_only=self.scope.read_only,
        )
        result = await turn.run(self.model, self.engine.settings)
        await write_durably(self.conversation.record_flush, result)
        if result.usage is not None:
            name = self.model.name
            await write_durably(
                self.conversation.keep_spent, "flush", model=name, usage=result.usage
            )
        if result.done:
            await self.engine.flushed(self.conversation.session_id)
        return Flushed(result=result)
