"""Chooses the lines to quote after a summary: those that contain most about names in the cut
messages. Later messages rely on such lines far more often than on lists of names."""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from recollect.core.compaction.ask import (
    Speaker,
    decode_arguments,
    defuse,
    is_compact_command,
    utterances,
)
from recollect.core.formats.summaries import LINES_TAG
from recollect.core.rules.text import (
    excerpt_around,
    one_line,
    sentence_spans,
    without_recalled_blocks,
)
from recollect.core.search.identifiers import names_in
from recollect.core.search.tokenize import STOP_WORDS
from recollect.core.values.edit import QuotedLine
from recollect.core.values.history import Entry
from recollect.core.values.message import Text, ToolCall, ToolResult

LINES_SHARE: Final = 0.04
"""Lines within this share and `LINES_TOKENS` keep .56 of the content that later messages need
(decision 0041)."""
LINES_TOKENS: Final = 3000
"""Limit for large windows. This and the weights below were tuned on two coding sessions (decision
0041)."""
LINE_CHARS: Final = 200
"""Not measured; a statement, without the paragraph around it."""
MAX_LINES: Final = 160
"""Not measured; more than `LINES_TOKENS` can hold, so that a later cut can choose others."""
_SPEAKER_WEIGHT: Final[Mapping[Speaker, float]] = {
    "user": 4.0,
    "assistant": 2.0,
    "call": 1.0,
    "tool": 0.5,
}
_MIN_WORDS, _MAX_WORDS = 4, 10
_LINES_PER_NAME: Final = 6
"""Bounds the comparisons per name; the value of a repeated name falls with
`_NAME_REPEAT_FACTOR`."""
_NAME_REPEAT_FACTOR: Final = 0.3
"""Each line with the same name is worth so much less (decision 0041)."""
_WORD_REPEAT_FACTOR: Final = 0.3
"""Worth of a word that an earlier line already has (decision 0041)."""
_RANK_OFFSET: Final = 50.0
"""Evens out the first names: the first is worth twice the 50th (decision 0041)."""
_KEPT_NAME_FACTOR: Final = 0.3
"""Worth of a name that a kept message still shows (decision 0041)."""
_LINE_COST: Final = 40
"""Characters that a line costs in addition to its text, so that short lines do not always win
(decision 0041)."""
_COVERED_SHARE: Final = 0.6
"""A summary that has so many of a line's words says the same. The same share as `WORDS_SHARE` of
probes."""

MAX_NAMES: Final = 1000
"""Not measured; bounds a state."""
ARGUMENT_CHARS: Final = 600
"""A longer argument is a file's content, which mentions more names than the call is about (decision
0041)."""
_USER, _MODEL, _CONTENT, _RESULT = 4.0, 2.0, 1.0, 0.25
_MAX_RESULT_WORTH: Final = 3.0
"""Keeps a name that one long output repeats below those that people write (decision 0041)."""
_PATH_FACTOR, _NUMBER_FACTOR = 1.5, 0.3
FADE_FACTOR: Final = 0.7
"""Names and lines of earlier cuts fall behind newer ones (decision 0041)."""
_READ_CHARS: Final = 100_000
"""Not measured; bounds the time for one text."""
_LINES_READ_CHARS: Final = 40_000
"""Not measured; bounds the time per message, as `_HEAD_CHARS` of the user's messages."""
_MIN_SHARED_NAMES: Final = 3
"""Not measured; two paths may share a folder by chance."""
_WORD: Final = re.compile(r"[\w$@](?:[\w$@./:-]*[\w$])?")
_MIN_WORD_CHARS: Final = 3
"""Not measured; shorter words are mostly grammar."""
_LABELS: Final[Mapping[Speaker, str]] = {
    "user": "User:",
    "assistant": "Assistant:",
    "call": "Calls:",
    "tool": "Tools:",
}


@dataclass(slots=True, kw_only=True)
class _LineCandidate:
    line: QuotedLine = field(repr=False)
    names: frozenset[str] = field(repr=False)
    words: frozenset[str] = field(repr=False)
    weight: float


def lines_tokens(window_tokens: int) -> int:
    """Token limit of the quoted lines in a window of this size."""
    return min(LINES_TOKENS, int(window_tokens * LINES_SHARE))


def choose_lines(
    lines: Sequence[QuotedLine],
    summary: str,
    *,
    most_tokens: int,
    count_tokens: Callable[[str], int],
) -> str:
    """Return the best lines that fit and are not in the summary, as a block; empty if none."""
    coverage = _Coverage(summary)
    lines_by_speaker: dict[Speaker, list[str]] = {speaker: [] for speaker in _LABELS}
    tokens = count_tokens(_write_block({speaker: [""] for speaker in _LABELS}))
    for line in lines:
        if coverage.says(line.text):
            continue
        safe_text = defuse(line.text)
        cost = count_tokens(f"- {safe_text}\n")
        if tokens + cost <= most_tokens:
            lines_by_speaker[line.speaker].append(safe_text)
            tokens += cost
    return _write_block(lines_by_speaker) if any(lines_by_speaker.values()) else ""


def _write_block(lines_by_speaker: Mapping[Speaker, Sequence[str]]) -> str:
    paragraphs = [
        "\n".join([label, *(f"- {line}" for line in lines_by_speaker[speaker])])
        for speaker, label in _LABELS.items()
        if lines_by_speaker[speaker]
    ]
    return "\n".join([f"<{LINES_TAG}>", *paragraphs, f"</{LINES_TAG}>"])


class _Coverage:
    def __init__(self, summary: str) -> None:
        self._lines: dict[str, list[frozenset[str]]] = {}
        for line in summary.splitlines():
            words = _words(line)
            for name in _names(line) if len(words) >= _MIN_WORDS else ():
                self._lines.setdefault(name, []).append(words)

    def says(self, line: str) -> bool:
        words = _words(line)
        return any(
            len(words & line_words) >= _COVERED_SHARE * len(words)
            for name in _names(line)
            for line_words in self._lines.get(name, ())[:_LINES_PER_NAME]
        )


def gather_lines(
    entries: Sequence[Entry],
    names: Sequence[str],
    before: Sequence[QuotedLine] = (),
    *,
    kept_entries: Sequence[Entry] = (),
) -> tuple[QuotedLine, ...]:
    """Return the lines that contain most about these names, without repetition, best first."""
    folder = names[0] if names and names[0].endswith("/") else ""
    shown_names = {
        _short(name, folder) for text in utterances(kept_entries) for name in _names(text.text)
    }
    worth = {
        name: (_KEPT_NAME_FACTOR if name in shown_names else 1.0) / (_RANK_OFFSET + rank)
        for rank, name in enumerate(names)
    }
    pool: dict[str, _LineCandidate] = {}
    for old_line in before:
        _offer(pool, old_line, FADE_FACTOR * _SPEAKER_WEIGHT[old_line.speaker], worth, folder)
    for utterance in utterances(entries, least_chars=_LINES_READ_CHARS):
        for text in _pieces(utterance.text):
            line = QuotedLine(speaker=utterance.speaker, text=text)
            _offer(pool, line, _SPEAKER_WEIGHT[line.speaker], worth, folder)
    best = _choose_best(_contenders(pool.values(), worth), worth)
    return tuple(candidate.line for candidate in best)


def _offer(
    pool: dict[str, _LineCandidate],
    line: QuotedLine,
    speaker_weight: float,
    worth: Mapping[str, float],
    folder: str,
) -> None:
    weight = speaker_weight / (len(line.text) + _LINE_COST)
    candidate = pool.get(line.text)
    if candidate is not None:
        if 0 < candidate.weight < weight:
            candidate.weight, candidate.line = weight, line
        return
    short_names = {_short(name, folder) for name in _names(line.text)}
    names = frozenset(name for name in short_names if name in worth)
    words = _words(line.text) if names else frozenset()
    if len(words) < _MIN_WORDS:
        weight = 0.0
    pool[line.text] = _LineCandidate(line=line, names=names, words=words, weight=weight)


def _pieces(text: str) -> Iterator[str]:
    for start, end in sentence_spans(text):
        sentence = text[start:end]
        if sentence.isalpha():
            continue
        line = one_line(sentence)
        if len(line) <= LINE_CHARS:
            yield line
            continue
        done = 0
        for name in names_in(line[:_READ_CHARS]):
            offset = line.find(name, done)
            if offset >= 0:
                piece = excerpt_around(line[done:], offset - done, len(name), LINE_CHARS)
                yield piece
                done = line.find(piece, done) + len(piece)


def _contenders(pool: Iterable[_LineCandidate], worth: Mapping[str, float]) -> list[_LineCandidate]:
    by_name: dict[str, list[_LineCandidate]] = {}
    for candidate in pool:
        for name in candidate.names if candidate.weight else ():
            by_name.setdefault(name, []).append(candidate)

    def order(candidate: _LineCandidate) -> tuple[float, str]:
        words = min(len(candidate.words), _MAX_WORDS)
        return -candidate.weight * words, candidate.line.text

    chosen: dict[str, _LineCandidate] = {}
    for name in worth:
        for candidate in heapq.nsmallest(_LINES_PER_NAME, by_name.get(name, ()), key=order):
            chosen[candidate.line.text] = candidate
    return list(chosen.values())


def _choose_best(
    candidates: Sequence[_LineCandidate], worth: Mapping[str, float]
) -> Iterator[_LineCandidate]:
    name_counts: Counter[str] = Counter()
    used: set[str] = set()

    def value(line: _LineCandidate) -> float:
        new_count = len(line.words - used)
        words = min(new_count + _WORD_REPEAT_FACTOR * (len(line.words) - new_count), _MAX_WORDS)
        return (
            line.weight
            * words
            * sum(worth[name] * _NAME_REPEAT_FACTOR ** name_counts[name] for name in line.names)
        )

    waiting = [(-value(candidate), candidate.line.text, candidate) for candidate in candidates]
    heapq.heapify(waiting)
    given = 0
    while waiting and given < MAX_LINES:
        before, text, candidate = heapq.heappop(waiting)
        now = -value(candidate)
        if now > before and waiting and now > waiting[0][0]:
            heapq.heappush(waiting, (now, text, candidate))
            continue
        name_counts.update(candidate.names)
        used |= candidate.words
        given += 1
        yield candidate


def _words(text: str) -> frozenset[str]:
    return frozenset(
        word
        for word in frozenset(_WORD.findall(text.casefold())) - STOP_WORDS
        if len(word) >= _MIN_WORD_CHARS and not word.isdigit()
    )


def rank_names(entries: Sequence[Entry], before: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the names in these messages and in `before`, the most important first."""
    name_scores: dict[str, float] = {}
    in_results: dict[str, float] = {}
    for entry in entries:
        for text, weight in _weigh_texts(entry):
            scores = in_results if weight == _RESULT else name_scores
            for name in _names(text):
                scores[name] = scores.get(name, 0.0) + weight * _factor(name)
    for name, worth in in_results.items():
        name_scores[name] = name_scores.get(name, 0.0) + min(worth, _MAX_RESULT_WORTH)
    folder = _find_shared_folder((*before, *name_scores))
    ranked: dict[str, float] = {}

    def add(name: str, worth: float) -> None:
        short = _short(name, folder)
        ranked[short] = ranked.get(short, 0.0) + worth

    for name, worth in name_scores.items():
        add(name, worth)
    levels = sorted(ranked.values(), reverse=True) or [1.0]
    for rank, name in enumerate(before):
        add(name, FADE_FACTOR * levels[min(rank, len(levels) - 1)])
    ranked.pop(folder, None)
    places = {_short(name, folder): rank for rank, name in enumerate(before)}
    names = sorted(ranked, key=lambda name: (-ranked[name], places.get(name, len(places)), name))
    if folder:
        names.insert(0, folder)
    return tuple(names[:MAX_NAMES])


def _names(text: str) -> set[str]:
    return set(names_in(text[:_READ_CHARS]))


def _short(name: str, folder: str) -> str:
    return (name.removeprefix(folder) or name) if folder else name


def _factor(name: str) -> float:
    if "/" in name:
        return _PATH_FACTOR
    is_number = name.replace(".", "").isdigit()
    return _NUMBER_FACTOR if is_number or name.startswith("-") else 1.0


def _find_shared_folder(names: Iterable[str]) -> str:
    below: Counter[str] = Counter()
    for name in names:
        if name.startswith("/"):
            steps = name.split("/")
            below.update("/".join(steps[:depth]) + "/" for depth in range(3, len(steps)))
    best = max(below, key=lambda text: ((below[text] - 1) * len(text), text), default="")
    return best if best and below[best] >= _MIN_SHARED_NAMES else ""


def _weigh_texts(entry: Entry) -> Iterator[tuple[str, float]]:
    if entry.role == "system":
        return
    for part in entry.parts:
        if isinstance(part, Text):
            if entry.role != "user":
                yield part.text, _MODEL
            elif not is_compact_command(part.text):
                yield without_recalled_blocks(part.text, any_spelling=True), _USER
        elif isinstance(part, ToolCall):
            values = list(_values(part.arguments))
            yield "\n".join(text for text in values if len(text) <= ARGUMENT_CHARS), _MODEL
            yield "\n".join(text for text in values if len(text) > ARGUMENT_CHARS), _CONTENT
        elif isinstance(part, ToolResult):
            yield part.text, _RESULT


def _values(arguments: str) -> Iterator[str]:
    given = decode_arguments(arguments)
    for value in given.values() if isinstance(given, dict) else [given]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            nested = [inner.values() if isinstance(inner, dict) else [inner] for inner in value]
            yield from (
                inner for inner_values in nested for inner in inner_values if isinstance(inner, str)
            )
