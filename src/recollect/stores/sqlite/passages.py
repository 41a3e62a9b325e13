"""Passages: their spans, and their words in the index.

Owns the tables `passage`, `words` and `cold_words`, and the counters over them. A passage's
number is counted upwards and never used again; its low bits are its length in words, so that
scoring the hits of a word needs no look at any other table. Always holds: a passage stands in
`words` when its segment is warm and in `cold_words` when it is cold, never in both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from recollect.stores.sqlite.database import Database
from recollect.stores.sqlite.packing import json_list
from recollect.stores.sqlite.words import bag_of
from recollect.values.segment import NewPassage

LENGTH_BITS: Final = 12
LENGTH_MAX: Final = (1 << LENGTH_BITS) - 1
"""Longer passages have this in their number, and their length only in their row."""

_INSERT_PASSAGE: Final = """
INSERT INTO passage (id, segment, ordinal, start, stop, length, embedded)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_INSERT_WORDS: Final = "INSERT INTO words (rowid, bag) VALUES (?, ?)"
_NEXT: Final = "SELECT next_passage FROM totals"
_COUNT_ADDED: Final = """
UPDATE totals SET next_passage = ?, documents = documents + ?, words = words + ?
"""
_OF_SEGMENTS: Final = """
SELECT p.id, p.length FROM passage AS p
WHERE p.segment IN (SELECT value FROM json_each(?))
"""
_TO_COLD: Final = """
INSERT INTO cold_words (rowid, bag)
SELECT rowid, bag FROM words WHERE rowid IN (SELECT value FROM json_each(?))
"""
_TO_WARM: Final = """
INSERT INTO words (rowid, bag)
SELECT rowid, bag FROM cold_words WHERE rowid IN (SELECT value FROM json_each(?))
"""
_DELETE_WARM: Final = "DELETE FROM words WHERE rowid IN (SELECT value FROM json_each(?))"
_DELETE_COLD: Final = "DELETE FROM cold_words WHERE rowid IN (SELECT value FROM json_each(?))"
_DELETE: Final = "DELETE FROM passage WHERE id IN (SELECT value FROM json_each(?))"
_COUNT_MOVED: Final = """
UPDATE totals SET documents = documents + ?, words = words + ?,
  cold_documents = cold_documents + ?, cold_change = cold_change + 1
"""

NewRows = Iterable[tuple[int, Sequence[NewPassage]]]
"""Segments by their sequence, with their passages."""


def add_passages(db: Database, segments: NewRows) -> int:
    """Index new passages of warm segments; returns how many."""
    number: int = db.value(_NEXT)
    rows, bags, words = [], [], 0
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
        db.run_many(_INSERT_WORDS, bags)
        db.run(_COUNT_ADDED, (number, len(rows), words))
    return len(rows)


def passages_of(db: Database, sequences: Iterable[int]) -> dict[int, int]:
    """The passages of these segments, each with its length."""
    return dict(db.rows(_OF_SEGMENTS, (json_list(sequences),)))


def remove_passages(db: Database, *, warm: dict[int, int], cold: dict[int, int]) -> None:
    """Take passages out of the index and the archive; their vectors are not seen to here."""
    if warm:
        db.run(_DELETE_WARM, (json_list(warm),))
    if cold:
        db.run(_DELETE_COLD, (json_list(cold),))
    db.run(_DELETE, (json_list([*warm, *cold]),))
    db.run(_COUNT_MOVED, (-len(warm), -sum(warm.values()), -len(cold)))


def cool_passages(db: Database, passages: dict[int, int]) -> None:
    """Move passages out of the warm index."""
    numbers = json_list(passages)
    db.run(_TO_COLD, (numbers,))
    db.run(_DELETE_WARM, (numbers,))
    db.run(_COUNT_MOVED, (-len(passages), -sum(passages.values()), len(passages)))


def warm_passages(db: Database, passages: dict[int, int]) -> None:
    """Move passages back into the warm index."""
    numbers = json_list(passages)
    db.run(_TO_WARM, (numbers,))
    db.run(_DELETE_COLD, (numbers,))
    db.run(_COUNT_MOVED, (len(passages), sum(passages.values()), -len(passages)))
