"""Facts of a space: written, replaced, forgotten; the revision they are at.

Owns `facts`, `fact_terms`, `fact_vectors` and `extracted`. Whoever writes them holds the space's
turn (`write.lock_space`), so the revision that was read stays true. Facts that older code wrote
have no number and are not indexed, and what it closed is indexed still: `adopt` sees to both.
Always holds: only current facts are found by words and vectors; the revision grows with every
transaction that changes facts, or segments that a fact may be read from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from recollect.errors import BatchRefused
from recollect.stores.fact_scores import word_numbers
from recollect.stores.fact_support import all_rest_on, still_supported, writable
from recollect.stores.marks import session_mark
from recollect.stores.postgres import write_vectors
from recollect.stores.postgres.fact_reading import BY_ID
from recollect.stores.postgres.fact_rows import (
    COLUMNS,
    PUT,
    fact_row,
    readable_facts,
    row_id,
    row_is_current,
    row_names,
)
from recollect.stores.postgres.ground import Ground
from recollect.stores.postgres.pool import Cursor, Transaction
from recollect.stores.postgres.wire import escaped, int8s, plain, texts, vectors
from recollect.values.batch import Batch
from recollect.values.fact import Fact, FactId, FactVectorSet

_UNNUMBERED: Final = f"""
    SELECT {COLUMNS} FROM recollect.facts WHERE space_id = %s AND fact_no IS NULL
"""  # noqa: S608
# Evidence that is no JSON is taken to name every segment: `forget` looks at it by itself.
_RESTING: Final = f"""
    SELECT {COLUMNS} FROM recollect.facts
    WHERE space_id = %(space)s AND (
        sources && %(gone)s::text[]
        OR CASE
            WHEN evidence IS NULL THEN false
            WHEN NOT pg_input_is_valid(evidence, 'json') THEN true
            WHEN json_typeof(evidence::json) <> 'array' THEN true
            ELSE EXISTS (
                SELECT FROM json_array_elements(evidence::json) AS e (span)
                WHERE json_typeof(e.span) <> 'array' OR e.span ->> 0 = ANY(%(gone)s::text[])
            )
        END
    )
"""  # noqa: S608
_GONE: Final = """
    SELECT id FROM recollect.forgotten_segments WHERE space_id = %s AND id = ANY(%s::text[])
"""
_MOVE_ON: Final = """
    UPDATE recollect.counters
    SET next_fact = next_fact + %(count)s, facts_revision = facts_revision + 1
    WHERE space_id = %(space)s RETURNING next_fact - %(count)s
"""
_NUMBER: Final = """
    UPDATE recollect.facts SET fact_no = %s WHERE space_id = %s AND id = %s
"""
_LEAVE_SESSIONS: Final = """
    UPDATE recollect.facts SET session = NULL
    WHERE space_id = %s AND session = ANY(%s::text[]) RETURNING 1
"""
_CLOSED: Final = """
    SELECT fact_no FROM recollect.facts
    WHERE space_id = %s AND (superseded_by IS NOT NULL OR valid_to IS NOT NULL)
"""
_TERMS: Final = """
    INSERT INTO recollect.fact_terms (space_id, term, fact_no)
    SELECT %s, * FROM unnest(%s::bigint[], %s::bigint[])
"""
_DROP: Final = """
    DELETE FROM recollect.facts WHERE space_id = %s AND id = ANY(%s::text[])
"""
_DROP_TERMS: Final = """
    DELETE FROM recollect.fact_terms WHERE space_id = %s AND fact_no = ANY(%s::bigint[])
"""
_DROP_VECTORS: Final = """
    DELETE FROM recollect.fact_vectors
    WHERE space_id = %(space)s AND fact_no = ANY(%(numbers)s::bigint[]) AND embedder_no IN (
        SELECT embedder_no FROM recollect.embedders WHERE space_id = %(space)s
    )
"""
_VECTORS: Final = """
    INSERT INTO recollect.fact_vectors (space_id, embedder_no, fact_no, v)
    SELECT %s, %s, * FROM unnest(%s::bigint[], %s::vector[])
    ON CONFLICT DO NOTHING
"""
_READ_TO: Final = """
    INSERT INTO recollect.extracted (space_id, session, sequence) VALUES (%s, %s, %s)
    ON CONFLICT (space_id, session) DO UPDATE
    SET sequence = greatest(extracted.sequence, excluded.sequence)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """Questions that were sent ahead: which sources are gone, what is there, whose vectors."""

    gone: Cursor
    held: Cursor
    unnumbered: Cursor
    embedders: tuple[Cursor, ...]


async def look(work: Transaction, batch: Batch) -> Meeting | None:
    """Queue the questions about a batch's facts; None where it has nothing to do with facts."""
    if not (batch.facts or batch.fact_vectors or batch.extracted):
        return None
    ids = {fact.id for fact in batch.facts}
    ids.update(one.fact for given in batch.fact_vectors for one in given.vectors)
    return Meeting(
        gone=await work.send(_GONE, (work.space_id, texts(all_rest_on(batch.facts)))),
        held=await work.send(BY_ID, (work.space_id, texts(ids))),
        unnumbered=await work.send(_UNNUMBERED, (work.space_id,)),
        embedders=tuple(
            [await write_vectors.look_at_embedder(work, one.embedder) for one in batch.fact_vectors]
        ),
    )


async def write(
    work: Transaction, batch: Batch, meeting: Meeting, ground: Ground, refused: frozenset[str]
) -> None:
    """Write what a batch has of facts; `refused` are its segments that were forgotten."""
    gone = refused | {plain(id_) for (id_,) in await meeting.gone.fetchall()}
    unnumbered = await meeting.unnumbered.fetchall()
    rows = [*unnumbered, *await meeting.held.fetchall()]
    if unnumbered:
        await _drop_closed(work)
    held = {fact.id: fact for _, fact in readable_facts(rows)}
    changed = {
        fact.id: fact
        for fact in writable(batch.facts, held, tombstones=ground.tombstoned, gone=gone)
    }
    adopted = {fact.id: fact for _, fact in readable_facts(unnumbered)}
    before = {row_id(row): row[-1] for row in rows}
    written = await _put(work, [*{**adopted, **changed}.values()], before)
    numbers = {row_id(row): row[-1] for row in rows if row_is_current(row)}
    for id_, (number, fact) in written.items():
        numbers.pop(id_, None)
        if fact.current:
            numbers[id_] = number
    for given, asking in zip(batch.fact_vectors, meeting.embedders, strict=True):
        stored = await asking.fetchone()
        await _write_vectors(work, given, stored, numbers, ground)
    for read_to in batch.extracted:
        given_ = (work.space_id, session_mark(read_to.session), read_to.sequence)
        await work.send(_READ_TO, given_)


async def adopt(work: Transaction) -> None:
    """Number and index the facts that older code wrote, and take out of the index what it closed;
    the caller holds the space's turn."""
    rows = await work.rows(_UNNUMBERED, (work.space_id,))
    await _drop_closed(work)
    known = [fact for _, fact in readable_facts(rows)]
    await _put(work, known, {})
    unread = {row_id(row) for row in rows}.difference(fact.id for fact in known)
    first = await _move_on(work, len(unread)) if unread else 0
    for number, id_ in enumerate(sorted(unread), first):  # else they would be looked at for ever
        await work.send(_NUMBER, (number, work.space_id, escaped(id_)))


async def forget(
    work: Transaction, named: Sequence[FactId], gone: Mapping[str, str | None]
) -> tuple[FactId, ...]:
    """Remove facts that are named, or cannot stand without what is gone; others lose that.

    `gone` are the forgotten segments, each with the twin that says the same elsewhere. A fact that
    cannot be read goes with any segment that it names.
    """
    rows = await work.rows(BY_ID, (work.space_id, texts(named))) if named else []
    if gone:
        rows += await work.rows(_RESTING, {"space": work.space_id, "gone": texts(gone)})
    numbers = {row_id(row): row[-1] for row in rows}
    held = {fact.id: fact for _, fact in readable_facts(rows)}
    twins = {segment: twin for segment, twin in gone.items() if twin is not None}
    left = {
        id_: None if id_ in named else still_supported(fact, gone.keys(), twins)
        for id_, fact in held.items()
    }
    removed = {id_ for id_, fact in left.items() if fact is None}
    unread = (row for row in rows if row_id(row) not in held)
    removed.update(row_id(row) for row in unread if row_id(row) in named or row_names(row, gone))
    await _drop_index(work, (numbers[id_] for id_ in sorted(removed)))
    if removed:
        await work.send(_DROP, (work.space_id, texts(sorted(removed))))
    kept = [fact for id_, fact in left.items() if fact is not None and fact != held[id_]]
    await _put(work, kept, numbers)
    if removed or gone:
        await _move_on(work)
    return tuple(sorted(removed))


async def leave_sessions(work: Transaction, sessions: Sequence[str]) -> None:
    """Let no fact name these sessions: those that are left belong to the whole space."""
    if sessions and await work.rows(_LEAVE_SESSIONS, (work.space_id, texts(sessions))):
        await _move_on(work)


async def segments_changed(work: Transaction) -> None:
    """Say that what was decided about facts until now was decided upon other segments."""
    await _move_on(work)


async def _move_on(work: Transaction, count: int = 0) -> int:
    """Let the revision grow; the first of so many numbers for facts."""
    row = await work.row(_MOVE_ON, {"space": work.space_id, "count": count})
    assert row is not None
    return int(row[0])


async def _drop_closed(work: Transaction) -> None:
    rows = await work.rows(_CLOSED, (work.space_id,))
    await _drop_index(work, (number for (number,) in rows))


async def _put(
    work: Transaction, facts: Sequence[Fact], held: Mapping[FactId, int | None]
) -> dict[FactId, tuple[int, Fact]]:
    """Write facts in the place of those that are held, each with its number, under new ones."""
    if not facts:
        return {}
    await _drop_index(work, (held[fact.id] for fact in facts if fact.id in held))
    first = await _move_on(work, len(facts))
    numbered = {fact.id: (number, fact) for number, fact in enumerate(facts, first)}
    places: list[tuple[int, int]] = []
    for number, fact in numbered.values():
        await work.send(PUT, fact_row(work.space_id, fact, number))
        if fact.current:
            places += ((word, number) for word in word_numbers(fact.words))
    if places:
        words, numbers = zip(*places, strict=True)
        await work.send(_TERMS, (work.space_id, int8s(words), int8s(numbers)))
    return numbered


async def _drop_index(work: Transaction, numbers: Iterable[int | None]) -> None:
    known = int8s(kept) if (kept := [one for one in numbers if one is not None]) else None
    if known is not None:
        await work.send(_DROP_TERMS, (work.space_id, known))
        await work.send(_DROP_VECTORS, {"space": work.space_id, "numbers": known})


async def _write_vectors(
    work: Transaction,
    given: FactVectorSet,
    stored: tuple[Any, ...] | None,
    numbers: Mapping[FactId, int | None],
    ground: Ground,
) -> None:
    """Keep the vectors of current facts that have none of this embedder yet."""
    known = write_vectors.known_embedder(given, stored, ground)
    if any(len(one.values) != 4 * given.dimensions for one in given.vectors):
        raise BatchRefused(f"a vector does not have {given.dimensions} dimensions")
    new: dict[int, bytes] = {}
    for one in given.vectors:
        number = numbers.get(one.fact)
        if number is not None:
            new.setdefault(number, one.values)
    if not new:
        return
    if known is None:
        known = await write_vectors.new_embedder(work, given, ground)
    rows = np.frombuffer(b"".join(new.values()), "<f4").reshape(len(new), given.dimensions)
    laid = vectors(rows, work.vector_oid)
    await work.send(_VECTORS, (work.space_id, known, int8s(list(new)), laid))
