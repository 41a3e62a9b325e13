"""`ingest.enabled = false`: nothing new is written, what is stored is recalled and goes on."""

import asyncio
import hashlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from recollect import open_memory
from recollect.errors import StoreError

PORT = "The staging proxy of the harbour listens on port 48211."
ASKED = "Which port does the staging proxy of the harbour listen on?"


def rows(file: Path) -> dict[str, Any]:
    """Every row of every table, as a digest each."""
    with sqlite3.connect(file) as db:
        names = [
            name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'")
        ]
        return {
            name: sorted(
                hashlib.sha256(repr(row).encode()).hexdigest()
                for row in db.execute(f'SELECT * FROM "{name}"')
            )
            for name in names
            if not name.startswith("sqlite_")
        }


def talk(turns: int, last: str) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for turn in range(turns):
        told = PORT if turn == 0 else f"Tell me about crane {turn} and its cargo."
        made.append({"role": "user", "content": told})
        made.append({"role": "assistant", "content": f"Crane {turn} lifts timber. " * 30})
    return [*made, {"role": "user", "content": last}]


async def keep(file: Path, session: str, messages: list[dict[str, Any]]) -> int:
    async with open_memory(store=file, window_tokens=6_000) as memory:
        context = await memory.prepare(session, {"messages": messages})
        await memory.settle()
        return len(context.edits)


async def read(file: Path, session: str, messages: list[dict[str, Any]]) -> Any:
    settings = {"ingest.enabled": False, "recall.scope": "space"}
    async with open_memory(store=file, settings=settings, window_tokens=6_000) as memory:
        context = await memory.prepare(session, {"messages": messages})
        reply = {"role": "assistant", "content": "a new answer", "usage": {"input_tokens": 9}}
        seen = await memory.observe(session, reply)
        assert seen.archived is None
        assert not context.report.failures, str(context.report)
        return context


def test_what_is_stored_is_recalled_and_nothing_is_written(tmp_path: Path) -> None:
    file = tmp_path / "memory.db"
    asyncio.run(keep(file, "old", talk(1, "thanks")))
    before = rows(file)
    asked = [{"role": "user", "content": ASKED}]
    context = asyncio.run(read(file, "another", asked))
    assert "48211" in str(context.request), str(context.report)
    assert all(hit.text for hit in context.recalled.hits)
    assert PORT in {hit.text for hit in context.recalled.hits if hit.shown}
    assert rows(file) == before


async def test_facts_can_be_read_and_not_changed(tmp_path: Path) -> None:
    file = tmp_path / "memory.db"
    async with open_memory(store=file) as memory:
        await (await memory.facts()).add("The harbour has nine cranes.")
    before = rows(file)
    async with open_memory(store=file, settings={"ingest.enabled": False}) as memory:
        book = await memory.facts()
        (fact,) = await book.list()
        assert (await book.find(fact.id)).content == fact.content
        assert (await book.why(fact.id)).fact == fact
        order = await book.order_to_forget([fact.id])
        for write in (
            lambda: book.add("It has ten."),
            lambda: book.edit(fact.id, "It has ten."),
            lambda: book.pin(fact.id),
            lambda: book.unpin(fact.id),
            lambda: book.forget(order),
        ):
            with pytest.raises(StoreError, match=r"set ingest.enabled = true"):
                await write()
    assert rows(file) == before


def test_a_session_goes_on_from_its_stored_state(tmp_path: Path) -> None:
    file = tmp_path / "memory.db"
    messages = talk(30, "go on")
    made = asyncio.run(keep(file, "work", messages))
    assert made > 5, "the view was trimmed"
    before = rows(file)
    context = asyncio.run(read(file, "work", [*messages, {"role": "user", "content": "and on"}]))
    assert context.report.turn == 2
    assert len(context.edits) >= made
    assert rows(file) == before


def test_without_a_store_there_is_nothing_to_read_and_none_is_made(tmp_path: Path) -> None:
    file = tmp_path / "memory.db"
    asyncio.run(read(file, "work", [{"role": "user", "content": ASKED}]))
    assert list(tmp_path.iterdir()) == []
