"""`recollect memory embed`: make the vectors that are missing, now, and show how far it is.

The same work as the jobs of the kind "embed" do in the background; for a memory that was just
imported, or a model that was just installed. It can be stopped at any time: what was made stays.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from recollect.errors import EmbedderError, RecollectError
from recollect.surfaces.cli.progress import ShownProgress
from recollect.surfaces.cli.store_options import Place, print_json, store_options, with_store

if TYPE_CHECKING:
    from recollect.ports import Embedder, Store

_MANY_PASSAGES = 1_000
"""From so many on, whoever waits is told at the start, on a terminal or not."""


@click.command("embed")
@store_options
def embed(*, url: str | None, space: str, as_json: bool) -> None:
    """Make the vectors that are missing, by the embedder of the settings."""
    with ShownProgress(quiet=as_json) as progress:

        async def work(store: Store, place: Place) -> dict[str, Any]:
            from recollect.wiring.models import choose_embedders

            chosen = choose_embedders(place.settings)
            if not chosen.used:
                raise RecollectError(f"no embedder is in use: {chosen.said}")
            before = (await store.stats()).vectors
            for embedder in chosen.used:
                await _embed_all(store, embedder, progress)
            after = (await store.stats()).vectors
            return {
                one.name: {
                    "made": after.get(one.name, 0) - before.get(one.name, 0),
                    "vectors": after.get(one.name, 0),
                }
                for one in chosen.used
            }

        made = with_store(url, space, work)
    if as_json:
        print_json({"space": space, "embedders": made})
        return
    for name, counts in made.items():
        click.echo(f"{name}: {counts['made']:,} vectors made, {counts['vectors']:,} in all")


async def _embed_all(store: Store, embedder: Embedder, progress: ShownProgress) -> None:
    from recollect.boundary import SystemClock
    from recollect.upkeep.chores import embed_next
    from recollect.upkeep.jobs import GiveUp

    stats = await store.stats()
    done = held = stats.vectors.get(embedder.name, 0)
    missing = stats.passages - held
    if missing > _MANY_PASSAGES:
        click.echo(f"{embedder.kind}: about {missing:,} passages get a vector", err=True)
    await embedder.load()
    while True:
        try:
            batch, more = await embed_next(store, embedder, SystemClock())
        except GiveUp as reason:
            raise EmbedderError(
                f"{embedder.name} cannot be used: {reason}; what was made before stays, choose "
                "another by recall.embedder"
            ) from None
        if batch.vectors:
            await store.write(batch)
            done += sum(len(vectors.vectors) for vectors in batch.vectors)
            progress.show(f"{embedder.kind} vectors", done - held, max(missing, 1))
        if not more:
            return
        await asyncio.sleep(0)
