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


def note(text: str) -> Meta:
    """Describe a field for the OpenAPI document."""
    return Meta(description=text)


Limit: TypeAlias = Annotated[int, Meta(ge=0)] | msgspec.UnsetType | None
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=3_200_000_000)]
NextPage: TypeAlias = Annotated[str | None, note("The `cursor` of the next page")]
NotReady: TypeAlias = Literal[
    "schema-missing", "schema-old", "schema-new", "secret-wrong", "unreachable",
    "disk-full", "draining",
]  # fmt: skip
MOST_PREVIEWED: Final = 1_000  # not measured; bounds the answer of a dry run


class ApiBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """The body of a request."""


class ApiAnswer(Struct, kw_only=True):
    """The body of an answer."""


class PrepareBody(ApiBody):
    """A request that you want to send to a model."""

    request: Annotated[WireObject, note("The request that you would send to the provider")]
    format: Format = None
    window_tokens: Window = None
    betas: Annotated[
        list[Name], Meta(max_length=64), note("Beta features in the request's headers")
    ] = []


class PreparedAnswer(ApiAnswer):
    """The request to send to the model instead, and its report."""

    wire_request: Annotated[WireObject, note("The request to send to the provider")] = field(
        name="request"
    )
    turn: Annotated[int | None, note("Pass it to `observe`; null if the request was unreadable")]
    archived: Annotated[
        Literal["store"] | None, note("Where the turn is stored: `store`, or null if nowhere")
    ]
    tokens_before: Annotated[int, note("Tokens of the request as received, estimated")]
    tokens_after: Annotated[int, note("Tokens of the returned request, estimated")]
    compacted: Annotated[bool, note("True if a summary replaced older messages")]
    report: Annotated[Record, note("What was done and why, without content")]

    @property
    def request(self) -> bytes:
        """The request to send, as JSON."""
        return bytes(self.wire_request)


class ObserveBody(ApiBody):
    """A model's reply."""

    reply: WireReply
    turn: Annotated[
        Annotated[int, Meta(ge=1, le=2**53)] | None,
        note("The turn it answers. A reply to an earlier turn is not stored"),
    ] = None


class ObservedAnswer(ApiAnswer):
    """The values that Recollect learned from the reply."""

    archived: Annotated[
        Literal["store"] | None, note("Where the turn is stored: `store`, or null if nowhere")
    ]
    due: Annotated[str, note("Due next: `nothing`, `flush` or `compaction`")]
    usage: Annotated[Record | None, note("Tokens as the provider counted them")]
    learned_window_tokens: Annotated[int | None, note("The model's window, if an error named it")]
    failures: Annotated[list[Record], note("Failures, each with stage and reason")]


class IngestBody(ApiBody):
    """Messages to store that did not pass through `prepare`."""

    messages: Annotated[
        list[WireObject],
        Meta(min_length=1, max_length=10_000),
        note("Messages of a wire format, oldest first"),
    ]
    format: Format = None
    batch: Annotated[
        Name | None,
        note(
            "Name of this part of the history, which is stored once. Without it, `messages` is "
            "the whole history"
        ),
    ] = None
    said_at: Annotated[Moment | None, note("Time of the messages; default: now")] = None


class IngestedAnswer(ApiAnswer):
    """The number of stored messages."""

    read: Annotated[int, note("How many messages were received")]
    stored: Annotated[int, note("How many of them are new")]
    known: Annotated[int, note("How many were stored before")]
    forgotten: Annotated[int, note("How many were not stored again, because they were forgotten")]
    redacted: Annotated[int, note("How many secrets were masked")]


class CompactBody(ApiBody):
    """The request whose older messages become a summary."""

    request: Annotated[WireObject, note("The request whose history to compact")]
    instructions: Annotated[str, Meta(max_length=20_000), note("Instructions for the summary")] = ""
    format: Format = None
    window_tokens: Window = None


class CompactedAnswer(ApiAnswer):
    """The result of a compaction. The compaction's receipt has the details."""

    compacted: Annotated[bool, note("True if a summary now replaces older messages")]
    convergence: Annotated[str, note("`reduced`, `irreducible` or `failed`")]
    cause: Annotated[str, note("The reason as a stable name")]
    reason: Annotated[str, note("The reason as a sentence")]
    number: Annotated[int, note("The number of its receipt; 0: none")]
    tokens_before: Annotated[int, note("Tokens of the request as received, estimated")]
    tokens_after: Annotated[int, note("Tokens of the returned request, estimated")]


class UndoneAnswer(ApiAnswer):
    """The result of undoing the last compaction."""

    undone: Annotated[bool, note("Whether a compaction was undone")]
    reason: Annotated[str, note("What was done, or why nothing was")]


class PageQuery(ApiBody):
    """Selects a page of a list."""

    cursor: Annotated[
        Annotated[str, Meta(max_length=2_000)] | None,
        note("The `next` value of the previous page"),
    ] = None
    limit: Annotated[int, Meta(ge=1, le=500), note("Entries per page, at most")] = 100


class NoQuery(ApiBody):
    """A query without parameters."""


class SearchBody(ApiBody):
    """A question to memory."""

    query: Annotated[Text, note("The question or words to search for")]
    session: Annotated[Name | None, note("Only what this session may see")] = None
    budget_tokens: Annotated[int, Meta(ge=1, le=50_000), note("Token limit of all passages")] = (
        2_000
    )
    said_after: Annotated[Moment | None, note("Only messages from this time on")] = None
    said_before: Annotated[Moment | None, note("Only messages before this time")] = None


class FoundPassage(ApiAnswer):
    """A passage of an earlier message."""

    text: Annotated[str, note("The passage that matches the question")]
    role: Annotated[str, note("The role of its author")]
    session: Annotated[str | None, note("The session of the message")]
    said_at: Annotated[float, note("When")]
    score: Annotated[float, note("How relevant it is: above 0, higher is better")]
    segment: Annotated[str | None, note("The id of its message, which `forget` takes")]


class FoundFact(ApiAnswer):
    """A fact that is relevant to the question."""

    id: Annotated[str | None, note("The fact's id")]
    type: Annotated[str, note("Its type")]
    text: Annotated[str, note("Its text")]
    score: Annotated[float, note("How relevant it is: above 0, higher is better")]
    trust: Annotated[str, note("How far its sources are trusted")]


class FoundAnswer(ApiAnswer):
    """The passages and facts found, best first."""

    passages: Annotated[list[FoundPassage], note("Passages of messages, best first")]
    facts: Annotated[list[FoundFact], note("Facts, best first")]


class SessionItem(ApiAnswer):
    """A session in a list."""

    session: Annotated[str, note("Its name")]
    messages: Annotated[int, note("How many of its messages are stored")]
    first_said_at: Annotated[float | None, note("Time of the first message")]
    last_said_at: Annotated[float | None, note("Time of the last message")]


class SessionsAnswer(ApiAnswer):
    """A page of sessions."""

    sessions: Annotated[list[SessionItem], note("Sessions by name")]
    next: NextPage


class ReceiptItem(ApiAnswer):
    """A compaction in a list."""

    number: Annotated[int, note("Its number, from 1")]
    at: Annotated[float, note("When")]


class ReceiptsAnswer(ApiAnswer):
    """A page of compactions."""

    receipts: Annotated[list[ReceiptItem], note("Compactions, oldest first")]
    next: NextPage


class ReceiptAnswer(ApiAnswer):
    """The details that a compaction kept, and those that it lost."""

    number: Annotated[int, note("Its number, from 1")]
    at: Annotated[float, note("When")]
    result: Annotated[
        Record, note("What the summary kept, what can be recalled, what is lost, and the cost")
    ]


class TurnsAnswer(ApiAnswer):
    """A page of the turns that can be replayed."""

    turns: Annotated[list[int], note("Numbers of turns, ascending")]
    next: NextPage


class ReplayAnswer(ApiAnswer):
    """A past request, rebuilt from the parts that are stored."""

    turn: Annotated[int, note("Its number, from 1")]
    exact: Annotated[bool, note("True if it equals the sent request byte for byte")]
    missing: Annotated[list[str], note("Parts that are no longer stored")]
    redacted: Annotated[list[str], note("Parts that were masked, or changed in the store")]
    wire_request: Annotated[WireObject, note("The request, as far as it is stored")] = field(
        name="request"
    )
    report: Annotated[Record | None, note("What was done to it and why")]

    @property
    def request(self) -> bytes:
        """The past request, as JSON."""
        return bytes(self.wire_request)


class SegmentItem(ApiAnswer):
    """A message in an export or a list."""

    id: Annotated[str, note("Its id")]
    sequence: Annotated[int, note("Its place in the order of arrival")]
    session: Annotated[str, note("The session that it belongs to")]
    role: Annotated[str, note("The role of its author")]
    text: Annotated[str, note("Its text, with secrets masked")]
    said_at: Annotated[float, note("When")]
    source: Annotated[str, note("Its origin: a turn, an import or a client")]
    trust: Annotated[str, note("How far it is trusted")]
    tool: Annotated[str | None, note("The tool that returned this result")]


class FactItem(ApiAnswer):
    """A fact."""

    id: Annotated[str, note("Its id")]
    type: Annotated[str, note("Its type")]
    content: Annotated[str, note("Its text")]
    subject: Annotated[str, note("What it is about; may be empty")]
    at: Annotated[float, note("Time from which the fact is valid")]
    valid_to: Annotated[
        float | None, note("Time until which the fact was valid; null: it is still valid")
    ]
    superseded_by: Annotated[str | None, note("The fact that replaced it")]
    session: Annotated[str | None, note("Its session; null: the whole space")]
    trust: Annotated[str, note("How far its sources are trusted")]
    pinned: Annotated[bool, note("Whether it is repeated in every request")]
    sources: Annotated[list[str], note("Ids of its source messages")]


class ExportAnswer(ApiAnswer):
    """A page of an export: messages in order of arrival, then facts."""

    segments: Annotated[list[SegmentItem], note("Messages in the order of arrival")]
    facts: Annotated[list[FactItem], note("Facts; they follow the last message")]
    next: NextPage


class FactsQuery(PageQuery):
    """Selects the facts to list."""

    session: Annotated[Name | None, note("Only the facts that this session may see")] = None
    superseded: Annotated[bool, note("Also facts that are no longer valid")] = False


class FactsAnswer(ApiAnswer):
    """A page of facts."""

    facts: Annotated[list[FactItem], note("Facts, pinned ones first")]
    next: NextPage


class FactBody(ApiBody):
    """A statement to store as a fact."""

    content: Annotated[
        str, Meta(min_length=1, max_length=2_000), note("The statement, as a sentence")
    ]
    type: Annotated[FactType | None, note("Its kind; detected if missing")] = None
    subject: Annotated[str, Meta(max_length=200), note("What it is about")] = ""
    session: Annotated[Name | None, note("Its session; default: the whole space")] = None


class FactWrittenAnswer(ApiAnswer):
    """The result of storing a statement as a fact."""

    id: Annotated[str, note("The id of the fact")]
    outcome: Annotated[str, note("Whether the fact is new, already known, or replaces another")]


class FactForgetQuery(ApiBody):
    """What to forget together with a fact."""

    sources: Annotated[bool, note("Also its source messages")] = False
    versions: Annotated[bool, note("Also its earlier and later versions")] = False


class ForgetBody(ApiBody):
    """What to forget permanently. Set at least one selector."""

    segments: Annotated[list[Name], Meta(max_length=1_000), note("Ids of messages")] = []
    sessions: Annotated[list[Name], Meta(max_length=1_000), note("Whole sessions, by name")] = []
    said_before: Annotated[Moment | None, note("All messages before this time")] = None
    said_after: Annotated[Moment | None, note("All messages from this time on")] = None
    matching: Annotated[
        Annotated[str, Meta(min_length=1, max_length=2_000)] | None,
        note("Everything that contains this text, ignoring case"),
    ] = None
    dry_run: Annotated[bool, note("List what would be removed, and change nothing")] = False


class ForgetPreview(ApiAnswer):
    """The data that forgetting would remove, if a request only asks for a preview."""

    segments: Annotated[int, note("How many messages would be removed")]
    segment_ids: Annotated[list[str], note("Their ids, the first thousand of them")]
    facts: Annotated[int, note("How many facts would be removed")]
    fact_ids: Annotated[list[str], note("Their ids, the first thousand of them")]
    records: Annotated[int, note("How many other records contain the text")]


class ForgottenAnswer(ApiAnswer):
    """The removed data, or the preview."""

    certificate: Annotated[
        Record | None, note("Counts and coverage, sealed with a checksum; null after a dry run")
    ]
    preview: Annotated[ForgetPreview | None, note("Only after a dry run")]


class CertificateAnswer(ApiAnswer):
    """A record of what was removed and where, without message content."""

    certificate: Annotated[Record, note("Counts and coverage, sealed with a checksum")]


class SpaceItem(ApiAnswer):
    """A space of the tenant."""

    name: Annotated[str, note("Its name")]
    created_at: Annotated[float, note("When it was created")]


class SpacesAnswer(ApiAnswer):
    """A page of the tenant's spaces."""

    spaces: Annotated[list[SpaceItem], note("Spaces by name")]
    next: NextPage


class BudgetItem(ApiAnswer):
    """A budget, and how much of it is used in this period."""

    budget: Annotated[str, note("`requests per minute` or `tokens per day`")]
    limit: Annotated[int | None, note("The limit per period; null: none")]
    spent: Annotated[int, note("How much is used in this period, on all nodes")]
    renews_in_seconds: Annotated[float, note("Seconds until the next period begins")]


class QuotaItem(ApiAnswer):
    """A quota, and how much of it the tenant uses."""

    quota: Annotated[QuotaName, note("`spaces`, or `bytes` of stored messages")]
    limit: Annotated[int | None, note("The quota; null: none")]
    used: Annotated[int, note("How much is used; bytes may be a minute old")]


class TenantAnswer(ApiAnswer):
    """The tenant of a key, and the scopes of the key."""

    tenant: Annotated[str, note("The tenant's id")]
    name: Annotated[str, note("The tenant's name")]
    key: Annotated[str, note("The id of the key")]
    scopes: Annotated[list[KeyScope], note("What the key may do")]
    budgets: Annotated[list[BudgetItem], note("Each budget, and how much of it is used")]
    quotas: Annotated[list[QuotaItem], note("Each quota, and how much of it is used")]


class AuditItem(ApiAnswer):
    """An administrative action, as the audit log records it."""

    at: Annotated[float, note("When")]
    actor: Annotated[str, note("The key, or who ran a command")]
    act: Annotated[str, note("What was done")]
    subject: Annotated[str, note("What it was done to")]


class AuditAnswer(ApiAnswer):
    """A page of the tenant's audit log, newest first."""

    acts: Annotated[list[AuditItem], note("Administrative actions, newest first")]
    next: NextPage


class LimitsBody(ApiBody):
    """Limits of a tenant. A missing field leaves its limit unchanged; null removes the limit."""

    requests_per_minute: Annotated[Limit, note("Requests per minute")] = msgspec.UNSET
    tokens_per_day: Annotated[Limit, note("Tokens per day")] = msgspec.UNSET
    most_spaces: Annotated[Limit, note("Spaces")] = msgspec.UNSET
    most_bytes: Annotated[Limit, note("Bytes of stored messages, as UTF-8")] = msgspec.UNSET


class TenantBody(LimitsBody, kw_only=True):
    """A tenant to create, and its limits. A missing limit means unlimited."""

    name: Annotated[Name, note("Its name, unique in the service")]


class TenantItem(ApiAnswer):
    """A tenant and its limits. A limit of null means unlimited."""

    id: Annotated[str, note("Its id, for the paths of this API")]
    name: Annotated[str, note("Its name")]
    created_at: Annotated[float, note("When it was created")]
    requests_per_minute: Annotated[int | None, note("Requests per minute")]
    tokens_per_day: Annotated[int | None, note("Tokens per day")]
    most_spaces: Annotated[int | None, note("Spaces")]
    most_bytes: Annotated[int | None, note("Bytes of stored messages, as UTF-8")]


class TenantsAnswer(ApiAnswer):
    """A page of the service's tenants."""

    tenants: Annotated[list[TenantItem], note("Tenants by name")]
    next: NextPage


class TenantDeletedAnswer(ApiAnswer):
    """The deleted data of a tenant."""

    certificates: Annotated[list[Record], note("One per deleted space")]
    done: Annotated[bool, note("False if spaces are left: send the request again, as a new one")]


class KeyBody(ApiBody):
    """A key to create."""

    name: Annotated[str, Meta(max_length=512), note("Its name in lists")] = ""
    scopes: Annotated[
        list[Literal["read", "write", "forget", "admin"]],
        note("What it may do; default: `read` and `write`"),
    ] = []
    expires_in_seconds: Annotated[Seconds | None, note("Its lifetime; default: unlimited")] = None


class RotateBody(ApiBody):
    """How to replace a key."""

    grace_seconds: Annotated[Seconds, note("Seconds for which the old key keeps working")] = (
        86_400.0
    )


class KeyItem(ApiAnswer):
    """A key, without its secret."""

    id: Annotated[str, note("Its id")]
    prefix: Annotated[str, note("The part of the key that is not secret")]
    name: Annotated[str, note("Its name")]
    scopes: Annotated[list[KeyScope], note("What it may do")]
    created_at: Annotated[float, note("When it was created")]
    expires_at: Annotated[float | None, note("When it ends; null: never")]
    revoked_at: Annotated[float | None, note("When it was revoked, if it was")]


class KeysAnswer(ApiAnswer):
    """The keys of a tenant."""

    keys: Annotated[list[KeyItem], note("Keys, oldest first")]


class KeyMadeAnswer(ApiAnswer):
    """A new key. Save the key now, because Recollect cannot show it again."""

    key: Annotated[str, note("The key itself")]
    record: Annotated[KeyItem, note("What is stored about it")]


class OperatorAuditItem(AuditItem, kw_only=True):
    """An administrative action on any tenant."""

    tenant: Annotated[str, note("The tenant's id")]


class OperatorAuditAnswer(ApiAnswer):
    """A page of the service's audit log, newest first."""

    acts: Annotated[list[OperatorAuditItem], note("Administrative actions, newest first")]
    next: NextPage


class HealthAnswer(ApiAnswer):
    """The state of a node."""

    status: Annotated[Literal["ok", "draining", "unavailable"], note("Whether to send it requests")]
    version: Annotated[str, note("The version of Recollect on this node")]
    reason: Annotated[
        NotReady | None,
        note(
            "Why it is not ready. `schema-…`: run `recollect db migrate`. `secret-wrong`: set the"
            " RECOLLECT_SECRET of the other nodes. With `disk-full` it is ready: reads and removals"
            " work, while writes may fail"
        ),
    ] = None


class ProblemAnswer(ApiAnswer):
    """A problem and its fix, as in RFC 9457."""

    type: Annotated[str, note("A URN that ends in the problem's name")]
    title: Annotated[str, note("What kind of problem it is")]
    status: Annotated[int, note("The HTTP status")]
    detail: Annotated[str, note("What is wrong with this request, and what to do")]
    budget: Annotated[str | None, note("The budget that is used up, if any")] = None
