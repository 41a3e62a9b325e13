"""Tells how near an embedder puts texts that have nothing to do with each other.

A cosine of 0.4 is much for one model and nothing for another. Sixteen questions and the
statements that answer them, on sixteen different things, say what a model gives for unrelated
pairs: the mean and spread of those cosines make its similarities comparable with any other's.
Must never be asked of a memory: these texts are ours. What always holds: the same model gives
the same scale.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from itertools import product
from typing import Final

from recollect.values.lookup import Scale

PROBES: Final = (
    (
        "Where does my sister live now?",
        "My sister moved to Lisbon last spring and rents a flat near the river.",
    ),
    (
        "Which database did we choose for the orders service?",
        "We decided to keep the orders service on PostgreSQL because of its transactions.",
    ),
    (
        "What is my dog allergic to?",
        "The vet says our dog cannot eat chicken, it gives him a rash.",
    ),
    (
        "When is the dentist appointment?",
        "I booked a visit at the dentist for Thursday at nine in the morning.",
    ),
    (
        "How did we fix the memory leak in the parser?",
        "The parser leak is gone: the cache kept every token, so I bounded it.",
    ),
    (
        "What present did I buy for my father's birthday?",
        "For dad's birthday I got a leather wallet with his initials on it.",
    ),
    (
        "Which port does the staging server listen on?",
        "Staging now answers on port 8443 behind the proxy.",
    ),
    (
        "What instrument has my daughter started to learn?",
        "Our daughter had her first cello lesson and loved it.",
    ),
    (
        "How long was my longest run this year?",
        "Yesterday I ran twenty-four kilometres, the longest distance of the year.",
    ),
    (
        "Why did the nightly build fail?",
        "The nightly job broke because the runner was out of disk space.",
    ),
    (
        "What did the doctor say about my knee?",
        "The doctor thinks the knee only needs rest and some exercises, no surgery.",
    ),
    (
        "Which recipe did you recommend for the dinner party?",
        "For eight guests I would suggest the mushroom risotto, it can be prepared early.",
    ),
    (
        "What colour did we paint the kitchen?",
        "The kitchen walls are a pale green now, two coats were enough.",
    ),
    (
        "How much rent do I pay for the studio?",
        "The studio costs me 640 a month, heating included.",
    ),
    (
        "Which book is the reading group on this month?",
        "This month the reading group discusses a novel about a lighthouse keeper.",
    ),
    (
        "Who reviews changes to the login module?",
        "Any change to the login code must be approved by the security team.",
    ),
)
"""Questions, each with the statement that answers it and none of the others."""


def probe_texts() -> list[str]:
    """What is embedded once for a model: the questions, then the statements."""
    return [question for question, _ in PROBES] + [statement for _, statement in PROBES]


def scale_of(vectors: Sequence[bytes]) -> Scale:
    """The scale of a model from its vectors of `probe_texts`, in their order."""
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
