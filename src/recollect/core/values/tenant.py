"""Tenants of a service, their keys and their audit records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args
from uuid import UUID

if TYPE_CHECKING:
    from recollect.core.values.history import SpaceId

KeyScope: TypeAlias = Literal["read", "write", "forget", "admin", "operator"]
"""What a key may do: read, write, delete permanently, read its tenant's audit records, or manage
all tenants of the service."""
KEY_SCOPES: Final[tuple[KeyScope, ...]] = ("read", "write", "forget", "admin")
"""Scopes that apply only to the key's own tenant."""
LimitName: TypeAlias = Literal["requests_per_minute", "tokens_per_day", "most_spaces", "most_bytes"]
LIMITS: Final[tuple[LimitName, ...]] = get_args(LimitName)
QuotaName: TypeAlias = Literal["spaces", "bytes"]
BudgetName: TypeAlias = Literal["requests per minute", "tokens per day"]
PERIOD_SECONDS: Final[dict[BudgetName, int]] = {"requests per minute": 60, "tokens per day": 86_400}
PERIODS_KEPT: Final[dict[BudgetName, int]] = {"requests per minute": 60, "tokens per day": 7}
"""Number of past periods for which usage is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A customer of a service, with its own spaces, keys and budgets."""

    id: UUID
    name: str
    created_at: float
    requests_per_minute: int | None = None
    """Limit of requests per minute; None means no limit."""
    tokens_per_day: int | None = None
    most_spaces: int | None = None
    most_bytes: int | None = None
    """Limit of the total text of stored messages, in bytes of UTF-8."""

    @property
    def limits(self) -> dict[LimitName, int | None]:
        return {name: getattr(self, name) for name in LIMITS}

    def with_limits(self, limits: Mapping[LimitName, int | None]) -> Tenant:
        changed: dict[str, Any] = {str(name): limit for name, limit in limits.items()}
        return replace(self, **changed)

    def quota(self, quota: QuotaName) -> int | None:
        return self.most_spaces if quota == "spaces" else self.most_bytes

    def limit(self, budget: BudgetName) -> int | None:
        """Return the limit for one period; None if unlimited."""
        return self.requests_per_minute if budget == "requests per minute" else self.tokens_per_day


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """Record of a key, without the key itself."""

    tenant: UUID
    id: str
    """Public part of the key, safe to show."""
    name: str
    hash: bytes = field(repr=False)
    scopes: tuple[KeyScope, ...]
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None

    def is_valid(self, now: float) -> bool:
        ends = [end for end in (self.expires_at, self.revoked_at) if end is not None]
        return all(now < end for end in ends)


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
    """A tenant's space, with the name that the tenant gave it."""

    name: str
    created_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotentAnswer:
    """State of a request that was sent with an idempotency key."""

    same_request: bool
    """True if the earlier request with this key was the same."""
    lease_token: str | None = None
    """Set if the caller must execute the request now."""
    running_until: float | None = None
    """Set if another caller is executing the request."""
    status: int | None = None
    answer: bytes | None = field(default=None, repr=False)


def tenant_space(tenant: UUID, name: str) -> SpaceId:
    """Return the name of a tenant's space in the store. The name begins with the tenant's id, which
    has a fixed length, so that no tenant can name another's space."""
    return f"{tenant}/{name}"


def is_tenant_space(space: SpaceId) -> bool:
    """Return whether this name of a space in the store belongs to a tenant."""
    id_, stroke, name = space.partition("/")
    try:
        return bool(stroke and name) and str(UUID(id_)) == id_
    except ValueError:
        return False
