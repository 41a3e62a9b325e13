"""Whether facts can be read, and their index and vectors are those of the current ones.

Tells counts, never content. Must never mend anything.
"""

from __future__ import annotations

from typing import Final

from recollect.stores.fact_scores import word_numbers
from recollect.stores.postgres.fact_rows import COLUMNS, readable_facts
from recollect.stores.postgres.pool import Transaction
from recollect.stores.postgres.wire import big_endian, plain

# Facts that older code wrote have no number, and are indexed when facts are next looked for.
_WORDS: Final = """
    SELECT fact_no, words FROM recollect.facts
    WHERE space_id = %s AND fact_no IS NOT NULL AND superseded_by IS NULL AND valid_to IS NULL
"""
_FACTS: Final = f"SELECT {COLUMNS} FROM recollect.facts WHERE space_id = %s"  # noqa: S608
_TERMS: Final = """
    SELECT string_agg(int8send(fact_no), ''::bytea), string_agg(int8send(term), ''::bytea)
    FROM recollect.fact_terms WHERE space_id = %s
"""
_VECTORS: Final = """
    SELECT string_agg(int8send(fact_no), ''::bytea) FROM recollect.fact_vectors
    WHERE space_id = %s
"""


async def fact_problems(work: Transaction) -> list[str]:
    """What is wrong with facts and their index, a sentence each."""
    rows = await work.rows(_FACTS, (work.space_id,))
    unread = len(rows) - len(readable_facts(rows))
    reading = await work.send(_WORDS, (work.space_id,))
    indexed = await work.send(_TERMS, (work.space_id,))
    vectored = await work.row(_VECTORS, (work.space_id,))
    facts, terms = await indexed.fetchone() or (None, None)
    held: dict[int, list[int]] = {}
    for fact, term in zip(
        big_endian(facts, "i8").tolist(), big_endian(terms, "i8").tolist(), strict=True
    ):
        held.setdefault(fact, []).append(term)
    wrong, current = 0, set()
    for fact, words in await reading.fetchall():
        current.add(fact)
        wrong += sorted(held.pop(fact, [])) != word_numbers([plain(word) for word in words])
    numbers = big_endian(vectored[0] if vectored is not None else None, "i8").tolist()
    stray = sum(fact not in current for fact in numbers)
    return [
        f"{count} {what}"
        for count, what in (
            (unread, "records of kind fact cannot be read"),
            (wrong, "facts are not in the index of words as they are"),
            (len(held), "facts are in the index of words that are not current"),
            (stray, "vectors of facts have no current fact"),
        )
        if count
    ]
