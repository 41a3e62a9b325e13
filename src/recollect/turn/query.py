"""Ask memory in the user's own words: the query of a turn.

Made from the last user messages, oldest first, without channel prefixes, noise and our own
blocks. A turn in mid-loop (tool results last) asks with the message that started it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recollect.config.settings import Query as QuerySettings
from recollect.rules.noise import is_noise, strip_channel_prefix
from recollect.values.history import Entry
from recollect.values.message import EntryKey, Message, Text
from recollect.values.reason import Cause, Reason

OWN_MARKS = ("<recalled-context", "[recollect]", "<summary>")
"""Text that begins so is ours (or a compaction's), not what the user asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult:
    """The words to search with, whose they are, and why if there are none."""

    text: str
    sources: tuple[EntryKey, ...]
    reason: Reason


def query(
    entries: Sequence[Entry], settings: QuerySettings, *, with_noise: bool = False
) -> QueryResult:
    """The query of a turn over these entries; OpenClaw asks `with_noise`, too."""
    texts: list[str] = []
    sources: list[EntryKey] = []
    for entry in reversed(entries):
        if len(texts) == settings.user_messages:
            break
        if entry.role != "user" or entry.message.summary:
            continue
        said = spoken_text(entry)
        if said and (with_noise or not is_noise(said)):
            texts.append(said)
            sources.append(entry.key)
    if not texts:
        return QueryResult(text="", sources=(), reason=Reason(Cause.NO_QUERY))
    return QueryResult(
        text="\n".join(reversed(texts)),
        sources=tuple(reversed(sources)),
        reason=Reason(Cause.ASKED, messages=len(texts)),
    )


def spoken_text(entry: Entry | Message) -> str:
    """What the user said in a message: no results, no blocks of ours, no channel prefix."""
    said = [
        part.text
        for part in entry.parts
        if isinstance(part, Text) and not part.text.lstrip().startswith(OWN_MARKS)
    ]
    return strip_channel_prefix("\n".join(said)).strip()


def newest_exchange(entries: Sequence[Entry]) -> frozenset[EntryKey]:
    """The newest message in which the user says something, and all behind it."""
    return frozenset(entry.key for entry in entries[_last_said(entries, len(entries)) :])


def last_exchange(entries: Sequence[Entry]) -> frozenset[EntryKey]:
    """The message in which the user said something before the newest one, and all behind it."""
    since = _last_said(entries, _last_said(entries, len(entries)))
    return frozenset(entry.key for entry in entries[since:])


def _last_said(entries: Sequence[Entry], before: int) -> int:
    """Where the user says something for the last time before this place; 0 where nowhere."""
    while before > 0:
        before -= 1
        if entries[before].role == "user" and spoken_text(entries[before]):
            break
    return before
