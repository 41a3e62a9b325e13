"""The memory of a space outside of turns: reads messages to import, opens its facts, searches it,
and says what to forget."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from recollect.core.engine.parts import EngineParts
from recollect.core.formats.codec import CODECS, format_of
from recollect.core.formats.json_text import encode
from recollect.core.rules.identity import ROOT, batch_root, chain
from recollect.core.turn.align import LastRequest, enter, read
from recollect.core.values.history import Entry, SessionId
from recollect.core.values.model import FormatName
from recollect.core.values.recall import Recalled, RecallRequest
from recollect.core.values.segment import SegmentId, StoredMessage, StoredSegment
from recollect.core.values.upkeep import ForgetOrder
from recollect.errors import StoreError, StoreUnavailable

if TYPE_CHECKING:
    from recollect.core.facts.book import FactBook


def read_messages(
    parts: EngineParts,
    messages: Sequence[bytes | Mapping[str, Any]],
    format_name: FormatName | None,
    batch: str | None,
) -> list[Entry]:
    """Return messages to import as a history: the session's own, or that of a batch."""
    raws = [message if isinstance(message, bytes) else encode(message) for message in messages]
    codec = CODECS[format_name or format_of(raws)]
    key = ROOT if batch is None else batch_root(batch, parts.secret)
    entries = []
    for reading in read(
        raws, codec, parts.secret, parts.weigher, LastRequest(), seal=parts.seal
    ).new_readings:
        key = chain(key, reading.id)
        entries.append(enter(reading, key))
    return entries


def to_listed_message(stored_segment: StoredSegment) -> StoredMessage:
    """Return a stored message as `Engine.messages` lists it."""
    segment = stored_segment.segment
    return StoredMessage(
        id=segment.id,
        session=segment.session,
        role=segment.role,
        text=segment.text,
        said_at=segment.said_at,
        tool=segment.tool,
        place=stored_segment.sequence,
    )


async def open_facts(
    parts: EngineParts, session: SessionId | None, settle: Callable[[], Awaitable[int]]
) -> FactBook:
    """Open the facts of a space. `settle` waits for messages on their way to the store."""
    if parts.reader is None:
        raise StoreError("this memory is read-only and stores no facts: set ingest.enabled = true")

    async def require_stored(order: ForgetOrder) -> None:
        if await settle():
            _check_waiting(parts, order)

    archive = parts.reader.archive
    book = await asyncio.to_thread(_fact_book)  # this import is slow
    spool = await archive.spool()
    return book(
        await archive.store(),
        parts.settings,
        parts.clock,
        embedders=parts.embedder_names,
        spools=() if spool is None else (spool,),
        before_forgetting=require_stored,
        after_forgetting=parts.sessions.load_again,
        read_only=parts.keeper is None,
        session=session,
    )


def _fact_book() -> type[FactBook]:
    from recollect.core.facts.book import FactBook

    return FactBook


def _check_waiting(parts: EngineParts, order: ForgetOrder) -> None:
    """Raise StoreUnavailable if messages wait for the store that the order may select. An order for
    sessions does not wait for other sessions, whose messages may never arrive."""
    states = () if parts.keeper is None else parts.keeper.states
    waiting_ids = {
        message.session for state in states for message in state.unstored_messages.values()
    }
    by_content = order.segments or order.message_ids or order.matching or order.pattern
    by_session = bool(order.sessions) and not (by_content or order.facts)
    if not waiting_ids or not by_session or not waiting_ids.isdisjoint(order.sessions):
        sessions = f" of {', '.join(sorted(waiting_ids))}" if waiting_ids else ""
        raise StoreUnavailable(
            f"nothing was forgotten: some messages{sessions} are not in the store yet. Try "
            "again later, or forget other sessions by their names"
        )


def forget_order(
    now: float,
    *,
    messages: Sequence[str],
    sessions: Sequence[SessionId],
    facts: Sequence[str],
    matching: str | None,
    pattern: str | None,
    said_after: float | None,
    said_before: float | None,
) -> ForgetOrder:
    """Return an order to forget, without its facts. Raise TypeError for a string instead of a list,
    and ValueError if the order selects nothing, or everything by mistake."""
    for name, ids in (("messages", messages), ("sessions", sessions), ("facts", facts)):
        if isinstance(ids, str):  # a string would be read as a list of one-letter ids
            raise TypeError(f"{name} must be a list, not a string: pass {name}=[{ids!r}]")
    order = ForgetOrder(
        at=now,
        segments=tuple(map(SegmentId, messages)),
        sessions=tuple(sessions),
        matching=matching,
        pattern=pattern,
        said_after=said_after,
        said_before=said_before,
    )
    texts = (matching, pattern)
    if not (order.segments or order.sessions or order.by_time or facts or any(texts)):
        raise ValueError(
            "name what to forget: messages, sessions, facts, matching, pattern, said_after or "
            "said_before; `delete_space` deletes everything"
        )
    if any(text is not None and not text.strip() for text in texts):
        raise ValueError("matching and pattern must not be empty: an empty one matches everything")
    return order


async def search_memory(
    parts: EngineParts,
    query: str,
    *,
    session: SessionId | None,
    budget_tokens: int,
    said_after: float | None,
    said_before: float | None,
) -> Recalled:
    """Search the space, or what a session may see of it."""
    if parts.recaller is None:
        raise StoreError("this memory has no store, so it cannot be searched")
    await parts.read_files()
    only = None if parts.settings.recall.scope == "space" else session
    request = RecallRequest(
        space=parts.space,
        session=only or "",
        query=query,
        newest=query,
        scope="space" if only is None else "session",
        now=parts.clock.now(),
        budget_tokens=budget_tokens,
        count_tokens=parts.weigher.text,
        asks="question",
        explicit=True,
        said_after=said_after,
        said_before=said_before,
    )
    return await parts.recaller.recall(request)
