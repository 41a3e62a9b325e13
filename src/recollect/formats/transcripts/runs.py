"""Calls of the model in a list of OpenAI Responses items: runs of what the model wrote.

Owns which items the model wrote and where one call ends and the next begins. A call is shown
all that stood before its first item.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from recollect.formats.transcripts.records import Fields, text_of
from recollect.values.transcript import RecordedRequest, ShownItems, TranscriptItem

if TYPE_CHECKING:
    from collections.abc import Iterable

    from recollect.values.request import Usage

_CHECKPOINTS = frozenset(
    {"compaction", "compaction_summary", "context_compaction", "item_reference"}
)
"""Items that stand for others; the client puts them in."""


def is_written_by_model(item: Fields) -> bool:
    """Whether an item came from the model, rather than from a tool, a user or the client."""
    role = text_of(item, "role")
    if role is not None:
        return role == "assistant"
    kind = text_of(item, "type") or ""
    return bool(kind) and not kind.endswith("_output") and kind not in _CHECKPOINTS


@dataclass(slots=True, kw_only=True)
class ModelRuns:
    """The calls found so far, the last of them perhaps still open."""

    _found: list[RecordedRequest] = field(default_factory=list)
    _shown: ShownItems = field(default_factory=ShownItems)
    _answered: list[int] = field(default_factory=list)

    def answer(self, item: int, *, shown: ShownItems) -> None:
        """The model wrote this item; `shown` counts if it is the first of its call."""
        if not self._answered:
            self._shown = shown
        self._answered.append(item)

    def close(self, usage: Usage | None = None) -> None:
        """The call is over. Usage that arrives after it belongs to the last one without any."""
        if self._answered:
            self._found.append(
                RecordedRequest(shown=self._shown, answered=tuple(self._answered), usage=usage)
            )
            self._answered = []
        elif usage is not None and self._found and self._found[-1].usage is None:
            self._found[-1] = replace(self._found[-1], usage=usage)

    def requests(self) -> tuple[RecordedRequest, ...]:
        """Every call, in order."""
        self.close()
        return tuple(self._found)

    def with_usage(self, items: Iterable[TranscriptItem]) -> tuple[TranscriptItem, ...]:
        """The items, the last of each call carrying what the call used."""
        told = {request.answered[-1]: request.usage for request in self.requests()}
        return tuple(
            replace(item, usage=told[at]) if told.get(at) is not None else item
            for at, item in enumerate(items)
        )
