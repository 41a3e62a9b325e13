"""What a redaction found, where, and what of it is left: counts and names, never a secret.

Owns the words for places and for what is out of reach. Always holds: whatever was found and not
masked is counted as left, so that nobody is told that nothing stands in clear.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from recollect.values.fact import FactId
from recollect.values.segment import SegmentId
from recollect.values.upkeep import Room

Progress: TypeAlias = Callable[[str, int, int | None], None]
"""Told what is looked at, how much is done, and of how much, where that is known."""

SEGMENTS: Final = "messages"
FACTS: Final = "facts"
DIGESTS: Final = "digests"
SPOOL: Final = "spooled batches"
PLACES: Final[Mapping[Room, str]] = {
    "pieces": "ledger pieces",
    "jobs": "jobs",
    "job reasons": "reasons of failed jobs",
    "compactions": "summaries and receipts",
    "states": "session states",
}
"""What the rooms are called where people read of them."""
CANNOT: Final = (
    "backups, archived logs and replicas of the database that were made before",
    "spools of other machines: what waits there was masked by the rules of then",
    "what model providers logged or cached",
    "the client's own history and files",
)
SESSION_NAMES: Final = "names of sessions"
ORIGINS: Final = "places that messages were imported from"
JOB_KEYS: Final = "keys of jobs"
RECORD_NAMES: Final = "ids, names and keys in records"


@dataclass(frozen=True, slots=True, kw_only=True)
class Redacted:
    """What secrets stand where, or stood there; counts and names, never one of them."""

    applied: bool
    """They are masked now; else they were only counted."""
    kinds: Mapping[str, Mapping[str, int]]
    """By place, how many secrets of which kind."""
    changed: Mapping[str, int]
    """By place, how many messages, facts, pieces… hold them."""
    sessions: Mapping[str, int]
    """By session, how many stand in its messages, summaries and state."""
    segments: tuple[SegmentId, ...] = ()
    """The messages that hold them."""
    facts: tuple[FactId, ...] = ()
    """The facts and digests that do."""
    looked_at: Mapping[str, int] = field(default_factory=dict)
    """By place, how many were looked at."""
    left: int = 0
    """How many were found besides where nothing is, or was, masked: in names, in what others use
    or changed meanwhile, in files that are not ours to change."""
    unread: int = 0
    """How much could not be looked into."""
    cannot: tuple[str, ...] = ()
    """What it could not reach, one sentence each."""

    @property
    def secrets(self) -> int:
        """How many there are, wherever they can be masked."""
        return sum(count for kinds in self.kinds.values() for count in kinds.values())

    @property
    def in_clear(self) -> int:
        """How many stand in clear now, as far as could be looked."""
        return self.left + (0 if self.applied else self.secrets)


class Findings:
    """Counts on the way; `told` is what came of it."""

    def __init__(self, *, applied: bool, progress: Progress | None) -> None:
        self.changed: Counter[str] = Counter()
        self.unread: Counter[str] = Counter()
        self.segments: dict[SegmentId, None] = {}
        self.facts: list[FactId] = []
        self.cannot: dict[str, None] = {}
        self.raced = 0
        """How many changed while they were looked at, so that they stay as they are."""
        self._applied = applied
        self._progress = progress
        self._kinds: dict[str, Counter[str]] = {}
        self._sessions: Counter[str] = Counter()
        self._looked_at: Counter[str] = Counter()
        self._names: dict[str, set[str]] = {}

    def count(
        self,
        place: str,
        kinds: Mapping[str, int],
        session: str | None = None,
        *,
        again: bool = False,
    ) -> None:
        """Count what one of a place holds; `again` where it is counted among the place's."""
        self.changed[place] += not again
        self._kinds.setdefault(place, Counter()).update(kinds)
        if session is not None:
            self._sessions[session] += sum(kinds.values())

    def name(self, what: str, name: str) -> None:
        """Count a name that matches and stays; each once."""
        self._names.setdefault(what, set()).add(name)

    def step(self, place: str, count: int, total: int | None) -> None:
        """That many more were looked at."""
        self._looked_at[place] += count
        if self._progress is not None:
            self._progress(place, self._looked_at[place], total)

    def told(self) -> Redacted:
        """What was found and done."""
        lines = [
            f"{count:,} {place} that could not be read here" for place, count in self.unread.items()
        ]
        if self.raced:
            lines.append(f"{self.raced:,} that changed meanwhile: redact once more")
        lines += [
            f"{len(found):,} {what} that hold something to mask: they hold things together and "
            "stay; forget what they belong to"
            for what, found in self._names.items()
        ]
        return Redacted(
            applied=self._applied,
            kinds={place: dict(kinds) for place, kinds in self._kinds.items()},
            changed=dict(self.changed),
            sessions=dict(self._sessions),
            segments=tuple(self.segments),
            facts=tuple(self.facts),
            looked_at=dict(self._looked_at),
            left=self.raced + sum(map(len, self._names.values())),
            unread=sum(self.unread.values()),
            cannot=(*lines, *self.cannot, *(CANNOT if self._applied else ())),
        )
