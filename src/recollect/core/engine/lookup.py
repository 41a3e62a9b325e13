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
_MOST_SECTIONS: Final = 5_000
_EXCHANGE_REACH: Final = 3


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
        stored = await self._parts.store.segments(ids)
        return tuple(one for one in stored if self._reaches(one))

    async def message_at(self, sequence: int) -> StoredSegment | None:
        """Return the message at this position of the archive; None if it is not visible."""
        page = await self._parts.store.page(after=sequence - 1, limit=1)
        return next((one for one in page if one.sequence == sequence and self._reaches(one)), None)

    async def around(
        self, stored: StoredSegment, *, before: int, after: int
    ) -> tuple[tuple[StoredSegment, ...], tuple[StoredSegment, ...]]:
        """Return the messages directly before and after a message in its session."""
        return await self._parts.store.call(_read_around, stored, before=before, after=after)

    async def exchanges(
        self, hits: Sequence[StoredSegment]
    ) -> dict[SegmentId, tuple[StoredSegment, ...]]:
        """Return per hit the messages near it, from a user message up to the next one."""
        return await self._parts.store.call(_read_exchanges, hits)

    async def files(self) -> tuple[str, ...]:
        """Return the paths of the memory files that Recollect follows."""
        sessions = await self._parts.store.sessions()
        names = [one.session for one in sessions if one.session.startswith(FILE_SESSIONS)]
        return tuple(sorted(name.removeprefix(FILE_SESSIONS) for name in names))

    async def file(self, path: str) -> tuple[StoredSegment, ...]:
        """Return the stored sections of a memory file. The file itself is not read."""
        name = f"{FILE_SESSIONS}{path}"
        return await self._parts.store.page(session=name, limit=_MOST_SECTIONS)

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
            await attempted(self._parts.tool_answers.keep(archive, now=self.now()))

    def _reaches(self, stored: StoredSegment) -> bool:
        session = stored.segment.session
        return self._session in (None, session) or session.startswith(FILE_SESSIONS)


async def _read_around(
    store: Store, stored: StoredSegment, *, before: int, after: int
) -> tuple[tuple[StoredSegment, ...], tuple[StoredSegment, ...]]:
    session, sequence = stored.segment.session, stored.sequence
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
        if not _by_user(hit):
            earlier = await store.page(
                after=sequence, limit=_EXCHANGE_REACH, session=session, descending=True
            )
            for stored in earlier:
                exchange.insert(0, stored)
                if _by_user(stored):
                    break
        for stored in await store.page(after=sequence, limit=_EXCHANGE_REACH, session=session):
            if _by_user(stored):
                break
            exchange.append(stored)
        exchanges[hit.segment.id] = tuple(exchange)
    return exchanges


def _by_user(stored: StoredSegment) -> bool:
    return stored.segment.role == "user" and stored.segment.tool is None


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
    made = ingest(
        [_entry(text, secret, weigher, role)],
        session=session,
        source="note",
        said_at=now,
        redaction=redaction,
        now=now,
        embedders=embedders,
    )
    if not made.segments:
        return NoteResult(outcome="nothing")
    written = await store.write(Batch(at=now, segments=made.segments, jobs=made.jobs))
    segment = made.segments[-1].segment
    if segment.id in written.forgotten:
        return NoteResult(outcome="forgotten", segment=segment)
    return NoteResult(
        outcome="stored" if segment.id in written.stored else "known", segment=segment
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
