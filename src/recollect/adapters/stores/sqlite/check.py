"""Checks a space without repairing anything: SQLite's own check, the indexes, and the rules of
Recollect's data.

The report contains counts and places, but no content."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import apsw
import numpy as np

from recollect.adapters.stores.invariants import NO_NUMBERS, word_numbers
from recollect.adapters.stores.sqlite import columns, ledger
from recollect.adapters.stores.sqlite.connection import EncryptionKey, read_only, store_errors
from recollect.adapters.stores.sqlite.database import Database
from recollect.adapters.stores.sqlite.sessions import read_path
from recollect.adapters.stores.sqlite.vectors import FLOAT_BYTES, HALF_BYTES
from recollect.core.values.upkeep import CheckResult, SpaceSummary, Stats
from recollect.errors import RecollectError

_TOTALS: Final = "SELECT segments, noise, tokens, documents, words FROM totals"
_COUNTED: Final = """
SELECT * FROM (SELECT count(*), count(noise), coalesce(sum(tokens), 0) FROM segment),
  (SELECT count(*), coalesce(sum(length), 0) FROM passage)
"""
_BLOCKS: Final = """
SELECT b.count, b.passages, length(b.numbers), e.dimensions FROM vector_block AS b
JOIN embedder AS e ON e.number = b.embedder WHERE e.number = ?
"""
_VECTORS_AT: Final = "SELECT passage FROM vector_at WHERE embedder = ? ORDER BY passage"
_FACT_WORDS: Final = "SELECT word FROM fact_word WHERE fact = ? ORDER BY word"
_NEWEST_TURNS: Final = """
SELECT CAST(s.name AS BLOB), max(t.number) FROM turn AS t JOIN session AS s ON s.number = t.session
GROUP BY 1
"""
_SUM_OVER: Final = 1_000_003
"""A prime: passage numbers modulo this prime have sums that fit SQLite's integers."""
_SPACE: Final = "SELECT value FROM meta WHERE key = 'space'"
_SUMMARY: Final = "SELECT count(DISTINCT session), count(*), max(said_at) FROM segment"
_STATS: Final = """
SELECT t.segments, t.noise, t.documents, t.tokens,
  (SELECT count(*) FROM fact),
  (SELECT count(*) FROM session AS s WHERE s.turn IS NOT NULL
     OR EXISTS (SELECT 1 FROM segment AS g WHERE g.session = s.number)),
  (SELECT count(*) FROM turn), (SELECT count(*) FROM piece), (SELECT count(*) FROM tombstone),
  (SELECT count(*) FROM compaction),
  (SELECT count(*) FROM job WHERE state = 'waiting'),
  (SELECT count(*) FROM job WHERE state = 'dead')
FROM totals AS t
"""
_STAT_NAMES: Final = (
    *("segments", "noise", "passages", "tokens", "facts", "sessions", "turns", "pieces"),
    *("tombstones", "compactions", "jobs_waiting", "jobs_dead"),
)
_VECTOR_COUNTS: Final = """
SELECT e.name, coalesce(sum(b.count), 0) FROM embedder AS e
LEFT JOIN vector_block AS b ON b.embedder = e.number GROUP BY e.number HAVING sum(b.count)
"""


def check(db: Database) -> CheckResult:
    checks: dict[str, Callable[[Database], Iterator[str]]] = {
        "SQLite's integrity check": _check_integrity,
        "the word index": _check_words,
        "segments, passages and counters": _check_counters,
        "vectors": _check_vectors,
        "facts": _check_facts,
        "records can be read": _check_records,
        "session paths": _check_paths,
        "ledger": _check_ledger,
    }
    problems: list[str] = []
    before = db.unreadable_rows
    for name, run in checks.items():
        try:
            problems.extend(run(db))
        except (apsw.CorruptError, apsw.SQLError, ValueError, TypeError) as error:
            problems.append(f"{name}: cannot be checked ({type(error).__name__})")
    if unreadable := db.unreadable_rows - before:
        problems.append(f"{unreadable} rows have a text that cannot be read")
    return CheckResult(checked=tuple(checks), problems=tuple(problems))


def _report_counts(db: Database, problems: Mapping[str, str]) -> Iterator[str]:
    """Report each problem that has rows. `problems` maps sentences to SQL for the wrong rows."""
    for sentence, rows in problems.items():
        if count := db.value(f"SELECT count(*) FROM {rows}"):  # noqa: S608
            yield f"{count} {sentence}"


def _check_integrity(db: Database) -> Iterator[str]:
    for (message,) in db.rows("PRAGMA integrity_check"):
        if message != "ok":
            yield f"SQLite: {message}"
    for table, row, *_ in db.rows("PRAGMA foreign_key_check"):
        yield f"row {row} of {table} refers to a missing row"


def _check_words(db: Database) -> Iterator[str]:
    if _count_indexed_words(db) != _count_words(db):
        yield "the word index lacks words of its passages: run `recollect memory reindex`"
    bag_query = "SELECT 1 FROM words_bag AS w WHERE w.id = p.id"
    passage_query = "SELECT 1 FROM passage AS p WHERE p.id = w.id"
    problems = {
        "passages are not in the word index": f"passage AS p WHERE NOT EXISTS ({bag_query})",
        "indexed passages are not stored": f"words_bag AS w WHERE NOT EXISTS ({passage_query})",
    }
    yield from _report_counts(db, problems)


def _count_indexed_words(db: Database) -> dict[str, tuple[int, int]]:
    """Count each word in the index, with a sum over its passages. FTS5's own command for this
    counts as a write, and would wait for other writers."""
    query = f"SELECT term, count(*), sum(doc % {_SUM_OVER}) FROM words_at GROUP BY term"  # noqa: S608
    return {term: (count, total) for term, count, total in db.rows(query)}


def _count_words(db: Database) -> dict[str, tuple[int, int]]:
    counts: dict[str, int] = {}
    totals: dict[str, int] = {}
    query, last = "SELECT id, bag FROM words_bag WHERE id > ? ORDER BY id LIMIT 1000", -1
    while rows := db.rows(query, (last,)):
        for id_, bag in rows:
            for word in bag.split():
                counts[word] = counts.get(word, 0) + 1
                totals[word] = totals.get(word, 0) + id_ % _SUM_OVER
        last = rows[-1][0]
    return {word: (count, totals[word]) for word, count in counts.items()}


def _check_counters(db: Database) -> Iterator[str]:
    orphans = "passage WHERE segment NOT IN (SELECT sequence FROM segment)"
    yield from _report_counts(db, {"passages have no segment": orphans})
    stored_totals, counted_totals = db.row(_TOTALS), db.row(_COUNTED)
    if stored_totals != counted_totals:
        yield f"the stored counters are {stored_totals}, but must be {counted_totals}"


def _check_facts(db: Database) -> Iterator[str]:
    unindexed = sum(
        [word for (word,) in db.rows(_FACT_WORDS, (number,))] != word_numbers(fact.words)
        for number, fact in columns.read_rows(db.rows(columns.SELECT_FACT), columns.read_numbered)
        if fact.current
    )
    if unindexed:
        yield f"{unindexed} facts differ from their words in the index"
    problems = {
        "facts are marked as current, or as replaced, although their dates say otherwise": """
            fact WHERE current != (superseded_by IS NULL AND valid_to IS NULL)
        """,
        "indexed words belong to no current fact": """
            fact_word WHERE fact NOT IN (SELECT number FROM fact WHERE current)
        """,
        "vectors of facts are damaged, or belong to no current fact": """
            fact_vector AS v JOIN embedder AS e ON e.number = v.embedder
            WHERE length(v.numbers) != 4 * e.dimensions
              OR v.fact NOT IN (SELECT number FROM fact WHERE current)
        """,
    }
    yield from _report_counts(db, problems)


def _check_vectors(db: Database) -> Iterator[str]:
    problems = {
        "vectors belong to no passage": "vector_at WHERE passage NOT IN (SELECT id FROM passage)",
        "passages are marked as embedded, but have no vector": """
            embedder AS e JOIN passage AS p ON p.id <= e.complete_to
            WHERE p.embedded AND NOT EXISTS (
              SELECT 1 FROM vector_at AS v WHERE v.embedder = e.number AND v.passage = p.id
            )
        """,
    }
    yield from _report_counts(db, problems)
    for embedder, name in db.rows("SELECT number, name FROM embedder"):
        members = []
        for count, passages, size, dimensions in db.rows(_BLOCKS, (embedder,)):
            sizes = (HALF_BYTES * count * dimensions, FLOAT_BYTES * count * dimensions)
            if len(passages) != 8 * count or size not in sizes:
                yield f"a block of vectors of {name} is damaged"
                continue
            members.append(np.frombuffer(passages, dtype="<i8"))
        stored_passages = np.sort(np.concatenate(members)) if members else NO_NUMBERS
        listed_passages = np.array(
            [value for (value,) in db.rows(_VECTORS_AT, (embedder,))], dtype=np.int64
        )
        if not np.array_equal(stored_passages, listed_passages):
            yield f"the stored vectors of {name} differ from the list of its vectors"


def _check_records(db: Database) -> Iterator[str]:
    ids = ledger.SharedIds(db)
    readers: tuple[tuple[str, str, Callable[[Any], object]], ...] = (
        ("segment", columns.SELECT_SEGMENT, columns.read_segment),
        ("fact", columns.SELECT_FACT, columns.read_fact),
        ("piece", "SELECT hash, about FROM piece", lambda row: ids.unpack(row[1])),
        ("job", "SELECT number, about FROM job", lambda row: columns.unpack_ids(row[1])),
        ("compaction", ledger.SELECT_COMPACTION, partial(ledger.compaction_from_row, ids)),
        ("quoted", "SELECT ids FROM quoted", lambda row: columns.unpack_ids(row[0])),
        ("session", "SELECT CAST(name AS BLOB) FROM session", lambda row: columns.text_of(row[0])),
    )
    for kind, query, read in readers:
        rows = db.rows(query)
        if unreadable_count := len(rows) - len(columns.read_rows(rows, read)):
            yield f"{unreadable_count} records of kind {kind} cannot be read"


def _check_paths(db: Database) -> Iterator[str]:
    for number, length in db.rows("SELECT number, length FROM session"):
        try:
            keys, ids = read_path(db, number)
        except (ValueError, TypeError):
            yield f"the path of session {number} cannot be read"
            continue
        if len(keys) != length or len(ids) != length:
            yield f"the path of session {number} does not have its recorded length"


def _check_ledger(db: Database) -> Iterator[str]:
    for packed_name, number in db.rows(_NEWEST_TURNS):
        names = columns.read_rows([(packed_name,)], lambda row: columns.text_of(row[0]))
        if names and ledger.rebuild_turn(db, names[0], number) is None:
            yield f"turn {number} of a session cannot be rebuilt"


def read_stats(db: Database, *, space: str, path: Path, encrypted: bool) -> Stats:
    counts: dict[str, int] = dict(zip(_STAT_NAMES, db.row(_STATS), strict=True))
    return Stats(
        space=space,
        engine=f"SQLite {apsw.sqlite_lib_version()}{', encrypted' if encrypted else ''}",
        vectors=dict(db.rows(_VECTOR_COUNTS)),
        bytes_on_disk=_bytes_on_disk(path),
        **counts,
    )


def read_summary(path: Path, *, key: EncryptionKey | None = None) -> SpaceSummary:
    """Read the space's name and counts, without changing the file or migrating an older schema.
    Return only the size of a file with a passphrase: reading it needs the space's name."""
    summary = SpaceSummary(space=None, file=str(path), bytes_on_disk=_bytes_on_disk(path))
    try:
        with store_errors(path), closing(read_only(path, key)) as connection:
            rows: list[Any] = [*connection.execute(_SPACE), *connection.execute(_SUMMARY)]
    except RecollectError as error:
        return replace(summary, unread=str(error))
    (space,), (sessions, segments, last) = rows
    return replace(summary, space=space, sessions=sessions, segments=segments, last_said_at=last)


def _bytes_on_disk(path: Path) -> int:
    files = (Path(f"{path}{suffix}") for suffix in ("", "-wal", "-shm"))
    return sum(file.stat().st_size for file in files if file.exists())
