"""`recollect bench live`: what stands in the request when a user asks, at the defaults.

Owns the options of a run and which strategies are held against the product. Every conversation
goes turn by turn through `prepare` and `observe` of a real engine on a real store, and questions
are asked on branches. It must never tune anything, nor look anything up behind a strategy's back.
Always holds: a figure is measured in this run, and baselines are fed the same conversations.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final, Literal, cast, get_args

from recollect.adapters.providers.openai import OpenAIChatModel
from recollect.core.ports import Model
from recollect.errors import RecollectError
from recollect_bench.live.agent import (
    AgentHalf,
    agent_session,
    assistant_sessions,
    load_domains,
)
from recollect_bench.live.chats import CHAT_SETS, CHAT_WINDOWS, chat_sessions
from recollect_bench.live.feed import Tally
from recollect_bench.live.ordinary import ordinary_sessions
from recollect_bench.live.result import OURS, LivePart, LiveResult, Missed, joined
from recollect_bench.live.result import draw as draw
from recollect_bench.live.run import (
    LiveRun,
    Progress,
    StrategyName,
    Summaries,
    figures_of,
    lost_stages,
    run_session,
)
from recollect_bench.live.sessions import LiveSession
from recollect_bench.llama_server import LlamaMissingError, LlamaServer, find_gguf
from recollect_bench.recall.embedders import ALSO_KNOWN_AS, opened_embedders

AGENT: Final = "agent"
ASSISTANT: Final = "assistant"
CODING: Final = "coding"
ORDINARY: Final = "ordinary"
SETS: Final = (AGENT, ASSISTANT, *CHAT_SETS, CODING, ORDINARY)
STRATEGIES: Final[tuple[StrategyName, ...]] = tuple(
    name
    for name in get_args(StrategyName)
    if name not in ("gateway", "tools", "tools-alone", "both")
)
"""Run unless others are named: the gateway is the product again, by another way, and memory tools
need a model that uses them."""
MODEL_CALL_SECONDS: Final = 900.0
"""A small model on two cores reads and writes some ten tokens a second."""
MODEL_WINDOW_TOKENS: Final = 8192
WINDOWS: Final = {
    AGENT: (16_000, 64_000),
    ASSISTANT: (16_000, 32_000),
    ORDINARY: (32_000,),
    **{name: (window,) for name, window in CHAT_WINDOWS.items()},
}
SUMMARIES: Final[dict[str, tuple[Summaries, ...]]] = {
    AGENT: ("junk", "plausible"),
    ASSISTANT: ("junk", "plausible"),
}
"""Who summarises, unless named; chats have a junk summariser, so that what is found is recall's."""
STATEMENTS: Final = (0, 200)
"""How many further statements the sessions of tool agents have, unless named."""
_OWN: Final = ("static", "none")
"""Embedders that the settings open as quickly as a bench could."""
_QUICK_QUESTIONS: Final = 10
_QUICK_TURNS: Final = 80
_QUICK_STRATEGIES: Final[tuple[StrategyName, ...]] = ("recollect", "sliding-window")
NOTES: Final = (
    "live_all, live_any: questions of which all, or some, of what they need stands in the request;",
    "  of a long message some passage, in live_strict the passage that holds the answer",
    "single, several: questions that need one thing, or more; follow_up: asked ten minutes behind",
    "  the exchange that they lean on; pieces: share of what is needed; kind.X: pieces of a kind",
    "recalled_tokens_p50, _p90: tokens of the block that a question got, of those that got one;",
    "  precision: share of its tokens that are of messages with evidence, the mean over questions",
    "nothing_recalled: questions that nothing said answers, for which a block came",
    "ordinary_blocks: messages of the set ordinary, which need no memory, that got a block",
    "false_blocks: ordinary turns, from the 40th on, that got a new block; block_share: of all",
    "  tokens sent, those in blocks; asked_block_tokens: those that stand when a question is asked",
    "prefix_kept: requests that begin with the whole request before; cost: tokens, at 0.1 read,",
    "  1.25 written, 5 for those of summaries; billed_X: our cost against that strategy's;",
    "  expiring: with a cache that is gone after five minutes",
    "lost.STAGE: share of the needed pieces that were not there, by the stage that lost them",
    "oracle: the passages that are needed and nothing else, in the hard cap; nothing is sent",
    "deadlines are a minute, so that a busy machine changes no figure; the ledger is off",
)
QUICK_NOTE: Final = "a quick run: few questions; its figures are not to be quoted"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """What was asked for."""

    half: AgentHalf
    windows: tuple[int, ...]
    summaries: tuple[Summaries, ...]
    statements: tuple[int, ...]
    strategies: tuple[StrategyName, ...]
    misses: int
    quick: bool
    seeds: int
    most_chats: int | None
    most_questions: int | None
    spread: bool
    how: LiveRun


def run(
    progress: Any = lambda *_: None,
    *,
    sets: Sequence[str] = (AGENT,),
    half: str = "tune",
    window: Sequence[int] = (),
    embedder: str = "static",
    summaries: Sequence[Summaries] = (),
    statements: Sequence[int] = (),
    store: str = "sqlite",
    strategy: Sequence[StrategyName] = (),
    no_pause: bool = False,
    quick: bool = False,
    misses: int = 0,
    seeds: int = 1,
    most_chats: int | None = None,
    most_questions: int | None = None,
    spread: bool = False,
) -> LiveResult:
    """Feed these sets, and sum up what stood in the requests."""
    if misses and (half != "tune" or ASSISTANT in sets):
        raise RecollectError(
            "--misses must not show questions of --half held-out, fresh or new, or of --set"
            " assistant: leave it out, or use the tune half only"
        )
    embedder = ALSO_KNOWN_AS.get(embedder, embedder)
    options = _Options(
        half=cast(AgentHalf, half),
        windows=tuple(window),
        summaries=tuple(summaries) or (("junk",) if quick else ()),
        statements=tuple(statements) or ((0,) if quick else STATEMENTS),
        strategies=tuple(strategy) or (_QUICK_STRATEGIES if quick else STRATEGIES),
        misses=misses,
        quick=quick,
        seeds=seeds,
        most_chats=1 if quick and most_chats is None else most_chats,
        most_questions=_QUICK_QUESTIONS if quick and most_questions is None else most_questions,
        spread=spread,
        how=LiveRun(embedder=embedder, pause=not no_pause),
    )
    parts = asyncio.run(_parts(tuple(dict.fromkeys(sets)), options, store, progress))
    chosen: dict[str, Any] = {"set": list(dict.fromkeys(sets))}
    if AGENT in sets:
        chosen |= {"half": half} | ({"seeds": seeds} if seeds > 1 else {})
    named: dict[str, Any] = {
        "window": list(window),
        "embedder": embedder,
        "summaries": list(summaries),
        "statements": list(statements),
        "store": None if store.startswith("sqlite") else store.partition(":")[0],
        "strategy": list(strategy),
        "no-pause": no_pause,
        "quick": quick,
        "spread": spread,
        "most-chats": most_chats,
        "most-questions": most_questions,
    }
    chosen |= {option: value for option, value in named.items() if value}
    return joined(parts, chosen=chosen, notes=(*NOTES, QUICK_NOTE) if quick else NOTES)


async def _parts(
    sets: Sequence[str], options: _Options, store: str, progress: Progress
) -> list[LivePart]:
    parts: list[LivePart] = []
    async with _opened_store(store) as url, _opened_embedders(options.how.embedder) as how_embedded:
        for name in sets:
            if name == CODING:
                parts += await asyncio.to_thread(_coding, options, progress)
                continue
            told = options.statements if name == AGENT else (0,)
            for window, summaries, statements in product(
                options.windows or WINDOWS[name],
                options.summaries or SUMMARIES.get(name, ("junk",)),
                told,
            ):
                how = replace(
                    options.how,
                    summaries=summaries,
                    store=url,
                    window_tokens=window,
                    **how_embedded,
                )
                sessions = _sessions(name, options, statements)
                part = f"{name}_{window // 1000}k_{options.how.embedder}_{summaries}"
                part += f"_{statements}" if statements else ""
                async with _summarizing(summaries) as model:
                    how = replace(how, model=model)
                    parts.append(await _measured(part, sessions, how, options, progress))
    return parts


@asynccontextmanager
async def _summarizing(summaries: Summaries) -> AsyncIterator[Model | None]:
    """The real model, by weights on this machine; None where none is asked for."""
    if summaries != "model":
        yield None
        return
    try:
        server = LlamaServer(find_gguf(), window_tokens=MODEL_WINDOW_TOKENS)
    except LlamaMissingError as missing:
        raise RecollectError(str(missing)) from missing
    with server:
        model = OpenAIChatModel(
            model=server.gguf.stem,
            base_url=server.base_url,
            deadline_seconds=MODEL_CALL_SECONDS,
            window_tokens=MODEL_WINDOW_TOKENS,
        )
        try:
            yield model
        finally:
            await model.close()


def _sessions(name: str, options: _Options, statements: int) -> list[LiveSession]:
    if name == ASSISTANT:
        return assistant_sessions(
            most_chats=options.most_chats, most_questions=options.most_questions
        )
    if name == ORDINARY:
        return ordinary_sessions(
            most_chats=options.most_chats, most_questions=options.most_questions
        )
    if name != AGENT:
        return chat_sessions(
            name,
            most_questions=options.most_questions,
            most_chats=options.most_chats,
            spread=options.spread,
        )
    domains = load_domains(options.half)[: options.most_chats]
    turns = {"turns": _QUICK_TURNS} if options.quick else {}
    return [
        agent_session(domain, seed, statements=statements, **turns)
        for domain in domains
        for seed in range(options.seeds)
    ]


async def _measured(
    part: str, sessions: Sequence[LiveSession], how: LiveRun, options: _Options, progress: Progress
) -> LivePart:
    tallies: dict[str, list[Tally]] = {}
    total = len(sessions) * len(options.strategies)
    for strategy in options.strategies:
        for session in sessions:
            done = sum(map(len, tallies.values()))
            progress(f"{part} {strategy}: {session.name}", done, total)
            tally = await run_session(session, replace(how, strategy=strategy))
            tallies.setdefault(strategy, []).append(tally)
    figures = {strategy: _summed_up(held) for strategy, held in tallies.items()}
    _bill(figures)
    missed = [
        Missed.of(part, question)
        for tally in tallies.get(OURS, ())
        for question in tally.asked
        if not question.answered
    ]
    return LivePart(name=part, figures=figures, misses=tuple(missed[: options.misses]))


def _summed_up(tallies: Sequence[Tally]) -> dict[str, float]:
    pieces = sum(len(question.found) for tally in tallies for question in tally.asked)
    lost = lost_stages(tallies).most_common()
    return figures_of(tallies) | {f"lost.{stage}": times / pieces for stage, times in lost}


def _bill(figures: dict[str, dict[str, float]]) -> None:
    """Our cost against that of others, where both were measured."""
    ours = figures.get(OURS)
    if ours is None:
        return
    for strategy, held in figures.items():
        if strategy != OURS and held.get("cost"):
            ours[f"billed_{strategy}"] = ours["cost"] / held["cost"]
            ours[f"billed_expiring_{strategy}"] = ours["expiring_cost"] / held["expiring_cost"]


def _coding(options: _Options, progress: Progress) -> list[LivePart]:
    """Coding sessions have a replay and figures of their own."""
    from recollect_bench.live import coding

    rows = coding.run_coding(progress, windows=options.windows or coding.WINDOWS)
    names = {coding.DEFAULT: OURS, coding.PLAIN: "plain-compaction"}
    strategies = dict.fromkeys(row.strategy for row in rows)
    ordered = sorted(strategies, key=lambda one: one != coding.DEFAULT)
    figures = {names.get(one, one): coding.figures_of(rows, one) for one in ordered}
    return [LivePart(name=CODING, figures=figures)]


@asynccontextmanager
async def _opened_embedders(name: str) -> AsyncIterator[dict[str, Any]]:
    """How the product gets its vectors: as the settings open them, or with a cache of ours."""
    if name in _OWN:
        yield {"embedder": name}
        return
    async with opened_embedders(name, cached=True) as embedders:
        yield {"embedders": embedders}


@asynccontextmanager
async def _opened_store(store: str) -> AsyncIterator[str]:
    """Where memories are kept: temporary files, or a temporary server."""
    if store in ("sqlite", "sqlite:"):
        yield "sqlite"
        return
    if store not in ("pg16", "pg18"):
        raise RecollectError(f"no store is named {store}: give sqlite, pg18 or pg16")
    from recollect_bench.postgres_server import PostgresServer

    version: Literal[16, 18] = 16 if store == "pg16" else 18
    with PostgresServer(version) as server:
        yield (await server.migrated_database()).app_url
