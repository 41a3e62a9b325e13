"""The settings as values: every key, what it says, and its default, each written once.

Owns the names, types, bounds and defaults. It reads nothing (files and variables are in
`sources`) and decides nothing (what a limit comes to is in `rules.budget`). A `Settings` that
exists is valid: every group checks its values when it is made, however it is made.

The string beside each type is the key's line in docs/settings.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated, Literal

from recollect.config.fields import InSeconds, Range, RenamedTo, shapes_of
from recollect.errors import SettingsError

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
ResetMode = Literal["daily", "idle"]

Ratio = Annotated[float, Range(at_least=0, at_most=1)]
Positive = Annotated[int, Range(at_least=1)]
Seconds = Annotated[float, Range(above=0), InSeconds]


class Validated:
    """A group of settings that refuses to exist with a value that does not fit."""

    __slots__ = ()

    def __post_init__(self) -> None:
        group: type = type(self)
        for name, shape in shapes_of(group).items():
            value = getattr(self, name)
            try:
                canonical = shape.read(value)
            except ValueError as problem:
                raise SettingsError(f"{group.__name__}.{name} {problem}") from None
            if canonical != value:
                raise SettingsError(
                    f"{group.__name__}.{name} must be given as {canonical!r}, not {value!r}"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Hybrid(Validated):
    """How lexical and vector scores are joined."""

    enabled: Annotated[bool, "Search by words and by vectors; off: by vectors alone"] = True
    vector_weight: Annotated[Ratio | None, "Weight of the vector score; none: by embedder"] = None
    text_weight: Annotated[Ratio | None, "Weight of the word score; none: by embedder"] = None
    candidate_multiplier: Annotated[
        Positive, "Candidates taken from each side, as a multiple of what is wanted"
    ] = 4

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

    provider: Annotated[RemoteProvider | None, "Whose embeddings"] = None
    model: Annotated[str | None, "Which of its models; none: the provider's usual one"] = None
    dimensions: Annotated[
        Positive | None, "Numbers of a vector, where the model offers a choice; none: its own"
    ] = None
    base_url: Annotated[
        str | None, "Another server that speaks the provider's wire; none: the provider's own"
    ] = None
    key_variable: Annotated[
        str | None,
        "Environment variable that holds the key; none: the provider's usual one, and no key to "
        "another base_url",
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall(Validated):
    """What is put back into a view from memory, and where."""

    enabled: Annotated[bool, "Put a recalled block into the view"] = True
    method: Annotated[
        RecallMethod,
        'How memory is searched and the block is written; "openclaw": whole messages by its '
        "formula, in its lines",
    ] = "recollect"
    every_turn: Annotated[bool, "Recall on every turn, without asking whether it is needed"] = False
    placement: Annotated[Placement, "Where the block goes"] = "before-newest-user"
    sticky: Annotated[
        bool, "The block stays until the next batch moment; off: it is removed next turn"
    ] = True
    hard_cap_tokens: Annotated[
        int,
        "The block's upper limit for who asks, never over 10% of the window where tools are used, "
        "a third of it where people only talk",
    ] = 4000
    block_tokens: Annotated[
        int, "The block's size for a turn that asks nothing; a question may take the hard cap"
    ] = 400
    standing_tokens: Annotated[
        int,
        "What the user laid down in messages that left the view stands at its head in so many "
        "tokens, never over 10% of the window; 0: nothing stands",
    ] = 1200
    embedder: Annotated[
        EmbedderName,
        'What makes vectors; "auto" takes only what is local and installed; "transformer": onnx, '
        "or words alone where there is no model",
    ] = "auto"
    onnx_model: Annotated[
        str | None, "The ONNX model: a folder, or its name among the downloaded; none: the first"
    ] = None
    min_score: Annotated[
        Ratio | None,
        "Lowest score that is recalled; none: the calibrated absolute score, "
        f"{CALIBRATED_MIN_SCORE}",
    ] = None
    scope: Annotated[
        Scope,
        'What is searched; "auto": the session in library and chat, the space in hooks, MCP and '
        "imports",
    ] = "auto"
    decay_per_day: Annotated[Ratio, "Factor on a score for each day of age; 1 is no decay"] = 1.0
    max_results: Annotated[Positive | None, "Most passages in one block; none: what fits"] = None
    deadline_seconds: Annotated[
        Seconds | None,
        "How long recall may take; none: turn.stage_deadline_seconds",
    ] = None
    citations: Annotated[Citations, "Recalled lines name their file and line or segment"] = "auto"
    hybrid: Hybrid = field(default_factory=Hybrid)
    remote: Remote = field(default_factory=Remote)


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction(Validated):
    """What never reaches the disk in clear."""

    enabled: Annotated[bool, "Mask secrets in everything that is stored"] = True
    pii: Annotated[bool, "Mask e-mail addresses, phone and card numbers too"] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts(Validated):
    """Statements extracted from what was said."""

    enabled: Annotated[
        bool, "Extract facts when messages leave the view or the session goes idle"
    ] = True
    idle_seconds: Annotated[Seconds, "How long a session must be silent to be read"] = 600.0
    window_tokens: Annotated[
        Annotated[int, Range(at_least=500)],
        "How much of a session a model reads in one call, never more than its window holds",
    ] = 12_000
    digests: Annotated[
        bool,
        "Let the model of models.extraction write a digest of subjects that many facts are about: "
        "a call for each, again when the facts have doubled",
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Models(Validated):
    """Which model does what, where it is not the session's own."""

    provider: Annotated[
        ProviderFormat | None,
        "The wire that models are asked in; none: no model is asked, and nothing is compacted",
    ] = None
    base_url: Annotated[
        str | None, "Another server that speaks this wire; none: the provider's own"
    ] = None
    key_variable: Annotated[
        str | None,
        "Environment variable that holds the key; none: the provider's usual one, and no key to "
        "another base_url",
    ] = None
    main: Annotated[str | None, "Model of our own agent's conversations"] = None
    summary: Annotated[str | None, "Model that summarises; none: models.main"] = None
    flush: Annotated[str | None, "Model of the flush turn; none: models.main"] = None
    extraction: Annotated[
        str | None, "Model that reads for facts; none: rules alone, no model is asked for facts"
    ] = None
    deadline_seconds: Annotated[Seconds, "How long one call of a model may take"] = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Index(Validated):
    """What is searchable, and how much of it."""

    max_segments: Annotated[Positive, "Segments kept warm; beyond it they go cold, never away"] = (
        200_000
    )
    eviction_days: Annotated[
        Positive | None, "Age in days at which a segment goes cold; none: never"
    ] = None
    sources: Annotated[tuple[IndexSource, ...], "What is indexed"] = ("sessions", "memory")
    extra_paths: Annotated[tuple[str, ...], "Further files and folders to index"] = ()
    update_interval: Annotated[timedelta, "How often indexed files are looked at again"] = (
        timedelta(minutes=5)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingest(Validated):
    """What is kept of the conversation."""

    enabled: Annotated[bool, "Write new messages to the archive; off: only read it"] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Store(Validated):
    """Where memory is kept."""

    url: Annotated[
        str | None,
        "A file, sqlite:///PATH or postgresql://…; none: one file a space in the data folder",
    ] = None
    key: Annotated[
        str | None,
        "Key of encrypted files: env:NAME, file:PATH or keyring:SERVICE/NAME; none: not encrypted",
    ] = None
    open_seconds: Annotated[
        Seconds,
        "What the first turn of a session may wait for: the store to open, and to say what is "
        "known of the session",
    ] = 15.0
    read_seconds: Annotated[
        Seconds,
        "How long one look into the store may take at the most; a store that then answers nothing "
        "else either counts as away sooner, though never under two seconds",
    ] = 10.0
    write_seconds: Annotated[
        Seconds,
        "How long the store may take at the most before a batch goes to the spool instead; one "
        "that takes batches quickly is given less, though never under a second",
    ] = 2.0
    undurable_seconds: Annotated[
        Seconds,
        "How long messages that neither the store nor the spool takes stay in the view; then the "
        "view is trimmed to its limit, and they wait in memory",
    ] = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs(Validated):
    """Work in the background: embedding, packing, eviction, extraction."""

    in_process: Annotated[bool, "Run jobs in this process; off: `recollect worker` does"] = True
    day_tokens: Annotated[
        Positive | None, "Tokens that the jobs of a space may spend a day; none: no limit"
    ] = 1_000_000
    lease_seconds: Annotated[Seconds, "How long a job is lent to a worker that went silent"] = 60.0
    max_attempts: Annotated[Positive, "How often a job is tried before it is set aside"] = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger(Validated):
    """What was sent at each turn, so that it can be looked at again."""

    enabled: Annotated[bool, "Keep it"] = True
    retention_days: Annotated[Positive | None, "For how long; none: for ever"] = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Flush(Validated):
    """The silent turn before a compaction in which the agent writes notes."""

    enabled: Annotated[bool, "Run it"] = True
    soft_threshold_tokens: Annotated[
        int, "How long before the compaction, never over 5% of the window"
    ] = 4000
    at_ratio: Annotated[
        Ratio | None, "Share of the window at which it runs instead; none: by the threshold"
    ] = None
    prompt: Annotated[str, "Its user message; YYYY-MM-DD is filled in"] = (
        "Older messages are about to be replaced by a summary. Append whatever must outlast them "
        "(decisions, open work, preferences, exact names and paths) to memory/YYYY-MM-DD.md. "
        "If there is nothing to add, answer NO_REPLY."
    )
    system_prompt: Annotated[str, "Its addition to the system prompt; YYYY-MM-DD is filled in"] = (
        "This turn exists to save notes before the conversation is shortened; the user does not "
        "see it. Only append to memory/YYYY-MM-DD.md, change nothing that is already there, and "
        "finish with NO_REPLY."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction(Validated):
    """When the past is replaced by a summary, and how."""

    enabled: Annotated[bool, "Compact when the window fills; off: only trim"] = True
    mode: Annotated[CompactionMode, '"safeguard" summarises in stages, "default" in one pass'] = (
        "safeguard"
    )
    reserve_tokens: Annotated[
        int, "Left free for the reply; with the floor, at most a quarter of the window"
    ] = 16_384
    reserve_tokens_floor: Annotated[int, "Least reserve; 0 disables it"] = 20_000
    keep_recent_tokens: Annotated[
        int, "Kept word for word, never over 40% of what the reserve leaves"
    ] = 20_000
    max_history_share: Annotated[
        float,
        Range(at_least=0.1, at_most=0.9),
        "Over this share of the window the oldest chunks are summarised apart",
    ] = 0.5
    at_ratio: Annotated[
        Annotated[float, Range(above=0, at_most=1)] | None,
        "Share of the window at which to compact early; none: at the limit",
    ] = None
    background: Annotated[
        bool, "Compact while nobody waits, once a reply has filled the window; off: only when due"
    ] = True
    summary_tokens: Annotated[Positive, "Longest summary, never over a tenth of the window"] = 4000
    audit: Annotated[
        bool,
        "Check a summary for its sections, identifiers and the newest question, and ask once "
        "more where they are missing",
    ] = True
    pin_ratio: Annotated[
        Ratio, "Share of the window that may be added to a summary for what would be lost"
    ] = 0.05
    deadline_seconds: Annotated[Seconds, "How long a whole compaction may take"] = 180.0
    breaker_failures: Annotated[
        Positive, "So many compactions that failed or changed too little, and it pauses"
    ] = 3
    breaker_seconds: Annotated[Seconds, "For how long it pauses then"] = 600.0
    flush: Flush = field(default_factory=Flush)


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftTrim(Validated):
    """How a long tool result is shortened."""

    max_chars: Annotated[int, "Results longer than this keep only their head and tail"] = 4000
    head_chars: Annotated[int, "Characters kept of the head"] = 1500
    tail_chars: Annotated[int, "Characters kept of the tail"] = 1500

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

    enabled: Annotated[bool, "Replace the oldest results by the placeholder"] = True
    placeholder: Annotated[str, "What stands in their place"] = "[Old tool result content cleared]"
    line_chars: Annotated[
        int,
        Range(at_least=0, at_most=2_000),
        "Behind it, of the line that bears most on what the tool was called for; 0: no line",
    ] = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedTools(Validated):
    """Whose results may be pruned, by glob patterns of the tools' names; deny wins."""

    allow: Annotated[tuple[str, ...], "Tools whose results may be pruned"] = ("*",)
    deny: Annotated[tuple[str, ...], "Tools whose results never are"] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruning(Validated):
    """How old tool results are shortened in a view, at batch moments; images never are."""

    mode: Annotated[
        PruningMode,
        '"cache-ttl": when the provider\'s cache has expired; "adaptive": by the ratios; '
        '"aggressive": all but the last assistants\' results cleared',
    ] = "cache-ttl"
    ttl: Annotated[timedelta, "Age at which the provider's cache counts as expired"] = timedelta(
        minutes=5
    )
    keep_last_assistants: Annotated[
        int, "Results of this many last assistant messages are safe"
    ] = 3
    soft_trim_ratio: Annotated[Ratio, "Share of the window from which results are shortened"] = 0.3
    hard_clear_ratio: Annotated[Ratio, "Share of the window from which results are cleared"] = 0.5
    min_prunable_tool_chars: Annotated[
        int, "Nothing is cleared while the prunable results hold fewer characters"
    ] = 50_000
    soft_trim: SoftTrim = field(default_factory=SoftTrim)
    hard_clear: HardClear = field(default_factory=HardClear)
    tools: PrunedTools = field(default_factory=PrunedTools)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trim(Validated):
    """How whole messages are left out when a view is over its limit."""

    low_water_ratio: Annotated[
        float,
        Range(above=0, at_most=1),
        "Share of the limit that one sticky batch goes down to",
    ] = 0.6
    protect_messages: Annotated[int, "Last user and assistant messages never left out"] = 6
    protect_first_user: Annotated[
        bool, "The first user message, which often is the task, is never left out"
    ] = True
    min_query_chars: Annotated[int, "Queries shorter than this do not choose by relevance"] = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Query(Validated):
    """What memory is asked."""

    user_messages: Annotated[Positive, "Last user messages that make the query"] = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens(Validated):
    """How tokens are counted."""

    counter: Annotated[
        Counter,
        RenamedTo(words={"seeds": "openclaw"}),
        '"openclaw": a third of the characters, rounded up',
    ] = "script-aware"
    calibrate: Annotated[bool, "Correct the count by the usage that providers report"] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn(Validated):
    """How one request is shaped."""

    trim_first: Annotated[
        bool, "Trim on every turn before compacting, to window - reserve - hard cap"
    ] = False
    deadline_seconds: Annotated[
        Seconds, "What a whole turn may wait for, beside store.open_seconds in a session's first"
    ] = 6.0
    stage_deadline_seconds: Annotated[Seconds, "What one stage of it may wait for"] = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace(Validated):
    """The workspace's files in the system prompt."""

    max_chars: Annotated[Positive, "Characters of one file; longer ones keep head and tail"] = (
        20_000
    )
    skip_bootstrap: Annotated[bool, "Do not create the files when they are missing"] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingCache(Validated):
    """Vectors kept so that no text is embedded twice."""

    enabled: Annotated[bool, "Keep them"] = True
    max_entries: Annotated[Positive, "How many"] = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset(Validated):
    """When a chat starts a new session by itself."""

    mode: Annotated[ResetMode | None, "Every day, after idling, or never"] = None
    at_hour: Annotated[int, Range(at_least=0, at_most=23), "Local hour of the daily reset"] = 4
    idle_minutes: Annotated[Positive | None, "Idle time after which a session ends"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Session(Validated):
    """Sessions of our own chat."""

    reset: Reset = field(default_factory=Reset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Validated):
    """Every setting; `Settings()` is the defaults, `load_settings` reads the sources.

    Naming a preset here does not apply it: `load_settings` and `preset_settings` do.
    """

    preset: Annotated[
        Preset,
        RenamedTo(words={"seeds": "openclaw"}),
        "A group of settings that belong together; single keys win",
    ] = "recollect"
    window_tokens: Annotated[
        Positive | None,
        "The model's window; none: by table or as the provider states it, else "
        f"{FALLBACK_WINDOW_TOKENS}",
    ] = None
    turn: Turn = field(default_factory=Turn)
    tokens: Tokens = field(default_factory=Tokens)
    pruning: Pruning = field(default_factory=Pruning)
    trim: Trim = field(default_factory=Trim)
    query: Query = field(default_factory=Query)
    recall: Recall = field(default_factory=Recall)
    compaction: Compaction = field(default_factory=Compaction)
    redaction: Redaction = field(default_factory=Redaction)
    ingest: Ingest = field(default_factory=Ingest)
    index: Index = field(default_factory=Index)
    store: Store = field(default_factory=Store)
    jobs: Jobs = field(default_factory=Jobs)
    ledger: Ledger = field(default_factory=Ledger)
    facts: Facts = field(default_factory=Facts)
    models: Models = field(default_factory=Models)
    embedding_cache: EmbeddingCache = field(default_factory=EmbeddingCache)
    workspace: Workspace = field(default_factory=Workspace)
    session: Session = field(default_factory=Session)
