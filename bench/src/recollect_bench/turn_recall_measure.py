"""Times recalls, whole and bare, question by question, turn and turn about.

Owns the pairing and the clock. Each question is asked in several rounds; whole and bare follow
upon each other, and who is first changes, so that what else the machine does hits both alike.
It must never time the making of questions. Always holds: times are wall clock as a turn that
awaits `recall` sees them.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any, Final, TypeAlias, cast

from recollect.config.settings import Recall as RecallSettings
from recollect.ports import Archive
from recollect.turn.recall import recall
from recollect.values.recall import Recalled
from recollect_bench.turn_recall_bare import Bare, Issued, Recorder
from recollect_bench.turn_recall_data import Asked

STEPS: Final = (
    "question", "candidates", "gate", "fact_candidates", "seeds", "around", "rank", "segments",
    "pack",
)  # fmt: skip
"""The steps of a recall, by what is awaited: reading the question before the candidates, the gate
behind them, facts and seeds, ranking behind the surroundings, packing and explaining at the end."""
_AFTER: Final = {
    "candidates": "gate",
    "fact_candidates": "seeds",
    "around": "rank",
    "segments": "pack",
}
"""What recall does itself behind what it awaits."""


Taken: TypeAlias = tuple[float, float]
"""Seconds by the wall clock, and of processor time, which a busy machine hardly lengthens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """How long recalls took: a list for each question, of one entry a round."""

    whole: list[list[Taken]] = field(default_factory=list)
    bare: list[list[Taken]] = field(default_factory=list)
    steps: Mapping[str, float] = field(default_factory=dict)
    """Seconds of each step, over all questions of one round."""
    opened: int = 0
    """How many questions opened the gate."""
    passages: int = 0
    """How many passages were handed on, over all questions."""
    statements: int = 0
    """How many SQL statements were issued, over all questions."""

    def __add__(self, other: Timed) -> Timed:
        return Timed(
            whole=self.whole + other.whole,
            bare=self.bare + other.bare,
            steps={step: self.steps.get(step, 0.0) + other.steps.get(step, 0.0) for step in STEPS},
            opened=self.opened + other.opened,
            passages=self.passages + other.passages,
            statements=self.statements + other.statements,
        )

    @property
    def ratio(self) -> float:
        """Whole over bare by the wall clock."""
        return self._ratio(0)

    @property
    def processor_ratio(self) -> float:
        """Whole over bare in processor time, of all threads."""
        return self._ratio(1)

    def _ratio(self, clock: int) -> float:
        """The median over the questions, each at the best of its rounds."""
        best = [
            [min(taken[clock] for taken in rounds) for rounds in side]
            for side in (self.whole, self.bare)
        ]
        return float(median(whole / bare for whole, bare in zip(*best, strict=True)))


def wall_seconds(side: Sequence[Sequence[Taken]]) -> list[float]:
    """Of every question and round, by the wall clock."""
    return [taken[0] for rounds in side for taken in rounds]


async def time_recalls(
    archive: Archive,
    questions: Sequence[Asked],
    settings: RecallSettings,
    *,
    rounds: int,
    recorder: Recorder | None = None,
    bare: Bare | None = None,
) -> Timed:
    """Ask every question in so many rounds; with `bare`, run what each issued bare beside it."""
    issued = [Issued() for _ in questions]
    opened = passages = 0
    for asked, into in zip(questions, issued, strict=True):  # warms up too
        if recorder is None:
            answer = await recall_one(archive, asked, settings)
        else:
            with recorder.writing_down(into):
                answer = await recall_one(archive, asked, settings)
        opened += answer.gate is not None and answer.gate.open
        passages += len(answer.passages)
    whole: list[list[Taken]] = [[] for _ in questions]
    alone: list[list[Taken]] = [[] for _ in questions if bare is not None]
    for turn in range(rounds):
        gc.collect()
        for at, asked in enumerate(questions):
            for ours in ((turn + at) % 2 == 0, (turn + at) % 2 == 1):
                started = _clocks()
                if ours:
                    await recall_one(archive, asked, settings)
                    whole[at].append(_since(started))
                elif bare is not None:
                    bare.run(issued[at])
                    alone[at].append(_since(started))
    return Timed(
        whole=whole,
        bare=alone,
        steps=await _steps(archive, questions, settings),
        opened=opened,
        passages=passages,
        statements=sum(len(one.statements) for one in issued),
    )


async def recall_one(archive: Archive, asked: Asked, settings: RecallSettings) -> Recalled:
    """One recall as a turn awaits it."""
    return await recall(asked.request, archive=archive, vectors=asked.vectors, settings=settings)


async def _steps(
    archive: Archive, questions: Sequence[Asked], settings: RecallSettings
) -> Mapping[str, float]:
    """Seconds of each step, in a round of its own."""
    taken = dict.fromkeys(STEPS, 0.0)
    for asked in questions:
        watched = _Watched(archive)
        started = time.perf_counter()
        # a stand-in that passes everything on, for which no protocol is worth writing
        await recall_one(cast("Archive", watched), asked, settings)
        ended = time.perf_counter()
        marks = [("question", started), *watched.marks, ("", ended)]
        for (step, begun), (_, over) in pairwise(marks):
            taken[step] += over - begun
    return taken


class _Watched:
    """An archive that notes when it was asked, and what comes after each answer."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self.marks: list[tuple[str, float]] = []

    def __getattr__(self, name: str) -> Any:
        asked = getattr(self._archive, name)
        if name not in _AFTER:  # a small question within a step
            return asked

        async def noted(*given: Any, **named: Any) -> Any:
            self.marks.append((name, time.perf_counter()))
            answer = await asked(*given, **named)
            self.marks.append((_AFTER[name], time.perf_counter()))
            return answer

        return noted


def _clocks() -> Taken:
    return time.perf_counter(), time.process_time()


def _since(started: Taken) -> Taken:
    wall, processor = _clocks()
    return wall - started[0], processor - started[1]
