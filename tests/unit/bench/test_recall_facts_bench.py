"""What facts bring to recall is counted honestly: one budget, sources, the answer's own words."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from recollect.errors import RecollectError
from recollect.formats.recalled_block import fact_line
from recollect.search.facts import FACTS_SHARE
from recollect.stores.sqlite import SQLiteStore
from recollect.values.fact import Fact, FactId
from recollect.values.model import Answer, Prompt
from recollect.values.recall import Recalled, RecalledFact, RecalledPassage
from recollect_bench import recall
from recollect_bench.command import bench
from recollect_bench.recall.fact_page import page
from recollect_bench.recall.fact_run import judge_block
from recollect_bench.recall.fact_sources import KeptAnswers, part_to_read, read_for_facts
from recollect_bench.recall.judge import BUDGET_TOKENS, Judge
from recollect_bench.recall.memory import StoredMemory, entries_of, write_memory
from recollect_bench.recall.sets import Memory, Question, QuestionSet, Said

DAY = 86_400.0


def said(text: str, session: str = "one", role: Any = "user") -> Said:
    return Said(text=text, role=role, session=session, said_at=DAY)


def asked(text: str, *gold: int, answer: str = "", category: str = "multi-hop") -> Question:
    return Question(text=text, gold=gold, category=category, split="hold", answer=answer)


MEMORY = Memory(
    name="small",
    messages=(
        said("Remember: the staging gateway listens on port 8443."),
        said("The lighthouse keeper is called Ansgar Petersen and lives on Fehmarn."),
        said("We decided to use PostgreSQL for the orders of the harbour shop.", "two"),
        said("My sister plays the cello, and it rained all day.", "two"),
        *(said(f"Boat number {n} is blue and lies in the harbour.", "three") for n in range(60)),
    ),
    questions=(
        asked("Who keeps the lighthouse?", 1, answer="Ansgar Petersen", category="single-hop"),
        asked("Port and database?", 0, 2, answer="8443 and PostgreSQL"),
    ),
)


def with_memory(folder: Path, work: Callable[[StoredMemory], Awaitable[Any]]) -> Any:
    async def opened() -> Any:
        store = await SQLiteStore.open(folder / "memory.db", space="bench")
        try:
            return await work(await write_memory(store, MEMORY))
        finally:
            await store.close()

    return asyncio.run(opened())


def whole(stored: StoredMemory, place: int) -> RecalledPassage:
    """A message as the stage hands it over."""
    message = stored.messages[place]
    return RecalledPassage(
        text=message.text, role="user", said_at="1970-01-02 00:00", score=0.5,
        segment=message.segment, sitting="x", order=(message.said_at, message.sequence, 0),
    )  # fmt: skip


def resting(stored: StoredMemory, name: str, text: str, *places: int, **more: Any) -> Fact:
    sources = tuple(stored.messages[place].segment for place in places)
    made: dict[str, Any] = {"type": "config", **more}
    return Fact(id=FactId(name), content=text, at=DAY, sources=sources, **made)


def told(fact: Fact, score: float = 1.0) -> RecalledFact:
    return RecalledFact(id=fact.id, type=fact.type, text=fact.content, score=score)


def test_a_fact_stands_for_the_messages_it_rests_on_and_is_told_apart(tmp_path: Path) -> None:
    async def work(stored: StoredMemory) -> None:
        judge, question = Judge(stored), MEMORY.questions[1]
        (asking,) = entries_of([said(question.text)], space="bench")
        fact = resting(stored, "db", "orders are in PostgreSQL", 2)
        shown = Recalled(facts=(told(fact),), passages=(whole(stored, 0),))
        known = {fact.id: fact}
        verdict = judge_block(judge, question, shown, asking=asking, known=known)
        assert (verdict.by_passages, verdict.with_facts) == (False, True)
        assert verdict.answer_words == pytest.approx(1.0)
        assert (verdict.facts, verdict.digests) == (1, 0)
        alone = judge_block(judge, question, replace(shown, facts=()), asking=asking, known={})
        assert not alone.with_facts
        assert alone.answer_words is not None
        assert 0.0 < alone.answer_words < 1.0

    with_memory(tmp_path, work)


def test_a_digest_that_only_names_its_sources_does_not_have_the_answer(tmp_path: Path) -> None:
    async def work(stored: StoredMemory) -> None:
        judge, question = Judge(stored), MEMORY.questions[1]
        (asking,) = entries_of([said(question.text)], space="bench")
        fact = resting(stored, "all", "much was said", 0, 1, 2, 3, type="digest", joint=True)
        shown = Recalled(facts=(told(fact),))
        verdict = judge_block(judge, question, shown, asking=asking, known={fact.id: fact})
        assert verdict.with_facts
        assert verdict.digests == 1
        assert verdict.answer_words == 0.0

    with_memory(tmp_path, work)


def test_a_fact_without_room_in_the_block_counts_for_nothing(tmp_path: Path) -> None:
    async def work(stored: StoredMemory) -> None:
        judge, question = Judge(stored), MEMORY.questions[1]
        (asking,) = entries_of([said(question.text)], space="bench")
        large = resting(stored, "large", "harbour " * 400, 3)
        small = resting(stored, "small", "PostgreSQL " * 60, 2)
        facts = (told(large, 0.9), told(small, 0.8))
        assert len("".join(map(fact_line, facts))) / 3 > FACTS_SHARE * BUDGET_TOKENS
        shown = Recalled(facts=facts, passages=(whole(stored, 0),))
        known = {large.id: large, small.id: small}
        verdict = judge_block(judge, question, shown, asking=asking, known=known)
        assert verdict.facts == 1
        assert not verdict.with_facts
        assert verdict.fact_tokens <= FACTS_SHARE * BUDGET_TOKENS

    with_memory(tmp_path, work)


def test_answers_are_measured_by_rare_words_that_the_question_does_not_give(
    tmp_path: Path,
) -> None:
    async def work(stored: StoredMemory) -> None:
        judge = Judge(stored)
        question = asked("Which boat?", 5, answer="the boat of Ansgar in the harbour of Rio")
        assert set(judge.answer_words(question)) == {"ansgar"}, (
            "boat is asked for, the harbour is everywhere, Rio was never heard of"
        )
        (asking,) = entries_of([said(question.text)], space="bench")
        nothing = asked("Which boat?", 5, answer="yes")
        verdict = judge_block(judge, nothing, Recalled(), asking=asking, known={})
        assert verdict.answer_words is None

    with_memory(tmp_path, work)


def test_neither_the_frame_of_a_block_nor_a_rubrics_wording_is_an_answer(tmp_path: Path) -> None:
    """Found by a run: `[task_state]` answered "LLM response should state: …"."""

    async def work(stored: StoredMemory) -> None:
        judge = Judge(stored)
        rubric = "LLM response should state: 8443 LLM response should mention: cello"
        question = asked("Which?", 0, answer=rubric)
        assert set(judge.answer_words(question)) == {"8443", "cello"}
        (asking,) = entries_of([said(question.text)], space="bench")
        fact = resting(stored, "f", "it rained", 3, type="preference")
        for word in ("preference", "knowledge", "assistant", "1970"):
            framed = {"answer_words": lambda _, word=word: {word: 1.0}}
            told_by = type("Fixed", (Judge,), framed)(stored)
            shown = Recalled(facts=(told(fact),), passages=(whole(stored, 1),))
            verdict = judge_block(told_by, question, shown, asking=asking, known={fact.id: fact})
            assert verdict.facts == 1
            assert verdict.answer_words == 0.0, word

    with_memory(tmp_path, work)


def test_a_memory_is_read_by_the_engines_own_jobs_and_all_of_it(tmp_path: Path) -> None:
    async def work(stored: StoredMemory) -> None:
        seen: list[int] = []
        read = await read_for_facts(stored, told=seen.append)
        texts = " ".join(fact.content for fact in read.facts.values())
        assert "8443" in texts
        assert "PostgreSQL" in texts
        places = {one.segment: place for place, one in enumerate(stored.messages)}
        by_text = {f.content: {places[s] for s in f.sources} for f in read.facts.values()}
        assert {0} in by_text.values()
        assert {2} in by_text.values()
        assert read.dead_jobs == read.digests == 0
        assert seen[-1] >= 3, "a job a session"
        for session in ("one", "two", "three"):
            assert await stored.store.extracted_to(session) > 0

    with_memory(tmp_path, work)


def test_only_the_part_that_is_wanted_is_read(tmp_path: Path) -> None:
    async def work(stored: StoredMemory) -> None:
        read = await read_for_facts(stored, places={2, 3})
        texts = " ".join(fact.content for fact in read.facts.values())
        assert "PostgreSQL" in texts
        assert "8443" not in texts

    with_memory(tmp_path, work)


def test_a_part_is_read_to_its_end_however_far_apart_it_stands(tmp_path: Path) -> None:
    """The engine reads pages of 200: a page without any of the part is not the end."""
    talk = [said(f"The mast of boat {n} is {n} feet high and was painted.") for n in range(520)]
    wanted = {5: "Anna", 250: "Bea", 515: "Cleo"}
    for place, name in wanted.items():
        talk[place] = said(f"Remember: the key of {name}'s boat is in the harbour office.")
    memory = replace(MEMORY, messages=tuple(talk))

    async def work() -> None:
        store = await SQLiteStore.open(tmp_path / "memory.db", space="bench")
        try:
            stored = await write_memory(store, memory)
            read = await read_for_facts(stored, places=wanted)
            texts = " ".join(fact.content for fact in read.facts.values())
            assert all(name in texts for name in wanted.values())
            assert (read.messages_read, len(read.facts)) == (3, 3)
        finally:
            await store.close()

    asyncio.run(work())


def test_the_part_is_what_hard_questions_rest_on_and_what_is_near() -> None:
    talk = Memory(
        name="talk",
        messages=tuple(said(f"{n}", role="assistant" if n % 2 else "user") for n in range(12)),
        questions=(
            asked("many", 4, 7, category="event-ordering"),
            asked("one of these", 2, category="single-hop"),
            asked("another", 10, category="single-hop"),
        ),
    )
    found = part_to_read(
        QuestionSet(name="set", memories=(talk,)), most_messages=5, most_memories=None
    )
    assert found.read == {"talk": frozenset({2, 4, 6, 7, 8})}
    (memory,) = found.whole.memories
    assert [one.text for one in memory.questions] == ["many", "one of these"]
    assert len(memory.messages) == 12, "what was not read still competes"
    with pytest.raises(RecollectError, match="--most-messages 5 reads one"):
        part_to_read(QuestionSet(name="set", memories=(talk,)), most_messages=4, most_memories=None)


def test_an_answer_is_paid_for_once_whatever_was_cut_off(tmp_path: Path) -> None:
    class Counting:
        name = "toy"
        window_tokens = 4096
        asked = 0

        async def ask(self, prompt: Prompt) -> Answer:
            self.asked += 1
            return Answer(text=f"answer {len(prompt.text)}")

        async def close(self) -> None:
            pass

    async def work() -> None:
        model, file = Counting(), tmp_path / "kept" / "answers.jsonl"
        first = KeptAnswers(model, file)
        prompt = Prompt(text="secret words", schema={"type": "object"})
        assert (await first.ask(prompt)).text == "answer 12"
        with file.open("a", encoding="utf-8") as opened:
            opened.write('{"asked": "torn')
        again = KeptAnswers(model, file)
        assert (await again.ask(prompt)).text == "answer 12"
        assert (model.asked, again.from_file) == (1, 1)
        await again.ask(replace(prompt, schema=None))
        await again.ask(replace(prompt, max_output_tokens=7))
        assert model.asked == 3, "another schema or another length is another question"
        assert "secret words" not in file.read_text(encoding="utf-8")

    asyncio.run(work())


LOCOMO = [
    {
        "sample_id": "conv-0",
        "conversation": {
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                {"speaker": "Anna", "dia_id": "D1:1", "text": "Remember: the gate code is in the "
                 "blue folder of the harbour office."},
                {"speaker": "Ben", "dia_id": "D1:2", "text": "My sister studies biology in Kiel."},
                *({"speaker": "Ben", "dia_id": f"D1:{n}", "text": f"Boat {n} is blue, as I said."}
                  for n in range(3, 40)),
            ],
        },
        "qa": [
            {"question": "Where is the gate code?", "answer": "blue folder", "evidence": ["D1:1"],
             "category": 4},
            {"question": "Is there a gate code?", "answer": "yes", "evidence": ["D1:1"],
             "category": 4},
            {"question": "Who studies, and where is the code?", "answer": "sister, folder",
             "evidence": ["D1:1", "D1:2"], "category": 1},
        ],
    }
]  # fmt: skip


@pytest.fixture
def tiny_locomo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "data" / "memory_qa"
    folder.mkdir(parents=True)
    (folder / "locomo10.json.gz").write_bytes(gzip.compress(json.dumps(LOCOMO).encode()))
    monkeypatch.setenv("RECOLLECT_DATA", str(folder.parent))


def test_a_run_tells_facts_beside_the_same_without_and_the_page_shows_both(
    tiny_locomo: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = CliRunner().invoke(
        bench, ["recall", "--json", "--facts", "rules"], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    figures = result["figures"]
    for by in ("none", "rules"):
        assert figures[f"{by}.all_4k"] == figures[f"{by}.answer_words_4k"] == 1.0
        assert figures[f"{by}.all_4k.multi-hop"] == 1.0
    assert figures["rules.with_facts_all_4k"] == 1.0
    assert "none.with_facts_all_4k" not in figures
    assert (figures["rules.gained"], figures["rules.lost"]) == (0.0, 0.0)
    assert figures["rules.facts"] >= 1
    assert (figures["questions"], figures["questions.multi-hop"]) == (3, 1)
    assert (figures["worded"], figures["worded.single-hop"]) == (2, 1), "yes is no rare word"
    assert result["run"]["facts"] == "rules"
    assert not any(name.startswith("threshold") for name in result["baselines"])
    written = page([result])
    assert "`recollect bench recall --set locomo --embedder hash --facts rules`" in written
    assert "| all_4k | multi-hop | 1 | 1.000 | 1.000 |" in written
    assert "| all_4k | single-hop | 2 | 1.000 | 1.000 |" in written
    assert "| answer_words_4k | single-hop | 1 | 1.000 | 1.000 |" in written
    assert "gate code" not in written
    assert figures["rules.messages_read"] == 39
    assert "no run here had one, so nothing here is about digests" in written
    monkeypatch.setenv("COLUMNS", "100")
    recall.draw(recall.run(facts="rules"))
    assert "with_facts_all_4k" in capsys.readouterr().out


def test_the_page_says_what_a_run_with_a_model_cannot_show(tiny_locomo: None) -> None:
    result = recall.run(facts="rules", most_messages=5).as_json()
    assert result["figures"]["messages_chosen"] == 3
    assert "gold chose it**: 3 of the messages" in page([result])
    of_model = {
        name.replace("rules.", "model."): value
        for name, value in result["figures"].items()
        if name.startswith("rules.")
    }
    silent = {**result, "figures": result["figures"] | of_model}
    written = page([silent])
    assert "(3 by rules and 3 by model were really read)" in written
    assert "No digest arose in any of the model's runs here (0 digests)" in written
    assert "No digest arose in this run" in written
    assert "Facts by model changed no question" in written
    told = {**silent, "figures": silent["figures"] | {"model.digests": 2}}
    written = page([silent, told])
    assert "Digests arose in 1 of the model's 2 runs here (2 digests)" in written
    assert written.count("No digest arose in this run") == 1


def test_without_facts_a_run_is_what_it_was(tiny_locomo: None) -> None:
    plain = recall.run()
    assert plain.as_json() == recall.run(facts="none").as_json()
    assert not [name for name in plain.figures if "facts" in name or "answer_words" in name]
    assert "facts" not in plain.as_json()["run"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"facts": "model"}, "needs --gguf FILE or --model URL"),
        ({"facts": "rules", "gguf": "x.gguf"}, "asked with --facts model only"),
        ({"gguf": "x.gguf"}, "asked with --facts model only"),
        ({"facts": "rules", "compare": "sqlite,pg18"}, "on one store"),
        ({"facts": "rules", "sets": ["own"], "paths": ["x"]}, "published sets"),
    ],
)
def test_what_cannot_be_measured_is_told_before(options: dict[str, Any], why: str) -> None:
    with pytest.raises(RecollectError, match=why):
        recall.run(**options)
