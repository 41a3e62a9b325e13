"""What is spooled comes back: in order, once, from torn files, from the dead, from before."""

import asyncio
import stat
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.adapters.stores import spool as spool_module
from recollect.adapters.stores.spool import FileSpool
from recollect.adapters.stores.sqlite.connection import EncryptionKey
from recollect.errors import StoreUnavailable, WrongKey

RECORDS = [b"first", b"", b"third " * 400, b"\x00" * 70, b"last"]


def taking(into: list[bytes]) -> Callable[[bytes], Awaitable[None]]:
    async def take(record: bytes) -> None:
        into.append(record)

    return take


def spooled(folder: Path, records: list[bytes], *, space: str = "alice") -> Path:
    """A spool left behind with these records; its one file."""

    async def write() -> None:
        spool = FileSpool(folder, space=space)
        for record in records:
            await spool.append(record)
        await spool.close()

    asyncio.run(write())
    (file,) = folder.glob("*.db")
    return file


def left(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def drained(folder: Path, *, space: str = "alice") -> tuple[list[bytes], FileSpool]:
    got: list[bytes] = []

    async def read() -> FileSpool:
        spool = FileSpool(folder, space=space)
        assert await spool.drain(taking(got)) == len(got)
        await spool.close()
        return spool

    return got, asyncio.run(read())


def test_records_come_back_in_order_and_leave_nothing(tmp_path: Path) -> None:
    file = spooled(tmp_path, RECORDS)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    got, _ = drained(tmp_path)
    assert got == RECORDS
    assert drained(tmp_path)[0] == []
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    assert RECORDS[2][:20] not in file.read_bytes(), "what was drained leaves no byte"


def test_nothing_is_written_before_the_first_record(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "spool"

    async def run() -> None:
        spool = FileSpool(folder, space="alice")
        assert await spool.waiting() == 0
        assert await spool.drain(taking([])) == 0
        assert await spool.rewrite(lambda record: None) == 0
        assert not folder.exists()
        await spool.append(b"one")
        assert await spool.waiting() == 1
        await spool.close()
        await spool.close()
        with pytest.raises(StoreUnavailable):
            await spool.append(b"two")

    asyncio.run(run())
    assert drained(folder)[0] == [b"one"]


async def test_spaces_do_not_see_each_other(tmp_path: Path) -> None:
    alice = FileSpool(tmp_path, space="alice")
    bob = FileSpool(tmp_path, space="b/../ob")
    await alice.append(b"a")
    await bob.append(b"b")
    await alice.rewrite(lambda record: None)
    assert await alice.waiting() == 0
    assert await bob.waiting() == 1
    await alice.close()
    await bob.close()


async def test_a_drain_stops_where_the_store_refuses_and_goes_on_there(tmp_path: Path) -> None:
    spool = FileSpool(tmp_path, space="alice")
    for record in RECORDS:
        await spool.append(record)
    got: list[bytes] = []

    async def take(record: bytes) -> None:
        if len(got) == 2:
            raise StoreUnavailable("away again")
        got.append(record)

    with pytest.raises(StoreUnavailable):
        await spool.drain(take)
    assert await spool.waiting() == 3
    await spool.append(b"later")
    assert await spool.drain(taking(got)) == 4
    await spool.close()
    assert got == [*RECORDS, b"later"]


def test_a_write_that_is_cut_off_costs_nothing_before_it(tmp_path: Path) -> None:
    """The log as a loss of power leaves it: cut anywhere within the last record's pages."""
    folder = tmp_path / "whole"

    async def write() -> tuple[dict[str, bytes], int]:
        spool = FileSpool(folder, space="alice")
        for record in RECORDS[:3]:
            await spool.append(record)
        (log,) = folder.glob("*-wal")
        size = log.stat().st_size
        await spool.append(b"the last one")
        files = {path.name: path.read_bytes() for path in folder.glob("*.db*")}
        await spool.close()
        return {name: data for name, data in files.items() if not name.endswith("-shm")}, size

    files, size = asyncio.run(write())
    (log,) = (name for name in files if name.endswith("-wal"))
    for cut in range(size, len(files[log]), 509):
        folder = tmp_path / f"cut{cut}"
        folder.mkdir()
        for name, data in files.items():
            (folder / name).write_bytes(data[:cut] if name == log else data)
        assert drained(folder)[0] == RECORDS[:3], cut


def test_a_damaged_file_is_set_aside_and_told(tmp_path: Path) -> None:
    file = spooled(tmp_path, [b"x" * 3000] * 40)
    content = file.read_bytes()
    file.write_bytes(content[:100] + b"\xa5" * 40_000 + content[40_100:])

    async def run() -> None:
        spool = await FileSpool.open(tmp_path, space="alice")
        state = await spool.state()
        assert state.waiting == 0
        assert spool.unreadable_files() == state.damaged_files != ()
        await spool.append(b"after")
        await spool.close()

    asyncio.run(run())
    assert drained(tmp_path)[0] == [b"after"]


async def test_records_of_the_dead_are_taken_over_in_their_order(tmp_path: Path) -> None:
    first = FileSpool(tmp_path, space="alice")
    second = FileSpool(tmp_path, space="alice")
    await first.append(b"1")
    await second.append(b"2")
    await first.append(b"1b")
    third = FileSpool(tmp_path, space="alice")
    got: list[bytes] = []
    assert await third.drain(taking(got)) == 0, "both live"
    await third.append(b"3")
    await second.close()
    await first.close()
    assert await third.waiting() == 4
    await third.drain(taking(got))
    assert got == [b"1", b"2", b"1b", b"3"]
    await third.close()


def test_rewrite_reaches_the_files_of_the_living_and_leaves_no_byte(tmp_path: Path) -> None:
    marker = b"the-marker-that-must-go"

    def without(record: bytes) -> bytes | None:
        return None if record == marker else record.replace(marker, b"")

    async def run() -> None:
        living = FileSpool(tmp_path, space="alice")
        await living.append(b"keep")
        await living.append(b"has " + marker)
        await living.append(marker)
        other = FileSpool(tmp_path, space="alice")
        await other.append(b"other " + marker)
        assert await other.rewrite(without) == 3
        assert await other.rewrite(without) == 0
        assert not [path for path in left(tmp_path) if marker in path.read_bytes()]
        await living.append(b"after")
        got: list[bytes] = []
        assert await living.waiting() == 3
        await living.drain(taking(got))
        assert got == [b"keep", b"has ", b"after"]
        await living.close()
        await other.close()

    asyncio.run(run())
    assert drained(tmp_path)[0] == [b"other "]


async def test_rewrite_while_a_record_is_being_taken(tmp_path: Path) -> None:
    spool = FileSpool(tmp_path, space="alice")
    other = FileSpool(tmp_path, space="alice")
    for record in (b"a", b"b", b"c"):
        await spool.append(record)
    got: list[bytes] = []

    async def take(record: bytes) -> None:
        got.append(record)
        if record == b"a":
            await other.rewrite(lambda each: None if each == b"b" else each + b"!")

    await spool.drain(take)
    assert got == [b"a", b"c!"]
    await spool.close()
    await other.close()


async def test_what_the_store_refuses_is_kept_apart_and_can_be_forgotten(tmp_path: Path) -> None:
    spool = FileSpool(tmp_path, space="alice")
    assert (await spool.state()).refused == 0
    for record in (b"good", b"bad marker", b"good too"):
        await spool.append(record)

    async def take(record: bytes) -> None:
        if record.startswith(b"bad"):
            await spool.set_aside(record, reason="FormatError")

    assert await spool.drain(take) == 3
    await spool.set_aside(b"bad as well", reason="FormatError")
    assert await spool.waiting() == 0
    await spool.close()
    again = FileSpool(tmp_path, space="alice")
    assert (await again.state()).refused == 2
    assert await again.drain(take) == 0
    assert await again.rewrite(lambda record: None if b"marker" in record else record) == 1
    assert (await again.state()).refused == 1
    await again.close()
    assert not [path for path in left(tmp_path) if b"marker" in path.read_bytes()]


async def test_writers_drainers_and_forgetters_at_once(tmp_path: Path) -> None:
    """Each through a spool of its own, as processes have it: nothing lost, nothing twice."""
    count = 60
    got: list[bytes] = []
    writers = [FileSpool(tmp_path, space="alice") for _ in range(3)]
    forgetter = FileSpool(tmp_path, space="alice")
    writing = True

    async def write(name: int) -> None:
        for number in range(count):
            await writers[name].append(f"{name}:{number}".encode())

    async def drain(name: int) -> None:
        while writing or await writers[name].waiting():
            await writers[name].drain(taking(got))
            await asyncio.sleep(0.002)

    async def forget() -> None:
        while writing:
            await forgetter.rewrite(lambda record: record + b"!")

    async def write_all() -> None:
        nonlocal writing
        await asyncio.gather(*(write(name) for name in range(3)))
        writing = False

    await asyncio.gather(write_all(), forget(), *(drain(name) for name in range(3)))
    for spool in (*writers, forgetter):
        assert spool.unreadable_files() == ()
        await spool.close()
    for name in range(3):
        mine = [record.rstrip(b"!") for record in got if record.startswith(b"%d:" % name)]
        assert mine == [f"{name}:{number}".encode() for number in range(count)]


def test_a_change_that_fails_changes_nothing(tmp_path: Path) -> None:
    spooled(tmp_path, [b"a", b"b"])

    def change(record: bytes) -> bytes | None:
        if record == b"b":
            raise ValueError
        return None

    async def run() -> None:
        spool = FileSpool(tmp_path, space="alice")
        with pytest.raises(ValueError):
            await spool.rewrite(change)
        await spool.close()

    asyncio.run(run())
    assert drained(tmp_path)[0] == [b"a", b"b"]


FULL_DISK = """
import asyncio, resource, sys
from pathlib import Path
from recollect.errors import StoreUnavailable
from recollect.adapters.stores.spool import FileSpool

async def main():
    spool = FileSpool(Path(sys.argv[1]), space="alice")
    await spool.append(b"kept")
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    try:
        await spool.append(b"x" * 1_000_000)
    except StoreUnavailable as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await spool.append(b"room again")
    await spool.close()

asyncio.run(main())
"""


def test_a_full_disk_is_told_and_costs_nothing_acknowledged(tmp_path: Path) -> None:
    """The system cuts the write off half-way, as a full disk does."""
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)], capture_output=True, check=True
    )
    assert b"cannot be read or written now" in done.stdout
    got, spool = drained(tmp_path)
    assert got == [b"kept", b"room again"]
    assert spool.unreadable_files() == ()


async def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    spool = FileSpool(tmp_path / "file" / "spool", space="alice")
    with pytest.raises(StoreUnavailable, match="Not a directory"):
        await spool.append(b"x")


STEP = st.one_of(
    st.tuples(st.just("append"), st.binary(max_size=300)),
    st.tuples(st.just("drain"), st.integers(0, 4)),
    st.tuples(st.just("reopen"), st.just(0)),
    st.tuples(st.just("drop"), st.integers(2, 5)),
)


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(STEP, max_size=25))
def test_a_spool_is_a_durable_queue(
    steps: list[tuple[str, int | bytes]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Against a plain list: any course of appends, partial drains, reopenings."""
    folder = tmp_path_factory.mktemp("spool")

    async def run() -> None:
        spool = FileSpool(folder, space="s")
        expected: list[bytes] = []
        for step, argument in steps:
            if isinstance(argument, bytes):
                await spool.append(argument)
                expected.append(argument)
            elif step == "drain":
                expected = await _drain_some(spool, expected, argument)
            elif step == "drop":
                await spool.rewrite(partial(_unless_divisible, argument))
                expected = [record for record in expected if len(record) % argument]
            else:
                await spool.close()
                spool = FileSpool(folder, space="s")
            assert await spool.waiting() == len(expected)
        await _drain_some(spool, expected, len(expected))
        await spool.close()

    asyncio.run(run())


def _unless_divisible(by: int, record: bytes) -> bytes | None:
    return record if len(record) % by else None


async def _drain_some(spool: FileSpool, expected: list[bytes], limit: int) -> list[bytes]:
    got: list[bytes] = []

    async def take(record: bytes) -> None:
        if len(got) == limit:
            raise StoreUnavailable("enough")
        got.append(record)

    if len(expected) > limit:
        with pytest.raises(StoreUnavailable):
            await spool.drain(take)
    else:
        await spool.drain(take)
    assert got == expected[:limit]
    return expected[limit:]


def test_refused_records_can_be_put_back_behind_what_waits(tmp_path: Path) -> None:
    spooled(tmp_path, [b"left behind"])

    async def run() -> None:
        spool = FileSpool(tmp_path, space="alice")
        assert await spool.retry_refused() == 0
        await spool.append(b"waits")
        await spool.set_aside(b"bad", reason="refused")
        await spool.set_aside(b"worse", reason="refused")
        state = await spool.state()
        assert (state.waiting, state.refused, state.damaged_files) == (2, 2, ())
        assert len(state.refused_files) == 1
        assert await spool.retry_refused() == 2
        assert await spool.retry_refused() == 0
        state = await spool.state()
        assert (state.waiting, state.refused, state.refused_files) == (4, 0, ())
        await spool.close()

    asyncio.run(run())
    assert drained(tmp_path)[0] == [b"left behind", b"waits", b"bad", b"worse"]


def test_a_file_that_was_removed_is_made_again(tmp_path: Path) -> None:
    async def run() -> None:
        spool = FileSpool(tmp_path, space="alice")
        await spool.append(b"gone")
        for path in left(tmp_path):
            path.unlink()
        assert await spool.waiting() == 0
        await spool.append(b"kept")
        await spool.close()

    asyncio.run(run())
    assert drained(tmp_path)[0] == [b"kept"]


_HOLD = """
import apsw, os, signal, sys
database = apsw.Connection(sys.argv[1])
database.execute("BEGIN IMMEDIATE")
print("held", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_a_stopped_process_that_holds_the_lock_hangs_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "STEP_SECONDS", 0.5)
    file = spooled(tmp_path, [b"before"])
    holder = subprocess.Popen([sys.executable, "-c", _HOLD, str(file)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"

    async def run() -> None:
        spool = FileSpool(tmp_path, space="alice")
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: spool.append(b"x"),
            spool.waiting,
            lambda: spool.drain(taking([])),
            lambda: spool.set_aside(b"x", reason="r"),
            spool.state,
            lambda: spool.rewrite(lambda record: record),
        ]
        for call in calls:
            begun = time.monotonic()
            with pytest.raises(StoreUnavailable, match="another process is still using"):
                await asyncio.wait_for(call(), 10)
            assert time.monotonic() - begun < 4
        begun = time.monotonic()
        await asyncio.wait_for(spool.close(), 10)
        assert time.monotonic() - begun < 4, "and nobody who closes"

    try:
        asyncio.run(run())
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    assert drained(tmp_path)[0] == [b"before"], "nothing was lost, nothing half written"


KEY = EncryptionKey(b"\x07" * 32)
MARKER = b"what was said and must not be read by others"


async def opened(folder: Path, *, space: str = "alice", key: EncryptionKey = KEY) -> FileSpool:
    return await FileSpool.open(folder, space=space, key=key)


def bytes_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))


async def test_records_come_back_in_order_and_nothing_lies_in_the_clear(tmp_path: Path) -> None:
    records = [MARKER + str(number).encode() for number in range(5)] + [b""]
    spool = await opened(tmp_path / "spool")
    assert await spool.waiting() == 0
    assert await spool.drain(taking([])) == 0
    assert not (tmp_path / "spool").exists()
    for record in records:
        await spool.append(record)
    assert MARKER[:16] not in bytes_of(tmp_path / "spool")
    await spool.close()
    spool = await opened(tmp_path / "spool")
    got: list[bytes] = []
    assert await spool.drain(taking(got)) == 6
    assert got == records
    assert await spool.waiting() == 0
    await spool.close()
    assert MARKER[:16] not in bytes_of(tmp_path / "spool")


async def test_another_key_is_told_as_such(tmp_path: Path) -> None:
    spool = await opened(tmp_path)
    await spool.append(b"x")
    await spool.close()
    with pytest.raises(WrongKey):
        await opened(tmp_path, key=EncryptionKey(b"\x08" * 32))
    again = await opened(tmp_path)
    assert await again.waiting() == 1
    await again.close()


async def test_batches_of_another_secret_are_counted_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A process that started while the database was down may have used the wrong secret."""
    before = FileSpool(tmp_path, space="alice", maker="raw")
    await before.append(b"of the outage")
    assert (await before.state()).foreign == 0
    await before.close()
    assert not caplog.records
    after = FileSpool(tmp_path, space="alice", maker="drawn")
    await after.append(b"own")
    for _ in range(2):
        assert await after.waiting() == 1
    state = await after.state()
    assert (state.waiting, state.foreign) == (2, 1)
    await after.close()
    (line,) = [record.getMessage() for record in caplog.records]
    assert "another secret" in line
