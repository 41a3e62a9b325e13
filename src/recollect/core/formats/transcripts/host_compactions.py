"""Reads the compactions that an agent made by itself from the lines of its transcript: the summary,
and the text that the agent put next to it. The readers of the formats add which items it kept."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from recollect.core.formats.json_text import Fields, text_of
from recollect.core.formats.summaries import SUMMARY_ITEMS, is_summary_text
from recollect.core.formats.transcripts.records import instant_of, mapping_of, value_of
from recollect.core.values.transcript import HostCompaction

_REATTACHED: Final = frozenset({"file", "plan_file_reference", "compact_file_reference"})
"""Attachments with which Claude Code gives files back to its model after a compaction."""
_BLOCK: Final = b"<recalled-context"
_CLAUDE_END: Final = re.compile(
    r"^(?:If you need specific details from before compaction"
    r"|Continue the conversation from where it left off)",
    re.MULTILINE,
)
_CODEX_FRAME: Final = "own analysis:\n"
"""End of the sentence that Codex puts before its summary."""


@dataclass(frozen=True, slots=True)
class Attached:
    """Text that the agent attached to its conversation, next to messages."""

    line: int
    text: str = field(repr=False)
    by_recollect: bool


def read_attached(line: int, fields: Fields) -> Attached | None:
    """Read a line with context of a hook, or with a file. Return None for other lines."""
    raw = fields.get("attachment")
    if raw is None:
        return None
    by_recollect = _BLOCK in raw
    if not by_recollect and not any(b'"%b"' % kind.encode() in raw for kind in _REATTACHED):
        return None
    attachment = mapping_of(raw)
    if by_recollect:
        return Attached(line, "\n".join(_strings(attachment.get("content"))), by_recollect=True)
    if attachment.get("type") not in _REATTACHED:
        return None
    texts = _strings(value_of(fields.get("rendered"))) or _strings(attachment.get("content"))
    return Attached(line, "\n".join(texts), by_recollect=False)


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for key in ("text", "content") for text in _strings(value.get(key))]
    if isinstance(value, Sequence):
        return [text for part in value for text in _strings(part)]
    return []


def text_of_message(message: Fields) -> str:
    """Return the text of a message in the wire formats of Claude Code and Codex."""
    return "\n".join(_strings(value_of(message.get("content"))))


def without_frame(summary: str) -> str:
    """Return Claude Code's summary without the tags or sentences around it."""
    _, opening, body = summary.partition("<summary>")
    if opening:
        return body.partition("</summary>")[0].strip()
    body = summary.partition("\nSummary:\n")[2] or summary
    return _CLAUDE_END.split(body)[0].strip()


def claude_compaction(
    number: int,
    line: int,
    boundary: Fields,
    summary: str,
    *,
    kept_items: frozenset[int],
    attached: Sequence[Attached],
    is_answered: bool,
) -> HostCompaction:
    """Build a compaction from Claude Code's boundary line. `attached` follows it."""
    data = mapping_of(boundary.get("compactMetadata"))
    return HostCompaction(
        number=number,
        line=line,
        said_at=instant_of(boundary, "timestamp"),
        trigger="manual" if data.get("trigger") == "manual" else "threshold",
        summary=without_frame(summary),
        kept_items=kept_items,
        is_answered=is_answered,
        kept_text="\n".join(part.text for part in attached if not part.by_recollect),
        returned_text="\n".join(part.text for part in attached if part.by_recollect),
        tokens_before=_count(data.get("preTokens")),
        tokens_after=_count(data.get("postTokens")),
        seconds=_count(data.get("durationMs")) / 1000,
    )


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def codex_compaction(
    number: int, line: int, record: Fields, payload: Fields, history: Sequence[Fields] | None
) -> HostCompaction:
    """Build a compaction from Codex's line. `history` are the items that replaced the earlier
    ones."""
    texts = [text_of_message(item) for item in history or () if not _is_summary_item(item)]
    summaries = [text for text in texts if is_summary_text(text)]
    summary = (summaries or [text_of(payload, "message") or ""])[-1]
    return HostCompaction(
        number=number,
        line=line,
        said_at=instant_of(record, "timestamp"),
        summary=(summary.partition(_CODEX_FRAME)[2] or summary).strip(),
        kept_text="\n".join(text for text in texts if not is_summary_text(text)),
    )


def _is_summary_item(item: Fields) -> bool:
    return text_of(item, "type") in SUMMARY_ITEMS


def returned_texts(raw: bytes, payload: Fields) -> Iterator[str]:
    """Yield the text of Codex's item if it has a block of Recollect."""
    if _BLOCK in raw:
        yield text_of_message(payload)
