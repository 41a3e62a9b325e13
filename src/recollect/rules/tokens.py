"""How many tokens a text costs, without a tokenizer, and what providers' reports teach about it.

Owns the one estimate every budget rests on. A text is seen as a row of byte classes (kinds of
letters, digits, spaces, marks, the lead bytes of each script), and every pair of neighbours has
a cost, fitted against o200k (`token_costs.py`); the estimate is the sum of these costs, aimed a
tenth above o200k. A calibration then follows what the provider reports.

Always: the empty text costs 0, any other at least 1; more text never costs less; the same text
costs the same. It must never raise on any string, lone surrogates included, and never work per
character in Python: it runs over every new message of a request.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor
from zlib import adler32

from recollect.rules.token_costs import (
    EAST_ASIAN_CLASSES,
    EAST_ASIAN_COSTS,
    LETTER_CLASSES,
    LETTER_COSTS,
    SCRIPT_CLASSES,
    SCRIPT_COSTS,
    UNITS_PER_TOKEN,
)

# The sum of the costs is taken from Adler-32's low half, which counts modulo 65521: so many
# bytes of the highest cost, 127, still fit.
_CHUNK_BYTES = 512
_SUM_MASK = 0xFFFF

# Outside this band a report does not describe the request we estimated (tokens read from a cache
# left out, a total over several calls): real tokenizers stay within about 0.6 and 1.6 of o200k.
_LEAST_RATIO = 0.25
_GREATEST_RATIO = 4.0
# The newest report counts this much at least, so that a change of model is followed in a few turns.
_NEWEST_WEIGHT = 0.5
# More steps than these are thinned out, every second one going: the value stays small.
_MOST_STEPS = 16


def count_text(text: str) -> int:
    """Estimated tokens of a text: 0 for the empty one, at least 1 for any other."""
    if not text:
        return 0
    if text.isascii():
        units = _pair_units(text.encode(), LETTER_CLASSES, LETTER_COSTS)
    else:
        data = text.encode("utf-8", "surrogatepass")
        units = _pair_units(data, LETTER_CLASSES, LETTER_COSTS)
        units += _pair_units(data, SCRIPT_CLASSES, SCRIPT_COSTS)
        units += _pair_units(data, EAST_ASIAN_CLASSES, EAST_ASIAN_COSTS)
    return -(-units // UNITS_PER_TOKEN) or 1


def count_text_seeds(text: str) -> int:
    """The seeds' estimate, a third of the characters, for `preset = "seeds"`."""
    return -(-len(text) // 3)


def _pair_units(data: bytes, classes: bytes, costs: bytes) -> int:
    """The summed cost of every byte after its neighbour; the first one follows class 0."""
    if len(data) <= _CHUNK_BYTES:
        return _row_units(data.translate(classes), costs)
    total, before = 0, 0
    for start in range(0, len(data), _CHUNK_BYTES):
        row = data[start : start + _CHUNK_BYTES].translate(classes)
        first = row[0]
        total += _row_units(row, costs) + costs[before << 4 | first] - costs[first]
        before = row[-1]
    return total


def _row_units(row: bytes, costs: bytes) -> int:
    """The cost of one chunk's classes, all below 16.

    Read as one large integer and laid over themselves half a byte further on, they make a byte
    of every pair: four passes in C, none in Python.
    """
    each = int.from_bytes(row, "big")
    if not each:  # nothing here that this table looks at
        return 0
    pairs = (each | each >> 4).to_bytes(len(row), "big")
    return adler32(pairs.translate(costs), 0) & _SUM_MASK


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What reported usage has taught about our estimates, for one model in one session.

    `reported_tokens` and `estimated_tokens` are the anchor: the last request, as the provider
    counted it and as we had estimated it, uncalibrated. The next request is mostly that one, so
    only the difference is left to estimate. `earlier` holds the same pair for the shorter requests
    that grew into the anchor: they tell what its older parts cost.
    """

    ratio: float = 1.0
    samples: int = 0
    reported_tokens: int | None = None
    estimated_tokens: int | None = None
    earlier: tuple[tuple[int, int], ...] = ()

    def learn(self, *, estimated_tokens: int, reported_tokens: int) -> Calibration:
        """The calibration after one more report; an absurd report changes nothing."""
        if not _is_plausible(estimated_tokens, reported_tokens):
            return self
        seen = reported_tokens / estimated_tokens
        weight = max(_NEWEST_WEIGHT, 1 / (self.samples + 1))
        return Calibration(
            ratio=self.ratio + weight * (seen - self.ratio),
            samples=self.samples + 1,
            reported_tokens=reported_tokens,
            estimated_tokens=estimated_tokens,
            earlier=self._grown_into(estimated_tokens, reported_tokens),
        )

    def apply(self, estimated_tokens: int) -> int:
        """The calibrated count of a request, from its uncalibrated estimate; never negative.

        What was added since the anchor costs the learned ratio. What was taken away is taken to be
        the oldest, and costs what it cost when it was added.
        """
        estimated_tokens = max(0, estimated_tokens)
        if self.reported_tokens is None or self.estimated_tokens is None:
            return ceil(self.ratio * estimated_tokens)
        added = estimated_tokens - self.estimated_tokens
        if added >= 0:
            return self.reported_tokens + ceil(self.ratio * added)
        return self.reported_tokens - floor(self._cost_of_oldest(-added))

    def _grown_into(self, estimated: int, reported: int) -> tuple[tuple[int, int], ...]:
        """The steps that led to a new anchor: none where it did not grow out of this one."""
        if self.reported_tokens is None or self.estimated_tokens is None:
            return ()
        grown = (estimated - self.estimated_tokens, reported - self.reported_tokens)
        if grown == (0, 0):
            return self.earlier
        if not _is_plausible(*grown):
            return ()
        steps = (*self.earlier, (self.estimated_tokens, self.reported_tokens))
        return steps if len(steps) <= _MOST_STEPS else steps[1::2]

    def _cost_of_oldest(self, estimated: int) -> float:
        """What the provider counts for the oldest part of the anchor, by our estimate of it."""
        assert self.estimated_tokens is not None
        assert self.reported_tokens is not None
        low_estimated, low_reported = 0, 0
        for step_estimated, step_reported in self.earlier:
            if step_estimated >= estimated:
                break
            low_estimated, low_reported = step_estimated, step_reported
        else:
            step_estimated, step_reported = self.estimated_tokens, self.reported_tokens
        share = (estimated - low_estimated) / (step_estimated - low_estimated)
        return low_reported + share * (step_reported - low_reported)


def _is_plausible(estimated: int, reported: int) -> bool:
    """Whether a report can be about what was estimated."""
    return estimated > 0 and _LEAST_RATIO <= reported / estimated <= _GREATEST_RATIO
