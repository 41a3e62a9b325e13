"""Bills requests as a provider with a prompt cache does, and looks what they still show.

Owns the prices and the measures: of what a message refers back to, the share that stands in the
request before it (retention); of what no message in the request says any more, the share that a
summary or a recalled block names (recovered), and of those about which something was said, the
share that one of them tells about (useful; `relied` says how that is told). Must never know which
strategy it meters.
Always holds: the longest common run of rows with the request before is read, the rest written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from recollect.formats.codec import CODECS
from recollect.formats.summaries import PI_OPENING
from recollect.values.message import Text
from recollect.values.recall import BLOCK_OPENING
from recollect_bench.cost.data import WEIGHER, Conversation, Moment
from recollect_bench.cost.names import part_text

READ_PRICE: Final = 0.1
WRITE_PRICE: Final = 1.25
OUTPUT_PRICE: Final = 5.0
"""Of a token of input without a cache, as Anthropic bills them (notes/cost.md)."""
SYSTEM_TOKENS: Final = 6000
"""System prompt and tools, before every request."""
SUMMARY_TOKENS: Final = 1500
"""What a summary call writes, sized on two real ones (notes/cost.md)."""
_OWN: Final = (BLOCK_OPENING, PI_OPENING, "[recollect]")


@dataclass(frozen=True, slots=True, eq=False)
class SentRow:
    """A row of a request as it went out; the same bytes are the same object."""

    tokens: int
    said: frozenset[str] = field(repr=False)
    """What messages of the conversation name."""
    ours: frozenset[str] = field(repr=False)
    """What summaries and recalled blocks name."""
    texts: tuple[str, ...] = field(default=(), repr=False)
    """What summaries and recalled blocks say."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """What a replay came to."""

    cost: float = 0.0
    summary_cost: float = 0.0
    summaries: int = 0
    requests: int = 0
    sent_tokens: int = 0
    read_tokens: int = 0
    most_tokens: int = 0
    breaks: int = 0
    """Requests that did not begin with all of the one before."""
    references: int = 0
    present: int = 0
    left: int = 0
    """References that no message in the request says any more."""
    recovered: int = 0
    relied: int = 0
    """Of those that left, the ones about which a line was said that the message relies on."""
    named: int = 0
    """Of those that rely on a line, the ones whose name is there."""
    useful: int = 0
    """Of those that rely on a line, the ones about which the request tells."""
    notes: dict[str, float] = field(default_factory=dict)

    @property
    def retention(self) -> float:
        """Of all references."""
        return self.present / self.references if self.references else 1.0

    @property
    def recovered_share(self) -> float | None:
        """Of those that left the window; None where none did."""
        return self.recovered / self.left if self.left else None

    @property
    def useful_share(self) -> float | None:
        """Of those that rely on a line that left the window; None where none does."""
        return self.useful / self.relied if self.relied else None


class Meter:
    """Follows the requests of one replay."""

    def __init__(self, conversation: Conversation) -> None:
        self.tally = Tally()
        self._conversation = conversation
        self._codec = CODECS[conversation.format]
        self._rows: dict[bytes, SentRow] = {}
        self._sent: list[SentRow] = []
        self._said: Counter[str] = Counter()
        self._ours: Counter[str] = Counter()

    def row(self, raw: bytes) -> SentRow:
        """A row of the wire as it is metered."""
        known = self._rows.get(raw)
        if known is None:
            parts = self._codec.read(raw).parts
            naming = self._conversation.naming
            ours: set[str] = set()
            said: set[str] = set()
            texts: list[str] = []
            for part in parts:
                own = isinstance(part, Text) and part.text.startswith(_OWN)
                text = part_text(part)
                (ours if own else said).update(naming.names_in(text))
                if own:
                    texts.append(naming.without_folder(text))
            known = SentRow(WEIGHER.message(parts), frozenset(said), frozenset(ours), tuple(texts))
            self._rows[raw] = known
        return known

    def summary_row(self, text: str) -> SentRow:
        """A summary that stands as a message of its own."""
        whole = Text(text=PI_OPENING + text)
        naming = self._conversation.naming
        names = naming.names_in(text)
        told = (naming.without_folder(text),)
        return SentRow(WEIGHER.message((whole,)), frozenset(), names, told)

    def asked(self, input_tokens: int, output_tokens: int = SUMMARY_TOKENS) -> None:
        """A call for a summary; nothing of it is cached."""
        cost = input_tokens + output_tokens * OUTPUT_PRICE
        self.tally.cost += cost
        self.tally.summary_cost += cost
        self.tally.summaries += 1

    def sent(self, rows: Sequence[SentRow], moment: Moment) -> None:
        """A request went out; hold it to what comes next."""
        same = 0
        for before, now in zip(self._sent, rows, strict=False):
            if before is not now:
                break
            same += 1
        tally = self.tally
        read = SYSTEM_TOKENS + sum(row.tokens for row in rows[:same]) if tally.requests else 0
        total = SYSTEM_TOKENS + sum(row.tokens for row in rows)
        tally.breaks += same < len(self._sent)
        for row in self._sent[same:]:
            self._said.subtract(row.said)
            self._ours.subtract(row.ours)
        for row in rows[same:]:
            self._said.update(row.said)
            self._ours.update(row.ours)
        self._sent = list(rows)
        tally.cost += READ_PRICE * read + WRITE_PRICE * (total - read)
        tally.requests += 1
        tally.sent_tokens += total
        tally.read_tokens += read
        tally.most_tokens = max(tally.most_tokens, total)
        self._look(moment)

    def _look(self, moment: Moment) -> None:
        """A message that is in the request already must not count as what it refers to."""
        rows, tally = self._conversation.rows, self.tally
        texts = [text for row in self._sent for text in row.texts]
        for target in moment.targets:
            itself = rows[target.row : moment.row]
            for name in target.names:
                said = self._said[name] > sum(name in row.names for row in itself)
                ours = self._ours[name] > 0
                tally.references += 1
                tally.present += said or ours
                if said:
                    continue
                tally.left += 1
                tally.recovered += ours
                line = self._conversation.relied.of(name, target.row, target.end)
                if line is not None:
                    tally.relied += 1
                    tally.named += ours
                    tally.useful += line.told_in(texts)
