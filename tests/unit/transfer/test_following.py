"""Looks beside the turns: begun by `wake`, repeated, never heard of when they fail or hang."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from recollect.core.transfer import memory_files as following
from recollect.core.transfer.memory_files import Following
from recollect.core.values.upkeep import MemoryFilesResult, SkippedFile
from recollect.errors import StoreUnavailable


def followed(
    look: Callable[[], Awaitable[MemoryFilesResult]], monkeypatch, seconds=0.01
) -> Following:
    monkeypatch.setattr(following, "LEAST_SECONDS", 0.0)
    return Following(look, interval_seconds=seconds)


async def until(ready: Callable[[], bool]) -> None:
    begun = time.monotonic()
    while not ready():
        assert time.monotonic() - begun < 20
        await asyncio.sleep(0.005)


async def test_a_look_that_fails_is_told_and_tried_again(monkeypatch) -> None:
    looks = 0

    async def look() -> MemoryFilesResult:
        nonlocal looks
        looks += 1
        if looks == 1:
            raise StoreUnavailable("the store is away")
        if looks == 2:
            raise ZeroDivisionError
        skipped = (
            SkippedFile(file="a.md", reason="it is not UTF-8"),
            SkippedFile(file="b.md", reason="it is not UTF-8"),
        )
        return MemoryFilesResult(skipped=skipped)

    files = followed(look, monkeypatch)
    said = []
    files.wake()
    while looks < 3:
        said.append(files.trouble())
        await asyncio.sleep(0.001)
    await until(lambda: "a.md" in str(files.trouble()))
    assert any("the store is away" in str(one) for one in said)
    assert "and 1 more" in str(files.trouble())
    await files.close()


async def test_a_look_that_never_ends_does_not_keep_the_engine_from_closing(monkeypatch) -> None:
    async def look() -> MemoryFilesResult:
        await asyncio.Event().wait()
        return MemoryFilesResult()

    files = followed(look, monkeypatch)
    files.wake()
    await asyncio.sleep(0.02)
    begun = time.monotonic()
    await files.close()
    assert time.monotonic() - begun < 5
