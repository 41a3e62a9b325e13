"""Summarises one stretch of a history in stages: piece by piece, then the pieces together.

Owns what follows from a failure. Every failure costs one call: pieces of half the size, twice at
most, then the simpler prompt; the fourth failure ends it. What was summarised before stays, only
the rest is read in smaller pieces. Must never put anything but a model's accepted answer in the
place of a summary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from recollect.compaction.accept import Rejected
from recollect.compaction.asker import Asker
from recollect.compaction.fit import fit_tokens
from recollect.compaction.pieces import Piece
from recollect.compaction.prompts import (
    Kind,
    initial_prompt,
    merge_prompt,
    simple_prompt,
    turn_prompt,
    update_prompt,
)
from recollect.compaction.sizes import Sizes
from recollect.values.history import Entry
from recollect.values.model import Prompt

SIMPLE_AFTER = 3
"""Failures after which only the simplest prompt is tried: whole, half, quarter."""
MOST_FAILURES = 4
MERGED_AT_ONCE = 4
"""A summary is at most a tenth of the window, so four of them and the answer always fit."""
MERGED_AFTER_FAILURE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """The summary of a stretch, and the last question that led to it."""

    text: str = field(repr=False)
    prompt: Prompt | None = field(default=None, repr=False)
    """None where nothing had to be asked."""
    material: str = field(default="", repr=False)
    previous: str = field(default="", repr=False)
    pieces: int = 0
    oversized: tuple[Entry, ...] = field(default=(), repr=False)


@dataclass(slots=True)
class Stages:
    """The stretches of one compaction, and what their failures taught so far."""

    sizes: Sizes
    asker: Asker
    failures: int = 0
    merged_at_once: int = MERGED_AT_ONCE
    notes: list[str] = field(default_factory=list)

    @property
    def simple(self) -> bool:
        """Only the simplest prompt is left to try."""
        return self.failures >= SIMPLE_AFTER

    async def summary_of(
        self, entries: Sequence[Entry], previous: str, kind: Kind = "history"
    ) -> Staged | Rejected:
        """One summary of `entries` and of the summary before them."""
        previous = fit_tokens(previous, self.sizes.previous_tokens, self.sizes.count_tokens)
        waiting = list(self.sizes.pieces(entries, kind))
        partials: list[Staged] = []
        oversized: list[Entry] = []
        while waiting:
            before = "" if partials else previous
            done = await self._read(waiting[0], before, kind)
            if isinstance(done, Rejected):
                if self._gives_up(done):
                    return done
                waiting = self._smaller(waiting, kind, done)
                continue
            partials.append(done)
            oversized += waiting.pop(0).oversized
        if not partials:
            return Staged(text=previous)
        merged = await self._merged(partials, kind)
        if isinstance(merged, Rejected):
            return merged
        return replace(merged, pieces=len(partials), oversized=tuple(oversized))

    async def _read(self, piece: Piece, previous: str, kind: Kind) -> Staged | Rejected:
        wanted = self.sizes.wanted(kind)
        if self.simple:
            prompt = simple_prompt(piece.text, previous, wanted)
        elif kind == "turn":
            prompt = turn_prompt(piece.text, wanted, previous)
        elif previous:
            prompt = update_prompt(piece.text, previous, wanted)
        else:
            prompt = initial_prompt(piece.text, wanted)
        return await self._asked(prompt, piece.text, previous)

    async def _merged(self, partials: Sequence[Staged], kind: Kind) -> Staged | Rejected:
        """One summary from those of the pieces, neighbours first."""
        waiting = list(partials)
        while len(waiting) > 1:
            level: list[Staged] = []
            while waiting:
                some = waiting[: self.merged_at_once]
                done = some[0] if len(some) == 1 else await self._merge(some, kind)
                if isinstance(done, Staged):
                    level.append(done)
                    del waiting[: len(some)]
                elif self._gives_up(done):
                    return done
                else:
                    self.merged_at_once = MERGED_AFTER_FAILURE
            waiting = level
        return waiting[0]

    async def _merge(self, some: Sequence[Staged], kind: Kind) -> Staged | Rejected:
        wanted, count = self.sizes.wanted(kind), self.sizes.count_tokens
        fitted = [fit_tokens(one.text, wanted.summary_tokens, count) for one in some]
        material = "\n\n".join(fitted)
        prompt = (
            simple_prompt(material, "", wanted)
            if self.simple
            else merge_prompt(fitted, wanted, kind)
        )
        return await self._asked(prompt, material, "")

    async def _asked(self, prompt: Prompt, material: str, previous: str) -> Staged | Rejected:
        done = await self.asker.put(prompt, material, previous)
        if isinstance(done, Rejected):
            return done
        if done.cut_off:
            self.note("an answer was cut off at its limit")
        return Staged(text=done.text, prompt=prompt, material=material, previous=previous)

    def _gives_up(self, failed: Rejected) -> bool:
        """Count a failure and learn from it; whether it was the last that is allowed."""
        self.failures += 1
        if failed.terminal or self.failures >= MOST_FAILURES:
            return True
        before = self.sizes
        self.sizes = before.after_failure(failed.limit_tokens)
        if self.sizes.window_tokens < before.window_tokens:
            window = self.sizes.window_tokens
            self.note(f"the window of the model that summarises is {window:,} tokens")
        if self.simple:
            self.note(f"a simpler prompt was used: {failed.reason}")
        return False

    def _smaller(self, waiting: Sequence[Piece], kind: Kind, failed: Rejected) -> list[Piece]:
        """The rest in smaller pieces; the simple prompt at once where none can be smaller."""
        rest = [entry for piece in waiting for entry in piece.entries]
        pieces = list(self.sizes.pieces(rest, kind))
        if pieces[0].text != waiting[0].text:
            self.note(f"smaller chunks were used: {failed.reason}")
        elif not self.simple:
            self.failures = SIMPLE_AFTER
            self.note(f"a simpler prompt was used: {failed.reason}")
        return pieces

    def note(self, said: str) -> None:
        """What had to be done differently, told once."""
        if said not in self.notes:
            self.notes.append(said)
