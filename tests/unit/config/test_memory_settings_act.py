"""Settings of the memory change what they say: on a real store, a test per key."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.config.test_recall_settings_act import Clock, said

from recollect import Engine, open_blocking_memory, open_memory
from recollect.adapters.wiring import open_store
from recollect.core.engine.background import runner_of
from recollect.core.ports import Store
from recollect.core.values.batch import Batch, NewJob
from recollect.errors import SettingsError, WrongKey
from recollect.system.config import build

ACTS: dict[str, Callable[[Path], None]] = {}
KEY = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def acts(key: str) -> Callable[[Callable[[Path], None]], Callable[[Path], None]]:
    def register(test: Callable[[Path], None]) -> Callable[[Path], None]:
        assert key not in ACTS
        ACTS[key] = test
        return test

    return register


async def talked(file: Path, settings: dict[str, Any], *texts: str, **more: Any) -> Engine:
    memory = open_memory(store=file, settings=settings, **more)
    await memory.prepare("s", said(*texts))
    await memory.close()
    return memory


def texts_in(file: Path, **opening: Any) -> list[str]:
    async def read(store: Store) -> list[str]:
        return [held.segment.text for held in await store.page()]

    return asyncio.run(with_store(file, read, **opening))


async def with_store(file: Path, ask: Callable[[Store], Awaitable[Any]], **opening: Any) -> Any:
    store = await open_store(str(file), space="default", **opening)
    try:
        return await ask(store)
    finally:
        await store.close()


@acts("redaction.enabled")
def _(tmp: Path) -> None:
    asyncio.run(talked(tmp / "on.db", {}, f"my token is {KEY}"))
    asyncio.run(talked(tmp / "off.db", {"redaction.enabled": False}, f"my token is {KEY}"))
    assert KEY not in texts_in(tmp / "on.db")[0]
    assert KEY in texts_in(tmp / "off.db")[0]


@acts("redaction.pii")
def _(tmp: Path) -> None:
    asyncio.run(talked(tmp / "off.db", {}, "write to ada.lovelace@example.org please"))
    settings = {"redaction.pii": True}
    asyncio.run(talked(tmp / "on.db", settings, "write to ada.lovelace@example.org please"))
    assert "ada.lovelace@example.org" in texts_in(tmp / "off.db")[0]
    assert "ada.lovelace@example.org" not in texts_in(tmp / "on.db")[0]


async def _run_jobs(store: Store, settings: dict[str, Any], clock: Clock) -> int:
    return (await runner_of(store, build(settings), clock).run_due())["done"]


@acts("store.key")
def _(tmp: Path) -> None:
    os.environ["TEST_STORE_KEY"] = "correct horse battery staple"
    try:
        settings = {"store.key": "env:TEST_STORE_KEY"}
        asyncio.run(talked(tmp / "shut.db", settings, "the lighthouse keeps its lamp lit"))
        assert b"lighthouse" not in (tmp / "shut.db").read_bytes()
        opened = texts_in(tmp / "shut.db", key="env:TEST_STORE_KEY")
        assert opened == ["the lighthouse keeps its lamp lit"]
        with pytest.raises(WrongKey):
            texts_in(tmp / "shut.db")
    finally:
        del os.environ["TEST_STORE_KEY"]


@acts("ledger.retention_days")
def _(tmp: Path) -> None:
    clock = Clock()
    file = tmp / "ledger.db"
    asyncio.run(talked(file, {"jobs.in_process": False}, "the lamp is lit", clock=clock))

    async def after(store: Store) -> tuple[int, ...]:
        clock.seconds += 10 * 86_400
        await store.write(Batch(at=clock.now(), jobs=(NewJob(kind="expire", key="again"),)))
        await _run_jobs(store, {"ledger.retention_days": 20}, clock)
        kept = await store.turns("s")
        await store.write(Batch(at=clock.now(), jobs=(NewJob(kind="expire", key="more"),)))
        await _run_jobs(store, {"ledger.retention_days": 5}, clock)
        assert await store.turns("s") == ()
        return kept

    assert asyncio.run(with_store(file, after)) == (1,)


async def _followed(tmp: Path, settings: dict[str, Any], name: str, *, until: int) -> set[str]:
    """The sessions after a turn in a workspace with memory files, once so many are there."""
    workspace = tmp / "workspace"
    workspace.mkdir(exist_ok=True)
    (workspace / "MEMORY.md").write_text("# Lamp\n\nThe lamp of the lighthouse is green.\n")
    (workspace / "extra.md").write_text("# Quay\n\nThe quay is closed on Mondays.\n")
    memory = open_memory(store=tmp / name, settings=settings, workspace=workspace)
    store = await open_store(str(tmp / name), space="default")
    try:
        await memory.prepare("s", said("where is the harbour master?"))
        await memory.settle()
        ends = time.monotonic() + 20.0
        while (held := {one.session for one in await store.sessions()}) and time.monotonic() < ends:
            if len(held) >= until:
                break
            await asyncio.sleep(0.02)
        return held
    finally:
        await memory.close()
        await store.close()


@acts("index.sources")
def _(tmp: Path) -> None:
    assert asyncio.run(_followed(tmp, {}, "both.db", until=2)) == {"s", "file:MEMORY.md"}
    only = {"index.sources": ("sessions",)}
    assert asyncio.run(_followed(tmp, only, "sessions.db", until=1)) == {"s"}
    files = {"index.sources": ("memory",)}
    assert asyncio.run(_followed(tmp, files, "files.db", until=2)) == {"s", "file:MEMORY.md"}

    async def indexed(store: Store) -> list[int]:
        held = await store.page(session="s")
        return [len(await store.passages(one.segment.id)) for one in held]

    assert asyncio.run(with_store(tmp / "both.db", indexed)) == [1]
    assert asyncio.run(with_store(tmp / "files.db", indexed)) == [0]


@acts("index.extra_paths")
def _(tmp: Path) -> None:
    settings = {"index.extra_paths": ("extra.md",)}
    held = asyncio.run(_followed(tmp, settings, "extra.db", until=3))
    assert held == {"s", "file:MEMORY.md", "file:extra.md"}


@pytest.mark.parametrize("key", sorted(ACTS))
def test_the_key_changes_what_it_says(key: str, tmp_path: Path) -> None:
    ACTS[key](tmp_path)


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("correct horse battery staple", "env:NAME, file:PATH or keyring:SERVICE/NAME"),
        ("env:NOT_SET_AT_ALL", "put one there"),
        ("file:/nowhere/key", "put the key there"),
    ],
)
def test_a_key_that_names_none_is_told_when_memory_is_opened(
    tmp_path: Path, key: str, told: str
) -> None:
    with pytest.raises(SettingsError, match=told) as raised:
        open_memory(store=tmp_path / "m.db", settings={"store.key": key})
    assert "store.key" in str(raised.value)
    assert "horse" not in str(raised.value)
    assert not (tmp_path / "m.db").exists()


def test_a_misspelt_argument_fails_in_a_type_checker_and_at_run_time() -> None:
    """The types are checked with `warn_unused_ignores`: a line that passes there fails."""
    with pytest.raises(TypeError, match="windw_tokens"):
        open_memory(windw_tokens=16_000)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="windw_tokens"):
        open_blocking_memory(windw_tokens=16_000)  # type: ignore[call-arg]
    with pytest.raises(SettingsError):
        open_memory(window_tokens="16k")  # type: ignore[arg-type]
