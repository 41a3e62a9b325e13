"""Uses memory outside of a turn, for `recollect.tools` and hooks: searches, reads, writes notes,
computes missing vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from recollect.core.boundary import attempted
from recollect.core.engine.recaller import MemoryRecaller
from recollect.core.ports import Store
from recollect.core.rules.identity import ROOT, chain, identify, seal_answer
from recollect.core.rules.tokens import Weigher
from recollect.core.turn.ingest import ingest
from recollect.core.values.batch import Batch
from recollect.core.values.history import Entry, SessionId
from recollect.core.values.message import Message, MessageId, Role, Text
from recollect.core.values.recall import FILE_SESSIONS, Recalled
from recollect.core.values.segment import Segment, SegmentId, StoredSegment
from recollect.system.config.settings import Redaction as RedactionSettings

if TYPE_CHECKING:
    from recollect.core.engine.engine import Engine
    from recollect.core.facts.book import FactBook

NOTES_SESSION: Final = "notes"
_MAX_SECTIONS: Final = 5_000
"""Not measured; bounds the rows in RAM."""
_EXCHANGE_REACH: Final = 3
"""Messages before and after a hit that belong to its exchange. Not measured; bounds a tool's
answer."""


async def embed_missing(engine: Engine, *, load: bool = False) -> None:
    """Compute missing vectors in the background, also of messages that other processes stored.
    With `load`, load the embedders now, before the first question."""
    recaller = engine.parts.recaller
    if isinstance(recaller, MemoryRecaller):
        await recaller.embed_missing(load=load)
    engine.parts.wake_jobs()


class MemoryLookup:
    """The memory of a space, limited to what one session may see."""

    def __init__(self, engine: Engine, session: SessionId | None = None) -> None:
        """`session` limits the memory to what this session may see (`recall.scope`). Without
        `session`, the whole space is visible."""
        self._engine = engine
        self._parts = engine.parts
        self._own_session = session
        self._session = None if engine.settings.recall.scope == "space" else session

    @property
    def space(self) -> str:
        return self._engine.space

    @property
    def own_session(self) -> SessionId | None:
        return self._own_session

    @property
    def is_stored(self) -> bool:
        return self._parts.reader is not None

    def now(self) -> float:
        return self._parts.clock.now()

    def count_tokens(self, text: str) -> int:
        return self._parts.weigher.text(text)

    async def search(
        self,
        query: str,
        *,
        budget_tokens: int,
        said_after: float | None = None,
        said_before: float | None = None,
    ) -> Recalled:
        """Search as `Engine.search` does, within what the session may see."""
        return await self._engine.search(
            query,
            session=self._session,
            budget_tokens=budget_tokens,
            said_after=said_after,
            said_before=said_before,
        )

    async def messages(self, ids: Sequence[SegmentId]) -> tuple[StoredSegment, ...]:
        """Return the messages with these ids that exist and are visible."""
        segments = await self._parts.store.segments(ids)
        return tuple(segment for segment in segments if self._is_visible(segment))

    async def message_at(self, sequence: int) -> StoredSegment | None:
        """Return the message at this position of the archive; None if it is not visible."""
        page = await self._parts.store.page(after=sequence - 1, limit=1)
        return next(
            (
                segment
                for segment in page
                if segment.sequence == sequence and self._is_visible(segment)
            ),
            None,
        )

    async def find_neighbors(
        self, stored_segment: StoredSegment, *, before: int, after: int
    ) -> tuple[tuple[StoredSegment, ...], tuple[StoredSegment, ...]]:
        """Return the messages directly before and after a message in its session."""
        return await self._parts.store.call(
            _read_around, stored_segment, before=before, after=after
        )

    async def exchanges(
        self, hits: Sequence[StoredSegment]
    ) -> dict[SegmentId, tuple[StoredSegment, ...]]:
        """Return per hit the messages near it, from a user message up to the next one."""
        return await self._parts.store.call(_read_exchanges, hits)

    async def files(self) -> tuple[str, ...]:
        """Return the paths of the memory files that Recollect follows."""
        sessions = await self._parts.store.sessions()
        names = [
            summary.session for summary in sessions if summary.session.startswith(FILE_SESSIONS)
        ]
        return tuple(sorted(name.removeprefix(FILE_SESSIONS) for name in names))

    async def file(self, path: str) -> tuple[StoredSegment, ...]:
        """Return the stored sections of a memory file. The file itself is not read."""
        name = f"{FILE_SESSIONS}{path}"
        return await self._parts.store.page(session=name, limit=_MAX_SECTIONS)

    async def note(self, text: str) -> NoteResult:
        """Store a note that the model wrote, in this session or in the session `notes`."""
        parts = self._parts
        parts.require_keeper()
        result = await parts.store.call(
            keep_note,
            text,
            session=self._own_session or NOTES_SESSION,
            secret=parts.secret,
            weigher=parts.weigher,
            redaction=parts.settings.redaction,
            now=self.now(),
            role="assistant",
            embedders=parts.embedder_names,
        )
        parts.wake_jobs()
        return result

    async def facts(self) -> FactBook:
        return await self._engine.facts(self._session)

    def tell(self, text: str, quotes: Sequence[MessageId]) -> str:
        """Seal a tool answer that quotes these messages, and return the text to send."""
        text = seal_answer(text, self._parts.seal())
        self._parts.tool_answers.add(text, quotes)
        return text

    async def store_answer_marks(self) -> None:
        """Store hashes of tool answers, so that every process recognizes them."""
        if self._parts.keeper is not None:
            archive = self._parts.keeper.archive
            await attempted(self._parts.tool_answers.store_marks(archive, now=self.now()))

    def _is_visible(self, stored_segment: StoredSegment) -> bool:
        session = stored_segment.segment.session
        return self._session in (None, session) or session.startswith(FILE_SESSIONS)


async def _read_around(
    store: Store, stored_segment: StoredSegment, *, before: int, after: int
) -> tuple[tuple[StoredSegment, ...], tuple[StoredSegment, ...]]:
    session, sequence = stored_segment.segment.session, stored_segment.sequence
    earlier: tuple[StoredSegment, ...] = ()
    later: tuple[StoredSegment, ...] = ()
    if before:
        earlier = await store.page(after=sequence, limit=before, session=session, descending=True)
    if after:
        later = await store.page(after=sequence, limit=after, session=session)
    return tuple(reversed(earlier)), later


async def _read_exchanges(
    store: Store, hits: Sequence[StoredSegment]
) -> dict[SegmentId, tuple[StoredSegment, ...]]:
    exchanges: dict[SegmentId, tuple[StoredSegment, ...]] = {}
    for hit in hits:
        sequence, session = hit.sequence, hit.segment.session
        exchange = [hit]
        if not _is_by_user(hit):
            earlier = await store.page(
                after=sequence, limit=_EXCHANGE_REACH, session=session, descending=True
            )
            for neighbor in earlier:
                exchange.insert(0, neighbor)
                if _is_by_user(neighbor):
                    break
        for neighbor in await store.page(after=sequence, limit=_EXCHANGE_REACH, session=session):
            if _is_by_user(neighbor):
                break
            exchange.append(neighbor)
        exchanges[hit.segment.id] = tuple(exchange)
    return exchanges


def _is_by_user(stored_segment: StoredSegment) -> bool:
    return stored_segment.segment.role == "user" and stored_segment.segment.tool is None


NoteOutcome: TypeAlias = Literal["stored", "known", "forgotten", "nothing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteResult:
    """The result of storing a note."""

    outcome: NoteOutcome
    segment: Segment | None = None


async def keep_note(
    store: Store,
    text: str,
    *,
    session: str,
    secret: bytes,
    weigher: Weigher,
    redaction: RedactionSettings,
    now: float,
    role: Role = "user",
    embedders: Sequence[str] = (),
) -> NoteResult:
    """Write a note to the archive as a message of `session`, with this role."""
    ingest_result = ingest(
        [_entry(text, secret, weigher, role)],
        session=session,
        source="note",
        said_at=now,
        redaction=redaction,
        now=now,
        embedders=embedders,
    )
    if not ingest_result.segments:
        return NoteResult(outcome="nothing")
    write_result = await store.write(
        Batch(at=now, segments=ingest_result.segments, jobs=ingest_result.jobs)
    )
    segment = ingest_result.segments[-1].segment
    if segment.id in write_result.forgotten:
        return NoteResult(outcome="forgotten", segment=segment)
    return NoteResult(
        outcome="stored" if segment.id in write_result.stored else "known", segment=segment
    )


def _entry(text: str, secret: bytes, weigher: Weigher, role: Role) -> Entry:
    message = Message(role=role, parts=(Text(text=text),), raw=b"")
    identity = identify(message, secret)
    return Entry(
        key=chain(ROOT, identity),
        id=identity,
        message=message,
        tokens=weigher.message(message.parts),
        role=role,
        raw=b"",
    )
