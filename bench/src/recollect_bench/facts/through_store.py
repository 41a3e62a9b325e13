"""Puts sessions into a real store and lets the background's own jobs read them for facts.

Owns the way in: messages as a chat's wire format has them, read by its codec, by `turn/ingest`,
written with the job that a session's end enqueues; then the jobs as the engine runs them. Must
never score anything, nor call a stage that the product would not. Always holds: the memory is a
file in a temporary folder, and is gone afterwards.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from recollect.config import Settings
from recollect.config.settings import Recall, Redaction
from recollect.engine.background import runner_of
from recollect.errors import RecollectError
from recollect.formats.codec import CODECS
from recollect.formats.json_text import encode
from recollect.ports import Store
from recollect.rules.identity import ROOT, chain, space_secret
from recollect.rules.tokens import Weigher
from recollect.stores.sqlite import SQLiteStore
from recollect.turn.align import LastRequest, enter, read
from recollect.turn.ingest import IngestResult, ingest
from recollect.upkeep.jobs import JobRunner, RunResult
from recollect.values.batch import Batch, extract_job
from recollect.values.fact import Fact
from recollect.values.history import Entry
from recollect.values.message import CallId
from recollect.values.segment import SegmentId
from recollect_bench.facts.bury import Placed, Sitting
from recollect_bench.recall.memory import FrozenClock

FORMAT: Final = "openai-chat"
SPACE: Final = "bench-facts"
STARTED_AT: Final = 1_760_000_000.0
SECONDS_APART: Final = 30.0

Scope: TypeAlias = Literal["space", "auto"]
"""`recall.scope`: one memory of all sessions, or as shipped, where each session of requests that
nobody wired together is a memory of its own."""
SCOPES: Final[Mapping[str, Scope]] = {"": "space", "session_scope.": "auto"}
"""What figures begin with, by the scope that a memory was read with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a memory holds after every session was read for facts."""

    facts: tuple[Fact, ...] = field(repr=False)
    """All of them, superseded ones too."""
    placed: Mapping[SegmentId, Placed] = field(repr=False)
    """Which message each segment was."""
    scope: Scope = "space"
    """What it was read with."""
    messages: int
    segments: int
    ingest_seconds: float
    extract_seconds: float


def ingested(sitting: Sitting, *, began_at: float) -> tuple[IngestResult, dict[SegmentId, Placed]]:
    """A session as segments, and which message each of them was."""
    entries, names = _entries(sitting.messages)
    done = ingest(
        entries,
        session=sitting.name,
        source="request",
        said_at={
            entry.key: began_at + SECONDS_APART * at if placed.said_at is None else placed.said_at
            for at, (entry, placed) in enumerate(zip(entries, sitting.messages, strict=True))
        },
        redaction=Redaction(),
        now=began_at,
        tool_names=names,
    )
    by_key = {entry.key: placed for entry, placed in zip(entries, sitting.messages, strict=True)}
    return done, {new.segment.id: by_key[new.segment.key] for new in done.segments}


def _entries(messages: Sequence[Placed]) -> tuple[list[Entry], dict[CallId, str]]:
    raws: list[bytes] = []
    names: dict[CallId, str] = {}
    for at, placed in enumerate(messages):
        raw: dict[str, Any] = {"role": placed.role, "content": placed.text}
        if placed.role == "tool":
            raw["tool_call_id"] = f"call-{at}"
            names[CallId(f"call-{at}")] = placed.tool or ""
        raws.append(encode(raw))
    done = read(raws, CODECS[FORMAT], space_secret(SPACE), Weigher(), LastRequest())
    entries: list[Entry] = []
    key = ROOT
    for reading in done.fresh:
        key = chain(key, reading.id)
        entries.append(enter(reading, key))
    return entries, names


async def remember(
    sittings: Sequence[Sitting],
    progress: Callable[[str, int, int], None] = lambda *_: None,
    *,
    scope: Scope = "space",
) -> Kept:
    """Write the sessions to a store of their own, run what they enqueued, and read the facts."""
    with tempfile.TemporaryDirectory(prefix="recollect-facts-") as folder:
        store = await SQLiteStore.open(Path(folder) / "memory.db", space=SPACE)
        try:
            return await _remembered(store, sittings, progress, scope)
        finally:
            await store.close()


async def _remembered(
    store: Store,
    sittings: Sequence[Sitting],
    progress: Callable[[str, int, int], None],
    scope: Scope,
) -> Kept:
    placed: dict[SegmentId, Placed] = {}
    began_at = STARTED_AT
    started = time.perf_counter()
    for at, sitting in enumerate(sittings):
        progress("writing sessions", at, len(sittings))
        done, known = ingested(sitting, began_at=began_at)
        placed |= known
        job = extract_job(sitting.name, run_at=began_at, left=True)
        await store.write(Batch(at=began_at, segments=done.segments, jobs=(job,)))
        began_at += SECONDS_APART * (len(sitting.messages) + 1)
    written = time.perf_counter()
    settings = Settings(recall=Recall(scope=scope))
    runner = runner_of(store, settings, FrozenClock(at=began_at))
    await _run_jobs(runner, len(sittings), progress)
    return Kept(
        facts=await store.facts(superseded=True),
        placed=placed,
        scope=scope,
        messages=sum(len(sitting.messages) for sitting in sittings),
        segments=len(placed),
        ingest_seconds=written - started,
        extract_seconds=time.perf_counter() - written,
    )


async def _run_jobs(
    runner: JobRunner, sessions: int, progress: Callable[[str, int, int], None]
) -> None:
    done = 0

    def told(result: RunResult) -> None:
        nonlocal done
        done += result.done
        progress("reading sessions for facts", min(done, sessions), sessions)

    result = await runner.run_due(told=told)
    if result.failed or result.dead or result.lost or result.done < sessions:
        raise RecollectError(
            f"{result.failed + result.dead + result.lost} jobs of {sessions} sessions failed "
            f"({result.reason}): the figures would not be of the whole memory"
        )
