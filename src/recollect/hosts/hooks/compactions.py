"""What hooks do around a compaction that the agent makes by itself: learn its summary, give back
what the summary left out, and store a receipt. Claude Code writes the summary to its transcript
after all hooks of the compaction, so hooks read it from the end of the subagent that wrote it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from recollect.core.engine import Context, Engine
from recollect.core.engine.host_receipts import (
    place_transcript,
    store_host_receipts,
    texts_of_entry,
)
from recollect.core.formats.recalled_block import recalled_items, without_items
from recollect.core.formats.summaries import is_summary
from recollect.core.formats.transcripts.host_compactions import without_frame
from recollect.core.rules.message_redaction import TextMask
from recollect.core.rules.text import one_line
from recollect.core.values.history import Entry
from recollect.core.values.transcript import HostCompaction, RecordedSession
from recollect.hosts.hooks.left_out import VisibleText, typed_texts, write_left_out
from recollect.hosts.hooks.transcript_file import AgentName, read_whole

GIVEN_TOKENS: Final = 700
"""Token limit of the block, other sessions' rules and memories together, right after a compaction.
With them, 18 cuts of real sessions had 48% of the names that the next 60 messages need (37% if the
summary is junk), with 442 tokens on average."""
_LAST_MESSAGES: Final = 6
"""Messages at the end among which Claude Code finds the reply that it keeps."""
_MAX_SESSIONS: Final = 500
"""As many sessions as the hooks remember."""


@dataclass(slots=True)
class _SessionCompactions:
    is_compacting: bool = False
    """True between PreCompact and the session's next prompt."""
    summary: str = field(default="", repr=False)
    """The summary that the agent wrote and that its transcript does not have yet."""
    seen_count: int = 0
    """Number of compactions whose receipts were stored or refused."""
    is_storing: bool = False


class AgentCompactions:
    """The compactions of the sessions whose hooks are answered."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, _SessionCompactions] = OrderedDict()

    def _session(self, session_id: str) -> _SessionCompactions:
        session = self._sessions.setdefault(session_id, _SessionCompactions())
        self._sessions.move_to_end(session_id)
        if len(self._sessions) > _MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return session

    def note(self, session_id: str, payload: Mapping[str, Any]) -> None:
        """Learn from a hook when a compaction begins and ends, and its summary."""
        event, session = payload.get("hook_event_name"), self._session(session_id)
        if event == "PreCompact":
            session.is_compacting, session.summary = True, ""
        elif event == "UserPromptSubmit":
            session.is_compacting, session.summary = False, ""
        # The subagent that writes Claude Code's summary has no type, unlike all others.
        elif event == "SubagentStop" and not payload.get("agent_type") and session.is_compacting:
            session.summary = without_frame(str(payload.get("last_assistant_message") or ""))

    async def left_out_block(
        self,
        engine: Engine,
        session_id: str,
        transcript: RecordedSession | None,
        window: RecordedSession | None,
        max_tokens: int,
    ) -> str:
        """Return the block of what the summary left out of all messages so far. `window` is what a
        resumed session still has; None right after the compaction."""
        if transcript is None:
            return ""
        placed = await place_transcript(engine.parts, session_id, transcript)
        compaction = _unanswered(transcript)
        if window is not None and transcript.host_compactions:
            compaction = transcript.host_compactions[-1]
        summary = self._session(session_id).summary if compaction is None else compaction.summary
        entries = [
            entry
            for index, (item, entry) in enumerate(
                zip(transcript.items, placed.entries, strict=True)
            )
            if index not in placed.forgotten
            and (compaction is None or item.line < compaction.line)
            and not is_summary(entry.role, entry.parts)
        ]
        if not entries:
            return ""
        if window is not None:
            shown = [placed.entries[index] for index in transcript.current]
            texts = [t for entry in shown for t in texts_of_entry(entry)] + [*window.added_texts]
        elif compaction is not None:
            kept = [placed.entries[index] for index in sorted(compaction.kept_items)]
            texts = [compaction.kept_text, *(t for entry in kept for t in texts_of_entry(entry))]
        else:
            texts = _kept_texts(entries)
        return await asyncio.to_thread(
            write_left_out,
            entries,
            VisibleText(summary, *texts),
            open_request="" if window else _open_request(entries),
            max_tokens=max_tokens,
            count_tokens=engine.parts.weigher.text,
            mask=TextMask(engine.settings.redaction).text,
        )

    async def store_receipts(
        self, engine: Engine, agent: AgentName, session_id: str, path: str, *, ended: bool
    ) -> None:
        """Store the receipts that are missing. The newest compaction waits until the model has
        answered: before, the transcript lacks what hooks added to it."""
        session = self._session(session_id)
        if session.is_storing:
            return
        session.is_storing = True
        try:
            transcript = await asyncio.to_thread(read_whole, agent, path)
            if transcript is None:
                return
            await store_host_receipts(engine.parts, session_id, transcript, ended=ended)
            is_open = not ended and _unanswered(transcript) is not None
            session.seen_count = len(transcript.host_compactions) - is_open
        finally:
            session.is_storing = False

    def has_new(self, session_id: str, count: int) -> bool:
        """Return whether a session with `count` compactions may lack a receipt."""
        return count > self._session(session_id).seen_count


def _unanswered(transcript: RecordedSession) -> HostCompaction | None:
    """Return the newest compaction if the model has written nothing since."""
    newest = transcript.host_compactions[-1] if transcript.host_compactions else None
    return None if newest is None or newest.is_answered else newest


def _open_request(entries: list[Entry]) -> str:
    """Return the request that the agent works on; "" if the newest one was answered."""
    if entries[-1].role == "assistant" and not entries[-1].calls:
        return ""
    for entry in reversed(entries):
        if texts := list(typed_texts(entry)):
            return "\n".join(texts)
    return ""


def _kept_texts(entries: list[Entry]) -> list[str]:
    """Return what Claude Code keeps next to its summary: the last reply, and a prompt that waits
    for an answer. Between two tool calls, it keeps nothing."""
    if entries[-1].results:
        return []
    replies = [entry for entry in entries[-_LAST_MESSAGES:] if entry.role == "assistant"][-1:]
    waiting = [entries[-1]] if entries[-1].role == "user" else []
    return [text for entry in (*replies, *waiting) for text in texts_of_entry(entry)]


def best_memories(
    block: str, context: Context, max_tokens: int, count_tokens: Callable[[str], int]
) -> str:
    """Return a recalled block with only its best passages, within a limit."""
    hits = () if context.recalled is None else context.recalled.hits
    ranked = [one_line(hit.text) for hit in hits if hit.text]

    def rank(item: str) -> int:
        line = one_line(item)
        return next((place for place, text in enumerate(ranked) if text in line), len(ranked))

    items = recalled_items(block)
    left_tokens = max_tokens - count_tokens(without_items(block, items[1:])) if items else 0
    dropped: set[str] = set()
    for item in sorted(items, key=rank):
        tokens = count_tokens(item)
        if tokens > left_tokens:
            dropped.add(item)
        else:
            left_tokens -= tokens
    return without_items(block, dropped)
