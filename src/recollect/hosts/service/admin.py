"""The operations of the admin API, for keys with the scope `operator`, which only the command line
creates. Answers that contain a new key are never stored for an Idempotency-Key."""

from __future__ import annotations

import time
from contextlib import aclosing
from operator import attrgetter
from typing import Any, Final, cast
from uuid import UUID

import msgspec

from recollect.core.upkeep.certificates import certificate_json
from recollect.core.values.tenant import LIMITS, ApiKey, LimitName, Tenant
from recollect.errors import RecollectError
from recollect.hosts.service import models as m
from recollect.hosts.service.keys import Administration, MadeKey, visible_key
from recollect.hosts.service.operations import actor_of, audit_page, copy_fields, page_of
from recollect.hosts.service.problems import Problem, ProblemKind
from recollect.hosts.service.requests import Call

SPACES_A_CALL: Final = 20
"""Number of spaces that a request deletes at most; it starts none after half of its time."""
_NO_KEY: Final = "the tenant has no working key with this id"


async def tenants(call: Call) -> m.TenantsAnswer:
    """List the tenants of the service, by name."""
    records = await call.memories.records()
    listed_tenants = await records.tenants(after=call.after(""), limit=call.query.limit + 1)
    page, cursor = page_of(call, listed_tenants, attrgetter("name"))
    return m.TenantsAnswer(tenants=[_tenant_item(tenant) for tenant in page], next=cursor)


async def create_tenant(call: Call) -> m.TenantItem:
    """Create a tenant."""
    body = cast(m.TenantBody, call.body)
    try:
        return _tenant_item(await (await _admin(call)).create_tenant(body.name, _limits(body)))
    except RecollectError as error:
        if type(error) is not RecollectError:  # the store's own class
            raise
        raise Problem(ProblemKind.INVALID, str(error)) from None


async def show_tenant(call: Call) -> m.TenantItem:
    """Show a tenant and its limits."""
    return _tenant_item(await _find_tenant(call))


async def set_limits(call: Call) -> m.TenantItem:
    """Change limits of a tenant. All nodes use the new limits within seconds."""
    tenant = await _find_tenant(call)
    return _tenant_item(await (await _admin(call)).set_limits(tenant, _limits(call.body)))


async def delete_tenant(call: Call) -> m.TenantDeletedAnswer:
    """Revoke a tenant's keys, then delete its spaces and the tenant. Repeat until `done`."""
    tenant, certificates = await _find_tenant(call), list[m.Record]()
    if tenant.id == call.tenant.id:
        raise Problem(
            ProblemKind.INVALID,
            "this key belongs to that tenant: use another tenant's operator key, or run "
            "`recollect tenant delete`",
        )
    ends = call.now + call.seconds / 2
    async with aclosing((await _admin(call)).delete_tenant(tenant)) as deleting:
        async for name, certificate in deleting:
            await call.memories.drop(tenant.id, name)
            certificates.append(certificate_json(certificate))
            if len(certificates) >= SPACES_A_CALL or time.time() > ends:
                return m.TenantDeletedAnswer(certificates=certificates, done=False)
    return m.TenantDeletedAnswer(certificates=certificates, done=True)


async def keys(call: Call) -> m.KeysAnswer:
    """List the keys of a tenant."""
    records = await call.memories.records()
    return m.KeysAnswer(
        keys=[_key_item(key) for key in await records.keys((await _find_tenant(call)).id)]
    )


async def create_key(call: Call) -> m.KeyMadeAnswer:
    """Create a key of a tenant. Only this answer shows the key."""
    body = cast(m.KeyBody, call.body)
    made_key = await (await _admin(call)).create_key(
        await _find_tenant(call),
        scopes=body.scopes,
        name=body.name,
        seconds=body.expires_in_seconds,
    )
    return _answer_with_key(made_key)


async def rotate_key(call: Call) -> m.KeyMadeAnswer:
    """Replace a key of a tenant. The old key keeps working for a while."""
    grace = cast(m.RotateBody, call.body).grace_seconds
    tenant, admin = await _find_tenant(call), await _admin(call)
    stored_key = await admin.records.key(tenant.id, call.path["key"])
    if stored_key is not None and "operator" in stored_key[0].scopes:
        raise Problem(ProblemKind.FORBIDDEN, "only `recollect key rotate` replaces this key")
    made_key = await admin.rotate_key(tenant, call.path["key"], grace=grace)
    if made_key is None:
        raise Problem(ProblemKind.NOT_FOUND, _NO_KEY)
    return _answer_with_key(made_key)


async def revoke_key(call: Call) -> m.KeyItem:
    """Revoke a key of a tenant. Nodes refuse a revoked key within seconds."""
    tenant, records = await _find_tenant(call), await call.memories.records()
    await (await _admin(call)).revoke_key(tenant, call.path["key"])
    stored_key = await records.key(tenant.id, call.path["key"])
    if stored_key is None:
        raise Problem(ProblemKind.NOT_FOUND, _NO_KEY)
    return _key_item(stored_key[0])


async def operator_audit(call: Call) -> m.OperatorAuditAnswer:
    """List administrative actions on all tenants, newest first."""
    page, cursor = await audit_page(call, None)
    acts = [copy_fields(m.OperatorAuditItem, act, tenant=str(act.tenant)) for act in page]
    return m.OperatorAuditAnswer(acts=acts, next=cursor)


async def _admin(call: Call) -> Administration:
    return Administration(await call.memories.fleet(), actor_of(call))


async def _find_tenant(call: Call) -> Tenant:
    """Return the tenant whose id is in the path."""
    try:
        id_ = UUID(call.path["tenant"])
    except ValueError:
        raise Problem(ProblemKind.NOT_FOUND, "no tenant has this id") from None
    tenant = await (await call.memories.records()).tenant(id_)
    if tenant is None:
        raise Problem(ProblemKind.NOT_FOUND, "no tenant has this id")
    return tenant


def _limits(body: m.LimitsBody) -> dict[LimitName, int | None]:
    given: dict[LimitName, Any] = {name: getattr(body, name) for name in LIMITS}
    return {name: limit for name, limit in given.items() if limit is not msgspec.UNSET}


def _tenant_item(tenant: Tenant) -> m.TenantItem:
    return copy_fields(m.TenantItem, tenant, id=str(tenant.id))


def _key_item(key: ApiKey) -> m.KeyItem:
    return copy_fields(m.KeyItem, key, prefix=visible_key(key), scopes=list(key.scopes))


def _answer_with_key(made_key: MadeKey) -> m.KeyMadeAnswer:
    return m.KeyMadeAnswer(key=made_key.text, record=_key_item(made_key.record))
