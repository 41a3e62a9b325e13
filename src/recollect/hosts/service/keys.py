"""API keys and tenants, and changes to both. A key has the form `rk_TENANT_ID_SECRET`: two ids that
people may see, and 256 random bits with a checksum, by which a node refuses mistyped keys without a
query. The database stores only a hash of the key. A node caches a key for `KEY_SECONDS`. Invented
keys neither remove valid ones from the cache nor delay other requests."""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
import time
from base64 import b32decode, b32encode
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b, sha256
from typing import TYPE_CHECKING, Final, get_args
from uuid import UUID, uuid4

from recollect.core.upkeep.forget import delete_space
from recollect.core.values.tenant import ApiKey, KeyScope, LimitName, Tenant, tenant_space
from recollect.errors import RecollectError
from recollect.hosts.service.memories import TenantMemories
from recollect.hosts.service.problems import Problem, ProblemKind
from recollect.system.plain_text import plain_line

if TYPE_CHECKING:
    from recollect.adapters.stores.postgres.store import PostgresFleet
    from recollect.adapters.stores.postgres.tenants import TenantRecords
    from recollect.core.values.upkeep import Certificate

_SECRET_BYTES: Final = 32  # 256 bits
_CHECK_CHARS: Final = 6  # a mistyped key is refused without a query
_KEY: Final = re.compile(r"rk_([a-z2-7]{26})_([0-9a-f]{12})_([A-Za-z0-9_-]{43})([a-z2-7]{6})")
DEFAULT_SCOPES: Final[tuple[KeyScope, ...]] = ("read", "write")


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenKey:
    """A well-formed key from a request, valid or not."""

    tenant: UUID
    id: str
    hash: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeKey:
    """A new key: its record, and the key itself, which is shown only once."""

    record: ApiKey
    text: str = field(repr=False)


def make_key(
    tenant: UUID,
    *,
    name: str,
    scopes: Sequence[KeyScope],
    now: float,
    expires_at: float | None = None,
) -> MadeKey:
    key_id = secrets.token_hex(6)
    body = f"rk_{_spell(tenant.bytes)}_{key_id}_{secrets.token_urlsafe(_SECRET_BYTES)}"
    text = body + _check(body)
    record = ApiKey(
        tenant=tenant,
        id=key_id,
        name=name,
        hash=_hash(text),
        scopes=tuple(scope for scope in get_args(KeyScope) if scope in scopes),
        created_at=now,
        expires_at=expires_at,
    )
    return MadeKey(record=record, text=text)


def read_key(text: str) -> GivenKey | None:
    """Parse the key of a request; None if it is malformed."""
    match = _KEY.fullmatch(text)
    if match is None or not hmac.compare_digest(_check(text[:-_CHECK_CHARS]), match[4]):
        return None
    tenant = UUID(bytes=b32decode(match[1].upper() + "======"))
    if _spell(tenant.bytes) != match[1]:  # another encoding of the same bytes
        return None
    return GivenKey(tenant=tenant, id=match[2], hash=_hash(text))


def opens(presented_key: GivenKey, stored_key: ApiKey, *, now: float) -> bool:
    """Return True if a request's key equals the stored key `known`, and is valid at this time."""
    is_same_hash = hmac.compare_digest(presented_key.hash, stored_key.hash)
    return is_same_hash and stored_key.tenant == presented_key.tenant and stored_key.is_valid(now)


def visible_key(key: ApiKey) -> str:
    """Return the part of a key that people may see."""
    return f"rk_{_spell(key.tenant.bytes)}_{key.id}_…"


def new_tenant(name: str, *, now: float) -> Tenant:
    """Create a tenant with a new id, even if the name is in use."""
    return Tenant(id=uuid4(), name=name, created_at=now)


@dataclass(frozen=True, slots=True)
class Administration:
    """Changes tenants and keys, for commands and the admin API. The audit log has each change."""

    fleet: PostgresFleet
    actor: str

    @property
    def records(self) -> TenantRecords:
        return self.fleet.tenants()

    async def create_tenant(
        self, name: str, limits: Mapping[LimitName, int | None] | None = None
    ) -> Tenant:
        if not name.strip():
            raise RecollectError("a tenant's name must have at least one character")
        tenant = new_tenant(name, now=time.time()).with_limits(limits or {})
        if not await self.records.add_tenant(tenant, actor=self.actor):
            raise RecollectError(
                f"the tenant {plain_line(name)!r} already exists: choose another name"
            )
        return tenant

    async def set_limits(self, tenant: Tenant, limits: Mapping[LimitName, int | None]) -> Tenant:
        """Set these limits of a tenant. None removes a limit."""
        if not limits:
            return tenant
        # measure before the quota is stored, so that another call continues a failed one
        if limits.get("most_bytes") is not None and tenant.most_bytes is None:
            async for name in self._spaces(tenant):
                size = await self.fleet.message_bytes(tenant_space(tenant.id, name))
                await self.records.set_bytes(tenant.id, name, size)
        return await self.records.set_limits(tenant, limits, actor=self.actor, at=time.time())

    async def create_key(
        self, tenant: Tenant, *, scopes: Sequence[KeyScope] = (), name: str = "",
        seconds: float | None = None,
    ) -> MadeKey:  # fmt: skip
        now = time.time()
        ends = None if seconds is None else now + seconds
        scopes = scopes or DEFAULT_SCOPES
        made_key = make_key(tenant.id, name=name, scopes=scopes, now=now, expires_at=ends)
        await self.records.add_key(made_key.record, actor=self.actor)
        return made_key

    async def rotate_key(self, tenant: Tenant, key_id: str, *, grace: float) -> MadeKey | None:
        """Replace a key, and let the old one expire after `grace` seconds. Return None if the
        tenant has no working key with this id."""
        now = time.time()
        stored_key = await self.records.key(tenant.id, key_id)
        if stored_key is None or not (old_key := stored_key[0]).is_valid(now):
            return None
        ends = None if old_key.expires_at is None else now + old_key.expires_at - old_key.created_at
        made_key = make_key(
            tenant.id, name=old_key.name, scopes=old_key.scopes, now=now, expires_at=ends
        )
        was_rotated = await self.records.rotate_key(
            tenant, key_id, made_key.record, ends_at=now + grace, actor=self.actor
        )
        return made_key if was_rotated else None

    async def revoke_key(self, tenant: Tenant, key_id: str) -> bool:
        """Revoke a key. Return False if the tenant has no active key with this id."""
        return await self.records.revoke_key(tenant, key_id, actor=self.actor, at=time.time())

    async def delete_space(self, tenant: Tenant, name: str) -> AsyncGenerator[Certificate]:
        """Delete a space. Yield its certificate, and a second one if a client wrote meanwhile."""
        store = await self.fleet.space(tenant_space(tenant.id, name))
        yield await delete_space(store, name=name, now=time.time())
        await self.records.remove_space(tenant, name, actor=self.actor, at=time.time())
        # a node that has the key in its cache may have written until now
        late = await delete_space(store, name=name, now=time.time())
        if any(late.counts.values()):
            yield late

    async def delete_tenant(self, tenant: Tenant) -> AsyncGenerator[tuple[str, Certificate]]:
        """Delete a tenant. Yield the name and the certificate of each space. If the iteration stops
        early, another call deletes the rest."""
        # Revoke the keys first, so that no client writes meanwhile.
        for key in await self.records.keys(tenant.id):
            await self.revoke_key(tenant, key.id)
        done = False
        while not done:  # a node that has a key in its cache may list a space meanwhile
            async for name in self._spaces(tenant):
                async for certificate in self.delete_space(tenant, name):
                    yield name, certificate
            done = await self.records.remove_tenant(tenant, actor=self.actor, at=time.time())

    async def _spaces(self, tenant: Tenant) -> AsyncIterator[str]:
        after = ""
        while page := await self.records.spaces(tenant.id, after=after):
            for space in page:
                yield space.name
            after = page[-1].name


def _spell(raw: bytes) -> str:
    return b32encode(raw).decode().rstrip("=").lower()


def _check(text: str) -> str:
    return _spell(blake2b(text.encode(), digest_size=4, person=b"recollect-key").digest())[:6]


def _hash(text: str) -> bytes:
    return sha256(text.encode()).digest()


KEY_SECONDS: Final = 5.0
"""Time for which a node caches a key. A revoked key may keep working for this long."""
MOST_KEYS: Final = 10_000  # not measured; bounds memory to a few MB
MOST_REFUSED_KEYS: Final = 1_000
"""Maximum number of cached invalid keys. Valid keys have a cache of their own."""
KEYS_LOOKED_UP: Final = 2
"""Maximum number of unknown keys that a node looks up in the database at the same time."""
KEYS_WAITING: Final = 200
"""Maximum number of lookups that wait. Further requests get Retry-After."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """The sender of a request: a tenant, and one of its keys."""

    tenant: Tenant
    key: ApiKey
    space: str = ""


class Principals:
    """Finds the tenant of a key."""

    def __init__(self, memories: TenantMemories) -> None:
        self._memories = memories
        self._keys: OrderedDict[bytes, tuple[float, Principal]] = OrderedDict()
        self._refused_keys: OrderedDict[bytes, float] = OrderedDict()
        self._lookups = asyncio.Semaphore(KEYS_LOOKED_UP)
        self._waiting = 0

    async def of(self, header: str) -> Principal:
        """Return the sender of a request by its Authorization header. Raise a Problem if the key is
        unknown, expired or revoked."""
        scheme, _, text = header.partition(" ")
        presented_key = read_key(text.strip()) if scheme.lower() == "bearer" else None
        principal = None if presented_key is None else await self._principal_of_key(presented_key)
        if (
            principal is None
            or presented_key is None
            or not opens(presented_key, principal.key, now=time.time())
        ):
            raise Problem(
                ProblemKind.UNAUTHORIZED, "send a valid key as `Authorization: Bearer rk_…`"
            )
        return principal

    async def _principal_of_key(self, presented_key: GivenKey) -> Principal | None:
        now = time.monotonic()
        since = now - KEY_SECONDS
        if self._refused_keys.get(presented_key.hash, since) > since:
            return None
        cached_entry = self._keys.get(presented_key.hash)
        if cached_entry is None:
            return await self._look_up_in_turn(presented_key)
        self._keys.move_to_end(presented_key.hash)
        return cached_entry[1] if cached_entry[0] > since else await self._look_up(presented_key)

    async def _look_up_in_turn(self, presented_key: GivenKey) -> Principal | None:
        if self._waiting >= KEYS_WAITING:
            raise Problem(
                ProblemKind.BUSY,
                "too many requests with unknown keys: try again later",
                retry_after=1.0,
            )
        self._waiting += 1
        try:
            async with self._lookups:
                # Another request may have looked up this key meanwhile.
                cached_entry = self._keys.get(presented_key.hash)
                return (
                    await self._look_up(presented_key) if cached_entry is None else cached_entry[1]
                )
        finally:
            self._waiting -= 1

    async def _look_up(self, presented_key: GivenKey) -> Principal | None:
        now = time.monotonic()
        records = await self._memories.records()
        stored_key = await records.key(presented_key.tenant, presented_key.id)
        if stored_key is None or not opens(presented_key, stored_key[0], now=time.time()):
            self._keys.pop(presented_key.hash, None)
            self._refused_keys[presented_key.hash] = now
            while len(self._refused_keys) > MOST_REFUSED_KEYS:
                self._refused_keys.popitem(last=False)
            return None
        self._keys[presented_key.hash] = (now, Principal(key=stored_key[0], tenant=stored_key[1]))
        while len(self._keys) > MOST_KEYS:
            self._keys.popitem(last=False)
        return self._keys[presented_key.hash][1]
