"""Moves a memory into another one, after `recollect project join`. Every step can be repeated, and
the old memory is deleted last, so an interrupted move loses nothing and is finished later."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from recollect.adapters.wiring.stores import (
    data_secret,
    delete_stored_space,
    is_stored,
    open_store,
    seal_secret,
    spool_state,
    store_spooled,
)
from recollect.core.ports import Store, read_pages
from recollect.core.rules.identity import space_secret
from recollect.core.transfer.transcripts import ImportRules
from recollect.core.turn.ingest import index
from recollect.core.values.batch import Batch, LedgerPiece, PieceHash, TurnRecord
from recollect.core.values.history import SpaceId
from recollect.core.values.segment import NewSegment, StoredSegment
from recollect.core.values.upkeep import ForgetOrder
from recollect.errors import StoreUnavailable
from recollect.system import projects
from recollect.system.config import Settings

_DRAIN_SECONDS: Final = 60.0
"""Not measured; bounds how long a move waits for messages that are in the spool."""
_TURNS_PER_BATCH: Final = 50
"""Not measured; bounds the memory and the time of one write."""


@dataclass(slots=True)
class MoveCounts:
    """Numbers of messages, facts and turns that a move copied."""

    segments: int = 0
    facts: int = 0
    turns: int = 0


def import_rules(settings: Settings, space: SpaceId, url: str | None) -> ImportRules:
    """Return the rules to import transcripts into a memory, also after others were moved into it.
    Opens PostgreSQL for its secret if nothing did before."""
    data, project = data_secret(url), projects.project_of(space)
    return replace(
        ImportRules.of(
            settings,
            secret=space_secret(space, data),
            seal=partial(seal_secret, space, url),
            now=time.time(),
        ),
        stored_until=project.stored_until,
        joined_secrets=tuple([space_secret(joined_space, data) for joined_space in project.joined]),
    )


async def finish_moves(settings: Settings, url: str | None) -> MoveCounts:
    """Move the messages of joined memories that are not moved yet, then delete these memories."""
    counts = MoveCounts()
    for source_space, target_space in await asyncio.to_thread(projects.pending_moves):
        if is_stored(url, source_space):
            if (await spool_state(url, space=source_space, key=settings.store.key)).waiting:
                await store_spooled(settings, source_space, url, seconds=_DRAIN_SECONDS)
            await _move(settings, url, source_space, target_space, counts)
            if (await spool_state(url, space=source_space, key=settings.store.key)).waiting:
                raise StoreUnavailable("messages of the joined memory wait in the spool: try again")
            await delete_stored_space(settings, source_space, url, must_exist=False)
        await asyncio.to_thread(projects.end_move, source_space, target_space)
    return counts


async def _move(
    settings: Settings,
    url: str | None,
    source_space: SpaceId,
    target_space: SpaceId,
    counts: MoveCounts,
) -> None:
    key = settings.store.key
    source = await open_store(url, space=source_space, create=False, key=key)
    try:
        target = await open_store(url, space=target_space, key=key, makes_ids=True)
        try:
            until = {
                summary.session: summary.last_said_at
                for summary in await source.sessions()
                if summary.last_said_at is not None
            }
            # before the first message, so that no hook stores one again
            await asyncio.to_thread(projects.keep_times, target_space, until)
            await copy_memory(source, target, counts)
        finally:
            await target.close()
    finally:
        await source.close()


async def copy_memory(source: Store, target: Store, counts: MoveCounts) -> None:
    """Copy messages, facts, receipts and recorded requests. What either memory forgot stays out."""
    now = time.time()
    forgotten_ids = await source.tombstoned()
    if forgotten_ids:  # first, so that no hook stores one again
        await target.forget(ForgetOrder(at=now, message_ids=tuple(forgotten_ids)))
    async for page in read_pages(source):
        segments = await asyncio.to_thread(_index_all, page)
        write_result = await target.write(Batch(at=now, segments=segments))
        counts.segments += len(write_result.stored)
    facts = await source.facts(superseded=True)
    known_ids = {fact.id for fact in await target.facts(superseded=True)}
    new_facts = tuple(fact for fact in facts if fact.id not in known_ids)
    if new_facts:
        await target.write(Batch(at=now, facts=new_facts))
        counts.facts += len(new_facts)
    for summary in await source.sessions():
        compactions = await source.compactions(summary.session)
        if compactions:
            await target.write(Batch(at=now, compactions=compactions))
        counts.turns += await _copy_turns(source, target, summary.session, now)


def _index_all(page: tuple[StoredSegment, ...]) -> tuple[NewSegment, ...]:
    return tuple(
        NewSegment(segment=segment, passages=() if segment.noise else index(segment))
        for segment in [stored.segment for stored in page]
    )


async def _copy_turns(source: Store, target: Store, session: str, now: float) -> int:
    known_numbers = set(await target.turns(session))
    records = [
        record for record in await source.records(session) if record.number not in known_numbers
    ]
    for start in range(0, len(records), _TURNS_PER_BATCH):
        turns = tuple(records[start : start + _TURNS_PER_BATCH])
        hashes = dict.fromkeys(piece for turn in turns for piece in _pieces_of(turn))
        pieces: dict[PieceHash, LedgerPiece] = dict(await source.pieces(tuple(hashes)))
        await target.write(Batch(at=now, turns=turns, pieces=tuple(pieces.values())))
    return len(records)


def _pieces_of(turn: TurnRecord) -> list[PieceHash]:
    whole_pieces = (turn.system, turn.tools, turn.rest, turn.edits, turn.report)
    return [piece for piece in (*whole_pieces, *turn.outcomes, *turn.rows) if piece is not None]
