"""Spans by OpenTelemetry: a request, and under it stages, transactions, tools and models asked.

Only its API is used: what becomes of spans is the SDK's matter, which an operator configures by the
standard OTEL_ variables. Names follow its conventions for HTTP, databases, MCP and generative AI.
Always holds: attributes are those of what is measured, which carry no content; of what a caller
sends only `traceparent` is read, never `tracestate` or `baggage`, which hold texts.
"""

from __future__ import annotations

from contextvars import Context, Token
from typing import Final

from opentelemetry import context as contexts
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, get_tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import recollect
from recollect.system.telemetry import Attribute, CountedEvent, Measured, MeasuredKind

_Mark = tuple[Span, Token[contexts.Context] | None]
_KINDS: Final[dict[MeasuredKind, SpanKind]] = {
    "request": SpanKind.SERVER,
    "transaction": SpanKind.CLIENT,
    "model": SpanKind.CLIENT,
}
_ABOVE_OTHERS: Final = frozenset[MeasuredKind]({"request", "tool", "stage", "job"})
"""What other spans may stand under."""
_NAMES: Final[dict[MeasuredKind, str]] = {
    "tool": "tools/call {}",
    "stage": "stage {}",
    "transaction": "postgresql {}",
    "model": "chat {}",
    "embedder": "embeddings {}",
    "job": "job {}",
    "queue": "queue",
}
_ATTRIBUTES: Final[dict[MeasuredKind, dict[str, str]]] = {
    "tool": {
        "mcp.method.name": "tools/call",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "{}",
    },
    "stage": {"recollect.stage": "{}"},
    "transaction": {"db.system.name": "postgresql", "recollect.mode": "{}"},
    "model": {"gen_ai.operation.name": "chat", "gen_ai.request.model": "{}"},
    "embedder": {"gen_ai.operation.name": "embeddings", "gen_ai.request.model": "{}"},
    "job": {"recollect.job": "{}"},
}


class Traces:
    """A listener that makes a span of all that is measured."""

    def __init__(self) -> None:
        self._tracer = get_tracer("recollect", recollect.__version__)
        self._parents = TraceContextTextMapPropagator()

    def began(self, what: Measured) -> _Mark:
        """Begin a span, under the caller's where a request came with one."""
        above = None
        if what.parent:
            above = self._parents.extract({"traceparent": what.parent})
        span = self._tracer.start_span(
            _NAMES.get(what.kind, "{}").format(what.name),
            context=above,
            kind=_KINDS.get(what.kind, SpanKind.INTERNAL),
        )
        token = None
        if what.kind in _ABOVE_OTHERS:
            token = contexts.attach(set_span_in_context(span, above))
        if what.kind == "request":
            what.attributes["trace_id"] = f"{span.get_span_context().trace_id:032x}"
        return span, token

    def ended(self, what: Measured, mark: _Mark) -> None:
        """End it with what is known by now."""
        span, token = mark
        if token is not None:
            contexts.detach(token)
        if span.is_recording():
            span.set_attributes(_attributes(what))
            if what.kind == "request":
                route = what.attributes.get("http.route", what.name)
                span.update_name(f"{what.attributes.get('http.request.method', '')} {route}")
            if _is_error(what):
                span.set_attribute("error.type", what.error or what.outcome)
                span.set_status(Status(StatusCode.ERROR))
        span.end()

    def counted(self, event: CountedEvent, **labels: str) -> None:
        """No span for what takes no time."""

    def carry(self, context: Context) -> None:
        """Spans of this context stand under the one that is open now."""
        context.run(contexts.attach, contexts.get_current())


def _attributes(what: Measured) -> dict[str, Attribute]:
    named = _ATTRIBUTES.get(what.kind, {})
    told: dict[str, Attribute] = {name: text.format(what.name) for name, text in named.items()}
    told.update(what.attributes)
    told.pop("trace_id", None)
    if what.kind in ("stage", "job"):
        told["recollect.outcome"] = what.outcome
    if "texts" in told:
        told["recollect.texts"] = told.pop("texts")
    return told


def _is_error(what: Measured) -> bool:
    if what.kind == "request":
        status = what.attributes.get("http.response.status_code", 0)
        return isinstance(status, int) and status >= 500
    return bool(what.error) and what.outcome != "cancelled"
