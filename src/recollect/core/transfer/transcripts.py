"""Imports a recorded session into the archive, in batches that can be repeated. Items get the same
keys as from live requests, across branches and compactions. Stored items are skipped, so a second
run continues an interrupted one. The import never replaces a live session's state by an older
one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields, replace
from typing import Final, TypeAlias

from recollect.core.formats.codec import CODECS
from recollect.core.formats.stored_records import join_state, split_state
from recollect.core.ports import Store, read_pages
from recollect.core.rules.identity import (
    ROOT,
    SealSecret,
    chain,
    prefix_of_unnamed_session,
    segment_id,
)
from recollect.core.rules.noise import without_reminders
from recollect.core.rules.tokens import Weigher
from recollect.core.rules.trust import find_fetch_calls
from recollect.core.turn.align import LastRequest, Reading, align, enter, read
from recollect.core.turn.ingest import ingest, write_ranges
from recollect.core.values.batch import Batch, NewJob, SessionWrite, StoredSession, extract_job
from recollect.core.values.history import SessionState
from recollect.core.values.message import EntryKey, MessageId, ToolCall
from recollect.core.values.segment import Segment, SegmentId
from recollect.core.values.transcript import RecordedSession, ShownItems
from recollect.errors import FormatError
from recollect.system.config import Settings
from recollect.system.config.settings import Redaction

Runs: TypeAlias = tuple[range, ...]

_Said: TypeAlias = tuple[str, str]
Progress: TypeAlias = Callable[[int, int], None]
_PAGE_SEGMENTS: Final = 500
"""Not measured; the first messages are enough to recognize a session."""
_UNNAMED_KINDS: Final = frozenset({"pi"})
_UNNAMED_WIRES: Final = ("anthropic", "openai-chat", "openai-responses")
"""Wire formats of agents that do not name their session in every request."""
_SPEAKING: Final = frozenset({"user", "assistant"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedItems:
    """The keys of a recording's items, and the session's state."""

    keys: tuple[EntryKey, ...] = field(repr=False)
    """One key per item, in the order of the recording."""
    state: SessionState
    """The session's state after the newest history: path, message ids, aliases."""


def place_items(
    transcript: RecordedSession, readings: Sequence[Reading], live_state: SessionState | None = None
) -> PlacedItems:
    """Find the key of every item. `live_state` is that of a session with some items."""
    contexts = [tuple(item for run in runs for item in run) for runs in _contexts(transcript)]
    keys: dict[int, EntryKey] = {}
    aliases: Mapping[EntryKey, EntryKey] = {}
    if live_state is not None:
        aliases = live_state.aliases
        # start with the newest history, because `live_state` is most likely its state
        for context in reversed(contexts):
            for item, key in _recognize(live_state, context, readings):
                keys.setdefault(item, key)
    state = SessionState(aliases=aliases)
    for context in contexts:
        state = _follow(state, context, readings, keys)
    parent = ROOT
    for item, reading in enumerate(readings):  # also items that no request contains
        parent = keys.setdefault(item, chain(parent, reading.id))
    return PlacedItems(keys=tuple([keys[item] for item in range(len(readings))]), state=state)


def _follow(
    state: SessionState,
    context: Sequence[int],
    readings: Sequence[Reading],
    keys: dict[int, EntryKey],
) -> SessionState:
    known_keys = dict(_recognize(state, context, readings)) if state.path else {}
    aliases = dict(state.aliases)
    path: list[EntryKey] = []
    parent = ROOT
    for item in context:
        chained_key = chain(parent, readings[item].id)
        key = keys.get(item) or known_keys.get(item) or aliases.get(chained_key, chained_key)
        if key != chained_key:
            aliases[chained_key] = key
        keys.setdefault(item, key)
        path.append(key)
        parent = key
    path_keys = set(path)
    return SessionState(
        path=tuple(path),
        ids=tuple([readings[item].id for item in context]),
        aliases={alias: key for alias, key in aliases.items() if key in path_keys},
    )


def _recognize(
    state: SessionState, context: Sequence[int], readings: Sequence[Reading]
) -> Iterator[tuple[int, EntryKey]]:
    """Find items in a known history: at the same position, or equal words in the same order."""
    alignment = align(
        state, [readings[item].id for item in context], [readings[item].tokens for item in context]
    )
    keys = set(state.path)
    for item, key in zip(context, alignment.keys, strict=True):
        if key in keys:
            yield item, key


def _contexts(transcript: RecordedSession) -> list[Runs]:
    """Return each history once, in its longest form, in the order of the recording."""
    total = len(transcript.items)
    ranges: list[Runs] = []
    for request in transcript.requests:
        runs = _join_runs(request.shown, request.answered)
        if ranges and _begins_with(runs, ranges[-1]):
            ranges[-1] = runs
        elif not (ranges and _begins_with(ranges[-1], runs)):
            ranges.append(runs)
    if not ranges:
        return [(range(total),)] if total else []
    last = ranges[-1]
    newest = max((run.stop for runs in ranges for run in runs), default=0)
    if newest < total:  # items after the last request, which the next request would contain
        ranges[-1] = (*last[:-1], *_merge_runs([*last[-1:], range(newest, total)]))
    return ranges


def _join_runs(shown: Sequence[int], answered: tuple[int, ...]) -> Runs:
    runs = shown.runs() if isinstance(shown, ShownItems) else _singles(shown)
    return tuple(_merge_runs([*runs, *_singles(answered)]))


def _singles(items: Sequence[int]) -> list[range]:
    if isinstance(items, range) and items.step == 1:
        return [items]
    return [range(item, item + 1) for item in items]


def _merge_runs(runs: Sequence[range]) -> list[range]:
    merged_runs: list[range] = []
    for run in runs:
        if not run:
            continue
        if merged_runs and merged_runs[-1].stop == run.start:
            merged_runs[-1] = range(merged_runs[-1].start, run.stop)
        else:
            merged_runs.append(run)
    return merged_runs


def _begins_with(longer: Runs, shorter: Runs) -> bool:
    if not shorter:
        return True
    last = len(shorter) - 1
    if len(longer) <= last or longer[:last] != shorter[:last]:
        return False
    return longer[last].start == shorter[last].start and longer[last].stop >= shorter[last].stop


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportCounts:
    """Counts of a recording's messages, each counted once, except for `noise`."""

    read: int = 0
    stored: int = 0
    known: int = 0
    """Messages that were stored before, or that the recording repeats."""
    forgotten: int = 0
    skipped: int = 0
    """Messages that contain only a recalled block."""
    noise: int = 0
    """Messages that are stored but not indexed."""
    redacted: int = 0
    """Number of secrets masked in stored messages."""

    def plus(self, other: ImportCounts) -> ImportCounts:
        pairs = zip(astuple(self), astuple(other), strict=True)
        return ImportCounts(**dict(zip(_COUNTS, map(sum, pairs), strict=True)))


_COUNTS: Final = tuple(field.name for field in fields(ImportCounts))


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRules:
    """Settings and keys to identify and mask messages, which all recordings of a run share."""

    secret: bytes = field(repr=False)
    seal: SealSecret | None = field(default=None, repr=False)
    redaction: Redaction
    weigher: Weigher
    now: float
    stored_until: Mapping[str, float] = field(default_factory=dict, repr=False)
    """Sessions whose messages up to a time came from a joined memory. They have other ids there, or
    were forgotten, so they are not stored again."""
    joined_secrets: tuple[bytes, ...] = field(default=(), repr=False)
    """Secrets of the joined memories, which key the ids of what was forgotten there."""
    facts: bool = False
    """True if jobs then extract facts from the imported messages."""

    @classmethod
    def of(
        cls, settings: Settings, *, secret: bytes, now: float, seal: SealSecret | None = None
    ) -> ImportRules:
        """Take the rules from a memory's settings, and from the `secret` and `seal` of its space.
        Without `seal`, answers of memory tools are not recognized."""
        return cls(
            secret=secret,
            seal=seal,
            redaction=settings.redaction,
            weigher=Weigher(settings.tokens.counter),
            now=now,
            facts=settings.models.extraction is not None,
        )

    def reading(self, sessions: Iterable[str]) -> tuple[NewJob, ...]:
        """Return the jobs that extract facts from these sessions."""
        if not self.facts:
            return ()
        return tuple(extract_job(session, run_at=self.now, left=False) for session in sessions)


async def _session_name(store: Store, session: str, kind: str, readings: Sequence[Reading]) -> str:
    """Return the session's name. If the agent sends no name, return the session that the gateway
    stored for the same messages."""
    if kind not in _UNNAMED_KINDS or await store.session(session) is not None:
        return session
    # without tool output, which each format writes differently
    ids = [reading.id for reading in readings if reading.message.role in _SPEAKING]
    starts = (
        tuple(prefix_of_unnamed_session(wire, ids[0]) for wire in _UNNAMED_WIRES) if ids else ()
    )
    sessions = [
        summary.session for summary in await store.sessions() if summary.session.startswith(starts)
    ]
    for candidate in sessions:
        page = await store.page(limit=_PAGE_SEGMENTS, session=candidate)
        message_ids = {s.segment.message_id for s in page if s.segment.role in _SPEAKING}
        if message_ids and message_ids <= set(ids):
            return candidate
    return session


async def import_transcript(
    store: Store,
    transcript: RecordedSession,
    *,
    session: str,
    file: str,
    file_said_at: float,
    rules: ImportRules,
    look_again: bool = True,
    progress: Progress | None = None,
) -> ImportCounts:
    """Write a recording's messages to the archive as messages of `session`. `file` is the messages'
    origin, and `file_said_at` their time if the recording has none. Without `look_again`, messages
    are not compared with messages from requests, because a reader of a growing file did that
    before."""
    raws = [item.raw for item in transcript.items]
    readings = read(
        raws, CODECS[transcript.format], rules.secret, rules.weigher, LastRequest(), seal=rules.seal
    ).new_readings
    session = await _session_name(store, session, transcript.kind, readings)
    stored_session = await store.session(session)
    live = read_live_state(stored_session)
    placed_items = place_items(transcript, readings, live)
    items = [(item.timestamp, f"{file}:{item.line}") for item in transcript.items]
    writing = _Writing(store, rules, session, readings, placed_items.keys)
    writing.set_origins(items, file_said_at)
    await writing.leave_out_forgotten(transcript)
    if stored_session is not None and (transcript.compactions or (live is not None and look_again)):
        await writing.find_elsewhere()
    counts = ImportCounts(read=len(readings), known=len(readings) - len(writing.places))
    for part in write_ranges([len(raws[place]) for place in writing.places]):
        counts = counts.plus(await writing.write(writing.places[part]))
        if progress is not None:
            progress(part.stop, len(writing.places))
    write = _session_write(session, placed_items.state, stored_session)
    if write is not None:
        await store.write(Batch(at=rules.now, session=write))
    return counts


class _Writing:
    """Writes the messages of one recording to its session."""

    def __init__(
        self,
        store: Store,
        rules: ImportRules,
        session: str,
        readings: Sequence[Reading],
        keys: Sequence[EntryKey],
    ) -> None:
        self._store = store
        self._rules = rules
        self._session = session
        self._readings = readings
        self._keys = keys
        self._ids = [segment_id(session, key) for key in keys]
        first: dict[SegmentId, int] = {}
        for place, id_ in enumerate(self._ids):  # a recording may contain a message twice
            first.setdefault(id_, place)
        self.places = list(first.values())
        parts = [part for reading in readings if reading.calls for part in reading.message.parts]
        self._tool_names = {part.id: part.name for part in parts if isinstance(part, ToolCall)}
        self._fetched_ids = find_fetch_calls(parts)
        self._said_at: dict[EntryKey, float] = {}
        self._stored_until = rules.stored_until.get(session, 0.0)
        self._origins: dict[EntryKey, str] = {}
        self._secrets: dict[str, None] = {}
        self._elsewhere_counts: Counter[_Said] = Counter()
        """Number of messages that the session stores under other keys, by role and text."""

    def set_origins(self, items: Iterable[tuple[float | None, str]], said_at: float) -> None:
        """Set the time and the origin of each message. An item without a time gets the time of the
        item before it, the first one `said_at`."""
        for key, (timestamp, origin) in zip(self._keys, items, strict=True):
            said_at = said_at if timestamp is None else timestamp
            self._said_at.setdefault(key, said_at)
            self._origins.setdefault(key, origin)

    async def leave_out_forgotten(self, transcript: RecordedSession) -> None:
        """Leave out what was forgotten in a memory before it joined this one."""
        codec = CODECS[transcript.format]
        raws = [item.raw for item in transcript.items] if self._rules.joined_secrets else []
        for secret in self._rules.joined_secrets:
            readings = read(raws, codec, secret, self._rules.weigher, LastRequest()).new_readings
            keys = place_items(transcript, readings).keys
            ids = [
                {reading.id, MessageId(segment_id(self._session, key))}
                for reading, key in zip(readings, keys, strict=True)
            ]
            forgotten_ids = await self._store.tombstoned(set().union(*ids))
            self.places = [i for i in self.places if forgotten_ids.isdisjoint(ids[i])]

    async def find_elsewhere(self) -> None:
        """Find messages that are stored under another key. An agent repeats messages after its own
        compaction, so they are in two histories, and either may be stored first. Only words are
        compared, because the gateway stores other details differently."""
        if len(await self._store.known(self._ids)) == len(self.places):
            return
        own_ids = set(self._ids)
        async for page in read_pages(self._store, session=self._session):
            self._elsewhere_counts.update(
                _words_of(s.segment) for s in page if s.segment.id not in own_ids
            )

    async def write(self, places: Sequence[int]) -> ImportCounts:
        """Write the messages at these positions, unless they are stored already."""
        known = await self._store.known([self._ids[place] for place in places])
        new_places = [
            place
            for place in places
            if self._ids[place] not in known
            and self._said_at[self._keys[place]] > self._stored_until
        ]
        if not new_places:
            return ImportCounts(known=len(known))
        ingest_result = await asyncio.to_thread(  # hooks of other sessions share this event loop
            ingest,
            [enter(self._readings[place], self._keys[place]) for place in new_places],
            session=self._session,
            source="import",
            said_at=self._said_at,
            redaction=self._rules.redaction,
            now=self._rules.now,
            origins=self._origins,
            tool_names=self._tool_names,
            fetched_ids=self._fetched_ids,
            secrets=self._secrets,
        )
        segments = [s for s in ingest_result.segments if not self._is_elsewhere(s.segment)]
        if not segments:
            return ImportCounts(
                known=len(known) + len(ingest_result.segments), skipped=len(ingest_result.skipped)
            )
        jobs = (*ingest_result.jobs, *self._rules.reading([self._session]))
        batch = Batch(at=self._rules.now, segments=tuple(segments), jobs=jobs)
        write_result = await self._store.write(batch)
        stored = set(write_result.stored)
        return ImportCounts(
            stored=len(write_result.stored),
            known=len(known)
            + len(write_result.known)
            + len(ingest_result.segments)
            - len(segments),
            forgotten=len(write_result.forgotten),
            skipped=len(ingest_result.skipped),
            noise=sum(s.segment.noise is not None and s.segment.id in stored for s in segments),
            redacted=ingest_result.redacted if stored else 0,
        )

    def _is_elsewhere(self, segment: Segment) -> bool:
        words = _words_of(segment)
        if self._elsewhere_counts[words] <= 0:
            return False
        self._elsewhere_counts[words] -= 1
        return True


def _words_of(segment: Segment) -> _Said:
    """Return the text without an agent's reminders, which only requests contain, not
    transcripts."""
    return segment.role, without_reminders(segment.text).strip() or segment.message_id


def read_live_state(stored_session: StoredSession | None) -> SessionState | None:
    """Return the state of a live session; None if only imports, which can be repeated, wrote it."""
    if stored_session is None:
        return None
    try:
        state = join_state(stored_session.state, stored_session.path, stored_session.ids)
    except FormatError:  # a newer version wrote it: its path is enough to identify messages
        return SessionState(
            turn=stored_session.turn, path=stored_session.path, ids=stored_session.ids
        )
    return None if state.sent_at is None else state


def _session_write(
    session: str, state: SessionState, stored_session: StoredSession | None
) -> SessionWrite | None:
    """Return the state to store for aligning later requests; None if it need not change."""
    if read_live_state(stored_session) is not None or not state.path:
        return None
    if stored_session is not None and stored_session.path == state.path:
        return None
    turn = 0 if stored_session is None else stored_session.turn + 1
    return SessionWrite(
        session=session,
        turn=turn,
        state=split_state(replace(state, turn=turn)),
        path=state.path,
        ids=state.ids,
    )
