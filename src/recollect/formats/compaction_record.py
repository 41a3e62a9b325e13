"""A compaction as bytes, for the store: what receipts, diffs and undo are read from.

JSON with a version; a reader refuses what a newer version wrote instead of guessing. Owns the
spelling only: whoever stores it redacts it first, and says which messages it stands for. What
always holds: what is read is what was written, and nothing else is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypeVar, get_args

from recollect.errors import FormatError
from recollect.formats.json_spans import decode, encode
from recollect.values.compaction import (
    CompactionResult,
    Convergence,
    Finding,
    Probe,
    ProbeKind,
    Receipt,
    Spent,
    Standing,
    Trigger,
)
from recollect.values.message import EntryKey, MessageId
from recollect.values.reason import Reason

VERSION: Final = 1
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCompaction:
    """A compaction, and when it was made."""

    result: CompactionResult = field(repr=False)
    turn: int
    """The session's turn before which it was made."""
    at: float


def write_record(result: CompactionResult, *, turn: int, at: float) -> bytes:
    """The compaction as bytes that `read_record` takes back."""
    receipt = result.receipt
    return encode(
        {
            "version": VERSION,
            "number": result.number,
            "turn": turn,
            "at": at,
            "trigger": result.trigger,
            "convergence": result.convergence,
            "reason": result.reason.to_dict(),
            "summary": result.summary,
            "first_kept": result.first_kept,
            "compacted_messages": result.compacted_messages,
            "tokens_before": result.tokens_before,
            "tokens_after": result.tokens_after,
            "splits_a_turn": result.splits_a_turn,
            "details": dict(result.details),
            "receipt": None if receipt is None else _written_receipt(receipt),
            "spent": asdict(result.spent),
            "notes": list(result.notes),
            "seconds": result.seconds,
        }
    )


def read_record(raw: bytes) -> RecordedCompaction:
    """What `write_record` wrote; FormatError for anything else."""
    held = decode(raw)
    if not isinstance(held, dict) or held.get("version") != VERSION:
        raise FormatError(f"not a compaction of version {VERSION}: it may be a newer one's")
    try:
        return _read(held)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"not a compaction: {type(error).__name__}") from error


def _written_receipt(receipt: Receipt) -> dict[str, Any]:
    findings = [
        {**asdict(one.probe), "standing": one.standing, "pinned": one.pinned}
        for one in receipt.findings
    ]
    return {
        "findings": findings,
        "pinned_tokens": receipt.pinned_tokens,
        "notes": list(receipt.notes),
    }


def _read(held: Mapping[str, Any]) -> RecordedCompaction:
    first_kept = held["first_kept"]
    result = CompactionResult(
        convergence=_one_of(held["convergence"], Convergence),
        reason=Reason.from_dict(held["reason"]),
        trigger=_one_of(held["trigger"], Trigger),
        number=_is(held["number"], int),
        summary=_is(held["summary"], str),
        first_kept=None if first_kept is None else EntryKey(_is(first_kept, str)),
        compacted_messages=_is(held["compacted_messages"], int),
        tokens_before=_is(held["tokens_before"], int),
        tokens_after=_is(held["tokens_after"], int),
        splits_a_turn=_is(held["splits_a_turn"], bool),
        details=_is(held["details"], dict),
        receipt=None if held["receipt"] is None else _read_receipt(held["receipt"]),
        spent=Spent(**{name: _is(value, int) for name, value in held["spent"].items()}),
        notes=_texts(held["notes"]),
        seconds=_seconds(held["seconds"]),
    )
    return RecordedCompaction(result=result, turn=_is(held["turn"], int), at=_seconds(held["at"]))


def _read_receipt(held: Mapping[str, Any]) -> Receipt:
    return Receipt(
        findings=tuple(_read_finding(one) for one in _is(held["findings"], list)),
        pinned_tokens=_is(held["pinned_tokens"], int),
        notes=_texts(held["notes"]),
    )


def _read_finding(held: Mapping[str, Any]) -> Finding:
    probe = Probe(
        kind=_one_of(held["kind"], ProbeKind),
        text=_is(held["text"], str),
        sentence=_is(held["sentence"], str),
        source=MessageId(_is(held["source"], str)),
        key=EntryKey(_is(held["key"], str)),
    )
    return Finding(
        probe=probe,
        standing=_one_of(held["standing"], Standing),
        pinned=_is(held["pinned"], bool),
    )


def _is(value: Any, kind: type[T]) -> T:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"not a {kind.__name__}")
    return value


def _seconds(value: Any) -> float:
    return float(value) if isinstance(value, int) else _is(value, float)


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(_is(one, str) for one in _is(value, list))


def _one_of(value: Any, words: Any) -> Any:
    if value not in get_args(words):
        raise ValueError("a word of another version")
    return value
