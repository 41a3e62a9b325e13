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
from recollect.core.engine.archive import Persisted, Where
from recollect.core.engine.guarded_store import GuardedStore
from recollect.core.formats.request import fill_frame, frame_of
from recollect.core.formats.stored_records import StateWriter
from recollect.core.formats.turn_records import OutcomeChanges, write_outcomes, write_report
from recollect.core.rules.identity import segment_id
from recollect.core.rules.message_redaction import TextMask
from recollect.core.rules.redaction import JudgedTexts, redact
from recollect.core.rules.text import repeats_broken
from recollect.core.rules.tokens import Weigher
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
MOST_READ = 8
"""Number of a session's newest messages to read: a broken reply, the request after it, and a reply
of a few messages (reasoning, text and calls in OpenAI Responses)."""
_E = TypeVar("_E", bound=Edit)


def session_write(
    session: str, state: SessionState, keeping: ArchiveState, redaction: RedactionSettings
) -> SessionWrite:
    written = keeping.path
    shared = len(written)
    if state.path[:shared] != written:  # skip the loop if only new messages follow
        pairs = enumerate(zip(written, state.path, strict=False))
        shared = next((at for at, (old, new) in pairs if old != new), len(state.path))

    def mask(text: str) -> str:
        return redact(text, pii=redaction.pii, judged_texts=keeping.judged).text

    def masked(edit: Edit) -> Edit:
        return _masked(edit, mask) if redaction.enabled else edit

    telling = [edit for edit in state.edits if not isinstance(edit, LeaveOut)]
    return SessionWrite(
        session=session,
        turn=state.turn,
        state=keeping.writer.split(state, masked),
        about=quoted_by([*telling, *(edit for edit, _ in state.dormant)]),
        path_from=shared,
        path=state.path[shared:],
        ids=state.ids[shared:],
    )


def _masked(edit: _E, mask: Callable[[str], str]) -> _E:
    if isinstance(edit, Shorten | Insert):
        text = mask(edit.text)
        return edit if text == edit.text else replace(edit, text=text)
    if isinstance(edit, Cut):
        summary = mask(edit.summary)
        ended = tuple(_masked(block, mask) for block in edit.ended)
        carried = edit.carried and mask_carried(edit.carried, mask)
        if (summary, ended, carried) == (edit.summary, edit.ended, edit.carried):
            return edit
        return replace(edit, summary=summary, ended=ended, carried=carried)
    return edit


def mask_carried(carried: Carried, mask: Callable[[str], str]) -> Carried:
    def masked(texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(mask(text) for text in texts)

    return Carried(
        read_files=masked(carried.read_files),
        modified_files=masked(carried.modified_files),
        failures=tuple(
            replace(failure, tool=mask(failure.tool), said=mask(failure.said))
            for failure in carried.failures
        ),
        identifiers=masked(carried.identifiers),
        lines=tuple(replace(line, text=mask(line.text)) for line in carried.lines),
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
        same = (self.edits, self.repairs) == (report.edits, report.view.repairs)
        if self.chain and same and keys[: len(self.keys)] == self.keys:
            fates = self.newest.fates
        else:
            fates = _fates(report, self.newest.fates)
        places = dict(zip(keys, range(len(keys)), strict=True))
        own = tuple(
            (-1 if key is None else places[key], fate)
            for key, rows in own_rows(report.view).items()
            for fate in rows
        )
        cut = newest_cut(report.edits)
        now = OutcomeChanges(fates=fates, own_outcomes=own, cut=None if cut is None else cut.reason)
        done = replace(self, newest=now, keys=keys, edits=report.edits, repairs=report.view.repairs)
        if self.chain and now == self.newest:
            return done
        chain, changes = self.chain, now
        while chain:
            changes = _changes_since(chain, now)
            weight = _weight(changes)
            limit = len(fates) / 2 if len(chain) == 1 else chain[-1].weight / _STEP
            if weight <= limit:
                break
            chain, changes = chain[:-1], now
        record = _OutcomeRecord(name=name(changes), weight=_weight(changes), fates=fates)
        return replace(done, chain=(*chain, record))

    @property
    def names(self) -> tuple[PieceHash, ...]:
        """Hashes of the records to combine, oldest first."""
        return tuple([record.name for record in self.chain])


_STEP: Final = 4
"""A record is at most a fourth of the size of the one before it. A turn thus writes little more
than its changes, and few records are read to restore the outcomes."""
_LEAST_WEIGHT: Final = 8


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
    changed = {
        place: fate
        for place, fate in now.fates.items()
        if (old := known.get(place)) is not fate and old != fate
    }
    kept = [place for place in known if place not in now.fates]
    return replace(now, number=len(chain), fates=changed, kept=kept)


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
    last: LastRecord,
    mask: TextMask,
    *,
    forgotten: AbstractSet[MessageId] = frozenset(),
    usage: Usage | None = None,
) -> RecordedTurn:
    """Make the record of a turn. Pieces that quote a forgotten message are listed, but not stored.
    `usage` is the provider's token count for the previous turn."""
    request, report = turn.request, turn.report
    made: dict[PieceHash, LedgerPiece] = {}

    frame = frame_of(request, as_it_came=turn.as_it_came)

    def add(piece: LedgerPiece) -> PieceHash:
        if piece.hash not in last.known and forgotten.isdisjoint(piece.about):
            made[piece.hash] = piece
        return piece.hash

    def named(
        kind: PieceKind, body: bytes, about: tuple[MessageId, ...] = (), *, exact: bool = True
    ) -> PieceHash:
        masked, unchanged = mask.body(body)
        return add(_piece(kind, masked, about, exact=exact and unchanged))

    def mask_reason(reason: Reason) -> Reason:
        return reason.mask_texts(lambda text: _mask_word(text, mask))

    rows = report.view.rows
    kept = count_equal_rows(rows, last)
    about = _whose(report, rows[kept:])
    added = tuple([named("row", row.raw, about(row)) for row in rows[kept:]])
    outcomes = last.outcomes.record(
        report, lambda made: add(_piece("outcomes", write_outcomes(made, mask_reason)))
    )
    system = None if request.system is None else named("system", request.system)
    tools = None if request.tools is None else named("tools", request.tools)
    same_head = last.known.issuperset(name for name in (system, tools) if name)
    figures, last_figures = last.figures.next(report, _WEIGHER, usage, same_head=same_head)
    record = TurnRecord(
        session=report.session,
        number=report.turn,
        at=turn.now,
        format=report.format,
        model=report.model,
        system=system,
        tools=tools,
        rest=named("rest", frame, exact=_gives_it_back(frame, turn)),
        report=add(_piece("report", write_report(report, mask_reason, figures.to_dict()))),
        outcomes=outcomes.names,
        kept_rows=kept,
        rows=added,
    )
    return RecordedTurn(
        record=record,
        pieces=tuple(made.values()),
        last=LastRecord(
            raws=tuple([row.raw for row in rows]),
            hashes=last.hashes[:kept] + added,
            known=frozenset(n for n in (record.system, record.tools, record.rest) if n),
            outcomes=outcomes,
            figures=last_figures,
        ),
    )


def _gives_it_back(frame: bytes, turn: FinishedTurn) -> bool:
    """Return whether the request can be rebuilt byte for byte: not if a JSON key is escaped or
    occurs twice."""
    request = turn.request
    if not turn.as_it_came or request.body is None:
        return True
    filled = fill_frame(frame, request.messages, system=request.system, tools=request.tools)
    return filled == request.body


def count_equal_rows(rows: tuple[Row, ...], last: LastRecord) -> int:
    """Count the messages at the start that are the same as in the last record."""
    kept = 0
    for row, raw in zip(rows, last.raws, strict=False):
        if row.raw is not raw and row.raw != raw:
            break
        kept += 1
    return kept


def _mask_word(text: str, mask: TextMask) -> str:
    """Mask a text, unless it is one lower-case word, which is a code of Recollect."""
    is_code = text.isalpha() and text.islower() and text not in mask.secrets
    return text if is_code else mask.text(text)


def _piece(
    kind: PieceKind, body: bytes, about: tuple[MessageId, ...] = (), *, exact: bool = True
) -> LedgerPiece:
    name = piece_hash(kind, body)
    return LedgerPiece(hash=name, kind=kind, body=body, about=about, exact=exact)


def _whose(report: Report, rows: Sequence[Row]) -> Callable[[Row], tuple[MessageId, ...]]:
    sources = {key for row in rows if isinstance(row, Slot) for key in row.sources}
    entries = report.entries if sources else ()
    ids = {entry.key: entry.id for entry in entries if entry.key in sources}
    quoting = [edit for edit in report.edits if isinstance(edit, Insert | Shorten) and edit.quotes]
    cut = newest_cut(report.edits)
    summarized = () if cut is None else cut.covers

    def about(row: Row) -> tuple[MessageId, ...]:
        if isinstance(row, Entry):
            return (row.id, *_recalled_by(row))
        own = [ids[key] for key in row.sources if key in ids]
        texts = [part.text for part in row.parts if isinstance(part, Text | ToolResult)]
        held = [edit for edit in quoting if any(edit.text in text for text in texts)]
        if not held and not _BLOCKS.isdisjoint(row.notes):
            # The block was changed after the edit, so it may quote any of these messages.
            held = quoting
        covered = summarized if "summary" in row.notes else ()
        return tuple(dict.fromkeys([*own, *quoted_by(held), *covered]))

    return about


def _recalled_by(entry: Entry) -> tuple[MessageId, ...]:
    results = [part for part in entry.parts if isinstance(part, ToolResult)]
    return tuple(dict.fromkeys([id_ for part in results for id_ in part.recalls or ()]))


def quoted_by(edits: Sequence[Edit]) -> tuple[MessageId, ...]:
    """Return the messages that edits quote: in summaries, shortened results, recalled blocks."""
    cuts = [edit for edit in edits if isinstance(edit, Cut)]
    covered = [id_ for cut in cuts for id_ in cut.covers]
    blocks = [block for cut in cuts for block in cut.ended]
    quoting = [edit for edit in (*blocks, *edits) if isinstance(edit, Insert | Shorten)]
    return tuple(dict.fromkeys([*covered, *(id_ for edit in quoting for id_ in edit.quotes)]))


ReleasedTo: TypeAlias = Where | Literal["stale"]
_RANK: dict[Where, int] = {"store": 0, "spool": 1, "nowhere": 2}


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
    overtaken: bool = False
    """True if the store skipped the last write, because another process had written first."""
    durable: set[EntryKey] = field(default_factory=set, repr=False)
    stored: frozenset[EntryKey] = field(default=frozenset(), repr=False)
    """Newest messages that were in the store when the session was loaded, if the store says so."""
    waiting: set[EntryKey] = field(default_factory=set, repr=False)
    """Messages that neither the store nor the spool accepted, and that are held in RAM."""
    given: dict[EntryKey, GivenMessage] = field(default_factory=dict, repr=False)
    """Messages to store that are not durable yet, in the order of the history."""
    may_be_broken: bool = False
    """True if the last reply broke off or another process observed it, until the next message."""
    being_masked: set[EntryKey] = field(default_factory=set, repr=False)
    """Long messages that are masked alone at the moment."""
    forgotten: set[MessageId] = field(default_factory=set, repr=False)
    """Messages that the store refused as forgotten, so that no later text may quote them."""
    secrets: dict[str, None] = field(default_factory=dict, repr=False)
    """Secrets of the session, never stored. A secret is masked also where it lacks a label."""
    judged: JudgedTexts = field(default_factory=JudgedTexts, repr=False)
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
    where: Where = "nowhere"
    awaited: asyncio.Event = field(default_factory=asyncio.Event, repr=False)
    trouble: list[StageLine] = field(default_factory=list)
    abandoned: bool = False
    refused_at: float = 0.0
    """Time (`time.monotonic`) at which the provider last refused a request as too large."""

    def give(self, session: str, entries: Sequence[Entry], *, now: float, source: Source) -> None:
        """Note the messages that are to be stored, so that closing can store or count them."""
        for entry in entries:
            key = entry.key
            if not (key in self.durable or key in self.stored or key in self.given):
                self.given[key] = GivenMessage(
                    session=session, entry=entry, history=entries, now=now, source=source
                )

    def note_durable(self, keys: AbstractSet[EntryKey]) -> None:
        self.durable |= keys
        self.waiting -= keys
        for key in keys & self.given.keys():
            del self.given[key]

    def write_from_start(self, replaced: int) -> None:
        """Write the session from its start again, because the store was replaced."""
        self.replaced = replaced
        self.durable.clear()
        self.stored = frozenset()
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

    def plus(self, written: WriteResult, made: IngestResult) -> IngestCounts:
        stored = frozenset(written.stored)
        new = [one.segment for one in made.segments if one.segment.id in stored]
        return replace(
            self,
            stored=self.stored + len(written.stored),
            known=self.known + len(written.known),
            forgotten=self.forgotten + len(written.forgotten),
            redacted=self.redacted + (made.redacted if new else 0),
            tokens=self.tokens + sum(segment.tokens for segment in new),
        )


def note_place(keeping: ArchiveState, kept: Persisted | Failure) -> None:
    """Record where a batch was written, and problems for the next report."""
    where: Where = "nowhere" if isinstance(kept, Failure) else kept.where
    keeping.where = max(keeping.where, where, key=_RANK.__getitem__)
    if where != "store":
        outcome: Outcome = "failed" if where == "nowhere" else "late"
        reason = Reason(Cause.SPOOLED if where == "spool" else Cause.NOT_KEPT, error=kept.said)
        keeping.trouble.append(
            StageLine(stage="ingest", outcome=outcome, reasons=(reason,), seconds=0.0)
        )


def newest_session(
    stored: StoredSession | None, waiting: Sequence[SessionWrite]
) -> StoredSession | None:
    """Return the session as it will be once these waiting writes (oldest first) are stored."""
    for write in waiting:
        path, ids = ((), ()) if stored is None else (stored.path, stored.ids)
        if write.path_from > len(path) or (stored is not None and write.turn <= stored.turn):
            continue  # the store will refuse this write as stale
        stored = StoredSession(
            session=write.session,
            turn=write.turn,
            state=write.state,
            path=path[: write.path_from] + write.path,
            ids=ids[: write.path_from] + write.ids,
        )
    return stored


async def drop_repeated(
    session: str,
    entries: Sequence[Entry],
    said: AbstractSet[SegmentId],
    keeping: ArchiveState,
    store: GuardedStore,
) -> None:
    """Remove a reply that broke off if one of the messages `said` repeats it. Otherwise memory
    would hold it twice, and recall what the request contains."""
    sent = {key for entry in entries for key in entry.segment_keys}
    if keeping.stored and keeping.durable | keeping.stored <= sent:
        return
    page = await attempted(store.page(session=session, limit=MOST_READ, descending=True))
    newest = [] if isinstance(page, Failure) else [stored.segment for stored in page]
    texts = [segment.text for segment in newest if segment.id in said]
    repeated = [
        segment
        for segment in newest
        if segment.role == "assistant"
        and segment.key not in sent
        and any(repeats_broken(segment.text, text) for text in texts)
    ]
    if repeated:
        await attempted(store.withdraw([segment.id for segment in repeated]))
        keys = {segment.key for segment in repeated}
        keeping.durable -= keys
        keeping.stored -= keys


def note_stored(
    keeping: ArchiveState, session: str, chunk: Sequence[Entry], kept: Persisted
) -> None:
    keeping.note_durable({entry.key for entry in chunk})
    written = kept.written
    if written is not None and written.forgotten:
        gone = frozenset(written.forgotten)
        keeping.forgotten.update(
            entry.id for entry in chunk if segment_id(session, entry.key) in gone
        )
