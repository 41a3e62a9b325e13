"""Passages: their spans, and their words in the index.

A passage's number is never used again. Its low bits are its length in words, so that scoring the
hits of a word needs no other table. Counters change in the same transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

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
_PUT_BAG: Final = "INSERT INTO words_bag (id, bag) VALUES (?, ?)"
_INDEX: Final = "INSERT INTO words (rowid, bag) VALUES (?, ?)"
_BAGS: Final = "SELECT id, bag FROM words_bag WHERE id IN (SELECT value FROM json_each(?))"
_DROP_BAG: Final = "DELETE FROM words_bag WHERE id IN (SELECT value FROM json_each(?))"
_UNINDEX: Final = "INSERT INTO words (words, rowid, bag) VALUES ('delete', ?, ?)"
_NEXT: Final = "SELECT next_passage FROM totals"
_COUNT_ADDED: Final = """
UPDATE totals SET next_passage = ?, documents = documents + ?, words = words + ?
"""
_OF_SEGMENTS: Final = """
SELECT p.id, p.length FROM passage AS p
WHERE p.segment IN (SELECT value FROM json_each(?))
"""
_DELETE: Final = "DELETE FROM passage WHERE id IN (SELECT value FROM json_each(?))"
_COUNT_REMOVED: Final = """
UPDATE totals SET documents = documents - ?, words = words - ?, removals = removals + 1
"""

# Removing a passage to the last byte takes about as long as indexing twenty (measured).
_REBUILD_FROM: Final = 500
_REBUILD_SHARE: Final = 20

NewRows: TypeAlias = Iterable[tuple[int, Sequence[NewPassage]]]
"""Segments by their sequence, with their passages."""


def add_passages(db: Database, segments: NewRows, number: int | None = None) -> list[Row]:
    """Store new passages, but not in the index: pass the result to `index_words`.

    FTS5 writes out what it gathered whenever another statement needs a savepoint; so words
    come last in a transaction. `number` is that of the first passage, if it is known.
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
        db.run_many(_PUT_BAG, bags)
        db.run(_COUNT_ADDED, (number, len(rows), words))
    return bags


def index_words(db: Database, bags: list[Row]) -> None:
    if bags:
        db.run_many(_INDEX, bags)


def passages_of(db: Database, sequences: Iterable[int]) -> dict[int, int]:
    return dict(db.rows(_OF_SEGMENTS, (json_list(sequences),)))


def remove_passages(db: Database, passages: dict[int, int]) -> None:
    """Remove passages and their words; the caller removes their vectors."""
    if passages:
        numbers = json_list(passages)
        bags = bags_of(db, passages)
        many = len(bags) >= _REBUILD_FROM
        if many and len(bags) * _REBUILD_SHARE >= db.value("SELECT count(*) FROM words_bag"):
            db.run(_DROP_BAG, (numbers,))
            rebuild(db)
        else:
            db.run_many(_UNINDEX, bags)
            db.run(_DROP_BAG, (numbers,))
        db.run(_DELETE, (numbers,))
        db.run(_COUNT_REMOVED, (len(passages), sum(passages.values())))


def bags_of(db: Database, passages: Iterable[int]) -> list[Row]:
    return db.rows(_BAGS, (json_list(passages),))


def rebuild(db: Database) -> None:
    db.run("INSERT INTO words (words) VALUES ('rebuild')")


_FIND: Final = "SELECT id, sequence FROM segment WHERE id IN (SELECT value FROM json_each(?))"
_SPANS: Final = """
SELECT id, segment, start, stop, length FROM passage
WHERE segment IN (SELECT value FROM json_each(?))
"""


def replace_passages(
    db: Database,
    passages: Mapping[SegmentId, tuple[NewPassage, ...]],
    *,
    at: float,  # noqa: ARG001 - the file keeps no time of indexing
) -> None:
    known = db.rows(_FIND, (json_list(passages),))
    sequences = [sequence for _, sequence in known]
    before = _spans(db, sequences)
    remove_passages(db, dict(before.values()))
    new = [(sequence, passages[SegmentId(id_)]) for id_, sequence in known]
    index_words(db, add_passages(db, new))
    after = _spans(db, sequences)
    renumber_vectors(
        db, {old: after[span][0] if span in after else None for span, (old, _) in before.items()}
    )


def _spans(db: Database, sequences: list[int]) -> dict[tuple[int, int, int], tuple[int, int]]:
    rows = db.rows(_SPANS, (json_list(sequences),))
    return {
        (segment, start, stop): (passage, length) for passage, segment, start, stop, length in rows
    }
