"""What recall is held against, on the same memory and in the same 4,000 tokens.

Owns three rankings of whole messages: BM25 alone, vectors alone, and OpenClaw's hybrid of 0.7
vector and 0.3 BM25 (its best BM25 hit counts 1). OpenClaw's decay and threshold are left out:
both would only lower their figures. Their words are the product's own, so nothing here is worse
than it has to be. It must never see how recall ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from recollect.ports import Embedder
from recollect.search.bm25 import Bm25Index
from recollect.search.tokenize import tokenize
from recollect_bench.recall.judge import Judge, Verdict, pack_ranked, whole_message
from recollect_bench.recall.memory import StoredMemory
from recollect_bench.recall.sets import Question

Scores: TypeAlias = NDArray[np.float64]

OPENCLAW_VECTOR_WEIGHT: Final = 0.7
OPENCLAW_WORD_WEIGHT: Final = 0.3
BM25: Final = "bm25"
VECTORS: Final = "vectors"
OPENCLAW: Final = "openclaw"


class Baselines:
    """The rankings of one memory; vectors are those of the first embedder."""

    def __init__(self, stored: StoredMemory, judge: Judge) -> None:
        self._judge = judge
        self._messages = [message for message in stored.messages if message.passages]
        self._index = Bm25Index.build([tokenize(message.text) for message in self._messages])
        self._lines = [whole_message(message) for message in self._messages]
        self._matrix: NDArray[np.float32] | None = None

    async def embed(self, embedder: Embedder) -> None:
        """Make the vectors of whole messages."""
        values = await embedder.embed([message.text for message in self._messages])
        self._matrix = as_matrix(values)

    def verdicts(self, question: Question, vector: bytes | None) -> dict[str, Verdict]:
        """What each baseline finds of a question, by its name."""
        words = np.array(self._index.scores(tokenize(question.text)))
        found = {BM25: self._verdict(question, words)}
        if vector is not None and self._matrix is not None:
            near = (self._matrix @ np.frombuffer(vector, "<f4")).astype(np.float64)
            best = float(words.max(initial=0.0))
            hybrid = OPENCLAW_VECTOR_WEIGHT * near + OPENCLAW_WORD_WEIGHT * words / (best or 1.0)
            found[VECTORS] = self._verdict(question, near)
            found[OPENCLAW] = self._verdict(question, hybrid)
        return found

    def _verdict(self, question: Question, scores: Scores) -> Verdict:
        order = np.argsort(-scores, kind="stable")
        places = order.tolist()
        return self._judge.verdict(
            question,
            block=pack_ranked([self._lines[place] for place in places]),
            ranking=[self._messages[place].segment for place in places],
        )


def as_matrix(values: Sequence[bytes]) -> NDArray[np.float32]:
    """Vectors as rows."""
    return np.frombuffer(b"".join(values), "<f4").reshape(len(values), -1)
