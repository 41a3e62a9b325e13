"""What a batch meets in a space: counters, what is known, what was forgotten."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class Ground:
    """What a batch meets: the counters, what is known, what was forgotten."""

    next_sequence: int
    next_passage: int
    next_embedder: int
    next_job: int
    packed_to: int
    facts_revision: int
    known: frozenset[str] = frozenset()
    tombstoned: frozenset[str] = frozenset()
    """Identities and segments that a tombstone stands for."""
    documents: int = 0
    """Added to the warm index."""
    total_length: int = 0
    places: dict[tuple[str, int], tuple[int, int, int]] = field(default_factory=dict)
    """Number, start and end of passages written in this batch, by segment and ordinal."""
    embedders: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Number and dimensions of embedders that this batch brought."""
    vectored: set[tuple[int, int]] = field(default_factory=set)
    """Embedder and passage of vectors written in this batch."""

    @property
    def tail(self) -> int:
        """How many passages wait to be packed."""
        return self.next_passage - 1 - self.packed_to
