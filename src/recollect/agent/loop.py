"""The agent's loop: request, reply, tool calls, results, until a reply has no call.

Every message is on the disk before the next request is sent. A turn ends in exactly one `Ended`,
unless the transcript cannot be written (TranscriptError). Every call of a recorded reply gets
exactly one result, in order. A tool that fails returns an error as its result. Calls of a reply
that was cut off get a result but do not run. An agent has only one active run at a time. Every
request contains the tool definitions, so in a small window the search is the only memory tool."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, Final

from recollect.adapters.session.files import write_durably
from recollect.adapters.session.transcript import SessionTranscript
from recollect.agent.commands import (
    Command,
    answer_memory,
    compaction_text,
    export_session,
    help_text,
    read_command,
    receipt_text,
    recordable_argument,
    why_text,
)
from recollect.agent.conversation import Conversation, needs_reset, session_counts
from recollect.agent.events import (
    AgentEvent,
    CallBegan,
    CallEnded,
    Ended,
    Failed,
    Told,
    UpkeepBegan,
)
from recollect.agent.steps import AbortableWork, Step, TurnSteps, is_whole
from recollect.agent.tools.confine import (
    CUT_OFF,
    ShellRule,
    Tool,
    ToolOutcome,
    ToolScope,
    result_message,
    tool_failure,
)
from recollect.agent.tools.files import edit_tool, read_tool, write_tool
from recollect.agent.tools.shell import bash_tool
from recollect.core.boundary import Failure, SystemClock, attempted
from recollect.core.engine.engine import Engine
from recollect.core.engine.lookup import MemoryLookup
from recollect.core.ports import ChatModel, Clock
from recollect.core.values.history import SessionId
from recollect.errors import RecollectError, TranscriptError
from recollect.hosts.inspect.status import ContextStatus
from recollect.hosts.inspect.turns import context_text, status_text
from recollect.hosts.tools.handler import ANSWER_TOKENS, Confirm, memory_tools
from recollect.system.plain_text import plain_line

AGENT_BUSY = (
    "this agent is at work: wait for its turn to end, or abort it; to leave an iterator early, use "
    "contextlib.aclosing(agent.run(...))"
)
ABORTED = "The user stopped the turn while this ran; it may be done in part."
NOT_RUN = "Not run: the user stopped the turn before."
# Not measured: Python closes an abandoned run within a few turns of the event loop.
CLOSING_SECONDS = 1.0
MAX_STEPS = 200
"""Maximum number of requests in one turn."""
# Not measured: a name of a session fits a line of a list.
_NAME_CHARS = 160
NOTHING_SAID = "The message is empty; write a message or a command."
NOT_WAITED_FOR = (
    "Stopped. A compaction that was nearly done ends in the background; it is shown with your next "
    "message, and /undo takes it back."
)


def calls_of(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [block for block in message["content"] if block.get("type") == "toolCall"]


async def _run_tool(tool: Tool, arguments: Mapping[str, Any]) -> ToolOutcome:
    async def work() -> Any:
        return await tool.run(arguments)

    outcome: Any = await attempted(work())  # a tool of the host may raise anything
    if isinstance(outcome, ToolOutcome):
        return outcome
    problem = "its answer is not a ToolOutcome"
    if isinstance(outcome, Failure):
        problem = outcome.error.__name__
    return tool_failure(f"{tool.name} broke: {problem}. Try it another way.")


def _last_calls(conversation: Conversation) -> tuple[list[Mapping[str, Any]], int]:
    """Return the tool calls of the newest reply, and how many of them have a result."""
    answered = 0
    for item in reversed(conversation.history()):
        role = item.message.get("role")
        if role == "toolResult":
            answered += 1
        elif is_whole(item.message):
            return calls_of(item.message), answered
        elif role == "user":
            break
    return [], 0


class Agent:
    """An agent: a model with tools, a transcript, and the engine that prepares its requests."""

    def __init__(
        self,
        engine: Engine,
        model: ChatModel,
        transcript: SessionTranscript,
        workspace: Path,
        *,
        clock: Clock | None = None,
        tools: Sequence[Tool] | None = None,
        read_only: bool = False,
        shell: ShellRule | None = None,
        max_steps: int = MAX_STEPS,
        max_output_tokens: int | None = None,
        first_run: bool = False,
        open_session: Callable[[], SessionTranscript] | None = None,
        choose_model: Callable[[str], ChatModel] | None = None,
        confirm_forget: Confirm | None = None,
        settings_file: Path | None = None,
        keep_counts: Callable[[Mapping[str, int | None]], object] | None = None,
        resumed: bool = False,
    ) -> None:
        """Create an agent. `engine` must have `compact_in_background=False`. `open_session` starts
        the next transcript for `/new`. `keep_counts` stores the session's counts after each run. If
        the user asked for this session (`resumed`), an earlier message does not reset it.
        `choose_model` returns the model of a given name. `confirm_forget` asks a person before a
        memory tool forgets anything; if it is None, nothing is forgotten. `settings_file` is a file
        that the user named, and that no tool may write."""
        scope = ToolScope(
            root=workspace,
            read_only=read_only,
            shell=shell or ShellRule(),
            settings_file=settings_file,
        )
        self._clock = clock or SystemClock()
        self._open_session = open_session
        self._confirm_forget = confirm_forget
        self._keep_counts = keep_counts
        self._resumed_at = self._clock.now() if resumed else 0.0
        self._choose_model = choose_model
        self._max_steps = max_steps
        if tools is None:
            window_tokens = engine.settings.window_tokens or model.window_tokens
            tools = self._make_tools(engine, scope, window_tokens)
        self._work = AbortableWork()
        self._begun = 0
        """Number of the newest reply's tool calls that have begun."""
        self._engine = engine
        self._steps = TurnSteps(
            engine=engine,
            model=model,
            conversation=Conversation(transcript, clock=self._clock),
            scope=scope,
            tools=tuple(tools),
            clock=self._clock,
            max_output_tokens=max_output_tokens,
            first_run=first_run,
            work=self._work,
        )
        self._run_now: AsyncGenerator[AgentEvent, None] | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    def _make_tools(
        self, engine: Engine, scope: ToolScope, window_tokens: int | None
    ) -> tuple[Tool, ...]:
        may_run = not scope.read_only and scope.shell.mode != "off"
        return (
            read_tool(scope),
            *(() if scope.read_only else (write_tool(scope), edit_tool(scope))),
            *((bash_tool(scope),) if may_run else ()),
            *memory_agent_tools(
                engine,
                lambda: self.conversation.session_id,
                window_tokens=window_tokens,
                confirm=self._confirm_forget,
            ),
        )

    @property
    def conversation(self) -> Conversation:
        return self._steps.conversation

    @property
    def model_name(self) -> str:
        return self._steps.model.name

    async def status(self) -> ContextStatus:
        """Return the values for `/status`. A call is possible at any time, even during a run."""
        return await self._steps.status()

    def abort(self) -> None:
        if not self._idle.is_set():
            self._work.abort()

    async def close(self) -> None:
        """End an unfinished run, and close the transcript."""
        self.abort()
        if self._run_now is not None and not getattr(self._run_now, "ag_running", False):
            await self._run_now.aclose()
            self._idle.set()
        await self._idle.wait()
        self.conversation.transcript.close()

    async def run(self, text: str) -> AsyncGenerator[AgentEvent, None]:
        """Run one turn or one command. The last event of a run is `Ended`. To leave earlier, use
        `contextlib.aclosing`, which aborts the run. Raise RuntimeError if another run is active."""
        try:
            async with asyncio.timeout(CLOSING_SECONDS):
                while not self._idle.is_set():  # Python may close an abandoned run late
                    await self._idle.wait()
        except TimeoutError:
            raise RuntimeError(AGENT_BUSY) from None
        self._idle.clear()
        self._work.aborted = False
        try:
            self._run_now = self._answer(text)
            async with aclosing(self._run_now) as events:
                async for event in events:
                    yield event
        finally:
            self._run_now = None
            if self._keep_counts is not None:
                counts = session_counts(self.conversation.transcript.entries)
                with suppress(TranscriptError):  # the next run stores the counts again
                    await write_durably(self._keep_counts, counts)
            self._idle.set()

    def _answer(self, text: str) -> AsyncGenerator[AgentEvent, None]:
        if not text.strip():
            return self._notice(NOTHING_SAID)
        command = read_command(text)
        if isinstance(command, str):
            return self._notice(command)
        return self._turn(text) if command is None else self._command(command)

    async def _notice(self, text: str) -> AsyncGenerator[AgentEvent, None]:
        yield Told(text=text)
        yield Ended(reason="command")

    async def _turn(self, text: str) -> AsyncGenerator[AgentEvent, None]:
        steps = self._steps
        if self._reset_is_due():
            yield Told(text=f"session.reset: {await self._begin_new()}")
        steps.begin()
        await write_durably(self.conversation.say, text)
        for number in range(1, self._max_steps + 1):
            step = Step(number=number)
            async with aclosing(self._step(step)) as events:
                async for event in events:
                    yield event
            if step.message is None or self._work.aborted:
                was_stopped = step.aborted or self._work.aborted
                yield Ended(reason="aborted" if was_stopped else "failed", steps=number)
                return
            calls = calls_of(step.message)
            async with aclosing(steps.upkeep(step, mid_turn=bool(calls))) as events:
                async for event in events:
                    yield event
            if not calls:
                yield Ended(reason="done", steps=number)
                return
        reason = (
            f"Stopped after {self._max_steps} requests in one turn; tell the model to continue."
        )
        yield Failed(kind="model", reason=reason)
        yield Ended(reason="max-steps", steps=self._max_steps)

    async def _step(self, step: Step) -> AsyncGenerator[AgentEvent, None]:
        """Yield one reply and its calls' results. A step completes even if the consumer leaves."""
        try:
            async with aclosing(self._steps.answer(step)) as events:
                async for event in events:
                    yield event
            if step.message is not None:
                async with aclosing(self._run_calls(step.message)) as results:
                    async for result in results:
                        yield result
        finally:  # give a result to each call that has none
            begun_count, self._begun = self._begun, 0
            calls, answered = _last_calls(self.conversation)
            for index, call in enumerate(calls[answered:], answered):
                await self._keep_result(
                    call, tool_failure(ABORTED if index < begun_count else NOT_RUN)
                )

    async def _run_calls(
        self, message: Mapping[str, Any]
    ) -> AsyncGenerator[CallBegan | CallEnded, None]:
        for call in calls_of(message):
            arguments = call.get("arguments") or {}
            yield CallBegan(id=call["id"], name=call["name"], arguments=arguments)
            if self._work.aborted:
                outcome = tool_failure(NOT_RUN)
            elif message.get("stopReason") == "length":
                outcome = tool_failure(CUT_OFF)
            else:
                self._begun += 1
                outcome = await self._outcome(call["name"], arguments)
            await self._keep_result(call, outcome)
            yield CallEnded(
                id=call["id"],
                name=call["name"],
                is_error=outcome.is_error,
                text=outcome.text,
                exit_code=(outcome.details or {}).get("exitCode"),
            )

    async def _keep_result(self, call: Mapping[str, Any], outcome: ToolOutcome) -> None:
        timestamp = self.conversation.milliseconds()
        await write_durably(
            self.conversation.keep, {**result_message(call, outcome), "timestamp": timestamp}
        )

    async def _outcome(self, name: str, arguments: Any) -> ToolOutcome:
        tool = next((tool for tool in self._steps.tools if tool.name == name), None)
        if tool is None:
            names = ", ".join(tool.name for tool in self._steps.tools)
            return tool_failure(f"There is no such tool; there are {names}.")
        tool_arguments = arguments if isinstance(arguments, Mapping) else {}
        return await self._work.unless_aborted(_run_tool(tool, tool_arguments)) or tool_failure(
            ABORTED
        )

    async def _command(self, command: Command) -> AsyncGenerator[AgentEvent, None]:
        await write_durably(
            self.conversation.record_command, command.name, recordable_argument(command)
        )
        if command.name == "compact":
            self._steps.begin()
            yield UpkeepBegan(kind="compaction")
            compaction = self._steps.compact("manual", instructions=command.argument)
            compaction_event = await self._work.unless_aborted(compaction)
            if compaction_event is None:
                yield Told(text=NOT_WAITED_FOR)
                yield Ended(reason="aborted")
                return
            yield compaction_event
            yield Told(text=compaction_text(compaction_event.result))
        else:
            try:
                yield await self.answer_command(command)
            except RecollectError as error:
                yield Told(text=f"That could not be done: {str(error).rstrip('.')}.")
        yield Ended(reason="command")

    async def answer_command(self, command: Command) -> Told:
        """Run any command except `/compact`, without writing to the transcript. Raise
        RecollectError if the command fails."""
        name, argument = command.name, command.argument
        if name in ("status", "context"):
            status = await self.status()
            is_status = name == "status"
            text = status_text(status) if is_status else context_text(status.request, argument)
            return Told(text=text, data=status.to_dict())
        if name == "why":
            sent_request, request_kind = await self._steps.current_request()
            text = why_text(
                sent_request.report,
                argument,
                request_name="last" if request_kind == "sent" else "next",
            )
            return Told(text=text, data=sent_request.report.to_dict())
        if name == "receipt":
            session = self.conversation.session_id
            return Told(text=await receipt_text(self._engine, session, argument))
        if name == "help":
            return Told(text=help_text())
        if name in ("undo", "new", "reset", "model"):
            self._steps.last = None  # the next request will be different
        if name == "memory":
            session = self.conversation.session_id
            answer = answer_memory(argument, self._engine, session, self._confirm_forget)
            return Told(text=await answer)
        if name == "undo":
            return Told(text=await self._undo())
        if name == "name":
            return Told(text=await write_durably(self._name, argument))
        if name == "export":
            return Told(text=await asyncio.to_thread(self._export, argument))
        if name == "model":
            return Told(text=await self.use_model(argument))
        return Told(text=await self._begin_new())

    async def use_model(self, name: str) -> str:
        """Use the model with this name from now on; for an empty name, return the current name."""
        steps = self._steps
        if not name:
            window = steps.window_tokens
            size = "of unknown size" if window is None else f"{window:,} tokens"
            return f"model {steps.model.name} ({steps.model.format}), window {size}"
        if self._choose_model is None:
            return (
                "The program that runs this chat has chosen the model; it cannot be changed here."
            )
        model = self._choose_model(name)
        if model.format != steps.model.format:
            return f"{name} needs another wire format ({model.format}); set it in the settings."
        before, steps.model = steps.model, model
        steps.begin()
        return f"{model.name} answers from now on, in place of {before.name}."

    def _name(self, argument: str) -> str:
        name = plain_line(argument)[:_NAME_CHARS]
        if not name:
            return "Give a name, such as /name Harbour."
        self.conversation.transcript.append_name(name)
        return f"This session is called {name} now."

    def _export(self, argument: str) -> str:
        name = argument or f"session-{self.conversation.session_id[:8]}.jsonl"
        file = self._steps.scope.root / Path(name).expanduser()
        size = export_session(self.conversation.transcript.path, file)
        return f"Written: {file} ({size:,} bytes)."

    async def _undo(self) -> str:
        conversation = self.conversation
        undo_result = await self._engine.undo(conversation.session_id)
        state = self._engine.session(conversation.session_id).state
        undone = await write_durably(conversation.record_undos, state)
        if not undone and undo_result.undone is None:
            return f"Nothing was undone: {undo_result.reason}."
        return "The last compaction is undone; the messages that it had replaced are sent again."

    def _reset_is_due(self) -> bool:
        entries = self.conversation.transcript.entries
        if not entries or self._open_session is None:
            return False
        last_at = max(entries[-1].milliseconds / 1000, self._resumed_at)
        return needs_reset(last_at, self._clock.now(), self._engine.settings.session.reset)

    async def _begin_new(self) -> str:
        before = self.conversation
        if self._open_session is None:
            return (
                "The program that runs this chat cannot start a new session; restart it for a new "
                "one."
            )
        try:
            await write_durably(self._change_session, self._open_session)
        finally:
            if self.conversation is not before:
                self._engine.end(before.session_id)
        return f"A new session has begun; the previous one is kept as {before.session_id}."

    def _change_session(self, open_session: Callable[[], SessionTranscript]) -> None:
        """Change the session without an await: a cancelled run must leave no transcript open."""
        before = self.conversation
        self._steps.conversation = Conversation(open_session(), clock=self._clock)
        before.transcript.close()


SMALL_WINDOW_TOKENS: Final = 16_000
"""In a smaller window, all five memory tools would take more than a tenth of the space."""
_ANSWER_DIVISOR: Final = 8
"""A memory tool's answer takes at most the window divided by this."""


def memory_agent_tools(
    engine: Engine,
    session: Callable[[], SessionId],
    *,
    window_tokens: int | None,
    confirm: Confirm | None = None,
) -> tuple[Tool, ...]:
    """Create the memory tools that fit the window, for the session that `session` returns."""
    if not MemoryLookup(engine).is_stored:
        return ()
    answer_tokens = ANSWER_TOKENS
    if window_tokens is not None:
        answer_tokens = min(answer_tokens, window_tokens // _ANSWER_DIVISOR)
    small = window_tokens is not None and window_tokens < SMALL_WINDOW_TOKENS

    def bound(name: str) -> Callable[[Mapping[str, Any]], Any]:
        async def run(arguments: Mapping[str, Any]) -> ToolOutcome:
            own_session = session() if engine.settings.recall.scope == "session" else None
            tools = memory_tools(
                engine, session=own_session, confirm=confirm, answer_tokens=answer_tokens
            )
            answer = await tools.call(name, arguments)
            return ToolOutcome(text=answer.text, is_error=answer.is_error)

        return run

    return tuple(
        Tool(
            name=definition["name"],
            description=definition["description"],
            parameters=definition["inputSchema"],
            run=bound(definition["name"]),
        )
        for definition in memory_tools(engine).definitions("mcp")
        if not small or definition["name"] == "memory_search"
    )
