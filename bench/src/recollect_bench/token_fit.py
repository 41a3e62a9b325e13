"""Derives the counter's cost tables from o200k.

Owns the fit: the costs that make the relative error of every sample small, and the worst errors
above all (the sixth power of the error beside its square), each cost within bounds, by Newton's
method. Samples of a second, larger pool that the costs still miss are added, and the fit repeated.
It needs numpy, which nothing else here does; it must never look at the tables it replaces.
"""

from __future__ import annotations

import string
from collections import Counter
from importlib import import_module
from typing import TYPE_CHECKING, Any

from recollect.rules.token_costs import (
    EAST_ASIAN_CLASSES,
    LETTER_CLASSES,
    SCRIPT_CLASSES,
    UNITS_PER_TOKEN,
)
from recollect_bench.token_corpus import HELD_KINDS, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TARGET_RATIO = 1.10
"""Where the estimate is aimed: between the promised bounds of 0.95 and 1.30, nearer the lower."""

SAFER_TARGET_RATIO = 1.20
"""Where it is aimed for scripts of which the corpus shows little but manuals."""

_SAFER_KINDS = frozenset(("cyrillic", "arabic", "greek", "hebrew", "devanagari", "thai", "indic",
                          "georgian", "armenian", "vietnamese"))  # fmt: skip

_PAIRS = 256
_TABLES = (LETTER_CLASSES, SCRIPT_CLASSES, EAST_ASIAN_CLASSES)
_LOWEST_COST = 1 / UNITS_PER_TOKEN
# Within words prose alone would have next to nothing; then a row of one letter would be free.
_LOWEST_COST_IN_WORDS = 2 / UNITS_PER_TOKEN
# o200k, like most vocabularies, has no token of more than three digits.
_LOWEST_COST_IN_NUMBERS = 21 / UNITS_PER_TOKEN
_LETTER_CLASS_NUMBERS = sorted({LETTER_CLASSES[ord(letter)] for letter in string.ascii_letters})
_HIGHEST_COST = 127 / UNITS_PER_TOKEN
# What a pair costs that the corpus never shows: one token in three bytes, on the safe side.
_UNSEEN_COST = 0.33
_UNSEEN_WEIGHT = 1e-5
# An error of this size weighs as much by its sixth power as by its square.
_UNDER_SCALE = 0.05
_OVER_SCALE = 0.075
_POWER = 6
_NEWTON_STEPS = 12
_DESCENT_SWEEPS = 40
# From this step on, a promised sample near a bound or beyond weighs more by each step: a handful
# of odd documents would else stay outside.
_FIRST_INSISTING_STEP = 5
_INSISTENCE = 2.0
_NEAR_UNDER = 0.96
_NEAR_OVER = 1.29
# Of these rounds the one is taken that leaves the most room to the promised bounds.
_ROUNDS = 7
_LEAST_RATIO = 0.95
_GREATEST_RATIO = 1.30
_ADDED_WEIGHT = 2.0


def pair_counts(data: bytes, classes: bytes) -> dict[int, int]:
    """How often each pair `class before * 16 + class` occurs."""
    row = data.translate(classes)
    counted = Counter(zip(bytes(1) + row[:-1], row, strict=True))
    return {first << 4 | second: count for (first, second), count in counted.items()}


def fit_costs(
    samples: Sequence[tuple[Sample, int]],
    pool: Sequence[tuple[Sample, int]],
    progress: Callable[[str], None],
) -> list[list[int]]:
    """The cost tables in the order of `_TABLES`, in units of `1 / UNITS_PER_TOKEN`.

    Both sequences hold samples with their true counts; of the pool only what is missed is learned.
    """
    np = import_module("numpy")
    shares, weights = _shares(np, samples), _weights(np, samples)
    targets = _targets(np, samples)
    pool_shares, is_added = _shares(np, pool), np.zeros(len(pool), bool)
    promised = np.array([sample.kind in HELD_KINDS for sample, _ in samples])
    added_weight = _ADDED_WEIGHT * float(np.median(weights[promised]))
    costs = np.full(len(_TABLES) * _PAIRS, _UNSEEN_COST)
    lowest = np.full(len(costs), _LOWEST_COST)
    for first in _LETTER_CLASS_NUMBERS:
        for second in _LETTER_CLASS_NUMBERS:
            lowest[first << 4 | second] = _LOWEST_COST_IN_WORDS
    lowest[LETTER_CLASSES[ord("0")] * 17] = _LOWEST_COST_IN_NUMBERS
    best, most_room = costs, -float("inf")
    for round_number in range(_ROUNDS):
        used = shares.sum(0) > 0
        costs[used] = _newton(np, shares[:, used], targets, weights, promised, lowest[used])
        costs[::_PAIRS] = 0  # pairs of bytes that are another table's business
        costs = np.round(costs * UNITS_PER_TOKEN) / UNITS_PER_TOKEN
        ratios = pool_shares @ costs
        seen = np.append(ratios, shares[promised] @ costs)
        progress(
            f"round {round_number}: {len(shares)} samples, {seen.min():.3f} to {seen.max():.3f}"
        )
        room = min(seen.min() - _LEAST_RATIO, _GREATEST_RATIO - seen.max())
        if room > most_room:
            most_room, best = room, costs.copy()
        missed = ((ratios < _NEAR_UNDER) | (ratios > _NEAR_OVER)) & ~is_added
        is_added |= missed
        shares = np.vstack([shares, pool_shares[missed]])
        weights = np.append(weights, np.full(int(missed.sum()), added_weight))
        promised = np.append(promised, np.ones(int(missed.sum()), bool))
        targets = np.append(targets, np.full(int(missed.sum()), TARGET_RATIO))
    units = [round(float(cost) * UNITS_PER_TOKEN) for cost in best]
    return [units[start : start + _PAIRS] for start in range(0, len(units), _PAIRS)]


def _shares(np: Any, samples: Sequence[tuple[Sample, int]]) -> Any:
    """One row a sample: how often each pair occurs for each of its true tokens."""
    rows = np.zeros((len(samples), len(_TABLES) * _PAIRS), np.float32)
    for row, (sample, true_tokens) in zip(rows, samples, strict=True):
        data = np.frombuffer(sample.text.encode("utf-8", "surrogatepass"), np.uint8)
        tables = _TABLES[:1] if sample.text.isascii() else _TABLES
        for number, classes in enumerate(tables):
            each = np.frombuffer(classes, np.uint8)[data].astype(np.int64)
            pairs = each + 16 * np.append(0, each[:-1])
            counts = np.bincount(pairs, minlength=_PAIRS)
            counts[0] = 0
            row[number * _PAIRS : (number + 1) * _PAIRS] = counts / true_tokens
    return rows


def _weights(np: Any, samples: Sequence[tuple[Sample, int]]) -> Any:
    """Every promised kind alike, every other kind a fifth of that."""
    sizes = Counter(sample.kind for sample, _ in samples)
    importance = [(1.0 if s.kind in HELD_KINDS else 0.2) / sizes[s.kind] for s, _ in samples]
    return np.array(importance) / len(sizes)


def _targets(np: Any, samples: Sequence[tuple[Sample, int]]) -> Any:
    aims = (SAFER_TARGET_RATIO if s.kind in _SAFER_KINDS else TARGET_RATIO for s, _ in samples)
    return np.array(list(aims))


def _newton(np: Any, shares: Any, targets: Any, weights: Any, promised: Any, lowest: Any) -> Any:
    """The costs of the used pairs that lower the loss most."""
    shares, weights = shares.astype(float), weights.copy()
    costs = np.full(shares.shape[1], _UNSEEN_COST)

    def loss(trial: Any) -> float:
        errors = shares @ trial - targets
        scale = np.where(errors < 0, _UNDER_SCALE, _OVER_SCALE)
        each = errors**2 + scale**2 * (errors / scale) ** _POWER
        return float((weights * each).sum() + _UNSEEN_WEIGHT * ((trial - _UNSEEN_COST) ** 2).sum())

    for step in range(_NEWTON_STEPS):
        power = 2 if step == 0 else _POWER
        errors = shares @ costs - targets
        scale = np.where(errors < 0, _UNDER_SCALE, _OVER_SCALE)
        relative = errors / scale
        pull = weights * (2 * errors + power * scale * relative ** (power - 1))
        bend = weights * (2 + power * (power - 1) * relative ** (power - 2))
        slope = shares.T @ pull + 2 * _UNSEEN_WEIGHT * (costs - _UNSEEN_COST)
        curvature = (shares * bend[:, None]).T @ shares + 2 * _UNSEEN_WEIGHT * np.eye(len(costs))
        change = _bounded_minimum(np, curvature, slope, costs, lowest)
        reach, present = 1.0, loss(costs)
        while reach > 1e-4 and loss(costs + reach * change) >= present:
            reach /= 2
        costs = costs + (reach if reach > 1e-4 else 0.0) * change
        if step >= _FIRST_INSISTING_STEP:
            ratios = shares @ costs
            near = promised & ((ratios < _NEAR_UNDER) | (ratios > _NEAR_OVER))
            weights[near] *= _INSISTENCE
    return costs


def _bounded_minimum(np: Any, curvature: Any, slope: Any, costs: Any, lowest: Any) -> Any:
    """Coordinate descent on the local parabola, every cost kept within its bounds."""
    change, gradient = np.zeros(len(costs)), slope.copy()
    for _ in range(_DESCENT_SWEEPS):
        for column in range(len(costs)):
            present = costs[column] + change[column]
            wanted = present - gradient[column] / curvature[column, column]
            step = min(max(wanted, lowest[column]), _HIGHEST_COST) - present
            if step:
                change[column] += step
                gradient += curvature[column] * step
    return change
