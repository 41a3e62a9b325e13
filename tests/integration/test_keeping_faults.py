"""Keeping a session when things go wrong: refusals, hangs, cancellations, other processes."""

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.harness.waiting import PATIENCE_SECONDS
from tests.sizes import at_size

from recollect import Engine, open_memory
from recollect.adapters.stores.spool import FileSpool
from recollect.adapters.stores.sqlite import SQLiteStore
from recollect.adapters.wiring import open_store
from recollect.core.engine.archive import SPOOL_SECONDS, DurableArchive
from recollect.core.ports import Store
from recollect.core.values.batch import Batch, WriteResult
from recollect.core.values.edit import Shorten
from recollect.core.values.report import Report
from recollect.errors import BatchRefused, StoreUnavailable
from recollect.system.config import build
from recollect.system.config.settings import StoreSettings

KEY = "sk-ant-api03-" + "a1B2c3D4e5" * 9 + "f6gAA"


def request(*texts: str, **more: Any) -> dict[str, Any]:
    roles = ("user", "assistant")
    held = [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]
    return {"model": "claude-x", "max_tokens": 10, "messages": held, **more}


def reply(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


async def texts(file: Path) -> list[str]:
    store = await open_store(str(file), space="default")
    held = [one.segment.text for one in await store.page(limit=10_000)]
    assert (await store.check()).problems == ()
    await store.close()
    return held


class Failing(SQLiteStore):
    """A real store whose writes can be made to fail."""

    failure: BaseException | None = None
    seconds = 0.0

    async def write(self, batch: Batch) -> WriteResult:  # type: ignore[misc]
        await asyncio.sleep(self.seconds)
        if self.failure is not None:
            raise self.failure
        return await super().write(batch)


async def failing_engine(tmp: Path, **more: Any) -> tuple[Engine, Failing, FileSpool]:
    store = await Failing.open(tmp / "m.db", space="default")
    assert isinstance(store, Failing)
    spool = FileSpool(tmp / "spool", space="default")

    async def opened() -> Store:
        return store

    async def spooled() -> FileSpool:
        return spool

    archive = DurableArchive(opened, spooled, StoreSettings(read_seconds=0.2, write_seconds=0.2))
    return Engine(build(more), archive=archive), store, spool


async def test_no_secret_reaches_the_disk_by_a_shortened_result(tmp_path: Path) -> None:
    held: list[dict[str, Any]] = []
    for n in range(9):
        call = {"type": "tool_use", "id": f"t{n}", "name": "read", "input": {"n": n}}
        shown = f"ANTHROPIC_API_KEY={KEY}\n" + "cargo winch quay " * 700
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": shown}
        held += [
            {"role": "user", "content": f"look at number {n}"},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
            {"role": "assistant", "content": "done"},
        ]
    body = {"model": "claude-x", "max_tokens": 10, "messages": [*held, *request("so?")["messages"]]}
    settings = {"window_tokens": 24_000, "pruning.mode": "adaptive"}
    async with open_memory(store=tmp_path / "m.db", settings=settings) as memory:
        context = await memory.prepare("s", body)
        cut = [edit.text for edit in context.edits if isinstance(edit, Shorten)]
        assert cut
        assert not any(KEY in text for text in cut), "an edit is stored: it is masked"
    folders = (tmp_path, Path(os.environ["RECOLLECT_HOME"]))
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert files
    assert [path.name for path in files if KEY.encode() in path.read_bytes()] == []


async def test_two_processes_on_one_session_do_not_undo_each_other(tmp_path: Path) -> None:
    one = open_memory(store=tmp_path / "m.db")
    two = open_memory(store=tmp_path / "m.db")
    told = ["the harbour has two cranes and a quay"]
    for n in range(6):
        memory = (one, two)[n % 2]
        await memory.prepare("s", request(*told))
        await memory.observe("s", reply(f"answer number {n} about cranes"))
        told += [f"answer number {n} about cranes", f"and question number {n} of them?"]
    await one.close()
    await two.close()
    found = await texts(tmp_path / "m.db")
    assert found == told[:-1], "every message once, in order"


async def test_a_reply_is_observed_by_another_process_than_prepared(tmp_path: Path) -> None:
    async with open_memory(store=tmp_path / "m.db") as memory:
        await memory.prepare("s", request("which port has the staging database?"))
    async with open_memory(store=tmp_path / "m.db") as memory:
        await memory.observe("s", reply("it listens on port 5433 there"))
    async with open_memory(store=tmp_path / "m.db") as memory:
        told = ("which port has the staging database?", "it listens on port 5433 there", "ok?")
        await memory.prepare("s", request(*told))
    assert await texts(tmp_path / "m.db") == list(told)


async def test_the_same_words_in_requests_that_continue_are_new_messages(tmp_path: Path) -> None:
    async with open_memory(store=tmp_path / "m.db") as memory:
        for n in (1, 2, 2, 3):  # the second one is tried twice
            body = {
                "model": "gpt-5",
                "input": [{"role": "user", "content": "Please continue with the next step"}],
                "previous_response_id": f"resp_{n}",
            }
            await memory.prepare("s", json.dumps(body).encode())
    assert len(await texts(tmp_path / "m.db")) == 3


async def test_a_passing_refusal_loses_nothing(tmp_path: Path) -> None:
    """A replica that cannot be written to is a matter of waiting, not of the batch."""
    from recollect.errors import StoreError

    memory, store, _ = await failing_engine(tmp_path)
    store.failure = StoreError("cannot execute INSERT in a read-only transaction")
    await memory.prepare("s", request("a question about the harbour"))
    seen = await memory.observe("s", reply("an answer about the harbour"))
    assert seen.archived == "spool"
    store.failure = None
    assert await memory.settle() == 0
    await memory.close()
    assert len(await texts(tmp_path / "m.db")) == 2


async def test_a_batch_that_can_never_be_written_does_not_keep_others_out(tmp_path: Path) -> None:
    memory, store, spool = await failing_engine(tmp_path)
    store.failure = BatchRefused("no such thing")
    await memory.prepare("s", request("a question about the harbour"))
    await memory.settle()
    store.failure = None
    told = ("a question about the harbour", "an answer", "another question about cranes")
    context = await memory.prepare("s", request(*told))
    assert any("refused 1 write:" in line.said for line in context.report.failures)
    await memory.settle()
    assert await spool.waiting() == 0
    await memory.close()
    assert "another question about cranes" in await texts(tmp_path / "m.db")


async def test_a_spool_that_hangs_blocks_nobody_for_ever(tmp_path: Path) -> None:
    memory, store, spool = await failing_engine(tmp_path)
    store.failure = StoreUnavailable("gone")

    async def hang(*_: Any) -> Any:
        await asyncio.sleep(3_600)

    for name in ("append", "waiting", "drain", "scan", "close"):
        setattr(spool, name, hang)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await memory.prepare("s", request("one question"))
        await memory.observe("s", reply("one answer"))
    begun = time.monotonic()
    for _ in range(10):
        await memory.prepare("s", request("one question", "a", "b?"))
    assert time.monotonic() - begun < 0.6 * 10 * SPOOL_SECONDS, "it is waited for once"
    async with asyncio.timeout(PATIENCE_SECONDS):
        await memory.settle(1)
        await memory.close()
    await store.close()


async def test_a_long_history_seen_for_the_first_time_still_fits(tmp_path: Path) -> None:
    """It is written piece by piece; what is durable in time may leave the view."""
    count = at_size(ci=401, full=1_201)
    lines = [f"number {n}: " + "cargo and winch over the quay " * 40 for n in range(count)]
    settings = {"window_tokens": 50 * count}
    async with open_memory(store=tmp_path / "m.db", settings=settings) as memory:
        context = await memory.prepare("s", request(*lines))
        before, after = context.report.tokens_before, context.report.tokens_after
        assert after < before / 2, "most of it left the view in the first turn"
        again = await memory.prepare("s", request(*lines))
        assert not again.report.over_limit
    assert len(await texts(tmp_path / "m.db")) == count


ENDS = {
    "async": """
import asyncio, recollect
async def main():
    memory = recollect.open_memory(store={file!r})
    await memory.prepare("s", {body})
asyncio.run(main())
""",
    "async with an error": """
import asyncio, recollect
async def main():
    memory = recollect.open_memory(store={file!r})
    await memory.prepare("s", {body})
    raise SystemExit(0)
asyncio.run(main())
""",
    "blocking": """
import recollect
memory = recollect.open_blocking_memory(store={file!r})
memory.prepare("s", {body})
""",
}


def test_a_process_that_ends_without_closing_keeps_what_was_said(tmp_path: Path) -> None:
    for name, code in ENDS.items():
        file = tmp_path / f"{name}.db"
        body = request("this was said just before the end")
        done = subprocess.run(
            [sys.executable, "-c", code.format(file=str(file), body=body)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert asyncio.run(texts(file)) == ["this was said just before the end"], name


async def test_a_cancelled_prepare_loses_nothing(tmp_path: Path) -> None:
    memory = open_memory(store=tmp_path / "m.db", window_tokens=16_000)
    long = [f"{n} " + "cargo and winch over the quay " * 60 for n in range(61)]
    call = asyncio.create_task(memory.prepare("s", request(*long)))
    await asyncio.sleep(0.05)
    call.cancel()
    await asyncio.wait({call})
    await memory.prepare("s", request(*long))
    await memory.close()
    found = await texts(tmp_path / "m.db")
    assert len(found) == len(set(found)) == 61


def test_a_memory_that_is_deleted_under_a_running_engine_begins_anew(tmp_path: Path) -> None:
    """Turns must not go on writing to a file that nobody can open any more."""
    file, told = tmp_path / "m.db", ["the harbour has two cranes and a quay"]

    def delete(file: Path) -> None:
        for part in file.parent.glob("m.db*"):
            part.unlink()

    async def turn(memory: Engine, number: int) -> Report:
        context = await memory.prepare("s", request(*told))
        await memory.observe("s", reply(f"answer number {number} about cranes"))
        told.extend([f"answer number {number} about cranes", f"and question number {number}?"])
        return context.report

    async def run() -> list[Report]:
        async with open_memory(store=file) as memory:
            for number in range(4):
                await turn(memory, number)
            assert await memory.settle() == 0
            delete(file)
            reports = [await turn(memory, number) for number in range(4, 9)]
            assert await memory.settle() == 0
            return reports

    reports = asyncio.run(run())
    assert set(told[:-1]) == set(asyncio.run(texts(file))), "all of it, and in a file that is there"
    replaced = [line for report in reports for line in report.lines if "removed" in line.said]
    assert replaced, "and it is told"
