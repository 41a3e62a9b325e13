"""Searches a memory as a turn would: with scores, their parts, and the gate's answer."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from recollect.core.search.tokenize import tokenize
from recollect.core.values.reason import Cause, Reason
from recollect.errors import RecollectError
from recollect.system.plain_text import plain_line

if TYPE_CHECKING:
    from recollect.core.facts.book import FactBook
    from recollect.core.ports import Store
    from recollect.core.search.facts import RankedFact
    from recollect.core.values.recall import AskedVector, GateVerdict, Hit, Recalled, RecallRequest
    from recollect.core.values.segment import SegmentId, StoredSegment
    from recollect.system.config import Settings

# Not measured: a message's passages compete for places, so more passages than messages are read. A
# person who searches waits longer for an embedder than a turn does.
_HITS_PER_MESSAGE: Final = 4
_BUDGET_TOKENS_PER_HIT: Final = 120
_EMBED_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """What a search found."""

    hits: Sequence[tuple[StoredSegment, Hit]] = field(repr=False)
    """Each message with its best passage, best first."""
    facts: Sequence[RankedFact] = field(repr=False)
    gate: GateVerdict | None
    notes: Sequence[Reason]
    """One reason per embedder that fails, or that has not yet embedded all messages."""
    embedders: str

    @property
    def verdict(self) -> str:
        """A sentence on whether a new session's turn would recall anything for this question; empty
        if the gate was not asked."""
        if self.gate is None:
            return ""
        would = "would recall" if self.gate.open else "would recall nothing"
        sentence = f"In a new session, this question {would}: {self.gate.reason}."
        if self.gate.score and self.gate.threshold and "threshold" not in self.gate.reason.numbers:
            score = int(self.gate.score * 100) / 100  # rounded down, as in reasons
            sentence += f" Certainty {score:.2f}, threshold {self.gate.threshold:.2f}."
        return sentence


async def search_memory(
    store: Store, settings: Settings, space: str, query: str, *, limit: int, session: str | None
) -> SearchResult:
    """Search the messages and facts of a memory, or of one session of it."""
    from recollect.core.values.recall import RecallRequest

    if not tokenize(query):
        raise RecollectError(
            f"{plain_line(query)!r} has no words that can be searched; use less common words"
        )
    request = RecallRequest(
        space=space,
        session=session or "",
        query=query,
        newest=query,
        scope="space" if session is None else "session",
        now=time.time(),
        budget_tokens=limit * _BUDGET_TOKENS_PER_HIT,
        count_tokens=lambda text: len(text) // 4 + 1,
        asks="question",
        explicit=True,
        most_hits=limit * _HITS_PER_MESSAGE,
    )
    vectors, notes, embedders = await _embed_query(store, settings, request)
    recall_result = await _search_messages(store, settings, request, vectors)
    best: dict[SegmentId, Hit] = {}
    for hit in recall_result.hits:
        best.setdefault(hit.passage.segment, hit)
    segment_by_id = {
        stored_segment.segment.id: stored_segment
        for stored_segment in await store.segments(list(best)[:limit])
    }
    return SearchResult(
        hits=[(segment_by_id[id_], hit) for id_, hit in best.items() if id_ in segment_by_id],
        facts=await _search_facts(store, request, vectors),
        gate=recall_result.gate,
        notes=notes,
        embedders=embedders,
    )


def fact_book(store: Store, settings: Settings) -> FactBook:
    """Open the facts of a memory, to read and change them."""
    from recollect.adapters.wiring.models import choose_embedders
    from recollect.core.boundary import SystemClock
    from recollect.core.facts.book import FactBook

    names = [embedder.name for embedder in choose_embedders(settings).used]
    return FactBook(store, settings, SystemClock(), embedders=names)


async def _search_messages(
    store: Store, settings: Settings, request: RecallRequest, vectors: tuple[AskedVector, ...]
) -> Recalled:
    """Search as a turn does, and ask the gate whether a turn with an empty view would recall
    anything."""
    from recollect.core.turn.recall import recall

    if settings.recall.method == "openclaw":
        return await _search_by_openclaw(store, settings, request, vectors)
    as_turn = replace(request, asks=None, explicit=False)
    turn = await recall(as_turn, archive=store, vectors=vectors, settings=settings.recall)
    recall_result = await recall(request, archive=store, vectors=vectors, settings=settings.recall)
    return replace(recall_result, gate=turn.gate or recall_result.gate)


async def _search_by_openclaw(
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


async def _search_facts(
    store: Store, request: RecallRequest, vectors: tuple[AskedVector, ...]
) -> tuple[RankedFact, ...]:
    from recollect.core.search.facts import rank_facts
    from recollect.core.values.recall import FactQuery

    words = tuple(dict.fromkeys(tokenize(request.query)))
    session = request.session if request.scope == "session" else None
    candidates = await store.fact_candidates(
        FactQuery(words=words, vectors=vectors, session=session)
    )
    return tuple(
        ranked_fact
        for ranked_fact in rank_facts(words, candidates, vectors)
        if ranked_fact.score > 0
    )


async def _embed_query(
    store: Store, settings: Settings, request: RecallRequest
) -> tuple[tuple[AskedVector, ...], tuple[Reason, ...], str]:
    """Embed the query. Also return notes on embedders that fail or have vectors missing."""
    from recollect.adapters.wiring.models import choose_embedders
    from recollect.core.engine.recaller import QuestionVectors

    embedders = choose_embedders(settings)
    asking = QuestionVectors(embedders.used, seconds=_EMBED_SECONDS, pii=settings.redaction.pii)
    await asking.load()
    vectors, notes = await asking.embedded(await asking.phrased(request, store))
    waiting = [
        embedder.kind
        for embedder in embedders.used
        if await store.unembedded(embedder.name, limit=1)
    ]
    if waiting:
        notes = (*notes, Reason(Cause.NOT_EMBEDDED, kinds=" and no ".join(waiting)))
    return vectors, notes, embedders.said
