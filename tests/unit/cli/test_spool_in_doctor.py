"""`recollect doctor` names writes that no process with the store's secret can store."""

import asyncio
import json
from pathlib import Path

import apsw
import pytest
from click.testing import CliRunner

from recollect import open_memory
from recollect.adapters.wiring import open_spool, open_store
from recollect.cli import main


@pytest.fixture
def spooled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A memory whose spool has a batch with ids of another secret."""
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "m.db"
    monkeypatch.setenv("RECOLLECT_STORE__URL", str(file))

    async def fill() -> None:
        async with open_memory(store=file, embedders=[]) as memory:
            await memory.prepare("s", {"messages": [{"role": "user", "content": "hello"}]})
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("RECOLLECT_SECRET", "the one of an outage")
            spool = await open_spool(str(file), space="default")
            await spool.append(b"a batch")
            await spool.close()

    asyncio.run(fill())
    return str(file)


def state_of(file: str) -> tuple[int, int]:
    async def read() -> tuple[int, int]:
        spool = await open_spool(file, space="default")
        state = await spool.state()
        await spool.close()
        return state.waiting, state.foreign

    return asyncio.run(read())


@pytest.mark.usefixtures("spooled")
def test_doctor_counts_batches_of_another_secret() -> None:
    checks = json.loads(CliRunner().invoke(main, ["doctor", "--json"]).stdout)["checks"]
    (store,) = [check for check in checks if check["name"] == "store"]
    assert "1 batch" in json.dumps(store)
    assert "another secret" in json.dumps(store)


def test_one_command_deletes_batches_of_another_secret_only(spooled: str) -> None:
    async def append() -> None:
        spool = await open_spool(spooled, space="default")
        await spool.append(b"a batch of this secret")
        await spool.close()

    asyncio.run(append())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RECOLLECT_SECRET", "the one of an outage")
        refused = CliRunner().invoke(main, ["memory", "check", "--discard"])
    assert "RECOLLECT_SECRET" in refused.stderr
    assert refused.exit_code
    assert state_of(spooled) == (2, 1)
    told = CliRunner().invoke(main, ["memory", "check", "--discard", "--json"])
    assert json.loads(told.stdout)["discarded"] == 1
    assert state_of(spooled) == (1, 0)


@pytest.mark.parametrize("has_later_message", [False, True])
def test_a_store_that_shows_no_secret_lets_no_command_delete_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_later_message: bool
) -> None:
    """A shell without the application's RECOLLECT_SECRET takes the application's batches for those
    of another secret. An empty store, or one whose first message another secret stored, accepts
    every secret."""
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "m.db"
    monkeypatch.setenv("RECOLLECT_STORE__URL", str(file))
    hello = {"messages": [{"role": "user", "content": "hello"}]}

    async def store_hello() -> None:
        async with open_memory(store=file, embedders=[]) as memory:
            await memory.prepare("s", hello)
            assert not await memory.settle()

    async def fill() -> None:
        await (await open_store(str(file), space="default")).close()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("RECOLLECT_SECRET", "the one of the application")
            if has_later_message:
                await store_hello()
                with apsw.Connection(str(file)) as opened:  # as an earlier version left the file
                    opened.execute("DELETE FROM meta WHERE key = 'secret mark'")
            spool = await open_spool(str(file), space="default")
            await spool.append(b"a batch of the application")
            await spool.close()

    asyncio.run(fill())
    CliRunner().invoke(main, ["doctor"])  # records no secret either
    refused = CliRunner().invoke(main, ["memory", "check", "--discard"])
    assert "RECOLLECT_SECRET" in refused.stderr
    assert refused.exit_code
    monkeypatch.setenv("RECOLLECT_SECRET", "the one of the application")
    assert state_of(str(file)) == (1, 0)
    asyncio.run(store_hello())  # the command recorded no secret
    told = CliRunner().invoke(main, ["memory", "check", "--discard", "--json"])
    assert json.loads(told.stdout)["discarded"] == 0
