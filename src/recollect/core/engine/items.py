"""Key-value storage with namespaces, for the stores of frameworks. Each item is one segment in the
session of its namespace. Search matches the item's text; its JSON is stored with it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from recollect.core.engine.recaller import MemoryRecaller
from recollect.core.rules.identity import identify, segment_id
from recollect.core.rules.message_redaction import TextMask
from recollect.core.rules.text import clean_text
from recollect.core.search.question import read_question
from recollect.core.search.rank import Weighing, rank
from recollect.core.turn.ingest import index
from recollect.core.values.batch import EMBED_JOB, Batch, NewJob
from recollect.core.values.message import EntryKey, Message, MessageId, Text
from recollect.core.values.recall import CandidateQuery, Candidates, Surroundings
from recollect.core.values.segment import NewSegment, Segment, SegmentId, StoredSegment
from recollect.errors import StoreError

if TYPE_CHECKING:
    from recollect.core.engine.engine import Engine
    from recollect.core.ports import Store

Namespace: TypeAlias = tuple[str, ...]
ItemPlace: TypeAlias = tuple[Namespace, str]

NO_ITEM: Final = ""
_FIRST_VERSION: Final = "1"
_PLACES: Final = 8
"""Number of ids that an item uses in turn. A new value gets another id than the old one, so that a
crash loses neither."""
_MOST_RACES: Final = 8
_KNOWN_VERSIONS: Final = 8
_PAGE: Final = 500
_LEAST_FOUND: Final = 50
_HALF_CHARACTER: Final = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewItem:
    """A value to store."""

    namespace: Namespace
    key: str
    value: Mapping[str, Any] = field(repr=False)
    text: str | None = field(repr=False)
    replaces: str | None = None
    """The version that must be stored for this write. `NO_ITEM`: none may be stored. None: any."""

    @property
    def place(self) -> ItemPlace:
        return self.namespace, self.key


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredItem:
    """A stored value, with its secrets masked."""

    namespace: Namespace
    key: str
    value: dict[str, Any] = field(repr=False)
    created_at: float
    updated_at: float
    segment: SegmentId
    sequence: int
    version: str
    replaces: str | None
    after: tuple[str, ...]

    @property
    def place(self) -> ItemPlace:
        return self.namespace, self.key


@dataclass(frozen=True, slots=True, kw_only=True)
class _Put:
    raced: Sequence[ItemPlace]
    forgotten: Sequence[ItemPlace] = ()
    changed: bool = False


class ItemStore:
    """The items of a space whose session names start with `prefix`."""

    def __init__(self, engine: Engine, prefix: str) -> None:
        """Labels of namespaces must not contain a full stop, because it separates them in the
        session's name."""
        self._parts = engine.parts
        self._prefix = prefix
        self._changing = asyncio.Lock()

    async def get(self, places: Sequence[ItemPlace]) -> dict[ItemPlace, StoredItem]:
        """Return those of these items that exist."""
        wanted = {id_: place for place in places for id_ in self._ids(place)}
        stored = await self._parts.store.segments(list(wanted))
        return _newest(self._items(stored))

    async def put(
        self, items: Sequence[NewItem], gone: Mapping[ItemPlace, str | None] | None = None
    ) -> bool:
        """Store these values, and remove the versions in `gone`. Return False if another process
        has changed one of them."""
        self._parts.require_keeper()
        async with self._changing:
            waiting = {item.place: (item, _written(item.value)) for item in items}
            forgotten: list[ItemPlace] = []
            for _ in range(_MOST_RACES):
                put = await self._parts.store.call(
                    self._put, items=tuple(waiting.values()), gone=gone or {}
                )
                if put.changed:
                    return False
                forgotten += put.forgotten
                waiting = {place: waiting[place] for place in put.raced}
                if not waiting:
                    break
        self._parts.wake_jobs()
        if waiting:
            raise StoreError("another process keeps changing the same items: try again")
        if forgotten:
            raise StoreError(
                f"{len(forgotten)} of {len(items)} values were forgotten earlier and cannot be "
                "stored again: put another value, or use another key"
            )
        return True

    async def namespaces(self) -> tuple[Namespace, ...]:
        sessions = await self._parts.store.sessions()
        names = [one.session for one in sessions if one.session.startswith(self._prefix)]
        return tuple(sorted(tuple(name.removeprefix(self._prefix).split(".")) for name in names))

    async def under(self, prefix: Namespace) -> list[StoredItem]:
        """Return all items whose namespace begins with this prefix, newest first."""
        found: dict[ItemPlace, StoredItem] = {}
        for namespace in await self._beginning(prefix):
            found |= _newest(self._items(await self._read(self._session(namespace))))
        return sorted(found.values(), key=lambda item: -item.sequence)

    async def scores(
        self, query: str, prefix: Namespace, *, limit: int
    ) -> Mapping[SegmentId, float]:
        """Score the items in these namespaces that match the query best."""
        question = read_question(query, asked_at=self._parts.clock.now())
        recaller = self._parts.recaller
        vectors = await recaller.asked(query) if isinstance(recaller, MemoryRecaller) else ()
        most = max(_LEAST_FOUND, limit)
        asked = CandidateQuery(
            words=question.words, vectors=vectors, lexical_limit=most, vector_limit=most
        )
        found = Candidates()
        for namespace in await self._beginning(prefix):
            more = await self._parts.store.candidates(
                replace(asked, session=self._session(namespace))
            )
            # word statistics always cover the whole space
            found = replace(more, passages=(*found.passages, *more.passages))
        weighing = Weighing(kinds=tuple(vector.kind for vector in vectors))
        ranking = rank(question, found, Surroundings(), weighing)
        scores: dict[SegmentId, float] = {}
        for passage, score in zip(ranking.passages, ranking.scores, strict=True):
            scores.setdefault(passage.segment, score)
        return scores

    async def _put(
        self,
        store: Store,
        *,
        items: Sequence[tuple[NewItem, str]],
        gone: Mapping[ItemPlace, str | None],
    ) -> _Put:
        """Write items, then remove their older versions, but none written meanwhile."""
        now = self._parts.clock.now()
        places = [*(item.place for item, _ in items), *gone]
        ids = [id_ for place in places for id_ in self._ids(place)]
        before = self._items(await store.segments(ids))
        known = _newest(before)
        expected = {**gone, **{item.place: item.replaces for item, _ in items}}
        if any(not _holds(known.get(place), version) for place, version in expected.items()):
            return _Put(raced=(), changed=True)
        closed: set[str] = {item.segment for item in before}
        closed |= await store.tombstoned([MessageId(id_) for id_ in ids])
        version = token_hex(8)
        made = {
            item.place: self._made(item, written, version, known.get(item.place), closed, now)
            for item, written in items
        }
        written = await store.write(
            Batch(at=now, segments=tuple(made.values()), jobs=self._jobs(made.values(), now))
        )
        kept = {place for place, new in made.items() if new.segment.id in written.stored}
        marks = written.forgotten
        forgotten = [place for place, new in made.items() if new.segment.id in marks]
        raced = [place for place in made if place not in kept and place not in forgotten]
        stand = self._items(await store.segments(ids)) if kept else before
        newest = _newest(stand)
        held = {place for place, item in newest.items() if version in (item.version, *item.after)}
        changed = not kept <= held
        older = [item for item in stand if item.place in kept and item is not newest[item.place]]
        removed = [item for item in before if item.place in gone and not (raced or changed)]
        for some in (older, removed):
            if some:
                seen = max(item.sequence for item in some)
                await store.withdraw([item.segment for item in some], up_to=seen)
        return _Put(raced=raced, forgotten=forgotten, changed=changed)

    def _jobs(self, made: Iterable[NewSegment], now: float) -> tuple[NewJob, ...]:
        if not any(passage.embedded for new in made for passage in new.passages):
            return ()
        names = self._parts.embedder_names
        return tuple(NewJob(kind=EMBED_JOB, key=name, run_at=now) for name in names)

    def _made(
        self,
        item: NewItem,
        written: str,
        version: str,
        known: StoredItem | None,
        closed: set[str],
        now: float,
    ) -> NewSegment:
        parts = self._parts
        session = self._session(item.namespace)
        keys = _entry_keys(item.key)
        key = next((key for key in keys if segment_id(session, key) not in closed), keys[-1])
        mask = TextMask(parts.settings.redaction)
        value = mask.json(written)
        text = mask.text(clean_text(item.text or ""))
        if mask.secrets:  # a secret found in the text or in the JSON is masked in both
            value = mask.json(value)
        record = {
            "key": item.key,
            "created_at": now if known is None else known.created_at,
            "value": json.loads(value),
            "version": version,
            "replaces": item.replaces,
            "after": [] if known is None else [known.version, *known.after][:_KNOWN_VERSIONS],
        }
        said = Text(text=_written({"namespace": item.namespace, "key": item.key}) + written)
        noise = "not indexed" if item.text is None else None if text.strip() else "empty"
        segment = Segment(
            id=segment_id(session, key),
            session=session,
            key=key,
            message_id=identify(Message(role="assistant", parts=(said,), raw=b""), parts.secret),
            role="assistant",
            text=text,
            tokens=parts.weigher.text(text),
            said_at=now,
            source="note",
            trust="medium",
            noise=noise,
            foreign=_written(record),
        )
        return NewSegment(segment=segment, passages=index(segment))

    async def _beginning(self, prefix: Namespace) -> list[Namespace]:
        return [one for one in await self.namespaces() if one[: len(prefix)] == prefix]

    async def _read(self, session: str) -> list[StoredSegment]:
        read: list[StoredSegment] = []
        while page := await self._page(session, after=read[-1].sequence if read else 0):
            read += page
        return read

    async def _page(self, session: str, *, after: int) -> tuple[StoredSegment, ...]:
        return await self._parts.store.page(after=after, limit=_PAGE, session=session)

    def _session(self, namespace: Namespace) -> str:
        return self._prefix + ".".join(namespace)

    def _ids(self, place: ItemPlace) -> list[SegmentId]:
        namespace, key = place
        return [segment_id(self._session(namespace), each) for each in _entry_keys(key)]

    def _items(self, stored: Iterable[StoredSegment]) -> list[StoredItem]:
        return [item for one in stored if (item := self._item(one)) is not None]

    def _item(self, stored: StoredSegment) -> StoredItem | None:
        segment = stored.segment
        if segment.source != "note" or segment.foreign is None:
            return None
        try:
            record = json.loads(segment.foreign)
            key, value, created_at = record["key"], record["value"], record["created_at"]
        except (ValueError, KeyError):
            return None
        return StoredItem(
            namespace=tuple(segment.session.removeprefix(self._prefix).split(".")),
            key=key,
            value=value,
            created_at=created_at,
            updated_at=segment.said_at,
            segment=segment.id,
            sequence=stored.sequence,
            version=str(record.get("version", _FIRST_VERSION)),
            replaces=record.get("replaces"),
            after=tuple(record.get("after", ())),
        )


def _newest(items: Iterable[StoredItem]) -> dict[ItemPlace, StoredItem]:
    """Return each item's newest value; of two that replace the same version, the first."""
    newest: dict[ItemPlace, StoredItem] = {}
    for item in sorted(items, key=lambda item: item.sequence):
        before = newest.get(item.place)
        if before is None or item.replaces in (None, before.version):
            newest[item.place] = item
    return newest


def _holds(known: StoredItem | None, version: str | None) -> bool:
    return version is None or version == (NO_ITEM if known is None else known.version)


def _entry_keys(key: str) -> list[EntryKey]:
    named = key.encode("utf-8", "surrogatepass")
    hashed = blake2b(named, digest_size=16, person=b"recollect-item").hexdigest()
    return [EntryKey(f"{hashed}-{place}") for place in range(_PLACES)]


def _written(value: Mapping[str, Any]) -> str:
    written = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return _HALF_CHARACTER.sub(lambda half: f"\\u{ord(half[0]):04x}", written)
