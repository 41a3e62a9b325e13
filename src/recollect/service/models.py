"""What goes over the wire: the bodies, queries and answers of the API, each declared once.

The service reads and writes them, the OpenAPI document is generated from them, and the client
returns them. Requests refuse fields that they do not know; answers may grow some.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from recollect.values.fact import FactType
from recollect.values.model import FormatName
from recollect.values.tenant import KeyScope

Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=512)]
Text: TypeAlias = Annotated[str, Meta(min_length=1, max_length=100_000)]
Tokens: TypeAlias = Annotated[int, Meta(ge=1, le=100_000_000)]
Moment: TypeAlias = Annotated[float, Meta(ge=0, le=32_503_680_000)]
"""Seconds since the epoch."""
WireObject: TypeAlias = Annotated[
    msgspec.Raw,
    Meta(
        description="As it goes over the wire of the provider", extra_json_schema={"type": "object"}
    ),
]
WireReply: TypeAlias = Annotated[
    msgspec.Raw,
    Meta(
        description="A provider's reply or error, or the list of its stream's events",
        extra_json_schema={"type": ["object", "array"]},
    ),
]
Record: TypeAlias = dict[str, Any]


class ApiBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """What a request brings."""


class ApiAnswer(Struct, kw_only=True):
    """What is answered."""


# Turns


class PrepareBody(ApiBody):
    """A request that is to be sent to a model."""

    request: WireObject
    format: FormatName | None = None
    """Detected where it is left out."""
    window_tokens: Tokens | None = None
    betas: Annotated[list[Name], Meta(max_length=64)] = []


class PreparedAnswer(ApiAnswer):
    """The request to send in its place."""

    request: WireObject
    turn: int
    """Name it when the reply is observed."""
    archived: Literal["store"] | None
    tokens_before: int
    tokens_after: int
    compacted: bool
    report: Record
    """What was done and why; nothing that was said."""


class ObserveBody(ApiBody):
    """What a model replied."""

    reply: WireReply
    turn: Annotated[int, Meta(ge=1, le=2**53)] | None = None


class ObservedAnswer(ApiAnswer):
    """What the reply taught."""

    archived: Literal["store"] | None
    due: str
    usage: Record | None
    learned_window_tokens: int | None
    failures: list[Record]


class IngestBody(ApiBody):
    """Messages that did not come by `prepare`."""

    messages: Annotated[list[WireObject], Meta(min_length=1, max_length=10_000)]
    format: FormatName | None = None
    batch: Name | None = None
    """Left out: the messages are the session's history from its beginning. Else: a piece of its
    own, and the same piece again changes nothing."""
    said_at: Moment | None = None


class IngestedAnswer(ApiAnswer):
    """What became of the messages."""

    read: int
    stored: int
    known: int
    forgotten: int
    redacted: int


class CompactBody(ApiBody):
    """The request whose past is to become a summary."""

    request: WireObject
    instructions: Annotated[str, Meta(max_length=20_000)] = ""
    format: FormatName | None = None
    window_tokens: Tokens | None = None


class CompactedAnswer(ApiAnswer):
    """How a compaction ended; the receipt of its number says more."""

    compacted: bool
    convergence: str
    reason: str
    number: int
    tokens_before: int
    tokens_after: int


class UndoneAnswer(ApiAnswer):
    """What undoing the last compaction came to."""

    undone: bool
    reason: str


# Looking


class PageQuery(ApiBody):
    """Which page of a list."""

    cursor: Annotated[str, Meta(max_length=2_000)] | None = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 100


class NoQuery(ApiBody):
    """Takes no parameters."""


class SearchBody(ApiBody):
    """A question to memory."""

    query: Text
    session: Name | None = None
    budget_tokens: Annotated[int, Meta(ge=1, le=50_000)] = 2_000
    said_after: Moment | None = None
    said_before: Moment | None = None


class FoundPassage(ApiAnswer):
    """A passage of an earlier message."""

    text: str
    role: str
    said_at: str
    score: float
    segment: str | None


class FoundFact(ApiAnswer):
    """A fact that bears on the question."""

    id: str | None
    type: str
    text: str
    score: float
    trust: str


class FoundAnswer(ApiAnswer):
    """What was found, best first."""

    passages: list[FoundPassage]
    facts: list[FoundFact]


class SessionItem(ApiAnswer):
    """A session at a glance."""

    session: str
    messages: int
    first_said_at: float | None
    last_said_at: float | None


class SessionsAnswer(ApiAnswer):
    """A page of sessions."""

    sessions: list[SessionItem]
    next: str | None


class ReceiptItem(ApiAnswer):
    """A compaction at a glance."""

    number: int
    at: float


class ReceiptsAnswer(ApiAnswer):
    """A page of compactions."""

    receipts: list[ReceiptItem]
    next: str | None


class ReceiptAnswer(ApiAnswer):
    """What a compaction did to what was known."""

    number: int
    at: float
    result: Record


class TurnsAnswer(ApiAnswer):
    """A page of the turns that can be replayed."""

    turns: list[int]
    next: str | None


class ReplayAnswer(ApiAnswer):
    """A past request as it was sent, as far as it is kept."""

    turn: int
    exact: bool
    missing: list[str]
    redacted: list[str]
    request: WireObject
    report: Record | None


class SegmentItem(ApiAnswer):
    """A message of the archive."""

    id: str
    sequence: int
    session: str
    role: str
    text: str
    said_at: float
    source: str
    trust: str
    tool: str | None


class FactItem(ApiAnswer):
    """A fact."""

    id: str
    type: str
    content: str
    subject: str
    at: float
    valid_to: float | None
    superseded_by: str | None
    session: str | None
    trust: str
    pinned: bool
    sources: list[str]


class ExportAnswer(ApiAnswer):
    """A page of all that is kept: messages in the order of arrival, then facts."""

    segments: list[SegmentItem]
    facts: list[FactItem]
    next: str | None


class JobItem(ApiAnswer):
    """Work in the background."""

    id: str
    kind: str
    state: str
    attempts: int
    run_at: float


class JobsAnswer(ApiAnswer):
    """The queue of a space."""

    waiting: int
    leased: int
    dead: int
    paused: list[str]
    jobs: list[JobItem]


# Facts and forgetting


class FactsQuery(PageQuery):
    """Which facts."""

    session: Name | None = None
    superseded: bool = False


class FactsAnswer(ApiAnswer):
    """A page of facts."""

    facts: list[FactItem]
    next: str | None


class FactBody(ApiBody):
    """A statement to take in."""

    content: Annotated[str, Meta(min_length=1, max_length=2_000)]
    type: FactType | None = None
    subject: Annotated[str, Meta(max_length=200)] = ""
    session: Name | None = None


class FactWrittenAnswer(ApiAnswer):
    """What became of it."""

    id: str
    outcome: str


class FactForgetQuery(ApiBody):
    """What goes with a fact."""

    sources: bool = False
    versions: bool = False


class ForgetBody(ApiBody):
    """What is to be forgotten for good; at least one way of saying it."""

    segments: Annotated[list[Name], Meta(max_length=1_000)] = []
    sessions: Annotated[list[Name], Meta(max_length=1_000)] = []
    said_before: Moment | None = None
    said_after: Moment | None = None
    matching: Annotated[str, Meta(min_length=1, max_length=2_000)] | None = None


class CertificateAnswer(ApiAnswer):
    """What was removed, what that covers, and what it cannot; without content."""

    certificate: Record


# Tenants


class SpaceItem(ApiAnswer):
    """A space of the tenant."""

    name: str
    created_at: float


class SpacesAnswer(ApiAnswer):
    """A page of the tenant's spaces."""

    spaces: list[SpaceItem]
    next: str | None


class BudgetItem(ApiAnswer):
    """A budget and what is spent of it in this period, on all nodes."""

    budget: str
    limit: int | None
    spent: int
    renews_in_seconds: float


class TenantAnswer(ApiAnswer):
    """Whose key this is, and what it may do."""

    tenant: str
    name: str
    key: str
    scopes: list[KeyScope]
    budgets: list[BudgetItem]


class AuditItem(ApiAnswer):
    """An administrative act."""

    at: float
    actor: str
    act: str
    subject: str


class AuditAnswer(ApiAnswer):
    """A page of the tenant's audit log, the newest first."""

    acts: list[AuditItem]
    next: str | None


class HealthAnswer(ApiAnswer):
    """The state of a node."""

    status: Literal["ok", "draining", "unavailable"]
    version: str


class ProblemAnswer(ApiAnswer):
    """What went wrong, and what to do: RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    budget: str | None = None
    """Which budget is spent, where one is."""
