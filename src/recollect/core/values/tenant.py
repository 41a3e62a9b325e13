"""Tenants of a service, their keys and their audit records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from uuid import UUID

if TYPE_CHECKING:
    from recollect.core.values.history import SpaceId

KeyScope: TypeAlias = Literal["read", "write", "forget", "admin"]
"""What a key may do: read, write, delete permanently, read the tenant's own audit records."""
KEY_SCOPES: Final[tuple[KeyScope, ...]] = ("read", "write", "forget", "admin")
BudgetName: TypeAlias = Literal["requests per minute", "tokens per day"]
PERIOD_SECONDS: Final[dict[BudgetName, int]] = {
    "requests per minute": 60,
    "tokens per day": 86_400,
}
PERIODS_KEPT: Final[dict[BudgetName, int]] = {
    "requests per minute": 60,
    "tokens per day": 7,
}
"""Number of periods for which spending is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A customer of a service, with its own spaces, keys and budgets."""

    id: UUID
    name: str
    created_at: float
    requests_per_minute: int | None = None
    """Limit per minute; None means no limit."""
    tokens_per_day: int | None = None

    def limit(self, budget: BudgetName) -> int | None:
        """Return the budget of one period; None if unlimited."""
        return self.requests_per_minute if budget == "requests per minute" else self.tokens_per_day


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """Record about a key, without the key itself."""

    tenant: UUID
    id: str
    """Part of the key, safe to show."""
    name: str
    hash: bytes = field(repr=False)
    scopes: tuple[KeyScope, ...]
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None

    def is_valid(self, now: float) -> bool:
        ends = [at for at in (self.expires_at, self.revoked_at) if at is not None]
        return all(now < at for at in ends)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """One administrative action."""

    at: float
    id: str
    tenant: UUID
    actor: str
    """Id of a key, or the user who ran a command."""
    act: str
    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantSpace:
    """A space, named as its tenant names it."""

    name: str
    created_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotentAnswer:
    """Record of a request with an idempotency key."""

    same_request: bool
    """True if the key came with the same request before."""
    lease_token: str | None = None
    """Set if the caller must execute the request now."""
    running_until: float | None = None
    """Set if another caller is executing it."""
    status: int | None = None
    answer: bytes | None = field(default=None, repr=False)


def tenant_space(tenant: UUID, name: str) -> SpaceId:
    """Return the name of a tenant's space in the store. It starts with the tenant's id, which has a
    fixed length, so no other tenant can choose the same name."""
    return f"{tenant}/{name}"


def is_tenant_space(space: SpaceId) -> bool:
    """Return whether this store name belongs to a tenant's space."""
    id_, stroke, name = space.partition("/")
    try:
        return bool(stroke and name) and str(UUID(id_)) == id_
    except ValueError:
        return False
