"""What our own facts say beyond OpenClaw's keys, as keys of a line in `knowledge.jsonl`.

Pure. A key stands only where it says more than its default, so that a fact as OpenClaw knows it is
written as OpenClaw writes it. Segments are named by the ids they have in the store the file came
from. Reading never raises: what is not as it should be is taken as not said. Always holds: a file
by itself gives no trust above "medium", pins nothing and speaks for nobody: what it says of that
counts only where a person restores an export of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, get_args

from recollect.formats.js_json import number_at, text_at
from recollect.values.fact import Change, Evidence, Fact, MadeBy
from recollect.values.segment import SegmentId, Trust

OWN_KEYS: Final = frozenset(
    {"trust", "validTo", "recordedAt", "subject", "attribute", "sources", "evidence", "madeBy",
     "change", "session", "pinned", "joint"}
)  # fmt: skip
# What every reader of JSON can hold exactly; stores take no more.
_NUMBER_MAX: Final = 2**53
_TRUSTS: Final[dict[str, Trust]] = {name: name for name in get_args(Trust)}
_MAKERS: Final[dict[str, MadeBy]] = {name: name for name in get_args(MadeBy)}
_CHANGES: Final[dict[str, Change]] = {name: name for name in get_args(Change)}


def own_keys(fact: Fact) -> dict[str, Any]:
    """The further keys of a fact; times in milliseconds, as OpenClaw has them."""
    said: dict[str, tuple[Any, bool]] = {
        "trust": (fact.trust, fact.trust != "medium"),
        "validTo": (_milliseconds(fact.valid_to), fact.valid_to is not None),
        "recordedAt": (_milliseconds(fact.recorded_at), fact.recorded_at is not None),
        "subject": (fact.subject, bool(fact.subject)),
        "attribute": (fact.attribute, bool(fact.attribute)),
        "sources": (list(fact.sources), bool(fact.sources)),
        "evidence": (
            [{"segment": one.segment, "start": one.start, "end": one.end} for one in fact.evidence],
            bool(fact.evidence),
        ),
        "madeBy": (fact.made_by, fact.made_by != "import"),
        "change": (fact.change, fact.change is not None),
        "session": (fact.session, fact.session is not None),
        "pinned": (True, fact.pinned),
        "joint": (True, fact.joint),
    }
    return {key: value for key, (value, stands) in said.items() if stands}


def with_own_keys(fact: Fact, value: Mapping[str, Any], *, restored: bool) -> Fact:
    """The fact with what these keys of a line say, and the defaults where they say nothing.

    `restored`: the line is taken at its word for trust, maker and pin.
    """
    line = dict(value)
    made_by = _MAKERS.get(text_at(line, "madeBy") or "", "import")
    trust = _TRUSTS.get(text_at(line, "trust") or "", "medium")
    return replace(
        fact,
        trust="medium" if trust == "high" and not restored else trust,
        valid_to=_seconds(line, "validTo"),
        recorded_at=_seconds(line, "recordedAt"),
        subject=text_at(line, "subject") or "",
        attribute=text_at(line, "attribute") or "",
        sources=tuple(SegmentId(one) for one in _items(line, "sources") if isinstance(one, str)),
        evidence=tuple(span for one in _items(line, "evidence") for span in _spans(one)),
        made_by=made_by if restored else "import",
        change=_CHANGES.get(text_at(line, "change") or ""),
        session=text_at(line, "session"),
        pinned=restored and line.get("pinned") is True,
        joint=line.get("joint") is True,
    )


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def _seconds(line: dict[str, Any], key: str) -> float | None:
    found = number_at(line, key)
    return None if found is None or abs(found) > _NUMBER_MAX else found / 1000


def _items(line: dict[str, Any], key: str) -> list[Any]:
    found = line.get(key)
    return found if isinstance(found, list) else []


def _spans(item: object) -> tuple[Evidence, ...]:
    match item:
        case {"segment": str(segment), "start": int(start), "end": int(end)} if (
            0 <= start <= end <= _NUMBER_MAX
        ):
            return (Evidence(segment=SegmentId(segment), start=start, end=end),)
    return ()
