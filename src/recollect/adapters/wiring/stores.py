"""Opens stores and spools by URL, and imports a driver only when a store needs it."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeGuard
from uuid import UUID

from recollect.adapters.wiring import secrets
from recollect.core.rules.identity import space_secret
from recollect.errors import (
    MissingExtra,
    RecollectError,
    SettingsError,
    StoreCorrupt,
    StoreError,
    WrongSecret,
)
from recollect.system.config import Settings
from recollect.system.durable import create_file, own_secret
from recollect.system.places import (
    installation_secret_file,
    space_file,
    spaces_folder,
    spool_folder,
)

if TYPE_CHECKING:
    from recollect.adapters.stores.postgres.store import PostgresFleet, PostgresStore
    from recollect.adapters.stores.spool import FileSpool
    from recollect.adapters.stores.sqlite import SQLiteStore
    from recollect.core.engine.archive import DurableArchive
    from recollect.core.ports import Store
    from recollect.core.values.history import SpaceId
    from recollect.core.values.upkeep import Certificate, ScrubResult, SpaceSummary, SpoolState

LOG = logging.getLogger(__name__)
POSTGRES_SCHEMES = ("postgresql://", "postgres://")
SQLITE_SCHEME = "sqlite://"
_ID_CHARS: Final = 36  # of a UUID
"""Characters of a UUID."""
_SPOOL_COVERS: Final = "the spool of this machine"
_TRANSCRIPTS: Final = (
    "transcripts of Recollect's own agent: `recollect memory forget --session NAME` removes them"
)
_UNCOUNTED: Final = "counts of its content: the file was damaged"
_COUNTED: Final = ("segments", "passages", "facts")
_BLOCKS: Final = "disk blocks of the deleted file, and processes that have it open"


def data_secret(url: str | None) -> bytes:
    """Return the secret that, with a space's name, keys the ids of this store. The first call for a
    database reads it there. If the database is down, RECOLLECT_SECRET is used, which is right
    unless it was rotated; otherwise `unlock` fails later. Raise WrongSecret if it is wrong."""

    async def read_secret(url: str) -> None:
        try:
            await (await open_store(url, space="", pool_size=1, makes_ids=True)).close()
        except WrongSecret:
            raise
        except StoreError as error:
            LOG.debug("the data secret could not be read: %s", error)

    secret = secrets.deployment_secret()
    if not secret or not is_server(url):
        return secret
    if (url, secret) not in secrets.DATA_SECRETS:
        with ThreadPoolExecutor(1) as thread:  # the caller's thread may run an event loop
            thread.submit(asyncio.run, read_secret(url)).result()
    return secrets.DATA_SECRETS.setdefault((url, secret), secret)


def installation_secret(url: str | None) -> bytes:
    """Return the data secret of this store, else a random secret in the data folder, for this user
    only."""
    if not (secret := data_secret(url)):
        secret = own_secret(installation_secret_file()).encode()
        _compare_with_last(space_secret("last", secret).hex(), spaces_folder())
    return secret


@cache
def _compare_with_last(mark: str, memories: Path) -> None:
    """Log if the memories of this data folder were last used with another secret."""
    file = memories / "secret.mark"
    with suppress(OSError):  # without memories, there is no folder
        if not create_file(file, mark.encode()) and file.read_text() != mark:
            LOG.warning(
                "%s is new, damaged or of another installation: the gateway begins new sessions "
                "for clients that it recognizes by their API key, and stores their histories "
                "again. Restore the file, or remove %s to keep this secret",
                installation_secret_file(),
                file,
            )


@cache
def _seals_of_this_process() -> bytes:
    LOG.warning(
        "cannot write a secret to the data folder: other processes will not recognize the answers "
        "that this process's memory tools gave"
    )
    return os.urandom(32)


def seal_secret(space: SpaceId, url: str | None) -> bytes:
    """Derive the key of a space's seals from the installation's secret."""
    try:
        secret = installation_secret(url)
    except (OSError, RecollectError):
        secret = _seals_of_this_process()
    return space_secret(f"seals of {space}", secret)


async def open_store(
    url: str | None,
    *,
    space: SpaceId,
    create: bool = True,
    key: str | None = None,
    pool_size: int = 8,
    makes_ids: bool = False,
) -> Store:
    """Open the store of a space by its URL. None means the space's own file in the data folder.

    All stores of this process on one server share `pool_size` connections. `key` names the source
    of an encrypted file's key. With `makes_ids`, raise WrongSecret if the ids of the stored
    messages were made with another secret.
    """
    store: PostgresStore | SQLiteStore
    if is_server(url):
        postgres = await asyncio.to_thread(
            import_module, "recollect.adapters.stores.postgres.store"
        )
        store = await postgres.PostgresStore.open_shared(url, space=space, pool_size=pool_size)
    else:
        from recollect.adapters.stores.sqlite import SQLiteStore
        from recollect.adapters.stores.sqlite.connection import read_key

        path, file_key = sqlite_path(url, space), None if key is None else read_key(key)
        store = await SQLiteStore.open(path, space=space, key=file_key, create=create)
    return await secrets.check_secret(store, url) if makes_ids else store


async def scrub_store(store: Store, *, admin_url: str | None = None) -> ScrubResult:
    """Overwrite deleted content in a store's files. `admin_url` logs in as the tables' owner."""
    if admin_url is None:
        return await store.scrub()
    from recollect.adapters.stores.postgres.store import PostgresStore

    if not isinstance(store, PostgresStore):
        raise SettingsError("--admin-url is for PostgreSQL: leave it out")
    return await store.scrub(admin_url)


async def open_fleet(
    url: str, *, pool_size: int = 8, app_role: str = "recollect_app", makes_ids: bool = False
) -> PostgresFleet:
    """Open the spaces of a server. With `makes_ids`, raise WrongSecret as `open_store` does."""
    postgres = await asyncio.to_thread(import_module, "recollect.adapters.stores.postgres.store")
    fleet: PostgresFleet = await postgres.PostgresFleet.open(
        url, pool_size=pool_size, app_role=app_role
    )
    return await secrets.check_secret(fleet, url, draws=True) if makes_ids else fleet


async def list_spaces(url: str | None, *, key: str | None = None) -> tuple[SpaceSummary, ...]:
    """List the spaces in the data folder, on a server or in a file, in order of last use."""
    if is_server(url):
        summaries = await _spaces_of_server(url)
    else:
        paths = sorted(spaces_folder().glob("*.db")) if url is None else [sqlite_path(url, "")]
        if url is not None and not paths[0].is_file():
            raise StoreError(f"there is no memory at {paths[0]}: check the path")
        summaries = await asyncio.to_thread(_spaces_in, paths, key)
    return tuple(
        sorted(summaries, key=lambda summary: (summary.last_said_at or 0.0, summary.space or ""))
    )


def _spaces_in(paths: Sequence[Path], key: str | None) -> list[SpaceSummary]:
    from recollect.adapters.stores.sqlite.check import read_summary
    from recollect.adapters.stores.sqlite.connection import read_key

    file_key = None if key is None else read_key(key)
    return [read_summary(path, key=file_key) for path in paths]


async def _spaces_of_server(url: str) -> list[SpaceSummary]:
    from recollect.core.values.upkeep import SpaceSummary

    summaries: list[SpaceSummary] = []
    async with await open_fleet(url) as fleet:
        for name in await fleet.spaces():
            sessions = await (await fleet.space(name)).sessions()
            said_at_times = [
                summary.last_said_at for summary in sessions if summary.last_said_at is not None
            ]
            summaries.append(
                SpaceSummary(
                    space=name,
                    sessions=len(sessions),
                    segments=sum(summary.segments for summary in sessions),
                    last_said_at=max(said_at_times, default=None),
                )
            )
    return summaries


async def open_spool(url: str | None, *, space: SpaceId, key: str | None = None) -> FileSpool:
    """Open the spool in which batches wait while this store is down, encrypted like the store. The
    spool's name contains store and space: a batch for one server must never reach another."""
    # Run this in a thread, because the folder may be on a disk that hangs.
    name = f"{space}\0{await asyncio.to_thread(_store_name, url, space)}"
    secret = secrets.deployment_secret()
    with suppress(WrongSecret):  # commands that only read or remove need no secret
        secret = await asyncio.to_thread(data_secret, url)
    maker = space_secret("spool", secret).hex()[:16]
    from recollect.adapters.stores.spool import FileSpool
    from recollect.adapters.stores.sqlite.connection import read_key

    file_key = None if key is None else await asyncio.to_thread(read_key, key)
    return await FileSpool.open(spool_folder(), space=name, key=file_key, maker=maker)


async def spool_state(url: str | None, *, space: SpaceId, key: str | None = None) -> SpoolState:
    """Describe the spool of a space on this machine, even if the store is down."""
    spool = await open_spool(url, space=space, key=key)
    try:
        return await spool.state()
    finally:
        await spool.close()


async def store_spooled(
    settings: Settings, space: SpaceId, url: str | None, *, seconds: float
) -> None:
    """Write this machine's spooled batches to the store, unless a running process does."""
    archive = open_archive(settings, space, url)
    try:
        await archive.settle(seconds)
    finally:
        await archive.close()


def _store_name(url: str | None, space: SpaceId) -> str:
    """Return the same name for every URL of a store: a file's real path, or a server's database."""
    if not is_server(url):
        return str(sqlite_path(url, space).resolve())
    from recollect.adapters.stores.postgres.driver import server_name

    return server_name(url)


def sqlite_path(url: str | None, space: SpaceId) -> Path:
    """Return the file for a SQLite URL, a path or None."""
    if url is None:
        return space_file(space)
    if url.startswith(SQLITE_SCHEME):
        path = url.removeprefix(SQLITE_SCHEME)
        # sqlite:///relative.db and sqlite:////absolute.db, as other programs read them
        url = path.removeprefix("/")
    elif "://" in url:
        raise SettingsError(
            "store.url must be a file, sqlite:///PATH or postgresql://USER@HOST/DATABASE, not "
            f"{url.split('://')[0]}://"
        )
    return Path(url).expanduser()


def is_server(url: str | None) -> TypeGuard[str]:
    return url is not None and url.startswith(POSTGRES_SCHEMES)


def require_server(url: str | None) -> str:
    """Return the URL of a service's store. Raise SettingsError for a URL without a server."""
    if not is_server(url):
        raise SettingsError(
            "a service keeps everything in PostgreSQL: set store.url, or give "
            "--store postgresql://USER@HOST/DATABASE"
        )
    return url


def is_stored(url: str | None, space: SpaceId) -> bool:
    """Return True if there may be stored messages: the store is a server, or its file exists."""
    return is_server(url) or sqlite_path(url, space).exists()


def open_archive(
    settings: Settings,
    space: SpaceId,
    url: str | None,
    open_space: Callable[[SpaceId], Awaitable[Store]] | None = None,
) -> DurableArchive:
    """Return an archive that opens its store with the first request. With `open_space`, the archive
    has no spool: a node of a service stores nothing locally, and clients repeat failed requests."""
    from recollect.core.engine.archive import DurableArchive

    if open_space is not None:
        return DurableArchive(lambda: open_space(space), None, settings.store, sent_again=True)
    key = settings.store.key
    # Report missing drivers, missing keys and wrong URLs now, not in the middle of a turn.
    if is_server(url):
        require_driver()
    else:
        import recollect.adapters.stores.sqlite  # noqa: F401

        sqlite_path(url, space)
    if key is not None:
        from recollect.adapters.stores.sqlite.connection import check_encryption, read_key

        check_encryption()
        read_key(key)
    return DurableArchive(
        lambda: open_store(
            url, space=space, key=key, pool_size=settings.store.pool_size, makes_ids=True
        ),
        lambda: open_spool(url, space=space, key=key),
        settings.store,
    )


def require_driver() -> None:
    """Raise MissingExtra if PostgreSQL's driver is missing, without a slow import."""
    if find_spec("psycopg") is None:
        raise MissingExtra(feature="PostgreSQL", extra="postgres")


async def delete_stored_space(
    settings: Settings, space: SpaceId, url: str | None, *, must_exist: bool = True
) -> Certificate:
    """Delete a space. If `must_exist` is true, raise StoreError unless a space has this name."""
    from recollect.core.upkeep.certificates import extend_certificate
    from recollect.core.upkeep.forget import DeletesItself, certify_deletion, delete_space

    key = settings.store.key
    if must_exist and is_server(url):
        await _require_space(settings, space, url)
    certificate: Certificate | None = None
    counts: dict[str, int] = {}
    engine, cannot = "SQLite", () if is_server(url) else (_BLOCKS,)
    try:
        store = await open_store(url, space=space, create=not must_exist, key=key)
        try:
            if isinstance(store, DeletesItself):
                certificate = await delete_space(store, name=space, now=time.time())
            else:
                stats = await store.stats()
                engine = stats.engine
                counts = {name: getattr(stats, name) for name in _COUNTED}
        finally:
            await store.close()
    except StoreCorrupt as error:
        if is_server(url):
            raise
        if url is not None:
            path = sqlite_path(url, space)
            raise StoreCorrupt(
                f"{path} cannot be read, and may belong to another program: delete the file itself"
            ) from error
        cannot = (_UNCOUNTED, *cannot)
    if certificate is None:
        certificate = certify_deletion(
            space, counts, engine=engine, now=time.time(), in_database=False
        )
        await asyncio.to_thread(_remove_files, space, url)
    spool = await open_spool(url, space=space, key=key)
    try:
        spooled_count = await spool.rewrite(lambda _: None)
    finally:
        await spool.close()
    return extend_certificate(
        certificate,
        counts={"spooled batches": spooled_count} if spooled_count else {},
        covers=(_SPOOL_COVERS,),
        cannot=(*cannot, _TRANSCRIPTS),
    )


async def _require_space(settings: Settings, space: SpaceId, url: str) -> None:
    """Raise StoreError unless a space of this name exists and belongs to no tenant."""
    async with await open_fleet(url) as fleet:
        exists, owner = await fleet.has_space(space), None
        with suppress(ValueError):  # the names of tenants' spaces start with the tenant's id
            owner = await fleet.tenants().tenant(UUID(space[:_ID_CHARS])) if exists else None
    if owner is not None:
        name = shlex.quote(space[_ID_CHARS + 1 :])
        tenant = shlex.quote(owner.name)
        raise StoreError(
            f"the space belongs to a tenant: run `recollect space delete {name} --tenant {tenant}`"
        )
    if not exists and not (await spool_state(url, space=space, key=settings.store.key)).waiting:
        raise StoreError(
            "no space has this name: `recollect space list` lists the spaces. Pass --tenant NAME "
            "for the space of a tenant"
        )


def _remove_files(space: SpaceId, url: str | None) -> None:
    path = sqlite_path(url, space)
    for ending in ("-wal", "-shm", "-journal", ""):
        path.with_name(path.name + ending).unlink(missing_ok=True)
