"""`recollect bench facts`: what is extracted of what was stated plainly, and how much of noise.

Owns the options of a run and how its figures are named. Every case is extracted on its own by the
rules; then all of them stand in one memory, a real store with the engine's own jobs, buried in
noise; chains of corrections go the same way; with a model on demand, the cases once more. What is
read from a store is read twice: as one memory, and as shipped, every session by itself. It must
never show a single case of the half that is held out, nor tune anything. Always holds: a figure is
measured in this run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final

from recollect.errors import RecollectError
from recollect_bench.facts.baselines import by_keywords, by_rules, figures_of, stricter_figures
from recollect_bench.facts.buried import buried_figures
from recollect_bench.facts.bury import bury
from recollect_bench.facts.cases import BOTH, HELD_OUT, TUNE, Case, load_halves
from recollect_bench.facts.chains import CHAINS, check_through_store
from recollect_bench.facts.junk import junk_facts
from recollect_bench.facts.models import (
    TimedModel,
    model_figures,
    opened_model,
    read_with_model,
    spread,
)
from recollect_bench.facts.result import FactsResult, Slip
from recollect_bench.facts.result import draw as draw
from recollect_bench.facts.score import Score, Tally, score
from recollect_bench.facts.through_store import SCOPES, remember

NOISE_MESSAGES: Final = 10_000
SEED: Final = 6
NOTES: Final = (
    "found: share of the facts that one sentence states plainly and a fair judge wants kept;",
    "  precision: share of what was extracted that says a fact the judges listed for that case;",
    "  the cases and labels were written without sight of the extractor, half of them held out",
    "  (held_out) and never tuned on; a fact is said by a draft whose words, or whose sentence in",
    "  the message, hold its keys; strict: whose own words hold them; found_inferred_too: of all",
    "  facts that judges want kept, those too that no sentence states plainly",
    "type_accuracy: share of the right ones that have the type the judges gave",
    "noise: all cases in one SQLite memory, each a session with noise between its messages, read",
    "  by the engine's own jobs; every other wording of noise belongs to the held-out half;",
    "  found_difference_points: to the same cases without noise; noise, chains: one memory of all",
    "  sessions (recall.scope space); session_scope: as shipped, each session a memory of its own",
    "noise_share: facts that rest on noise alone, by message of noise, superseded ones included;",
    "  noise_named_share: messages of noise that any fact names, also as one more source of it:",
    "  far more, because what a loop repeats is one fact with many sources",
    "facts_twice: current facts that say what another in their reach says, in the same words or as",
    "  the same value of the same thing; facts_from_recalled: that rest on",
    "  a message with a recalled block; current_kept: found facts that hold and are current;",
    "  outdated_closed: found facts (outdated_found) that were replaced in their case and are",
    "  closed; facts_replaced_wrongly: of the facts of cases that another took the place of",
    "  (facts_replaced), those that say nothing outdated",
    "chains: things that are told and then corrected up to seven times, as users' messages among",
    "  each other, with no model; their wordings were known to who wrote the rules, so they show",
    "  that nothing goes wrong, not how much is found of what is new;",
    "  extracted: share of the corrections that became facts at all;",
    "  last_extracted: chains whose last correction did; last_extracted_holds: of the chains of",
    "  which anything became a fact, those whose one current fact is the last statement that did;",
    "  as_of_right: moments at which the version is told that held then, by what became facts;",
    "  misread: statements whose fact says something else; closed_by_another: facts that a fact of",
    "  another chain closed; facts_of_several: that rest on more than one chain",
    "keywords: every sentence that holds one of some fifty words is a fact",
)
MODEL_NOTES: Final = (
    "model: rules and the model together; found_rules, precision_rules: the rules on the same",
    "  cases; model_refused_share: of the statements the model made that no rule had found, those",
    "  whose words do not stand where they are said to rest, or that may not be facts",
)


def run(
    progress: Any = lambda *_: None,
    *,
    half: str = BOTH,
    noise: int = NOISE_MESSAGES,
    model: str | None = None,
    gguf: str | None = None,
    most: int | None = None,
    out: str | None = None,
    misses: int = 0,
) -> FactsResult:
    """Extract the cases by rules, buried in noise, and on demand with a model."""
    asks = model is not None or gguf is not None
    _refuse(half, asks=asks, bounded=most is not None or out is not None, misses=misses)
    halves = load_halves(half)
    figures: dict[str, float] = {}
    baselines: dict[str, float] = {}
    slips: list[Slip] = []
    plain = Tally()
    for name, cases in halves.items():
        progress(f"rules on {len(cases)} cases ({name})")
        scored = _by_rules(name, cases, figures)
        plain = plain.plus(scored.total)
        baselines |= _named(
            f"keywords.{name}", figures_of(score(cases, by_keywords(cases)), parts=False)
        )
        slips += _slips(scored, misses)
    if noise:
        noisy, left = _in_noise(halves, noise, half, plain, progress)
        figures |= _named("noise", noisy)
        slips += left
    chained, closed = _in_chains(progress)
    figures |= _named("chains", chained)
    slips += closed
    if asks:
        kept = None if out is None else Path(out).expanduser()
        asked = opened_model(model, None if gguf is None else Path(gguf).expanduser())
        figures |= asyncio.run(_with_model(halves, asked, most, kept, progress))
    return FactsResult(
        bench="facts",
        figures=figures,
        baselines=baselines,
        notes=(*NOTES, *(MODEL_NOTES if asks else ())),
        slips=tuple(slips[:misses]),
    )


def _refuse(half: str, *, asks: bool, bounded: bool, misses: int) -> None:
    if misses and half != TUNE:
        raise RecollectError(
            "--misses shows single cases, and those of the held-out half stay unseen: add "
            "--half tune"
        )
    if bounded and not asks:
        raise RecollectError("--most and --out are for runs with a model: add --model or --gguf")


def _by_rules(name: str, cases: Sequence[Case], figures: dict[str, float]) -> Score:
    drafts = asyncio.run(by_rules(cases))
    scored = score(cases, drafts)
    figures |= _named(name, figures_of(scored) | stricter_figures(cases, drafts))
    return scored


def _in_noise(
    halves: Mapping[str, tuple[Case, ...]], noise: int, half: str, plain: Tally, progress: Any
) -> tuple[dict[str, float], list[Slip]]:
    """All cases of the run in one memory, then as shipped, and what noise left there."""
    cases = [case for held in halves.values() for case in held]
    sittings = bury(cases, noise=noise, seed=SEED, half=half)
    figures: dict[str, float] = {}
    slips: list[Slip] = []
    for prefix, scope in SCOPES.items():
        kept = asyncio.run(remember(sittings, progress, scope=scope))
        told = buried_figures(cases, kept, noise=noise, plain=plain)
        figures |= {f"{prefix}{name}": value for name, value in told.items()}
        slips += [
            Slip(case=f"noise: {family}", missed=False, said=fact.content, type=fact.type)
            for family, fact in junk_facts(kept)
        ]
    return figures, list(dict.fromkeys(slips))


def _in_chains(progress: Any) -> tuple[dict[str, float], list[Slip]]:
    """Chains of corrections in one memory, then as shipped, and what closed what it should not."""
    figures: dict[str, float] = {}
    slips: list[Slip] = []
    for prefix, scope in SCOPES.items():
        started = time.perf_counter()
        checked = check_through_store(CHAINS, scope=scope, progress=progress)
        figures |= {f"{prefix}{name}": value for name, value in checked.figures.items()}
        figures[f"{prefix}seconds"] = round(time.perf_counter() - started, 2)
        slips += [
            Slip(
                case=f"chains, scope {scope}: closed by another",
                missed=False,
                said=f"{closing.closed.content} <- {closing.by.content}",
                type=closing.closed.type,
            )
            for closing in checked.wrongly_closed
        ]
    return figures, slips


async def _with_model(
    halves: Mapping[str, tuple[Case, ...]],
    asked: AbstractAsyncContextManager[TimedModel],
    most: int | None,
    kept: Path | None,
    progress: Any,
) -> dict[str, float]:
    figures: dict[str, float] = {}
    async with asked as model:
        for name, cases in halves.items():
            chosen = spread(cases, most)
            runs = await read_with_model(chosen, model, kept=kept, progress=progress)
            figures |= _named(f"model.{name}", model_figures(runs))
            if len(runs) < len(chosen):
                break  # stopped; what was done is reported
    return figures


def _slips(scored: Score, most: int) -> list[Slip]:
    if not most:
        return []
    lost = [
        Slip(case=missed.case, missed=True, said=", ".join(missed.fact.keys), type=missed.fact.type)
        for missed in scored.missed
    ]
    made_up = [
        Slip(case=false_.case, missed=False, said=false_.draft.content, type=false_.draft.type)
        for false_ in scored.false
    ]
    return [*made_up, *lost]


def _named(prefix: str, figures: Mapping[str, float]) -> dict[str, float]:
    flat = prefix.replace(HELD_OUT, "held_out")
    return {f"{flat}.{name}": value for name, value in figures.items()}
