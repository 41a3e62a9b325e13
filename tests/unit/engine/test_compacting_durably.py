"""Nothing is cut before it is durable, and what is kept of a compaction may be kept."""

import asyncio
import os
from pathlib import Path
from typing import Any

from tests.crash.broken_stores import Broken
from tests.integration.long_talk import (
    SESSION,
    WINDOW,
    Held,
    Talk,
    grown,
    honest,
    notes,
    opened,
    said,
    scribe,
    shown,
    sound,
    stored,
)

from recollect import Engine
from recollect.adapters.stores.spool import FileSpool
from recollect.adapters.stores.sqlite import SQLiteStore
from recollect.core.engine.archive import DurableArchive
from recollect.core.formats.summaries import PI_OPENING
from recollect.core.values.batch import Batch, WriteResult
from recollect.core.values.edit import Cut
from recollect.core.values.model import Answer, Prompt
from recollect.errors import StoreUnavailable
from recollect.system.config import build
from recollect.system.config.settings import StoreSettings
from recollect.testing.scripted_model import ScriptedModel

OPENING = PI_OPENING.split("\n", 1)[0]
KEY = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


class Away(Broken):
    """A real store that takes nothing while it is away."""

    away = False

    async def write(self, batch: Batch) -> WriteResult:
        if self.away:
            raise StoreUnavailable("the disk is full; make room")
        written: WriteResult = await self.real.write(batch)
        return written


async def without_spool(tmp: Path, model: Any) -> tuple[Engine, Away]:
    store = Away(await SQLiteStore.open(tmp / "m.db", space="default"))

    async def opened_store() -> Any:
        return store

    async def no_spool() -> Any:
        raise OSError("no disk for a spool, either")

    archive = DurableArchive(
        opened_store, no_spool, StoreSettings(read_seconds=0.2, write_seconds=0.2)
    )
    settings = build({"window_tokens": WINDOW, "turn.deadline_seconds": 0.5})
    return Engine(settings, archive=archive, model=model, compact_in_background=False), store


async def test_a_store_that_is_away_leaves_it_to_the_spool(tmp_path: Path) -> None:
    """Durable is durable: it goes on, and the cut is in the store when that comes back."""
    talk = Talk()
    store = Away(await SQLiteStore.open(tmp_path / "m.db", space="default"))

    async def opened_store() -> Any:
        return store

    async def spooled() -> Any:
        return FileSpool(tmp_path / "spool", space="default")

    archive = DurableArchive(
        opened_store, spooled, StoreSettings(read_seconds=0.2, write_seconds=0.2)
    )
    settings = build({"window_tokens": WINDOW})
    memory = Engine(settings, archive=archive, model=scribe(), compact_in_background=False)
    await grown(memory, talk, 4)
    await memory.settle()
    store.away = True
    await grown(memory, talk, 5)
    done = await memory.compact(SESSION)
    honest(done)
    assert done.compacted, done.reason
    request = sound(await memory.prepare(SESSION, talk.body("so?"))).request
    store.away = False
    await asyncio.sleep(0.3)
    await memory.prepare(SESSION, talk.body("so?"))
    assert await memory.settle() == 0
    await memory.close()
    async with opened(tmp_path / "m.db", scribe(), recall__enabled=False) as memory:
        assert (await memory.prepare(SESSION, talk.body("so?"))).request == request
    found = await stored(tmp_path / "m.db")
    assert [text for text in said(talk.messages) if text not in found] == []


async def test_what_is_not_durable_is_not_cut(tmp_path: Path) -> None:
    async def texts() -> list[str]:
        return await stored(tmp_path / "m.db")

    talk, model = Talk(), scribe()
    memory, store = await without_spool(tmp_path, model)
    await grown(memory, talk, 2)
    await memory.settle()
    store.away = True
    body = talk.exchange(14).body("which berth?")
    context = await memory.prepare(SESSION, body)
    missing = [text for text in said(body["messages"])[4:] if text not in shown(context)]
    assert missing == [], "what is nowhere else may not leave the view"
    done = await memory.compact(SESSION, body)
    honest(done)
    assert done.convergence == "failed"
    assert "not stored yet" in str(done.reason)
    assert model.prompts == [], "nothing is spent on it"
    store.away = False
    await asyncio.sleep(0.3)  # how long a store that failed is left in peace
    done = await memory.compact(SESSION, body)
    assert done.compacted, done.reason
    await memory.close()
    assert [text for text in said(body["messages"]) if text not in await texts()] == []


async def test_a_cut_that_cannot_be_kept_is_not_made(tmp_path: Path) -> None:
    talk = Talk()
    places: list[Away] = []

    def say(prompt: Prompt) -> str:
        places[0].away = True  # it goes away while the model is asked
        return notes(prompt)

    memory, store = await without_spool(tmp_path, ScriptedModel(say))
    places.append(store)
    await grown(memory, talk, 9)
    before = (await memory.prepare(SESSION, talk.body("so?"))).request
    done = await memory.compact(SESSION)
    honest(done)
    assert done.convergence == "failed"
    assert "could not be stored" in str(done.reason)
    assert (await memory.prepare(SESSION, talk.body("so?"))).request == before
    await memory.close()


async def test_all_that_is_cut_is_stored_before_the_model_is_asked(tmp_path: Path) -> None:
    talk = Talk()
    kept: list[list[str]] = []

    class Looks(Held):
        async def ask(self, prompt: Prompt) -> Answer:
            kept.append(await stored(tmp_path / "m.db"))
            return Answer(text=notes(prompt))

    async with opened(tmp_path / "m.db", Looks()) as memory:
        body = talk.exchange(14).body("which berth?")
        context = sound(await memory.prepare(SESSION, body))
        assert context.compaction is not None
        assert context.compaction.compacted, context.compaction.reason
    texts = said(body["messages"])[: context.compaction.compacted_messages]
    assert [text for text in texts if text not in kept[0]] == []


async def test_a_secret_in_a_summary_stays_off_the_disk(tmp_path: Path) -> None:
    def tells(prompt: Prompt) -> str:
        return f"{notes(prompt)}\n- export GITHUB_TOKEN={KEY}"

    talk = Talk()
    talk.ask(f"use GITHUB_TOKEN={KEY} for it").answer("I shall")
    async with opened(tmp_path / "m.db", scribe(tells)) as memory:
        await grown(memory, talk, 9)
        done = await memory.compact(SESSION)
        assert done.compacted, done.reason
        await memory.prepare(SESSION, talk.body("so?"))
    async with opened(tmp_path / "m.db", scribe(tells)) as memory:
        context = sound(await memory.prepare(SESSION, talk.body("so?")))
        assert OPENING in shown(context)
    folders = (tmp_path, Path(os.environ["RECOLLECT_HOME"]))
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert files
    assert [path.name for path in files if KEY.encode() in path.read_bytes()] == []


async def test_two_processes_do_not_both_cut(tmp_path: Path) -> None:
    talk = Talk()
    one, two = Held(), scribe()
    first = opened(tmp_path / "m.db", one)
    await grown(first, talk, 9)
    await first.settle()
    running = asyncio.create_task(first.compact(SESSION))
    await asyncio.wait_for(one.asked.wait(), 5)
    async with opened(tmp_path / "m.db", two) as second:
        await second.prepare(SESSION, talk.body("go on"))
        made = await second.compact(SESSION)
        assert made.compacted, made.reason
        await second.settle()
    one.answer.set()
    lost = await running
    honest(lost)
    assert not lost.compacted, "the other process was first"
    context = sound(await first.prepare(SESSION, talk.body("go on")))
    await first.settle()
    context = sound(await first.prepare(SESSION, talk.body("go on")))
    assert [edit.summary for edit in context.edits if isinstance(edit, Cut)] == [made.summary]
    await first.close()
