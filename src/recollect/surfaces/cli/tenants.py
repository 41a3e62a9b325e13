"""`recollect tenant` and `recollect key`: who may use a service, with which key and how much.

Speaks to the database alone, so a service need not run. A key is printed once, when it is made:
only a hash of it is kept. Every change stands in the audit log.
"""

from __future__ import annotations

import asyncio
import getpass
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from recollect import config, wiring
from recollect.errors import RecollectError
from recollect.service.keys import (
    DEFAULT_SCOPES,
    MadeKey,
    limited,
    make_key,
    new_tenant,
    rotated_key,
    shown_key,
)
from recollect.surfaces.cli.store_options import (
    check_url,
    instant,
    json_option,
    print_json,
    store_option,
    when,
)
from recollect.surfaces.cli.text import plain_line
from recollect.values.tenant import KEY_SCOPES, ApiKey, KeyScope, Tenant, tenant_space

if TYPE_CHECKING:
    from recollect.stores.postgres import PostgresFleet

T = TypeVar("T")
PAGE: Final = 500
_UNITS: Final = {"d": 86_400.0, "h": 3_600.0, "w": 604_800.0}
Work = Callable[["PostgresFleet"], Awaitable[T]]
requests_option = click.option(
    "--requests-per-minute", type=click.IntRange(1), metavar="N", help="Requests, on all nodes."
)
tokens_option = click.option(
    "--tokens-per-day", type=click.IntRange(1), metavar="N", help="Tokens taken in, on all nodes."
)


def _with_fleet(url: str | None, work: Work[T]) -> T:
    check_url(url)
    url = config.load_settings().settings.store.url if url is None else url
    if url is None or not wiring.is_server(url):
        raise RecollectError(
            "tenants are for a service on PostgreSQL: give --store postgresql://USER@HOST/DATABASE"
        )

    async def run() -> T:
        fleet = await wiring.open_fleet(url)
        try:
            return await work(fleet)
        finally:
            await fleet.close()

    return asyncio.run(run())


def _actor() -> str:
    """Who runs the command, for the audit log."""
    try:
        return f"command line, {getpass.getuser()}"
    except (KeyError, OSError):  # a container's user need not have a name
        return "command line"


async def _meant(fleet: PostgresFleet, name: str) -> Tenant:
    tenant = await fleet.tenants().tenant_named(name)
    if tenant is None:
        raise RecollectError(
            f"there is no tenant {plain_line(name)!r}: `recollect tenant list` shows them"
        )
    return tenant


@click.group()
def tenant() -> None:
    """Say who may use a service, and how much of it."""


@tenant.command("create")
@click.argument("name")
@requests_option
@tokens_option
@store_option
@json_option
def create_tenant(
    *,
    name: str,
    requests_per_minute: int | None,
    tokens_per_day: int | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Make a tenant. Without limits it may ask for as much as there is."""
    if not name.strip():
        raise RecollectError("a tenant has a name of at least one character")
    made = limited(
        new_tenant(name, now=time.time()), requests=requests_per_minute, tokens=tokens_per_day
    )

    async def work(fleet: PostgresFleet) -> bool:
        return await fleet.tenants().add_tenant(made, actor=_actor())

    if not _with_fleet(url, work):
        raise RecollectError(f"there is a tenant {plain_line(name)!r} already")
    if as_json:
        print_json(_tenant_json(made))
    else:
        click.echo(f"{made.id}  {plain_line(name)}")
        click.echo(f"Next: recollect key create {plain_line(name)}", err=True)


@tenant.command("list")
@store_option
@json_option
def list_tenants(*, url: str | None, as_json: bool) -> None:
    """List the tenants and their limits."""

    async def work(fleet: PostgresFleet) -> list[Tenant]:
        found: list[Tenant] = []
        while page := await fleet.tenants().tenants(
            after=found[-1].name if found else "", limit=PAGE
        ):
            found += page
        return found

    found = _with_fleet(url, work)
    if as_json:
        print_json({"tenants": [_tenant_json(one) for one in found]})
        return
    for one in found:
        requests = "no limit" if one.requests_per_minute is None else f"{one.requests_per_minute:,}"
        tokens = "no limit" if one.tokens_per_day is None else f"{one.tokens_per_day:,}"
        click.echo(
            f"{one.id}  {when(one.created_at)}  {plain_line(one.name)}  "
            f"requests a minute: {requests}, tokens a day: {tokens}"
        )


@tenant.command("limits")
@click.argument("name")
@requests_option
@tokens_option
@store_option
@json_option
def set_limits(
    *,
    name: str,
    requests_per_minute: int | None,
    tokens_per_day: int | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Set a tenant's limits; one that is not named is lifted. Nodes follow within seconds."""

    async def work(fleet: PostgresFleet) -> Tenant:
        known = await _meant(fleet, name)
        new = limited(known, requests=requests_per_minute, tokens=tokens_per_day)
        await fleet.tenants().set_limits(new, actor=_actor(), at=time.time())
        return new

    new = _with_fleet(url, work)
    if as_json:
        print_json(_tenant_json(new))


@tenant.command("delete")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_option
@json_option
def delete_tenant(*, name: str, yes: bool, url: str | None, as_json: bool) -> None:
    """Delete a tenant with its keys, its spaces and all that they hold; prints certificates."""
    if not yes and not click.confirm(
        f"Delete tenant {plain_line(name)} with all its spaces for good?", err=True
    ):
        raise SystemExit(1)

    async def work(fleet: PostgresFleet) -> list[dict[str, Any]]:
        return await _deleted(fleet, await _meant(fleet, name))

    certificates = _with_fleet(url, work)
    if as_json:
        print_json({"deleted": name, "certificates": certificates})
    else:
        click.echo(f"Deleted {plain_line(name)} and {len(certificates):,} spaces.")


async def _deleted(fleet: PostgresFleet, meant: Tenant) -> list[dict[str, Any]]:
    from recollect.upkeep.certificates import certificate_json
    from recollect.upkeep.forget import delete_space

    records, made = fleet.tenants(), []
    for key in await records.keys(meant.id):  # nobody writes while spaces go
        await records.revoke_key(meant, key.id, actor=_actor(), at=time.time())
    while page := await records.spaces(meant.id, limit=PAGE):
        for space in page:
            store = await fleet.space(tenant_space(meant.id, space.name))
            done = await delete_space(store, named=space.name, now=time.time())
            made.append(certificate_json(done))
            await records.remove_space(meant, space.name, actor=_actor(), at=time.time())
    await records.remove_tenant(meant, actor=_actor(), at=time.time())
    return made


@tenant.command("audit")
@click.argument("name", required=False)
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True)
@store_option
@json_option
def show_audit(*, name: str | None, limit: int, url: str | None, as_json: bool) -> None:
    """Show what was done about tenants, keys and spaces, the newest first."""

    async def work(fleet: PostgresFleet) -> list[dict[str, Any]]:
        whose = None if name is None else (await _meant(fleet, name)).id
        log = await fleet.tenants().log(whose, limit=limit)
        return [
            {**asdict(record), "at": instant(record.at), "tenant": str(record.tenant)}
            for record in log
        ]

    acts = _with_fleet(url, work)
    if as_json:
        print_json({"acts": acts})
        return
    for act in acts:
        text = (
            f"{act['at']}  {act['actor']}  {act['act']}  {act['subject']}  tenant {act['tenant']}"
        )
        click.echo(plain_line(text))


@click.group()
def key() -> None:
    """Make, list, revoke and rotate the keys of a service's tenants."""


@key.command("create")
@click.argument("tenant_name", metavar="TENANT")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(KEY_SCOPES),
    help="What it may do; may be repeated. Without it: read and write.",
)
@click.option("--name", default="", help="What it is for, to tell keys apart.")
@click.option("--expires", metavar="AGE", help="It ends after this: 90d, 12h, 2w.")
@store_option
@json_option
def create_key(
    *,
    tenant_name: str,
    scopes: tuple[KeyScope, ...],
    name: str,
    expires: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Make a key and print it: it is shown once and can be had from nowhere later."""
    now = time.time()
    ends = None if expires is None else now + _age(expires, "--expires")

    async def work(fleet: PostgresFleet) -> MadeKey:
        owner = await _meant(fleet, tenant_name)
        made = make_key(
            owner.id, name=name, scopes=scopes or DEFAULT_SCOPES, now=now, expires_at=ends
        )
        await fleet.tenants().add_key(made.record, actor=_actor())
        return made

    _print_made(_with_fleet(url, work), as_json=as_json)


@key.command("list")
@click.argument("tenant_name", metavar="TENANT")
@store_option
@json_option
def list_keys(*, tenant_name: str, url: str | None, as_json: bool) -> None:
    """List a tenant's keys: what may be seen of them, what they may do, when they end."""

    async def work(fleet: PostgresFleet) -> tuple[ApiKey, ...]:
        return await fleet.tenants().keys((await _meant(fleet, tenant_name)).id)

    keys = _with_fleet(url, work)
    if as_json:
        print_json({"keys": [_key_json(one) for one in keys]})
        return
    for one in keys:
        ends = "never ends" if one.expires_at is None else f"ends {when(one.expires_at)}"
        ends = ends if one.revoked_at is None else f"revoked {when(one.revoked_at)}"
        click.echo(
            f"{one.id}  {shown_key(one)}  {', '.join(one.scopes)}  {ends}  {plain_line(one.name)}"
        )


@key.command("revoke")
@click.argument("tenant_name", metavar="TENANT")
@click.argument("key_id", metavar="KEY")
@store_option
@json_option
def revoke_key(*, tenant_name: str, key_id: str, url: str | None, as_json: bool) -> None:
    """Let a key open nothing from now on. Nodes follow within seconds."""

    async def work(fleet: PostgresFleet) -> bool:
        owner = await _meant(fleet, tenant_name)
        return await fleet.tenants().revoke_key(owner, key_id, actor=_actor(), at=time.time())

    if not _with_fleet(url, work):
        raise RecollectError(_no_such(tenant_name, key_id))
    if as_json:
        print_json({"revoked": key_id})


@key.command("rotate")
@click.argument("tenant_name", metavar="TENANT")
@click.argument("key_id", metavar="KEY")
@click.option(
    "--grace", metavar="AGE", default="24h", show_default=True, help="How long the old one lasts."
)
@store_option
@json_option
def rotate_key(
    *, tenant_name: str, key_id: str, grace: str, url: str | None, as_json: bool
) -> None:
    """Make a key in the place of another, which goes on for a while, so that nothing stops."""
    now = time.time()
    ends = now + _age(grace, "--grace")

    async def work(fleet: PostgresFleet) -> MadeKey | None:
        owner = await _meant(fleet, tenant_name)
        found = await fleet.tenants().key(owner.id, key_id)
        if found is None:
            return None
        made = rotated_key(found[0], now=now)
        done = await fleet.tenants().rotate_key(
            owner, key_id, made.record, ends_at=ends, actor=_actor()
        )
        return made if done else None

    made = _with_fleet(url, work)
    if made is None:
        raise RecollectError(_no_such(tenant_name, key_id))
    _print_made(made, as_json=as_json)


def _no_such(tenant_name: str, key_id: str) -> str:
    listed = f"`recollect key list {plain_line(tenant_name)}` shows them"
    return f"tenant {plain_line(tenant_name)!r} has no working key {plain_line(key_id)!r}: {listed}"


def _age(text: str, option: str) -> float:
    unit = _UNITS.get(text[-1:])
    if unit is None or not text[:-1].isascii() or not text[:-1].isdigit():
        raise RecollectError(f"{option} {plain_line(text)!r}: give an age such as 90d, 12h or 2w")
    return int(text[:-1]) * unit


def _print_made(made: MadeKey, *, as_json: bool) -> None:
    if as_json:
        print_json({**_key_json(made.record), "key": made.text})
        return
    click.echo(made.text)
    click.echo("It is shown this once: only a hash of it is kept.", err=True)


def _tenant_json(one: Tenant) -> dict[str, Any]:
    return {**asdict(one), "id": str(one.id), "created_at": instant(one.created_at)}


def _key_json(one: ApiKey) -> dict[str, Any]:
    return {
        "id": one.id,
        "prefix": shown_key(one),
        "name": one.name,
        "scopes": list(one.scopes),
        "created_at": instant(one.created_at),
        "expires_at": instant(one.expires_at),
        "revoked_at": instant(one.revoked_at),
    }
