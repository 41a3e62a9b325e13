"""Settings into an engine: the one place that knows which adapter stands behind which seam.

What is only needed to build one is imported when it is built: a command that looks into a store
does not load the engine, and nothing loads a driver that is not used.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recollect.config import Settings, load_settings
from recollect.config.places import space_file, spool_folder
from recollect.errors import SettingsError
from recollect.ports import Clock, Recaller, Store, TokenCounter
from recollect.values.history import SpaceId
from recollect.values.upkeep import ScrubResult, SpoolState

if TYPE_CHECKING:
    from recollect.blocking import BlockingEngine
    from recollect.engine import Engine
    from recollect.engine.archive import DurableArchive
    from recollect.stores.postgres import PostgresFleet
    from recollect.stores.spool import FileSpool
    from recollect.stores.spool.encrypted import EncryptedSpool

POSTGRES_SCHEMES = ("postgresql://", "postgres://")
SQLITE_SCHEME = "sqlite://"
SQLITE_OPEN_SECONDS = 1.0
"""A file is at hand, but its tables may have to be made; a server answers soon or is away."""
SECRET_VARIABLE = "RECOLLECT_SECRET"  # noqa: S105 - the name of a variable


def open_memory(
    *,
    space: SpaceId = "default",
    store: str | Path | None = None,
    config: Path | str | None = None,
    openclaw: Path | str | None = None,
    clock: Clock | None = None,
    recaller: Recaller | None = None,
    counter: TokenCounter | None = None,
    off_the_loop: bool = False,
    settings: Settings | Mapping[str, Any] | None = None,
    **arguments: Any,
) -> Engine:
    """An engine for one space, with settings from arguments, environment and files.

    Top-level settings are arguments (`window_tokens=200_000`, `preset="seeds"`); deeper ones go
    into `settings` by their dotted names: `settings={"trim.protect_messages": 8}`. A `Settings`
    is taken as it is, and nothing else is read. `store` is where memory is kept, as the setting
    `store.url`: a file or a `postgresql://` URL. It is opened with the first request, so that a
    store that is away stops nobody; `ingest.enabled = false` keeps nothing at all.
    """
    from recollect.engine import Engine
    from recollect.engine.housekeeping import in_process_jobs
    from recollect.providers.overflow import recognise_overflow

    if isinstance(settings, Settings):
        if arguments or config or openclaw:
            raise SettingsError("give either a Settings or what it is to be made of, not both")
        chosen = settings
    else:
        chosen = load_settings(
            arguments={**(settings or {}), **arguments},
            file=None if config is None else Path(config),
            openclaw=None if openclaw is None else Path(openclaw),
        ).settings
    archive = None
    if chosen.ingest.enabled:
        archive = _archive(chosen, space, str(store) if store is not None else chosen.store.url)
    return Engine(
        chosen,
        space=space,
        clock=clock,
        recaller=recaller,
        counter=counter,
        recognise_overflow=recognise_overflow,
        archive=archive,
        jobs=in_process_jobs(archive, chosen, clock) if archive else None,
        deployment_secret=deployment_secret(),
        off_the_loop=off_the_loop,
    )


def open_blocking_memory(**arguments: Any) -> BlockingEngine:
    """As `open_memory`, for code without an event loop."""
    from recollect.blocking import BlockingEngine

    return BlockingEngine(open_memory(**arguments))


def deployment_secret() -> bytes:
    """What keys the hashes of all spaces of a deployment beside their names; may be empty."""
    return os.environ.get(SECRET_VARIABLE, "").encode()


async def open_store(
    url: str | None, *, space: SpaceId, create: bool = True, key: str | None = None
) -> Store:
    """The store of a space by its URL.

    None is the space's own file in the data folder; a path or `sqlite:///PATH` another file;
    `postgresql://…` a server. `key` says where the key of an encrypted file comes from.
    """
    if url is not None and url.startswith(POSTGRES_SCHEMES):
        from recollect.stores.postgres import PostgresStore

        return await PostgresStore.open(url, space=space)
    from recollect.stores.sqlite import SQLiteStore
    from recollect.stores.sqlite.keys import read_key

    return await SQLiteStore.open(
        sqlite_path(url, space),
        space=space,
        key=None if key is None else read_key(key),
        create=create,
    )


async def scrub_store(store: Store, *, admin_url: str | None = None) -> ScrubResult:
    """Scrub a store; on PostgreSQL as the owner of its tables, where a URL is given."""
    if admin_url is None:
        return await store.scrub()
    from recollect.stores.postgres import PostgresStore

    if not isinstance(store, PostgresStore):
        raise SettingsError("--admin-url is for PostgreSQL; a file needs no owner: leave it out")
    return await store.scrub(admin_url)


async def open_fleet(url: str) -> PostgresFleet:
    """A server with many spaces."""
    from recollect.stores.postgres import PostgresFleet

    return await PostgresFleet.open(url)


async def open_spool(
    url: str | None, *, space: SpaceId, key: str | None = None
) -> FileSpool | EncryptedSpool:
    """Where batches wait while this store is away; encrypted like the store.

    Named by the store and the space: what waits for one server must never reach another.
    """
    # names are looked up and files opened off the loop: a folder may be on a disk that hangs
    name = f"{space}\0{await asyncio.to_thread(_named, url, space)}"
    if key is None:
        from recollect.stores.spool import FileSpool

        return await asyncio.to_thread(FileSpool.open, spool_folder(), space=name)
    from recollect.stores.spool.encrypted import EncryptedSpool
    from recollect.stores.sqlite.keys import read_key

    found = await asyncio.to_thread(read_key, key)
    return await EncryptedSpool.open(spool_folder(), space=name, key=found)


async def spool_state(url: str | None, *, space: SpaceId, key: str | None = None) -> SpoolState:
    """What lies in the spool of a space on this machine; the store need not be reachable."""
    spool = await open_spool(url, space=space, key=key)
    try:
        return await spool.state()
    finally:
        await spool.close()


def _named(url: str | None, space: SpaceId) -> str:
    """A store's own name, however it is spelled: a file's real path, or a server's database."""
    if url is None or not url.startswith(POSTGRES_SCHEMES):
        return str(sqlite_path(url, space).resolve())
    from recollect.stores.spool.naming import server_name

    return server_name(url, os.environ)


def sqlite_path(url: str | None, space: SpaceId) -> Path:
    """The file that a SQLite URL, a path or nothing names."""
    if url is None:
        return space_file(space)
    if url.startswith(SQLITE_SCHEME):
        named = url.removeprefix(SQLITE_SCHEME)
        # sqlite:///relative.db and sqlite:////absolute.db, as everybody else reads them
        url = named.removeprefix("/")
    elif "://" in url:
        raise SettingsError(
            f"store.url: {url.split('://')[0]}:// is no store; give a file, sqlite:///PATH or "
            "postgresql://USER@HOST/DATABASE"
        )
    return Path(url).expanduser()


def _archive(settings: Settings, space: SpaceId, url: str | None) -> DurableArchive:
    from recollect.engine.archive import DurableArchive

    key = settings.store.key
    # Drivers are imported, and wrong URLs told, now and not in the middle of the first turn.
    open_seconds = settings.store.deadline_seconds
    if url is not None and url.startswith(POSTGRES_SCHEMES):
        import recollect.stores.postgres
    else:
        import recollect.stores.sqlite  # noqa: F401

        sqlite_path(url, space)
        open_seconds = max(open_seconds, SQLITE_OPEN_SECONDS)
    return DurableArchive(
        lambda: open_store(url, space=space, key=key),
        lambda: open_spool(url, space=space, key=key),
        deadline_seconds=settings.store.deadline_seconds,
        open_seconds=open_seconds,
    )
