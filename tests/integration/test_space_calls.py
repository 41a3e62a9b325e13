"""What a program asks of a whole space: its messages, its size, forgetting, and its end."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from recollect import Engine, SessionState, open_blocking_memory, open_memory
from recollect.adapters.wiring import list_spaces, spool_state
from recollect.errors import RecollectError, StoreError
from recollect_bench.postgres_server import PostgresServer

SAID = [
    {"role": "user", "content": "The crane Kestrel stands at berth seven."},
    {"role": "assistant", "content": "Noted: Kestrel, berth seven."},
    {"role": "user", "content": "Its driver is called Ottoline."},
]
QUIET: dict[str, Any] = {"jobs.in_process": False}


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    """A store: the space's own file in the data folder, or a migrated database."""
    if request.param == "sqlite":
        return None
    server: PostgresServer = request.getfixturevalue("server")
    return asyncio.run(server.migrated_database()).app_url


def opened(place: str | None, space: str = "user-17") -> Engine:
    return open_memory(space=space, store=place, settings=QUIET)


async def test_a_session_s_messages_are_listed_page_by_page(place: str | None) -> None:
    async with opened(place) as memory:
        await memory.ingest("chat", SAID)
        await memory.ingest("other", SAID[:1])
        first = await memory.messages("chat", limit=2)
        assert [(one.role, one.text) for one in first] == [
            (said["role"], said["content"]) for said in SAID[:2]
        ]
        rest = await memory.messages(memory.session("chat"), after=first[-1].place)
        assert [one.text for one in rest] == [SAID[2]["content"]]
        newest = await memory.messages("chat", newest_first=True, limit=1)
        assert newest == rest
        assert await memory.messages("nobody") == ()
        assert "Ottoline" not in repr(newest)
        assert {one.session: one.segments for one in await memory.sessions()} == {
            "chat": 3,
            "other": 1,
        }
        assert (await memory.stats()).segments == 4


async def test_messages_of_a_turn_are_listed_as_soon_as_it_is_prepared(place: str | None) -> None:
    async with opened(place) as memory:
        await memory.prepare("chat", {"model": "m", "messages": SAID})
        assert len(await memory.messages("chat")) == 3


async def test_what_is_forgotten_is_gone_and_stays_out(place: str | None) -> None:
    async with opened(place) as memory:
        await memory.prepare("chat", {"model": "m", "messages": SAID})
        certificate = await memory.forget(matching="Ottoline")
        assert certificate.counts["segments"] == 1
        assert certificate.checksum
        assert [one.text for one in await memory.messages("chat")] == [
            said["content"] for said in SAID[:2]
        ]
        await memory.prepare("chat", {"model": "m", "messages": SAID})  # a client sends it again
        assert len(await memory.messages("chat")) == 2
        (first, _) = await memory.messages("chat")
        assert (await memory.forget(messages=[first.id])).counts["segments"] == 1
        book = await memory.facts()
        fact = (await book.add("The depot is in Hull.")).fact
        assert fact is not None
        assert (await memory.forget(facts=[fact.id])).counts["facts"] == 1
        assert await book.list() == ()
        await memory.forget(sessions=["chat"])
        assert await memory.messages("chat") == ()


@pytest.mark.parametrize("name", ["messages", "sessions", "facts"])
async def test_a_string_in_place_of_a_list_forgets_nothing(tmp_path: Path, name: str) -> None:
    """Each of its characters would name a session of one letter."""
    async with opened(str(tmp_path / "m.db")) as memory:
        await memory.ingest("s", SAID)
        with pytest.raises(TypeError, match="must be a list"):
            await memory.forget(**{name: "nosuch"})  # type: ignore[arg-type]
        assert (await memory.stats()).segments == 3
        with pytest.raises(ValueError, match="at least 1"):
            await memory.messages("s", limit=-1)


@pytest.mark.parametrize("given", [{}, {"matching": "  "}, {"pattern": "("}, {"facts": ["none"]}])
async def test_order_that_names_nothing_is_refused(tmp_path: Path, given: dict[str, Any]) -> None:
    async with opened(str(tmp_path / "m.db")) as memory:
        await memory.ingest("chat", SAID)
        with pytest.raises((RecollectError, ValueError)):
            await memory.forget(**given)
        assert (await memory.stats()).segments == 3


async def test_a_user_is_deleted_with_all_that_is_stored_of_them(place: str | None) -> None:
    other = opened(place, "user-18")
    await other.ingest("chat", SAID)
    memory = opened(place)
    await memory.prepare("chat", {"model": "m", "messages": SAID})
    certificate = await memory.delete_space()
    assert certificate.space == "user-17"
    assert certificate.asked.whole_space
    assert certificate.counts["segments"] == 3
    with pytest.raises(RuntimeError, match="closed"):
        await memory.prepare("chat", {"model": "m", "messages": SAID})
    assert {one.space for one in await list_spaces(place)} == {"user-18"}
    assert (await spool_state(place, space="user-17")).waiting == 0
    async with opened(place) as again:
        assert await again.messages("chat") == ()
    assert len(await other.messages("chat")) == 3
    await other.close()
    never = await opened(place, "user-19").delete_space()
    assert not any(never.counts.values())


async def test_a_host_s_own_store_is_not_deleted_by_an_engine(tmp_path: Path) -> None:
    engine = Engine()
    with pytest.raises(StoreError):
        await engine.delete_space()
    with pytest.raises(StoreError):
        await engine.messages("chat")
    async with open_memory(store=tmp_path / "m.db", settings={"ingest.enabled": False}) as memory:
        with pytest.raises(StoreError):
            await memory.forget(matching="x")


@contextmanager
def blocking(place: str | None) -> Iterator[Any]:
    with open_blocking_memory(space="user-17", store=place, settings=QUIET) as memory:
        yield memory


def test_the_blocking_memory_does_the_same(place: str | None) -> None:
    with blocking(place) as memory:
        memory.ingest("chat", [json.dumps(one).encode() for one in SAID])
        assert [one.text for one in memory.messages("chat")] == [one["content"] for one in SAID]
        assert [one.session for one in memory.sessions()] == ["chat"]
        assert memory.forget(matching="Ottoline").counts["segments"] == 1
        assert memory.stats().segments == 2
        assert memory.delete_space().counts["segments"] == 2
        with pytest.raises(RuntimeError, match="closed"):
            memory.stats()


def test_a_state_that_is_none_is_refused_with_what_to_give() -> None:
    with pytest.raises(TypeError, match="read_state"):
        Engine().session("x", {})  # type: ignore[arg-type]
    assert Engine().session("x", SessionState()).id == "x"
