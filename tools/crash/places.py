"""The stores that the harness works on, by name, and how a child opens one.

A place is an opener and a location, both strings, so that a child started with nothing but
its arguments opens the same store. Tests name openers of their own, broken ones among them.
Always holds: no two scenarios share a space.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import itertools
import os
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from recollect.core.ports import Store
from recollect_bench.postgres_server import PostgresServer, Version

_HERE: Final = "tools.crash.places"
_SQLITE_MODULES: Final = (
    "recollect.adapters.wiring",
    "recollect.adapters.stores.sqlite.connection",
)
_POSTGRES_MODULES: Final = (
    "recollect.adapters.wiring",
    "recollect.adapters.stores.postgres.store",
)
_SERVERS: Final[dict[str, Version]] = {"pg18": 18, "pg16": 16}
STORES: Final = ("sqlite", "encrypted", *_SERVERS)
KEY_SUFFIX: Final = ".key"
HOME: Final = "RECOLLECT_HOME"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A store that several processes can open."""

    name: str
    opener: str
    """`module:function`, called with location and space."""
    location: str
    space: str = "crash"
    modules: tuple[str, ...] = ()
    """What a child needs and should have imported before it is forked."""

    def arguments(self) -> list[str]:
        """The options by which a child opens it."""
        return ["--opener", self.opener, "--location", self.location, "--space", self.space]

    async def open(self) -> Store:
        """Open it in this process."""
        return await open_place(self.opener, self.location, self.space)


async def open_place(opener: str, location: str, space: str) -> Store:
    """Open a store by the name of its opener."""
    module, _, function = opener.partition(":")
    found: Callable[[str, str], Awaitable[Store]]
    found = getattr(importlib.import_module(module), function)
    return await found(location, space)


async def open_plain(location: str, space: str) -> Store:
    """A file or a URL, as `recollect` opens it."""
    from recollect.adapters.wiring import open_store

    return await open_store(location, space=space, makes_ids=True)


async def open_encrypted(location: str, space: str) -> Store:
    """An encrypted file, its key in a file beside it."""
    from recollect.adapters.wiring import open_store

    return await open_store(location, space=space, key=f"file:{location}{KEY_SUFFIX}")


class Site:
    """Where the places of one kind of store are made, one for each scenario."""

    def __init__(self, name: str, folder: Path, server: PostgresServer | None) -> None:
        self.name = name
        self.folder = folder
        self.server = server
        self._numbers = itertools.count(1)
        self._url = ""
        if server is not None:
            self._url = asyncio.run(server.migrated_database()).app_url

    def place(self) -> Place:
        """A new, empty store."""
        space = f"crash-{next(self._numbers)}"
        if self.server is not None:
            return Place(
                name=self.name,
                opener=f"{_HERE}:open_plain",
                location=self._url,
                space=space,
                modules=_POSTGRES_MODULES,
            )
        location = self.folder / f"{self.name}-{space}.db"
        if self.name == "encrypted":
            key = location.with_name(location.name + KEY_SUFFIX)
            key.touch(mode=0o600)
            key.write_text(f"the passphrase of {space}\n")
        return Place(
            name=self.name,
            opener=f"{_HERE}:open_{'encrypted' if self.name == 'encrypted' else 'plain'}",
            location=str(location),
            space=space,
            modules=_SQLITE_MODULES,
        )

    def home(self) -> Path:
        """A data folder of its own, for an engine with its spool."""
        home = self.folder / f"{self.name}-home-{next(self._numbers)}"
        home.mkdir()
        return home


@contextlib.contextmanager
def engine_home(folder: Path) -> Iterator[None]:
    """The data folder of engines, for as long as the block lasts."""
    before = os.environ.get(HOME)
    os.environ[HOME] = str(folder)
    try:
        yield
    finally:
        del os.environ[HOME]
        if before is not None:
            os.environ[HOME] = before


@contextlib.contextmanager
def site(name: str, folder: Path) -> Iterator[Site]:
    """The site of a kind of store; its server, where it has one, ends with the block."""
    if name not in _SERVERS:
        yield Site(name, folder, None)
        return
    with PostgresServer(_SERVERS[name]) as server:
        yield Site(name, folder, server)
