"""Git histories made to waste the daemon's time and memory, or to pass for another's."""

import shutil
import struct
import subprocess
import time
import tracemalloc
import zlib
from pathlib import Path

import pytest

from recollect.system import projects
from recollect.system.git_folder import MAX_FILE_BYTES, MAX_INDEX_BYTES, Repository, first_commit

COMMIT, BASE_DELTA = 1, 7
COPY_MEGABYTE = b"\xf0\x00\xff\x0f"


def object_head(kind: int, size: int) -> bytes:
    numbers = [kind << 4 | size & 15]
    size >>= 4
    while size:
        numbers[-1] |= 0x80
        numbers.append(size & 0x7F)
        size >>= 7
    return bytes(numbers)


def write_pack(git: Path, deltas: list[bytes]) -> Repository:
    """Write a pack with a commit of almost 1 MiB, and deltas that are each based on the last."""
    base = b"tree " + b"0" * 40 + b"\n\n" + b"x" * (MAX_FILE_BYTES - 200)
    (git / "objects/pack").mkdir(parents=True)
    names = [index.to_bytes(20, "big") for index in range(len(deltas) + 1)]
    pack, offsets = b"PACK" + struct.pack(">II", 2, len(names)), []
    for number, name in enumerate(names):
        offsets.append(len(pack))
        content = deltas[number - 1] if number else base
        pack += object_head(BASE_DELTA if number else COMMIT, len(content))
        pack += (names[number - 1] if number else b"") + zlib.compress(content, 9)
        assert name < b"\x01"
    count = struct.pack(">I", len(names))
    index = b"\xfftOc\0\0\0\2" + count * 256 + b"".join(names) + b"\0" * 4 * len(names)
    index += b"".join(struct.pack(">I", offset) for offset in offsets) + b"\0" * 40
    (git / "objects/pack/p.pack").write_bytes(pack + b"\0" * 20)
    (git / "objects/pack/p.idx").write_bytes(index)
    (git / "HEAD").write_text(names[-1].hex())
    return Repository(str(git), str(git.parent))


@pytest.mark.parametrize(
    "deltas",
    [
        [b"\x01\x01" + COPY_MEGABYTE * 300],
        [b"\x01\xff\xff\xff\xff\x7f" + COPY_MEGABYTE * 300],
        [b"\x01\x80\x80\x40" + b"\x90\x01" * 500_000] * 40,
    ],
    ids=["declares a byte", "declares gigabytes", "many slow deltas"],
)
def test_a_hostile_pack_costs_little(tmp_path: Path, deltas: list[bytes]) -> None:
    repository = write_pack(tmp_path / ".git", deltas)
    tracemalloc.start()
    started_at = time.monotonic()
    assert not first_commit(repository, seconds=0.3)
    spent_seconds, peak_bytes = time.monotonic() - started_at, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < MAX_INDEX_BYTES + 32 * MAX_FILE_BYTES
    assert spent_seconds < 5


def test_a_forged_commit_proves_no_history(tmp_path: Path) -> None:
    """An archive, unpacked where a project was, has an object named by that project's first
    commit."""
    folder = tmp_path / "project"

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b"]
        return subprocess.run(
            [*command, *arguments], check=True, capture_output=True, text=True
        ).stdout.strip()

    folder.mkdir()
    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "first")
    first, space = git("rev-parse", "HEAD"), projects.project_space(str(folder))
    projects.learn_history(str(folder))
    assert projects.project_of(space).first_commit == first
    shutil.rmtree(folder)
    object_file = folder / ".git/objects" / first[:2] / first[2:]
    object_file.parent.mkdir(parents=True)
    (folder / ".git/HEAD").write_text(first)
    body = b"tree 0\n\nforged"
    object_file.write_bytes(zlib.compress(b"commit %d\0" % len(body) + body))
    match = projects.find_match(str(folder))
    assert (match.space != space, match.project.joinable) == (True, space)
