"""The tables of a space, and the steps that migrate an older file, all in one transaction.

A passage's words are indexed in `words`, and also stored in another table, because FTS5 needs them
to remove a passage without a trace. A passage's number includes its length (`archive.py`), so that
scoring needs no join."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# All printable ASCII characters except letters and digits, and the escape character. For the
# tokenizer `ascii`, all other characters are parts of words; it folds only A to Z.
_WORD_SIGNS: Final = "".join(
    sign for sign in map(chr, range(0x21, 0x7F)) if not sign.isalnum() and sign not in "'\""
)
ESCAPE_SIGN: Final = "\x02"
_TOKENIZER: Final = f"\"ascii tokenchars '{_WORD_SIGNS}{ESCAPE_SIGN}'\""

TABLES: Final = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE totals (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  next_sequence INTEGER NOT NULL DEFAULT 1, next_passage INTEGER NOT NULL DEFAULT 1,
  next_job INTEGER NOT NULL DEFAULT 1, next_fact INTEGER NOT NULL DEFAULT 1,
  segments INTEGER NOT NULL DEFAULT 0, noise INTEGER NOT NULL DEFAULT 0,
  tokens INTEGER NOT NULL DEFAULT 0, documents INTEGER NOT NULL DEFAULT 0,
  words INTEGER NOT NULL DEFAULT 0, removals INTEGER NOT NULL DEFAULT 0,
  facts_revision INTEGER NOT NULL DEFAULT 0
);
INSERT INTO totals (id) VALUES (1);

CREATE TABLE session (
  number INTEGER PRIMARY KEY, name NOT NULL UNIQUE, turn INTEGER,
  length INTEGER NOT NULL DEFAULT 0, state BLOB
);
CREATE TABLE path (
  session INTEGER NOT NULL REFERENCES session (number), start INTEGER NOT NULL,
  count INTEGER NOT NULL, keys NOT NULL, ids NOT NULL,
  PRIMARY KEY (session, start)
) WITHOUT ROWID;
-- The quoted messages have their own table, because there may be thousands.
CREATE TABLE quoted (
  session INTEGER NOT NULL REFERENCES session (number), chunk INTEGER NOT NULL, ids NOT NULL,
  PRIMARY KEY (session, chunk)
) WITHOUT ROWID;

CREATE TABLE segment (
  sequence INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,
  session INTEGER NOT NULL REFERENCES session (number), key NOT NULL, message_id TEXT NOT NULL,
  role TEXT NOT NULL, tokens INTEGER NOT NULL, said_at REAL NOT NULL, source TEXT NOT NULL,
  trust TEXT NOT NULL, noise, tool, origin, text NOT NULL, foreign_line
);
CREATE INDEX segment_session ON segment (session, sequence, said_at);
CREATE INDEX segment_message ON segment (message_id);
-- Finds the neighbors, which every recall asks for.
CREATE INDEX segment_place ON segment (session, sequence) WHERE noise IS NULL;
CREATE TABLE passage (
  id INTEGER PRIMARY KEY, segment INTEGER NOT NULL REFERENCES segment (sequence),
  ordinal INTEGER NOT NULL, start INTEGER NOT NULL, stop INTEGER NOT NULL,
  length INTEGER NOT NULL, embedded INTEGER NOT NULL,
  UNIQUE (segment, ordinal)
);
CREATE TABLE words_bag (id INTEGER PRIMARY KEY, bag TEXT NOT NULL);
CREATE VIRTUAL TABLE words USING fts5(
  bag, content='words_bag', content_rowid='id', columnsize=0, tokenize={_TOKENIZER}
);
INSERT INTO words(words, rank) VALUES ('secure-delete', 1);
CREATE VIRTUAL TABLE words_at USING fts5vocab(words, instance);

CREATE TABLE embedder (
  number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, dimensions INTEGER NOT NULL,
  next_block INTEGER NOT NULL DEFAULT 1, change INTEGER NOT NULL DEFAULT 0,
  complete_to INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE vector_block (
  embedder INTEGER NOT NULL REFERENCES embedder (number), number INTEGER NOT NULL,
  count INTEGER NOT NULL, unit INTEGER NOT NULL, passages BLOB NOT NULL, numbers BLOB NOT NULL,
  UNIQUE (embedder, number, count)
);
CREATE TABLE vector_at (
  embedder INTEGER NOT NULL REFERENCES embedder (number), passage INTEGER NOT NULL,
  PRIMARY KEY (embedder, passage)
) WITHOUT ROWID;

-- A fact's number is never reused. A replacement is a new row, so words and vectors of the old fact
-- are never mistaken for the new one's. Words are stored as numbers (`stores/invariants.py`).
-- fact_word and fact_vector contain current facts only.
CREATE TABLE fact (
  number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, current INTEGER NOT NULL,
  type TEXT NOT NULL, at REAL NOT NULL, superseded_by TEXT, trust TEXT NOT NULL, sources, words,
  content NOT NULL, context NOT NULL, foreign_line, valid_to REAL, recorded_at REAL,
  subject NOT NULL, attribute NOT NULL, evidence, made_by TEXT NOT NULL, change TEXT, session,
  pinned INTEGER NOT NULL, joint INTEGER NOT NULL
);
CREATE INDEX fact_current ON fact (session, number) WHERE current;
CREATE INDEX fact_pinned ON fact (number) WHERE current AND pinned;
CREATE TABLE fact_word (
  word INTEGER NOT NULL, fact INTEGER NOT NULL REFERENCES fact (number),
  PRIMARY KEY (word, fact)
) WITHOUT ROWID;
CREATE INDEX fact_word_fact ON fact_word (fact);
CREATE TABLE fact_vector (
  id INTEGER PRIMARY KEY, embedder INTEGER NOT NULL REFERENCES embedder (number),
  fact INTEGER NOT NULL REFERENCES fact (number), numbers BLOB NOT NULL,
  UNIQUE (embedder, fact)
);
CREATE INDEX fact_vector_fact ON fact_vector (fact);
CREATE TABLE extracted (session TEXT PRIMARY KEY, sequence INTEGER NOT NULL) WITHOUT ROWID;

CREATE TABLE job (
  number INTEGER PRIMARY KEY, kind TEXT NOT NULL, key TEXT NOT NULL, state TEXT NOT NULL,
  run_at REAL NOT NULL, attempts INTEGER NOT NULL DEFAULT 0, cost_tokens INTEGER NOT NULL,
  token TEXT, expires_at REAL, reason, about, payload BLOB NOT NULL
);
CREATE INDEX job_due ON job (state, run_at, number);
CREATE INDEX job_key ON job (kind, key);
CREATE TABLE budget (day TEXT PRIMARY KEY, spent_tokens INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE model_use (
  day TEXT NOT NULL, purpose TEXT NOT NULL, calls INTEGER NOT NULL,
  input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL,
  PRIMARY KEY (day, purpose)
) WITHOUT ROWID;
CREATE TABLE paused (kind TEXT PRIMARY KEY) WITHOUT ROWID;

CREATE TABLE piece (
  hash TEXT PRIMARY KEY, kind TEXT NOT NULL, exact INTEGER NOT NULL, about, body BLOB NOT NULL
);
CREATE TABLE turn (
  session INTEGER NOT NULL REFERENCES session (number), number INTEGER NOT NULL,
  at REAL NOT NULL, kept_rows INTEGER NOT NULL, head NOT NULL, rows NOT NULL,
  PRIMARY KEY (session, number)
) WITHOUT ROWID;
CREATE TABLE compaction (
  id INTEGER PRIMARY KEY, session INTEGER NOT NULL REFERENCES session (number),
  number INTEGER NOT NULL, at REAL NOT NULL, about, body BLOB NOT NULL,
  UNIQUE (session, number)
);
-- Each compaction names all messages before it. The lists share their common part.
CREATE TABLE id_chunk (hash BLOB PRIMARY KEY, ids BLOB NOT NULL) WITHOUT ROWID;

CREATE TABLE tombstone (message_id TEXT PRIMARY KEY, at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE gone_segment (id TEXT PRIMARY KEY, message_id TEXT) WITHOUT ROWID;
CREATE INDEX gone_message ON gone_segment (message_id);
"""  # noqa: S608

# Drop topics and entities: an export computes them, and no query read them.
_NO_TAGS: Final = """
ALTER TABLE segment DROP COLUMN topics;
ALTER TABLE segment DROP COLUMN entities;
"""
_SHARED_IDS: Final = """
CREATE TABLE id_chunk (hash BLOB PRIMARY KEY, ids BLOB NOT NULL) WITHOUT ROWID;
"""
# Earlier versions removed old segments from the index. This step indexes them again.
_NO_COLD: Final = """
INSERT INTO words_bag (id, bag) SELECT id, bag FROM cold_words_bag;
INSERT INTO words (rowid, bag) SELECT id, bag FROM cold_words_bag;
UPDATE totals SET documents = documents + cold_documents, words = words + (
  SELECT coalesce(sum(p.length), 0) FROM passage AS p
  JOIN segment AS g ON g.sequence = p.segment WHERE g.cold
);
DROP TABLE cold_words_at;
DROP TABLE cold_words;
DROP TABLE cold_words_bag;
DROP INDEX segment_cold;
DROP INDEX segment_warm;
DROP INDEX segment_place;
ALTER TABLE segment DROP COLUMN cold;
CREATE INDEX segment_place ON segment (session, sequence) WHERE noise IS NULL;
ALTER TABLE totals DROP COLUMN cold;
ALTER TABLE totals DROP COLUMN cold_documents;
ALTER TABLE totals RENAME COLUMN cold_change TO removals;
UPDATE embedder SET complete_to = 0;
"""
VERSION: Final = 6
"""Version of `TABLES`. A change of the tables increases it, and adds a migration."""
MIGRATIONS: Final[Mapping[int, str]] = {
    2: _NO_TAGS,
    3: _SHARED_IDS,
    4: "",  # from version 5 on, texts of messages may be compressed
    5: _NO_COLD,
}
"""SQL that migrates from version n to n + 1. Files of version 1 were never released."""
