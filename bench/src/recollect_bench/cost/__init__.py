"""`recollect bench cost`: what keeping a long conversation in its window costs, and what it keeps.

Owns the options of a run: which recordings, which windows, which strategies. Every request of
ours goes through the real engine and a real store; plain compaction and `preset = "openclaw"` are
replayed in the same run with the same counter, prices and stand-in for the model. It must never
tune anything, nor keep anything of a recording but in temporary stores. Always holds: a figure is
measured in this run.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from recollect_bench.cost.data import Conversation, load_conversations, sliced
from recollect_bench.cost.draw import draw as draw
from recollect_bench.cost.result import (
    GATEWAY,
    OPENCLAW,
    OURS,
    PLAIN,
    CostResult,
    Replay,
    summed_up,
)
from recollect_bench.cost.strategies import Tally, replay_engine, replay_plain

WINDOWS: Final[tuple[int, ...]] = (64_000, 128_000, 200_000)
QUICK_WINDOWS: Final[tuple[int, ...]] = (32_000,)
QUICK_ROWS: Final = 120
NOTES: Final = (
    "one request before every reply; system prompt and tools of 6,000 tokens; the longest common",
    "  run of messages with the request before is read at 0.1, the rest written at 1.25; a call",
    "  for a summary costs its input and 1,500 tokens at 5; tokens are bytes / 4; 16,000 reserved",
    "cost: relative to plain compaction (all but the newest 20,000 tokens become a summary) on the",
    "  same transcript; pooled: the geometric mean over transcripts that are not held out",
    "retention: of the identifiers in a message that stood earlier but not in the last 5 messages,",
    "  the share that is in the request just before it, as it was sent",
    "recovered: of those of them that no message in the request says any more, the share that a",
    "  summary or a recalled block in it names; left: how many there were",
    "useful: of those of them about which an earlier line was said that the message relies on (the",
    "  line with the name that shares most words with it), the share that a summary or a recalled",
    "  block tells about: half of the line's other content words within 300 characters of it;",
    "  relied: how many there were. A name in a list is recovered, and not useful",
    "cached: the share of tokens that were read from the cache",
    "ours and openclaw: the real engine and a SQLite store, a cache that never expires, counts",
    "  not calibrated; ours by words alone (no embedder) and otherwise the defaults, audits of",
    "  summaries included; openclaw is its preset, with its hash vectors",
    "gateway: ours through `recollect gateway` over HTTP, with usage reported as a provider does",
    "  (--through-gateway); recordings of pi are then replayed as Anthropic's Messages",
    "summaries are a stand-in's: the 100 most named identifiers in 1,500 tokens; fixed replay:",
    "  nobody pays for reading again what was forgotten; by this stand-in a summary tells nothing",
)
QUICK_NOTE: Final = "a quick run: a slice, one small window; its figures are not to be quoted"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """One strategy on one conversation in one window."""

    conversation: Conversation
    window_tokens: int
    strategy: str


def run(
    progress: Any = lambda *_: None,
    *,
    paths: Sequence[str] = (),
    svg: str | None = None,
    quick: bool = False,
    through_gateway: bool = False,
) -> CostResult:
    """Replay every recording by every strategy in every window.

    With `through_gateway` ours is replayed through a real gateway, too, beside the same wire
    offline; recordings in a wire that it does not serve are translated for both.
    """
    progress("reading transcripts")
    conversations = load_conversations([Path(path).expanduser() for path in paths], quick=quick)
    windows = WINDOWS
    if quick:
        conversations = [sliced(conversation, QUICK_ROWS) for conversation in conversations]
        windows = QUICK_WINDOWS
    strategies: tuple[str, ...] = (PLAIN, OURS, OPENCLAW)
    if through_gateway:
        from recollect_bench.cost.gateway import as_served

        conversations = [as_served(conversation) for conversation in conversations]
        strategies = (PLAIN, OURS, GATEWAY)
    jobs = [
        _Job(conversation=conversation, window_tokens=window, strategy=strategy)
        for conversation in conversations
        for window in windows
        for strategy in strategies
    ]
    tallies = _in_turn(jobs, progress) if quick else _side_by_side(jobs, progress)
    replays = [
        Replay(
            transcript=job.conversation.name,
            held_out=job.conversation.held_out,
            window_tokens=job.window_tokens,
            strategy=job.strategy,
            tally=tally,
        )
        for job, tally in zip(jobs, tallies, strict=True)
    ]
    result = summed_up(replays, [*NOTES, *([QUICK_NOTE] if quick else [])])
    if svg is not None:
        from recollect_bench.charts import cost_chart  # loads matplotlib

        Path(svg).write_text(cost_chart(result.as_json()), encoding="utf-8")
    return result


def _in_turn(jobs: Sequence[_Job], progress: Any) -> list[Tally]:
    done = []
    for at, job in enumerate(jobs):
        progress("replaying", at, len(jobs))
        done.append(_replayed(job))
    return done


def _side_by_side(jobs: Sequence[_Job], progress: Any) -> list[Tally]:
    """In as many processes as there are cores, the longest first; the order changes nothing."""
    order = sorted(range(len(jobs)), key=lambda at: -len(jobs[at].conversation.rows))
    tallies: dict[int, Tally] = {}
    workers = min(len(jobs), os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        running = {at: pool.submit(_replayed, jobs[at]) for at in order}
        for done, at in enumerate(order):
            progress("replaying", done, len(jobs))
            tallies[at] = running[at].result()
    return [tallies[at] for at in range(len(jobs))]


def _replayed(job: _Job) -> Tally:
    if job.strategy == PLAIN:
        return replay_plain(job.conversation, job.window_tokens)
    if job.strategy == GATEWAY:
        from recollect_bench.cost.gateway import replay_gateway

        return asyncio.run(replay_gateway(job.conversation, job.window_tokens))
    preset = "openclaw" if job.strategy == OPENCLAW else "recollect"
    return asyncio.run(replay_engine(job.conversation, job.window_tokens, preset=preset))
