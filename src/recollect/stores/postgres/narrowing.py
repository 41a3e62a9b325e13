"""How a query narrows the space: one session, with memory files or without, times, warm or cold.

Owns the statement that says which passages are let through, for words and for vectors alike.
Always holds: a filter that is not given lets everything through.
"""

from __future__ import annotations

from typing import Any, Final

from recollect.stores.postgres.in_files import InFiles
from recollect.stores.postgres.pool import Transaction
from recollect.stores.postgres.wire import escaped
from recollect.values.lookup import CandidateQuery

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
        "session": None if query.session is None else escaped(query.session),
        "files": query.with_files and in_files is None,
        "after": query.said_after,
        "before": query.said_before,
        "cold": query.cold,
    }


def filtered(query: CandidateQuery) -> bool:
    """Whether the query asks for a part of the space only."""
    return (query.session, query.said_after, query.said_before) != (None, None, None)
