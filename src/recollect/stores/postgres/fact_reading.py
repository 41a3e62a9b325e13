"""Reads facts of a space, the revision they are at, and how far sessions were read for them.

A fact that cannot be read is left out (see `fact_rows.py`). Must never change anything.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from recollect.stores.marks import session_mark
from recollect.stores.postgres.fact_rows import COLUMNS, readable_facts
from recollect.stores.postgres.pool import Transaction
from recollect.stores.postgres.wire import escaped, plain, texts
from recollect.values.fact import Fact, FactId, FactText

_ALL: Final = f"""
    SELECT {COLUMNS} FROM recollect.facts
    WHERE space_id = %(space)s
        AND (%(superseded)s OR (superseded_by IS NULL AND valid_to IS NULL))
        AND (%(about_all)s OR subject = ANY(%(subjects)s::text[]))
    ORDER BY at, id
"""  # noqa: S608
BY_ID: Final = f"""
    SELECT {COLUMNS} FROM recollect.facts WHERE space_id = %s AND id = ANY(%s::text[])
"""  # noqa: S608
_UNEMBEDDED: Final = """
    SELECT f.id, f.content FROM recollect.facts AS f
    WHERE f.space_id = %(space)s AND f.superseded_by IS NULL AND f.valid_to IS NULL
        AND NOT EXISTS (
            SELECT FROM recollect.fact_vectors AS v
            WHERE v.space_id = %(space)s AND v.fact_no = f.fact_no AND v.embedder_no = (
                SELECT embedder_no FROM recollect.embedders
                WHERE space_id = %(space)s AND name = %(name)s
            )
        )
    ORDER BY f.id LIMIT %(limit)s
"""
_REVISION: Final = "SELECT facts_revision FROM recollect.counters WHERE space_id = %s"
_READ: Final = "SELECT sequence FROM recollect.extracted WHERE space_id = %s AND session = %s"


async def read(
    work: Transaction,
    ids: Sequence[FactId] | None,
    *,
    superseded: bool,
    subjects: Collection[str] | None,
) -> tuple[Fact, ...]:
    """Facts by id in this order, or all by time and id."""
    if ids is None:
        given = {
            "space": work.space_id,
            "superseded": superseded,
            "about_all": subjects is None,
            "subjects": texts(subjects or ()),
        }
        return tuple(fact for _, fact in readable_facts(await work.rows(_ALL, given)))
    rows = await work.rows(BY_ID, (work.space_id, texts(ids)))
    by_id = {fact.id: fact for _, fact in readable_facts(rows)}
    found = (by_id[one] for one in ids if one in by_id)
    return tuple(
        fact
        for fact in found
        if (superseded or fact.current) and (subjects is None or fact.subject in subjects)
    )


async def unembedded(work: Transaction, embedder: str, *, limit: int) -> tuple[FactText, ...]:
    """Current facts that have no vector of this embedder, by id."""
    given = {"space": work.space_id, "name": escaped(embedder), "limit": limit}
    rows = await work.rows(_UNEMBEDDED, given)
    return tuple(FactText(fact=FactId(plain(id_)), text=plain(content)) for id_, content in rows)


async def revision(work: Transaction) -> int:
    """How often the facts of the space have changed."""
    row = await work.row(_REVISION, (work.space_id,))
    return 0 if row is None else int(row[0])


async def extracted_to(work: Transaction, session: str) -> int:
    """How far a session was read for facts; 0 for not at all."""
    row = await work.row(_READ, (work.space_id, session_mark(session)))
    return 0 if row is None else int(row[0])
