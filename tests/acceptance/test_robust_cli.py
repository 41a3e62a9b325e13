"""Commands where the world is not as they would like it: full devices, odd names, pipes, a file
that was cut, batches that wait. Each ends with one line that says what to do, never a traceback."""

import asyncio
import json
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.acceptance.recollect_cli import PROGRAM, Recollect, environment
from tests.harness.forked_cli import run_forked
from tests.harness.hostile_patterns import PATTERNS, TEXTS
from tests.sizes import at_size
from tests.store_contract import examples

import recollect as library
from recollect.adapters.wiring import open_spool
from recollect.core.formats.stored_records import write_batch
from recollect.core.values.batch import Batch
from recollect.errors import SettingsError

MESSAGES = 12
COMMANDS = (
    ("memory", "stats", "--json"),
    ("memory", "search", "port"),
    ("doctor",),
    ("models", "list"),
    ("--help",),
)


@pytest.fixture
def recollect(tmp_path: Path) -> Recollect:
    told = Recollect(tmp_path)
    told.text("memory", "add", "the port of the staging database is 5433")
    return told


def run(home: Path, *arguments: str, **given: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        [*PROGRAM, *arguments],
        **{
            "env": environment(home),
            "cwd": home,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "stdin": subprocess.DEVNULL,
            "check": False,
            "timeout": 60,
            **given,
        },
    )


def only_line(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = done.stderr.decode().strip().splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("recollect: ")
    return lines[0]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_full_device_is_one_line(recollect: Recollect, command: tuple[str, ...]) -> None:
    store = () if command[0] in ("doctor", "models", "--help") else ("--store", recollect.url)
    with Path("/dev/full").open("wb") as full:
        done = run(recollect.home, *command, *store, stdout=full)
    assert done.returncode == 2
    assert "No space left" in done.stderr.decode().splitlines()[-1]
    assert b"Traceback" not in done.stderr


def test_json_is_whole_where_unicode_cannot_be_written(recollect: Recollect) -> None:
    recollect.text("memory", "add", "der Hafen heißt Öresund")
    plain = {**environment(recollect.home), "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    command = ("memory", "search", "Hafen", "--json", "--store", recollect.url)
    done = run(recollect.home, *command, env=plain)
    assert json.loads(done.stdout)["hits"][0]["passage"] == "der Hafen heißt Öresund"


def test_half_a_character_names_no_space(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="space"):
        library.open_memory(space="a\ud800b", store=tmp_path / "memory.db")
    done = run(tmp_path, "memory", "stats", "--space", os.fsdecode(b"a\xff"))
    assert done.returncode == 2
    assert "the space's name" in only_line(done)


@pytest.mark.parametrize("command", [("import",), ("explain",)])
def test_a_pipe_is_not_waited_for(recollect: Recollect, command: tuple[str, ...]) -> None:
    pipe = recollect.home / "pipe"
    os.mkfifo(pipe)
    done = run(recollect.home, *command, str(pipe))
    assert done.returncode == 2
    assert "a regular file" in only_line(done)


def test_an_import_of_junk_leaves_no_memory(recollect: Recollect) -> None:
    junk = recollect.home / "junk.txt"
    junk.write_text("nothing that an agent recorded\n")
    before = set(recollect.home.rglob("*"))
    done = run(recollect.home, "import", str(junk))
    assert done.returncode == 1
    assert b"unknown format" in done.stderr
    assert set(recollect.home.rglob("*")) == before
    recording = recollect.home / "said.json"
    recording.write_text('[{"role": "user", "content": "We moved the crane to berth 7."}]')
    done = run(recollect.home, "import", str(junk), str(recording))
    assert done.returncode == 1
    assert [path.suffix for path in recollect.home.rglob("spaces/*")] == [".db"]


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A folder that cannot be written, for root neither."""
    folder = tmp_path / "mounted"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "ro,size=1m", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("only root can mount a file system that is read-only")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_read_only_folder_is_named_as_such(read_only: Path) -> None:
    done = run(read_only.parent, "memory", "add", "x y z", "--store", str(read_only / "memory.db"))
    said = only_line(done)
    assert done.returncode == 2
    assert "try again" not in said
    assert "read-only" in said.lower()


def test_a_damaged_memory_can_be_deleted(tmp_path: Path) -> None:
    assert run(tmp_path, "memory", "add", "x y z", "--space", "s").returncode == 0
    (file,) = (tmp_path / "home" / "spaces").glob("*.db")
    whole = file.read_bytes()
    for damaged in (whole[:5000], b""):
        file.write_bytes(damaged)
        said = only_line(run(tmp_path, "memory", "search", "x", "--space", "s"))
        assert "recollect space delete" in said
        done = run(tmp_path, "space", "delete", "s", "--yes")
        assert done.returncode == 0, done.stderr
        assert b"the file was damaged" in done.stdout
        assert not list(file.parent.iterdir())


def test_another_programs_file_is_not_deleted_as_a_memory(tmp_path: Path) -> None:
    recollect = Recollect(tmp_path)
    other = Path(recollect.url)
    with closing(sqlite3.connect(other)) as database:
        database.execute("CREATE TABLE letters (text)")
    assert "another program" in recollect.refused("space", "delete", "s", "--yes")
    assert other.exists()


@pytest.mark.parametrize(
    ("command", "patterns"),
    [(("redact",), PATTERNS), (("memory", "forget"), PATTERNS[:: at_size(4, 1)])],
)
def test_a_hostile_pattern_is_refused_or_ends(
    recollect: Recollect, command: tuple[str, ...], patterns: tuple[str, ...]
) -> None:
    recollect.text("memory", "add", TEXTS[0][:1_900] + " c")
    refused = 0
    for pattern in patterns:
        words = [*command, "--pattern", pattern, "--store", recollect.url]
        env = environment(recollect.home)
        done = run_forked(words, stdin=b"", env=env, cwd=recollect.home, timeout=60)
        assert done.returncode in (0, 1, 2), done.stderr
        refused += b"the pattern " in done.stderr or b"pattern 1 " in done.stderr
        assert b"Traceback" not in done.stderr
    assert 0 < refused < len(patterns)


# A memory whose file was cut


def test_a_file_cut_to_nothing_is_no_new_memory(recollect: Recollect) -> None:
    os.truncate(recollect.url, 0)
    for command in (("memory", "stats"), ("memory", "add", "a new beginning")):
        done = run(recollect.home, *command, "--store", recollect.url)
        assert done.returncode == 2
        assert "empty" in only_line(done)


# Batches that wait


@pytest.fixture
def spooled(recollect: Recollect, monkeypatch: pytest.MonkeyPatch) -> Batch:
    monkeypatch.setenv("RECOLLECT_HOME", environment(recollect.home)["RECOLLECT_HOME"])
    texts = [f"message {number} tells of the garden" for number in range(MESSAGES)]
    return Batch(at=1.0, segments=examples.conversation(texts, session="offline"))


async def test_export_holds_what_waited_in_the_spool(recollect: Recollect, spooled: Batch) -> None:
    spool = await open_spool(recollect.url, space="default")
    await spool.append(write_batch(spooled))
    await spool.close()
    counted = recollect.run("memory", "stats")
    assert b"1 batch in the spool" in counted.stderr
    assert recollect.json("memory", "stats")["spool_waiting"] == 1
    told = recollect.json("export", recollect.home / "out")
    assert (told["segments"], told["spool_waiting"]) == (1 + MESSAGES, 0)
    assert recollect.json("memory", "stats")["segments"] == 1 + MESSAGES


async def test_an_incomplete_export_says_so(recollect: Recollect, spooled: Batch) -> None:
    spool = await open_spool(recollect.url, space="default")  # of a process that is alive
    await spool.append(write_batch(spooled))
    try:
        exported = await asyncio.to_thread(
            recollect.run, "export", recollect.home / "out", "--json"
        )
        searched = await asyncio.to_thread(recollect.run, "memory", "search", "garden")
    finally:
        await spool.close()
    assert exported.returncode == 1
    assert json.loads(exported.stdout)["spool_waiting"] == 1
    assert b"1 batch in the spool" in exported.stderr
    assert b"1 batch in the spool" in searched.stderr
