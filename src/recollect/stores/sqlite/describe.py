"""Describes passages for a query: what `search` needs to score them, by whatever way they came.

Owns the columns of a description. Always holds: of the same store, query and passage the same is
said, whether it was found by words, by vector or as a neighbour. A row that cannot be read is
left out and hides no other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import fields
from itertools import repeat
from typing import Any, Final

import numpy as np

from recollect.stores.sqlite.database import Row
from recollect.stores.sqlite.lexical import Postings, counts_in
from recollect.stores.sqlite.nearest import Asked
from recollect.stores.sqlite.packing import text_of, unpack_text
from recollect.stores.sqlite.rows import readable
from recollect.stores.sqlite.vectors import Numbers
from recollect.values.lookup import Candidate

COLUMNS: Final = """
p.id, g.id, p.ordinal, g.key, CAST(s.name AS BLOB), g.sequence, g.role, g.said_at, g.trust,
p.start, p.stop, p.length, CAST(g.tool AS BLOB), g.cold
"""
"""Of passage `p`, segment `g` and session `s`."""

# In the order of the fields. A frozen value sets its fields one by one, by name; for the hundreds
# of a recall that took a tenth of it. Columns set through the slots take a third of that.
_SLOTS: Final = tuple(getattr(Candidate, field.name).__set__ for field in fields(Candidate))


def described(
    rows: Sequence[Row], postings: Sequence[Postings], asked: Sequence[Asked | None]
) -> tuple[Candidate, ...]:
    """What is to be said of these passages, rows of `COLUMNS`, in their order."""
    try:
        return _described(rows, postings, asked)
    except (ValueError, TypeError):
        legible = readable(rows, lambda row: (row, text_of(row[4]), unpack_text(row[12])))
        return _described([row for row, _, _ in legible], postings, asked)


def _described(
    rows: Sequence[Row], postings: Sequence[Postings], asked: Sequence[Asked | None]
) -> tuple[Candidate, ...]:
    if not rows:
        return ()
    (
        numbers, segment, ordinal, key, session, sequence, role, said_at, trust, start, end,
        length, tool, cold,
    ) = zip(*rows, strict=True)  # fmt: skip
    passages = np.array(numbers, dtype=np.int64)
    sessions = {packed: text_of(packed) for packed in set(session)}
    tools = {packed: unpack_text(packed) for packed in set(tool)}
    columns: tuple[Iterable[Any], ...] = (
        segment,
        ordinal,
        key,
        [sessions[packed] for packed in session],
        sequence,
        role,
        said_at,
        trust,
        start,
        end,
        length,
        counts_in(postings, passages),
        _similarities(asked, passages),
        [tools[packed] for packed in tool],
        map(bool, cold),
    )
    made = [object.__new__(Candidate) for _ in rows]
    for put, column in zip(_SLOTS, columns, strict=True):
        deque(map(put, made, column), maxlen=0)
    return tuple(made)


def _similarities(
    asked: Sequence[Asked | None], passages: Numbers
) -> Iterable[tuple[float | None, ...]]:
    if not asked:
        return repeat((), len(passages))
    nowhere = [None] * len(passages)
    return zip(*(nowhere if one is None else one.cosines(passages) for one in asked), strict=True)
