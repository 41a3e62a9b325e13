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
from recollect.core.values.recall import AskedVector, Candidates, Scale
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
    similarities = [
        math.fsum(map(lambda a, b: a * b, numbers[question], numbers[count + statement]))
        for question, statement in product(range(count), repeat=2)
        if question != statement
    ]
    mean = math.fsum(similarities) / len(similarities)
    spread = math.sqrt(
        math.fsum((similarity - mean) ** 2 for similarity in similarities) / len(similarities)
    )
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
UNDERSTANDING_KINDS: Final = ("onnx", "remote")
"""Kinds of embedders that find an answer in other words than the question's. `static` finds only
7 of 30 such answers, MiniLM 21 (docs/contributing/ranking.md)."""
THRESHOLD: Final = CALIBRATED_MIN_SCORE
_SPEAKER_NAMED: Final = 2.5
"""Correction for a question that names a speaker of this memory. The question is embedded without
that name, which lowers its similarities by about this much (`turn.phrase`)."""
_USUAL_SIZE: Final = 600  # L is ln(passages / 600) (ranking.md, Certainty)
_SIZES: Final = (50, 200_000)
_MOST_LOGIT: Final = 500.0
"""Largest logit. A model that finds all texts similar has a tiny spread, which would overflow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certainty:
    """The probability that memory contains an answer, and the evidence for it."""

    probability: float
    vectors: int
    unheard: bool
    nearness: float | None = None
    """Best similarity by an embedder that understands other words, in units of `Scale.spread`."""


def calibrate(
    question: Question, candidates: Candidates, vectors: Sequence[AskedVector]
) -> Certainty:
    """Estimate the probability that memory contains an answer. `vectors` are the query's vectors,
    to which the similarities were computed."""
    telling = _telling_vectors(vectors, candidates)
    calibration = CALIBRATIONS[len(telling)]
    dates = date_words_in(question.text)
    words = [word for word in question.words if word not in dates]
    frequencies = candidates.document_frequencies
    ceiling = score_ceiling(
        document_frequencies=frequencies,
        documents=candidates.documents,
        # in scripts without spaces, most pairs of characters are not words
        query=[word for word in words if frequencies.get(word) or not is_unspaced_pair(word)],
    )

    passages = candidates.passages
    by_words = max(score_passages(passages, candidates, words), default=0.0)
    nearness = None
    signs = [calibration.words * (by_words / ceiling) if by_words else 0.0]
    for index, scale in telling:
        nearest = max([passage.similarities[index] or 0.0 for passage in passages])
        spreads = (nearest - scale.mean) / scale.spread
        signs.append(calibration.vector * spreads)
        if vectors[index].kind in UNDERSTANDING_KINDS:
            nearness = spreads
    names = names_in(question.text)
    unheard = bool(names) and not any(frequencies.get(word) for name in names for word in name)
    names_speaker = any(frequencies.get(word, 0) >= SPEAKS_FROM for word in question.speakers)
    documents = min(max(candidates.documents, _SIZES[0]), _SIZES[1])
    logit = math.fsum(
        [
            *signs,
            calibration.unheard * unheard,
            _SPEAKER_NAMED if telling and names_speaker else 0.0,
            calibration.size * math.log(documents / _USUAL_SIZE),
            calibration.bias,
        ]
    )
    return Certainty(
        probability=1.0 / (1.0 + math.exp(-min(max(logit, -_MOST_LOGIT), _MOST_LOGIT))),
        vectors=len(telling),
        unheard=unheard,
        nearness=nearness,
    )


def _telling_vectors(
    vectors: Sequence[AskedVector], candidates: Candidates
) -> list[tuple[int, Scale]]:
    return [
        (index, vector.scale)
        for index, vector in enumerate(vectors)
        if vector.scale is not None
        and vector.scale.spread > 0
        and vector.kind != "hash"
        # an embedder without stored vectors is not evidence against an answer
        and any(candidate.similarities[index] is not None for candidate in candidates.passages)
    ][: len(CALIBRATIONS) - 1]
