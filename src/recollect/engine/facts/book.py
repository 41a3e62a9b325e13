"""What people do with facts: list them, add, correct, pin and forget them, and ask why.

The one door to these operations over a store, for the commands and for programs. Always holds:
what is written was redacted; ids may be given by a beginning that only one fact has; what was
replaced is kept as history, and only forgetting removes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from recollect.config import Settings
from recollect.engine.facts.draft import MOST_CHARS, Statement, draft_of, stored_words
from recollect.engine.facts.find import find_fact, list_facts, sources_of
from recollect.engine.facts.history import before, history_of
from recollect.engine.facts.told import (
    FactFilter,
    FactHistory,
    FactPinned,
    FactWhy,
    FactWritten,
)
from recollect.engine.facts.write import FactWriter, decided
from recollect.errors import RecollectError, StoreError
from recollect.memory.forget import Cascade
from recollect.memory.forget import forget as forget_all
from recollect.ports import Clock, Model, Spool, Store
from recollect.values.fact import Fact, FactType, MadeBy
from recollect.values.segment import Trust
from recollect.values.upkeep import Certificate, ForgetOrder


class FactBook:
    """The facts of one space, for people."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        clock: Clock,
        *,
        model: Model | None = None,
        embedders: Sequence[str] = (),
        spools: Sequence[Spool] = (),
        cascades: Sequence[Cascade] = (),
        forgotten: Callable[[], None] = lambda: None,
        session: str | None = None,
        read_only: bool = False,
    ) -> None:
        """Without a `model` only the same property of the same subject is replaced; `embedders`
        are whose vectors new facts are to get. `spools` and `cascades` are what forgetting reaches
        beside the store; `forgotten` is called when it did. For who speaks in a `session` there are
        its facts and those of no session; without one all of the space's. `read_only`: nothing may
        be kept, so whatever would change a fact raises StoreError."""
        self._read_only = read_only
        self._session = None if settings.recall.scope == "space" else session
        self._spools = tuple(spools)
        self._cascades = tuple(cascades)
        self._forgotten = forgotten
        self._store = store
        self._settings = settings
        self._clock = clock
        self._writer = FactWriter(
            store=store,
            clock=clock,
            model=model,
            embedders=tuple(embedders),
            session=self._session,
        )

    async def list(self, asked: FactFilter | None = None) -> tuple[Fact, ...]:
        """The facts that are asked for: pinned ones first, then by time."""
        found = await list_facts(self._store, asked or FactFilter())
        return tuple(one for one in found if self._reaches(one))

    async def find(self, id: str) -> Fact:  # noqa: A002
        """The fact with this id, or the only one whose id begins so."""
        found = await find_fact(self._store, id)
        if not self._reaches(found):
            raise RecollectError("that fact belongs to another session; `recollect facts` shows it")
        return found

    def _check_writable(self) -> None:
        if self._read_only:
            raise StoreError("this memory only reads: set ingest.enabled = true to change facts")

    def _reaches(self, fact: Fact) -> bool:
        return self._session is None or fact.session in (None, self._session)

    async def add(
        self,
        text: str,
        *,
        type: FactType | None = None,  # noqa: A002
        subject: str = "",
        at: float | None = None,
        made_by: MadeBy = "user",
        trust: Trust = "high",
    ) -> FactWritten:
        """Take in a statement; what it corrects is replaced, what is known stays as it is.

        `at` is since when it holds; never later than now, which it is without.
        """
        self._check_writable()
        content, masked = self._stored(text, type)
        about = self._stored(subject, type)[0] if subject.strip() else ""
        now = self._clock.now()
        statement = Statement(
            content=content,
            type=type,
            subject=" ".join(about.casefold().split()),
            at=now if at is None else min(at, now),
            made_by=made_by,
            trust=trust,
        )
        draft = replace(draft_of(statement), session=self._session)
        written = await decided(lambda: self._writer.add(draft))
        return replace(written, masked=masked)

    async def edit(
        self,
        id: str,  # noqa: A002
        text: str,
        *,
        type: FactType | None = None,  # noqa: A002
    ) -> FactWritten:
        """A new version of a fact, in a person's words; the one before is kept as history.

        Its own words with another `type` stay the word of whoever said them.
        """
        self._check_writable()
        found = await self.find(id)
        if type is not None and type != found.type and text == found.content:
            return await decided(lambda: self._writer.retype(found.id, type))
        content, masked = self._stored(text, type or found.type)
        written = await decided(lambda: self._writer.edit(found.id, content, type))
        return replace(written, masked=masked)

    async def pin(self, id: str) -> FactPinned:  # noqa: A002
        """Offer a fact first from now on, and let no extraction replace it."""
        self._check_writable()
        return await decided(lambda: self._writer.pin(id, pinned=True))

    async def unpin(self, id: str) -> FactPinned:  # noqa: A002
        """Undo `pin`."""
        self._check_writable()
        return await decided(lambda: self._writer.pin(id, pinned=False))

    async def history(self, id: str) -> FactHistory:  # noqa: A002
        """A fact's versions, oldest first, with gaps where one was forgotten."""
        return history_of(await self.find(id), await self._store.facts(superseded=True))

    async def why(self, id: str) -> FactWhy:  # noqa: A002
        """The messages that a fact rests on, and what of them says so."""
        fact = await self.find(id)
        rests_on = None
        if not fact.sources:
            earlier = before(await self.history(fact.id))
            rests_on = next((one for one in earlier if one.sources), None)
        sources = await sources_of(self._store, rests_on or fact)
        return FactWhy(fact=fact, sources=sources, rests_on=rests_on)

    async def order_to_forget(
        self, ids: Sequence[str], *, sources: bool = False, versions: bool = False
    ) -> ForgetOrder:
        """What forgetting these facts means; nothing is changed.

        Digests that may say the same go along (`memory.forget`). With `sources` the messages go
        too, with `versions` every other version.
        """
        found = {fact.id: fact for fact in [await self.find(one) for one in ids]}
        every = await self._store.facts(superseded=True)
        if versions:
            for fact in tuple(found.values()):
                found.update((one.id, one) for one in history_of(fact, every).facts)
        whys = [await self.why(id_) for id_ in found] if sources else []
        segments = [one.id for why in whys for one in why.sources]
        return ForgetOrder(
            at=self._clock.now(),
            facts=tuple(found),
            segments=tuple(dict.fromkeys(segments)),
        )

    async def forget(
        self,
        order: ForgetOrder,
        *,
        spools: Sequence[Spool] = (),
        cascades: Sequence[Cascade] = (),
    ) -> Certificate:
        """Forget what `order_to_forget` named, for good; further spools and cascades are named."""
        self._check_writable()
        certificate = await forget_all(
            self._store,
            (*self._spools, *spools),
            order,
            now=self._clock.now(),
            cascades=(*self._cascades, *cascades),
        )
        self._forgotten()
        return certificate

    def _stored(self, text: str, type: FactType | None) -> tuple[str, int]:  # noqa: A002
        limit = None if type == "digest" else MOST_CHARS
        return stored_words(text, self._settings.redaction, limit=limit)
