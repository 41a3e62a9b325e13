"""The settings as values: every key, its type, bounds and default, what it does, each written once.

It reads nothing (files and variables are in `load`) and decides nothing (what a limit comes to is
in `rules.budget`). A `Settings` that exists is valid: every group checks its values when it is
made, however it is made. `setting` says what stands in a declaration.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Annotated, Literal

from msgspec import Meta

from recollect.errors import SettingsError
from recollect.system.config.fields import ANY, ASK, Validated, at_least, only, setting

CALIBRATED_MIN_SCORE = 0.2
"""From which certainty on something is recalled, where `recall.min_score` says nothing else."""
FALLBACK_WINDOW_TOKENS = 200_000
"""The window assumed when neither the settings, a table of models nor the provider says it."""

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
ResetMode = Literal["daily", "idle"]
LogFormat = Literal["text", "json"]
GatewaySummaries = Literal["off", "client"]

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Ratio = Annotated[float, Meta(ge=0, le=1)]
Seconds = Annotated[float, Meta(gt=0, extra={"unit": "seconds"})]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hybrid(Validated):
    """How lexical and vector scores are joined."""

    enabled: bool = setting(
        True,
        "Search by words and by vectors; off: by vectors alone",
        project=ASK,
        openclaw="memorySearch.query.hybrid.enabled",
    )
    vector_weight: Ratio | None = setting(
        None,
        "Weight of the vector score; none: by embedder",
        project=ASK,
        openclaw=("memorySearch.query.hybrid.vectorWeight", "memory-context.search.vectorWeight"),
    )
    text_weight: Ratio | None = setting(
        None,
        "Weight of the word score; none: by embedder",
        project=ASK,
        openclaw=("memorySearch.query.hybrid.textWeight", "memory-context.search.bm25Weight"),
    )
    candidate_multiplier: Positive = setting(
        4,
        "Candidates taken from each side, as a multiple of what is wanted",
        project=ASK,
        openclaw="memorySearch.query.hybrid.candidateMultiplier",
    )

    def __post_init__(self) -> None:
        Validated.__post_init__(self)
        if self.vector_weight == 0 and self.text_weight == 0:
            raise SettingsError(
                "recall.hybrid.vector_weight and recall.hybrid.text_weight are both 0, so nothing "
                "would score; raise one of them"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote(Validated):
    """The remote embedder, used only when `recall.embedder` is "remote"."""

    provider: RemoteProvider | None = setting(
        None, "Whose embeddings", project=ASK, openclaw="memorySearch.provider"
    )
    model: str | None = setting(
        None,
        "Which of its models; none: the provider's usual one",
        project=ASK,
        openclaw="memorySearch.model",
    )
    base_url: str | None = setting(
        None,
        "Another server that speaks the provider's wire; none: the provider's own",
        project=ASK,
    )
    key_variable: str | None = setting(
        None,
        "Environment variable that holds the key; none: the provider's usual one, and no key to "
        "another base_url",
        project=ASK,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall(Validated):
    """What is put back into a view from memory, and where."""

    enabled: bool = setting(
        True,
        "Put a recalled block into the view",
        project=ASK,
        openclaw=(
            "memoryContext.enabled",
            "memorySearch.enabled",
            "memory-context.autoRecall",
            "memory-lancedb.autoRecall",
            "plugins.entries.memory-context.enabled",
            "plugins.entries.memory-lancedb.enabled",
            "plugins.slots.memory",
        ),
    )
    method: RecallMethod = setting(
        "recollect",
        'How memory is searched and the block is written; "openclaw": whole messages by its '
        "formula, in its lines",
        project=ASK,
    )
    every_turn: bool = setting(
        False, "Recall on every turn, without asking whether it is needed", project=ASK
    )
    placement: Placement = setting("before-newest-user", "Where the block goes", project=ASK)
    sticky: bool = setting(
        True,
        "The block stays until the next batch moment; off: it is removed next turn",
        project=ASK,
    )
    hard_cap_tokens: Count = setting(
        4000,
        "The block's upper limit for who asks, never over 10% of the window where tools are used, "
        "a third of it where people only talk",
        project=ANY,
        openclaw=("memoryContext.hardCapTokens", "memory-context.autoRecallMaxTokens"),
    )
    block_tokens: Count = setting(
        400,
        "The block's size for a turn that asks nothing; a question may take the hard cap",
        project=ANY,
    )
    standing_tokens: Count = setting(
        1200,
        "What the user laid down in messages that left the view stands at its head in so many "
        "tokens, never over 10% of the window; 0: nothing stands",
        project=ANY,
    )
    embedder: EmbedderName = setting(
        "auto",
        'What makes vectors; "auto" takes only what is local and installed; "transformer": onnx, '
        "or words alone where there is no model",
        project=ASK,
        openclaw="memoryContext.embeddingModel",
    )
    onnx_model: str | None = setting(
        None,
        "The ONNX model: a folder, or its name among the downloaded; none: the first",
        project=ASK,
    )
    min_score: Ratio | None = setting(
        None,
        "Lowest score that is recalled; none: the calibrated absolute score, "
        f"{CALIBRATED_MIN_SCORE}",
        project=ANY,
        openclaw="memoryContext.autoRecallMinScore",
    )
    scope: Scope = setting(
        "auto",
        'What is searched; "auto": the session in library, chat and gateway, the space in '
        "hooks, `recollect wrap`, `recollect serve`, MCP and imports",
        project=only("session"),
        openclaw="memoryContext.crossSession",
    )
    decay_per_day: Ratio = setting(
        1.0,
        "Factor on a score for each day of age; 1 is no decay",
        project=ASK,
        openclaw="memory-context.search.timeDecay",
    )
    max_results: Positive | None = setting(
        None,
        "Most passages in one block; none: what fits",
        project=ANY,
        openclaw=("memorySearch.query.maxResults", "memory.qmd.limits.maxResults"),
    )
    deadline_seconds: Seconds | None = setting(
        None,
        "How long recall may take; none: one second, or 5/6 of turn.deadline_seconds if shorter",
        project=ASK,
        openclaw="memory.qmd.limits.timeoutMs",
    )
    citations: Citations = setting(
        "auto",
        "Recalled lines name their file and line or segment",
        project=ANY,
        openclaw="memory.citations",
    )
    hybrid: Hybrid = field(default_factory=Hybrid)
    remote: Remote = field(default_factory=Remote)


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction(Validated):
    """What never reaches the disk in clear."""

    enabled: bool = setting(
        True,
        "Mask secrets in everything that is stored",
        project=only(True),
        openclaw="memoryContext.redaction",
    )
    pii: bool = setting(
        False, "Mask e-mail addresses, phone and card numbers too", project=only(True)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts(Validated):
    """Statements that a model extracts from messages."""

    idle_seconds: Seconds = setting(
        600.0,
        "How long a session must be silent before it is read for facts",
        project=ASK,
    )
    window_tokens: Annotated[int, Meta(ge=500)] = setting(
        12_000,
        "How much of a session a model reads in one call, never more than its window holds",
        project=ASK,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Models(Validated):
    """Which model does what, where it is not the session's own."""

    provider: ProviderFormat | None = setting(
        None,
        "The wire that models are asked in; none: no model is asked, and nothing is compacted",
        project=ASK,
    )
    base_url: str | None = setting(
        None, "Another server that speaks this wire; none: the provider's own", project=ASK
    )
    key_variable: str | None = setting(
        None,
        "Environment variable that holds the key; none: the provider's usual one, and no key to "
        "another base_url",
        project=ASK,
    )
    main: str | None = setting(None, "Model of our own agent's conversations", project=ASK)
    summary: str | None = setting(None, "Model that summarises; none: models.main", project=ASK)
    extraction: str | None = setting(
        None,
        "Model that reads messages for facts; none: no facts are extracted",
        project=ASK,
    )
    deadline_seconds: Seconds = setting(120.0, "How long one call of a model may take", project=ASK)
    max_output_tokens: Positive | None = setting(
        None,
        "The most that a reply of our own agent takes; none: the provider's limit, or what a small "
        "window keeps free for it",
        project=ASK,
    )
    prices: tuple[str, ...] = setting(
        (),
        "Dollars for a million tokens, a line a model: its name (ending with a hyphen: all that "
        "begin so), then input and output, and cache reads and writes where they cost something "
        "else; beside known list prices",
        project=ASK,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Index(Validated):
    """What is searchable, and how much of it."""

    max_segments: Positive = setting(
        200_000,
        "Segments kept warm; beyond it they go cold, never away",
        project=ASK,
        openclaw="memoryContext.maxSegments",
    )
    eviction_days: Positive | None = setting(
        None,
        "Age in days at which a segment goes cold; none: never",
        project=ASK,
        openclaw=("memoryContext.evictionDays", "memory.qmd.sessions.retentionDays"),
    )
    sources: tuple[IndexSource, ...] = setting(
        ("sessions", "memory"),
        "What is indexed",
        project=ASK,
        openclaw=(
            "memorySearch.sources",
            "memorySearch.experimental.sessionMemory",
            "memory.qmd.includeDefaultMemory",
            "memory.qmd.sessions.enabled",
        ),
    )
    extra_paths: tuple[str, ...] = setting(
        (),
        "Further files and folders to index",
        project=ASK,
        openclaw=("memorySearch.extraPaths", "memory.qmd.paths"),
    )
    update_interval: timedelta = setting(
        timedelta(minutes=5),
        "How often indexed files are looked at again",
        project=ASK,
        openclaw="memory.qmd.update.interval",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingest(Validated):
    """What is kept of the conversation."""

    enabled: bool = setting(
        True,
        "Write new messages to the archive; off: only read it",
        project=ASK,
        openclaw=("memory-context.autoCapture", "memory-lancedb.autoCapture"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings(Validated):
    """Where memory is kept."""

    url: str | None = setting(
        None,
        "A file, sqlite:///PATH or postgresql://…; none: one file a space in the data folder",
        project=ASK,
    )
    key: str | None = setting(
        None,
        "Key of encrypted files: env:NAME, file:PATH or keyring:SERVICE/NAME; none: not encrypted",
        project=ASK,
    )
    read_seconds: Seconds = setting(
        10.0,
        "How long one look into the store may take at the most; a store that then answers nothing "
        "else either counts as away sooner, though never under two seconds",
        project=ASK,
    )
    write_seconds: Seconds = setting(
        2.0,
        "How long the store may take at the most before a batch goes to the spool instead; one "
        "that takes batches quickly is given less, though never under a second",
        project=ASK,
    )
    pool_size: Positive = setting(
        8,
        "Connections to PostgreSQL that all memories of a process share at the most; those that "
        "nobody uses are closed after a minute",
        project=ASK,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs(Validated):
    """Work in the background: embedding, packing, eviction, extraction."""

    in_process: bool = setting(
        True, "Run jobs in this process; off: `recollect worker` does", project=ASK
    )
    day_tokens: Positive | None = setting(
        1_000_000, "Tokens that the jobs of a space may spend a day; none: no limit", project=ASK
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSettings(Validated):
    """What was sent at each turn, so that it can be looked at again."""

    enabled: bool = setting(True, "Keep it", project=ASK)
    retention_days: Positive | None = setting(30, "For how long; none: for ever", project=ASK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flush(Validated):
    """The silent turn before a compaction in which the agent writes notes."""

    enabled: bool = setting(True, "Run it", project=ASK, openclaw="compaction.memoryFlush.enabled")
    soft_threshold_tokens: Count = setting(
        4000,
        "How long before the compaction, never over 5% of the window",
        project=ASK,
        openclaw="compaction.memoryFlush.softThresholdTokens",
    )
    at_ratio: Ratio | None = setting(
        None,
        "Share of the window at which it runs instead; none: by the threshold",
        project=ASK,
        openclaw="compaction.memoryFlush.softThreshold",
    )
    prompt: str = setting(
        "Older messages are about to be replaced by a summary. Append whatever must outlast them "
        "(decisions, open work, exact names and paths) to memory/YYYY-MM-DD.md, preferences of the "
        "user to USER.md and facts that stay true to memory.md, as far as you may write them. "
        "If there is nothing to add, answer NO_REPLY.",
        "Its user message; YYYY-MM-DD is filled in",
        project=ASK,
        openclaw="compaction.memoryFlush.prompt",
    )
    system_prompt: str = setting(
        "This turn exists to save notes before the conversation is shortened; the user does not "
        "see it. Only append, with write; change nothing that is already there, repeat nothing "
        "that stands in the files, and finish with NO_REPLY.",
        "Its addition to the system prompt; YYYY-MM-DD is filled in",
        project=ASK,
        openclaw="compaction.memoryFlush.systemPrompt",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction(Validated):
    """When the past is replaced by a summary, and how."""

    enabled: bool = setting(
        True,
        "Compact when the window fills; off: only trim",
        project=ASK,
        openclaw="compaction.enabled",
    )
    mode: CompactionMode = setting(
        "safeguard",
        '"safeguard" summarises in stages, "default" in one pass',
        project=ASK,
        openclaw="compaction.mode",
    )
    reserve_tokens: Count = setting(
        16_384,
        "Left free for the reply; with the floor, at most a quarter of the window",
        project=ANY,
        openclaw="compaction.reserveTokens",
    )
    reserve_tokens_floor: Count = setting(
        20_000,
        "Least reserve; 0 disables it",
        project=ANY,
        openclaw="compaction.reserveTokensFloor",
    )
    keep_recent_tokens: Count = setting(
        20_000,
        "Recent messages that a compaction keeps word for word; with the standing block at most "
        "40% of what the reserve leaves",
        project=ANY,
        openclaw="compaction.keepRecentTokens",
    )
    max_history_share: Annotated[float, Meta(ge=0.1, le=0.9)] = setting(
        0.5,
        "Over this share of the window the oldest chunks are summarised apart",
        project=ANY,
        openclaw="compaction.maxHistoryShare",
    )
    at_ratio: Annotated[float, Meta(gt=0, le=1)] | None = setting(
        None, "Share of the window at which to compact early; none: at the limit", project=ASK
    )
    background: bool = setting(
        True,
        "Compact while nobody waits, once a reply has filled the window; off: only when due",
        project=ASK,
    )
    audit: bool = setting(
        True,
        "Check a summary for its sections, identifiers and the newest question, and ask once "
        "more where they are missing",
        project=ASK,
    )
    pin_ratio: Ratio = setting(
        0.05,
        "Share of the window that may be added to a summary for what would be lost",
        project=ANY,
    )
    deadline_seconds: Seconds = setting(180.0, "How long a whole compaction may take", project=ASK)
    flush: Flush = field(default_factory=Flush)


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftTrim(Validated):
    """How a long tool result is shortened."""

    max_chars: Count = setting(
        4000,
        "Results longer than this keep only their head and tail",
        project=ANY,
        openclaw="contextPruning.softTrim.maxChars",
    )
    head_chars: Count = setting(
        1500,
        "Characters kept of the head",
        project=ANY,
        openclaw="contextPruning.softTrim.headChars",
    )
    tail_chars: Count = setting(
        1500,
        "Characters kept of the tail",
        project=ANY,
        openclaw="contextPruning.softTrim.tailChars",
    )

    def __post_init__(self) -> None:
        Validated.__post_init__(self)
        if self.head_chars + self.tail_chars > self.max_chars:
            raise SettingsError(
                f"pruning.soft_trim: head_chars {self.head_chars} and tail_chars {self.tail_chars} "
                f"keep more than max_chars {self.max_chars}; lower them or raise max_chars"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class HardClear(Validated):
    """How an old tool result is cleared."""

    enabled: bool = setting(
        True,
        "Replace the oldest results by the placeholder",
        project=ANY,
        openclaw="contextPruning.hardClear.enabled",
    )
    placeholder: str = setting(
        "[Old tool result content cleared]",
        "What stands in their place",
        project=ASK,
        openclaw="contextPruning.hardClear.placeholder",
    )
    line_chars: Annotated[int, Meta(ge=0, le=2_000)] = setting(
        160,
        "Behind it, of the line that bears most on what the tool was called for; 0: no line",
        project=ANY,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedTools(Validated):
    """Whose results may be pruned, by glob patterns of the tools' names; deny wins."""

    allow: tuple[str, ...] = setting(
        ("*",),
        "Tools whose results may be pruned",
        project=ANY,
        openclaw="contextPruning.tools.allow",
    )
    deny: tuple[str, ...] = setting(
        (), "Tools whose results never are", project=ANY, openclaw="contextPruning.tools.deny"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruning(Validated):
    """How old tool results are shortened in a view, at batch moments; images never are."""

    mode: PruningMode = setting(
        "cache-ttl",
        'When old tool results are shortened. "cache-ttl": when the provider\'s cache has expired; '
        "if the provider caches nothing, as soon as a request fills soft_trim_ratio of the window. "
        '"adaptive": by the ratios. "aggressive": clears all but the last assistants\' results. '
        '"off": only whole messages are left out',
        project=ANY,
        openclaw="contextPruning.mode",
    )
    ttl: timedelta = setting(
        timedelta(minutes=5),
        "Age at which the provider's cache counts as expired",
        project=ANY,
        openclaw="contextPruning.ttl",
    )
    keep_last_assistants: Count = setting(
        3,
        "Results of this many last assistant messages are safe",
        project=ANY,
        openclaw="contextPruning.keepLastAssistants",
    )
    soft_trim_ratio: Ratio = setting(
        0.3,
        "Share of the window from which results are shortened",
        project=ANY,
        openclaw="contextPruning.softTrimRatio",
    )
    hard_clear_ratio: Ratio = setting(
        0.5,
        "Share of the window from which results are cleared",
        project=ANY,
        openclaw="contextPruning.hardClearRatio",
    )
    min_prunable_tool_chars: Count = setting(
        50_000,
        "Nothing is cleared while the prunable results hold fewer characters",
        project=ANY,
        openclaw="contextPruning.minPrunableToolChars",
    )
    soft_trim: SoftTrim = field(default_factory=SoftTrim)
    hard_clear: HardClear = field(default_factory=HardClear)
    tools: PrunedTools = field(default_factory=PrunedTools)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trim(Validated):
    """How whole messages are left out when a view is over its limit."""

    low_water_ratio: Annotated[float, Meta(gt=0, le=1)] = setting(
        0.6, "Share of the limit that one sticky batch goes down to", project=ANY
    )
    protect_messages: Count = setting(
        6, "Last user and assistant messages never left out", project=ANY
    )
    protect_first_user: bool = setting(
        True, "The first user message, which often is the task, is never left out", project=ANY
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens(Validated):
    """How tokens are counted."""

    counter: Counter = setting(
        "script-aware", '"openclaw": a third of the characters, rounded up', project=ASK
    )
    calibrate: bool = setting(
        True, "Correct the count by the usage that providers report", project=ASK
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn(Validated):
    """How one request is shaped."""

    trim_first: bool = setting(
        False, "Trim on every turn before compacting, to window - reserve - hard cap", project=ANY
    )
    deadline_seconds: Seconds = setting(
        6.0,
        "What a whole turn may wait for, beside 15 seconds for the store to open in the first",
        project=ASK,
    )

    @property
    def stage_deadline_seconds(self) -> float:
        """How long one stage may take: five sixths of the turn's deadline."""
        return self.deadline_seconds * 5 / 6


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceSettings(Validated):
    """The workspace's files in the system prompt."""

    max_chars: Positive = setting(
        20_000,
        "Characters of one file; longer ones keep head and tail",
        project=ANY,
        openclaw="bootstrapMaxChars",
    )
    skip_bootstrap: bool = setting(
        True,
        "Do not create the agent's missing files in the workspace; `recollect init --workspace` "
        "creates them",
        project=only(True),
        openclaw="skipBootstrap",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayUpstreams(Validated):
    """The providers behind the gateway; requests reach no other server."""

    anthropic: str | None = setting(
        "https://api.anthropic.com", "Base URL for the Messages API; none: not served", project=ASK
    )
    openai: str | None = setting(
        "https://api.openai.com/v1",
        "Base URL for Chat Completions and Responses; none: not served",
        project=ASK,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings(Validated):
    """The HTTP gateway: `recollect gateway` and `recollect wrap`."""

    host: str = setting(
        "127.0.0.1", "Address to listen on; every request brings the token", project=ASK
    )
    port: Annotated[int, Meta(ge=0, le=65_535)] = setting(
        8788, "Port to listen on; 0: a free one", project=ASK
    )
    space: str = setting("default", "Space of requests that name none", project=ASK)
    by_folder: bool = setting(
        True, "A space of its own per project folder, where the client says", project=ASK
    )
    summaries: GatewaySummaries = setting(
        "off",
        '"client": when the window fills, ask the client\'s own model, with its key, for a summary',
        project=ASK,
    )
    upstream: GatewayUpstreams = field(default_factory=GatewayUpstreams)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings(Validated):
    """The service for tenants on PostgreSQL: `recollect serve`."""

    host: str = setting(
        "127.0.0.1", "Address to listen on; 0.0.0.0 behind a proxy that has TLS", project=ASK
    )
    port: Annotated[int, Meta(ge=0, le=65_535)] = setting(
        8789, "Port to listen on; 0: a free one", project=ASK
    )
    concurrency: Positive = setting(
        16,
        "Requests worked on at once, and connections to the database; the others wait",
        project=ASK,
    )
    deadline_seconds: Seconds = setting(
        30.0, "How long a request may take that names no deadline; then 504", project=ASK
    )
    drain_seconds: Seconds = setting(
        5.0,
        "After SIGTERM: how long it goes on while /readyz says no, so that nobody is cut off",
        project=ASK,
    )
    jobs: bool = setting(
        False,
        "Do jobs in the nodes, which slows requests down; off: `recollect worker` does",
        project=ASK,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings(Validated):
    """What `recollect serve` and `recollect worker` tell those who run them."""

    metrics_port: Annotated[int, Meta(ge=0, le=65_535)] | None = setting(
        None,
        "Port of /metrics for Prometheus, apart from the API; 0: a free one; none: no metrics",
        project=ASK,
    )
    metrics_host: str = setting(
        "127.0.0.1",
        "Address of /metrics, which asks for no key: keep tenants away from it",
        project=ASK,
    )
    traces: bool = setting(
        False, "Spans by OpenTelemetry, sent where its own OTEL_ variables say", project=ASK
    )
    log_format: LogFormat | None = setting(
        None,
        "A line for every request or job on standard error; none: only what is amiss",
        project=ASK,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSettings(Validated):
    """The daemon that answers the hooks of agents: `recollect daemon`."""

    idle_seconds: Seconds = setting(
        14_400.0,
        "Stop the daemon after this long without requests",
        project=ASK,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingCache(Validated):
    """Vectors kept so that no text is embedded twice."""

    enabled: bool = setting(True, "Keep them", project=ASK, openclaw="memorySearch.cache.enabled")
    max_entries: Positive = setting(
        50_000, "How many", project=ASK, openclaw="memorySearch.cache.maxEntries"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset(Validated):
    """When a chat starts a new session by itself."""

    mode: ResetMode | None = setting(
        None, "Every day, after idling, or never", project=ASK, openclaw="session.reset.mode"
    )
    at_hour: Annotated[int, Meta(ge=0, le=23)] = setting(
        4, "Local hour of the daily reset", project=ASK, openclaw="session.reset.atHour"
    )
    idle_minutes: Positive | None = setting(
        None,
        "Idle time after which a session ends",
        project=ASK,
        openclaw="session.reset.idleMinutes",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings(Validated):
    """Sessions of our own chat."""

    reset: Reset = field(default_factory=Reset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Validated):
    """Every setting; `Settings()` is the defaults, `load_settings` reads the sources.

    Naming a preset here does not apply it: `load_settings` and `preset_settings` do.
    """

    preset: Preset = setting(
        "recollect", "A group of settings that belong together; single keys win", project=ASK
    )
    window_tokens: Positive | None = setting(
        None,
        "The model's window; none: by table or as the provider states it, else "
        f"{FALLBACK_WINDOW_TOKENS}",
        project=at_least(4_000),
        openclaw="contextTokens",
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
    embedding_cache: EmbeddingCache = field(default_factory=EmbeddingCache)
    workspace: WorkspaceSettings = field(default_factory=WorkspaceSettings)
    session: SessionSettings = field(default_factory=SessionSettings)
    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    serve: ServeSettings = field(default_factory=ServeSettings)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    daemon: DaemonSettings = field(default_factory=DaemonSettings)

    def across_sessions(self) -> Settings:
        """With `recall.scope` that of the space where nobody chose: for surfaces whose users look
        for what they said in other sessions, too."""
        if self.recall.scope != "auto":
            return self
        return replace(self, recall=replace(self.recall, scope="space"))
