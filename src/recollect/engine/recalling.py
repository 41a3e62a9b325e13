"""Asks memory for a turn: the question's vectors first, then the stage, through the archive.

Owns the degradation of recall (without vectors it goes by words, and the notes say so) and how
long a look into the store may take. Must never write, never wait longer than its deadlines, and
never wait for an embedder inside of a look: it has its own time. What always holds: a store that
refuses a vector (a model that changed its dimensions under the same name) is asked again by
words alone.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from recollect.config import Settings
from recollect.engine.archive import DurableArchive
from recollect.engine.asking import QuestionVectors
from recollect.engine.boundary import Failure
from recollect.engine.vector_upkeep import VectorUpkeep
from recollect.errors import StoreError, StoreUnavailable
from recollect.ports import Embedder, Store
from recollect.search.openclaw import WarmIndex
from recollect.turn.recall import recall
from recollect.turn.recall_facts import recall_standing
from recollect.turn.recall_openclaw import recall_openclaw, warm_message
from recollect.values.history import SessionId
from recollect.values.lookup import AskedVector, EmbedderKind
from recollect.values.reason import Cause, Reason
from recollect.values.recalled import Recalled, RecalledFact, RecallRequest
from recollect.values.segment import StoredSegment

T = TypeVar("T")

WARM_PAGE: Final = 200
_WARM_SHARE: Final = 0.4
"""Of what recall may take, how long messages are read into OpenClaw's index before it is asked."""
_WARM_SCOPES: Final = 8
"""Sessions whose index is kept in memory."""


class MemoryRecaller:
    """Recall from the memory of one engine's space; a `Recaller`."""

    def __init__(
        self,
        archive: DurableArchive,
        settings: Settings,
        vectors: QuestionVectors,
        upkeep: VectorUpkeep | None = None,
        *,
        lacking: str = "",
    ) -> None:
        self._archive = archive
        self._settings = settings
        self._vectors = vectors
        self._upkeep = upkeep
        self._lacking = (Reason(Cause.WORDS_ALONE, error=lacking),) if lacking else ()
        if lacking and vectors.embedders:
            self._lacking = (Reason(Cause.VECTORS_LEFT_OUT, kind="onnx", error=lacking),)
        self._warm: OrderedDict[SessionId | None, WarmIndex] = OrderedDict()
        self._warming = asyncio.Lock()

    async def recall(self, request: RecallRequest) -> Recalled:
        """What bears on the request; StoreUnavailable where memory cannot be asked."""
        if self._upkeep is not None and self._vectors.embedders:
            self._upkeep.look_soon()
        among = self._vectors.embedders
        notes: tuple[Reason, ...] = ()
        if self._upkeep is not None:
            among, notes = (*among, *self._upkeep.meanwhile), self._upkeep.notes
        texts: Mapping[EmbedderKind, str] = {}
        if among:
            texts = await self._looked(
                lambda store: self._vectors.phrased(request, store, among=among)
            )
        vectors, missing = await self._vectors.embedded(texts, among=among)
        if self._settings.recall.method == "openclaw":
            found = await self._recalled_openclaw(request, vectors)
        else:
            found = await self._looked(lambda store: self._recalled(store, request, vectors))
        if self._archive.spooling:
            notes = (*notes, Reason(Cause.NOT_SEARCHED_YET))
        return replace(found, notes=(*self._lacking, *notes, *missing, *found.notes))

    async def standing(self, session: SessionId) -> tuple[RecalledFact, ...]:
        """Pinned facts, and what the user asked for once and for all."""
        scope = None if self._settings.recall.scope == "space" else session
        return await self._looked(lambda store: recall_standing(store, scope))

    async def _recalled_openclaw(
        self, request: RecallRequest, vectors: Sequence[AskedVector]
    ) -> Recalled:
        async with self._warming:
            index, complete = await self._warmed(request)
            found = await self._looked(
                lambda store: recall_openclaw(
                    request,
                    archive=store,
                    index=index,
                    vectors=vectors,
                    settings=self._settings.recall,
                )
            )
        if complete:
            return found
        note = Reason(Cause.INDEX_READ, messages=len(index))
        return replace(found, notes=(note, *found.notes))

    async def _warmed(self, request: RecallRequest) -> tuple[WarmIndex, bool]:
        """The index of the request's scope with what was said since, and whether that is all."""
        scope = request.session if request.scope == "session" else None
        kept = self._settings.index
        index = self._warm.pop(scope, None) or WarmIndex(
            max_segments=kept.max_segments, eviction_days=kept.eviction_days
        )
        self._warm[scope] = index
        if len(self._warm) > _WARM_SCOPES:
            self._warm.popitem(last=False)
        until = time.monotonic() + _WARM_SHARE * _recall_seconds(self._settings)
        while time.monotonic() < until:
            page = await self._looked(
                lambda store: store.page(after=index.reached, limit=WARM_PAGE, session=scope)
            )
            await warm(index, page, self._vectors.embedders)
            if len(page) < WARM_PAGE:
                return index, True
        return index, False

    async def _looked(self, question: Callable[[Store], Awaitable[T]]) -> T:
        answer = await self._archive.ask(question, seconds=self._settings.recall.deadline_seconds)
        if isinstance(answer, Failure):
            raise StoreUnavailable(f"memory could not be asked: {answer.said}")
        return answer

    async def _recalled(
        self, store: Store, request: RecallRequest, vectors: Sequence[AskedVector]
    ) -> Recalled:
        settings = self._settings.recall
        try:
            return await recall(request, archive=store, vectors=vectors, settings=settings)
        except StoreUnavailable:
            raise
        except StoreError as error:  # a vector that it cannot compare with those it holds
            if not vectors:
                raise
            note = Reason(Cause.WORDS_ALONE, error=str(error))
        found = await recall(request, archive=store, vectors=(), settings=settings)
        return replace(found, notes=(note, *found.notes))

    async def close(self) -> None:
        """Stop what runs beside the turns."""
        if self._upkeep is not None:
            await self._upkeep.close()
        await self._vectors.close()


async def warm(
    index: WarmIndex, page: Sequence[StoredSegment], embedders: Sequence[Embedder]
) -> None:
    """Read a page of stored messages into OpenClaw's index."""
    hashing = next((one for one in embedders if one.kind == "hash"), None)
    said = [warm_message(stored.segment) for stored in page if not stored.cold]
    new = [one for one in said if one is not None and not index.holds(one)]
    vectors = () if hashing is None else await hashing.embed([one.text for one in new])
    for at, one in enumerate(new):
        index.add(one, vectors[at] if vectors else None)
    if page:
        index.reached = page[-1].sequence


def _recall_seconds(settings: Settings) -> float:
    return settings.recall.deadline_seconds or min(1.0, settings.turn.stage_deadline_seconds)
