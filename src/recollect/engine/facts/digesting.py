"""Keeps the digest of a subject: what many facts say of it, in a few sentences by the model.

Owns when a digest is worth writing and which facts it is made of. Must never digest a digest, nor
ask a model for a job that was not charged. What always holds: one current digest a subject; it goes
with any message that it rests on, and its trust is the lowest of its facts'.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from recollect.config import Settings
from recollect.engine.facts.jobs import subject_of
from recollect.memory.digest import digest
from recollect.ports import Archive, Clock, Model
from recollect.search.tokenize import tokenize
from recollect.values.batch import Batch
from recollect.values.fact import Fact
from recollect.values.job import EMBED_JOB, Lease, NewJob
from recollect.values.lookup import FactQuery

LEAST_FACTS: Final = 4
"""So many facts of one subject make a digest worth reading; fewer are read themselves."""
MOST_FACTS: Final = 40


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
        subject, session = subject_of(lease)
        now = self.clock.now()
        if self.model is None or not self.settings.facts.digests:
            return Batch(at=now)
        revision = await self.store.facts_revision()
        words = tuple(dict.fromkeys(tokenize(subject)))
        query = FactQuery(words=words, limit=MOST_FACTS, session=session)
        found = [one.fact for one in (await self.store.fact_candidates(query)).facts]
        about = [fact for fact in found if fact.type != "digest" and fact.subject == subject]
        if len(about) < LEAST_FACTS:
            return Batch(at=now)
        about.sort(key=lambda fact: (fact.at, fact.id))
        sources = dict.fromkeys(source for fact in about for source in fact.sources)
        held = [one.segment for one in await self.store.segments(list(sources))]
        made = (await digest(subject, about, held, model=self.model, now=now)).fact
        if made is None:
            return Batch(at=now)
        before = [one for one in found if one.type == "digest" and one.subject == subject]
        if any(one.made_by == "user" or one.pinned for one in before):
            return Batch(at=now)  # a person's own stands
        if any(one.content == made.content and one.sources == made.sources for one in before):
            return Batch(at=now)
        made = replace(made, session=session)
        return Batch(
            at=now,
            facts=(made, *(_closed(one, made) for one in before if one.id != made.id)),
            facts_revision=revision,
            jobs=tuple(NewJob(kind=EMBED_JOB, key=name, run_at=now) for name in self.embedders),
        )


def _closed(old: Fact, new: Fact) -> Fact:
    return replace(old, superseded_by=new.id, valid_to=new.at)
