"""The token counter held against o200k: worst errors, calibrated errors, speed, and baselines.

Owns `recollect bench tokens` and the command that re-derives the counter's tables:
`python -m recollect_bench.tokens [run | fit] [--write] [--corpus FOLDER]`. It needs `bpe-openai`
(the `bench` extra) and must never be imported by the library. Ratios are estimate / o200k.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
import warnings
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recollect.errors import MissingExtra
from recollect.rules import token_costs
from recollect.rules.tokens import count_text, count_text_openclaw
from recollect_bench.result import BenchResult
from recollect_bench.token_corpus import (
    HELD_KINDS,
    UNSEEN_KINDS,
    Sample,
    cut_samples,
    gather_documents,
    tile_documents,
)
from recollect_bench.token_fit import fit_costs
from recollect_bench.token_sessions import simulated_sessions, worst_calibrated_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SMALLEST_PROMISED_CHARS = 1000
"""From this size on the bounds hold for every sample; shorter ones are reported apart."""

_SPEED_CHARS = 1_000_000
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
    progress("simulating calibrated sessions")
    for name, sessions in simulated_sessions(documents).items():
        figures[f"calibrated_error_{name}"] = worst_calibrated_error(sessions, count_o200k)
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
    """Re-derive the cost tables; returns the rows as they stand in `rules/token_costs.py`."""
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
    names = ("LETTER_COSTS", "SCRIPT_COSTS", "EAST_ASIAN_COSTS")
    return "".join(
        f"{name} = bytes((\n{_table_rows(costs)}))\n"
        for name, costs in zip(names, tables, strict=True)
    )


def error_table(result: BenchResult) -> str:
    """The errors of a run as a Markdown table, as `docs/tokens.md` shows them."""
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
    return "".join("    " + ", ".join(f"{cost:3}" for cost in row) + ",\n" for row in rows)


def write_tables(tables: str, path: Path) -> None:
    """Put freshly fitted rows in the place of those in `rules/token_costs.py`."""
    source = path.read_text(encoding="utf-8")
    pattern = r"(?s)(?<=# fmt: off\n)LETTER_COSTS = .*(?=# fmt: on\n)"
    path.write_text(re.sub(pattern, lambda _: tables, source), encoding="utf-8")


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
            write_tables(tables, Path(token_costs.__file__))
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
