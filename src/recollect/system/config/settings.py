"""Every setting: its type with bounds, its default, what a project may set, and its effect.

docs/reference/settings.md shows the string after each setting. A `Settings` object is always valid,
because each group checks its values when it is created."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from msgspec import Meta

from recollect.errors import SettingsError
from recollect.system.config.fields import (
    ANY,
    GREATEST,
    SECONDS,
    Text,
    Validated,
    at_least,
    only,
    setting,
)

CALIBRATED_MIN_SCORE = 0.2
"""Lowest score of a recalled passage, unless `recall.min_score` is set."""
FALLBACK_WINDOW_TOKENS = 200_000
"""Size of the window if neither the settings, the table of models nor the provider reports it."""

Preset = Literal["recollect", "openclaw"]
RecallMethod = Literal["recollect", "openclaw"]
Placement = Literal["before-newest-user", "after-system"]
Scope = Literal["auto", "session", "space"]
EmbedderName = Literal[
    "auto", "none", "hash", "static", "onnx", "onnx+static", "transformer", "remote"
]
RemoteProvider = Literal["openai", "gemini", "voyage"]
Citations = Literal["auto", "on", "off"]
Counter = Literal["script-aware", "openclaw"]
ProviderFormat = Literal["anthropic", "openai-chat", "openai-responses"]
CompactionMode = Literal["safeguard", "default"]
PruningMode = Literal["off", "cache-ttl", "adaptive", "aggressive"]
IndexSource = Literal["sessions", "memory"]
ResetMode = Literal["daily", "idle"]
LogFormat = Literal["text", "json"]
GatewaySummaries = Literal["off", "client"]

Count = Annotated[int, Meta(ge=0, le=GREATEST)]
Positive = Annotated[int, Meta(ge=1, le=GREATEST)]
Port = Annotated[int, Meta(ge=0, le=65_535)]
Ratio = Annotated[float, Meta(ge=0, le=1)]
Share = Annotated[float, Meta(gt=0, le=1)]
Seconds = Annotated[float, Meta(gt=0, le=GREATEST, extra=SECONDS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hybrid(Validated):
    """Combination of word scores and vector scores."""

    vector_weight: Ratio | None = None
    """Weight of the vector score in a passage's score. If none, the weight that we measured for the
    embedder."""
    text_weight: Ratio | None = None
    """Weight of the word score in a passage's score. If none, the weight that we measured for the
    embedder."""

    def __post_init__(self) -> None:
        Validated.__post_init__(self)
        if self.vector_weight == 0 and self.text_weight == 0:
            raise SettingsError(
                "recall.hybrid.vector_weight and recall.hybrid.text_weight are both 0, so every "
                "score would be 0; set one of them above 0"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote(Validated):
    """The remote embedder, used only if `recall.embedder` is "remote"."""

    provider: RemoteProvider | None = None
    """Provider that computes the embeddings."""
    model: Text | None = None
    """The embedding model. If none, the provider's default model."""
    base_url: Text | None = None
    """URL of another server with the provider's API. If none, the provider's own server."""
    key_variable: Text | None = None
    """Environment variable that holds the API key. If none, the provider's usual variable, such as
    OPENAI_API_KEY. If base_url names another server, that server then gets no key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall(Validated):
    """The block of memories that is added to a request."""

    enabled: bool = True
    """Add a recalled block (text from memory) to requests that need it."""
    method: RecallMethod = "recollect"
    """Method of searching memory and writing the block. "recollect" searches passages and facts.
    "openclaw" searches whole messages with OpenClaw's formula, and writes the block in OpenClaw's
    format."""
    every_turn: bool = False
    """Recall on every turn, without first checking whether the newest message needs earlier
    messages."""
    placement: Placement = "before-newest-user"
    """Position of the recalled block in the request: before the newest user message, or after the
    system prompt."""
    sticky: bool = True
    """Keep the recalled block in later requests until Recollect shortens or leaves out older
    messages. If off, the next turn removes the block."""
    hard_cap_tokens: Count = setting(4000, ANY)
    """Token limit of the recalled block if the newest message asks a question. The block also takes
    at most 10% of the window in a session that uses tools, and at most a third in other
    sessions."""
    block_tokens: Count = setting(400, ANY)
    """Token limit of the recalled block if the newest message asks no question."""
    standing_tokens: Count = setting(1200, ANY)
    """Token limit of the standing block: text at the start of each request that repeats pinned
    facts, and the user's decisions from messages that were left out. The block takes at most 10% of
    the window; 0 turns it off."""
    embedder: EmbedderName = "auto"
    """Program that computes vectors for search by meaning. "auto" uses the best embedder that is
    installed and runs on this machine. "transformer" uses an ONNX model, or searches by words only
    if there is none. "none" searches by words only."""
    onnx_model: Text | None = None
    """The ONNX model: a folder, or the name of a downloaded model. If none, all-MiniLM-L6-v2 if it
    is installed, else the first by name."""
    model_source: Text | None = None
    """Source from which to download models: the URL of a hub or mirror, or a folder that contains
    model folders. If none, the URL in HF_ENDPOINT, else https://huggingface.co."""
    min_score: Ratio | None = setting(None, ANY)
    """Lowest score of a passage that may be recalled, from 0 to 1. If none, 0.2."""
    scope: Scope = setting("auto", only("session"))
    """Messages to search: of this session, or of the whole space. "auto" means the session in the
    library, `recollect chat` and `recollect gateway`, and the space everywhere else."""
    decay_per_day: Ratio = 1.0
    """Multiply a passage's score by this factor for each day of its age. 1: age does not matter."""
    max_results: Positive | None = setting(None, ANY)
    """Maximum number of passages in one block. If none, as many as fit the block's token limit."""
    deadline_seconds: Seconds | None = None
    """Maximum time for one recall. If none, one second, or 5/6 of turn.deadline_seconds if that is
    shorter."""
    citations: Citations = setting("auto", ANY)
    """Show the source of recalled lines in the block. "auto": file and line, for passages of memory
    files. "on": also the id, for messages. "off": no source."""
    sparing: bool = setting(False, ANY)
    """Recall less: nothing if the best passage may be about something else, and tool output only if
    it is the best passage. Recalled requests come with the agent's last message about them. Hooks
    always recall sparingly, because what they add stays in the agent's window."""
    hybrid: Hybrid = field(default_factory=Hybrid)
    remote: Remote = field(default_factory=Remote)


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction(Validated):
    """Masking of secrets and personal data before messages are stored."""

    enabled: bool = setting(True, only(True))
    """Mask secrets in everything that is stored."""
    pii: bool = setting(False, only(True))
    """Also mask e-mail addresses, phone numbers and card numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts(Validated):
    """Statements that a model extracts from messages."""

    idle_seconds: Seconds = 600.0
    """Extract facts from a session when it has had no new message for this long."""
    window_tokens: Annotated[int, Meta(ge=500, le=GREATEST)] = 12_000
    """Maximum tokens of messages that the model reads in one call that extracts facts. Less if the
    model's window is smaller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Models(Validated):
    """The model for each task."""

    provider: ProviderFormat | None = None
    """API of the models that these settings name. If none, Recollect calls no model, except a model
    that a program passes to open_memory, or the agent's own with gateway.summaries."""
    base_url: Text | None = None
    """URL of another server with the API that models.provider names. If none, the provider's own
    server."""
    key_variable: Text | None = None
    """Environment variable that holds the API key. If none, the provider's usual variable, such as
    OPENAI_API_KEY. If base_url names another server, that server then gets no key."""
    main: Text | None = None
    """Model that `recollect chat` talks to. Without models.summary, this model also writes
    summaries."""
    summary: Text | None = None
    """Model that writes summaries. If none, models.main."""
    extraction: Text | None = None
    """Model that extracts facts from messages. If none, no facts are extracted."""
    deadline_seconds: Seconds = 120.0
    """Maximum time for one model call."""
    max_output_tokens: Positive | None = None
    """Maximum number of tokens of one reply in `recollect chat`. If none, the provider's limit, or
    less if the window is small."""
    prices: tuple[Text, ...] = ()
    """Prices in dollars per million tokens, in addition to the built-in list. One entry per model:
    its name, then the prices of input, output, cache reads and cache writes, separated by spaces.
    Omit the cache prices if they equal the input price. A name that ends with a hyphen matches all
    models whose names begin with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Index(Validated):
    """The texts that are searched."""

    max_segments: Positive = 200_000
    """Search only this many of the newest messages. Applies only to `recall.method =
    "openclaw"`."""
    eviction_days: Positive | None = None
    """Search only messages that are at most this many days old. If none, all. Applies only to
    `recall.method = "openclaw"`."""
    sources: tuple[IndexSource, ...] = ("sessions", "memory")
    """Texts that recall can find: "sessions" means stored messages, "memory" means memory files
    such as MEMORY.md."""
    extra_paths: tuple[Text, ...] = ()
    """Additional files and folders whose text recall can find, as it finds memory files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingest(Validated):
    """Storage of the conversation."""

    enabled: bool = True
    """Store new messages. If off, Recollect stores none, and recalls only messages that are already
    stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings(Validated):
    """Location of the memory."""

    url: Text | None = None
    """Location of the memory: a file path, sqlite:///PATH or postgresql://…. If none, one file per
    space in the data folder."""
    key: Text | None = None
    """Source of the key for encrypted files: env:NAME, file:PATH or keyring:SERVICE/NAME. If none,
    files are not encrypted."""
    read_seconds: Seconds = 10.0
    """Maximum time for one query to the store. If a query takes over one second, Recollect also
    sends a trivial test query. If the test query gets no answer within two seconds, Recollect
    treats the store as down."""
    write_seconds: Seconds = 2.0
    """Maximum time for one write to the store. After that, Recollect writes the same data to the
    spool, a local file."""
    close_seconds: Seconds = 120.0
    """Maximum time to store messages when a memory is closed. It is needed only for long messages,
    in which masking secrets takes time. After that, the log counts the messages that were not
    stored."""
    pool_size: Positive = 8
    """Maximum number of connections to PostgreSQL per process. All memories of the process share
    the connections. Unused connections close after a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs(Validated):
    """Work in the background: embed messages, pack the word index, extract facts."""

    in_process: bool = True
    """Run background jobs in this process. If off, run `recollect worker` for these jobs."""
    day_tokens: Positive | None = 1_000_000
    """Maximum number of model tokens that the background jobs of a space may use per day. If none,
    no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSettings(Validated):
    """The record of each request that was sent."""

    enabled: bool = True
    """Record each request as it was sent, so that `recollect replay` can rebuild it."""
    retention_days: Positive | None = 30
    """Days to keep the record of a request. If none, the record is kept forever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flush(Validated):
    """The note-taking turn of `recollect chat`: the model saves notes before a compaction."""

    enabled: bool = True
    """Let the model save notes in a turn of its own before each compaction."""
    soft_threshold_tokens: Count = 4000
    """Run the note-taking turn when the request comes this close to the size at which it is
    compacted. At most 5% of the window."""
    at_ratio: Share | None = None
    """Run the note-taking turn when the request fills this share of the window, if that is earlier.
    If none, only soft_threshold_tokens counts."""
    prompt: Text = (
        "Older messages are about to be replaced by a summary. Append whatever must outlast them "
        "(decisions, open work, exact names and paths) to memory/YYYY-MM-DD.md, preferences of the "
        "user to USER.md and facts that stay true to memory.md, as far as you may write them. "
        "If there is nothing to add, answer NO_REPLY."
    )
    """Text of the user message in the note-taking turn. Recollect replaces YYYY-MM-DD with the
    date."""
    system_prompt: Text = (
        "This turn exists to save notes before the conversation is shortened; the user does not "
        "see it. Only append, with write; change nothing that is already there, repeat nothing "
        "that stands in the files, and finish with NO_REPLY."
    )
    """Text that is added to the system prompt in the note-taking turn. Recollect replaces
    YYYY-MM-DD with the date."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction(Validated):
    """Replacement of older messages by a summary."""

    enabled: bool = True
    """Replace older messages by a summary when the window is full, if a model is named. If off,
    Recollect only shortens tool results and leaves out messages."""
    mode: CompactionMode = "safeguard"
    """Method of summarizing. "safeguard" summarizes the history in several calls and merges the
    results. "default" uses one call if the history fits into the model's window."""
    reserve_tokens: Count = setting(16_384, ANY)
    """Tokens of the window to leave free for the reply (the reserve). Recollect leaves at least
    reserve_tokens_floor free, and at most a quarter of the window."""
    reserve_tokens_floor: Count = setting(20_000, ANY)
    """Smallest reserve, even if reserve_tokens is lower. 0: no minimum."""
    keep_recent_tokens: Count = setting(20_000, ANY)
    """Tokens of recent messages that a compaction keeps word for word. These messages and the
    standing block (recall.standing_tokens) together take at most 40% of the window without the
    reserve."""
    max_history_share: Annotated[float, Meta(ge=0.1, le=0.9)] = setting(0.5, ANY)
    """Largest share of the model's window that the messages to summarize may fill in one call. If
    the messages fill more, Recollect summarizes the oldest ones first, in separate calls."""
    at_ratio: Share | None = None
    """Compact when the request fills this share of the window. If none, compact when only the
    reserve is left."""
    background: bool = True
    """Compact in the background, as soon as a reply has filled the window. If off, the next request
    waits for the compaction."""
    audit: bool = True
    """Check that a summary has all its sections, the exact identifiers (paths, numbers, names) and
    the newest question. If something is missing, ask the model once more."""
    pin_ratio: Ratio = setting(0.05, ANY)
    """Maximum share of the window for original sentences that Recollect adds to a summary that lost
    them."""
    deadline_seconds: Seconds = 180.0
    """Maximum time for a whole compaction. A request that does not fit the window waits this long
    at most."""
    flush: Flush = field(default_factory=Flush)


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftTrim(Validated):
    """Shortening of a long tool result."""

    max_chars: Count = setting(4000, ANY)
    """Shorten tool results with more characters than this to their beginning and end."""
    head_chars: Count = setting(1500, ANY)
    """Number of characters to keep from the beginning of a shortened tool result."""
    tail_chars: Count = setting(1500, ANY)
    """Number of characters to keep from the end of a shortened tool result."""

    def __post_init__(self) -> None:
        Validated.__post_init__(self)
        if self.head_chars + self.tail_chars > self.max_chars:
            raise SettingsError(
                f"pruning.soft_trim: head_chars {self.head_chars} and tail_chars {self.tail_chars} "
                f"keep more than max_chars {self.max_chars}; lower them or raise max_chars"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class HardClear(Validated):
    """Clearing of an old tool result."""

    enabled: bool = setting(True, ANY)
    """Replace whole tool results with the placeholder, the oldest first."""
    placeholder: Text = "[Old tool result content cleared]"
    """Text that replaces a cleared tool result."""
    line_chars: Annotated[int, Meta(ge=0, le=2_000)] = setting(160, ANY)
    """Length in characters of the one line that is kept from a cleared tool result: the line that
    is most relevant to the tool call. 0 keeps no line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedTools(Validated):
    """Tools whose results may be shortened or cleared, as glob patterns of their names. `deny` wins
    over `allow`."""

    allow: tuple[Text, ...] = setting(("*",), ANY)
    """Tools whose results may be shortened or cleared."""
    deny: tuple[Text, ...] = setting((), ANY)
    """Tools whose results are never shortened or cleared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruning(Validated):
    """Shortening of old tool results. Images are never shortened."""

    mode: PruningMode = setting("cache-ttl", ANY)
    """Moment at which old tool results are shortened. "cache-ttl": when the provider's prompt cache
    has expired. If the provider caches nothing: when a request fills soft_trim_ratio of the window.
    "adaptive": also while the cache is valid, if a request fills soft_trim_ratio and the change
    saves more than it costs. "aggressive": as early as possible, and all old results are cleared.
    "off": never; only whole messages are left out."""
    ttl: Annotated[float, Meta(ge=0, le=GREATEST, extra=SECONDS)] = setting(300.0, ANY)
    """Treat the provider's prompt cache as expired this long after the last request."""
    keep_last_assistants: Count = setting(3, ANY)
    """Number of newest assistant messages whose tool results stay complete, unless the request
    would otherwise exceed its limit."""
    soft_trim_ratio: Ratio = setting(0.3, ANY)
    """Shorten long tool results when the request fills this share of the window."""
    hard_clear_ratio: Ratio = setting(0.5, ANY)
    """Clear the oldest tool results if the request still fills this share of the window after long
    results were shortened."""
    min_prunable_tool_chars: Count = setting(50_000, ANY)
    """Clear tool results only if all results that may be cleared have at least this many characters
    together. If a request is over its limit, results are cleared in any case."""
    soft_trim: SoftTrim = field(default_factory=SoftTrim)
    hard_clear: HardClear = field(default_factory=HardClear)
    tools: PrunedTools = field(default_factory=PrunedTools)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trim(Validated):
    """Leaving out whole messages if a request is over its limit."""

    low_water_ratio: Share = setting(0.6, ANY)
    """Share of the limit to which a request is reduced if it is over the limit, by leaving out
    messages. The next turns then need no trimming."""
    protect_messages: Count = setting(6, ANY)
    """Number of newest user and assistant messages to keep. Recollect leaves these messages out,
    oldest first, only if the request does not fit otherwise."""
    protect_first_user: bool = setting(True, ANY)
    """Keep the first user message, which is often the task. Recollect leaves that message out only
    if the request does not fit otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens(Validated):
    """Token counting."""

    counter: Counter = "script-aware"
    """Method of estimating the number of tokens in a text. "script-aware" adds up measured costs of
    pairs of bytes. "openclaw" counts one token per three characters, rounded up."""
    calibrate: bool = True
    """Correct the estimates of a session by the usage that the provider reports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn(Validated):
    """Preparation of one request."""

    trim_first: bool = setting(False, ANY)
    """Leave out old messages before Recollect considers a compaction. The limit is then the window
    minus the reserve minus recall.hard_cap_tokens."""
    deadline_seconds: Seconds = 6.0
    """Maximum time that Recollect may take to prepare one request, without waiting for a compaction
    (compaction.deadline_seconds). The first request of a session gets 15 seconds more, so that the
    store can open."""

    @property
    def stage_deadline_seconds(self) -> float:
        """Return the time limit of one stage: five sixths of the turn's deadline."""
        return self.deadline_seconds * 5 / 6


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceSettings(Validated):
    """The workspace's files in the system prompt."""

    max_chars: Positive = setting(20_000, ANY)
    """Maximum number of characters of one workspace file in the system prompt. Longer files are
    shortened to their beginning and end."""
    skip_bootstrap: bool = setting(True, only(True))
    """Keep `recollect chat` from creating missing files, such as AGENTS.md, in the workspace.
    `recollect init --workspace` creates the files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayUpstreams(Validated):
    """The providers to which the gateway forwards requests, and no other server."""

    anthropic: Text | None = "https://api.anthropic.com"
    """Base URL of the provider for requests to the Messages API. If none, the gateway does not
    serve this API."""
    openai: Text | None = "https://api.openai.com/v1"
    """Base URL of the provider for requests to the Chat Completions and Responses APIs. If none,
    the gateway does not serve these APIs."""
    any_key: bool = False
    """Send keys of every provider to these URLs, such as to a LiteLLM server that forwards them. A
    URL of a known provider still gets that provider's keys only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings(Validated):
    """The HTTP gateway: `recollect gateway` and `recollect wrap`."""

    host: Text = "127.0.0.1"
    """Address to listen on. Every client must send the gateway's token."""
    port: Port = 8788
    """Port to listen on; 0 picks a free port."""
    space: Text = "default"
    """Space of requests that name neither a space nor a folder."""
    by_folder: bool = True
    """Use one space per project folder, if the client names its folder."""
    summaries: GatewaySummaries = "off"
    """Source of summaries when the window is full. "client": the model that the client uses, with
    the client's API key. "off": no model, unless models.summary or models.main names one."""
    upstream: GatewayUpstreams = field(default_factory=GatewayUpstreams)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings(Validated):
    """The service for tenants on PostgreSQL: `recollect serve`."""

    host: Text = "127.0.0.1"
    """Address to listen on. Use 0.0.0.0 only behind a proxy that provides TLS."""
    port: Port = 8789
    """Port to listen on; 0 picks a free port."""
    public_hosts: tuple[Text, ...] = ()
    """Names under which browsers reach the inspector, such as "memory.example.com". Without them,
    its address must be localhost or an IP address."""
    processes: Positive = 1
    """Number of processes that share the port, one per core. Each has its own limits, connection
    pool and metrics port: telemetry.metrics_port and the next ones."""
    concurrency: Positive = 16
    """Maximum number of requests that a process handles at once, each with its own database
    connection. Further requests wait."""
    deadline_seconds: Seconds = 30.0
    """Maximum time for a request without an X-Request-Timeout header. After that, the answer is
    504."""
    drain_seconds: Seconds = 5.0
    """Time for which the node still serves requests after SIGTERM. During this time /readyz already
    fails."""
    jobs: bool = False
    """Run background jobs in the nodes, which slows requests down. If off, run `recollect worker`
    for these jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings(Validated):
    """Metrics and logs of `recollect serve` and `recollect worker`."""

    metrics_port: Port | None = None
    """Port on which /metrics listens for Prometheus; 0 picks a free port. If none, there are no
    metrics."""
    metrics_host: Text = "127.0.0.1"
    """Address on which /metrics listens. Requests to /metrics need no key, so do not let tenants
    reach this address."""
    log_format: LogFormat | None = None
    """Format of the log on standard error, with one line per request or job. If none, only problems
    are logged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSettings(Validated):
    """The daemon that answers the hooks of agents: `recollect daemon`."""

    idle_seconds: Seconds = 14_400.0
    """Stop the daemon if it has got no request for this long."""
    notices: bool = True
    """Show one line in the agent when Recollect adds text to a prompt or to the task of a subagent:
    the number of passages and of tokens. The model does not get the line."""
    tasks: bool = True
    """Add the user's standing rules and memories to the tasks of subagents in Claude Code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset(Validated):
    """The automatic start of a new session in `recollect chat`. The previous transcript stays."""

    mode: ResetMode | None = None
    """"daily" starts a new session at `at_hour`, and after `idle_minutes` if that is set. "idle"
    starts one only after `idle_minutes`, by default 60. If none, sessions continue."""
    at_hour: Annotated[int, Meta(ge=0, le=23)] = 4
    """Local hour of the daily reset."""
    idle_minutes: Positive | None = None
    """Minutes without a message after which the next message starts a new session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings(Validated):
    """Sessions of `recollect chat`."""

    reset: Reset = field(default_factory=Reset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Validated):
    """All settings. `Settings()` has the defaults; `load_settings` reads the sources.
    `Settings(preset=…)` does not apply the preset; `load_settings` does."""

    preset: Preset = "recollect"
    """Set of values for many settings at once. A setting that you set yourself wins over the
    preset."""
    window_tokens: Positive | None = setting(None, at_least(4_000))
    """Size of the window to work with, in tokens. If the provider reports a smaller window,
    Recollect uses that size. If none, the model's window from a built-in table, else the reported
    window, else 200000."""
    turn: Turn = field(default_factory=Turn)
    tokens: Tokens = field(default_factory=Tokens)
    pruning: Pruning = field(default_factory=Pruning)
    trim: Trim = field(default_factory=Trim)
    recall: Recall = field(default_factory=Recall)
    compaction: Compaction = field(default_factory=Compaction)
    redaction: Redaction = field(default_factory=Redaction)
    ingest: Ingest = field(default_factory=Ingest)
    index: Index = field(default_factory=Index)
    store: StoreSettings = field(default_factory=StoreSettings)
    jobs: Jobs = field(default_factory=Jobs)
    ledger: LedgerSettings = field(default_factory=LedgerSettings)
    facts: Facts = field(default_factory=Facts)
    models: Models = field(default_factory=Models)
    workspace: WorkspaceSettings = field(default_factory=WorkspaceSettings)
    session: SessionSettings = field(default_factory=SessionSettings)
    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    serve: ServeSettings = field(default_factory=ServeSettings)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    daemon: DaemonSettings = field(default_factory=DaemonSettings)

    def across_sessions(self) -> Settings:
        """Return the settings with `recall.scope` set to "space", unless the user chose a scope."""
        if self.recall.scope != "auto":
            return self
        return replace(self, recall=replace(self.recall, scope="space"))
