"""Writes a session's state and its ledger, from which `rebuild` restores past requests. A record
lists pieces (parts of requests), each stored once, and refers to the record before it. Pieces are
redacted before they are hashed. A request without secrets is rebuilt byte for byte. A row is a
message of the request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Final, Literal, TypeAlias, TypeVar

from recollect.core.boundary import Failure, attempted
from recollect.core.engine.archive import Location, Persisted
from recollect.core.engine.guarded_store import GuardedStore
from recollect.core.formats.request import fill_frame, frame_of
from recollect.core.formats.stored_records import StateWriter
from recollect.core.formats.turn_records import OutcomeChanges, write_outcomes, write_report
from recollect.core.rules.identity import segment_id
from recollect.core.rules.message_redaction import TextMask
from recollect.core.rules.redaction import JudgedTexts, redact
from recollect.core.rules.text import repeats_broken
from recollect.core.rules.tokens import Weigher
from recollect.core.turn.align import count_same_first
from recollect.core.turn.ingest import IngestResult
from recollect.core.turn.token_kinds import LastFigures
from recollect.core.values.batch import (
    LedgerPiece,
    PieceHash,
    PieceKind,
    SessionWrite,
    StoredSession,
    TurnRecord,
    WriteResult,
    piece_hash,
)
from recollect.core.values.edit import Carried, Cut, Edit, Insert, LeaveOut, Repair, Shorten
from recollect.core.values.history import Entry, Row, SessionState, Slot, newest_cut
from recollect.core.values.message import EntryKey, MessageId, Text, ToolResult
from recollect.core.values.model import Request, Usage
from recollect.core.values.reason import Cause, Reason
from recollect.core.values.report import Fate, Outcome, Outcomes, Report, StageLine, own_rows
from recollect.core.values.segment import SegmentId, Source
from recollect.system.config.settings import Redaction as RedactionSettings

_WEIGHER: Final = Weigher()
"""Divides the tokens of a message among its parts."""
_BLOCKS = frozenset({"inject", "stand"})
MAX_READ = 8
"""Number of a session's newest messages to read: a broken reply, the request after it, and a reply
of a few messages (reasoning, text and calls in OpenAI Responses)."""
EditT = TypeVar("EditT", bound=Edit)


def session_write(
    session: str, state: SessionState, archive_state: ArchiveState, redaction: RedactionSettings
) -> SessionWrite:
    stored_path = archive_state.path
    shared = len(stored_path)
    if state.path[:shared] != stored_path:  # skip the loop if only new messages follow
        pairs = enumerate(zip(stored_path, state.path, strict=False))
        shared = next(
            (index for index, (old_key, new_key) in pairs if old_key != new_key), len(state.path)
        )

    def mask(text: str) -> str:
        return redact(text, pii=redaction.pii, judged_texts=archive_state.judged_texts).text

    def mask_edit(edit: Edit) -> Edit:
        return _mask_edit(edit, mask) if redaction.enabled else edit

    telling = [edit for edit in state.edits if not isinstance(edit, LeaveOut)]
    return SessionWrite(
        session=session,
        turn=state.turn,
        state=archive_state.writer.split(state, mask_edit),
        about=find_quoted_ids([*telling, *(edit for edit, _ in state.dormant)]),
        path_from=shared,
        path=state.path[shared:],
        ids=state.ids[shared:],
    )


def _mask_edit(edit: EditT, mask: Callable[[str], str]) -> EditT:
    if isinstance(edit, Shorten | Insert):
        text = mask(edit.text)
        return edit if text == edit.text else replace(edit, text=text)
    if isinstance(edit, Cut):
        summary = mask(edit.summary)
        ended_blocks = tuple(_mask_edit(block, mask) for block in edit.ended)
        carried_details = edit.carried and mask_carried(edit.carried, mask)
        if (summary, ended_blocks, carried_details) == (edit.summary, edit.ended, edit.carried):
            return edit
        return replace(edit, summary=summary, ended=ended_blocks, carried=carried_details)
    return edit


def mask_carried(details: Carried, mask: Callable[[str], str]) -> Carried:
    def mask_texts(texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(mask(text) for text in texts)

    return Carried(
        read_files=mask_texts(details.read_files),
        modified_files=mask_texts(details.modified_files),
        failures=tuple(
            replace(failure, tool=mask(failure.tool), said=mask(failure.said))
            for failure in details.failures
        ),
        identifiers=mask_texts(details.identifiers),
        lines=tuple(replace(line, text=mask(line.text)) for line in details.lines),
    )


NameChanges: TypeAlias = Callable[[OutcomeChanges], PieceHash]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedOutcomes:
    """The message outcomes of the last turn that this process recorded for a session."""

    chain: tuple[_OutcomeRecord, ...] = field(default=(), repr=False)
    newest: OutcomeChanges = field(default_factory=OutcomeChanges, repr=False)
    keys: tuple[EntryKey, ...] = field(default=(), repr=False)
    edits: tuple[Edit, ...] = field(default=(), repr=False)
    repairs: tuple[Repair, ...] = field(default=(), repr=False)

    def record(self, report: Report, name: NameChanges) -> RecordedOutcomes:
        """Return the outcomes after one more turn. `name` stores a record and returns its hash."""
        keys = tuple(map(attrgetter("key"), report.entries))
        are_same = (self.edits, self.repairs) == (report.edits, report.view.repairs)
        if self.chain and are_same and keys[: len(self.keys)] == self.keys:
            fates = self.newest.fates
        else:
            fates = _fates(report, self.newest.fates)
        places = dict(zip(keys, range(len(keys)), strict=True))
        own_blocks = tuple(
            (-1 if key is None else places[key], fate)
            for key, rows in own_rows(report.view).items()
            for fate in rows
        )
        cut = newest_cut(report.edits)
        now = OutcomeChanges(
            fates=fates, own_outcomes=own_blocks, cut=None if cut is None else cut.reason
        )
        next_record = replace(
            self, newest=now, keys=keys, edits=report.edits, repairs=report.view.repairs
        )
        if self.chain and now == self.newest:
            return next_record
        chain, changes = self.chain, now
        while chain:
            changes = _changes_since(chain, now)
            weight = _weight(changes)
            limit = len(fates) / 2 if len(chain) == 1 else chain[-1].weight / _STEP
            if weight <= limit:
                break
            chain, changes = chain[:-1], now
        record = _OutcomeRecord(name=name(changes), weight=_weight(changes), fates=fates)
        return replace(next_record, chain=(*chain, record))

    @property
    def names(self) -> tuple[PieceHash, ...]:
        """Hashes of the records to combine, oldest first."""
        return tuple([record.name for record in self.chain])


_STEP: Final = 4
"""A record is at most a fourth of the size of the one before it. A turn thus writes little more
than its changes, and few records are read to restore the outcomes."""
_LEAST_WEIGHT: Final = 8
"""Not measured; shorter chains of changes are not worth a complete record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _OutcomeRecord:
    name: PieceHash
    weight: int
    fates: Mapping[int, Fate]
    """All outcomes: of this record and of earlier ones."""


def _weight(changes: OutcomeChanges) -> int:
    return _LEAST_WEIGHT + len(changes.fates) + len(changes.kept)


def _changes_since(chain: tuple[_OutcomeRecord, ...], now: OutcomeChanges) -> OutcomeChanges:
    known = chain[-1].fates
    changed_fates = {
        place: fate
        for place, fate in now.fates.items()
        if (known_fate := known.get(place)) is not fate and known_fate != fate
    }
    kept = [place for place in known if place not in now.fates]
    return replace(now, number=len(chain), fates=changed_fates, kept=kept)


def _fates(report: Report, before: Mapping[int, Fate]) -> dict[int, Fate]:
    """Return the outcome of each message that is changed or left out. Summarized messages have the
    same outcome object as before, because long sessions have thousands of them."""
    outcomes = Outcomes(report.entries, report.view, report.edits)
    fates: dict[int, Fate] = {}
    for place, entry in enumerate(report.entries):
        if not outcomes.is_summarized(place):
            fate = outcomes.outcome_at(place)
        elif (known := before.get(place)) and _is_summary_of(known, entry):
            fate = known
        else:  # the reason of all summarized messages is recorded once
            fate = replace(outcomes.outcome_at(place), reasons=())
        if fate.fate != "kept":
            fates[place] = fate
    return fates


def _is_summary_of(fate: Fate, entry: Entry) -> bool:
    return (fate.fate, fate.key, fate.tokens_before) == ("summarized", entry.key, entry.tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRecord:
    """Bytes and hashes of the messages in the last record that this process wrote for a session."""

    raws: tuple[bytes, ...] = field(default=(), repr=False)
    hashes: tuple[PieceHash, ...] = field(default=(), repr=False)
    known: frozenset[PieceHash] = field(default=frozenset(), repr=False)
    outcomes: RecordedOutcomes = field(default_factory=RecordedOutcomes, repr=False)
    figures: LastFigures = field(default_factory=LastFigures, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTurn:
    """A turn's record, the pieces to write with it, and the values that the next record needs."""

    record: TurnRecord
    pieces: tuple[LedgerPiece, ...]
    last: LastRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedTurn:
    """A turn whose request is sent, and that is to be stored."""

    request: Request = field(repr=False)
    report: Report
    state: SessionState = field(repr=False)
    now: float
    as_it_came: bool
    """True if the request is sent as it was received."""


def record_turn(
    turn: FinishedTurn,
    last_record: LastRecord,
    mask: TextMask,
    *,
    forgotten_ids: AbstractSet[MessageId] = frozenset(),
    usage: Usage | None = None,
) -> RecordedTurn:
    """Make the record of a turn. Pieces that quote a forgotten message are listed, but not stored.
    `usage` is the provider's token count for the previous turn."""
    request, report = turn.request, turn.report
    pieces: dict[PieceHash, LedgerPiece] = {}

    frame = frame_of(request, as_it_came=turn.as_it_came)

    def add(piece: LedgerPiece) -> PieceHash:
        if piece.hash not in last_record.known and forgotten_ids.isdisjoint(piece.about):
            pieces[piece.hash] = piece
        return piece.hash

    def add_piece(
        kind: PieceKind,
        body: bytes,
        quoted_by_row: tuple[MessageId, ...] = (),
        *,
        exact: bool = True,
    ) -> PieceHash:
        masked_body, is_unchanged = mask.body(body)
        return add(_piece(kind, masked_body, quoted_by_row, exact=exact and is_unchanged))

    def mask_reason(reason: Reason) -> Reason:
        return reason.mask_texts(lambda text: _mask_word(text, mask))

    rows = report.view.rows
    kept_count = count_equal_rows(rows, last_record)
    quoted_by_row = _find_quoted(report, rows[kept_count:])
    row_hashes = tuple([add_piece("row", row.raw, quoted_by_row(row)) for row in rows[kept_count:]])
    outcomes = last_record.outcomes.record(
        report, lambda pieces: add(_piece("outcomes", write_outcomes(pieces, mask_reason)))
    )
    system = None if request.system is None else add_piece("system", request.system)
    tools = None if request.tools is None else add_piece("tools", request.tools)
    same_head = last_record.known.issuperset(name for name in (system, tools) if name)
    figures, last_figures = last_record.figures.next(report, _WEIGHER, usage, same_head=same_head)
    record = TurnRecord(
        session=report.session,
        number=report.turn,
        at=turn.now,
        format=report.format,
        model=report.model,
        system=system,
        tools=tools,
        rest=add_piece("rest", frame, exact=_is_rebuilt_exactly(frame, turn)),
        report=add(_piece("report", write_report(report, mask_reason, figures.to_dict()))),
        outcomes=outcomes.names,
        kept_rows=kept_count,
        rows=row_hashes,
    )
    return RecordedTurn(
        record=record,
        pieces=tuple(pieces.values()),
        last=LastRecord(
            raws=tuple([row.raw for row in rows]),
            hashes=last_record.hashes[:kept_count] + row_hashes,
            known=frozenset(n for n in (record.system, record.tools, record.rest) if n),
            outcomes=outcomes,
            figures=last_figures,
        ),
    )


def _is_rebuilt_exactly(frame: bytes, turn: FinishedTurn) -> bool:
    """Return whether the request can be rebuilt byte for byte: not if a JSON key is escaped or
    occurs twice."""
    request = turn.request
    if not turn.as_it_came or request.body is None:
        return True
    rebuilt_body = fill_frame(frame, request.messages, system=request.system, tools=request.tools)
    return rebuilt_body == request.body


def count_equal_rows(rows: tuple[Row, ...], last: LastRecord) -> int:
    """Count the messages at the start that are the same as in the last record."""
    return count_same_first([row.raw for row in rows], last.raws)


def _mask_word(text: str, mask: TextMask) -> str:
    """Mask a text, unless it is one lower-case word, which is a code of Recollect."""
    is_code = text.isalpha() and text.islower() and text not in mask.secrets
    return text if is_code else mask.text(text)


def _piece(
    kind: PieceKind, body: bytes, quoted_ids: tuple[MessageId, ...] = (), *, exact: bool = True
) -> LedgerPiece:
    name = piece_hash(kind, body)
    return LedgerPiece(hash=name, kind=kind, body=body, about=quoted_ids, exact=exact)


def _find_quoted(report: Report, rows: Sequence[Row]) -> Callable[[Row], tuple[MessageId, ...]]:
    sources = {key for row in rows if isinstance(row, Slot) for key in row.sources}
    entries = report.entries if sources else ()
    ids = {entry.key: entry.id for entry in entries if entry.key in sources}
    quoting = [edit for edit in report.edits if isinstance(edit, Insert | Shorten) and edit.quotes]
    cut = newest_cut(report.edits)
    summarized_ids = () if cut is None else cut.covers

    def find_row_sources(row: Row) -> tuple[MessageId, ...]:
        if isinstance(row, Entry):
            return (row.id, *_ids_recalled_by(row))
        source_ids = [ids[key] for key in row.sources if key in ids]
        texts = [part.text for part in row.parts if isinstance(part, Text | ToolResult)]
        quoting_edits = [edit for edit in quoting if any(edit.text in text for text in texts)]
        if not quoting_edits and not _BLOCKS.isdisjoint(row.notes):
            # The block was changed after the edit, so it may quote any of these messages.
            quoting_edits = quoting
        covered_ids = summarized_ids if "summary" in row.notes else ()
        return tuple(dict.fromkeys([*source_ids, *find_quoted_ids(quoting_edits), *covered_ids]))

    return find_row_sources


def _ids_recalled_by(entry: Entry) -> tuple[MessageId, ...]:
    results = [part for part in entry.parts if isinstance(part, ToolResult)]
    return tuple(dict.fromkeys([id_ for part in results for id_ in part.recalls or ()]))


def find_quoted_ids(edits: Sequence[Edit]) -> tuple[MessageId, ...]:
    """Return the messages that edits quote: in summaries, shortened results, recalled blocks."""
    cuts = [edit for edit in edits if isinstance(edit, Cut)]
    covered_ids = [id_ for cut in cuts for id_ in cut.covers]
    blocks = [block for cut in cuts for block in cut.ended]
    quoting = [edit for edit in (*blocks, *edits) if isinstance(edit, Insert | Shorten)]
    return tuple(dict.fromkeys([*covered_ids, *(id_ for edit in quoting for id_ in edit.quotes)]))


ReleasedTo: TypeAlias = Location | Literal["stale"]
_RANK: dict[Location, int] = {"store": 0, "spool": 1, "nowhere": 2}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GivenMessage:
    """A message to store, with what is needed to store it before the messages around it."""

    session: str
    entry: Entry
    history: Sequence[Entry] = field(repr=False)
    now: float
    source: Source


@dataclass(slots=True, eq=False, weakref_slot=True)
class ArchiveState:
    """What this process knows about the stored part of a session."""

    copy: Literal["missing", "current", "outdated"] = "missing"
    """Whether the session's state in RAM is the newest one. Outdated: use the stored one again."""
    is_overtaken: bool = False
    """True if the store skipped the last write, because another process had written first."""
    durable_keys: set[EntryKey] = field(default_factory=set, repr=False)
    stored_keys: frozenset[EntryKey] = field(default=frozenset(), repr=False)
    """Newest messages that were in the store when the session was loaded, if the store says so."""
    waiting_keys: set[EntryKey] = field(default_factory=set, repr=False)
    """Messages that neither the store nor the spool accepted, and that are held in RAM."""
    unstored_messages: dict[EntryKey, GivenMessage] = field(default_factory=dict, repr=False)
    """Messages to store that are not durable yet, in the order of the history."""
    may_be_broken: bool = False
    """True if the last reply broke off or another process observed it, until the next message."""
    masking_keys: set[EntryKey] = field(default_factory=set, repr=False)
    """Long messages that are masked alone at the moment."""
    forgotten_ids: set[MessageId] = field(default_factory=set, repr=False)
    """Messages that the store refused as forgotten, so that no later text may quote them."""
    secrets: dict[str, None] = field(default_factory=dict, repr=False)
    """Secrets of the session, never stored. A secret is masked also where it lacks a label."""
    judged_texts: JudgedTexts = field(default_factory=JudgedTexts, repr=False)
    path: tuple[EntryKey, ...] = field(default=(), repr=False)
    writer: StateWriter = field(default_factory=StateWriter, repr=False)
    replaced: int = 0
    last_record: LastRecord = field(default_factory=LastRecord, repr=False)
    usage: Usage | None = None
    """The provider's token counts for the newest turn, until the next one is recorded."""
    recorded_at: float = 0.0
    """When a record last referred to no earlier one. After a day, the next record does so too."""
    refusals: int = 0
    tasks: list[asyncio.Task[Any]] = field(default_factory=list, repr=False)
    location: Location = "nowhere"
    awaited: asyncio.Event = field(default_factory=asyncio.Event, repr=False)
    report_lines: list[StageLine] = field(default_factory=list)
    abandoned: bool = False
    refused_at: float = 0.0
    """Time (`time.monotonic`) at which the provider last refused a request as too large."""

    def note_unstored(
        self, session: str, entries: Sequence[Entry], *, now: float, source: Source
    ) -> None:
        """Note the messages that are to be stored, so that closing can store or count them."""
        for entry in entries:
            key = entry.key
            if not (
                key in self.durable_keys or key in self.stored_keys or key in self.unstored_messages
            ):
                self.unstored_messages[key] = GivenMessage(
                    session=session, entry=entry, history=entries, now=now, source=source
                )

    def note_durable(self, keys: AbstractSet[EntryKey]) -> None:
        self.durable_keys |= keys
        self.waiting_keys -= keys
        for key in keys & self.unstored_messages.keys():
            del self.unstored_messages[key]

    def write_from_start(self, replaced: int) -> None:
        """Write the session from its start again, because the store was replaced."""
        self.replaced = replaced
        self.durable_keys.clear()
        self.stored_keys = frozenset()
        self.path, self.last_record = (), LastRecord()

    def load_again(self) -> None:
        """From now on use the stored state, not the one in RAM."""
        self.copy = "outdated"
        self.path, self.last_record = (), LastRecord()


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestCounts:
    """Counts of ingested messages by outcome."""

    read: int = 0
    stored: int = 0
    known: int = 0
    forgotten: int = 0
    redacted: int = 0
    tokens: int = 0

    def plus(self, write_result: WriteResult, ingest_result: IngestResult) -> IngestCounts:
        stored_ids = frozenset(write_result.stored)
        new_segments = [
            new_segment.segment
            for new_segment in ingest_result.segments
            if new_segment.segment.id in stored_ids
        ]
        return replace(
            self,
            stored=self.stored + len(write_result.stored),
            known=self.known + len(write_result.known),
            forgotten=self.forgotten + len(write_result.forgotten),
            redacted=self.redacted + (ingest_result.redacted if new_segments else 0),
            tokens=self.tokens + sum(segment.tokens for segment in new_segments),
        )


def note_location(archive_state: ArchiveState, result: Persisted | Failure) -> None:
    """Record where a batch was written, and problems for the next report."""
    location: Location = "nowhere"
    if isinstance(result, Failure):
        problem = result.said
    else:
        location, problem = result.location, result.problem
    archive_state.location = max(archive_state.location, location, key=_RANK.__getitem__)
    if location != "store":
        line_outcome: Outcome = "failed" if location == "nowhere" else "late"
        reason = Reason(Cause.SPOOLED if location == "spool" else Cause.NOT_KEPT, error=problem)
        archive_state.report_lines.append(
            StageLine(stage="ingest", outcome=line_outcome, reasons=(reason,), seconds=0.0)
        )


def newest_session(
    stored_session: StoredSession | None, session_writes: Sequence[SessionWrite]
) -> StoredSession | None:
    """Return the session as it will be once these waiting writes (oldest first) are stored."""
    for write in session_writes:
        path, ids = (
            ((), ()) if stored_session is None else (stored_session.path, stored_session.ids)
        )
        if write.path_from > len(path) or (
            stored_session is not None and write.turn <= stored_session.turn
        ):
            continue  # the store will refuse this write as stale
        stored_session = StoredSession(
            session=write.session,
            turn=write.turn,
            state=write.state,
            path=path[: write.path_from] + write.path,
            ids=ids[: write.path_from] + write.ids,
        )
    return stored_session


async def drop_repeated(
    session: str,
    entries: Sequence[Entry],
    new_reply_ids: AbstractSet[SegmentId],
    archive_state: ArchiveState,
    store: GuardedStore,
) -> None:
    """Remove a reply that broke off if one of the messages `said` repeats it. Otherwise memory
    would hold it twice, and recall what the request contains."""
    sent_keys = {key for entry in entries for key in entry.segment_keys}
    if (
        archive_state.stored_keys
        and archive_state.durable_keys | archive_state.stored_keys <= sent_keys
    ):
        return
    page = await attempted(store.page(session=session, limit=MAX_READ, descending=True))
    newest = (
        [] if isinstance(page, Failure) else [stored_segment.segment for stored_segment in page]
    )
    texts = [segment.text for segment in newest if segment.id in new_reply_ids]
    repeated_segments = [
        segment
        for segment in newest
        if segment.role == "assistant"
        and segment.key not in sent_keys
        and any(repeats_broken(segment.text, text) for text in texts)
    ]
    if repeated_segments:
        await attempted(store.withdraw([segment.id for segment in repeated_segments]))
        keys = {segment.key for segment in repeated_segments}
        archive_state.durable_keys -= keys
        archive_state.stored_keys -= keys


def note_stored(
    archive_state: ArchiveState, session: str, chunk: Sequence[Entry], outcome: Persisted
) -> None:
    archive_state.note_durable({entry.key for entry in chunk})
    write_result = outcome.write_result
    if write_result is not None and write_result.forgotten:
        forgotten_ids = frozenset(write_result.forgotten)
        archive_state.forgotten_ids.update(
            entry.id for entry in chunk if segment_id(session, entry.key) in forgotten_ids
        )
