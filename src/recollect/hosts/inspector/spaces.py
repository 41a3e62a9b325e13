"""The memories that the inspector shows: those of this machine. Each page opens its store like a
command does, so a page always shows the current content."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from recollect.adapters.session.removal import RemovalPlace
from recollect.adapters.wiring import is_server, list_spaces, open_spool, open_store
from recollect.adapters.wiring.stores import is_stored
from recollect.errors import RecollectError
from recollect.hosts.inspect.searching import fact_book
from recollect.hosts.inspect.sessions import engine_without_models
from recollect.system.places import spaces_folder

if TYPE_CHECKING:
    from recollect.core.engine import Engine
    from recollect.core.facts.book import FactBook
    from recollect.core.values.upkeep import SpaceSummary, SpoolState
    from recollect.system.config import Settings


class UnknownSpace(RecollectError):  # noqa: N818 - says what it is
    """No memory has the name that a page was asked for."""

    def __str__(self) -> str:
        return "no memory has this name: choose one in the list of sessions"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSpace(RemovalPlace):
    """A memory that a page reads, and that its actions change."""

    settings: Settings
    spool: SpoolState | None = None
    """State of this machine's spool; None if there is no spool."""

    @property
    def facts(self) -> FactBook:
        """The facts, to read and change them."""
        return fact_book(self.store, self.settings)


class Spaces(Protocol):
    """The memories that a visitor may see."""

    settings: Settings
    where: str
    """Location of the memories, in a few words."""
    is_own_machine: bool
    """True if the visitor may see the checks of this installation."""

    async def summaries(self) -> tuple[SpaceSummary, ...]:
        """List the memories, the last used one first."""

    def open(self, name: str) -> AbstractAsyncContextManager[OpenSpace]:
        """Open the memory of this name. Raise UnknownSpace if it does not exist."""

    def engine(self, name: str) -> AbstractAsyncContextManager[Engine]:
        """Open an engine on the memory of this name, for an undo."""

    async def note(self, act: str, name: str) -> None:
        """Record that something was removed from a memory."""


class LocalSpaces:
    """The memories of this machine, or of the store in the settings."""

    where = "this machine only"
    is_own_machine = True

    def __init__(self, settings: Settings) -> None:
        self.settings: Settings = settings
        self._url = settings.store.url

    async def summaries(self) -> tuple[SpaceSummary, ...]:
        if self._url is None and not spaces_folder().is_dir():
            return ()
        spaces = await list_spaces(self._url, key=self.settings.store.key)
        return tuple(reversed([space for space in spaces if space.space is not None]))

    @asynccontextmanager
    async def open(self, name: str) -> AsyncIterator[OpenSpace]:
        await self._require(name)
        key = self.settings.store.key
        async with AsyncExitStack() as exit_stack:
            store = await open_store(self._url, space=name, create=False, key=key)
            exit_stack.push_async_callback(store.close)
            spool = await open_spool(self._url, space=name, key=key)
            exit_stack.push_async_callback(spool.close)
            state = await spool.state()
            yield OpenSpace(
                space=name, store=store, settings=self.settings, spools=(spool,), spool=state
            )

    async def _require(self, name: str) -> None:
        is_known = bool(name) and is_stored(self._url, name)
        if is_known and is_server(self._url):  # opening an unknown space would create it
            is_known = any(space.space == name for space in await self.summaries())
        if not is_known:
            raise UnknownSpace

    @asynccontextmanager
    async def engine(self, name: str) -> AsyncIterator[Engine]:
        await self._require(name)
        async with engine_without_models(name, self._url, self.settings) as engine:
            yield engine

    async def note(self, act: str, name: str) -> None:
        """Do nothing: this machine has no audit log."""
