"""`recollect tenant`, `key` and `space`: manage access to a service, and the memories of a store.

`tenant` and `key` need only the database, not a running service. A key is printed once, because
only its hash is stored. The audit log records every change."""

from __future__ import annotations

import getpass
import json
import shlex
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, get_args
from uuid import UUID

import click

from recollect.cli.store_options import (
    Memory,
    confirm,
    instant,
    print_json,
    service_options,
    size_text,
    when,
    yes_option,
)
from recollect.core.values.tenant import ApiKey, KeyScope, Tenant
from recollect.errors import RecollectError
from recollect.system import config
from recollect.system.config.fields import read_age
from recollect.system.plain_text import plain_line

if TYPE_CHECKING:
    from recollect.adapters.stores.postgres.store import PostgresFleet
    from recollect.hosts.service.keys import Administration, MadeKey

# Not measured: bounds the rows of one query.
PAGE: Final = 500


@asynccontextmanager
async def administration(memory: Memory) -> AsyncIterator[Administration]:
    """Open the database of a service for changes, which the audit log records for this user."""
    from recollect.hosts.service.keys import Administration

    async with service_of(memory) as fleet:
        yield Administration(fleet, actor())


@asynccontextmanager
async def tenant_administration(
    memory: Memory, name: str
) -> AsyncIterator[tuple[Administration, Tenant]]:
    """Open the database of a service for changes to the tenant of this name."""
    async with administration(memory) as service:
        yield service, await find_tenant(service.fleet, name)


@asynccontextmanager
async def service_of(memory: Memory) -> AsyncIterator[PostgresFleet]:
    """Open the database of a service."""
    from recollect.adapters.wiring import is_server, open_fleet

    url = memory.store_url(config.load_settings().settings)
    if url is None or not is_server(url):
        raise RecollectError(
            "tenants are for a service on PostgreSQL: give --store postgresql://USER@HOST/DATABASE"
        )
    async with await open_fleet(url) as fleet:
        yield fleet


def actor() -> str:
    try:
        return f"command line, {getpass.getuser()}"
    except (KeyError, OSError):  # in a container, the user may have no name
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
    """Create a tenant. Set its limits with `recollect tenant limits`; by default it has none."""
    shown_name = plain_line(name)
    async with administration(memory) as service:
        created_tenant = await service.create_tenant(name)
    memory.show(_tenant_json(created_tenant), [f"{created_tenant.id}  {shown_name}"])
    click.echo(f"Next: recollect key create {shlex.quote(shown_name)}", err=True)


@tenant.command("list")
@service_options
async def list_tenants(*, memory: Memory) -> None:
    """List the tenants and their limits."""
    tenants: list[Tenant] = []
    async with service_of(memory) as fleet:
        records = fleet.tenants()
        while page := await records.tenants(after=tenants[-1].name if tenants else "", limit=PAGE):
            tenants += page
    lines = [
        f"{tenant.id}  {when(tenant.created_at)}  {plain_line(tenant.name)}  {_limits_text(tenant)}"
        for tenant in tenants
    ]
    memory.show({"tenants": [_tenant_json(tenant) for tenant in tenants]}, lines)


def _limits_text(tenant: Tenant) -> str:
    limit_texts = {
        name: "no limit" if limit is None else f"{limit:,}" for name, limit in tenant.limits.items()
    }
    return (
        f"requests per minute: {limit_texts['requests_per_minute']}, tokens per day: "
        f"{limit_texts['tokens_per_day']}, spaces: {limit_texts['most_spaces']}, bytes: "
        f"{limit_texts['most_bytes']}"
    )


def _limit_option(name: str, help_text: str) -> Callable[[Any], Any]:
    return click.option(name, type=click.IntRange(0), metavar="N", help=help_text)


@tenant.command("limits")
@click.argument("name")
@_limit_option("--requests-per-minute", "Limit requests per minute, over all nodes.")
@_limit_option("--tokens-per-day", "Limit tokens per day, over all nodes.")
@_limit_option("--most-spaces", "Limit how many spaces the tenant may have.")
@_limit_option("--most-bytes", "Limit the bytes of all stored messages, as UTF-8.")
@service_options
async def set_limits(*, name: str, memory: Memory, **new_limits: int | None) -> None:
    """Show a tenant's limits, or set those that you pass. 0 removes a limit.

    Takes effect on all nodes within seconds."""
    limits: Any = {key: limit or None for key, limit in new_limits.items() if limit is not None}
    async with tenant_administration(memory, name) as (service, owner):
        tenant = await service.set_limits(owner, limits)
    memory.show(_tenant_json(tenant), [f"{plain_line(name)}  {_limits_text(tenant)}"])


@tenant.command("delete")
@click.argument("name")
@yes_option
@service_options
async def delete_tenant(*, name: str, yes: bool, memory: Memory) -> None:
    """Delete a tenant with its keys, its spaces and all their content.

    Prints one line per deleted space. With --json, prints the certificate of each space, and last
    the tenant's id. If a client wrote to a space during the deletion, that space is deleted twice
    and printed twice."""
    from recollect.core.upkeep.certificates import certificate_json

    question = f"Delete tenant {plain_line(name)} with all its spaces permanently?"
    effect = "the tenant would be deleted"
    if not yes and not confirm(question, effect, as_json=memory.as_json):
        raise SystemExit(1)

    async with tenant_administration(memory, name) as (service, owner):
        async for space_name, certificate in service.delete_tenant(owner):
            count = certificate.counts.get("segments", 0)
            text = (
                f"{plain_line(space_name)}  {count:,} messages  certificate {certificate.checksum}"
            )
            click.echo(json.dumps(certificate_json(certificate)) if memory.as_json else text)
    shown_result = json.dumps({"deleted": name, "id": str(owner.id)})
    click.echo(shown_result if memory.as_json else f"Deleted {plain_line(name)}.")
    click.echo(f"Its log stays: recollect tenant audit {owner.id}", err=True)


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
    """Show the log of changes to tenants, keys and spaces, newest first.

    NAME is the name or id of a tenant, which may be deleted. Default: all tenants."""
    async with service_of(memory) as fleet:
        tenants = [None] if name is None else await _find_logged(fleet, name)
        log = [
            record
            for tenant_id in tenants
            for record in await fleet.tenants().log(tenant_id, limit=limit)
        ]
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
    tenant_ids: list[UUID | None] = [*await records.deleted_tenants(name)]
    return tenant_ids or [(await find_tenant(fleet, name)).id]


def _tenant_json(tenant: Tenant) -> dict[str, Any]:
    return {**asdict(tenant), "id": str(tenant.id), "created_at": instant(tenant.created_at)}


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
    type=click.Choice(get_args(KeyScope)),
    help="Grant only this permission; may be repeated. Default: read and write.",
)
@click.option("--name", default="", help="Name of the key in lists.")
@click.option(
    "--expires",
    metavar="AGE",
    help="Let the key expire after this time: 90d, 12h, 5m. Default: never.",
)
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
    seconds = None if expires is None else _age(expires, "--expires")
    async with tenant_administration(memory, tenant_name) as (service, owner):
        created_key = await service.create_key(owner, scopes=scopes, name=name, seconds=seconds)
    _print_key(memory, created_key)


@key.command("list")
@_tenant_argument
@service_options
async def list_keys(*, tenant_name: str, memory: Memory) -> None:
    """List a tenant's keys: prefix, scopes, expiry and name."""
    async with service_of(memory) as fleet:
        keys = await fleet.tenants().keys((await find_tenant(fleet, tenant_name)).id)
    key_records = [_key_json(key) for key in keys]
    lines = [
        f"{key.id}  {row['prefix']}  {', '.join(key.scopes)}  {_ending(key, time.time())}  "
        + plain_line(key.name)
        for key, row in zip(keys, key_records, strict=True)
    ]
    memory.show({"keys": key_records}, lines)


def _ending(key: ApiKey, now: float) -> str:
    if key.revoked_at is not None:
        return f"revoked {when(key.revoked_at)}"
    if key.expires_at is None:
        return "never expires"
    return f"{'expires' if now < key.expires_at else 'expired'} {when(key.expires_at)}"


@key.command("revoke")
@_tenant_argument
@_key_argument
@service_options
async def revoke_key(*, tenant_name: str, key_id: str, memory: Memory) -> None:
    """Revoke a key. Takes effect on all nodes within seconds."""
    from recollect.hosts.service.keys import KEY_SECONDS

    async with tenant_administration(memory, tenant_name) as (service, owner):
        if not await service.revoke_key(owner, key_id):
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
    help="Let the old key work for this long: 24h, 30m.",
)
@service_options
async def rotate_key(*, tenant_name: str, key_id: str, grace: str, memory: Memory) -> None:
    """Create a new key with the same scopes as KEY. KEY keeps working for the time of --grace."""
    seconds = _age(grace, "--grace")
    async with tenant_administration(memory, tenant_name) as (service, owner):
        created_key = await service.rotate_key(owner, key_id, grace=seconds)
        if created_key is None:
            raise _no_such_key(tenant_name, key_id)
    _print_key(memory, created_key)


def _no_such_key(tenant_name: str, key_id: str) -> RecollectError:
    name = plain_line(tenant_name)
    hint = f"`recollect key list {name}` shows them"
    return RecollectError(f"tenant {name!r} has no working key {plain_line(key_id)!r}: {hint}")


def _age(text: str, option: str) -> float:
    seconds = read_age(text)
    if seconds is None:
        raise RecollectError(
            f"{option} {plain_line(text)!r}: give an age such as 90d, 12h, 5m or 90s"
        )
    return seconds


def _print_key(memory: Memory, created_key: MadeKey) -> None:
    if memory.as_json:
        print_json({**_key_json(created_key.record), "key": created_key.text})
        return
    click.echo(created_key.text)
    click.echo(
        "Save the key now: Recollect stores only its hash and cannot show it again.", err=True
    )


def _key_json(key: ApiKey) -> dict[str, Any]:
    from recollect.hosts.service.keys import visible_key

    return {
        "id": key.id,
        "prefix": visible_key(key),
        "name": key.name,
        "scopes": list(key.scopes),
        "created_at": instant(key.created_at),
        "expires_at": instant(key.expires_at),
        "revoked_at": instant(key.revoked_at),
    }


@click.group("space")
def space() -> None:
    """List or delete memories."""


@space.command("list")
@service_options
async def list_spaces(*, memory: Memory) -> None:
    """List the memories of a store, the most recently used last. Default: the memories of this
    machine."""
    from recollect.adapters.wiring import list_spaces

    settings = config.load_settings().settings
    spaces = await list_spaces(memory.store_url(settings), key=settings.store.key)
    # Print the whole name last, because people copy it.
    lines = [f"{'last used':16}  {'sessions':>8}  {'messages':>8}  {'size':>8}  space"]
    for stored_space in spaces:
        size = "·" if stored_space.bytes_on_disk is None else size_text(stored_space.bytes_on_disk)
        is_memory = stored_space.space is not None
        name = plain_line(stored_space.space or "")
        if not is_memory:
            name = f"({plain_line(stored_space.unread)})"
        counts = (f"{stored_space.sessions:,}", f"{stored_space.segments:,}") if is_memory else "··"
        numbers = f"{counts[0]:>8}  {counts[1]:>8}  {size:>8}"
        lines.append(f"{when(stored_space.last_said_at):16}  {numbers}  {name}")
    space_records = [
        {**asdict(stored_space), "last_said_at": instant(stored_space.last_said_at)}
        for stored_space in spaces
    ]
    memory.show({"spaces": space_records}, lines if spaces else ["There is no memory here yet."])


@space.command("delete")
@click.argument("name")
@yes_option
@click.option("--tenant", metavar="NAME", help="Delete the space of this tenant of a service.")
@service_options
async def delete_space(*, name: str, yes: bool, tenant: str | None, memory: Memory) -> None:
    """Delete a memory and all its content, and print a certificate.

    Deletes messages, facts, recorded requests, jobs, and this machine's writes that wait for the
    store. Also deletes the marks that keep forgotten messages out. An SQLite memory is deleted as a
    whole file. The certificate lists the copies that this command cannot delete, such as backups.
    """
    from recollect.adapters.wiring.stores import delete_stored_space
    from recollect.core.upkeep.certificates import certificate_json, certificate_text

    memory.named_space = name
    await memory.choose()
    question = f"Delete the space {plain_line(name)} permanently?"
    effect = "the space would be deleted"
    if not yes and not confirm(question, effect, as_json=memory.as_json):
        raise SystemExit(1)
    if tenant is None:
        certificate = await delete_stored_space(memory.settings, memory.space, memory.url)
        memory.show(certificate_json(certificate), [certificate_text(certificate)])
    else:
        async with tenant_administration(memory, tenant) as (service, owner):
            if not await service.records.has_space(owner.id, name):
                raise RecollectError(
                    f"tenant {plain_line(tenant)!r} has no space {plain_line(name)!r}: "
                    "`recollect space list` shows all, by the tenant's id"
                )
            async for certificate in service.delete_space(owner, name):
                memory.show(certificate_json(certificate), [certificate_text(certificate)])
