"""What a session says is durable before it leaves a view: the engine on a real store."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from recollect import Engine, open_memory
from recollect.adapters.wiring import open_store
from recollect.core.engine.archive import DurableArchive
from recollect.core.ports import Store
from recollect.errors import StoreUnavailable
from recollect.system.config import build

LONG = "cargo and crane and winch over the quay " * 120


def request(turns: int, **more: Any) -> dict[str, Any]:
    held: list[dict[str, Any]] = [{"role": "user", "content": f"Begin with the harbour. {LONG}"}]
    for n in range(turns):
        held += [
            {"role": "assistant", "content": f"step {n}: {LONG}"},
            {"role": "user", "content": f"and then number {n}? {LONG}"},
        ]
    return {"model": "claude-x", "max_tokens": 100, "messages": held, **more}


def reply(text: str) -> dict[str, Any]:
    usage = {"input_tokens": 1_000, "output_tokens": 5}
    content = [{"type": "text", "text": text}]
    return {"role": "assistant", "content": content, "usage": usage}


async def kept(file: Path) -> list[tuple[str, str]]:
    store = await open_store(str(file), space="default")
    held = await store.page(limit=10_000)
    assert (await store.check()).problems == ()
    await store.close()
    return [(one.segment.role, one.segment.text) for one in held]


async def test_closing_waits_while_the_store_takes_a_long_history(tmp_path: Path) -> None:
    settings = {"store.write_seconds": 1.0, "turn.deadline_seconds": 0.2}
    async with open_memory(store=tmp_path / "m.db", settings=settings) as memory:
        context = await memory.prepare("s", request(1_000))
        assert any("not stored yet" in line.said for line in context.report.lines)
    assert len(await kept(tmp_path / "m.db")) == 2_001


async def test_messages_outside_of_a_turn_are_given_as_mappings_or_bytes(tmp_path: Path) -> None:
    said: list[dict[str, Any]] = [
        {"role": "user", "content": "The crane is at the north quay."},
        {"role": "assistant", "content": "Noted."},
    ]
    async with open_memory(store=tmp_path / "m.db") as memory:
        assert (await memory.ingest("s", said)).stored == 2
        raws = [json.dumps(message).encode() for message in said]
        assert (await memory.ingest("s", raws)).known == 2
        assert (await memory.ingest("s", (one for one in said))).known == 2  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"must be one of .*, not 'bogus'"):
            await memory.ingest("s", said, format="bogus")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="seconds since the epoch"):
            await memory.ingest("s", said, said_at=float("nan"))
        wrong: Any
        for wrong in (["a crane at the quay"], said[0], raws[0], "a crane", [7], None):
            with pytest.raises(TypeError, match="must be a list of mappings"):
                await memory.ingest("s", wrong)
    assert len(await kept(tmp_path / "m.db")) == 2


async def test_an_observation_reports_a_place_only_for_what_was_stored(tmp_path: Path) -> None:
    async with open_memory(store=tmp_path / "m.db") as memory:
        unknown = await memory.observe("never-prepared", reply("Noted."))
        await memory.prepare("s", request(1))
        text = await memory.observe("s", "<html>502 Bad Gateway</html>")
        for seen in (unknown, text):
            assert seen.archived is None
            assert "nothing of this reply is stored" in str(seen)
        stored = await memory.observe("s", reply("Noted."))
        assert stored.archived == "store"
        assert "stored in the store" in str(stored)


def test_the_file_of_a_session_grows_with_what_was_said(tmp_path: Path) -> None:
    """Not with its square: a turn stores no list of all the messages that left the view."""
    file, sizes = tmp_path / "m.db", []
    settings = {"recall.embedder": "none", "window_tokens": 4_000, "jobs.in_process": False}
    held = request(0)["messages"]

    async def talk(turns: int) -> None:
        async with open_memory(store=file, settings=settings) as memory:
            for n in range(turns):
                said = f"round {len(held)}: {LONG[: 300 + n]}"
                held.extend([reply("done"), {"role": "user", "content": said}])
                await memory.prepare("s", {**request(0), "messages": list(held)})
        sizes.append(file.stat().st_size)

    for turns in (1, 60, 60):
        asyncio.run(talk(turns))
    empty, first, second = sizes
    assert second - first < 1.8 * (first - empty), sizes


async def test_another_process_goes_on_where_the_first_ended(tmp_path: Path) -> None:
    """Its view is the same, byte for byte, and nothing is stored twice."""
    # vectors are made beside the turns: what is recalled may depend on which are there
    settings = {"window_tokens": 16_000, "recall.embedder": "none"}
    async with open_memory(store=tmp_path / "m.db", settings=settings) as memory:
        first = await memory.prepare("s", json.dumps(request(14)).encode())
        assert first.edits, "something was left out"
    async with open_memory(store=tmp_path / "m.db", settings=settings) as memory:
        again = await memory.prepare("s", json.dumps(request(14)).encode())
    assert again.request == first.request
    assert again.edits == first.edits
    assert len(await kept(tmp_path / "m.db")) == 29


async def test_what_leaves_the_view_is_durable_when_prepare_returns(tmp_path: Path) -> None:
    memory = open_memory(store=tmp_path / "m.db", settings={"window_tokens": 16_000})
    context = await memory.prepare("s", request(14))
    assert context.edits
    assert len(await kept(tmp_path / "m.db")) == 29  # before close, before observe
    await memory.close()


async def test_nothing_leaves_the_view_where_nothing_can_be_kept() -> None:
    async def no_store() -> Store:
        raise StoreUnavailable("no such server")

    archive = DurableArchive(no_store, None)
    memory = Engine(build({"window_tokens": 16_000}), archive=archive)
    context = await memory.prepare("s", request(14))
    assert not context.edits
    assert any("must stay in the request" in line.said for line in context.report.failures)
    seen = await memory.observe("s", reply("well"))
    assert seen.archived == "nowhere"
    await memory.close()


async def test_a_store_that_is_away_fills_the_spool_and_is_caught_up(tmp_path: Path) -> None:
    (tmp_path / "m.db").mkdir()  # no file can be opened there
    memory = open_memory(store=tmp_path / "m.db", settings={"window_tokens": 16_000})
    context = await memory.prepare("s", request(14))
    assert context.edits, "the spool is durable too"
    seen = await memory.observe("s", reply("spooled"))
    assert seen.archived == "spool"
    (tmp_path / "m.db").rmdir()
    for _ in range(100):
        await asyncio.sleep(0.05)
        seen = await memory.observe("s", reply("again"))
        if seen.archived == "store":
            break
    await memory.close()
    found = await kept(tmp_path / "m.db")
    assert len(found) == len(set(found)) == 31
    assert found[0][1].startswith("Begin with the harbour")


@pytest.mark.parametrize(
    "unit", ["<system-reminder>x</system-reminder>\nabc\n", 'say "x" at src/crane.py:12\n']
)
async def test_a_message_of_two_megabytes_takes_linear_time(unit: str, tmp_path: Path) -> None:
    async def seconds(chars: int) -> float:
        """Return the processor time of a turn with a message of this size, until it is stored. Only
        a message that leaves the window is stored before `prepare` returns."""
        async with open_memory(store=tmp_path / f"{chars}.db") as memory:
            await memory.prepare("s", request(1))
            long = request(1)
            long["messages"].append({"role": "user", "content": unit * (chars // len(unit))})
            began = time.process_time()
            assert (await memory.prepare("s", long)).request["messages"]
        return time.process_time() - began

    small = await seconds(250_000)
    assert await seconds(2_000_000) < 16 * small


async def test_every_message_and_reply_is_kept_once(tmp_path: Path) -> None:
    async with open_memory(store=tmp_path / "m.db") as memory:
        body = request(0)
        for n in range(4):
            await memory.prepare("s", body)
            seen = await memory.observe("s", reply(f"step {n}: done"))
            assert seen.archived == "store"
            body["messages"] += [
                {"role": "assistant", "content": f"step {n}: done"},
                {"role": "user", "content": f"go on with number {n}"},
            ]
    found = await kept(tmp_path / "m.db")
    assert [role for role, _ in found] == ["user", "assistant"] * 4
    assert len(set(found)) == len(found)
