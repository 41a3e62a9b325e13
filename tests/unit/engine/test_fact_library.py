"""Facts as a program uses them: `Engine.facts`, its blocking twin, and a session that is read."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.harness.fact_reader import fact_reader

from recollect import Engine, open_blocking_memory, open_memory
from recollect.core.facts.history import FactFilter
from recollect.core.values.fact import Fact
from recollect.core.values.recall import BLOCK_OPENING
from recollect.errors import RecollectError, StoreError

PORT = "Remember that the staging API listens on port 8443."
ASKING = "Which port does the staging API listen on?"
FILLER = "The weather report for the harbour says that the wind turns north in the afternoon. " * 12
PLAIN: dict[str, Any] = {"recall.embedder": "none"}
SMALL = {**PLAIN, "window_tokens": 4_000, "facts.idle_seconds": 0.05, "recall.standing_tokens": 0}


def reading_memory(folder: Path) -> Engine:
    return open_memory(store=folder / "m.db", settings=SMALL, extraction_model=fact_reader())


def test_a_program_without_a_loop_looks_after_its_facts(tmp_path: Path) -> None:
    with open_blocking_memory(store=tmp_path / "m.db", settings=PLAIN) as memory:
        facts = memory.facts()
        first = facts.add("The staging API listens on port 8443")
        assert first.fact is not None
        taste = facts.add("I prefer tabs over spaces", type="preference").fact
        assert taste is not None
        assert facts.pin(taste.id).changed
        assert [one.id for one in facts.list()] == [taste.id, first.fact.id]
        assert not facts.unpin(taste.id).fact.pinned
        (found,) = facts.list(FactFilter(search="staging port"))
        assert found == first.fact
        assert facts.find(found.id[:8]) == found

        edited = facts.edit(found.id, "The staging API listens on port 9443")
        assert edited.outcome == "replaced"
        assert edited.fact is not None
        history = facts.history(edited.fact.id)
        assert [one.id for one in history.facts] == [found.id, edited.fact.id]
        why = facts.why(edited.fact.id)
        assert (why.sources, why.rests_on) == ((), None)

        assert facts.expire(taste.id).valid_to is not None
        assert [one.id for one in facts.list()] == [edited.fact.id]
        with pytest.raises(RecollectError, match="cannot be changed"):
            facts.expire(taste.id)

        order = facts.order_to_forget([edited.fact.id], versions=True)
        certificate = facts.forget(order)
        assert certificate.counts["facts"] == 2
        assert [one.id for one in facts.list(FactFilter(superseded=True))] == [taste.id]
        with pytest.raises(RecollectError, match="forgotten"):
            facts.find(edited.fact.id)


async def test_without_a_memory_there_are_no_facts() -> None:
    async with open_memory(settings={"ingest.enabled": False}) as memory:
        with pytest.raises(StoreError, match=r"ingest\.enabled"):
            await memory.facts()


class Talk:
    """A client that sends its whole history with every request."""

    def __init__(self, memory: Engine, session: str = "s") -> None:
        self.memory = memory
        self.session = session
        self.messages: list[dict[str, Any]] = []

    async def say(self, text: str) -> Any:
        self.messages.append({"role": "user", "content": text})
        request = {"model": "m", "messages": list(self.messages)}
        context = await self.memory.prepare(self.session, request)
        answer = {"role": "assistant", "content": [{"type": "text", "text": "All right."}]}
        await self.memory.observe(self.session, answer)
        self.messages.append(answer)
        return context


def block(request: Any) -> list[str]:
    """The lines of all recalled blocks in a request."""
    parts = [
        part["text"]
        for message in request["messages"]
        if not isinstance(message["content"], str)
        for part in message["content"]
        if part.get("type") == "text"
    ]
    return [line for text in parts if BLOCK_OPENING in text for line in text.splitlines()]


async def once_extracted(talk: Talk, text: str) -> Fact:
    """The fact, when the jobs have found it; somebody says something now and then."""
    book = await talk.memory.facts()
    for waited in range(1, 200):
        if found := await book.list(FactFilter(search=text)):
            return found[0]
        await asyncio.sleep(0.05)
        if waited % 20 == 0:
            await talk.say("Are you there?")
    raise AssertionError("nothing was extracted")


async def test_what_was_said_is_known_and_comes_back_when_the_window_has_lost_it(
    tmp_path: Path,
) -> None:
    async with reading_memory(tmp_path) as memory:
        talk = Talk(memory)
        await talk.say("Good morning, we look after the harbour today.")  # a task is kept
        shown = await talk.say(PORT)
        assert BLOCK_OPENING not in str(shown.request)
        fact = await once_extracted(talk, "8443")
        assert (fact.trust, fact.made_by, fact.session) == ("high", "model", "s")
        (source,) = (await (await memory.facts()).why(fact.id)).sources
        assert source.stored is not None
        said = source.stored.segment
        assert (said.text, said.role, said.session) == (PORT, "user", "s")
        assert "8443" in said.text[source.spans[0].start : source.spans[0].end]

        for _ in range(20):
            shown = await talk.say(FILLER)
        assert "8443" not in str(shown.request), "the window has lost it"
        asked = await talk.say(ASKING)
        told = [line for line in block(asked.request) if "8443" in line]
        assert told == [f"user: {PORT}"], "the message itself, which says more than its fact"

        book = await memory.facts()
        now = (await book.edit(fact.id, "The staging API listens on port 9443")).fact
        assert now is not None
        asked = await talk.say("So which port does the staging API listen on now?")
        assert [one.id for one in asked.recalled.facts] == [now.id]
        (line,) = [line for line in block(asked.request) if "9443" in line]
        assert line.startswith("- [config] ")
        assert "(user, " in line, "with its trust"


async def test_what_was_forgotten_is_not_recalled_nor_extracted_again(tmp_path: Path) -> None:
    async with reading_memory(tmp_path) as memory:
        talk = Talk(memory)
        await talk.say(PORT)
        fact = await once_extracted(talk, "8443")
        book = await memory.facts()
        await book.forget(await book.order_to_forget([fact.id], sources=True))
        memory.end("s")
        again = Talk(memory)
        again.messages = talk.messages  # the client's own history still holds it
        await again.say(FILLER)
        await memory.settle()
        await asyncio.sleep(0.3)
        assert await book.list(FactFilter(search="8443")) == ()
        other = Talk(memory, "t")
        asked = await other.say(ASKING)
        assert "8443" not in str(asked.request)
