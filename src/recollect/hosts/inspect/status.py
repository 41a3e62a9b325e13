"""The contents of the model's window and a session's cost, for `/status`. The values come from the
report of the last request or, if something changed since, from that of the next request. The tokens
of all components add up to the counter's total."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from recollect.adapters.session.workspace import LoadedWorkspace
from recollect.core.formats.json_text import encode
from recollect.core.formats.pi_session import PiEntry
from recollect.core.formats.summaries import PI_CLOSING, PI_OPENING
from recollect.core.rules.price import PriceList, model_price
from recollect.core.rules.tokens import Weigher
from recollect.core.values.edit import Insert
from recollect.core.values.history import Entry, newest_cut
from recollect.core.values.message import Text
from recollect.core.values.model import Usage, add_usage
from recollect.core.values.report import Report

ComponentKind: TypeAlias = Literal["system", "tools", "files", "summary", "recalled", "history"]
"""Kinds of components: the system prompt without workspace files, the tools' schemas, workspace
files, summaries of compacted messages, recalled blocks, and messages."""
WhichRequest: TypeAlias = Literal["sent", "next"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextComponent:
    """The uncalibrated tokens of one kind of content in a request."""

    kind: ComponentKind
    tokens: int


@dataclass(frozen=True, slots=True)
class ContextFile:
    """A workspace file in a request."""

    name: str
    raw_chars: int
    """Length of the file on the disk."""
    sent_chars: int
    """Length of the part that the request contains."""
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """The contents of one request."""

    which: WhichRequest
    turn: int
    window_tokens: int
    window_source: str
    limit_tokens: int
    """The window minus the reserve for the reply."""
    tokens: int
    """Tokens of the whole request, calibrated by the provider's earlier counts."""
    counted_tokens: int
    """Sum of the components, uncalibrated."""
    components: tuple[ContextComponent, ...]
    messages: int
    files: tuple[ContextFile, ...] = ()
    notes: tuple[str, ...] = ()
    """Workspace files that exist but could not be included."""

    def component(self, kind: ComponentKind) -> ContextComponent:
        """Return the component of this kind."""
        return next(component for component in self.components if component.kind == kind)

    def share(self, kind: ComponentKind) -> float:
        """Return the share of the window that a component takes, calibrated. 1 means the whole
        window, and a share can be larger."""
        calibrated_tokens = self.tokens * self.component(kind).tokens / (self.counted_tokens or 1)
        return calibrated_tokens / (self.window_tokens or 1)

    @property
    def window_share(self) -> float:
        """The share of the window that the request takes."""
        return self.tokens / (self.window_tokens or 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """The session's usage, as providers reported it."""

    replies: int = 0
    """Number of replies with known usage."""
    input_tokens: int = 0
    """Input tokens, both cached and not."""
    output_tokens: int = 0
    cache_read_tokens: int = 0
    side_requests: int = 0
    side_input_tokens: int = 0
    side_output_tokens: int = 0
    cost: float | None = None
    """Total in dollars; None if the price of a model is unknown."""
    unpriced: tuple[str, ...] = ()

    @property
    def cache_share(self) -> float | None:
        """The share of the input that came from the provider's cache; None if no provider reported
        usage."""
        return self.cache_read_tokens / self.input_tokens if self.input_tokens else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextStatus:
    """The state of a session: the values of `/status`."""

    session_id: str
    name: str = ""
    model: str
    messages: int
    compactions: int
    seconds: float
    spending: Spending
    reported_tokens: int | None = None
    """The provider's token count of the request, if it was sent and answered."""
    request: RequestContext

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON."""
        request = self.request
        return {
            **asdict(self),
            "request": {
                **asdict(request),
                "window_share": round(request.window_share, 4),
                "components": [
                    {**asdict(component), "share": round(request.share(component.kind), 4)}
                    for component in request.components
                ],
            },
            "spending": {**asdict(self.spending), "cache_share": self.spending.cache_share},
        }


def request_context(
    report: Report,
    request_kind: WhichRequest,
    weigher: Weigher,
    *,
    tools: Sequence[Mapping[str, Any]],
    workspace: LoadedWorkspace,
    spelled: bool,
) -> RequestContext:
    """Return the components of a request with their sizes. `tools` are the schemas as sent. If
    `spelled` is true, the system prompt is a JSON field, not a message."""
    system_rows = [row for row in report.view.rows if row.role == "system"]
    schemas = weigher.text(encode(list(tools)).decode()) if tools else 0
    whole_system = sum(row.tokens for row in system_rows) + report.fixed_tokens - schemas

    def size(text: str) -> int:
        return weigher.text(encode(text).decode()[1:-1] if spelled else text)

    parts = tuple(
        ContextFile(file.name, len(file.raw), len(file.text), size(file.text))
        for file in workspace.files
    )
    files = min(whole_system, sum(part.tokens for part in parts))
    return RequestContext(
        which=request_kind,
        turn=report.turn,
        window_tokens=report.window_tokens,
        window_source=report.window_source,
        limit_tokens=report.limit_tokens,
        tokens=report.tokens_after,
        counted_tokens=report.fixed_tokens + report.view.tokens,
        components=(
            ContextComponent(kind="system", tokens=whole_system - files),
            ContextComponent(kind="tools", tokens=schemas),
            ContextComponent(kind="files", tokens=files),
            *message_components(report, weigher),
        ),
        messages=len(report.view.rows) - len(system_rows),
        files=parts,
        notes=workspace.notes,
    )


def message_components(report: Report, weigher: Weigher) -> tuple[ContextComponent, ...]:
    """Return summaries, recalled blocks and history: all components but the system prompt and the
    tools. Summaries and blocks are separate rows, or parts of a message."""
    cut = newest_cut(report.edits)
    summary_text = None if cut is None else PI_OPENING + cut.summary + PI_CLOSING
    blocks = {edit.text for edit in report.edits if isinstance(edit, Insert)}
    system = summaries = recalled = 0
    for row in report.view.rows:
        if row.role == "system":
            system += row.tokens
        if isinstance(row, Entry):
            if row.message.summary:  # a summary by another program, received as a message
                summaries += row.tokens
            continue
        for text in [part.text for part in row.parts if isinstance(part, Text) and row.notes]:
            size = row.tokens if not row.sources and len(row.parts) == 1 else weigher.text(text)
            if text == summary_text:
                summaries += size
            elif text in blocks:
                recalled += size
    history = report.view.tokens - system - summaries - recalled
    return (
        ContextComponent(kind="summary", tokens=summaries),
        ContextComponent(kind="recalled", tokens=recalled),
        ContextComponent(kind="history", tokens=history),
    )


def spending_of(entries: Iterable[PiEntry], own_prices: PriceList, *, beside_as: str) -> Spending:
    """Add up the usage in a transcript, each entry at its model's price. `beside_as` is the custom
    type of entries for summaries and note-taking turns."""
    replies = Usage(input_tokens=0)
    side_usage = Usage(input_tokens=0)
    reply_count = side_count = 0
    cost, unpriced_models = 0.0, dict[str, None]()
    for entry in entries:
        side_record = _side_spending(entry, beside_as)
        record = entry.message if side_record is None else side_record
        usage = None if record is None else usage_of(record)
        if record is None or usage is None:
            continue
        if side_record is None:
            reply_count, replies = reply_count + 1, add_usage(replies, usage)
        else:
            side_count, side_usage = side_count + 1, add_usage(side_usage, usage)
        model = str(record.get("model") or "")
        price = model_price(model, own_prices)
        if price is None:
            unpriced_models.setdefault(model or "a model without a name")
        else:
            cost += price.of(usage)
    return Spending(
        replies=reply_count,
        input_tokens=replies.input_tokens,
        output_tokens=replies.output_tokens,
        cache_read_tokens=replies.cache_read_tokens,
        side_requests=side_count,
        side_input_tokens=side_usage.input_tokens,
        side_output_tokens=side_usage.output_tokens,
        cost=None if unpriced_models or not reply_count + side_count else cost,
        unpriced=tuple(unpriced_models),
    )


def _side_spending(entry: PiEntry, beside_as: str) -> Mapping[str, Any] | None:
    if entry.kind != "custom" or entry.text("customType") != beside_as:
        return None
    data = entry.value.get("data")
    return {**data, "role": "assistant"} if isinstance(data, Mapping) else None


def usage_of(message: Mapping[str, Any]) -> Usage | None:
    """Return the usage that a reply's provider reported; None if there is none."""
    usage = message.get("usage")
    if message.get("role") != "assistant" or not isinstance(usage, Mapping):
        return None
    counts = [usage.get(name) for name in ("input", "output", "cacheRead", "cacheWrite")]
    plain_tokens, output_tokens, cached_tokens, written_tokens = (
        int(count) if isinstance(count, int | float) and count > 0 else 0 for count in counts
    )
    if not (plain_tokens or output_tokens or cached_tokens or written_tokens):
        return None
    return Usage(
        input_tokens=plain_tokens + cached_tokens + written_tokens,
        output_tokens=output_tokens,
        cache_read_tokens=cached_tokens,
        cache_write_tokens=written_tokens,
    )
