"""Whether the index and the vectors of facts are those of the current facts.

Tells counts, never content. Must never mend anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from recollect.stores.fact_scores import word_numbers
from recollect.stores.sqlite.database import Database
from recollect.stores.sqlite.fact_rows import SELECT_FACT, numbered_fact
from recollect.stores.sqlite.rows import readable

_CURRENT: Final = """
SELECT count(*) FROM fact WHERE current != (superseded_by IS NULL AND valid_to IS NULL)
"""
_WORDS: Final = "SELECT word FROM fact_word WHERE fact = ? ORDER BY word"
_STRAY_WORDS: Final = """
SELECT count(*) FROM fact_word AS w
WHERE NOT EXISTS (SELECT 1 FROM fact AS f WHERE f.number = w.fact AND f.current)
"""
_STRAY_VECTORS: Final = """
SELECT count(*) FROM fact_vector AS v JOIN embedder AS e ON e.number = v.embedder
WHERE length(v.numbers) != 4 * e.dimensions
  OR NOT EXISTS (SELECT 1 FROM fact AS f WHERE f.number = v.fact AND f.current)
"""


def check_facts(db: Database) -> Iterator[str]:
    """What is wrong with the index of facts, a sentence each."""
    unindexed = sum(
        [word for (word,) in db.rows(_WORDS, (number,))] != word_numbers(fact.words)
        for number, fact in readable(db.rows(SELECT_FACT), numbered_fact)
        if fact.current
    )
    if unindexed:
        yield f"{unindexed} facts are not in the index of words as they are"
    for count, what in (
        (db.value(_CURRENT), "facts are current or closed against what they say"),
        (db.value(_STRAY_WORDS), "words of facts have no current fact"),
        (db.value(_STRAY_VECTORS), "vectors of facts are torn, or have no current fact"),
    ):
        if count:
            yield f"{count} {what}"
