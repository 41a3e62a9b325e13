"""Asks memory for a turn: the question's vectors first, then the stage, through the archive.

Owns the degradation of recall: without vectors it goes by words, and the notes say so. Must never
write, and never wait longer than its deadlines. What always holds: a store that refuses a vector
(a model that changed its dimensions under the same name) is asked again by words alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from recollect.config import Settings
from recollect.engine.archive import DurableArchive
from recollect.engine.asking import QuestionVectors
from recollect.engine.boundary import Failure
from recollect.engine.vector_upkeep import VectorUpkeep
from recollect.errors import StoreError, StoreUnavailable
from recollect.ports import Store
from recollect.turn.recall import recall
from recollect.values.lookup import AskedVector
from recollect.values.recalled import Recalled, RecallRequest


class MemoryRecaller:
    """Recall from the memory of one engine's space; a `Recaller`."""

    def __init__(
        self,
        archive: DurableArchive,
        settings: Settings,
        vectors: QuestionVectors,
        upkeep: VectorUpkeep | None = None,
    ) -> None:
        self._archive = archive
        self._settings = settings
        self._vectors = vectors
        self._upkeep = upkeep

    async def recall(self, request: RecallRequest) -> Recalled:
        """What bears on the request; StoreUnavailable where memory cannot be asked."""
        if self._upkeep is not None and self._vectors.embedders:
            self._upkeep.look_soon()
        settings = self._settings
        seconds = settings.recall.deadline_seconds or settings.turn.stage_deadline_seconds
        answer = await self._archive.look(lambda store: self._ask(store, request), seconds=seconds)
        if isinstance(answer, Failure):
            raise StoreUnavailable(f"memory could not be asked: {answer.said}")
        return answer

    async def _ask(self, store: Store, request: RecallRequest) -> Recalled:
        notes: list[str] = []
        among = self._vectors.embedders
        if self._upkeep is not None:
            among = (*among, *self._upkeep.meanwhile)
            notes.extend(self._upkeep.notes)
        vectors, missing = await self._vectors.of(request, store, among=among)
        notes.extend(missing)
        found = await self._recalled(store, request, vectors, notes)
        return replace(found, notes=(*notes, *found.notes))

    async def _recalled(
        self,
        store: Store,
        request: RecallRequest,
        vectors: Sequence[AskedVector],
        notes: list[str],
    ) -> Recalled:
        settings = self._settings.recall
        try:
            return await recall(request, archive=store, vectors=vectors, settings=settings)
        except StoreUnavailable:
            raise
        except StoreError as error:  # a vector that it cannot compare with those it holds
            if not vectors:
                raise
            notes.append(f"searched by words alone: {error}")
        return await recall(request, archive=store, vectors=(), settings=settings)

    async def close(self) -> None:
        """Stop what runs beside the turns."""
        if self._upkeep is not None:
            await self._upkeep.close()
        await self._vectors.close()
