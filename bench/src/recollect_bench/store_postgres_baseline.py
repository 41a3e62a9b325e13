"""Hand-written PostgreSQL: what someone who knows it would write for this one job, and no more.

Owns the baseline that the store bench holds `PostgresStore` against: one connection, prepared
statements with binary parameters, INSERT from unnest in one durable transaction, a row for each
word of a passage, exact search over `halfvec`, no row-level security. It keeps none of the
promises around them (tombstones, forgetting, several embedders). Always holds: it answers with
the same kind of candidates, so that both do the same work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

import numpy as np
import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format
from psycopg.types import TypeInfo

from recollect.core.values.batch import Batch
from recollect.core.values.recall import CandidateQuery
from recollect_bench.store_data import DIMENSIONS

_SCHEMA: Final = f"""
CREATE TABLE space(
  space uuid PRIMARY KEY, sequence bigint NOT NULL, passages bigint NOT NULL,
  words bigint NOT NULL);
CREATE TABLE segment(
  space uuid, sequence bigint, id uuid NOT NULL, session text, key uuid, message_id uuid,
  role text, text text, tokens int, said_at float8, source text, trust text, noise text,
  tool text, origin text,
  PRIMARY KEY (space, sequence), UNIQUE (space, id));
CREATE TABLE passage(
  space uuid, id bigint, segment bigint, ordinal int, first int, last int, length int,
  PRIMARY KEY (space, id), UNIQUE (space, segment, ordinal));
CREATE TABLE posting(
  space uuid, word text COLLATE "C", passage bigint, count int2, length int2,
  PRIMARY KEY (space, word, passage) INCLUDE (count, length));
CREATE TABLE bag(space uuid, passage bigint, words text, PRIMARY KEY (space, passage));
CREATE TABLE vector(
  space uuid, passage bigint, numbers halfvec({DIMENSIONS}) STORAGE PLAIN,
  PRIMARY KEY (space, passage));
CREATE TABLE session(space uuid, name text, turn int, state bytea, PRIMARY KEY (space, name));
CREATE TABLE path(
  space uuid, session text, position int, key uuid, id uuid,
  PRIMARY KEY (space, session, position));
CREATE TABLE job(
  space uuid, kind text, key text, payload bytea, run_at float8, PRIMARY KEY (space, kind, key));
"""
_INTO_SEGMENT: Final = """
INSERT INTO segment SELECT %b, u.* FROM unnest(%b::bigint[], %b::uuid[], %b::text[], %b::uuid[],
  %b::uuid[], %b::text[], %b::text[], %b::int[], %b::float8[], %b::text[], %b::text[], %b::text[],
  %b::text[], %b::text[]) u ON CONFLICT DO NOTHING
"""
_INTO_PASSAGE: Final = """
INSERT INTO passage SELECT %b, u.* FROM unnest(%b::bigint[], %b::bigint[], %b::int[], %b::int[],
  %b::int[], %b::int[]) u
"""
_INTO_POSTING: Final = """
INSERT INTO posting SELECT %b, u.* FROM unnest(%b::text[], %b::bigint[], %b::int2[], %b::int2[]) u
"""
_INTO_BAG: Final = "INSERT INTO bag SELECT %b, u.* FROM unnest(%b::bigint[], %b::text[]) u"
_INTO_VECTOR: Final = """
INSERT INTO vector SELECT %b, (
  SELECT p.id FROM segment s
  JOIN passage p ON p.space = %b AND p.segment = s.sequence AND p.ordinal = u.ordinal
  WHERE s.space = %b AND s.id = u.id), u.numbers
FROM unnest(%b::uuid[], %b::int[], %b::halfvec[]) u(id, ordinal, numbers) ON CONFLICT DO NOTHING
"""
_LEXICAL: Final = """
WITH held AS MATERIALIZED (
  SELECT word, passage, count::float8, length::float8 FROM posting
  WHERE space = %b AND word = ANY(%b)),
total AS MATERIALIZED (
  SELECT passages, words, 0.9::float8 * passages / greatest(words, 1) AS per_word
  FROM space WHERE space = %b),
frequency AS MATERIALIZED (
  SELECT word, f.passages, 2.2 * ln(1 + (total.passages - f.passages + 0.5) / (f.passages + 0.5))
    AS worth
  FROM (SELECT word, count(*)::float8 AS passages FROM held GROUP BY word) f, total),
best AS (
  SELECT passage FROM held JOIN frequency USING (word), total GROUP BY passage
  ORDER BY sum(worth * count / (count + 0.3::float8 + length * per_word)) DESC LIMIT %b)
SELECT (SELECT array_agg(passage) FROM best),
  (SELECT array_agg(word) FROM frequency), (SELECT array_agg(passages::int) FROM frequency),
  passages, words FROM total
"""
_NEAREST: Final = """
SELECT passage FROM vector WHERE space = %b ORDER BY numbers <#> %b::halfvec LIMIT %b
"""
_CANDIDATES: Final = """
SELECT p.id, s.id, p.ordinal, s.key, s.session, s.sequence, s.role, s.said_at, s.trust, p.first,
  p.last, p.length, s.tool, -(v.numbers <#> %b::halfvec)
FROM passage p JOIN segment s ON s.space = %b AND s.sequence = p.segment
LEFT JOIN vector v ON v.space = %b AND v.passage = p.id
WHERE p.space = %b AND p.id = ANY(%b)
"""
_COUNTS: Final = """
SELECT passage, word, count FROM posting WHERE space = %b AND word = ANY(%b) AND passage = ANY(%b)
"""


class _Halfvec:
    """A vector on its way: pgvector's binary form."""

    __slots__ = ("wire",)

    def __init__(self, values: bytes) -> None:
        halves = np.frombuffer(values, dtype="<f4").astype(">f2")
        self.wire = len(halves).to_bytes(2, "big") + b"\0\0" + halves.tobytes()


class _HalfvecDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: _Halfvec) -> bytes:
        return obj.wire


class PostgresBaseline:
    """One connection; its tables stand in a schema of their own.

    With `indexed` off it only keeps the words with their passage, as one would who leaves the
    inverted index to a later job; it cannot be asked then.
    """

    def __init__(self, url: str, *, space: UUID, indexed: bool = True) -> None:
        self._space = space
        self._indexed = indexed
        self._connection = psycopg.connect(url, autocommit=True, prepare_threshold=2)
        schema = f"bench_{space.hex}"
        self._connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        self._connection.execute(f"CREATE SCHEMA {schema}".encode())
        self._connection.execute(f"SET search_path = {schema}, public".encode())
        self._connection.execute(_SCHEMA.encode())
        self._connection.execute("SET plan_cache_mode = force_custom_plan")
        type_info = TypeInfo.fetch(self._connection, "halfvec")
        assert type_info is not None
        type_info.register(self._connection)
        _HalfvecDumper.oid = type_info.oid
        self._connection.adapters.register_dumper(_Halfvec, _HalfvecDumper)
        self._connection.execute("INSERT INTO space VALUES (%b, 0, 0, 0)", [space])

    def write(self, batch: Batch) -> None:
        """All of a batch in one durable transaction."""
        with self._connection.transaction():
            if batch.segments:
                self._write_segments(batch)
            self._write_session_and_jobs(batch)
            for vectors in batch.vectors:
                named = [UUID(hex=vector.segment) for vector in vectors.vectors]
                ordinals = [vector.ordinal for vector in vectors.vectors]
                numbers = [_Halfvec(vector.values) for vector in vectors.vectors]
                self._connection.execute(
                    _INTO_VECTOR,
                    [self._space, self._space, self._space, named, ordinals, numbers],
                )

    def _write_segments(self, batch: Batch) -> None:
        connection, space = self._connection, self._space
        passages = [
            (index, ordinal, passage)
            for index, new in enumerate(batch.segments)
            for ordinal, passage in enumerate(new.passages)
        ]
        row = connection.execute(
            "UPDATE space SET sequence = sequence + %b, passages = passages + %b,"
            " words = words + %b WHERE space = %b RETURNING sequence, passages",
            [len(batch.segments), len(passages), sum(len(p.words) for *_, p in passages), space],
        ).fetchone()
        assert row is not None
        sequences = range(row[0] - len(batch.segments), row[0])
        ids = range(row[1] - len(passages), row[1])
        connection.execute(_INTO_SEGMENT, [space, list(sequences), *_segment_columns(batch)])
        connection.execute(
            _INTO_PASSAGE,
            [
                *(space, list(ids), [sequences[index] for index, *_ in passages]),
                *([ordinal for _, ordinal, _ in passages], [p.start for *_, p in passages]),
                *([p.end for *_, p in passages], [len(p.words) for *_, p in passages]),
            ],
        )
        self._write_words(
            [(id_, passage.words) for id_, (*_, passage) in zip(ids, passages, strict=True)]
        )

    def _write_words(self, passages: list[tuple[int, tuple[str, ...]]]) -> None:
        if not self._indexed:
            ids = [id_ for id_, _ in passages]
            bags = [" ".join(words) for _, words in passages]
            self._connection.execute(_INTO_BAG, [self._space, ids, bags])
            return
        postings = sorted(
            (word, id_, count, len(words))
            for id_, words in passages
            for word, count in Counter(words).items()
        )
        columns = [list(column) for column in zip(*postings, strict=True)]
        self._connection.execute(_INTO_POSTING, [self._space, *columns])

    def _write_session_and_jobs(self, batch: Batch) -> None:
        connection, space, kept = self._connection, self._space, batch.session
        if kept is not None:
            connection.execute(
                "INSERT INTO session VALUES (%b, %b, %b, %b) ON CONFLICT (space, name) DO UPDATE"
                " SET turn = excluded.turn, state = excluded.state"
                " WHERE session.turn < excluded.turn",
                [space, kept.session, kept.turn, kept.state],
            )
            positions = list(range(kept.path_from, kept.path_from + len(kept.path)))
            connection.execute(
                "INSERT INTO path SELECT %b, %b, u.* FROM unnest(%b::int[], %b::uuid[], %b::uuid[])"
                " u ON CONFLICT (space, session, position) DO UPDATE"
                " SET key = excluded.key, id = excluded.id",
                [space, kept.session, positions, _uuids(kept.path), _uuids(kept.ids)],
            )
        for job in batch.jobs:
            connection.execute(
                "INSERT INTO job VALUES (%b, %b, %b, %b, %b) ON CONFLICT DO NOTHING",
                [space, job.kind, job.key, job.payload, job.run_at],
            )

    def candidates(self, query: CandidateQuery) -> tuple[list[tuple[Any, ...]], Mapping[str, int]]:
        """The best by words and by vector, each with counts and similarity; frequencies."""
        (near_to,) = query.vectors
        connection, space, words = self._connection, self._space, list(query.words)
        asked = _Halfvec(near_to.values)
        row = connection.execute(
            _LEXICAL, [space, words, space, query.lexical_limit], binary=True
        ).fetchone()
        assert row is not None
        near = connection.execute(_NEAREST, [space, asked, query.vector_limit], binary=True)
        wanted = list({*(row[0] or ()), *(passage for (passage,) in near)})
        rows = connection.execute(
            _CANDIDATES, [asked, space, space, space, wanted], binary=True
        ).fetchall()
        counts: dict[int, dict[str, int]] = {passage: {} for passage in wanted}
        for passage, word, count in connection.execute(
            _COUNTS, [space, words, wanted], binary=True
        ):
            counts[passage][word] = count
        answered = [
            (other[1].hex, other[2], other[3].hex, *other[4:], counts[other[0]]) for other in rows
        ]
        return answered, dict(zip(row[1] or (), row[2] or (), strict=True))

    def settle(self) -> None:
        """What autovacuum would do between loading and asking."""
        self._connection.execute("VACUUM ANALYZE")

    def close(self) -> None:
        """Remove the tables and close the connection."""
        self._connection.execute(f"DROP SCHEMA bench_{self._space.hex} CASCADE".encode())
        self._connection.close()


def _uuids(named: tuple[str, ...]) -> list[UUID]:
    return [UUID(hex=one) for one in named]


def _segment_columns(batch: Batch) -> list[list[Any]]:
    rows = [
        (
            *(
                UUID(hex=segment.id),
                segment.session,
                UUID(hex=segment.key),
                UUID(hex=segment.message_id),
            ),
            *(
                segment.role,
                segment.text,
                segment.tokens,
                segment.said_at,
                segment.source,
                segment.trust,
            ),
            *(
                segment.noise,
                segment.tool,
                segment.origin,
            ),
        )
        for segment in (new.segment for new in batch.segments)
    ]
    return [list(column) for column in zip(*rows, strict=True)]
