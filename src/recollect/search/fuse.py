"""Fuses what words and vectors say of the passages into one score each.

Owns how much each kind of evidence weighs, and that both are made comparable: each is taken
relative to the best of the search, so that no statistic of the whole memory is needed that only
one of two stores could give. It must never look at anything but the candidates. What always
holds: a fused score lies between 0 and 1; the same candidates give the same scores whatever
order they come in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from recollect.search.bm25 import score_documents
from recollect.values.lookup import Candidate, Candidates, EmbedderKind

VECTOR_SHARES: Final[Mapping[tuple[EmbedderKind, ...], tuple[float, ...]]] = {
    ("hash",): (0.2,),
    ("static",): (0.5,),
    ("onnx",): (0.5,),
    ("remote",): (0.5,),
    ("onnx", "static"): (0.4, 0.2),
    ("static", "onnx"): (0.2, 0.4),
}
"""What the vectors of these embedders weigh; words have the rest (docs/sources.md)."""
_WITHOUT_VECTOR: Final = 0.8
"""A passage that has no vector (yet) is judged by its words, a little below what it could be."""
_OF_SEVERAL: Final = 0.6
"""What the vectors of any other set of embedders weigh together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fused:
    """The score of every passage, with what it was made of, in the passages' order."""

    words: list[float] = field(repr=False)
    """BM25, as a share of the best."""
    vectors: list[float] = field(repr=False)
    """What all vectors together add."""
    scores: list[float] = field(repr=False)


def vector_shares(kinds: Sequence[EmbedderKind]) -> tuple[float, ...]:
    """What each embedder's vector weighs; words have what is left of 1."""
    known = VECTOR_SHARES.get(tuple(kinds))
    if known is not None:
        return known
    return tuple(_OF_SEVERAL / len(kinds) for _ in kinds)


def fuse(
    passages: Sequence[Candidate],
    statistics: Candidates,
    words: Sequence[str],
    shares: Sequence[float],
) -> Fused:
    """The fused score of every passage; `shares` are those of its similarities."""
    raw = score_documents(
        [one.counts for one in passages],
        [one.length for one in passages],
        average_length=statistics.average_length,
        document_frequencies=statistics.document_frequencies,
        documents=statistics.documents,
        query=words,
    )
    best = max(raw, default=0.0) or 1.0
    by_words = [score / best for score in raw]
    by_vectors = [
        near if near is not None else sum(shares) * _WITHOUT_VECTOR * lexical
        for near, lexical in zip(_by_vectors(passages, shares), by_words, strict=True)
    ]
    text_share = 1.0 - sum(shares)
    scores = [
        text_share * lexical + near for lexical, near in zip(by_words, by_vectors, strict=True)
    ]
    return Fused(words=by_words, vectors=by_vectors, scores=scores)


def _by_vectors(passages: Sequence[Candidate], shares: Sequence[float]) -> list[float | None]:
    """What the vectors add; where one is missing, those that are there stand for it.

    None where a passage has no vector at all.

    Embedder by embedder, over all passages: passage by passage took four times as long.
    """
    points = [0.0] * len(passages)
    weights = [0.0] * len(passages)
    total = 0.0
    for at, share in enumerate(shares):
        held = [one.similarities[at] for one in passages]
        near = [similarity or 0.0 for similarity in held]
        top = max(near, default=0.0)
        if top > 0:
            points = [
                sofar + share * similarity / top if similarity > 0.0 else sofar
                for sofar, similarity in zip(points, near, strict=True)
            ]
        total += share
        weights = [
            weight if similarity is None else weight + share
            for weight, similarity in zip(weights, held, strict=True)
        ]
    return [
        sofar * total / weight if weight else None
        for sofar, weight in zip(points, weights, strict=True)
    ]
