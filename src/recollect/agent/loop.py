"""The loop without a screen: request, reply, tool calls, results, next request, until none is left.

Owns the order of things, and that one run of an agent is under way at a time. Every message is on
the disk before the next request goes out; a turn ends in exactly one `Ended`, unless the disk
takes nothing (TranscriptError); every call of a recorded reply gets exactly one result, in order,
however the turn ended: a tool that breaks is an error result, and the calls of a reply that was
cut off are answered but not run. A session is never reset because something went wrong; a chat
may start a new one daily or after idling. The index of sessions is a convenience: when it fails,
a notice says so and the turn goes on.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from recollect.adapters.session.exported import export_session
from recollect.adapters.session.files import outputs_folder
from recollect.adapters.session.index import SessionIndex, SessionRecord
from recollect.adapters.session.transcript import SessionTranscript
from recollect.adapters.session.undo import NothingToUndo
from recollect.agent.answers import (
    branch_points,
    branch_points_text,
    branch_session,
    branched_text,
    help_text,
    listed_text,
    name_session,
    receipt_text,
    replay_text,
    why_text,
)
from recollect.agent.commands import (
    Command,
    CommandName,
    MemoryScope,
    Mistyped,
    answer_facts,
    answer_memory,
    compaction_text,
    read_command,
    recordable,
)
from recollect.agent.conversation import Conversation, undo_in_engine
from recollect.agent.durably import durably
from recollect.agent.events import (
    AgentEvent,
    CallBegan,
    CallEnded,
    Ended,
    Failed,
    Told,
    UpkeepBegan,
)
from recollect.agent.prompt import OWN_WORDS
from recollect.agent.steps import Step, TurnSteps
from recollect.agent.tools.confine import ShellRule, ToolScope
from recollect.agent.tools.files import edit_tool, read_tool, write_tool
from recollect.agent.tools.memory import memory_agent_tools
from recollect.agent.tools.outcome import CUT_OFF, Outputs, Tool, ToolOutcome, failed
from recollect.agent.tools.shell import bash_tool
from recollect.core.boundary import Failure, SystemClock, attempted
from recollect.core.engine.engine import Engine
from recollect.core.ports import ChatModel, Clock
from recollect.core.values.history import newest_cut
from recollect.errors import RecollectError, TranscriptError
from recollect.hosts.inspect.sessions import SessionLine, listed_sessions, session_meant
from recollect.hosts.inspect.status import ContextStatus
from recollect.hosts.inspect.text import status_text
from recollect.hosts.tools.handler import Confirm
from recollect.system.config.settings import Reset

# One run at a time


RESET_HOUR = 4
"""Local hour of the daily reset."""
AT_WORK = (
    "this agent is at work: wait for its turn to end, or abort it; to leave an iterator early, use "
    "contextlib.aclosing(agent.run(...))"
)


class RunHandle:
    """Names a run without holding it."""

    def __init__(self) -> None:
        self._events: weakref.ref[AsyncGenerator[Any, None]] | None = None

    def give(self, events: AsyncGenerator[Any, None]) -> None:
        """The iterator of the run."""
        self._events = weakref.ref(events)

    @property
    def events(self) -> AsyncGenerator[Any, None] | None:
        """The iterator, while anybody holds it."""
        return None if self._events is None else self._events()


class RunLock:
    """The run that is under way, if one is."""

    def __init__(self) -> None:
        self._ticket: RunHandle | None = None
        self._ended = asyncio.Event()

    @property
    def under_way(self) -> bool:
        """Something was begun and has not ended."""
        return self._ticket is not None

    async def begin(self, ticket: RunHandle) -> None:
        """RuntimeError where another run is at work; waits for one that was left."""
        while self._ticket is not None:
            if self._ticket.events is not None:
                raise RuntimeError(AT_WORK)
            await self._ended.wait()
        self._ticket = ticket
        self._ended.clear()

    def end(self) -> None:
        """The run is over."""
        self._ticket = None
        self._ended.set()

    async def close(self) -> None:
        """End what was left half-way, and wait for it."""
        while self._ticket is not None:
            events = self._ticket.events
            if events is None or getattr(events, "ag_running", False):  # somebody iterates now
                await self._ended.wait()
            else:
                await events.aclose()
                return


# When a chat starts a new session


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetResult:
    """Whether a new session is due, and why or why not."""

    due: bool
    reason: str


def reset_due(
    last_activity: float | None, now: float, settings: Reset, tz: tzinfo | None = None
) -> ResetResult:
    """Whether a session that was last used at `last_activity` has ended by `now`.

    Times are seconds since the epoch; without a time zone the machine's own counts. Under
    "daily" an idle time that is set counts as well: whichever comes first.
    """
    if settings.mode is None:
        return ResetResult(due=False, reason="sessions go on until /new (session.reset.mode)")
    if last_activity is None:
        return ResetResult(due=False, reason="nothing was said in this session yet")
    idle = settings.idle_minutes
    if idle is not None and now - last_activity >= idle * 60:
        return ResetResult(due=True, reason=f"idle for {idle} minutes (session.reset.idle_minutes)")
    if settings.mode == "daily":
        if last_activity < _last_change(now, RESET_HOUR, tz):
            reason = f"a new day began at {RESET_HOUR:02d}:00 (session.reset.mode)"
            return ResetResult(due=True, reason=reason)
        return ResetResult(due=False, reason="used since the day began")
    if idle is None:
        return ResetResult(due=False, reason="no idle time is set (session.reset.idle_minutes)")
    return ResetResult(due=False, reason=f"used within the last {idle} minutes")


def _last_change(now: float, hour: int, tz: tzinfo | None) -> float:
    """When the day last began, at or before `now`."""
    local = datetime.fromtimestamp(now, tz).astimezone(tz)
    for back in range(2):
        day = local.date() - timedelta(days=back)
        change = datetime(day.year, day.month, day.day, hour, tzinfo=tz)
        if change.timestamp() <= now:
            return change.timestamp()
    return now - 24 * 3600


# The index of sessions


class ReportingIndex(SessionIndex):
    """An index that notes its failures."""

    def __init__(self, index: SessionIndex) -> None:
        super().__init__(index.path)
        self._index = index
        self._failed = False
        self._notes: list[str] = []

    def begin(self) -> None:
        """A run begins: what failed before may succeed now."""
        self._failed = False

    def take_notes(self) -> list[str]:
        """What failed since it was last asked, one sentence each."""
        notes, self._notes = self._notes, []
        return notes

    def update(self, key: str, change: Callable[[SessionRecord], SessionRecord]) -> SessionRecord:
        """Change a record, where that can be done."""
        if not self._failed:
            try:
                return self._index.update(key, change)
            except TranscriptError as error:
                self._note(error)
        return change(SessionRecord(session_id=""))

    def get(self, key: str) -> SessionRecord | None:
        """The record; None where it cannot be read."""
        try:
            return self._index.get(key)
        except TranscriptError as error:
            self._note(error)
            return None

    def _note(self, error: TranscriptError) -> None:
        self._failed = True
        self._notes.append(f"The index of sessions was not brought up to date: {error}")


# Tool calls


ABORTED = "The user stopped the turn while this ran."
NOT_RUN = "Not run: the user stopped the turn before."
_UNFINISHED = frozenset({"error", "aborted"})
"""Replies that are never sent again: nothing has to answer their calls."""


class CallRunner:
    """Runs calls with a set of tools."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._task: asyncio.Task[ToolOutcome] | None = None
        self._begun = 0
        self._ended: ToolOutcome | None = None
        """What the call that was begun last came to, where nobody took it."""
        self.aborted = False

    def abort(self) -> None:
        """Stop what runs; calls that were not begun are not."""
        self.aborted = True
        if self._task is not None:
            self._task.cancel()

    async def run(
        self, message: Mapping[str, Any], conversation: Conversation
    ) -> AsyncGenerator[CallBegan | CallEnded, None]:
        """Run what a reply asks for, and record the results."""
        cut_off = message.get("stopReason") == "length"
        for call in calls_of(message):
            arguments = call.get("arguments") or {}
            yield CallBegan(id=call["id"], name=call["name"], arguments=arguments)
            if self.aborted:
                outcome = failed(NOT_RUN)
            elif cut_off:
                outcome = failed(CUT_OFF)
            else:
                self._begun, self._ended = self._begun + 1, None
                outcome = await self._outcome(call)
            await durably(conversation.keep, _result(call, outcome, conversation.milliseconds()))
            yield CallEnded(
                id=call["id"],
                name=call["name"],
                is_error=outcome.is_error,
                text=outcome.text,
                exit_code=(outcome.details or {}).get("exitCode"),
            )

    async def settle(self, conversation: Conversation) -> None:
        """Answer what nobody answered: whoever listened is gone, or something broke."""
        begun, self._begun = self._begun, 0
        asked, answered = _last_calls(conversation)
        for at, call in enumerate(asked[answered:], answered):
            outcome = failed(ABORTED if at < begun else NOT_RUN)
            if at == begun - 1 and self._ended is not None:  # done, although the turn is not
                outcome = self._ended
            await durably(conversation.keep, _result(call, outcome, conversation.milliseconds()))

    async def _outcome(self, call: Mapping[str, Any]) -> ToolOutcome:
        tool = self._tools.get(call["name"])
        if tool is None:
            return failed(f"There is no such tool; there are {', '.join(self._tools)}.")
        arguments = call.get("arguments")
        given = arguments if isinstance(arguments, Mapping) else {}
        self._task = task = asyncio.ensure_future(_ran(tool, given))
        try:
            await asyncio.wait({task})
        finally:
            self._task = None
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._ended = None if task.cancelled() else task.result()
        if task.cancelled():
            return failed(ABORTED)
        return task.result()


def calls_of(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The tool calls of an assistant message, in order."""
    return [block for block in message["content"] if block.get("type") == "toolCall"]


async def _ran(tool: Tool, arguments: Mapping[str, Any]) -> ToolOutcome:
    """What a tool answers; one of the host's may break in any way."""

    async def work() -> ToolOutcome:
        return await tool.run(arguments)

    outcome = await attempted(work())
    if isinstance(outcome, Failure):
        return failed(f"{tool.name} broke: {outcome.error.__name__}. Try it another way.")
    if not isinstance(outcome, ToolOutcome):
        return failed(f"{tool.name} broke: its answer is no ToolOutcome. Try it another way.")
    return outcome


def _last_calls(conversation: Conversation) -> tuple[list[Mapping[str, Any]], int]:
    """The calls of the newest reply, and how many of them have a result; off the record itself."""
    answered = 0
    for item in reversed(conversation.shown()):
        role = item.message.get("role")
        if role == "toolResult":
            answered += 1
        elif role == "assistant" and item.message.get("stopReason") not in _UNFINISHED:
            return calls_of(item.message), answered
        elif role == "user":
            break
    return [], 0


def _result(call: Mapping[str, Any], outcome: ToolOutcome, timestamp: int) -> dict[str, Any]:
    message: dict[str, Any] = {
        "role": "toolResult",
        "toolCallId": call["id"],
        "toolName": call["name"],
        "content": outcome.content(),
    }
    if outcome.details is not None:
        message["details"] = dict(outcome.details)
    return {**message, "isError": outcome.is_error, "timestamp": timestamp}


MAX_STEPS = 200
"""Requests of one turn; a model that asks on and on is stopped and told."""
NOTHING_SAID = "Nothing was said, so nothing was asked; write a message or a command."
NOT_WAITED_FOR = (
    "Not waited for. A compaction that was nearly done ends in the background; it is told with "
    "your next message, and /undo takes it back."
)
NO_NEW = "This host cannot begin a new session by itself; start it again for a fresh one."


class Agent:
    """A conversation with tools, kept in a transcript and shaped by the engine."""

    def __init__(
        self,
        engine: Engine,
        model: ChatModel,
        transcript: SessionTranscript,
        workspace: Path,
        *,
        index: SessionIndex | None = None,
        key: str = "main",
        clock: Clock | None = None,
        tz: tzinfo | None = None,
        flush_model: ChatModel | None = None,
        tools: Sequence[Tool] | None = None,
        read_only: bool = False,
        allow_outside: bool = False,
        shell: ShellRule | None = None,
        max_steps: int = MAX_STEPS,
        max_output_tokens: int | None = None,
        options: Mapping[str, Any] | None = None,
        provider: str = "",
        own_words: str = OWN_WORDS,
        first_run: bool = False,
        open_session: Callable[[], SessionTranscript] | None = None,
        resume_session: Callable[[str], SessionTranscript] | None = None,
        choose_model: Callable[[str], ChatModel] | None = None,
        confirm_forget: Confirm | None = None,
        settings_file: Path | None = None,
    ) -> None:
        """`engine` compacts when asked, not in the background (`compact_in_background=False`).

        `options` are further fields of each request; `provider` is who serves the model, where
        that is not whose wire it is; `open_session` begins the next transcript for `/new`,
        `resume_session` opens that of an id, `choose_model` gives the model of a name;
        `confirm_forget` asks the person before a memory tool forgets anything: without it none
        does. `settings_file` is the one that was named: no tool writes it.
        """
        self._outputs = Outputs(
            folder=outputs_folder(transcript.path), redaction=engine.settings.redaction
        )
        scope = ToolScope(
            root=workspace,
            allow_outside=allow_outside,
            read_only=read_only,
            outputs=self._outputs,
            shell=shell or ShellRule(),
            settings_file=settings_file,
        )
        self._clock = clock or SystemClock()
        self._index = None if index is None else ReportingIndex(index)
        self._key = key
        self._open_session = open_session
        self._resume_session = resume_session
        self._choose_model = choose_model
        self._max_steps = max_steps
        if tools is None:
            tools = (
                read_tool(scope),
                *(() if read_only else (write_tool(scope), edit_tool(scope))),
                *(() if read_only or scope.shell.mode == "off" else (bash_tool(scope),)),
                *self._memory_tools(engine, model, confirm_forget),
            )
        self._runner = CallRunner(tuple(tools))
        self._engine = engine
        self._steps = TurnSteps(
            engine=engine,
            model=model,
            flush_model=flush_model or model,
            conversation=self._converse(transcript),
            scope=scope,
            tools=tuple(tools),
            clock=self._clock,
            tz=tz,
            max_output_tokens=max_output_tokens,
            options=options or {},
            provider=provider,
            own_words=own_words,
            first_run=first_run,
        )
        self._first_model, self._first_flush_model = model, flush_model or model
        self._remember_model()
        self._lock = RunLock()

    def _memory_tools(
        self, engine: Engine, model: ChatModel, confirm: Confirm | None
    ) -> tuple[Tool, ...]:
        return memory_agent_tools(
            engine,
            lambda: self.conversation.session_id,
            window_tokens=engine.settings.window_tokens or model.window_tokens,
            confirm=confirm,
        )

    @property
    def conversation(self) -> Conversation:
        """The session that is under way."""
        return self._steps.conversation

    @property
    def model_name(self) -> str:
        """The model that answers next."""
        return self._steps.model.name

    async def status(self) -> ContextStatus:
        """What stands in the model's window and what it cost so far; `/status` as a value.

        May be asked at any time, also while a run is under way.
        """
        return await self._steps.status()

    def abort(self) -> None:
        """Stop the run at once; what had come is recorded. Nothing runs: nothing happens."""
        if self._lock.under_way:
            self._runner.abort()
            self._steps.abort()

    async def close(self) -> None:
        """End a run that was left half-way, and let go of the transcript."""
        self.abort()
        await self._lock.close()
        self.conversation.transcript.close()

    def run(
        self, text: str, images: Sequence[tuple[str, str]] = ()
    ) -> AsyncGenerator[AgentEvent, None]:
        """One turn, or one command; the last event is `Ended`.

        Who leaves before that does so inside `contextlib.aclosing`, which aborts the turn. The
        next run waits for one that was left without it.
        """
        ticket = RunHandle()
        events = self._run(text, images, ticket)
        ticket.give(events)
        return events

    async def _run(
        self, text: str, images: Sequence[tuple[str, str]], ticket: RunHandle
    ) -> AsyncGenerator[AgentEvent, None]:
        await self._lock.begin(ticket)
        try:
            self._runner.aborted = False
            self._steps.aborted = False
            if self._index is not None:
                self._index.begin()
            async with aclosing(self._answer(text, images)) as events:
                async for event in events:
                    for note in () if self._index is None else self._index.take_notes():
                        yield Told(text=note)
                    yield event
        finally:
            self._lock.end()

    def _answer(
        self, text: str, images: Sequence[tuple[str, str]]
    ) -> AsyncGenerator[AgentEvent, None]:
        if images:
            return self._turn(text if text.strip() else "", images)
        if not text.strip():
            return self._only_told(NOTHING_SAID)
        command = read_command(text)
        if isinstance(command, Mistyped):
            return self._only_told(command.answer)
        return self._command(command) if isinstance(command, Command) else self._turn(text, ())

    async def _only_told(self, text: str) -> AsyncGenerator[AgentEvent, None]:
        yield Told(text=text)
        yield Ended(reason="command")

    async def _turn(
        self, text: str, images: Sequence[tuple[str, str]]
    ) -> AsyncGenerator[AgentEvent, None]:
        steps = self._steps
        if self._open_session is not None:
            settings = self._engine.settings.session.reset
            now = self._clock.now()
            reset = reset_due(self.conversation.last_activity, now, settings, steps.tz)
            if reset.due:
                yield Told(text=f"{await self._begin_anew()} Why: {reset.reason}.")
        steps.begin()
        await durably(self.conversation.say, text, images)
        for number in range(1, self._max_steps + 1):
            step = Step(number=number)
            async with aclosing(self._step(step)) as events:
                async for event in events:
                    yield event
            if step.message is None or self._runner.aborted:
                stopped = step.aborted or self._runner.aborted
                yield Ended(reason="aborted" if stopped else "failed", steps=number)
                return
            calls = calls_of(step.message)
            async with aclosing(steps.upkeep(step, mid_turn=bool(calls))) as events:
                async for event in events:
                    yield event
            if not calls:
                yield Ended(reason="done", steps=number)
                return
        reason = f"Stopped after {self._max_steps} requests in one turn; say how to go on."
        yield Failed(kind="model", reason=reason)
        yield Ended(reason="max-steps", steps=self._max_steps)

    async def _step(self, step: Step) -> AsyncGenerator[AgentEvent, None]:
        """One reply and the results of its calls; whoever leaves in between leaves it whole."""
        try:
            async with aclosing(self._steps.answer(step)) as events:
                async for event in events:
                    yield event
            if step.message is not None:
                async with aclosing(self._runner.run(step.message, self.conversation)) as results:
                    async for result in results:
                        yield result
        finally:
            await self._runner.settle(self.conversation)

    async def _command(self, command: Command) -> AsyncGenerator[AgentEvent, None]:
        await durably(self.conversation.keep_command, command.name, recordable(command))
        if command.name == "compact":
            self._steps.begin()
            yield UpkeepBegan(kind="compaction")
            done = await self._steps.compact_on_request(command.argument)
            if done is None:
                yield Told(text=NOT_WAITED_FOR)
                yield Ended(reason="aborted")
                return
            yield done
            yield Told(text=compaction_text(done.result))
        else:
            try:
                yield await self.answer_command(command)
            except RecollectError as error:
                yield Told(text=f"That could not be done: {str(error).rstrip('.')}.")
        yield Ended(reason="command")

    async def answer_command(self, command: Command) -> Told:
        """Carry out any command but `/compact`, which is a run; leaves no line in the transcript.

        RecollectError where it cannot be done.
        """
        name, argument = command.name, command.argument
        session = self.conversation.session_id
        scope = self._memory_scope()
        if name == "status":
            status = await self.status()
            text = status_text(status, detail=argument == "detail")
            return Told(text=text, data=status.to_dict())
        if name == "why":
            return await self._why(argument)
        if name == "sessions":
            lines = await asyncio.to_thread(self._sessions)
            data = {"sessions": [line.to_dict() for line in lines]}
            return Told(text=listed_text(lines), data=data)
        answers: dict[CommandName, Callable[[], Awaitable[str]]] = {
            "undo": self._undo,
            "new": self._begin_anew,
            "reset": self._begin_anew,
            "memory": lambda: answer_memory(argument, scope),
            "facts": lambda: answer_facts(argument, scope),
            "receipt": lambda: receipt_text(self._engine, session, argument),
            "replay": lambda: replay_text(
                self._engine, session, argument, elsewhere=scope.command_line(f"replay {session}")
            ),
            "model": lambda: self.use_model(argument),
            "name": lambda: self._name(argument),
            "branch": lambda: self._branch(argument),
            "export": lambda: self._export(argument),
            "resume": lambda: self._resume(argument),
        }
        answer = answers.get(name)
        text = help_text() if answer is None else await answer()
        return Told(text=text)

    async def _why(self, argument: str) -> Told:
        last = await self._steps.last_request()
        made = await self._steps.next_request() if last is None else last.made
        which = "next" if last is None else "last"
        text = why_text(made.report, argument, which=which)
        return Told(text=text, data=made.report.to_dict())

    def _sessions(self) -> list[SessionLine]:
        conversation = self.conversation
        folder = conversation.transcript.path.parent
        return listed_sessions(folder, conversation.session_id, self._index)

    async def _name(self, name: str) -> str:
        if not name:
            called = self.conversation.name
            return f"This session is called {called}." if called else "Say how: /name TEXT"
        kept = await durably(name_session, self.conversation, name)
        return f"This session is called {kept} now."

    async def use_model(self, name: str, *, record: bool = True) -> str:
        """Let the model of this name answer from now on, also when the session goes on later
        unless that is not to be recorded; without a name, only say which one does."""
        steps = self._steps
        if not name:
            window = steps.window_tokens
            size = "of unknown size" if window is None else f"{window:,} tokens"
            return f"model {steps.model.name} ({steps.model.format}), window {size}"
        if self._choose_model is None:
            return "This host has chosen the model; it cannot be changed from here."
        model = self._choose_model(name)
        if model.format != steps.model.format:
            return (
                f"{name} is asked in another way ({model.format}); begin with it in the settings."
            )
        before = steps.model
        self._ask_model(model)
        if record:
            await durably(self.conversation.keep_model, provider=self._provider, name=model.name)
        return f"{model.name} answers from now on, in place of {before.name}."

    def _ask_model(self, model: ChatModel) -> None:
        """This one answers, and writes the notes where the one that answers does."""
        steps = self._steps
        own_flush = self._first_flush_model is not self._first_model
        steps.flush_model = self._first_flush_model if own_flush else model
        steps.model = model
        steps.begin()

    def _remember_model(self) -> None:
        """Let the model answer that was chosen in this session, if the same provider is asked."""
        named = self.conversation.model_of(self._provider)
        model = self._first_model
        if named is not None and named != model.name and self._choose_model is not None:
            chosen = self._choose_model(named)
            model = chosen if chosen.format == model.format else model
        if model is not self._steps.model:
            self._ask_model(model)

    @property
    def _provider(self) -> str:
        """Who is asked, as the transcript names it: a server by its host, else by the wire."""
        return urlsplit(self._engine.settings.models.base_url or "").netloc or (
            self._first_model.format
        )

    async def _branch(self, argument: str) -> str:
        """Go on before one of the user's messages; what came after stays in the file."""
        if not argument:
            return branch_points_text(branch_points(self.conversation))
        return branched_text(await durably(branch_session, self.conversation, argument))

    async def _export(self, argument: str) -> str:
        """Write the session to a file; relative names are of the workspace."""
        if argument == "-":
            return "Name a file: a chat has no output of its own to write it to."
        transcript, root = self.conversation.transcript.path, self._steps.scope.root
        name = argument or f"session-{self.conversation.session_id[:8]}.md"
        file = root / os.path.expanduser(name)  # noqa: ASYNC240, PTH111 - asks no disk
        done = await asyncio.to_thread(export_session, transcript, file)
        how = "the transcript itself" if done.format == "jsonl" else "as Markdown"
        return f"Written: {done.file} ({done.bytes_written:,} bytes, {how})."

    async def _resume(self, wanted: str) -> str:
        if not wanted:
            return "Say which: /resume ID; /sessions lists them."
        if self._resume_session is None:
            return "This host cannot change sessions; start it with the other one."
        meant = session_meant(await asyncio.to_thread(self._sessions), wanted)
        if meant.current:
            return "That session is under way already."
        before, resume = self.conversation, self._resume_session
        try:
            await durably(self._change_session, lambda: resume(meant.session_id))
        finally:
            if self.conversation is not before:
                self._engine.end(before.session_id)
        return f"Session {meant.session_id} goes on; the one before is kept as {before.session_id}."

    def _memory_scope(self) -> MemoryScope:
        return MemoryScope(
            engine=self._engine,
            session_id=self.conversation.session_id,
            workspace=self._steps.scope.root,
        )

    async def _undo(self) -> str:
        """The engine's cut and the transcript's compaction go together, whoever took one back."""
        conversation = self.conversation
        taken = 0
        if conversation.last_compaction_is_own or not conversation.compactions:
            entries = conversation.transcript.entries
            done = await undo_in_engine(self._engine, conversation.session_id, entries)
            session = self._engine.session(conversation.session_id)
            taken = await durably(conversation.follow, session.state) + (done.undone is not None)
            if not taken and (not session.keeping.loaded or newest_cut(session.state.edits)):
                return f"Nothing was undone: {done.reason}."
        undone = None if taken else await durably(conversation.undo)
        if isinstance(undone, NothingToUndo):
            return f"There is nothing to undo: {undone.reason}."
        return "The last compaction is undone; what it had replaced is shown again."

    async def _begin_anew(self) -> str:
        before = self.conversation
        if self._open_session is None:
            return NO_NEW
        try:
            await durably(self._change_session, self._open_session)
        except TranscriptError as error:
            return f"No new session could be begun, and this one goes on: {error}."
        finally:
            if self.conversation is not before:
                self._engine.end(before.session_id)
        return f"A new session has begun; the one before is kept as {before.session_id}."

    def _change_session(self, open_session: Callable[[], SessionTranscript]) -> None:
        """All at once: nobody finds a transcript that is open and belongs to no conversation."""
        before = self.conversation
        transcript = open_session()
        self._steps.conversation = self._converse(transcript)
        before.transcript.close()
        self._outputs.follow(transcript.path)
        if transcript.entries:
            self._remember_model()
        elif self._steps.model is not self._first_model:  # a new session takes the model along
            self.conversation.keep_model(provider=self._provider, name=self.model_name)

    def _converse(self, transcript: SessionTranscript) -> Conversation:
        return Conversation(transcript, clock=self._clock, index=self._index, key=self._key)
