"""Facts as rows, and back.

Owns the columns of `facts`. As segments do, a row that cannot be read is left out and never hides
the others; `check` tells of it. Always holds: what was written comes back equal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from recollect.stores.fact_support import pack_evidence, unpack_evidence
from recollect.stores.postgres.wire import escaped, maybe_escaped, maybe_plain, plain, texts
from recollect.values.fact import Fact, FactId
from recollect.values.segment import SegmentId

COLUMNS: Final = (
    "id, type, content, context, at, superseded_by, sources, trust, words, foreign_line, "
    "valid_to, recorded_at, subject, attribute, evidence, made_by, change, session, pinned, "
    "joint, fact_no"
)
"""As `stored_fact` reads them; a fact's number stands last."""
_SUPERSEDED_BY: Final = COLUMNS.split(", ").index("superseded_by")
_SOURCES: Final = COLUMNS.split(", ").index("sources")
_EVIDENCE: Final = COLUMNS.split(", ").index("evidence")
_VALID_TO: Final = COLUMNS.split(", ").index("valid_to")
PUT: Final = """
    INSERT INTO recollect.facts (space_id, id, type, content, context, at, superseded_by, sources,
        trust, words, foreign_line, valid_to, recorded_at, subject, attribute, evidence, made_by,
        change, session, pinned, joint, fact_no)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s::text[], %s, %s::text[], %s, %s, %s, %s, %s, %s, %s,
        %s, %s, %s, %s, %s)
    ON CONFLICT (space_id, id) DO UPDATE SET type = excluded.type, content = excluded.content,
        context = excluded.context, at = excluded.at, superseded_by = excluded.superseded_by,
        sources = excluded.sources, trust = excluded.trust, words = excluded.words,
        foreign_line = excluded.foreign_line, valid_to = excluded.valid_to,
        recorded_at = excluded.recorded_at, subject = excluded.subject,
        attribute = excluded.attribute, evidence = excluded.evidence, made_by = excluded.made_by,
        change = excluded.change, session = excluded.session, pinned = excluded.pinned,
        joint = excluded.joint, fact_no = excluded.fact_no
"""


def fact_row(space_id: UUID, fact: Fact, number: int) -> tuple[Any, ...]:
    """A fact for `PUT`."""
    spans = [replace(one, segment=SegmentId(escaped(one.segment))) for one in fact.evidence]
    return (
        space_id,
        escaped(fact.id),
        fact.type,
        escaped(fact.content),
        escaped(fact.context),
        fact.at,
        maybe_escaped(fact.superseded_by),
        texts(fact.sources),
        fact.trust,
        texts(fact.words),
        maybe_escaped(fact.foreign),
        fact.valid_to,
        fact.recorded_at,
        escaped(fact.subject),
        escaped(fact.attribute),
        pack_evidence(spans),
        fact.made_by,
        fact.change,
        maybe_escaped(fact.session),
        fact.pinned,
        fact.joint,
        number,
    )


def readable_facts(rows: Iterable[tuple[Any, ...]]) -> list[tuple[int | None, Fact]]:
    """The number and the fact of each row of `COLUMNS` that can be read."""
    found = []
    for row in rows:
        try:
            found.append((row[-1], stored_fact(row)))
        except (ValueError, TypeError):
            continue
    return found


def row_id(row: tuple[Any, ...]) -> FactId:
    """Whose row of `COLUMNS` it is, readable or not."""
    return FactId(plain(row[0]))


def row_names(row: tuple[Any, ...], segments: Iterable[str]) -> bool:
    """Whether a row that cannot be read names one of these segments."""
    sources, evidence = row[_SOURCES] or (), row[_EVIDENCE] or ""
    return any(escaped(one) in sources or escaped(one) in evidence for one in segments)


def row_is_current(row: tuple[Any, ...]) -> bool:
    """Whether nothing has replaced or ended the fact of a row, readable or not."""
    return row[_SUPERSEDED_BY] is None and row[_VALID_TO] is None


def stored_fact(row: tuple[Any, ...]) -> Fact:
    """A row of `COLUMNS`; ValueError or TypeError when it cannot be read."""
    spans = unpack_evidence(row[14])
    return Fact(
        id=FactId(plain(row[0])),
        type=row[1],
        content=plain(row[2]),
        context=plain(row[3]),
        at=row[4],
        superseded_by=None if row[5] is None else FactId(plain(row[5])),
        sources=tuple(SegmentId(plain(one)) for one in row[6]),
        trust=row[7],
        words=tuple(plain(one) for one in row[8]),
        foreign=maybe_plain(row[9]),
        valid_to=row[10],
        recorded_at=row[11],
        subject=plain(row[12]),
        attribute=plain(row[13]),
        evidence=tuple(replace(one, segment=SegmentId(plain(one.segment))) for one in spans),
        made_by=row[15],
        change=row[16],
        session=maybe_plain(row[17]),
        pinned=row[18],
        joint=row[19],
    )
