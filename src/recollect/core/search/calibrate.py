"""Estimates the probability that memory contains an answer (docs/contributing/ranking.md). Sixteen
test questions with answers make different embedders comparable. Words of the question that memory
lacks lower the probability, and missing names lower it more."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from recollect.core.search.bm25 import score_ceiling, score_passages
from recollect.core.search.names import SPEAKS_FROM, date_words_in, names_in
from recollect.core.search.question import Question
from recollect.core.search.tokenize import is_unspaced_pair
from recollect.core.values.recall import AskedVector, Candidate, Candidates, Scale
from recollect.system.config.settings import CALIBRATED_MIN_SCORE

_PROBE_LINES: Final = """
Where does my sister live now?
My sister moved to Lisbon last spring and rents a flat near the river.
Which database did we choose for the orders service?
We decided to keep the orders service on PostgreSQL because of its transactions.
What is my dog allergic to?
The vet says our dog cannot eat chicken, it gives him a rash.
When is the dentist appointment?
I booked a visit at the dentist for Thursday at nine in the morning.
How did we fix the memory leak in the parser?
The parser leak is gone: the cache kept every token, so I bounded it.
What present did I buy for my father's birthday?
For dad's birthday I got a leather wallet with his initials on it.
Which port does the staging server listen on?
Staging now answers on port 8443 behind the proxy.
What instrument has my daughter started to learn?
Our daughter had her first cello lesson and loved it.
How long was my longest run this year?
Yesterday I ran twenty-four kilometres, the longest distance of the year.
Why did the nightly build fail?
The nightly job broke because the runner was out of disk space.
What did the doctor say about my knee?
The doctor thinks the knee only needs rest and some exercises, no surgery.
Which recipe did you recommend for the dinner party?
For eight guests I would suggest the mushroom risotto, it can be prepared early.
What colour did we paint the kitchen?
The kitchen walls are a pale green now, two coats were enough.
How much rent do I pay for the studio?
The studio costs me 640 a month, heating included.
Which book is the reading group on this month?
This month the reading group discusses a novel about a lighthouse keeper.
Who reviews changes to the login module?
Any change to the login code must be approved by the security team.
""".strip().splitlines()
PROBES: Final = tuple(zip(_PROBE_LINES[::2], _PROBE_LINES[1::2], strict=True))


def probe_texts() -> list[str]:
    """Return the texts to embed once per model: the test questions, then the statements."""
    return [question for question, _ in PROBES] + [statement for _, statement in PROBES]


def scale_of(vectors: Sequence[bytes]) -> Scale:
    """Compute the scale of a model from its vectors of `probe_texts`, in their order."""
    numbers = [struct.unpack(f"<{len(values) // 4}f", values) for values in vectors]
    count = len(PROBES)
    unrelated = [
        math.fsum(map(lambda a, b: a * b, numbers[question], numbers[count + statement]))
        for question, statement in product(range(count), repeat=2)
        if question != statement
    ]
    mean = math.fsum(unrelated) / len(unrelated)
    spread = math.sqrt(math.fsum((one - mean) ** 2 for one in unrelated) / len(unrelated))
    return Scale(mean=mean, spread=spread)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationWeights:
    """Weights of a logistic regression, for a certain number of embedders."""

    vector: float
    """Weight of the best similarity of each embedder, in units of `Scale.spread`."""
    words: float
    unheard: float
    size: float
    """Weight of the number of passages: a larger memory contains something similar to anything."""
    bias: float


CALIBRATIONS: Final = (
    CalibrationWeights(vector=0.0, words=24.0, unheard=-5.5, size=-0.3, bias=-3.5),
    CalibrationWeights(vector=1.05, words=14.0, unheard=-5.5, size=-0.45, bias=-7.5),
    CalibrationWeights(vector=0.67, words=11.0, unheard=-5.5, size=-0.5, bias=-8.6),
)
THRESHOLD: Final = CALIBRATED_MIN_SCORE
NEAR: Final = 8.0
"""If a passage is at least this similar (in units of `Scale.spread`), it need not share words."""
_SPEAKER_NAMED: Final = 2.5
"""Correction for a question that names a speaker of this memory. The question is embedded without
that name, which lowers its similarities by about this much (`turn.phrase`)."""
_USUAL_SIZE: Final = 600
_SIZES: Final = (50, 200_000)
_MOST_LOGIT: Final = 500.0
"""Largest logit. A model that finds all texts similar has a tiny spread, which would overflow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certainty:
    """The probability that memory contains an answer, and the evidence for it."""

    probability: float
    vectors: int
    unheard: bool
    near: bool = False
    """True if a passage is so similar that it need not share words with the question."""
    ahead: float | None = None
    """Difference of two logits: of the best hit outside of the request, and of the best hit in the
    request. None if the request has no hit."""


def calibrate(
    question: Question,
    candidates: Candidates,
    vectors: Sequence[AskedVector],
    *,
    shown: Sequence[Candidate] = (),
) -> Certainty:
    """Estimate the probability that memory contains an answer. `vectors` are the query's vectors,
    to which the similarities were computed. `shown` are candidates that the request contains
    already."""
    telling = _telling_vectors(vectors, candidates)
    calibration = CALIBRATIONS[len(telling)]
    dates = date_words_in(question.text)
    words = [word for word in question.words if word not in dates]
    held = candidates.document_frequencies
    ceiling = score_ceiling(
        document_frequencies=held,
        documents=candidates.documents,
        # in scripts without spaces, most pairs of characters are not words
        query=[word for word in words if held.get(word) or not is_unspaced_pair(word)],
    )

    def signs_of(some: Sequence[Candidate]) -> list[tuple[float, ...]]:
        scores = score_passages(some, candidates, words)
        columns = [[calibration.words * (score / ceiling) for score in scores]]
        for at, scale in telling:
            near = [candidate.similarities[at] or 0.0 for candidate in some]
            columns.append(
                [calibration.vector * (cosine - scale.mean) / scale.spread for cosine in near]
            )
        return list(zip(*columns, strict=True))

    outside = signs_of(candidates.passages)
    unheard = _unheard(question, candidates)
    documents = min(max(candidates.documents, _SIZES[0]), _SIZES[1])
    bests = [max(signs) for signs in zip(*outside, strict=True)]
    logit = math.fsum(
        [
            *bests,
            calibration.unheard * unheard,
            _SPEAKER_NAMED if telling and _names_a_speaker(question, candidates) else 0.0,
            calibration.size * math.log(documents / _USUAL_SIZE),
            calibration.bias,
        ]
    )
    ahead = None
    if shown and outside:
        best_shown = max(map(math.fsum, signs_of(shown)))
        ahead = max(map(math.fsum, outside)) - best_shown
    return Certainty(
        probability=1.0 / (1.0 + math.exp(-min(max(logit, -_MOST_LOGIT), _MOST_LOGIT))),
        vectors=len(telling),
        unheard=unheard,
        near=any(
            vectors[at].kind != "hash"
            and ((candidate.similarities[at] or 0.0) - scale.mean) / scale.spread >= NEAR
            for at, scale in telling
            for candidate in candidates.passages
        ),
        ahead=ahead,
    )


def _telling_vectors(
    vectors: Sequence[AskedVector], candidates: Candidates
) -> list[tuple[int, Scale]]:
    return [
        (at, vector.scale)
        for at, vector in enumerate(vectors)
        if vector.scale is not None
        and vector.scale.spread > 0
        and vector.kind != "hash"
        # an embedder without stored vectors is not evidence against an answer
        and any(candidate.similarities[at] is not None for candidate in candidates.passages)
    ][: len(CALIBRATIONS) - 1]


def _names_a_speaker(question: Question, candidates: Candidates) -> bool:
    held = candidates.document_frequencies
    return any(held.get(word, 0) >= SPEAKS_FROM for word in question.speakers)


def _unheard(question: Question, candidates: Candidates) -> bool:
    names = names_in(question.text)
    return bool(names) and not any(
        candidates.document_frequencies.get(word, 0) for name in names for word in name
    )
