"""How large everything is in one compaction: the summary, the prompts, the pieces.

Owns the arithmetic and what a failure changes about it. Must never ask anything. Always pure: a
change gives new sizes. A summary with what `append_carried` adds is at most a tenth of the window;
the lines that `tell` adds, and what is pinned, come on top within bounds of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from recollect.compaction.chunk import MARGIN, MOST_RATIO
from recollect.compaction.pieces import Piece, Scribe
from recollect.compaction.prompts import Kind, Wanted, turn_prompt, update_prompt
from recollect.values.history import Entry

MOST_HALVINGS = 2
LEAST_WINDOW_TOKENS = 1_024
"""A smaller limit is none of a window's: of the output, or of what was left."""
MOST_READ_PIECES = 24
"""Ours: with merging about 33 calls, the most that anyone would wait and pay for."""
SUMMARY_SHARE = 10
"""A summary is never over this part of the window (`compaction.summary_tokens`), names and pinned
quotes aside."""
TURN_SHARE = 0.5
"""The beginning of a split turn gets half the room of a summary (pi)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What is believed to fit, until a call says otherwise."""

    scribe: Scribe = field(repr=False)
    count_tokens: Callable[[str], int] = field(repr=False)
    window_tokens: int
    most_summary_tokens: int
    one_pass: bool = False
    """Everything in one call where it fits: mode "default", until it failed."""
    focus: str = field(default="", repr=False)
    halvings: int = 0

    @property
    def summary_tokens(self) -> int:
        """What the model's words and code's sections behind them may weigh."""
        return max(1, min(self.most_summary_tokens, self.window_tokens // SUMMARY_SHARE))

    @property
    def previous_tokens(self) -> int:
        """What is shown of the summary before: with what was pinned to it, it may be longer."""
        return 2 * self.summary_tokens

    def wanted(self, kind: Kind) -> Wanted:
        """What a prompt of this kind asks for."""
        tokens = self.summary_tokens
        if kind == "turn":
            tokens = max(1, int(tokens * TURN_SHARE))
        return Wanted(summary_tokens=tokens, focus=self.focus)

    def overhead_tokens(self, kind: Kind) -> int:
        """What a call needs besides its piece; the summary before fits into chunk's margin."""
        wanted = self.wanted(kind)
        empty = turn_prompt("", wanted) if kind == "turn" else update_prompt("", "", wanted)
        asked = self.count_tokens(empty.system) + self.count_tokens(empty.text)
        return asked + empty.max_output_tokens

    def pieces(self, entries: Sequence[Entry], kind: Kind) -> tuple[Piece, ...]:
        """The pieces of a stretch."""
        overhead = self.overhead_tokens(kind)
        if self.one_pass:
            whole = self.scribe.whole(entries)
            read = self.count_tokens(whole.text) + self.previous_tokens
            if read * MARGIN + overhead <= self.window_tokens:
                return (whole,) if whole.text else ()
        return self.scribe.pieces(
            entries,
            window_tokens=self.window_tokens,
            overhead_tokens=overhead,
            halvings=self.halvings,
        )

    @property
    def readable_tokens(self) -> int:
        """What can be read at all: more than this is thinned out before."""
        room = max(1, self.window_tokens - self.overhead_tokens("history"))
        return int(MOST_READ_PIECES * room * MOST_RATIO / MARGIN)

    def most_pieces(self, entries: Sequence[Entry], kind: Kind) -> int:
        """How many pieces a stretch may come to, at any size that is tried."""
        sizes = [replace(self, one_pass=False, halvings=at) for at in range(MOST_HALVINGS + 1)]
        return max(len(size.pieces(entries, kind)) for size in (self, *sizes))

    def after_failure(self, limit_tokens: int | None) -> Sizes:
        """Sizes for another try: by the limit that was named, else pieces of half the size."""
        if limit_tokens is not None and LEAST_WINDOW_TOKENS <= limit_tokens < self.window_tokens:
            return replace(self, window_tokens=limit_tokens, one_pass=False)
        halvings = min(MOST_HALVINGS, self.halvings + 1)
        return replace(self, halvings=halvings, one_pass=False)
