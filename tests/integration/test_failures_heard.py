"""What goes wrong is heard: once in the log for each change, and in every observation."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.harness.waiting import eventually

from recollect import Engine, open_memory
from recollect.adapters.embedders.local import HashEmbedder
from recollect.adapters.stores.spool import FileSpool
from recollect.adapters.stores.sqlite import SQLiteStore
from recollect.core.engine import recaller as asking
from recollect.core.engine.archive import DurableArchive
from recollect.core.engine.background import in_process_jobs
from recollect.core.ports import Spool, Store
from recollect.core.values.batch import Batch, WriteResult
from recollect.core.values.model import Answer, Prompt
from recollect.errors import EmbedderError, ModelUnavailable, StoreUnavailable
from recollect.system.config import build

SECRET = "sk-ant-api03-" + "a1B2c3D4e5" * 9 + "f6gAA"
PLANTED = ("zirconium", "hovercraft", "quetzalcoatl", SECRET)


def turn_of(number: int, words: str = "") -> dict[str, Any]:
    text = f"question {number} about the harbour {words}"
    return {"model": "claude-x", "max_tokens": 10, "messages": [{"role": "user", "content": text}]}


def reply_of(number: int, words: str = "") -> dict[str, Any]:
    content = [{"type": "text", "text": f"answer {number} {words}"}]
    return {"role": "assistant", "content": content, "usage": {"input_tokens": 20}}


class Leaving(SQLiteStore):
    """A real store that can be made to go away."""

    failure: BaseException | None = None

    async def write(self, batch: Batch) -> WriteResult:  # type: ignore[misc]
        if self.failure is not None:
            raise self.failure
        return await super().write(batch)


class Breaking:
    """A spool that can be made to refuse; the rest is a real one's."""

    def __init__(self, spool: FileSpool) -> None:
        self.failure: BaseException | None = None
        self._spool = spool

    async def append(self, record: bytes) -> None:
        if self.failure is not None:
            raise self.failure
        await self._spool.append(record)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spool, name)


async def opened(tmp: Path, **more: Any) -> tuple[Engine, Leaving, Any]:
    store = await Leaving.open(tmp / "m.db", space="default")
    assert isinstance(store, Leaving)
    spool: Any = Breaking(FileSpool(tmp / "spool", space="default"))

    async def open_store() -> Store:
        return store

    async def open_spool() -> Spool:
        kept: Spool = spool
        return kept

    archive = DurableArchive(open_store, open_spool)
    return Engine(build(more.pop("settings", {})), archive=archive, **more), store, spool


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [
        (record.levelname, record.name)
        for record in caplog.records
        if record.name.startswith("recollect") and record.levelno >= logging.INFO
    ]


async def test_a_store_that_goes_and_comes_back_is_one_warning_and_one_info(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    engine, store, _ = await opened(tmp_path)
    for number in range(60):
        store.failure = StoreUnavailable("the server is away") if 5 <= number < 55 else None
        await engine.prepare("s", turn_of(number))
        seen = await engine.observe("s", reply_of(number))
        if 5 <= number < 55:
            assert seen.archived == "spool"
            assert str(seen).count("the server is away") == 1
    assert await engine.settle() == 0
    await engine.prepare("s", turn_of(60))
    await engine.prepare("s", turn_of(61))
    assert (await engine.observe("s", reply_of(61))).failures == ()
    await engine.close()
    assert lines(caplog) == [("WARNING", "recollect.store"), ("INFO", "recollect.store")]


@pytest.mark.parametrize("spool_first", [True, False])
async def test_a_spool_that_refuses_is_heard_and_so_is_that_nothing_was_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spool_first: bool
) -> None:
    caplog.set_level(logging.INFO)
    engine, store, spool = await opened(tmp_path)
    store.failure = StoreUnavailable("the server is away")
    spool.failure = OSError(28, "no space left")
    for number in range(5):
        await engine.prepare("s", turn_of(number))
        seen = await engine.observe("s", reply_of(number))
        assert seen.archived == "nowhere"
        said = [line.said for line in seen.failures if line.outcome == "failed"]
        assert any("the spool failed too" in words for words in said)
    spool.failure = None
    if spool_first:
        await engine.prepare("s", turn_of(9))
        assert (await engine.observe("s", reply_of(9))).archived == "spool"
    store.failure = None
    assert await engine.settle() == 0
    await engine.close()
    assert sorted(lines(caplog)) == sorted(
        (level, f"recollect.{part}") for level in ("WARNING", "INFO") for part in ("store", "spool")
    )


async def test_no_log_shows_what_was_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Everything fails, each failure quoting what it was given, and every level is shown."""
    caplog.set_level(logging.DEBUG)
    quoted = " ".join(PLANTED)

    class Embedder(HashEmbedder):
        async def embed(self, texts: Any) -> Any:
            raise RuntimeError(f"cannot embed {texts} {quoted}")

    async def model(prompt: Prompt) -> Answer:
        raise RuntimeError(f"{prompt.text} {quoted}")

    settings = {"window_tokens": 3_000, "compaction.reserve_tokens": 500}
    memory = open_memory(
        store=tmp_path / "m.db", settings=settings, embedders=[Embedder()], model=model
    )
    history: list[dict[str, Any]] = []
    for number in range(30):
        history += turn_of(number, f"{quoted} " + "crane winch cargo " * 40)["messages"]
        await memory.prepare("s", {**turn_of(0), "messages": history})
        history.append({"role": "assistant", "content": f"answer {number} {quoted}"})
        await memory.observe("s", {**reply_of(number, quoted)})
        await memory.observe("s", RuntimeError(quoted))
    await memory.compact("s", instructions=f"keep {quoted}")
    await memory.close()
    assert [name for _, name in lines(caplog)], "nothing failed: this test would say nothing"
    shown = "\n".join(
        f"{record.getMessage()} {record.exc_info} {record.exc_text}" for record in caplog.records
    )
    assert [word for word in PLANTED if word in shown] == []


async def test_an_embedder_that_fails_is_heard_until_it_answers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(asking, "REST_SECONDS", 0.0)

    class Embedder(HashEmbedder):
        broken = False

        async def embed(self, texts: Any) -> Any:
            if self.broken:
                raise EmbedderError("it did not answer")
            return await super().embed(texts)

    embedder = Embedder()
    settings = {"jobs.in_process": False}
    memory = open_memory(store=tmp_path / "m.db", settings=settings, embedders=[embedder])
    await memory.prepare("s", turn_of(0))
    await memory.observe("s", reply_of(0))
    for number in range(1, 12):
        embedder.broken = 3 <= number < 9
        await memory.prepare("other", turn_of(number, f"which crane did we take {number}?"))
    await memory.close()
    assert lines(caplog) == [("WARNING", "recollect.embedder"), ("INFO", "recollect.embedder")]


@pytest.mark.parametrize("failure", [ModelUnavailable("away"), RuntimeError("a bug")])
async def test_jobs_that_fail_are_heard_and_told_by_observe(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, failure: Exception
) -> None:
    caplog.set_level(logging.INFO)

    class Embedder(HashEmbedder):
        broken = True

        async def embed(self, texts: Any) -> Any:
            if self.broken:
                raise failure
            return await super().embed(texts)

    embedder = Embedder()
    store = await SQLiteStore.open(tmp_path / "m.db", space="default")

    async def open_store() -> Store:
        return store

    archive = DurableArchive(open_store, None)
    jobs = in_process_jobs(archive, build({}), None, [embedder])
    assert jobs is not None
    engine = Engine(archive=archive, jobs=jobs, embedders=[embedder])
    await engine.prepare("s", turn_of(0))
    await engine.observe("s", reply_of(0))
    await eventually(lambda: bool(jobs.trouble()))
    (line,) = (await engine.observe("s", {"usage": {}})).failures
    assert (line.stage, line.outcome) == ("jobs", "failed")
    assert line.said.startswith("embed: ")
    embedder.broken = False
    await eventually(lambda: not jobs.trouble())
    assert (await engine.observe("s", {"usage": {}})).failures == ()
    await engine.close()
    assert lines(caplog) == [("WARNING", "recollect.jobs"), ("INFO", "recollect.jobs")]


def test_a_failed_compaction_is_told_once_and_its_pause_in_every_report(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("recollect.core.compaction.cut.FAILURES", 1)
    calls = 0

    async def model(prompt: Prompt) -> str:
        nonlocal calls
        calls += 1
        raise ModelUnavailable("the model is away")

    async def turns(count: int, history: list[dict[str, Any]]) -> tuple[int, int]:
        """How many replies told a failed compaction, and how many reports a pause."""
        failed = paused = 0
        settings = {"window_tokens": 4_000, "jobs.in_process": False}
        settings |= {"compaction.background": False}
        async with open_memory(store=tmp_path / "m.db", settings=settings, model=model) as memory:
            for number in range(count):
                history += turn_of(number, "crane winch cargo " * 60)["messages"]
                context = await memory.prepare("s", {**turn_of(0), "messages": history})
                skipped = [line for line in context.report.lines if line.outcome == "skipped"]
                paused += any("paused for a while" in line.said for line in skipped)
                history.append({"role": "assistant", "content": f"answer {number}"})
                seen = await memory.observe("s", reply_of(number))
                failed += any(line.stage == "compact" for line in seen.failures)
        return failed, paused

    history: list[dict[str, Any]] = []
    failed, paused = asyncio.run(turns(24, history))
    asked = calls
    assert asked
    assert failed == 1
    assert paused > 5
    assert asyncio.run(turns(2, history)) == (0, 2), "a process that starts while it is paused"
    assert calls == asked
    assert lines(caplog) == [("WARNING", "recollect.compaction")] * 2
