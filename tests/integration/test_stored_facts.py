"""A plain question finds what a model stored as surely as what a user typed."""

import asyncio
from pathlib import Path
from typing import Any, Literal

import pytest

from recollect import open_memory
from recollect.core.values.edit import Insert
from recollect.tools import memory_tools

ASKED = {
    "The archive room is locked at half past six.": "When is the archive room locked?",
    "Parcels for Norway go through customs in Malmö.": "Where do parcels for Norway clear customs?",
    "The choir rehearses on Thursdays.": "When does the choir rehearse?",
    "Nadia signs the travel expenses.": "Who signs travel expenses?",
    "The label printer needs the driver zq-110.": "Which driver does the label printer need?",
    "Uploads above 40 MB are refused.": "How large may uploads be?",
    "The thermostat in the server room is set to 19 degrees.": "What is the thermostat set to?",
    "Guests get the wifi called Birch.": "What is the wifi called?",
    "The translation of the manual is due in March.": "When is the translation due?",
    "Orders are numbered per warehouse.": "How are orders numbered?",
    "The accountant is Mr Okafor.": "What is the name of the accountant?",
    "The fallback carrier is Posten.": "Which is our fallback carrier?",
}
UNRELATED = (
    "Why do cats purr?",
    "Who painted the ceiling of the Sistine Chapel?",
    "How do I center a div?",
    "Translate this sentence into French.",
    "Please make the heading bold.",
    "thanks, that is all for today",
    "Which planet has the most moons?",
    "Write a test for the upload form.",
)
SMALL_TALK = (
    "Please look at the build log of last night.",
    "It shows two warnings of the linker.",
    "Fix the first one, then run the checks again.",
    "Done, all of them pass.",
)


def request(*texts: str) -> dict[str, Any]:
    roles = ("user", "assistant")
    messages = [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]
    return {"model": "some-model", "max_tokens": 100, "messages": messages}


async def _ask(folder: Path, how: Literal["stored", "typed"]) -> tuple[list[str], list[str]]:
    """The questions that found their statement, and the unrelated messages that got any block."""
    settings = {"recall.embedder": "none", "recall.scope": "space", "recall.standing_tokens": 0}
    async with open_memory(store=folder / f"{how}.db", settings=settings) as memory:
        await memory.prepare("talk", request(*SMALL_TALK, "thanks"))
        if how == "typed":
            told = [text for statement in ASKED for text in (statement, "Noted.")]
            await memory.prepare("told", request(*told, "thanks"))
        tools = memory_tools(memory)
        for statement in ASKED if how == "stored" else ():
            assert not (await tools.call("memory_store", {"text": statement})).is_error
        await memory.settle()

        async def block(session: str, text: str) -> str:
            context = await memory.prepare(session, request(text))
            return "\n".join(edit.text for edit in context.edits if isinstance(edit, Insert))

        found = [
            question
            for at, (statement, question) in enumerate(ASKED.items())
            if statement in await block(f"asks {at}", question)
        ]
        disturbed = [text for at, text in enumerate(UNRELATED) if await block(f"other {at}", text)]
        return found, disturbed


@pytest.mark.parametrize("how", ["stored", "typed"])
def test_a_plain_question_finds_its_statement(
    tmp_path: Path, how: Literal["stored", "typed"]
) -> None:
    found, disturbed = asyncio.run(_ask(tmp_path, how))
    assert [question for question in ASKED.values() if question not in found] == []
    assert disturbed == []


async def test_decisions_that_were_added_by_hand_are_listed(tmp_path: Path) -> None:
    written = (
        "Use ClickHouse instead of Elasticsearch for logs",
        "Drop support for 32-bit builds",
        "Checkout fails for cards without a postcode",
    )
    settings = {"recall.embedder": "none"}
    async with open_memory(store=tmp_path / "m.db", settings=settings) as memory:
        book = await memory.facts()
        for text in written:
            await book.add(text)
        context = await memory.prepare("s", request("Please list all our decisions."))
        block = "\n".join(edit.text for edit in context.edits if isinstance(edit, Insert))
    assert [text for text in written if text in block] == list(written[:2])
