"""The ledger's record of a turn as bytes: its report, and message outcomes that changed since the
last turn. Causes are stored by name, outcomes as packed columns. Records contain no message
content; the writer masks the texts of reasons."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import msgspec

from recollect.core.formats.json_text import decode, encode
from recollect.core.values.message import EntryKey, Role
from recollect.core.values.reason import Reason
from recollect.core.values.report import Fate, FateKind, Report, StageLine
from recollect.errors import FormatError

MaskReason: TypeAlias = Callable[[Reason], Reason]
REPORT_VERSION: Final = 2
"""Current version. Version 1 stored a sentence per message."""
_MARK: Final = b"\x00O1"
"""First bytes of packed outcomes; JSON never begins like this (see `texts_of_outcomes`)."""
KIND_CODES: Final[dict[FateKind, int]] = {
    "kept": 0,
    "changed": 1,
    "left out": 2,
    "summarized": 3,
    "inserted": 4,
}
ROLE_CODES: Final[dict[Role, int]] = {"system": 0, "user": 1, "assistant": 2, "tool": 3}
"""Codes under which outcomes store roles. Never reuse a code for another role."""
_KINDS: Final = {code: kind for kind, code in KIND_CODES.items()}
_ROLES: Final = {code: role for role, code in ROLE_CODES.items()}
_KEY_BYTES: Final = 16
"""Size of an entry key (core/rules/identity.py), which is stored as bytes instead of hex."""
_NUMBERS: Final = ("turn", "window_tokens", "limit_tokens", "tokens_before", "tokens_after",
                   "calibration_ratio")  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeChanges:
    """Outcomes that changed since an earlier turn, or since the start of the session."""

    number: int = 0
    """Number of this record in its session."""
    fates: Mapping[int, Fate] = field(default_factory=dict)
    kept: Sequence[int] = ()
    own_outcomes: Sequence[tuple[int, Fate]] = ()
    """Outcomes of all messages that Recollect added, each with the position of the message before
    it (-1 at the start)."""
    cut: Reason | None = None
    """Reason that all summarized messages share. It is stored once: each compaction changes it."""


def texts_of_outcomes(raw: bytes) -> bytes | None:
    """Return the reasons of packed outcomes as JSON; None for other bytes. Raise FormatError for
    outcomes that cannot be read."""
    if not raw.startswith(_MARK):
        return None
    record = _unpack(raw)
    return encode([record.get("reasons"), record.get("cut")])


def with_texts_of_outcomes(raw: bytes, texts: bytes) -> bytes:
    """Replace the texts of packed outcomes that `texts_of_outcomes` returned."""
    reasons, cut = decode(texts)
    return _pack({**_unpack(raw), "reasons": reasons, "cut": cut})


def write_outcomes(changes: OutcomeChanges, mask: MaskReason) -> bytes:
    table = _ReasonTable(mask)
    places = sorted(changes.fates)
    fates = [changes.fates[place] for place in places]
    record = {
        "number": changes.number,
        "at": _runs(places),
        "kept": _runs(sorted(changes.kept)),
        "keys": join_keys([fate.key or EntryKey("") for fate in fates]),
        "kinds": bytes([KIND_CODES[fate.fate] for fate in fates]),
        "roles": bytes([ROLE_CODES[fate.role] for fate in fates]),
        "before": [fate.tokens_before for fate in fates],
        "after": [fate.tokens_after for fate in fates],
        "why": [table.number(fate.reasons) for fate in fates],
        "own": [
            [place, ROLE_CODES[fate.role], fate.tokens_after, table.number(fate.reasons)]
            for place, fate in changes.own_outcomes
        ],
        "reasons": table.rows,
        "cut": None if changes.cut is None else _write_reason(mask(changes.cut)),
    }
    return _pack(record)


def read_outcomes(raw: bytes) -> OutcomeChanges:
    if not raw.startswith(_MARK):
        raise FormatError("not the outcomes of a turn: they may be of a newer version")
    try:
        record = _unpack(raw)
        reasons = [
            tuple([read_reason(reason_record) for reason_record in row])
            for row in record["reasons"]
        ]
        columns = zip(
            list(_places(record["at"])),
            split_keys(record["keys"]),
            record["kinds"],
            record["roles"],
            record["before"],
            record["after"],
            record["why"],
            strict=True,
        )
        fates = {
            place: Fate(
                fate=_KINDS[kind],
                role=_ROLES[role],
                reasons=reasons[number],
                key=EntryKey(key),
                place=place,
                tokens_before=before,
                tokens_after=after,
            )
            for place, key, kind, role, before, after, number in columns
        }
        own_outcomes = [
            (
                int(place),
                Fate(
                    fate="inserted",
                    role=_ROLES[role],
                    reasons=reasons[number],
                    key=None,
                    place=None,
                    tokens_before=0,
                    tokens_after=tokens,
                ),
            )
            for place, role, tokens, number in record["own"]
        ]
        return OutcomeChanges(
            number=int(record["number"]),
            fates=fates,
            kept=list(_places(record["kept"])),
            own_outcomes=own_outcomes,
            cut=None if record.get("cut") is None else read_reason(record["cut"]),
        )
    except (ValueError, TypeError, LookupError) as error:
        raise FormatError(f"not the outcomes of a turn: {type(error).__name__}") from error


def _pack(record: Mapping[str, Any]) -> bytes:
    return _MARK + zlib.compress(msgspec.msgpack.encode(record))


def _unpack(raw: bytes) -> dict[str, Any]:
    try:
        return msgspec.msgpack.decode(zlib.decompress(raw[len(_MARK) :]), type=dict[str, Any])
    except (zlib.error, msgspec.MsgspecError) as error:
        raise FormatError(f"not the outcomes of a turn: {type(error).__name__}") from error


def combine_outcomes(chain: Iterable[OutcomeChanges]) -> OutcomeChanges:
    fates: dict[int, Fate] = {}
    last = OutcomeChanges()
    for last in chain:
        for place in last.kept:
            fates.pop(place, None)
        fates.update(last.fates)
    return OutcomeChanges(fates=fates, own_outcomes=last.own_outcomes, cut=last.cut)


def sort_outcomes(outcomes: OutcomeChanges) -> list[Fate]:
    """Return outcomes in message order. An added message comes after the one that it follows."""
    cut_reasons = () if outcomes.cut is None else (outcomes.cut,)
    placed = [
        (place, 0, fate if fate.reasons else replace(fate, reasons=cut_reasons))
        for place, fate in outcomes.fates.items()
    ]
    placed += [(place, 1, fate) for place, fate in outcomes.own_outcomes]
    return [fate for _, _, fate in sorted(placed, key=lambda item: item[:2])]


def write_report(
    report: Report, mask: MaskReason, figures: Mapping[str, Any] | None = None
) -> bytes:
    """Write what a turn did and why, without message outcomes. `figures` are token counts by
    kind."""
    lines = [
        [
            line.stage,
            line.outcome,
            round(line.seconds, 6),
            [_write_reason(mask(reason)) for reason in line.reasons],
        ]
        for line in report.lines
    ]
    return encode(
        {
            "version": REPORT_VERSION,
            **{name: getattr(report, name) for name in _NUMBERS},
            "moment": None if report.moment is None else report.moment.kind,
            "lines": lines,
            "recalled": [list(passage) for passage in report.recalled],
            **({} if figures is None else {"figures": figures}),
        }
    )


def read_report(raw: bytes, outcomes: OutcomeChanges) -> dict[str, Any]:
    """Read a stored report, and add its sentences and outcomes. Earlier versions stored the
    outcomes in the report. Raise FormatError for anything else."""
    record = decode(raw)
    if not isinstance(record, dict):
        raise FormatError("not the report of a turn")
    version = record.pop("version", 1)
    if version == 1:
        return record
    if version != REPORT_VERSION:
        raise FormatError("not a report of this version: it may be of a newer version")
    try:
        lines = [_read_line(line_record).to_dict() for line_record in record["lines"]]
    except (ValueError, TypeError) as error:
        raise FormatError(f"not the report of a turn: {type(error).__name__}") from error
    fates = [_entry_first(fate.to_dict()) for fate in sort_outcomes(outcomes)]
    passages = record.pop("recalled")
    return {**record, "lines": lines, "fates": fates, "recalled": passages}


def _entry_first(fate: dict[str, Any]) -> dict[str, Any]:
    """Rename `key` to `entry`, because redaction would mask a value after "key" as a secret."""
    return {"entry": fate.pop("key"), **fate}


def _read_line(record: Sequence[Any]) -> StageLine:
    stage, outcome, seconds, reasons = record
    return StageLine(
        stage=stage,
        outcome=outcome,
        reasons=tuple([read_reason(reason_record) for reason_record in reasons]),
        seconds=seconds,
    )


class _ReasonTable:
    def __init__(self, mask: MaskReason) -> None:
        self.rows: list[list[Any]] = []
        self._mask = mask
        self._numbers: dict[tuple[Reason, ...], int] = {}

    def number(self, reasons: tuple[Reason, ...]) -> int:
        known = self._numbers.get(reasons)
        if known is None:
            known = self._numbers[reasons] = len(self.rows)
            self.rows.append([_write_reason(self._mask(reason)) for reason in reasons])
        return known


def _write_reason(reason: Reason) -> list[Any]:
    cause = reason.cause.name.lower()
    if not reason.numbers:
        return [cause]
    numbers = {
        name: _write_reason(value) if isinstance(value, Reason) else value
        for name, value in reason.numbers.items()
    }
    return [cause, numbers]


def read_reason(record: Sequence[Any]) -> Reason:
    cause, *further = record
    numbers = {
        name: read_reason(value).to_dict() if isinstance(value, list) else value
        for name, value in (further[0] if further else {}).items()
    }
    return Reason.from_dict({"cause": cause, "numbers": numbers})


def _runs(places: Sequence[int]) -> list[int]:
    runs: list[int] = []
    for place in places:
        if runs and place == runs[-2] + runs[-1]:
            runs[-1] += 1
        else:
            runs += [place, 1]
    return runs


def _places(runs: Sequence[int]) -> Iterable[int]:
    for start, length in zip(runs[::2], runs[1::2], strict=True):
        yield from range(start, start + length)


def join_keys(keys: Sequence[str]) -> bytes | list[str]:
    digits = "".join(keys)
    if all(len(key) == 2 * _KEY_BYTES for key in keys):
        try:
            key_bytes = bytes.fromhex(digits)
        except ValueError:
            return list(keys)
        if key_bytes.hex() == digits:
            return key_bytes
    return list(keys)


def split_keys(keys: bytes | list[str]) -> list[str]:
    if isinstance(keys, list):
        return keys
    if len(keys) % _KEY_BYTES:
        raise ValueError("keys are torn")
    digits = keys.hex()
    return [
        digits[offset : offset + 2 * _KEY_BYTES] for offset in range(0, len(digits), 2 * _KEY_BYTES)
    ]
