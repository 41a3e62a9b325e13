"""Passages: their spans, their words in the index, and their moves between warm and cold.

Owns the tables `passage`, `words` and `cold_words`, the bags beside them, and their counters. A
passage's number is counted upwards and never used again; its low bits are its length in words,
so that scoring the hits of a word needs no look at any other table. Always holds: a passage
stands in `words` when its segment is warm and in `cold_words` when it is cold, never in both;
cold segments keep their text, spans and vectors; counters change in the same transaction.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

from recollect.adapters.stores.sqlite.database import Database, Row
from recollect.adapters.stores.sqlite.rows import bag_of, json_list
from recollect.adapters.stores.sqlite.vectors import renumber_vectors
from recollect.core.values.segment import NewPassage, SegmentId

LENGTH_BITS: Final = 12
LENGTH_MAX: Final = (1 << LENGTH_BITS) - 1
"""Longer passages have this in their number, and their length only in their row."""

_INSERT_PASSAGE: Final = """
INSERT INTO passage (id, segment, ordinal, start, stop, length, embedded)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_PUT_BAG: Final = "INSERT INTO {name}_bag (id, bag) VALUES (?, ?)"
_INDEX: Final = "INSERT INTO {name} (rowid, bag) VALUES (?, ?)"
_BAGS: Final = "SELECT id, bag FROM {name}_bag WHERE id IN (SELECT value FROM json_each(?))"
_DROP_BAG: Final = "DELETE FROM {name}_bag WHERE id IN (SELECT value FROM json_each(?))"
_UNINDEX: Final = "INSERT INTO {name} ({name}, rowid, bag) VALUES ('delete', ?, ?)"
_BAG_COUNT: Final = "SELECT count(*) FROM {name}_bag"
_REBUILD: Final = "INSERT INTO {name} ({name}) VALUES ('rebuild')"
_NEXT: Final = "SELECT next_passage FROM totals"
_COUNT_ADDED: Final = """
UPDATE totals SET next_passage = ?, documents = documents + ?, words = words + ?
"""
_OF_SEGMENTS: Final = """
SELECT p.id, p.length FROM passage AS p
WHERE p.segment IN (SELECT value FROM json_each(?))
"""
_DELETE: Final = "DELETE FROM passage WHERE id IN (SELECT value FROM json_each(?))"
_COUNT_MOVED: Final = """
UPDATE totals SET documents = documents + ?, words = words + ?,
  cold_documents = cold_documents + ?, cold_change = cold_change + 1
"""

# Removing a passage to the last byte takes about as long as indexing twenty (measured).
_REBUILD_FROM: Final = 500
_REBUILD_SHARE: Final = 20

IndexName: TypeAlias = Literal["words", "cold_words"]
INDEXES: Final[tuple[IndexName, ...]] = ("words", "cold_words")
NewRows: TypeAlias = Iterable[tuple[int, Sequence[NewPassage]]]
"""Segments by their sequence, with their passages."""


def add_passages(db: Database, segments: NewRows, number: int | None = None) -> list[Row]:
    """Keep new passages of warm segments, but for the index: `index_words` takes the answer.

    FTS5 writes out what it gathered whenever another statement needs a savepoint; so words
    come last in a transaction. `number` is that of the first passage, where it is known.
    """
    if number is None:
        number = db.value(_NEXT)
    rows: list[Row] = []
    bags: list[Row] = []
    words = 0
    for segment, passages in segments:
        for ordinal, passage in enumerate(passages):
            length = len(passage.words)
            id_ = number << LENGTH_BITS | min(length, LENGTH_MAX)
            embedded = int(passage.embedded)
            rows.append((id_, segment, ordinal, passage.start, passage.end, length, embedded))
            bags.append((id_, bag_of(passage.words)))
            number += 1
            words += length
    if rows:
        db.run_many(_INSERT_PASSAGE, rows)
        db.run_many(_PUT_BAG.format(name="words"), bags)
        db.run(_COUNT_ADDED, (number, len(rows), words))
    return bags


def index_words(db: Database, bags: list[Row]) -> None:
    """Put words that `add_passages` kept into the warm index."""
    if bags:
        db.run_many(_INDEX.format(name="words"), bags)


def passages_of(db: Database, sequences: Iterable[int]) -> dict[int, int]:
    """The passages of these segments, each with its length."""
    return dict(db.rows(_OF_SEGMENTS, (json_list(sequences),)))


def remove_passages(db: Database, *, warm: dict[int, int], cold: dict[int, int]) -> None:
    """Take passages out of the index and the archive; their vectors are not seen to here."""
    _take(db, "words", warm)
    _take(db, "cold_words", cold)
    db.run(_DELETE, (json_list([*warm, *cold]),))
    db.run(_COUNT_MOVED, (-len(warm), -sum(warm.values()), -len(cold)))


def cool_passages(db: Database, passages: dict[int, int]) -> None:
    """Move passages out of the warm index."""
    _put(db, "cold_words", _take(db, "words", passages))
    db.run(_COUNT_MOVED, (-len(passages), -sum(passages.values()), len(passages)))


def bags_of(db: Database, name: IndexName, passages: Iterable[int]) -> list[Row]:
    """The words of these passages, as the index has them."""
    return db.rows(_BAGS.format(name=name), (json_list(passages),))


def rebuild(db: Database, name: IndexName) -> None:
    """Write an index anew from the words of its passages."""
    db.run(_REBUILD.format(name=name))


def _put(db: Database, name: IndexName, bags: list[Row]) -> None:
    db.run_many(_PUT_BAG.format(name=name), bags)
    db.run_many(_INDEX.format(name=name), bags)


def _take(db: Database, name: IndexName, passages: dict[int, int]) -> list[Row]:
    if not passages:
        return []
    numbers = json_list(passages)
    bags = db.rows(_BAGS.format(name=name), (numbers,))
    many = len(bags) >= _REBUILD_FROM
    if many and len(bags) * _REBUILD_SHARE >= db.value(_BAG_COUNT.format(name=name)):
        db.run(_DROP_BAG.format(name=name), (numbers,))
        rebuild(db, name)
        return bags
    db.run_many(_UNINDEX.format(name=name), bags)
    db.run(_DROP_BAG.format(name=name), (numbers,))
    return bags


_WARM_COUNT: Final = "SELECT segments - cold - noise FROM totals"
_OLD: Final = """
SELECT sequence FROM segment INDEXED BY segment_warm
WHERE NOT cold AND noise IS NULL AND said_at < ?
ORDER BY said_at, sequence LIMIT ?
"""
_SET_COLD: Final = "UPDATE segment SET cold = 1 WHERE sequence IN (SELECT value FROM json_each(?))"
_COUNT_COLD: Final = "UPDATE totals SET cold = cold + ?"
_FIND: Final = """
SELECT id, sequence, cold FROM segment WHERE id IN (SELECT value FROM json_each(?))
"""
_SPANS: Final = """
SELECT id, segment, start, stop, length FROM passage
WHERE segment IN (SELECT value FROM json_each(?))
"""

# Segments moved in one transaction: some tenths of a second.
STEP: Final = 100


def evict(db: Database, *, max_segments: int | None, said_before: float | None) -> int:
    """Move some of the oldest warm segments to cold; 0 when there are none to move.

    A step of a few, in a transaction of its own: taking words out is slow, and other processes
    write in between.
    """
    over = 0
    if max_segments is not None:
        over = max(0, db.value(_WARM_COUNT) - max(0, max_segments))
    going = [sequence for (sequence,) in db.rows(_OLD, (math.inf, min(over, STEP)))]
    if said_before is not None and len(going) < STEP:
        old = db.rows(_OLD, (said_before, STEP))
        going = sorted({*going, *(sequence for (sequence,) in old)})
    if going:
        cool_passages(db, passages_of(db, going))
        db.run(_SET_COLD, (json_list(going),))
        db.run(_COUNT_COLD, (len(going),))
    return len(going)


def replace_passages(
    db: Database,
    passages: Mapping[SegmentId, tuple[NewPassage, ...]],
    *,
    at: float,  # noqa: ARG001 - the file keeps no time of indexing
) -> None:
    """Index segments anew; a passage whose span is as before keeps its vectors."""
    known = {
        sequence: (SegmentId(id_), bool(cold))
        for id_, sequence, cold in db.rows(_FIND, (json_list(passages),))
    }
    before = _spans(db, list(known))
    cold = {sequence for sequence, (_, is_cold) in known.items() if is_cold}
    removed: dict[bool, dict[int, int]] = {False: {}, True: {}}
    for (sequence, _, _), (passage, length) in before.items():
        removed[sequence in cold][passage] = length
    remove_passages(db, warm=removed[False], cold=removed[True])
    new = [(sequence, passages[id_]) for sequence, (id_, _) in known.items()]
    index_words(db, add_passages(db, new))
    if cold:
        cool_passages(db, passages_of(db, cold))
    after = _spans(db, list(known))
    renumber_vectors(
        db, {old: after[span][0] if span in after else None for span, (old, _) in before.items()}
    )


def _spans(db: Database, sequences: list[int]) -> dict[tuple[int, int, int], tuple[int, int]]:
    rows = db.rows(_SPANS, (json_list(sequences),))
    return {
        (segment, start, stop): (passage, length) for passage, segment, start, stop, length in rows
    }
