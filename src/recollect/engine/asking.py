"""Embeds a turn's question by every embedder that is ready, and says which were not.

Owns what happens while an embedder loads, hangs, throws or answers nonsense: it is left out of
the turn, told, and left alone for a while, and recall goes on with what is there. Must never let
a turn wait for a model that takes long to load, nor send what is masked in the archive to a remote
one.
What always holds: a vector that is handed on is finite and of its embedder's dimensions.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, TypeAlias, runtime_checkable

from recollect.engine.boundary import Failure, Part, attempted
from recollect.errors import EmbedderError
from recollect.ports import Archive, Embedder
from recollect.rules.redaction import redact
from recollect.rules.vectors import what_is_wrong
from recollect.search.probes import probe_texts, scale_of
from recollect.search.question import question_text
from recollect.turn.phrase import phrase
from recollect.values.lookup import AskedVector, EmbedderKind, Scale
from recollect.values.reason import Cause, Reason
from recollect.values.recalled import RecallRequest

Asked: TypeAlias = tuple[tuple[AskedVector, ...], tuple[Reason, ...]]
"""The vectors of a question, and a note on every embedder that gave none."""

REST_SECONDS: Final = 30.0
"""How long an embedder that failed is left alone: one that hangs would cost every turn."""
LOAD_SECONDS: Final = 0.5
_LOADS_QUICKLY: Final = ("static",)
"""Its first question waits so long for it: a host with a process for each turn would never have
vectors otherwise."""
_QUESTIONS_KEPT: Final = 64
_SCALES: Final[dict[str, Scale | None]] = {}
"""By embedder's name, which says all that changes its vectors: measured once in a process."""


@runtime_checkable
class AsksApart(Protocol):
    """An embedder whose vectors of questions are others than those of passages."""

    async def embed_questions(self, texts: Sequence[str]) -> Sequence[bytes]:
        """As `Embedder.embed`, for what is asked."""
        ...


class QuestionVectors:
    """The vectors of questions, by the embedders of one engine."""

    def __init__(
        self,
        embedders: Sequence[Embedder],
        *,
        seconds: float,
        pii: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.embedders = tuple(embedders)
        self._seconds = seconds
        self._pii = pii
        self._monotonic = monotonic
        self._rests: dict[str, tuple[float, str]] = {}
        self._known: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._loading: dict[str, asyncio.Task[None]] = {}
        self._asking: set[asyncio.Task[Asked]] = set()
        self._part = Part("embedder")

    async def of(
        self,
        request: RecallRequest,
        archive: Archive,
        *,
        among: Sequence[Embedder] | None = None,
    ) -> Asked:
        """The vectors of a request's question: phrased, then embedded."""
        return await self.embedded(await self.phrased(request, archive, among=among), among=among)

    async def phrased(
        self,
        request: RecallRequest,
        archive: Archive,
        *,
        among: Sequence[Embedder] | None = None,
    ) -> Mapping[EmbedderKind, str]:
        """What each kind of embedder is to be asked with; asks the archive, and no embedder.

        Models are asked by what it means without the names of who speaks (`turn.phrase`); hashed
        trigrams mean nothing, and are better off with them.
        """
        kinds = {embedder.kind for embedder in (self.embedders if among is None else among)}
        texts = dict.fromkeys(kinds, question_text(request))
        if "remote" in texts:
            # before a name is taken out of it: "Password: …" is masked by its first word
            texts["remote"] = redact(texts["remote"], pii=self._pii).text
        meant = {text for kind, text in texts.items() if kind != "hash"}
        without_names = {text: await phrase(text, archive) for text in meant}
        return {
            kind: text if kind == "hash" else without_names[text] for kind, text in texts.items()
        }

    async def embedded(
        self, texts: Mapping[EmbedderKind, str], *, among: Sequence[Embedder] | None = None
    ) -> Asked:
        """The vectors of a question that was phrased for the same embedders."""
        asked = self.embedders if among is None else tuple(among)
        asking = asyncio.get_running_loop().create_task(self._all(texts, asked))
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)
        # a turn that ends sooner must still learn who hangs, or every turn would wait for it
        return await asyncio.shield(asking)

    async def _all(self, texts: Mapping[EmbedderKind, str], asked: Sequence[Embedder]) -> Asked:
        answers = await asyncio.gather(*(self._one(one, texts[one.kind]) for one in asked))
        vectors = tuple(answer for answer in answers if isinstance(answer, AskedVector))
        notes = tuple(answer for answer in answers if isinstance(answer, Reason))
        return vectors, notes

    async def _one(self, embedder: Embedder, text: str) -> AskedVector | Reason:
        known = self._known.get((embedder.name, text))
        if known is not None:
            self._known.move_to_end((embedder.name, text))
            return self._asked(embedder, known)
        until, why = self._rests.get(embedder.name, (0.0, ""))
        if self._monotonic() < until:
            return Reason(Cause.VECTORS_LEFT_OUT, kind=embedder.kind, error=why)
        if not embedder.ready:
            self._load(embedder)
            if embedder.kind in _LOADS_QUICKLY:
                await asyncio.wait({self._loading[embedder.name]}, timeout=LOAD_SECONDS)
            if not embedder.ready:
                return Reason(Cause.VECTORS_LOADING, kind=embedder.kind)
        if embedder.name not in _SCALES and embedder.kind != "hash":
            self._load(embedder)  # it ranks already; its scale is there for the next turn
        answer = await attempted(asyncio.wait_for(_embedded(embedder, text), self._seconds))
        if isinstance(answer, Failure):
            late = answer.error is TimeoutError
            said = f"no answer within {self._seconds:.3g} s" if late else answer.said
            self._rest(embedder, said)
            return Reason(Cause.VECTORS_LEFT_OUT, kind=embedder.kind, error=said)
        self._part.back(whose=embedder.name)
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
        """Begin to load, once; the next turns find it ready, or hear why it is not."""
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
            self._part.back(whose=embedder.name)

    def _rest(self, embedder: Embedder, said: str) -> None:
        self._rests[embedder.name] = self._monotonic() + REST_SECONDS, said
        self._part.away(f"{embedder.kind} vectors are left out: {said}", whose=embedder.name)

    async def _load_and_scale(self, embedder: Embedder) -> None:
        await embedder.load()
        if embedder.name not in _SCALES and embedder.kind != "hash":
            made = await _embed_probes(embedder)
            wrong = what_is_wrong(made, wanted=len(made), dimensions=embedder.dimensions)
            _SCALES[embedder.name] = None if wrong else scale_of(made)

    async def load(self) -> None:
        """Load every embedder now, and learn its scale; one that fails is told by `of`."""
        for embedder in self.embedders:
            await self._loaded(embedder)

    async def close(self) -> None:
        """Stop waiting for what loads; what was asked ends within its time."""
        loop = asyncio.get_running_loop()
        asking = {task for task in self._asking if task.get_loop() is loop}
        if asking:
            await asyncio.wait(asking, timeout=self._seconds)
        for task in self._loading.values():
            if task.get_loop() is loop and not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=1.0)


async def _embedded(embedder: Embedder, text: str) -> bytes:
    """The vector of a question; EmbedderError where the answer is none."""
    embed = embedder.embed_questions if isinstance(embedder, AsksApart) else embedder.embed
    answer = await embed([text])
    if wrong := what_is_wrong(answer, wanted=1, dimensions=embedder.dimensions):
        raise EmbedderError(wrong)
    return answer[0]


async def _embed_probes(embedder: Embedder) -> Sequence[bytes]:
    """Our probes as the embedder sees them: questions as questions where it asks apart."""
    texts = probe_texts()
    if not isinstance(embedder, AsksApart):
        return await embedder.embed(texts)
    half = len(texts) // 2
    return [*await embedder.embed_questions(texts[:half]), *await embedder.embed(texts[half:])]
