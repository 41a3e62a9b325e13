"""Writes what people decide about facts: new ones, corrections, pins.

Owns that a decision and its write belong together: where others wrote facts in between it is
taken again. Must never change what was known: a correction is a fact of its own, and what it
replaces is closed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from recollect.engine.facts.digesting import stale_digests
from recollect.engine.facts.draft import other_value, same_words, with_own_id
from recollect.engine.facts.find import find_fact, spelled
from recollect.engine.facts.history import history_of
from recollect.engine.facts.told import FactPinned, FactWritten
from recollect.errors import RecollectError, StaleFacts
from recollect.memory.name_subject import name_subject
from recollect.memory.reconcile import Reconciled, reconcile
from recollect.ports import Archive, Clock, Model
from recollect.search.tokenize import tokenize
from recollect.values.batch import EMBED_JOB, Batch, NewJob
from recollect.values.fact import Fact, FactDraft, FactId, FactType
from recollect.values.recall import FactQuery

CANDIDATES: Final = 50
"""Facts that a person's statement is held against; extraction, which asks a model, takes fewer."""
_ATTEMPTS: Final = 5

Done = TypeVar("Done")


async def decided(decide: Callable[[], Awaitable[Done]]) -> Done:
    """Decide and write; again where somebody else wrote facts in between."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return await decide()
        except StaleFacts:
            continue
    return await decide()


@dataclass(frozen=True, slots=True, kw_only=True)
class FactWriter:
    """Writes facts for people; each method decides and writes once."""

    store: Archive
    clock: Clock
    model: Model | None = None
    embedders: tuple[str, ...] = ()
    session: str | None = None
    """Who speaks in a session reaches its facts and those of no session; None: all of them."""

    async def add(self, draft: FactDraft) -> FactWritten:
        """Hold a statement against what is known, and write what follows from it."""
        revision = await self.store.facts_revision()
        known = await self._candidates(draft)
        for fact in known:
            if same_words(fact.content, draft.content):
                if draft.made_by == "user" and fact.trust != "high":  # theirs from now on
                    return await self.edit(fact.id, draft.content, None)
                return FactWritten(outcome="known", fact=fact, reason="it is known already")
        pinned: set[FactId] = set()
        if draft.made_by == "user":  # only extraction must leave alone what is pinned
            pinned = {fact.id for fact in known if fact.pinned}
            known = [replace(fact, pinned=False) for fact in known]
        history: tuple[Fact, ...] = ()
        if any(fact.at > draft.at for fact in known):
            every = await self.store.facts(superseded=True)
            history = tuple(one for one in every if not one.current and self._reaches(one))
        done = await reconcile(
            draft, known, model=self.model, now=self.clock.now(), history=history
        )
        if done.operation == "none":
            same = (one for one in known if one.subject and _name(one) == _name(draft))
            return FactWritten(outcome="known", fact=next(same, None), reason=done.reason)
        return await self._taken(done, {one.id for one in (*known, *history)}, pinned, revision)

    async def edit(self, id: FactId, content: str, type: FactType | None) -> FactWritten:  # noqa: A002
        """Write a version in a person's words, and close the one before.

        The same words make it theirs, where somebody less trusted said it. Another value is a
        correction, the same in other words is not.
        """
        revision = await self.store.facts_revision()
        old = await self._current(id)
        if old.content == content and type in (None, old.type) and old.trust == "high":
            return FactWritten(outcome="known", fact=old, reason="it says so already")
        new = self._version(old, content, type or old.type)
        closed = replace(old, superseded_by=new.id, valid_to=new.at, pinned=False)
        await self._write([new, closed], revision)
        return FactWritten(outcome="replaced", fact=new, replaced=(closed,))

    async def retype(self, id: FactId, type: FactType) -> FactWritten:  # noqa: A002
        """Write a version of another type; who said it, where, and its trust stay."""
        revision = await self.store.facts_revision()
        old = await self._current(id)
        if old.type == type:
            return FactWritten(outcome="known", fact=old, reason="it is of that type already")
        now = self.clock.now()
        changed = replace(
            old, type=type, at=max(now, old.at), recorded_at=now, foreign=None, change="update"
        )
        new = with_own_id(changed)
        closed = replace(old, superseded_by=new.id, valid_to=new.at, pinned=False)
        await self._write([new, closed], revision)
        return FactWritten(outcome="replaced", fact=new, replaced=(closed,))

    async def pin(self, id: str, *, pinned: bool) -> FactPinned:  # noqa: A002
        """Pin a fact, or let it go."""
        revision = await self.store.facts_revision()
        fact = await self._current(id)
        if fact.pinned == pinned:
            return FactPinned(fact=fact, changed=False)
        changed = replace(fact, pinned=pinned)
        await self._write([changed], revision)
        return FactPinned(fact=changed, changed=True)

    async def _candidates(self, draft: FactDraft) -> list[Fact]:
        """Current facts that share words with it; digests only for a digest."""
        words = tuple(dict.fromkeys(tokenize(f"{draft.content} {draft.subject}")))
        query = FactQuery(words=words, limit=CANDIDATES, session=self.session)
        found = await self.store.fact_candidates(query)
        is_digest = draft.type == "digest"
        facts = [one.fact for one in found.facts if self._reaches(one.fact)]
        return [fact for fact in facts if (fact.type == "digest") == is_digest]

    def _reaches(self, fact: Fact) -> bool:
        return self.session is None or fact.session in (None, self.session)

    async def _taken(
        self, done: Reconciled, known: set[FactId], pinned: set[FactId], revision: int
    ) -> FactWritten:
        """Write what was decided, the new fact under an id of its own; it inherits a pin."""
        fresh = next((one for one in done.written if one.id not in known), None)
        if fresh is None or done.operation == "refused":
            return FactWritten(outcome="refused", reason=done.reason)
        closes_pinned = any(one.id in pinned for one in done.written if one.id != fresh.id)
        own = replace(with_own_id(fresh), pinned=closes_pinned and fresh.current)
        changed = [
            replace(one, superseded_by=own.id) if one.superseded_by == fresh.id else one
            for one in done.written
            if one.id != fresh.id
        ]
        await self._write([own, *changed], revision)
        replaced = tuple(one for one in changed if one.superseded_by == own.id)
        return FactWritten(
            outcome="replaced" if replaced else "added",
            fact=own,
            replaced=replaced,
            reason=done.reason,
        )

    def _version(self, old: Fact, content: str, type: FactType) -> Fact:  # noqa: A002
        """What a person makes of a fact: their own words, which rest on no message."""
        now = self.clock.now()
        named = name_subject(content, type)
        return with_own_id(
            replace(
                old,
                type=type,
                content=content,
                context="",
                at=max(now, old.at),  # never before what it replaces, whatever other clocks say
                recorded_at=now,
                words=tuple(tokenize(content)),
                subject=named.subject or old.subject,
                attribute=named.attribute or old.attribute,
                sources=(),
                evidence=(),
                joint=False,
                foreign=None,
                trust="high",
                made_by="user",
                change="supersede" if other_value(old.content, content) else "update",
            )
        )

    async def _current(self, id: str) -> Fact:  # noqa: A002
        """The fact as it stands now; an earlier version names the one to take instead."""
        fact = await find_fact(self.store, id)
        if fact.current:
            return fact
        versions = history_of(fact, await self.store.facts(superseded=True)).facts
        newest = next((one for one in reversed(versions) if one.current), None)
        instead = "" if newest is None else f"; what holds now is {spelled(newest.id)}"
        raise RecollectError(
            f"{spelled(fact.id)} is an earlier version, which stays as it is{instead}"
        )

    async def _write(self, facts: Sequence[Fact], revision: int) -> None:
        now = self.clock.now()
        if any(not one.current for one in facts):  # digests that tell what was closed end with it
            known = [one for one in await self.store.facts() if self._reaches(one)]
            facts = (*facts, *stale_digests(facts, known, now=now))
        jobs = tuple(NewJob(kind=EMBED_JOB, key=name, run_at=now) for name in self.embedders)
        await self.store.write(
            Batch(at=now, facts=tuple(facts), jobs=jobs, facts_revision=revision)
        )


def _name(statement: Fact | FactDraft) -> tuple[str, str]:
    return statement.subject, statement.attribute
