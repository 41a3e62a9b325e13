"""The job queue of a space: leases, and a daily budget that is never exceeded.

Leasing, returning and reviving jobs lock the space first, as all writers do. The transaction that
leases a job also charges the budget. `spaces.jobs_due_at` is never later than the next job or the
next expiring lease, so that workers find every space. If no due job can be leased (because of the
budget, or the wanted kinds), `jobs_due_at` moves a little, so that workers can serve other spaces.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from recollect.adapters.stores.postgres import driver
from recollect.adapters.stores.postgres.link import Statement
from recollect.adapters.stores.postgres.pool import Transaction
from recollect.adapters.stores.postgres.space import COUNTERS, lock_existing_space
from recollect.core.values.batch import JobRecord, Lease, NewJob, QueueState
from recollect.core.values.model import ModelUse

_DAYS_KEPT: Final = 7
"""Number of days for which the spent budget is recorded."""
_ASK_AGAIN_SECONDS: Final = 30.0
"""After finding due jobs in a space but leasing none, workers skip the space for this long."""

_GIVE_UP: Final = """
    UPDATE recollect.jobs SET state = 'dead', lease_token = NULL, lease_expires_at = NULL,
        reason = coalesce(reason || '; ', '') || 'taken ' || attempts || ' times without an answer'
    WHERE space_id = %s AND state = 'leased' AND lease_expires_at <= %s AND attempts >= %s
        AND kind = ANY(%s::text[])
"""
_DUE: Final = """
    SELECT job_no::text AS id, kind, key, payload, cost_tokens, attempts + 1 AS attempt
    FROM recollect.jobs WHERE space_id = %(space)s AND kind = ANY(%(kinds)s::text[]) AND (
        (state = 'waiting' AND run_at <= %(now)s)
        OR (state = 'leased' AND lease_expires_at <= %(now)s)
    ) AND NOT EXISTS (
        SELECT FROM recollect.job_pauses AS p
        WHERE p.space_id = %(space)s AND p.kind IN ('*', jobs.kind)
    ) AND (cost_tokens = 0 OR %(day_tokens)s::bigint IS NULL OR cost_tokens <= %(day_tokens)s - (
        SELECT tokens FROM recollect.job_budgets WHERE space_id = %(space)s AND day = %(day)s
    ))
    ORDER BY run_at, job_no LIMIT 1 FOR UPDATE SKIP LOCKED
"""
_OPEN_DAY: Final = """
    INSERT INTO recollect.job_budgets (space_id, day, tokens)
    SELECT space_id, %s, 0 FROM recollect.counters WHERE space_id = %s
    ON CONFLICT DO NOTHING RETURNING 1
"""
_DROP_DAYS: Final = """
    DELETE FROM recollect.job_budgets WHERE space_id = %(space)s AND day < (
        SELECT min(d.day) FROM (
            SELECT day FROM recollect.job_budgets WHERE space_id = %(space)s
            ORDER BY day DESC LIMIT %(days)s
        ) AS d
    )
"""
_CHARGE: Final = """
    UPDATE recollect.job_budgets SET tokens = tokens + %s WHERE space_id = %s AND day = %s
"""
_LEASE: Final = """
    UPDATE recollect.jobs SET state = 'leased', attempts = attempts + 1, lease_token = %s,
        lease_expires_at = %s
    WHERE space_id = %s AND job_no = %s
"""
_HEARTBEAT: Final = """
    UPDATE recollect.jobs SET lease_expires_at = %s
    WHERE space_id = %s AND job_no = %s AND lease_token = %s AND state = 'leased' RETURNING 1
"""
_TAKE: Final = """
    DELETE FROM recollect.jobs
    WHERE space_id = %s AND job_no = %s AND lease_token = %s AND state = 'leased' RETURNING 1
"""
_LEASED: Final = """
    SELECT 1 FROM recollect.jobs
    WHERE space_id = %s AND job_no = %s AND lease_token = %s AND state = 'leased' FOR UPDATE
"""
_GIVE_BACK: Final = """
    UPDATE recollect.jobs SET reason = %(reason)s, lease_token = NULL, lease_expires_at = NULL,
        state = CASE WHEN %(retry_at)s::float8 IS NULL THEN 'dead' ELSE 'waiting' END,
        run_at = coalesce(%(retry_at)s::float8, run_at)
    WHERE space_id = %(space)s AND job_no = %(job)s
"""
_DROP_TWIN: Final = """
    DELETE FROM recollect.jobs AS twin USING recollect.jobs AS job
    WHERE twin.space_id = %(space)s AND job.space_id = %(space)s AND job.job_no = %(job)s
        AND twin.kind = job.kind AND md5(twin.key) = md5(job.key) AND twin.state = 'waiting'
"""
_DROP_DEAD_TWINS: Final = """
    DELETE FROM recollect.jobs AS twin USING recollect.jobs AS job
    WHERE twin.space_id = %(space)s AND job.space_id = %(space)s
        AND twin.kind = job.kind AND md5(twin.key) = md5(job.key) AND twin.state = 'dead'
        AND (job.state = 'waiting' OR job.state = 'dead' AND job.job_no < twin.job_no)
    RETURNING twin.job_no
"""
_REVIVE: Final = """
    UPDATE recollect.jobs SET state = 'waiting', attempts = 0, run_at = %s
    WHERE space_id = %s AND state = 'dead' RETURNING 1
"""
_LIST: Final = """
    SELECT job_no::text AS id, kind, key, state, attempts, run_at, cost_tokens, reason
    FROM recollect.jobs WHERE space_id = %s ORDER BY run_at, job_no LIMIT %s
"""
_COUNTS: Final = """
    SELECT count(*) FILTER (WHERE state = 'waiting') AS waiting,
           count(*) FILTER (WHERE state = 'leased') AS leased,
           count(*) FILTER (WHERE state = 'dead') AS dead,
           min(run_at) FILTER (WHERE state = 'waiting') AS due_at
    FROM recollect.jobs WHERE space_id = %s
"""
_PAUSED: Final = "SELECT kind FROM recollect.job_pauses WHERE space_id = %s ORDER BY kind"
_SPENT: Final = "SELECT tokens FROM recollect.job_budgets WHERE space_id = %s AND day = %s"
_ADD_USE: Final = """
    INSERT INTO recollect.model_use
        (space_id, day, purpose, calls, input_tokens, output_tokens)
    VALUES (%s, %s, %s, %s, %s, %s)
    ON CONFLICT (space_id, day, purpose) DO UPDATE SET
        calls = model_use.calls + excluded.calls,
        input_tokens = model_use.input_tokens + excluded.input_tokens,
        output_tokens = model_use.output_tokens + excluded.output_tokens
"""
_USE: Final = """
    SELECT purpose, sum(calls)::bigint AS calls, sum(input_tokens)::bigint AS input_tokens,
           sum(output_tokens)::bigint AS output_tokens
    FROM recollect.model_use WHERE space_id = %s AND day >= %s GROUP BY purpose ORDER BY purpose
"""
_PAUSE: Final = """
    INSERT INTO recollect.job_pauses (space_id, kind) VALUES (%s, %s) ON CONFLICT DO NOTHING
"""
_RESUME: Final = "DELETE FROM recollect.job_pauses WHERE space_id = %s AND kind = %s"
DROP: Final = driver.delete("jobs", "job_no", "bigint")
_LOCK_SPACE: Final = "SELECT 1 FROM recollect.spaces WHERE space_id = %s FOR UPDATE"
_SET_DUE: Final = """
    UPDATE recollect.spaces SET jobs_due_at = (
        SELECT min(CASE WHEN j.state = 'waiting' THEN j.run_at ELSE j.lease_expires_at END)
        FROM recollect.jobs AS j
        WHERE j.space_id = %(space)s AND j.state IN ('waiting', 'leased') AND NOT EXISTS (
            SELECT FROM recollect.job_pauses AS p
            WHERE p.space_id = %(space)s AND p.kind IN ('*', j.kind)
        )
    )
    WHERE space_id = %(space)s
"""
_PUT_OFF: Final = """
    UPDATE recollect.spaces SET jobs_due_at = %(later)s
    WHERE space_id = %(space)s AND jobs_due_at <= %(now)s
"""


async def claim(
    work: Transaction,
    *,
    now: float,
    lease_seconds: float,
    kinds: Sequence[str],
    day: str = "",
    day_tokens: int | None = None,
    max_attempts: int = 5,
) -> Lease | None:
    lock_query = await work.send(COUNTERS, (work.space_id,))
    await work.send(_GIVE_UP, (work.space_id, now, max_attempts, driver.texts(kinds)))
    day_query = await work.send(_OPEN_DAY, (day, work.space_id))
    rows = await work.records(
        _DUE,
        {"space": work.space_id, "kinds": driver.texts(kinds), "now": now, "day": day,
         "day_tokens": day_tokens},
    )  # fmt: skip
    if await lock_query.fetchone() is None:
        return None  # the space does not exist
    if await day_query.fetchone() is not None:
        await work.send(_DROP_DAYS, {"space": work.space_id, "days": _DAYS_KEPT})
    lease = None
    for row in rows:
        lease = Lease(**row, token=secrets.token_hex(16), expires_at=now + lease_seconds)
        await work.send(_LEASE, (lease.token, lease.expires_at, work.space_id, int(lease.id)))
        if lease.cost_tokens:
            await work.send(_CHARGE, (lease.cost_tokens, work.space_id, day))
    await store_due_at(work)
    if lease is None:
        later = now + _ASK_AGAIN_SECONDS
        await work.send(_PUT_OFF, {"space": work.space_id, "now": now, "later": later})
    return lease


async def store_due_at(work: Transaction) -> None:
    """Store when the space's next job is due. Lock the space first, so that the time is current."""
    await work.send(_LOCK_SPACE, (work.space_id,))
    await work.send(_SET_DUE, {"space": work.space_id})


async def heartbeat(work: Transaction, lease: Lease, *, expires_at: float) -> bool:
    arguments = (expires_at, work.space_id, int(lease.id), lease.token)
    return await work.row(_HEARTBEAT, arguments) is not None


async def take_job(work: Transaction, lease: Lease) -> Statement:
    """Lock the space and delete a finished job. With a valid lease, the result has one row."""
    await work.send(COUNTERS, (work.space_id,))
    return await work.send(_TAKE, (work.space_id, int(lease.id), lease.token))


async def fail(work: Transaction, lease: Lease, *, reason: str, retry_at: float | None) -> bool:
    if not await lock_existing_space(work):
        return False
    if await work.row(_LEASED, (work.space_id, int(lease.id), lease.token)) is None:
        return False
    arguments = {
        "space": work.space_id, "job": int(lease.id), "reason": reason, "retry_at": retry_at
    }  # fmt: skip
    if retry_at is not None:  # the same job may have been enqueued again meanwhile: keep only one
        await work.send(_DROP_TWIN, arguments)
    await work.send(_GIVE_BACK, arguments)
    await store_due_at(work)
    return True


async def list_jobs(work: Transaction, *, limit: int = 100) -> tuple[JobRecord, ...]:
    return tuple(JobRecord(**row) for row in await work.records(_LIST, (work.space_id, limit)))


async def read_queue(work: Transaction, *, day: str = "") -> QueueState:
    count_query = await work.send(_COUNTS, (work.space_id,))
    pause_query = await work.send(_PAUSED, (work.space_id,))
    tokens = await (await work.send(_SPENT, (work.space_id, day))).fetchone()
    (counts,) = await count_query.records()
    return QueueState(
        paused=tuple(kind for (kind,) in await pause_query.fetchall()),
        spent_tokens_today=tokens[0] if tokens is not None else 0,
        **counts,
    )


async def add_model_use(work: Transaction, use: ModelUse, *, day: str) -> None:
    counts = (use.calls, use.input_tokens, use.output_tokens)
    await work.send(_ADD_USE, (work.space_id, day, use.purpose, *counts))


async def read_model_use(work: Transaction, *, since: str = "") -> tuple[ModelUse, ...]:
    return tuple(ModelUse(**row) for row in await work.records(_USE, (work.space_id, since)))


async def pause(work: Transaction, kind: str = "*") -> None:
    await work.send(_PAUSE, (work.space_id, kind))
    await store_due_at(work)


async def resume(work: Transaction, kind: str = "*") -> None:
    await work.send(_RESUME, (work.space_id, kind))
    await store_due_at(work)


async def revive(work: Transaction, *, at: float) -> int:
    """Queue dead jobs again, except those whose key is already in the queue."""
    if not await lock_existing_space(work):
        return 0
    drop_query = await work.send(_DROP_DEAD_TWINS, {"space": work.space_id})
    revived_rows = await work.rows(_REVIVE, (at, work.space_id))
    await store_due_at(work)
    return len(revived_rows) + len(await drop_query.fetchall())


_ADD: Final = driver.RowInsert(
    "jobs",
    "job_no bigint, kind text, key text, payload bytea, about text[], cost_tokens bigint, "
    "run_at float8, state text",
)
_BRING_FORWARD: Final = """
    UPDATE recollect.spaces SET jobs_due_at = %(at)s
    WHERE space_id = %(space)s AND (jobs_due_at IS NULL OR jobs_due_at > %(at)s)
"""


async def add_jobs(
    work: Transaction, jobs: Sequence[NewJob], next_job: int, tombstones: AbstractSet[str]
) -> int:
    """Enqueue the jobs whose key is not yet in the queue. Return the next free number."""
    new_jobs = [job for job in jobs if tombstones.isdisjoint(job.about)]
    if new_jobs:
        rows = [
            (number, job.kind, job.key, job.payload, job.about, job.cost_tokens, job.run_at,
             "waiting")
            for number, job in enumerate(new_jobs, next_job)
        ]  # fmt: skip
        await work.insert(_ADD, rows)
        first = min(job.run_at for job in new_jobs)
        await work.send(_BRING_FORWARD, {"at": first, "space": work.space_id})
    return next_job + len(new_jobs)
