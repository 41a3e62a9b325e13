"""Facts as rows, and back.

Owns the columns of `fact`. As in `rows.py`, a row that cannot be read is left out and never hides
the others. Always holds: what was written comes back equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, get_args

from recollect.stores.fact_support import pack_evidence, unpack_evidence
from recollect.stores.sqlite.database import Row
from recollect.stores.sqlite.packing import (
    pack_list,
    pack_text,
    text_of,
    unpack_list,
    unpack_text,
)
from recollect.stores.sqlite.rows import one_of
from recollect.values.fact import Change, Fact, FactId, FactType, MadeBy
from recollect.values.segment import SegmentId, Trust

_COLUMNS: Final = (
    "id, type, at, superseded_by, trust, sources, words, content, context, foreign_line, "
    "valid_to, recorded_at, subject, attribute, evidence, made_by, change, session, pinned, joint"
)
INSERT_FACT: Final = f"""
INSERT INTO fact (number, current, {_COLUMNS})
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""  # noqa: S608
SELECT_FACT: Final = """
SELECT id, type, at, superseded_by, trust, CAST(sources AS BLOB), CAST(words AS BLOB),
  CAST(content AS BLOB), CAST(context AS BLOB), CAST(foreign_line AS BLOB), valid_to, recorded_at,
  CAST(subject AS BLOB), CAST(attribute AS BLOB), CAST(evidence AS BLOB), made_by, change,
  CAST(session AS BLOB), pinned, joint, number
FROM fact
"""
NUMBER: Final = 20
"""Where a fact's number stands in a row of `SELECT_FACT`."""

_TRUSTS: Final = frozenset(get_args(Trust))
_TYPES: Final = frozenset(get_args(FactType))
_MAKERS: Final = frozenset(get_args(MadeBy))
_CHANGES: Final = frozenset(get_args(Change))


def fact_row(fact: Fact, number: int) -> Row:
    """A fact for `INSERT_FACT`."""
    return (
        number,
        fact.current,
        fact.id,
        fact.type,
        fact.at,
        fact.superseded_by,
        fact.trust,
        pack_list(fact.sources),
        pack_list(fact.words),
        pack_text(fact.content),
        pack_text(fact.context),
        pack_text(fact.foreign),
        fact.valid_to,
        fact.recorded_at,
        pack_text(fact.subject),
        pack_text(fact.attribute),
        pack_evidence(fact.evidence),
        fact.made_by,
        fact.change,
        pack_text(fact.session),
        fact.pinned,
        fact.joint,
    )


def named_in(row: Row, segments: Sequence[bytes]) -> bool:
    """Whether a row of `SELECT_FACT` that cannot be read names one of these segments."""
    held = b"".join(row[place] for place in (5, 14) if isinstance(row[place], bytes))
    return any(one in held for one in segments)


def stored_fact(row: Row) -> Fact:
    """A row of `SELECT_FACT`; ValueError or TypeError when it cannot be read."""
    return Fact(
        id=FactId(row[0]),
        type=one_of(row[1], _TYPES),
        at=float(row[2]),
        superseded_by=None if row[3] is None else FactId(row[3]),
        trust=one_of(row[4], _TRUSTS),
        sources=tuple(map(SegmentId, unpack_list(row[5]))),
        words=tuple(unpack_list(row[6])),
        content=text_of(row[7]),
        context=text_of(row[8]),
        foreign=unpack_text(row[9]),
        valid_to=_time(row[10]),
        recorded_at=_time(row[11]),
        subject=text_of(row[12]),
        attribute=text_of(row[13]),
        evidence=unpack_evidence(row[14]),
        made_by=one_of(row[15], _MAKERS),
        change=None if row[16] is None else one_of(row[16], _CHANGES),
        session=unpack_text(row[17]),
        pinned=bool(row[18]),
        joint=bool(row[19]),
    )


def numbered_fact(row: Row) -> tuple[int, Fact]:
    """As `stored_fact`, with its number in front."""
    return row[NUMBER], stored_fact(row)


def _time(value: Any) -> float | None:
    return None if value is None else float(value)
