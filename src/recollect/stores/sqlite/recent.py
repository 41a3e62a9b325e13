"""What the last searches read of the index, for what is asked with the same words right after.

A recall asks for candidates, and then for what stands around the best of them, with the same
query; between the two the turn's own messages may be written. What every turn asks for, the
passages of memory files, is kept from turn to turn. Used by one thread only. Always holds: what
is handed out is what the current snapshot says. That can be told because a passage's words and
its session never change, its number is never used again, and each move and removal is counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from recollect.stores.sqlite.database import Database
from recollect.stores.sqlite.lexical import Postings, postings_of
from recollect.stores.sqlite.matrix import number_list
from recollect.stores.sqlite.packing import json_list
from recollect.stores.sqlite.passages import LENGTH_BITS
from recollect.stores.sqlite.vectors import Numbers
from recollect.values.lookup import FILE_SESSIONS
from recollect.values.segment import SegmentId

_STATE: Final = "SELECT next_sequence, next_passage, cold_change FROM totals"
_LEFT_OUT: Final = """
SELECT group_concat(DISTINCT g.sequence), group_concat(p.id)
FROM json_each(?) AS o CROSS JOIN segment AS g ON g.id = o.value
LEFT JOIN passage AS p ON p.segment = g.sequence
"""
# The sessions of memory files, as `CandidateQuery.with_files` says. A name that UTF-8 cannot hold
# stands as bytes, which SQLite puts behind every text: so there are two ranges.
_AFTER_FILES: Final = FILE_SESSIONS[:-1] + chr(ord(FILE_SESSIONS[-1]) + 1)
_FILE_NAMES: Final = (
    *(FILE_SESSIONS, _AFTER_FILES),
    *(FILE_SESSIONS.encode(), _AFTER_FILES.encode()),
)
_OF_FILE: Final = "(s.name >= ?1 AND s.name < ?2 OR s.name >= ?3 AND s.name < ?4)"
_IN_FILES: Final = f"""
SELECT group_concat(p.id) FROM session AS s CROSS JOIN segment AS g ON g.session = s.number
CROSS JOIN passage AS p ON p.segment = g.sequence
WHERE {_OF_FILE} AND (?5 IS NULL OR g.said_at > ?5) AND (?6 IS NULL OR g.said_at < ?6)
"""  # noqa: S608
_NEW_IN_FILES: Final = f"""
SELECT group_concat(p.id) FROM passage AS p CROSS JOIN segment AS g ON g.sequence = p.segment
CROSS JOIN session AS s ON s.number = g.session WHERE p.id >= ?5 AND {_OF_FILE}
"""  # noqa: S608
# Some turns of one space at once; of a large space only the last: 16 bytes an entry.
_KEPT: Final = 4
_KEPT_ENTRIES: Final = 1_000_000

Key = tuple[tuple[str, ...], bool]
"""Words, and whether cold passages stand among the postings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """The segments a query leaves out that are stored, and their passages; both ascending."""

    sequences: Numbers
    passages: Numbers


@dataclass(frozen=True, slots=True)
class _State:
    """What the counters of a snapshot say."""

    next_sequence: int
    next_passage: int
    moves: int

    def same_index(self, other: _State) -> bool:
        return (self.next_passage, self.moves) == (other.next_passage, other.moves)

    def knows(self, passage: int, now: _State) -> bool:
        """Whether a passage of the snapshot `now` was there, and where it is now."""
        return self.moves == now.moves and passage >> LENGTH_BITS < self.next_passage


_NO_NUMBERS: Final = np.empty(0, dtype=np.int64)
_NOTHING: Final = LeftOut(sequences=_NO_NUMBERS, passages=_NO_NUMBERS)


class Recent:
    """What was read for the last few queries."""

    def __init__(self) -> None:
        self._now = _State(0, 0, 0)
        self._postings: dict[Key, tuple[_State, list[Postings]]] = {}
        self._left_out: dict[frozenset[SegmentId], tuple[_State, LeftOut]] = {}
        self._in_files: tuple[_State, Numbers] | None = None

    def look(self, db: Database) -> None:
        """To be called first in every snapshot."""
        self._now = _State(*db.row(_STATE))

    def postings(self, db: Database, words: tuple[str, ...], *, cold: bool) -> list[Postings]:
        """The postings of every word, in the order of the words."""
        key = words, cold
        held = self._postings.pop(key, None)
        if held is None or not held[0].same_index(self._now):
            held = self._now, postings_of(db, words, cold=cold)
        self._postings[key] = held
        while len(self._postings) > 1 and self._too_much():
            del self._postings[next(iter(self._postings))]
        return held[1]

    def _too_much(self) -> bool:
        held = (postings for _, postings in self._postings.values())
        entries = sum(len(one.passages) for postings in held for one in postings)
        return len(self._postings) > _KEPT or entries > _KEPT_ENTRIES

    def counted(self, db: Database, words: tuple[str, ...], *, newest: int) -> list[Postings]:
        """Postings to count words by, in warm passages up to the number `newest`."""
        for cold in (False, True):
            held = self._postings.get((words, cold))
            if held is not None and held[0].knows(newest, self._now):
                return held[1]
        return self.postings(db, words, cold=False)

    def left_out(self, db: Database, ids: frozenset[SegmentId]) -> LeftOut:
        """What stands for these segments in the tables."""
        if not ids:
            return _NOTHING
        held = self._left_out.pop(ids, None)
        if held is None or held[0] != self._now:
            sequences, passages = db.row(_LEFT_OUT, (json_list(ids),))
            found = LeftOut(
                sequences=np.sort(number_list(sequences)), passages=np.sort(number_list(passages))
            )
            held = self._now, found
        self._left_out[ids] = held
        if len(self._left_out) > _KEPT:
            del self._left_out[next(iter(self._left_out))]
        return held[1]

    def in_files(
        self, db: Database, *, said_after: float | None, said_before: float | None
    ) -> Numbers:
        """The passages of memory files, ascending.

        There may be thousands, and every turn asks: so only what is new since then is read, as
        long as none has gone. Those of some time only are asked for seldom, and always read.
        """
        if (said_after, said_before) != (None, None):
            return _read(db, _IN_FILES, *_FILE_NAMES, said_after, said_before)
        held, now = self._in_files, self._now
        if held is None or held[0].moves != now.moves:
            found = _read(db, _IN_FILES, *_FILE_NAMES, None, None)
        elif held[0].next_passage == now.next_passage:
            return held[1]
        else:
            first = held[0].next_passage << LENGTH_BITS
            found = np.concatenate([held[1], _read(db, _NEW_IN_FILES, *_FILE_NAMES, first)])
        self._in_files = now, found
        return found


def _read(db: Database, query: str, *given: str | bytes | float | None) -> Numbers:
    """Numbers that a query joins, ascending."""
    return np.sort(number_list(db.value(query, given)))
