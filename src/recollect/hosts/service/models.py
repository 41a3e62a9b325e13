"""The bodies, queries and answers of the API, each declared once: for the service, the OpenAPI
document and the client. Requests with unknown fields are refused. Answers may get new fields."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct, field

from recollect.core.values.fact import FactType
from recollect.core.values.model import FormatName
from recollect.core.values.tenant import KeyScope, QuotaName

Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=512)]
Text: TypeAlias = Annotated[str, Meta(min_length=1, max_length=100_000)]
Tokens: TypeAlias = Annotated[int, Meta(ge=1, le=100_000_000)]
Moment: TypeAlias = Annotated[
    float, Meta(ge=0, le=32_503_680_000, description="In seconds since the epoch")
]
Format: TypeAlias = Annotated[
    FormatName | None, Meta(description="The wire format; detected if missing")
]
Window: TypeAlias = Annotated[
    Tokens | None, Meta(description="The window in tokens; default: that of the request's model")
]
WireObject: TypeAlias = Annotated[
    msgspec.Raw,
    Meta(description="In the provider's wire format", extra_json_schema={"type": "object"}),
]
WireReply: TypeAlias = Annotated[
    msgspec.Raw,
    Meta(
        description="A provider's reply or error, or the list of its stream's events",
        extra_json_schema={"type": ["object", "array"]},
    ),
]
Record: TypeAlias = dict[str, Any]


def about(text: str) -> Meta:
    """Describe a field for the OpenAPI document."""
    return Meta(description=text)


Limit: TypeAlias = Annotated[int, Meta(ge=0)] | msgspec.UnsetType | None
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=3_200_000_000)]
NextPage: TypeAlias = Annotated[str | None, about("The `cursor` of the next page")]
NotReady: TypeAlias = Literal[
    "schema-missing", "schema-old", "schema-new", "secret-wrong", "unreachable",
    "disk-full", "draining",
]  # fmt: skip
MOST_PREVIEWED: Final = 1_000


class ApiBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """The body of a request."""


class ApiAnswer(Struct, kw_only=True):
    """The body of an answer."""


class PrepareBody(ApiBody):
    """A request that you want to send to a model."""

    request: Annotated[WireObject, about("The request that you would send to the provider")]
    format: Format = None
    window_tokens: Window = None
    betas: Annotated[
        list[Name], Meta(max_length=64), about("Beta features in the request's headers")
    ] = []


class PreparedAnswer(ApiAnswer):
    """The request to send to the model instead, and its report."""

    wire_request: Annotated[WireObject, about("The request to send to the provider")] = field(
        name="request"
    )
    turn: Annotated[int | None, about("Pass it to `observe`; null if the request was unreadable")]
    archived: Annotated[
        Literal["store"] | None, about("Where the turn is stored: `store`, or null if nowhere")
    ]
    tokens_before: Annotated[int, about("Tokens of the request as received, estimated")]
    tokens_after: Annotated[int, about("Tokens of the returned request, estimated")]
    compacted: Annotated[bool, about("True if a summary replaced older messages")]
    report: Annotated[Record, about("What was done and why, without content")]

    @property
    def request(self) -> bytes:
        """The request to send, as JSON."""
        return bytes(self.wire_request)


class ObserveBody(ApiBody):
    """A model's reply."""

    reply: WireReply
    turn: Annotated[
        Annotated[int, Meta(ge=1, le=2**53)] | None,
        about("The turn it answers. A reply to an earlier turn is not stored"),
    ] = None


class ObservedAnswer(ApiAnswer):
    """The values that Recollect learned from the reply."""

    archived: Annotated[
        Literal["store"] | None, about("Where the turn is stored: `store`, or null if nowhere")
    ]
    due: Annotated[str, about("Due next: `nothing`, `flush` or `compaction`")]
    usage: Annotated[Record | None, about("Tokens as the provider counted them")]
    learned_window_tokens: Annotated[int | None, about("The model's window, if an error named it")]
    failures: Annotated[list[Record], about("Failures, each with stage and reason")]


class IngestBody(ApiBody):
    """Messages to store that did not pass through `prepare`."""

    messages: Annotated[
        list[WireObject],
        Meta(min_length=1, max_length=10_000),
        about("Messages of a wire format, oldest first"),
    ]
    format: Format = None
    batch: Annotated[
        Name | None,
        about(
            "Name of this part of the history, which is stored once. Without it, `messages` is "
            "the whole history"
        ),
    ] = None
    said_at: Annotated[Moment | None, about("Time of the messages; default: now")] = None


class IngestedAnswer(ApiAnswer):
    """The number of stored messages."""

    read: Annotated[int, about("How many messages were received")]
    stored: Annotated[int, about("How many of them are new")]
    known: Annotated[int, about("How many were stored before")]
    forgotten: Annotated[int, about("How many were not stored again, because they were forgotten")]
    redacted: Annotated[int, about("How many secrets were masked")]


class CompactBody(ApiBody):
    """The request whose older messages become a summary."""

    request: Annotated[WireObject, about("The request whose history to compact")]
    instructions: Annotated[str, Meta(max_length=20_000), about("Instructions for the summary")] = (
        ""
    )
    format: Format = None
    window_tokens: Window = None


class CompactedAnswer(ApiAnswer):
    """The result of a compaction. The compaction's receipt has the details."""

    compacted: Annotated[bool, about("True if a summary now replaces older messages")]
    convergence: Annotated[str, about("`reduced`, `irreducible` or `failed`")]
    cause: Annotated[str, about("The reason as a stable name")]
    reason: Annotated[str, about("The reason as a sentence")]
    number: Annotated[int, about("The number of its receipt; 0: none")]
    tokens_before: Annotated[int, about("Tokens of the request as received, estimated")]
    tokens_after: Annotated[int, about("Tokens of the returned request, estimated")]


class UndoneAnswer(ApiAnswer):
    """The result of undoing the last compaction."""

    undone: Annotated[bool, about("Whether a compaction was undone")]
    reason: Annotated[str, about("What was done, or why nothing was")]


class PageQuery(ApiBody):
    """Selects a page of a list."""

    cursor: Annotated[
        Annotated[str, Meta(max_length=2_000)] | None,
        about("The `next` value of the previous page"),
    ] = None
    limit: Annotated[int, Meta(ge=1, le=500), about("Entries per page, at most")] = 100


class NoQuery(ApiBody):
    """A query without parameters."""


class SearchBody(ApiBody):
    """A question to memory."""

    query: Annotated[Text, about("The question or words to search for")]
    session: Annotated[Name | None, about("Only what this session may see")] = None
    budget_tokens: Annotated[int, Meta(ge=1, le=50_000), about("Token limit of all passages")] = (
        2_000
    )
    said_after: Annotated[Moment | None, about("Only messages from this time on")] = None
    said_before: Annotated[Moment | None, about("Only messages before this time")] = None


class FoundPassage(ApiAnswer):
    """A passage of an earlier message."""

    text: Annotated[str, about("The passage that matches the question")]
    role: Annotated[str, about("The role of its author")]
    session: Annotated[str | None, about("The session of the message")]
    said_at: Annotated[float, about("When")]
    score: Annotated[float, about("How relevant it is: above 0, higher is better")]
    segment: Annotated[str | None, about("The id of its message, which `forget` takes")]


class FoundFact(ApiAnswer):
    """A fact that is relevant to the question."""

    id: Annotated[str | None, about("The fact's id")]
    type: Annotated[str, about("Its type")]
    text: Annotated[str, about("Its text")]
    score: Annotated[float, about("How relevant it is: above 0, higher is better")]
    trust: Annotated[str, about("How far its sources are trusted")]


class FoundAnswer(ApiAnswer):
    """The passages and facts found, best first."""

    passages: Annotated[list[FoundPassage], about("Passages of messages, best first")]
    facts: Annotated[list[FoundFact], about("Facts, best first")]


class SessionItem(ApiAnswer):
    """A session in a list."""

    session: Annotated[str, about("Its name")]
    messages: Annotated[int, about("How many of its messages are stored")]
    first_said_at: Annotated[float | None, about("Time of the first message")]
    last_said_at: Annotated[float | None, about("Time of the last message")]


class SessionsAnswer(ApiAnswer):
    """A page of sessions."""

    sessions: Annotated[list[SessionItem], about("Sessions by name")]
    next: NextPage


class ReceiptItem(ApiAnswer):
    """A compaction in a list."""

    number: Annotated[int, about("Its number, from 1")]
    at: Annotated[float, about("When")]


class ReceiptsAnswer(ApiAnswer):
    """A page of compactions."""

    receipts: Annotated[list[ReceiptItem], about("Compactions, oldest first")]
    next: NextPage


class ReceiptAnswer(ApiAnswer):
    """The details that a compaction kept, and those that it lost."""

    number: Annotated[int, about("Its number, from 1")]
    at: Annotated[float, about("When")]
    result: Annotated[
        Record, about("What the summary kept, what can be recalled, what is lost, and the cost")
    ]


class TurnsAnswer(ApiAnswer):
    """A page of the turns that can be replayed."""

    turns: Annotated[list[int], about("Numbers of turns, ascending")]
    next: NextPage


class ReplayAnswer(ApiAnswer):
    """A past request, rebuilt from the parts that are stored."""

    turn: Annotated[int, about("Its number, from 1")]
    exact: Annotated[bool, about("True if it equals the sent request byte for byte")]
    missing: Annotated[list[str], about("Parts that are no longer stored")]
    redacted: Annotated[list[str], about("Parts that were masked, or changed in the store")]
    wire_request: Annotated[WireObject, about("The request, as far as it is stored")] = field(
        name="request"
    )
    report: Annotated[Record | None, about("What was done to it and why")]

    @property
    def request(self) -> bytes:
        """The past request, as JSON."""
        return bytes(self.wire_request)


class SegmentItem(ApiAnswer):
    """A message in an export or a list."""

    id: Annotated[str, about("Its id")]
    sequence: Annotated[int, about("Its place in the order of arrival")]
    session: Annotated[str, about("The session that it belongs to")]
    role: Annotated[str, about("The role of its author")]
    text: Annotated[str, about("Its text, with secrets masked")]
    said_at: Annotated[float, about("When")]
    source: Annotated[str, about("Its origin: a turn, an import or a client")]
    trust: Annotated[str, about("How far it is trusted")]
    tool: Annotated[str | None, about("The tool that returned this result")]


class FactItem(ApiAnswer):
    """A fact."""

    id: Annotated[str, about("Its id")]
    type: Annotated[str, about("Its type")]
    content: Annotated[str, about("Its text")]
    subject: Annotated[str, about("What it is about; may be empty")]
    at: Annotated[float, about("Time from which the fact is valid")]
    valid_to: Annotated[
        float | None, about("Time until which the fact was valid; null: it is still valid")
    ]
    superseded_by: Annotated[str | None, about("The fact that replaced it")]
    session: Annotated[str | None, about("Its session; null: the whole space")]
    trust: Annotated[str, about("How far its sources are trusted")]
    pinned: Annotated[bool, about("Whether it is repeated in every request")]
    sources: Annotated[list[str], about("Ids of its source messages")]


class ExportAnswer(ApiAnswer):
    """A page of an export: messages in order of arrival, then facts."""

    segments: Annotated[list[SegmentItem], about("Messages in the order of arrival")]
    facts: Annotated[list[FactItem], about("Facts; they follow the last message")]
    next: NextPage


class FactsQuery(PageQuery):
    """Selects the facts to list."""

    session: Annotated[Name | None, about("Only the facts that this session may see")] = None
    superseded: Annotated[bool, about("Also facts that are no longer valid")] = False


class FactsAnswer(ApiAnswer):
    """A page of facts."""

    facts: Annotated[list[FactItem], about("Facts, pinned ones first")]
    next: NextPage


class FactBody(ApiBody):
    """A statement to store as a fact."""

    content: Annotated[
        str, Meta(min_length=1, max_length=2_000), about("The statement, as a sentence")
    ]
    type: Annotated[FactType | None, about("Its kind; detected if missing")] = None
    subject: Annotated[str, Meta(max_length=200), about("What it is about")] = ""
    session: Annotated[Name | None, about("Its session; default: the whole space")] = None


class FactWrittenAnswer(ApiAnswer):
    """The result of storing a statement as a fact."""

    id: Annotated[str, about("The id of the fact")]
    outcome: Annotated[str, about("Whether the fact is new, already known, or replaces another")]


class FactForgetQuery(ApiBody):
    """What to forget together with a fact."""

    sources: Annotated[bool, about("Also its source messages")] = False
    versions: Annotated[bool, about("Also its earlier and later versions")] = False


class ForgetBody(ApiBody):
    """What to forget permanently. Set at least one selector."""

    segments: Annotated[list[Name], Meta(max_length=1_000), about("Ids of messages")] = []
    sessions: Annotated[list[Name], Meta(max_length=1_000), about("Whole sessions, by name")] = []
    said_before: Annotated[Moment | None, about("All messages before this time")] = None
    said_after: Annotated[Moment | None, about("All messages from this time on")] = None
    matching: Annotated[
        Annotated[str, Meta(min_length=1, max_length=2_000)] | None,
        about("Everything that contains this text, ignoring case"),
    ] = None
    dry_run: Annotated[bool, about("List what would be removed, and change nothing")] = False


class ForgetPreview(ApiAnswer):
    """The data that forgetting would remove, if a request only asks for a preview."""

    segments: Annotated[int, about("How many messages would be removed")]
    segment_ids: Annotated[list[str], about("Their ids, the first thousand of them")]
    facts: Annotated[int, about("How many facts would be removed")]
    fact_ids: Annotated[list[str], about("Their ids, the first thousand of them")]
    records: Annotated[int, about("How many other records contain the text")]


class ForgottenAnswer(ApiAnswer):
    """The removed data, or the preview."""

    certificate: Annotated[
        Record | None, about("Counts and coverage, sealed with a checksum; null after a dry run")
    ]
    preview: Annotated[ForgetPreview | None, about("Only after a dry run")]


class CertificateAnswer(ApiAnswer):
    """A record of what was removed and where, without message content."""

    certificate: Annotated[Record, about("Counts and coverage, sealed with a checksum")]


class SpaceItem(ApiAnswer):
    """A space of the tenant."""

    name: Annotated[str, about("Its name")]
    created_at: Annotated[float, about("When it was created")]


class SpacesAnswer(ApiAnswer):
    """A page of the tenant's spaces."""

    spaces: Annotated[list[SpaceItem], about("Spaces by name")]
    next: NextPage


class BudgetItem(ApiAnswer):
    """A budget, and how much of it is used in this period."""

    budget: Annotated[str, about("`requests per minute` or `tokens per day`")]
    limit: Annotated[int | None, about("The limit per period; null: none")]
    spent: Annotated[int, about("How much is used in this period, on all nodes")]
    renews_in_seconds: Annotated[float, about("Seconds until the next period begins")]


class QuotaItem(ApiAnswer):
    """A quota, and how much of it the tenant uses."""

    quota: Annotated[QuotaName, about("`spaces`, or `bytes` of stored messages")]
    limit: Annotated[int | None, about("The quota; null: none")]
    used: Annotated[int, about("How much is used; bytes may be a minute old")]


class TenantAnswer(ApiAnswer):
    """The tenant of a key, and the scopes of the key."""

    tenant: Annotated[str, about("The tenant's id")]
    name: Annotated[str, about("The tenant's name")]
    key: Annotated[str, about("The id of the key")]
    scopes: Annotated[list[KeyScope], about("What the key may do")]
    budgets: Annotated[list[BudgetItem], about("Each budget, and how much of it is used")]
    quotas: Annotated[list[QuotaItem], about("Each quota, and how much of it is used")]


class AuditItem(ApiAnswer):
    """An administrative action, as the audit log records it."""

    at: Annotated[float, about("When")]
    actor: Annotated[str, about("The key, or who ran a command")]
    act: Annotated[str, about("What was done")]
    subject: Annotated[str, about("What it was done to")]


class AuditAnswer(ApiAnswer):
    """A page of the tenant's audit log, newest first."""

    acts: Annotated[list[AuditItem], about("Administrative actions, newest first")]
    next: NextPage


class LimitsBody(ApiBody):
    """Limits of a tenant. A missing field leaves its limit unchanged; null removes the limit."""

    requests_per_minute: Annotated[Limit, about("Requests per minute")] = msgspec.UNSET
    tokens_per_day: Annotated[Limit, about("Tokens per day")] = msgspec.UNSET
    most_spaces: Annotated[Limit, about("Spaces")] = msgspec.UNSET
    most_bytes: Annotated[Limit, about("Bytes of stored messages, as UTF-8")] = msgspec.UNSET


class TenantBody(LimitsBody, kw_only=True):
    """A tenant to create, and its limits. A missing limit means unlimited."""

    name: Annotated[Name, about("Its name, unique in the service")]


class TenantItem(ApiAnswer):
    """A tenant and its limits. A limit of null means unlimited."""

    id: Annotated[str, about("Its id, for the paths of this API")]
    name: Annotated[str, about("Its name")]
    created_at: Annotated[float, about("When it was created")]
    requests_per_minute: Annotated[int | None, about("Requests per minute")]
    tokens_per_day: Annotated[int | None, about("Tokens per day")]
    most_spaces: Annotated[int | None, about("Spaces")]
    most_bytes: Annotated[int | None, about("Bytes of stored messages, as UTF-8")]


class TenantsAnswer(ApiAnswer):
    """A page of the service's tenants."""

    tenants: Annotated[list[TenantItem], about("Tenants by name")]
    next: NextPage


class TenantDeletedAnswer(ApiAnswer):
    """The deleted data of a tenant."""

    certificates: Annotated[list[Record], about("One per deleted space")]
    done: Annotated[bool, about("False if spaces are left: send the request again, as a new one")]


class KeyBody(ApiBody):
    """A key to create."""

    name: Annotated[str, Meta(max_length=512), about("Its name in lists")] = ""
    scopes: Annotated[
        list[Literal["read", "write", "forget", "admin"]],
        about("What it may do; default: `read` and `write`"),
    ] = []
    expires_in_seconds: Annotated[Seconds | None, about("Its lifetime; default: unlimited")] = None


class RotateBody(ApiBody):
    """How to replace a key."""

    grace_seconds: Annotated[Seconds, about("Seconds for which the old key keeps working")] = (
        86_400.0
    )


class KeyItem(ApiAnswer):
    """A key, without its secret."""

    id: Annotated[str, about("Its id")]
    prefix: Annotated[str, about("The part of the key that is not secret")]
    name: Annotated[str, about("Its name")]
    scopes: Annotated[list[KeyScope], about("What it may do")]
    created_at: Annotated[float, about("When it was created")]
    expires_at: Annotated[float | None, about("When it ends; null: never")]
    revoked_at: Annotated[float | None, about("When it was revoked, if it was")]


class KeysAnswer(ApiAnswer):
    """The keys of a tenant."""

    keys: Annotated[list[KeyItem], about("Keys, oldest first")]


class KeyMadeAnswer(ApiAnswer):
    """A new key. Save the key now, because Recollect cannot show it again."""

    key: Annotated[str, about("The key itself")]
    record: Annotated[KeyItem, about("What is stored about it")]


class OperatorAuditItem(AuditItem, kw_only=True):
    """An administrative action on any tenant."""

    tenant: Annotated[str, about("The tenant's id")]


class OperatorAuditAnswer(ApiAnswer):
    """A page of the service's audit log, newest first."""

    acts: Annotated[list[OperatorAuditItem], about("Administrative actions, newest first")]
    next: NextPage


class HealthAnswer(ApiAnswer):
    """The state of a node."""

    status: Annotated[
        Literal["ok", "draining", "unavailable"], about("Whether to send it requests")
    ]
    version: Annotated[str, about("The version of Recollect on this node")]
    reason: Annotated[
        NotReady | None,
        about(
            "Why it is not ready. `schema-…`: run `recollect db migrate`. `secret-wrong`: set the"
            " RECOLLECT_SECRET of the other nodes. With `disk-full` it is ready: reads and removals"
            " work, while writes may fail"
        ),
    ] = None


class ProblemAnswer(ApiAnswer):
    """A problem and its fix, as in RFC 9457."""

    type: Annotated[str, about("A URN that ends in the problem's name")]
    title: Annotated[str, about("What kind of problem it is")]
    status: Annotated[int, about("The HTTP status")]
    detail: Annotated[str, about("What is wrong with this request, and what to do")]
    budget: Annotated[str | None, about("The budget that is used up, if any")] = None
