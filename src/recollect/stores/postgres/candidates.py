"""Answers a search: the best passages by words and by each vector, with what scoring needs.

Words and vectors are looked for at the same time, each on a connection of its own; the passages
they name are then described together. Never scores for good: `search` does. Always holds: no way
waits for a connection while it holds one, so searches cannot block each other; what is left out
takes nobody's place, and changes no statistic.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from recollect.stores.postgres.describe import describe
from recollect.stores.postgres.in_files import InFiles, from_memo
from recollect.stores.postgres.lexical import NONE, Ints, term_of
from recollect.stores.postgres.vectors import nearest
from recollect.stores.postgres.wire import big_endian, texts
from recollect.stores.postgres.words import FoundByWords, find_by_words
from recollect.values.lookup import (
    FILE_SESSIONS,
    AskedVector,
    Candidate,
    CandidateQuery,
    Candidates,
)

if TYPE_CHECKING:
    from uuid import UUID

    from recollect.stores.postgres.fleet import PostgresFleet

_LEFT_OUT: Final = """
    SELECT string_agg(int8send(p.passage_no), '')
    FROM unnest(%(ids)s::text[]) AS u (id)
    CROSS JOIN LATERAL (
        SELECT sequence FROM recollect.segments
        WHERE space_id = %(space)s AND id = u.id OFFSET 0
    ) AS s
    CROSS JOIN LATERAL (
        SELECT passage_no FROM recollect.passages
        WHERE space_id = %(space)s AND sequence = s.sequence OFFSET 0
    ) AS p
"""


async def find(fleet: PostgresFleet, space_id: UUID, query: CandidateQuery) -> Candidates:
    """What may answer the query."""
    left_out, in_files = await _known_before(fleet, space_id, query)
    words, near = await _ways(fleet, space_id, query, left_out, in_files)
    numbers = sorted({*words.numbers, *near})
    passages: tuple[Candidate, ...] = ()
    if numbers:
        async with fleet.transaction(space_id, read=True) as work:
            passages = await describe(work, query, numbers)
    if query.leave_out:  # one may have been indexed anew, under other numbers, meanwhile
        passages = tuple([one for one in passages if one.segment not in query.leave_out])
    if in_files is not None:
        passages = tuple([one for one in passages if _in_scope(one, query)])
    held = words.frequencies or {}
    return Candidates(
        passages=passages,
        documents=words.documents,
        average_length=words.total_length / words.documents if words.documents else 0.0,
        document_frequencies={word: held.get(term_of(space_id, word), 0) for word in query.words},
        cold_searched=words.cold_searched,
    )


async def _known_before(
    fleet: PostgresFleet, space_id: UUID, query: CandidateQuery
) -> tuple[Ints, InFiles | None]:
    """The passages of what the query leaves out, and those of memory files where it wants them
    beside a session: asked once, for every way needs them."""
    if not query.leave_out and not from_memo(query):
        return NONE, None
    left_out, in_files = NONE, None
    async with fleet.transaction(space_id, read=True) as work:
        asking = None
        if query.leave_out:
            given = {"space": space_id, "ids": texts(query.leave_out)}
            asking = await work.send(_LEFT_OUT, given)
        if from_memo(query):
            in_files = await fleet.files.fresh(work)
        if asking is not None:
            packed = await asking.fetchone()
            left_out = big_endian(packed[0] if packed is not None else None, "i8")
    return left_out, in_files


def _in_scope(one: Candidate, query: CandidateQuery) -> bool:
    return one.session == query.session or one.session.startswith(FILE_SESSIONS)


async def _ways(
    fleet: PostgresFleet,
    space_id: UUID,
    query: CandidateQuery,
    left_out: Ints,
    in_files: InFiles | None,
) -> tuple[FoundByWords, set[int]]:
    """What words find, and the passages that any of the vectors finds."""

    async def by_words() -> FoundByWords:
        async with fleet.transaction(space_id, read=True) as work:
            return await find_by_words(work, query, left_out, in_files)

    async def by_vector(asked: AskedVector) -> list[int]:
        async with fleet.transaction(space_id, read=True) as work:
            return await nearest(work, query, asked, fleet.embedders, left_out, in_files)

    if not query.vectors:
        return await by_words(), set()
    begun = [asyncio.create_task(by_vector(asked)) for asked in query.vectors]
    try:
        words = await by_words()
        near = {number for found in await asyncio.gather(*begun) for number in found}
    except BaseException:
        for one in begun:
            one.cancel()
        await asyncio.gather(*begun, return_exceptions=True)
        raise
    return words, near
