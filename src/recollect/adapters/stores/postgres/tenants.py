"""The records of tenants: their keys, spaces, budgets, idempotency keys, and the audit log.

Every transaction names one tenant, and row-level security limits it to that tenant's rows. An
unknown key gives the same result as a key of another tenant. Operators may read all tenants and the
whole log. Each method except `purge_all` is one transaction. Leases use the server's clock."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final, LiteralString
from uuid import UUID, uuid4

from recollect.adapters.stores.postgres.pool import Pool, Transaction
from recollect.core.values.tenant import (
    LIMITS,
    PERIOD_SECONDS,
    PERIODS_KEPT,
    ApiKey,
    AuditRecord,
    BudgetName,
    IdempotentAnswer,
    LimitName,
    QuotaName,
    Tenant,
    TenantSpace,
)

_NEW_TENANT: Final = """
    INSERT INTO recollect.tenants
        (tenant_id, name, created_at, requests_per_minute, tokens_per_day, most_spaces, most_bytes)
    VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING RETURNING tenant_id
"""
_TENANT_COLUMNS: Final = (
    "tenant_id AS id, name, created_at, requests_per_minute, tokens_per_day, most_spaces,"
    " most_bytes FROM recollect.tenants"
)
_TENANT: Final = f"SELECT {_TENANT_COLUMNS} WHERE tenant_id = %s"
_TENANT_NAMED: Final = f"SELECT {_TENANT_COLUMNS} WHERE name = %s"
_TENANTS: Final = f"SELECT {_TENANT_COLUMNS} WHERE name > %s ORDER BY name LIMIT %s"
_SET_LIMIT: Final[Mapping[LimitName, LiteralString]] = {
    name: f"UPDATE recollect.tenants SET {name} = %s WHERE tenant_id = %s"  # noqa: S608
    for name in LIMITS
}
_DROP_ALL: Final = tuple(
    f"DELETE FROM recollect.{table} WHERE tenant_id = %s"  # noqa: S608
    for table in ("api_keys", "tenant_spaces", "idempotency_keys", "tenant_usage", "tenants")
)

_NEW_KEY: Final = """
    INSERT INTO recollect.api_keys
        (tenant_id, key_id, name, hash, scopes, created_at, expires_at)
    VALUES (%s, %s, %s, %s, %s, %s, %s)
"""
_KEY_COLUMNS: Final = (
    "SELECT tenant_id AS tenant, key_id AS id, name, hash, scopes, created_at, expires_at,"
    " revoked_at FROM recollect.api_keys WHERE tenant_id = %s"
)
_KEY: Final = f"{_KEY_COLUMNS} AND key_id = %s"
_KEYS: Final = f"{_KEY_COLUMNS} ORDER BY created_at, key_id"
_REVOKE: Final = """
    UPDATE recollect.api_keys SET revoked_at = %s
    WHERE tenant_id = %s AND key_id = %s AND revoked_at IS NULL RETURNING key_id
"""
_EXPIRE_KEY: Final = """
    UPDATE recollect.api_keys SET expires_at = least(coalesce(expires_at, %s), %s)
    WHERE tenant_id = %s AND key_id = %s AND revoked_at IS NULL RETURNING key_id
"""

_NEW_SPACE: Final = """
    INSERT INTO recollect.tenant_spaces (tenant_id, name, created_at) VALUES (%s, %s, %s)
    ON CONFLICT DO NOTHING
"""
_HOLD_TENANT: Final = "SELECT 1 FROM recollect.tenants WHERE tenant_id = %s FOR KEY SHARE"
_LOCK_TENANT: Final = "SELECT 1 FROM recollect.tenants WHERE tenant_id = %s FOR UPDATE"
_USED: Final = """
    SELECT count(*) AS spaces, coalesce(sum(bytes), 0)::bigint AS bytes
    FROM recollect.tenant_spaces WHERE tenant_id = %s
"""
_SET_BYTES: Final = """
    UPDATE recollect.tenant_spaces SET bytes = %s WHERE tenant_id = %s AND name = %s
"""
_HAS_SPACE: Final = """
    SELECT name FROM recollect.tenant_spaces WHERE tenant_id = %s AND name = %s
"""
_SPACES: Final = """
    SELECT name, created_at FROM recollect.tenant_spaces
    WHERE tenant_id = %s AND name > %s ORDER BY name LIMIT %s
"""
_DROP_SPACE: Final = "DELETE FROM recollect.tenant_spaces WHERE tenant_id = %s AND name = %s"

_CLAIM: Final = """
    INSERT INTO recollect.idempotency_keys
        (tenant_id, key_hash, request_hash, lease_token, lease_expires_at, expires_at)
    VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING RETURNING lease_token
"""
_CLAIMED: Final = """
    SELECT request_hash, lease_token, lease_expires_at, expires_at, status, answer
    FROM recollect.idempotency_keys WHERE tenant_id = %s AND key_hash = %s FOR UPDATE
"""
_TAKE_OVER: Final = """
    UPDATE recollect.idempotency_keys
    SET request_hash = %s, lease_token = %s, lease_expires_at = %s, expires_at = %s,
        status = NULL, answer = NULL
    WHERE tenant_id = %s AND key_hash = %s
"""
_ANSWERED: Final = """
    UPDATE recollect.idempotency_keys
    SET status = %s, answer = %s, lease_token = NULL, lease_expires_at = NULL
    WHERE tenant_id = %s AND key_hash = %s AND lease_token = %s RETURNING key_hash
"""
_RELEASE: Final = """
    DELETE FROM recollect.idempotency_keys
    WHERE tenant_id = %s AND key_hash = %s AND lease_token = %s
"""
_PURGE_ANSWERS: Final = """
    DELETE FROM recollect.idempotency_keys WHERE tenant_id = %s AND expires_at < %s
"""

_SPEND: Final = """
    INSERT INTO recollect.tenant_usage (tenant_id, budget, period, used) VALUES (%s, %s, %s, %s)
    ON CONFLICT (tenant_id, budget, period)
    DO UPDATE SET used = tenant_usage.used + EXCLUDED.used RETURNING used
"""
_SPENT: Final = """
    SELECT used FROM recollect.tenant_usage WHERE tenant_id = %s AND budget = %s AND period = %s
"""
_PURGE_USAGE: Final = """
    DELETE FROM recollect.tenant_usage WHERE tenant_id = %s AND budget = %s AND period < %s
"""

_NOTE: Final = """
    INSERT INTO recollect.audit_log (tenant_id, at, id, actor, act, subject)
    VALUES (%s, %s, %s, %s, %s, %s)
"""
_LOG_COLUMNS: Final = (
    "at, id, tenant_id AS tenant, actor, act, subject FROM recollect.audit_log WHERE"
)
_LAST: Final = "(at, id) < (%s, %s) ORDER BY at DESC, id DESC LIMIT %s"
_LOG: Final = f"SELECT {_LOG_COLUMNS} tenant_id = %s AND {_LAST}"
_WHOLE_LOG: Final = f"SELECT {_LOG_COLUMNS} {_LAST}"
_DELETED: Final = """
    SELECT DISTINCT tenant_id FROM recollect.audit_log WHERE act = %s AND subject = %s
"""
_SERVER_TIME: Final = "SELECT extract(epoch FROM clock_timestamp())::float8"
COMPARE_SECONDS: Final = 60.0
"""Interval between comparisons of the server's clock with this machine's clock."""
_TENANT_DELETED: Final = "tenant deleted"
END_OF_TIME: Final = 1e18
"""A point in time after every record."""


class TenantRecords:
    """The tenants of a fleet, and the spaces they may use."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._ahead_seconds, self._compared_at = 0.0, -COMPARE_SECONDS

    async def _fetch(
        self, tenant: UUID | None, query: LiteralString, *values: Any
    ) -> list[dict[str, Any]]:
        async with self._pool.tenant_transaction(tenant, read=True) as work:
            return await work.records(query, values)

    async def _read_clock_lead(self) -> float:
        """Return how many seconds the server's clock is ahead of this machine's. The time needs its
        own query, because Citus accepts no server time in a statement that writes."""
        if time.monotonic() - self._compared_at >= COMPARE_SECONDS:
            async with self._pool.tenant_transaction(None, read=True) as work:
                sent_at = time.time()
                row = await work.row(_SERVER_TIME, ())
                our_time = (sent_at + time.time()) / 2
            assert row is not None
            self._ahead_seconds, self._compared_at = float(row[0]) - our_time, time.monotonic()
        return self._ahead_seconds

    async def add_tenant(self, tenant: Tenant, *, actor: str) -> bool:
        async with self._pool.tenant_transaction(tenant.id) as work:
            row = await work.row(
                _NEW_TENANT, (tenant.id, tenant.name, tenant.created_at, *tenant.limits.values())
            )
            if row is not None:
                act = (actor, "tenant created", tenant.name, tenant.created_at)
                await _note(work, audit_record(tenant.id, *act))
        return row is not None

    async def tenant(self, tenant: UUID) -> Tenant | None:
        rows = await self._fetch(tenant, _TENANT, tenant)
        return Tenant(**rows[0]) if rows else None

    async def tenant_named(self, name: str) -> Tenant | None:
        rows = await self._fetch(None, _TENANT_NAMED, name)
        return Tenant(**rows[0]) if rows else None

    async def tenants(self, *, after: str = "", limit: int = 100) -> tuple[Tenant, ...]:
        return tuple(Tenant(**row) for row in await self._fetch(None, _TENANTS, after, limit))

    async def set_limits(
        self, tenant: Tenant, limits: Mapping[LimitName, int | None], *, actor: str, at: float
    ) -> Tenant:
        """Set these limits of a tenant, and return the tenant with all its limits."""
        async with self._pool.tenant_transaction(tenant.id) as work:
            for name, limit in limits.items():
                await work.send(_SET_LIMIT[name], (limit, tenant.id))
            tenants = [Tenant(**row) for row in await work.records(_TENANT, (tenant.id,))]
            limit_text = ", ".join(
                f"{name}: {'no limit' if limit is None else limit}"
                for name, limit in (tenants or [tenant])[0].limits.items()
            )
            await _note(work, audit_record(tenant.id, actor, "limits set", limit_text, at))
        return (tenants or [tenant])[0]

    async def remove_tenant(self, tenant: Tenant, *, actor: str, at: float) -> bool:
        """Remove a tenant and its keys. Return False if the tenant still has spaces. Keep the
        log."""
        async with self._pool.tenant_transaction(tenant.id) as work:
            await work.send(_LOCK_TENANT, (tenant.id,))  # so that no request lists a space now
            if await work.rows(_SPACES, (tenant.id, "", 1)):
                return False
            for drop in _DROP_ALL:
                await work.send(drop, (tenant.id,))
            await _note(work, audit_record(tenant.id, actor, _TENANT_DELETED, tenant.name, at))
        return True

    async def add_key(self, key: ApiKey, *, actor: str) -> None:
        async with self._pool.tenant_transaction(key.tenant) as work:
            await _add_key(work, key, actor)

    async def key(self, tenant: UUID, key_id: str) -> tuple[ApiKey, Tenant] | None:
        """Find a key and its tenant. The caller checks expiry and scopes."""
        async with self._pool.tenant_transaction(tenant, read=True) as work:
            key_query = await work.send(_KEY, (tenant, key_id))
            owners = await work.records(_TENANT, (tenant,))
            keys = await key_query.records()
        return (_key_from_row(keys[0]), Tenant(**owners[0])) if keys and owners else None

    async def keys(self, tenant: UUID) -> tuple[ApiKey, ...]:
        return tuple(_key_from_row(row) for row in await self._fetch(tenant, _KEYS, tenant))

    async def revoke_key(self, tenant: Tenant, key_id: str, *, actor: str, at: float) -> bool:
        """Revoke a key. Return False if the tenant has no such active key."""
        async with self._pool.tenant_transaction(tenant.id) as work:
            done = await work.row(_REVOKE, (at, tenant.id, key_id)) is not None
            if done:
                await _note(work, audit_record(tenant.id, actor, "key revoked", key_id, at))
        return done

    async def rotate_key(
        self, tenant: Tenant, key_id: str, new_key: ApiKey, *, ends_at: float, actor: str
    ) -> bool:
        """Create the key `new_key`, and let the old key expire. Return False for an unknown old
        key."""
        async with self._pool.tenant_transaction(tenant.id) as work:
            row = await work.row(_EXPIRE_KEY, (ends_at, ends_at, tenant.id, key_id))
            if row is not None:
                act = (actor, "key rotated", f"{key_id} by {new_key.id}", new_key.created_at)
                await _add_key(work, new_key, actor)
                await _note(work, audit_record(tenant.id, *act))
        return row is not None

    async def add_space(
        self, tenant: Tenant, name: str, *, at: float, limited: bool = True
    ) -> bool:
        """Add a space unless it exists. Return False if the tenant was deleted or, with `limited`,
        if it has reached its quota of spaces."""
        max_spaces = tenant.most_spaces if limited else None
        async with self._pool.tenant_transaction(tenant.id) as work:
            if max_spaces is not None and await work.row(_HAS_SPACE, (tenant.id, name)) is not None:
                return True
            # The lock makes others wait that count spaces now, or that delete the tenant.
            lock = _HOLD_TENANT if max_spaces is None else _LOCK_TENANT
            if await work.row(lock, (tenant.id,)) is None:
                return False
            if max_spaces is not None:
                usage = await work.row(_USED, (tenant.id,))
                if usage is None or usage[0] >= max_spaces:
                    return False
            await work.send(_NEW_SPACE, (tenant.id, name, at))
        return True

    async def used(self, tenant: UUID) -> dict[QuotaName, int]:
        """Return how many spaces the tenant has, and how many bytes of messages these contain."""
        (row,) = await self._fetch(tenant, _USED, tenant)
        return {"spaces": row["spaces"], "bytes": row["bytes"]}

    async def set_bytes(self, tenant: UUID, name: str, size: int) -> None:
        """Store how many bytes of messages a space contains."""
        async with self._pool.tenant_transaction(tenant) as work:
            await work.send(_SET_BYTES, (size, tenant, name))

    async def has_space(self, tenant: UUID, name: str) -> bool:
        return bool(await self._fetch(tenant, _HAS_SPACE, tenant, name))

    async def spaces(
        self, tenant: UUID, *, after: str = "", limit: int = 100
    ) -> tuple[TenantSpace, ...]:
        rows = await self._fetch(tenant, _SPACES, tenant, after, limit)
        return tuple(TenantSpace(**row) for row in rows)

    async def remove_space(self, tenant: Tenant, name: str, *, actor: str, at: float) -> None:
        async with self._pool.tenant_transaction(tenant.id) as work:
            await work.send(_DROP_SPACE, (tenant.id, name))
            await _note(work, audit_record(tenant.id, actor, "space deleted", name, at))

    async def claim(
        self,
        tenant: UUID,
        key_hash: bytes,
        request_hash: bytes,
        *,
        now: float,
        lease_seconds: float,
        keep_seconds: float,
    ) -> IdempotentAnswer:
        """Claim a request for this caller, or return the answer of an earlier caller. A claim lasts
        `lease_seconds`. If the claim's caller stores no answer in that time, its node has died, and
        the next caller may claim the request. `now` and `running_until` use the caller's clock;
        stored times use the server's."""
        token, lead = uuid4().hex, await self._read_clock_lead()
        now += lead
        lease = (token, now + lease_seconds, now + keep_seconds)
        async with self._pool.tenant_transaction(tenant) as work:
            if await work.row(_CLAIM, (tenant, key_hash, request_hash, *lease)) is not None:
                return IdempotentAnswer(same_request=True, lease_token=token)
            row = await work.row(_CLAIMED, (tenant, key_hash))
            if row is None:  # the row was purged in between; the next attempt can insert it
                return IdempotentAnswer(same_request=True, running_until=now - lead)
            stored_hash, held_by, lease_ends, ends, status, answer = row
            if ends >= now:
                if bytes(stored_hash) != request_hash:
                    return IdempotentAnswer(same_request=False)
                if status is not None:
                    stored_answer = None if answer is None else bytes(answer)
                    return IdempotentAnswer(same_request=True, status=status, answer=stored_answer)
                if held_by is not None and lease_ends > now:
                    return IdempotentAnswer(same_request=True, running_until=lease_ends - lead)
            await work.send(_TAKE_OVER, (request_hash, *lease, tenant, key_hash))
        return IdempotentAnswer(same_request=True, lease_token=token)

    async def keep_answer(
        self, tenant: UUID, key_hash: bytes, token: str, *, status: int, answer: bytes
    ) -> bool:
        """Store a claimed request's answer. Return False if another caller has claimed it since."""
        async with self._pool.tenant_transaction(tenant) as work:
            row = await work.row(_ANSWERED, (status, answer, tenant, key_hash, token))
        return row is not None

    async def release(self, tenant: UUID, key_hash: bytes, token: str) -> None:
        """Remove the claim of a failed request, so that its key can be used again."""
        async with self._pool.tenant_transaction(tenant) as work:
            await work.send(_RELEASE, (tenant, key_hash, token))

    async def spend(self, tenant: UUID, budget: BudgetName, period: int, amount: int) -> int:
        async with self._pool.tenant_transaction(tenant) as work:
            row = await work.row(_SPEND, (tenant, budget, period, amount))
        assert row is not None
        return int(row[0])

    async def total_spent(self, tenant: UUID, budget: BudgetName, period: int) -> int:
        rows = await self._fetch(tenant, _SPENT, tenant, budget, period)
        return int(rows[0]["used"]) if rows else 0

    async def purge(self, tenant: UUID, *, now: float) -> None:
        async with self._pool.tenant_transaction(tenant) as work:
            await work.send(_PURGE_ANSWERS, (tenant, now))
            for budget, seconds in PERIODS_KEPT.items():
                period = int(now // PERIOD_SECONDS[budget]) - seconds
                await work.send(_PURGE_USAGE, (tenant, budget, period))

    async def purge_all(self, *, now: float) -> None:
        after = ""
        while page := await self.tenants(after=after):
            for tenant in page:
                await self.purge(tenant.id, now=now)
            after = page[-1].name

    async def deleted_tenants(self, name: str) -> tuple[UUID, ...]:
        rows = await self._fetch(None, _DELETED, _TENANT_DELETED, name)
        return tuple(row["tenant_id"] for row in rows)

    async def note(self, record: AuditRecord) -> None:
        async with self._pool.tenant_transaction(record.tenant) as work:
            await _note(work, record)

    async def log(
        self,
        tenant: UUID | None,
        *,
        before: tuple[float, str] = (END_OF_TIME, ""),
        limit: int = 100,
    ) -> tuple[AuditRecord, ...]:
        if tenant is None:
            rows = await self._fetch(None, _WHOLE_LOG, *before, limit)
        else:
            rows = await self._fetch(tenant, _LOG, tenant, *before, limit)
        return tuple(AuditRecord(**row) for row in rows)


def audit_record(tenant: UUID, actor: str, act: str, subject: str, at: float) -> AuditRecord:
    return AuditRecord(at=at, id=uuid4().hex, tenant=tenant, actor=actor, act=act, subject=subject)


async def _note(work: Transaction, record: AuditRecord) -> None:
    await work.send(
        _NOTE, (record.tenant, record.at, record.id, record.actor, record.act, record.subject)
    )


async def _add_key(work: Transaction, key: ApiKey, actor: str) -> None:
    await work.send(
        _NEW_KEY,
        (key.tenant, key.id, key.name, key.hash, list(key.scopes), key.created_at, key.expires_at),
    )
    subject = f"{key.id} ({', '.join(key.scopes)})"
    await _note(work, audit_record(key.tenant, actor, "key created", subject, key.created_at))


def _key_from_row(row: dict[str, Any]) -> ApiKey:
    return ApiKey(**{**row, "hash": bytes(row["hash"]), "scopes": tuple(row["scopes"])})
