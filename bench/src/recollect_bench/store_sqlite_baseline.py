"""Hand-written SQLite: what someone who knows it would write for this one job, and no more.

Owns the baseline that the store bench holds `SQLiteStore` against: one connection, one thread,
direct statements, the same information and durability (WAL, synchronous=FULL), the same words
in FTS5, the vectors in one matrix. It keeps none of the promises around them: no tombstones,
no forgetting, no several spaces or embedders, no other process. Always holds: it answers with
the same kind of candidates, so that both do the same work.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import apsw
import numpy as np
from numpy.typing import NDArray

from recollect.core.values.batch import Batch
from recollect.core.values.recall import CandidateQuery
from recollect_bench.store_data import DIMENSIONS

_PRAGMAS: Final = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",
    "PRAGMA secure_delete=ON",
    "PRAGMA cache_size=-65536",
    "PRAGMA mmap_size=1073741824",
)
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS segment(
  sequence INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, session TEXT, key BLOB, message_id BLOB,
  role TEXT, text TEXT, tokens INTEGER, said_at REAL, source TEXT, trust TEXT, noise TEXT,
  tool TEXT, origin TEXT);
CREATE INDEX IF NOT EXISTS segment_session ON segment(session, sequence);
CREATE TABLE IF NOT EXISTS passage(
  id INTEGER PRIMARY KEY, segment INTEGER NOT NULL, ordinal INTEGER, start INTEGER, end INTEGER,
  length INTEGER, words TEXT);
CREATE UNIQUE INDEX IF NOT EXISTS passage_place ON passage(segment, ordinal);
CREATE VIRTUAL TABLE IF NOT EXISTS indexed USING fts5(
  words, content=passage, content_rowid=id, tokenize=ascii);
CREATE VIRTUAL TABLE IF NOT EXISTS vocabulary USING fts5vocab(indexed, row);
CREATE TABLE IF NOT EXISTS vector(passage INTEGER PRIMARY KEY, numbers BLOB);
CREATE TABLE IF NOT EXISTS session(name TEXT PRIMARY KEY, turn INTEGER, state BLOB);
CREATE TABLE IF NOT EXISTS path(
  session TEXT, position INTEGER, key BLOB, id BLOB, PRIMARY KEY(session, position)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS job(
  id INTEGER PRIMARY KEY, kind TEXT, key TEXT, payload BLOB, run_at REAL, UNIQUE(kind, key));
CREATE TABLE IF NOT EXISTS total(one INTEGER PRIMARY KEY, passages INTEGER, words INTEGER);
INSERT OR IGNORE INTO total VALUES (1, 0, 0);
"""
# `ORDER BY rank` sorts every match inside FTS5 before the limit; this way SQLite keeps only 50.
_FOUND: Final = "SELECT rowid FROM indexed WHERE indexed MATCH ? ORDER BY bm25(indexed) LIMIT ?"
_FREQUENCIES: Final = (
    "SELECT term, doc FROM vocabulary WHERE term IN (SELECT value FROM json_each(?))"
)
_CANDIDATES: Final = """
SELECT p.id, s.id, p.ordinal, s.key, s.session, s.sequence, s.role, s.said_at, s.trust, p.start,
       p.end, p.length, s.tool, p.words
FROM passage p JOIN segment s ON s.sequence = p.segment
WHERE p.id IN (SELECT value FROM json_each(?))
"""


class SqliteBaseline:
    """One file, one connection."""

    def __init__(self, path: Path) -> None:
        self._connection = apsw.Connection(str(path))
        for pragma in _PRAGMAS:
            self._connection.execute(pragma).fetchall()
        self._connection.execute(_SCHEMA).fetchall()
        self._ids: NDArray[np.int64] | None = None
        self._matrix: NDArray[np.float32] = np.empty((0, DIMENSIONS), dtype=np.float32)

    def write(self, batch: Batch) -> None:
        """All of a batch in one durable transaction."""
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        if batch.segments:
            self._write_segments(batch)
        if batch.session is not None:
            self._write_session(batch)
        connection.executemany(
            "INSERT OR IGNORE INTO job(kind, key, payload, run_at) VALUES (?, ?, ?, ?)",
            [(job.kind, job.key, job.payload, job.run_at) for job in batch.jobs],
        )
        for vectors in batch.vectors:
            connection.executemany(
                "INSERT OR IGNORE INTO vector SELECT p.id, ?3 FROM segment s"
                " JOIN passage p ON p.segment = s.sequence AND p.ordinal = ?2 WHERE s.id = ?1",
                [(bytes.fromhex(v.segment), v.ordinal, v.values) for v in vectors.vectors],
            )
            self._ids = None
        connection.execute("COMMIT")

    def _write_segments(self, batch: Batch) -> None:
        connection = self._connection
        passages = words = 0
        for new in batch.segments:
            segment = new.segment
            row = (
                *(bytes.fromhex(segment.id), segment.session, bytes.fromhex(segment.key)),
                *(bytes.fromhex(segment.message_id), segment.role, segment.text, segment.tokens),
                *(segment.said_at, segment.source, segment.trust, segment.noise, segment.tool),
                segment.origin,
            )
            connection.execute(
                "INSERT OR IGNORE INTO segment VALUES (NULL,?,?,?,?,?,?,?,?,?,?,?,?,?)", row
            )
            if not connection.changes():
                continue
            sequence = connection.last_insert_rowid()
            for ordinal, passage in enumerate(new.passages):
                text = " ".join(passage.words)
                connection.execute(
                    "INSERT INTO passage VALUES (NULL, ?, ?, ?, ?, ?, ?)",
                    (sequence, ordinal, passage.start, passage.end, len(passage.words), text),
                )
                connection.execute(
                    "INSERT INTO indexed(rowid, words) VALUES (?, ?)",
                    (connection.last_insert_rowid(), text),
                )
                passages += 1
                words += len(passage.words)
        connection.execute(
            "UPDATE total SET passages = passages + ?, words = words + ?", (passages, words)
        )

    def _write_session(self, batch: Batch) -> None:
        kept = batch.session
        assert kept is not None
        self._connection.execute(
            "INSERT INTO session VALUES (?, ?, ?) ON CONFLICT DO UPDATE"
            " SET turn = excluded.turn, state = excluded.state WHERE turn < excluded.turn",
            (kept.session, kept.turn, kept.state),
        )
        self._connection.executemany(
            "INSERT OR REPLACE INTO path VALUES (?, ?, ?, ?)",
            [
                (kept.session, position, bytes.fromhex(key), bytes.fromhex(id_))
                for position, (key, id_) in enumerate(
                    zip(kept.path, kept.ids, strict=True), kept.path_from
                )
            ],
        )

    def candidates(self, query: CandidateQuery) -> tuple[list[tuple[Any, ...]], Mapping[str, int]]:
        """The best by words and by vector, each with counts and similarity; frequencies."""
        connection = self._connection
        match = " OR ".join(f'"{word}"' for word in query.words)
        found = [row[0] for row in connection.execute(_FOUND, (match, query.lexical_limit))]
        counted: list[Any] = connection.execute(_FREQUENCIES, (_json_of(query.words),)).fetchall()
        connection.execute("SELECT passages, words FROM total").fetchall()
        ids, similarities = self._similarities(query)
        near = np.argpartition(-similarities, query.vector_limit)[: query.vector_limit]
        wanted = dict.fromkeys([*found, *ids[near].tolist()])
        rows: list[Any] = connection.execute(_CANDIDATES, (str(list(wanted)),)).fetchall()
        asked = frozenset(query.words)
        places = np.searchsorted(ids, [row[0] for row in rows])
        answered: list[tuple[Any, ...]] = []
        for row, similarity in zip(rows, similarities[places].tolist(), strict=True):
            counts: dict[str, int] = {}
            for word in row[-1].split(" "):
                if word in asked:
                    counts[word] = counts.get(word, 0) + 1
            answered.append((row[1].hex(), row[2], row[3].hex(), *row[4:-1], similarity, counts))
        return answered, dict(counted)

    def _similarities(self, query: CandidateQuery) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        (asked,) = query.vectors
        if self._ids is None:
            rows: list[Any] = self._connection.execute(
                "SELECT passage, numbers FROM vector ORDER BY passage"
            ).fetchall()
            self._ids = np.array([row[0] for row in rows], dtype=np.int64)
            joined = b"".join([row[1] for row in rows])
            self._matrix = np.frombuffer(joined, dtype="<f4").reshape(-1, DIMENSIONS)
        return self._ids, self._matrix @ np.frombuffer(asked.values, dtype="<f4")

    def settle(self) -> None:
        """What an operator would let happen between loading and asking."""
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def _json_of(words: tuple[str, ...]) -> str:
    return '["' + '","'.join(words) + '"]'
