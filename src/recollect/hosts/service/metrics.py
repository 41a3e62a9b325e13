"""The metrics of a node or a worker, for Prometheus. Labels come from small fixed sets, and never
contain a tenant, a space, a session or message content. /metrics has its own thread, and its own
port because tenants must not see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import nan
from typing import TYPE_CHECKING, Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    make_asgi_app,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.routing import Mount

import recollect
from recollect.hosts.http import BackgroundServer, HttpServer, application
from recollect.system.loopback import listen_on
from recollect.system.telemetry import CountedEvent, Measured, MeasuredKind

if TYPE_CHECKING:
    from recollect.adapters.stores.postgres.pool import Pool

BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
REFUSALS: Final = frozenset(
    {
        "rate",
        "tokens",
        "tenant-busy",
        "busy",
        "deadline",
        "unavailable",
        "unauthorized",
        "quota-reached",
    }
)
"""Kinds of problems that an operator may have to fix."""


_COUNTERS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "requests": (
        "Requests answered. Status `gone`: the client disconnected",
        ("operation", "status"),
    ),
    "requests_refused": ("Requests refused, by reason", ("reason",)),
    "recalls": ("Prepared requests, by the result of recall", ("outcome",)),
    "compactions": ("Compactions, by outcome", ("trigger", "outcome")),
    "stage_failures": (
        "Stages that failed or were late; the turn continued without them",
        ("stage", "cause"),
    ),
    "jobs": ("Jobs run, by outcome", ("kind", "outcome")),
    "model_failures": ("Failed calls of models", ("model", "cause")),
    "model_tokens": ("Tokens of model calls, as the providers report them", ("model", "direction")),
    "embedder_texts": ("Texts given to embedders", ("embedder",)),
    "mcp_tool_calls": ("Calls of memory tools by MCP", ("tool", "outcome")),
}
_HISTOGRAMS: Final[Mapping[MeasuredKind, tuple[str, str, tuple[str, ...]]]] = {
    "request": (
        "request_duration", "Time from the first byte of a request to its answer", ("operation",),
    ),
    "queue": ("queue_wait", "Time that requests waited in the queue", ()),
    "transaction": (
        "store_transaction_duration", "Time of a transaction, with its wait for a connection",
        ("mode",),
    ),
    "stage": ("stage_duration", "Time of a stage of a turn", ("stage",)),
    "job": ("job_duration", "Time from the start of a job to its end", ("kind",)),
    "model": ("model_duration", "Time of a model call", ("model",)),
    "embedder": ("embedder_duration", "Time of an embedder call", ("embedder",)),
}  # fmt: skip


class Metrics:
    """The metrics of one process, which record all its measurements."""

    def __init__(self) -> None:
        self.port = 0
        registry = CollectorRegistry()
        self.registry: CollectorRegistry = registry
        Info("recollect_build", "Version that runs", registry=registry).info(
            {"version": recollect.__version__}
        )
        ProcessCollector(registry=registry)
        self._pools = PoolCollector()
        registry.register(self._pools)
        self._counters = {
            name: Counter(f"recollect_{name}_total", text, labels, registry=registry)
            for name, (text, labels) in _COUNTERS.items()
        }
        self._seconds = {
            kind: Histogram(
                f"recollect_{name}_seconds", text, labels, registry=registry, buckets=BUCKETS
            )
            for kind, (name, text, labels) in _HISTOGRAMS.items()
        }
        self._under_way = Gauge(
            "recollect_requests_in_progress",
            "Requests that are not answered yet",
            registry=registry,
        )
        self._waiting = Gauge(
            "recollect_queue_waiting", "Requests that wait in the queue", registry=registry
        )
        self._memories = Gauge(
            "recollect_open_memories", "Memories that are open", registry=registry
        )
        self.jobs_due_age: Gauge = Gauge(
            "recollect_jobs_due_age_seconds", "How long the oldest due job has waited",
            registry=registry,
        )  # fmt: skip
        self.jobs_due_age.set(nan)  # a node does not know this value, and 0 would be wrong

    def watch(
        self, pool: Callable[[], Pool | None], *, waiting: Callable[[], int] | None = None,
        memories: Callable[[], int] | None = None,
    ) -> None:  # fmt: skip
        """Read the values of these callables at every scrape."""
        self._pools.pool = pool
        if waiting is not None:
            self._waiting.set_function(waiting)
        if memories is not None:
            self._memories.set_function(memories)

    def on_start(self, measurement: Measured) -> None:
        if measurement.kind == "request":
            self._under_way.inc()

    def on_end(self, measurement: Measured) -> None:
        histogram = self._seconds.get(measurement.kind)
        if histogram is not None:
            series = (
                histogram if measurement.kind == "queue" else histogram.labels(measurement.name)
            )
            series.observe(measurement.seconds)
        self._count(measurement)

    def _count(self, measurement: Measured) -> None:
        count = self._counters
        if measurement.kind == "request":
            self._under_way.dec()
            status = str(measurement.attributes.get("http.response.status_code", "gone"))
            count["requests"].labels(measurement.name, status).inc()
            if measurement.error in REFUSALS:
                count["requests_refused"].labels(measurement.error).inc()
        elif measurement.kind == "tool":
            count["mcp_tool_calls"].labels(measurement.name, measurement.outcome).inc()
        elif measurement.kind == "stage" and measurement.outcome in ("failed", "late"):
            count["stage_failures"].labels(measurement.name, measurement.error).inc()
        elif measurement.kind == "job":
            count["jobs"].labels(measurement.name, measurement.outcome).inc()
        elif measurement.kind == "embedder":
            texts = float(measurement.attributes.get("texts", 0))
            count["embedder_texts"].labels(measurement.name).inc(texts)
        elif measurement.kind == "model":
            if measurement.error:
                count["model_failures"].labels(measurement.name, measurement.error).inc()
            for direction in ("input", "output"):
                tokens = float(measurement.attributes.get(f"gen_ai.usage.{direction}_tokens", 0))
                count["model_tokens"].labels(measurement.name, direction).inc(tokens)

    def on_count(self, event: CountedEvent, **labels: str) -> None:
        self._counters["recalls" if event == "recall" else "compactions"].labels(**labels).inc()


_POOL_COUNTERS: Final = {
    "pool_waits": ("waits", "Transactions that waited for a connection"),
    "pool_wait_seconds": ("waited_seconds", "Seconds that transactions waited for a connection"),
    "store_transactions": ("transactions", "Transactions begun"),
    "store_statements": ("statements", "Statements sent, including BEGIN and COMMIT"),
    "store_round_trips": ("round_trips", "Round trips to the server"),
}


class PoolCollector(Collector):
    """Statistics of a connection pool."""

    def __init__(self) -> None:
        self.pool: Callable[[], Pool | None] = lambda: None

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families, without values if no database is open."""
        pool = self.pool()
        size = GaugeMetricFamily("recollect_pool_size", "Connections that may be open at once")
        links = GaugeMetricFamily(
            "recollect_pool_connections", "Connections that are open", labels=("state",)
        )
        available = GaugeMetricFamily(
            "recollect_store_available",
            "1 if the last attempt reached PostgreSQL and its disk is not full, else 0",
        )
        if pool is None:
            available.add_metric((), 0.0)
        else:
            size.add_metric((), pool.size)
            links.add_metric(("in_use",), pool.in_use)
            links.add_metric(("idle",), pool.idle)
            available.add_metric((), 0.0 if pool.is_down or pool.disk_is_full else 1.0)
        yield from (size, links, available)
        for name, (field_name, text) in _POOL_COUNTERS.items():
            family = CounterMetricFamily(f"recollect_{name}", text)
            if pool is not None:
                family.add_metric((), getattr(pool.traffic, field_name))
            yield family


def metrics_server(metrics: Metrics, host: str, port: int) -> BackgroundServer:
    """Create the server for the metrics, at any path. Raise RecollectError for a port in use."""
    listening_socket = listen_on(host, port, fix="set another as telemetry.metrics_port")
    pages = Mount("/", make_asgi_app(metrics.registry))
    return BackgroundServer(HttpServer(application([pages])), listening_socket)
