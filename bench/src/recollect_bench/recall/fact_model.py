"""The model that reads memories of the recall bench for facts, where one was asked for.

Owns that its answers are kept where that is wanted, and what of it is told. Must never ask a model
that was not named. Always holds: calls and seconds are of this run alone; answers that were kept
cost nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from recollect.ports import Model
from recollect_bench.facts.models import TimedModel, opened_model
from recollect_bench.recall.fact_answers import KeptAnswers


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingModel:
    """A model and what is counted of it."""

    model: Model
    timed: TimedModel

    def figures(self) -> dict[str, float]:
        """What it was asked in this run."""
        return {
            "model_calls": self.timed.calls,
            "model_seconds": round(self.timed.seconds, 1),
            "input_tokens": self.timed.input_tokens,
            "output_tokens": self.timed.output_tokens,
        }


@asynccontextmanager
async def reading_model(
    named: str | None, gguf: Path | None, *, keep: Path | None
) -> AsyncIterator[ReadingModel | None]:
    """The model at a URL or of a file of weights; None where neither was named."""
    if named is None and gguf is None:
        yield None
        return
    async with opened_model(named, gguf) as timed:
        kept = timed if keep is None else KeptAnswers(timed, keep / "answers.jsonl")
        yield ReadingModel(model=kept, timed=timed)
