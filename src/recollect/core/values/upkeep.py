"""Orders to maintain a store, and their results: counts, checks, forgetting, files. Results are
printed and logged, so none contains message content."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, get_args

from recollect.core.values.fact import Fact, FactId
from recollect.core.values.message import MessageId
from recollect.core.values.segment import NewSegment, SegmentId

BodyKind: TypeAlias = Literal["pieces", "jobs", "job reasons", "compactions", "states"]
"""Kinds of stored data, besides segments and facts, that quote messages."""
BODY_KINDS: Final[tuple[BodyKind, ...]] = get_args(BodyKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    """Summary of a session."""

    session: str
    """Name of the session."""
    segments: int
    """Number of its stored messages."""
    first_said_at: float | None
    """Time of its first message, as a Unix timestamp."""
    last_said_at: float | None
    """Time of its last message, as a Unix timestamp."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceSummary:
    """Summary of a space."""

    space: str | None
    sessions: int = 0
    segments: int = 0
    last_said_at: float | None = None
    bytes_on_disk: int | None = None
    """Size of the space; None on a database server, whose tables hold all spaces."""
    file: str | None = None
    unread: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Counts of a space. `noise` messages are stored but not indexed. `pieces` belong to the
    ledger. `tombstones` block forgotten messages. `vectors` are counted by embedder."""

    space: str
    """Name of the space."""
    engine: str
    """Database and its version."""
    segments: int
    """Number of stored messages."""
    noise: int
    """Number of stored messages that a search does not find, such as greetings."""
    passages: int
    """Number of indexed pieces of messages."""
    tokens: int
    """Estimated number of tokens in all stored messages."""
    vectors: Mapping[str, int] = field(default_factory=dict)
    """Number of vectors by embedder."""
    facts: int = 0
    """Number of facts, including replaced ones."""
    sessions: int = 0
    """Number of sessions."""
    turns: int = 0
    """Number of recorded requests."""
    pieces: int = 0
    """Number of texts in recorded requests. Equal texts are stored once."""
    compactions: int = 0
    """Number of recorded compactions."""
    tombstones: int = 0
    """Number of marks that keep forgotten messages from being stored again."""
    jobs_waiting: int = 0
    """Number of background jobs that are waiting."""
    jobs_dead: int = 0
    """Number of background jobs that failed too often and are not retried."""
    bytes_on_disk: int | None = None
    """Size in bytes; None if the database does not report it per space."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """Result of an integrity check. The store is intact if `problems` is empty."""

    checked: tuple[str, ...]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetOrder:
    """Selection of what to forget, by content, by place or both. By content (`segments`,
    `message_ids`): every copy of the message is removed, and it is never stored again. By place
    (all of `sessions`, `said_after` and `said_before` must match): only the segments there are
    removed and blocked. Copies in other places remain, and so do ledger pieces, jobs and quotes
    that concern these copies."""

    at: float
    segments: tuple[SegmentId, ...] = ()
    message_ids: tuple[MessageId, ...] = ()
    sessions: tuple[str, ...] = ()
    said_before: float | None = None
    said_after: float | None = None
    """Earliest time of a message to forget, inclusive."""
    facts: tuple[FactId, ...] = ()
    """Facts to remove, whatever segments support them."""
    matching: str | None = field(default=None, repr=False)
    """Text to remove, ignoring case. `memory.forget` finds messages and facts in the store and in
    spools, and passes their ids to the store. The store removes ledger pieces, jobs, compactions
    and session states with this text, even if they quote no message, such as system prompts."""

    pattern: str | None = field(default=None, repr=False)
    """Regular expression to remove. `memory.forget` finds its matches, and passes messages and
    facts by id to the store, other texts in `matching`."""

    @property
    def by_time(self) -> bool:
        """True if a time limit is set, so that no session is removed as a whole."""
        return self.said_before is not None or self.said_after is not None

    def said_then(self, said_at: float) -> bool:
        """Return whether a message of this time is within the order's time limits."""
        return (self.said_before is None or said_at < self.said_before) and (
            self.said_after is None or said_at >= self.said_after
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """Counts and ids of the data that a store removed, without content."""

    segments: tuple[SegmentId, ...] = ()
    message_ids: tuple[MessageId, ...] = ()
    """Messages that are never stored again: those forgotten by content."""
    passages: int = 0
    vectors: int = 0
    facts: tuple[FactId, ...] = ()
    pieces: int = 0
    jobs: int = 0
    session_states: int = 0
    compactions: int = 0
    cannot: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBody:
    """Stored data that is neither a segment nor a fact."""

    kind: BodyKind
    id: str
    body: bytes = field(repr=False)
    session: str | None = None
    torn: bool = False
    """True if the data cannot be decoded, so that `body` is the raw bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBody:
    """New bytes for stored data."""

    kind: BodyKind
    id: str
    was: bytes = field(repr=False)
    """The bytes as read. Stored bytes that have changed since are not replaced."""
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteOrder:
    """Stored texts to replace, by id."""

    at: float
    segments: tuple[NewSegment, ...] = field(default=(), repr=False)
    """Segments with new texts, tags and passages, whose old vectors are deleted."""
    bodies: tuple[NewBody, ...] = field(default=(), repr=False)
    facts: tuple[Fact, ...] = field(default=(), repr=False)
    """Facts whose text changes, or whose evidence moves within these segments."""
    facts_revision: int | None = None
    """Revision of the facts as read. If it has changed, the store raises `StaleFacts`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """Ids and counts of what a rewrite replaced."""

    segments: tuple[SegmentId, ...] = ()
    bodies: int = 0
    """Number of replaced bodies, without those deleted or changed in the meantime."""
    vectors: int = 0
    cannot: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolState:
    """State of a space's spool (writes that wait for the store) on this machine."""

    folder: str
    waiting: int = 0
    """Number of batches that wait for the store."""
    foreign: int = 0
    """Number of these batches with ids of another data secret, which this process cannot store."""
    refused: int = 0
    refused_files: tuple[str, ...] = ()
    damaged_files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubResult:
    """Steps taken to remove deleted bytes from files."""

    done: tuple[str, ...]
    cannot: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetScope:
    """What a user asked to forget."""

    segments: int = 0
    identities: int = 0
    sessions: tuple[str, ...] = ()
    said_before: float | None = None
    said_after: float | None = None
    matching: bool = False
    """True if the user gave a text. The text itself is not repeated here."""
    pattern: bool = False
    """True if the user gave a pattern. The pattern itself is not repeated here."""
    facts: int = 0
    whole_space: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Record of what was forgotten, without content. `counts` are the numbers of removed items,
    `covers` the places that were searched. `cannot` lists copies that Recollect cannot delete."""

    at: float
    """Time of the forgetting, as a Unix timestamp."""
    space: str
    """Name of the space."""
    engine: str
    """Database and its version."""
    version: str
    """Version of Recollect."""
    asked: ForgetScope
    """What was to be forgotten, without message content."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Number of removed items, by kind."""
    identities_digest: str = ""
    """Hash of the ids of the forgotten messages."""
    covers: tuple[str, ...] = ()
    """Places that were searched."""
    cannot: tuple[str, ...] = ()
    """Copies that Recollect cannot delete, such as backups."""
    checksum: str = ""
    """Hash of all other fields."""


FileOutcome: TypeAlias = Literal["added", "changed", "withdrawn", "unchanged"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFileResult:
    """Changes to the sections of one memory file."""

    file: str
    """Path relative to the workspace; for a file outside, an absolute path or one with `~`."""
    outcome: FileOutcome
    added: int = 0
    moved: int = 0
    withdrawn: int = 0
    unchanged: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedFile:
    """A file or folder that was skipped, and why."""

    file: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFilesResult:
    """Result of one scan of memory files, per file."""

    files: tuple[MemoryFileResult, ...] = ()
    skipped: tuple[SkippedFile, ...] = ()
    forgotten: tuple[str, ...] = ()
    """Forgotten sections that were not stored again, as file and line. Unchanged files are
    omitted."""
    redacted: int = 0

    def count(self, outcome: FileOutcome) -> int:
        return sum(result.outcome == outcome for result in self.files)

    @property
    def said(self) -> str:
        """Return one sentence for a report or log."""
        parts = [
            f"{self.count(outcome)} {outcome}"
            for outcome in ("added", "changed", "withdrawn", "unchanged")
        ]
        if self.skipped:
            parts.append(f"{len(self.skipped)} skipped")
        if self.forgotten:
            parts.append(f"{len(self.forgotten)} forgotten sections stay out")
        return f"memory files: {', '.join(parts)}"
