"""Decides about the statements of one job, each in the light of those before it.

Owns what is known while a job goes on: the store's facts in reach, under what the job decided so
far. Writes nothing. Always holds: a model is asked once at the most, within what was charged for
it; a digest that tells what was closed ends with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from recollect.engine.facts.digesting import stale_digests
from recollect.engine.facts.reach import Reach
from recollect.memory.history import Versions
from recollect.memory.reconcile import ask, open_question, settle
from recollect.memory.reconciling.prompt import Opinion, Question
from recollect.ports import Archive, Model
from recollect.search.tokenize import tokenize
from recollect.values.fact import Fact, FactDraft, FactId
from recollect.values.recall import FactQuery

RECONCILE_TOKENS: Final = 6_000
"""What the one question of a job may cost: `MOST_QUESTION_TOKENS`, the task and the answer, with a
margin between our count and a model's."""
CANDIDATES: Final = 12
"""Facts that a new one is held against."""


class Decisions:
    """What is known while one job's drafts are held against it, its own included."""

    def __init__(self, store: Archive, reach: Reach, *, now: float) -> None:
        self._store = store
        self.reach = reach
        self._now = now
        self.written: dict[FactId, Fact] = {}
        self.operations: list[str] = []
        self.unmatched = 0
        """Corrections of which nobody could say what they correct: what they mean still stands."""
        self._read: dict[FactId, Fact] = {}
        self._known: Versions | None = None

    async def take(self, drafts: Sequence[FactDraft], model: Model | None) -> None:
        """Decide about drafts in their order, and keep what they change.

        A model is asked once, about all of which the rules are not certain by what was known
        before; how drafts of one job follow each other is left to the rules.
        """
        if not self.reach.everything:
            drafts = [replace(one, session=self.reach.session) for one in drafts]
        opinions = {} if model is None else await self._opinions(drafts, model)
        versions = await self._versions()
        for at, draft in enumerate(drafts):
            done = settle(
                draft,
                await self._candidates(draft),
                now=self._now,
                history=versions.of(draft),
                opinion=opinions.get(at),
            )
            self.operations.append(done.operation)
            self.unmatched += done.operation == "add" and (draft.corrects or bool(draft.replaces))
            self.written.update((fact.id, fact) for fact in done.written)
            versions.add(done.written)

    async def _opinions(self, drafts: Sequence[FactDraft], model: Model) -> dict[int, Opinion]:
        versions = await self._versions()
        questions: dict[int, Question] = {}
        for at, draft in enumerate(drafts):
            question = open_question(draft, await self._candidates(draft), versions.of(draft))
            if question is not None:
                questions[at] = question
        if not questions:
            return {}
        asked = await ask(list(questions.values()), model)
        return dict(zip(questions, asked.given, strict=True))

    async def _candidates(self, draft: FactDraft) -> tuple[Fact, ...]:
        """Current facts that share words with it, as they stand after what this job decided."""
        words = tuple(dict.fromkeys(tokenize(f"{draft.content} {draft.subject}")))
        query = FactQuery(words=words, limit=CANDIDATES, session=self.reach.asked)
        found = await self._store.fact_candidates(query)
        known = {one.fact.id: one.fact for one in found.facts if self.reach.holds(one.fact)}
        held = set(words)
        known.update(
            (id_, fact)
            for id_, fact in self.written.items()
            if id_ in known or held.intersection(fact.words)
        )
        return tuple(fact for fact in known.values() if fact.current and fact.type != "digest")

    async def _versions(self) -> Versions:
        """Every version of every fact in reach: words alone do not find the same thing said in
        another language, nor where in the past a late statement belongs. Read once a job."""
        if self._known is None:
            facts = await self._store.facts(superseded=True)
            self._read = {one.id: one for one in facts if self.reach.holds(one)}
            self._known = await asyncio.to_thread(Versions, tuple(self._read.values()))
        return self._known

    def end_digests(self) -> None:
        """Digests that tell what was closed just now end with it."""
        known = {**self._read, **self.written}
        stale = stale_digests(self.written.values(), known.values(), now=self._now)
        self.written.update((one.id, one) for one in stale)

    def told(self) -> str:
        """What was done, in numbers."""
        counts = {name: self.operations.count(name) for name in dict.fromkeys(self.operations)}
        if not counts:
            return "no facts"
        done = ", ".join(f"{count} {_DONE[name]}" for name, count in counts.items())
        if not self.unmatched:
            return done
        what = "correction stands" if self.unmatched == 1 else "corrections stand"
        return f"{done} ({self.unmatched} {what} beside what may be meant by it)"


_DONE: Final = {
    "add": "facts added",
    "update": "facts told in more detail",
    "supersede": "facts replaced",
    "none": "known already",
    "refused": "refused",
}
