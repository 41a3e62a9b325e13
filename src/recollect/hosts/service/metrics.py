"""What a node or a worker counts, for Prometheus.

Listens to what is measured, and asks the pool and the queue when it is scraped. Always holds:
labels are out of small fixed sets (operations, statuses, stages, kinds of jobs, models that the
settings name); never a tenant, a space, a
session, or anything that was said. /metrics has a port of its own, since tenants must not see it,
and a thread of its own, which answers also while the event loop is busy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import Context
from math import nan
from typing import TYPE_CHECKING, Final
from wsgiref.simple_server import WSGIServer

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    start_http_server,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

import recollect
from recollect.errors import RecollectError
from recollect.system.telemetry import CountedEvent, Measured

if TYPE_CHECKING:
    from recollect.adapters.stores.postgres.pool import Pool

BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
REFUSALS: Final = frozenset(
    {"rate", "tokens", "tenant-busy", "busy", "deadline", "unavailable", "unauthorized"}
)
"""Problems that are no mistake of the request itself: what an operator may have to mend."""


class Metrics:
    """The metrics of one process; a listener of all that it does."""

    def __init__(self) -> None:
        self.port = 0
        """Where it is served."""
        self.registry = CollectorRegistry()
        made = self.registry
        Info("recollect_build", "Version that runs", registry=made).info(
            {"version": recollect.__version__}
        )
        ProcessCollector(registry=made)
        self._pools = PoolCollector()
        made.register(self._pools)
        self._requests = Counter(
            "recollect_requests_total", "Requests answered; status `gone`: the client hung up",
            ("operation", "status"), registry=made,
        )  # fmt: skip
        self._request_seconds = _histogram(
            "recollect_request_duration_seconds", "From its first byte to its answer",
            "operation", registry=made,
        )  # fmt: skip
        self._under_way = Gauge(
            "recollect_requests_in_progress", "Requests that are not answered yet", registry=made
        )
        self._refused = Counter(
            "recollect_requests_refused_total", "Requests refused, by why", ("reason",),
            registry=made,
        )  # fmt: skip
        self._queue_seconds = _histogram(
            "recollect_queue_wait_seconds", "Waiting for a turn, of requests that had to",
            registry=made,
        )  # fmt: skip
        self._waiting = Gauge(
            "recollect_queue_waiting", "Requests that wait for their turn", registry=made
        )
        self._memories = Gauge("recollect_open_memories", "Memories that are open", registry=made)
        self._transaction_seconds = _histogram(
            "recollect_store_transaction_duration_seconds",
            "Transactions, waiting for a connection included", "mode", registry=made,
        )  # fmt: skip
        self._recalls = Counter(
            "recollect_recalls_total", "Prepared requests, by what memory had", ("outcome",),
            registry=made,
        )  # fmt: skip
        self._compactions = Counter(
            "recollect_compactions_total", "Compactions, by how they ended",
            ("trigger", "outcome"), registry=made,
        )  # fmt: skip
        self._stage_seconds = _histogram(
            "recollect_stage_duration_seconds", "Stages of turns", "stage", registry=made
        )
        self._stage_failures = Counter(
            "recollect_stage_failures_total", "Stages that failed or came late; the turn went on",
            ("stage", "cause"), registry=made,
        )  # fmt: skip
        self._jobs = Counter(
            "recollect_jobs_total", "Jobs taken, by what became of them", ("kind", "outcome"),
            registry=made,
        )  # fmt: skip
        self._job_seconds = _histogram(
            "recollect_job_duration_seconds", "Jobs, from their lease to their end", "kind",
            registry=made,
        )  # fmt: skip
        self.jobs_due_age = Gauge(
            "recollect_jobs_due_age_seconds", "How long the job that is due for longest has waited",
            registry=made,
        )  # fmt: skip
        self.jobs_due_age.set(nan)  # a node does not ask, and 0 would say that all is done
        self._model_seconds = _histogram(
            "recollect_model_duration_seconds", "Questions to models", "model", registry=made
        )
        self._model_failures = Counter(
            "recollect_model_failures_total", "Questions to models without an answer",
            ("model", "cause"), registry=made,
        )  # fmt: skip
        self._model_tokens = Counter(
            "recollect_model_tokens_total", "Tokens of questions to models, as providers say",
            ("model", "direction"), registry=made,
        )  # fmt: skip
        self._embedder_seconds = _histogram(
            "recollect_embedder_duration_seconds", "Calls of embedders", "embedder", registry=made
        )
        self._embedder_texts = Counter(
            "recollect_embedder_texts_total", "Texts given to embedders", ("embedder",),
            registry=made,
        )  # fmt: skip
        self._tools = Counter(
            "recollect_mcp_tool_calls_total", "Calls of memory tools by MCP", ("tool", "outcome"),
            registry=made,
        )  # fmt: skip
        self._tellers: dict[str, Callable[[Measured], None]] = {
            "request": self._request,
            "tool": lambda one: self._tools.labels(one.name, one.outcome).inc(),
            "stage": self._stage,
            "transaction": _timed(self._transaction_seconds),
            "model": self._model,
            "embedder": self._embedder,
            "job": self._job,
            "queue": lambda one: self._queue_seconds.observe(one.seconds),
        }

    def watch(
        self, pool: Callable[[], Pool | None], *, waiting: Callable[[], int] | None = None,
        memories: Callable[[], int] | None = None,
    ) -> None:  # fmt: skip
        """Ask these when it is scraped."""
        self._pools.pool = pool
        if waiting is not None:
            self._waiting.set_function(waiting)
        if memories is not None:
            self._memories.set_function(memories)

    # a listener

    def began(self, what: Measured) -> None:
        """Count what is under way."""
        if what.kind == "request":
            self._under_way.inc()

    def ended(self, what: Measured, mark: None) -> None:
        """Count what was done."""
        del mark
        self._tellers[what.kind](what)

    def counted(self, event: CountedEvent, **labels: str) -> None:
        """Count what happened."""
        (self._recalls if event == "recall" else self._compactions).labels(**labels).inc()

    def carry(self, context: Context) -> None:
        """Nothing counted depends on whose work it is."""

    def _request(self, one: Measured) -> None:
        self._under_way.dec()
        status = str(one.attributes.get("http.response.status_code", "gone"))
        self._requests.labels(one.name, status).inc()
        self._request_seconds.labels(one.name).observe(one.seconds)
        if one.error in REFUSALS:
            self._refused.labels(one.error).inc()

    def _stage(self, one: Measured) -> None:
        self._stage_seconds.labels(one.name).observe(one.seconds)
        if one.outcome in ("failed", "late"):
            self._stage_failures.labels(one.name, one.error).inc()

    def _job(self, one: Measured) -> None:
        self._job_seconds.labels(one.name).observe(one.seconds)
        self._jobs.labels(one.name, one.outcome).inc()

    def _model(self, one: Measured) -> None:
        self._model_seconds.labels(one.name).observe(one.seconds)
        if one.error:
            self._model_failures.labels(one.name, one.error).inc()
        for direction in ("input", "output"):
            tokens = one.attributes.get(f"gen_ai.usage.{direction}_tokens", 0)
            self._model_tokens.labels(one.name, direction).inc(float(tokens))

    def _embedder(self, one: Measured) -> None:
        self._embedder_seconds.labels(one.name).observe(one.seconds)
        self._embedder_texts.labels(one.name).inc(float(one.attributes.get("texts", 0)))


class PoolCollector(Collector):
    """What a pool of connections says of itself when it is asked."""

    def __init__(self) -> None:
        self.pool: Callable[[], Pool | None] = lambda: None

    def collect(self) -> Iterator[Metric]:
        """The families; without values where no database is open."""
        pool = self.pool()
        size = GaugeMetricFamily("recollect_pool_size", "Connections that may be open at once")
        links = GaugeMetricFamily(
            "recollect_pool_connections", "Connections that are open", labels=("state",)
        )
        available = GaugeMetricFamily(
            "recollect_store_available", "1 unless PostgreSQL could not be reached when last tried"
        )
        counters = {
            name: CounterMetricFamily(f"recollect_{name}", text)
            for name, text in (
                ("pool_waits", "Transactions that waited for a connection"),
                ("pool_wait_seconds", "How long they waited"),
                ("store_transactions", "Transactions begun"),
                ("store_statements", "Statements sent, BEGIN and COMMIT too"),
                ("store_round_trips", "Waits for the server"),
            )
        }
        if pool is None:
            available.add_metric((), 0.0)
        else:
            traffic = pool.traffic
            size.add_metric((), pool.size)
            links.add_metric(("in_use",), pool.in_use)
            links.add_metric(("idle",), pool.idle)
            available.add_metric((), 0.0 if pool.is_away else 1.0)
            counters["pool_waits"].add_metric((), traffic.waits)
            counters["pool_wait_seconds"].add_metric((), traffic.waited_seconds)
            counters["store_transactions"].add_metric((), traffic.transactions)
            counters["store_statements"].add_metric((), traffic.statements)
            counters["store_round_trips"].add_metric((), traffic.round_trips)
        yield from (size, links, available, *counters.values())


def serve_metrics(metrics: Metrics, host: str, port: int) -> WSGIServer:
    """Answer Prometheus on a port of its own; RecollectError where it is taken."""
    try:
        return start_http_server(port, addr=host, registry=metrics.registry)[0]
    except OSError as error:
        raise RecollectError(
            f"port {port} of {host} cannot be used for metrics ({error.strerror or error}): set "
            "another as telemetry.metrics_port, or stop what listens there"
        ) from None


def _histogram(name: str, text: str, *labels: str, registry: CollectorRegistry) -> Histogram:
    return Histogram(name, text, labels, registry=registry, buckets=BUCKETS)


def _timed(histogram: Histogram) -> Callable[[Measured], None]:
    return lambda one: histogram.labels(one.name).observe(one.seconds)
