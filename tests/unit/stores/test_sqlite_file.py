"""The file of a space: who may read it, whose it is, which version it has, which key."""

import asyncio
import gzip
import os
import sqlite3
import stat
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.store_contract.examples import SESSION, START, asked, full_batch, segments, vectors
from tests.store_contract.model import ReferenceModel

from recollect.adapters.stores.sqlite import EncryptionKey, SQLiteStore, connection, read_key
from recollect.adapters.stores.sqlite.database import Database
from recollect.adapters.stores.sqlite.schema import MIGRATIONS, VERSION
from recollect.core.values.batch import Batch
from recollect.core.values.recall import CandidateQuery
from recollect.core.values.upkeep import ForgetOrder, Stats
from recollect.errors import (
    MissingExtra,
    SettingsError,
    StoreCorrupt,
    StoreError,
    StoreReplaced,
    StoreUnavailable,
    WrongKey,
)

RAW_KEY = bytes(range(32))
KEY = EncryptionKey(RAW_KEY.hex().encode())


async def _filled(path: Path, key: EncryptionKey | None = None) -> None:
    async with await SQLiteStore.open(path, space="mine", key=key) as store:
        await store.write(full_batch(1))


async def _stats(path: Path, key: EncryptionKey | None = None) -> Stats:
    async with await SQLiteStore.open(path, space="mine", key=key, create=False) as store:
        return await store.stats()


def _refused(path: Path, error: type[Exception], key: EncryptionKey | None = None) -> str:
    with pytest.raises(error) as told:
        asyncio.run(_stats(path, key))
    assert str(path) in str(told.value)
    return str(told.value)


async def test_only_its_owner_can_read_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "space.db"
    async with await SQLiteStore.open(path, space="mine") as store:
        await store.write(full_batch(1))
        files = list(path.parent.iterdir())
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_every_connection_syncs_what_it_commits(tmp_path: Path) -> None:
    async with await SQLiteStore.open(tmp_path / "space.db", space="mine") as store:
        await store.write(full_batch(1))
        for lane in store._lanes:
            assert await lane.run(_promises) == [2, "wal", 1]


def _promises(db: Database) -> list[object]:
    names = "synchronous", "journal_mode", "secure_delete"
    return [db.value(f"PRAGMA {name}") for name in names]


def test_missing_file_is_not_made_when_none_is_to_be(tmp_path: Path) -> None:
    _refused(tmp_path / "missing.db", StoreError)
    assert list(tmp_path.iterdir()) == []


def test_file_of_another_space_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "space.db"
    asyncio.run(_filled(path))
    with pytest.raises(StoreError, match="another space"):
        asyncio.run(SQLiteStore.open(path, space="other"))


def test_what_is_no_memory_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE theirs (a)")
    database.close()
    assert "not a memory" in _refused(other, StoreCorrupt)
    text = tmp_path / "text.db"
    text.write_bytes(b"not a database at all, " * 400)
    _refused(text, WrongKey)  # an encrypted file looks just like that
    torn = tmp_path / "torn.db"
    asyncio.run(_filled(torn))
    torn.write_bytes(torn.read_bytes()[:100] + b"\xa5" * 8_000)
    _refused(torn, StoreCorrupt)


LATER_STEP = """
ALTER TABLE segment ADD COLUMN said_on TEXT;
UPDATE segment SET said_on = date(said_at, 'unixepoch');
CREATE INDEX segment_day ON segment (said_on);
CREATE TABLE day AS SELECT said_on, count(*) AS segments FROM segment GROUP BY said_on;
"""
"""A step as a later release would take it: a column that is filled, an index, a table."""


@pytest.mark.parametrize("key", [None, KEY])
def test_older_file_is_brought_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: EncryptionKey | None
) -> None:
    path = tmp_path / "space.db"

    async def opened(new: Batch | None = None) -> Stats:
        async with await SQLiteStore.open(path, space="mine", key=key) as store:
            if new is not None:
                await store.write(new)
            assert (await store.check()).problems == ()
            return await store.stats()

    def rows(query: str) -> list[Any]:
        file = connection.space_file(path, space="mine", key=key, create=False, busy_seconds=1.0)
        with closing(connection.connect(file, connection.BusyWait(1.0))) as database:
            return database.execute(query).fetchall()

    before = asyncio.run(opened(full_batch(1)))
    monkeypatch.setattr(connection, "MIGRATIONS", {**MIGRATIONS, VERSION: LATER_STEP})
    monkeypatch.setattr(connection, "VERSION", VERSION + 1)
    after = asyncio.run(opened())
    assert (after.segments, after.passages) == (before.segments, before.passages)
    assert rows("SELECT value FROM meta WHERE key = 'schema'") == [(VERSION + 1,)]
    assert rows("SELECT sum(segments) FROM day") == [(before.segments,)]
    assert rows("SELECT count(*) FROM segment WHERE said_on IS NULL") == [(0,)]
    asyncio.run(opened(full_batch(2)))  # goes on as before, and takes the step once
    assert rows("SELECT sum(segments) FROM day") == [(before.segments,)]
    monkeypatch.undo()
    with pytest.raises(StoreCorrupt, match="upgrade Recollect"):
        asyncio.run(opened())


async def test_a_file_that_version_2_wrote_opens_and_leaves_no_topic(tmp_path: Path) -> None:
    """The file is one that code of that version made of the same batch."""
    path, topic = tmp_path / "space.db", b"quokka-of-the-north"
    path.write_bytes(gzip.decompress(Path(__file__).with_name("version_2.db.gz").read_bytes()))
    assert topic in path.read_bytes()
    batch = full_batch(1)
    async with await SQLiteStore.open(path, space="mine", create=False) as store:
        stored = await store.segments([new.segment.id for new in batch.segments])
        assert [one.segment for one in stored] == [new.segment for new in batch.segments]
        assert await store.facts() == batch.facts
        assert (await store.check()).problems == ()
        assert (await store.write(full_batch(2))).stored
    assert not any(topic in other.read_bytes() for other in tmp_path.iterdir())


async def test_what_version_5_kept_out_of_the_index_is_found(tmp_path: Path) -> None:
    """The file is one that code of that version made; it had moved six segments out."""
    path, new = tmp_path / "space.db", segments(8)
    packed = Path(__file__).with_name("version_5_cold.db.gz").read_bytes()
    path.write_bytes(gzip.decompress(packed))
    with closing(apsw.Connection(str(path))) as file:  # as if no warm passage lacked a vector
        file.execute("UPDATE embedder SET complete_to = (SELECT max(id) FROM passage)")
    batch, model = full_batch(1), ReferenceModel()
    model.write(batch)
    model.write(Batch(at=START, segments=new, vectors=(vectors(new, embedder="e"),)))
    async with await SQLiteStore.open(path, space="mine", create=False) as store:
        assert (await store.check()).problems == ()
        waiting = await store.unembedded("example-256", limit=100)
        assert {one.segment for one in waiting} == {one.segment.id for one in new}
        words = (*new[0].passages[0].words, *batch.segments[0].passages[0].words)
        query = CandidateQuery(
            words=tuple(dict.fromkeys(words)), vectors=(asked("q", embedder="e"),)
        )
        model.expect(query, await store.candidates(query))
        named = tuple(model.segments)
        model.expect_around(named, query, await store.around(named, query))
        await store.forget(ForgetOrder(at=START, segments=named[:6]))
        assert (await store.check()).problems == ()


def test_failed_migration_leaves_the_version_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "space.db"
    asyncio.run(_filled(path))
    broken = "CREATE TABLE a (b); NONSENSE"
    monkeypatch.setattr(connection, "MIGRATIONS", {**MIGRATIONS, VERSION: broken})
    monkeypatch.setattr(connection, "VERSION", VERSION + 1)
    _refused(path, StoreError)
    monkeypatch.undo()
    assert asyncio.run(_stats(path)).segments


async def test_locked_file_is_told_as_busy(tmp_path: Path) -> None:
    path = tmp_path / "space.db"
    async with await SQLiteStore.open(path, space="mine", busy_seconds=0.2) as store:
        await store.write(full_batch(1))
        other = apsw.Connection(str(path))
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="try again"):
            await store.write(full_batch(2))
        assert (await store.stats()).segments == 4  # reading goes on
        other.execute("ROLLBACK")
        other.close()
        await store.write(full_batch(2))


async def test_encrypted_file_shows_nothing(tmp_path: Path) -> None:
    said = segments(40, words=60)
    async with await SQLiteStore.open(tmp_path / "s.db", space="mine", key=KEY) as store:
        await store.write(Batch(at=1.0, segments=said))
        await store.write(full_batch(3))
        _no_run_of_16(tmp_path, [one.segment.text for one in said])
    assert (await _stats(tmp_path / "s.db", KEY)).segments
    _no_run_of_16(tmp_path, [one.segment.text for one in said])


def _no_run_of_16(folder: Path, texts: list[str]) -> None:
    for file in folder.iterdir():
        raw = file.read_bytes()
        for text in texts:
            held = text.encode()
            assert not any(held[at : at + 16] in raw for at in range(0, len(held) - 16, 8))


def test_wrong_key_says_so_plainly(tmp_path: Path) -> None:
    hidden, plain = tmp_path / "hidden.db", tmp_path / "plain.db"
    asyncio.run(_filled(hidden, KEY))
    asyncio.run(_filled(plain))
    assert "another key" in _refused(hidden, WrongKey, EncryptionKey(bytes(32)))
    assert "set store.key" in _refused(hidden, WrongKey)
    assert "not encrypted" in _refused(plain, WrongKey, KEY)
    assert asyncio.run(_stats(hidden, KEY)).engine.endswith("encrypted")
    assert asyncio.run(_stats(plain)).segments


def test_passphrase_opens_what_it_closed(tmp_path: Path) -> None:
    path = tmp_path / "space.db"
    asyncio.run(_filled(path, EncryptionKey(b"a passphrase")))
    assert asyncio.run(_stats(path, EncryptionKey(b"a passphrase"))).segments
    _refused(path, WrongKey, EncryptionKey(b"another passphrase"))


def test_passphrase_of_32_bytes_does_not_open_as_a_raw_key(tmp_path: Path) -> None:
    path, phrase = tmp_path / "space.db", b"correct horse battery staple 32!"
    assert len(phrase) == 32
    asyncio.run(_filled(path, EncryptionKey(phrase)))
    assert asyncio.run(_stats(path, EncryptionKey(phrase))).segments
    _refused(path, WrongKey, EncryptionKey(phrase.hex().encode()))


def test_plain_apsw_cannot_encrypt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(apsw, "mc_version", raising=False)
    with pytest.raises(MissingExtra, match="--force-reinstall --no-deps apsw-sqlite3mc") as told:
        asyncio.run(_filled(tmp_path / "space.db", KEY))
    assert told.value.extra == "encrypted"


def test_key_is_read_from_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY_KEY", RAW_KEY.hex())
    assert read_key("env:MEMORY_KEY").raw("any") == RAW_KEY
    file = tmp_path / "key"
    file.write_text(f"{RAW_KEY.hex()}\n")
    file.chmod(0o600)
    assert read_key(f"file:{file}").raw("any") == RAW_KEY
    monkeypatch.setenv("MEMORY_KEY", "correct horse")
    phrase = read_key("env:MEMORY_KEY")
    assert phrase.raw("one") == read_key("env:MEMORY_KEY").raw("one") != phrase.raw("two")
    assert "horse" not in repr(phrase)


def test_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(RAW_KEY.hex())
    file.chmod(0o640)
    with pytest.raises(SettingsError, match="chmod 600"):
        read_key(f"file:{file}")


@pytest.mark.parametrize("source", ["env:NOT_SET_AT_ALL", "file:/nowhere/key", "paper:x", "env:"])
def test_missing_key_is_told(source: str) -> None:
    with pytest.raises(SettingsError):
        read_key(source)


def test_a_file_that_was_deleted_or_emptied_takes_no_more(tmp_path: Path) -> None:
    async def run(path: Path, lose: Callable[[Path], None]) -> None:
        async with await SQLiteStore.open(path, space="mine") as store:
            await store.write(full_batch(1))
            lose(path)
            for work in (store.write(full_batch(2)), store.stats(), store.session(SESSION)):
                with pytest.raises(StoreReplaced, match="removed or replaced"):
                    await work

    for number, lose in enumerate((Path.unlink, lambda path: os.truncate(path, 0))):
        asyncio.run(run(tmp_path / f"{number}.db", lose))


async def test_closing_a_deleted_file_leaves_the_new_one_alone(tmp_path: Path) -> None:
    """SQLite removes a log by its name, which is the new file's by then."""
    path = tmp_path / "space.db"
    old = await SQLiteStore.open(path, space="mine")
    await old.write(full_batch(1))
    path.unlink()
    async with await SQLiteStore.open(path, space="mine") as new:
        assert (await new.stats()).segments == 0, "nothing of the old log is in it"
        await new.write(full_batch(2))
        await old.close()
        await new.write(full_batch(3))
        held = (await new.stats()).segments
    async with await SQLiteStore.open(path, space="mine") as again:
        assert (await again.stats()).segments == held > 0
        assert (await again.check()).problems == ()


def test_a_file_is_whole_from_its_first_moment(tmp_path: Path) -> None:
    """Wherever its making is cut off, nothing stands under its name that is not a memory."""
    path = tmp_path / "space.db"
    seen: list[int] = []

    def look(event: str, arguments: tuple[object, ...]) -> None:
        if event.startswith("os.") and path.exists():
            seen.append(path.stat().st_size)

    sys.addaudithook(look)
    asyncio.run(_filled(path))
    assert seen
    assert 0 not in seen


async def test_closed_store_says_so(tmp_path: Path) -> None:
    store = await SQLiteStore.open(tmp_path / "space.db", space="mine")
    await store.close()
    await store.close()
    with pytest.raises(StoreError, match="closed"):
        await store.stats()
