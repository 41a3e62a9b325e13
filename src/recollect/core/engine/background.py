"""Background jobs: their handlers, the count of their model calls, and their lines in reports."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeVar, runtime_checkable

from recollect.core.boundary import Component, Failure, SystemClock, attempted
from recollect.core.engine.archive import DurableArchive
from recollect.core.ports import Clock, Embedder, Model, Store
from recollect.core.rules.tokens import model_use
from recollect.core.upkeep.chores import embed, expire
from recollect.core.upkeep.jobs import BackgroundJobs, Handler, JobRunner, day_of
from recollect.core.values.batch import EMBED_JOB, EXTRACT_JOB, Batch, Lease
from recollect.core.values.model import Answer, ModelUse, Prompt, Purpose
from recollect.core.values.reason import Cause, Reason
from recollect.errors import ModelError, ModelUnavailable, StoreError
from recollect.system.config import Settings

if TYPE_CHECKING:
    from recollect.core.facts.extract import Notify

Used: TypeAlias = Callable[[ModelUse], None]
Record: TypeAlias = Callable[[ModelUse, str], Awaitable[object]]


METER: Final[ContextVar[Used | None]] = ContextVar("recollect_meter", default=None)


class MeteredModel:
    """Counts the calls of a model."""

    def __init__(
        self, model: Model, clock: Clock, record: Record, *, used: Used = lambda _: None
    ) -> None:
        """`used` is called with each model call, for the next turn's report."""
        self._model = model
        self._clock = clock
        self._record = record
        self._used = used
        self._waiting: deque[tuple[ModelUse, str]] = deque()

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def window_tokens(self) -> int | None:
        return self._model.window_tokens

    async def ask(self, prompt: Prompt) -> Answer:
        """Return the model's answer. A failed call is counted, and its prompt only if the model may
        have read it: if the reply broke off, or the caller no longer waits for it."""
        answer: Answer | None = None
        prompt_read = True
        try:
            answer = await self._model.ask(prompt)
        except ModelError as error:
            prompt_read = isinstance(error, ModelUnavailable) and error.prompt_read
            raise
        else:
            return answer
        finally:
            use = model_use(prompt, answer, prompt_read=prompt_read)
            self._used(use)
            meter = METER.get()
            if meter is not None:
                meter(use)
            self._waiting.append((use, day_of(self._clock.now())))
            while self._waiting:
                waiting = self._waiting.popleft()
                if isinstance(await attempted(self._record(*waiting)), Failure):
                    self._waiting.appendleft(waiting)  # store this count with that of the next call
                    break

    async def close(self) -> None:
        await self._model.close()


def sum_by_purpose(uses: Sequence[ModelUse]) -> dict[Purpose, ModelUse]:
    model_uses: dict[Purpose, ModelUse] = {}
    for use in uses:
        model_uses[use.purpose] = model_uses.get(use.purpose, ModelUse(purpose=use.purpose)) + use
    return model_uses


def use_reason(uses: Sequence[ModelUse]) -> Reason:
    """Summarize the model calls since the last turn, for the next report."""
    model_uses = sum_by_purpose(uses)
    return Reason(
        Cause.MODELS_ASKED,
        calls=sum(use.calls for use in model_uses.values()),
        input_tokens=sum(use.input_tokens for use in model_uses.values()),
        output_tokens=sum(use.output_tokens for use in model_uses.values()),
        purposes=", ".join(f"{name} {model_uses[name].calls}" for name in sorted(model_uses)),
    )


MAX_LINES: Final = 8
"""Not measured; bounds the lines about facts in one report."""


class BackgroundNotes:
    """What happened in the background since the last turn, for the next turn's report."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=MAX_LINES)
        self._uses: list[ModelUse] = []

    def add_line(self, line: str) -> None:
        self._lines.append(line)

    def add_use(self, use: ModelUse) -> None:
        self._uses = list(sum_by_purpose([*self._uses, use]).values())

    def take(self) -> tuple[tuple[str, ...], tuple[ModelUse, ...]]:
        lines, uses = tuple(self._lines), tuple(self._uses)
        self._lines.clear()
        self._uses = []
        return lines, uses

    def put_back(self, lines: Sequence[str], uses: Sequence[ModelUse]) -> None:
        """Put back the lines of a report that no caller received, for the next report."""
        self._lines.extendleft(reversed(lines))
        self._uses = list(sum_by_purpose([*uses, *self._uses]).values())


T = TypeVar("T")


@runtime_checkable
class PacksItsIndex(Protocol):
    """A store that can reorder its index in jobs of the kind "pack"."""

    async def pack(self) -> int:
        """Reorder the index. Return the number of passages moved."""
        ...


def handlers_of(
    store: Store,
    settings: Settings,
    clock: Clock,
    embedders: Sequence[Embedder] = (),
    *,
    model: Model | None = None,
    notify: Notify = lambda _: None,
) -> Mapping[str, Handler]:
    """Return the handler for each kind of job of this space. The model extracts facts."""
    names = tuple(embedder.name for embedder in embedders)

    handlers: dict[str, Handler] = {
        "expire": partial(
            expire, store=store, clock=clock, retention_days=settings.ledger.retention_days
        )
    }
    if model is not None:  # without a model, these jobs wait for a worker that has one
        reader = model

        def extraction() -> Handler:
            from recollect.core.facts.extract import Extraction

            return Extraction(
                store=store,
                settings=settings,
                clock=clock,
                model=reader,
                embedders=names,
                notify=notify,
            ).extract

        handlers[EXTRACT_JOB] = _make_when_needed(extraction)
    elif settings.models.extraction is None:
        # Drop jobs that were queued while a model was set.
        handlers[EXTRACT_JOB] = partial(_drop, clock=clock)
    if embedders:
        handlers[EMBED_JOB] = partial(embed, store=store, embedders=tuple(embedders), clock=clock)
    if isinstance(store, PacksItsIndex):
        handlers["pack"] = partial(_pack, store=store, clock=clock)
    return handlers


def _make_when_needed(make: Callable[[], Handler]) -> Handler:
    handlers: list[Handler] = []

    async def handle(lease: Lease) -> Batch:
        if not handlers:
            handlers.append(await asyncio.to_thread(make))
        return await handlers[0](lease)

    return handle


def meter_model(
    model: Model, store: Store, clock: Clock, used: Used = lambda _: None
) -> MeteredModel:
    async def record(use: ModelUse, day: str) -> None:
        await store.add_model_use(use, day=day)

    return MeteredModel(model, clock, record, used=used)


def runner_of(
    store: Store,
    settings: Settings,
    clock: Clock | None = None,
    embedders: Sequence[Embedder] = (),
    *,
    model: Model | None = None,
    notify: Notify = lambda _: None,
    used: Used = lambda _: None,
    on_end: Callable[[str, Failure | None], None] = lambda _kind, _failure: None,
) -> JobRunner:
    """Make a worker for this space, which calls `on_end` per job and `used` per model call."""
    clock = clock or SystemClock()
    if model is not None:
        model = meter_model(model, store, clock, used)
    return JobRunner(
        store,
        handlers_of(store, settings, clock, embedders, model=model, notify=notify),
        clock,
        day_tokens=settings.jobs.day_tokens,
        on_end=on_end,
    )


def in_process_jobs(
    archive: DurableArchive,
    settings: Settings,
    clock: Clock | None,
    embedders: Sequence[Embedder] = (),
    *,
    model: Model | None = None,
    notify: Notify = lambda _: None,
    used: Used = lambda _: None,
) -> BackgroundJobs | None:
    """Make the worker inside the engine's process; None if separate workers run the jobs."""
    if not settings.jobs.in_process:
        return None

    component = Component("jobs")

    def on_end(kind: str, failure: Failure | None) -> None:
        if failure is None:
            component.recover(whose=kind)
        elif not issubclass(failure.error, StoreError):
            # Failures of the store are reported by its own component.
            component.fail(f"{kind}: {failure.said}", whose=kind)

    async def open_runner() -> JobRunner:
        store = await archive.store()
        return runner_of(
            store, settings, clock, embedders, model=model, notify=notify, used=used, on_end=on_end
        )

    return BackgroundJobs(open_runner, on_end=on_end, trouble=component.trouble)


async def _drop(lease: Lease, *, clock: Clock) -> Batch:
    del lease
    return Batch(at=clock.now())


async def _pack(lease: Lease, *, store: PacksItsIndex, clock: Clock) -> Batch:
    del lease
    await store.pack()
    return Batch(at=clock.now())
