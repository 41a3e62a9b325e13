"""Keeps the digest of a subject: what many facts say of it, in a few sentences by the model.

Owns when a digest is worth writing and which facts it is made of. Must never digest a digest, nor
ask a model for a job that was not charged. What always holds: one current digest a subject; it goes
with any message that it rests on, and its trust is the lowest of its facts'.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from recollect.config import Settings
from recollect.engine.facts.jobs import DIGEST_TOKENS, digest_job, subject_of
from recollect.engine.facts.reach import Reach
from recollect.memory.digest import digest
from recollect.ports import Archive, Clock, Model
from recollect.search.tokenize import tokenize
from recollect.values.batch import EMBED_JOB, Batch, Lease, NewJob
from recollect.values.fact import Fact
from recollect.values.recall import FactQuery

LEAST_FACTS: Final = 4
"""So many facts of one subject make a digest worth reading; fewer are read themselves."""
MOST_FACTS: Final = 40
GROWTH: Final = 2
"""A digest is written anew when it would rest on so many times the messages: one more fact of a
subject is read beside its digest, and a call for each would cost more than it says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Digesting:
    """The handler of digests for one space."""

    store: Archive
    settings: Settings
    clock: Clock
    model: Model | None
    embedders: tuple[str, ...] = ()

    async def digest(self, lease: Lease) -> Batch:
        """Write the digest that the job names, where there is enough to say."""
        subject, reach = subject_of(lease)
        now = self.clock.now()
        if self.model is None or not (self.settings.facts.enabled and self.settings.facts.digests):
            return Batch(at=now)
        revision = await self.store.facts_revision()
        about, before = await self._found(subject, reach)
        if any(one.made_by == "user" or one.pinned for one in before):
            return Batch(at=now)  # a person's own stands
        if len(about) < LEAST_FACTS:
            return _ending(before, revision, now=now)
        sources = dict.fromkeys(source for fact in about for source in fact.sources)
        if any(len(sources) < GROWTH * len(one.sources) for one in before):
            return Batch(at=now)
        held = [one.segment for one in await self.store.segments(list(sources))]
        if lease.cost_tokens < DIGEST_TOKENS:  # charged when it is handed out, so once more
            said_by = [one.message_id for one in held]
            again = digest_job(subject, reach, run_at=now, about=said_by, cost_tokens=DIGEST_TOKENS)
            return Batch(at=now, jobs=(again,))
        made = (await digest(subject, about, held, model=self.model, now=now)).fact
        if made is None:
            return _ending(before, revision, now=now)
        if any(one.content == made.content and one.sources == made.sources for one in before):
            return Batch(at=now)
        made = replace(made, session=None if reach.everything else reach.session)
        closed = [replace(one, superseded_by=made.id, valid_to=made.at) for one in before]
        return Batch(
            at=now,
            facts=(made, *(one for one in closed if one.id != made.id)),
            facts_revision=revision,
            jobs=tuple(NewJob(kind=EMBED_JOB, key=name, run_at=now) for name in self.embedders),
        )

    async def _found(self, subject: str, reach: Reach) -> tuple[list[Fact], list[Fact]]:
        """The facts of the subject, oldest first, and its digests."""
        words = tuple(dict.fromkeys(tokenize(subject)))
        query = FactQuery(words=words, limit=MOST_FACTS, session=reach.asked)
        candidates = (await self.store.fact_candidates(query)).facts
        found = [one.fact for one in candidates if reach.holds(one.fact)]
        about = [fact for fact in found if fact.type != "digest" and _is_about(fact, words)]
        about.sort(key=lambda fact: (fact.at, fact.id))
        return about, [one for one in found if one.type == "digest" and one.subject == subject]


def stale_digests(closed: Iterable[Fact], known: Iterable[Fact], *, now: float) -> tuple[Fact, ...]:
    """The digests that tell what no longer holds, ended: whoever closes a fact writes them too.

    A person's own and pinned ones stand.
    """
    ended = [fact for fact in closed if not fact.current and fact.type != "digest"]
    sources = {source for fact in ended for source in fact.sources}
    subjects = {fact.subject for fact in ended if fact.subject}
    return tuple(
        replace(one, valid_to=now)
        for one in known
        if one.type == "digest"
        and one.current
        and one.made_by == "model"
        and not one.pinned
        and (one.subject in subjects or sources.intersection(one.sources))
    )


def _ending(before: Sequence[Fact], revision: int, *, now: float) -> Batch:
    """There is not enough to say any more: what was said of it no longer stands."""
    if not before:
        return Batch(at=now)
    ended = tuple(replace(one, valid_to=now) for one in before)
    return Batch(at=now, facts=ended, facts_revision=revision)


def _is_about(fact: Fact, words: Sequence[str]) -> bool:
    """Whether it speaks of the subject: every word of it stands in the fact or in its subject."""
    return set(words) <= {*fact.words, *tokenize(fact.subject)}
