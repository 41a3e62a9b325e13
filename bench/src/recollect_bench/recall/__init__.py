"""`recollect bench recall`: how much of what a question needs is in the recalled block.

Owns the options of a run and the choice of what is measured. Every memory goes through the
real way in, a real store and the real stage `turn/recall`; baselines rank the same memory in the
same run. It must never tune anything, nor write data of a set anywhere but into temporary
stores. Always holds: a figure is measured in this run, and one that was not is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from recollect.errors import RecollectError
from recollect_bench.recall.ask import Asker, RecallStage
from recollect_bench.recall.draw import draw as draw
from recollect_bench.recall.embedders import ALSO_KNOWN_AS, opened_embedders
from recollect_bench.recall.own import NO_MISSES, measure_own
from recollect_bench.recall.result import RecallResult, SetResult, joined
from recollect_bench.recall.run import Progress, compare_stores, measure_set
from recollect_bench.recall.sets import load_set
from recollect_bench.store_target import open_target

OWN: Final = "own"
NOTES: Final = (
    "all_4k: of all gold messages a passage is in a block of 4,000 tokens (a third of the",
    "  characters, speakers and dates charged); strict_4k: the passage that holds the answer is;",
    "  recall_at_10: share of gold messages among the ten best; session_at_1, session_at_5: a",
    "  session with a gold message is first, or among the first five; all without the gate",
    "longmemeval is the pool of LongMemEval's evidence turns, not that benchmark's own protocol",
    "all_4k_gated, strict_4k_gated: the same as a turn has it: nothing where the gate stays shut,",
    "  and behind it no echoes of the question and no tail of the ranking; of several messages",
    "  (madial) the newest alone asks there",
    "lost: questions the gate keeps from memory; false_recall: other chats' questions, asked of",
    "  a memory that holds nothing on them, that recall something (a fixed sample)",
    "baselines rank whole messages of the same memory; openclaw: 0.7 vector + 0.3 BM25,",
    "  without OpenClaw's decay and threshold, which would only lower it",
    "baselines are asked as recall is: vectors by the same phrased question, without speakers'",
    "  names (hash: with them), BM25 by all words of the question",
)
COMPARED: Final = (
    "same_top_50: questions for which both rank the same fifty passages alike: the same order,",
    "  or scores within 1e-4 where it differs; asked without the gate",
)
QUICK_NOTE: Final = "a quick run: few questions; its figures are not to be quoted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What was asked for."""

    sets: tuple[str, ...]
    embedder: str
    store: str
    compare: tuple[str, str] | None
    paths: tuple[Path, ...]
    misses: int
    quick: bool
    cached: bool


def run(
    progress: Any = lambda *_: None,
    *,
    sets: Sequence[str] = ("locomo",),
    embedder: str = "hash",
    store: str = "sqlite",
    compare: str | None = None,
    paths: Sequence[str] = (),
    misses: int = 0,
    svg: str | None = None,
    quick: bool = False,
    no_cache: bool = False,
    stage: RecallStage | None = None,
) -> RecallResult:
    """Measure recall on these sets; `stage` stands for the product's own in tests."""
    if OWN in sets and not paths:
        raise RecollectError(
            "--set own needs --paths: files or folders of your transcripts; Claude Code keeps them"
            " in ~/.claude/projects, Codex in ~/.codex/sessions, pi in ~/.pi/agent/sessions"
        )
    options = Options(
        sets=tuple(dict.fromkeys(sets)),
        embedder=ALSO_KNOWN_AS.get(embedder, embedder),
        store=_url(store),
        compare=None if compare is None else _two(compare),
        paths=tuple(Path(path).expanduser() for path in paths),
        misses=misses,
        quick=quick,
        cached=not no_cache and OWN not in sets,  # nothing of a user's stays on the disk
    )
    result = asyncio.run(_run(options, stage or _product_stage(), progress))
    if svg is not None:
        from recollect_bench.charts import recall_chart  # loads matplotlib

        Path(svg).write_text(recall_chart(result.as_json()), encoding="utf-8")
    return result


def _product_stage() -> RecallStage:
    from recollect.core.turn.recall import recall

    return recall


def _url(store: str) -> str:
    return "sqlite:" if store == "sqlite" else store


def _named(url: str) -> str:
    """What a store is called in a result: no folder, no server, no password."""
    return url.partition(":")[0]


def _two(compare: str) -> tuple[str, str]:
    first, _, second = compare.partition(",")
    if not first or not second or "," in second:
        raise RecollectError("--compare takes two stores, as in --compare sqlite,pg18")
    return _url(first), _url(second)


async def _run(options: Options, stage: RecallStage, progress: Progress) -> RecallResult:
    async with opened_embedders(options.embedder, cached=options.cached) as embedders:
        measured: list[SetResult] = []
        for name in options.sets:
            asker = Asker(stage=stage, embedders=embedders)
            progress(f"{name}: reading")
            if options.compare is not None:
                measured.append(await _compared(name, options, asker, progress))
            else:
                measured.append(await _measured(name, options, asker, progress))
    notes: list[str] = []
    if options.compare is not None:
        notes += COMPARED
    elif options.sets != (OWN,):
        notes += NOTES
    notes += [NO_MISSES] if OWN in options.sets and options.misses else []
    notes += [QUICK_NOTE] if options.quick else []
    return joined(measured, notes=notes)


async def _measured(name: str, options: Options, asker: Asker, progress: Progress) -> SetResult:
    async with open_target(options.store) as target:
        if name == OWN:
            measured = await measure_own(
                options.paths,
                asker=asker,
                embedder=options.embedder,
                target=target,
                quick=options.quick,
                progress=progress,
            )
        else:
            measured = await measure_set(
                load_set(name, quick=options.quick),
                asker=asker,
                embedder=options.embedder,
                target=target,
                misses=options.misses,
                progress=progress,
            )
    # a threshold is set for the whole set: few questions neither meet nor miss it
    thresholds = {} if options.quick else measured.thresholds
    return replace(measured, thresholds=thresholds, store=_named(options.store))


async def _compared(name: str, options: Options, asker: Asker, progress: Progress) -> SetResult:
    assert options.compare is not None
    if name == OWN:
        raise RecollectError("--compare works on the published sets; leave --set own out")
    async with AsyncExitStack() as opened:
        first, second = options.compare
        targets = (
            await opened.enter_async_context(open_target(first)),
            await opened.enter_async_context(open_target(second)),
        )
        figures = await compare_stores(
            load_set(name, quick=options.quick), asker=asker, targets=targets, progress=progress
        )
    stores = ",".join(map(_named, options.compare))
    return SetResult(name=name, embedder=options.embedder, store=stores, figures=figures)
