"""The seams to the outside, as plain protocols: what an adapter must offer.

Only what the turn path needs stands here so far; `Store`, `Model`, `Embedder`, `History` and
`Notes` come with the parts that use them, so that no seam is promised before it is held.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from recollect.values.history import SessionId, SpaceId
from recollect.values.message import EntryKey
from recollect.values.overflow import Overflow
from recollect.values.recalled import Recalled


class Clock(Protocol):
    """Tells the time; tests freeze it."""

    def now(self) -> float:
        """Seconds since the epoch."""
        ...


class TokenCounter(Protocol):
    """Counts tokens of text; give the engine one that knows your model's tokenizer."""

    def count_text(self, text: str) -> int:
        """Tokens of `text`; at least 1 unless it is empty."""
        ...


class RecogniseOverflow(Protocol):
    """Tells from an error whether a request was refused for its size."""

    def __call__(
        self, *, status: int | None, message: str, body: Mapping[str, Any] | None = None
    ) -> Overflow | None:
        """What the provider said of it; None when it was refused for something else."""
        ...


class Recaller(Protocol):
    """Finds what a turn needs from memory; the engine bounds how long it may take."""

    async def recall(
        self, *, space: SpaceId, session: SessionId, query: str, shown: frozenset[EntryKey]
    ) -> Recalled:
        """What bears on `query` and is not among `shown`."""
        ...
