"""The open sessions of one engine: opened on first use, released when their client is done. After
closing, or in a forked child of the process, no session can be used."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from recollect.core.boundary import Boundary
from recollect.core.engine.compact import Compactor
from recollect.core.engine.keeper import SessionKeeper
from recollect.core.engine.ledger import ReleasedTo
from recollect.core.engine.session import Session, check_session_name, load_state
from recollect.core.ports import Clock
from recollect.core.values.history import SessionId, SessionState
from recollect.system.forks import FORKED, OwnProcess


class OpenSessions:
    """The sessions that one engine has open."""

    def __init__(
        self,
        compactor: Compactor,
        *,
        reader: SessionKeeper | None,
        keeper: SessionKeeper | None,
        clock: Clock,
        deadline_seconds: float,
    ) -> None:
        self._compactor = compactor
        self._reader = reader
        self._keeper = keeper
        self._clock = clock
        self._deadline_seconds = deadline_seconds
        self._session_by_id: dict[SessionId, Session] = {}
        self._first_process: OwnProcess | None = None
        self.are_closed = False

    @property
    def belong_to_parent(self) -> bool:
        """True if the process that first used this memory was forked, and this is the child."""
        return self._first_process is not None and self._first_process.is_other

    def check_open(self) -> None:
        """Raise RuntimeError if the memory is closed, or belongs to the parent process."""
        self._first_process = self._first_process or OwnProcess()
        if self._first_process.is_other:
            raise RuntimeError(FORKED)
        if self.are_closed:
            raise RuntimeError(
                "this memory is closed: call `open_memory` again, and close it only when the last "
                "session is done"
            )

    def open(self, session_id: SessionId, state: SessionState | None = None) -> Session:
        """Return the session with this name, and open it if necessary, with this state."""
        check_session_name(session_id)
        if not isinstance(state, SessionState | None):
            type_name = type(state).__name__
            raise TypeError(
                f"state must be a SessionState, not {type_name}: pass bytes to `read_state`"
            )
        session = self._session_by_id.get(session_id)
        if session is None or state is not None:
            self.check_open()  # after `close`, sessions that are open may still be returned
            session = self._session_by_id[session_id] = Session(session_id, state)
        return session

    def find(self, session: Session | SessionId) -> Session:
        """Return the session that a caller named, or passed as a handle."""
        self.check_open()
        if isinstance(session, Session) and not session.process.is_other:
            return session
        return self.open(session.id if isinstance(session, Session) else session)

    async def load_state(self, session: Session | SessionId) -> SessionState:
        """Return a session's newest state, which another process may have written."""
        handle = self.find(session)
        async with handle.lock:
            boundary = Boundary(turn_seconds=0.0, stage_seconds=0.0)
            return await load_state(handle, self._reader, boundary)

    def load_again(self) -> None:
        """Let every session use the stored state from now on, not the one in RAM."""
        for session in self._session_by_id.values():
            session.archive_state.load_again()

    def end(self, session: Session | SessionId) -> None:
        """Release a session. If messages are not stored, the session's state is lost."""
        name = session.id if isinstance(session, Session) else check_session_name(session)
        self._session_by_id.pop(name, None)
        self._compactor.component.forget(whose=name)

    def abandon(self, session_id: SessionId) -> None:
        """Release a session whose request failed, so that another process can continue it."""
        session = self._session_by_id.get(session_id)
        if session is not None:
            self.end(session)
            self._compactor.cancel(session)
            if self._keeper is not None:
                self._keeper.abandon(session.archive_state)

    async def release(
        self, session: Session | SessionId, seconds: float | None = None
    ) -> ReleasedTo | None:
        """Release a session once it is stored. Return the least durable place of its messages;
        "stale" if another process wrote the session first; None if this memory stores nothing."""
        handle = self.find(session)
        async with handle.lock:
            released_to: ReleasedTo | None = None
            if self._keeper is not None:
                released_to = await self._keeper.wait_until_stored(
                    handle.id,
                    handle.state,
                    handle.archive_state,
                    seconds=self._deadline_seconds if seconds is None else seconds,
                    now=self._clock.now(),
                    learned=handle.has_learned,
                )
            if self._session_by_id.get(handle.id) is handle:
                self.end(handle)
            return released_to

    async def wait_for_turns(self) -> None:
        """Wait for a limited time until no session prepares a turn."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._deadline_seconds):
                for session in tuple(self._session_by_id.values()):
                    async with session.lock:
                        pass
