"""Splits messages into pieces, each small enough for one model call. A tool call and its results
are never separated. Also decides the sizes of summaries, prompts and pieces, and reduces them after
a model call failed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from operator import attrgetter
from typing import Final, TypeAlias

from recollect.core.compaction.ask import (
    HEADINGS,
    Kind,
    PromptTerms,
    excerpt,
    render,
    turn_prompt,
    update_prompt,
)
from recollect.core.rules.calls import group
from recollect.core.values.history import Entry
from recollect.core.values.model import WireRules

_SHORTENED: Final = "[... shortened]"

MOST_RATIO = 0.4
"""Largest share of the window for a chunk. OpenClaw uses the same shares and margin."""
MIN_RATIO = 0.15
"""As in OpenClaw, for the largest messages."""
LARGE_MESSAGE_SHARE = 0.1
"""As in OpenClaw: above it, the average message makes chunks smaller."""
MARGIN = 1.2
"""As in OpenClaw: an estimate may be a sixth too low."""
OVERSIZED_SHARE = 0.5
"""As in OpenClaw: a larger message is shortened, because no other would fit next to it."""
Chunk: TypeAlias = tuple[Entry, ...]
WeighEntry: TypeAlias = Callable[[Entry], int]
_BOTH_ENDS_TOKENS = 60
"""Not measured; in a shorter excerpt, a head and a tail are both too short to read."""
MAX_HALVINGS = 2
"""Not measured; a quarter of a chunk fits models that report far too large a window."""
MIN_WINDOW_TOKENS = 1_024
"""Not measured; a smaller limit in an error is not the window of a model."""
MOST_READ_PIECES = 24
"""Maximum number of pieces, which with merging makes about 33 model calls."""
SUMMARY_TOKENS = 4_000
"""Not measured; a longer summary would be paid in every request."""
SUMMARY_SHARE = 10
"""A summary takes at most a tenth of the window, so that a small window keeps its messages."""
TURN_SHARE = 0.5
"""The same as in pi: notes on the beginning of a turn are shorter than notes on the history."""


def fit(body: str, most_chars: int) -> str:
    if len(body) <= most_chars:
        return body
    if most_chars <= 0:
        return ""
    sections = [text for text in HEADINGS.split(body) if text]
    cap = common_limit([len(section) for section in sections], most_chars)
    parts = [section if len(section) <= cap else _cut_section(section, cap) for section in sections]
    return "".join(parts).strip()[:most_chars]


def fit_tokens(body: str, most_tokens: int, count_tokens: Callable[[str], int]) -> str:
    while (tokens := count_tokens(body)) > most_tokens and body:
        body = fit(body, min(len(body) - 1, len(body) * most_tokens * 98 // (tokens * 100)))
    return body


def whole_lines(text: str, most_chars: int) -> str:
    """Return as many lines from the start as fit. An overlong first line is cut."""
    if len(text) <= most_chars:
        return text
    if most_chars <= 0:
        return ""
    end = text.rfind("\n", 0, most_chars + 1)
    return text[: end if end > 0 else most_chars].rstrip()


def common_limit(lengths: Sequence[int], max_total: int) -> int:
    """Return the length to cut longer items to, so that all fit; `max_total` if all fit."""
    left, waiting = max_total, sorted(lengths)
    for index, length in enumerate(waiting):
        share = left // (len(waiting) - index)
        if length > share:
            return share
        left -= length
    return max_total


def _cut_section(section: str, max_chars: int) -> str:
    text_chars = max_chars - len(_SHORTENED) - 3
    if text_chars <= 0:
        return section[:max_chars]
    return f"{whole_lines(section, text_chars)}\n{_SHORTENED}\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkResult:
    """The chunks to summarize, and the messages that are too large for a chunk."""

    chunks: tuple[Chunk, ...] = field(repr=False)
    oversized: tuple[Entry, ...] = field(default=(), repr=False)
    budget_tokens: int


def chunk(
    entries: Sequence[Entry],
    rules: WireRules,
    *,
    window_tokens: int,
    overhead_tokens: int = 0,
    weigh: WeighEntry = attrgetter("tokens"),
    halvings: int = 0,
) -> ChunkResult:
    """Split `entries` for a model with this window. `overhead_tokens` is added to each call. Chunks
    are smaller if messages are large. Each halving, for a retry, makes chunks half as large."""
    weights = [weigh(entry) for entry in entries]
    room_tokens = max(1, window_tokens - overhead_tokens) >> halvings
    largest_tokens = min(room_tokens, (window_tokens >> halvings) * OVERSIZED_SHARE) / MARGIN
    readable: list[list[int]] = []
    oversized: list[int] = []
    for unit in _find_units(entries, rules):
        if sum(weights[index] for index in unit) <= largest_tokens:
            readable.append(unit)
        else:
            oversized.extend(unit)
    ratio = adaptive_ratio([weights[index] for unit in readable for index in unit], window_tokens)
    budget_tokens = max(1, int(room_tokens * ratio / MARGIN))
    chunks = _balance(readable, weights, budget_tokens)
    return ChunkResult(
        chunks=tuple(tuple(entries[index] for index in sorted(places)) for places in chunks),
        oversized=tuple(entries[index] for index in sorted(oversized)),
        budget_tokens=budget_tokens,
    )


def adaptive_ratio(weights: Sequence[int], window_tokens: int) -> float:
    """Return the share of the window for a chunk: smaller if messages are larger."""
    if not weights:
        return MOST_RATIO
    average_share = sum(weights) / len(weights) * MARGIN / window_tokens
    if average_share <= LARGE_MESSAGE_SHARE:
        return MOST_RATIO
    return max(MIN_RATIO, MOST_RATIO - average_share * 2)


def _find_units(entries: Sequence[Entry], rules: WireRules) -> list[list[int]]:
    unit_of: dict[int, list[int]] = {}
    for candidate in group(entries, rules):
        members = [member for index in candidate.entries for member in unit_of.get(index, [index])]
        joined_unit = list(dict.fromkeys(members))
        for index in joined_unit:
            unit_of[index] = joined_unit
    for index in range(len(entries)):
        unit_of.setdefault(index, [index])
    once = {id(unit): unit for _, unit in sorted(unit_of.items(), key=lambda item: item[0])}
    return list(once.values())


def _balance(
    units: Sequence[list[int]], weights: Sequence[int], budget_tokens: int
) -> list[list[int]]:
    sizes = [sum(weights[index] for index in unit) for unit in units]
    total = sum(sizes)
    share = total / max(1, ceil(total / budget_tokens))
    chunks: list[list[int]] = []
    held = passed = 0
    for unit, size in zip(units, sizes, strict=True):
        due = len(chunks) * share  # number of tokens at which the chunk should end
        over = held + size > budget_tokens or passed + size / 2 > due
        if not chunks or (held and over):
            chunks.append([])
            held = 0
        chunks[-1].extend(unit)
        held += size
        passed += size
    return chunks


def share(
    chunks: Sequence[Chunk],
    *,
    window_tokens: int,
    max_history_share: float,
    weigh: WeighEntry = attrgetter("tokens"),
) -> tuple[tuple[Chunk, ...], tuple[Chunk, ...]]:
    """Separate the oldest chunks, so that the others take at most this share of the window."""
    budget_tokens = int(window_tokens * max_history_share / MARGIN)
    sizes = [sum(map(weigh, chunk)) for chunk in chunks]
    count = 0
    while sum(sizes[count:]) > budget_tokens and count < len(chunks) - 1:
        count += 1
    return tuple(chunks[:count]), tuple(chunks[count:])


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPiece:
    """The input of one model call."""

    entries: tuple[Entry, ...] = field(repr=False)
    text: str = field(repr=False)
    oversized: tuple[Entry, ...] = field(default=(), repr=False)


class PieceWriter:
    """Converts each message to text and counts its tokens, both with a cache."""

    __slots__ = ("_count", "_known", "rules")

    def __init__(self, rules: WireRules, count_tokens: Callable[[str], int]) -> None:
        self.rules: WireRules = rules
        self._count = count_tokens
        self._known: dict[Entry, tuple[str, int]] = {}

    def tokens(self, entry: Entry) -> int:
        return self._render_entry(entry)[1]

    def text(self, entries: Sequence[Entry]) -> str:
        return "\n\n".join(filter(None, (self._render_entry(entry)[0] for entry in entries)))

    def pieces(
        self, entries: Sequence[Entry], *, window_tokens: int, overhead_tokens: int, halvings: int
    ) -> tuple[ReadPiece, ...]:
        """Split messages into the inputs of model calls, half as large per halving."""
        result = chunk(
            entries,
            self.rules,
            window_tokens=window_tokens,
            overhead_tokens=overhead_tokens,
            weigh=self.tokens,
            halvings=halvings,
        )
        index_by_id = {id(entry): index for index, entry in enumerate(entries)}
        pieces = [
            ReadPiece(entries=chunk_entries, text=self.text(chunk_entries))
            for chunk_entries in result.chunks
        ]
        pieces += [
            self._shorten_run(run, result.budget_tokens)
            for run in _group_runs(result.oversized, index_by_id)
        ]
        pieces.sort(key=lambda piece: index_by_id[id(piece.entries[0])])
        return tuple(piece for piece in pieces if piece.text)

    def shorten_largest(self, entries: Sequence[Entry], most_tokens: int) -> int:
        """Shorten the largest messages until all fit. Return the number of shortened messages."""
        weights = [self.tokens(entry) for entry in entries]
        if sum(weights) <= most_tokens:
            return 0
        cap = common_limit(weights, most_tokens)
        large_entries = [entry for entry in entries if self.tokens(entry) > cap]
        for entry in large_entries:
            text, tokens = self._known[entry]
            chars = len(text) * cap // tokens
            short_text = excerpt(text, chars) if cap >= _BOTH_ENDS_TOKENS else f"{text[:chars]} …"
            self._known[entry] = (short_text, self._count(short_text))
        return len(large_entries)

    def _shorten_run(self, run: tuple[Entry, ...], budget_tokens: int) -> ReadPiece:
        max_tokens = max(1, budget_tokens // len(run))
        texts: list[str] = []
        cut: list[Entry] = []
        for entry in run:
            text, tokens = self._render_entry(entry)
            if tokens > max_tokens:
                text = excerpt(text, len(text) * max_tokens // tokens)
                cut.append(entry)
            texts.append(text)
        return ReadPiece(entries=run, text="\n\n".join(filter(None, texts)), oversized=tuple(cut))

    def _render_entry(self, entry: Entry) -> tuple[str, int]:
        rendering = self._known.get(entry)
        if rendering is None:
            text = render([entry])
            rendering = self._known[entry] = (text, self._count(text))
        return rendering


def _group_runs(
    large_entries: Sequence[Entry], index_by_id: dict[int, int]
) -> list[tuple[Entry, ...]]:
    runs: list[list[Entry]] = []
    for entry in large_entries:
        if runs and index_by_id[id(entry)] == index_by_id[id(runs[-1][-1])] + 1:
            runs[-1].append(entry)
        else:
            runs.append([entry])
    return [tuple(run) for run in runs]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Sizes of pieces and summaries, which are reduced if a call fails."""

    scribe: PieceWriter = field(repr=False)
    count_tokens: Callable[[str], int] = field(repr=False)
    window_tokens: int
    most_summary_tokens: int
    one_pass: bool = False
    focus: str = field(default="", repr=False)
    halvings: int = 0

    @property
    def summary_tokens(self) -> int:
        """Token limit of a summary, including the sections that code adds."""
        return max(1, min(self.most_summary_tokens, self.window_tokens // SUMMARY_SHARE))

    @property
    def previous_tokens(self) -> int:
        """Token limit of the previous summary in a prompt, which includes quotes added by code."""
        return 2 * self.summary_tokens

    def make_terms(self, kind: Kind) -> PromptTerms:
        tokens = self.summary_tokens
        if kind == "turn":
            tokens = max(1, int(tokens * TURN_SHARE))
        return PromptTerms(summary_tokens=tokens, focus=self.focus)

    def overhead_tokens(self, kind: Kind) -> int:
        """Return how many tokens a summarizing call needs in addition to the messages that it
        summarizes. The previous summary fits into the space that chunks leave (`MARGIN`)."""
        terms = self.make_terms(kind)
        empty = turn_prompt("", terms) if kind == "turn" else update_prompt("", "", terms)
        prompt_tokens = self.count_tokens(empty.system) + self.count_tokens(empty.text)
        return prompt_tokens + empty.max_output_tokens

    def pieces(self, entries: Sequence[Entry], kind: Kind) -> tuple[ReadPiece, ...]:
        overhead = self.overhead_tokens(kind)
        if self.one_pass:
            piece = ReadPiece(entries=tuple(entries), text=self.scribe.text(entries))
            read = self.count_tokens(piece.text) + self.previous_tokens
            if read * MARGIN + overhead <= self.window_tokens:
                return (piece,) if piece.text else ()
        return self.scribe.pieces(
            entries,
            window_tokens=self.window_tokens,
            overhead_tokens=overhead,
            halvings=self.halvings,
        )

    @property
    def readable_tokens(self) -> int:
        """Token limit of all input. If the input is larger, its largest messages are shortened."""
        room = max(1, self.window_tokens - self.overhead_tokens("history"))
        return int(MOST_READ_PIECES * room * MOST_RATIO / MARGIN)

    def count_max_pieces(self, entries: Sequence[Entry], kind: Kind) -> int:
        """Return the greatest number of pieces that any retry may need."""
        sizes = [
            replace(self, one_pass=False, halvings=halvings) for halvings in range(MAX_HALVINGS + 1)
        ]
        return max(len(size.pieces(entries, kind)) for size in (self, *sizes))

    def after_failure(self, limit_tokens: int | None) -> Sizes:
        """Return sizes for a retry: for the limit that the error names, else half as large."""
        if limit_tokens is not None and MIN_WINDOW_TOKENS <= limit_tokens < self.window_tokens:
            return replace(self, window_tokens=limit_tokens, one_pass=False)
        halvings = min(MAX_HALVINGS, self.halvings + 1)
        return replace(self, halvings=halvings, one_pass=False)
