"""What the model was shown of a pi session: the context as pi itself rebuilds it.

Owns the rule of the last compaction on the path, and how summaries and extensions' messages are
put into words. Pure. Never repairs what the session holds: aborted turns and calls without a
result are shown as they stand. Always holds: a message is its entry's own; summaries are the
user's, in pi's wrapping.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from recollect.formats.pi_session import PiEntry, path_to
from recollect.formats.summaries import (
    PI_BRANCH_CLOSING,
    PI_BRANCH_OPENING,
    PI_CLOSING,
    PI_OPENING,
)

PiMessage: TypeAlias = Mapping[str, Any]

_NO_THINKING = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class PiShown:
    """One message of a context, and the entry that it comes from."""

    entry_id: str | None
    message: PiMessage = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PiContext:
    """A session at one of its entries."""

    shown: tuple[PiShown, ...] = ()
    thinking_level: str = _NO_THINKING
    provider: str | None = None
    model_id: str | None = None

    @property
    def messages(self) -> tuple[PiMessage, ...]:
        """As they go to the model, before they are put into a provider's words."""
        return tuple(one.message for one in self.shown)


def build_context(entries: Sequence[PiEntry], leaf: str | None = None) -> PiContext:
    """The session as pi rebuilds it at the leaf: the last summary on the path, what it kept,
    everything after it."""
    path = path_to(entries, leaf)
    cut = last_compaction(path)
    if cut is None:
        return _context(_shown(path), path)
    summary = path[cut]
    text = PI_OPENING + (summary.text("summary") or "") + PI_CLOSING
    shown = [PiShown(entry_id=summary.id, message=_as_user(summary, text))]
    tail = summary.retained_tail
    if tail is not None:
        shown += [PiShown(entry_id=summary.id, message=message) for message in tail]
    else:
        shown += _shown(path[kept_from(path, cut) : cut])
    shown += _shown(path[cut + 1 :])
    return _context(shown, path)


def build_history(entries: Sequence[PiEntry], leaf: str | None = None) -> PiContext:
    """Everything that was said on the path to the leaf, as if nothing had been compacted."""
    path = path_to(entries, leaf)
    return _context(_shown(path), path)


def last_compaction(path: Sequence[PiEntry]) -> int | None:
    """Where on a path the compaction stands that counts."""
    for position in range(len(path) - 1, -1, -1):
        if path[position].kind == "compaction":
            return position
    return None


def kept_from(path: Sequence[PiEntry], cut: int) -> int:
    """From where on a path the compaction at `cut` keeps what came before it; `cut` itself where
    the entry that it names is not there: then pi shows nothing before it."""
    first = path[cut].first_kept_id
    for position in range(cut):
        if first is not None and path[position].id == first:
            return position
    return cut


def _context(shown: Iterable[PiShown], path: Sequence[PiEntry]) -> PiContext:
    level, provider, model_id = _NO_THINKING, None, None
    for entry in path:
        if entry.kind == "thinking_level_change":
            level = entry.text("thinkingLevel") or level
        elif entry.kind == "model_change":
            provider, model_id = entry.text("provider"), entry.text("modelId")
        elif entry.role == "assistant" and entry.message is not None:
            provider, model_id = _text(entry.message, "provider"), _text(entry.message, "model")
    return PiContext(shown=tuple(shown), thinking_level=level, provider=provider, model_id=model_id)


def _shown(entries: Iterable[PiEntry]) -> Iterator[PiShown]:
    for entry in entries:
        message = _message(entry)
        if message is not None:
            yield PiShown(entry_id=entry.id, message=message)


def _message(entry: PiEntry) -> PiMessage | None:
    """What of an entry the model reads; None for nothing."""
    if entry.message is not None:
        return None if entry.message.get("excludeFromContext") is True else entry.message
    if entry.kind == "custom_message":
        content = entry.value.get("content")
        return _as_user(entry, content if isinstance(content, list) else str(content or ""))
    if entry.kind == "branch_summary" and entry.text("summary"):
        text = PI_BRANCH_OPENING + (entry.text("summary") or "") + PI_BRANCH_CLOSING
        return _as_user(entry, text)
    return None


def _as_user(entry: PiEntry, content: str | list[Any]) -> PiMessage:
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    return {"role": "user", "content": blocks, "timestamp": entry.milliseconds}


def _text(message: PiMessage, key: str) -> str | None:
    found = message.get(key)
    return found if isinstance(found, str) else None
