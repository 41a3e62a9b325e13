"""The problems that answers report, each with its HTTP status, sent as problem+json (RFC 9457)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

import msgspec

from recollect.errors import (
    FormatError,
    MissingExtra,
    ModelError,
    RecollectError,
    SchemaMismatch,
    StaleFacts,
    StaleSession,
    StoreUnavailable,
)
from recollect.hosts.service.models import ProblemAnswer


class ProblemKind(Enum):
    """A kind of problem: a stable name for programs, the HTTP status, and a title."""

    BAD_REQUEST = ("bad-request", 400, "The request cannot be read")
    UNAUTHORIZED = ("unauthorized", 401, "No valid key")
    FORBIDDEN = ("forbidden", 403, "The key may not do this")
    QUOTA = ("quota-reached", 403, "A quota of the tenant is reached")
    NOT_FOUND = ("not-found", 404, "Not found")
    METHOD = ("method-not-allowed", 405, "The path does not support this method")
    IN_PROGRESS = ("in-progress", 409, "The same request is still running")
    STALE = ("stale", 409, "The data was changed in the meantime")
    TOO_LARGE = ("too-large", 413, "The request is too large")
    MEDIA_TYPE = ("media-type", 415, "The body is not JSON")
    INVALID = ("invalid", 422, "The request is not valid")
    KEY_REUSED = ("idempotency-key-reused", 422, "The Idempotency-Key was used for another request")
    BUDGET = ("budget-spent", 429, "A budget of the tenant is used up")
    TENANT_BUSY = ("tenant-busy", 429, "Too many requests of the tenant are waiting")
    INTERNAL = ("internal", 500, "Unexpected error")
    BUSY = ("busy", 503, "The node is busy")
    UNAVAILABLE = ("unavailable", 503, "The store is unavailable")
    DEADLINE = ("deadline", 504, "The request took too long")

    def __init__(self, label: str, status: int, title: str) -> None:
        self.label: str = label
        self.status: int = status
        self.title: str = title


@dataclass(eq=False)
class Problem(RecollectError):  # noqa: N818 - the standard's own word
    """Why a request was refused or failed."""

    kind: ProblemKind
    detail: str
    retry_after: float | None = None
    budget: str | None = None
    allow: str = ""

    def __str__(self) -> str:
        return self.detail

    @property
    def reason(self) -> str:
        """The problem's name in logs and metrics. Each budget has its own name."""
        if self.kind is ProblemKind.BUDGET:
            return "tokens" if self.budget == "tokens per day" else "rate"
        return self.kind.label

    def body(self) -> bytes:
        return msgspec.json.encode(
            ProblemAnswer(
                type=f"urn:recollect:problem:{self.kind.label}",
                title=self.kind.title,
                status=self.kind.status,
                detail=self.detail,
                budget=self.budget,
            )
        )

    def headers(self) -> dict[str, str]:
        fields = {"content-type": "application/problem+json"}
        if self.retry_after is not None:
            fields["retry-after"] = str(max(1, round(self.retry_after + 0.499)))
        if self.kind is ProblemKind.UNAUTHORIZED:
            fields["www-authenticate"] = 'Bearer realm="recollect"'
        if self.allow:
            fields["allow"] = self.allow
        return fields


_PASSING: Final[tuple[tuple[type[Exception], ProblemKind], ...]] = (
    (StoreUnavailable, ProblemKind.UNAVAILABLE),
    (StaleSession, ProblemKind.STALE),
    (StaleFacts, ProblemKind.STALE),
    (TimeoutError, ProblemKind.DEADLINE),
)
_OTHER_SCHEMA: Final = (
    "the service's database has another version: its operator must run `recollect db migrate`"
)
SCHEMA_SECONDS: Final = 30.0  # not measured; a migration takes seconds to minutes


def retry_advice(*, keyed: bool) -> str:
    """Return advice for a temporary problem. `keyed`: the request has an Idempotency-Key."""
    if keyed:
        return "try again, with the same Idempotency-Key: nothing is done twice"
    return "try again"


def problem_of(error: type[BaseException], message: str, *, keyed: bool = False) -> Problem:
    """Return the problem for one of Recollect's errors, with its text if clients may see it."""
    for kind, problem in _PASSING:
        if issubclass(error, kind):
            return Problem(problem, retry_advice(keyed=keyed), retry_after=1.0)
    if issubclass(error, SchemaMismatch):
        return Problem(ProblemKind.UNAVAILABLE, _OTHER_SCHEMA, retry_after=SCHEMA_SECONDS)
    if issubclass(error, FormatError):
        return Problem(ProblemKind.INVALID, message)
    if issubclass(error, ModelError | MissingExtra):
        return Problem(
            ProblemKind.UNAVAILABLE, "the model that this request needs is unavailable", 5.0
        )
    if issubclass(error, RecollectError):
        return Problem(ProblemKind.UNAVAILABLE, retry_advice(keyed=keyed), retry_after=1.0)
    return Problem(ProblemKind.INTERNAL, "try again; the service's log has the error")
