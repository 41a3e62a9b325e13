"""A turn as a ledger record: what was sent, in pieces that are stored once.

Pure but for what it remembers of the last turn of a session, by which a turn that only grew
names only what it added. Everything in a piece is redacted before it is hashed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from hashlib import blake2b

from recollect.config.settings import Redaction as RedactionSettings
from recollect.formats.json_spans import encode
from recollect.formats.request import frame_of
from recollect.rules.json_redaction import redact_json
from recollect.rules.redaction import redact
from recollect.values.edit import Edit, Insert
from recollect.values.history import Entry, Row
from recollect.values.ledger import Piece, PieceHash, PieceKind, TurnRecord
from recollect.values.message import EntryKey, MessageId
from recollect.values.report import Report
from recollect.values.request import Request

_DIGEST_BYTES = 16


@dataclass(slots=True)
class LastRecord:
    """The rows of a session's last record in this process, as sent and as named."""

    raws: list[bytes] = field(default_factory=list, repr=False)
    hashes: list[PieceHash] = field(default_factory=list, repr=False)
    known: set[PieceHash] = field(default_factory=set, repr=False)
    """Pieces other than rows that were written already."""


def record_turn(
    request: Request, report: Report, last: LastRecord, redaction: RedactionSettings, *, at: float
) -> tuple[TurnRecord, tuple[Piece, ...]]:
    """The record of a turn and the pieces it needs that were not written yet."""
    made: dict[PieceHash, Piece] = {}

    def named(kind: PieceKind, body: bytes | None, about: tuple[MessageId, ...] = ()) -> PieceHash:
        piece = _piece(kind, body or b"", about, redaction)
        if piece.hash not in last.known:
            made[piece.hash] = piece
        return piece.hash

    rows = report.view.rows
    kept = _kept(rows, last)
    about = _whose(report)
    added = [named("row", row.raw, about(row)) for row in rows[kept:]]
    quoted = _edit_quotes(report)
    record = TurnRecord(
        session=report.session,
        number=report.turn,
        at=at,
        format=report.format,
        model=report.model,
        system=None if request.system is None else named("system", request.system),
        tools=None if request.tools is None else named("tools", request.tools),
        rest=named("rest", frame_of(request)),
        edits=named("edits", _edits_body(report), quoted) if _edits_changed(report) else None,
        report=named("report", _report_body(report)),
        kept_rows=kept,
        rows=tuple(added),
    )
    last.raws[kept:] = [row.raw for row in rows[kept:]]
    last.hashes[kept:] = added
    last.known = {name for name in (record.system, record.tools, record.rest) if name}
    return record, tuple(made.values())


def _kept(rows: tuple[Row, ...], last: LastRecord) -> int:
    kept = 0
    for row, raw in zip(rows, last.raws, strict=False):
        if row.raw is not raw and row.raw != raw:
            break
        kept += 1
    return kept


def _piece(
    kind: PieceKind, body: bytes, about: tuple[MessageId, ...], redaction: RedactionSettings
) -> Piece:
    exact = True
    if redaction.enabled:
        if kind == "rest":  # not JSON: marks stand in it
            text = body.decode("utf-8", "surrogateescape")
            masked = redact(text, pii=redaction.pii).text
            exact, body = masked == text, masked.encode("utf-8", "surrogateescape")
        else:
            body, exact = redact_json(body, pii=redaction.pii)
    digest = blake2b(body, digest_size=_DIGEST_BYTES, person=kind.encode()).hexdigest()
    return Piece(hash=PieceHash(digest), kind=kind, body=body, about=about, exact=exact)


def _whose(report: Report) -> Callable[[Row], tuple[MessageId, ...]]:
    """Whose content a row quotes: a message's own, or of a row of ours all it may hold."""
    ids = {entry.key: entry.id for entry in report.entries}
    quotes = _quotes(report.edits)

    def about(row: Row) -> tuple[MessageId, ...]:
        if isinstance(row, Entry):
            return (row.id,)
        own = [ids[key] for key in row.sources if key in ids]
        return tuple(dict.fromkeys([*own, *quotes]))

    return about


def _quotes(edits: tuple[Edit, ...]) -> tuple[MessageId, ...]:
    inserts = [edit for edit in edits if isinstance(edit, Insert)]
    return tuple(dict.fromkeys(quoted for insert in inserts for quoted in insert.quotes))


def _edits_changed(report: Report) -> bool:
    return bool(report.new_edits or report.ended_edits)


def _edit_quotes(report: Report) -> tuple[MessageId, ...]:
    return quoted_by(report.new_edits + report.ended_edits, report.entries)


def quoted_by(edits: tuple[Edit, ...], entries: tuple[Entry, ...]) -> tuple[MessageId, ...]:
    """The messages whose words stand in edits: shortened results, recalled blocks."""
    ids: dict[EntryKey | None, MessageId] = {entry.key: entry.id for entry in entries}
    anchored = [ids[edit.anchor] for edit in edits if edit.anchor in ids]
    return tuple(dict.fromkeys([*anchored, *_quotes(edits)]))


def _edits_body(report: Report) -> bytes:
    def written(edit: Edit) -> dict[str, object]:
        return {"kind": type(edit).__name__, **asdict(edit)}

    return encode(
        {
            "new": [written(edit) for edit in report.new_edits],
            "ended": [written(edit) for edit in report.ended_edits],
        }
    )


def _report_body(report: Report) -> bytes:
    """What was done and why, without what was said."""
    changed = _edits_changed(report)  # otherwise the fates are those of the turn before
    fates = [asdict(fate) for fate in report.fates() if fate.fate != "kept"] if changed else []
    return encode(
        {
            "turn": report.turn,
            "window_tokens": report.window_tokens,
            "limit_tokens": report.limit_tokens,
            "tokens_before": report.tokens_before,
            "tokens_after": report.tokens_after,
            "calibration_ratio": report.calibration_ratio,
            "moment": None if report.moment is None else report.moment.kind,
            "lines": [asdict(line) for line in report.lines],
            "fates": fates,
        }
    )
