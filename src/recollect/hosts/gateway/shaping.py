"""Fits a request into the window and adds recalled text; then stores the reply and learns its token
usage. If memory fails, the gateway sends a view trimmed to the window, or else the unchanged
request, and the record contains the reason."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Any, Final, TypeVar

from recollect.adapters.providers.overflow import recognize_overflow
from recollect.adapters.wiring.models import OwnModel
from recollect.adapters.wiring.stores import data_secret
from recollect.core.boundary import Component, Failure, attempted
from recollect.core.engine import Context, Engine, Observation
from recollect.core.engine.session import find_sessions
from recollect.core.rules.identity import space_secret
from recollect.core.values.history import requests_of
from recollect.core.values.message import EntryKey
from recollect.core.values.model import FormatName
from recollect.errors import FormatError, StaleSession
from recollect.hosts.gateway.activity import Handling
from recollect.hosts.gateway.caller import Caller, History, RequestKind, SessionRecognition
from recollect.hosts.gateway.upstream import KeptReply
from recollect.hosts.http import in_thread_if_large
from recollect.hosts.memories import MemoryPool, OpenMemory, open_space
from recollect.system.config import Settings
from recollect.system.projects import project_space

ResultT = TypeVar("ResultT")

OBSERVED_SECONDS: Final = 5.0
"""Time that a turn waits until the session's last reply was read."""
REPLY_SECONDS: Final = 2.0  # not measured; bounds a wait for the last reply
POLL_SECONDS: Final = 0.005
"""Polling interval of an unnamed request while it waits for the reply that it seems to repeat."""
_WARM_UP: Final = "warm-up"
_WARM_UP_REQUEST: Final = (
    b'{"model":"","messages":[{"role":"user","content":"What did we decide about it before?"}]}'
)


class WithoutMemory(Enum):
    """Why a request was sent without memory, in words for people."""

    LATE = "memory took too long"
    STUCK = "the thread that runs the memories does not answer"
    FAILED = "memory failed"
    NOT_OPENED = "its memory cannot be opened"
    TOO_LARGE = "it was too large for the provider"


@dataclass(slots=True, eq=False, kw_only=True)
class SpaceMemory(OpenMemory):
    """The memory of one space, and its recognized sessions."""

    recognition: SessionRecognition
    observing: dict[str, asyncio.Task[Any]] = field(default_factory=dict)
    """Tasks that read replies, by session. A session's next turn waits for the session's task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSession:
    """A session's name, and how the gateway found it."""

    session: str
    history: History | None = field(default=None, repr=False)
    """The history that identified the session; None if the client names its session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapedRequest:
    """The body to send to the provider, and the request's session."""

    body: bytes = field(repr=False)
    handling: Handling
    why: str = ""
    context: Context | None = field(default=None, repr=False)
    memory: SpaceMemory | None = field(default=None, repr=False)
    space: str | None = None
    named: NamedSession | None = None

    @property
    def session(self) -> str | None:
        return None if self.named is None else self.named.session


class Shaper:
    """Prepares requests with the memories of their spaces."""

    def __init__(
        self,
        settings: Settings,
        *,
        model: OwnModel | None = None,
        open_engine: Callable[[str], Engine] | None = None,
    ) -> None:
        """Prepare without opening a memory. `model` writes summaries. `open_engine` opens the
        memory of a space, in place of the settings."""
        self._settings = settings
        self._open_engine = open_engine or partial(open_space, settings=settings, model=model)
        self.spaces: MemoryPool[str, SpaceMemory] = MemoryPool(self._open)
        self._stateless = Engine(
            replace(
                settings,
                compaction=replace(settings.compaction, enabled=False),
                trim=replace(settings.trim, protect_messages=1, protect_first_user=False),
            ),
            recognize_overflow=recognize_overflow,
            off_the_loop=True,
        )
        """Prepares a request without memory: fixes pairs of calls and results, and trims it."""
        self._component = Component("gateway's memory")
        summarizes = settings.gateway.summaries != "off" or settings.models.provider is not None
        self._seconds = 2 * settings.turn.deadline_seconds + (
            settings.compaction.deadline_seconds if summarizes else 0.0
        )

    def _open(self, space: str) -> SpaceMemory:
        secret = space_secret(space, data_secret(self._settings.store.url))
        return SpaceMemory(engine=self._open_engine(space), recognition=SessionRecognition(secret))

    async def warm_up(self) -> None:
        """Open the default memory, and load what its first turn needs."""
        memory = await self.spaces.get(self._settings.gateway.space)
        engines = [self._stateless, *([] if isinstance(memory, Failure) else [memory.engine])]
        for engine in engines:
            await attempted(engine.preview(_WARM_UP, _WARM_UP_REQUEST))
            engine.end(_WARM_UP)

    async def close(self) -> None:
        """Finish reading replies, and then close every memory."""
        await self.spaces.close()
        await self._stateless.close()

    async def shape(
        self,
        caller: Caller,
        format_name: FormatName,
        body: bytes,
        *,
        known_session: NamedSession | None = None,
    ) -> ShapedRequest:
        """Return the view of a turn. `known` is the turn's session, if it was recognized before."""
        space = self.space_of(caller)
        memory = await attempted(self._wait_for_memory(self.spaces.get(space)))
        if isinstance(memory, Failure):
            return await self.without_memory(
                caller, format_name, body, cause=WithoutMemory.NOT_OPENED
            )
        result = await attempted(self._turn(memory, caller, format_name, body, known_session))
        if isinstance(result, Failure):
            if issubclass(result.error, FormatError):
                return ShapedRequest(body=body, handling=Handling.PASSED, why=result.said)
            self._component.fail(result.said, whose=space)
            late = issubclass(result.error, TimeoutError)
            cause = WithoutMemory.LATE if late else WithoutMemory.FAILED
            return await self.without_memory(caller, format_name, body, cause=cause)
        self._component.recover(whose=space)
        named_session, context = result
        is_unchanged = context.request == body
        return ShapedRequest(
            body=context.request,
            handling=Handling.AS_IT_CAME if is_unchanged else Handling.SHAPED,
            context=context,
            memory=memory,
            space=space,
            named=named_session,
        )

    async def _turn(
        self,
        memory: SpaceMemory,
        caller: Caller,
        format_name: FormatName,
        body: bytes,
        known_session: NamedSession | None,
    ) -> tuple[NamedSession, Context]:
        if known_session is None and caller.session is not None and caller.scope is None:
            known_session = NamedSession(session=caller.session)
        named_session = known_session or await self._recognise(memory, caller, format_name, body)
        session = named_session.session
        memory.touch(session)
        with memory.in_use(session):
            await self._wait_for_reading(memory, session)
            prepare = partial(
                memory.engine.prepare, session, body, format=format_name, betas=caller.betas
            )
            try:
                return named_session, await self._wait_for_memory(prepare())
            except StaleSession:
                return named_session, await self._wait_for_memory(prepare())

    async def shape_side_request(
        self, caller: Caller, format_name: FormatName, body: bytes
    ) -> ShapedRequest:
        """Return the view of a side request that contains a conversation's history."""
        space = self.space_of(caller)
        memory = await attempted(self._wait_for_memory(self.spaces.get(space)))
        if isinstance(memory, Failure) or caller.session is None:
            return ShapedRequest(body=body, handling=Handling.PASSED)
        named_session = NamedSession(session=caller.session)
        session = named_session.session
        memory.touch(session)
        await self._wait_for_reading(memory, session)
        context = await attempted(
            self._wait_for_memory(
                memory.engine.preview(
                    session,
                    body,
                    format=format_name,
                    betas=caller.betas,
                    recall=caller.kind is RequestKind.COUNT,
                )
            )
        )
        if isinstance(context, Failure):
            self._component.fail(context.said, whose=space)
            return ShapedRequest(
                body=body, handling=Handling.PASSED, why=WithoutMemory.FAILED.value
            )
        is_unchanged = context.request == body
        return ShapedRequest(
            body=context.request,
            handling=Handling.PASSED if is_unchanged else Handling.SHAPED,
            context=context,
            space=space,
            named=named_session,
        )

    async def without_memory(
        self,
        caller: Caller,
        format_name: FormatName,
        body: bytes,
        *,
        cause: WithoutMemory,
        error: Any = None,
        tries: int = 0,
    ) -> ShapedRequest:
        """Return the best view without memory: the unchanged request if it fits, else a trimmed
        one. `error` is the provider's refusal of a request as too large, which happened `tries`
        times; the view is then smaller."""
        engine, name = self._stateless, f"passing-{time.monotonic_ns()}"

        async def view() -> Context:
            prepare = partial(engine.prepare, name, body, format=format_name, betas=caller.betas)
            context = await prepare()
            for _ in range(tries if error is not None else 0):
                await engine.observe(name, error)
                context = await prepare()
            return context

        context = await attempted(self._wait_for_memory(view()))
        engine.end(name)
        if isinstance(context, Failure):  # send the request unchanged: the provider decides
            return ShapedRequest(body=body, handling=Handling.WITHOUT_MEMORY, why=cause.value)
        return ShapedRequest(
            body=context.request, handling=Handling.WITHOUT_MEMORY, why=cause.value, context=context
        )

    async def shape_again(
        self,
        last_shaped: ShapedRequest,
        caller: Caller,
        format_name: FormatName,
        body: bytes,
        error: Any,
        *,
        tries: int,
    ) -> ShapedRequest:
        """Return a smaller view after the provider refused the last one as too large."""
        if last_shaped.memory is not None and last_shaped.session is not None:
            engine = last_shaped.memory.engine
            observation = await attempted(
                self._wait_for_memory(engine.observe(last_shaped.session, error))
            )
            if not isinstance(observation, Failure):
                next_shaped = await self.shape(
                    caller, format_name, body, known_session=last_shaped.named
                )
                if len(next_shaped.body) < len(last_shaped.body):
                    return next_shaped
                # The provider refuses even the smallest view with memory. Trim only this request.
        trimmed_request = await self.without_memory(
            caller, format_name, body, cause=WithoutMemory.TOO_LARGE, error=error, tries=tries
        )
        return replace(trimmed_request, why=last_shaped.why or trimmed_request.why)

    def space_of(self, caller: Caller) -> str:
        """Return the space that a request names, else the folder's space, else the default."""
        settings = self._settings.gateway
        if caller.space:
            return caller.space
        if settings.by_folder and caller.folder:
            return project_space(caller.folder)  # the hooks use the same name
        return settings.space

    async def observe(
        self, shaped_request: ShapedRequest, reply: KeptReply
    ) -> Observation | Failure:
        """Read a reply that the client received, after `SpaceMemory.begin` for its session."""
        memory, session = shaped_request.memory, shaped_request.session
        assert memory is not None and session is not None and shaped_request.context is not None
        assert shaped_request.named is not None
        task = asyncio.current_task()
        assert task is not None
        memory.observing[session] = task
        try:
            turn = shaped_request.context.report.turn
            return await attempted(self._observe(memory, shaped_request.named, reply, turn))
        finally:
            if memory.observing.get(session) is task:
                del memory.observing[session]
            memory.end(session)

    async def _observe(
        self, memory: SpaceMemory, named_session: NamedSession, reply: KeptReply, turn: int
    ) -> Observation:
        read = reply.read() if reply.is_short else await asyncio.to_thread(reply.read)
        session, history = named_session.session, named_session.history
        mark = None if history is None else partial(memory.recognition.add_reply, session, history)
        return await memory.engine.observe(session, read, turn=turn, wait=False, mark=mark)

    async def _recognise(
        self, memory: SpaceMemory, caller: Caller, format_name: FormatName, body: bytes
    ) -> NamedSession:
        recognition = memory.recognition
        history = await in_thread_if_large(
            len(body), recognition.history, format_name, body, caller
        )
        until = time.monotonic() + REPLY_SECONDS
        while time.monotonic() < until and any(  # noqa: ASYNC110 - another thread ends it
            session in memory.running for session in recognition.find_awaited(history)
        ):
            await asyncio.sleep(POLL_SECONDS)
        # Do not await from here to `remember`, so that no other request takes the same session.
        name, is_owned, is_repeated = recognition.find_continued(history, memory.running)
        if name is not None:
            recognition.remember(name, history, is_repeated=is_repeated)
            if is_owned or await self._is_ours(memory, name):
                return NamedSession(session=name, history=history)
            recognition.forget(name)
        stored_name, newest, is_passed_on = await self._find_stored(memory, history)
        name = stored_name or recognition.new_name(history, is_passed_on=is_passed_on)
        has_reply, is_repeated = stored_name is not None, stored_name is not None or newest is None
        recognition.remember(
            name, history, has_reply=has_reply, stored=newest, is_repeated=is_repeated
        )
        return NamedSession(session=name, history=history)

    async def _is_ours(self, memory: SpaceMemory, session: str) -> bool:
        """Return False if another gateway continued the session with a different conversation."""
        newest = await self._newest_key(memory, session)
        if newest is None or newest == memory.recognition.newest_stored(session):
            return True
        await self._wait_for_memory(memory.engine.parts.sessions.load_state(session))
        handle = memory.engine.session(session)
        return newest in handle.archive_state.durable_keys or newest in handle.state.path

    async def _newest_key(self, memory: SpaceMemory, session: str) -> EntryKey | None:
        work = memory.engine.parts.store.page(limit=1, session=session, descending=True)
        page = await attempted(self._wait_for_memory(work))
        return None if isinstance(page, Failure) or not page else page[0].segment.key

    async def _find_stored(
        self, memory: SpaceMemory, history: History
    ) -> tuple[str | None, EntryKey | None, bool]:
        """Return the stored session that the history repeats, and its newest message; else the
        newest message of the session with the request's name, or True if others continued it."""
        recognition, owner = memory.recognition, history.owner
        marks = recognition.marks_to_search(history)
        passed_on = "" if owner is None else recognition.mark_of_passing_on(owner)
        work = memory.engine.parts.store.call(find_sessions, [*marks, passed_on])
        stored_by_mark = await attempted(self._wait_for_memory(work))
        if isinstance(stored_by_mark, Failure):
            return None, None, False
        for mark in marks:
            stored_session = stored_by_mark.get(mark)
            if stored_session is None or recognition.knows(stored_session.session):
                continue
            newest = await self._newest_key(memory, stored_session.session)
            await self._wait_for_memory(
                memory.engine.parts.sessions.load_state(stored_session.session)
            )
            state = memory.engine.session(stored_session.session).state
            if requests_of(state) == stored_session.turn and not recognition.knows(
                stored_session.session
            ):
                return stored_session.session, newest, False
        if owner is None or passed_on in stored_by_mark:
            return None, None, owner is not None
        return None, await self._newest_key(memory, owner), False

    async def _wait_for_reading(self, memory: SpaceMemory, session: str) -> None:
        reading = memory.observing.get(session)
        if reading is not None:
            await asyncio.wait({reading}, timeout=OBSERVED_SECONDS)

    async def _wait_for_memory(self, work: Awaitable[ResultT]) -> ResultT:
        """Wait for memory for a limited time. Memory's work continues if the client disconnects."""
        task = asyncio.ensure_future(work)
        try:
            return await asyncio.wait_for(asyncio.shield(task), self._seconds)
        except (TimeoutError, asyncio.CancelledError):
            task.add_done_callback(
                lambda finished_task: finished_task.cancelled() or finished_task.exception()
            )
            raise
