"""Metrics and logs of a node or a worker. A log line must never contain a body, a query, a header,
a key or a name that a tenant chose. A space appears as a keyed hash, the same on all nodes."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid4

from recollect.hosts import require_extra
from recollect.system.config import Settings
from recollect.system.config.settings import LogFormat
from recollect.system.telemetry import LISTENERS, Measured, TelemetryListener

if TYPE_CHECKING:
    from recollect.hosts.service.metrics import Metrics


@contextmanager
def telling(settings: Settings) -> Iterator[Metrics | None]:
    """Record metrics and write logs while the block runs."""
    telemetry = settings.telemetry
    metrics = None
    with ExitStack() as ending:
        if telemetry.log_format is not None:
            ending.callback(end_logging, begin_logging(telemetry.log_format))
        if telemetry.metrics_port is not None:
            require_extra("serve")
            from recollect.hosts.service.metrics import Metrics, metrics_server

            metrics = Metrics()
            ending.enter_context(_listening(metrics))
            server = metrics_server(metrics, telemetry.metrics_host, telemetry.metrics_port)
            metrics.port = ending.enter_context(server).port
        yield metrics


@contextmanager
def _listening(listener: TelemetryListener) -> Iterator[None]:
    LISTENERS.append(listener)
    try:
        yield
    finally:
        LISTENERS.remove(listener)


REQUESTS: Final = logging.getLogger("recollect.requests")
JOBS: Final = logging.getLogger("recollect.worker")
NODE: Final = logging.getLogger("recollect.serve")
_HEALTH: Final = frozenset({"healthz", "readyz"})


def space_mark(space: str, secret: bytes) -> str:
    """Return a keyed hash of a space's name, which logs contain instead of the name."""
    key = blake2b(secret, digest_size=32, person=b"recollect-logs").digest()
    return blake2b(space.encode("utf-8", "surrogatepass"), key=key, digest_size=8).hexdigest()


@dataclass(slots=True, kw_only=True)
class RequestRecord:
    """The data of a request that a log may contain."""

    id: str = field(default_factory=lambda: uuid4().hex)
    operation: str = "other"
    """Name of the operation, from a fixed list."""
    status: int = 0
    """HTTP status; 0 if the client disconnected before the answer."""
    tenant: UUID | None = None
    space: str = field(default="", repr=False)
    reason: str = ""

    def tell(self, measurement: Measured) -> None:
        measurement.name = self.operation
        if self.status:
            measurement.note(http__response__status_code=self.status)
            measurement.set_outcome("done", self.reason)

    def log(self, seconds: float, secret: bytes) -> None:
        """Write the log line of a request, except for successful health checks."""
        well = self.operation in _HEALTH and self.status == 200
        if well or not REQUESTS.isEnabledFor(logging.INFO):
            return
        fields: dict[str, Any] = {
            "operation": self.operation,
            "status": self.status or "gone",
            "ms": round(seconds * 1000, 1),
            "tenant": None if self.tenant is None else str(self.tenant),
            "space": space_mark(self.space, secret) if self.space else None,
            "request": self.id,
            "reason": self.reason or None,
        }
        write_line(REQUESTS, logging.INFO, "request", fields)


def write_line(logger: logging.Logger, level: int, event: str, fields: dict[str, Any]) -> None:
    """Log the fields that are not None."""
    set_fields = {name: value for name, value in fields.items() if value is not None}
    logger.log(level, event, extra={"fields": set_fields})


class LineFormatter(logging.Formatter):
    """Formats one line per record. An exception is logged by class and origin, without its text."""

    def __init__(self, log_format: LogFormat) -> None:
        super().__init__()
        self._as_json = log_format == "json"

    def format(self, record: logging.LogRecord) -> str:
        time_text = datetime.fromtimestamp(record.created, tz=UTC).isoformat(
            timespec="milliseconds"
        )
        fields: dict[str, Any] = {
            "time": time_text,
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            frames = traceback.extract_tb(record.exc_info[2])
            fields["error"] = record.exc_info[0].__name__
            fields["at"] = " < ".join(f"{frame.name}:{frame.lineno}" for frame in reversed(frames))
        if self._as_json:
            return json.dumps(fields, ensure_ascii=True, separators=(",", ":"))
        head = " ".join(str(fields.pop(name)) for name in ("time", "level", "logger", "event"))
        line = " ".join((head, *(f"{name}={value}" for name, value in fields.items())))
        return line.replace("\n", " ").replace("\r", " ")


def begin_logging(log_format: LogFormat) -> logging.Handler:
    """Log to standard error; log other packages only from WARNING on."""
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter(log_format))
    root, own_logger = logging.getLogger(), logging.getLogger("recollect")
    root.addHandler(handler)
    own_logger.setLevel(logging.INFO)
    if logging.lastResort is not None:
        own_logger.removeHandler(
            logging.lastResort
        )  # remove the command's own handler, which writes plain text
    return handler


def end_logging(handler: logging.Handler) -> None:
    logging.getLogger().removeHandler(handler)
    logging.getLogger("recollect").setLevel(logging.NOTSET)
