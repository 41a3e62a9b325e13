"""The spool of a space as files in a folder: what waits for a store that cannot take it.

Each process that spools has a file of its own, and takes over those of processes that died.
`SpaceFiles` owns the names, the lock and the records that a store refused; `FileSpool` who may
change which file when, off the event loop. Always holds: `append` is durable when it returns;
records of one process are handed over in the order they came; `rewrite` reaches the files of
processes that are alive, too; a record is set aside once, however often a process dies over it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Final, TypeVar

from recollect.errors import StoreUnavailable
from recollect.stores import durable
from recollect.stores.durable import REWRITE_SECONDS, STEP_SECONDS, LifeLock, space_lock
from recollect.stores.spool.spool_file import (
    DAMAGED,
    GREATEST_PAYLOAD_BYTES,
    LOG,
    REFUSED,
    SUFFIX,
    TOKEN_BYTES,
    SpoolFile,
)
from recollect.values.upkeep import SpoolState


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
            return sum(map(self._waiting, self.all(REFUSED)))

    def put_back(self, into: SpoolFile) -> int:
        """Move what was refused behind what waits in a file, under the lock; it can be repeated."""
        return sum(self.opened(file, partial(_move, into)) for file in self.all(REFUSED))

    def state(self) -> SpoolState:
        """What lies here."""
        if not self.folder.is_dir():
            return SpoolState(folder=str(self.folder))
        with self.lock():
            waiting = sum(map(self._waiting, self.all(SUFFIX)))
            refused = {file.path.name: self._waiting(file) for file in self.all(REFUSED)}
            return SpoolState(
                folder=str(self.folder),
                waiting=waiting,
                refused=sum(refused.values()),
                refused_files=tuple(name for name, count in refused.items() if count),
                damaged_files=self.unreadable(),
            )

    def _waiting(self, file: SpoolFile) -> int:
        return self.opened(file, lambda file: file.waiting)


def _move(into: SpoolFile, file: SpoolFile) -> int:
    moved = file.waiting
    for _, record in file.records():
        if not into.holds(record):  # put back before, by one who died before the end
            into.append(record)
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


T = TypeVar("T")
_ALIVE: Final = ".alive"
BUSY_SECONDS: Final = REWRITE_SECONDS + STEP_SECONDS
"""How long a step waits for others of its own process, each of which comes to an end itself."""
PAGE_BYTES: Final = 1 << 20
"""How much of what waits is read at once: an append waits for no more than that."""


class _Threads:
    """A few threads for the spools of all spaces; not the loop's own, which a disk that hangs
    would take from everybody else. They end when the last spool that used them is closed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: set[int] = set()
        self._executor: ThreadPoolExecutor | None = None
        os.register_at_fork(after_in_child=self._renew)

    async def run(self, user: int, work: Callable[[], T]) -> T:
        with self._lock:
            self._users.add(user)
            if self._executor is None:
                self._executor = ThreadPoolExecutor(4, thread_name_prefix="recollect-spool")
            running = asyncio.get_running_loop().run_in_executor(self._executor, work)
        return await running

    async def leave(self, user: int) -> None:
        """This spool is closed."""
        with self._lock:
            self._users.discard(user)
            if self._users or self._executor is None:
                return
            ended, self._executor = self._executor, None
        await asyncio.to_thread(ended.shutdown, wait=True)

    def _renew(self) -> None:
        self._lock, self._executor = threading.Lock(), None


_THREADS: Final = _Threads()


class FileSpool:
    """What waits of one space; see `recollect.ports.Spool`."""

    def __init__(self, folder: Path, *, space: str) -> None:
        self._folder = folder
        self._files = SpaceFiles(folder, space=space)
        self._owned: dict[str, tuple[SpoolFile, LifeLock]] = {}
        self._own: str | None = None
        self._closed = False
        self._threads = threading.Lock()
        self._draining = asyncio.Lock()

    @classmethod
    def open(cls, folder: Path, *, space: str) -> FileSpool:
        """The spool of a space in this folder; nothing is written before the first record."""
        spool = cls(folder, space=space)
        spool._blocking(spool._adopt)
        return spool

    @property
    def torn(self) -> int:
        """How many records were dropped because their writing was cut off."""
        return self._files.torn + sum(file.torn for file, _ in self._owned.values())

    @property
    def damaged(self) -> int:
        """How many damaged stretches were set aside, each in a file that ends in `.damaged`."""
        return self._files.damaged + sum(file.damaged for file, _ in self._owned.values())

    def unreadable_files(self) -> tuple[str, ...]:
        """The names of the files with what could not be read; only people can look into them."""
        return self._files.unreadable()

    async def set_aside(self, record: bytes, *, reason: str) -> None:
        """Keep a record that the store refuses apart, durable; it is never drained again."""
        LOG.warning("spool: a batch that the store refuses was set aside: %s", reason)
        await self._later(lambda: self._files.refuse(record))

    async def refused(self) -> int:
        """How many records are set aside because the store refused them."""
        return await self._later(self._files.refused)

    async def retry_refused(self) -> int:
        """Let what was refused wait again, behind all that waits; returns how many do."""
        return await self._later(self._retry_refused)

    async def state(self) -> SpoolState:
        """What lies in the spool of this space, of all processes."""
        return await self._later(lambda: replace(self._files.state(), torn=self.torn))

    async def append(self, record: bytes) -> None:
        """Keep a record, durable when this returns."""
        if len(record) > GREATEST_PAYLOAD_BYTES:
            raise StoreUnavailable("the spool takes no record of 4 GiB or more")
        await self._later(partial(self._append, record))

    async def scan(self, pick: Callable[[bytes], T | None]) -> list[T]:
        """What `pick` makes of the records that wait, in order, without None."""
        await self._later(self._adopt)
        found: list[T] = []
        read: dict[str, int] = {}
        while records := await self._later(partial(self._page, read)):
            # nobody's write waits for that
            found += await _THREADS.run(id(self), partial(_picked, pick, records))
        return found

    async def drain(self, take: Callable[[bytes], Awaitable[object]]) -> int:
        """Hand the records over, those of the oldest file first; see `ports.Spool`."""
        handed = 0
        async with self._draining:
            await self._later(self._adopt)
            while True:
                found = await self._later(self._first)
                if found is None:
                    return handed
                stem, number, record = found
                await take(record)
                await self._later(partial(self._take, stem, number))
                handed += 1

    async def rewrite(self, change: Callable[[bytes], bytes | None]) -> int:
        """Replace each record by what `change` makes of it, in every file of the space."""
        return await self._later(lambda: self._rewrite(change))

    async def waiting(self) -> int:
        """How many records wait in this process's file and in those it took over."""
        return await self._later(self._count)

    async def close(self) -> None:
        """Close the files; what waits stays for the next to open the spool."""
        if not self._closed:
            await self._later(self._close, seconds=STEP_SECONDS)
        await _THREADS.leave(id(self))

    async def _later(self, work: Callable[[], T], *, seconds: float = BUSY_SECONDS) -> T:
        if self._closed:
            raise StoreUnavailable("the spool is closed")
        return await _THREADS.run(id(self), lambda: self._blocking(work, seconds=seconds))

    def _blocking(self, work: Callable[[], T], *, seconds: float = BUSY_SECONDS) -> T:
        """Run one piece of work at a time; what the system refuses is told as ours."""
        if not self._threads.acquire(timeout=seconds):
            raise StoreUnavailable("the spool is busy: its disk may hang; try again later")
        try:
            if self._closed:
                raise StoreUnavailable("the spool is closed")
            return work()
        except OSError as error:
            raise StoreUnavailable(
                f"the spool cannot be used: {error.strerror or type(error).__name__}; "
                "see to the disk that holds it"
            ) from error
        finally:
            self._threads.release()

    def _append(self, record: bytes) -> None:
        file = self._own_file()
        try:
            with self._files.lock(shared=True):
                if file.current:
                    file.append(record)
                    return
            with self._files.lock():
                file.load()
                file.append(record)
        except OSError:
            self._own = None  # what the disk made of it is not known: the next begins a new file
            raise

    def _own_file(self) -> SpoolFile:
        if self._own is not None and self._own in self._owned:
            return self._owned[self._own][0]
        durable.make_folder(self._folder)
        while True:
            token = secrets.token_bytes(TOKEN_BYTES)
            stem = self._files.new_stem(token)
            life = LifeLock.take(self._folder / (stem + _ALIVE))
            if life is not None:
                break
        file = SpoolFile(self._folder, stem, token)
        self._owned[stem] = file, life
        self._own = stem
        return file

    def _adopt(self) -> None:
        """Take over the files of processes that died, and clear away what is left of others."""
        for path in sorted(self._folder.glob(f"{self._files.prefix}-*")):
            if path.suffix not in (SUFFIX, _ALIVE) or path.stem in self._owned:
                continue
            token = token_of(path.stem)
            life = None if token is None else LifeLock.take(path.with_suffix(_ALIVE))
            if token is None or life is None:
                continue
            if path.with_suffix(SUFFIX).exists():
                self._owned[path.stem] = SpoolFile(self._folder, path.stem, token), life
            else:
                life.release(remove=True)

    @contextmanager
    def _loaded(self, *, seconds: float | None = None) -> Iterator[list[tuple[str, SpoolFile]]]:
        """Own files and those taken over, under the lock, the oldest first: their names say when
        they began."""
        files = [(stem, self._owned[stem][0]) for stem in sorted(self._owned)]
        if not files and seconds is None:
            yield []
            return
        with self._files.lock(seconds=seconds):
            for _, file in files:
                file.load()
            yield files

    def _first(self) -> tuple[str, int, bytes] | None:
        with self._loaded() as files:
            for stem, file in files:
                found = file.first()
                if found is not None:
                    return stem, *found
                self._dispose(stem)
        return None

    def _take(self, stem: str, number: int) -> None:
        owned = self._owned.get(stem)
        if owned is not None:
            with self._files.lock():
                owned[0].load()
                owned[0].take(number)

    def _rewrite(self, change: Callable[[bytes], bytes | None]) -> int:
        self._adopt()
        if not self._folder.is_dir():
            return 0
        with self._loaded(seconds=REWRITE_SECONDS) as files:
            changed = sum(file.rewrite(change) for _, file in files)
            # files of processes that are alive: those open the new one at their next step
            for file in (*self._files.all(SUFFIX), *self._files.all(REFUSED)):
                if file.stem not in self._owned:
                    changed += self._files.opened(file, lambda file: file.rewrite(change))
        return changed

    def _retry_refused(self) -> int:
        if not self._folder.is_dir():
            return 0
        self._adopt()  # so that what died before waits in front
        if not self._files.all(REFUSED):
            return 0
        file = self._own_file()
        with self._files.lock(seconds=REWRITE_SECONDS):
            file.load()
            return self._files.put_back(file)

    def _count(self) -> int:
        self._adopt()
        with self._loaded() as files:
            return sum(file.waiting for _, file in files)

    def _page(self, read: dict[str, int]) -> list[bytes]:
        """The next records that wait; `read` has the last number of each file, and is moved on."""
        page: list[bytes] = []
        size = 0
        with self._loaded() as files:
            for stem, file in files:
                for number, record in file.records(after=read.get(stem, -1)):
                    read[stem] = number
                    page.append(record)
                    size += len(record)
                    if size >= PAGE_BYTES:
                        return page
        return page

    def _close(self) -> None:
        try:
            with self._loaded() as files:
                for stem, file in files:
                    if not file.waiting:
                        self._dispose(stem, own=True)
        except StoreUnavailable:
            pass  # somebody holds the lock: all files stay, for the next to open the spool
        finally:
            self._closed = True
            for file, life in self._owned.values():
                file.close()
                life.release(remove=False)
            self._owned.clear()

    def _dispose(self, stem: str, *, own: bool = False) -> None:
        """Away with a drained file; this process's own is kept until it closes."""
        if stem == self._own and not own:
            return
        file, life = self._owned.pop(stem)
        self._files.count(file)
        file.remove()
        life.release(remove=True)


def _picked(pick: Callable[[bytes], T | None], records: list[bytes]) -> list[T]:
    return [result for result in map(pick, records) if result is not None]
