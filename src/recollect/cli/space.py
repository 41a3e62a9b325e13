"""`recollect space list|delete`: the spaces of a store as wholes."""

from __future__ import annotations

import asyncio
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

import click

from recollect.cli.memory.looking import spaces
from recollect.cli.store_options import json_option, place_of, print_json, store_option
from recollect.cli.tenants import actor, meant_tenant, with_fleet
from recollect.core.values.tenant import tenant_space
from recollect.errors import RecollectError
from recollect.system.plain_text import plain_line

if TYPE_CHECKING:
    from recollect.adapters.stores.postgres import PostgresFleet
    from recollect.core.values.upkeep import Certificate


@click.group("space")
def space() -> None:
    """List the spaces of a store, or delete one."""


space.add_command(spaces, "list")


@space.command("delete")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--tenant", metavar="NAME", help="It is this tenant's space, of a service.")
@store_option
@json_option
def delete(*, name: str, yes: bool, tenant: str | None, url: str | None, as_json: bool) -> None:
    """Delete a space with all that it holds, and print a certificate.

    Archive, index, vectors, facts, ledger, jobs, tombstones, and what waits for it in the spool of
    this machine; of a file, the file. What is out of reach stands in the certificate.
    """
    place = place_of(url, name)
    if not yes:
        if as_json or not sys.stdin.isatty():
            raise RecollectError(
                "cannot ask for confirmation (no terminal): pass --yes to delete the space"
            )
        click.confirm(f"Delete the space {plain_line(name)} for good?", err=True, abort=True)
    from recollect.core.upkeep.certificates import certificate_json, certificate_text

    if tenant is not None:
        certificate = with_fleet(url, lambda fleet: _delete_of_tenant(fleet, tenant, name))
    else:
        from recollect.adapters.wiring.spaces import delete_stored_space

        certificate = asyncio.run(delete_stored_space(place.settings, name, place.url))
    if as_json:
        print_json(certificate_json(certificate))
    else:
        click.echo(certificate_text(certificate, plain=plain_line))


async def _delete_of_tenant(fleet: PostgresFleet, tenant: str, name: str) -> Certificate:
    from recollect.core.upkeep.forget import delete_space

    owner, records = await meant_tenant(fleet, tenant), fleet.tenants()
    if not await records.has_space(owner.id, name):
        raise RecollectError(
            f"tenant {plain_line(tenant)!r} has no space {plain_line(name)!r}: "
            "`recollect space list` shows all, by the tenant's id"
        )
    store = await fleet.space(tenant_space(owner.id, name))
    let_go = partial(records.remove_space, owner, name, actor=actor(), at=time.time())
    return await delete_space(store, named=name, now=time.time(), let_go=let_go)
