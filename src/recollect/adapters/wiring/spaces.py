"""Deletes a space from its store and from the spool of this machine."""

from __future__ import annotations

import asyncio
import shlex
import time
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
from recollect.system.config.places import remove_embedding_cache

if TYPE_CHECKING:
    pass

_ID_CHARS: Final = 36
_SPOOL_COVERS: Final = "the spool of this machine"
_TRANSCRIPTS: Final = (
    "transcripts of Recollect's own agent: `recollect memory forget --session NAME` removes them"
)
_BLOCKS: Final = "blocks of the disk on which the file stood, and processes that have it open"


async def delete_stored_space(
    settings: Settings, space: SpaceId, url: str | None, *, must_exist: bool = True
) -> Certificate:
    """Delete a space; StoreError if it `must_exist` and no space has this name."""
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
    """Raise StoreError unless a space of this name exists and belongs to no tenant."""
    fleet = await open_fleet(url)
    try:
        found, owner = await fleet.has_space(space), None
        with suppress(ValueError):  # the id of a tenant is before the names of its spaces
            owner = await fleet.tenants().tenant(UUID(space[:_ID_CHARS])) if found else None
    finally:
        await fleet.close()
    if owner is not None:
        name = shlex.quote(space[_ID_CHARS + 1 :])
        tenant = shlex.quote(owner.name)
        raise StoreError(
            f"the space belongs to a tenant: run `recollect space delete {name} --tenant {tenant}`"
        )
    if not found and not (await spool_state(url, space=space, key=settings.store.key)).waiting:
        raise StoreError(
            "no space has this name: `recollect space list` shows them. Pass --tenant NAME for "
            "the space of a tenant"
        )


def _remove_files(space: SpaceId, url: str | None) -> None:
    path = sqlite_path(url, space)
    remove_embedding_cache(path, space)
    for ending in ("-wal", "-shm", "-journal", ""):
        path.with_name(path.name + ending).unlink(missing_ok=True)
