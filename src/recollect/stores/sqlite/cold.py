"""Moves segments between the warm index and the cold one, and indexes them anew.

Cold segments keep their text, spans and vectors; only their words stand in another table. Always
holds: the counters of the warm index change in the same transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from recollect.stores.sqlite.database import Database
from recollect.stores.sqlite.packing import json_list
from recollect.stores.sqlite.passages import (
    add_passages,
    cool_passages,
    index_words,
    passages_of,
    remove_passages,
    warm_passages,
)
from recollect.stores.sqlite.vectors import look_again, renumber_vectors
from recollect.values.segment import NewPassage, SegmentId

_WARM_COUNT: Final = "SELECT segments - cold - noise FROM totals"
_OLD: Final = """
SELECT sequence FROM segment INDEXED BY segment_warm
WHERE NOT cold AND noise IS NULL AND said_at < ?
ORDER BY said_at, sequence LIMIT ?
"""
_OLDEST: Final = """
SELECT sequence FROM segment INDEXED BY segment_warm WHERE NOT cold AND noise IS NULL
ORDER BY said_at, sequence LIMIT ?
"""
_COLD_ONES: Final = """
SELECT sequence FROM segment WHERE cold AND id IN (SELECT value FROM json_each(?))
"""
_SET_COLD: Final = "UPDATE segment SET cold = ? WHERE sequence IN (SELECT value FROM json_each(?))"
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
    going = [one for (one,) in db.rows(_OLDEST, (min(over, STEP),))]
    if said_before is not None and len(going) < STEP:
        old = db.rows(_OLD, (said_before, STEP))
        going = sorted({*going, *(one for (one,) in old)})
    if going:
        cool_passages(db, passages_of(db, going))
        _mark(db, going, cold=True)
    return len(going)


def warm(db: Database, ids: Sequence[SegmentId]) -> int:
    """Take cold segments back into the index."""
    coming = [one for (one,) in db.rows(_COLD_ONES, (json_list(ids),))]
    if coming:
        passages = passages_of(db, coming)
        warm_passages(db, passages)
        look_again(db, passages)
    _mark(db, coming, cold=False)
    return len(coming)


def _mark(db: Database, sequences: list[int], *, cold: bool) -> None:
    if sequences:
        db.run(_SET_COLD, (int(cold), json_list(sequences)))
        db.run(_COUNT_COLD, (len(sequences) if cold else -len(sequences),))


def replace_passages(db: Database, passages: Mapping[SegmentId, tuple[NewPassage, ...]]) -> None:
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
    """The passages of segments by segment and span: number and length."""
    rows = db.rows(_SPANS, (json_list(sequences),))
    return {
        (segment, start, stop): (passage, length) for passage, segment, start, stop, length in rows
    }
