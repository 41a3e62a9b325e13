"""Receipts of the compactions that an agent made by itself, computed from its transcript: also of
those from before Recollect was installed. They are made and stored like Recollect's own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from recollect.core.compaction.probe import probe
from recollect.core.compaction.receipt import receipt
from recollect.core.engine.parts import EngineParts
from recollect.core.engine.summary import mask_result, recall_by_text
from recollect.core.formats.codec import CODECS
from recollect.core.formats.stored_records import write_record
from recollect.core.formats.summaries import is_summary
from recollect.core.rules.identity import segment_id
from recollect.core.rules.message_redaction import TextMask, redact_entries
from recollect.core.transfer.transcripts import place_items, read_live_state
from recollect.core.turn.align import LastRequest, enter, read
from recollect.core.values.batch import Batch
from recollect.core.values.compaction import CompactionRecord, CompactionResult, Receipt
from recollect.core.values.history import Entry, SessionId
from recollect.core.values.message import MessageId, Text, ToolCall, ToolResult
from recollect.core.values.reason import Cause, Reason
from recollect.core.values.transcript import HostCompaction, RecordedSession

HOST_KEY: Final = "host"
"""Key of a compaction's `details`: the agent that compacted by itself."""
_RECALL_SECONDS: Final = 20.0
"""Time limit of all searches of one receipt. They run next to the hooks of other sessions, and 120
searches took 1.5 to 3 s of processor time on real sessions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedTranscript:
    """The messages of a transcript under the keys with which they are stored, one per item."""

    transcript: RecordedSession = field(repr=False)
    entries: tuple[Entry, ...] = field(repr=False)
    forgotten: frozenset[int] = frozenset()
    """Items that the user had Recollect forget. The agent's transcript still has them."""

    def cut_items(self, compaction: HostCompaction) -> list[int]:
        """Return the items that a compaction replaced by its summary."""
        before = self._before(compaction)
        kept_before = frozenset() if before is None else before.kept_items
        first = 0 if before is None else before.line
        return [
            index
            for index, item in enumerate(self.transcript.items)
            if (first < item.line < compaction.line or index in kept_before)
            and index not in compaction.kept_items
            and not is_summary(self.entries[index].role, self.entries[index].parts)
        ]

    def previous_summary(self, compaction: HostCompaction) -> str:
        before = self._before(compaction)
        return "" if before is None else before.summary

    def _before(self, compaction: HostCompaction) -> HostCompaction | None:
        earlier = [
            other
            for other in self.transcript.host_compactions
            if other.number == compaction.number - 1
        ]
        return earlier[0] if earlier else None


async def place_transcript(
    parts: EngineParts, session: SessionId, transcript: RecordedSession
) -> PlacedTranscript:
    """Read the messages of a transcript, and find out which of them were forgotten."""
    stored = await parts.store.session(session)

    def enter_items() -> tuple[Entry, ...]:
        raws = [item.raw for item in transcript.items]
        codec = CODECS[transcript.format]
        readings = read(
            raws, codec, parts.secret, parts.weigher, LastRequest(), seal=parts.seal
        ).new_readings
        placed_items = place_items(transcript, readings, read_live_state(stored))
        pairs = zip(readings, placed_items.keys, strict=True)
        return tuple([enter(reading, key) for reading, key in pairs])

    entries = await asyncio.to_thread(enter_items)
    ids_by_index = [
        {entry.id, *(MessageId(segment_id(session, key)) for key in entry.segment_keys)}
        for entry in entries
    ]
    tombstones = await parts.store.tombstoned(set().union(*ids_by_index))
    forgotten = [index for index, ids in enumerate(ids_by_index) if not tombstones.isdisjoint(ids)]
    return PlacedTranscript(transcript=transcript, entries=entries, forgotten=frozenset(forgotten))


async def store_host_receipts(
    parts: EngineParts, session: SessionId, transcript: RecordedSession, *, ended: bool = True
) -> int:
    """Store a receipt of each compaction of a transcript that has none. Return their number. A
    compaction of a forgotten message gets none, because its summary may quote that message. Unless
    the session `ended`, a compaction gets its receipt only after the model has answered."""
    if not transcript.host_compactions:
        return 0
    numbers = {record.number for record in await parts.store.compactions(session)}
    missing = [
        compaction
        for compaction in transcript.host_compactions
        if compaction.number not in numbers
        and (ended or compaction.is_answered)
        and (compaction.summary or transcript.kind == "codex")
    ]
    if not missing:
        return 0
    placed = await place_transcript(parts, session, transcript)
    turns = await parts.store.records(session)
    mask = TextMask(parts.settings.redaction)
    entries = await asyncio.to_thread(redact_entries, placed.entries, mask)
    masked = PlacedTranscript(transcript=transcript, entries=entries, forgotten=placed.forgotten)
    records = []
    for compaction in missing:
        covered = [i for i, item in enumerate(transcript.items) if item.line < compaction.line]
        if not placed.forgotten.isdisjoint(covered):
            continue
        result = await _measure(parts, session, masked, compaction, mask)
        said_at = compaction.said_at or parts.clock.now()
        earlier = [turn.number for turn in turns if turn.at <= said_at]
        body = write_record(result, turn=earlier[-1] + 1 if earlier else 0, written_at=said_at)
        about = tuple(dict.fromkeys(entries[index].id for index in covered))
        records.append(
            CompactionRecord(
                session=session, number=compaction.number, at=said_at, body=body, about=about
            )
        )
    if records:
        await parts.store.write(Batch(at=parts.clock.now(), compactions=tuple(records)))
    return len(records)


async def _measure(
    parts: EngineParts,
    session: SessionId,
    placed: PlacedTranscript,
    compaction: HostCompaction,
    mask: TextMask,
) -> CompactionResult:
    weigh, settings = parts.weigher.text, parts.settings
    cut_items = placed.cut_items(compaction)
    cut = [placed.entries[index] for index in cut_items]
    kept = [placed.entries[index] for index in sorted(compaction.kept_items)]
    later = [
        entry
        for item, entry in zip(placed.transcript.items, placed.entries, strict=True)
        if item.line > compaction.line
    ]
    made: Receipt | None = None
    notes: tuple[str, ...] = (str(Reason(Cause.HOST_SUMMARY_UNREADABLE)),)
    if compaction.summary:
        notes = ()
        previous = mask.text(placed.previous_summary(compaction))
        sample = await asyncio.to_thread(probe, cut, previous_summary=previous)
        recall = recall_by_text(
            parts.recaller if settings.recall.enabled else None,
            space=parts.space,
            session=session,
            shown_keys=frozenset(entry.key for entry in (*kept, *later)),
            now=parts.clock.now(),
            budget_tokens=settings.recall.hard_cap_tokens,
            count_tokens=weigh,
        )
        result = await receipt(
            sample.probes,
            mask.text(_text_after(compaction, kept)),
            details=sample.details,
            recall=recall,
            pin_tokens=0,
            count_tokens=weigh,
            returned_text=compaction.returned_text,
            all_seconds=_RECALL_SECONDS,
        )
        made = result.receipt
    after = weigh(f"{compaction.summary}\n{compaction.kept_text}") + _tokens_of(kept)
    measured = CompactionResult(
        convergence="reduced",
        reason=Reason(Cause.SUMMARIZED, messages=len(cut)),
        trigger=compaction.trigger,
        number=compaction.number,
        summary=compaction.summary,
        compacted_messages=len(cut),
        tokens_before=compaction.tokens_before or _tokens_of([*cut, *kept]),
        tokens_after=compaction.tokens_after or after,
        receipt=made,
        details={HOST_KEY: placed.transcript.kind},
        notes=notes,
        seconds=compaction.seconds,
    )
    return mask_result(measured, settings.redaction) if settings.redaction.enabled else measured


def _tokens_of(entries: Sequence[Entry]) -> int:
    return sum([entry.tokens for entry in entries])


def _text_after(compaction: HostCompaction, kept: Sequence[Entry]) -> str:
    """Return what the model still sees right after the compaction."""
    texts = [text for entry in kept for text in texts_of_entry(entry)]
    return "\n".join([compaction.summary, compaction.kept_text, *texts])


def texts_of_entry(entry: Entry) -> list[str]:
    """Return the texts of a message, with the arguments and the results of calls."""
    texts = []
    for part in entry.parts:
        if isinstance(part, ToolCall):
            texts.append(part.arguments)
        elif isinstance(part, Text | ToolResult):
            texts.append(part.text)
    return texts
