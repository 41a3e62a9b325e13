"""The loop without a screen: request, reply, tool calls, results, next request, until none is left.

Owns the order of things. Always holds: every message is on the disk before the next request goes
out; a turn ends in exactly one `Ended`, unless the disk takes nothing (TranscriptError); whatever
a model, a tool or memory does, the history is as it was, plus what was said, and every call of a
recorded reply has its result. It never resets a session because something went wrong.
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
    compaction_text,
    read_command,
)
from recollect.agent.conversation import Conversation
from recollect.agent.durably import durably
from recollect.agent.events import AgentEvent, Ended, Failed, Told
from recollect.agent.memory_command import MemoryGround, answer_memory, recordable
from recollect.agent.one_run import OneRun, Ticket
from recollect.agent.overview import context_of, status_of
from recollect.agent.prompt import OWN_WORDS
from recollect.agent.reset import reset_due
from recollect.agent.step import Step
from recollect.agent.steps import Stepping
from recollect.agent.telling_index import TellingIndex
from recollect.agent.tools.confine import Ground
from recollect.agent.tools.defaults import default_tools
from recollect.agent.tools.outcome import Tool
from recollect.agent.tools.outputs import Outputs
from recollect.boundary import SystemClock
from recollect.engine.engine import Engine
from recollect.errors import TranscriptError
from recollect.ports import ChatModel, Clock
from recollect.session.files import outputs_folder
from recollect.session.index import SessionIndex
from recollect.session.transcript import SessionTranscript
from recollect.session.undo import NothingToUndo
from recollect.values.history import newest_cut

MAX_STEPS = 200
"""Requests of one turn; a model that asks on and on is stopped and told."""
NOTHING_SAID = "Nothing was said, so nothing was asked; write a message or a command."
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
        max_steps: int = MAX_STEPS,
        max_output_tokens: int | None = None,
        options: Mapping[str, Any] | None = None,
        provider: str = "",
        own_words: str = OWN_WORDS,
        first_run: bool = False,
        open_session: Callable[[], SessionTranscript] | None = None,
    ) -> None:
        """`engine` compacts when asked, not in the background (`compact_in_background=False`).

        `options` are further fields of each request; `provider` is who serves the model, where
        that is not whose wire it is; `open_session` begins the next transcript for `/new`.
        """
        self._outputs = Outputs(
            folder=outputs_folder(transcript.path), redaction=engine.settings.redaction
        )
        ground = Ground(
            root=workspace,
            allow_outside=allow_outside,
            read_only=read_only,
            outputs=self._outputs,
        )
        self._clock = clock or SystemClock()
        self._index = None if index is None else TellingIndex(index)
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
        self._one = OneRun()

    @property
    def conversation(self) -> Conversation:
        """The session that is under way."""
        return self._stepping.conversation

    def abort(self) -> None:
        """Stop the run at once; what had come is recorded. Nothing runs: nothing happens."""
        if self._one.under_way:
            self._runner.abort()
            self._stepping.abort()

    async def close(self) -> None:
        """End a run that was left half-way, and let go of the transcript."""
        self.abort()
        await self._one.close()
        self.conversation.transcript.close()

    def run(
        self, text: str, images: Sequence[tuple[str, str]] = ()
    ) -> AsyncGenerator[AgentEvent, None]:
        """One turn, or one command; the last event is `Ended`.

        Who leaves before that does so inside `contextlib.aclosing`, which aborts the turn. The
        next run waits for one that was left without it.
        """
        ticket = Ticket()
        events = self._run(text, images, ticket)
        ticket.give(events)
        return events

    async def _run(
        self, text: str, images: Sequence[tuple[str, str]], ticket: Ticket
    ) -> AsyncGenerator[AgentEvent, None]:
        await self._one.begin(ticket)
        try:
            self._runner.aborted = False
            self._stepping.aborted = False
            if self._index is not None:
                self._index.begin()
            async with aclosing(self._answer(text, images)) as events:
                async for event in events:
                    for note in () if self._index is None else self._index.take_notes():
                        yield Told(text=note)
                    yield event
        finally:
            self._one.end()

    def _answer(
        self, text: str, images: Sequence[tuple[str, str]]
    ) -> AsyncGenerator[AgentEvent, None]:
        if images:
            return self._turn(text if text.strip() else "", images)
        if not text.strip():
            return self._nothing_said()
        command = read_command(text)
        return self._command(command) if isinstance(command, Command) else self._turn(text, ())

    async def _nothing_said(self) -> AsyncGenerator[AgentEvent, None]:
        yield Told(text=NOTHING_SAID)
        yield Ended(reason="command")

    async def _turn(
        self, text: str, images: Sequence[tuple[str, str]]
    ) -> AsyncGenerator[AgentEvent, None]:
        stepping = self._stepping
        if self._open_session is not None:
            settings = self._engine.settings.session.reset
            now = self._clock.now()
            reset = reset_due(self.conversation.last_activity, now, settings, stepping.tz)
            if reset.due:
                yield Told(text=f"{await self._begin_anew()} Why: {reset.reason}.")
        stepping.begin()
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
            async with aclosing(stepping.upkeep(step, mid_turn=bool(calls))) as events:
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
            async with aclosing(self._stepping.answer(step)) as events:
                async for event in events:
                    yield event
            if step.message is not None:
                async with aclosing(self._runner.run(step.message, self.conversation)) as results:
                    async for result in results:
                        yield result
        finally:
            await self._runner.settle(self.conversation)

    async def _command(self, command: Command) -> AsyncGenerator[AgentEvent, None]:
        is_memory = command.name == "memory"
        kept = recordable(command.argument) if is_memory else command.argument
        await durably(self.conversation.keep_command, command.name, kept)
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
            yield Told(text=await self._begin_anew())
        elif command.name == "status":
            record = await durably(self.conversation.record)
            yield Told(text=status_of(self._stepping, record))
        elif is_memory:
            yield Told(text=await answer_memory(command.argument, self._memory_ground()))
        else:
            yield Told(text=context_of(self._stepping, detail=command.argument == "detail"))
        yield Ended(reason="command")

    def _memory_ground(self) -> MemoryGround:
        return MemoryGround(
            engine=self._engine,
            session_id=self.conversation.session_id,
            workspace=self._stepping.ground.root,
        )

    async def _undo(self) -> str:
        """The engine's cut and the transcript's compaction go together, whoever took one back."""
        conversation = self.conversation
        taken = 0
        if conversation.last_compaction_is_own or not conversation.compactions:
            done = await self._engine.undo(conversation.session_id)
            held = self._engine.session(conversation.session_id)
            taken = await durably(conversation.follow, held.state) + (done.undone is not None)
            if not taken and (not held.keeping.loaded or newest_cut(held.state.edits)):
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
        self._stepping.conversation = self._converse(transcript)
        before.transcript.close()
        self._outputs.clear()
        self._outputs.follow(transcript.path)

    def _converse(self, transcript: SessionTranscript) -> Conversation:
        return Conversation(transcript, clock=self._clock, index=self._index, key=self._key)
