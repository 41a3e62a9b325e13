"""No text is embedded twice, and the cache's file never costs more than the time it saves."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import apsw
import numpy as np
import pytest

from recollect.adapters.embedders import cache as cache_file
from recollect.adapters.embedders.cache import CachedEmbedder, CacheFile
from recollect.core.ports import Embedder
from recollect.core.values.recall import EmbedderKind

KEY = b"k" * 32
DIMENSIONS = 8


def unit(text: str) -> bytes:
    values = np.random.default_rng(list(text.encode())).normal(size=DIMENSIONS)
    return (values / np.linalg.norm(values)).astype("<f4").tobytes()


class Counting:
    """Makes real unit vectors, and remembers what it was asked for."""

    kind: EmbedderKind = "remote"

    def __init__(self, name: str = "model") -> None:
        self.name = name
        self.dimensions = DIMENSIONS
        self.ready = False
        self.asked: list[list[str]] = []

    async def load(self) -> None:
        self.ready = True

    async def embed(self, texts: Sequence[str]) -> Sequence[bytes]:
        self.asked.append(list(texts))
        return [unit(text) for text in texts]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "made" / "cache.db"


def cached(inner: Embedder, file: Path, **changes: object) -> CachedEmbedder:
    given = {"max_entries": 1000, "key": KEY, **changes}
    return CachedEmbedder(inner, file, **given)  # type: ignore[arg-type]


def clear(file: Path, busy_seconds: float = 5.0) -> None:
    CacheFile(file, max_entries=1, busy_seconds=busy_seconds).clear()


def embedded(inner: Embedder, file: Path, texts: Sequence[str], **changes: object) -> list[bytes]:
    async def whole() -> list[bytes]:
        embedder = cached(inner, file, **changes)
        try:
            return list(await embedder.embed(texts))
        finally:
            await embedder.close()

    return asyncio.run(whole())


def in_files(file: Path, wanted: bytes) -> bool:
    return any(wanted in path.read_bytes() for path in file.parent.iterdir())


def test_a_text_is_embedded_once_in_all_processes_that_come(file: Path) -> None:
    inner = Counting()
    texts = ["one", "two", "one"]
    assert embedded(inner, file, texts) == [unit(text) for text in texts]
    assert embedded(inner, file, ["three", "two", "one"]) == list(
        map(unit, ["three", "two", "one"])
    )
    assert inner.asked == [["one", "two"], ["three"]]


@pytest.mark.parametrize(("name", "key"), [("another", KEY), ("model", b"other")])
def test_other_models_and_keys_share_nothing(file: Path, name: str, key: bytes) -> None:
    embedded(Counting("model"), file, ["one"])
    again = Counting(name)
    assert list(embedded(again, file, ["one"], key=key)) == [unit("one")]
    assert again.asked == [["one"]]


def test_the_file_tells_nothing_of_the_texts_and_is_its_owners(file: Path) -> None:
    embedded(Counting("a-model-of-note"), file, ["the treasure lies below the oak"])
    assert not in_files(file, b"treasure")
    assert not in_files(file, b"a-model-of-note")
    assert in_files(file, unit("the treasure lies below the oak"))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_the_longest_unused_go_first(file: Path) -> None:
    texts = [f"text {number}" for number in range(10)]
    embedded(Counting(), file, texts, max_entries=10)
    embedded(Counting(), file, texts[:3], max_entries=10)  # used again: they stay
    embedded(Counting(), file, ["new a", "new b"], max_entries=10)
    later = Counting()
    embedded(later, file, [*texts[:3], *texts[5:], "new a", "new b"], max_entries=10)
    assert later.asked == []
    embedded(later, file, texts[3:5], max_entries=10)
    assert later.asked == [texts[3:5]]


def test_clearing_leaves_no_byte(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_file, "SETTLE_SECONDS", 0)
    texts = [f"text {number}" for number in range(900)]
    inner = Counting()
    embedder = cached(inner, file)

    async def whole() -> None:
        await embedder.embed(texts[:1])
        await asyncio.to_thread(clear, file)
        empty = sum(path.stat().st_size for path in file.parent.iterdir())
        await embedder.embed(texts)
        assert in_files(file, unit(texts[7]))
        await asyncio.to_thread(clear, file)
        assert not any(in_files(file, unit(text)) for text in texts)
        assert sum(path.stat().st_size for path in file.parent.iterdir()) < 2 * empty
        await embedder.embed(texts[:1])
        await embedder.close()

    asyncio.run(whole())
    assert inner.asked == [texts[:1], texts, texts[:1]]


def test_what_was_under_way_is_not_kept_after_clearing(file: Path) -> None:
    """Another process forgets while this one waits for its provider."""
    started, go_on = threading.Event(), threading.Event()

    class Slow(Counting):
        async def embed(self, texts: Sequence[str]) -> Sequence[bytes]:
            started.set()
            await asyncio.to_thread(go_on.wait, 20)
            return await super().embed(texts)

    async def whole() -> None:
        slow, other = cached(Slow(), file), cached(Counting(), file)
        under_way = asyncio.ensure_future(slow.embed(["forgotten"]))
        await asyncio.to_thread(started.wait, 20)
        await asyncio.to_thread(clear, file)
        go_on.set()
        assert list(await under_way) == [unit("forgotten")]
        assert not in_files(file, unit("forgotten"))
        await slow.close()
        await other.close()

    asyncio.run(whole())


def test_what_was_read_before_and_comes_after_clearing_is_not_kept(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job read a text from the store; another process forgot it before the job embeds it."""
    embedded(Counting(), file, ["else"])
    clear(file)
    assert embedded(Counting(), file, ["forgotten"]) == [unit("forgotten")]
    assert not in_files(file, unit("forgotten"))
    monkeypatch.setattr(cache_file, "_now", lambda: int(time.time()) + 61)
    embedded(Counting(), file, ["said later"])
    assert in_files(file, unit("said later")), "it is a cache again"


@pytest.mark.parametrize("how", ["no database", "torn", "foreign"])
def test_a_damaged_file_costs_nothing_but_time_and_is_logged_once(
    file: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    texts = [f"text {number}" for number in range(300)]
    embedded(Counting(), file, texts)
    if how == "no database":
        file.write_bytes(b"not a database at all" * 500)
    elif how == "torn":
        whole = file.read_bytes()
        file.write_bytes(whole[:4096] + os.urandom(len(whole) - 4096))
    else:
        file.unlink()
        with_other = apsw.Connection(str(file))
        with_other.execute("CREATE TABLE vectors (x); PRAGMA user_version = 9")
        with_other.close()
    inner = Counting()
    embedder = cached(inner, file)

    async def whole_turn() -> None:
        assert list(await embedder.embed(texts[:5])) == [unit(text) for text in texts[:5]]
        assert list(await embedder.embed(texts[5:7])) == [unit(text) for text in texts[5:7]]
        await embedder.close()
        clear(file)  # forgetting deletes what cannot be emptied
        assert list(file.parent.iterdir()) == []

    asyncio.run(whole_turn())
    assert inner.asked == [texts[:5], texts[5:7]]
    (line,) = [record.getMessage() for record in caplog.records]
    assert str(file) in line and "delete it" in line


def test_a_locked_file_costs_nothing_but_a_moment(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    embedded(Counting(), file, ["one"])
    holder = apsw.Connection(str(file))
    holder.execute("BEGIN IMMEDIATE")
    inner = Counting()
    embedder = cached(inner, file, busy_seconds=0.05)

    async def while_locked() -> None:
        # What is there can be read; what is new cannot be kept.
        assert list(await embedder.embed(["one", "two"])) == [unit("one"), unit("two")]
        await embedder.embed(["three"])
        with pytest.raises(apsw.BusyError):
            clear(file, busy_seconds=0.05)
        holder.execute("COMMIT")
        holder.close()
        await embedder.embed(["two"])
        await embedder.embed(["two"])
        await embedder.close()

    asyncio.run(while_locked())
    assert inner.asked == [["two"], ["three"], ["two"]]
    (line,) = [record.getMessage() for record in caplog.records]
    assert "was locked" in line


def test_a_place_that_cannot_be_written_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "a file"
    blocked.write_text("")
    embedder = cached(Counting(), blocked / "cache.db")
    assert list(asyncio.run(embedder.embed(["one"]))) == [unit("one")]
    assert "cannot be used" in caplog.text


MEMBER = """
import asyncio, sys
from pathlib import Path
from tests.unit.embedders.test_cache import Counting, cached, unit

async def main(file, number):
    embedder = cached(Counting(), file, busy_seconds=10.0, max_entries=60)
    for round in range(15):
        texts = [f"text {at % 80}" for at in range(number + round * 7, number + round * 7 + 20)]
        assert list(await embedder.embed(texts)) == [unit(text) for text in texts]
    assert not embedder._told
    await embedder.close()

asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
"""


def test_several_processes_at_once(file: Path) -> None:
    members = [
        subprocess.Popen([sys.executable, "-c", MEMBER, str(file), str(number)])
        for number in range(4)
    ]
    assert [member.wait(120) for member in members] == [0] * len(members)
    connection = apsw.Connection(str(file))
    assert connection.pragma("integrity_check") == "ok"
    ((count,),) = connection.execute("SELECT count(*) FROM vectors").fetchall()
    connection.close()
    assert count in range(1, 61)
