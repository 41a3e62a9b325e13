"""What models are asked besides a conversation, counted: by day and purpose, in the store.

Owns that every call counts, also one that failed, for it was sent. Must never stop a call: where
the store refuses a count, it waits for the next one. An engine's counts are written beside its
turns (`DurableArchive.count`), those of jobs within the job.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from recollect.engine.boundary import Failure, attempted
from recollect.memory.jobs import day_of
from recollect.ports import Clock, Model
from recollect.rules.spent import model_use
from recollect.values.model import Answer, ModelUse, Prompt, Purpose
from recollect.values.reason import Cause, Reason

Used: TypeAlias = Callable[[ModelUse], None]
Record: TypeAlias = Callable[[ModelUse, str], Awaitable[object]]
"""Keeps a count under its day; raises where it was not written."""


class MeteredModel:
    """A model whose calls are counted."""

    def __init__(
        self, model: Model, clock: Clock, record: Record, *, used: Used = lambda _: None
    ) -> None:
        """`used` hears of each call, for the report of the next turn."""
        self._model = model
        self._clock = clock
        self._record = record
        self._used = used
        self._waiting: list[tuple[ModelUse, str]] = []

    @property
    def name(self) -> str:
        """As the model's."""
        return self._model.name

    @property
    def window_tokens(self) -> int | None:
        """As the model's."""
        return self._model.window_tokens

    async def ask(self, prompt: Prompt) -> Answer:
        """The model's answer; what it took is counted, also where it fails."""
        answer: Answer | None = None
        try:
            answer = await self._model.ask(prompt)
            return answer
        finally:
            use = model_use(prompt, answer)
            self._used(use)
            self._waiting.append((use, day_of(self._clock.now())))
            await self._write()

    async def close(self) -> None:
        """Close the model."""
        await self._model.close()

    async def _write(self) -> None:
        waiting, self._waiting = self._waiting, []
        for at, (use, day) in enumerate(waiting):
            if isinstance(await attempted(self._record(use, day)), Failure):  # raised or given
                self._waiting = [*waiting[at:], *self._waiting]
                return


def by_purpose(uses: Sequence[ModelUse]) -> dict[Purpose, ModelUse]:
    """The uses added up, one for each purpose."""
    found: dict[Purpose, ModelUse] = {}
    for use in uses:
        found[use.purpose] = found.get(use.purpose, ModelUse(purpose=use.purpose)) + use
    return found


def use_reason(uses: Sequence[ModelUse]) -> Reason:
    """What was asked since the last turn, for its report."""
    found = by_purpose(uses)
    return Reason(
        Cause.MODELS_ASKED,
        calls=sum(one.calls for one in found.values()),
        input_tokens=sum(one.input_tokens for one in found.values()),
        output_tokens=sum(one.output_tokens for one in found.values()),
        purposes=", ".join(f"{name} {found[name].calls}" for name in sorted(found)),
    )
