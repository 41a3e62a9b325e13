"""Metrics and logs of a node or a worker, as its settings say; imports what they need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from recollect.errors import MissingExtra
from recollect.hosts.service.logs import begin_logging, end_logging
from recollect.system.config import Settings
from recollect.system.telemetry import LISTENERS, TelemetryListener

if TYPE_CHECKING:
    from recollect.hosts.service.app import Service
    from recollect.hosts.service.metrics import Metrics


@contextmanager
def telling(settings: Settings) -> Iterator[Metrics | None]:
    """Report metrics and logs while the block runs."""
    telemetry = settings.telemetry
    metrics = None
    with ExitStack() as ending:
        if telemetry.log_format is not None:
            ending.callback(end_logging, begin_logging(telemetry.log_format))
        if telemetry.metrics_port is not None:
            metrics = _metrics()
            ending.enter_context(_listening(metrics))
            ending.enter_context(_served(metrics, settings))
        yield metrics


def watch(service: Service, metrics: Metrics) -> None:
    """Show the metrics a node: its connections, its queue and its memories."""
    memories = service.memories
    metrics.watch(
        lambda: memories.pool,
        waiting=lambda: service.waiting,
        memories=lambda: memories.open_memories,
    )


@contextmanager
def _listening(listener: TelemetryListener) -> Iterator[None]:
    LISTENERS.append(listener)
    try:
        yield
    finally:
        LISTENERS.remove(listener)


@contextmanager
def _served(metrics: Metrics, settings: Settings) -> Iterator[None]:
    from recollect.hosts.service.metrics import serve_metrics

    telemetry = settings.telemetry
    server = serve_metrics(metrics, telemetry.metrics_host, telemetry.metrics_port or 0)
    metrics.port = server.server_port
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


def _metrics() -> Metrics:
    try:
        from recollect.hosts.service.metrics import Metrics
    except ImportError:
        raise MissingExtra(feature="telemetry.metrics_port", extra="serve") from None
    return Metrics()
