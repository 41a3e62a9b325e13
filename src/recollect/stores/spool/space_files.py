"""All spool files of one space in a folder, whosever they are: found, counted, set aside.

Owns their names, the lock around them and the records that a store refused. Blocking, like
`SpoolFile`. Always holds: a record is set aside once, however often a process dies over it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

from recollect.stores.spool import durable
from recollect.stores.spool.frames import TOKEN_BYTES
from recollect.stores.spool.locks import space_lock
from recollect.stores.spool.spool_file import DAMAGED, REFUSED, SUFFIX, SpoolFile
from recollect.values.upkeep import SpoolState

T = TypeVar("T")


class SpaceFiles:
    """The files of a space; what was found torn or damaged in them is counted here."""

    def __init__(self, folder: Path, *, space: str) -> None:
        self.folder = folder
        self.prefix = blake2b(space.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        self.torn = 0
        self.damaged = 0

    def lock(
        self, *, shared: bool = False, seconds: float | None = None
    ) -> AbstractContextManager[None]:
        """Keep other processes from changing any of the files meanwhile."""
        return space_lock(self.folder / f"{self.prefix}.lock", shared=shared, seconds=seconds)

    def new_stem(self, token: bytes) -> str:
        """The name of a new file; it says when the file began."""
        return f"{self.prefix}-{time.time_ns():020d}-{token.hex()}"

    def all(self, suffix: str) -> list[SpoolFile]:
        """Every file with this ending, the oldest first."""
        paths = sorted(self.folder.glob(f"{self.prefix}-*{suffix}"))
        tokens = [(path.stem, token_of(path.stem)) for path in paths]
        return [SpoolFile(self.folder, stem, t, suffix) for stem, t in tokens if t is not None]

    def opened(self, file: SpoolFile, work: Callable[[SpoolFile], T]) -> T:
        """Do something with a file that nobody here owns, under the lock."""
        try:
            file.load()
            return work(file)
        finally:
            self.count(file)
            file.close()

    def count(self, file: SpoolFile) -> None:
        """Remember what was torn or damaged in a file that is let go of."""
        self.torn, self.damaged = self.torn + file.torn, self.damaged + file.damaged

    def unreadable(self) -> tuple[str, ...]:
        """The names of the files with what could not be read."""
        return tuple(sorted(path.name for path in self.folder.glob(f"{self.prefix}-*{DAMAGED}")))

    def refuse(self, record: bytes) -> None:
        """Set a record aside, unless it is: who died after this comes here again."""
        durable.make_folder(self.folder)
        with self.lock():
            files = self.all(REFUSED)
            if any(self.opened(file, lambda file: file.holds(record)) for file in files):
                return
            if not files:
                token = secrets.token_bytes(TOKEN_BYTES)
                files.append(SpoolFile(self.folder, self.new_stem(token), token, REFUSED))
            self.opened(files[0], lambda file: file.append(record))

    def refused(self) -> int:
        """How many records are set aside."""
        if not self.folder.is_dir():
            return 0
        with self.lock():
            return self._waiting(self.all(REFUSED))

    def put_back(self, into: SpoolFile) -> int:
        """Move what was refused behind what waits in a file, under the lock; it can be repeated."""
        moved = 0
        for file in self.all(REFUSED):
            moved += self.opened(file, lambda file: _move(file, into))
        return moved

    def state(self) -> SpoolState:
        """What lies here."""
        if not self.folder.is_dir():
            return SpoolState(folder=str(self.folder))
        with self.lock():
            waiting = self._waiting(self.all(SUFFIX))
            refused = {file.path.name: self._waiting([file]) for file in self.all(REFUSED)}
            return SpoolState(
                folder=str(self.folder),
                waiting=waiting,
                refused=sum(refused.values()),
                refused_files=tuple(name for name, count in refused.items() if count),
                damaged_files=self.unreadable(),
            )

    def _waiting(self, files: list[SpoolFile]) -> int:
        return sum(self.opened(file, lambda file: file.waiting) for file in files)


def _move(file: SpoolFile, into: SpoolFile) -> int:
    moved = 0
    for _, record in file.records():
        if not into.holds(record):  # put back before, by one who died before the end
            into.append(record)
        moved += 1
    file.rewrite(lambda _: None)  # leaves no byte of them
    file.remove()
    return moved


def token_of(stem: str) -> bytes | None:
    """The token in a file's name; None for a file that is not one of ours."""
    try:
        token = bytes.fromhex(stem.rpartition("-")[2])
    except ValueError:
        return None
    return token if len(token) == TOKEN_BYTES else None
