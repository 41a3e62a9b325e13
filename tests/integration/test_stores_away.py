"""Stores that are slow, locked, full or away: what a session knows, how long a turn waits, how
large its request is, and that nothing runs on after `close`."""

import asyncio
import contextlib
import gc
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import apsw
import pytest
from tests.harness.waiting import PATIENCE_SECONDS, eventually

from recollect import Context, Engine, open_memory
from recollect.adapters.stores.spool import FileSpool
from recollect.adapters.stores.sqlite import SQLiteStore
from recollect.adapters.wiring import open_spool, open_store
from recollect.cli.store_options import Memory
from recollect.core.boundary import Failure
from recollect.core.engine.archive import DurableArchive
from recollect.core.engine.background import in_process_jobs
from recollect.core.ports import Store
from recollect.core.values.batch import Batch, WriteResult
from recollect.core.values.model import Overflow
from recollect.errors import StoreUnavailable
from recollect.hosts.inspect.checks import check_data
from recollect.system.config import build

WINDOW = 6_000
NOTE = "cargo and winch over the quay, with ropes and tide tables of the day "
QUIET = {"jobs.in_process": False, "window_tokens": WINDOW}


class Talk:
    """A conversation as a client holds it, one exchange after the other."""

    def __init__(self) -> None:
        self.messages: list[dict[str, str]] = []

    def body(self, words: str) -> dict[str, Any]:
        asked = {"role": "user", "content": words}
        return {"model": "claude-x", "max_tokens": 10, "messages": [*self.messages, asked]}

    async def exchange(self, memory: Engine, words: str = NOTE * 20) -> Context:
        words = f"number {len(self.messages)}: {words}"
        context = await memory.prepare("s", self.body(words))
        answer = f"answer {len(self.messages)}"
        reply = {"role": "assistant", "content": [{"type": "text", "text": answer}]}
        await memory.observe("s", reply)
        self.messages += [
            {"role": "user", "content": words},
            {"role": "assistant", "content": answer},
        ]
        return context


def lines_of(context: Context, stage: str) -> list[tuple[str, str]]:
    return [(line.outcome, line.said) for line in context.report.lines if line.stage == stage]


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """Somebody else writes to the file all the time."""
    other = apsw.Connection(str(file))
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


async def stored(file: Path) -> list[str]:
    store = await open_store(str(file), space="default")
    held = [one.segment.text for one in await store.page(limit=10_000)]
    assert (await store.check()).problems == ()
    await store.close()
    return held


async def test_memory_is_searched_while_batches_wait_and_says_what_it_lacks(tmp_path: Path) -> None:
    talk, file = Talk(), tmp_path / "m.db"
    async with open_memory(store=file, settings=QUIET, embedders=[]) as memory:
        await talk.exchange(memory, "the heron of Quillhaven is called Balthazar")
        for _ in range(30):
            await talk.exchange(memory)
        assert await memory.settle() == 0
        with locked(file):
            await talk.exchange(memory)
            assert await memory.settle(0) > 0
            context = await memory.prepare("s", talk.body("what is the heron of Quillhaven?"))
        ((outcome, said),) = lines_of(context, "recall")
        assert outcome == "done"
        assert "newest messages were not searched" in said
        assert "Balthazar" in str(context.request["messages"])
        assert await memory.settle() == 0


async def test_what_earlier_process_spooled_is_known_before_store_takes_it(tmp_path: Path) -> None:
    """Its edits stand, byte for byte, though the store still has an older state."""
    talk, file = Talk(), tmp_path / "m.db"
    settings = {**QUIET, "store.write_seconds": 0.1, "recall.enabled": False}
    async with open_memory(store=file, settings=settings) as memory:
        for _ in range(4):
            await talk.exchange(memory)
    with locked(file):
        async with open_memory(store=file, settings=settings) as memory:
            for _ in range(20):
                await talk.exchange(memory)
            before = await memory.prepare("s", talk.body("so?"))
            assert before.edits, "messages left the view while the store was locked"
        async with open_memory(store=file, settings=settings) as memory:
            again = await memory.prepare("s", talk.body("so?"))
            assert lines_of(again, "load")[0][0] == "done"
            assert again.request == before.request
            assert again.state.turn == before.state.turn + 1
    async with open_memory(store=file, settings=settings) as memory:
        assert (await memory.prepare("s", talk.body("so?"))).request == before.request
        assert await memory.settle() == 0
    found = await stored(file)
    assert len(found) == len(set(found)) == len(talk.messages) + 1


@pytest.mark.parametrize("count", [1, 2])
def test_commands_say_how_many_batches_are_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], count: int
) -> None:
    async def run() -> None:
        spool = await open_spool(str(tmp_path / "m.db"), space="default")
        for number in range(count):
            await spool.append(b"batch %d" % number)
        await spool.close()

    asyncio.run(run())
    memory = Memory(url=str(tmp_path / "m.db"), named_space="default", create=True)

    async def open_it() -> None:
        async with memory.open(spool="reported"):
            assert memory.spool_waiting == count

    asyncio.run(open_it())
    batches = "1 batch" if count == 1 else "2 batches"
    assert f"this output lacks {batches} in the spool" in capsys.readouterr().err


@pytest.mark.parametrize("known", [False, True])
async def test_ledger_has_every_turn_of_store_that_opens_late(tmp_path: Path, known: bool) -> None:
    """Where the store knew the session, what it had recorded stays as it was."""
    file = tmp_path / "m.db"
    away = True

    async def open_late() -> Store:
        if away:
            raise StoreUnavailable("the server is away")
        return await open_store(str(file), space="default")

    async def recorded() -> dict[int, Any]:
        store = await open_store(str(file), space="default")
        found = {number: await store.turn("s", number) for number in await store.turns("s")}
        await store.close()
        return found

    before: dict[int, Any] = {}
    if known:
        talk = Talk()
        async with open_memory(store=file, settings=QUIET, embedders=[]) as memory:
            for _ in range(3):
                await talk.exchange(memory, "earlier")
        before = await recorded()

    async def open_spool() -> FileSpool:
        return FileSpool(tmp_path / "spool", space="default")

    archive = DurableArchive(open_late, open_spool)
    engine, talk = Engine(build({}), archive=archive), Talk()
    await talk.exchange(engine, "first")
    await talk.exchange(engine, "second")
    away = False
    assert await engine.settle() == 0
    await talk.exchange(engine, "third")
    await engine.close()
    after = await recorded()
    assert {number: after[number] for number in before} == before
    if not known:
        assert sorted(after) == [1, 2, 3]


async def test_a_locked_file_delays_no_turn_after_the_first(tmp_path: Path) -> None:
    talk, file = Talk(), tmp_path / "m.db"
    settings = {**QUIET, "store.write_seconds": 2.0}
    async with open_memory(store=file, settings=settings) as memory:
        for _ in range(12):
            await talk.exchange(memory)
        with locked(file):
            await talk.exchange(memory)
            begun = time.monotonic()
            for _ in range(7):
                context = await talk.exchange(memory)
                assert not context.report.over_limit
                assert [line for line in lines_of(context, "recall") if line[0] != "done"] == []
            assert time.monotonic() - begun < 0.6 * 7 * 2.0, "they did not wait for the lock"
        assert await memory.settle() == 0
        await talk.exchange(memory)
        assert await memory.settle(0) == 0, "the store takes batches again"
    assert len(await stored(file)) == len(talk.messages)


async def test_a_session_that_cannot_be_known_in_time_goes_out_within_its_limit(
    tmp_path: Path,
) -> None:
    """A restart beside a store that hangs: the turn waits once, is trimmed by itself, and says
    so; the next one does not wait."""

    async def hangs() -> Store:
        await asyncio.sleep(60)
        raise AssertionError

    async def spooled() -> FileSpool:
        return FileSpool(tmp_path / "spool", space="default")

    talk = Talk()
    talk.messages = [
        {"role": ("user", "assistant")[at % 2], "content": f"number {at}: {NOTE * 20}"}
        for at in range(60)
    ]
    settings = build({"window_tokens": WINDOW})
    archive = DurableArchive(hangs, spooled, settings.store)
    archive.open_seconds = 2.0
    async with Engine(settings, archive=archive) as one:
        begun = time.monotonic()
        context = await one.prepare("s", talk.body("so?"))
        assert 2.0 <= time.monotonic() - begun < 20.0, "not the 60 s that the store takes"
        assert lines_of(context, "load")[0][0] == "failed"
        assert context.report.tokens_before > WINDOW > context.report.tokens_after
        assert not context.report.over_limit
        begun = time.monotonic()
        for _ in range(4):
            assert not (await one.prepare("s", talk.body("so?"))).report.over_limit
        assert time.monotonic() - begun < 0.6 * 4 * 2.0, "they did not wait again"


class Disk:
    """A small disk of its own that can be filled, and freed again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self) -> None:
        with self._filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))

    def free(self, size: int | None = None) -> None:
        """Free so many bytes; by default everything."""
        if size is None:
            self._filler.unlink()
        else:
            os.truncate(self._filler, self._filler.stat().st_size - size)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a disk that can be filled needs the right to mount one")
    monkeypatch.setenv("RECOLLECT_HOME", str(folder / "home"))
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


async def test_a_full_disk_bounds_the_window_after_a_while_and_loses_nothing(
    disk: Disk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience = 3.0
    monkeypatch.setattr("recollect.core.engine.archive.UNDURABLE_SECONDS", patience)
    talk, file = Talk(), disk.folder / "m.db"
    settings = {**QUIET, "recall.enabled": False}
    async with open_memory(store=file, settings=settings) as memory:
        for _ in range(3):
            await talk.exchange(memory)
        assert await memory.settle() == 0
        disk.fill()
        assert check_data().said == f"the disk of {disk.folder / 'home'} is full"
        over, told, since = 0, 0, time.monotonic()
        took: list[float] = []
        while (full := time.monotonic() - since) < 2 * patience:
            begun = time.monotonic()
            context = await talk.exchange(memory)
            took.append(time.monotonic() - begun)
            over += context.report.over_limit
            failed = [said for outcome, said in lines_of(context, "ingest") if outcome == "failed"]
            told += any("not be stored and may now leave the request" in said for said in failed)
            assert failed or full < 0.1, "every turn says that nothing is kept"
            assert not any(o == "done" and "stored" in s for o, s in lines_of(context, "ingest"))
            if full > 1.5 * patience:
                assert not context.report.over_limit, "bounded, though nothing can be kept"
            elif full < patience / 2:
                shown = str(context.request["messages"])
                gone = [one for one in talk.messages[6:-1] if one["content"] not in shown]
                assert not gone, "what is durable nowhere stays while there is hope"
            await asyncio.sleep(0.05)
        assert told
        assert over, "what is durable nowhere stayed in the view at first"
        assert median(took) < 1.0, "no turn waits for a write"
        assert max(took) < 10, "not even one turn: a write would wait for 30 seconds"
        assert await memory.settle(0) > 0, "what is kept nowhere is counted"
        disk.free()
        assert await memory.settle() == 0
        assert not (await talk.exchange(memory)).report.over_limit
        given_up = [one for one in caplog.records if "without being stored" in one.message]
        assert len(given_up) == 1
        disk.fill()
        while not (await talk.exchange(memory)).report.over_limit:
            pass
        await memory.observe("s", Overflow(pattern_name="too long"))
        context = await talk.exchange(memory)
        assert not context.report.over_limit, "after the provider's refusal at once"
        assert any("may now leave" in said for _, said in lines_of(context, "ingest"))
        disk.free()
        assert await memory.settle() == 0
    assert await stored(file) == [str(one["content"]) for one in talk.messages]


@pytest.mark.parametrize("kilobytes", range(160, 520, 40))
async def test_a_nearly_full_disk_never_leaves_half_a_memory(disk: Disk, kilobytes: int) -> None:
    file = disk.folder / "spaces" / "m.db"
    file.parent.mkdir()
    disk.fill()
    disk.free(kilobytes << 10)
    with contextlib.suppress(StoreUnavailable):
        await (await SQLiteStore.open(file, space="mine")).close()
    assert list(file.parent.iterdir()) in ([], [file])
    disk.free()
    async with await SQLiteStore.open(file, space="mine") as store:
        assert not (await store.check()).problems


class Dear(SQLiteStore):
    """A real store of which one question takes its time, or all of them hang."""

    seconds = 0.0
    hangs = False
    answered = threading.Event()

    async def page(self, **more: Any) -> Any:  # type: ignore[misc]
        await asyncio.sleep(self.seconds)
        return await super().page(**more)

    async def session(self, session: str) -> Any:
        if self.hangs:
            await asyncio.sleep(3_600)
        found = await super().session(session)
        self.answered.set()
        return found


async def asked_often(tmp: Path, **settings: float) -> tuple[DurableArchive, Dear]:
    """A store that answered many cheap questions quickly."""
    store = await Dear.open(tmp / "m.db", space="default")
    assert isinstance(store, Dear)

    async def opened() -> Store:
        return store

    chosen = build({f"store.{name}": seconds for name, seconds in settings.items()})
    archive = DurableArchive(opened, None, chosen.store)
    for _ in range(40):
        assert await archive.ask(lambda one: one.session("s")) is None
    return archive, store


async def test_a_slow_query_fails_alone_and_only_at_its_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.core.engine.archive.DOUBT_SECONDS", 0.1)
    archive, store = await asked_often(tmp_path, read_seconds=60.0)
    store.seconds = 0.5
    page = asyncio.create_task(archive.ask(lambda one: one.page(limit=1)))
    await asyncio.sleep(0.3)
    assert await archive.ask(lambda one: one.session("s")) is None
    assert await page == ()
    await archive.close()
    archive, store = await asked_often(tmp_path, read_seconds=1.0)
    store.seconds = 3_600
    late = await asyncio.wait_for(archive.ask(lambda one: one.page(limit=1)), PATIENCE_SECONDS)
    assert isinstance(late, Failure)
    assert await archive.ask(lambda one: one.session("s")) is None, "the store is there"
    await archive.close()


async def test_a_busy_reader_is_no_store_that_is_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader is busy until another query is answered beside it."""
    monkeypatch.setattr("recollect.core.engine.archive.DOUBT_SECONDS", 0.1)
    monkeypatch.setattr("recollect.core.engine.archive.PING_SECONDS", 20.0)
    archive, store = await asked_often(tmp_path, read_seconds=60.0)
    store.answered.clear()
    slow = store._reader.run(lambda _: store.answered.wait(PATIENCE_SECONDS))
    assert await archive.ask(lambda _: slow) is True
    await archive.close()


async def test_a_store_that_hangs_costs_its_bound_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.core.engine.archive.DOUBT_SECONDS", 0.2)
    monkeypatch.setattr("recollect.core.engine.archive.PING_SECONDS", 0.8)
    archive, store = await asked_often(tmp_path)
    store.hangs, store.seconds = True, 3_600
    begun = time.monotonic()
    assert isinstance(await archive.ask(lambda one: one.page(limit=1)), Failure)
    assert time.monotonic() - begun > 0.9
    begun = time.monotonic()
    for _ in range(20):
        assert isinstance(await archive.ask(lambda one: one.session("s")), Failure)
    assert time.monotonic() - begun < 10.0, "not 20 times a second"
    await archive.close()
    assert threads() == []


@pytest.mark.parametrize("seconds", [0.0, 1.0])
async def test_a_long_deadline_does_not_hide_a_store_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """Also if it hangs only after some trivial queries, while the transcript is being stored."""
    monkeypatch.setattr("recollect.core.engine.archive.DOUBT_SECONDS", 0.2)
    archive, store = await asked_often(tmp_path)
    store.seconds, store.hangs = 3_600, not seconds
    page = asyncio.create_task(archive.ask(lambda one: one.page(limit=1), seconds=3_600))
    await asyncio.sleep(seconds)
    assert not page.done()
    store.hangs = True
    assert isinstance(await asyncio.wait_for(page, PATIENCE_SECONDS), Failure)
    assert isinstance(await archive.ask(lambda one: one.session("s")), Failure)
    await archive.close()


async def test_a_store_that_hangs_while_it_opens_is_noticed(tmp_path: Path) -> None:
    async def never() -> Store:
        await asyncio.sleep(3_600)
        raise AssertionError

    archive = DurableArchive(never, None)
    archive.open_seconds = 0.5
    query = archive.ask(lambda one: one.session("s"), seconds=3_600)
    assert isinstance(await asyncio.wait_for(query, PATIENCE_SECONDS), Failure)
    await archive.close()


class Slow(SQLiteStore):
    """A real store that takes its time to open and to write."""

    seconds = 0.0

    async def write(self, batch: Batch) -> WriteResult:  # type: ignore[misc]
        await asyncio.sleep(self.seconds)
        return await super().write(batch)


def slow_engine(tmp: Path, opening: float, writing: float) -> Engine:
    async def opened() -> Store:
        await asyncio.sleep(opening)
        store = await Slow.open(tmp / "m.db", space="default")
        store.seconds = writing
        return store

    async def spooled() -> FileSpool:
        await asyncio.sleep(opening / 2)
        return FileSpool(tmp / "spool", space="default")

    settings = build({"store.write_seconds": 0.05})
    archive = DurableArchive(opened, spooled, settings.store)
    archive.open_seconds = 0.05
    return Engine(settings, archive=archive, jobs=in_process_jobs(archive, settings, None))


BEFORE: set[threading.Thread] = set()
"""Threads of memories that earlier tests of this process did not close."""


@pytest.fixture(autouse=True)
def _threads_before() -> None:
    BEFORE.clear()
    BEFORE.update(threading.enumerate())


def tasks() -> list[str]:
    """This test's tasks."""
    return [str(one) for one in asyncio.all_tasks() if one is not asyncio.current_task()]


def threads() -> list[str]:
    """This test's threads of ours; those of `asyncio.to_thread` are the loop's."""
    # all spools share a few threads: they go on for a memory that an earlier test did not close
    shared = any(one.name.startswith("recollect-spool") for one in BEFORE if one.is_alive())
    new = {one.name for one in set(threading.enumerate()) - BEFORE}
    ending = {one for one in new if not (shared and one.startswith("recollect-spool"))}
    return sorted(one for one in ending if one.startswith("recollect"))


@pytest.mark.parametrize("opening", [0.0, 0.02, 0.3], ids=lambda seconds: f"open {seconds}")
@pytest.mark.parametrize("writing", [0.0, 0.2], ids=lambda seconds: f"write {seconds}")
@pytest.mark.parametrize("after", [0.0, 0.03, 0.15], ids=lambda seconds: f"after {seconds}")
def test_nothing_runs_on_after_close(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, opening: float, writing: float, after: float
) -> None:
    async def run() -> None:
        assert tasks() + threads() == []
        memory = slow_engine(tmp_path, opening, writing)
        turns = [
            asyncio.create_task(memory.prepare(f"s{n}", Talk().body(f"question {n}")))
            for n in range(3)
        ]
        await asyncio.sleep(after)
        begun = time.monotonic()
        await memory.close()
        assert time.monotonic() - begun < PATIENCE_SECONDS / 2
        await asyncio.gather(*turns, return_exceptions=True)
        assert tasks() == []
        await eventually(lambda: not threads())  # the last one is ending

    asyncio.run(run(), debug=False)
    gc.collect()
    assert threads() == []
    assert [one.message for one in caplog.records if one.name == "asyncio"] == []


async def test_a_file_that_others_lock_is_closed_within_its_deadlines(tmp_path: Path) -> None:
    memory = open_memory(store=tmp_path / "m.db", settings=QUIET)
    await Talk().exchange(memory)
    with locked(tmp_path / "m.db"):
        await memory.prepare("other", Talk().body("a question while it is locked"))
        begun = time.monotonic()
        await memory.close()
        assert time.monotonic() - begun < PATIENCE_SECONDS / 2
        assert tasks() == []
        await eventually(lambda: not threads())
