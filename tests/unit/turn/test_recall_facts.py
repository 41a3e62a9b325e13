"""Facts in recall, through a real store: which come, when they alone come, and what they cost."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.unit.turn.memories import DAY, NOW, Memory, block, entries, memory, texts, user

from recollect.core.rules.identity import segment_id
from recollect.core.rules.tokens import Weigher
from recollect.core.search.question import question_text, read_question
from recollect.core.search.tokenize import tokenize
from recollect.core.turn.inject import inject
from recollect.core.turn.recall_facts import FoundFacts, recall_facts, types_asked
from recollect.core.values.batch import Batch
from recollect.core.values.edit import Insert
from recollect.core.values.fact import EvidenceSpan, Fact, FactId, fact_identity
from recollect.core.values.history import Entry
from recollect.core.values.reason import NOT_RUN
from recollect.core.values.recall import GateVerdict, Recalled, RecallRequest, fact_name
from recollect.core.values.segment import Trust

PORT = "The staging gateway listens on port 8443."
ASKS_PORT = "which port does the staging gateway listen on?"
WEIGHER = Weigher()
OTHER = "what shall we cook for my sister tonight?"


def run(folder: Path, work: Callable[[Memory], Awaitable[Any]]) -> Any:
    async def opened() -> Any:
        async with memory(folder) as held:
            return await work(held)

    return asyncio.run(opened())


def fact(name: str, content: str, at: float = NOW - DAY, **more: Any) -> Fact:
    made: dict[str, Any] = {"type": "config", "trust": "high", "made_by": "user", **more}
    return Fact(id=FactId(name), content=content, at=at, words=tuple(tokenize(content)), **made)


def rests_on(said: Entry, text: str, part: str, *, session: str = "s") -> dict[str, Any]:
    """That a fact was extracted from this part of a message."""
    segment = segment_id(session, said.key)
    start = text.index(part)
    return {
        "sources": (segment,),
        "evidence": (EvidenceSpan(segment=segment, start=start, end=start + len(part)),),
        "made_by": "model",
        "session": session,
    }


async def know(held: Memory, *facts: Fact) -> None:
    await held.store.write(Batch(at=NOW, facts=facts))


def names(found: Recalled | FoundFacts) -> list[str]:
    return [str(one.id) for one in found.facts]


async def beside_nothing(
    held: Memory, request: RecallRequest, *, gate: bool = True, lost: tuple[str, ...] = ()
) -> list[str]:
    """The facts that are found for a request, before passages are packed."""
    question = read_question(question_text(request), asked_at=request.now)
    verdict = GateVerdict(open=gate, reason=NOT_RUN, lost_words=lost)
    types = types_asked(request, question)
    found = await recall_facts(
        request,
        question,
        verdict,
        archive=held.store,
        vectors=(),
        types=types,
        common=frozenset(),
        read={},
    )
    return names(found)


class TestASingleFact:
    """A memory that holds one thing somebody wrote down, and no message at all."""

    @pytest.mark.parametrize("every_turn", [True, False])
    async def test_is_recalled_when_it_is_asked_for(
        self, tmp_path: Path, *, every_turn: bool
    ) -> None:
        async with memory(tmp_path) as held:
            await know(held, fact("port", PORT))
            found = await held.recall(ASKS_PORT, every_turn=every_turn)
            assert names(found) == ["port"]
            assert found.gate is not None
            assert found.gate.open
            assert PORT in block(found)

    @pytest.mark.parametrize("every_turn", [True, False])
    @pytest.mark.parametrize(
        "question", [OTHER, "ok, go on please", "which port wine goes with cheese and figs?"]
    )
    async def test_is_not_recalled_for_anything_else(
        self, tmp_path: Path, question: str, *, every_turn: bool
    ) -> None:
        async with memory(tmp_path) as held:
            await know(held, fact("port", PORT))
            found = await held.recall(question, every_turn=every_turn)
            assert found.empty
            assert found.gate is not None
            assert not found.gate.open

    @pytest.mark.parametrize(
        ("written", "asked"),
        [
            ("I prefer pytest over unittest", "Which test framework do I prefer?"),
            ("Never push to main", "Push my changes please"),
            ("Rebase before a merge", "Merge the branch of Ines please"),
        ],
    )
    async def test_what_a_person_wrote_comes_back_for_a_word_of_it(
        self, tmp_path: Path, written: str, asked: str
    ) -> None:
        async with memory(tmp_path) as held:
            await know(held, fact("own", written))
            assert names(await held.recall(asked)) == ["own"]
            await know(held, fact("own", written, made_by="import"))
            assert (await held.recall(asked)).empty, "what a file brought has to answer better"

    async def test_opens_no_gate_where_it_rests_on_messages(self, tmp_path: Path) -> None:
        """They were asked already, and did not answer."""
        async with memory(tmp_path) as held:
            (said,) = await held.remember([PORT])
            await know(held, fact("port", PORT, **rests_on(said, PORT, PORT)))
            request = held.asks(entries([user(ASKS_PORT)], name="q"))
            assert await beside_nothing(held, request) == ["port"]
            assert await beside_nothing(held, request, gate=False) == []


class TestWhatStandsInTheView:
    async def test_what_a_shown_message_says_is_not_recalled(self, tmp_path: Path) -> None:
        async with memory(tmp_path) as held:
            said = await held.remember([PORT, "noted"])
            await know(
                held,
                fact("port", "port of the gateway: 8443", **rests_on(said[0], PORT, PORT)),
                fact("old", "the gateway had port 8080 on staging before"),
            )
            asking = entries([user(ASKS_PORT)], start=2)
            assert set(await beside_nothing(held, held.asks(asking))) == {"port", "old"}
            assert await beside_nothing(held, held.asks((*said, *asking))) == ["old"]

    async def test_what_a_standing_block_says_is_not_recalled_again(self, tmp_path: Path) -> None:
        async with memory(tmp_path) as held:
            await know(held, fact("port", PORT))
            view = entries([user(ASKS_PORT)], name="q")
            found = await held.answer(held.asks(view))
            edit = inject(
                view, found, WEIGHER, placement="before-newest-user", budget_tokens=500, turn=1
            ).edit
            assert isinstance(edit, Insert)
            assert fact_name(FactId("port")) in edit.recalled
            assert fact_identity(FactId("port")) in edit.quotes, "so that forgetting finds it"
            assert (await held.answer(held.asks(view, edits=[edit]))).empty


class TestWhich:
    async def test_superseded_ones_never(self, tmp_path: Path) -> None:
        async with memory(tmp_path) as held:
            new = fact("new", "The staging gateway listens on port 9000.", NOW)
            old = fact("old", PORT, superseded_by=new.id, valid_to=NOW)
            await know(held, old, new)
            assert names(await held.recall(ASKS_PORT)) == ["new"]

    async def test_scope(self, tmp_path: Path) -> None:
        async with memory(tmp_path) as held:
            await know(
                held,
                fact("mine", f"{PORT} Mine.", session="s"),
                fact("theirs", f"{PORT} Theirs.", session="other"),
                fact("all", f"{PORT} All."),
            )
            space = await held.recall(ASKS_PORT, scope="space", every_turn=True)
            assert set(names(space)) == {"mine", "theirs", "all"}
            session = await held.recall(ASKS_PORT, scope="session", every_turn=True)
            assert set(names(session)) == {"mine", "all"}

    async def test_only_what_was_lost_where_lost_term_opened_the_gate(self, tmp_path: Path) -> None:
        async with memory(tmp_path) as held:
            await know(
                held,
                fact("path", "src/edge/hall_router.py holds the gateway code"),
                fact("lamp", "the lamp of the gateway is broken"),
            )
            request = held.asks(entries([user("and the gateway lamp?")], name="q"))
            assert await beside_nothing(held, request) == ["lamp"]
            lost = tuple(tokenize("hall_router.py"))
            assert await beside_nothing(held, request, lost=lost) == ["path"]

    @pytest.mark.parametrize(
        ("trust", "words"),
        [("high", "user"), ("medium", "assistant"), ("low", "tool output"),
         ("outside", "fetched content")],
    )  # fmt: skip
    async def test_the_block_shows_how_far_each_may_be_trusted(
        self, tmp_path: Path, trust: Trust, words: str
    ) -> None:
        async with memory(tmp_path) as held:
            await know(held, fact("port", PORT, trust=trust))
            day = datetime.fromtimestamp(NOW - DAY, UTC).date().isoformat()
            told = block(await held.recall(ASKS_PORT))
            assert f"- [config] ({words}, {day}) {PORT}" in told


LONG = "We spoke of the staging gateway for long. " + PORT + " Then we went home."


class TestBesidePassages:
    async def test_fact_whose_words_passage_shows_gives_its_place_up(self, tmp_path: Path) -> None:
        async with memory(tmp_path) as held:
            (said, *_) = await held.remember([LONG, "noted", "my sister paints boats", "fine"])
            await know(held, fact("port", "staging gateway on 8443", **rests_on(said, LONG, PORT)))
            found = await held.recall(ASKS_PORT, every_turn=True)
            assert LONG in texts(found)
            assert names(found) == []
            narrow = await held.recall(ASKS_PORT, every_turn=True, budget=50)
            assert narrow.passages == ()
            assert names(narrow) == ["port"], "no passage fits, so the fact says it"

    async def test_one_that_several_messages_say_goes_only_where_all_are_shown(
        self, tmp_path: Path
    ) -> None:
        async with memory(tmp_path) as held:
            both = ["The staging gateway is Kong.", "It listens on port 8443 there."]
            said = await held.remember([*both, "my sister paints boats", "fine"])
            spans = [rests_on(one, text, text) for one, text in zip(said, both, strict=False)]
            joint = fact(
                "joint", "staging gateway Kong: port 8443", joint=True, made_by="model",
                sources=tuple(one["sources"][0] for one in spans),
                evidence=tuple(one["evidence"][0] for one in spans),
            )  # fmt: skip
            await know(held, joint)
            found = await held.recall(ASKS_PORT, every_turn=True)
            assert set(both) <= set(texts(found))
            assert names(found) == []
            one_fits = await held.recall(ASKS_PORT, every_turn=True, budget=80)
            assert not set(both) <= set(texts(one_fits))
            assert names(one_fits) == ["joint"]
