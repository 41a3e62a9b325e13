"""How a query narrows the space: one session, with memory files or without, times, warm or cold.

Owns the statement that says which passages are let through, for words and for vectors alike, and
the memo of which passages are of memory files: every turn asks, there may be thousands, and reading
them took longer than all else of a search. The memo is never trusted: what the database says in the
same round trip decides whether it holds. That can be told because a passage gets its number once,
upwards, and whatever goes, moves to cold or comes back begins a new `index_epoch`. Always holds: a
filter that is not given lets everything through; whoever asks looks at the session of what was
found, for a server may have gone back in time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import numpy as np

from recollect.adapters.stores.postgres.driver import big_endian, look_up
from recollect.adapters.stores.postgres.pool import Transaction
from recollect.adapters.stores.postgres.postings import NONE, Ints
from recollect.core.values.recall import FILE_SESSIONS, CandidateQuery

"""How the names of their sessions begin. That is a range of the index, because names are compared
byte by byte; an escaped name begins as the name itself does."""
_KEPT_NUMBERS: Final = 2_000_000

_FILES_STATE: Final = """
    SELECT next_passage, index_epoch FROM recollect.counters WHERE space_id = %s
"""
_EVERY: Final = """
    SELECT string_agg(int8send(p.passage_no), '') FILTER (WHERE NOT p.cold),
           string_agg(int8send(p.passage_no), '') FILTER (WHERE p.cold)
    FROM recollect.segments AS s
    JOIN recollect.passages AS p ON p.space_id = %(space)s AND p.sequence = s.sequence
    WHERE s.space_id = %(space)s AND s.session >= 'file:' AND s.session < 'file;'
"""
_NEW: Final = f"""
    SELECT string_agg(int8send(p.passage_no), '')
    FROM (
        SELECT passage_no, sequence FROM recollect.passages
        WHERE space_id = %(space)s AND passage_no >= %(first)s ORDER BY passage_no
    ) AS p
    CROSS JOIN LATERAL ({look_up("segments", "session", "sequence", "p.sequence")}) AS s
    WHERE s.session >= 'file:' AND s.session < 'file;'
"""  # noqa: S608


@dataclass(frozen=True, slots=True, kw_only=True)
class InFiles:
    """The passages of memory files, and when that was so."""

    warm: Ints
    cold: Ints
    next_passage: int
    epoch: int

    @property
    def size(self) -> int:
        """How much room it takes."""
        return len(self.warm) + len(self.cold) + 1


class FileMemo:
    """What was last read of some spaces."""

    __slots__ = ("_held", "_numbers")

    def __init__(self) -> None:
        self._held: dict[UUID, InFiles] = {}
        self._numbers = 0

    async def fresh(self, work: Transaction) -> InFiles:
        """The passages of memory files as this transaction sees them."""
        held = self._held.get(work.space_id)
        asking = await work.send(_FILES_STATE, (work.space_id,))
        newer = None
        if held is not None:
            given = {"space": work.space_id, "first": held.next_passage}
            newer = await work.send(_NEW, given)
        next_passage, epoch = await asking.fetchone() or (0, 0)
        if held is None or newer is None or held.epoch != epoch:
            row = await work.row(_EVERY, {"space": work.space_id}) or (None, None)
            warm, cold = big_endian(row[0], "i8"), big_endian(row[1], "i8")
        elif held.next_passage >= next_passage:
            return held
        else:  # what is new is warm: nothing has moved
            row = await newer.fetchone() or (None,)
            warm, cold = np.concatenate([held.warm, big_endian(row[0], "i8")]), held.cold
        found = InFiles(warm=warm, cold=cold, next_passage=next_passage, epoch=epoch)
        self._keep(work.space_id, found)
        return found

    def _keep(self, space_id: UUID, found: InFiles) -> None:
        """Remember it; begins anew when all together grow too large."""
        before = self._held.pop(space_id, None)
        self._numbers += found.size - (0 if before is None else before.size)
        if self._numbers > _KEPT_NUMBERS:
            self._held.clear()
            self._numbers = found.size
        self._held[space_id] = found


def from_memo(query: CandidateQuery) -> bool:
    """Whether files are asked for, and all of them: those of some time only are not remembered."""
    return (
        query.with_files
        and query.session is not None
        and not query.session.startswith(FILE_SESSIONS)
        and query.said_after is None
        and query.said_before is None
    )


def with_files(allowed: Ints, in_files: InFiles | None, *, cold: bool) -> Ints:
    """What a session and its files let through; nobody is both, see `from_memo`."""
    if in_files is None:
        return allowed
    return np.concatenate([allowed, in_files.warm, in_files.cold if cold else NONE])


FILTERS: Final = """
        SELECT {columns}
        FROM recollect.segments AS s
        JOIN recollect.passages AS p ON p.space_id = %(space)s AND p.sequence = s.sequence
        WHERE s.space_id = %(space)s
            AND (%(session)s::text IS NULL OR s.session = %(session)s
                OR %(files)s AND s.session >= 'file:' AND s.session < 'file;')
            AND (%(after)s::float8 IS NULL OR p.said_at > %(after)s)
            AND (%(before)s::float8 IS NULL OR p.said_at < %(before)s)
            AND (%(cold)s OR NOT p.cold)
"""
"""What is let through; a part of a statement."""
ALLOWED: Final = FILTERS.format(
    columns="string_agg(int8send(p.passage_no), ''), count(*) FILTER (WHERE p.cold)"
)
"""The numbers that are let through, and how many of them are cold."""


def filters(
    work: Transaction, query: CandidateQuery, in_files: InFiles | None = None
) -> dict[str, Any]:
    """The parameters of `FILTERS`; where the files' passages are known, they are not read."""
    return {
        "space": work.space_id,
        "session": query.session,
        "files": query.with_files and in_files is None,
        "after": query.said_after,
        "before": query.said_before,
        "cold": query.cold,
    }


def filtered(query: CandidateQuery) -> bool:
    """Whether the query asks for a part of the space only."""
    return (query.session, query.said_after, query.said_before) != (None, None, None)
