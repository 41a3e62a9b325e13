"""`recollect tenant`, `key` and `space`: access to a service, and the memories of a store.

`tenant` and `key` need only the database. A key is printed once: only its hash is stored. Every
change is in the audit log.
"""

from __future__ import annotations

import getpass
import json
import shlex
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import click

from recollect.cli.store_options import (
    Memory,
    age_from,
    confirm,
    instant,
    open_server,
    print_json,
    service_options,
    size_text,
    when,
    yes_option,
)
from recollect.core.values.tenant import KEY_SCOPES, ApiKey, KeyScope, Tenant, tenant_space
from recollect.errors import RecollectError
from recollect.system import config
from recollect.system.plain_text import plain_line

if TYPE_CHECKING:
    from recollect.adapters.stores.postgres.store import PostgresFleet
    from recollect.core.values.upkeep import Certificate
    from recollect.hosts.service.keys import MadeKey

PAGE: Final = 500


@asynccontextmanager
async def service_of(memory: Memory) -> AsyncIterator[PostgresFleet]:
    """Open the database of a service."""
    from recollect.adapters.wiring import is_server

    url = memory.store_url(config.load_settings().settings)
    if url is None or not is_server(url):
        raise RecollectError(
            "tenants are for a service on PostgreSQL: give --store postgresql://USER@HOST/DATABASE"
        )
    async with open_server(url) as fleet:
        yield fleet


def actor() -> str:
    try:
        return f"command line, {getpass.getuser()}"
    except (KeyError, OSError):  # the user of a container may have no name
        return "command line"


async def find_tenant(fleet: PostgresFleet, name: str) -> Tenant:
    tenant = await fleet.tenants().tenant_named(name)
    if tenant is None:
        raise RecollectError(
            f"there is no tenant {plain_line(name)!r}: `recollect tenant list` lists the tenants"
        )
    return tenant


@click.group()
def tenant() -> None:
    """Create and delete tenants, and set their limits."""


@tenant.command("create")
@click.argument("name")
@service_options
async def create_tenant(*, name: str, memory: Memory) -> None:
    """Create a tenant. Unlimited unless you set limits with `recollect tenant limits`."""
    from recollect.hosts.service.keys import new_tenant

    if not name.strip():
        raise RecollectError("a tenant's name must have at least one character")
    shown = plain_line(name)
    new = new_tenant(name, now=time.time())
    async with service_of(memory) as fleet:
        if not await fleet.tenants().add_tenant(new, actor=actor()):
            raise RecollectError(f"the tenant {shown!r} already exists: choose another name")
    memory.show(_tenant_json(new), [f"{new.id}  {shown}"])
    click.echo(f"Next: recollect key create {shlex.quote(shown)}", err=True)


@tenant.command("list")
@service_options
async def list_tenants(*, memory: Memory) -> None:
    """List the tenants and their limits."""
    found: list[Tenant] = []
    async with service_of(memory) as fleet:
        records = fleet.tenants()
        while page := await records.tenants(after=found[-1].name if found else "", limit=PAGE):
            found += page
    lines = [
        f"{one.id}  {when(one.created_at)}  {plain_line(one.name)}  {_limits_text(one)}"
        for one in found
    ]
    memory.show({"tenants": [_tenant_json(one) for one in found]}, lines)


def _limits_text(one: Tenant) -> str:
    requests, tokens = (
        "no limit" if limit is None else f"{limit:,}"
        for limit in (one.requests_per_minute, one.tokens_per_day)
    )
    return f"requests per minute: {requests}, tokens per day: {tokens}"


@tenant.command("limits")
@click.argument("name")
@click.option(
    "--requests-per-minute",
    type=click.IntRange(0),
    metavar="N",
    help="Limit requests per minute, over all nodes.",
)
@click.option(
    "--tokens-per-day",
    type=click.IntRange(0),
    metavar="N",
    help="Limit tokens per day, over all nodes.",
)
@service_options
async def set_limits(
    *, name: str, requests_per_minute: int | None, tokens_per_day: int | None, memory: Memory
) -> None:
    """Show or set a tenant's limits. Limits that you do not pass stay; 0 removes a limit.

    Takes effect on all nodes within seconds.
    """
    given = {"requests_per_minute": requests_per_minute, "tokens_per_day": tokens_per_day}
    limits: Any = {key: limit or None for key, limit in given.items() if limit is not None}
    async with service_of(memory) as fleet:
        one = replace(await find_tenant(fleet, name), **limits)
        if limits:
            await fleet.tenants().set_limits(one, actor=actor(), at=time.time())
    memory.show(_tenant_json(one), [f"{plain_line(name)}  {_limits_text(one)}"])


@tenant.command("delete")
@click.argument("name")
@yes_option
@service_options
async def delete_tenant(*, name: str, yes: bool, memory: Memory) -> None:
    """Delete a tenant with its keys, its spaces and all their content.

    Prints one line per deleted space; with --json, the certificate of each. A space to which a
    client still wrote meanwhile has a second one.
    """
    from recollect.core.upkeep.certificates import certificate_json

    question = f"Delete tenant {plain_line(name)} with all its spaces permanently?"
    effect = "the tenant would be deleted"
    if not yes and not confirm(question, effect, as_json=memory.as_json):
        raise SystemExit(1)

    async with service_of(memory) as fleet:
        owner, records = await find_tenant(fleet, name), fleet.tenants()
        # Revoke the keys first, so that no client writes meanwhile.
        for key in await records.keys(owner.id):
            await records.revoke_key(owner, key.id, actor=actor(), at=time.time())
        while page := await records.spaces(owner.id, limit=PAGE):
            for one in page:
                async for done in _delete_space(fleet, owner, one.name):
                    count = f"{done.counts.get('segments', 0):,} messages"
                    text = f"{plain_line(one.name)}  {count}  certificate {done.checksum}"
                    click.echo(json.dumps(certificate_json(done)) if memory.as_json else text)
        await records.remove_tenant(owner, actor=actor(), at=time.time())
    shown = json.dumps({"deleted": name, "id": str(owner.id)})
    click.echo(shown if memory.as_json else f"Deleted {plain_line(name)}.")
    click.echo(f"Its log stays: recollect tenant audit {owner.id}", err=True)


async def _delete_space(
    fleet: PostgresFleet, owner: Tenant, name: str
) -> AsyncIterator[Certificate]:
    from recollect.core.upkeep.forget import delete_space as delete

    store = await fleet.space(tenant_space(owner.id, name))
    yield await delete(store, named=name, now=time.time())
    await fleet.tenants().remove_space(owner, name, actor=actor(), at=time.time())
    # a node that still has the key cached may have written until then
    late = await delete(store, named=name, now=time.time())
    if any(late.counts.values()):
        yield late


@tenant.command("audit")
@click.argument("name", required=False)
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    help="Show at most this many changes.",
)
@service_options
async def show_audit(*, name: str | None, limit: int, memory: Memory) -> None:
    """Show the changes to tenants, keys and spaces, newest first.

    NAME is a tenant's name or id, also of a deleted one. Default: all tenants.
    """
    async with service_of(memory) as fleet:
        tenants = [None] if name is None else await _find_logged(fleet, name)
        log = [record for one in tenants for record in await fleet.tenants().log(one, limit=limit)]
    log.sort(key=lambda record: (record.at, record.id), reverse=True)
    acts = [
        {**asdict(record), "at": instant(record.at), "tenant": str(record.tenant)}
        for record in log[:limit]
    ]
    line = "{at}  {actor}  {act}  {subject}  tenant {tenant}"
    memory.show({"acts": acts}, [plain_line(line.format(**act)) for act in acts])


async def _find_logged(fleet: PostgresFleet, name: str) -> list[UUID | None]:
    records = fleet.tenants()
    if (tenant := await records.tenant_named(name)) is not None:
        return [tenant.id]
    with suppress(ValueError):
        if await records.log(UUID(name), limit=1):
            return [UUID(name)]
    found: list[UUID | None] = [*await records.deleted_tenants(name)]
    return found or [(await find_tenant(fleet, name)).id]


def _tenant_json(one: Tenant) -> dict[str, Any]:
    return {**asdict(one), "id": str(one.id), "created_at": instant(one.created_at)}


_tenant_argument = click.argument("tenant_name", metavar="TENANT")
_key_argument = click.argument("key_id", metavar="KEY")


@click.group()
def key() -> None:
    """Create, list, rotate and revoke the API keys of a service's tenants."""


@key.command("create")
@_tenant_argument
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(KEY_SCOPES),
    help="Grant this permission; may be repeated. Default: read and write.",
)
@click.option("--name", default="", help="Name of the key in lists.")
@click.option("--expires", metavar="AGE", help="Let the key expire after this time: 90d, 12h, 5m.")
@service_options
async def create_key(
    *,
    tenant_name: str,
    scopes: tuple[KeyScope, ...],
    name: str,
    expires: str | None,
    memory: Memory,
) -> None:
    """Create a key and print it. Recollect cannot show the key again."""
    from recollect.hosts.service.keys import DEFAULT_SCOPES, make_key

    now = time.time()
    ends = None if expires is None else now + _age(expires, "--expires")
    async with service_of(memory) as fleet:
        owner = (await find_tenant(fleet, tenant_name)).id
        new = make_key(owner, name=name, scopes=scopes or DEFAULT_SCOPES, now=now, expires_at=ends)
        await fleet.tenants().add_key(new.record, actor=actor())
    _print_key(memory, new)


@key.command("list")
@_tenant_argument
@service_options
async def list_keys(*, tenant_name: str, memory: Memory) -> None:
    """List a tenant's keys: prefix, scopes, expiry and name."""
    async with service_of(memory) as fleet:
        keys = await fleet.tenants().keys((await find_tenant(fleet, tenant_name)).id)
    shown = [_key_json(one) for one in keys]
    lines = [
        f"{one.id}  {row['prefix']}  {', '.join(one.scopes)}  {_ending(one, time.time())}  "
        + plain_line(one.name)
        for one, row in zip(keys, shown, strict=True)
    ]
    memory.show({"keys": shown}, lines)


def _ending(one: ApiKey, now: float) -> str:
    if one.revoked_at is not None:
        return f"revoked {when(one.revoked_at)}"
    if one.expires_at is None:
        return "never expires"
    return f"{'expires' if now < one.expires_at else 'expired'} {when(one.expires_at)}"


@key.command("revoke")
@_tenant_argument
@_key_argument
@service_options
async def revoke_key(*, tenant_name: str, key_id: str, memory: Memory) -> None:
    """Revoke a key. Takes effect on all nodes within seconds."""
    from recollect.hosts.service.keys import KEY_SECONDS

    async with service_of(memory) as fleet:
        owner = await find_tenant(fleet, tenant_name)
        if not await fleet.tenants().revoke_key(owner, key_id, actor=actor(), at=time.time()):
            raise _no_such_key(tenant_name, key_id)
    text = f"Revoked {plain_line(key_id)}: nodes refuse it within {KEY_SECONDS:g} seconds."
    memory.show({"revoked": key_id}, [text])


@key.command("rotate")
@_tenant_argument
@_key_argument
@click.option(
    "--grace",
    metavar="AGE",
    default="24h",
    show_default=True,
    help="Keep the old key working for this long.",
)
@service_options
async def rotate_key(*, tenant_name: str, key_id: str, grace: str, memory: Memory) -> None:
    """Create a replacement key. The old one keeps working for --grace."""
    from recollect.hosts.service.keys import rotated_key

    now = time.time()
    ends = now + _age(grace, "--grace")
    async with service_of(memory) as fleet:
        owner, records = await find_tenant(fleet, tenant_name), fleet.tenants()
        found = await records.key(owner.id, key_id)
        if found is None:
            raise _no_such_key(tenant_name, key_id)
        new = rotated_key(found[0], now=now)
        if not await records.rotate_key(owner, key_id, new.record, ends_at=ends, actor=actor()):
            raise _no_such_key(tenant_name, key_id)
    _print_key(memory, new)


def _no_such_key(tenant_name: str, key_id: str) -> RecollectError:
    name = plain_line(tenant_name)
    listed = f"`recollect key list {name}` shows them"
    return RecollectError(f"tenant {name!r} has no working key {plain_line(key_id)!r}: {listed}")


def _age(text: str, option: str) -> float:
    seconds = age_from(text)
    if seconds is None:
        raise RecollectError(
            f"{option} {plain_line(text)!r}: give an age such as 90d, 12h, 5m or 90s"
        )
    return seconds


def _print_key(memory: Memory, new: MadeKey) -> None:
    if memory.as_json:
        print_json({**_key_json(new.record), "key": new.text})
        return
    click.echo(new.text)
    click.echo(
        "Save the key now: Recollect stores only its hash and cannot show it again.", err=True
    )


def _key_json(one: ApiKey) -> dict[str, Any]:
    from recollect.hosts.service.keys import shown_key

    return {
        "id": one.id,
        "prefix": shown_key(one),
        "name": one.name,
        "scopes": list(one.scopes),
        "created_at": instant(one.created_at),
        "expires_at": instant(one.expires_at),
        "revoked_at": instant(one.revoked_at),
    }


@click.group("space")
def space() -> None:
    """List or delete memories."""


@space.command("list")
@service_options
async def list_spaces(*, memory: Memory) -> None:
    """List the memories of a store. The most recently used comes last. Default: those of this
    machine."""
    from recollect.adapters.wiring import stored_spaces

    settings = config.load_settings().settings
    found = await stored_spaces(memory.store_url(settings), key=settings.store.key)
    # the name is last and complete, because people copy it
    lines = [f"{'last used':16}  {'sessions':>8}  {'messages':>8}  {'size':>8}  space"]
    for one in found:
        size = "·" if one.bytes_on_disk is None else size_text(one.bytes_on_disk)
        name = plain_line(one.space) if one.space is not None else f"({plain_line(one.unread)})"
        counts = (f"{one.sessions:,}", f"{one.segments:,}") if one.space is not None else "··"
        numbers = f"{counts[0]:>8}  {counts[1]:>8}  {size:>8}"
        lines.append(f"{when(one.last_said_at):16}  {numbers}  {name}")
    shown = [{**asdict(one), "last_said_at": instant(one.last_said_at)} for one in found]
    memory.show({"spaces": shown}, lines if found else ["There is no memory here yet."])


@space.command("delete")
@click.argument("name")
@yes_option
@click.option("--tenant", metavar="NAME", help="Delete the space of this tenant of a service.")
@service_options
async def delete_space(*, name: str, yes: bool, tenant: str | None, memory: Memory) -> None:
    """Delete a memory and all its content, and print a certificate.

    Deletes the archive, index, vectors, facts, ledger, jobs, tombstones and the spool on this
    machine. Deletes an SQLite memory as a whole file. The certificate lists the copies that this
    command cannot delete, such as backups.
    """
    from recollect.adapters.wiring.stores import delete_stored_space
    from recollect.core.upkeep.certificates import certificate_json, certificate_text

    memory.named = name
    await memory.choose()
    question = f"Delete the space {plain_line(name)} permanently?"
    effect = "the space would be deleted"
    if not yes and not confirm(question, effect, as_json=memory.as_json):
        raise SystemExit(1)
    if tenant is None:
        certificate = await delete_stored_space(memory.settings, name, memory.url)
        memory.show(certificate_json(certificate), [certificate_text(certificate)])
    else:
        async with service_of(memory) as fleet:
            owner = await find_tenant(fleet, tenant)
            if not await fleet.tenants().has_space(owner.id, name):
                raise RecollectError(
                    f"tenant {plain_line(tenant)!r} has no space {plain_line(name)!r}: "
                    "`recollect space list` shows all, by the tenant's id"
                )
            async for certificate in _delete_space(fleet, owner, name):
                memory.show(certificate_json(certificate), [certificate_text(certificate)])
