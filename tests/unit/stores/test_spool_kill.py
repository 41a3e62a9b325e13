"""SIGKILL at random points: what was acknowledged is recovered, each record once, in order."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.sizes import at_size

from recollect.adapters.stores.spool import FileSpool

KILLS = int(os.environ.get("RECOLLECT_SPOOL_KILLS", at_size(ci=5, full=12)))
APPENDS = """
import asyncio, os, sys
from pathlib import Path
from recollect.adapters.stores.spool import FileSpool

async def main():
    spool = FileSpool(Path(sys.argv[1]), space="alice")
    for number in range(100_000):
        record = f"{sys.argv[2]}:{number}:".encode() + os.urandom(number % 3000)
        await spool.append(record)
        sys.stdout.write(f"{number}\\n")
        sys.stdout.flush()

asyncio.run(main())
"""
DRAINS = """
import asyncio, os, sys
from pathlib import Path
from recollect.adapters.stores.spool import FileSpool

async def main():
    spool = FileSpool(Path(sys.argv[1]), space="alice")
    out = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    async def take(record):
        os.write(out, b":".join(record.split(b":")[:2]) + b"\\n")
    print("ready", flush=True)
    await spool.drain(take)
    print("done", flush=True)

asyncio.run(main())
"""


def start(script: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE, text=False
    )


def kill(child: subprocess.Popen[bytes]) -> bytes:
    child.send_signal(signal.SIGKILL)
    out, _ = child.communicate()
    return out


async def test_every_acknowledged_record_survives_a_kill(tmp_path: Path) -> None:
    chance = random.Random(7)
    acknowledged: dict[str, int] = {}
    for round_ in range(KILLS):
        child = start(APPENDS, str(tmp_path), str(round_))
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(chance.uniform(0.0, 0.15))
        lines = kill(child).decode().split("\n")[:-1]  # an unfinished line is no promise
        acknowledged[str(round_)] = 1 + len(lines)
    got: list[bytes] = []
    spool = FileSpool(tmp_path, space="alice")

    async def take(record: bytes) -> None:
        got.append(record)

    await spool.drain(take)
    await spool.close()
    names = [tuple(record.split(b":")[:2]) for record in got]
    assert len(set(names)) == len(names), "none twice"
    for name, promised in acknowledged.items():
        numbers = [int(number) for writer, number in names if writer == name.encode()]
        assert numbers == list(range(len(numbers))), "in order"
        assert promised <= len(numbers) <= promised + 1, "none lost, at most one unasked for"


async def test_a_drain_that_is_killed_repeats_at_most_one_record(tmp_path: Path) -> None:
    chance = random.Random(11)
    folder, out = tmp_path / "spool", tmp_path / "taken"
    spool = FileSpool(folder, space="alice")
    for number in range(400):
        await spool.append(f"w:{number}:".encode() + b"x" * 500)
    await spool.close()
    kills = 0
    while True:
        child = start(DRAINS, str(folder), str(out))
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(chance.uniform(0.0, 0.08))
        if kills >= KILLS:
            assert child.communicate()[0] == b"done\n"
            break
        kills += 1
        kill(child)
    numbers = [int(line.split(b":")[1]) for line in out.read_bytes().splitlines()]
    assert sorted(set(numbers)) == list(range(400))
    assert numbers == sorted(numbers), "in order"
    assert len(numbers) - 400 <= kills
