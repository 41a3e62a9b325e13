"""The smaller parts of a batch: jobs, ledger pieces and turns.

Each leaves out what a tombstone stands for: a piece or job that quotes a forgotten message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from recollect.stores.postgres.pool import Transaction
from recollect.stores.postgres.wire import (
    bools,
    byteas,
    escaped,
    float8s,
    int8s,
    texts,
)
from recollect.values.job import NewJob
from recollect.values.ledger import Piece, TurnRecord

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
