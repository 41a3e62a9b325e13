"""Spaces as wholes: deletes one wherever this machine keeps it, lets old turns go in all."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from uuid import UUID

from recollect.adapters.wiring.stores import (
    is_server,
    open_fleet,
    open_spool,
    open_store,
    spool_state,
    sqlite_path,
)
from recollect.core.upkeep.certificates import extended
from recollect.core.upkeep.forget import DeletesItself, certify_deletion, delete_space
from recollect.core.values.history import SpaceId
from recollect.core.values.upkeep import Certificate
from recollect.errors import StoreError
from recollect.system.config import Settings
from recollect.system.config.places import embedding_cache_file

if TYPE_CHECKING:
    from recollect.adapters.stores.postgres import PostgresFleet

_DAY_SECONDS: Final = 86_400.0
_ID_CHARS: Final = 36
"""Of a tenant's id, which stands before the names of its spaces."""
_MOST_NAMED: Final = 3
_PAGE: Final = 500
_SPOOL_COVERS: Final = "the spool of this machine"
_TRANSCRIPTS: Final = (
    "transcripts of Recollect's own agent: `recollect memory forget --session NAME` removes them"
)
_BLOCKS: Final = "blocks of the disk on which the file stood, and processes that have it open"


async def delete_stored_space(
    settings: Settings, space: SpaceId, url: str | None, *, must_exist: bool = True
) -> Certificate:
    """Delete a space from its store and from the spool of this machine; StoreError where there is
    none of this name, if it `must_exist`."""
    key = settings.store.key
    if must_exist and url is not None and is_server(url):
        await _require_space(settings, space, url)
    store = await open_store(url, space=space, create=not must_exist, key=key)
    try:
        if isinstance(store, DeletesItself):
            certificate = await delete_space(store, named=space, now=time.time())
            cannot: tuple[str, ...] = ()
        else:
            stats = await store.stats()
            counts = {"segments": stats.segments, "passages": stats.passages, "facts": stats.facts}
            certificate = certify_deletion(
                space, counts, engine=stats.engine, now=time.time(), in_database=False
            )
            cannot = (_BLOCKS,)
    finally:
        await store.close()
    if not is_server(url):
        await asyncio.to_thread(_remove_files, space, url)
    spool = await open_spool(url, space=space, key=key)
    try:
        spooled = await spool.rewrite(lambda _: None)
    finally:
        await spool.close()
    return extended(
        certificate,
        counts={"spooled batches": spooled} if spooled else {},
        covers=(_SPOOL_COVERS,),
        cannot=(*cannot, _TRANSCRIPTS),
    )


async def _require_space(settings: Settings, space: SpaceId, url: str) -> None:
    """StoreError, with what to do, unless there is a space of this name that is no tenant's."""
    fleet = await open_fleet(url)
    try:
        if await fleet.has_space(space):
            owners = await _owners(fleet, [space])
            if not owners:
                return
            name = shlex.quote(space[_ID_CHARS + 1 :])
            raise StoreError(
                f"it is a tenant's: `recollect space delete {name} --tenant {owners[0]}`"
            )
        if (await spool_state(url, space=space, key=settings.store.key)).waiting:
            return
        named = [name for name in await fleet.spaces() if name[_ID_CHARS:] == f"/{space}"]
        owners = await _owners(fleet, named[:_MOST_NAMED])
    finally:
        await fleet.close()
    listed = "`recollect space list` shows them"
    if owners:
        raise StoreError(
            f"no space of your own has this name, but of a tenant ({', '.join(owners)}): give "
            f"--tenant NAME; {listed}"
        )
    raise StoreError(f"there is no space of this name: {listed}")


async def _owners(fleet: PostgresFleet, spaces: Sequence[SpaceId]) -> list[str]:
    """The tenants whose spaces these are, by name, as a shell takes it."""
    found = []
    for space in spaces:
        with suppress(ValueError):
            owner = await fleet.tenants().tenant(UUID(space[:_ID_CHARS]))
            found += [] if owner is None else [shlex.quote(owner.name)]
    return sorted(found)


def _remove_files(space: SpaceId, url: str | None) -> None:
    path = sqlite_path(url, space)
    cache = embedding_cache_file(path, space)
    for file in (path, cache):
        for ending in ("-wal", "-shm", "-journal", ""):
            file.with_name(file.name + ending).unlink(missing_ok=True)
