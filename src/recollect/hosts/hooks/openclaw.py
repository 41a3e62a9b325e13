"""Answers OpenClaw's context engine: assembles a turn's window, stores turns, and compacts old
messages. The view refers to unchanged messages by place, so that OpenClaw sends its own objects. If
Recollect's settings name no model, OpenClaw's own model writes summaries: the plugin receives the
prompt and sends the answer with its next request."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

from recollect.core.boundary import Failure, attempted
from recollect.core.compaction.cut import PAUSE_SECONDS
from recollect.core.formats.json_text import encode
from recollect.core.values.compaction import CompactionResult
from recollect.core.values.edit import LeaveOut
from recollect.core.values.model import Answer, Prompt
from recollect.core.values.report import Report
from recollect.core.values.transcript import RecordedSession, TranscriptItem
from recollect.errors import FormatError, ModelUnavailable
from recollect.hosts.hooks.memory import archive
from recollect.hosts.memories import MemoryPool, OpenMemory, open_space
from recollect.system.config import Settings
from recollect.system.projects import project_space

OpenClawCall: TypeAlias = Literal["assemble", "commit", "compact", "answer"]
CALLS: Final[Mapping[str, OpenClawCall]] = {call: call for call in get_args(OpenClawCall)}
ANSWER_SECONDS: Final = 180.0  # not measured; a compaction calls a model
_MOST_SESSIONS: Final = 64  # not measured; bounds memory
_MOST_COMPACTIONS: Final = 8  # not measured; bounds memory
_WHERE: Final = "openclaw"
LOG: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class _Conversation:
    messages: list[Any] = field(default_factory=list, repr=False)
    is_shown: bool = False
    """True if `messages` contains the whole session."""
    pending: list[Any] = field(default_factory=list, repr=False)
    """Turns to store once the next request to assemble a window shows their place."""
    window_tokens: int | None = None
    no_sooner: float = 0.0
    """Time before which no compaction runs, because the last one freed nothing."""


class HostModel:
    """A `Model` that asks OpenClaw's own model, through a plugin that waits for a compaction."""

    name = ""
    window_tokens: int | None = None

    async def ask(self, prompt: Prompt) -> Answer:
        running = _running.get()
        if running is None or not running.host_answers:
            raise ModelUnavailable("OpenClaw offers no model for this request")
        return await running.ask(prompt)

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


@dataclass(slots=True)
class _Compaction:
    host_answers: bool
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    task: asyncio.Task[CompactionResult | None] | None = None
    asked: asyncio.Queue[dict[str, Any]] = field(default_factory=asyncio.Queue)
    waiting: dict[str, asyncio.Future[Answer]] = field(default_factory=dict)
    host_left: bool = False
    """True if the plugin did not answer a prompt, perhaps because OpenClaw's process has ended."""

    async def ask(self, prompt: Prompt) -> Answer:
        name = uuid.uuid4().hex
        answer = self.waiting[name] = asyncio.get_running_loop().create_future()
        prompt_fields = {
            "system": prompt.system,
            "text": prompt.text,
            "maxTokens": prompt.max_output_tokens,
        }
        self.asked.put_nowait({"compaction": self.id, "id": name, **prompt_fields})
        try:
            return await asyncio.wait_for(answer, ANSWER_SECONDS)
        except TimeoutError:
            late = "OpenClaw's model did not answer in time"
            raise ModelUnavailable(late, prompt_read=True) from None
        finally:
            del self.waiting[name]

    def answered(self, name: str, text: object, *, cut_off: bool) -> None:
        waiting = self.waiting.get(name)
        if waiting is None or waiting.done():
            return
        if isinstance(text, str) and text:
            waiting.set_result(Answer(text=text, stop="length" if cut_off else "stop"))
        else:
            self.host_left = True
            waiting.set_exception(ModelUnavailable("OpenClaw's model gave no answer"))


_running: Final[ContextVar[_Compaction | None]] = ContextVar("running", default=None)


class OpenClawMemory:
    """Answers the context engine of OpenClaw's sessions, with the memories of their workspaces."""

    def __init__(self, settings: Settings) -> None:
        self._settings = replace(
            settings.across_sessions(),
            # Run compactions only when OpenClaw asks for them, because only then can its model be
            # asked. OpenClaw has already subtracted its reserve from the budget.
            compaction=replace(
                settings.compaction, enabled=False, reserve_tokens=0, reserve_tokens_floor=0
            ),
        )
        model = HostModel() if settings.models.provider is None else None
        self.spaces: MemoryPool[str, OpenMemory] = MemoryPool(
            lambda space: OpenMemory(open_space(space, self._settings, model))
        )
        self._conversations: OrderedDict[tuple[str, str], _Conversation] = OrderedDict()
        self._compactions: OrderedDict[str, _Compaction] = OrderedDict()

    async def answer(self, call: OpenClawCall, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to the plugin; {} if there is none. Raise FormatError for bad input."""
        if call == "answer":
            return await self._answered(payload)
        asked = _read(payload)
        memory = await self.spaces.get(asked.space)
        if isinstance(memory, Failure):
            return {}
        memory.touch(asked.session)
        work = {"assemble": self._assembled, "commit": self._committed, "compact": self._compact}
        with memory.in_use(asked.session):
            return await work[call](memory, asked)

    async def _assembled(self, memory: OpenMemory, asked: _Asked) -> dict[str, Any]:
        conversation = self._conversation(asked)
        conversation.messages, conversation.is_shown = asked.messages, True
        await self._keep_pending(memory, asked.space, asked.session, conversation)
        window = asked.window_tokens
        if window is not None:  # the request here includes the prompt, OpenClaw's budget does not
            window += memory.engine.parts.weigher.text(asked.prompt)
        conversation.window_tokens = window
        prompt = {"role": "user", "content": asked.prompt, "timestamp": int(time.time() * 1000)}
        sent_messages = [*asked.messages, *([prompt] if asked.prompt.strip() else [])]
        context = await memory.engine.prepare(
            asked.session,
            {"messages": sent_messages, "model": asked.model},
            format="pi",
            window_tokens=window,
        )
        places = {id(message): index for index, message in enumerate(sent_messages)}
        rows = [places.get(id(row), row) for row in context.request["messages"]]
        if len(sent_messages) > len(asked.messages) and (
            not rows or rows.pop() != len(asked.messages)
        ):
            return {}  # OpenClaw sends the prompt itself, unchanged
        timed_rows = _with_times(rows, sent_messages, int(time.time() * 1000))
        return {"messages": timed_rows, "estimatedTokens": context.report.tokens_after}

    def _conversation(self, asked: _Asked) -> _Conversation:
        key = (asked.space, asked.session)
        known = self._conversations.setdefault(key, _Conversation())
        self._conversations.move_to_end(key)
        for other_key in tuple(self._conversations)[:-_MOST_SESSIONS]:
            if not self._conversations[other_key].pending:
                del self._conversations[other_key]
        return known

    async def _committed(self, memory: OpenMemory, asked: _Asked) -> dict[str, Any]:
        """Store a turn after the known messages of its session. After a restart no messages are
        known, so turns wait until OpenClaw sends the whole conversation."""
        conversation = self._conversation(asked)
        if not conversation.is_shown:
            conversation.pending += asked.messages
            return {"status": "committed", "stored": 0}
        known = [encode(message) for message in conversation.messages]
        turn = [encode(message) for message in asked.messages]
        size = len(turn)
        if all(known[index : index + size] != turn for index in range(len(known) - size + 1)):
            conversation.messages = [*conversation.messages, *asked.messages]
            known += turn
        stored_count = await self._keep(memory, asked.space, asked.session, known)
        return {"status": "committed" if stored_count else "duplicate", "stored": stored_count}

    async def _keep_pending(
        self, memory: OpenMemory, space: str, session: str, conversation: _Conversation
    ) -> None:
        pending, conversation.pending = conversation.pending, []
        shown_raws = {encode(message) for message in conversation.messages}
        lacking = [raw for raw in map(encode, pending) if raw not in shown_raws]
        if lacking:
            await self._keep(memory, space, session, lacking)

    async def _keep(
        self, memory: OpenMemory, space: str, session: str, raws: Sequence[bytes]
    ) -> int:
        items = tuple(
            TranscriptItem(raw=raw, line=line_number) for line_number, raw in enumerate(raws, 1)
        )
        recorded_session = RecordedSession(kind="pi", format="pi", items=items, requests=())
        return await archive(
            memory.engine,
            recorded_session,
            self._settings,
            space=space,
            session=session,
            file=_WHERE,
            now=time.time(),
        )

    async def _compact(self, memory: OpenMemory, asked: _Asked) -> dict[str, Any]:
        running = _Compaction(host_answers=asked.host_answers)
        token = _running.set(running)
        try:
            running.task = asyncio.create_task(self._compacted(memory, asked))
        finally:
            _running.reset(token)
        self._compactions[running.id] = running
        while len(self._compactions) > _MOST_COMPACTIONS:
            _, oldest = self._compactions.popitem(last=False)
            if oldest.task is not None:
                oldest.task.cancel()
        return await self._next(running)

    async def _compacted(self, memory: OpenMemory, asked: _Asked) -> CompactionResult | None:
        conversation = self._conversations.get((asked.space, asked.session))
        if conversation is None or not conversation.messages:
            return None
        window = conversation.window_tokens or asked.window_tokens
        request = {"messages": conversation.messages, "model": asked.model}
        if asked.if_due:
            if time.time() < conversation.no_sooner:
                return None
            context = await memory.engine.preview(
                asked.session, request, format="pi", recall=False, window_tokens=window
            )
            if not _is_due(context.report):
                return None
        result = await memory.engine.compact(
            asked.session,
            request,
            instructions=asked.instructions,
            format="pi",
            window_tokens=window,
        )
        LOG.info("compaction for OpenClaw: %s", result.reason)
        running = _running.get()
        if not result.compacted and (running is None or not running.host_left):
            conversation.no_sooner = time.time() + PAUSE_SECONDS
        return result

    async def _next(self, running: _Compaction) -> dict[str, Any]:
        assert running.task is not None
        asking = asyncio.ensure_future(running.asked.get())
        finished_tasks, _ = await asyncio.wait(
            {running.task, asking}, return_when=asyncio.FIRST_COMPLETED
        )
        if running.task not in finished_tasks:
            return {"ask": asking.result()}
        asking.cancel()
        self._compactions.pop(running.id, None)
        result = running.task.result()
        if result is None:
            return {"compacted": False}
        return {
            "compacted": result.compacted,
            "reason": str(result.reason),
            "summary": result.summary,
            "tokensBefore": result.tokens_before,
            "tokensAfter": result.tokens_after,
        }

    async def _answered(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        running = self._compactions.get(str(payload.get("compaction")))
        if running is None:
            return {}
        cut_off = payload.get("stop") == "length"
        running.answered(str(payload.get("id")), payload.get("text"), cut_off=cut_off)
        return await self._next(running)

    async def close(self) -> None:
        """End open compactions, store waiting turns, and close the memories."""
        tasks = [
            compaction.task
            for compaction in self._compactions.values()
            if compaction.task is not None
        ]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for (space, session), conversation in self._conversations.items():
            if conversation.pending:
                memory = await self.spaces.get(space)
                if not isinstance(memory, Failure):
                    await attempted(self._keep_pending(memory, space, session, conversation))
        await self.spaces.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    space: str
    session: str
    messages: list[Any] = field(repr=False)
    prompt: str = field(repr=False)
    instructions: str = field(repr=False)
    model: str
    window_tokens: int | None
    if_due: bool
    host_answers: bool


def _with_times(rows: Sequence[Any], sent_messages: Sequence[Any], now: int) -> list[Any]:
    """Give each message from Recollect the time of the message after it: OpenClaw sorts by time."""
    timed_rows: list[Any] = []
    behind: object = now
    for row in reversed(rows):
        if isinstance(row, int):
            behind = sent_messages[row].get("timestamp", behind)
            timed_rows.append(row)
        else:
            timed_rows.append({**row, "timestamp": behind} if row.get("timestamp") == 0 else row)
    return timed_rows[::-1]


def _is_due(report: Report) -> bool:
    full = report.moment is not None and report.moment.kind == "over-limit"
    trimmed_keys = {edit.anchor for edit in report.edits if isinstance(edit, LeaveOut)}
    return full or any(
        fate.fate == "left out" and fate.key in trimmed_keys for fate in report.fates()
    )


def _read(payload: Mapping[str, Any]) -> _Asked:
    space, session, folder = (_text(payload, key) for key in ("space", "session", "folder"))
    messages = payload.get("messages", [])
    if not session or not (space or Path(folder).is_absolute()):
        raise FormatError("a request of the OpenClaw plugin must name its session and a folder")
    if not isinstance(messages, Sequence) or not all(
        isinstance(message, dict) for message in messages
    ):
        raise FormatError("messages of OpenClaw must be an array of objects")
    window = payload.get("windowTokens")
    return _Asked(
        space=space or project_space(folder),
        session=session,
        messages=list(messages),
        prompt=_text(payload, "prompt"),
        instructions=_text(payload, "instructions"),
        model=_text(payload, "model"),
        window_tokens=int(window) if isinstance(window, int | float) and window >= 1 else None,
        if_due=payload.get("ifDue") is True,
        host_answers=payload.get("hostAnswers") is True,
    )


def _text(payload: Mapping[str, Any], key: str) -> str:
    value = payload.get(key)
    return value if isinstance(value, str) else ""
