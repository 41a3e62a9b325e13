"""The model that the facts bench asks on demand: a server, the settings' own, or weights.

Owns how it is reached and what of it is counted. Must never reach anything that was not named on
the command line or in the settings, and never fetch weights; a server that was started here ends
with the run. A model is slow, so what is done is kept (counts only, no word of a case or draft)
and a stopped run goes on; it reports rules and rules with the model on the same cases.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final

from recollect.config import load_settings
from recollect.errors import ModelError, RecollectError, SettingsError
from recollect.facts.extract import Extracted
from recollect.ports import Model
from recollect.providers.openai import OpenAIChatModel
from recollect.values.model import Answer, Prompt
from recollect.wiring.models import choose_model
from recollect_bench.facts.baselines import extracted, inferred_too
from recollect_bench.facts.cases import Case
from recollect_bench.facts.score import Tally, score
from recollect_bench.llama_server import LlamaMissingError, LlamaServer

OF_SETTINGS: Final = "settings"
CALL_SECONDS: Final = 900.0
"""A small model on two cores reads and writes some ten tokens a second."""
WINDOW_TOKENS: Final = 8192
"""Of a server that is started here: a case, its instructions and an answer fit twice."""


class TimedModel:
    """A model that is looked at: how often it was asked, for how long, for how many tokens."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.calls = 0
        self.seconds = 0.0
        self.input_tokens = 0
        self.output_tokens = 0

    @property
    def name(self) -> str:
        """The model's own."""
        return self._model.name

    @property
    def window_tokens(self) -> int | None:
        """The model's own."""
        return self._model.window_tokens

    async def ask(self, prompt: Prompt) -> Answer:
        """Ask, and count it; one that failed took its time, too."""
        self.calls += 1
        started = time.perf_counter()
        try:
            answer = await self._model.ask(prompt)
        finally:
            self.seconds += time.perf_counter() - started
        if answer.usage is not None:
            self.input_tokens += answer.usage.input_tokens
            self.output_tokens += answer.usage.output_tokens
        return answer

    async def close(self) -> None:
        """Give back the model's connections."""
        await self._model.close()


@asynccontextmanager
async def opened_model(named: str | None, gguf: Path | None) -> AsyncIterator[TimedModel]:
    """The model at a URL, of the settings, or of a file of weights."""
    if gguf is not None:
        with _server(gguf) as server:
            async with _closing(_at(server.base_url, server.gguf.stem, WINDOW_TOKENS)) as model:
                yield model
        return
    assert named is not None
    async with _closing(_of_settings() if named == OF_SETTINGS else _at(named, "default")) as model:
        yield model


def _server(gguf: Path) -> LlamaServer:
    if not gguf.is_file():
        raise RecollectError("--gguf names a file that is not there")
    try:
        return LlamaServer(gguf, window_tokens=WINDOW_TOKENS)
    except LlamaMissingError as missing:
        raise RecollectError(str(missing)) from missing


@asynccontextmanager
async def _closing(model: Model) -> AsyncIterator[TimedModel]:
    try:
        yield TimedModel(model)
    finally:
        await model.close()


def _at(url: str, name: str, window_tokens: int | None = None) -> Model:
    return OpenAIChatModel(
        model=name, base_url=url, deadline_seconds=CALL_SECONDS, window_tokens=window_tokens
    )


def _of_settings() -> Model:
    model = choose_model(load_settings().settings, "extraction")
    if model is None:
        raise SettingsError(
            "the settings name no model: set models.provider and models.extraction, or give "
            "--model the URL of a server that speaks Chat Completions"
        )
    return model


# Extracts cases with a model, case by case


_MALFORMED: Final = "malformed"
_FOUND_ALREADY: Final = "it was found already"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRun:
    """What one case came to, in numbers."""

    wanted: int = 0
    wanted_inferred_too: int = 0
    found_inferred_too_rules: int = 0
    found_inferred_too: int = 0
    found_rules: int = 0
    drafts_rules: int = 0
    matched_rules: int = 0
    found: int = 0
    drafts: int = 0
    matched: int = 0
    typed: int = 0
    kept_model: int = 0
    refused_model: int = 0
    malformed_model: int = 0
    known_model: int = 0
    failed: int = 0
    """The model did not answer, so the rules' drafts stand alone."""
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0


def spread(cases: Sequence[Case], most: int | None) -> list[Case]:
    """So many of the cases, from all over them: their languages follow each other."""
    if most is None or most >= len(cases):
        return list(cases)
    return [cases[at * len(cases) // most] for at in range(most)]


async def read_with_model(
    cases: Sequence[Case],
    model: TimedModel,
    *,
    kept: Path | None = None,
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> dict[str, CaseRun]:
    """Every case with the model; those that `kept` knows of this model are taken from there.

    `kept` knows nothing of the version of the rules: begin another file when they change.
    """
    known = _known(kept, model.name)
    runs: dict[str, CaseRun] = {}
    try:
        for at, case in enumerate(cases):
            progress("reading cases with the model", at, len(cases))
            runs[case.id] = known.get(case.id) or await _read(case, model)
            if case.id not in known:
                _keep(kept, model.name, case.id, runs[case.id])
    except asyncio.CancelledError:
        if not runs:  # nothing to report
            raise
    return runs


async def _read(case: Case, model: TimedModel) -> CaseRun:
    rules = await extracted(case)
    before = (model.calls, model.input_tokens, model.output_tokens)
    started = time.perf_counter()
    try:
        both, failed = await extracted(case, model), 0
    except ModelError:
        both, failed = rules, 1
    seconds = time.perf_counter() - started
    alone = score([case], {case.id: rules.drafts}).total
    wider = [
        score([inferred_too(case)], {case.id: extraction.drafts}).total
        for extraction in (rules, both)
    ]
    return CaseRun(
        wanted=alone.wanted,
        wanted_inferred_too=wider[0].wanted,
        found_inferred_too_rules=wider[0].found,
        found_inferred_too=wider[1].found,
        found_rules=alone.found,
        drafts_rules=alone.drafts,
        matched_rules=alone.matched,
        **_of_model(score([case], {case.id: both.drafts}).total, rules, both),
        failed=failed,
        calls=model.calls - before[0],
        input_tokens=model.input_tokens - before[1],
        output_tokens=model.output_tokens - before[2],
        seconds=round(seconds, 3),
    )


def _of_model(total: Tally, rules: Extracted, both: Extracted) -> dict[str, int]:
    reasons = [refused_draft.reason for refused_draft in both.refused[len(rules.refused) :]]
    malformed, known = reasons.count(_MALFORMED), reasons.count(_FOUND_ALREADY)
    return {
        "found": total.found,
        "drafts": total.drafts,
        "matched": total.matched,
        "typed": total.typed,
        "kept_model": sum(draft.made_by == "model" for draft in both.drafts),
        "refused_model": len(reasons) - malformed - known,
        "malformed_model": malformed,
        "known_model": known,
    }


def model_figures(runs: Mapping[str, CaseRun]) -> dict[str, float]:
    """The runs together."""
    names = [field.name for field in fields(CaseRun)]
    sums = CaseRun(**{name: sum(getattr(run, name) for run in runs.values()) for name in names})
    claims = sums.kept_model + sums.refused_model
    tokens = sums.input_tokens + sums.output_tokens
    figures = {
        "cases": float(len(runs)),
        "found_rules": _share(sums.found_rules, sums.wanted),
        "precision_rules": _share(sums.matched_rules, sums.drafts_rules),
        "found_inferred_too_rules": _share(sums.found_inferred_too_rules, sums.wanted_inferred_too),
        "found": _share(sums.found, sums.wanted),
        "found_inferred_too": _share(sums.found_inferred_too, sums.wanted_inferred_too),
        "precision": _share(sums.matched, sums.drafts),
        "type_accuracy": _share(sums.typed, sums.matched),
        "precision_model_alone": _share(sums.matched - sums.matched_rules, sums.kept_model),
        "model_drafts": float(sums.kept_model),
        "model_refused_share": _share(sums.refused_model, claims, none=0.0),
        "model_malformed": float(sums.malformed_model),
        "model_found_by_rules_already": float(sums.known_model),
        "cases_failed": float(sums.failed),
        "calls": float(sums.calls),
        "seconds": sums.seconds,
        "tokens_per_second": tokens / sums.seconds if sums.seconds else 0.0,
        "output_tokens_per_second": sums.output_tokens / sums.seconds if sums.seconds else 0.0,
    }
    return {name: round(value, 4) for name, value in figures.items()}


def _share(part: int, whole: int, *, none: float = 1.0) -> float:
    return part / whole if whole else none


def _known(kept: Path | None, model: str) -> dict[str, CaseRun]:
    if kept is None or not kept.is_file():
        return {}
    lines = [json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines()]
    return {line["case"]: CaseRun(**line["run"]) for line in lines if line["model"] == model}


def _keep(kept: Path | None, model: str, case: str, run: CaseRun) -> None:
    if kept is not None:
        with kept.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"model": model, "case": case, "run": asdict(run)}) + "\n")
