"""What people ask of a store besides reading and writing: numbers, checks, forgetting, files.

Nothing here carries content: these values are printed and logged. A certificate's checksum is over
everything else in it, so one that was changed shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, get_args

from recollect.core.values.fact import Fact, FactId
from recollect.core.values.message import MessageId
from recollect.core.values.segment import NewSegment, SegmentId

BodyKind: TypeAlias = Literal["pieces", "jobs", "job reasons", "compactions", "states"]
"""The kinds of stored bytes, besides segments and facts, that quote messages."""
BODY_KINDS: Final[tuple[BodyKind, ...]] = get_args(BodyKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    """A session at a glance."""

    session: str
    segments: int
    first_said_at: float | None
    last_said_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceSummary:
    """A space at a glance."""

    space: str | None
    sessions: int = 0
    segments: int = 0
    last_said_at: float | None = None
    bytes_on_disk: int | None = None
    """None on a server, whose tables hold all spaces."""
    file: str | None = None
    unread: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Counts of a space.

    `cold` messages have left the index, `noise` is stored but not indexed. `pieces` belong to the
    ledger, `tombstones` keep forgotten messages out. `vectors` counts by embedder.
    """

    space: str
    engine: str
    segments: int
    noise: int
    passages: int
    tokens: int
    vectors: Mapping[str, int] = field(default_factory=dict)
    facts: int = 0
    sessions: int = 0
    turns: int = 0
    pieces: int = 0
    compactions: int = 0
    tombstones: int = 0
    jobs_waiting: int = 0
    jobs_dead: int = 0
    bytes_on_disk: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The findings of an integrity check; `problems` empty is clean."""

    checked: tuple[str, ...]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetOrder:
    """What is to be forgotten; the groups of ways add up.

    By content: `segments` and `message_ids` mean what was said, wherever it was said; every
    segment of the identity goes, and a tombstone for the identity keeps it out everywhere.
    By place: `sessions`, `said_after` and `said_before` mean just these segments; given together,
    those of the sessions that were said then. A tombstone for each segment keeps it out of its
    place; the same words elsewhere stay, and so do pieces, jobs and quotes that are about them,
    too.
    """

    at: float
    segments: tuple[SegmentId, ...] = ()
    message_ids: tuple[MessageId, ...] = ()
    sessions: tuple[str, ...] = ()
    said_before: float | None = None
    said_after: float | None = None
    """From this moment on, itself included."""
    facts: tuple[FactId, ...] = ()
    """Facts to remove whatever they rest on."""
    matching: str | None = field(default=None, repr=False)
    """Whatever holds this text, case aside. Messages and facts are found by `memory.forget`,
    in the store and in spools, and named to the store one by one; the store itself removes
    ledger pieces, jobs, compactions and session states that hold it, also those that are about no
    message, as system prompts and tool schemas are."""

    pattern: str | None = field(default=None, repr=False)
    """Whatever a part of which matches this regular expression. `memory.forget` finds it and names
    it to the store: messages and facts one by one, other texts as `matching`."""

    @property
    def by_time(self) -> bool:
        """Whether a time bounds it: then no session goes as a whole."""
        return self.said_before is not None or self.said_after is not None

    def said_then(self, said_at: float) -> bool:
        """Whether what was said at this moment lies within its bounds of time."""
        return (self.said_before is None or said_at < self.said_before) and (
            self.said_after is None or said_at >= self.said_after
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """The removals of a store; counts and ids, never content."""

    segments: tuple[SegmentId, ...] = ()
    message_ids: tuple[MessageId, ...] = ()
    """Identities that are kept out from now on: those forgotten by content."""
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
    """Bytes that a store keeps besides segments and facts."""

    kind: BodyKind
    id: str
    body: bytes = field(repr=False)
    session: str | None = None
    torn: bool = False
    """Whether it cannot be read: `body` is then what the store holds of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBody:
    """The replacement of stored bytes."""

    kind: BodyKind
    id: str
    was: bytes = field(repr=False)
    """As they were read: what changed since is left as it is."""
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteOrder:
    """Stored texts that are to read otherwise from now on; who they are stays."""

    at: float
    segments: tuple[NewSegment, ...] = field(default=(), repr=False)
    """Under their own ids, with new texts, tags and passages; their vectors go."""
    bodies: tuple[NewBody, ...] = field(default=(), repr=False)
    facts: tuple[Fact, ...] = field(default=(), repr=False)
    """Under their own ids: those whose words change, and whose spans move with these segments."""
    facts_revision: int | None = None
    """As in `Batch`: StaleFacts, and nothing is changed, where facts were written since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """The effect of a rewrite."""

    segments: tuple[SegmentId, ...] = ()
    bodies: int = 0
    """How many were replaced; the others went, or changed meanwhile."""
    vectors: int = 0
    cannot: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolState:
    """The spool of one space on this machine."""

    folder: str
    waiting: int = 0
    """Records that are handed over when the store can be reached."""
    refused: int = 0
    refused_files: tuple[str, ...] = ()
    damaged_files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubResult:
    """The steps that removed deleted bytes from files."""

    done: tuple[str, ...]
    cannot: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetScope:
    """The request to forget, as it was made."""

    segments: int = 0
    identities: int = 0
    sessions: tuple[str, ...] = ()
    said_before: float | None = None
    said_after: float | None = None
    matching: bool = False
    """Whether a text was searched for; it is not repeated here."""
    pattern: bool = False
    """Whether a pattern was searched for; it is not repeated here."""
    facts: int = 0
    whole_space: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What forgetting removed, without content.

    `counts` says how much, `covers` where Recollect searched, `cannot` what it cannot reach.
    """

    at: float
    space: str
    engine: str
    version: str
    asked: ForgetScope
    counts: Mapping[str, int] = field(default_factory=dict)
    identities_digest: str = ""
    """A hash over the forgotten identities."""
    covers: tuple[str, ...] = ()
    cannot: tuple[str, ...] = ()
    checksum: str = ""


FileOutcome: TypeAlias = Literal["added", "changed", "withdrawn", "unchanged"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFileResult:
    """One file: what became of its sections."""

    file: str
    """Relative to its workspace; with `~` or absolute where it lies outside."""
    outcome: FileOutcome
    added: int = 0
    moved: int = 0
    withdrawn: int = 0
    unchanged: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedFile:
    """A file or folder that was not looked at, and why."""

    file: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFilesResult:
    """The result of one look, file by file."""

    files: tuple[MemoryFileResult, ...] = ()
    skipped: tuple[SkippedFile, ...] = ()
    forgotten: tuple[str, ...] = ()
    """Sections, as file and line, that stay out because they were forgotten on purpose. Only of
    files that were read this time: those that did not change are not read again."""
    redacted: int = 0

    def count(self, outcome: FileOutcome) -> int:
        """The number of files with this outcome."""
        return sum(result.outcome == outcome for result in self.files)

    @property
    def said(self) -> str:
        """One sentence for a report or a log."""
        parts = [
            f"{self.count(outcome)} {outcome}"
            for outcome in ("added", "changed", "withdrawn", "unchanged")
        ]
        if self.skipped:
            parts.append(f"{len(self.skipped)} skipped")
        if self.forgotten:
            parts.append(f"{len(self.forgotten)} forgotten sections stay out")
        return f"memory files: {', '.join(parts)}"
