"""Reports the actions of a process to listeners, such as metrics.

Reports contain no content: names come from a fixed set, attributes are numbers, ids and models."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Literal, Protocol, Self, TypeAlias

MeasuredKind: TypeAlias = Literal[
    "request", "tool", "stage", "transaction", "model", "embedder", "job", "queue"
]
Attribute: TypeAlias = str | int | float | bool
CountedEvent: TypeAlias = Literal["recall", "compaction"]


@dataclass(slots=True, eq=False)
class Measured:
    """A context manager that measures an action, from entering to leaving its block."""

    kind: MeasuredKind
    name: str
    attributes: dict[str, Attribute] = field(default_factory=dict, init=False)
    outcome: str = field(default="done", init=False)
    error: str = field(default="", init=False)
    """Name of the error, from a fixed set: a kind of problem, or the class of an exception."""
    seconds: float = field(default=0.0, init=False)
    _began: float = field(default=0.0, init=False)

    def note(self, **attributes: Attribute) -> None:
        """Add attributes to the report. `__` in a name means a dot."""
        for name, value in attributes.items():
            self.attributes[name.replace("__", ".")] = value

    def set_outcome(self, outcome: str, error: str = "") -> None:
        """Set the outcome to report if the block raises no exception."""
        self.outcome, self.error = outcome, error

    def __enter__(self) -> Self:
        for listener in LISTENERS:
            listener.on_start(self)
        self._began = time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.seconds = time.perf_counter() - self._began
        if kind is not None and not self.error:
            # A cancelled action has not failed: its caller stopped waiting.
            self.set_outcome(
                "failed" if issubclass(kind, Exception) else "cancelled", kind.__name__
            )
        for listener in LISTENERS:
            listener.on_end(self)


class TelemetryListener(Protocol):
    """Receives reports. A listener must not raise, block, or keep its arguments."""

    def on_start(self, measurement: Measured) -> None:
        """Receive the start of an action."""

    def on_end(self, measurement: Measured) -> None:
        """Receive the end of an action."""

    def on_count(self, event: CountedEvent, **labels: str) -> None:
        """Receive an event without a duration."""


LISTENERS: Final[list[TelemetryListener]] = []
"""Listeners of this process: none, except in a server with telemetry turned on."""
_UNREPORTED: Final = Measured("stage", "")
"""An object that reports nothing, shared by all callers while there is no listener."""


def measure_action(kind: MeasuredKind, name: str) -> Measured:
    """Measure an action that is about to begin. `name` comes from a fixed set, without content."""
    return Measured(kind, name) if LISTENERS else _UNREPORTED


def count(event: CountedEvent, **labels: str) -> None:
    for listener in LISTENERS:
        listener.on_count(event, **labels)


@contextmanager
def without_telemetry() -> Iterator[None]:
    """Report nothing during the block, for work that no caller asked for. No other work may run
    meanwhile."""
    listeners = LISTENERS.copy()
    LISTENERS.clear()
    try:
        yield
    finally:
        LISTENERS.extend(listeners)


@contextmanager
def logging_to(handler: logging.Handler) -> Iterator[None]:
    """Send all log records only to this handler."""
    logs = (logging.getLogger(), logging.getLogger("recollect"))
    usual = [(log, log.handlers[:]) for log in logs]
    logs[0].handlers, logs[1].handlers = [handler], []
    try:
        yield
    finally:
        for log, handlers in usual:
            log.handlers = handlers
