"""What is in the model's window, and what a session cost: the chat's `/status`.

Computed from the report of one request: the last one that was sent if nothing changed since, else
the next one as the engine would send it now. Always holds: the components' tokens add up to the
counter's total for that request. The text shows no content of messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from recollect.adapters.session.workspace import LoadedWorkspace, WorkspaceFile
from recollect.core.formats.json_text import encode
from recollect.core.formats.pi_session import PiEntry
from recollect.core.formats.summaries import PI_CLOSING, PI_OPENING
from recollect.core.rules.price import PriceList, model_price
from recollect.core.rules.tokens import Weigher
from recollect.core.values.edit import Insert, Shorten
from recollect.core.values.history import Composed, Entry, newest_cut
from recollect.core.values.message import Text
from recollect.core.values.model import Usage, added
from recollect.core.values.report import FateKind, Report
from recollect.system.plain_text import number_of

ComponentKind: TypeAlias = Literal["system", "tools", "files", "summary", "recalled", "history"]
"""The system prompt without the workspace's files, the tools' schemas, these files, summaries of
what was compacted, blocks that memory put in, and what was said."""
WhichRequest: TypeAlias = Literal["sent", "next"]
_NAMES: Mapping[ComponentKind, str] = {
    "system": "system prompt",
    "tools": "tool schemas",
    "files": "workspace files",
    "summary": "summary",
    "recalled": "recalled blocks",
    "history": "history",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextItem:
    """One file, tool, block or kind of message of a component."""

    name: str
    raw_tokens: int
    """As it is: on the disk, in the conversation."""
    tokens: int
    """As it stands in the request."""
    truncated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextComponent:
    """All of one kind in a request."""

    kind: ComponentKind
    raw_tokens: int
    tokens: int
    """By the product's counter, before calibration."""
    items: tuple[ContextItem, ...] = ()
    truncated: int = 0
    """How many of the items, or of the messages, are not there whole."""

    @property
    def name(self) -> str:
        """For people."""
        return _NAMES[self.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """What one request holds."""

    which: WhichRequest
    turn: int
    """Which request of the session it is, from 1."""
    window_tokens: int
    window_source: str
    limit_tokens: int
    """What the request may take: the window without the room for the reply."""
    tokens: int
    """The whole request, calibrated by what the provider reported before."""
    counted_tokens: int
    """The same by the counter alone: the sum of the components."""
    components: tuple[ContextComponent, ...]
    messages: int
    notes: tuple[str, ...] = ()
    """Workspace files that are there and could not be shown."""

    def component(self, kind: ComponentKind) -> ContextComponent:
        """The component of this kind."""
        return next(one for one in self.components if one.kind == kind)

    def share(self, kind: ComponentKind) -> float:
        """What of the window a component takes, calibrated, from 0 to 1 (or above)."""
        calibrated = self.tokens * self.component(kind).tokens / (self.counted_tokens or 1)
        return calibrated / (self.window_tokens or 1)

    @property
    def window_share(self) -> float:
        """What of the window the request takes."""
        return self.tokens / (self.window_tokens or 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What the session took, as its providers reported it: replies, and what was asked beside."""

    replies: int = 0
    """Those whose usage is known."""
    input_tokens: int = 0
    """Whole, cached or not."""
    output_tokens: int = 0
    cache_read_tokens: int = 0
    side_requests: int = 0
    """What was asked of models beside the conversation: summaries and flush turns."""
    side_input_tokens: int = 0
    side_output_tokens: int = 0
    cost: float | None = None
    """Dollars, for all of it; None where the price of a model that was asked is not known."""
    unpriced: tuple[str, ...] = ()
    """The models whose price is not known."""

    @property
    def cache_share(self) -> float | None:
        """What of the input was read from the provider's cache; None where nothing was reported."""
        return self.cache_read_tokens / self.input_tokens if self.input_tokens else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextStatus:
    """The session as it stands: what `/status` shows."""

    session_id: str
    name: str = ""
    model: str
    messages: int
    """Of the conversation, summarised or not."""
    compactions: int
    """Those that stand."""
    seconds: float
    """Since the session began."""
    spending: Spending
    reported_tokens: int | None = None
    """What the provider counted for the request, where it was sent and a reply came."""
    request: RequestContext

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON, under these names."""
        request = self.request
        return {
            **asdict(self),
            "request": {
                **asdict(request),
                "window_share": round(request.window_share, 4),
                "components": [
                    {**asdict(one), "share": round(request.share(one.kind), 4)}
                    for one in request.components
                ],
            },
            "spending": {**asdict(self.spending), "cache_share": self.spending.cache_share},
        }


# What a request holds


def request_context(
    report: Report,
    which: WhichRequest,
    weigher: Weigher,
    *,
    tools: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    workspace: LoadedWorkspace,
    spelled: bool,
) -> RequestContext:
    """Each component of the request with its size.

    `tools` are the schemas as sent, `names` their names. `spelled` says that the system prompt is a
    JSON field, not a message.
    """
    system_rows = [row for row in report.view.rows if row.role == "system"]
    schemas = _tools(tools, names, weigher)
    whole_system = sum(row.tokens for row in system_rows) + report.fixed_tokens - schemas.tokens
    files = _files(workspace.files, weigher, spelled=spelled, most=whole_system)
    system = ContextComponent(
        kind="system",
        raw_tokens=whole_system - files.tokens,
        tokens=whole_system - files.tokens,
    )
    return RequestContext(
        which=which,
        turn=report.turn,
        window_tokens=report.window_tokens,
        window_source=report.window_source,
        limit_tokens=report.limit_tokens,
        tokens=report.tokens_after,
        counted_tokens=report.fixed_tokens + report.view.tokens,
        components=(system, schemas, files, *said_components(report, weigher)),
        messages=len(report.view.rows) - len(system_rows),
        notes=workspace.notes,
    )


def said_components(
    report: Report, weigher: Weigher
) -> tuple[ContextComponent, ContextComponent, ContextComponent]:
    """Summaries, recalled blocks and history: what is not the system prompt nor the tools."""
    system = sum(row.tokens for row in report.view.rows if row.role == "system")
    own = _own_rows(report, weigher)
    return *own, _history(report, own, system)


def _tools(
    tools: Sequence[Mapping[str, Any]], names: Sequence[str], weigher: Weigher
) -> ContextComponent:
    tokens = weigher.text(encode(list(tools)).decode()) if tools else 0
    sizes = [weigher.text(encode(tool).decode()) for tool in tools]
    items = tuple(_item(name, size) for name, size in zip(names, sizes, strict=True))
    return ContextComponent(kind="tools", raw_tokens=tokens, tokens=tokens, items=items)


def _files(
    files: Sequence[WorkspaceFile], weigher: Weigher, *, spelled: bool, most: int
) -> ContextComponent:
    """The files as they stand in the system prompt; `spelled` as JSON, as the engine counts it."""

    def size(text: str) -> int:
        return weigher.text(encode(text).decode()[1:-1] if spelled else text)

    items = tuple(
        ContextItem(
            name=file.name,
            raw_tokens=size(file.raw),
            tokens=size(file.text),
            truncated=file.truncated,
        )
        for file in files
    )
    return ContextComponent(
        kind="files",
        raw_tokens=sum(item.raw_tokens for item in items),
        tokens=min(most, sum(item.tokens for item in items)),
        items=items,
        truncated=sum(item.truncated for item in items),
    )


def _own_rows(report: Report, weigher: Weigher) -> tuple[ContextComponent, ContextComponent]:
    """Summaries and recalled blocks: rows of their own, or parts of a message that carries them."""
    cut = newest_cut(report.edits)
    summary_text = None if cut is None else PI_OPENING + cut.summary + PI_CLOSING
    blocks = {edit.text: edit for edit in report.edits if isinstance(edit, Insert)}
    summaries: list[ContextItem] = []
    recalled: list[ContextItem] = []
    for row in report.view.rows:
        if isinstance(row, Entry):
            if row.message.summary:  # another program's: it came as a message
                summaries.append(_item("summary of another program", row.tokens))
            continue
        for text in _own_texts(row):
            size = row.tokens if not row.sources and len(row.parts) == 1 else weigher.text(text)
            if text == summary_text and cut is not None:
                summaries.append(_item(f"summary of compaction {cut.number}", size))
            elif text in blocks:
                recalled.append(_item(_block_name(blocks[text]), size))
    return _component("summary", summaries), _component("recalled", recalled)


def _own_texts(row: Composed) -> Iterable[str]:
    return (part.text for part in row.parts if isinstance(part, Text)) if row.notes else ()


def _block_name(block: Insert) -> str:
    if block.stage == "stand":
        return "standing block"
    return f"block of turn {block.turn}, {number_of(len(block.recalled), 'passage')}"


def _item(name: str, tokens: int) -> ContextItem:
    return ContextItem(name=name, raw_tokens=tokens, tokens=tokens)


def _component(kind: ComponentKind, items: Sequence[ContextItem]) -> ContextComponent:
    tokens = sum(item.tokens for item in items)
    return ContextComponent(kind=kind, raw_tokens=tokens, tokens=tokens, items=tuple(items))


def _history(
    report: Report, own: Sequence[ContextComponent], system_tokens: int
) -> ContextComponent:
    """What was said, and the notes at its gaps; raw is all of it, as if nothing were hidden."""
    fates = [fate for fate in report.fates() if fate.role != "system" and fate.key is not None]
    tokens = report.view.tokens - system_tokens - sum(one.tokens for one in own)
    cut_down = {edit.anchor for edit in report.edits if isinstance(edit, Shorten)}
    kept = sum(fate.tokens_after for fate in fates if fate.fate == "kept")
    # A message that carries a summary or a block is "changed": these are counted by themselves.
    sizes = {"kept": kept, "changed": tokens - kept}
    items: list[ContextItem] = []
    for kind, name in _FATES.items():
        found = [fate for fate in fates if fate.fate == kind]
        if found:
            items.append(
                ContextItem(
                    name=f"{number_of(len(found), 'message')} {name}",
                    raw_tokens=sum(fate.tokens_before for fate in found),
                    tokens=sizes.get(kind, 0),
                    truncated=any(fate.key in cut_down for fate in found),
                )
            )
    hidden = sum(fate.fate in ("left out", "summarised") for fate in fates)
    shortened = sum(fate.fate == "changed" and fate.key in cut_down for fate in fates)
    return ContextComponent(
        kind="history",
        raw_tokens=sum(row.tokens for row in report.entries if row.role != "system"),
        tokens=tokens,
        items=tuple(items),
        truncated=hidden + shortened,
    )


_FATES: Mapping[FateKind, str] = {
    "kept": "as they came",
    "changed": "changed, or carrying a block",
    "left out": "left out",
    "summarised": "shown as a summary",
}


# What it cost


def spending_of(entries: Iterable[PiEntry], own_prices: PriceList, *, beside_as: str) -> Spending:
    """The sum over a transcript, each entry at its model's price.

    `beside_as` is the custom type of entries for summaries and note-taking turns.
    """
    replies = Usage(input_tokens=0)
    beside = Usage(input_tokens=0)
    said = asked = 0
    cost, unpriced = 0.0, dict[str, None]()
    for entry in entries:
        spent = _spent_beside(entry, beside_as)
        told = entry.message if spent is None else spent
        usage = None if told is None else _usage_of(told)
        if told is None or usage is None:
            continue
        if spent is None:
            said, replies = said + 1, added(replies, usage)
        else:
            asked, beside = asked + 1, added(beside, usage)
        model = str(told.get("model") or "")
        price = model_price(model, own_prices)
        if price is None:
            unpriced.setdefault(model or "a model without a name")
        else:
            cost += price.of(usage)
    return Spending(
        replies=said,
        input_tokens=replies.input_tokens,
        output_tokens=replies.output_tokens,
        cache_read_tokens=replies.cache_read_tokens,
        side_requests=asked,
        side_input_tokens=beside.input_tokens,
        side_output_tokens=beside.output_tokens,
        cost=None if unpriced or not said + asked else cost,
        unpriced=tuple(unpriced),
    )


def _spent_beside(entry: PiEntry, beside_as: str) -> Mapping[str, Any] | None:
    """What an entry tells of a summary or a flush turn, spelled as a reply is."""
    if entry.kind != "custom" or entry.text("customType") != beside_as:
        return None
    data = entry.value.get("data")
    return {**data, "role": "assistant"} if isinstance(data, Mapping) else None


def _usage_of(message: Mapping[str, Any]) -> Usage | None:
    """A reply's usage, as transcripts spell it; None where its provider reported none."""
    usage = message.get("usage")
    if message.get("role") != "assistant" or not isinstance(usage, Mapping):
        return None
    names = ("input", "output", "cacheRead", "cacheWrite")
    plain, said, read, written = (_number(usage.get(name)) for name in names)
    if not (plain or said or read or written):
        return None
    return Usage(
        input_tokens=plain + read + written,
        output_tokens=said,
        cache_read_tokens=read,
        cache_write_tokens=written,
    )


def _number(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and value > 0 else 0


def reported_tokens(message: Mapping[str, Any] | None) -> int | None:
    """What a reply's provider counted for its request."""
    usage = None if message is None else _usage_of(message)
    return None if usage is None else usage.input_tokens


# Text


def status_text(status: ContextStatus, *, detail: bool = False) -> str:
    """What `/status` answers; in detail each component with its files, tools and blocks."""
    request, spent = status.request, status.spending
    named = f" ({status.name})" if status.name else ""
    lines = [
        f"session {status.session_id}{named}, {duration_text(status.seconds)}",
        f"model {status.model}, window {request.window_tokens:,} tokens ({request.window_source})",
        f"{status.messages} messages, {status.compactions} compactions standing",
        f"{_which(request)}: {request.tokens:,} tokens, {request.window_share:.0%} of the window",
        f"  {request.limit_tokens:,} fit beside the reply",
    ]
    if status.reported_tokens is not None:
        lines.append(f"  as the provider counted it: {status.reported_tokens:,} tokens")
    lines.extend(
        f"  {one.name}: {one.tokens:,} tokens, {request.share(one.kind):.0%} of the window"
        for one in request.components
        if one.tokens
    )
    lines.append(_spending_text(spent))
    return "\n".join([*lines, *(_details(request) if detail else ())])


def _spending_text(spent: Spending) -> str:
    if not spent.replies and not spent.side_requests:
        return "cost: nothing was reported yet"
    used = f"{spent.input_tokens:,} tokens in, {spent.output_tokens:,} out"
    cached = "" if spent.cache_share is None else f", {spent.cache_share:.0%} from the cache"
    took = f"{number_of(spent.replies, 'reply', 'replies')}: {used}{cached}"
    if spent.side_requests:
        beside = number_of(
            spent.side_requests, "summary or note-taking turn", "summaries and note-taking turns"
        )
        took += f"; {beside}: {spent.side_input_tokens:,} in, {spent.side_output_tokens:,} out"
    if spent.cost is None:
        why = f"the price of {', '.join(spent.unpriced)} is not known; models.prices can name it"
        return f"cost: not known ({why}); {took}"
    return f"cost: ${spent.cost:.4f} for {took}"


def _details(request: RequestContext) -> Iterator[str]:
    sizes = f"{request.counted_tokens:,} tokens by the counter, {request.tokens:,} calibrated"
    messages = number_of(request.messages, "message")
    yield f"{_which(request)}: {sizes}, of {request.window_tokens:,}; {messages}"
    for one in request.components:
        raw = f"raw {one.raw_tokens:,}, injected {one.tokens:,} tokens"
        yield f"{one.name}: {raw}{_truncation(one)}"
        yield from (f"  {_item_text(item)}" for item in one.items)
    yield from request.notes


def _truncation(one: ContextComponent) -> str:
    if one.kind == "files" and one.items:
        shortened = f", {one.truncated} shortened" if one.truncated else ""
        return f" ({number_of(len(one.items), 'file')}{shortened})"
    if one.kind == "history":
        return f" ({one.truncated} not shown whole)" if one.truncated else ""
    return f" ({len(one.items)})" if one.items else ""


def _item_text(item: ContextItem) -> str:
    cut = ", shortened" if item.truncated and item.tokens else ""
    return f"{item.name}: raw {item.raw_tokens:,}, injected {item.tokens:,} tokens{cut}"


def _which(request: RequestContext) -> str:
    return "last request" if request.which == "sent" else "next request, before what you say"


def duration_text(seconds: float) -> str:
    """A stretch of time, in the two largest units it has."""
    minutes, hours = int(seconds) // 60, int(seconds) // 3600
    if hours >= 24:
        return f"{hours // 24} d {hours % 24} h"
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min {int(seconds) % 60} s"
