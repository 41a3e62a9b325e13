"""Every setting: its type with bounds, its default, its line in docs/reference/settings.md.

A `Settings` that exists is valid: each group checks its values when it is created.
"""

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
"""Lowest score that is recalled unless `recall.min_score` is set."""
FALLBACK_WINDOW_TOKENS = 200_000
"""The window if neither the settings, the table of models nor the provider states it."""

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
FlushFile = Literal["daily", "memory.md", "USER.md", "AGENTS.md", "TOOLS.md"]
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

    vector_weight: Ratio | None = setting(None, "Weight of the vector score; none: by embedder")
    text_weight: Ratio | None = setting(None, "Weight of the word score; none: by embedder")

    def __post_init__(self) -> None:
        Validated.__post_init__(self)
        if self.vector_weight == 0 and self.text_weight == 0:
            raise SettingsError(
                "recall.hybrid.vector_weight and recall.hybrid.text_weight are both 0, so nothing "
                "would score; raise one of them"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote(Validated):
    """The remote embedder, used only if `recall.embedder` is "remote"."""

    provider: RemoteProvider | None = setting(None, "The embedding provider")
    model: Text | None = setting(None, "Its model; none: the provider's usual one")
    base_url: Text | None = setting(
        None, "Another server with the provider's API; none: the provider's own"
    )
    key_variable: Text | None = setting(
        None,
        "Environment variable that holds the key; none: the provider's usual one, and no key to "
        "another base_url",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall(Validated):
    """The block of memories that is added to a request."""

    enabled: bool = setting(True, "Add a recalled block to requests")
    method: RecallMethod = setting(
        "recollect",
        'How memory is searched and the block is written; "openclaw": whole messages by '
        "OpenClaw's formula and in its format",
    )
    every_turn: bool = setting(False, "Recall on every turn, whether it is needed or not")
    placement: Placement = setting("before-newest-user", "Position of the recalled block")
    sticky: bool = setting(
        True, "Keep the block until the next edit batch; off: remove it on the next turn"
    )
    hard_cap_tokens: Count = setting(
        4000,
        "Token limit of the block for a question. At most 10% of the window if tools are used, a "
        "third of it otherwise",
        ANY,
    )
    block_tokens: Count = setting(
        400, "Token limit of the block for a turn that asks no question", ANY
    )
    standing_tokens: Count = setting(
        1200,
        "Token limit of the block at the start of each request that repeats the user's decisions "
        "from trimmed messages. At most 10% of the window; 0 turns it off",
        ANY,
    )
    embedder: EmbedderName = setting(
        "auto",
        'The embedder; "auto" uses only what is local and installed; "transformer": onnx, or '
        "words alone if there is no model",
    )
    onnx_model: Text | None = setting(
        None, "The ONNX model: a folder, or the name of a downloaded one; none: the first"
    )
    min_score: Ratio | None = setting(
        None,
        f"Lowest score that is recalled; none: the calibrated score {CALIBRATED_MIN_SCORE}",
        ANY,
    )
    scope: Scope = setting(
        "auto",
        'Messages to search; "auto": the session in library, chat and gateway, the space in '
        "hooks, `recollect wrap`, `recollect serve`, MCP and imports",
        only("session"),
    )
    decay_per_day: Ratio = setting(1.0, "Factor on a score per day of age; 1 is no decay")
    max_results: Positive | None = setting(
        None, "Most passages in one block; none: as many as fit", ANY
    )
    deadline_seconds: Seconds | None = setting(
        None,
        "How long recall may take; none: one second, or 5/6 of turn.deadline_seconds if shorter",
    )
    citations: Citations = setting(
        "auto", "Recalled lines name their file and line, or their message", ANY
    )
    hybrid: Hybrid = field(default_factory=Hybrid)
    remote: Remote = field(default_factory=Remote)


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction(Validated):
    """Masking before anything is stored."""

    enabled: bool = setting(True, "Mask secrets in everything that is stored", only(True))
    pii: bool = setting(False, "Mask e-mail addresses, phone and card numbers too", only(True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts(Validated):
    """Statements that a model extracts from messages."""

    idle_seconds: Seconds = setting(
        600.0, "How long a session must be silent before facts are extracted from it"
    )
    window_tokens: Annotated[int, Meta(ge=500, le=GREATEST)] = setting(
        12_000, "Tokens of a session that a model reads per call, at most what its window holds"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Models(Validated):
    """The model for each task."""

    provider: ProviderFormat | None = setting(
        None, "The API of the models; none: no model is asked, and nothing is compacted"
    )
    base_url: Text | None = setting(None, "Another server with this API; none: the provider's own")
    key_variable: Text | None = setting(
        None,
        "Environment variable that holds the key; none: the provider's usual one, and no key to "
        "another base_url",
    )
    main: Text | None = setting(None, "Model of our own agent's conversations")
    summary: Text | None = setting(None, "Model that summarises; none: models.main")
    extraction: Text | None = setting(
        None, "Model that reads messages for facts; none: no facts are extracted"
    )
    deadline_seconds: Seconds = setting(120.0, "How long one call of a model may take")
    max_output_tokens: Positive | None = setting(
        None,
        "Longest reply of our own agent; none: the provider's limit, or what a small window "
        "leaves free",
    )
    prices: tuple[Text, ...] = setting(
        (),
        "Dollars per million tokens, one line per model: its name (with a hyphen at the end: a "
        "name prefix), input, output, and cache reads and writes if they differ. Added to the "
        "known list prices",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Index(Validated):
    """Extent of the search index."""

    max_segments: Positive = setting(
        200_000, 'Newest messages that `recall.method = "openclaw"` searches'
    )
    eviction_days: Positive | None = setting(
        None,
        'Age in days of the oldest message that `recall.method = "openclaw"` searches; none: any',
    )
    sources: tuple[IndexSource, ...] = setting(("sessions", "memory"), "Sources to index")
    extra_paths: tuple[Text, ...] = setting((), "More files and folders to index")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingest(Validated):
    """Storage of the conversation."""

    enabled: bool = setting(True, "Store new messages; off: only read the archive")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings(Validated):
    """Location of the memory."""

    url: Text | None = setting(
        None,
        "A file, sqlite:///PATH or postgresql://…; none: one file per space in the data folder",
    )
    key: Text | None = setting(
        None,
        "Key of encrypted files: env:NAME, file:PATH or keyring:SERVICE/NAME; none: not encrypted",
    )
    read_seconds: Seconds = setting(
        10.0,
        "Longest time for one query. A store that answers no other query either counts as down "
        "sooner, after three seconds at the earliest",
    )
    write_seconds: Seconds = setting(
        2.0,
        "Longest time for a write before the batch goes to the spool",
    )
    pool_size: Positive = setting(
        8,
        "Most connections to PostgreSQL for all memories of a process; unused ones close after a "
        "minute",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs(Validated):
    """Work in the background: embedding, packing, extraction."""

    in_process: bool = setting(True, "Run jobs in this process; off: `recollect worker` does")
    day_tokens: Positive | None = setting(
        1_000_000, "Tokens that the jobs of a space may use per day; none: no limit"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSettings(Validated):
    """The record of each request that was sent."""

    enabled: bool = setting(True, "Keep the record")
    retention_days: Positive | None = setting(30, "Days that it is kept; none: for ever")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flush(Validated):
    """The note-taking turn of our own agent before a compaction."""

    enabled: bool = setting(True, "Run it")
    soft_threshold_tokens: Count = setting(
        4000, "How many tokens before the compaction it runs, at most 5% of the window"
    )
    prompt: Text = setting(
        "Older messages are about to be replaced by a summary. Append whatever must outlast them "
        "(decisions, open work, exact names and paths) to memory/YYYY-MM-DD.md, preferences of the "
        "user to USER.md and facts that stay true to memory.md, as far as you may write them. "
        "If there is nothing to add, answer NO_REPLY.",
        "Its user message; YYYY-MM-DD is replaced by the date",
    )
    system_prompt: Text = setting(
        "This turn exists to save notes before the conversation is shortened; the user does not "
        "see it. Only append, with write; change nothing that is already there, repeat nothing "
        "that stands in the files, and finish with NO_REPLY.",
        "Its addition to the system prompt; YYYY-MM-DD is replaced by the date",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction(Validated):
    """Replacement of older messages by a summary."""

    enabled: bool = setting(True, "Compact when the window is full; off: only trim")
    mode: CompactionMode = setting(
        "safeguard", '"safeguard" summarises in stages, "default" in one pass'
    )
    reserve_tokens: Count = setting(
        16_384, "Left free for the reply; with the floor, at most a quarter of the window", ANY
    )
    reserve_tokens_floor: Count = setting(20_000, "Least reserve; 0 disables it", ANY)
    keep_recent_tokens: Count = setting(
        20_000,
        "Recent messages that a compaction keeps word for word; with the standing block at most "
        "40% of what the reserve leaves",
        ANY,
    )
    max_history_share: Annotated[float, Meta(ge=0.1, le=0.9)] = setting(
        0.5, "Over this share of the window the oldest chunks are summarised separately", ANY
    )
    at_ratio: Share | None = setting(
        None, "Share of the window at which to compact early; none: at the limit"
    )
    background: bool = setting(
        True, "Compact between turns once a reply has filled the window; off: only when due"
    )
    audit: bool = setting(
        True,
        "Check a summary for its sections, identifiers and the newest question, and ask once more "
        "if some are missing",
    )
    pin_ratio: Ratio = setting(
        0.05, "Share of the window for quotes that are added to a summary that lost them", ANY
    )
    deadline_seconds: Seconds = setting(180.0, "How long a whole compaction may take")
    flush: Flush = field(default_factory=Flush)


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftTrim(Validated):
    """Shortening of a long tool result."""

    max_chars: Count = setting(4000, "Results longer than this keep only their head and tail", ANY)
    head_chars: Count = setting(1500, "Characters kept of the head", ANY)
    tail_chars: Count = setting(1500, "Characters kept of the tail", ANY)

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

    enabled: bool = setting(True, "Replace the oldest results by the placeholder", ANY)
    placeholder: Text = setting("[Old tool result content cleared]", "The text in their place")
    line_chars: Annotated[int, Meta(ge=0, le=2_000)] = setting(
        160, "Length of the line after it that is most relevant to the call; 0: no line", ANY
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedTools(Validated):
    """Glob patterns of tools whose results may be pruned; deny wins."""

    allow: tuple[Text, ...] = setting(("*",), "Tools whose results may be pruned", ANY)
    deny: tuple[Text, ...] = setting((), "Tools whose results are never pruned", ANY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruning(Validated):
    """Shortening of old tool results, in edit batches; images never are."""

    mode: PruningMode = setting(
        "cache-ttl",
        'When old tool results are shortened. "cache-ttl": when the provider\'s cache has expired; '
        "if the provider caches nothing, as soon as a request fills soft_trim_ratio of the window. "
        '"adaptive": by the ratios. "aggressive": clears all but the last assistants\' results. '
        '"off": only whole messages are left out',
        ANY,
    )
    ttl: Annotated[float, Meta(ge=0, le=GREATEST, extra=SECONDS)] = setting(
        300.0, "Age at which the provider's cache counts as expired", ANY
    )
    keep_last_assistants: Count = setting(
        3, "Results of this many last assistant messages stay", ANY
    )
    soft_trim_ratio: Ratio = setting(
        0.3, "Share of the window from which results are shortened", ANY
    )
    hard_clear_ratio: Ratio = setting(
        0.5, "Share of the window from which results are cleared", ANY
    )
    min_prunable_tool_chars: Count = setting(
        50_000, "Nothing is cleared while the prunable results hold fewer characters", ANY
    )
    soft_trim: SoftTrim = field(default_factory=SoftTrim)
    hard_clear: HardClear = field(default_factory=HardClear)
    tools: PrunedTools = field(default_factory=PrunedTools)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trim(Validated):
    """Removal of whole messages from a request that is over its limit."""

    low_water_ratio: Share = setting(
        0.6, "Share of the limit that one sticky batch goes down to", ANY
    )
    protect_messages: Count = setting(6, "Last user and assistant messages never left out", ANY)
    protect_first_user: bool = setting(
        True, "Never leave out the first user message, which often is the task", ANY
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens(Validated):
    """Token counting."""

    counter: Counter = setting("script-aware", '"openclaw": a third of the characters, rounded up')
    calibrate: bool = setting(True, "Correct the count by the usage that providers report")


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn(Validated):
    """Preparation of one request."""

    trim_first: bool = setting(
        False, "Trim on every turn before compacting, to window - reserve - hard cap", ANY
    )
    deadline_seconds: Seconds = setting(
        6.0, "How long a whole turn may wait, plus 15 seconds for the store to open in the first"
    )

    @property
    def stage_deadline_seconds(self) -> float:
        """Return the limit of one stage: five sixths of the turn's deadline."""
        return self.deadline_seconds * 5 / 6


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceSettings(Validated):
    """The workspace's files in the system prompt."""

    max_chars: Positive = setting(
        20_000, "Characters of one file; longer ones keep head and tail", ANY
    )
    skip_bootstrap: bool = setting(
        True,
        "Do not create the agent's missing files in the workspace; `recollect init --workspace` "
        "creates them",
        only(True),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayUpstreams(Validated):
    """The providers behind the gateway; requests reach no other server."""

    anthropic: Text | None = setting(
        "https://api.anthropic.com", "Base URL for the Messages API; none: not served"
    )
    openai: Text | None = setting(
        "https://api.openai.com/v1", "Base URL for Chat Completions and Responses; none: not served"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings(Validated):
    """The HTTP gateway: `recollect gateway` and `recollect wrap`."""

    host: Text = setting("127.0.0.1", "Address to listen on; every request needs the token")
    port: Port = setting(8788, "Port to listen on; 0: a free one")
    space: Text = setting("default", "Space of requests that name none")
    by_folder: bool = setting(True, "One space per project folder, if the client names its folder")
    summaries: GatewaySummaries = setting(
        "off",
        '"client": when the window is full, ask the client\'s own model, with its key, for a '
        "summary",
    )
    upstream: GatewayUpstreams = field(default_factory=GatewayUpstreams)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings(Validated):
    """The service for tenants on PostgreSQL: `recollect serve`."""

    host: Text = setting("127.0.0.1", "Address to listen on; 0.0.0.0 behind a proxy that has TLS")
    port: Port = setting(8789, "Port to listen on; 0: a free one")
    concurrency: Positive = setting(
        16, "Requests handled at once, and connections to the database; the others wait"
    )
    deadline_seconds: Seconds = setting(
        30.0, "How long a request without its own deadline may take; then 504"
    )
    drain_seconds: Seconds = setting(
        5.0, "After SIGTERM: how long it still serves while /readyz already fails"
    )
    jobs: bool = setting(
        False, "Run jobs in the nodes, which slows requests down; off: `recollect worker` does"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings(Validated):
    """Metrics and logs of `recollect serve` and `recollect worker`."""

    metrics_port: Port | None = setting(
        None, "Port of /metrics for Prometheus; 0: a free one; none: no metrics"
    )
    metrics_host: Text = setting(
        "127.0.0.1", "Address of /metrics, which needs no key: block tenants from it"
    )
    log_format: LogFormat | None = setting(
        None, "One line per request or job on standard error; none: only problems"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSettings(Validated):
    """The daemon that answers the hooks of agents: `recollect daemon`."""

    idle_seconds: Seconds = setting(14_400.0, "Stop the daemon after this long without requests")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Validated):
    """Every setting; `Settings()` is the defaults, `load_settings` reads the sources. Naming a
    preset here does not apply it: `load_settings` and `preset_settings` do."""

    preset: Preset = setting("recollect", "Several settings at once; single keys win over it")
    window_tokens: Positive | None = setting(
        None,
        "The model's window; none: by table or as the provider states it, else "
        f"{FALLBACK_WINDOW_TOKENS}",
        at_least(4_000),
    )
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
    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    serve: ServeSettings = field(default_factory=ServeSettings)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    daemon: DaemonSettings = field(default_factory=DaemonSettings)

    def across_sessions(self) -> Settings:
        """Return the settings with `recall.scope` "space" unless the user chose a scope."""
        if self.recall.scope != "auto":
            return self
        return replace(self, recall=replace(self.recall, scope="space"))
