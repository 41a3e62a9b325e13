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
"""Not measured; bounds the work if another process keeps writing the same items."""
_KNOWN_VERSIONS: Final = 8
"""Earlier versions that an item names, to recognize writes that another one followed at once. Not
measured."""
_PAGE: Final = 500
"""Not measured; bounds the rows in RAM."""
_LEAST_FOUND: Final = 50
"""Candidates to score even if fewer items are wanted, because candidates are ordered by a part of
the score only. Not measured."""
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
    raced_places: Sequence[ItemPlace]
    forgotten_places: Sequence[ItemPlace] = ()
    is_changed: bool = False


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
        place_by_id = {id_: place for place in places for id_ in self._ids(place)}
        segments = await self._parts.store.segments(list(place_by_id))
        return _newest_by_place(self._items(segments))

    async def put(
        self,
        items: Sequence[NewItem],
        removed_versions: Mapping[ItemPlace, str | None] | None = None,
    ) -> bool:
        """Store these values, and remove the versions in `gone`. Return False if another process
        has changed one of them."""
        self._parts.require_keeper()
        async with self._changing:
            waiting = {item.place: (item, _write_json(item.value)) for item in items}
            forgotten_places: list[ItemPlace] = []
            for _ in range(_MOST_RACES):
                put = await self._parts.store.call(
                    self._put,
                    items=tuple(waiting.values()),
                    removed_versions=removed_versions or {},
                )
                if put.is_changed:
                    return False
                forgotten_places += put.forgotten_places
                waiting = {place: waiting[place] for place in put.raced_places}
                if not waiting:
                    break
        self._parts.wake_jobs()
        if waiting:
            raise StoreError("another process keeps changing the same items: try again")
        if forgotten_places:
            raise StoreError(
                f"{len(forgotten_places)} of {len(items)} values were forgotten earlier and cannot "
                "be stored again: put another value, or use another key"
            )
        return True

    async def namespaces(self) -> tuple[Namespace, ...]:
        sessions = await self._parts.store.sessions()
        names = [
            summary.session for summary in sessions if summary.session.startswith(self._prefix)
        ]
        return tuple(sorted(tuple(name.removeprefix(self._prefix).split(".")) for name in names))

    async def list_under(self, prefix: Namespace) -> list[StoredItem]:
        """Return all items whose namespace begins with this prefix, newest first."""
        newest_by_place: dict[ItemPlace, StoredItem] = {}
        for namespace in await self._namespaces_under(prefix):
            newest_by_place |= _newest_by_place(
                self._items(await self._read(self._session(namespace)))
            )
        return sorted(newest_by_place.values(), key=lambda item: -item.sequence)

    async def scores(
        self, query: str, prefix: Namespace, *, limit: int
    ) -> Mapping[SegmentId, float]:
        """Score the items in these namespaces that match the query best."""
        question = read_question(query, asked_at=self._parts.clock.now())
        recaller = self._parts.recaller
        vectors = await recaller.asked(query) if isinstance(recaller, MemoryRecaller) else ()
        max_found = max(_LEAST_FOUND, limit)
        candidate_query = CandidateQuery(
            words=question.words, vectors=vectors, lexical_limit=max_found, vector_limit=max_found
        )
        candidates = Candidates()
        for namespace in await self._namespaces_under(prefix):
            more_candidates = await self._parts.store.candidates(
                replace(candidate_query, session=self._session(namespace))
            )
            # word statistics always cover the whole space
            candidates = replace(
                more_candidates, passages=(*candidates.passages, *more_candidates.passages)
            )
        weighing = Weighing(kinds=tuple(vector.kind for vector in vectors))
        ranking = rank(question, candidates, Surroundings(), weighing)
        scores: dict[SegmentId, float] = {}
        for passage, score in zip(ranking.passages, ranking.scores, strict=True):
            scores.setdefault(passage.segment, score)
        return scores

    async def _put(
        self,
        store: Store,
        *,
        items: Sequence[tuple[NewItem, str]],
        removed_versions: Mapping[ItemPlace, str | None],
    ) -> _Put:
        """Write items, then remove their older versions, but none written meanwhile."""
        now = self._parts.clock.now()
        places = [*(item.place for item, _ in items), *removed_versions]
        ids = [id_ for place in places for id_ in self._ids(place)]
        items_before = self._items(await store.segments(ids))
        newest_before = _newest_by_place(items_before)
        expected_versions = {**removed_versions, **{item.place: item.replaces for item, _ in items}}
        if any(
            not _has_version(newest_before.get(place), version)
            for place, version in expected_versions.items()
        ):
            return _Put(raced_places=(), is_changed=True)
        used_ids: set[str] = {item.segment for item in items_before}
        used_ids |= await store.tombstoned([MessageId(id_) for id_ in ids])
        version = token_hex(8)
        segment_by_place = {
            item.place: self._make_segment(
                item, write_result, version, newest_before.get(item.place), used_ids, now
            )
            for item, write_result in items
        }
        write_result = await store.write(
            Batch(
                at=now,
                segments=tuple(segment_by_place.values()),
                jobs=self._embedding_jobs(segment_by_place.values(), now),
            )
        )
        stored_places = {
            place
            for place, segment in segment_by_place.items()
            if segment.segment.id in write_result.stored
        }
        forgotten_ids = write_result.forgotten
        forgotten_places = [
            place
            for place, segment in segment_by_place.items()
            if segment.segment.id in forgotten_ids
        ]
        raced_places = [
            place
            for place in segment_by_place
            if place not in stored_places and place not in forgotten_places
        ]
        stored_items = self._items(await store.segments(ids)) if stored_places else items_before
        newest = _newest_by_place(stored_items)
        current_places = {
            place for place, item in newest.items() if version in (item.version, *item.after)
        }
        is_changed = not stored_places <= current_places
        older_items = [
            item
            for item in stored_items
            if item.place in stored_places and item is not newest[item.place]
        ]
        removed_items = [
            item
            for item in items_before
            if item.place in removed_versions and not (raced_places or is_changed)
        ]
        for outdated_items in (older_items, removed_items):
            if outdated_items:
                last_sequence = max(item.sequence for item in outdated_items)
                await store.withdraw([item.segment for item in outdated_items], up_to=last_sequence)
        return _Put(
            raced_places=raced_places, forgotten_places=forgotten_places, is_changed=is_changed
        )

    def _embedding_jobs(self, segments: Iterable[NewSegment], now: float) -> tuple[NewJob, ...]:
        if not any(passage.embedded for segment in segments for passage in segment.passages):
            return ()
        names = self._parts.embedder_names
        return tuple(NewJob(kind=EMBED_JOB, key=name, run_at=now) for name in names)

    def _make_segment(
        self,
        item: NewItem,
        record_text: str,
        version: str,
        known_item: StoredItem | None,
        used_ids: set[str],
        now: float,
    ) -> NewSegment:
        parts = self._parts
        session = self._session(item.namespace)
        keys = _entry_keys(item.key)
        key = next((key for key in keys if segment_id(session, key) not in used_ids), keys[-1])
        mask = TextMask(parts.settings.redaction)
        value = mask.json(record_text)
        text = mask.text(clean_text(item.text or ""))
        if mask.secrets:  # a secret found in the text or in the JSON is masked in both
            value = mask.json(value)
        record = {
            "key": item.key,
            "created_at": now if known_item is None else known_item.created_at,
            "value": json.loads(value),
            "version": version,
            "replaces": item.replaces,
            "after": []
            if known_item is None
            else [known_item.version, *known_item.after][:_KNOWN_VERSIONS],
        }
        text_part = Text(
            text=_write_json({"namespace": item.namespace, "key": item.key}) + record_text
        )
        noise = "not indexed" if item.text is None else None if text.strip() else "empty"
        segment = Segment(
            id=segment_id(session, key),
            session=session,
            key=key,
            message_id=identify(
                Message(role="assistant", parts=(text_part,), raw=b""), parts.secret
            ),
            role="assistant",
            text=text,
            tokens=parts.weigher.text(text),
            said_at=now,
            source="note",
            trust="medium",
            noise=noise,
            foreign=_write_json(record),
        )
        return NewSegment(segment=segment, passages=index(segment))

    async def _namespaces_under(self, prefix: Namespace) -> list[Namespace]:
        return [
            namespace for namespace in await self.namespaces() if namespace[: len(prefix)] == prefix
        ]

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
        return [segment_id(self._session(namespace), entry_key) for entry_key in _entry_keys(key)]

    def _items(self, segments: Iterable[StoredSegment]) -> list[StoredItem]:
        return [item for segment in segments if (item := self._item(segment)) is not None]

    def _item(self, stored_segment: StoredSegment) -> StoredItem | None:
        segment = stored_segment.segment
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
            sequence=stored_segment.sequence,
            version=str(record.get("version", _FIRST_VERSION)),
            replaces=record.get("replaces"),
            after=tuple(record.get("after", ())),
        )


def _newest_by_place(items: Iterable[StoredItem]) -> dict[ItemPlace, StoredItem]:
    """Return each item's newest value; of two that replace the same version, the first."""
    newest: dict[ItemPlace, StoredItem] = {}
    for item in sorted(items, key=lambda item: item.sequence):
        before = newest.get(item.place)
        if before is None or item.replaces in (None, before.version):
            newest[item.place] = item
    return newest


def _has_version(item: StoredItem | None, version: str | None) -> bool:
    return version is None or version == (NO_ITEM if item is None else item.version)


def _entry_keys(key: str) -> list[EntryKey]:
    key_bytes = key.encode("utf-8", "surrogatepass")
    key_hash = blake2b(key_bytes, digest_size=16, person=b"recollect-item").hexdigest()
    return [EntryKey(f"{key_hash}-{place}") for place in range(_PLACES)]


def _write_json(value: Mapping[str, Any]) -> str:
    json_text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return _HALF_CHARACTER.sub(lambda half: f"\\u{ord(half[0]):04x}", json_text)
