"""Runs sets of conversations by strategies, and sums up what stood in the requests.

Owns how the product is opened (everything as shipped; only the window, the embedder, the store
and the model that summarises are chosen) and the names of figures.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, quantiles
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal, TypeAlias
from uuid import uuid4

from recollect.adapters.wiring.memory import open_memory
from recollect.core.engine import Engine
from recollect.core.ports import Embedder, Model
from recollect.core.search.tokenize import split_passages
from recollect.core.values.model import Answer, Prompt
from recollect.system.config import Settings, load_settings
from recollect_bench.live.feed import (
    Asked,
    LiveClock,
    PlainCompaction,
    SlidingWindow,
    Strategy,
    Tally,
    ThroughEngine,
    ThroughTools,
    count,
    feed,
    folded,
)
from recollect_bench.live.sessions import LiveSession, spoken

Summaries: TypeAlias = Literal["none", "junk", "plausible", "model"]
StrategyName: TypeAlias = Literal[
    "recollect",
    "gateway",
    "tools",
    "tools-alone",
    "both",
    "recall-off",
    "block-4000",
    "sliding-window",
    "plain-compaction",
    "oracle",
]
PATIENCE: Final = 60.0
"""Deadlines of a run: a busy machine must not change a figure."""
_PATIENT: Final[dict[str, Any]] = {
    "recall.deadline_seconds": PATIENCE,
    "turn.deadline_seconds": PATIENCE,
    "store.read_seconds": PATIENCE,
    "store.write_seconds": PATIENCE,
    "ledger.enabled": False,  # no request depends on it, and masking its records takes long
}
_USER_LINE: Final = re.compile(r"^\[User\]: (.{1,160})", re.MULTILINE)
_PROGRESS: Final = "## Goal\nWork goes on.\n\n## Progress"
_JUNK: Final = f"{_PROGRESS}\nSeveral things were done."
_MOST_LINES: Final = 24
_SHORTER: Final = 3
"""A plausible summary takes a third of what it is made of, at the most."""


def summarized(how: Summaries, text: str) -> str:
    """A summary of this text: says nothing, or what the user said last, a line each.

    No two that say nothing are the same, as a model's never are: the engine refuses an answer that
    only repeats the summary before.
    """
    if how == "junk":
        return f"{_JUNK} The log had {len(text)} characters."
    lines = [match[1] for match in _USER_LINE.finditer(text)] or text.splitlines()
    kept: list[str] = []
    room = len(text) // _SHORTER
    for line in reversed(lines[-_MOST_LINES:]):
        room -= len(line[:160]) + 3
        if room < 0:
            break
        kept.append(f"- {line[:160]}")
    return "\n".join([_PROGRESS, *reversed(kept)])


class Summarizer:
    """A model that summarises, as the engine asks it: a real one, or one that only pretends."""

    def __init__(self, how: Summaries, model: Model | None = None) -> None:
        self.name = "bench-summariser" if model is None else model.name
        self.window_tokens = None if model is None else model.window_tokens
        self._how = how
        self._model = model
        self.asked_chars = 0
        self.written_chars = 0

    async def ask(self, prompt: Prompt) -> Answer:
        """The summary of what the prompt holds."""
        self.asked_chars += len(prompt.text)
        if self._model is None:
            answer = Answer(text=summarized(self._how, prompt.text))
        else:
            answer = await self._model.ask(prompt)
        self.written_chars += len(answer.text)
        return answer

    async def close(self) -> None:
        """Nothing to give back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRun:
    """How one strategy is run."""

    strategy: StrategyName = "recollect"
    window_tokens: int = 16_000
    embedder: str = "none"
    summaries: Summaries = "none"
    model: Model | None = None
    """Who summarises where `summaries` asks for a real model."""
    store: str = "sqlite"
    """`sqlite`, a temporary file; or the URL of a server."""
    pause: bool = True
    changes: dict[str, Any] = field(default_factory=dict)
    embedders: tuple[Embedder, ...] = ()
    """In place of the settings' own: those with a cache of vectors."""


async def run_session(session: LiveSession, how: LiveRun) -> Tally:
    """One conversation by one strategy."""
    if how.strategy == "oracle":
        return told_by_oracle(session, how.window_tokens)
    if how.strategy in ("sliding-window", "plain-compaction"):
        limit = how.window_tokens - how.window_tokens // 4
        strategy: Strategy = SlidingWindow(limit)
        if how.strategy == "plain-compaction":
            strategy = PlainCompaction(limit, lambda text: summarized(how.summaries, text))
        return await feed(session, strategy)
    clock = LiveClock()
    clock.at = session.exchanges[0].at
    model = None if how.summaries == "none" else Summarizer(how.summaries, how.model)
    arguments: dict[str, Any] = {**_PATIENT, "window_tokens": how.window_tokens, **how.changes}
    if not how.embedders:
        arguments.setdefault("recall.embedder", how.embedder)
    if how.strategy in ("recall-off", "tools-alone"):
        arguments["recall.enabled"] = False
    elif how.strategy == "tools":  # nothing is recalled for a turn; what was laid down still stands
        arguments |= {"recall.block_tokens": 0, "recall.hard_cap_tokens": 0}
    elif how.strategy == "block-4000":
        arguments |= {"recall.every_turn": True, "recall.block_tokens": 4000}
    settings = load_settings(arguments=arguments, environment={}, file=Path("/dev/null")).settings
    with TemporaryDirectory(prefix="recollect-live-") as folder:
        store = str(Path(folder) / "memory.db") if how.store == "sqlite" else how.store

        def opened(space: str) -> Engine:
            return open_memory(
                space=space,
                store=store,
                clock=clock,
                model=model,
                settings=settings,
                embedders=how.embedders or None,
            )

        # a server may hold what another strategy was told
        space = f"{session.name}-{uuid4().hex[:8]}"
        if how.strategy == "gateway":
            from recollect_bench.live.gateway import through_gateway

            return await through_gateway(session, in_space(settings, space), clock, opened)
        async with opened(space) as memory:
            by_tools = how.strategy in ("tools", "tools-alone", "both")
            through = (ThroughTools if by_tools else ThroughEngine)(
                memory, session, clock, pause=how.pause
            )
            if model is not None:
                through.watch(model)
            return await feed(session, through)


def in_space(settings: Settings, space: str) -> Settings:
    """The settings with this space for what goes through the gateway."""
    return replace(settings, gateway=replace(settings.gateway, space=space))


def told_by_oracle(session: LiveSession, window_tokens: int) -> Tally:
    """What fits into the hard cap of somebody who knows which passages a question needs."""
    cap = min(Settings().recall.hard_cap_tokens, window_tokens // 10)
    texts = [spoken([message]) for exchange in session.exchanges for message in exchange.messages]
    passages = [cut.text for text in dict.fromkeys(texts) for cut in split_passages(text)]
    readable = [(folded(passage), count(passage)) for passage in passages]

    def size(text: str) -> int:
        looked_for = folded(text)
        return min((cost for held, cost in readable if looked_for in held), default=count(text))

    tally = Tally()
    for _, question in session.questions:
        room, strict_room = cap, cap
        found: list[bool] = []
        strict: list[bool] = []
        for need in question.needs:
            strictly = sum(map(size, need.texts))
            room -= min(map(size, need.any_of)) if need.any_of else strictly
            strict_room -= strictly
            found.append(room >= 0)
            strict.append(strict_room >= 0)
        tally.asked.append(
            Asked(
                question=question,
                found=tuple(found),
                strict=tuple(strict),
                lost_by="the hard cap",
                block_tokens=cap - max(0, room),
                request_tokens=cap,
                recalled_tokens=cap - max(0, room),
                evidence_tokens=cap - max(0, room),
            )
        )
    return tally


def figures_of(tallies: Sequence[Tally]) -> dict[str, float]:
    """All that these tallies say together."""
    figures: dict[str, float] = {}
    asked = [question for tally in tallies for question in tally.asked]
    leaning = [a for a in asked if a.question.kind == "follow-up"]
    alone = [a for a in asked if a.question.kind != "follow-up"]
    for name, some in (
        ("single", [a for a in alone if len(a.question.needs) == 1]),
        ("several", [a for a in alone if len(a.question.needs) > 1]),
        ("follow_up", leaning),
    ):
        if not some:
            continue
        pieces = [found for a in some for found in a.found]
        figures[f"{name}_all"] = sum(a.answered for a in some) / len(some)
        figures[f"{name}_any"] = sum(any(a.found) for a in some) / len(some)
        figures[f"{name}_pieces"] = sum(pieces) / len(pieces)
        figures[f"{name}_questions"] = len(some)
    questions = [a for a in asked if a.question.needs]
    if questions:
        figures["live_all"] = sum(a.answered for a in questions) / len(questions)
        figures["live_any"] = sum(any(a.found) for a in questions) / len(questions)
        if any(need.any_of for a in questions for need in a.question.needs):
            figures["live_strict"] = sum(all(a.strict) for a in questions) / len(questions)
    for kind in sorted({a.question.kind for a in questions}):
        some = [a for a in questions if a.question.kind == kind]
        pieces = [found for a in some for found in a.found]
        figures[f"kind.{kind}"] = sum(pieces) / len(pieces)
    figures |= _block_figures(asked)
    ordinary = sum(tally.ordinary for tally in tallies)
    if ordinary:
        figures["false_blocks"] = sum(tally.false_blocks for tally in tallies) / ordinary
    requests = sum(tally.requests for tally in tallies)
    if requests:
        sent = sum(t.request_tokens for t in tallies)
        figures["block_share"] = sum(t.block_tokens for t in tallies) / sent
        figures["request_tokens"] = sent / requests
        figures["prefix_kept"] = sum(tally.grown for tally in tallies) / requests
        if refused := [t.overflows for t in tallies if t.overflows is not None]:
            figures["overflows"] = sum(refused)
        figures["cost"] = sum(tally.cost for tally in tallies)
        figures["expiring_cost"] = sum(tally.expiring_cost for tally in tallies)
    seconds = sorted(second for tally in tallies for second in tally.seconds)
    if len(seconds) > 1:
        cuts = quantiles(seconds, n=100)
        figures["prepare_p50_ms"], figures["prepare_p99_ms"] = 1000 * cuts[49], 1000 * cuts[98]
    return figures


def _block_figures(asked: Sequence[Asked]) -> dict[str, float]:
    """How large blocks are, how much of them is evidence, and which were asked for by nobody."""
    figures: dict[str, float] = {}
    nothing = [a for a in asked if not a.question.needs and not a.question.ordinary]
    if nothing:
        figures["nothing_recalled"] = sum(a.new_block for a in nothing) / len(nothing)
    ordinary = [a for a in asked if a.question.ordinary]
    if ordinary:
        figures["ordinary_blocks"] = sum(a.new_block for a in ordinary) / len(ordinary)
        figures["ordinary_questions"] = len(ordinary)
    for kind in sorted({a.question.kind for a in ordinary}):
        some = [a for a in ordinary if a.question.kind == kind]
        figures[f"ordinary_blocks.{kind}"] = sum(a.new_block for a in some) / len(some)
    if asked:
        figures["asked_block_tokens"] = sum(a.block_tokens for a in asked) / len(asked)
    sizes = sorted(a.recalled_tokens for a in asked if a.new_block)
    if len(sizes) > 1:
        tenths = quantiles(sizes, n=10, method="inclusive")
        figures["recalled_tokens_p50"], figures["recalled_tokens_p90"] = tenths[4], tenths[8]
    shares = [
        a.evidence_tokens / a.recalled_tokens for a in asked if a.new_block and a.question.needs
    ]
    if shares:
        figures["precision"] = fmean(shares)
    return figures


def lost_stages(tallies: Sequence[Tally]) -> Counter[str]:
    """What lost the pieces that were not there, by stage."""
    return Counter(
        a.lost_by for tally in tallies for a in tally.asked for found in a.found if not found
    )


Progress: TypeAlias = Callable[..., None]
