"""From what was said to facts: real engine, real store, real jobs, a scripted model beside it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.harness.fact_reader import fact_reader

from recollect import open_memory
from recollect.adapters.wiring import open_store
from recollect.core.engine import Engine
from recollect.core.engine.background import runner_of
from recollect.core.ports import Model, Store
from recollect.core.values.fact import Fact
from recollect.errors import ModelRefused, ModelUnavailable, RecollectError
from recollect.system.config import Settings, load_settings
from recollect.testing.scripted_model import ScriptedModel

NOON = 1_760_011_200.0
IDLE = 600.0
PORT = "Remember that the staging API listens on port 8443."
CHOICE = "We decided to use PostgreSQL for the orders database."


class Clock:
    def __init__(self) -> None:
        self.time = NOON

    def now(self) -> float:
        return self.time


class Place:
    """A space on disk, with an engine on it whose jobs a test runs by hand."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self.path = path
        self.clock = Clock()
        self.settings: Settings = load_settings(
            arguments={"jobs.in_process": False, "recall.embedder": "none", **settings}, file=None
        ).settings
        self.told: list[str] = []

    def engine(self, model: Any = None) -> Engine:
        return open_memory(
            space="facts",
            store=self.path,
            clock=self.clock,
            settings=self.settings,
            model=model,
            extraction_model=fact_reader(),
        )

    @asynccontextmanager
    async def store(self) -> AsyncIterator[Store]:
        store = await open_store(str(self.path), space="facts")
        try:
            yield store
        finally:
            await store.close()

    async def say(self, session: str, *texts: str) -> None:
        async with self.engine() as memory:
            messages: list[dict[str, Any]] = []
            for text in texts:
                messages.append({"role": "user", "content": text})
                await memory.prepare(session, {"model": "m", "messages": messages})
                reply = {"role": "assistant", "content": [{"type": "text", "text": "All right."}]}
                await memory.observe(session, reply)
                messages.append({"role": "assistant", "content": "All right."})
                self.clock.time += 1
            await memory.settle()

    async def work(self, model: Model | None = None, *, most: int | None = None) -> None:
        model = fact_reader() if model is None else model
        async with self.store() as store:
            runner = runner_of(
                store,
                self.settings,
                self.clock,
                model=model,
                notify=lambda note: self.told.append(str(note)),
            )
            await runner.run_due(max_jobs=most)

    async def facts(self, *, superseded: bool = False) -> tuple[Fact, ...]:
        async with self.store() as store:
            return await store.facts(superseded=superseded)


def answer(*facts: dict[str, Any]) -> str:
    return json.dumps({"facts": list(facts)})


async def test_an_idle_session_is_read_once_and_its_facts_name_their_words(tmp_path: Path) -> None:
    place = Place(tmp_path / "facts.db")
    await place.say("s", PORT, "How is the weather?", CHOICE)
    await place.work()
    assert not await place.facts(), "it is not idle yet"
    place.clock.time += IDLE + 1
    await place.work()
    facts = await place.facts()
    assert {"8443" in one.content for one in facts} == {True, False}
    async with place.store() as store:
        for fact in facts:
            (span,) = fact.evidence
            assert fact.sources == (span.segment,)
            (held,) = await store.segments([span.segment])
            assert held.segment.text[span.start : span.end] in (PORT, CHOICE)
            assert (fact.trust, fact.made_by, fact.session) == ("high", "model", "s")
            assert fact.at == held.segment.said_at
    assert any("2 facts added from" in line for line in place.told)
    place.clock.time += IDLE + 1
    await place.work()
    assert await place.facts() == facts


async def test_what_leaves_the_view_is_read_at_once(tmp_path: Path) -> None:
    given = {"compaction.keep_recent_tokens": 300, "facts.window_tokens": 500}
    place = Place(tmp_path / "facts.db", window_tokens=8000, **given)
    model = ScriptedModel(lambda _: "## Goal\nship it\n")
    async with place.engine(model) as memory:
        messages: list[dict[str, Any]] = [{"role": "user", "content": PORT}]
        for number in range(12):
            messages.append({"role": "assistant", "content": f"Note {number}. " + "word " * 90})
            messages.append({"role": "user", "content": f"Go on with part {number}, please."})
        request = {"model": "m", "messages": messages}
        await memory.prepare("s", request)
        done = await memory.compact("s", request)
        assert done.compacted, done.reason
        await memory.settle()
    await place.work()
    assert [one.content for one in await place.facts() if "8443" in one.content]


async def test_a_day_that_is_spent_waits_for_the_next(tmp_path: Path) -> None:
    place = Place(tmp_path / "facts.db", **{"jobs.day_tokens": 6_000})
    await place.say("monday", PORT)
    await place.say("tuesday", CHOICE)
    place.clock.time += IDLE + 1
    model = fact_reader()
    await place.work(model)
    assert len(model.prompts) == 1
    assert len(await place.facts()) == 1, "the other waits as a whole: nothing is read twice"
    place.clock.time += 86_400
    await place.work(model)
    assert len(model.prompts) == 2
    assert len(await place.facts()) == 2


@pytest.mark.parametrize(
    ("given", "runs"),
    [(ModelRefused("no such model"), 1), (ModelUnavailable("away"), 5), ("I found nothing.", 5)],
)
async def test_a_model_without_a_usable_answer_is_told_and_what_it_missed_is_read_later(
    tmp_path: Path, given: Exception | str, runs: int
) -> None:
    place = Place(tmp_path / "facts.db")
    await place.say("s", PORT)
    place.clock.time += IDLE + 1
    model = ScriptedModel(lambda _: given)
    for _ in range(runs):
        await place.work(model)
        place.clock.time += 4_000
    assert len(model.prompts) == runs
    assert not await place.facts()
    assert any("no usable answer" in line for line in place.told)
    await place.say("s", PORT, CHOICE)
    place.clock.time += IDLE + 1
    await place.work()
    assert len(await place.facts()) == 2


async def test_facts_of_two_sessions_leave_each_other_alone(tmp_path: Path) -> None:
    place = Place(tmp_path / "facts.db")
    await place.say("anna", "Remember that the staging API listens on port 8443.")
    await place.say("bert", "Remember that the staging API listens on port 9000.")
    place.clock.time += IDLE + 1
    await place.work()
    assert {one.session for one in await place.facts()} == {"anna", "bert"}


async def test_two_workers_never_leave_two_versions(tmp_path: Path) -> None:
    """Both decide on the same facts at once; one of them has to decide again."""
    place = Place(tmp_path / "facts.db", **{"recall.scope": "space"})
    for day, port in (("monday", 8443), ("friday", 9000)):
        await place.say(day, f"Remember that the staging API listens on port {port}.")
    place.clock.time += IDLE + 1
    for _ in range(5):
        await asyncio.gather(place.work(most=1), place.work(most=1))
        place.clock.time += 4_000
    (now,) = await place.facts()
    assert "9000" in now.content
    async with place.store() as store:
        assert not [one for one in await store.jobs() if one.state == "dead"]


async def test_what_was_recalled_is_never_extracted_again(tmp_path: Path) -> None:
    place = Place(tmp_path / "facts.db")
    block = (
        '<recalled-context source="memory-context">\n\n<knowledge>\n'
        "- [decision] We decided to use MongoDB for invoices\n</knowledge>\n\n"
        "</recalled-context>"
    )
    await place.say("s", f"{block}\nThanks, what is next?", PORT)
    place.clock.time += IDLE + 1
    await place.work()
    facts = await place.facts()
    assert facts
    assert not [one for one in facts if "MongoDB" in one.content]


async def test_who_speaks_in_a_session_sees_and_changes_no_other_ones_facts(tmp_path: Path) -> None:
    place = Place(tmp_path / "facts.db")
    await place.say("bob", "I prefer tabs over spaces for indentation.")
    place.clock.time += IDLE + 1
    await place.work()
    (tabs,) = await place.facts()
    async with place.engine() as memory:
        alice = await memory.facts("alice")
        assert await alice.list() == ()
        with pytest.raises(RecollectError, match="another session"):
            await alice.why(tabs.id)
        await alice.add("I prefer spaces over tabs for indentation.")
        assert [one.session for one in await alice.list()] == ["alice"]
        bob = await memory.facts("bob")
        assert await bob.list() == (tabs,)
        assert len(await (await memory.facts()).list()) == 2, "the space as a whole"
