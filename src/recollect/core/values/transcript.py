"""A recorded session: its items in wire form, and the items shown at each request. Items keep the
order of the file. Each is one message of `format` as bytes, even if it has left the window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, overload

from recollect.core.values.model import FormatName, Usage

TranscriptKind: TypeAlias = Literal["pi", "claude-code", "codex", "request", "messages"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ShownItems(Sequence[int]):
    """Item indexes in the order they were shown. Adjacent indexes form one range, and lists share
    their earlier ranges. So the contexts of 20,000 requests stay small."""

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
        """Newest item, or None if nothing is shown."""
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
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[int, ...]: ...
    def __getitem__(self, at: int | slice) -> int | tuple[int, ...]:
        return tuple(self)[at]

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
    """True if the reader wrote it, not the file: a summary's wrapping, or an id that the file
    lacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRequest:
    """One model call: the items it was shown, and the items of its reply."""

    shown: Sequence[int]
    """Indexes into `RecordedSession.items`, in order; empty before the first message."""
    answered: tuple[int, ...]
    usage: Usage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSession:
    """A recording that was read: its items, its requests and skipped lines."""

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
    current: Sequence[int] = ()
    passed_over: tuple[str, ...] = ()
