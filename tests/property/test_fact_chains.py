"""Chains of corrections: what holds is what was said last, and no fact hides another one.

200 chains of many domains, in English and Chinese, told in many wordings, interleaved with each
other, with facts about things that are alike, and with facts that nothing replaces. First through
the product, as messages that the engine's jobs read; then `reconcile` by itself, with drafts made
here, so that no statement is lost on the way and any order of arrival and any model can be tried.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from recollect.errors import ModelUnavailable
from recollect.facts.history import as_of, chain
from recollect.facts.reconcile import reconcile
from recollect.facts.subjects import name_subject
from recollect.ports import Model
from recollect.search.tokenize import tokenize
from recollect.stores.sqlite import SQLiteStore
from recollect.testing.scripted_model import ScriptedModel
from recollect.values.batch import Batch
from recollect.values.fact import EvidenceSpan, Fact, FactDraft, FactId
from recollect.values.model import Answer, Prompt
from recollect.values.recall import FactQuery
from recollect.values.segment import SegmentId, Trust
from recollect_bench.facts.chains import (
    START,
    Said,
    check_through_store,
    in_order,
    make_chains,
    unrelated,
)
from recollect_bench.facts.through_store import Scope

THROUGH_PRODUCT = 60
"""Of the 200; `recollect bench facts` takes all of them (chains.*)."""
CANDIDATES = 30
BATCH = 25
"""Statements decided upon before they are written at once."""


@pytest.mark.parametrize("scope", ["space", "auto"])
def test_the_last_correction_that_was_heard_holds_through_the_product(scope: Scope) -> None:
    """Messages, ingest, the engine's jobs, SQLite; no model."""
    checked = check_through_store(THROUGH_PRODUCT, scope=scope)
    closed = [(one.closed.content, one.by.content) for one in checked.wrongly_closed]
    assert closed == [], "closed by what another chain says"
    assert (checked.misread, checked.of_several) == (0, 0)
    assert checked.amiss == ()
    assert checked.holds == checked.heard >= 0.9 * THROUGH_PRODUCT
    assert checked.moments_right == checked.moments
    assert checked.extracted > 0.6 * checked.corrections, "too few to mean anything"


def draft_of(said: Said) -> FactDraft:
    segment = SegmentId(f"{said.chain:016x}{int(said.at):016x}")
    return FactDraft(
        type=said.type,
        content=said.content,
        at=said.at,
        evidence=(EvidenceSpan(segment=segment, start=0, end=len(said.content)),),
        trust="high",
        made_by="rules",
        session=f"session-{said.chain % 7}",
    )


@dataclass
class Memory:
    """Facts in a dictionary, found by shared words as a store finds them."""

    facts: dict[FactId, Fact] = field(default_factory=dict)
    of: dict[FactId, int] = field(default_factory=dict)
    named: dict[tuple[str, str], set[FactId]] = field(default_factory=lambda: defaultdict(set))

    def candidates(self, draft: FactDraft) -> list[Fact]:
        words = set(tokenize(draft.content))
        current = [fact for fact in self.facts.values() if fact.superseded_by is None]
        shared = [(len(words & set(fact.words)), fact.id, fact) for fact in current]
        best = sorted((one for one in shared if one[0]), reverse=True)[:CANDIDATES]
        return [fact for _, _, fact in best]

    def history(self, draft: FactDraft) -> list[Fact]:
        name = name_subject(draft.content, draft.type)
        return [self.facts[one] for one in self.named[name.subject, name.attribute] if name.told]

    def write(self, written: Iterable[Fact], chain_number: int) -> None:
        for fact in written:
            self.facts[fact.id] = fact
            self.of.setdefault(fact.id, chain_number)
            self.named[fact.subject, fact.attribute].add(fact.id)

    async def learn(self, said: Said, model: Model | None = None) -> str:
        draft = draft_of(said)
        result = await reconcile(
            draft, self.candidates(draft), model=model, now=said.at, history=self.history(draft)
        )
        self.write(result.written, said.chain)
        return result.operation


def check_chains(memory: Memory, chains: Sequence[Sequence[Said]]) -> None:
    """The last one holds now, and each one held from when it was said until the next."""
    facts: dict[int, list[Fact]] = defaultdict(list)
    for fact in memory.facts.values():
        facts[memory.of[fact.id]].append(fact)
    for number, said in enumerate(chains):
        versions = facts[number]
        contents = [one.content for one in said]
        current = [fact for fact in versions if fact.superseded_by is None]
        assert [fact.content for fact in current] == [contents[-1]], contents
        assert [fact.content for fact in chain(versions, current[0].id)] == contents
        assert as_of(versions, said[0].at - 1) == ()
        for one, after in zip(said, [*said[1:], None], strict=True):
            for moment in (one.at, one.at + 1, (after.at if after else one.at + 1e6) - 0.5):
                held = as_of(versions, moment)
                assert [fact.content for fact in held] == [one.content], (contents, moment)
    for one in unrelated():
        assert [fact.superseded_by for fact in facts[one.chain]] == [None], one.content


def check_apart(memory: Memory) -> None:
    """Nothing is superseded by a fact of another chain."""
    for fact in memory.facts.values():
        if fact.superseded_by is not None:
            follower = memory.facts[fact.superseded_by]
            assert memory.of[fact.id] == memory.of[follower.id], (fact.content, follower.content)


def test_the_last_correction_holds_however_late_the_others_arrive() -> None:
    pick = random.Random(3)
    chains = make_chains(pick, repeat=False)
    arriving = in_order(chains)
    pick.shuffle(arriving)
    memory = Memory()

    async def run() -> None:
        for said in arriving:
            await memory.learn(said)

    asyncio.run(run())
    check_chains(memory, chains)
    check_apart(memory)


def test_the_last_correction_holds(tmp_path: Path) -> None:
    """Through SQLite: what it finds by words is enough, and what it keeps are the chains."""
    chains = make_chains(random.Random(5), repeat=True)
    memory = Memory()

    async def run() -> tuple[Fact, ...]:
        async with await SQLiteStore.open(tmp_path / "facts.db", space="mine") as store:
            arriving = in_order(chains)
            for first in range(0, len(arriving), BATCH):
                waiting: dict[FactId, Fact] = {}
                for said in arriving[first : first + BATCH]:
                    draft = draft_of(said)
                    query = FactQuery(words=tuple(set(tokenize(draft.content))), limit=CANDIDATES)
                    stored = (await store.fact_candidates(query)).facts
                    known = {one.fact.id: one.fact for one in stored} | waiting
                    current = [fact for fact in known.values() if fact.superseded_by is None]
                    result = await reconcile(
                        draft, current, model=None, now=said.at, history=memory.history(draft)
                    )
                    memory.write(result.written, said.chain)
                    waiting |= {fact.id: fact for fact in result.written}
                await store.write(Batch(at=START, facts=tuple(waiting.values())))
            return await store.facts(superseded=True)

    assert {fact.id: fact for fact in asyncio.run(run())} == memory.facts
    check_chains(memory, chains)
    check_apart(memory)


def at_random(pick: random.Random) -> ScriptedModel:
    """A model that answers anything at all."""

    def answer(prompt: Prompt) -> str | Answer | ModelUnavailable:
        operation = pick.choice(["add", "update", "supersede", "none", "delete", ""])
        given = {"operation": operation, "number": pick.randint(-1, 12)}
        kind = pick.randrange(8)
        if kind == 0:
            return ModelUnavailable("away")
        if kind == 1:
            return Answer(text="I cannot help with that.", stop="refusal")
        if kind == 2:
            return pick.choice(["", "{", "[]", "null", '{"operation": "supersede"}', "supersede 1"])
        return json.dumps(given)

    return ScriptedModel(answer)


def hostile(operation: str) -> ScriptedModel:
    """A model that always says that the new statement replaces or repeats the first one shown."""
    return ScriptedModel(lambda _: json.dumps({"operation": operation, "number": 1}))


@pytest.mark.parametrize("kind", ["random", "supersede", "none"])
def test_no_model_makes_unrelated_facts_supersede_each_other(kind: str) -> None:
    chains = make_chains(random.Random(6), repeat=True)[:60]
    model = at_random(random.Random(7)) if kind == "random" else hostile(kind)
    memory = Memory()

    async def run() -> None:
        for said in in_order(chains):
            await memory.learn(said, model)

    asyncio.run(run())
    assert model.prompts, "it was asked"
    check_chains(memory, chains)
    check_apart(memory)


@pytest.mark.parametrize("trust", ["low", "outside"])
def test_tools_change_nothing_that_the_user_said(trust: Trust) -> None:
    """A tool contradicts the end of every chain: each last word of the user still holds."""
    chains = make_chains(random.Random(8), repeat=False)[:40]
    memory = Memory()

    async def run() -> None:
        for said in in_order(chains):
            await memory.learn(said)
        before = {fact.id for fact in memory.facts.values() if fact.superseded_by is None}
        for said in (said for told in chains for said in told[:-1]):
            late = draft_of(replace(said, at=said.at + 1e6))
            draft = replace(late, trust=trust, corrects=True)
            result = await reconcile(
                draft,
                memory.candidates(draft),
                model=hostile("supersede"),
                now=said.at,
                history=memory.history(draft),
            )
            memory.write(result.written, said.chain)
        still = {fact.id for fact in memory.facts.values() if fact.superseded_by is None}
        assert before <= still
        assert all(memory.facts[one].trust == trust for one in still - before)

    asyncio.run(run())
