"""Writes chunks down as the pieces that are read in one call each.

Owns what happens to a message that is too large to be read: its beginning and its end are, and it
is named. Always holds: every entry is in exactly one piece, in the order of the history; a piece
of several messages fits the budget that `chunk` gives. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from recollect.compaction.chunk import chunk
from recollect.compaction.fit import level
from recollect.compaction.render import excerpt, render
from recollect.values.history import Entry
from recollect.values.model import WireRules

_BOTH_ENDS_TOKENS = 60
"""Of less only the beginning is shown: the mark between two ends weighs a dozen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What is read in one call."""

    entries: tuple[Entry, ...] = field(repr=False)
    text: str = field(repr=False)
    oversized: tuple[Entry, ...] = field(default=(), repr=False)
    """Those of the entries that are shown by beginning and end alone."""


class Scribe:
    """Writes entries down, each once, and counts what it wrote."""

    __slots__ = ("_count", "_known", "rules")

    def __init__(self, rules: WireRules, count_tokens: Callable[[str], int]) -> None:
        self.rules = rules
        self._count = count_tokens
        self._known: dict[Entry, tuple[str, int]] = {}

    def tokens(self, entry: Entry) -> int:
        """What an entry weighs as it is written for the model."""
        return self._entry(entry)[1]

    def text(self, entries: Sequence[Entry]) -> str:
        """Entries as they are written for the model."""
        return "\n\n".join(filter(None, (self._entry(entry)[0] for entry in entries)))

    def pieces(
        self, entries: Sequence[Entry], *, window_tokens: int, overhead_tokens: int, halvings: int
    ) -> tuple[Piece, ...]:
        """The pieces of `entries`, smaller by half so many times."""
        done = chunk(
            entries,
            self.rules,
            window_tokens=window_tokens,
            overhead_tokens=overhead_tokens,
            weigh=self.tokens,
            halvings=halvings,
        )
        place = {id(entry): at for at, entry in enumerate(entries)}
        made = [Piece(entries=one, text=self.text(one)) for one in done.chunks]
        made += [self._shortened(run, done.budget_tokens) for run in _runs(done.oversized, place)]
        made.sort(key=lambda piece: place[id(piece.entries[0])])
        return tuple(piece for piece in made if piece.text)

    def thin(self, entries: Sequence[Entry], most_tokens: int) -> int:
        """Show the largest entries by beginning and end, so that all of them come to so many
        tokens; how many that are."""
        weights = [self.tokens(entry) for entry in entries]
        if sum(weights) <= most_tokens:
            return 0
        cap = level(weights, most_tokens)
        thinned = [entry for entry in entries if self.tokens(entry) > cap]
        for entry in thinned:
            text, tokens = self._known[entry]
            chars = len(text) * cap // tokens
            shown = excerpt(text, chars) if cap >= _BOTH_ENDS_TOKENS else f"{text[:chars]} …"
            self._known[entry] = (shown, self._count(shown))
        return len(thinned)

    def whole(self, entries: Sequence[Entry]) -> Piece:
        """All of it in one piece."""
        return Piece(entries=tuple(entries), text=self.text(entries))

    def _shortened(self, run: tuple[Entry, ...], budget_tokens: int) -> Piece:
        each = max(1, budget_tokens // len(run))
        texts: list[str] = []
        cut: list[Entry] = []
        for entry in run:
            text, tokens = self._entry(entry)
            if tokens > each:
                text = excerpt(text, len(text) * each // tokens)
                cut.append(entry)
            texts.append(text)
        return Piece(entries=run, text="\n\n".join(filter(None, texts)), oversized=tuple(cut))

    def _entry(self, entry: Entry) -> tuple[str, int]:
        known = self._known.get(entry)
        if known is None:
            text = render([entry])
            known = self._known[entry] = (text, self._count(text))
        return known


def _runs(oversized: Sequence[Entry], place: dict[int, int]) -> list[tuple[Entry, ...]]:
    """Neighbours are shortened together: a call that is too large with its results is one run."""
    runs: list[list[Entry]] = []
    for entry in oversized:
        if runs and place[id(entry)] == place[id(runs[-1][-1])] + 1:
            runs[-1].append(entry)
        else:
            runs.append([entry])
    return [tuple(run) for run in runs]
