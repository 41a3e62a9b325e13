"""What reported usage has taught about our estimates: a value, and how it learns.

Always: one absurd report changes nothing, a count is never negative, and learning is
deterministic.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, floor

# Outside this band a report does not describe the request we estimated (tokens read from a cache
# left out, a total over several calls): real tokenizers stay within about 0.6 and 1.6 of o200k.
_LEAST_RATIO = 0.5
_GREATEST_RATIO = 2.0
# The newest report counts this much at least, so that a change of model is followed in a few turns.
_NEWEST_WEIGHT = 0.5
# More steps than these are thinned out, every second one going: the value stays small.
_MOST_STEPS = 16
# Below this estimate what we cannot see (a prompt that the host adds, ids of files) outweighs what
# we counted: such a report is an anchor, but says nothing about the ratio.
_TELLING_TOKENS = 500
# More than this beyond a small estimate is not the same request at all.
_MOST_UNSEEN_TOKENS = 50_000


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
        if 0 < estimated_tokens < _TELLING_TOKENS:
            return self._anchored(estimated_tokens, reported_tokens)
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

    def _anchored(self, estimated_tokens: int, reported_tokens: int) -> Calibration:
        """After a report on a request too small to tell how estimates and reports relate."""
        unseen = reported_tokens - estimated_tokens
        if reported_tokens <= 0 or unseen > _MOST_UNSEEN_TOKENS:
            return self
        return replace(
            self,
            reported_tokens=reported_tokens,
            estimated_tokens=estimated_tokens,
            earlier=(),
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
