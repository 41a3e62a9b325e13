"""The loop without a screen: request, reply, tool calls, results, next request, until none is left.

Owns the order of things. Always holds: every message is on the disk before the next request goes
out; a turn ends in exactly one `Ended`, unless the disk takes nothing (TranscriptError); whatever
a model, a tool or memory does, the history is as it was, plus what was said. It never resets a
session because something went wrong.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import tzinfo
from pathlib import Path
from typing import Any

from recollect.agent.calls import CallRunner, calls_of
from recollect.agent.commands import (
    Command,
    NoCommand,
    compaction_text,
    context_text,
    read_command,
    status_text,
)
from recollect.agent.conversation import Conversation
from recollect.agent.events import AgentEvent, Ended, Failed, Told
from recollect.agent.prompt import OWN_WORDS
from recollect.agent.reset import reset_due
from recollect.agent.step import Step
from recollect.agent.steps import Stepping
from recollect.agent.tools.bash import bash_tool
from recollect.agent.tools.confine import Ground
from recollect.agent.tools.files import edit_tool, write_tool
from recollect.agent.tools.outcome import Tool
from recollect.agent.tools.read import read_tool
from recollect.engine.clock import SystemClock
from recollect.engine.engine import Engine
from recollect.formats.json_spans import encode
from recollect.ports import ChatModel, Clock
from recollect.session.index import SessionIndex
from recollect.session.transcript import Transcript
from recollect.session.undo import NothingToUndo

MAX_STEPS = 200
"""Requests of one turn; a model that asks on and on is stopped and told."""
NO_NEW = "This host cannot begin a new session by itself; start it again for a fresh one."


class Agent:
    """A conversation with tools, kept in a transcript and shaped by the engine."""

    def __init__(
        self,
        engine: Engine,
        model: ChatModel,
        transcript: Transcript,
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
        max_steps: int = MAX_STEPS,
        max_output_tokens: int | None = None,
        options: Mapping[str, Any] | None = None,
        provider: str = "",
        own_words: str = OWN_WORDS,
        first_run: bool = False,
        open_session: Callable[[], Transcript] | None = None,
    ) -> None:
        """`engine` compacts when asked, not in the background (`compact_in_background=False`).

        `options` are further fields of each request; `provider` is who serves the model, where
        that is not whose wire it is; `open_session` begins the next transcript for `/new`.
        """
        ground = Ground(root=workspace, allow_outside=allow_outside, read_only=read_only)
        self._clock = clock or SystemClock()
        self._index = index
        self._key = key
        self._open_session = open_session
        self._max_steps = max_steps
        chosen = default_tools(ground) if tools is None else tuple(tools)
        self._runner = CallRunner(chosen)
        self._engine = engine
        self._stepping = Stepping(
            engine=engine,
            model=model,
            flush_model=flush_model or model,
            conversation=self._converse(transcript),
            ground=ground,
            tools=chosen,
            clock=self._clock,
            tz=tz,
            max_output_tokens=max_output_tokens,
            options=options or {},
            provider=provider,
            own_words=own_words,
            first_run=first_run,
        )
        self._running = False

    @property
    def conversation(self) -> Conversation:
        """The session that is under way."""
        return self._stepping.conversation

    def abort(self) -> None:
        """Stop the run at once; what had come is recorded. Nothing runs: nothing happens."""
        if self._running:
            self._runner.abort()
            self._stepping.abort()

    async def run(
        self, text: str, images: Sequence[tuple[str, str]] = ()
    ) -> AsyncGenerator[AgentEvent, None]:
        """One turn, or one command; the last event is `Ended`."""
        if self._running:
            raise RuntimeError("this agent is at work; wait for its turn to end, or abort it")
        self._running = True
        self._runner.aborted = False
        self._stepping.aborted = False
        command = read_command(text) if not images else NoCommand(reason="it carries images")
        told = self._command(command) if isinstance(command, Command) else self._turn(text, images)
        try:
            async with aclosing(told) as events:
                async for event in events:
                    yield event
        finally:
            self._running = False

    async def _turn(
        self, text: str, images: Sequence[tuple[str, str]]
    ) -> AsyncGenerator[AgentEvent, None]:
        stepping = self._stepping
        if self._open_session is not None:
            settings = self._engine.settings.session.reset
            now = self._clock.now()
            reset = reset_due(self.conversation.last_activity, now, settings, stepping.tz)
            if reset.due:
                yield Told(text=f"{self._begin_anew()} Why: {reset.reason}.")
        stepping.begin()
        self.conversation.say(text, images)
        for number in range(1, self._max_steps + 1):
            step = Step(number=number)
            async with aclosing(stepping.answer(step)) as events:
                async for event in events:
                    yield event
            if step.message is None:
                yield Ended(reason="aborted" if step.aborted else "failed", steps=number)
                return
            calls = calls_of(step.message)
            async with aclosing(self._runner.run(step.message, self.conversation)) as results:
                async for result in results:
                    yield result
            if self._runner.aborted:
                yield Ended(reason="aborted", steps=number)
                return
            async with aclosing(stepping.upkeep(step, mid_turn=bool(calls))) as events:
                async for event in events:
                    yield event
            if not calls:
                yield Ended(reason="done", steps=number)
                return
        reason = f"Stopped after {self._max_steps} requests in one turn; say how to go on."
        yield Failed(kind="model", reason=reason)
        yield Ended(reason="max-steps", steps=self._max_steps)

    async def _command(self, command: Command) -> AsyncGenerator[AgentEvent, None]:
        self.conversation.keep_command(command.name, command.argument)
        if command.name == "compact":
            self._stepping.begin()
            done = await self._stepping.compact_on_request(command.argument)
            if done is None:
                yield Ended(reason="aborted")
                return
            yield done
            yield Told(text=compaction_text(done.result))
        elif command.name == "undo":
            yield Told(text=await self._undo())
        elif command.name in ("new", "reset"):
            yield Told(text=self._begin_anew())
        elif command.name == "status":
            yield Told(text=self._status())
        else:
            yield Told(text=self._context(detail=command.argument == "detail"))
        yield Ended(reason="command")

    async def _undo(self) -> str:
        """The engine's cut and the transcript's compaction go together."""
        if self.conversation.last_compaction_is_own:
            done = await self._engine.undo(self.conversation.session_id)
            if done.undone is None:
                return f"Nothing was undone: {done.reason}."
        undone = self.conversation.undo()
        if isinstance(undone, NothingToUndo):
            return f"There is nothing to undo: {undone.reason}."
        return "The last compaction is undone; what it had replaced is shown again."

    def _begin_anew(self) -> str:
        if self._open_session is None:
            return NO_NEW
        before = self.conversation
        transcript = self._open_session()
        before.transcript.close()
        self._engine.end(before.session_id)
        self._stepping.conversation = self._converse(transcript)
        return f"A new session has begun; the one before is kept as {before.session_id}."

    def _converse(self, transcript: Transcript) -> Conversation:
        return Conversation(transcript, clock=self._clock, index=self._index, key=self._key)

    def _status(self) -> str:
        stepping = self._stepping
        return status_text(
            session_id=self.conversation.session_id,
            model=stepping.model.name,
            window_tokens=stepping.window_tokens,
            messages=len(self.conversation.shown()),
            compactions=self.conversation.compactions,
            record=self.conversation.record(),
        )

    def _context(self, *, detail: bool) -> str:
        self._stepping.begin()
        messages = [one.message for one in self.conversation.shown()]
        return context_text(
            self._stepping.workspace,
            self._stepping.shape.tools,
            system_chars=len(self._stepping.shape.system),
            messages=len(messages),
            message_chars=sum(len(encode(dict(one)).decode()) for one in messages),
            detail=detail,
        )


def default_tools(ground: Ground) -> tuple[Tool, ...]:
    """read, write, edit and bash, bound to a workspace."""
    return (read_tool(ground), write_tool(ground), edit_tool(ground), bash_tool(ground))
