"""How likely it is that memory holds something on a question: an absolute number."""

import asyncio
import struct
from typing import Any

import pytest
from tests.unit.search.candidates import asking, candidate, found

from recollect.adapters.embedders.local import HashEmbedder
from recollect.core.search.calibrate import (
    PROBES,
    THRESHOLD,
    Certainty,
    calibrate,
    probe_texts,
    scale_of,
)
from recollect.core.values.recall import AskedVector, Candidate, EmbedderKind, Scale

SCALE = Scale(mean=0.06, spread=0.08)
CRANE = "the green crane stands at the north quay"
QUESTION = "which crane stands at the north quay?"


def vector(kind: EmbedderKind = "onnx", scale: Scale | None = SCALE) -> AskedVector:
    return AskedVector(embedder=kind, values=b"", kind=kind, scale=scale)


def certainty(
    question: str, *passages: Candidate, documents: int = 600, vectors: Any = (), shown: Any = ()
) -> Certainty:
    made = found(passages, documents=documents)
    return calibrate(asking(question), made, vectors, shown=shown)


def likely(question: str, *passages: Candidate, **more: Any) -> float:
    return certainty(question, *passages, **more).probability


def with_similarities(*similarities: float | None) -> Candidate:
    return candidate("a", CRANE, similarities=similarities)


def test_what_memory_holds_is_likelier_than_words_and_names_it_never_heard() -> None:
    held = candidate("a", CRANE)
    assert likely(QUESTION, held) > 0.9
    assert likely("who painted the bicycle of my aunt?", held) < THRESHOLD
    assert likely("north by what?", held) > likely("north by what measure of which compass?", held)
    chances = [
        likely(f"crane quay {' '.join(more)}", held) for more in ([], ["zebra"], ["zebra", "yak"])
    ]
    assert chances[0] > chances[1] > chances[2]
    unheard = certainty("which crane did Bartholomew paint?", held)
    assert unheard.unheard
    assert not certainty("which crane did bartholomew paint?", held).unheard
    assert unheard.probability < 0.1 * likely("which crane did bartholomew paint?", held)
    ann = candidate("b", "Ann paints boats")
    assert not certainty("which crane did Bartholomew and Ann paint?", held, ann).unheard
    assert certainty(QUESTION, held).ahead is None
    assert certainty(QUESTION, held, shown=[candidate("b", "a crane")]).ahead > 1.0  # type: ignore[operator]
    poor = candidate("c", "a crane, and many other things that are of no account to anyone")
    assert certainty(QUESTION, poor, shown=[held]).ahead < -1.0  # type: ignore[operator]


def test_a_scale_is_that_of_unrelated_texts_and_a_flat_one_breaks_nothing() -> None:
    flat = vector(scale=Scale(mean=0.9, spread=1e-9))
    assert 0.0 <= likely(QUESTION, with_similarities(0.1), vectors=[flat]) < 1e-9
    assert 1.0 - likely(QUESTION, with_similarities(0.95), vectors=[flat]) < 1e-9
    texts = probe_texts()
    assert len(texts) == len(set(texts)) == 2 * len(PROBES)
    axes = [[float(at == place) for place in range(len(PROBES))] for at in range(len(PROBES))]
    ideal = [struct.pack(f"<{len(PROBES)}f", *axis) for axis in [*axes, *axes]]
    assert scale_of(ideal) == Scale(mean=0.0, spread=0.0), "only what belongs together is near"
    made = scale_of(asyncio.run(HashEmbedder().embed(texts)))
    assert made.mean == pytest.approx(0.105, abs=0.02)
    assert made.spread == pytest.approx(0.073, abs=0.02)
