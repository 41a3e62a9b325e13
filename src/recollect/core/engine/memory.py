"""The memory of a space outside of turns: sessions, search, facts, import, forgetting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar

from recollect.core.boundary import Failure, attempted
from recollect.core.engine.compact import Compactor
from recollect.core.engine.keeper import SessionKeeper
from recollect.core.engine.ledger import IngestCounts, ReleasedTo
from recollect.core.engine.session import (
    Session,
    ToolAnswers,
    check_format,
    check_order,
    check_session_name,
    checked_messages,
    listed_message,
)
from recollect.core.formats.codec import CODECS, format_of
from recollect.core.formats.json_text import encode
from recollect.core.ports import Clock, Recaller, Store
from recollect.core.rules.identity import ROOT, SealSecret, batch_root, chain, sealed
from recollect.core.rules.tokens import Weigher
from recollect.core.transfer.memory_files import Following
from recollect.core.turn.align import LastRequest, enter, read
from recollect.core.upkeep.jobs import BackgroundJobs
from recollect.core.values.history import Entry, SessionId, SessionState, SpaceId
from recollect.core.values.message import MessageId
from recollect.core.values.model import FormatName
from recollect.core.values.recall import Recalled, RecallRequest
from recollect.core.values.segment import SegmentId, StoredMessage
from recollect.core.values.upkeep import Certificate, ForgetOrder, SessionSummary, Stats
from recollect.errors import StoreError, StoreUnavailable
from recollect.system.config import Settings
from recollect.system.forks import FORKED, OwnProcess

if TYPE_CHECKING:
    from recollect.core.facts.book import FactBook

StoredT = TypeVar("StoredT")
NOTHING_KEPT = "this memory is read-only: set ingest.enabled = true to store anything"


class StoredMemory:
    """The stored memory of one space; `Engine` adds the turns of its sessions."""

    settings: Settings
    space: SpaceId
    _secret: bytes
    _seal: SealSecret
    _clock: Clock
    _weigher: Weigher
    _embedders: tuple[str, ...]
    _recaller: Recaller | None
    _stored: SessionKeeper | None
    """Reads sessions from the store, also with `ingest.enabled = false`."""
    _keeper: SessionKeeper | None
    """The value of `_stored` if messages may be stored; otherwise None."""
    _jobs: BackgroundJobs | None
    _files: Following | None
    _told: ToolAnswers
    _compactor: Compactor
    _sessions: dict[SessionId, Session]
    _delete_stored: Callable[[], Awaitable[Certificate]] | None
    _closed: bool
    _process: OwnProcess | None
    """The first process that used this memory."""

    async def settle(self, seconds: float = 5.0, *, jobs: bool = False) -> int:
        """Wait up to `seconds` until all messages are in the store."""
        raise NotImplementedError

    async def close(self, seconds: float | None = None) -> int:
        """Close the store."""
        raise NotImplementedError

    def _check_open(self) -> None:
        self._process = self._process or OwnProcess()
        if self._process.is_other:
            raise RuntimeError(FORKED)
        if self._closed:
            raise RuntimeError(
                "this memory is closed: call `open_memory` again, and close it only when the last "
                "session is done"
            )

    def session(self, id: SessionId, state: SessionState | None = None) -> Session:  # noqa: A002
        """Return the session with this name. Pass `state` to continue a state that you stored
        yourself."""
        check_session_name(id)
        if not isinstance(state, SessionState | None):
            made = type(state).__name__
            raise TypeError(f"state must be a SessionState, not {made}: pass bytes to `read_state`")
        known = self._sessions.get(id)
        if known is None or state is not None:
            self._check_open()  # after `close`, sessions that are open may still be returned
            known = self._sessions[id] = Session(id, state)
        return known

    def end(self, session: Session | SessionId) -> None:
        """Release a session. If messages are not stored, the session's state is lost."""
        name = session.id if isinstance(session, Session) else check_session_name(session)
        self._sessions.pop(name, None)
        self._compactor.component.forget(whose=name)

    def _abandon(self, session: SessionId) -> None:
        """Release a session whose request failed, so that another process can continue it."""
        handle = self._sessions.get(session)
        if handle is not None:
            self.end(handle)
            self._compactor.cancel(handle)
            if self._keeper is not None:
                self._keeper.abandon(handle.keeping)

    async def _release(
        self, session: Session | SessionId, seconds: float | None = None
    ) -> ReleasedTo | None:
        """Release a session once it is stored. Return the least durable place of its messages;
        "stale" if another process wrote the session first; None if this memory stores nothing."""
        handle = self._handle(session)
        async with handle.lock:
            where: ReleasedTo | None = None
            if self._keeper is not None:
                where = await self._keeper.wait_until_stored(
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

    def _handle(self, session: Session | SessionId) -> Session:
        self._check_open()
        if isinstance(session, Session) and not session.process.is_other:
            return session
        return self.session(session.id if isinstance(session, Session) else session)

    async def ingest(
        self,
        session: SessionId,
        messages: Sequence[bytes | Mapping[str, Any]],
        *,
        format: FormatName | None = None,  # noqa: A002
        batch: str | None = None,
        said_at: float | None = None,
    ) -> IngestCounts:
        """Store messages outside of a turn, as mappings in a wire format or as their JSON. Without
        `batch`, pass the session's history from its start; only new messages are stored. Storing a
        batch twice changes nothing. Raises StoreUnavailable if messages cannot be stored."""
        self._check_open()
        if self._keeper is None:
            raise StoreError(NOTHING_KEPT)
        check_session_name(session)
        given = checked_messages(messages)
        check_format(format)
        if said_at is not None and not isfinite(said_at):
            raise ValueError("said_at must be a time in seconds since the epoch")

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

    async def facts(self, session: SessionId | None = None) -> FactBook:
        """Return the facts of this space, to list, add, correct, pin and trace them. With a
        `session`, return only facts that the session may see (`recall.scope`). With `ingest.enabled
        = false`, facts are read-only."""
        self._check_open()
        if self._stored is None:
            raise StoreError(
                "this memory is read-only and stores no facts: set ingest.enabled = true"
            )
        archive = self._stored.archive
        book = await asyncio.to_thread(_fact_book)  # this import is slow
        spool = await archive.spool()
        return book(
            await archive.store(),
            self.settings,
            self._clock,
            embedders=self._embedders,
            spools=() if spool is None else (spool,),
            before_forgetting=self._require_stored,
            forgotten=self._load_again,
            read_only=self._keeper is None,
            session=session,
        )

    async def sessions(self) -> tuple[SessionSummary, ...]:
        """List the stored sessions, oldest first. A memory file is a session named `file:…`."""
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
        """List a session's stored messages in order. To continue a list, pass the `place` of its
        last message as `after`. With `newest_first`, the list contains the messages before that
        place, newest first."""
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
        """Count the space's messages, passages, vectors, facts, sessions and bytes."""
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
        """Forget permanently, in the store, the spool and the caches of this machine. `messages`
        and `facts` are ids, `matching` is a text, `pattern` a regular expression. `sessions`,
        `said_after` and `said_before` together select messages. The certificate counts the removed
        items and lists the copies that Recollect cannot delete."""
        for name, given in (("messages", messages), ("sessions", sessions), ("facts", facts)):
            if isinstance(given, str):  # a string would be read as a list of one-letter ids
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
            order = replace(order, facts=(await book.order_to_forget(facts)).facts)
        return await book.forget(order)

    async def delete_space(self) -> Certificate:
        """Delete the whole space: its store and its spooled batches. The memory is closed first.
        Close the space in all other processes before this call."""
        self._check_open()
        if self._delete_stored is None:
            raise StoreError(
                "this memory does not own its store: delete the space where the store was opened"
            )
        await self.close()
        return await self._delete_stored()

    async def search(
        self,
        query: str,
        *,
        session: SessionId | None = None,
        budget_tokens: int = 2_000,
        said_after: float | None = None,
        said_before: float | None = None,
    ) -> Recalled:
        """Search memory. Return passages and facts within the budget, best first. With a `session`,
        return only what the session may see (`recall.scope`)."""
        self._check_open()
        if self._recaller is None:
            raise StoreError("this memory has no store, so it cannot be searched")
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
            asks="question",
            explicit=True,
            said_after=said_after,
            said_before=said_before,
        )
        return await self._recaller.recall(request)

    async def _let_arrive(self) -> int:
        return await self.settle(self.settings.turn.deadline_seconds)

    async def _require_stored(self, order: ForgetOrder) -> None:
        """Wait for messages on their way to the store, because no order to forget finds them. An
        order for sessions does not wait for other sessions, whose messages may never arrive."""
        if not await self._let_arrive():
            return
        states = () if self._keeper is None else self._keeper.states
        waiting = {given.session for state in states for given in state.given.values()}
        by_content = order.segments or order.message_ids or order.matching or order.pattern
        is_by_place = bool(order.sessions) and not (by_content or order.facts)
        if not waiting or not is_by_place or not waiting.isdisjoint(order.sessions):
            sessions = f" of {', '.join(sorted(waiting))}" if waiting else ""
            raise StoreUnavailable(
                f"nothing was forgotten: some messages{sessions} are not in the store yet. Try "
                "again later, or forget other sessions by their names"
            )

    async def _look_up(self, question: Callable[[Store], Awaitable[StoredT]]) -> StoredT:
        """Query the store. Raise StoreError if there is no store or it does not answer in time."""
        self._check_open()
        if self._stored is None:
            raise StoreError(NOTHING_KEPT)
        answer = await self._stored.archive.ask(question)
        if isinstance(answer, Failure):
            raise StoreError(f"memory could not be queried: {answer.said}")
        return answer

    def _tell(self, text: str, quotes: Sequence[MessageId]) -> str:
        """Seal an answer of a memory tool, to recognize it when a client sends it back."""
        text = sealed(text, self._seal())
        self._told.add(text, quotes)
        return text

    async def _store_answer_marks(self) -> None:
        if self._keeper is not None:
            await attempted(self._told.keep(self._keeper.archive, now=self._clock.now()))

    def _load_again(self) -> None:
        for handle in self._sessions.values():
            handle.keeping.load_again()

    async def _read_files(self) -> None:
        """Read changed memory files, and wait for a limited time until they are read."""
        if self._files is not None:
            await self._files.look_now()

    def _wake_jobs(self, due_at: float | None = None) -> None:
        """Start due jobs now or at `due_at`, without waiting for them."""
        if self._jobs is not None:
            self._jobs.wake(0.0 if due_at is None else max(0.0, due_at - self._clock.now()))


def _fact_book() -> type[FactBook]:
    from recollect.core.facts.book import FactBook

    return FactBook
