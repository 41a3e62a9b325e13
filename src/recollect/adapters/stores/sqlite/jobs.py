"""The job queue of a space: leases, retries, the daily budget.

Only the holder of the newest lease can complete, fail or extend a job. Leasing a job charges its
cost to the budget. A failed attempt gets no refund, because it may have spent the money."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final

from recollect.adapters.stores.sqlite import columns
from recollect.adapters.stores.sqlite.database import Database, Row
from recollect.core.formats.stored_records import SoughtText
from recollect.core.values.batch import (
    EXTRACT_JOB,
    JobId,
    JobRecord,
    Lease,
    NewJob,
    QueueState,
    extract_keys,
)
from recollect.core.values.model import ModelUse

_TOKEN_BYTES: Final = 16
"""With 128 random bits, no two leases have the same token."""

_WAITS: Final = "SELECT 1 FROM job WHERE kind = ? AND key = ? AND state = 'waiting' LIMIT 1"
_NEXT: Final = "UPDATE totals SET next_job = next_job + 1 RETURNING next_job - 1"
_ADD: Final = """
INSERT INTO job (number, kind, key, state, run_at, cost_tokens, about, payload)
VALUES (?, ?, ?, 'waiting', ?, ?, ?, ?)
"""
_BURY_LOST: Final = """
UPDATE job SET state = 'dead', token = NULL, expires_at = NULL,
  reason = 'taken ' || attempts || ' times without an answer'
WHERE state = 'leased' AND expires_at <= ? AND attempts >= ?
  AND kind IN (SELECT value FROM json_each(?))
"""
_DUE: Final = """
SELECT number, kind, CAST(key AS BLOB), payload, cost_tokens, attempts FROM job
WHERE ((state = 'waiting' AND run_at <= ?1) OR (state = 'leased' AND expires_at <= ?1))
  AND kind IN (SELECT value FROM json_each(?2))
  AND NOT EXISTS (SELECT 1 FROM paused AS p WHERE p.kind IN ('*', job.kind))
  AND cost_tokens <= ?3
ORDER BY run_at, number LIMIT 1
"""
_LEASE: Final = """
UPDATE job SET state = 'leased', attempts = attempts + 1, token = ?, expires_at = ?
WHERE number = ?
"""
_SPENT: Final = "SELECT coalesce(sum(spent_tokens), 0) FROM budget WHERE day = ?"
_SPEND: Final = """
INSERT INTO budget (day, spent_tokens) VALUES (?1, ?2)
ON CONFLICT (day) DO UPDATE SET spent_tokens = spent_tokens + ?2
"""
_ADD_USE: Final = """
INSERT INTO model_use (day, purpose, calls, input_tokens, output_tokens) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (day, purpose) DO UPDATE SET calls = calls + ?3,
  input_tokens = input_tokens + ?4, output_tokens = output_tokens + ?5
"""
_USE: Final = """
SELECT purpose, sum(calls), sum(input_tokens), sum(output_tokens) FROM model_use
WHERE day >= ? GROUP BY purpose ORDER BY purpose
"""
_KEEP: Final = "UPDATE job SET expires_at = ? WHERE number = ? AND token = ? AND state = 'leased'"
_DONE: Final = "DELETE FROM job WHERE number = ? AND token = ? AND state = 'leased'"
_GIVE_BACK: Final = """
UPDATE job SET state = iif(?1 IS NULL, 'dead', 'waiting'), run_at = coalesce(?1, run_at),
  token = NULL, expires_at = NULL, reason = ?2
WHERE number = ?3 AND token = ?4 AND state = 'leased'
"""
_LIST: Final = """
SELECT number, kind, CAST(key AS BLOB), state, attempts, run_at, cost_tokens, CAST(reason AS BLOB)
FROM job ORDER BY run_at, number LIMIT ?
"""
_COUNTS: Final = "SELECT state, count(*), min(run_at) FROM job GROUP BY state"
_REVIVE: Final = """
UPDATE job SET state = 'waiting', run_at = ?, attempts = 0, token = NULL
WHERE state = 'dead'
"""
_JOIN_TWINS: Final = """
DELETE FROM job WHERE state = 'waiting' AND EXISTS (
  SELECT 1 FROM job AS older WHERE older.kind = job.kind AND older.key = job.key
    AND older.state = 'waiting' AND older.number < job.number
)
"""
_OF_SESSIONS: Final = """
SELECT number FROM job WHERE kind = ? AND key IN (SELECT value FROM json_each(?))
"""
_ABOUT: Final = "SELECT number, about FROM job WHERE about IS NOT NULL"

_NO_LIMIT: Final = (1 << 63) - 1
"""Largest integer of SQLite: without a daily budget, no job costs too much."""


def add_jobs(db: Database, jobs: Sequence[NewJob], tombstones: set[str]) -> None:
    for job in jobs:
        job_key = job.kind, columns.pack_text(job.key)
        if tombstones.isdisjoint(job.about) and not db.rows(_WAITS, job_key):
            values = job.run_at, job.cost_tokens, columns.pack_ids(job.about), job.payload
            db.run(_ADD, (db.value(_NEXT), *job_key, *values))


def claim(
    db: Database,
    *,
    now: float,
    lease_seconds: float,
    kinds: Sequence[str],
    day: str = "",
    day_tokens: int | None = None,
    max_attempts: int = 5,
) -> Lease | None:
    names = columns.json_list(kinds)
    db.run(_BURY_LOST, (now, max_attempts, names))
    left_tokens = _NO_LIMIT if day_tokens is None else max(0, day_tokens - db.value(_SPENT, (day,)))
    rows = db.rows(_DUE, (now, names, left_tokens))
    if not rows:
        return None
    number, kind, key, payload, cost, attempts = rows[0]
    lease = Lease(
        id=JobId(str(number)),
        kind=kind,
        key=columns.text_of(key),
        payload=payload,
        cost_tokens=cost,
        attempt=attempts + 1,
        token=secrets.token_hex(_TOKEN_BYTES),
        expires_at=now + lease_seconds,
    )
    db.run(_LEASE, (lease.token, lease.expires_at, number))
    if cost:
        db.run(_SPEND, (day, cost))
    return lease


def heartbeat(db: Database, lease: Lease, *, expires_at: float) -> bool:
    db.run(_KEEP, (expires_at, _number_of(lease.id), lease.token))
    return db.count_changes() == 1


def finish(db: Database, lease: Lease) -> bool:
    db.run(_DONE, (_number_of(lease.id), lease.token))
    return db.count_changes() == 1


def fail(db: Database, lease: Lease, *, reason: str, retry_at: float | None) -> bool:
    db.run(_GIVE_BACK, (retry_at, columns.pack_text(reason), _number_of(lease.id), lease.token))
    leased = db.count_changes() == 1
    db.run(_JOIN_TWINS)
    return leased


def list_jobs(db: Database, *, limit: int = 100) -> tuple[JobRecord, ...]:
    return tuple(columns.read_rows(db.rows(_LIST, (limit,)), _record_from_row))


def _record_from_row(row: Row) -> JobRecord:
    number, kind, key, state, attempts, run_at, cost, reason = row
    return JobRecord(
        id=JobId(str(number)),
        kind=kind,
        key=columns.text_of(key),
        state=state,
        attempts=attempts,
        run_at=run_at,
        cost_tokens=cost,
        reason=columns.unpack_text(reason),
    )


def read_queue(db: Database, *, day: str = "") -> QueueState:
    rows = db.rows(_COUNTS)
    counts = {state: count for state, count, _ in rows}
    return QueueState(
        waiting=counts.get("waiting", 0),
        leased=counts.get("leased", 0),
        dead=counts.get("dead", 0),
        paused=tuple(kind for (kind,) in db.rows("SELECT kind FROM paused ORDER BY kind")),
        spent_tokens_today=db.value(_SPENT, (day,)),
        due_at=next((first for state, _, first in rows if state == "waiting"), None),
    )


def add_model_use(db: Database, use: ModelUse, *, day: str) -> None:
    counts = (use.calls, use.input_tokens, use.output_tokens)
    db.run(_ADD_USE, (day, use.purpose, *counts))


def read_model_use(db: Database, *, since: str = "") -> tuple[ModelUse, ...]:
    return tuple(
        ModelUse(
            purpose=purpose, calls=calls, input_tokens=input_tokens, output_tokens=output_tokens
        )
        for purpose, calls, input_tokens, output_tokens in db.rows(_USE, (since,))
    )


def pause(db: Database, kind: str = "*") -> None:
    db.run("INSERT OR IGNORE INTO paused (kind) VALUES (?)", (kind,))


def resume(db: Database, kind: str = "*") -> None:
    db.run("DELETE FROM paused WHERE kind = ?", (kind,))


def revive(db: Database, *, at: float) -> int:
    db.run(_REVIVE, (at,))
    revived_count = db.count_changes()
    db.run(_JOIN_TWINS)
    return revived_count


def forget_jobs(db: Database, forgotten: set[str]) -> int:
    if not forgotten:
        return 0
    return _drop(db, columns.find_quoting_keys(db.rows(_ABOUT), forgotten))


def _drop(db: Database, numbers: Sequence[int]) -> int:
    db.run_many("DELETE FROM job WHERE number = ?", [(number,) for number in numbers])
    return len(numbers)


def forget_jobs_of_sessions(db: Database, sessions: Sequence[str]) -> int:
    if not sessions:
        return 0
    rows = db.rows(_OF_SESSIONS, (EXTRACT_JOB, columns.json_list(extract_keys(sessions))))
    return _drop(db, [row[0] for row in rows])


def forget_text_in_jobs(db: Database, text: SoughtText) -> int:
    rows = db.rows("SELECT number, payload, CAST(reason AS BLOB) FROM job")
    return _drop(db, [row[0] for row in rows if any(map(text.occurs_in, row[1:]))])


def _number_of(id_: str) -> int:
    return int(id_) if id_.isascii() and id_.isdigit() else -1
