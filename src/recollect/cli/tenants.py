"""`recollect tenant`, `key` and `space`: access to a service, and the memories of a store.

`tenant` and `key` need only the database. A key is printed once: only its hash is stored. Every
change is in the audit log.
"""

from __future__ import annotations

import asyncio
import getpass
import json
import shlex
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar
from uuid import UUID

import click

from recollect.cli.store_options import (
    Command,
    Memory,
    check_url,
    confirmed,
    instant,
    json_option,
    print_json,
    size_text,
    store_option,
    when,
    yes_option,
)
from recollect.core.values.tenant import KEY_SCOPES, ApiKey, KeyScope, Tenant, tenant_space
from recollect.errors import RecollectError
from recollect.system import config
from recollect.system.config.fields import read_seconds
from recollect.system.plain_text import plain_line

if TYPE_CHECKING:
    from recollect.adapters.stores.postgres import PostgresFleet
    from recollect.core.values.upkeep import Certificate
    from recollect.hosts.service.keys import MadeKey

P = ParamSpec("P")
T = TypeVar("T")
PAGE: Final = 500
LONGEST_AGE_SECONDS: Final = 100 * 366 * 86_400.0


def service_options(command: Command) -> Any:
    """Add `--store` and `--json`; the command gets them as `memory`."""

    @wraps(command)
    def run(*, url: str | None, as_json: bool, **given: Any) -> None:
        command(memory=Memory(url=url, as_json=as_json), **given)

    return store_option(json_option(run))


def on_service(work: Callable[Concatenate[PostgresFleet, Memory, P], Awaitable[None]]) -> Any:
    """Turn work on a service's database into a command, with `--store` and `--json`."""

    @wraps(work)
    def run(*args: P.args, memory: Memory, **given: P.kwargs) -> None:  # type: ignore[valid-type]
        with_fleet(memory, lambda fleet: work(fleet, memory, *args, **given))

    return service_options(run)


def with_fleet(memory: Memory, work: Callable[[PostgresFleet], Awaitable[T]]) -> T:
    check_url(memory.url)
    from recollect.adapters.wiring.stores import is_server, open_fleet

    url = config.load_settings().settings.store.url if memory.url is None else memory.url
    if url is None or not is_server(url):
        raise RecollectError(
            "tenants are for a service on PostgreSQL: give --store postgresql://USER@HOST/DATABASE"
        )

    async def run() -> T:
        fleet = await open_fleet(url)
        try:
            return await work(fleet)
        finally:
            await fleet.close()

    return asyncio.run(run())


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
@on_service
async def create_tenant(fleet: PostgresFleet, memory: Memory, *, name: str) -> None:
    """Create a tenant. Unlimited unless you set limits with `recollect tenant limits`."""
    from recollect.hosts.service.keys import new_tenant

    if not name.strip():
        raise RecollectError("a tenant's name must have at least one character")
    new = new_tenant(name, now=time.time())
    if not await fleet.tenants().add_tenant(new, actor=actor()):
        raise RecollectError(f"the tenant {plain_line(name)!r} already exists: choose another name")
    memory.show(_tenant_json(new), lambda: click.echo(f"{new.id}  {plain_line(name)}"))
    click.echo(f"Next: recollect key create {shlex.quote(plain_line(name))}", err=True)


@tenant.command("list")
@on_service
async def list_tenants(fleet: PostgresFleet, memory: Memory) -> None:
    """List the tenants and their limits."""
    found: list[Tenant] = []
    while page := await fleet.tenants().tenants(after=found[-1].name if found else "", limit=PAGE):
        found += page

    def draw() -> None:
        for one in found:
            limits = _limits_text(one)
            click.echo(f"{one.id}  {when(one.created_at)}  {plain_line(one.name)}  {limits}")

    memory.show({"tenants": [_tenant_json(one) for one in found]}, draw)


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
@on_service
async def set_limits(
    fleet: PostgresFleet,
    memory: Memory,
    *,
    name: str,
    requests_per_minute: int | None,
    tokens_per_day: int | None,
) -> None:
    """Show or set a tenant's limits. Limits that you do not pass stay; 0 removes a limit.

    Takes effect on all nodes within seconds.
    """
    given = {"requests_per_minute": requests_per_minute, "tokens_per_day": tokens_per_day}
    limits: Any = {key: limit or None for key, limit in given.items() if limit is not None}
    one = replace(await find_tenant(fleet, name), **limits)
    if limits:
        await fleet.tenants().set_limits(one, actor=actor(), at=time.time())
    text = f"{plain_line(name)}  {_limits_text(one)}"
    memory.show(_tenant_json(one), lambda: click.echo(text))


@tenant.command("delete")
@click.argument("name")
@yes_option
@service_options
def delete_tenant(*, name: str, yes: bool, memory: Memory) -> None:
    """Delete a tenant with its keys, its spaces and all their content.

    Prints one line per deleted space; with --json, the certificate of each.
    """
    question = f"Delete tenant {plain_line(name)} with all its spaces permanently?"
    unasked = "cannot ask for confirmation (no terminal): pass --yes to delete the tenant"
    if not yes and not confirmed(question, as_json=memory.as_json, unasked=unasked):
        raise SystemExit(1)

    def certify(certificate: dict[str, Any]) -> None:
        segments = certificate["counts"].get("segments", 0)
        text = f"{plain_line(certificate['space'])}  {segments:,} messages  certificate"
        whole = json.dumps(certificate)
        click.echo(whole if memory.as_json else f"{text} {certificate['checksum']}")

    gone = with_fleet(memory, lambda fleet: _delete(fleet, name, certify))
    shown = json.dumps({"deleted": name, "id": str(gone.id)})
    click.echo(shown if memory.as_json else f"Deleted {plain_line(name)}.")
    click.echo(f"Its log stays: recollect tenant audit {gone.id}", err=True)


async def _delete(
    fleet: PostgresFleet, name: str, certify: Callable[[dict[str, Any]], None]
) -> Tenant:
    from recollect.core.upkeep.certificates import certificate_json
    from recollect.core.upkeep.forget import delete_space

    owner, records = await find_tenant(fleet, name), fleet.tenants()
    # Revoke the keys first, so that no client writes meanwhile.
    for key in await records.keys(owner.id):
        await records.revoke_key(owner, key.id, actor=actor(), at=time.time())
    while page := await records.spaces(owner.id, limit=PAGE):
        for one in page:
            store = await fleet.space(tenant_space(owner.id, one.name))
            done = await delete_space(store, named=one.name, now=time.time())
            certify(certificate_json(done))
            await records.remove_space(owner, one.name, actor=actor(), at=time.time())
            late = await delete_space(store, named=one.name, now=time.time())
            # A node that still had the key cached wrote this space, and no list names it.
            if late.counts:
                certify(certificate_json(late))
    await records.remove_tenant(owner, actor=actor(), at=time.time())
    return owner


@tenant.command("audit")
@click.argument("name", required=False)
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    help="Show at most this many changes.",
)
@on_service
async def show_audit(fleet: PostgresFleet, memory: Memory, *, name: str | None, limit: int) -> None:
    """Show the changes to tenants, keys and spaces, newest first.

    NAME is a tenant's name or id, also of a deleted one. Default: all tenants.
    """
    tenants = [None] if name is None else await _find_logged(fleet, name)
    log = [record for one in tenants for record in await fleet.tenants().log(one, limit=limit)]
    log.sort(key=lambda record: (record.at, record.id), reverse=True)
    acts = [
        {**asdict(record), "at": instant(record.at), "tenant": str(record.tenant)}
        for record in log[:limit]
    ]

    def draw() -> None:
        for act in acts:
            done = f"{act['at']}  {act['actor']}  {act['act']}  {act['subject']}"
            click.echo(plain_line(f"{done}  tenant {act['tenant']}"))

    memory.show({"acts": acts}, draw)


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
@click.option("--name", default="", help="Name the key, to tell keys apart.")
@click.option("--expires", metavar="AGE", help="Let the key expire after this time: 90d, 12h, 5m.")
@on_service
async def create_key(
    fleet: PostgresFleet,
    memory: Memory,
    *,
    tenant_name: str,
    scopes: tuple[KeyScope, ...],
    name: str,
    expires: str | None,
) -> None:
    """Create a key and print it. Recollect cannot show the key again."""
    from recollect.hosts.service.keys import DEFAULT_SCOPES, make_key

    now = time.time()
    ends = None if expires is None else now + _age(expires, "--expires")
    owner = await find_tenant(fleet, tenant_name)
    new = make_key(owner.id, name=name, scopes=scopes or DEFAULT_SCOPES, now=now, expires_at=ends)
    await fleet.tenants().add_key(new.record, actor=actor())
    _print_key(memory, new)


@key.command("list")
@_tenant_argument
@on_service
async def list_keys(fleet: PostgresFleet, memory: Memory, *, tenant_name: str) -> None:
    """List a tenant's keys: prefix, scopes, expiry and name."""
    keys = await fleet.tenants().keys((await find_tenant(fleet, tenant_name)).id)
    shown = [_key_json(one) for one in keys]

    def draw() -> None:
        for one, row in zip(keys, shown, strict=True):
            scopes, ends = ", ".join(one.scopes), _ending(one, time.time())
            click.echo(f"{one.id}  {row['prefix']}  {scopes}  {ends}  {plain_line(one.name)}")

    memory.show({"keys": shown}, draw)


def _ending(one: ApiKey, now: float) -> str:
    if one.revoked_at is not None:
        return f"revoked {when(one.revoked_at)}"
    if one.expires_at is None:
        return "never expires"
    return f"{'expires' if now < one.expires_at else 'expired'} {when(one.expires_at)}"


@key.command("revoke")
@_tenant_argument
@_key_argument
@on_service
async def revoke_key(
    fleet: PostgresFleet, memory: Memory, *, tenant_name: str, key_id: str
) -> None:
    """Revoke a key. Takes effect on all nodes within seconds."""
    from recollect.hosts.service.keys import KEY_SECONDS

    owner = await find_tenant(fleet, tenant_name)
    if not await fleet.tenants().revoke_key(owner, key_id, actor=actor(), at=time.time()):
        raise _no_such_key(tenant_name, key_id)
    text = f"Revoked {plain_line(key_id)}: nodes refuse it within {KEY_SECONDS:g} seconds."
    memory.show({"revoked": key_id}, lambda: click.echo(text))


@key.command("rotate")
@_tenant_argument
@_key_argument
@click.option(
    "--grace",
    metavar="AGE",
    default="24h",
    show_default=True,
    help="How long the old key keeps working.",
)
@on_service
async def rotate_key(
    fleet: PostgresFleet, memory: Memory, *, tenant_name: str, key_id: str, grace: str
) -> None:
    """Create a replacement key. The old one keeps working for --grace."""
    from recollect.hosts.service.keys import rotated_key

    now = time.time()
    ends = now + _age(grace, "--grace")
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
    seconds = read_seconds(text)
    if seconds is None or not 0 <= seconds < LONGEST_AGE_SECONDS:
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
def list_spaces(*, memory: Memory) -> None:
    """List the memories of a store, the last used one last. Default: those of this machine."""
    from recollect.adapters.wiring import stored_spaces

    check_url(memory.url)
    store = config.load_settings().settings.store
    url = store.url if memory.url is None else memory.url
    found = asyncio.run(stored_spaces(url, key=store.key))

    def draw() -> None:
        if not found:
            click.echo("There is no memory here yet.")
            return
        # the name is last and complete, because people copy it
        click.echo(f"{'last used':16}  {'sessions':>8}  {'messages':>8}  {'size':>8}  space")
        for one in found:
            size = "·" if one.bytes_on_disk is None else size_text(one.bytes_on_disk)
            name = plain_line(one.space) if one.space is not None else f"({plain_line(one.unread)})"
            counts = (f"{one.sessions:,}", f"{one.segments:,}") if one.space is not None else "··"
            numbers = f"{counts[0]:>8}  {counts[1]:>8}  {size:>8}"
            click.echo(f"{when(one.last_said_at):16}  {numbers}  {name}")

    shown = [{**asdict(one), "last_said_at": instant(one.last_said_at)} for one in found]
    memory.show({"spaces": shown}, draw)


@space.command("delete")
@click.argument("name")
@yes_option
@click.option("--tenant", metavar="NAME", help="Delete the space of this tenant of a service.")
@service_options
def delete_space(*, name: str, yes: bool, tenant: str | None, memory: Memory) -> None:
    """Delete a memory and all its content, and print a certificate.

    Deletes the archive, index, vectors, facts, ledger, jobs, tombstones and the spool on this
    machine. Deletes an SQLite memory as a whole file. The certificate lists the copies that this
    command cannot delete, such as backups.
    """
    from recollect.core.upkeep.certificates import certificate_json, certificate_text

    place = Memory(url=memory.url, space=name).place()
    question = f"Delete the space {plain_line(name)} permanently?"
    unasked = "cannot ask for confirmation (no terminal): pass --yes to delete the space"
    if not yes and not confirmed(question, as_json=memory.as_json, unasked=unasked):
        raise SystemExit(1)
    if tenant is not None:
        certificate = with_fleet(memory, lambda fleet: _delete_of_tenant(fleet, tenant, name))
    else:
        from recollect.adapters.wiring.stores import delete_stored_space

        certificate = asyncio.run(delete_stored_space(place.settings, name, place.url))
    text = certificate_text(certificate)
    memory.show(certificate_json(certificate), lambda: click.echo(text))


async def _delete_of_tenant(fleet: PostgresFleet, tenant: str, name: str) -> Certificate:
    from recollect.core.upkeep.forget import delete_space as delete

    owner, records = await find_tenant(fleet, tenant), fleet.tenants()
    if not await records.has_space(owner.id, name):
        raise RecollectError(
            f"tenant {plain_line(tenant)!r} has no space {plain_line(name)!r}: "
            "`recollect space list` shows all, by the tenant's id"
        )
    store = await fleet.space(tenant_space(owner.id, name))
    let_go = partial(records.remove_space, owner, name, actor=actor(), at=time.time())
    return await delete(store, named=name, now=time.time(), let_go=let_go)
