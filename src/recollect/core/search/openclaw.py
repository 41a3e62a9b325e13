"""Scores messages and facts like OpenClaw, for `recall.method = "openclaw"`: `0.7 * cosine + 0.3 *
BM25`, times `0.995 ** days`. Whole messages that are no longer in the request are searched, with
two messages before and after a hit. Ties are ordered by arrival."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from recollect.core.search.bm25 import inverse_document_frequency, length_damping, saturate
from recollect.core.values.fact import Fact
from recollect.core.values.segment import Segment, SegmentId

# As OpenClaw scores (see above). The numbers of hits bound the work, and are not measured.
VECTOR_WEIGHT: Final = 0.7
TEXT_WEIGHT: Final = 0.3
MIN_SCORE: Final = 0.7
WINDOW: Final = 2
WINDOW_FADE: Final = 0.15
MOST_FACTS: Final = 10
NOISE_CHARS: Final = 6
_LEAST_HITS: Final = 8
_TOKENS_A_HIT: Final = 500
_DAY_SECONDS: Final = 86_400.0  # decay is per day
_IDEOGRAPHS: Final = "\u3000-\u303f\u3400-\u4dbf\u4e00-\u9fff"
_WORDS: Final = re.compile(f"[{_IDEOGRAPHS}]+|[^ {_IDEOGRAPHS}]+")
_HAN: Final = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
Rows: TypeAlias = NDArray[np.float32]
_FACT_WORDS: Final = re.compile(rf"[{_HAN}]+|[^\s{_HAN}]+")


def hit_limit(cap_tokens: int) -> int:
    """Return the number of hits for a block with this token limit."""
    return max(_LEAST_HITS, math.ceil(cap_tokens / _TOKENS_A_HIT))


class _Spelling(dict[int, int | None]):
    def __missing__(self, code: int) -> int | None:
        char = chr(code)
        kind = unicodedata.category(char)[0]
        kept: int | None = code if kind in "LN" else None
        if re.match(f"[{_IDEOGRAPHS}]", char):
            kept = code
        elif char.isspace() or kind == "P":
            kept = ord(" ")
        self[code] = kept
        return kept


_SPELLING: Final = _Spelling()


def words_of(text: str) -> list[str]:
    """Return the words for BM25. Each ideograph, and each adjacent pair of them, is a word."""
    words: list[str] = []
    for run in _WORDS.findall(text.lower().translate(_SPELLING)):
        if not re.match(f"[{_IDEOGRAPHS}]", run):
            words.append(run)
            continue
        for index, char in enumerate(run):
            words += (char,) if index == 0 else (char, run[index - 1 : index + 1])
    return words


def score_texts(texts: Sequence[str], query: str) -> list[float]:
    """Compute the BM25 score of each text. A word that the query repeats counts each time."""
    word_counts = [Counter(words_of(text)) for text in texts]
    lengths = [counts.total() for counts in word_counts]
    average = sum(lengths) / len(lengths) if lengths else 0.0
    counters = Counter(word for counts in word_counts for word in counts)
    scores = [0.0] * len(texts)
    for word in words_of(query):
        worth = inverse_document_frequency(document_frequency=counters[word], documents=len(texts))
        for index, counts in enumerate(word_counts):
            if counts[word]:
                damping = length_damping(float(lengths[index]), average)
                scores[index] += worth * saturate(float(counts[word]), damping)
    return scores


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmHit:
    """A message that the query matches, with its scores."""

    id: SegmentId
    score: float
    """`(vector_weight * cosine + text_weight * words) * decay ** days`; less if only near a hit."""
    cosine: float = 0.0
    words: float = 0.0
    distance: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Weights of the formula in the module's docstring."""

    vector: float = VECTOR_WEIGHT
    text: float = TEXT_WEIGHT
    decay_per_day: float = 0.995
    min_score: float = MIN_SCORE


class WarmIndex:
    """Messages of one session or space in RAM, like OpenClaw's warm store. The index holds word
    counts and vectors but no texts, which are read from the store."""

    def __init__(self, *, max_segments: int, eviction_days: float | None) -> None:
        self.reached = 0
        self._max_segments = max_segments
        self._eviction_days = eviction_days
        self._ids: list[SegmentId] = []
        self._said_at: list[float] = []
        self._lengths: list[int] = []
        self._vectors = np.zeros((0, 0), np.float32)
        self._postings: dict[str, dict[int, int]] = {}
        self._known: set[bytes] = set()
        self._gone: set[int] = set()

    def __len__(self) -> int:
        return len(self._ids) - len(self._gone)

    def holds(self, message: Segment) -> bool:
        """Return whether to skip the message, because it is noise or the index has its text."""
        return len(message.text) <= NOISE_CHARS or _key_of_words(message) in self._known

    def add(self, message: Segment, vector: bytes | None) -> None:
        """Index a message as the newest one, unless the index has its text."""
        if self.holds(message):
            return
        self._known.add(_key_of_words(message))
        index = len(self._ids)
        counts = Counter(words_of(message.text))
        self._ids.append(message.id)
        self._said_at.append(message.said_at)
        self._lengths.append(counts.total())
        if vector is not None:
            self._keep(index, np.frombuffer(vector, "<f4"))
        for word, count in counts.items():
            self._postings.setdefault(word, {})[index] = count

    def drop(self, ids: Collection[SegmentId]) -> None:
        """Remove messages that were removed from the store."""
        removed_indexes = {index for index, id_ in enumerate(self._ids) if id_ in ids} - self._gone
        for posting in self._postings.values():
            for index in removed_indexes & posting.keys():
                del posting[index]
        self._vectors[[index for index in removed_indexes if index < len(self._vectors)]] = 0.0
        self._gone |= removed_indexes

    def _keep(self, index: int, row: Rows) -> None:
        if index >= len(self._vectors):
            held = self._vectors
            self._vectors = np.zeros((max(64, 2 * index), len(row)), np.float32)
            self._vectors[: len(held), : held.shape[1]] = held
        self._vectors[index] = row

    def search(
        self,
        query: str,
        vector: bytes | None,
        *,
        now: float,
        limit: int,
        weights: Weights,
        leave_out: Collection[SegmentId] = frozenset(),
        cosine_by_id: Mapping[SegmentId, float] | None = None,
    ) -> tuple[list[WarmHit], list[SegmentId]]:
        """Return the best hits for the query, and all messages in order of arrival. `near` are
        cosines from the store, if it holds the vectors."""
        places = list(self._warm(now, frozenset(leave_out)))
        if cosine_by_id is None:
            cosines = self._cosines(places, vector, max_count=2 * limit)
        else:
            ids = self._ids
            cosines = {
                index: cosine_by_id[ids[index]]
                for index in places
                if cosine_by_id.get(ids[index], -1.0) >= 0
            }
        nearest = sorted(cosines, key=lambda index: (-cosines[index], index))[: 2 * limit]
        by_words = self._by_words(places, words_of(query))
        wordiest = sorted(by_words, key=lambda index: (-by_words[index], index))[: 2 * limit]
        best = max((by_words[index] for index in wordiest), default=0.0) or 1.0
        hits = [
            self._hit(
                index,
                cosines[index] if index in nearest else 0.0,
                by_words[index] / best if index in wordiest else 0.0,
                now,
                weights,
            )
            for index in sorted({*nearest, *wordiest})
        ]
        hits.sort(key=lambda hit: -hit.score)
        passing = [hit for hit in hits if _effective(hit, weights) >= weights.min_score]
        return passing[:limit], [self._ids[index] for index in places]

    def _warm(self, now: float, leave_out: frozenset[SegmentId]) -> Iterator[int]:
        oldest = -math.inf
        if self._eviction_days is not None:
            oldest = now - self._eviction_days * _DAY_SECONDS
        held = [index for index in range(len(self._ids)) if index not in self._gone]
        for index in held[-self._max_segments :]:
            if self._said_at[index] >= oldest and self._ids[index] not in leave_out:
                yield index

    def _cosines(
        self, places: Sequence[int], vector: bytes | None, *, max_count: int
    ) -> dict[int, float]:
        indexes = np.array([index for index in places if index < len(self._vectors)], np.intp)
        if vector is None or not len(indexes):
            return {}
        cosines = (self._vectors @ np.frombuffer(vector, "<f4"))[indexes]
        first = np.argsort(-cosines, kind="stable")[:max_count]
        return {
            int(indexes[index]): float(cosines[index]) for index in first if cosines[index] >= 0
        }

    def _by_words(self, places: Sequence[int], words: Sequence[str]) -> dict[int, float]:
        index_set = set(places)
        average = sum(self._lengths[index] for index in places) / len(places) if places else 0.0
        scores: dict[int, float] = {}
        for word in words:
            held = [
                (index, n)
                for index, n in self._postings.get(word, {}).items()
                if index in index_set
            ]
            worth = inverse_document_frequency(document_frequency=len(held), documents=len(places))
            for index, count in held:
                damping = length_damping(float(self._lengths[index]), average)
                scores[index] = scores.get(index, 0.0) + worth * saturate(float(count), damping)
        return scores

    def _hit(
        self, index: int, cosine: float, words: float, now: float, weights: Weights
    ) -> WarmHit:
        days = max(0.0, now - self._said_at[index]) / _DAY_SECONDS
        raw = weights.vector * cosine + weights.text * words
        score = raw * math.pow(weights.decay_per_day, days)
        return WarmHit(id=self._ids[index], score=score, cosine=cosine, words=words)


def _key_of_words(message: Segment) -> bytes:
    name_text = f"{message.session}\0{message.role}\0{message.text}"
    return blake2b(name_text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _effective(hit: WarmHit, weights: Weights) -> float:
    used_weight = (weights.vector if hit.cosine > 0 else 0.0) + (
        weights.text if hit.words > 0 else 0.0
    )
    return hit.score / used_weight if used_weight else hit.score


def widen(hits: Sequence[WarmHit], timeline: Sequence[SegmentId]) -> list[WarmHit]:
    """Return the hits and the messages near them, each with its best score from any hit."""
    place = {id_: index for index, id_ in enumerate(timeline)}
    best: dict[SegmentId, WarmHit] = {}
    for hit in hits:
        for distance in range(-WINDOW, WINDOW + 1):
            index = place[hit.id] + distance
            if not 0 <= index < len(timeline):
                continue
            score = hit.score * (1.0 - WINDOW_FADE * abs(distance))
            known_hit = best.get(timeline[index])
            if known_hit is None or known_hit.score < score:
                best[timeline[index]] = (
                    hit
                    if not distance
                    else WarmHit(id=timeline[index], score=score, distance=abs(distance))
                )
    return sorted(best.values(), key=lambda hit: (-hit.score, place[hit.id]))


def search_facts(query: str, facts: Sequence[Fact]) -> list[Fact]:
    """Return the facts that contain enough of the query's words. A query of one or two words needs
    all of them, up to eight half, a longer one three in ten, but at most six. The facts are sorted
    by number of these words, then by time."""
    words = list(dict.fromkeys(_fact_words(query)))
    if not words:
        return []
    least = len(words)
    if least > 2:
        least = math.ceil(least * 0.5) if least <= 8 else min(math.ceil(least * 0.3), 6)
    held: list[tuple[int, Fact]] = []
    for fact in facts:
        text = f"{fact.content} {fact.context}".lower()
        count = sum(word in text for word in words)
        if count >= least:
            held.append((count, fact))
    held.sort(key=lambda pair: (-pair[0], -pair[1].at))
    return [fact for _, fact in held[:MOST_FACTS]]


def _fact_words(text: str) -> Iterator[str]:
    for run in _FACT_WORDS.findall(text.lower()):
        if len(run) > 1 and re.match(f"[{_HAN}]", run):
            yield from (run[index : index + 2] for index in range(len(run) - 1))
        else:
            yield run
