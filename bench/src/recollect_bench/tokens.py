"""The token counter held against o200k: worst errors, calibrated errors, speed, and baselines.

Owns `recollect bench tokens` and the command that re-derives the counter's tables:
`python -m recollect_bench.tokens [run | fit] [--write] [--corpus FOLDER]`. It needs `bpe-openai`
(the `bench` extra) and must never be imported by the library. Ratios are estimate / o200k.

Calibration is shown on simulated sessions: every turn adds messages, the request is the history so
far, the provider reports what o200k counts, and once in a while most of the history is removed.
The fit finds costs that make the relative error of every sample small, the worst above all (the
sixth power of the error beside its square), each within bounds, by Newton's method; samples of a
larger pool that the costs still miss are added and the fit repeated. It needs numpy and never
looks at the tables it replaces.
"""

from __future__ import annotations

import argparse
import json
import random
import string
import sys
import time
import warnings
from collections import Counter
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recollect.core.rules import tokens
from recollect.core.rules.tokens import (
    EAST_ASIAN_CLASSES,
    LETTER_CLASSES,
    SCRIPT_CLASSES,
    UNITS_PER_TOKEN,
    count_text,
    count_text_openclaw,
)
from recollect.core.values.history import TokenCalibration
from recollect.errors import MissingExtra
from recollect_bench.result import BenchResult
from recollect_bench.token_corpus import (
    HELD_KINDS,
    UNSEEN_KINDS,
    Sample,
    cut_samples,
    gather_documents,
    tile_documents,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


# Simulated sessions that show how close a calibrated count comes to the provider's


TURNS_BEFORE_MEASURING = 5
REMOVED_SHARE = 0.6
"""How much of the history a simulated compaction takes away, oldest messages first."""

_TURNS = 14
_SHRINK_AT_TURN = 10
_SESSIONS_PER_KIND = 12
# As agents have it: instructions and tools first, then messages of a few hundred to a few thousand
# characters. A single message larger than all before it is as uncertain as its own estimate.
_INSTRUCTIONS_CHARS = 6000
_LONGEST_MESSAGE_CHARS = 6000

Session = list[list[str]]
"""The messages that each turn adds."""


def simulated_sessions(documents: dict[str, list[str]]) -> dict[str, list[Session]]:
    """Sessions of each promised kind, and of kinds that follow one another or alternate."""
    held = {kind: documents[kind] for kind in HELD_KINDS if kind in documents}
    sessions: dict[str, list[Session]] = {}
    for kind, texts in held.items():
        dice = random.Random(f"session:{kind}")
        sessions[kind] = [_session(dice, [texts] * _TURNS) for _ in range(_SESSIONS_PER_KIND)]
    dice = random.Random("session:mixed")
    names = sorted(held)
    one_after_another, alternating = [], []
    for _ in range(_SESSIONS_PER_KIND * 2):
        first, then, last = (held[dice.choice(names)] for _ in range(3))
        one_after_another.append(_session(dice, [first] * 5 + [then] * 5 + [last] * 4))
        alternating.append(_session(dice, [held[dice.choice(names)] for _ in range(_TURNS)]))
    return sessions | {"one_after_another": one_after_another, "alternating": alternating}


def worst_calibrated_error(sessions: Sequence[Session], count_true: Callable[[str], int]) -> float:
    """The largest relative error of any request after five reports, shrunk requests included."""
    return max(max(calibrated_errors(session, count_true)) for session in sessions)


def calibrated_errors(session: Session, count_true: Callable[[str], int]) -> list[float]:
    """The relative error at each turn from the sixth on, as a provider that counts would see it."""
    calibration = TokenCalibration()
    history: list[tuple[int, int]] = []
    errors = []
    for turn, messages in enumerate(session):
        if turn == _SHRINK_AT_TURN:
            history = history[round(len(history) * REMOVED_SHARE) :]
        history += [(count_text(text), count_true(text)) for text in messages]
        estimated = sum(message_estimate for message_estimate, _ in history)
        reported = sum(message_true for _, message_true in history)
        if turn >= TURNS_BEFORE_MEASURING:
            errors.append(abs(calibration.apply(estimated) - reported) / reported)
        calibration = calibration.learn(estimated_tokens=estimated, reported_tokens=reported)
    return errors


def _session(dice: random.Random, texts_by_turn: Sequence[Sequence[str]]) -> Session:
    turns = [[_message(dice, texts) for _ in range(dice.randint(1, 4))] for texts in texts_by_turn]
    instructions = "\n".join(dice.choice(texts_by_turn[0]) for _ in range(8))
    turns[0].insert(0, instructions[:_INSTRUCTIONS_CHARS])
    return turns


def _message(dice: random.Random, texts: Sequence[str]) -> str:
    text = dice.choice(texts)
    wanted_chars = min(_LONGEST_MESSAGE_CHARS, round(dice.lognormvariate(6.5, 1.2)) + 20)
    length = min(len(text), wanted_chars)
    start = dice.randrange(len(text) - length + 1)
    return text[start : start + length]


# Derives the counter's cost tables from o200k


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


SMALLEST_PROMISED_CHARS = 1000
"""From this size on the bounds hold for every sample; shorter ones are reported apart."""

_SPEED_CHARS = 1_000_000
PROSE_AND_CODE = ("english", "chat_markdown", "coding_session", "python", "python_tests")
_SPEED_REPEATS = 7
# Further cuts in which the fit looks for what it misses.
_POOL_SEEDS = range(21, 27)


@cache
def _o200k() -> Any:
    with warnings.catch_warnings():  # bpe-openai 0.1.4 opens its tables in a deprecated way
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            bpe_openai = import_module("bpe_openai")
        except ModuleNotFoundError as error:
            raise MissingExtra(feature="The token bench", extra="bench") from error
        return bpe_openai.get_encoding("o200k_base")


def count_o200k(text: str) -> int:
    """The tokens of a text in OpenAI's o200k vocabulary."""
    return len(_o200k().encode_ordinary(text))


def run(progress: Callable[[str], None], *, corpus: Path | None = None) -> BenchResult:
    """Measure every sample at hand, simulated sessions, and the speed."""
    documents = gather_documents(corpus)
    progress(f"cutting samples from {sum(map(len, documents.values()))} documents")
    samples = cut_samples(documents)
    progress(f"counting {len(samples)} samples with o200k")
    true_tokens = [count_o200k(sample.text) for sample in samples]
    figures: dict[str, float] = {}
    baselines: dict[str, float] = {}
    for kind in documents:
        chosen = [(s, n) for s, n in zip(samples, true_tokens, strict=True) if s.kind == kind]
        figures |= _spread(kind, chosen, count_text)
        if kind in HELD_KINDS:
            baselines |= _spread(f"openclaw_{kind}", chosen, count_text_openclaw, short=False)
            baselines |= _spread(f"chars_4_{kind}", chosen, _quarter_of_chars, short=False)
    figures |= _worst("", figures)
    baselines |= _worst("openclaw_", baselines)
    progress("simulating calibrated sessions")
    errors = {
        f"calibrated_error_{name}": worst_calibrated_error(sessions, count_o200k)
        for name, sessions in simulated_sessions(documents).items()
    }
    least, most = min(errors.values()), max(errors.values())
    figures |= errors | {"calibrated_error_least": least, "calibrated_error_most": most}
    progress("measuring speed")
    figures |= _speed(documents)
    missing = sorted(set(HELD_KINDS) - {"python", "hex_json", "base64"} - set(documents))
    return BenchResult(
        bench="tokens",
        figures=figures,
        baselines=baselines,
        notes=(
            f"{len(samples)} samples of {len(documents)} kinds, ratios are estimate / o200k",
            f"*_under, *_over: the worst of samples from {SMALLEST_PROMISED_CHARS} characters on",
            "*_short: samples of 300 characters",
            "messages_to_json_ratio: counting messages of 550 characters / json.loads + dumps",
            *([f"no text at hand for: {', '.join(missing)}"] if missing else []),
        ),
    )


def _quarter_of_chars(text: str) -> int:
    return -(-len(text) // 4)


def _spread(
    name: str,
    chosen: Sequence[tuple[Sample, int]],
    count: Callable[[str], int],
    *,
    short: bool = True,
) -> dict[str, float]:
    rated = [(sample, count(sample.text) / true) for sample, true in chosen]
    promised = [r for s, r in rated if len(s.text) >= SMALLEST_PROMISED_CHARS]
    brief = [r for s, r in rated if len(s.text) < SMALLEST_PROMISED_CHARS]
    figures = {}
    for label, ratios in (("", promised), ("_short", brief)):
        if ratios and (short or not label):
            figures[f"{name}{label}_under"] = round(min(ratios), 3)
            figures[f"{name}{label}_over"] = round(max(ratios), 3)
    if promised:
        figures[f"{name}_median"] = round(sorted(promised)[len(promised) // 2], 3)
    return figures


def _worst(counter: str, figures: Mapping[str, float]) -> dict[str, float]:
    """The worst cases of all kinds of prose and code that a counter was held to."""
    ends = {}
    for end, worst in (("under", min), ("over", max)):
        names = [f"{counter}{kind}_{end}" for kind in PROSE_AND_CODE]
        ends[f"{counter}prose_and_code_{end}"] = worst(
            figures[name] for name in names if name in figures
        )
    return ends


def _speed(documents: dict[str, list[str]]) -> dict[str, float]:
    source = "\n".join(documents["python"])
    ascii_text = source.encode("ascii", "ignore").decode()[:_SPEED_CHARS]
    mixed = "\n".join(documents.get("japanese", ()))[: _SPEED_CHARS // 3]
    short = ascii_text[:500]
    body = [ascii_text[start : start + 550] for start in range(0, len(ascii_text), 550)]
    counting = _best_seconds(lambda: [count_text(message) for message in body])
    json_text = json.dumps(body)
    return {
        "mb_per_s": _megabytes_per_second(ascii_text),
        "japanese_mb_per_s": _megabytes_per_second(mixed),
        "microseconds_500_chars": round(_best_seconds(lambda: count_text(short), 1000) * 1e6, 2),
        "messages_to_json_ratio": round(
            counting / _best_seconds(lambda: json.dumps(json.loads(json_text))), 2
        ),
    }


def _megabytes_per_second(text: str) -> float:
    return round(len(text.encode()) / _best_seconds(lambda: count_text(text)) / 1e6, 1)


def _best_seconds(work: Callable[[], object], times: int = 1) -> float:
    best = float("inf")
    for _ in range(_SPEED_REPEATS):
        start = time.perf_counter()
        for _ in range(times):
            work()
        best = min(best, time.perf_counter() - start)
    return best / times


def fit(progress: Callable[[str], None], *, corpus: Path | None = None) -> str:
    """Re-derive the cost tables; returns the content of `rules/token_costs.json`."""
    documents = gather_documents(corpus)
    documents = {kind: texts for kind, texts in documents.items() if kind not in UNSEEN_KINDS}
    samples = [s for s in cut_samples(documents) if s.size_chars != 300]
    promised = {kind: documents[kind] for kind in HELD_KINDS if kind in documents}
    pool = tile_documents(promised)
    for seed in _POOL_SEEDS:
        pool += [s for s in cut_samples(promised, seed=seed) if s.size_chars in (1000, 2000)]
    progress(f"counting {len(samples) + len(pool)} samples with o200k")
    tables = fit_costs(
        [(sample, count_o200k(sample.text)) for sample in samples],
        [(sample, count_o200k(sample.text)) for sample in pool],
        progress,
    )
    names = ("letters", "scripts", "east_asian")
    written = [
        f'  "{name}": [\n{_table_rows(costs)}\n  ]'
        for name, costs in zip(names, tables, strict=True)
    ]
    return "{\n" + ",\n".join(written) + "\n}\n"


def error_table(result: BenchResult) -> str:
    """The errors of a run as a Markdown table, as `docs/contributing/tokens.md` shows them."""
    lines = ["| kind | under | median | over | at 300 chars |", "|---|---|---|---|---|"]
    medians = [name for name in result.figures if name.endswith("_median")]
    kinds = [name.removesuffix("_median") for name in medians]
    for kind in sorted(kinds, key=lambda kind: (kind not in HELD_KINDS, kind)):
        under, over, short_under, short_over = (
            result.figures.get(f"{kind}{suffix}", float("nan"))
            for suffix in ("_under", "_over", "_short_under", "_short_over")
        )
        name = f"**{kind}**" if kind in HELD_KINDS else kind
        median = result.figures[f"{kind}_median"]
        short = f"{short_under:.2f} to {short_over:.2f}"
        lines.append(f"| {name} | {under:.3f} | {median:.3f} | {over:.3f} | {short} |")
    return "\n".join(lines) + "\n"


def _table_rows(costs: Sequence[int]) -> str:
    rows = (costs[start : start + 16] for start in range(0, len(costs), 16))
    return ",\n".join("    " + ", ".join(f"{cost:3}" for cost in row) for row in rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line of this module."""
    parser = argparse.ArgumentParser(prog="python -m recollect_bench.tokens")
    parser.add_argument("action", choices=("run", "fit"), nargs="?", default="run")
    parser.add_argument("--corpus", type=Path, help="a folder of unpacked packages")
    parser.add_argument("--write", action="store_true", help="rewrite the tables in the source")
    parser.add_argument("--markdown", action="store_true", help="print the table of the docs")
    chosen = parser.parse_args(arguments)

    def progress(line: str) -> None:
        sys.stderr.write(line + "\n")

    if chosen.action == "fit":
        tables = fit(progress, corpus=chosen.corpus)
        sys.stdout.write(tables)
        if chosen.write:
            tokens.COSTS_FILE.write_text(tables, encoding="utf-8")
        return
    result = run(progress, corpus=chosen.corpus)
    if chosen.markdown:
        sys.stdout.write(error_table(result))
        return
    for title, figures in (("figures", result.figures), ("baselines", result.baselines)):
        sys.stdout.write(f"{title}\n")
        sys.stdout.writelines(f"  {name:40} {figure:10.3f}\n" for name, figure in figures.items())
    sys.stdout.writelines(f"{note}\n" for note in result.notes)


if __name__ == "__main__":
    main()
