"""Values as columns and rows hold them, and back: ids, texts, words, segments, facts.

Owns the columns of `segment` and `fact`. Ids of 32 hexadecimal digits are packed to 16 bytes each,
others kept as JSON; text that UTF-8 cannot hold (a lone surrogate) is kept as bytes. Free text is
read as bytes and decoded here, one row at a time. Always holds: what was packed comes back equal;
a row that cannot be read is left out, never hides the others, and `check` tells of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar, cast, get_args

from recollect.stores.invariants import pack_evidence, unpack_evidence
from recollect.stores.sqlite.database import Row
from recollect.stores.sqlite.schema import ESCAPE_SIGN
from recollect.values.fact import Change, Fact, FactId, FactType, MadeBy
from recollect.values.message import EntryKey, MessageId, Role
from recollect.values.segment import Segment, SegmentId, Source, StoredSegment, Trust

_ID_CHARS = 32
_ID_BYTES = 16


def pack_ids(ids: Sequence[str]) -> bytes | str | None:
    """Ids as one value; None for none."""
    if not ids:
        return None
    joined = "".join(ids)
    if all(len(one) == _ID_CHARS for one in ids):
        try:
            packed = bytes.fromhex(joined)
        except ValueError:
            return json.dumps(list(ids))
        if packed.hex() == joined:  # so no capital letters, which would not come back
            return packed
    return json.dumps(list(ids))


def unpack_ids(packed: bytes | str | None) -> list[str]:
    """What `pack_ids` made."""
    if packed is None:
        return []
    if isinstance(packed, bytes):
        if len(packed) % _ID_BYTES:
            raise ValueError("ids are torn")
        digits = packed.hex()
        return [digits[at : at + _ID_CHARS] for at in range(0, len(digits), _ID_CHARS)]
    return unpack_list(packed)


def pack_list(items: Sequence[str]) -> str | None:
    """A list of texts as JSON; None for none."""
    return json.dumps(list(items)) if items else None


def unpack_list(packed: str | bytes | None) -> list[str]:
    """What `pack_list` made."""
    if packed is None:
        return []
    items = json.loads(packed)
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise ValueError("not a list of texts")
    return items


def pack_text(text: str | None) -> str | bytes | None:
    """A text as a column holds it."""
    if text is None or text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def unpack_text(packed: str | bytes | None) -> str | None:
    """What `pack_text` made; columns of free text are read as bytes."""
    if packed is None or isinstance(packed, str):
        return packed
    return packed.decode("utf-8", "surrogatepass")


def text_of(packed: Any) -> str:
    """A text that must be there."""
    text = unpack_text(packed)
    if text is None:
        raise ValueError("a text is missing")
    return text


def json_list(items: Iterable[Any]) -> str:
    """Values for `IN (SELECT value FROM json_each(?))`."""
    return json.dumps(list(items))


_SPECIAL = re.compile("[\\x00-\\x20\\x7fA-Z'\"\ud800-\udfff]")
_SPECIAL_IN_BAG = re.compile("[\\x00-\\x1f\\x7fA-Z'\"\ud800-\udfff]")


def bag_of(words: Sequence[str]) -> str:
    """The words of a passage as one text for the index."""
    bag = " ".join(words)
    if bag.count(" ") < len(words) and _SPECIAL_IN_BAG.search(bag) is None:
        return bag
    return " ".join(map(form_of, words))


def form_of(word: str) -> str:
    """A word as the index knows it."""
    return _SPECIAL.sub(_escaped, word)


def _escaped(sign: re.Match[str]) -> str:
    return f"{ESCAPE_SIGN}{ord(sign[0]):x}{ESCAPE_SIGN}"


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
