"""The smaller parts of a batch: facts, jobs, ledger pieces and turns.

Each leaves out what a tombstone stands for: a piece or job that quotes a forgotten message, a
fact whose sources were all forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from recollect.stores.postgres.pool import Cursor, Transaction
from recollect.stores.postgres.wire import (
    bools,
    byteas,
    escaped,
    float8s,
    int8s,
    maybe_escaped,
    plain,
    texts,
)
from recollect.values.fact import Fact
from recollect.values.job import NewJob
from recollect.values.ledger import Piece, TurnRecord

_SOURCES: Final = """
    SELECT id FROM recollect.forgotten_segments WHERE space_id = %s AND id = ANY(%s::text[])
"""
_FACT: Final = """
    INSERT INTO recollect.facts (space_id, id, type, content, context, at, superseded_by,
        sources, trust, words, foreign_line)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s::text[], %s, %s::text[], %s)
    ON CONFLICT (space_id, id) DO UPDATE SET type = excluded.type, content = excluded.content,
        context = excluded.context, at = excluded.at, superseded_by = excluded.superseded_by,
        sources = excluded.sources, trust = excluded.trust, words = excluded.words,
        foreign_line = excluded.foreign_line
"""
_JOBS: Final = """
    INSERT INTO recollect.jobs
        (space_id, job_no, kind, key, payload, about, cost_tokens, run_at, state)
    SELECT %s, u.job_no, u.kind, u.key, u.payload,
           ARRAY(SELECT json_array_elements_text(u.about::json)), u.cost_tokens, u.run_at,
           'waiting'
    FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::bytea[], %s::text[], %s::bigint[],
        %s::float8[]) AS u (job_no, kind, key, payload, about, cost_tokens, run_at)
    ON CONFLICT DO NOTHING
"""
_DUE: Final = """
    UPDATE recollect.spaces SET jobs_due_at = %(at)s
    WHERE space_id = %(space)s AND (jobs_due_at IS NULL OR jobs_due_at > %(at)s)
"""
_PIECES: Final = """
    INSERT INTO recollect.pieces (space_id, hash, kind, body, about, exact)
    SELECT %s, u.hash, u.kind, u.body,
           ARRAY(SELECT json_array_elements_text(u.about::json)), u.exact
    FROM unnest(%s::text[], %s::text[], %s::bytea[], %s::text[], %s::boolean[])
        AS u (hash, kind, body, about, exact)
    ON CONFLICT DO NOTHING
"""
_TURNS: Final = """
    INSERT INTO recollect.turns (space_id, session, number, at, format, model, system_hash,
        tools_hash, rest_hash, edits_hash, report_hash, kept_rows, row_hashes)
    SELECT %s, u.session, u.number, u.at, u.format, u.model, u.system_hash, u.tools_hash,
           u.rest_hash, u.edits_hash, u.report_hash, u.kept_rows,
           ARRAY(SELECT json_array_elements_text(u.row_hashes::json))
    FROM unnest(%s::text[], %s::bigint[], %s::float8[], %s::text[], %s::text[], %s::text[],
        %s::text[], %s::text[], %s::text[], %s::text[], %s::bigint[], %s::text[])
        AS u (session, number, at, format, model, system_hash, tools_hash, rest_hash,
              edits_hash, report_hash, kept_rows, row_hashes)
    ON CONFLICT DO NOTHING
"""


async def look_at_sources(work: Transaction, sources: Iterable[str]) -> Cursor:
    """Queue the question which of these segments were forgotten."""
    return await work.send(_SOURCES, (work.space_id, texts(sources)))


async def facts(
    work: Transaction, given: Sequence[Fact], sources: Cursor | None, refused: frozenset[str]
) -> None:
    """Write facts, or replace those whose id is known."""
    forgotten = {plain(id_) for (id_,) in await sources.fetchall()} if sources else set()
    forgotten |= refused
    for fact in given:
        stands = [source for source in fact.sources if source not in forgotten]
        if fact.sources and not stands:
            continue
        await work.send(
            _FACT,
            (work.space_id, escaped(fact.id), fact.type, escaped(fact.content),
             escaped(fact.context), fact.at, maybe_escaped(fact.superseded_by), texts(stands),
             fact.trust, texts(fact.words), maybe_escaped(fact.foreign)),
        )  # fmt: skip


async def jobs(
    work: Transaction, given: Sequence[NewJob], next_job: int, tombstoned: frozenset[str]
) -> int:
    """Enqueue jobs that do not wait already; the next free number."""
    kept = [one for one in given if tombstoned.isdisjoint(one.about)]
    if not kept:
        return next_job
    await work.send(
        _JOBS,
        (
            work.space_id,
            int8s(list(range(next_job, next_job + len(kept)))),
            texts(one.kind for one in kept),
            texts(one.key for one in kept),
            byteas(one.payload for one in kept),
            texts(_json(one.about) for one in kept),
            int8s([one.cost_tokens for one in kept]),
            float8s([one.run_at for one in kept]),
        ),
    )
    await work.send(_DUE, {"at": min(one.run_at for one in kept), "space": work.space_id})
    return next_job + len(kept)


async def pieces(work: Transaction, given: Sequence[Piece], tombstoned: frozenset[str]) -> None:
    """Write pieces; what is there stays, and one that was forgotten itself stays away."""
    kept = [one for one in given if tombstoned.isdisjoint((one.hash, *one.about))]
    if kept:
        await work.send(
            _PIECES,
            (
                work.space_id,
                texts(one.hash for one in kept),
                texts(one.kind for one in kept),
                byteas(one.body for one in kept),
                texts(_json(one.about) for one in kept),
                bools([one.exact for one in kept]),
            ),
        )


async def turns(work: Transaction, given: Sequence[TurnRecord]) -> None:
    """Record turns; what is recorded stays."""
    if given:
        await work.send(
            _TURNS,
            (
                work.space_id,
                texts(one.session for one in given),
                int8s([one.number for one in given]),
                float8s([one.at for one in given]),
                texts(one.format for one in given),
                texts(one.model for one in given),
                texts(one.system for one in given),
                texts(one.tools for one in given),
                texts(one.rest for one in given),
                texts(one.edits for one in given),
                texts(one.report for one in given),
                int8s([one.kept_rows for one in given]),
                texts(_json(one.rows) for one in given),
            ),
        )


def _json(values: Sequence[str]) -> str:
    return msgspec.json.encode([escaped(value) for value in values]).decode()
