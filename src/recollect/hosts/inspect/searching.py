"""Searches a memory as a turn would: with scores, their parts, and the gate's answer."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from recollect.core.search.tokenize import tokenize
from recollect.core.values.reason import Cause, Reason

if TYPE_CHECKING:
    from recollect.core.ports import Store
    from recollect.core.search.facts import RankedFact
    from recollect.core.values.recall import AskedVector, Recalled, RecallRequest
    from recollect.system.config import Settings

_HITS_A_MESSAGE: Final = 4
_BUDGET_TOKENS_A_HIT: Final = 120
_EMBED_SECONDS: Final = 30.0


def search_request(space: str, asked: str, *, limit: int, session: str | None) -> RecallRequest:
    from recollect.core.values.recall import RecallRequest

    return RecallRequest(
        space=space,
        session=session or "",
        query=asked,
        newest=asked,
        scope="space" if session is None else "session",
        now=time.time(),
        budget_tokens=limit * _BUDGET_TOKENS_A_HIT,
        count_tokens=lambda text: len(text) // 4 + 1,
        asks="past",
        on_purpose=True,
        most_hits=limit * _HITS_A_MESSAGE,
    )


async def search_messages(
    store: Store, settings: Settings, request: RecallRequest, vectors: tuple[AskedVector, ...]
) -> Recalled:
    """Search as a turn does. The gate answers whether a turn with an empty view would recall
    anything."""
    from recollect.core.turn.recall import recall

    if settings.recall.method == "openclaw":
        return await _by_openclaw(store, settings, request, vectors)
    as_turn = replace(request, asks=None, on_purpose=False)
    turn = await recall(as_turn, archive=store, vectors=vectors, settings=settings.recall)
    recalled = await recall(request, archive=store, vectors=vectors, settings=settings.recall)
    return replace(recalled, gate=turn.gate or recalled.gate)


async def _by_openclaw(
    store: Store, settings: Settings, request: RecallRequest, vectors: tuple[AskedVector, ...]
) -> Recalled:
    """Recall as a turn does with `recall.method = "openclaw"`, from every message in scope."""
    from recollect.adapters.wiring.models import choose_embedders
    from recollect.core.engine.recaller import WARM_PAGE, warm
    from recollect.core.search.openclaw import WarmIndex
    from recollect.core.turn.recall_openclaw import recall_openclaw

    index = WarmIndex(
        max_segments=settings.index.max_segments, eviction_days=settings.index.eviction_days
    )
    session = request.session if request.scope == "session" else None
    embedders = choose_embedders(settings).used
    while page := await store.page(after=index.reached, limit=WARM_PAGE, session=session):
        await warm(index, page, embedders)
    return await recall_openclaw(
        request, archive=store, index=index, vectors=vectors, settings=settings.recall
    )


async def search_facts(
    store: Store, request: RecallRequest, vectors: tuple[AskedVector, ...]
) -> tuple[RankedFact, ...]:
    from recollect.core.search.facts import rank_facts
    from recollect.core.values.recall import FactQuery

    words = tuple(dict.fromkeys(tokenize(request.query)))
    session = request.session if request.scope == "session" else None
    candidates = await store.fact_candidates(
        FactQuery(words=words, vectors=vectors, session=session)
    )
    return tuple(ranked for ranked in rank_facts(words, candidates, vectors) if ranked.score > 0)


async def question_vectors(
    store: Store, settings: Settings, request: RecallRequest
) -> tuple[tuple[AskedVector, ...], tuple[Reason, ...], str]:
    """Embed the query, with notes on embedders that fail or have vectors missing."""
    from recollect.adapters.wiring.models import choose_embedders
    from recollect.core.engine.recaller import QuestionVectors

    embedders = choose_embedders(settings)
    asking = QuestionVectors(embedders.used, seconds=_EMBED_SECONDS, pii=settings.redaction.pii)
    await asking.load()
    vectors, notes = await asking.of(request, store)
    waiting = [one.kind for one in embedders.used if await store.unembedded(one.name, limit=1)]
    if waiting:
        notes = (*notes, Reason(Cause.NOT_EMBEDDED, kinds=" and no ".join(waiting)))
    return vectors, notes, embedders.said
