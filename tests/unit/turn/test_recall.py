"""Recall through a real store that the real ingest has filled: what comes back, and what never."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.turn.memories import NOW, Memory, asked_by, block, entries, memory, texts, user

from recollect.core.rules.tokens import Weigher, count_text
from recollect.core.search.tokenize import tokenize
from recollect.core.turn.inject import inject
from recollect.core.values.batch import Batch
from recollect.core.values.edit import Insert
from recollect.core.values.fact import Fact, FactId
from recollect.core.values.recall import CandidateQuery, Candidates, Recalled, RecallReads

CRANE = "the green crane stands at the north quay"
ASKS = "which crane stands at the north quay?"
TALK = (
    CRANE,
    "good to know, thank you",
    "the keeper of the lighthouse paints boats",
    "boats need paint, that is true",
    "my sister plays the cello in the town hall",
    "what a fine instrument that is",
)


def recalled(folder: Path, question: str, *said: Any, **more: Any) -> Recalled:
    """What a question alone in its view brings back of what was said before."""

    async def work() -> Recalled:
        async with memory(folder) as held:
            if said:
                await held.remember(said)
            return await held.recall(question, **more)

    return asyncio.run(work())


class TestWhatComesBack:
    def test_what_left_the_view_and_was_asked_for(self, tmp_path: Path) -> None:
        found = recalled(tmp_path, ASKS, *TALK)
        assert found.gate is not None
        assert found.gate.open
        assert texts(found)[0] == CRANE
        assert found.hits[0].passage.start == 0
        assert found.hits[0].score == found.passages[0].score
        assert found.hits[0].text == CRANE
        assert CRANE not in repr(found.hits[0])

    async def test_what_the_view_shows_never_does(self, tmp_path: Path) -> None:
        async with memory(tmp_path) as held:
            said = await held.remember([*TALK, user(ASKS)])
            for gated in (True, False):
                for hidden in range(len(said)):
                    view = [one for at, one in enumerate(said) if at != hidden]
                    found = await held.answer(held.asks(view, every_turn=not gated))
                    assert set(texts(found)) <= {(*TALK, ASKS)[hidden]}
                whole = await held.answer(held.asks(said, every_turn=not gated))
                assert whole.empty
                assert not whole.hits

    async def test_the_message_that_asks_does_not_shut_the_gate(self, tmp_path: Path) -> None:
        # It stands in the archive before it is asked by, and answers itself best of all.
        async with memory(tmp_path) as held:
            poor = [f"a crane passed some north quay, and then {n}" for n in range(12)]
            said = await held.remember([*poor, user(ASKS)])
            found = await held.answer(held.asks(said[-1:]), min_score=0.05)
            assert found.gate is not None
            assert found.gate.open
            assert set(texts(found)) == set(poor)

    @pytest.mark.parametrize(
        "before",
        [
            "To which commit did we pin the search indexer?",
            "And where is the ticket of the search indexer, by the way?",
        ],
    )
    async def test_an_earlier_question_does_not_answer(self, tmp_path: Path, before: str) -> None:
        async with memory(tmp_path) as held:
            lost = "OPS-311 is what they opened for it when the indexer was slow after all of that"
            await held.remember([*TALK, lost, "noted, I keep it in mind"])
            asks = "What is the ticket for the search indexer?"
            said = await held.remember([before, "I do not know that", user(asks)])
            found = await held.answer(held.asks(said), min_score=0.01)
            assert found.gate is not None
            assert found.gate.open, found.gate.reason
            assert lost in texts(found)

    async def test_one_hidden_answer_behind_300_that_the_view_shows(self, tmp_path: Path) -> None:
        """More than are looked for stand in the view: they must not crowd the answer out."""
        async with memory(tmp_path) as held:
            answer = "the crane at the north quay has the number 4711 on its door"
            other = "of the crane at the quay it was said that it was painted long ago, by whomever"
            await held.remember([answer, "noted, it is on the door", *TALK[2:], other])
            said = await held.remember(
                [f"the crane at the quay, once more: {n}" for n in range(300)]
            )
            asks = entries(
                [user("which number is on the door of the crane at the quay?")], name="q"
            )
            found = await held.answer(held.asks([*said, *asks]))
            assert texts(found)[0] == answer
            ungated = await held.answer(held.asks([*said, *asks], every_turn=True))
            assert answer in texts(ungated)
            assert other in texts(ungated), "the view shows nearer ones, which are not to be had"

    async def test_scope(self, tmp_path: Path) -> None:
        async with memory(tmp_path) as held:
            await held.remember(TALK, session="other")
            await held.remember(TALK[2:], session="s")
            found = await held.recall(ASKS, scope="space")
            assert texts(found)[0] == CRANE
            assert CRANE not in texts(await held.recall(ASKS, scope="session", every_turn=True))
            assert (await held.recall(ASKS, scope="session")).empty

    def test_another_space_is_never_seen(self, tmp_path: Path) -> None:
        async def fill() -> None:
            async with memory(tmp_path, "theirs") as held:
                await held.remember(TALK)
                fact = Fact(id=FactId("f"), type="config", content=CRANE, at=NOW,
                            words=tuple(tokenize(CRANE)))  # fmt: skip
                await held.store.write(Batch(at=NOW, facts=(fact,)))

        asyncio.run(fill())
        found = recalled(tmp_path, ASKS, *TALK[2:], every_turn=True, scope="space")
        assert CRANE not in block(found)

    def test_a_lost_identifier_brings_only_what_holds_it(self, tmp_path: Path) -> None:
        said = ["we set retry_limit to 3 in the gateway", "good", *TALK]
        found = recalled(
            tmp_path, "what of retry_limit, and which cello has my sister?", *said, min_score=1.0
        )
        assert found.gate is not None
        assert found.gate.lost_terms == ("retry_limit",)
        assert found.hits[0].passage.key == "k0"
        assert TALK[4] not in texts(found), "the gate was opened for something else"


SUBJECTS = ("indexer", "gateway", "scheduler", "archive")
NOTES = "\n".join(
    f"The {name} was moved to port 47{at}1 by Marta on the day of the {name} review. "
    + f"Nobody objected to what she did with it, part {at}. " * 7
    for at, name in enumerate(SUBJECTS)
)
"""One message of four passages, one on each subject."""


def port_of(subject: str) -> str:
    return f"47{SUBJECTS.index(subject)}1"


class TestBlocksThatStand:
    """What a block in the view quotes is shown; the rest of the same message is not."""

    @staticmethod
    async def asked(
        held: Memory, subject: str, *blocks: Insert, gated: bool = True, **more: Any
    ) -> Recalled:
        view = entries([user(f"which port has the {subject}?")], name=f"about {subject}")
        return await held.answer(held.asks(view, edits=blocks, every_turn=not gated), **more)

    @staticmethod
    def standing(found: Recalled) -> Insert:
        view = entries([user("an earlier question")], name="earlier")
        made = inject(
            view, found, Weigher(), placement="before-newest-user", budget_tokens=2_000, turn=1
        ).edit
        assert made is not None
        return made

    @pytest.mark.parametrize("gated", [True, False])
    async def test_other_passages_of_quoted_message_come(self, tmp_path: Path, gated: bool) -> None:
        async with memory(tmp_path) as held:
            await held.remember([NOTES, "noted, all of it", *TALK[2:]])
            blocks: list[Insert] = []
            seen: list[str] = []
            for subject in SUBJECTS:
                found = await self.asked(held, subject, *blocks, gated=gated)
                if not any(port_of(subject) in text for text in seen):
                    assert any(port_of(subject) in text for text in texts(found)), subject
                assert not set(texts(found)) & set(seen), "a passage was recalled twice"
                if not found.empty:
                    blocks.append(self.standing(found))
                    seen += texts(found)
            assert all(any(port_of(one) in text for text in seen) for one in SUBJECTS)
            assert len(blocks) > 1, "one block held everything: the test shows nothing"

    async def test_asked_again_without_blocks_it_finds_what_it_would_have_found_anew(
        self, tmp_path: Path
    ) -> None:
        """What was read for another view does not decide what this one lacks."""
        async with memory(tmp_path) as held:
            await held.remember([NOTES, "noted, all of it", *TALK])
            block = self.standing(await self.asked(held, "indexer"))
            view = entries([user("which port has the indexer?")], name="again")
            reads, looked = RecallReads(), list[CandidateQuery]()
            find = held.store.candidates

            async def counted(asked: CandidateQuery) -> Candidates:
                looked.append(asked)
                return await find(asked)

            held.store.candidates = counted  # type: ignore[misc, assignment]
            asks = replace(held.asks(view, edits=[block]), reads=reads)
            beside = await held.answer(asks)
            assert len(looked) == 1
            bare = replace(held.asks(view), reads=reads)
            again = await held.answer(bare)
            anew = await held.answer(replace(bare, reads=None))
            assert len(looked) == 3
            assert (again.passages, again.facts) == (anew.passages, anew.facts)
            assert set(texts(again)) - set(texts(beside)), "the block hid nothing"


class TestVectors:
    async def test_meaning_finds_what_shares_no_word(self, tmp_path: Path) -> None:
        said = ["we bought an automobile in spring", "how nice", "the puppy sleeps", "as it should"]
        question = "which vehicle is ours now?"
        async with memory(tmp_path) as held:
            await held.remember(said)
            without = await held.recall(question)
            assert without.empty
            await held.embed("toy")
            found = await held.recall(question, vectors=[asked_by(question)])
            assert texts(found)[0] == said[0]
            two = [asked_by(question), asked_by(question, "unknown", "static")]
            assert texts(await held.recall(question, vectors=two))[0] == said[0]


class TestTheBlock:
    async def test_its_text_is_the_text_of_the_segments(self, tmp_path: Path) -> None:
        long = "\n".join(
            f"{n}: the crane, the quay, and what else there is to tell" for n in range(60)
        )
        async with memory(tmp_path) as held:
            await held.remember([long, "so much of cranes", CRANE, "Ann: is it? 鹤站在码头"])
            found = await held.recall("the crane at the quay", every_turn=True)
            stored = {one.segment.message_id: one.segment for one in await held.store.page()}
            assert len(found.passages) >= 4
            for one in found.passages:
                assert one.message_id is not None
                segment = stored[one.message_id]
                assert one.text in segment.text
                assert one.role == segment.role

    async def test_facts_come_through_their_share(self, tmp_path: Path) -> None:
        async with memory(tmp_path) as held:
            await held.remember([f"the crane of pier {n} is green" for n in range(150)])
            facts = tuple(
                Fact(id=FactId(f"{n}"), type="config", content=f"crane {n}: " + "very green " * 30,
                     at=NOW, words=("crane", "green"))
                for n in range(9)
            )  # fmt: skip
            old = Fact(id=FactId("old"), type="config", content="crane of old", at=NOW,
                       superseded_by=FactId("1"), words=("crane", "green"))  # fmt: skip
            await held.store.write(Batch(at=NOW, facts=(*facts, old)))
            found = await held.recall("which crane is green?", every_turn=True, budget=1_000)
            assert len(found.facts) == 9
            assert "crane of old" not in block(found)
            detail = count_text(block(replace(found, facts=())))
            assert 600 <= detail <= 800, "facts have 30% at the most, passages the rest"


class TestOddQuestions:
    @pytest.mark.parametrize(
        "question",
        [
            "zyx wvu tsr qpo nml",
            "???",
            "\x00\x01\x02\ufffd\u202e\x1b[31m",
            "\ud800 lone surrogate",
            "的",
            "🦩🦩🦩",
            " ".join(f"word{n} /tmp/a_{n}.py" for n in range(700)),
            "may " * 2_500,
            " " * 10_000 + "x",
        ],
        ids=[
            *("unknown", "marks", "garbage", "surrogate", "one sign", "emoji", "long", "may"),
            "spaces",
        ],
    )
    def test_they_are_answered_or_not_but_never_fail(self, tmp_path: Path, question: str) -> None:
        found = recalled(tmp_path, question, *TALK)
        assert found.empty
        assert found.gate is not None
        assert not found.gate.open
        assert str(found.gate.reason)
        recalled(tmp_path, question, every_turn=True)
