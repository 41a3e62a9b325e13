"""A recorded session: its messages in wire format, and which of them each request contained. Items
keep the file's order. An item is one message of `format` as bytes, also if later requests lack
it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, overload

from recollect.core.values.model import FormatName, Usage

TranscriptKind: TypeAlias = Literal["pi", "claude-code", "codex", "request", "messages"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ShownItems(Sequence[int]):
    """Item indexes in the order in which the model saw them. Adjacent indexes form one range, and
    lists share their first ranges, so that the lists of 20,000 requests stay small."""

    before: ShownItems | None = None
    start: int = 0
    stop: int = 0
    size: int = 0

    def then(self, index: int) -> ShownItems:
        if self.size and index == self.stop:
            return ShownItems(
                before=self.before, start=self.start, stop=index + 1, size=self.size + 1
            )
        before = self if self.size else None
        return ShownItems(before=before, start=index, stop=index + 1, size=self.size + 1)

    @property
    def last(self) -> int | None:
        """Newest item; None if there is none."""
        return self.stop - 1 if self.size else None

    def runs(self) -> tuple[range, ...]:
        ranges: list[range] = []
        node: ShownItems | None = self
        while node is not None:
            ranges.append(range(node.start, node.stop))
            node = node.before
        return tuple(reversed(ranges))

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[int]:
        for run in self.runs():
            yield from run

    def __contains__(self, index: object) -> bool:
        return any(index in run for run in self.runs())

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[int, ...]: ...
    def __getitem__(self, index: int | slice) -> int | tuple[int, ...]:
        return tuple(self)[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShownItems) and self.runs() == other.runs()

    def __hash__(self) -> int:
        return hash(self.runs())


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptItem:
    """One message of the recording."""

    raw: bytes
    line: int
    timestamp: float | None = None
    entry_id: str | None = None
    usage: Usage | None = None
    derived: bool = False
    """True if the item is not in the file: the reader added text around a summary, or an id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRequest:
    """One model call: the items of the request, and the items of the reply."""

    shown: Sequence[int]
    """Indexes of the request's items in `RecordedSession.items`, in order."""
    answered: tuple[int, ...]
    usage: Usage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCompaction:
    """One compaction that the agent made by itself."""

    number: int
    line: int
    """Line of the recording at which the summary replaced earlier messages."""
    said_at: float | None = None
    trigger: Literal["manual", "threshold"] = "threshold"
    summary: str = field(default="", repr=False)
    """The agent's summary; empty if the agent encrypted it."""
    kept_items: frozenset[int] = frozenset()
    """Earlier items that later requests still contain."""
    kept_text: str = field(default="", repr=False)
    """Other text that the agent put next to its summary, such as files that it read again."""
    returned_text: str = field(default="", repr=False)
    """Blocks of Recollect that the agent received right after the summary."""
    is_answered: bool = False
    """True if the model wrote something after the compaction."""
    tokens_before: int = 0
    tokens_after: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSession:
    """A recording: its items, its requests, and a note per skipped line."""

    kind: TranscriptKind
    format: FormatName
    items: tuple[TranscriptItem, ...]
    requests: tuple[RecordedRequest, ...]
    session_id: str | None = None
    version: str | None = None
    model: str | None = None
    window_tokens: int | None = None
    system: str | None = None
    tools: str | None = None
    """JSON of the tool schemas, if the recording holds them."""
    compactions: int = 0
    host_compactions: tuple[HostCompaction, ...] = ()
    added_texts: tuple[str, ...] = ()
    """Text that hooks of Recollect added, which no item contains."""
    current: Sequence[int] = ()
    passed_over: tuple[str, ...] = ()
