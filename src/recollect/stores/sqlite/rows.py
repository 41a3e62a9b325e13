"""Segments as rows, and back.

Owns the columns of `segment`. A row that cannot be read is left out and never hides the others:
free text is read as bytes and decoded here, one row at a time. `check` tells of such rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar, cast, get_args

from recollect.stores.sqlite.database import Row
from recollect.stores.sqlite.packing import (
    pack_list,
    pack_text,
    text_of,
    unpack_list,
    unpack_text,
)
from recollect.values.message import EntryKey, MessageId, Role
from recollect.values.segment import Segment, SegmentId, Source, StoredSegment, Trust

T = TypeVar("T")

INSERT_SEGMENT: Final = """
INSERT INTO segment (
  sequence, id, session, key, message_id, role, tokens, said_at, source, trust, noise, tool,
  topics, entities, origin, text, foreign_line
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""

SELECT_SEGMENT: Final = """
SELECT g.sequence, g.id, CAST(s.name AS BLOB), g.key, g.message_id, g.role, g.tokens, g.said_at,
  g.source, g.trust, CAST(g.noise AS BLOB), CAST(g.tool AS BLOB), g.cold,
  CAST(g.topics AS BLOB), CAST(g.entities AS BLOB), CAST(g.origin AS BLOB),
  CAST(g.text AS BLOB), CAST(g.foreign_line AS BLOB)
FROM segment AS g JOIN session AS s ON s.number = g.session
"""

_ROLES: Final = frozenset(get_args(Role))
_SOURCES: Final = frozenset(get_args(Source))
_TRUSTS: Final = frozenset(get_args(Trust))


def readable(rows: Iterable[Row], read: Callable[[Row], T]) -> list[T]:
    """What `read` makes of the rows, without those it cannot read."""
    found = []
    for row in rows:
        try:
            found.append(read(row))
        except (ValueError, TypeError):
            continue
    return found


def segment_row(segment: Segment, sequence: int, session: int) -> Row:
    """A segment for `INSERT_SEGMENT`."""
    return (
        sequence,
        segment.id,
        session,
        segment.key,
        segment.message_id,
        segment.role,
        segment.tokens,
        segment.said_at,
        segment.source,
        segment.trust,
        pack_text(segment.noise),
        pack_text(segment.tool),
        pack_list(segment.topics),
        pack_list(segment.entities),
        pack_text(segment.origin),
        pack_text(segment.text),
        pack_text(segment.foreign),
    )


def stored_segment(row: Row) -> StoredSegment:
    """A row of `SELECT_SEGMENT`; ValueError or TypeError when it cannot be read."""
    segment = Segment(
        id=SegmentId(row[1]),
        session=text_of(row[2]),
        key=EntryKey(row[3]),
        message_id=MessageId(row[4]),
        role=one_of(row[5], _ROLES),
        tokens=int(row[6]),
        said_at=float(row[7]),
        source=one_of(row[8], _SOURCES),
        trust=one_of(row[9], _TRUSTS),
        noise=unpack_text(row[10]),
        tool=unpack_text(row[11]),
        topics=tuple(unpack_list(row[13])),
        entities=tuple(unpack_list(row[14])),
        origin=unpack_text(row[15]),
        text=text_of(row[16]),
        foreign=unpack_text(row[17]),
    )
    return StoredSegment(segment=segment, sequence=row[0], cold=bool(row[12]))


def one_of(value: Any, allowed: frozenset[str]) -> Any:
    """A word that must be one of a few; ValueError when it is another."""
    if value not in allowed:
        raise ValueError("not one of the words it may be")
    return cast("Any", value)
