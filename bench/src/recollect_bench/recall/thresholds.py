"""The figures recall must reach, in one place: thresholds that must be met, and what is aimed for.

Owns nothing but these numbers and which run each belongs to. They were agreed before the work;
a threshold is never lowered to what was reached.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """What one figure of a run must reach."""

    set_name: str
    figure: str
    threshold: float
    aim: float
    embedders: tuple[str, ...] = ()
    """The runs it holds for; empty for every embedder."""
    at_most: bool = False
    """The figure is a share of errors: it must not be above the threshold."""

    def met(self, value: float) -> bool:
        """Whether the threshold is met."""
        return _reached(value, self.threshold, at_most=self.at_most)

    def aimed(self, value: float) -> bool:
        """Whether the aim is reached too."""
        return _reached(value, self.aim, at_most=self.at_most)


def _reached(value: float, wanted: float, *, at_most: bool) -> bool:
    return value <= wanted if at_most else value >= wanted


_MINILM: Final = ("minilm",)
_BOTH: Final = ("minilm+static",)
_STATIC: Final = ("static",)
_CORE: Final = ("hash",)

THRESHOLDS: Final = (
    Threshold(set_name="locomo", figure="all_4k", threshold=0.87, aim=0.93, embedders=_MINILM),
    Threshold(set_name="locomo", figure="all_4k", threshold=0.85, aim=0.90, embedders=_STATIC),
    Threshold(set_name="locomo", figure="all_4k", threshold=0.84, aim=0.88, embedders=_CORE),
    Threshold(set_name="longmemeval", figure="all_4k", threshold=0.92, aim=0.97, embedders=_BOTH),
    Threshold(set_name="longmemeval", figure="all_4k", threshold=0.90, aim=0.95, embedders=_STATIC),
    Threshold(set_name="beam", figure="strict_4k", threshold=0.605, aim=0.75, embedders=_BOTH),
    Threshold(set_name="beam", figure="strict_4k", threshold=0.59, aim=0.70, embedders=_STATIC),
    Threshold(set_name="memdaily", figure="recall_at_10", threshold=0.56, aim=0.65),
    Threshold(
        set_name="locomo",
        figure="false_recall",
        threshold=0.12,
        aim=0.03,
        embedders=_BOTH,
        at_most=True,
    ),
    Threshold(
        set_name="locomo", figure="lost", threshold=0.01, aim=0.0, embedders=_BOTH, at_most=True
    ),
    Threshold(
        set_name="longmemeval",
        figure="lost",
        threshold=0.04,
        aim=0.01,
        embedders=_BOTH,
        at_most=True,
    ),
)


def thresholds_of(set_name: str, embedder: str) -> dict[str, Threshold]:
    """The thresholds of a run, by figure."""
    return {
        threshold.figure: threshold
        for threshold in THRESHOLDS
        if threshold.set_name == set_name
        and (not threshold.embedders or embedder in threshold.embedders)
    }
