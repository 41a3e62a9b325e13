"""Searches memory for a turn: embeds the question, then recalls. Without vectors, recall ranks by
words only, and the report says so. An embedder that fails or hangs is not called for a while."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from typing import Final, Protocol, TypeAlias, TypeVar, runtime_checkable

from recollect.core.boundary import Component, Failure, attempted
from recollect.core.engine.archive import DurableArchive
from recollect.core.engine.guarded_store import GuardedStore
from recollect.core.ports import Archive, Embedder, Store
from recollect.core.rules.redaction import redact
from recollect.core.search.calibrate import probe_texts, scale_of
from recollect.core.search.openclaw import WarmIndex
from recollect.core.search.question import question_text
from recollect.core.turn.query import phrase
from recollect.core.turn.recall import recall
from recollect.core.turn.recall_facts import recall_standing
from recollect.core.turn.recall_openclaw import recall_openclaw, warm_message
from recollect.core.upkeep.chores import VectorUpkeep
from recollect.core.values.history import SessionId
from recollect.core.values.reason import Cause, Reason
from recollect.core.values.recall import (
    AskedVector,
    EmbedderKind,
    Recalled,
    RecalledFact,
    RecallReads,
    RecallRequest,
    Scale,
)
from recollect.core.values.segment import StoredSegment, vector_problem
from recollect.errors import EmbedderError, StoreError, StoreUnavailable
from recollect.system.config import Settings
from recollect.system.telemetry import measure_action

Asked: TypeAlias = tuple[tuple[AskedVector, ...], tuple[Reason, ...]]

REST_SECONDS: Final = 30.0
LOAD_SECONDS: Final = 0.5
QUICK_KINDS: Final = ("hash", "static")
_LOADS_QUICKLY: Final = ("static", "onnx")
"""Kinds of embedders whose loading the first question waits for, because a program that starts per
turn would otherwise never use vectors."""
_MIN_EMBED_SECONDS: Final = 0.1
"""If loading left less, the question is embedded from the next turn on: being late would leave the
embedder out for longer. Embedding a question takes 5 to 50 ms."""
_LOAD_FACTOR: Final = 1.25
"""Loading and then embedding may take 1.25 times the time for embedding alone, which is half of
recall's deadline. The other half is for the search: a late search recalls nothing."""
_QUESTIONS_KEPT: Final = 64
_SCALES: Final[dict[str, Scale | None]] = {}
"""Similarity of unrelated texts per embedder (by its name), measured once per process."""


@runtime_checkable
class EmbedsQuestions(Protocol):
    """An embedder whose vectors of questions differ from those of passages."""

    async def embed_questions(self, texts: Sequence[str]) -> Sequence[bytes]:
        """Embed questions, like `Embedder.embed` does for passages."""
        ...


class QuestionVectors:
    """Makes the vectors of a question with the engine's embedders."""

    def __init__(
        self,
        embedders: Sequence[Embedder],
        *,
        seconds: float,
        pii: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.embedders: tuple[Embedder, ...] = tuple(embedders)
        self._seconds = seconds
        self._pii = pii
        self._monotonic = monotonic
        self._rests: dict[str, tuple[float, str]] = {}
        self._known: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._loading: dict[str, asyncio.Task[None]] = {}
        self._asking: set[asyncio.Task[Asked]] = set()
        self._component = Component("embedder")

    @property
    def are_quick(self) -> bool:
        """True if embedding is so fast that a database connection may wait for it."""
        return all(one.kind in QUICK_KINDS and one.ready for one in self.embedders)

    async def phrased(self, request: RecallRequest, archive: Archive) -> Mapping[EmbedderKind, str]:
        """Return the question's text for each kind of embedder, without embedding it."""
        kinds = {embedder.kind for embedder in self.embedders}
        texts = dict.fromkeys(kinds, question_text(request))
        if "remote" in texts:
            # Redact before names are removed, because a word such as "Password:" marks the secret
            # after it.
            texts["remote"] = redact(texts["remote"], pii=self._pii).text
        meant = {text for kind, text in texts.items() if kind != "hash"}
        following = request if self.are_quick and isinstance(archive, ReadsOneMoment) else None
        without_names = {text: await phrase(text, archive, following) for text in meant}
        return {
            kind: text if kind == "hash" else without_names[text] for kind, text in texts.items()
        }

    async def embedded(self, texts: Mapping[EmbedderKind, str]) -> Asked:
        """Return the vectors of these texts, one text per kind of embedder."""
        asking = asyncio.get_running_loop().create_task(self._all(texts))
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)
        # If the turn ends first, the task continues and notes which embedders hang; otherwise every
        # turn would wait for them.
        return await asyncio.shield(asking)

    async def _all(self, texts: Mapping[EmbedderKind, str]) -> Asked:
        answers = await asyncio.gather(
            *(self._vector(embedder, texts[embedder.kind]) for embedder in self.embedders)
        )
        vectors = tuple(answer for answer in answers if isinstance(answer, AskedVector))
        notes = tuple(answer for answer in answers if isinstance(answer, Reason))
        return vectors, notes

    async def _vector(self, embedder: Embedder, text: str) -> AskedVector | Reason:
        known = self._known.get((embedder.name, text))
        if known is not None:
            self._known.move_to_end((embedder.name, text))
            return self._asked(embedder, known)
        until, why = self._rests.get(embedder.name, (0.0, ""))
        if self._monotonic() < until:
            return Reason(Cause.VECTORS_LEFT_OUT, kind=embedder.kind, error=why)
        begun, seconds = self._monotonic(), self._seconds
        if not embedder.ready:
            self._load(embedder)
            if embedder.kind in _LOADS_QUICKLY:
                patience = min(LOAD_SECONDS, _LOAD_FACTOR * seconds)
                await asyncio.wait({self._loading[embedder.name]}, timeout=patience)
                seconds = min(seconds, _LOAD_FACTOR * seconds - (self._monotonic() - begun))
            if not embedder.ready or seconds < _MIN_EMBED_SECONDS:
                return Reason(Cause.VECTORS_LOADING, kind=embedder.kind)
        if embedder.name not in _SCALES and embedder.kind != "hash":
            self._load(embedder)  # the embedder is usable; measure its scale for the next turn
        answer = await attempted(asyncio.wait_for(_embedded(embedder, text), seconds))
        if isinstance(answer, Failure):
            late = answer.error is TimeoutError
            said = f"no answer within {seconds:.3g} s" if late else answer.said
            self._rest(embedder, said)
            return Reason(Cause.VECTORS_LEFT_OUT, kind=embedder.kind, error=said)
        self._component.recover(whose=embedder.name)
        self._keep((embedder.name, text), answer)
        return self._asked(embedder, answer)

    def _asked(self, embedder: Embedder, values: bytes) -> AskedVector:
        return AskedVector(
            embedder=embedder.name,
            values=values,
            kind=embedder.kind,
            scale=_SCALES.get(embedder.name),
        )

    def _keep(self, key: tuple[str, str], values: bytes) -> None:
        self._known[key] = values
        if len(self._known) > _QUESTIONS_KEPT:
            self._known.popitem(last=False)

    def _load(self, embedder: Embedder) -> None:
        task = self._loading.get(embedder.name)
        if task is not None and not (task.done() or task.get_loop().is_closed()):
            return
        self._loading[embedder.name] = asyncio.get_running_loop().create_task(
            self._loaded(embedder)
        )

    async def _loaded(self, embedder: Embedder) -> None:
        outcome = await attempted(self._load_and_scale(embedder))
        if isinstance(outcome, Failure):
            self._rest(embedder, outcome.said)
        else:
            self._component.recover(whose=embedder.name)

    def _rest(self, embedder: Embedder, text: str) -> None:
        self._rests[embedder.name] = self._monotonic() + REST_SECONDS, text
        self._component.fail(
            f"searching without {embedder.kind} vectors: {text}", whose=embedder.name
        )

    async def _load_and_scale(self, embedder: Embedder) -> None:
        await embedder.load()
        if embedder.name not in _SCALES and embedder.kind != "hash":
            made = await _embed_probes(embedder)
            wrong = vector_problem(made, wanted=len(made), dimensions=embedder.dimensions)
            _SCALES[embedder.name] = None if wrong else scale_of(made)

    async def load(self) -> None:
        """Load every embedder now, and measure its scale. The first search reports failed
        embedders."""
        for embedder in self.embedders:
            await self._loaded(embedder)

    async def close(self) -> None:
        """Stop waiting for embedders to load. Running calls end at their own time limit."""
        loop = asyncio.get_running_loop()
        asking = {task for task in self._asking if task.get_loop() is loop}
        if asking:
            await asyncio.wait(asking, timeout=self._seconds)
        for task in self._loading.values():
            if task.get_loop() is loop and not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=1.0)


async def _embedded(embedder: Embedder, text: str) -> bytes:
    embed = embedder.embed_questions if isinstance(embedder, EmbedsQuestions) else embedder.embed
    with measure_action("embedder", embedder.name) as measure:
        measure.note(texts=1)
        answer = await embed([text])
    if wrong := vector_problem(answer, wanted=1, dimensions=embedder.dimensions):
        raise EmbedderError(wrong)
    return answer[0]


async def _embed_probes(embedder: Embedder) -> Sequence[bytes]:
    texts = probe_texts()
    if not isinstance(embedder, EmbedsQuestions):
        return await embedder.embed(texts)
    half = len(texts) // 2
    return [*await embedder.embed_questions(texts[:half]), *await embedder.embed(texts[half:])]


T = TypeVar("T")


@runtime_checkable
class ReadsOneMoment(Protocol):
    """A store on a server, which can read several things in one transaction."""

    def moment(self) -> AbstractAsyncContextManager[Store]:
        """Open a snapshot of the store, whose queries are sent together."""
        ...


def _are_compared(reads: RecallReads) -> bool:
    """Return whether all passages that were found have vectors of every embedder."""
    found = [one for candidates in reads.candidates.values() for one in candidates.passages]
    return bool(found) and all(
        one.similarities and None not in one.similarities for one in found
    )  # no similarities: the embedder was still loading


async def _standing(store: Store, scope: SessionId | None) -> tuple[RecalledFact, ...]:
    async with _moment(store) as seen:
        return await recall_standing(seen, scope)


def _moment(store: Store) -> AbstractAsyncContextManager[Store]:
    return store.moment() if isinstance(store, ReadsOneMoment) else nullcontext(store)


WARM_PAGE: Final = 200
_WARM_SHARE: Final = 0.4
"""Share of recall's time that may be used to fill OpenClaw's index."""
_WARM_SCOPES: Final = 8


class MemoryRecaller:
    """A `Recaller` that searches the memory of one engine's space."""

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
        self._store = GuardedStore(archive, seconds=settings.recall.deadline_seconds)
        self._settings = settings
        self._vectors = vectors
        self._upkeep = upkeep
        self._lacking = (Reason(Cause.WORDS_ALONE, error=lacking),) if lacking else ()
        if lacking and vectors.embedders:
            self._lacking = (Reason(Cause.VECTORS_LEFT_OUT, kind="onnx", error=lacking),)
        self._warm: OrderedDict[SessionId | None, WarmIndex] = OrderedDict()
        self._warming = asyncio.Lock()

    async def recall(self, request: RecallRequest) -> Recalled:
        """Return passages and facts that are relevant to the request. Raise StoreUnavailable if
        memory cannot be searched."""
        reads = RecallReads() if request.reads is None else request.reads
        request = replace(request, reads=reads)
        notes = () if self._upkeep is None else self._upkeep.notes
        if self._settings.recall.method == "openclaw":
            vectors, missing = await self._store.call(self._asked, request)
            recalled = await self._recall_openclaw(request, vectors)
        elif self._vectors.are_quick:  # one transaction is enough then
            recalled, missing = await self._store.call(self._all, request)
        else:
            texts = await self._store.call(self._phrased, request)
            vectors, missing = await self._vectors.embedded(texts)
            recalled = await self._store.call(self._recalled, request, vectors)
        if self._upkeep is not None and self._vectors.embedders:
            self._upkeep.look_soon(now=not _are_compared(reads))
        reads.queries = None  # they refer to `reads`: a cycle would keep all rows in RAM for longer
        if self._archive.spooling:
            notes = (*notes, Reason(Cause.NOT_SEARCHED_YET))
        return replace(recalled, notes=(*self._lacking, *notes, *missing, *recalled.notes))

    async def _phrased(self, store: Store, request: RecallRequest) -> Mapping[EmbedderKind, str]:
        assert request.reads is not None
        phrased, question = request.reads.phrased, question_text(request)
        texts = phrased.get(question, {})
        if any(embedder.kind not in texts for embedder in self._vectors.embedders):
            texts = phrased[question] = await self._vectors.phrased(request, store)
        return texts

    async def _asked(self, store: Store, request: RecallRequest) -> Asked:
        return await self._vectors.embedded(await self._phrased(store, request))

    async def _all(
        self, store: Store, request: RecallRequest
    ) -> tuple[Recalled, tuple[Reason, ...]]:
        async with _moment(store) as seen:
            vectors, missing = await self._asked(seen, request)
            return await self._recalled(seen, request, vectors), missing

    async def embed_missing(self, *, load: bool) -> None:
        """Queue jobs for passages without vectors. With `load`, also load the embedders, so that
        the first question has vectors."""
        if self._upkeep is not None:
            await self._upkeep.look_safely()
        if load:
            await self._vectors.load()

    async def rest(self, seconds: float) -> None:
        """Wait up to `seconds` until the jobs for missing vectors are queued."""
        if self._upkeep is not None:
            await self._upkeep.rest(seconds)

    async def standing(self, session: SessionId) -> tuple[RecalledFact, ...]:
        """Return pinned facts and the user's standing instructions."""
        scope = None if self._settings.recall.scope == "space" else session
        return await self._store.call(_standing, scope)

    async def asked(self, text: str) -> tuple[AskedVector, ...]:
        """Return the vectors of a text as it is, by the embedders that are ready."""
        texts = {embedder.kind: text for embedder in self._vectors.embedders}
        if "remote" in texts:
            texts["remote"] = redact(text, pii=self._settings.redaction.pii).text
        vectors, _ = await self._vectors.embedded(texts)
        return vectors

    async def _recall_openclaw(
        self, request: RecallRequest, vectors: Sequence[AskedVector]
    ) -> Recalled:
        async with self._warming:
            index, complete = await self._warm_index(request)
            recalled = await self._store.call(self._search_index, request, index, vectors)
        if complete:
            return recalled
        note = Reason(Cause.INDEX_READ, messages=len(index))
        return replace(recalled, notes=(note, *recalled.notes))

    async def _search_index(
        self,
        store: Store,
        request: RecallRequest,
        index: WarmIndex,
        vectors: Sequence[AskedVector],
    ) -> Recalled:
        return await recall_openclaw(
            request, archive=store, index=index, vectors=vectors, settings=self._settings.recall
        )

    async def _warm_index(self, request: RecallRequest) -> tuple[WarmIndex, bool]:
        scope = request.session if request.scope == "session" else None
        kept = self._settings.index
        index = self._warm.pop(scope, None) or WarmIndex(
            max_segments=kept.max_segments, eviction_days=kept.eviction_days
        )
        self._warm[scope] = index
        if len(self._warm) > _WARM_SCOPES:
            self._warm.popitem(last=False)
        most = min(1.0, self._settings.turn.stage_deadline_seconds)
        seconds = self._settings.recall.deadline_seconds or most
        until = time.monotonic() + _WARM_SHARE * seconds
        while time.monotonic() < until:
            page = await self._store.page(after=index.reached, limit=WARM_PAGE, session=scope)
            await warm(index, page, self._vectors.embedders)
            if len(page) < WARM_PAGE:
                return index, True
        return index, False

    async def _recalled(
        self, store: Store, request: RecallRequest, vectors: Sequence[AskedVector]
    ) -> Recalled:
        settings = self._settings.recall
        try:
            async with _moment(store) as seen:
                return await recall(request, archive=seen, vectors=vectors, settings=settings)
        except StoreError as error:  # vectors cannot be compared: search by words only
            if not vectors or isinstance(error, StoreUnavailable):
                raise
            note = Reason(Cause.WORDS_ALONE, error=str(error))
        recalled = await self._recalled(store, request, ())
        return replace(recalled, notes=(note, *recalled.notes))

    async def close(self) -> None:
        if self._upkeep is not None:
            await self._upkeep.close()
        await self._vectors.close()


async def warm(
    index: WarmIndex, page: Sequence[StoredSegment], embedders: Sequence[Embedder]
) -> None:
    """Add a page of stored messages to OpenClaw's index."""
    hashing = next((embedder for embedder in embedders if embedder.kind == "hash"), None)
    messages = [warm_message(stored.segment) for stored in page]
    new = [message for message in messages if message is not None and not index.holds(message)]
    vectors = () if hashing is None else await hashing.embed([message.text for message in new])
    for at, message in enumerate(new):
        index.add(message, vectors[at] if vectors else None)
    if page:
        index.reached = page[-1].sequence
